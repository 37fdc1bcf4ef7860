"""Numbers that bind a worker to its results before it hands them over.

Handing results over takes milliseconds where they are large, and no two processes copy equally fast, so that results
which were not there yet when a batch was over would hide in it. Right after a batch the judge therefore asks for one
number for each result, computed where the results lie, with factors that it draws only then. Whoever has no results yet
has to compute them within that short time; whoever answers with another number is found out when they are handed over.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_WORDS = 4096
"""Words of 32 bits in a row; each has a factor of its own."""

KEY_BYTES = 8 * _WORDS


def new_key() -> bytes:
    """Draw the factors, as 64-bit integers."""
    return secrets.token_bytes(KEY_BYTES)


def number_of(flat: torch.Tensor, key: torch.Tensor) -> int:
    """Return the sum of all words of a tensor's bytes, each times its factor, modulo 2 to the 64.

    Rows are multiplied by odd numbers besides, so that no two of them can be exchanged.

    Args:
        flat: One axis, contiguous, any dtype.
        key: Factors, int64 [4096], on the same device.
    """
    data = flat.view(torch.uint8)
    rows = -(-data.numel() // (4 * _WORDS))
    words = torch.zeros(rows * _WORDS, dtype=torch.int32, device=flat.device)
    words.view(torch.uint8)[: data.numel()] = data
    sums = (words.view(rows, _WORDS) * key).sum(1)
    return int((sums * torch.arange(1, 2 * rows + 1, 2, device=flat.device)).sum())


def factors(key: bytes | bytearray | memoryview, device: str = "cpu") -> torch.Tensor:
    """Return a key as a tensor on a device."""
    return torch.frombuffer(bytearray(key), dtype=torch.int64).to(device)


def answer(results: Sequence[Any], key: torch.Tensor, device: str) -> list[str]:
    """Return the number of each result in decimal; of one that is no tensor on the device, nothing."""
    found = []
    for one in results[:16]:
        if not isinstance(one, torch.Tensor) or one.device.type != device:
            found.append("")
            continue
        flat = torch.Tensor.detach(one).contiguous().reshape(-1)
        found.append(str(number_of(flat, key)) if flat.numel() else "0")
    return found


@dataclass(frozen=True)
class Commitment:
    """What a worker answered for some calls of a batch."""

    key: bytes
    numbers: Mapping[int, tuple[str, ...]]
    """Position of a call to the numbers of its results."""

    def broken(self, handed: Mapping[int, Sequence[bytes]]) -> int | None:
        """Return the first call whose results are not those that were answered for.

        Args:
            handed: Position of a call to the bytes of its results, for these calls at least.
        """
        key = factors(self.key)
        for call, numbers in self.numbers.items():
            if numbers != tuple(str(_of_bytes(one, key)) for one in handed[call]):
                return call
        return None


def _of_bytes(data: bytes, key: torch.Tensor) -> int:
    return number_of(torch.frombuffer(bytearray(data), dtype=torch.uint8), key) if data else 0
