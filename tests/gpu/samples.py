"""The red team on a GPU: candidates that need one, and what is expected of each.

Docstrings are those of ``tests/redteam``, with more facts: ``forges: time`` marks a cheat whose values are right,
so that only clocks can object; ``sanitizer: TOOL, …`` has it run under compute-sanitizer; ``use: target`` asks for the
shapes of the targets too, whose values the arbiter computes on the device.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.redteam.samples import Sample, read

HERE = Path(__file__).parent

MUST = ("B9", "C2", "D7", "D8", "E1", "F1", "F4", "F5", "F8", "F9")
"""Rows of the catalogue that nothing but a GPU can stand for."""


@dataclass(frozen=True)
class GpuSample:
    """One candidate for a GPU."""

    sample: Sample
    forges_time: bool
    tools: tuple[str, ...]
    """Tools of compute-sanitizer that it is run under."""
    uses: tuple[str, ...]
    """Uses of the workloads that it is judged at."""

    @property
    def name(self) -> str:
        """Return the path below this folder, without its suffix."""
        return self.sample.path.relative_to(HERE).with_suffix("").as_posix()


def _fact(path: Path, key: str) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{key}:")]
    return found[0] if found else ""


def samples(kind: str) -> list[GpuSample]:
    """Return all candidates of one kind, ``cheats`` or ``honest``."""
    return [
        GpuSample(
            read(path),
            _fact(path, "forges") == "time",
            tuple(one.strip() for one in _fact(path, "sanitizer").split(",") if one.strip()),
            ("awkward", *filter(None, [_fact(path, "use")])),
        )
        for path in sorted((HERE / kind).glob("*.py"))
    ]


CHEATS, HONEST = samples("cheats"), samples("honest")
