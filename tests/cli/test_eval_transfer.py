"""``kb eval transfer`` prints errors of predictions, or JSON, and one line where it cannot."""

import json
from pathlib import Path

import pytest

from kb import launch
from kb.prediction.constants import read

Capture = pytest.CaptureFixture[str]
DATA = Path(__file__).resolve().parents[1] / "data" / "latencies"


def test_tables_of_families_and_pairs(capsys: Capture) -> None:
    assert launch.main(["eval", "transfer", str(DATA / "generation_attention.csv"), "--calibrate", "4"]) == 0
    captured = capsys.readouterr()
    for said in ("median %", "p90 %", "inside %", "width", "same latency %", "bandwidth ratio %", "roofline ratio %"):
        assert said in captured.out
    for said in ("H100-SXM", "generation_attention", "same_device", "calibrated generations", "all others"):
        assert said in captured.out
    assert "100 measurements in 1 files" in captured.err
    assert "L40S: constants fitted on" in captured.err


def test_json_for_scripts(capsys: Capture) -> None:
    assert launch.main(["eval", "transfer", str(DATA / "gemm.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measurements"] == 130
    row = found["figures"][0]
    assert {"case", "source", "target", "family", "n", "median", "p90", "coverage", "width_median", "rules"} <= set(row)


def test_constants_can_be_fitted_and_used(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mine.json"
    assert launch.main(["eval", "transfer", str(DATA / "generation_attention.csv"), "--fit", str(file)]) == 0
    assert "sets of constants" in capsys.readouterr().err
    assert "all" in read(file)
    argv = ["eval", "transfer", str(DATA / "generation_attention.csv"), "--constants", str(file), "--json"]
    assert launch.main(argv) == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["nowhere"], 11, "holds no measurements"),
        ([str(DATA), "--calibrate", "0"], 2, "between 1 and 1000"),
        ([str(DATA), "--calibrate", "nowhere.csv"], 2, "neither a number nor a file"),
        ([str(DATA), "--constants", "nowhere.json"], 2, "cannot be read"),
        ([], 2, "missing argument"),
    ],
)
def test_errors_are_one_line(
    options: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch.main(["eval", "transfer", *options]) == code
    assert said in capsys.readouterr().err.lower()


def test_constants_that_are_none(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "odd.json"
    for text in ("{", "[]", '{"sets": {"all": {}}}', '{"sets": {}}'):
        file.write_text(text, encoding="utf-8")
        assert launch.main(["eval", "transfer", str(DATA), "--constants", str(file)]) == 2
        assert "odd.json" in capsys.readouterr().err
