"""Have a whole model judged against its original weights."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kb.config import Root
from kb.errors import ConfigError, EntryFormatError, ValidatorError

if TYPE_CHECKING:
    from kb.store.records import Filed
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
        The judge's report; its figures are in ``model``.

    Raises:
        EntryFormatError: Reference or candidate is not what it should be.
        ValidatorError: The judge itself cannot work here.
    """
    _model_folder(reference, "--reference takes a transformers model directory")
    if candidate.is_dir():
        source, folder = _directory_adapter(), candidate
        _model_folder(folder, "--candidate takes a model directory or a file")
    else:
        source, folder = _read(candidate), weights or reference
    return _judged(reference, source, folder, precision, progress)


def _judged(
    reference: Path, source: bytes, folder: Path, precision: str, progress: Callable[[str], None] | None
) -> "Report":
    _model_folder(reference, "--reference takes a transformers model directory")
    try:
        from kb.validators.model import judging
        from kb.validators.runtime.errors import JudgeError
    except ImportError as error:
        raise ValidatorError(f"judging a model needs {error.name}", hint=_NEEDS) from error
    try:
        return judging.judge_model(
            reference, source, folder, options=judging.Options(precision=precision), progress=progress
        )
    except JudgeError as error:
        raise ValidatorError(error.message, hint=error.hint) from error


def _directory_adapter() -> bytes:
    from importlib.util import find_spec

    spec = find_spec("kb.validators.model.directory")
    if spec is None or spec.origin is None:
        raise ValidatorError("kb.validators.model.directory is missing", hint="reinstall kernel-kb")
    return Path(spec.origin).read_bytes()


def _model_folder(folder: Path, hint: str) -> None:
    if not (folder / "config.json").is_file():
        raise EntryFormatError(f"{folder}: no config.json there", hint=hint)


def judge_combination(
    root: Root,
    entry_id: str,
    reference: Path,
    *,
    precision: str = "bfloat16",
    progress: Callable[[str], None] | None = None,
) -> "tuple[Report, Filed]":
    """Judge a combination as a whole model, and file what came out: the only way to ``end_to_end``.

    Args:
        root: The knowledge base, not the packaged starter.
        entry_id: A combination with an entry point ``FILE:load``.
        reference: The original weights; they are handed to ``load``.
        precision: The weight format that the combination declares.
        progress: Called with a phrase at each step.

    Returns:
        The report, and where its record lies.

    Raises:
        ConfigError: The knowledge base cannot be written.
        EntryNotFoundError: There is no such entry.
        EntryFormatError: It is no combination with code, or the reference is not what it should be.
        ValidatorError: The judge itself cannot work here.
    """
    from kb.config import config_folder
    from kb.service.validating import chosen_ids, sign_and_file
    from kb.store import files, layout, records
    from kb.validators import keys

    if root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb init DIR; kb --root DIR …")
    chosen_ids(root, [entry_id])
    stored = files.read(layout.folder_of(root.entries, entry_id), entry_id)
    file, _, function = (stored.file.entry_point or "").partition(":")
    if not entry_id.startswith("combination/") or function != "load":
        wanted = 'expected a combination with entry_point = "FILE:load"'
        raise EntryFormatError(f"{entry_id}: {wanted}", hint="see docs/models.md")
    from kb.validators.runtime import evidence

    began = evidence.now_utc()
    report = _judged(reference, stored.files[file], reference, precision, progress)
    entry = {
        "id": stored.id, "version": stored.file.version, "digest": stored.digest,
        "entry_point": stored.file.entry_point, "language": stored.file.language,
    }  # fmt: skip
    device = evidence.device_facts("cpu")
    made = evidence.evidence_of(report, entry, began_utc=began, device=device, uses=(), calls=(1, 1))
    made["replay"] = f"kb judge-model --entry {stored.id} --reference DIR --precision {precision}"
    with records.writing(root.entries):
        return report, sign_and_file(root, made, keys.own_key(config_folder()))


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
