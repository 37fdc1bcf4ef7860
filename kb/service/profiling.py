"""A target from a profiler's trace."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kb import hardware
from kb.errors import ConfigError, DeviceUnavailableError, UnknownOperatorError
from kb.importers.traces.reading import read_trace
from kb.importers.traces.rows import Reconciled, reconcile
from kb.importers.traces.rules import Rules, known_operators, load
from kb.models.documents import Target
from kb.models.vocabulary import PHASES
from kb.service.targets import Drafted, draft
from kb.validators.operators import names as operators


@dataclass(frozen=True)
class Asked:
    """What a trace does not say."""

    device: str | None = None
    """As ``kb.hardware.resolve`` takes it; None for what the trace names."""
    count: int = 1
    model: str | None = None
    precision: str | None = None
    """In one word; None for the dtype that most of the time is spent in."""
    phase: str | None = None
    """``prefill``, ``decode`` or ``vision``; None if the trace holds several."""
    batch_size: int = 1
    input_tokens: int | None = None
    context_len: int | None = None
    steps: int | None = None
    """How many steps the trace covers; None for what it marks, else 1."""
    rules: Path | None = None
    """Rules of one's own, which come first."""


@dataclass(frozen=True)
class Traced:
    """A target and how much of the trace it explains."""

    drafted: Drafted
    named_share: float
    """Of the time, 0 to 1."""
    total_us: float
    source: str
    cleaned: int
    """Different names of kernels and operations out of which characters were taken that cannot be printed."""


def rules_for(extra: Path | None) -> Rules:
    """Read the rules, and refuse those that name something that is no operator.

    Raises:
        SourceUnavailableError: A file of rules cannot be read, or is broken.
        UnknownOperatorError: A rule names what is neither an operator with a spec nor one without.
    """
    rules = load(extra)
    known = known_operators(operators.NAMES)
    for one in rules.rules:
        if one.operator not in known:
            raise UnknownOperatorError(f"rule {one.id!r} names no operator: {one.operator!r}", hint="kb operators")
    return rules


def _device(found: str | None, asked: str | None) -> str:
    name = asked or found
    if name is None:
        raise DeviceUnavailableError("the trace does not say on which device it was taken", hint="--device NAME")
    try:
        scope = hardware.resolve(name)
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(error.message, hint=f"--device NAME; {error.hint}") from error
    return name if len(scope.members) > 1 else scope.members[0].device_names[0]


def from_trace(path: Path, asked: Asked, *, entry_id: str | None = None) -> Traced:
    """Make a target from a trace.

    Args:
        path: As ``kb.importers.traces.reading.read_trace`` takes it.
        asked: What it does not say.
        entry_id: As ``kb.service.targets.draft`` takes it.

    Raises:
        SourceUnavailableError: The trace cannot be read, or nothing in it took time.
        DeviceUnavailableError: The device is not known, or neither the trace nor the caller says it.
        ConfigError: A number is out of range, or a word is not known.
    """
    if asked.steps is not None and asked.steps < 1:
        raise ConfigError(f"expected at least one step, found {asked.steps}", hint="--steps")
    if asked.phase is not None and asked.phase not in PHASES:
        raise ConfigError(f"phase {asked.phase[:60]!r}: expected one of {', '.join(PHASES)}", hint="--phase")
    rules = rules_for(asked.rules)
    profile = read_trace(path)
    device = _device(profile.device, asked.device)
    steps = asked.steps or profile.steps or 1
    found = reconcile(profile, rules, steps=steps, phase=asked.phase)
    precision = asked.precision or _precision(found)
    facts = _facts(found, asked, device, precision, steps=steps, source=profile.source, stem=path.name)
    try:
        target = Target.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(one) for one in first["loc"])
        raise ConfigError(f"{where}: {first['msg']}", hint="kb target from-trace --help") from error
    source = {"origin": "measured", "note": f"{profile.source}; {100 * found.named_share:.1f} % of the time named."}
    drafted = draft(target, precision=_word(precision, asked.phase), source=source, entry_id=entry_id)
    return Traced(drafted, found.named_share, found.total_us, profile.source, len(profile.cleaned))


def _precision(found: Reconciled) -> str:
    """Return the dtype that rows of most of the time have; ``mixed`` if none says one."""
    spent: dict[str, float] = {}
    for row in found.rows:
        for dtype in row.dtypes[:1]:
            spent[dtype] = spent.get(dtype, 0.0) + (row.share or 0.0)
    return max(spent, key=lambda dtype: spent[dtype]) if spent else "mixed"


def _word(precision: str, phase: str | None) -> str:
    return f"{precision.replace('bfloat16', 'bf16')}-{phase or 'trace'}"


def _facts(
    found: Reconciled, asked: Asked, device: str, precision: str, *, steps: int, source: str, stem: str
) -> dict[str, object]:
    traffic = {
        "name": asked.phase or "traced", "phase": asked.phase, "batch_size": asked.batch_size,
        "input_tokens": asked.input_tokens, "context_len": asked.context_len,
        "summary": "what ran while the trace was taken",
    }  # fmt: skip
    basis = (
        f"measured: {source}, {found.total_us / steps:.6g} us a step over {steps} step(s), "
        f"{100 * found.named_share:.2f} % of it named; concurrent kernels count each"
    )
    return {
        "model": asked.model or stem.split(".")[0] or "traced model",
        "devices": [device],
        "device_count": asked.count,
        "precision": precision,
        "traffic": [traffic],
        "accuracy": "That of the program that was traced.",
        "goals": [{"metric": "step_us", "better": "lower", "against": "the traced program"}],
        "operators": [row.model_dump() for row in found.rows],
        "unnamed": [one.model_dump() for one in found.unnamed],
        "share_basis": basis,
    }
