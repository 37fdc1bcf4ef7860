"""Finds Triton and Gluon kernels in Python text by its syntax tree; nothing of it is imported or run."""

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kb.errors import SourceFormatError
from kb.importers.code import tuning
from kb.importers.code.parts import MOST_TEXT, Kernel, Parameter, sliced
from kb.importers.code.triton_features import features_of

MARK = re.compile(rb"@[\w. \t]*jit\b")
"""Bytes without which a file has no kernel: most files that speak of Triton only call one."""
_DECORATORS = frozenset({"triton.jit", "jit", "gluon.jit", "triton.experimental.gluon.jit", "triton_jit"})
_MOST_LAUNCHER = 120
"""Lines of a function that launches a kernel; a longer one is named instead."""
_MOST_LINE = 20_000
_MOST_NODES = 400_000
_MOST_DEPTH = 120
_WRITES = frozenset({"store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_or"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class _Module:
    """A file, taken apart."""

    lines: list[str]
    tree: ast.Module
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """Functions that Triton compiles: kernels, and helpers of kernels."""
    language: str = "triton"
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """Name → statements at the top of the file that define it."""
    imported: dict[str, str] = field(default_factory=dict)
    """Name → module that it comes from."""


def kernels_of(body: str) -> Iterator[Kernel]:
    """Yield the kernels of a Python file, in its order.

    Args:
        body: Its text.

    Raises:
        SourceFormatError: It is no Python, or has lines or nesting that no one writes.
    """
    module = _parsed(body)
    for name, node in module.kernels.items():
        if _is_kernel(module, name, node):
            yield _kernel(module, name, node)


def _parsed(body: str) -> _Module:
    if any(len(line) > _MOST_LINE for line in body.splitlines()):
        raise SourceFormatError(f"expected lines of at most {_MOST_LINE:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceFormatError(f"expected Python, found: {' '.join(str(error).split())[:150]}") from error
    _check_size(tree)
    made = _Module(body.splitlines(keepends=True), tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_jit(each) for each in node.decorator_list):
            made.kernels.setdefault(node.name, node)
            if any("gluon" in _dotted(each) for each in node.decorator_list):
                made.language = "gluon"
    for statement in tree.body if made.kernels else ():
        if not _is_script(statement):
            _bind(made, statement)
    return made


def _check_size(tree: ast.Module) -> None:
    """Refuse a tree that recursion could not go through.

    Raises:
        SourceFormatError: It has too many nodes or is too deep.
    """
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count += len(level)
        depth += 1
        if count > _MOST_NODES or depth > _MOST_DEPTH:
            raise SourceFormatError(f"expected at most {_MOST_NODES:,} nodes, {_MOST_DEPTH} deep, in a Python file")
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]


def _is_script(statement: ast.stmt) -> bool:
    """Tell ``if __name__ == "__main__":``, whose variables are nobody's constants."""
    return isinstance(statement, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(statement.test)
    )


def _bind(module: _Module, statement: ast.stmt) -> None:
    """Note which names a statement at the top of the file defines, also inside ``if`` and ``try``."""
    names: set[str] = set()
    inside = isinstance(statement, Function | ast.ClassDef)
    loops = {
        id(name)
        for each in ast.walk(statement)
        if isinstance(each, ast.comprehension)
        for name in ast.walk(each.target)
    }
    for node in ast.walk(statement):
        if isinstance(node, Function | ast.ClassDef):
            if node is statement or not inside:
                names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                name = (each.asname or each.name).split(".")[0]
                names.add(name)
                origin = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else each.name
                module.imported.setdefault(name, origin)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not inside and id(node) not in loops:
            names.add(node.id)
    for name in names:
        module.bound.setdefault(name, []).append(statement)


def _dotted(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    parts: list[str] = []
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if isinstance(target, ast.Name):
        parts.append(target.id)
    return ".".join(reversed(parts))


def _is_jit(node: ast.expr) -> bool:
    name = _dotted(node)
    return name in _DECORATORS or name.endswith((".triton.jit", ".gluon.jit"))


def _is_kernel(module: _Module, name: str, node: ast.FunctionDef) -> bool:
    """Tell a kernel from a helper of kernels: a kernel writes to memory and gives nothing back."""
    if any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(node)):
        return False
    reached = [node, *(module.kernels[each] for each in _reached(module, node) if each in module.kernels)]
    writes = any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _WRITES
        for one in reached
        for each in ast.walk(one)
    )
    tuned = any("autotune" in _dotted(each) or "heuristics" in _dotted(each) for each in node.decorator_list)
    if tuned or _launchers(module, name):
        return writes or tuned
    called = any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == name
        for other, one in module.kernels.items()
        if other != name
        for each in ast.walk(one)
    )
    return writes and not called


def _names_in(node: ast.AST) -> set[str]:
    """Return the names that a statement reads and that are not its own: no parameter, nothing that it assigns."""
    read: set[str] = set()
    own: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            own.add(each.arg)
        elif isinstance(each, ast.Name):
            (read if isinstance(each.ctx, ast.Load) else own).add(each.id)
    return read - own if isinstance(node, Function) else read


def _reached(module: _Module, node: ast.AST) -> list[str]:
    """Return the names that the file defines and that a function needs, itself or through others."""
    found: dict[str, None] = {}
    waiting: list[ast.AST] = [node]
    while waiting:
        for name in sorted(_names_in(waiting.pop())):
            if name in found or name not in module.bound or name in module.imported:
                continue
            found[name] = None
            waiting.extend(module.bound[name])
    own = getattr(node, "name", None)
    return [name for name in found if name != own]


