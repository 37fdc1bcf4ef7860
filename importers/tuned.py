"""What importers of tuned parameters share: keys in file names, checked tables, and the draft of a ``config`` entry."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb import hardware
from kb.errors import SourceFormatError
from kb.importers import devices
from kb.importers.base import Draft, Item, Provenance, provenance_of, sha256, values_digest
from kb.importers.license import of_file
from kb.importers.naming import slug
from kb.importers.reading import object_of

MAX_CONFIG_BYTES = 1 << 20
"""Largest file that an entry holds."""
_CONFIG_DEPTH = 14
"""The store takes 16 levels."""
_FEWEST_ROWS = 4
"""Fewer rows can agree by chance: the space of block sizes is small."""
_DESCRIPTION = frozenset({"triton_version", "meta", "version", "source", "_metadata"})
"""Top-level keys that describe a table instead of being part of it."""


@dataclass(frozen=True)
class Key:
    """The facts in a file name such as ``E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json``."""

    words: tuple[str, ...]
    """Parts without ``=``."""
    fields: Mapping[str, str]
    down: bool = False
    """True for the suffix ``_down``: the tuning of the second matrix product of a pair."""

    def whole(self, name: str) -> int | None:
        """Return a field as a positive integer, or None if it is absent or none."""
        text = self.fields.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) else None

    @property
    def device(self) -> str | None:
        """Device as spelled; None if no key names one."""
        return self.fields.get("device_name", self.fields.get("device"))


def key_of(name: str) -> Key | None:
    """Take a file name apart.

    Args:
        name: Without folders; ends in ``.json``.

    Returns:
        The key, or None if the name has none or states something twice.
    """
    if not name.endswith(".json") or "=" not in name or len(name) > 400:
        return None
    stem = name.removesuffix(".json")
    down = stem.endswith("_down")
    stem = stem.removesuffix("_down")
    words: list[str] = []
    fields: dict[str, str] = {}
    for part in re.split(r",(?![^\[]*\])", stem):
        left, equals, right = part.partition("=")
        if not equals:
            words.append(part)
        elif left in fields or not re.fullmatch(r"\w+", left):
            return None
        else:
            fields[left] = right
    return Key(tuple(words), fields, down)


@dataclass(frozen=True)
class Table:
    """A checked table of parameters."""

    rows: Mapping[str, Mapping[str, Any]]
    """Run-time key → parameters."""
    triton: str | None
    values: str | None
    """Digest of the rows; None where too few could agree by chance."""
    empty: tuple[str, ...] = ()
    """Run-time keys for which the tuner found nothing."""


def points_of(raw: Mapping[str, Any], *, words: bool = False) -> Table:
    """Check a table ``{"<M>": {parameter: value}}``.

    Args:
        raw: Parsed JSON; ``triton_version`` may stand between the keys, and null for sizes that could not be tuned.
        words: A row may also be one word: the name of a strategy.

    Raises:
        SourceFormatError: A key is no size or stands there in two spellings, or a parameter is none.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    empty: list[str] = []
    triton = raw.get("triton_version")
    if triton is not None and not (isinstance(triton, str) and re.fullmatch(r"[\w.+\-]{1,40}", triton)):
        raise SourceFormatError("triton_version: expected a version")
    for key, parameters in raw.items():
        if key == "triton_version":
            continue
        if not re.fullmatch(r"[1-9][0-9]{0,11}", key):
            raise SourceFormatError(f"expected sizes as keys, found {key[:60]!r}")
        if parameters is None:
            empty.append(key)
            continue
        if words and isinstance(parameters, str) and re.fullmatch(r"\w{1,60}", parameters):
            rows[key] = {"strategy": parameters}
            continue
        if not isinstance(parameters, dict) or not parameters:
            raise SourceFormatError(f"{key[:60]}: expected an object of parameters")
        for name, value in parameters.items():
            check_parameter(f"{key[:60]}.{name[:60]}", value)
        rows[key] = parameters
    if not rows:
        raise SourceFormatError("expected at least one row, found none")
    return Table(rows, triton, values_of(raw), tuple(empty))


