"""Finds CUDA and HIP kernels by tree-sitter's grammar: what is marked ``__global__``, and what it needs of the file."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kb.errors import SourceFormatError
from kb.importers.code.cuda_features import features_of
from kb.importers.code.parts import MOST_TEXT, Kernel, Parameter, sliced

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MARK = b"__global__"
_MOST_LAUNCHER = 120
_MOST_LINE = 20_000
_MOST_NODES = 600_000
_MOST_NESTED = 200
_OUTER = frozenset({
    "translation_unit", "namespace_definition", "declaration_list", "linkage_specification", "preproc_if",
    "preproc_ifdef", "preproc_else", "preproc_elif", "ERROR",
})  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class _File:
    lines: list[str]
    kernels: list[tuple[str, "Node", "Node"]] = field(default_factory=list)
    """Name, the function, and the outermost node that belongs to it (its template)."""
    defined: dict[str, list["Node"]] = field(default_factory=dict)
    """Name → what defines it at the top of the file: functions that run on the device, constants, types, macros."""
    hosts: list[tuple[str, "Node"]] = field(default_factory=list)
    includes: list["Node"] = field(default_factory=list)


@cache
def _parser() -> "Parser":
    try:
        import tree_sitter_cuda
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise SourceFormatError(
            "CUDA needs the packages tree-sitter and tree-sitter-cuda: pip install 'kernel-kb[code]'"
        ) from error
    return Parser(Language(tree_sitter_cuda.language()))


def kernels_of(body: str, *, hip: bool = False) -> Iterator[Kernel]:
    """Yield the kernels of a CUDA or HIP file, in its order.

    Args:
        body: Its text.
        hip: Whether it is for AMD devices.

    Raises:
        SourceFormatError: It has lines or nesting that no one writes, or the grammar is not installed.
    """
    if any(len(line) > _MOST_LINE for line in body.split("\n")):
        raise SourceFormatError(f"expected lines of at most {_MOST_LINE:,} characters")
    if _nesting(body) > _MOST_NESTED:
        raise SourceFormatError(f"expected at most {_MOST_NESTED} brackets inside one another")
    tree = _parser().parse(_ATTRIBUTES.sub(_blank, body).encode("utf-8", "surrogatepass"))
    made = _File(body.splitlines(keepends=True) if "\f" not in body else re.split(r"(?<=\n)", body))
    for node in _outer(tree.root_node):
        _sort(made, node)
    for name, function, whole in made.kernels:
        yield _kernel(made, name, function, whole, hip=hip)


_ATTRIBUTES = re.compile(
    r"__(?:cluster_dims|launch_bounds|maxnreg|block_size|block_dims)__\s*\((?:[^()]|\([^()]*\))*\)|__grid_constant__"
)
"""What stands before a kernel's name or a parameter and would be taken for it."""


def _blank(found: "re.Match[str]") -> str:
    return re.sub(r"[^\n]", " ", found.group(0))


def _nesting(body: str) -> int:
    depth = most = 0
    for one in re.findall(r"[(\[{}\])]", body):
        depth = depth + 1 if one in "([{" else max(depth - 1, 0)
        most = max(most, depth)
    return most


def _outer(root: "Node") -> Iterator["Node"]:
    """Yield what stands at the top of a file, also inside namespaces and conditions of the preprocessor."""
    waiting = [root]
    count = 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > _MOST_NODES:
            raise SourceFormatError(f"expected at most {_MOST_NODES:,} parts in a file")
        if node.type in _OUTER:
            waiting.extend(reversed(node.children))
        else:
            yield node


def _text(node: "Node | None") -> str:
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def _sort(file: _File, node: "Node") -> None:
    if node.type == "preproc_include":
        file.includes.append(node)
        return
    inner = node
    while inner.type == "template_declaration":
        inner = inner.children[-1] if inner.children[-1].type != ";" else inner.children[-2]
    if inner.type == "function_definition":
        name = _name(inner)
        marks = {child.type for child in inner.children} | set(_WORD.findall(_text(inner)[: _before_body(inner)]))
        if "__global__" in marks:
            file.kernels.append((name, inner, node))
        elif "__device__" in marks or "constexpr" in marks or inner is not node:
            file.defined.setdefault(name, []).append(node)
            if "__device__" not in marks:
                file.hosts.append((name, node))
        else:
            file.hosts.append((name, node))
    elif inner.type.startswith("preproc_def") or inner.type == "preproc_function_def":
        file.defined.setdefault(_text(inner.child_by_field_name("name")), []).append(node)
    elif inner.type in _DEFINING:
        for name in _declared(inner):
            file.defined.setdefault(name, []).append(node)


