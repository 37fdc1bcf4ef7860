"""``kb status --target``: what covers each operator row of a target."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kb.cli.output import say, table, write_json

if TYPE_CHECKING:
    from kb.config import Root


def show(root: "Root", targets: list[str], devices: list[str], report: Path | None, *, as_json: bool) -> None:
    """Show what covers each operator row of targets, on one device."""
    from kb.errors import ConfigError
    from kb.service import coverage

    if not targets or len(devices) > 1:
        raise ConfigError("expected targets and one device", hint="kb status --target T --device H200")
    found = coverage.coverage(root, targets, devices[0])
    if report is not None:
        asked = " ".join(f"--target {one.target}" for one in found)
        coverage.put_page(
            report, coverage.page(found, f"kb status {asked} --device {devices[0]} --report {report.as_posix()}")
        )
    if as_json:
        write_json([asdict(one) for one in found])
        return
    for one in found:
        table(coverage.HEAD, coverage.table(one), title=f"{one.target} on {one.device}")
        say(coverage.summary(one))
