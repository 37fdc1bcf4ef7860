"""From records on disk to cells in the catalogue: only what verifies counts, and every new record is seen."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import catalogue, launch
from kb.config import Root
from kb.models.hit import Answer
from kb.models.record import written
from kb.service import proving
from kb.service.indexing import update
from kb.service.searching import Filters, list_root, search_root, show_root
from kb.service.settings import change
from kb.store import records
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]

GPU = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1", "driver": "580.159.04"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


def search(root: Root, device: str | None = None) -> Answer:
    return search_root(root, "silu", filters=Filters(device=device))


def shown(root: Root, entry_id: str) -> dict[str, Any]:
    return show_root(root, entry_id)


def test_a_new_record_is_seen_by_the_next_search(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    entry = write_silu(root)
    assert search(root).hits[0].evidence == "documented"
    file_record(root, entry)
    hit = search(root).hits[0]
    assert (hit.evidence, hit.freshness, hit.evidence_device) == ("correct", "fresh", "cpu")
    assert search(root, "H200").hits[0].evidence == "documented", "a CPU's record is evidence for CPUs alone"
    assert list_root(root, Filters())[0]["evidence"] == "correct"


def test_a_removed_record_is_evidence_no_more(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    entry = write_silu(root)
    filed = file_record(root, entry)
    assert shown(root, entry)["evidence"] == "correct"
    (root.entries / filed.path).unlink()
    assert shown(root, entry)["evidence"] == "documented"


def test_a_measured_figure_reaches_hits_lists_and_the_console(
    root: Root,
    write_silu: WriteSilu,
    file_record: FileRecord,
    timing: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    entry = write_silu(root, language="triton")
    file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    hit = search(root, "H200").hits[0]
    assert (hit.evidence, hit.freshness, hit.transfer) == ("measured", "fresh", "exact")
    assert hit.best is not None
    assert (hit.best.value, hit.best.speedup, hit.best.roofline, hit.best.device) == (10.0, 1.5, 0.7, "NVIDIA H200")
    assert (hit.best.regime, hit.best.workload) == ("cold, eager", "n 4096, float32 (decode)")
    assert search(root, "B200").hits[0].best is None, "a figure of one device is no figure of another"
    assert launch.main(["list", "--evidence", "--root", str(root.path)]) == 0
    out = capsys.readouterr().out
    assert "measured, fresh on NVIDIA H200" in out
    assert "10 us on NVIDIA H200 (cold, eager; n 4096, float32 (decode)), 1.5x torch.nn.functional.silu" in out
    assert launch.main(["show", entry, "--root", str(root.path)]) == 0
    assert "70 % of the roofline" in capsys.readouterr().out


def test_measured_goes_before_documented_in_a_search(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    for slug in ("aa", "bb", "cc"):
        write_silu(root, slug, language="triton")
    file_record(root, "kernel/silu/bb", device=GPU, software=SOFTWARE, timing=[timing])
    file_record(root, "kernel/silu/aa", verdict="rejected", device=GPU, software=SOFTWARE)
    hits = [(hit.id[-2:], hit.freshness) for hit in search(root, "H200").hits]
    assert hits == [("bb", "fresh"), ("cc", "unknown"), ("aa", "refuted")]


def test_what_was_measured_to_lose_comes_after_what_was_measured_to_gain(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    for slug, ratio in (("aa", 0.5), ("bb", 1.2)):
        verdict = "FAST" if ratio > 1 else "SLOW"
        figure = {**timing, "ratio": ratio, "interval": [ratio - 0.01, ratio + 0.01], "verdict": verdict}
        file_record(root, write_silu(root, slug, language="triton"), device=GPU, software=SOFTWARE, timing=[figure])
    assert [hit.id[-2:] for hit in search(root, "H200").hits] == ["bb", "aa"]


def edit(root: Root, filed: Filed, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a record as the cunning do: the file is named after its new content."""
    raw = json.loads((root.entries / filed.path).read_bytes())
    change(raw)
    body = written(raw)
    (root.entries / filed.path).unlink()
    name = records.file_name(body, created_utc=raw["created_utc"], arch=str(raw["device"]["arch"]))
    ((root.entries / filed.path).parent / name).write_bytes(body)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw["device"].update(name="NVIDIA B200"), "signature"),
        (lambda raw: raw["decision"].update(verdict="rejected"), "signature"),
        (lambda raw: raw["judge"].update(key="0" * 16), "keyring does not know"),
        (lambda raw: raw.update(surprise=1), "no valid record"),
        (lambda raw: raw["entry"].update(id="kernel/silu/other"), "a record of"),
    ],
)
def test_an_edited_record_counts_for_nothing_and_is_named(
    root: Root,
    write_silu: WriteSilu,
    file_record: FileRecord,
    change: Callable[[dict[str, Any]], None],
    said: str,
) -> None:
    entry = write_silu(root)
    edit(root, file_record(root, entry), change)
    found = shown(root, entry)
    assert (found["evidence"], found["cells"]) == ("documented", [])
    assert said in found["ignored"][0]


def test_a_record_edited_in_place_counts_no_more(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    entry = write_silu(root)
    filed = file_record(root, entry)
    time.sleep(0.05)
    assert shown(root, entry)["evidence"] == "correct"
    path = root.entries / filed.path
    path.write_bytes(path.read_bytes().replace(b'"silu"', b'"gelu"'))
    found = shown(root, entry)
    assert found["evidence"] == "documented"
    assert "its name is not its content's" in found["ignored"][0]


def test_times_without_their_samples_count_for_nothing(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    (side_file,) = (root.entries / entry / "records").glob("samples-*.json")
    assert shown(root, entry)["evidence"] == "measured"
    side_file.unlink()
    found = shown(root, entry)
    assert (found["evidence"], found["best"]) == ("documented", None)
    assert found["ignored"][0].endswith("its samples are missing")
    file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing], samples_sha256=None)
    assert any("its times have no samples" in line for line in shown(root, entry)["ignored"])


