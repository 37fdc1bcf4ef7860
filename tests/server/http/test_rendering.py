"""Readmes and code become trees and coloured runs in which text stays text, whatever it holds."""

import json
import time

import pytest

pytest.importorskip("fastapi")

from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from kb.server.http.rendering import LARGEST, Node, coloured, tree
from tests.server.http.conftest import ROW

TAGS = frozenset({
    "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "del", "code", "span", "table",
    "thead", "tbody", "tr", "th", "td", "hr", "br", "pre", "a",
})  # fmt: skip


def elements(nodes: list[Node]) -> list[dict[str, object]]:
    """Return all elements of a tree."""
    found: list[dict[str, object]] = []
    for node in nodes:
        if isinstance(node, dict):
            found += [node, *elements(node.get("c", []))]
    return found


def text_of(nodes: list[Node]) -> str:
    """Return the text of a tree without that of code blocks."""
    return "".join(node if isinstance(node, str) else text_of(node.get("c", [])) for node in nodes)


def test_markdown_becomes_a_tree() -> None:
    made = tree("# Title\n\nA **bold** `code` and [a link](https://example.org/).\n\n3. three\n4. four\n")
    assert made == [
        {"t": "h3", "c": ["Title"]},
        {
            "t": "p",
            "c": [
                "A ",
                {"t": "strong", "c": ["bold"]},
                " ",
                {"t": "code", "c": ["code"]},
                " and ",
                {"t": "a", "c": ["a link"], "href": "https://example.org/"},
                ".",
            ],
        },
        {"t": "ol", "c": [{"t": "li", "c": ["three"]}, {"t": "li", "c": ["four"]}], "start": 3},
    ]


@pytest.mark.parametrize(
    "href",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java&#x73;cript:alert(1)",
        "vbscript:x",
        "data:text/html,<script>",
        "file:///etc/passwd",
        "//evil.example/x",
        "/v1/entries",
        "http:",
        "ftp://example.org/",
    ],
)
def test_only_the_web_is_linked_to(href: str) -> None:
    for text in (f"[x]({href})", f"![x]({href})", f"<{href}>", f"[x][1]\n\n[1]: {href}\n"):
        assert [one for one in elements(tree(text)) if "href" in one] == [], text


def test_html_is_text() -> None:
    made = tree("<script>alert(1)</script>\n\n<img src=x onerror=alert(1)> <b>x</b> &lt;i&gt; &copy;\n\n<!-- c -->\n")
    assert {one["t"] for one in elements(made)} == {"p"}
    assert "<script>alert(1)</script>" in text_of(made)
    assert "<i>" in text_of(made)


@given(st.text(alphabet=st.sampled_from("ab <>[]()!*_`#|-\n\\&;:/\"'"), max_size=120))
def test_whatever_is_written_only_known_elements_come_out(text: str) -> None:
    for one in elements(tree(text)):
        assert one["t"] in TAGS
        assert set(one) <= {"t", "c", "href", "start", "align", "lines"}
        assert str(one.get("href", "https://x")).startswith(("http://", "https://"))


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "*a " * 20_000, "> " * 5_000 + "x", "`" * 30_001, "- " * 3_000 + "x", "|" * 9_000]
)
def test_deep_and_unclosed_markup_is_read_in_bounded_time(text: str) -> None:
    began = time.process_time()
    json.dumps(tree(text))
    assert time.process_time() - began < 20


def test_code_is_the_same_text_in_colours() -> None:
    source = '@triton.jit\ndef run(x):  # a comment\n\n    return \'two\\nlines\' + """a\nb""" + 1.5\n'
    lines = coloured(source, "py")
    assert "\n".join("".join(text for _, text in line) for line in lines) + "\n" == source
    classes = {text: name for line in lines for name, text in line}
    assert (classes["def"], classes["run"], classes["# a comment"], classes["1.5"]) == ("k", "f", "c", "n")
    assert coloured("__global__ void f() {}", "cu")[0][0] == ["k", "__global__"]


@given(st.text(max_size=200), st.sampled_from(["py", "cu", "json", "toml", "unknown", ""]))
def test_colouring_loses_nothing_that_can_be_seen(text: str, language: str) -> None:
    from kb.plain import neutral

    lines = coloured(text, language)
    shown = neutral(text.replace("\r\n", "\n"), lines=True).removesuffix("\n")
    assert "\n".join("".join(part for _, part in line) for line in lines) == shown


def test_very_long_files_are_plain() -> None:
    lines = coloured("x = 1\n" * LARGEST, "py")
    assert lines[0] == [["", "x = 1"]]
    assert tree("a\n\n" * LARGEST)[0]["t"] == "pre"  # type: ignore[index]


def test_hidden_characters_are_seen() -> None:
    assert "\u202e" not in json.dumps(tree("a\u202eb `\u200bx`"), ensure_ascii=False)
    assert coloured("a\u202eb", "py")[0][0][1] != "a\u202eb"


def test_an_entry_is_rendered_for_the_page(ask: TestClient) -> None:
    found = ask.get(f"/v1/entries/{ROW}/rendered").json()
    assert found["files"]["kernel.py"][1] == [["", "    "], ["k", "return"], ["", " x"]]
    assert "<script>alert(1)</script>" in text_of(found["readme"])
    assert ask.get(f"/v1/entries/{ROW}x/rendered").status_code == 404
    tag = ask.get(f"/v1/entries/{ROW}/rendered").headers["etag"]
    assert ask.get(f"/v1/entries/{ROW}/rendered", headers={"If-None-Match": tag}).status_code == 304
