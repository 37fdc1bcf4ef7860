"""Targets: those that are filed, and new ones made from a model's config or a profiler's trace."""

import importlib.util
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kb import hardware
from kb.config import Root
from kb.errors import EntryChangedError, EntryFormatError, EntryNotFoundError, SourceUnavailableError
from kb.models.documents import Target, Traffic
from kb.service.adding import Added, add
from kb.store import content, files, layout
from kb.targeting.configs import MAX_BYTES, read
from kb.targeting.costs import CostModel, Work
from kb.targeting.estimate import estimated
from kb.targeting.making import Deployment, target_of
from kb.targeting.writing import facts_text, readme_text
from kb.validators.operators import names as operators


@dataclass(frozen=True)
class Drafted:
    """A target that is not filed yet."""

    id: str
    target: Target
    facts: str
    """Text of ``entry.toml``."""
    readme: str
    """Text of ``README.md``."""


@dataclass(frozen=True)
class Listed:
    """One filed target, in short."""

    id: str
    model: str
    devices: tuple[str, ...]
    device_count: int
    precision: str
    rows: int
    shares: str
    """``measured``, ``estimated``, ``mixed`` or ``none``."""


@cache
def spec_cost(operator: str) -> CostModel | None:
    """Return the cost model of an operator's spec; None if there is none, or torch is not installed."""
    if operator not in operators.VALUES or importlib.util.find_spec("torch") is None:
        return None
    from kb.validators.operators import load

    spec = load(operator)

    def work(axes: Mapping[str, int], dtype: str) -> Work:
        cost = spec.cost(axes, dtype)
        return Work(cost.flops, cost.essential_bytes)

    return CostModel(spec.axes, spec.dtypes, work)


def share_source(target: Target) -> str:
    """Say where a target's shares come from: ``measured``, ``estimated``, ``mixed`` or ``none``."""
    found = {row.share_from for row in target.operators if row.share_from is not None}
    return "none" if not found else "mixed" if len(found) > 1 else next(iter(found))


def target_ids(root: Root) -> list[str]:
    """Return the ids of all filed targets."""
    return [one for one in layout.entry_ids(root.entries) if one.startswith("target/")]


def shape_of(traffic: Traffic) -> str:
    """Return the numbers of a traffic in words."""
    sizes = {
        "batch": traffic.batch_size, "input tokens": traffic.input_tokens, "output tokens": traffic.output_tokens,
        "context": traffic.context_len, "concurrency": traffic.concurrency,
    }  # fmt: skip
    return ", ".join(f"{what} {size:,}" for what, size in sizes.items() if size is not None)


def list_targets(root: Root) -> list[Listed]:
    """Return all targets that can be read, by id; ``kb check`` says what is wrong with the others."""
    found = []
    for entry_id in target_ids(root):
        stored, _ = files.inspect(content.read(root.entries / entry_id), entry_id)
        if stored is not None and stored.file.target is not None:
            one = stored.file.target
            found.append(
                Listed(
                    entry_id, one.model, tuple(one.devices), one.device_count, one.precision, len(one.operators),
                    share_source(one),
                )
            )  # fmt: skip
    return found


def whole_id(root: Root, name: str) -> str:
    """Return the id of a target whose name may be short.

    Args:
        root: The knowledge base.
        name: An id, which is returned as it is, or what :func:`find_target` takes.

    Raises:
        EntryNotFoundError: A short name is none, or that of several.
    """
    return name if name.count("/") >= 2 else find_target(root, name)[0]


def find_target(root: Root, name: str) -> tuple[str, Target]:
    """Read one target.

    Args:
        root: The knowledge base.
        name: Its id, the id without ``target/``, or its last part if no other target has it.

    Returns:
        The id and the target.

    Raises:
        EntryNotFoundError: There is none of this name, or several; the hint names them.
        EntryFormatError: Its file breaks the format.
    """
    known = target_ids(root)
    matching = [one for one in known if name in (one, one.removeprefix("target/"), one.rsplit("/", 1)[1])]
    if len(matching) != 1:
        which = "several targets are" if matching else "no target is"
        shown = ", ".join(matching or known) or "none is filed"
        raise EntryNotFoundError(f"{which} called {layout.printable(name[:200])!r}", hint=f"targets: {shown}")
    folder = root.entries / matching[0]
    stored = files.read(folder, matching[0], shown=str(folder))
    if stored.file.target is None:  # pragma: no cover - a target without a target does not pass the format
        raise EntryFormatError(f"{matching[0]}: it describes no target")
    return matching[0], stored.file.target


