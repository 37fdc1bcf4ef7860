"""``kb export`` from the shell: what it writes and prints, its exit codes, and what can be completed."""

import json
from pathlib import Path

import pytest

from kb import launch
from kb.cli.export import formats, operators
from kb.errors import SourceFormatError
from kb.service.exporting import Choice

REPOSITORY = Path(__file__).resolve().parents[2]
KERNEL = "kernel/rmsnorm/row-per-cta"


def test_a_kernel_goes_out_and_what_a_format_cannot_hold_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ["export", "openevolve", KERNEL, "-o", str(out), "--root", str(REPOSITORY)]
    assert launch.main([*given, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["left_out"] == []
    assert sorted([*made["files"], made["manifest"]]) == sorted(
        str(one.relative_to(out)) for one in out.rglob("*") if one.is_file()
    )
    assert launch.main(given) != 0
    assert "is there already" in capsys.readouterr().err
    none = ["export", "vllm-fused-moe", KERNEL, "-o", str(tmp_path / "three"), "--root", str(REPOSITORY)]
    assert launch.main(none) == SourceFormatError.exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"nothing can be written as vllm-fused-moe: {KERNEL}: it is no vllm-fused-moe file" in shown.err
    assert not (tmp_path / "three").exists()


def test_what_takes_long_is_said_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["export", "flashinfer-trace", KERNEL, "-o", str(tmp_path / "out"), "--root", str(REPOSITORY)]
    assert launch.main(given) == 0
    assert capsys.readouterr().err.splitlines()[0] == "writing kernels as flashinfer-trace: 1"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["no-such-format"], "no format is called"),
        (["gpumode"], "can be read, not written"),
        (["openevolve", "--top", "2"], "of an operator"),
        (["openevolve", KERNEL, "--operator", "rmsnorm"], "found both"),
        (["openevolve", "--operator", "no_such_operator"], "no_such_operator"),
    ],
)
def test_what_cannot_be_asked_for_fails_with_the_reason_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], reason: str
) -> None:
    assert launch.main(["export", *given, "-o", str(tmp_path / "out"), "--root", str(REPOSITORY)]) != 0
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_formats_and_operators_can_be_completed() -> None:
    assert formats("open") == ["openevolve"]
    assert "rmsnorm" in operators("rms")
    assert Choice() == Choice(None, None, None)


def test_the_help_names_every_format_that_can_be_written() -> None:
    from kb.cli.export import WRITTEN
    from kb.importers.registry import exporters

    assert WRITTEN.split(", ") == list(exporters())
