"""Have a whole model judged against its original weights."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import EntryFormatError, ValidatorError

if TYPE_CHECKING:
    from kb.validators.runtime.report import Report

_NEEDS = "pip install 'kernel-kb[gpu,models]'"
_LARGEST_BYTES = 1 << 20


def judge_model(
    reference: Path,
    candidate: Path,
    *,
    precision: str = "bfloat16",
    weights: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Report":
    """Judge one model.

    Args:
        reference: A transformers model directory: the original weights, in safetensors.
        candidate: Another model directory, or a Python file with ``load(folder)``.
        precision: The weight format that the candidate declares.
        weights: The folder that is handed to ``load``; the reference if None and the candidate is a file.
        progress: Called with a phrase at each step.

    Returns:
        The judge's report; its figures are in ``kernels["model"]``.

    Raises:
        EntryFormatError: Reference or candidate is not what it should be.
        ValidatorError: The judge itself cannot work here.
    """
    if not (reference / "config.json").is_file():
        raise EntryFormatError(
            f"{reference}: no config.json there", hint="--reference takes a transformers model directory"
        )
    try:
        from kb.validators.model import directory, judging
        from kb.validators.runtime.worker import JudgeError
    except ImportError as error:
        raise ValidatorError(f"judging a model needs {error.name}", hint=_NEEDS) from error
    if candidate.is_dir():
        source, folder = Path(directory.__file__).read_bytes(), candidate
        if not (folder / "config.json").is_file():
            raise EntryFormatError(
                f"{folder}: no config.json there", hint="--candidate takes a model directory or a file"
            )
    else:
        source, folder = _read(candidate), weights or reference
    try:
        return judging.judge_model(
            reference, source, folder, options=judging.Options(precision=precision), progress=progress
        )
    except JudgeError as error:
        raise ValidatorError(error.message, hint=error.hint) from error


def _read(file: Path) -> bytes:
    try:
        source = file.read_bytes()
    except OSError as error:
        raise EntryFormatError(
            f"{file}: {error.strerror}", hint="--candidate takes a model directory or a file"
        ) from error
    if len(source) > _LARGEST_BYTES:
        raise EntryFormatError(f"{file}: {len(source)} bytes; at most {_LARGEST_BYTES}", hint="keep weights beside it")
    return source
