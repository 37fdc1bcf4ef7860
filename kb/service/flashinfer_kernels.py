"""Our own kernels as FlashInfer Trace: a definition for each operator and dtype, the trusted reference as its program.

Two things of ours have no word there. Sizes that follow from others (``k/2``) become axes with a constraint. Bytes
(``uint8``: packed nvfp4, e8m0 scales) have no dtype in its loader: they travel as ``int8``, and reference and solution
look at the same bits as bytes.
"""

import json
import math
import re
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kb.config import Root
from kb.errors import ValidatorError
from kb.importers.base import Exported, Filed, Skipped
from kb.importers.carried import sentence_of, tag_of
from kb.importers.flashinfer_entries import dump, plain
from kb.importers.flashinfer_schema import LOADER, LOADER_DTYPES, definition_fault, runs, solution_fault
from kb.importers.naming import slug
from kb.service.flashinfer_records import standing_records, timed, trace_rows
from kb.service.reference_text import program_of
from kb.store import layout
from kb.validators.operators.names import VALUES

if TYPE_CHECKING:
    from kb.validators.operators.spec import Buffer, Operator, Workload

_UNTRUE_WHEN_RANDOM = frozenset({"sample_categorical"})
"""Operators whose inputs are of a dtype that could be drawn at random, and would mean nothing."""
_MOST_ELEMENTS = 1 << 25
"""Of a workload's inputs: they are drawn to learn its scalars."""
LICENSE = "Apache-2.0"
"""Of the references, which are part of this package."""
_ADAPTER = "kb_entry.py"
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_WORDS = (("ceil(", "ceil_"), ("max(", "max_"), (")", ""), ("*", "_times_"), ("+", "_plus_"), ("/", "_by_"), (",", "_"))


