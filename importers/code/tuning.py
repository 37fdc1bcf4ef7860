"""Reads what a Triton kernel's tuner may choose from, where it is written as values; nothing else is evaluated."""

import ast
import itertools
from collections.abc import Mapping, Sequence

_MOST_CONFIGS = 4096
_MOST_TEXT = 20_000

Bound = Mapping[str, Sequence[ast.stmt]]


class _NotPlainError(ValueError):
    """The text is more than values."""


def configs_of(decorators: Sequence[ast.expr], bound: Bound) -> dict[str, object] | None:
    """Return the key and the configurations of an ``autotune`` decorator.

    Args:
        decorators: Of the kernel.
        bound: Name → statements at the top of the file that define it.

    Returns:
        ``key``, ``configs`` and ``complete``; where the list is computed, ``complete`` is false and ``text`` holds what
        is written instead. None where nothing is tuned.
    """
    for one in decorators:
        if isinstance(one, ast.Call) and "autotune" in ast.unparse(one.func):
            return _tuned(one, bound)
    return None


def _tuned(call: ast.Call, bound: Bound) -> dict[str, object]:
    given = {each.arg: each.value for each in call.keywords if each.arg}
    configs = given.get("configs", call.args[0] if call.args else None)
    key = given.get("key", call.args[1] if len(call.args) > 1 else None)
    made: dict[str, object] = {"key": _or_text(key, bound)}
    try:
        found = _list(configs, bound, {}) if configs is not None else []
        return {**made, "configs": found, "complete": True}
    except (_NotPlainError, RecursionError):
        text = ast.unparse(configs)[:_MOST_TEXT] if configs is not None else ""
        return {**made, "configs": [], "complete": False, "text": text}


def _or_text(node: ast.expr | None, bound: Bound) -> object:
    if node is None:
        return []
    try:
        return _value(node, bound, {})
    except _NotPlainError:
        return ast.unparse(node)[:1000]


def _list(node: ast.expr, bound: Bound, local: Mapping[str, object]) -> list[object]:
    """Return the configurations that a list, a comprehension or a name of one spells out."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_config(each, bound, local) for each in node.elts]
    if isinstance(node, ast.ListComp):
        return [_config(node.elt, bound, names) for names in _loops(node.generators, bound, local)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_list(node.left, bound, local), *_list(node.right, bound, local)]
    if isinstance(node, ast.Name):
        return _list(_assigned(node.id, bound), bound, local)
    raise _NotPlainError


def _assigned(name: str, bound: Bound) -> ast.expr:
    statements = bound.get(name, ())
    if len(statements) == 1 and isinstance(statements[0], ast.Assign) and len(statements[0].targets) == 1:
        return statements[0].value
    raise _NotPlainError


def _loops(
    generators: Sequence[ast.comprehension], bound: Bound, local: Mapping[str, object]
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [dict(local)]
    for one in generators:
        if one.ifs or one.is_async:
            raise _NotPlainError
        made = []
        for names in found:
            values = _value(one.iter, bound, names)
            if not isinstance(values, list):
                raise _NotPlainError
            made += [{**names, **_unpacked(one.target, value)} for value in values]
            if len(made) > _MOST_CONFIGS:
                raise _NotPlainError
        found = made
    return found


def _unpacked(target: ast.expr, value: object) -> dict[str, object]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, list) and len(value) == len(target.elts):
        return dict(itertools.chain.from_iterable(
            _unpacked(one, inner).items() for one, inner in zip(target.elts, value, strict=True)
        ))  # fmt: skip
    raise _NotPlainError


def _config(node: ast.expr, bound: Bound, local: Mapping[str, object]) -> object:
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("Config") or len(node.args) > 1:
        raise _NotPlainError
    given = {each.arg: _value(each.value, bound, local) for each in node.keywords if each.arg}
    if len(given) != len(node.keywords):
        raise _NotPlainError
    kwargs = _value(node.args[0], bound, local) if node.args else given.pop("kwargs", {})
    return {"kwargs": kwargs, **given}


def _value(node: ast.expr, bound: Bound, local: Mapping[str, object], depth: int = 0) -> object:
    """Return a value that is written out: numbers, words, lists, mappings, ``range`` and names of such."""
    if depth > 20:
        raise _NotPlainError
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | bool | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, bound, local, depth + 1) for each in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            str(_value(key, bound, local, depth + 1)): _value(value, bound, local, depth + 1)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.Name):
        return local[node.id] if node.id in local else _value(_assigned(node.id, bound), bound, local, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and node.args:
        bounds = [_value(each, bound, local, depth + 1) for each in node.args]
        if (
            len(bounds) <= 3
            and all(isinstance(each, int) and abs(each) < 1 << 20 for each in bounds)
            and 0 not in bounds[2:]
        ):
            found = range(*[each for each in bounds if isinstance(each, int)])
            if len(found) <= _MOST_CONFIGS:
                return list(found)
    raise _NotPlainError
