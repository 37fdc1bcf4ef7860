"""Baselines: what is timed against; the strongest library calls for the work of each operator.

One folder an operator, one file a baseline: an ordinary candidate with ``run`` of the operator's signature, which the
same worker runs as it runs a candidate's, in a process of its own. Constants of a file, read without importing it:

- ``NEEDS = "cuda"``: its library call exists on a GPU only;
- ``PACKAGES = ("torchvision",)``: packages besides torch;
- ``DTYPES = ("bfloat16",)``: the dtypes that it takes, where not all of the operator's;
- ``ONLY = "k % 8 == 0"``: the axes, and the ``law``, that it takes;
- ``CAPTURE = False``: it waits for the device, so that no CUDA graph can hold it;
- ``COMPILES = True``: it stands for two baselines, as it is and under ``torch.compile``.

Standard library only: a bundle carries this folder.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent

_COMPILED = "_compiled"

_WRAPPER = """

_plain = run
_made = torch.compile(_plain, options={"max_autotune": True, "triton.cudagraphs": False}, dynamic=False)
torch._dynamo.config.recompile_limit = 256


def run(*arguments):
    return _made(*arguments)
"""
"""What turns a composition into the compiled one; after its first call it can be held by a CUDA graph. All choices are
tried out, as under mode max-autotune; what that mode does besides, a descent along each parameter of the best, takes
most of a minute a kernel."""


@dataclass(frozen=True)
class Baseline:
    """One baseline."""

    operator: str
    name: str
    describe: str
    """The library call it is: ``torch.nn.functional.rms_norm``."""
    source: bytes
    """UTF-8 Python with a function ``run``."""
    needs_cuda: bool = False
    packages: tuple[str, ...] = ()
    dtypes: tuple[str, ...] | None = None
    """None: all of the operator's."""
    only: str | None = None
    capture: bool = True
    compiled: bool = False
    """Whether it is the composition under ``torch.compile``."""

    def takes(self, axes: Mapping[str, int], dtype: str, *, law: str = "normal") -> bool:
        """Tell whether it can do a workload.

        Args:
            axes: Axis name to size.
            dtype: The workload's dtype.
            law: The workload's input law.
        """
        if self.dtypes is not None and dtype not in self.dtypes:
            return False
        # Our own files, read from beside this one: no text of a candidate comes here.
        return self.only is None or bool(eval(self.only, {"__builtins__": {}}, {**axes, "law": law}))  # noqa: S307


@cache
def baselines(operator: str) -> tuple[Baseline, ...]:
    """Return the baselines of an operator, by name; none where nobody wrote one.

    Args:
        operator: Name of an operator.

    Raises:
        ValueError: A file has no docstring, or a constant of another form.
    """
    made: list[Baseline] = []
    for file in sorted((_HERE / operator).glob("*.py")):
        source = file.read_bytes()
        tree = ast.parse(source, str(file))
        said = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
        if not said:
            raise ValueError(f"{file.name}: expected a docstring that says which library call it is")
        constants = _constants(tree)
        plain = Baseline(
            operator, file.stem, said, source,
            needs_cuda=constants.get("NEEDS") == "cuda",
            packages=tuple(constants.get("PACKAGES", ())),
            dtypes=tuple(constants["DTYPES"]) if "DTYPES" in constants else None,
            only=constants.get("ONLY"),
            capture=bool(constants.get("CAPTURE", True)),
        )  # fmt: skip
        made.append(plain)
        if constants.get("COMPILES"):
            both = {**vars(plain), "name": file.stem + _COMPILED, "describe": f"torch.compile of {said}"}
            made.append(Baseline(**(both | {"source": source + _WRAPPER.encode("ascii"), "compiled": True})))
    return tuple(sorted(made, key=lambda one: one.name))


def _constants(tree: ast.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def names(operator: str) -> tuple[str, ...]:
    """Return the names of an operator's baselines, sorted."""
    return tuple(one.name for one in baselines(operator))


def find(operator: str, name: str) -> Baseline:
    """Return one baseline.

    Raises:
        KeyError: There is none of this name.
    """
    for one in baselines(operator):
        if one.name == name:
            return one
    raise KeyError(f"{operator}/{name}")


def source(operator: str, name: str) -> bytes:
    """Return the source of a baseline, a candidate's file; ``KeyError`` if there is none of this name."""
    return find(operator, name).source


def describe(operator: str, name: str) -> str:
    """Return the library call that a baseline is; ``KeyError`` if there is none of this name."""
    return find(operator, name).describe
