"""Outcomes: a win is a record of the judge or nothing; what was reported stays, and moves plans and figures."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root
from kb.errors import ConfigError, EntryFormatError, EntryNotFoundError, EvidenceRefusedError
from kb.models.plan import Outcome, Reported
from kb.models.record import written
from kb.service import outcomes
from kb.service.checking import check
from kb.service.indexing import ask
from kb.service.outcomes import report_outcome
from kb.service.seeding import everything, seed_target
from kb.service.uplift import uplift_of, wilson
from kb.store import files, layout, records
from kb.store import outcomes as filed
from tests.service.timed import file_timed

ENTRY = "kernel/silu/in-double"
OTHER = "kernel/silu/in-single"
IDEA = "technique/fusion/gate"
TARGET = "target/small/cpu"
GPU = "target/small/h100"

SILU = """schema = 1
version = 1
title = "SiLU, plainly"
summary = "The formula, once, without anything else."
outcome = "works"
operator = "silu"
language = "torch"
entry_point = "kernel.py:run"
dtypes = ["float32"]
license = "Apache-2.0"
[requires]
arch = ["cpu", "sm_90"]
[limits]
hidden_size = {{ max = 300 }}
num_tokens = {{ max = 40 }}
{more}[source]
origin = "written here"
"""

CODE = """import torch


def run(x):
    return (x{cast} / (1 + torch.exp(-x{cast}))).to(x.dtype)
