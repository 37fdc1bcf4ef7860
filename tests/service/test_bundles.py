"""Bundles: judged where there is only torch, sealed, accepted once, and refused if anything was touched."""

import copy
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kb.errors import ConfigError, EntryNotFoundError, EvidenceRefusedError, ValidatorError
from kb.models.record import written
from kb.service import jobs
from kb.service.accepting import accept
from kb.service.bundling import bundle
from kb.service.validating import all_records
from kb.service.verifying import verify
from kb.store import records
from kb.validators import bundle as packing
from kb.validators import keys
from kb.validators.runtime import boxing, sealing
from tests.service import bundled
from tests.service.bundled import SILU, SOFTMAX, Ran


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Bundle two entries, run the first until it is timed, then resume; for real."""
    with pytest.MonkeyPatch.context() as patch:
        settings = tmp_path_factory.mktemp("settings")
        patch.setenv("KB_CONFIG_DIR", str(settings))
        box = tmp_path_factory.mktemp("box")
        archive, evidence = box / "job.pyz", box / "evidence.json"
        keys.own_key(settings)
        root = bundled.base(tmp_path_factory.mktemp("base"), looked_for=[archive, settings / "judge-key.pem", evidence])
        made = bundle(root, [SILU, SOFTMAX], archive, device_kind="cpu", timing=True, regimes=["warm/eager"])
        assert made.entries == (f"{SILU}@1", f"{SOFTMAX}@1")
        archive.chmod(0o644)
        first = bundled.run(archive, "-o", "evidence.json", "--only", SILU, interrupt_at="starting the baselines")
        before = json.loads(evidence.read_bytes())
        second = bundled.run(archive, "-o", "evidence.json", "--resume", "--jobs", "2")
        yield Ran(root, settings, archive, evidence, first, second, before)


@pytest.fixture
def here(ran: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ran:
    """Give the run to a test with a knowledge base of its own to accept into."""
    monkeypatch.setenv("KB_CONFIG_DIR", str(ran.settings))
    root = bundled.base(tmp_path / "base", looked_for=[])
    for entry in (SILU, SOFTMAX):
        (root.entries / entry / "kernel.py").write_bytes((ran.root.entries / entry / "kernel.py").read_bytes())
    return Ran(root, ran.settings, ran.archive, ran.evidence, ran.first, ran.second, ran.before)


def key_of(ran: Ran) -> bytes:
    job = json.loads(ran.evidence.read_bytes())["job"]
    return bytes.fromhex(json.loads((ran.settings / "jobs" / f"{job}.json").read_bytes())["key"])


def test_a_bundle_needs_torch_alone_and_goes_on_where_it_stopped(ran: Ran) -> None:
    assert ran.first.returncode == boxing.STOPPED, ran.first.stderr
    kept = ran.before["evidence"][0]
    assert (ran.before["untimed"], kept["timing"], kept["decision"]["verdict"]) == ([SILU], None, "accepted")
    assert kept["timing_notes"] == ["time ran out before anything was timed"]
    assert ran.second.returncode == boxing.NOT_ACCEPTED, ran.second.stderr
    lines = [re.split("[,;]", line)[0] for line in ran.second.stdout.splitlines()]
    assert sorted(lines[:2]) == lines[2:] == [f"{SILU}@1: accepted", f"{SOFTMAX}@1: needs_review (static_finding)"]
    assert re.search(r"; warm/eager [A-Z]+ .*, [\d.]+ us, \d+%", ran.second.stdout.splitlines()[2])
    made = json.loads(ran.evidence.read_bytes())
    assert made["untimed"] == []
    assert [one["entry"]["id"] for one in made["evidence"]] == [SILU, SOFTMAX]
    assert made["evidence"][0]["timing"]


def test_entries_are_judged_side_by_side_and_timed_one_at_a_time(ran: Ran) -> None:
    at = [(line.split("]")[0], line) for line in ran.second.stderr.splitlines() if line.startswith("[")]
    begun = [number for number, line in at if line.endswith(": starting")]
    assert len(set(begun)) == 2
    assert at.index(next(one for one in at if one[1].endswith(": starting") and one[0] == begun[1])) < next(
        place for place, (_, line) in enumerate(at) if "trying out" in line
    ), "the second had begun before the first was measured"
    measured = [number for number, line in at if ": timing " in line]
    assert measured == sorted(measured, key=measured.index), "one after the other"
    changes = sum(one != other for one, other in itertools.pairwise(measured))
    assert changes <= 1, "no turns in the middle of a session"


def test_a_candidate_finds_neither_bundle_nor_keys(ran: Ran) -> None:
    assert ran.archive.stat().st_mode & 0o777 == 0o600
    assert "readable by its owner alone" in ran.first.stderr
    curious = json.loads(ran.evidence.read_bytes())["evidence"][1]
    assert "FOUND" in curious["output"]
    assert curious["output"].count("PermissionError") == 3
    assert key_of(ran).hex() not in ran.evidence.read_text(encoding="utf-8")


def test_equal_jobs_are_equal_bytes_and_hold_no_more_than_the_judge(ran: Ran) -> None:
    job = {"job": "0" * 16, "entries": []}
    one = packing.pack(job, {"candidates/0/candidate.py": b"x"}, b"k" * 32)
    assert one == packing.pack(job, {"candidates/0/candidate.py": b"x"}, b"k" * 32)
    assert one != packing.pack(job, {"candidates/0/candidate.py": b"x"}, b"l" * 32)
    assert b"cryptography" not in one
    assert ran.archive.stat().st_size < 1 << 20


def test_an_entry_that_is_done_is_not_done_again(ran: Ran) -> None:
    before = ran.evidence.read_bytes()
    done = bundled.run(ran.archive, "-o", "evidence.json", "--resume")
    assert done.returncode == boxing.NOT_ACCEPTED
    assert done.stdout.splitlines() == ran.second.stdout.splitlines()[2:], "what is known, and nothing new"
    assert ran.evidence.read_bytes() == before


def test_accepted_evidence_is_signed_chained_and_filed_once(here: Ran) -> None:
    done = list(accept(here.root, [here.evidence]))
    assert [(one.id, one.verdict) for one in done] == [(SILU, "accepted"), (SOFTMAX, "needs_review")]
    assert [one.note for one in done] == [None, None]
    found = verify(here.root)
    assert (found.records, found.faults, found.not_recomputed) == (2, (), 0)
    timed = next(one.record for one in all_records(here.root.entries) if one.entry_id == SILU)
    assert timed.timing is not None
    assert timed.timing[0].baseline is not None
    assert timed.timing[0].baseline.name == "torch.nn.functional.silu"
    assert timed.device["peaks"]["copy_gbps"] > 0
    before = {path: path.read_bytes() for path in here.root.entries.rglob("*.json")}
    again = list(accept(here.root, [here.evidence]))
    assert [one.note for one in again] == ["accepted before"] * 2
    assert {path: path.read_bytes() for path in here.root.entries.rglob("*.json")} == before
    record = next(iter(all_records(here.root.entries))).record
    assert record.bundle is not None
    assert record.bundle.job == json.loads(here.evidence.read_bytes())["job"]


def leaves(value: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value[:2]):
            yield from leaves(inner, (*place, index))
    else:
        yield place


def at(document: Any, place: tuple[Any, ...]) -> Any:  # noqa: ANN401 - plain JSON
    for part in place:
        document = document[part]
    return document


def test_an_edit_of_any_field_is_refused_and_nothing_is_filed(here: Ran, tmp_path: Path) -> None:
    document = json.loads(here.evidence.read_bytes())
    places = [place for place in leaves(document) if place[0] != "schema"]
    assert len(places) > 80
    file = tmp_path / "edited.json"
    for place in places:
        edited = copy.deepcopy(document)
        at(edited, place[:-1])[place[-1]] = "0000" if at(edited, place) != "0000" else "1111"
        file.write_text(json.dumps(edited), encoding="ascii")
        with pytest.raises(EvidenceRefusedError):
            list(accept(here.root, [file]))
    assert not list(here.root.entries.rglob("records"))


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("entry", "version"), 2, "its version is not the one in the bundle"),
        (("entry", "digest"), "0" * 64, "not in the bundle"),
        (("entry", "source_sha256"), {"kernel.py": "0" * 64}, "its source is not the one"),
        (("operator", "sha256"), "0" * 64, "its operator's digest is not the one"),
        (("judge", "sha256"), "0" * 64, "its judge's digest is not the one"),
        (("judge", "revision"), 99, "its judge's revision is not the one"),
        (("plan", "calls"), [1, 1], "its number of calls is not the one"),
        (("master_seed",), "0" * 32, "its seed does not give its plan"),
        (("cases", 0, "axes"), {"num_tokens": 1}, "case 0 is not the one"),
        (("cases", 0, "max_normalised"), 1.5, "its cases give rejected"),
        (("cases", 0, "max_normalised"), None, "its cases give rejected"),
        (("cases", 0, "verdict"), "wrong_values", "its cases give rejected"),
        (("decision", "verdict"), "rejected", "its cases give accepted"),
        (("cases",), [], "its cases give rejected"),
        (("created_utc",), timedelta(days=3), "yet to come"),
        (("created_utc",), timedelta(days=-3), "before its bundle"),
        (("device", "name"), "NVIDIA B200", "a cpu is not called"),
        (("device",), {"name": "NVIDIA B200", "arch": "sm_100"}, "its kind of device is not the one"),
        (("device", "secret"), 1, "is no record"),
        (("timing",), [{"ratio": 9.0}], "is no record"),
        (("timing", 0, "ratio"), 9.5, "timing 0: its samples do not give its ratio"),
        (("timing", 0, "candidate_us", "median"), 0.5, "its samples do not give its candidate_us"),
        (("timing", 0, "workload", "axes"), {"num_tokens": 1, "hidden_size": 9}, "was not asked for"),
        (("timing", 0, "baseline", "source_sha256"), "0" * 64, "something that is not in the bundle"),
        (("timing",), None, "its samples give 1 timings, not 0"),
        (("samples_sha256",), "0" * 64, "its samples are missing"),
        (("samples_sha256",), None, "its times have no samples"),
    ],
)
def test_evidence_that_does_not_hold_together_is_refused_even_under_a_right_seal(
    here: Ran, tmp_path: Path, place: tuple[Any, ...], value: object, said: str
) -> None:
    document = json.loads(here.evidence.read_bytes())
    item = document["evidence"][0]
    if isinstance(value, timedelta):
        value = (datetime.now(UTC) + value).strftime("%Y-%m-%dT%H:%M:%SZ")
    at(item, place[:-1])[place[-1]] = value
    file = bundled.resealed(here.evidence, tmp_path / "forged.json", key_of(here), document)
    with pytest.raises(EvidenceRefusedError, match=said):
        list(accept(here.root, [file]))
    assert not list(here.root.entries.rglob("records"))


def test_samples_that_are_others_are_refused(here: Ran, tmp_path: Path) -> None:
    document = json.loads(here.evidence.read_bytes())
    digest = document["evidence"][0]["samples_sha256"]
    document["samples"][digest]["results"][0]["blocks"][0]["batches"][0]["wall_us"] = 0.25
    file = bundled.resealed(here.evidence, tmp_path / "forged.json", key_of(here), document)
    with pytest.raises(EvidenceRefusedError, match="its samples are not those that it names"):
        list(accept(here.root, [file]))


def test_an_edit_of_a_timed_record_or_of_its_samples_shows(here: Ran) -> None:
    list(accept(here.root, [here.evidence]))
    folder = here.root.entries / SILU / "records"
    side = next(folder.glob("samples-*.json"))
    path = next(one for one in folder.glob("*.json") if one != side)
    original, raw = path.read_bytes(), json.loads(path.read_bytes())
    places = [place for place in leaves(raw) if place[0] in ("timing", "telemetry", "roofline", "device", "bundle")]
    assert len(places) > 40
    for place in places:
        edited = copy.deepcopy(raw)
        at(edited, place[:-1])[place[-1]] = changed(at(edited, place))
        body = written(edited)
        name = records.file_name(body, created_utc=raw["created_utc"], arch=str(edited["device"]["arch"]))
        path.unlink()
        other = path.with_name(name)
        other.write_bytes(body)
        assert verify(here.root).faults, place
        other.unlink()
        path.write_bytes(original)
    assert verify(here.root).faults == ()
    samples = side.read_bytes()
    side.write_bytes(samples.replace(b"1", b"2", 1))
    assert any("not those that the record names" in one.message for one in verify(here.root).faults)
    side.unlink()
    assert any(side.name in one.message for one in verify(here.root).faults)


def changed(value: object) -> object:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return "0" + str(value)[1:] if isinstance(value, str) and not value.startswith("0") else "x"


def test_a_case_left_out_is_missed(here: Ran, tmp_path: Path) -> None:
    document = json.loads(here.evidence.read_bytes())
    document["evidence"][0]["cases"].pop()
    file = bundled.resealed(here.evidence, tmp_path / "short.json", key_of(here), document)
    with pytest.raises(EvidenceRefusedError, match=r"accepted after \d+ of \d+ cases"):
        list(accept(here.root, [file]))


def test_a_job_of_another_place_or_past_its_time_is_refused(here: Ran, tmp_path: Path) -> None:
    document = json.loads(here.evidence.read_bytes())
    job = jobs.find(document["job"])
    with pytest.raises(EvidenceRefusedError, match="expired"):
        jobs.find(job.job, now=datetime.fromisoformat(job.expires_utc) + timedelta(seconds=1))
    stranger = bundled.resealed(here.evidence, tmp_path / "other.json", b"x" * 32, {**document, "job": "f" * 16})
    with pytest.raises(EvidenceRefusedError, match="was not made here"):
        list(accept(here.root, [stranger]))
    escaping = bundled.resealed(here.evidence, tmp_path / "path.json", b"x" * 32, {**document, "job": "../../x"})
    with pytest.raises(EvidenceRefusedError, match="names no job"):
        list(accept(here.root, [escaping]))


@pytest.mark.parametrize(
    "body",
    [b"", b"no json", b"[]", b'{"schema": 1, "job": "x"}', b'{"schema": 1, "job": "x", "job": "y"}', b"[" * 100_000,
     b'{"schema": 1, "job": "0", "evidence": {}, "samples": {}, "skipped": [], "seal": "x"}', b"\xff\xfe", b"NaN"],
)  # fmt: skip
def test_what_is_no_evidence_is_said_to_be_none(here: Ran, tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(body)
    with pytest.raises(EvidenceRefusedError):
        list(accept(here.root, [file]))
    with pytest.raises(ConfigError):
        list(accept(here.root, [tmp_path / "missing.json"]))


def test_evidence_of_a_changed_entry_is_filed_for_its_version(here: Ran) -> None:
    folder = here.root.entries / SILU
    (folder / "kernel.py").write_text(bundled.HONEST + "\n# another\n", encoding="utf-8")
    facts = (folder / "entry.toml").read_text(encoding="utf-8").replace("version = 1", "version = 2")
    (folder / "entry.toml").write_text(facts, encoding="utf-8")
    done = list(accept(here.root, [here.evidence]))
    assert done[0].note == "filed for version 1; the entry is at version 2 now"
    assert verify(here.root).faults == ()


def test_an_entry_that_is_gone_is_named(here: Ran) -> None:
    here.root.entries.joinpath(SILU, "kernel.py").unlink()
    here.root.entries.joinpath(SILU, "entry.toml").unlink()
    here.root.entries.joinpath(SILU, "README.md").unlink()
    here.root.entries.joinpath(SILU).rmdir()
    with pytest.raises(EvidenceRefusedError, match=f"no entry {SILU}"):
        list(accept(here.root, [here.evidence]))


def test_a_kill_while_accepting_leaves_the_old_state_or_the_new_one(here: Ran) -> None:
    command = [sys.executable, "-m", "kb", "accept", "--root", str(here.root.path), str(here.evidence)]
    (here.root.path / "kb.toml").write_text("schema = 1\n", encoding="utf-8")
    for seen in ("*/records", "*/records/.*.new", "*/records/*.json"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
        while process.poll() is None and not list(here.root.entries.glob(f"kernel/*/{seen}")):
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert verify(here.root).faults == ()
    assert len(list(accept(here.root, [here.evidence]))) == 2
    assert (verify(here.root).records, verify(here.root).faults) == (2, ())


def test_an_entry_that_comes_to_no_end_is_given_up_and_the_others_are_not(ran: Ran) -> None:
    stuck = bundled.run(ran.archive, "-o", "stuck.json", "--entry-limit-s", "0.3", "--quiet")
    assert stuck.returncode == boxing.STOPPED
    assert ": starting" not in stuck.stderr
    assert stuck.stdout.count("skipped: given up after 0 s") == 2
    done = bundled.run(ran.archive, "-o", "stuck.json", "--resume", "--only", SOFTMAX)
    assert done.returncode == boxing.NOT_ACCEPTED
    made = json.loads((ran.archive.parent / "stuck.json").read_bytes())
    assert ([one["entry"]["id"] for one in made["evidence"]], made["skipped"]) == ([SOFTMAX], [])


def test_time_that_is_used_up_ends_a_run_that_can_be_resumed(ran: Ran) -> None:
    done = bundled.run(ran.archive, "-o", "short.json", "--limit-s", "0.2")
    assert done.returncode == boxing.STOPPED
    assert "--resume" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "evidence.json"], "is there already"),
        (["--device", "cuda:0"], "was made for cpu"),
        (["--only", "kernel/x/y"], "is not in this bundle"),
        (["-o", "foreign.json", "--resume"], "was not written by this bundle"),
    ],
)
def test_a_run_that_cannot_be_says_why(ran: Ran, arguments: list[str], said: str) -> None:
    bundled.resealed(ran.evidence, ran.archive.parent / "foreign.json", b"x" * 32)
    done = bundled.run(ran.archive, *arguments)
    assert done.returncode == boxing.USAGE
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_list_of_what_is_in_it(ran: Ran) -> None:
    done = bundled.run(ran.archive, "--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"{SILU}@1", f"{SOFTMAX}@1"]


def test_what_cannot_be_bundled_says_why(ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path / "settings"))
    with pytest.raises(EntryNotFoundError):
        bundle(ran.root, ["kernel/no/such"], tmp_path / "a.pyz")
    with pytest.raises(ConfigError, match="awkward, target"):
        bundle(ran.root, [SILU], tmp_path / "a.pyz", uses=["odd"])
    with pytest.raises(ConfigError, match="is there already"):
        bundle(ran.root, [SILU], ran.archive, device_kind="cpu")
    with pytest.raises(ConfigError, match="cuda or cpu"):
        bundle(ran.root, [SILU], tmp_path / "a.pyz", device_kind="tpu")
    facts = ran.root.entries / SILU / "entry.toml"
    before = facts.read_text(encoding="utf-8")
    facts.write_text(before.replace("kernel.py:run", "kernel.py:other"), encoding="utf-8")
    try:
        with pytest.raises(ValidatorError, match="not called run"):
            bundle(ran.root, [SILU], tmp_path / "a.pyz", device_kind="cpu")
    finally:
        facts.write_text(before, encoding="utf-8")
    assert not (tmp_path / "settings" / "jobs").exists()


def test_a_seal_is_of_one_key_and_one_content() -> None:
    document: dict[str, Any] = sealing.empty("0" * 16)
    sealed = {**document, "seal": sealing.seal_of(document, b"a" * 32)}
    assert sealing.is_sealed(sealed, b"a" * 32)
    assert not sealing.is_sealed(sealed, b"b" * 32)
    assert not sealing.is_sealed({**sealed, "skipped": [1]}, b"a" * 32)
    spoilt: list[Callable[[], object]] = [lambda: 7, lambda: None, lambda: "é" * 64]
    assert not any(sealing.is_sealed({**document, "seal": one()}, b"a" * 32) for one in spoilt)
