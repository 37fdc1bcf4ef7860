"""Cells: what records prove, by device, toolchain and regime; the latest record wins."""

from collections.abc import Mapping
from typing import Any

import pytest

from kb import evidence
from kb.cells import Basis, Cell, Subject, cells_of, independent

H200 = "NVIDIA H200"
NOW, OLD = "a" * 64, "b" * 64
BASIS = Basis({"rmsnorm": "1" * 64}, 1, {1: "values"})
SUBJECT = Subject("kernel", 2, NOW, "triton", "works", "rmsnorm")
SOFTWARE = {"torch": "2.11.0+cu130", "triton": "3.6.0", "python": "3.12.1", "numpy": "2.1.0"}


def timing(**changes: object) -> dict[str, Any]:
    return {
        "workload": {"axes": {"tokens": 64, "hidden_size": 2048}, "dtype": "bfloat16", "note": "decode"},
        "regime": {"cache": "cold", "launch": "graph"},
        "candidate_us": {"median": 10.0, "p10": 9.5, "p90": 11.0, "min": 9.0, "n": 100},
        "baseline": {"name": "torch.nn.functional.rms_norm", "version": "torch 2.11.0+cu130"},
        "ratio": 1.5, "interval": [1.45, 1.55], "verdict": "FAST", "roofline": 0.7, "bound": "memory",
        "clocks_agree": True, "quarantined": None, "confirms": False, **changes,
    }  # fmt: skip


def record(
    when: str = "2026-12-01T10:00:00Z",
    *,
    verdict: str = "accepted",
    device: str = H200,
    digest: str = NOW,
    version: int = 2,
    sha: str = "1" * 64,
    revision: int = 1,
    times: list[Any] | None = None,
    family: str = "values",
    software: Mapping[str, str] = SOFTWARE,
    **facts: object,
) -> dict[str, Any]:
    return {
        "created_utc": when,
        "entry": {"digest": digest, "version": version},
        "operator": {"name": "rmsnorm", "sha256": sha, "family": family},
        "judge": {"revision": revision},
        "device": {"name": device, "arch": "cpu" if device == "cpu" else "sm_90", "driver": "580.159.04", **facts},
        "software": dict(software),
        "timing": times,
        "decision": {"verdict": verdict, "reasons": [] if verdict == "accepted" else ["wrong_values"]},
    }


def cells(*records: dict[str, Any], subject: Subject = SUBJECT, basis: Basis = BASIS) -> list[Cell]:
    return cells_of(subject, [(f"e/records/{place}.json", one) for place, one in enumerate(records)], basis)


def levels(found: list[Cell]) -> list[tuple[str, str | None, str]]:
    return [(cell["device"], cell["regime"], cell["level"]) for cell in found]


def how(cell: Cell, **toolchain: str) -> tuple[str, tuple[str, ...]]:
    return evidence.freshness(cell, evidence.Today({cell["device"]: toolchain}))


def test_without_records_there_are_no_cells() -> None:
    assert cells() == []


def test_an_accepted_record_makes_it_correct_and_a_timing_measured() -> None:
    found = cells(record(times=[timing()]))
    assert levels(found) == [(H200, None, "correct"), (H200, "cold, graph", "measured")]
    assert [how(cell)[0] for cell in found] == ["fresh", "fresh"]
    assert found[1]["figures"][0]["median_us"] == 10.0
    assert found[1]["figures"][0]["workload"] == "tokens 64, hidden_size 2048, bfloat16 (decode)"


@pytest.mark.parametrize(
    "changes",
    [
        {"quarantined": "below the floor"},
        {"baseline": None, "ratio": None, "verdict": None},
        {"clocks_agree": False},
        {"ratio": float("nan")},
        {"ratio": "1.5"},
        {"candidate_us": {"median": -1.0}},
        {"candidate_us": None},
        {"interval": ["x"], "ratio": True},
    ],
)
def test_a_time_without_baseline_or_in_quarantine_measures_nothing(changes: dict[str, object]) -> None:
    assert levels(cells(record(times=[timing(**changes)]))) == [(H200, None, "correct")]


def test_what_is_no_timing_is_passed_over() -> None:
    assert levels(cells(record(times=["x", None, 3]))) == [(H200, None, "correct")]


def test_a_quarantined_time_is_named() -> None:
    assert "below the floor" in cells(record(times=[timing(quarantined="below the floor")]))[0]["notes"][0]


def test_two_independent_runs_that_agree_confirm() -> None:
    later = record("2026-12-01T11:00:00Z", times=[timing(ratio=1.4)])
    found = cells(record(times=[timing()]), later)
    assert levels(found)[-1] == (H200, "cold, graph", "confirmed")
    assert found[-1]["figures"][0]["ratio"] == 1.4, "the later run replaces the first"
    assert found[-1]["records"] == ["e/records/1.json", "e/records/0.json"]