"""

TECHNIQUE = """schema = 1
version = 1
title = "Gate in the epilogue"
summary = "One pass less over the activations."
outcome = "works"
applies_to = ["silu"]
license = "Apache-2.0"
[source]
origin = "written here"
"""

AIM = """schema = 1
version = 1
title = "A small model on {device}"
summary = "One operator, for tests of outcomes."
outcome = "works"
license = "Apache-2.0"
[source]
origin = "written here"
[target]
model = "small"
devices = ["{device}"]
device_count = 1
precision = "float32"
accuracy = "No loss."
[[target.traffic]]
name = "one"
phase = "prefill"
input_tokens = 64
[[target.goals]]
metric = "latency_ms"
better = "lower"
[[target.operators]]
operator = "silu"
name = "activation"
axes = {{ num_tokens = 32, hidden_size = 256 }}
dtypes = ["float32"]
share = 0.4
share_from = "measured"
"""


def write(root: Root, entry_id: str, facts: str, code: str | None = None) -> None:
    folder = root.entries / entry_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entry.toml").write_text(facts, encoding="utf-8")
    (folder / "README.md").write_text("# What it is\n", encoding="utf-8")
    if code is not None:
        (folder / "kernel.py").write_text(code, encoding="utf-8")


def filled(root: Root) -> Root:
    lineage = f'[[lineage]]\nparent = "{IDEA}"\nrelation = "composed"\n'
    write(root, ENTRY, SILU.format(more=lineage), CODE.format(cast=".double()"))
    write(root, OTHER, SILU.format(more=""), CODE.format(cast=".float()"))
    write(root, IDEA, TECHNIQUE)
    write(root, TARGET, AIM.format(device="cpu"))
    write(root, GPU, AIM.format(device="NVIDIA H100"))
    return root


@pytest.fixture
def base(root: Root) -> Root:
    return filled(root)


@pytest.fixture
def timed(base: Root, judged: dict[str, Any]) -> tuple[Root, str]:
    """Hand out a knowledge base with a record in which an entry is twice as fast as its baseline."""
    return base, file_timed(base, ENTRY, judged, gain=2.0).path


def claim(root: Root, record: str, result: str, **more: Any) -> Outcome:  # noqa: ANN401
    return report_outcome(root, more.pop("entry", ENTRY), target=more.pop("target", TARGET), result=result,
                          record=record, **more)  # fmt: skip


@pytest.mark.parametrize("given", ["{path}", "{name}", "/x/entries/{path}"])
def test_a_record_that_shows_a_gain_bears_a_win_out(timed: tuple[Root, str], given: str) -> None:
    root, record = timed
    path = given.format(path=record, name=record.rsplit("/", 1)[-1])
    made = claim(root, path, "won", note="in the step too")
    assert made.speedup == pytest.approx(2.0, rel=0.05)
    assert (made.record, made.device, made.new) == (record, "cpu", True)
    (plan,) = [one for one in seed_target(root, TARGET).rows if one.id == ENTRY]
    assert plan.reported == Reported(won=1)


def test_a_record_without_a_gain_or_without_acceptance_bears_no_win_out(base: Root, judged: dict[str, Any]) -> None:
    slow = file_timed(base, ENTRY, judged, gain=0.8).path
    with pytest.raises(EvidenceRefusedError, match="is no gain"):
        claim(base, slow, "won")
    assert claim(base, slow, "lost").speedup == pytest.approx(0.8, rel=0.05)
    refused = file_timed(base, ENTRY, judged, gain=2.0, verdict="rejected").path
    with pytest.raises(EvidenceRefusedError, match="the judge said rejected"):
        claim(base, refused, "won")


def test_a_record_without_times_bears_no_win_out(base: Root, file_record: Callable[..., Any]) -> None:
    with pytest.raises(EvidenceRefusedError, match="was not timed against a baseline"):
        claim(base, file_record(base, ENTRY).path, "won")


def test_times_that_do_not_follow_from_their_samples_bear_nothing_out(
    base: Root, file_record: Callable[..., Any], timing: dict[str, Any]
) -> None:
    with pytest.raises(EvidenceRefusedError, match="samples"):
        claim(base, file_record(base, ENTRY, timing=[timing]).path, "lost")


def test_a_win_needs_a_record(base: Root) -> None:
    with pytest.raises(EvidenceRefusedError, match="won needs a record"):
        report_outcome(base, ENTRY, target=TARGET, result="won")


def test_a_record_of_another_entry_is_refused(timed: tuple[Root, str]) -> None:
    root, record = timed
    with pytest.raises(EvidenceRefusedError, match=f"the record is of {ENTRY}, not of {OTHER}"):
        claim(root, record, "won", entry=OTHER)


def test_an_idea_is_borne_out_by_code_that_descends_from_it(timed: tuple[Root, str]) -> None:
    root, record = timed
    assert claim(root, record, "neutral", entry=IDEA).record is not None


def test_a_record_from_another_device_is_refused(timed: tuple[Root, str]) -> None:
    root, record = timed
    with pytest.raises(EvidenceRefusedError, match="was made on cpu, and the target runs on"):
        claim(root, record, "lost", target=GPU)


def test_an_edited_record_is_refused_even_under_its_right_name(timed: tuple[Root, str]) -> None:
    root, record = timed
    path = root.entries / record
    raw = json.loads(path.read_text(encoding="utf-8"))
    for one in raw["timing"]:
        one["ratio"] = 40.0
    body = written(raw)
    name = records.file_name(body, created_utc=raw["created_utc"], arch=raw["device"]["arch"])
    forged = path.with_name(name)
    forged.write_bytes(body)
    try:
        with pytest.raises(EvidenceRefusedError, match="changed after it was signed"):
            claim(root, name, "won")
    finally:
        forged.unlink()


def test_a_record_of_code_that_changed_since_is_refused(timed: tuple[Root, str]) -> None:
    root, record = timed
    kernel = root.entries / ENTRY / "kernel.py"
    before = kernel.read_bytes()
    kernel.write_bytes(before + b"\n\nTUNED = 1\n")
    try:
        with pytest.raises(EvidenceRefusedError, match="or of other code"):
            claim(root, record, "lost")
    finally:
        kernel.write_bytes(before)


@pytest.mark.parametrize(
    "given",
    ["nothing.json", "records/none.json", "/etc/passwd", "../../../etc/passwd", "", "\x1b[31m.json", "a" * 5000],
)
def test_what_is_no_record_is_refused(base: Root, given: str) -> None:
    with pytest.raises(EvidenceRefusedError):
        report_outcome(base, ENTRY, target=TARGET, result="lost", record=given)


def test_a_record_that_is_not_there_is_named(base: Root) -> None:
    name = f"{ENTRY}/records/20260101T000000Z-{'0' * 12}.json"
    with pytest.raises(EvidenceRefusedError) as caught:
        report_outcome(base, ENTRY, target=TARGET, result="lost", record=name)
    assert "/records/" in str(caught.value) or "expected KIND/TOPIC/SLUG/records" in str(caught.value)
    assert caught.value.hint is not None


def test_a_target_may_be_named_by_its_last_part(base: Root) -> None:
    made = report_outcome(base, ENTRY, target=TARGET.rsplit("/", 1)[1], result="neutral")
    assert made.target == TARGET


def test_reporting_the_same_again_stores_nothing(base: Root) -> None:
    first = report_outcome(base, ENTRY, target=TARGET, result="lost", note="slower at batch 1")
    again = report_outcome(base, ENTRY, target=TARGET, result="lost", note="  slower at batch 1 ")
    other = report_outcome(base, ENTRY, target=TARGET, result="lost", note="slower at batch 8")
    assert (first.new, again.new, other.new) == (True, False, True)
    assert again == first.with_(new=False)
    assert len(list((base.entries / ENTRY / "outcomes").iterdir())) == 2


def test_an_outcome_changes_neither_the_digest_nor_the_check(base: Root) -> None:
    before = files.read(base.entries / ENTRY, ENTRY).digest
    made = report_outcome(base, ENTRY, target=TARGET, result="not_applied")
    assert made.digest == before == files.read(base.entries / ENTRY, ENTRY).digest
    assert check(None, base).problems == ()
    assert made.path.startswith(f"{ENTRY}/outcomes/20")


@pytest.mark.parametrize(
    ("result", "note", "entry", "target", "error"),
    [
        ("great", None, ENTRY, TARGET, ConfigError),
        ("lost", "x" * 401, ENTRY, TARGET, ConfigError),
        ("lost", "two\nlines", ENTRY, TARGET, ConfigError),
        ("lost", "\x1b[2J", ENTRY, TARGET, ConfigError),
        ("lost", None, "kernel/silu/none", TARGET, EntryNotFoundError),
        ("lost", None, ENTRY, "target/none/x", EntryNotFoundError),
        ("lost", None, ENTRY, ENTRY, ConfigError),
        ("lost", None, TARGET, TARGET, ConfigError),
        ("lost", None, ENTRY + "@7", TARGET, ConfigError),
        ("lost", None, "../../etc", TARGET, EntryFormatError),
    ],
)
def test_what_cannot_be_reported_is_refused(
    base: Root, result: str, note: str | None, entry: str, target: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        report_outcome(base, entry, target=target, result=result, note=note)
    assert not list(base.entries.glob("*/*/*/outcomes/*"))


def test_the_starter_entries_are_not_written(base: Root) -> None:
    with pytest.raises(ConfigError, match="starter"):
        report_outcome(Root(base.path, packaged=True), ENTRY, target=TARGET, result="lost")


def test_an_edited_outcome_is_found_and_counts_for_nothing(base: Root) -> None:
    made = report_outcome(base, ENTRY, target=TARGET, result="lost")
    path = base.entries / made.path
    path.write_text(path.read_text(encoding="utf-8").replace('"lost"', '"neutral"'), encoding="utf-8")
    problems = check(None, base).problems
    assert ["its name is not its content's" in one.message for one in problems] == [True]
    plan = seed_target(base, TARGET)
    assert all(one.reported == Reported() for one in plan.rows)
    assert any("counts for nothing" in note for note in plan.notes)


def test_a_hand_made_win_without_a_record_counts_for_nothing(base: Root) -> None:
    made = report_outcome(base, ENTRY, target=TARGET, result="neutral")
    one = filed.read_one(base.entries, ENTRY, Path(made.path).name).file
    forged = one.model_copy(update={"result": "won"})
    (base.entries / ENTRY / layout.OUTCOMES / filed.file_name(forged)).write_bytes(filed.written(forged))
    assert check(None, base).problems == ()
    row = next(row for row in ask(base, everything) if row["id"] == ENTRY)
    found, ignored = outcomes.read_all(base, [row])
    assert [each.file.result for each in found] == ["neutral"]
    assert len(ignored) == 1
    assert ignored[0].endswith("won without a record")


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b"{" * 5000, b'{"schema": 1}', b"null"])
def test_broken_files_are_named_and_stop_nothing(base: Root, body: bytes) -> None:
    folder = base.entries / ENTRY / "outcomes"
    folder.mkdir()
    (folder / "2026-01-01-lost-000000000000.json").write_bytes(body)
    assert len(check(None, base).problems) == 1
    assert any("counts for nothing" in note for note in seed_target(base, TARGET).notes)
    assert len(uplift_of(base).ignored) == 1


def test_reports_move_the_plan(base: Root) -> None:
    before = [one.id for one in seed_target(base, TARGET).rows if one.kind == "kernel"]
    for number in range(6):
        report_outcome(base, before[0], target=TARGET, result="lost", note=f"run {number}")
    after = seed_target(base, TARGET)
    assert [one.id for one in after.rows if one.kind == "kernel"] == before[::-1]
    assert after.rows[-1].confidence > 0
    last = next(one for one in after.rows if one.id == before[0])
    assert last.reported == Reported(lost=6)


def test_reports_weigh_less_on_another_target_of_other_code_or_without_a_record(base: Root) -> None:
    report_outcome(base, ENTRY, target=TARGET, result="lost")
    rows = ask(base, everything)
    found, _ = outcomes.read_all(base, rows)
    digests = {row["id"]: row["digest"] for row in rows}
    here = outcomes.tallies(found, target=TARGET, digests=digests)[ENTRY]
    there = outcomes.tallies(found, target=GPU, digests=digests)[ENTRY]
    older = outcomes.tallies(found, target=TARGET, digests={ENTRY: "0" * 64})[ENTRY]
    assert here.lost == outcomes.NO_RECORD
    assert there.lost == outcomes.NO_RECORD * outcomes.OTHER_TARGET
    assert older.lost == outcomes.NO_RECORD * outcomes.OTHER_CODE


def test_uplift_counts_what_was_tried(base: Root) -> None:
    for result in ("neutral", "lost", "not_applied"):
        report_outcome(base, ENTRY, target=TARGET, result=result)
    report_outcome(base, IDEA, target=GPU, result="neutral")
    everything_, kernels, ideas = uplift_of(base).groups
    assert (everything_.reported, everything_.tried, everything_.lost, kernels.tried, ideas.tried) == (4, 3, 1, 2, 1)
    assert everything_.harm_rate == pytest.approx(1 / 3)
    assert everything_.harm_low is not None
    assert everything_.harm_high is not None
    assert everything_.harm_low < 1 / 3 < everything_.harm_high
    assert everything_.gain is None
    assert [group.name for group in uplift_of(base, target=GPU).groups] == ["all", "technique"]
    with pytest.raises(EntryNotFoundError):
        uplift_of(base, target="target/none/x")


def test_without_reports_uplift_says_nothing(base: Root) -> None:
    assert uplift_of(base).groups == ()
    assert wilson(0, 0) == (None, None)
    low, high = wilson(0, 10)
    assert low == 0
    assert high == pytest.approx(0.2775, abs=1e-3)


@pytest.mark.skipif(os.name != "posix", reason="permissions of folders")
def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(base: Root) -> None:
    if os.geteuid() == 0:
        (base.entries / ENTRY / "outcomes").write_text("a file", encoding="utf-8")
    else:
        (base.entries / ENTRY).chmod(0o500)
    try:
        with pytest.raises(Exception, match="cannot"):
            report_outcome(base, ENTRY, target=TARGET, result="lost")
    finally:
        (base.entries / ENTRY).chmod(0o700)
