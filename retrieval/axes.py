"""Sizes in a query, such as E=256 N=512, held against the sizes that tuned parameters are for. Standard library only.

Loaded only for queries that state sizes: all others pay nothing for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ASKED = re.compile(r"(?<![\w.])([A-Za-z][A-Za-z0-9_]{0,30})\s?=\s?([0-9]{1,9})(?![\w.])")

_NAMES: Mapping[str, tuple[str, ...]] = {
    "e": ("num_experts",), "experts": ("num_experts",), "n": ("intermediate_size", "n", "n2"),
    "inter_size": ("intermediate_size",), "k": ("k", "hidden_size"), "m": ("m",), "h": ("hidden_size", "h"),
    "hidden": ("hidden_size",), "headdim": ("head_dim",), "d": ("head_dim", "d"), "dstate": ("state_dim",),
    "topk": ("top_k",), "world": ("world_size",), "r": ("rank", "r"), "s": ("slices", "s"),
}  # fmt: skip
"""What a short name in a query or a file name may stand for, besides itself."""

_NEAR = 0.7
"""What a size half or twice the asked one counts, against the very one."""


class Fit(Frozen):
    """How tuned parameters fit what was asked."""

    agreement: float
    """1 if every size is the asked one, down to 0."""
    differences: tuple[str, ...]
    """``N=256, asked 512``; then device and dtype, if those differ."""

    @property
    def exact(self) -> bool:
        """True if nothing differs."""
        return not self.differences


def asked(query: str) -> tuple[tuple[str, int], ...]:
    """Return the sizes that a query states, in its own names; the first of a name counts."""
    found: dict[str, tuple[str, int]] = {}
    for name, size in _ASKED.findall(query):
        found.setdefault(name.lower(), (name, int(size)))
    return tuple(found.values())


def fit(
    sizes: Sequence[tuple[str, int]],
    tuned: Mapping[str, Any],
    *,
    device_names: Sequence[str] | None,
    said: frozenset[str],
    asked_dtypes: Sequence[str],
    dtypes: Sequence[str],
) -> Fit | None:
    """Hold tuned parameters against asked sizes.

    Args:
        sizes: What the query states.
        tuned: The table ``tuned`` of an entry.
        device_names: Names that the asked device reports; None where no known device is asked.
        said: Words of the query, where the device may be one that is not in the hardware table.
        asked_dtypes: dtypes that the query means; empty for none.
        dtypes: Those of the entry.

    Returns:
        The fit, or None where the parameters say nothing of any asked size.
    """
    axes = {str(name).lower(): size for name, size in (tuned.get("axes") or {}).items()}
    differences = []
    total = 0.0
    known = 0
    for name, size in sizes:
        found = next((axes[each] for each in (name.lower(), *_NAMES.get(name.lower(), ())) if each in axes), None)
        if found is None:
            differences.append(f"it does not say {name}, asked {size}")
            continue
        known += 1
        if found == size:
            total += 1.0
            continue
        differences.append(f"{name}={found}, asked {size}")
        total += _NEAR / max(1.0, abs(math.log2(max(found, 1) / max(size, 1))))
    if not known:
        return None
    differences += _device(str(tuned.get("device", "")), device_names, said)
    if asked_dtypes and not _families(asked_dtypes) & _families(dtypes):
        differences.append(f"{', '.join(dtypes) or 'no dtype stated'}, asked {asked_dtypes[0]}")
    return Fit(total / len(sizes), tuple(differences))


def _families(dtypes: Sequence[str]) -> set[str]:
    """Return formats without their variants: whoever says fp8 means any of them."""
    return {one.split("_", 1)[0] for one in dtypes}


def _device(device: str, names: Sequence[str] | None, said: frozenset[str]) -> list[str]:
    words = {word for word in re.split(r"[^a-z0-9]+", device.lower()) if re.search(r"[0-9]", word)}
    models = {word for word in said if re.fullmatch(r"(mi|gfx|[abghlr]|rtx|gb)[0-9]{1,4}[a-z]?", word)}
    if (names is not None and device in names) or models & words or (names is None and not models):
        return []
    return [f"tuned on {device}, asked {names[0] if names else ' '.join(sorted(models))}"]