def _launchers(module: _Module, name: str) -> list[Function]:
    """Return the functions, also methods, that launch a kernel: ``kernel[grid](…)``."""
    found: list[Function] = []
    for one in ast.walk(module.tree):
        if isinstance(one, Function) and one.name not in module.kernels:
            for each in ast.walk(one):
                if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name) and each.value.id == name:
                    found.append(one)
                    break
    # An outer function holds what an inner one does: the innermost ones say more.
    return [one for one in found if not any(other is not one and other in ast.walk(one) for other in found)]


def _span(node: ast.stmt | Function) -> tuple[int, int]:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return first, node.end_lineno or node.lineno


def _kernel(module: _Module, name: str, node: ast.FunctionDef) -> Kernel:
    helpers = _reached(module, node)
    launchers = _launchers(module, name)
    short = [one for one in launchers if (one.end_lineno or 0) - one.lineno < _MOST_LAUNCHER]
    spans = [_span(node)]
    needed = _names_in(node)
    for each in helpers:
        for statement in module.bound[each]:
            spans.append(_span(statement))
            needed |= _names_in(statement)
    for one in short:
        if one in module.tree.body:
            spans.append(_span(one))
            needed |= _names_in(one)
            for each in _constants(module, one):
                spans.extend(_span(statement) for statement in module.bound[each])
    imports = {each for each in needed if each in module.imported}
    spans.extend(_span(statement) for each in imports for statement in module.bound[each])
    text = sliced(module.lines, spans)
    if len(text) > MOST_TEXT:
        raise SourceFormatError(f"{name}: expected at most {MOST_TEXT:,} characters with what it needs")
    compiled = [node, *(module.kernels[each] for each in helpers if each in module.kernels)]
    return Kernel(
        name=name,
        language=module.language,
        text=text,
        lines=_span(node),
        parameters=_parameters(node),
        features=features_of(compiled),
        normal=_normal(module, node, helpers),
        helpers=tuple(helpers),
        launchers=tuple(dict.fromkeys(one.name for one in launchers)),
        elsewhere=tuple(sorted(_from_elsewhere(module, compiled))),
        configs=tuning.configs_of(node.decorator_list, module.bound),
    )


def _constants(module: _Module, node: ast.AST) -> list[str]:
    return [
        name
        for name in sorted(_names_in(node))
        if name in module.bound and all(isinstance(each, ast.Assign | ast.AnnAssign) for each in module.bound[name])
    ]


def _from_elsewhere(module: _Module, compiled: Sequence[ast.FunctionDef]) -> set[str]:
    known = ("triton", "torch", "math", "functools", "typing")
    return {
        f"{module.imported[name]}.{name}"
        for one in compiled
        for name in _names_in(one)
        if name in module.imported and not module.imported[name].lstrip(".").startswith(known)
    }


def _parameters(node: ast.FunctionDef) -> tuple[Parameter, ...]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    used = _pointers(node)
    found = []
    for each in arguments:
        stated = ast.unparse(each.annotation) if each.annotation is not None else None
        kind = "constant" if stated and "constexpr" in stated else "pointer" if each.arg in used else "scalar"
        found.append(Parameter(each.arg, kind, stated))
    return tuple(found)


def _pointers(node: ast.FunctionDef) -> set[str]:
    """Return the names whose values reach the address of a load, store or descriptor, through assignments."""
    feeds: dict[str, set[str]] = {}
    roots: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for name in (name for target in each.targets for name in _stored(target)):
                feeds.setdefault(name, set()).update(_leading(each.value))
        elif isinstance(each, ast.Call):
            roots |= _addressed(each)
    seen: set[str] = set()
    while roots:
        name = roots.pop()
        if name not in seen:
            seen.add(name)
            roots |= feeds.get(name, set())
    return seen


def _addressed(call: ast.Call) -> set[str]:
    if call.args and _dotted(call.func).rsplit(".", 1)[-1] in _ADDRESSING:
        own = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        return _leading(call.args[0]) | ({call.func.value.id} if own else set())  # type: ignore[attr-defined]
    if isinstance(call.func, ast.Attribute):
        return set()
    # A helper is handed pointers under names that say so.
    return {name for one in call.args for name in _leading(one) if re.search(r"(?i)_?ptrs?$", name)}


_ADDRESSING = _WRITES | {"load", "make_block_ptr", "make_tensor_descriptor", "advance", "descriptor_load"}


def _stored(target: ast.expr) -> Iterator[str]:
    for each in ast.walk(target):
        if isinstance(each, ast.Name):
            yield each.id


def _leading(value: ast.expr) -> set[str]:
    """Return the name that an address starts from: the leftmost one of a sum, and that of a cast or choice."""
    while True:
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
            value = value.left
        elif isinstance(value, ast.Call):
            if value.args:
                value = value.args[0]
            elif isinstance(value.func, ast.Attribute):
                value = value.func.value
            else:
                return set()
        elif isinstance(value, ast.IfExp):
            return _leading(value.body) | _leading(value.orelse)
        elif isinstance(value, ast.Attribute | ast.Subscript):
            value = value.value
        else:
            return {value.id} if isinstance(value, ast.Name) else set()


def _normal(module: _Module, node: ast.FunctionDef, helpers: Sequence[str]) -> str:
    parts = [_dump(node)]
    parts += sorted(_dump(statement) for name in helpers for statement in module.bound[name])
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _dump(node: ast.stmt) -> str:
    """Write a statement without its places, comments and descriptions."""
    for each in ast.walk(node):
        if isinstance(each, Function | ast.ClassDef) and ast.get_docstring(each, clean=False) is not None:
            each.body = each.body[1:] or [ast.Pass()]
    return ast.dump(node)