def untuned(keys: Sequence[str]) -> tuple[str, ...]:
    """Return what is to be said of sizes for which the tuner found nothing; no word where there are none."""
    return (f"The tuner found nothing for {', '.join(keys)[:120]}: null stands there.",) if keys else ()


def check_parameter(place: str, value: object) -> None:
    """Refuse what cannot be a parameter of a kernel.

    Raises:
        SourceFormatError: A negative or huge number, a fraction, or an overlong text.
    """
    if isinstance(value, bool) or value is None or (isinstance(value, str) and len(value) <= 2000):
        return
    if isinstance(value, int) and 0 <= value <= 1 << 24:
        return
    raise SourceFormatError(f"{place}: expected a parameter (0 to 2^24, a word, true or false), found {value!r:.60}")


def values_of(raw: Mapping[str, Any] | Sequence[Any]) -> str | None:
    """Return the digest of a table's values alone, or None where so few could agree by chance."""
    rows: Any = (
        {key: value for key, value in raw.items() if key not in _DESCRIPTION} if isinstance(raw, Mapping) else raw
    )
    return values_digest(rows) if len(rows) >= _FEWEST_ROWS else None


@dataclass(frozen=True)
class Recipe:
    """What a config draft is made from."""

    project: str
    """``vLLM``, ``SGLang``: whose tuner wrote it."""
    kernel: str
    """Whom the parameters are for."""
    topic: str
    """Middle part of the id."""
    what: str
    """``fused MoE``: for title and readme."""
    key: Sequence[tuple[str, object]]
    """What the file's key says, in its own names and order, device left out: ``("E", 256)``."""
    device: str
    """As the device reports itself."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """Fixed sizes by the names that operators use."""
    operator: str | None = None
    applies_to: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    precision: str = ""
    """As the source spells it."""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[str] = ()
    """Run-time keys."""
    lookup: str = ""
    """How the runtime finds a row, as a sentence."""
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    api: tuple[str, ...] = ()
    variant: str = ""
    """What tells it from others of its topic, in the id."""
    timed: bool = False
    """True where the source has timings."""
    arch: str | None = None
    """Where the source names the architecture itself."""


def config_draft(
    item: Item,
    recipe: Recipe,
    *,
    body: bytes,
    values: str | None = None,
    further: Mapping[str, bytes] | None = None,
) -> Draft:
    """Make the draft of a ``config`` entry, the original file in it byte for byte.

    Args:
        item: Where it comes from.
        recipe: What it says.
        body: Bytes of the first file.
        values: Digest of its values.
        further: More files by name, such as the second of a pair.
    """
    arch = recipe.arch or devices.arch_of(recipe.device)
    files = {"config.json": body, **(further or {})}
    provenance = _with_companions(provenance_of(item.files[0], item.tree, body), item, further or {})
    title = _title(recipe)
    facts: dict[str, Any] = {
        "title": title,
        "summary": _summary(recipe),
        "outcome": "works",
        **({"operator": recipe.operator} if recipe.operator else {}),
        **({"applies_to": list(recipe.applies_to)} if recipe.applies_to else {}),
        "language": "none",
        "dtypes": list(recipe.dtypes),
        "tags": _tags(recipe),
        "requires": _requires(arch, recipe.dtypes),
        "tuned": {
            "kernel": recipe.kernel,
            "device": recipe.device,
            **({"toolchain": dict(recipe.toolchain)} if recipe.toolchain else {}),
            **({"axes": dict(recipe.axes)} if recipe.axes else {}),
        },
        **({"symbols": {"api": list(recipe.api)}} if recipe.api else {}),
    }
    return Draft(
        id=f"config/{recipe.topic}/{_slug(recipe)}",
        facts={name: value for name, value in facts.items() if value not in ([], {})},
        readme=_readme(title, recipe, provenance),
        files=files,
        provenance=provenance,
        license=of_file(item.tree, item.path, body, default=item.tree.base.license),
        values=values,
        device=recipe.device,
    )


def _with_companions(provenance: Provenance, item: Item, further: Mapping[str, bytes]) -> Provenance:
    if not further:
        return provenance
    said = [
        f"{name}: {each.name}, sha256 {sha256(body)}"
        for (name, body), each in zip(further.items(), item.files[1:], strict=True)
    ]
    notes = [*([provenance.note] if provenance.note else []), *said]
    return Provenance(
        provenance.repository,
        provenance.path,
        provenance.sha256,
        provenance.commit,
        provenance.url,
        "; ".join(notes),
    )


def _spelled(recipe: Recipe) -> str:
    return " ".join(f"{name}={value}" for name, value in recipe.key)


def _title(recipe: Recipe) -> str:
    device = devices.short_device(recipe.device)
    precision = f", {recipe.precision}" if recipe.precision else ""
    for text in (
        f"{recipe.project} {recipe.what}: {_spelled(recipe)}{precision}, {device}",
        f"{recipe.project} {recipe.what}: {_spelled(recipe)}, {device}",
        f"{recipe.project} {recipe.what}, {device}",
    ):
        if len(text) <= 80:
            return text
    return f"{recipe.project} {recipe.what}"[:79] + "…"


def _summary(recipe: Recipe) -> str:
    triton = recipe.toolchain.get("triton")
    version = f"Triton {triton}" if triton else "no Triton version stated"
    other = next((f"{name} {text}" for name, text in recipe.toolchain.items() if name != "triton"), None)
    proof = "timed by its tuner" if recipe.timed else "a recipe: no timings"
    text = f"Tuned parameters, {len(recipe.rows)} rows; {other or version}; {proof}."
    return text if len(text) <= 160 else text[:159] + "…"


def _tags(recipe: Recipe) -> list[str]:
    precision = re.split(r"[^a-z0-9.]+", recipe.precision.lower())
    raw = [
        "tuned-config",
        recipe.project,
        devices.short_device(recipe.device),
        recipe.precision,
        *precision,
        *recipe.tags,
    ]
    made = (slug(one) for one in raw if one)
    return [one for one in dict.fromkeys(made) if one != "none" and not one.startswith("x-")][:24]


def _requires(arch: str | None, dtypes: Iterable[str]) -> dict[str, Any]:
    if arch is None:
        return {}
    wanted = {"float8_e4m3fn": "fp8_mma", "float8_e4m3fnuz": "fp8_mma", "nvfp4": "fp4_mma"}
    has = hardware.architectures().get(arch, frozenset())
    features = sorted({wanted[one] for one in dtypes if one in wanted} & has)
    return {"arch": [arch], **({"features": features} if features else {})}


def _slug(recipe: Recipe) -> str:
    key = [f"{name}{value}" for name, value in recipe.key]
    versions = [f"{name}{text}" for name, text in recipe.toolchain.items() if name == "triton"]
    return slug(recipe.project, recipe.variant, *key, recipe.precision, recipe.device, *versions)


def _shown(rows: Sequence[str]) -> str:
    few = [*rows[:4], "…", rows[-1]] if len(rows) > 6 else rows
    return ", ".join(few)[:200]


def _readme(title: str, recipe: Recipe, provenance: Provenance) -> str:
    commit = f", {provenance.commit}" if provenance.commit else ""
    counted = f"{len(recipe.rows)} rows ({_shown(recipe.rows)}). " if recipe.rows else ""
    rows = f"{counted}{recipe.lookup}".strip()
    lines = [
        f"# {title}",
        "",
        f"Parameters that the tuner of {recipe.project} preferred for {recipe.kernel} on {recipe.device}; "
        "`config.json` is the original file, byte for byte.",
        *([f"{rows}"] if rows else []),
        *(f"- {note}" for note in recipe.notes),
        "- Timings are the tuner's own; our judge did not measure them."
        if recipe.timed
        else "- A recipe, not evidence: it has no timings and does not say against what it won.",
        "",
        f"Source: {provenance.repository}{commit}, `{provenance.path}`.",
        "",
    ]
    return "\n".join(lines)


def read_config(item: Item, place: int = 0) -> tuple[bytes, dict[str, Any]]:
    """Read one JSON object of an item.

    Args:
        item: The item.
        place: Which of its files.

    Raises:
        SourceFormatError: It is no JSON object within the limits.
    """
    body = item.tree.read(item.files[place].path, limit=MAX_CONFIG_BYTES)
    return body, object_of(body, depth=_CONFIG_DEPTH)
