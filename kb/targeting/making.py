"""A target from a model's config."""

from collections.abc import Sequence
from dataclasses import dataclass

from kb import hardware
from kb.errors import ConfigError
from kb.models.documents import Goal, Target, Traffic
from kb.targeting.configs import Config, stated_precision
from kb.targeting.decoders import add_decoder
from kb.targeting.encoders import add_encoder
from kb.targeting.rows import PRECISIONS, Rows

WORDS = {
    "bfloat16": "bfloat16", "float16": "float16", "fp8": "fp8 e4m3 projections, one scale a tensor; bfloat16 rest",
    "fp8-block": "fp8 e4m3 projections with block scales; bfloat16 rest", "nvfp4": "NVFP4 weights; bfloat16 rest",
    "mxfp4": "MXFP4 weights; bfloat16 rest",
}  # fmt: skip
"""Precision in words."""


@dataclass(frozen=True)
class Deployment:
    """What a config does not say."""

    device: str
    """As ``kb.hardware.resolve`` takes it."""
    count: int = 1
    """Devices over which every layer is divided."""
    precision: str | None = None
    """One of ``PRECISIONS``; None for what the config states."""
    batch_size: int = 1
    input_tokens: int = 1024
    context_len: int = 4096
    phases: tuple[str, ...] = ()
    """``prefill``, ``decode``, ``vision``; empty for those that the model has."""


def traffic_of(family: str, asked: Deployment) -> list[Traffic]:
    """Return the traffic that a deployment asks for.

    Args:
        family: A value of ``configs.FAMILIES``.
        asked: The deployment.

    Raises:
        ConfigError: The model has no such phase.
    """
    had = ("vision",) if family == "vit" else ("prefill", "decode")
    wrong = [phase for phase in asked.phases if phase not in had]
    if wrong:
        raise ConfigError(f"phase {wrong[0]!r}: expected {' or '.join(had)} of this model", hint="--phase")
    made = []
    for phase in asked.phases or had:
        sizes: dict[str, object] = {"batch_size": asked.batch_size}
        if phase == "prefill":
            sizes |= {"input_tokens": asked.input_tokens}
        elif phase == "decode":
            sizes |= {"context_len": asked.context_len, "concurrency": asked.batch_size}
        made.append(Traffic.model_validate({"name": phase, "phase": phase, **sizes}))
    return made


def _goals(traffic: Sequence[Traffic]) -> list[Goal]:
    metrics = {
        "prefill": ("ttft_ms", "lower"),
        "decode": ("decode_tokens_per_s", "higher"),
        "vision": ("images_per_s", "higher"),
    }
    found = []
    for one in traffic:
        metric, better = metrics[one.phase or "decode"]
        found.append(Goal.model_validate({"metric": metric, "better": better, "traffic": one.name}))
    return found


def target_of(config: Config, asked: Deployment, *, model: str) -> Target:
    """Make a target without shares of time.

    Args:
        config: The model's.
        asked: How it is deployed.
        model: Its name.

    Raises:
        EntryFormatError: The config lacks a size.
        ConfigError: Sizes cannot be divided over the devices, or the precision or phase is not known.
        DeviceUnavailableError: The device is not known.
    """
    device = hardware.resolve(asked.device).label if asked.device != "cpu" else "cpu"
    precision = asked.precision or stated_precision(config)
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}", hint="--precision")
    traffic = traffic_of(config.family, asked)
    rows = Rows(precision, devices=asked.count)
    (add_encoder if config.family == "vit" else add_decoder)(config, rows)
    phases = {one.phase for one in traffic}
    kept = [row for row in rows.made if row.phase is None or row.phase in phases]
    return Target.model_validate(
        {
            "model": model,
            "devices": [device if len(hardware.resolve(asked.device).members) == 1 else asked.device],
            "device_count": asked.count,
            "parallelism": {"tensor": asked.count} if asked.count > 1 else {},
            "precision": WORDS[precision],
            "traffic": [one.model_dump() for one in traffic],
            "accuracy": "No loss against the same weights in the reference implementation, at the same precision.",
            "goals": [one.model_dump() for one in _goals(traffic)],
            "operators": [row.model_dump() for row in kept],
        }
    )
