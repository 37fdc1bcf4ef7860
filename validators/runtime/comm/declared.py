"""What a scheme's source says of itself: the precision that it sends in, and the library's collectives it calls."""

import ast

from kb.validators.operators.spec import UNIT_ROUNDOFF

WIRE = "WIRE"
"""A scheme that rounds what it sends says to what, at the top level of its file: ``WIRE = "float8_e4m3fn"``."""

_COLLECTIVES = {
    "all_reduce": "all_reduce", "all_reduce_coalesced": "all_reduce", "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather", "all_gather_single": "all_gather", "all_gather_object": "all_gather",
    "all_gather_coalesced": "all_gather", "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter", "all_to_all": "all_to_all", "all_to_all_single": "all_to_all",
    "broadcast": "broadcast", "broadcast_object_list": "broadcast", "reduce": "reduce", "gather": "gather",
    "gather_object": "gather", "scatter": "scatter", "scatter_object_list": "scatter", "barrier": "barrier",
    "monitored_barrier": "barrier", "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}  # fmt: skip
"""How a collective is called, to which one it is."""

_MODULES = ("dist", "torch.distributed", "distributed", "c10d", "group", "funcol")


def wire_precision(source: bytes) -> str | None:
    """Return the dtype that a source says it sends in; None if it says nothing and so sends data as they are.

    Args:
        source: UTF-8 Python.

    Raises:
        ValueError: It says something that is no name of a floating format.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(one, ast.Name) and one.id == WIRE for one in targets):
            value = node.value
            if isinstance(value, ast.Constant) and value.value is None:
                return None
            if not isinstance(value, ast.Constant) or value.value not in UNIT_ROUNDOFF:
                raise ValueError(f"{WIRE} must be one of {', '.join(UNIT_ROUNDOFF)}, written out")
            return str(value.value)
    return None


def collectives(source: bytes) -> set[str]:
    """Name the library's collectives that a source calls, as far as its syntax shows."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if owner.rpartition(".")[2] in _MODULES or owner in _MODULES:
                found.add(_COLLECTIVES.get(node.func.attr, ""))
    return found - {""}