@pytest.mark.parametrize(
    ("facts", "when", "said"),
    [
        ({}, "2026-12-01T10:59:59Z", False),
        ({"uuid": "GPU-2"}, "2026-12-01T10:00:01Z", True),
        ({"boot_id": "c2"}, "2026-12-01T10:00:01Z", True),
        ({}, "2026-12-01T11:00:00Z", True),
    ],
)
def test_independent_is_another_device_another_boot_or_an_hour(facts: dict[str, str], when: str, said: bool) -> None:
    first, second = record(uuid="GPU-1", boot_id="c1"), record(when, uuid="GPU-1", boot_id="c1")
    second["device"] |= facts
    assert independent(first, second) is said
    assert independent(second, first) is said


@pytest.mark.parametrize("other", [{"verdict": "SLOW", "ratio": 0.8}, {"verdict": "AMBIGUOUS"}])
def test_runs_that_disagree_do_not_confirm_and_say_so(other: dict[str, object]) -> None:
    found = cells(record(times=[timing()]), record("2026-12-02T10:00:00Z", times=[timing(**other)]))
    assert found[-1]["level"] == "measured"
    assert "says FAST" in found[-1]["notes"][0]


def test_two_ambiguous_runs_confirm_nothing() -> None:
    times = [timing(verdict="AMBIGUOUS")]
    assert cells(record(times=times), record("2026-12-02T10:00:00Z", times=times))[-1]["level"] == "measured"


def test_runs_on_different_workloads_confirm_nothing() -> None:
    other = timing(workload={"axes": {"tokens": 1}, "dtype": "bfloat16"})
    found = cells(record(times=[timing()]), record("2026-12-02T10:00:00Z", times=[other]))
    assert found[-1]["level"] == "measured"
    assert len(found[-1]["figures"]) == 2


def test_regimes_are_cells_of_their_own() -> None:
    eager = timing(regime={"cache": "warm", "launch": "eager"}, ratio=0.9, verdict="SLOW")
    assert [regime for _, regime, _ in levels(cells(record(times=[timing(), eager])))] == [
        None,
        "cold, graph",
        "warm, eager",
    ]


def test_rejected_after_accepted_is_refuted_on_that_device_alone() -> None:
    found = cells(
        record(times=[timing()]),
        record("2026-12-02T10:00:00Z", verdict="rejected"),
        record("2026-12-01T10:00:00Z", device="cpu"),
    )
    assert [(cell["device"], how(cell)[0]) for cell in found] == [(H200, "refuted"), ("cpu", "fresh")]
    assert found[0]["level"] == "documented"
    assert how(found[0])[1] == (
        "rejected on 2026-12-02: wrong_values",
        "accepted before, on 2026-12-01",
    )


def test_the_order_of_files_does_not_matter_the_time_does() -> None:
    found = cells(record("2026-12-02T10:00:00Z"), record("2026-12-01T10:00:00Z", verdict="rejected"))
    assert how(found[0])[0] == "fresh"
    assert found[0]["notes"] == ["rejected on 2026-12-01"]


def test_times_from_before_a_rejection_do_not_come_back() -> None:
    found = cells(
        record("2026-12-01T10:00:00Z", times=[timing()]),
        record("2026-12-02T10:00:00Z", verdict="rejected"),
        record("2026-12-03T10:00:00Z"),
    )
    assert levels(found) == [(H200, None, "correct")]


def test_a_run_that_needs_review_leaves_it_unknown() -> None:
    found = cells(record(), record("2026-12-02T10:00:00Z", verdict="needs_review"))
    assert [(cell["level"], how(cell)[0]) for cell in found] == [("documented", "unknown")]


def test_an_entry_about_wrong_values_is_borne_out_by_a_rejection_and_refuted_by_acceptance() -> None:
    wrong = Subject("kernel", 2, NOW, "triton", "incorrect", "rmsnorm")
    borne = cells(record(verdict="rejected"), subject=wrong)
    assert [(cell["level"], how(cell)[0]) for cell in borne] == [("documented", "fresh")]
    assert how(cells(record(), subject=wrong)[0])[0] == "refuted"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (1, "code changed in version 2"),
        (2, "code changed within version 2"),
    ],
)
def test_other_code_is_stale_with_the_version_that_changed_it(version: int, said: str) -> None:
    found = cells(record(digest=OLD, version=version, times=[timing()]))
    assert [how(cell) for cell in found] == [("stale", (said,))] * 2
    assert not found[0]["same_code"]