_DEFINING = frozenset({
    "declaration", "struct_specifier", "class_specifier", "enum_specifier", "union_specifier", "alias_declaration",
    "type_definition", "using_declaration", "namespace_alias_definition",
})  # fmt: skip


def _before_body(function: "Node") -> int:
    body = function.child_by_field_name("body")
    return body.start_byte - function.start_byte if body is not None else 400


def _declarator(function: "Node") -> "Node | None":
    found = function.child_by_field_name("declarator")
    while found is not None and found.type != "function_declarator":
        found = found.child_by_field_name("declarator")
    return found


def _name(function: "Node") -> str:
    declarator = _declarator(function)
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    words = _WORD.findall(_text(name))
    return words[-1] if words else ""


def _declared(node: "Node") -> Iterator[str]:
    name = node.child_by_field_name("name")
    if name is not None:
        yield _text(name)
        return
    for child in node.children:
        if child.type in ("init_declarator", "array_declarator", "identifier", "type_identifier", "pointer_declarator"):
            words = _WORD.findall(_text(child))
            if words:
                yield words[0]
        elif child.type in _DEFINING:
            yield from _declared(child)


def _span(node: "Node") -> tuple[int, int]:
    # A line of the preprocessor ends behind its line break.
    end = node.end_point[0] + (1 if node.end_point[1] else 0)
    return node.start_point[0] + 1, max(end, node.start_point[0] + 1)


def _needed(file: _File, node: "Node") -> dict[str, list["Node"]]:
    """Return what a function needs of its file, itself or through others, by name."""
    found: dict[str, list[Node]] = {}
    waiting = [node]
    size = 0
    while waiting:
        text = _text(waiting.pop())
        size += len(text)
        if size > 4 * MOST_TEXT:
            break
        for name in set(_WORD.findall(text)):
            if name not in found and name in file.defined and file.defined[name] != [node]:
                found[name] = file.defined[name]
                waiting.extend(file.defined[name])
    return found


def _kernel(file: _File, name: str, function: "Node", whole: "Node", *, hip: bool) -> Kernel:
    needed = _needed(file, whole)
    launchers = [
        (other, node) for other, node in file.hosts if re.search(rf"\b{re.escape(name)}\b", _text(node)) and name
    ]
    spans = [_span(whole), *(_span(node) for node in file.includes)]
    spans += [_span(node) for nodes in needed.values() for node in nodes]
    for _, node in launchers:
        first, last = _span(node)
        if last - first < _MOST_LAUNCHER:
            spans.append((first, last))
    text = sliced(file.lines, spans)
    if len(text) > MOST_TEXT:
        raise SourceFormatError(f"{name}: expected at most {MOST_TEXT:,} characters with what it needs")
    own = [_text(whole), *(_text(node) for nodes in needed.values() for node in nodes)]
    bare = [_bare(each) for each in own]
    return Kernel(
        name=name,
        language="hip" if hip else "cuda",
        text=text,
        lines=_span(whole),
        parameters=_parameters(function, whole),
        features=features_of("\n".join(bare)),
        normal=hashlib.sha256("\n".join([bare[0], *sorted(bare[1:])]).encode("utf-8", "replace")).hexdigest(),
        helpers=tuple(sorted(needed)),
        launchers=tuple(dict.fromkeys(other for other, _ in launchers)),
        elsewhere=tuple(
            sorted({found.group(1) for node in file.includes if (found := re.search(r'"([^"]+)"', _text(node)))})
        ),
    )


_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)


def _bare(text: str) -> str:
    """Write text without comments, with single blanks; what stands in quotes stays."""
    return " ".join(_COMMENT.sub(lambda found: found.group(1) or " ", text).split())


def _parameters(function: "Node", whole: "Node") -> tuple[Parameter, ...]:
    found = []
    for node in whole.children if whole.type == "template_declaration" else ():
        if node.type == "template_parameter_list":
            for child in node.named_children:
                words = _WORD.findall(_text(child).split("=")[0])
                if words:
                    found.append(Parameter(words[-1], "constant", " ".join(words[:-1]) or None))
    declarator = _declarator(function)
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    for child in listed.named_children if listed is not None else ():
        text = _bare(_text(child)).split("=")[0]
        words = _WORD.findall(text)
        if child.type.endswith("parameter_declaration") and words:
            found.append(Parameter(words[-1], "pointer" if _points(text) else "scalar", text[:120]))
    return tuple(found)


def _points(text: str) -> bool:
    return "*" in text or "[" in text or re.search(r"CUtensorMap|TensorAccessor|TensorMap|Tensor\b", text) is not None
