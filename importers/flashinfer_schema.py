"""What FlashInfer Trace and its SOL-ExecBench dialect hold, and what the loader of flashinfer-bench takes of it.

Source:
    flashinfer-bench 0.1.2 (``flashinfer_bench.data``) and NVIDIA/SOL-ExecBench at 266784c (``docs/``).
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.reading import depth_fault

LOADER = "flashinfer-bench 0.1.2"
LOADER_DTYPES = frozenset({
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64", "int32", "int16", "int8",
    "bool",
})  # fmt: skip
"""All that the loader knows: uint8, which packed formats and their scales have, is not among them."""
LOADER_LANGUAGES = frozenset({"python", "triton", "cpp", "cuda", "tilelang"})
INPUTS = ("random", "scalar", "safetensors", "custom")
"""Where an input of a workload comes from; ``custom`` is of the dialect alone."""
DEPTH = 12
_STAND_IN = "# The source has no reference program that Python can read"
_NEVER_WRITTEN = "; nothing stood here.\n"
_QUOTED = "; what stood here:\n"
_RAISES = '\n\ndef run(*args, **kwargs):\n    raise NotImplementedError("the source published no reference")\n'


def text_of_field(value: Mapping[str, Any], key: str, most: int = 400) -> str:
    """Return a field that must be a text.

    Raises:
        SourceFormatError: It is absent, empty, no text or too long.
    """
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise SourceFormatError(f"field {key}: expected a text, found {type(found).__name__}")
    if len(found) > most:
        raise SourceFormatError(f"field {key}: expected at most {most} characters, found {len(found):,}")
    return found


def check_definition(body: Mapping[str, Any]) -> None:
    """Refuse what is no definition.

    Raises:
        SourceFormatError: Axes, inputs or outputs are not of the format.
    """
    axes = body.get("axes")
    if not isinstance(axes, dict):
        raise SourceFormatError("field axes: expected an object")
    for name, axis in axes.items():
        _check_axis(axis, f"field axes.{name[:60]}")
    for side in ("inputs", "outputs"):
        tensors = body.get(side)
        if not isinstance(tensors, dict):
            raise SourceFormatError(f"field {side}: expected an object")
        for name, tensor in tensors.items():
            shape = tensor.get("shape") if isinstance(tensor, dict) else 0
            if shape is not None and not isinstance(shape, list):
                raise SourceFormatError(f"field {side}.{name[:60]}.shape: expected a list of axes or null")
    fault = depth_fault(body, DEPTH)
    if fault is not None:
        raise SourceFormatError(fault)


def _check_axis(axis: object, place: str) -> None:
    if not isinstance(axis, dict) or axis.get("type") not in ("const", "var", "expr"):
        raise SourceFormatError(f"{place}: expected the type const, var or expr")
    value = axis.get("value")
    # FlashInfer writes constants without a value where it could not see the size: the loader refuses them, we say so.
    unknown = axis["type"] == "const" and value is None
    if axis["type"] == "const" and not unknown and (type(value) is not int or value < 0):
        raise SourceFormatError(f"{place}.value: expected a size, found {value!r:.40}")
    if axis["type"] == "expr":
        _check_expression(axis.get("expression"), place)


def _check_expression(text: object, place: str) -> None:
    if not isinstance(text, str) or not re.fullmatch(r"[\w\s+\-*/%().]{1,200}", text):
        raise SourceFormatError(f"{place}.expression: expected arithmetic on axes, found {text!r:.60}")


def is_dialect(body: Mapping[str, Any]) -> bool:
    """Tell whether a definition or a solution uses what SOL-ExecBench alone has."""
    axes = body.get("axes")
    spec = body.get("spec")
    kinds = [one.get("type") for one in axes.values() if isinstance(one, dict)] if isinstance(axes, dict) else []
    if isinstance(axes, dict) and not body.get("op_type"):  # the dialect alone does without
        return True
    return "custom_inputs_entrypoint" in body or "expr" in kinds or (isinstance(spec, dict) and "languages" in spec)


def runs(program: object) -> bool:
    """Tell whether a text is Python with a function ``run``, as the loader wants a reference to be."""
    if not isinstance(program, str):
        return False
    try:
        body = ast.parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(one, ast.FunctionDef) and one.name == "run" for one in body)


def stand_in(program: str | None) -> str:
    """Return a program that loads, and that raises when it is run, for a reference that no loader can read.

    Args:
        program: What the source has; None for nothing. :func:`original` gives it back.
    """
    if program is None:
        return f"{_STAND_IN}{_NEVER_WRITTEN}{_RAISES}"
    quoted = "\n".join(f"# {line}" for line in program.split("\n"))
    return f"{_STAND_IN}{_QUOTED}{quoted}\n{_RAISES}"


def original(program: str) -> str | None:
    """Return what :func:`stand_in` was made from, or the program itself if it is no such text."""
    if not program.startswith(_STAND_IN) or not program.endswith(_RAISES):
        return program
    rest = program[len(_STAND_IN) : -len(_RAISES)]
    if rest == _NEVER_WRITTEN:
        return None
    if not rest.startswith(_QUOTED):
        return program
    lines = rest[len(_QUOTED) :].removesuffix("\n").split("\n")
    return "\n".join(line[2:] for line in lines) if all(line.startswith("# ") for line in lines) else program


def definition_fault(body: Mapping[str, Any]) -> str | None:
    """Say why the loader would refuse a definition whose reference runs, or None.

    Args:
        body: A definition that :func:`check_definition` let pass.
    """
    if not isinstance(body.get("op_type"), str) or not body["op_type"]:
        return "a definition without op_type"
    axes = body["axes"]
    odd = _axes_fault(axes)
    if odd is not None:
        return odd
    both = sorted(set(body["inputs"]) & set(body["outputs"]))
    if both:
        return "an output with the name of an input"
    for side in ("inputs", "outputs"):
        for tensor in body[side].values():
            if tensor.get("dtype") not in LOADER_DTYPES:
                return f"the dtype {str(tensor.get('dtype'))[:40]}"
    for side in ("inputs", "outputs"):
        for tensor in body[side].values():
            if any(axis not in axes for axis in tensor.get("shape") or ()):
                return "a shape with arithmetic, or with an axis that is not declared"
    return _lists_fault(body)


def _axes_fault(axes: Mapping[str, Any]) -> str | None:
    if any(axis.get("type") == "const" and axis.get("value") is None for axis in axes.values()):
        return "a constant axis without a value"
    odd = sorted({str(axis.get("type")) for axis in axes.values()} - {"const", "var"})
    return f"axes of the type {odd[0]}" if odd else None


def _lists_fault(body: Mapping[str, Any]) -> str | None:
    for name in ("tags", "constraints"):
        value = body.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            return f"{name} that are no list of texts"
    for one in body.get("constraints", []):
        try:
            ast.parse(one, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "a constraint that is no Python expression"
    return None


def solution_fault(body: Mapping[str, Any]) -> str | None:
    """Say why the loader would refuse a solution, or None.

    Args:
        body: A solution with its sources' contents.
    """
    spec = body.get("spec")
    if not isinstance(spec, dict) or not isinstance(body.get("author"), str) or not body["author"]:
        return "no spec, or no author"
    if spec.get("language") not in LOADER_LANGUAGES:
        return f"the language {str(spec.get('language', spec.get('languages')))[:40]}"
    entry = spec.get("entry_point")
    if not isinstance(entry, str) or entry.count("::") != 1:
        return "an entry point that is not FILE::FUNCTION"
    paths = [one.get("path") for one in body["sources"]]
    if entry.split("::")[0] not in paths or len(set(paths)) != len(paths):
        return "an entry point or a path that does not hold together with its sources"
    if not isinstance(spec.get("target_hardware"), list) or not spec["target_hardware"]:
        return "no target hardware"
    if any(not one.get("content") for one in body["sources"]):
        return "an empty source file"
    return None


def row_fault(row: Mapping[str, Any]) -> str | None:
    """Say why the loader would refuse a row of a workload or trace file, or None."""
    if any(one.get("type") not in INPUTS[:3] for one in row["workload"]["inputs"].values()):
        return "inputs of the type custom"
    if (row.get("solution") is None) != (row.get("evaluation") is None):
        return "a solution without an evaluation, or an evaluation without a solution"
    evaluation = row.get("evaluation")
    if evaluation is None:
        return None
    status = evaluation.get("status")
    has = {name for name in ("correctness", "performance") if evaluation.get(name) is not None}
    wanted = {"PASSED": {"correctness", "performance"}, "INCORRECT_NUMERICAL": {"correctness"}}.get(str(status), set())
    known = ("PASSED", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT")
    if not (status in known or str(status).startswith("INCORRECT_")):
        return f"the status {str(status)[:40]}"
    if has != wanted:
        return "figures that do not go with its status"
    if not evaluation.get("timestamp") or not evaluation.get("environment"):
        return "an evaluation without timestamp or environment"
    return None
