"""What to judge again: used most, family failed, oldest; an audit sample from a stated seed; nothing left unsaid."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root, config_folder, derived_folder
from kb.errors import ConfigError, DeviceUnavailableError, EntryNotFoundError
from kb.service.choosing import GUESS_S, QUERY_LOG, Request, choose
from kb.store import runs
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]
WriteEntry = Callable[..., Path]

OLD = {"python": "3.11.1", "torch": "1.0.0", "numpy": "2.0.0"}


def slugs(root: Root, request: Request) -> list[str]:
    return [item.id.rsplit("/", 1)[1] for item in choose(root, request).items]


def test_never_judged_comes_before_judged_and_old_before_new(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    for slug, when in (("a", "2026-11-03"), ("b", "2026-11-01"), ("c", None), ("d", "2026-11-02")):
        entry = write_silu(root, slug)
        if when is not None:
            file_record(root, entry, f"{when}T10:00:00Z")
    plan = choose(root, Request())
    assert [item.id[-1] for item in plan.items] == ["c", "b", "d", "a"]
    assert plan.items[0].why == "never judged on cpu"
    assert plan.items[1].why == "fresh; judged last on 2026-11-01"


def test_a_family_that_failed_comes_first_and_what_is_used_before_that(
    root: Root, write_silu: WriteSilu, write_entry: WriteEntry, file_record: FileRecord
) -> None:
    write_entry(root.entries, "kernel/rmsnorm/z")
    for slug in ("a", "b"):
        write_silu(root, slug)
    file_record(root, "kernel/silu/b", verdict="rejected")
    assert slugs(root, Request()) == ["a", "b", "z"]
    (root.entries / "kernel/rmsnorm/z/outcomes").mkdir()
    (root.entries / "kernel/rmsnorm/z/outcomes/1.json").write_text("{}\n", encoding="utf-8")
    plan = choose(root, Request())
    assert [item.id[-1] for item in plan.items] == ["z", "a", "b"]
    assert plan.items[0].why.startswith("used 1 times; ")
    assert plan.items[1].why.endswith("one of its operator failed")


def test_the_users_own_query_log_counts_as_use(root: Root, write_silu: WriteSilu) -> None:
    for slug in ("a", "b"):
        write_silu(root, slug)
    config_folder().mkdir(parents=True)
    lines = ["no json", "[]", '{"hits": 3}', '{"hits": [1, null]}', json.dumps({"hits": ["kernel/silu/b"]})]
    (config_folder() / QUERY_LOG).write_text("\n".join(lines), encoding="utf-8")
    assert slugs(root, Request()) == ["b", "a"]


def test_stale_alone_are_asked_for_with_an_audit_sample_of_the_rest(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    for number in range(8):
        file_record(root, write_silu(root, f"e{number}"), software=OLD if number == 3 else None)
    write_silu(root, "never")
    plan = choose(root, Request(stale=True, seed=7))
    assert plan.items[0].id == "kernel/silu/e3"
    assert plan.items[0].why.startswith("stale: torch 1.0.0")
    assert [item.why.split(";")[0] for item in plan.items[1:]] == ["audit sample"]
    assert choose(root, Request(stale=True, seed=7)) == plan, "the seed alone decides"
    others = {choose(root, Request(stale=True, seed=seed)).items[1].id for seed in range(20)}
    assert len(others) > 1
    assert "kernel/silu/never" not in others


def test_what_was_judged_again_since_is_stale_no_more(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    file_record(root, entry, software=OLD)
    assert choose(root, Request(stale=True)).items[0].why.startswith("stale")
    file_record(root, entry, "2026-11-02T10:00:00Z")
    assert [item.why.split(";")[0] for item in choose(root, Request(stale=True)).items] == ["audit sample"]


def test_the_audit_sample_is_within_the_limit(root: Root, write_silu: WriteSilu, file_record: FileRecord) -> None:
    for number in range(6):
        file_record(root, write_silu(root, f"e{number}"), software=OLD if number < 4 else None)
    plan = choose(root, Request(stale=True, limit=3, seed=1))
    assert len(plan.items) == 3
    assert sum("audit" in item.why for item in plan.items) == 1


def test_what_cannot_be_judged_here_is_named_with_its_reason(
    root: Root, write_silu: WriteSilu, write_entry: WriteEntry
) -> None:
    write_silu(root, "plain")
    write_silu(root, "native", language="cuda")
    folder = write_entry(root.entries, "kernel/rmsnorm/odd")
    facts = (folder / "entry.toml").read_text(encoding="utf-8")
    (folder / "entry.toml").write_text(facts + '[cannot_run_on]\ncpu = "no interpreter"\n', encoding="utf-8")
    write_entry(
        root.entries,
        "technique/norm/idea",
        facts=facts.replace('operator = "rmsnorm"\n', "").replace('entry_point = "kernel.py:run"\n', ""),
    )
    gone = write_entry(root.entries, "kernel/rmsnorm/gone")
    (gone / "entry.toml").write_text(
        (gone / "entry.toml").read_text() + '[withdrawn]\ndate = 2026-01-01\nreason = "x"\n', encoding="utf-8"
    )
    plan = choose(root, Request())
    assert [item.id for item in plan.items] == ["kernel/silu/plain"]
    assert {one.id: one.why for one in plan.left} == {
        "kernel/silu/native": "cuda does not run on a cpu",
        "kernel/rmsnorm/odd": "it cannot run there: no interpreter",
        "technique/norm/idea": "it has no code to judge",
        "kernel/rmsnorm/gone": "withdrawn",
    }


def test_what_is_stale_on_devices_that_are_not_here_is_counted(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    gpu = {"name": "NVIDIA H200", "arch": "sm_90"}
    first, second = write_silu(root, "a"), write_silu(root, "b")
    file_record(root, first, device=gpu, software=OLD)
    file_record(root, second, "2026-11-02T10:00:00Z", device=gpu, software={**OLD, "torch": "2.0.0"})
    assert choose(root, Request(stale=True)).elsewhere == {"NVIDIA H200": 1}


def test_ids_slugs_and_kinds(root: Root, write_silu: WriteSilu) -> None:
    for slug in ("a", "b"):
        write_silu(root, slug)
    assert slugs(root, Request(("b",))) == ["b"]
    assert slugs(root, Request(("kernel/silu/a",), stale=True)) == ["a"], "what is named is judged, stale or not"
    assert slugs(root, Request(kind="comm")) == []
    with pytest.raises(EntryNotFoundError, match="no entry 'c'"):
        choose(root, Request(("c",)))
    with pytest.raises(ConfigError, match="no kind 'kernels'"):
        choose(root, Request(kind="kernels"))


def test_a_device_that_is_not_here_is_one_clear_line(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root)
    for device in ("cuda:99", "tpu"):
        with pytest.raises(DeviceUnavailableError, match="no device") as caught:
            choose(root, Request(device=device))
        assert "kb bundle" in str(caught.value.hint)


def test_estimates_come_from_earlier_runs(root: Root, write_silu: WriteSilu) -> None:
    for slug in ("a", "b"):
        write_silu(root, slug)
    guessed = choose(root, Request())
    assert (guessed.timed, guessed.estimate_s) == (False, 2 * GUESS_S)
    run = runs.begin(derived_folder(root), {})
    run.append({"done": "kernel/silu/a", "verdict": "accepted", "seconds": 4.0})
    run.append({"done": "kernel/silu/x", "verdict": None, "seconds": 900.0})
    timed = choose(root, Request())
    assert (timed.timed, [item.estimate_s for item in timed.items]) == (True, [4.0, 4.0])