def test_one_bad_record_hides_no_other(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    entry = write_silu(root)
    file_record(root, entry)
    (root.entries / entry / "records" / "2026-01-01-cpu-000000000000.json").write_text("{", encoding="utf-8")
    found = shown(root, entry)
    assert (found["evidence"], len(found["ignored"])) == ("correct", 1)


def test_a_record_of_the_future_is_not_the_latest_for_ever(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    file_record(root, entry, "2099-01-01T00:00:00Z")
    found = shown(root, entry)
    assert (found["evidence"], found["ignored"][0].endswith("it is of the future: 2099-01-01T00:00:00Z")) == (
        "documented",
        True,
    )


def test_a_key_that_is_struck_off_takes_its_records_with_it(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    file_record(root, entry)
    time.sleep(0.05)
    assert shown(root, entry)["evidence"] == "correct"
    (root.entries / "keyring.toml").write_text("", encoding="utf-8")
    assert shown(root, entry)["evidence"] == "documented"


def test_changed_code_makes_stale(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    entry = write_silu(root)
    file_record(root, entry)
    write_silu(root, version=2, code="\n# another\n")
    found = shown(root, entry)
    assert (found["evidence"], found["freshness"]) == ("correct", "stale")
    assert found["cells"][0]["reasons"] == ["code changed in version 2"]


def test_the_newest_record_of_a_device_tells_its_toolchain_to_all_entries(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    first, second = write_silu(root, "one", language="triton"), write_silu(root, "two", language="triton")
    file_record(root, first, device=GPU, software=SOFTWARE)
    assert shown(root, first)["freshness"] == "fresh"
    file_record(root, second, "2026-11-02T10:00:00Z", device=GPU, software={**SOFTWARE, "triton": "3.7.0"})
    found = shown(root, first)
    assert found["freshness"] == "stale"
    assert found["cells"][0]["reasons"] == ["triton 3.6.0 → 3.7.0"]
    assert shown(root, second)["freshness"] == "fresh"


def test_this_machines_own_devices_are_held_against_what_is_installed(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    file_record(root, entry, software={**SOFTWARE, "torch": "1.0.0"})
    found = shown(root, entry)
    assert found["freshness"] == "stale"
    assert found["cells"][0]["reasons"][0].startswith("torch 1.0.0 → ")


def test_times_grow_old_when_the_user_says_after_how_many_days(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    file_record(root, entry, "2026-01-02T10:00:00Z", device=GPU, software=SOFTWARE, timing=[timing])
    assert shown(root, entry)["evidence"] == "measured"
    change("timing_days", "1")
    found = shown(root, entry)
    assert (found["evidence"], found["freshness"]) == ("correct", "fresh")
    assert "longer ago than the limit" in found["cells"][1]["reasons"][0]


def test_a_changed_operator_makes_stale_without_any_change_of_files(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = write_silu(root)
    file_record(root, entry)
    time.sleep(0.05)
    assert shown(root, entry)["freshness"] == "fresh"
    assert update(root).report is None
    basis = proving.basis_of_today()
    assert len(basis.operators["silu"]) == 64
    assert basis.operators.get("../runtime/judge") is None
    changed = type(basis)({"silu": "f" * 64}, basis.revision, basis.classes)
    monkeypatch.setattr(proving, "basis_of_today", lambda: changed)
    judges = proving.judges_of(root.entries)
    monkeypatch.setattr(proving, "judges_of", lambda _: proving.Judges(changed, judges.ring, "another digest"))
    monkeypatch.setattr(catalogue, "judge_state", lambda: "another state of the judge's files")
    found = shown(root, entry)
    assert found["freshness"] == "stale"
    assert found["cells"][0]["reasons"] == ["the operator's meaning changed"]


def test_a_changed_spec_or_new_package_is_noticed_by_stat_alone(
    root: Root, write_silu: WriteSilu, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_silu(root)
    time.sleep(0.05)
    file = update(root).file
    assert update(root).report is None
    packages = catalogue.packages_state()
    assert packages is not None
    assert "site-packages" in packages
    monkeypatch.setattr(catalogue, "packages_state", lambda: "installed a minute ago")
    assert update(root).report is not None
    assert update(root).report is None
    monkeypatch.setattr(catalogue, "packages_state", lambda: packages)
    assert update(root).report is None, "two installations of the same versions do not take turns"
    monkeypatch.setattr(proving, "meta_of", lambda _: {"toolchains": '{"cpu": {"torch": "9.9.9"}}', "timing_days": ""})
    monkeypatch.setattr(catalogue, "packages_state", lambda: "an installation of other versions")
    assert update(root).report is not None
    monkeypatch.setattr(catalogue, "packages_state", lambda: packages)
    assert update(root).report is not None
    assert update(root).file == file


def test_gpus_are_read_from_the_drivers_files(tmp_path: Path) -> None:
    assert proving.gpus(tmp_path) == ()
    for number, uuid in ((1, "GPU-b"), (0, "GPU-a")):
        folder = tmp_path / f"0000:0{number}:00.0"
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t NVIDIA H200\nIRQ: 5\nGPU UUID: \t {uuid}\n", encoding="utf-8")
    assert [(gpu.name, gpu.uuid) for gpu in proving.gpus(tmp_path)] == [
        ("NVIDIA H200", "GPU-a"),
        ("NVIDIA H200", "GPU-b"),
    ]
