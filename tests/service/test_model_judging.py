"""Whole models through the command line, and combinations whose records say ``end_to_end``."""

from pathlib import Path

import pytest

from kb import launch
from kb.config import Root
from kb.errors import EntryFormatError
from kb.service import soundness
from kb.service.model_judging import judge_combination, judge_model
from kb.service.searching import show_root
from kb.service.verifying import verify
from tests.validators.model import candidates
from tests.validators.model.conftest import original

__all__ = ["original"]

FACTS = """schema = 1
version = 1
title = "Matrices on an 8-bit grid"
summary = "Weights rounded to 255 steps a row, everything else as it was."
outcome = "works"
language = "torch"
entry_point = "model.py:load"
license = "Apache-2.0"
uses = ["kernel/silu/plain"]
[source]
origin = "written here"
"""


def combination(root: Root, source: str) -> str:
    folder = root.entries / "combination" / "weights" / "eight-bits"
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text(FACTS, encoding="utf-8")
    (folder / "README.md").write_text("# Eight bits\n\nAn asymmetric grid.\n", encoding="utf-8")
    (folder / "model.py").write_text(source, encoding="utf-8")
    return "combination/weights/eight-bits"


def test_a_combination_that_the_original_accepts_is_proven_end_to_end(root: Root, original: Path) -> None:
    entry = combination(root, candidates.INT8)
    report, filed = judge_combination(root, entry, original, precision="int8")
    assert report.verdict == "accepted", report.details
    assert verify(root).faults == ()
    assert show_root(root, entry)["evidence"] == "end_to_end"
    made = filed.record.model or {}
    assert made["original"]["architectures"] == ["Qwen3MoeForCausalLM"]
    for part, changed, fault in (
        ("budget", made["budget"]["kl_mean"] * 2, "do not give its limits"),
        ("found", made["limits"]["kl_mean"] * 2, "accepted with kl_mean above its limit"),
    ):
        edited = filed.record.model_copy(update={"model": made | {part: made[part] | {"kl_mean": changed}}})
        assert [one for one in soundness.model_faults(edited) if fault in one]
    assert list(soundness.model_faults(filed.record)) == []


def test_a_combination_that_yields_one_token_for_ever_is_refuted(
    root: Root, original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = combination(root, candidates.ENDLESS)
    code = launch.main(["judge-model", "--reference", str(original), "--entry", entry, "--root", str(root.path)])
    assert code == 20
    assert "degenerate_output" in capsys.readouterr().out
    shown = show_root(root, entry)
    assert (shown["evidence"], shown["freshness"]) == ("documented", "refuted")


def test_what_is_no_model_is_said_before_anything_is_loaded(root: Root, tmp_path: Path) -> None:
    with pytest.raises(EntryFormatError, match=r"no config\.json"):
        judge_model(tmp_path, tmp_path / "candidate.py")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(EntryFormatError, match="candidate"):
        judge_model(tmp_path, tmp_path / "candidate.py")


@pytest.mark.parametrize("extra", [[], ["--candidate", "x", "--entry", "combination/a/b"]])
def test_one_of_candidate_and_entry_is_asked_for(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["judge-model", "--reference", "nowhere", *extra]) == 2
    assert "either --candidate or --entry" in capsys.readouterr().err