def _slug(text: str) -> str:
    """Return a text as part of an id; ``x`` if nothing of it can stand in one."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")
    return plain or "x"


def _short_device(target: Target) -> str:
    scope = hardware.resolve(target.devices[0])
    name = scope.members[0].name if len(scope.members) == 1 else scope.asked
    short = _slug(name.removeprefix("NVIDIA ").removeprefix("AMD Instinct ")).split("-")[0]
    return short if target.device_count == 1 else f"{short}x{target.device_count}"


def draft(target: Target, *, precision: str, source: Mapping[str, Any], entry_id: str | None = None) -> Drafted:
    """Write down a target as an entry that passes the format.

    Args:
        target: What it describes.
        precision: One word for its slug.
        source: The entry's ``[source]``.
        entry_id: Its id; None for ``target/MODEL/PRECISION-DEVICE``.

    Raises:
        EntryFormatError: The id is none.
    """
    chosen = entry_id or f"target/{_slug(target.model)}/{_slug(f'{precision}-{_short_device(target)}')}"
    if layout.parse_id(chosen).kind != "target":
        raise EntryFormatError(f"id '{chosen}': expected a target", hint="--id target/MODEL/SLUG")
    dtypes = dict.fromkeys(dtype for row in target.operators for dtype in row.dtypes)
    where = f"{target.device_count} x {target.devices[0]}" if target.device_count > 1 else target.devices[0]
    head = {
        "schema": 1,
        "version": 1,
        "title": _clipped(f"{target.model} on {where}, {precision}", 80),
        "summary": _clipped(
            f"{len(target.operators)} operator rows, shares {share_source(target)}; "
            + ", ".join(one.name for one in target.traffic),
            160,
        ),
        "outcome": "works",
        "language": "none",
        "dtypes": list(dtypes),
        "tags": list(dict.fromkeys(_slug(one) for one in (target.model, precision, target.devices[0], "target"))),
        "license": "Apache-2.0",
        "phase": list(dict.fromkeys(one.phase for one in target.traffic if one.phase)),
        "source": dict(source),
    }
    text, readme = facts_text(target, head), readme_text(target, str(source.get("note") or source["origin"]))
    _, _, faults = files.parse_facts(text.encode("utf-8"))
    if faults:
        raise EntryFormatError(f"the target cannot be written down: {faults[0]}")
    return Drafted(chosen, target, text, readme)


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def read_source(path: Path, *, most: int) -> bytes:
    """Read a file that somebody names.

    Raises:
        SourceUnavailableError: It is missing, no regular file, or too large.
    """
    try:
        if not path.is_file():
            raise SourceUnavailableError(f"{path}: expected a file, found none")
        size = path.stat().st_size
        if size > most:
            raise SourceUnavailableError(f"{path}: expected at most {most:,} bytes, found {size:,}")
        return path.read_bytes()
    except OSError as error:
        raise SourceUnavailableError(f"{path}: {error.strerror or error}") from error


def from_config(path: Path, asked: Deployment, *, model: str | None = None, entry_id: str | None = None) -> Drafted:
    """Make a target from a model's ``config.json``, with estimated shares where torch is installed.

    Args:
        path: The config.
        asked: How it is deployed.
        model: The model's name; None to take it from the config or its folder.
        entry_id: As :func:`draft` takes it.

    Raises:
        SourceUnavailableError: The file cannot be read.
        EntryFormatError: It is no config, of an architecture that is not known, or lacks a size.
        ConfigError: Sizes cannot be divided over the devices, or a word is not known.
        DeviceUnavailableError: The device is not known.
    """
    config = read(read_source(path, most=MAX_BYTES))
    named = model or str(config.values.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    named = named or (path.resolve().parent.name if path.name == "config.json" else path.stem)
    target = target_of(config, asked, model=named)
    if importlib.util.find_spec("torch") is not None:
        target = Target.model_validate(estimated(target, spec_cost).model_dump())
    precision = asked.precision or _precision_word(target)
    note = f"Shapes derived from a config.json of {config.model_type}."
    return draft(target, precision=precision, source={"origin": "derived", "note": note}, entry_id=entry_id)


def _precision_word(target: Target) -> str:
    return re.split(r"[ ,;]", target.precision.lower())[0].replace("bfloat16", "bf16").replace("float16", "fp16")


def write_draft(drafted: Drafted, folder: Path) -> Path:
    """Write a draft as a folder of its own, which ``kb add`` takes.

    Args:
        drafted: The draft.
        folder: Below it the folders of the id are made.

    Returns:
        The folder of the entry.

    Raises:
        SourceUnavailableError: It is there already, or cannot be written.
    """
    place = folder / drafted.id
    try:
        place.mkdir(parents=True, exist_ok=False)
        (place / layout.FACTS).write_text(drafted.facts, encoding="utf-8")
        (place / layout.README).write_text(drafted.readme, encoding="utf-8")
    except FileExistsError as error:
        raise SourceUnavailableError(f"{place}: it is there already", hint="another --id, or another folder") from error
    except OSError as error:
        raise SourceUnavailableError(f"{place}: {error.strerror or error}") from error
    return place


def file_draft(drafted: Drafted, root: Root) -> Added:
    """File a draft in a knowledge base.

    Raises:
        ConfigError: The knowledge base is the one that came with the installation.
        EntryChangedError: Another target has this id and version.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            return add(write_draft(drafted, Path(folder)), drafted.id, root)
        except EntryChangedError as error:
            hint = f"--id target/… files it beside {drafted.id}; or -o DIR, a higher version there, and kb add DIR"
            raise EntryChangedError(error.message, hint=hint) from error
