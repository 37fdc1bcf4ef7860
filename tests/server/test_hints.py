"""Clients are told the next step in what they can do: a tool, a route, or whom to ask; never a bare command."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.server.hints import OWNER, Surface, noted, worded

PACKAGE = Path(__file__).resolve().parents[2] / "kb"
COMMAND = re.compile(r"(?<![\w/])kb (?:--)?[a-z]+(?![\w/])")


@pytest.mark.parametrize(
    ("hint", "tools", "routes"),
    [
        ("kb list", "the resource kb://entries", "GET /v1/entries"),
        ("kb list --kind target", "search with kind = target", "GET /v1/targets"),
        ("kb operators", "the resource kb://operators", "GET /v1/operators"),
        ("kb operators silu", "get with id = operator/silu", "GET /v1/operators/silu"),
        (
            "kb evidence kernel/silu/flat names its records",
            "get with id = kernel/silu/flat and part = evidence names its records",
            "GET /v1/entries/kernel/silu/flat/evidence names its records",
        ),
        (
            "kb show kernel/silu/flat@2",
            "get with id = kernel/silu/flat and version = 2",
            "GET /v1/entries/kernel/silu/flat?version=2",
        ),
        ("--device cpu", "device = cpu", "device = cpu"),
        ("nearest: kernel/silu/flat", "nearest: kernel/silu/flat", "nearest: kernel/silu/flat"),
        ("kb index --rebuild", f"{OWNER}kb index --rebuild", f"{OWNER}kb index --rebuild"),
        ("kb doctor; --device cpu", f"{OWNER}kb doctor; --device cpu", f"{OWNER}kb doctor; --device cpu"),
        (
            "kb list --kind target lists them; kb target new makes one",
            f"search with kind = target lists them; {OWNER}kb target new makes one",
            f"GET /v1/targets lists them; {OWNER}kb target new makes one",
        ),
        ("chmod 600 tokens.json", f"{OWNER}chmod 600 tokens.json", f"{OWNER}chmod 600 tokens.json"),
    ],
)  # fmt: skip
def test_a_command_becomes_what_the_client_can_do(hint: str, tools: str, routes: str) -> None:
    assert worded(hint, "tools") == tools
    assert worded(hint, "routes") == routes
    assert worded(tools, "tools") == tools


@pytest.mark.parametrize("surface", ["tools", "routes"])
def test_no_hint_of_ours_reaches_a_client_as_a_bare_command(surface: Surface) -> None:
    found = list(_hints())
    assert len(found) > 100
    for hint in found:
        said = worded(hint, surface)
        assert said is not None
        assert said.startswith(OWNER) or not COMMAND.search(said) or "whoever runs the server" in said, hint


def test_notes_of_an_answer_name_arguments_and_no_options() -> None:
    notes = (
        "the query mentions H100; ask for another with --device",
        "left out: a/b/c; --withdrawn shows them",
        "as is",
    )
    surfaces: tuple[Surface, ...] = ("tools", "routes")
    for surface in surfaces:
        assert noted(notes, surface) == (
            "the query mentions H100; ask for another with device = NAME",
            "left out: a/b/c; withdrawn = true shows them",
            "as is",
        )


def test_nothing_stays_nothing() -> None:
    assert worded(None, "tools") is None
    assert worded("", "routes") == ""


def _hints() -> Iterator[str]:
    """Yield every text that the sources pass as ``hint``, with ``X`` where a value stands."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.arg] if isinstance(node, ast.keyword) else []
            names += [getattr(one, "id", "") for one in node.targets] if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.keyword | ast.Assign) and names == ["hint"]:
                yield from _texts(node.value)


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
    elif isinstance(node, ast.BoolOp):
        for inner in node.values:
            yield from _texts(inner)
    elif isinstance(node, ast.IfExp):
        yield from (*_texts(node.body), *_texts(node.orelse))