def test_the_version_that_changed_the_code_is_found_among_records() -> None:
    later = Subject("kernel", 5, NOW, "triton", "works", "rmsnorm")
    found = cells(record(digest=OLD, version=1), record(digest="c" * 64, version=2), subject=later)
    assert [cell["stale"] for cell in found if cell["version"] == 1] == [["code changed in version 2"]]
    alone = cells(record(digest=OLD, version=1), subject=later)
    assert alone[0]["stale"] == ["code changed after version 1, in version 5 at the latest"]


def test_what_was_rejected_in_other_code_is_stale_not_refuted() -> None:
    assert how(cells(record(digest=OLD, version=1, verdict="rejected"))[0])[0] == "stale"


def test_another_meaning_of_the_operator_is_stale() -> None:
    assert cells(record(sha="2" * 64))[0]["stale"] == ["the operator's meaning changed"]
    assert cells(record(), basis=Basis({}, 1, {1: "values"}))[0]["stale"] == ["operator rmsnorm is not known here"]


@pytest.mark.parametrize(
    ("classes", "stale"),
    [
        ({2: "neutral"}, ["fresh", "fresh"]),
        ({2: "timing"}, ["fresh", "stale"]),
        ({2: "values"}, ["stale", "stale"]),
        ({}, ["stale", "stale"]),
        ({2: "neutral", 3: "timing"}, ["fresh", "stale"]),
        ({2: "values", 3: "neutral"}, ["stale", "stale"]),
    ],
)
def test_a_new_judge_makes_stale_what_its_class_says(classes: dict[int, str], stale: list[str]) -> None:
    basis = Basis(BASIS.operators, max(classes, default=2), {1: "values", **classes})
    assert [how(cell)[0] for cell in cells(record(times=[timing()]), basis=basis)] == stale


def test_a_record_of_a_newer_judge_is_not_taken_for_fresh() -> None:
    found = cells(record(revision=7))
    assert how(found[0])[0] == "stale"
    assert "newer than 1" in found[0]["stale"][0]


@pytest.mark.parametrize(
    ("today", "stale"),
    [
        ({"triton": "3.7.0"}, ["stale", "stale"]),
        ({"driver": "590.10"}, ["fresh", "stale"]),
        ({"torch": "2.12.0"}, ["fresh", "stale"]),
        ({"python": "3.12", "numpy": "2.3"}, ["fresh", "fresh"]),
        ({"nvcc": "13.2"}, ["fresh", "fresh"]),
        ({}, ["fresh", "fresh"]),
    ],
)
def test_a_new_toolchain_makes_stale_what_hangs_on_it(today: dict[str, str], stale: list[str]) -> None:
    assert [how(cell, **today)[0] for cell in cells(record(times=[timing()]))] == stale


def test_a_new_toolchain_elsewhere_says_nothing_here() -> None:
    cell = cells(record())[0]
    assert evidence.freshness(cell, evidence.Today({"NVIDIA B200": {"triton": "9.9.9"}}))[0] == "fresh"


def test_each_toolchain_has_its_own_cell() -> None:
    newer = record("2026-12-02T10:00:00Z", software={**SOFTWARE, "triton": "3.7.0"})
    found = cells(record(), newer, record("2026-12-01T12:00:00Z"))
    assert [(cell["versions"]["triton"], len(cell["records"])) for cell in found] == [("3.7.0", 1), ("3.6.0", 2)]
    assert [how(cell, triton="3.7.0")[0] for cell in found] == ["fresh", "stale"]


def test_times_grow_old_and_values_do_not() -> None:
    found = cells(record(times=[timing()]))
    today = evidence.Today({}, "2027-01-01T00:00:00Z")
    assert [evidence.freshness(cell, today)[0] for cell in found] == ["fresh", "stale"]


def test_interpreted_code_is_never_measured_on_a_cpu() -> None:
    assert levels(cells(record(device="cpu", times=[timing()]))) == [("cpu", None, "correct")]
    plain = Subject("kernel", 2, NOW, "torch", "works", "rmsnorm")
    assert levels(cells(record(device="cpu", times=[timing()]), subject=plain))[-1] == (
        "cpu",
        "cold, graph",
        "measured",
    )


def test_a_combination_judged_as_a_whole_model_is_end_to_end() -> None:
    whole = Subject("combination", 2, NOW, "none", "works", "fused_moe")
    assert levels(cells(record(family="model"), subject=whole)) == [(H200, None, "end_to_end")]
    assert levels(cells(record(family="values"), subject=whole)) == [(H200, None, "correct")]
    assert levels(cells(record(family="model"))) == [(H200, None, "correct")], "a kernel is no whole model"
