"""What the syntax tree of a candidate shows: stored, able to raise ``needs_review``, deciding nothing."""

import ast
from collections.abc import Iterator
from typing import Any

REVIEW = frozenset(
    {"process", "socket", "ctypes", "introspection", "exec", "files", "signals", "assigns_foreign", "patches_clock"}
)
"""Findings that make an otherwise accepted candidate ``needs_review``."""

BUILDING = frozenset({"process", "files", "ctypes"})
"""Findings that building and loading a library of one's own leaves. Where it is known that a candidate does so, on a
GPU, they ask for no review: only compilers start there, in the build step alone, and only its own folder is written."""

_MODULES = {
    "subprocess": "process", "multiprocessing": "process", "pty": "process", "socket": "socket", "http": "socket",
    "urllib": "socket", "requests": "socket", "ctypes": "ctypes", "cffi": "ctypes", "mmap": "ctypes",
    "gc": "introspection", "inspect": "introspection", "threading": "threads", "concurrent": "threads",
    "asyncio": "threads", "time": "clock", "importlib": "imports", "pickle": "pickle", "os": "os", "sys": "sys",
    "kb": "introspection", "signal": "signals", "resource": "process", "tempfile": "files", "shutil": "files",
    "pathlib": "files", "_thread": "threads", "faulthandler": "introspection", "dis": "introspection",
}  # fmt: skip

_CALLS = {
    "exec": "exec", "eval": "exec", "compile": "exec", "__import__": "imports", "open": "files",
    "globals": "introspection", "locals": "introspection", "id": "identity",
    "data_ptr": "pointer", "_version": "pointer", "Stream": "streams",
    "CUDAGraph": "graphs", "_getframe": "introspection", "get_objects": "introspection", "Thread": "threads",
    "set_float32_matmul_precision": "flags", "set_default_dtype": "flags", "manual_seed": "flags",
    "addaudithook": "introspection",
}  # fmt: skip

_INNER = {
    "f_back", "f_globals", "f_locals", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "__globals__", "__code__",
    "__subclasses__", "__closure__", "__builtins__", "__loader__", "__spec__", "__reduce__", "__traceback__",
}  # fmt: skip
"""Names through which one gets from an object to its surroundings."""

_OS_FILES = (
    "os.open",
    "os.write",
    "os.remove",
    "os.unlink",
    "os.rename",
    "os.mkdir",
    "os.walk",
    "os.listdir",
    "os.scandir",
)

_PLAIN = {"torch", "math", "functools", "typing", "collections", "time", "itertools", "__future__", "numpy"}
"""Modules that bring no kernels of a candidate's own."""

_LIBRARY = ("torch.nn.functional", "torch.nn", "torch.ops", "torch.linalg", "torch.fft")
_HEAVY = {
    "matmul", "mm", "bmm", "addmm", "einsum", "softmax", "layer_norm", "rms_norm", "group_norm", "conv2d", "silu",
    "gelu", "scaled_dot_product_attention", "conv_transpose2d", "multinomial", "topk", "sort", "cumsum", "linear",
    "_scaled_mm",
    "sigmoid", "logsumexp", "conv1d", "max_pool2d", "interpolate", "compile",
}  # fmt: skip


def scan(source: bytes) -> tuple[dict[str, Any], ...]:
    """Return the findings of a source, by line.

    Args:
        source: UTF-8 Python.

    Returns:
        Plain values ``{"code", "line", "what"}``; a source that does not parse has one finding, ``syntax``.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return ({"code": "syntax", "line": getattr(error, "lineno", None) or 0, "what": type(error).__name__},)
    found = {(code, line, what) for code, line, what in _walk(tree)}
    rows = sorted(found, key=lambda row: (row[1], row[0], row[2]))
    return tuple({"code": code, "line": line, "what": what[:80]} for code, line, what in rows[:200])


def delegates(source: bytes) -> tuple[str, ...]:
    """Name the library calls in a source that could do the operator's work; calling a library is legal."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.add("torch.matmul (@)")
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            last = name.rpartition(".")[2]
            if last in _HEAVY and not name.startswith(("tl.", "triton.")):
                found.add(name if name.startswith(("torch", "F.")) else f"….{last}")
            elif name.startswith(_LIBRARY):
                found.add(name)
    return tuple(sorted(found))


def can_be_haunted(source: bytes) -> bool:
    """Tell whether a source could have a kernel or function that does no work: anything but one plain function."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    functions = 0
    for node in ast.walk(tree):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.ClassDef | ast.Try):
            return True
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] not in _PLAIN for name in names):
                return True
    codes = {str(one["code"]) for one in scan(source)}
    return functions != 1 or bool(codes & {"imports", "exec", "introspection"})


def _walk(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    imported: set[str] = set()
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node, imported)
        elif isinstance(node, ast.Call):
            yield from _called(node, imported)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute | ast.Subscript):
                    yield from _assigned(target.value, imported, line)
        elif isinstance(node, ast.Attribute | ast.Name):
            yield from _inner(node)
        elif isinstance(node, ast.ClassDef) and any("Tensor" in _dotted(base) for base in node.bases):
            yield "tensor_subclass", line, f"class {node.name}"
        elif isinstance(node, ast.ExceptHandler) and _broad(node):
            yield "broad_except", line, "except"


def _inner(node: ast.Attribute | ast.Name) -> Iterator[tuple[str, int, str]]:
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    if name in _INNER:
        yield "introspection", node.lineno, name


def _imports(node: ast.Import | ast.ImportFrom, imported: set[str]) -> Iterator[tuple[str, int, str]]:
    names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    imported.update((one.asname or one.name).split(".")[0] for one in node.names)
    for name in names:
        code = _MODULES.get(name.split(".")[0])
        if code:
            yield code, node.lineno, f"import {name}"


def _called(node: ast.Call, imported: set[str]) -> Iterator[tuple[str, int, str]]:
    name = _dotted(node.func)
    last = name.rpartition(".")[2]
    if last in _CALLS and not (last == "compile" and "." in name):
        yield _CALLS[last], node.lineno, f"{name}(…)"
    if name.startswith(_OS_FILES):
        yield "files", node.lineno, f"{name}(…)"
    if name.startswith(("os.fork", "os.exec", "os.spawn", "os.system", "os.popen", "os.kill", "os._exit")):
        yield "process", node.lineno, f"{name}(…)"
    if last in ("Library", "register_kernel", "impl", "custom_op", "triton_op") and _torchs_own(node):
        yield "assigns_foreign", node.lineno, f"{name}(…)"
    if last in ("setattr", "delattr") and node.args:
        yield from _assigned(node.args[0], imported, node.lineno)


def _torchs_own(call: ast.Call) -> bool:
    """Tell whether what is registered belongs to torch's own operators: to replace one changes it for everybody."""
    first = call.args[0] if call.args else None
    space = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return space.split("::")[0] in ("aten", "prims", "prim")


def _assigned(owner: ast.expr, imported: set[str], line: int) -> Iterator[tuple[str, int, str]]:
    name = _dotted(owner)
    root = name.split(".")[0]
    if root in imported and name:
        yield ("patches_clock" if root == "time" else "assigns_foreign"), line, f"{name}.… = …"


def _broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _dotted(handler.type) in ("Exception", "BaseException")


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif not parts:
        return ""
    return ".".join(reversed(parts))