class Kernels:
    """One export of our kernels; definitions that are written already are not written again."""

    def __init__(self, root: Root, standing: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the knowledge base, whose records go out as traces; what stands for the entries is read from them."""
        del standing
        self._root = root
        self._made: set[str] = set()

    @staticmethod
    def holds(entry: Filed) -> bool:
        """Tell whether an entry is a kernel of an operator that computes values."""
        return entry.id.startswith("kernel/") and entry.facts.get("operator") in VALUES

    def written(self, entry: Filed, made: Container[str]) -> Iterator[Exported | Skipped]:
        """Write a kernel: a solution for each dtype, and the definitions and workloads that it is for.

        Args:
            entry: One that :meth:`holds` lets pass.
            made: Paths that are written already: the loader takes each name once.
        """
        try:
            from kb.validators import operators

            operator = operators.load(str(entry.facts["operator"]))
        except ImportError:
            yield Skipped(entry.id, "the reference of an operator needs torch: pip install 'kernel-kb[gpu]'")
            return
        standing, notes = standing_records(self._root, entry)
        yield from notes
        dtypes = [one for one in operator.dtypes if one in entry.facts.get("dtypes", ())] or list(operator.dtypes[:1])
        for dtype in dtypes:
            if dtype not in LOADER_DTYPES:
                yield Skipped(entry.id, f"{dtype}: {LOADER} has no such dtype", refused=False)
                continue
            try:
                yield from self._definition(operator, dtype, made)
                yield from _solution(entry, operator, dtype, made)
                yield from _traces(entry, operator, dtype, standing)
            except ValidatorError as error:
                yield Skipped(entry.id, f"{dtype}: {error.message}")

    def _definition(self, operator: "Operator", dtype: str, made: Container[str]) -> Iterator[Exported]:
        name = definition_name(operator.name, dtype)
        if name in self._made or f"definitions/{slug(operator.name)}/{slug('definition', name)}.json" in made:
            return
        self._made.add(name)
        body = definition_of(operator, dtype)
        fault = definition_fault(body)
        if fault is not None or not runs(body["reference"]):
            raise ValidatorError(f"the definition of {name} would not load: {fault or 'its reference is no program'}")
        yield Exported(f"definitions/{slug(operator.name)}/{name}.json", dump(body), license=LICENSE)
        rows = list(_workloads(operator, dtype, name))
        if rows:
            lines = "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")
            yield Exported(f"workloads/{slug(operator.name)}/{name}.jsonl", lines, license=LICENSE)


def definition_name(operator: str, dtype: str) -> str:
    """Return the name under which an operator goes out."""
    return f"kb_{operator}_{dtype}"


def _axis_name(axis: str) -> str:
    if axis.isdigit():
        return f"size_{axis}"
    name = re.sub(r"^(\d+)\*(.+)$", r"\2*\1", axis)  # a name cannot begin with a digit
    for sign, word in _WORDS:
        name = name.replace(sign, word)
    return re.sub(r"\W", "_", name)


def _expression(axis: str) -> str:
    """Return a size that follows from others as Python."""
    made = re.sub(r"ceil\((\w+)/(\d+)\)", r"(\1 + \2 - 1) // \2", axis)
    return re.sub(r"(?<!/)/(?!/)", " // ", made)


def _dtype(buffer: "Buffer", dtype: str) -> str:
    """Return a buffer's dtype in this workload, as it goes out."""
    found = dtype if buffer.dtype == "data" else buffer.dtype
    return "int8" if found == "uint8" else found


def _tensors(buffers: Sequence["Buffer"], dtype: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for one in buffers:
        real = dtype if one.dtype == "data" else one.dtype
        notes = [one.doc] if one.doc else []
        notes += ["bytes (uint8): the same bits as int8"] if real == "uint8" else []
        notes += ["contents may stay equal between calls"] if one.static else []
        made[one.name] = {
            "shape": [_axis_name(axis) for axis in one.axes],
            "dtype": _dtype(one, dtype),
            **({"description": "; ".join(notes)} if notes else {}),
        }
    return made


def _scalar_dtype(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else "float32"


def _drawn(operator: "Operator", workload: "Workload") -> dict[str, object]:
    """Return the scalars of a call as the operator's own law draws them: some have no default."""
    from kb.validators.operators.spec import Scalar, generator

    arguments = operator.laws[workload.law](workload.axes, workload.dtype, generator(0))
    pairs = zip(operator.inputs, arguments, strict=True)
    return {one.name: value for one, value in pairs if isinstance(one, Scalar)}


def definition_of(operator: "Operator", dtype: str) -> dict[str, Any]:
    """Return the definition of an operator for one dtype.

    Args:
        operator: Its spec.
        dtype: One of its dtypes that the loader knows.

    Raises:
        ValidatorError: Its reference cannot be written as one program.
    """
    from kb.validators.operators.spec import Buffer

    buffers = [one for one in (*operator.inputs, *operator.outputs) if isinstance(one, Buffer)]
    names = list(dict.fromkeys(axis for one in buffers for axis in one.axes))
    axes = {
        _axis_name(axis): {"type": "const", "value": int(axis)} if axis.isdigit() else {"type": "var"} for axis in names
    }
    derived = [axis for axis in names if not axis.isdigit() and _axis_name(axis) != axis]
    known = {*axes, *(one.name for one in operator.inputs)}
    constraints = [
        f"{_axis_name(axis)} == {_expression(axis)}"
        for axis in derived
        if set(re.findall(r"[A-Za-z_]\w*", axis)) - {"max", "ceil"} <= known
    ]
    smallest = min(
        (one for one in operator.workloads if all(one.axes.values())),
        key=lambda one: (one.dtype != dtype, one.use != "awkward", math.prod(one.axes.values())),
    )
    scalars = _drawn(operator, smallest)
    inputs: dict[str, Any] = {}
    for one in operator.inputs:
        if isinstance(one, Buffer):
            inputs.update(_tensors([one], dtype))
        else:
            doc = {"description": one.doc} if one.doc else {}
            inputs[one.name] = {"shape": None, "dtype": _scalar_dtype(scalars[one.name]), **doc}
    return {
        "name": definition_name(operator.name, dtype),
        "description": plain(f"{operator.summary}. {operator.signature}", 400),
        "op_type": operator.name,
        "tags": ["kb:operator", f"kb:{operator.name}", tag_of(LICENSE)],
        "axes": axes,
        **({"constraints": constraints} if constraints else {}),
        "inputs": inputs,
        "outputs": _tensors(operator.outputs, dtype),
        "reference": _reference(operator, dtype),
    }


def _bits(operator: "Operator", dtype: str) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return the inputs that are bytes, and for each output whether it is."""
    from kb.validators.operators.spec import Buffer

    inputs = tuple(
        one.name
        for one in operator.inputs
        if isinstance(one, Buffer) and (dtype if one.dtype == "data" else one.dtype) == "uint8"
    )
    return inputs, tuple(one.dtype == "uint8" for one in operator.outputs)


def _reference(operator: "Operator", dtype: str) -> str:
    module, name = operator.reference.__module__, operator.reference.__name__
    bytes_in, _ = _bits(operator, dtype)
    names = [one.name for one in operator.inputs]
    passed = [f"{one}.view(torch.uint8)" if one in bytes_in else one for one in names]
    results = []
    for place, one in enumerate(operator.outputs):
        real = dtype if one.dtype == "data" else one.dtype
        bits = ".view(torch.int8)" if real == "uint8" else ""
        results.append(f"results[{place}].to(torch.{real}){bits}")
    said = "The trusted reference of a kernel-kb operator: float64, then one rounding to the output's dtype."
    body = (
        f'\n\ndef run({", ".join(names)}):\n    """{said}"""\n'
        f"    results = {name}({', '.join(passed)})\n    return {', '.join(results)}\n"
    )
    return program_of(module, name, needs=("import torch",)) + body


def _workloads(operator: "Operator", dtype: str, definition: str) -> Iterator[dict[str, Any]]:
    """Yield the shapes of an operator whose inputs may be any numbers; random indices and tables would mean nothing."""
    for one in operator.workloads:
        if one.dtype == dtype and one.law == "normal":
            workload = _workload(operator, one, definition)
            if workload is not None:
                yield {"definition": definition, "solution": None, "workload": workload, "evaluation": None}


def _workload(operator: "Operator", one: "Workload", definition: str) -> dict[str, Any] | None:
    """Return one shape as it goes out, or None where its inputs may not be drawn at random, or are too large to."""
    from kb.validators.operators.spec import Buffer, numel

    buffers = [each for each in operator.inputs if isinstance(each, Buffer)]
    if operator.name in _UNTRUE_WHEN_RANDOM or any(each.dtype != "data" for each in buffers):
        return None
    if not all(one.axes.values()) or sum(numel(one.axes, each.axes) for each in buffers) > _MOST_ELEMENTS:
        return None
    inputs: dict[str, Any] = {}
    values = _drawn(operator, one) if len(buffers) != len(operator.inputs) else {}
    for each in operator.inputs:
        if isinstance(each, Buffer):
            inputs[each.name] = {"type": "random"}
        else:
            inputs[each.name] = {"type": "scalar", "value": values[each.name]}
    shapes = [axis for each in (*buffers, *operator.outputs) for axis in each.axes]
    axes = {_axis_name(axis): numel(one.axes, [axis]) for axis in shapes if not axis.isdigit() and "(" not in axis}
    name = f"{definition} {sorted(axes.items())}"
    return {"uuid": str(uuid.uuid5(_NAMESPACE, name)), "axes": axes, "inputs": inputs}


def solution_name(entry: Filed, dtype: str) -> str:
    """Return the name under which a kernel goes out for one dtype."""
    return f"{entry.id.replace('/', '-')}-v{entry.version}-{dtype}"


def _traces(
    entry: Filed, operator: "Operator", dtype: str, standing: Sequence[tuple[str, dict[str, Any]]]
) -> Iterator[Exported | Skipped]:
    """Write what the judge's records say of a kernel in one dtype."""
    from kb.validators.operators.spec import Workload

    if not timed(standing, dtype):
        return
    name, definition = solution_name(entry, dtype), definition_name(operator.name, dtype)

    def workload_of(axes: Mapping[str, int]) -> dict[str, Any] | None:
        return _workload(operator, Workload(dict(axes), dtype, "normal"), definition)

    rows = list(trace_rows(standing, dtype=dtype, definition=definition, solution=name, workload_of=workload_of))
    if not rows:
        yield Skipped(entry.id, f"{dtype}: what was timed has inputs that this format cannot draw", refused=False)
        return
    lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode("ascii")
    yield Exported(f"traces/{slug(operator.name)}/{name}.jsonl", lines, entry.id)


def _solution(entry: Filed, operator: "Operator", dtype: str, made: Container[str]) -> Iterator[Exported | Skipped]:
    facts = entry.facts
    file, _, function = str(facts["entry_point"]).partition(":")
    sources = {
        name: body.decode() for name, body in sorted(entry.files.items()) if layout.is_candidate(name) and body.strip()
    }
    bytes_in, bytes_out = _bits(operator, dtype)
    point = f"{file}::{function}"
    if bytes_in or any(bytes_out):
        sources[_ADAPTER] = _adapter(operator, file, function, bytes_in, bytes_out)
        point = f"{_ADAPTER}::run"
    packages = facts.get("requires", {}).get("packages", {})
    name = solution_name(entry, dtype)
    if f"solutions/imported/{slug('solution', name)}.json" in made:
        yield Skipped(entry.id, f"{dtype}: an imported solution has its name", refused=False)
        return
    limits = "".join(f"Only for {axis} {json.dumps(limit)}. " for axis, limit in facts.get("limits", {}).items())
    said = plain(f"{facts['title']}. {facts['summary']} {limits}", 900)
    body = {
        "name": name,
        "definition": definition_name(operator.name, dtype),
        "author": "kernel-kb",
        "description": f"{said} {sentence_of(facts['license'])}",
        "spec": {
            "language": "triton" if facts.get("language") == "triton" else "python",
            "target_hardware": list(facts.get("requires", {}).get("arch", [])) or ["cuda"],
            "entry_point": point,
            "dependencies": [f"{package} {wanted}" for package, wanted in packages.items()],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
    }
    fault = solution_fault(body)
    if fault is not None:
        raise ValidatorError(f"the solution would not load: {fault}")
    yield Exported(f"solutions/{slug(operator.name)}/{name}.json", dump(body), entry.id)


def _adapter(operator: "Operator", file: str, function: str, bytes_in: Sequence[str], bytes_out: Sequence[bool]) -> str:
    names = [one.name for one in operator.inputs]
    passed = [f"{one}.view(torch.uint8)" if one in bytes_in else one for one in names]
    results = [f"results[{place}]" + ".view(torch.int8)" * bits for place, bits in enumerate(bytes_out)]
    return (
        f'"""Bytes travel as int8 in this format; {file} takes the same bits as uint8."""\n\nimport torch\n\n'
        f"from .{file.removesuffix('.py')} import {function} as _run\n\n\n"
        f"def run({', '.join(names)}):\n    results = _run({', '.join(passed)})\n"
        "    results = results if isinstance(results, tuple) else (results,)\n"
        f"    return {', '.join(results)}\n"
    )
