"""A changed runtime has to say what goes stale by it."""

import shutil
from pathlib import Path

import pytest

from kb.validators import revisions
from kb.validators.runtime import fingerprint

RUNTIME = Path(fingerprint.__file__).parent


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    shutil.copytree(RUNTIME, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_copy_of_the_runtime_has_its_digest(copied: Path) -> None:
    assert revisions._digest(copied) == fingerprint.runtime_sha256()


def test_a_changed_runtime_needs_a_revision_of_its_own(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = tmp_path / "revisions.json"
    revision = fingerprint.JUDGE_REVISION
    assert "has no pin" in str(revisions.fault(pins, runtime=copied))
    revisions.pin(pins, runtime=copied)
    assert revisions.fault(pins, runtime=copied) is None
    inner = next(copied.rglob("*/*.py"))
    inner.write_text(inner.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    said = str(revisions.fault(pins, runtime=copied))
    assert f"raise JUDGE_REVISION to {revision + 1}" in said
    with pytest.raises(ValueError, match="pinned to other code"):
        revisions.pin(pins, runtime=copied)
    monkeypatch.setattr(fingerprint, "JUDGE_REVISION", revision + 1)
    assert "name a class" in str(revisions.fault(pins, runtime=copied))
    monkeypatch.setattr(fingerprint, "REVISIONS", {**fingerprint.REVISIONS, revision + 1: "neutral"})
    assert "has no pin" in str(revisions.fault(pins, runtime=copied))
    revisions.pin(pins, runtime=copied)
    assert revisions.fault(pins, runtime=copied) is None


def test_a_revision_of_no_class_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "REVISIONS", {**fingerprint.REVISIONS, fingerprint.JUDGE_REVISION: "small"})
    assert "neutral, timing, values" in str(revisions.fault(tmp_path / "revisions.json"))


def test_a_pin_may_be_written_again_before_a_record_is_made(copied: Path, tmp_path: Path) -> None:
    pins = tmp_path / "revisions.json"
    before = revisions.pin(pins, runtime=copied)
    (copied / "wire.py").write_text("", encoding="utf-8")
    assert revisions.pin(pins, runtime=copied, again=True) != before
    assert revisions.fault(pins, runtime=copied) is None


def test_an_operator_is_all_that_it_is_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "validators"
    shutil.copytree(RUNTIME.parent / "operators", package / "operators", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "__file__", str(package / "runtime" / "fingerprint.py"))
    before = {name: fingerprint.operator_sha256(name) for name in ("attention_window", "rmsnorm", "rope_kv_append")}
    for name in ("attention_draws", "kv_append"):
        file = package / "operators" / f"{name}.py"
        file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    after = {name: fingerprint.operator_sha256(name) for name in before}
    assert {name for name in before if before[name] != after[name]} == {"attention_window", "rope_kv_append"}


def test_the_runtime_is_what_its_revision_was_pinned_to() -> None:
    if not revisions.PINS.is_file():
        pytest.skip("no revision is pinned yet: python -m kb.validators.revisions --pin")
    assert revisions.fault() is None
