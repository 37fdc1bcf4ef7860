"""Read a Hugging Face ``config.json`` and find out which of the known architectures it describes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kb.errors import EntryFormatError

MAX_BYTES = 4 << 20
"""Of a config; genuine ones have some kilobytes."""

FAMILIES: Mapping[str, str] = {
    "llama": "dense", "mistral": "dense", "ministral": "dense", "qwen2": "dense", "qwen3": "dense", "seed_oss": "dense",
    "olmo2": "dense", "qwen3_moe": "moe", "mixtral": "moe", "qwen3_next": "hybrid", "qwen3_5": "hybrid",
    "qwen3_5_text": "hybrid", "qwen3_5_moe": "hybrid", "qwen3_5_moe_text": "hybrid", "deepseek_v2": "mla",
    "deepseek_v3": "mla", "kimi_k2": "mla", "vit": "vit", "dinov2": "vit", "siglip_vision_model": "vit",
    "clip_vision_model": "vit", "deit": "vit", "sam3_vit_model": "vit",
}  # fmt: skip
"""``model_type`` to the family whose operators it has."""

_INNER = ("text_config", "llm_config", "vision_config", "backbone_config", "detector_config")
"""Where composed configs keep those of their parts, the language model first."""

_DEEPEST = 6
"""Configs inside one another."""
_LARGEST = 1 << 40


def _shown(value: object) -> str:
    return repr(str(value)[:60])


@dataclass(frozen=True)
class Config:
    """One model's config: sizes by name, read strictly."""

    model_type: str
    family: str
    """A value of ``FAMILIES``."""
    values: Mapping[str, Any]

    def size(self, *names: str, default: int | None = None) -> int:
        """Return the first of some sizes that is there.

        Args:
            names: Spellings of one field.
            default: What its absence means; None if it has to be there.

        Raises:
            EntryFormatError: It is missing, or no whole number of 1 to 2^40.
        """
        for name in names:
            found = self.values.get(name)
            if found is None:
                continue
            if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _LARGEST:
                raise EntryFormatError(f"config.json: field {name}: expected 1 to 2^40, found {_shown(found)}")
            return found
        if default is None:
            raise EntryFormatError(
                f"config.json: field {' or '.join(names)}: expected a whole number, found none",
                hint=f"a config of {self.model_type} has it",
            )
        return default

    def count(self, name: str) -> int:
        """Return a number of things that may be none; 0 if the field is missing."""
        found = self.values.get(name)
        return 0 if found is None or found == 0 else self.size(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a yes or no."""
        found = self.values.get(name)
        return default if found is None else found is True

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers from 0 on; empty if the field is missing."""
        found = self.values.get(name) or []
        if not isinstance(found, list) or not all(type(one) is int and 0 <= one <= _LARGEST for one in found):
            raise EntryFormatError(
                f"config.json: field {name}: expected a list of whole numbers, found {_shown(found)}"
            )
        return found

    def words(self, name: str) -> list[str]:
        """Return a list of words; empty if the field is missing."""
        found = self.values.get(name) or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise EntryFormatError(f"config.json: field {name}: expected a list of words, found {_shown(found)}")
        return found

    def rotary(self, head_dim: int) -> int:
        """Return how many dimensions of a head are turned by rotary embeddings."""
        nested = self.values.get("rope_parameters")
        inner = nested if isinstance(nested, dict) else {}
        share = self.values.get("partial_rotary_factor") or inner.get("partial_rotary_factor") or 1.0
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise EntryFormatError(f"config.json: field partial_rotary_factor: expected 0 to 1, found {_shown(share)}")
        return int(head_dim * share)


def read(body: bytes) -> Config:
    """Read a config.

    Args:
        body: Bytes of ``config.json``.

    Returns:
        The part that describes layers; of a composed model, its language model if it has one that is known.

    Raises:
        EntryFormatError: It is no JSON object, or describes an architecture that is not known.
    """
    outer = _parsed(body)
    part = _known_part(outer, depth=0)
    if part is None:
        names = outer.get("architectures")
        shown = outer.get("model_type") or (names[0] if isinstance(names, list) and names else None)
        raise EntryFormatError(
            f"config.json: model_type: the architecture {_shown(shown)} is not known",
            hint=f"known: {', '.join(sorted(FAMILIES))}",
        )
    model_type = str(part["model_type"])
    return Config(model_type, FAMILIES[model_type], part)


def _parsed(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BYTES:
        raise EntryFormatError(f"config.json: expected at most {MAX_BYTES} bytes, found {len(body)}")
    try:
        value = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise EntryFormatError(
            f"config.json: expected JSON, found: {error}", hint="the config.json of a model"
        ) from error
    if not isinstance(value, dict):
        raise EntryFormatError(f"config.json: expected an object, found {type(value).__name__}")
    return value


def _known_part(config: dict[str, Any], *, depth: int) -> dict[str, Any] | None:
    """Return the config itself or the first of its parts whose architecture is known."""
    inner = [part for name in _INNER if isinstance(part := config.get(name), dict)]
    model_type = config.get("model_type")
    known = isinstance(model_type, str) and model_type in FAMILIES
    if known and not (inner and "hidden_size" not in config):
        return config
    if depth < _DEEPEST:
        for part in inner:
            found = _known_part({**_inherited(config), **part}, depth=depth + 1)
            if found is not None:
                return found
    return None


def _inherited(config: dict[str, Any]) -> dict[str, Any]:
    """Return what a composed model says once for all its parts."""
    return {name: config[name] for name in ("quantization_config", "tie_word_embeddings") if name in config}


def stated_precision(config: Config) -> str:
    """Return the precision that a config's quantisation section means; bfloat16 if there is none.

    Raises:
        EntryFormatError: There is one that is not understood.
    """
    section = config.values.get("quantization_config")
    if section is None:
        return "bfloat16"
    text = json.dumps(section).lower()
    for mark, precision in (("nvfp4", "nvfp4"), ("mxfp4", "mxfp4")):
        if mark in text:
            return precision
    if "fp8" in text:
        return "fp8-block" if isinstance(section, dict) and section.get("weight_block_size") else "fp8"
    raise EntryFormatError(
        "config.json: field quantization_config: the method is not known", hint="say it with --precision"
    )
