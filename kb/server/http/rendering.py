"""Readmes and code in the form that the web page shows: trees and coloured runs of text, never HTML.

Parsing is CommonMark's with tables, where HTML is text like any other. What comes out names elements by a short list
of tags and carries text; the page makes elements of it one by one. So stored text cannot become markup on the way.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.lexer import Lexer
from pygments.lexers import c_cpp, configs, data, python
from pygments.lexers.c_like import CudaLexer
from pygments.token import Token, _TokenType

from kb.plain import neutral

LARGEST = 200_000
"""Characters of a file or readme beyond which it is shown as plain text: colouring takes time."""

Node = str | dict[str, Any]
Line = list[list[str]]
"""Runs of text, each with its class in front; the class of plain text is empty."""

_TAGS = {
    "paragraph": "p", "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "blockquote": "blockquote",
    "strong": "strong", "em": "em", "s": "del", "table": "table", "thead": "thead", "tbody": "tbody", "tr": "tr",
    "th": "th", "td": "td",
}  # fmt: skip
_CLASSES: Sequence[tuple[_TokenType, str]] = (
    (Token.Comment.Preproc, "k"),
    (Token.Comment, "c"),
    (Token.Literal.String, "s"),
    (Token.Literal.Number, "n"),
    (Token.Keyword, "k"),
    (Token.Operator.Word, "k"),
    (Token.Name.Function, "f"),
    (Token.Name.Class, "f"),
    (Token.Name.Decorator, "d"),
    (Token.Name.Builtin, "b"),
    (Token.Name.Tag, "b"),
    (Token.Name.Attribute, "b"),
)
_LEXERS: Mapping[str, type[Lexer]] = {
    "py": python.PythonLexer, "python": python.PythonLexer, "triton": python.PythonLexer,
    "cu": CudaLexer, "cuh": CudaLexer, "cuda": CudaLexer,
    "cpp": c_cpp.CppLexer, "c++": c_cpp.CppLexer, "cc": c_cpp.CppLexer, "hpp": c_cpp.CppLexer, "h": c_cpp.CppLexer,
    "c": c_cpp.CLexer, "hip": c_cpp.CppLexer,
    "json": data.JsonLexer, "toml": configs.TOMLLexer,
}  # fmt: skip


def tree(text: str) -> list[Node]:
    """Return Markdown as a tree.

    Args:
        text: Markdown. HTML in it is text, images are links to what they would show, and only links to http and https
            are links at all.

    Returns:
        Texts and elements: ``t`` is the tag, ``c`` its children, ``href``, ``start``, ``align`` and ``lines`` (of code,
        see :func:`coloured`) are there where they mean something.
    """
    shown = neutral(text, lines=True)
    if len(shown) > LARGEST:
        return [{"t": "pre", "lines": coloured(shown, "")}]
    return list(_nodes(SyntaxTreeNode(_parser().parse(shown)).children))


def coloured(text: str, language: str) -> list[Line]:
    """Return code as lines of coloured runs.

    Args:
        text: The code.
        language: A file name's ending or the word of a fence; nothing is coloured where it is not known.
    """
    shown = neutral(text.replace("\r\n", "\n"), lines=True)
    lexer = _LEXERS.get(language.lower())
    if lexer is None or len(shown) > LARGEST:
        return [[["", line]] if line else [] for line in shown.removesuffix("\n").split("\n")]
    lines: list[Line] = [[]]
    for kind, value in lexer(stripnl=False, ensurenl=False).get_tokens(shown.removesuffix("\n")):
        name = _class_of(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if not part:
                continue
            if lines[-1] and lines[-1][-1][0] == name:
                lines[-1][-1][1] += part
            else:
                lines[-1].append([name, part])
    return lines


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])


def _class_of(kind: _TokenType) -> str:
    return next((name for within, name in _CLASSES if kind in within), "")


def _nodes(children: Sequence[SyntaxTreeNode]) -> Iterator[Node]:
    for child in children:
        yield from _node(child)


def _node(node: SyntaxTreeNode) -> Iterator[Node]:
    inner = node.children
    if node.type == "inline" or (node.type == "paragraph" and node.hidden):
        yield from _nodes(inner)
    elif node.type in ("softbreak", "text"):
        yield " " if node.type == "softbreak" else node.content
    elif node.type == "heading":
        # The page's own headings stand above those of a readme.
        yield {"t": f"h{min(6, int(node.tag[1:]) + 2)}", "c": list(_nodes(inner))}
    elif node.type in ("fence", "code_block"):
        yield {"t": "pre", "lines": coloured(node.content, node.info.split(" ")[0] if node.info else "")}
    elif node.type in ("hardbreak", "hr"):
        yield {"t": "br" if node.type == "hardbreak" else "hr"}
    elif node.type == "code_inline":
        yield {"t": "code", "c": [node.content]}
    elif node.type in ("link", "image"):
        yield _link(node, inner)
    elif node.type in _TAGS:
        yield {"t": _TAGS[node.type], "c": list(_nodes(inner)), **_attributes(node)}
    else:
        yield node.content


def _attributes(node: SyntaxTreeNode) -> dict[str, object]:
    found: dict[str, object] = {}
    if node.type == "ordered_list" and isinstance(node.attrs.get("start"), int):
        found["start"] = node.attrs["start"]
    style = str(node.attrs.get("style", ""))
    if style.startswith("text-align:"):
        found["align"] = style.removeprefix("text-align:")
    return found


def _link(node: SyntaxTreeNode, inner: Sequence[SyntaxTreeNode]) -> Node:
    href = str(node.attrs.get("src" if node.type == "image" else "href", ""))
    shown = list(_nodes(inner)) or [href]
    return {"t": "a", "c": shown, "href": href} if _is_web(href) else {"t": "span", "c": shown}


def _is_web(href: str) -> bool:
    try:
        parts = urlsplit(href)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
