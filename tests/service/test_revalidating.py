"""Re-validation of many entries: killed at any moment, nothing that was acknowledged is lost, and it goes on."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kb import launch
from kb.config import Root, derived_folder
from kb.errors import ConfigError, EntryFormatError
from kb.service.choosing import Item, Request
from kb.service.device_locking import device_lock
from kb.service.revalidating import begin
from kb.service.verifying import verify
from kb.store import runs
from kb.store.locks import LockBusyError
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]
Capture = pytest.CaptureFixture[str]

KILLS = 20

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import kb.validators.runtime.attempt
from kb.config import Root
from kb.service import choosing, revalidating

base, kills = Root(Path(sys.argv[1])), int(sys.argv[2])

def work(told):
    run = revalidating.begin(base, choosing.Request())
    os.write(told, b"begun\\n")
    for one in run.go():
        os.write(told, f"{one.record or one.note}\\n".encode())
    os.write(told, b"ended\\n")

def killed_between_filing_and_noting(told):
    def die(run, made, seconds):
        os.write(told, f"filed {made.record} {made.note}\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    revalidating.Revalidation._note = die
    work(told)

random.seed(5)
first_s = 0.0
for turn in range(kills + 1):
    reader, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        (killed_between_filing_and_noting if turn == 0 else work)(told)
        os._exit(0)
    os.close(told)
    heard = os.read(reader, 1)
    began = time.monotonic()
    if turn > 0:
        # Most kills come while the first judgement is under way; some are late enough for it to be filed.
        time.sleep(first_s * (random.uniform(0.9, 1.6) if turn % 10 == 0 else random.uniform(0, 0.4)))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    first_s = min(6.0, time.monotonic() - began) if turn == 0 else first_s  # a busy machine must not take for ever
    while part := os.read(reader, 65536):
        heard += part
    os.close(reader)
    sys.stdout.write(heard.decode())
    sys.stdout.flush()
"""


def filed(root: Root) -> Counter[str]:
    """Return how many records each entry has."""
    return Counter(str(path.parts[-3]) for path in root.entries.glob("*/*/*/records/*.json"))


def noted(root: Root) -> list[str]:
    """Return the records that all journals say were filed."""
    folder = derived_folder(root)
    return [str(line["record"]) for run in runs.all_runs(folder) for line in run.lines if line.get("record")]


def test_killed_twenty_times_it_loses_nothing_files_nothing_twice_and_comes_to_its_end(
    root: Root, write_silu: WriteSilu
) -> None:
    for slug in ("a", "b", "c", "d"):
        write_silu(root, slug)
    command = [sys.executable, "-c", KILLER, str(root.path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heard = done.stdout.splitlines()
    acknowledged = [line for line in heard if line.endswith(".json")]
    assert sum(filed(root).values()) >= 1, f"the first kill comes just after a record was filed: {heard}"
    for record in acknowledged:
        assert (root.entries / record).is_file(), record
    run = begin(root, Request())
    list(run.go())
    assert run.run.ended
    assert [one.verdict for one in run.done] == ["accepted"] * 4, run.done
    checked = verify(root)
    assert checked.faults == ()
    assert sorted(noted(root)) == sorted(
        str(path.relative_to(root.entries)) for path in root.entries.glob("*/*/*/records/*.json")
    ), "what was filed was noted once, and what was noted was filed"
    assert set(acknowledged) <= set(noted(root))
    ended = sum(one.ended for one in runs.all_runs(derived_folder(root)))
    assert filed(root) == dict.fromkeys("abcd", ended), "each run judged each entry once"


def test_what_was_filed_before_the_kill_is_found_and_not_judged_again(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    first = begin(root, Request())
    assert not first.resumed
    first.run.append({"began": entry, "utc": "2026-12-01T00:00:00Z", "had": []})
    record = file_record(root, entry, "2026-12-01T00:00:01Z")
    again = begin(root, Request())
    assert again.resumed
    assert list(again.go()) == []
    assert [(one.id, one.verdict, one.record) for one in again.done] == [(entry, "accepted", record.path)]


@pytest.mark.parametrize("when", ["2026-11-30T23:59:59Z", "elsewhere"])
def test_records_of_others_are_not_taken_for_its_own(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, when: str
) -> None:
    entry = write_silu(root, language="cuda")  # the judge does not judge it here, so that this is quick
    run = begin(root, Request((entry,)))
    line = {"began": entry, "utc": "2026-12-01T00:00:00Z", "had": []}
    run.run.append(line)
    if when == "elsewhere":
        file_record(root, entry, "2026-12-01T00:00:01Z", device={"name": "NVIDIA H200", "arch": "sm_90"})
    else:
        file_record(root, entry, when)
    list(begin(root, Request((entry,))).go())
    assert noted(root) == []


def test_a_request_of_its_own_is_a_run_of_its_own(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root, language="cuda")
    first = begin(root, Request())
    assert begin(root, Request()).run.id == first.run.id
    assert begin(root, Request(kind="kernel")).run.id != first.run.id
    assert not begin(root, Request(), anew=True).resumed
    list(first.go())
    assert first.run.ended


def test_one_judge_at_a_time_is_at_work_on_a_device(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root)
    run = begin(root, Request())
    with device_lock("cpu"), pytest.raises(LockBusyError, match=f"judges on cpu: process {os.getpid()} "):
        next(run.go())
    with device_lock("cuda:0"), device_lock("cpu"):
        pass


def test_a_run_that_another_process_went_on_with_meanwhile_is_read_anew(root: Root, write_silu: WriteSilu) -> None:
    entry = write_silu(root)
    mine, other = begin(root, Request()), begin(root, Request())
    done = {"done": entry, "version": 1, "verdict": "accepted", "reasons": [], "record": None, "note": None}
    other.run.append({**done, "seconds": 1.0})
    assert list(mine.go()) == []
    assert [one.id for one in mine.done] == [entry]


def test_the_packaged_starter_is_never_written_to(root: Root) -> None:
    with pytest.raises(ConfigError, match="never written to"):
        begin(Root(root.path, packaged=True), Request())


def test_what_could_not_be_done_is_said_by_reason(root: Root, write_silu: WriteSilu, capsys: Capture) -> None:
    for slug in ("a", "b"):
        write_silu(root, slug, language="cuda")
    broken = write_silu(root, "c")
    (root.entries / broken / "kernel.py").write_text("def walk(x):\n    return x\n", encoding="utf-8")
    facts = root.entries / broken / "entry.toml"
    facts.write_text(facts.read_text(encoding="utf-8").replace("kernel.py:run", "kernel.py:walk"), encoding="utf-8")
    assert launch.main(["revalidate", "--root", str(root.path)]) == 0
    out, err = capsys.readouterr()
    assert "kernel/silu/c@1: not judged" in out
    assert "could not do 2: cuda does not run on a cpu: kernel/silu/a, kernel/silu/b" in err
    assert "could not do 1: " in err


def test_an_entry_that_is_gone_or_broken_meanwhile_stops_no_other(root: Root, write_silu: WriteSilu) -> None:
    for slug in ("a", "b", "c"):
        write_silu(root, slug, language="cuda")
    run = begin(root, Request(("a", "b", "c"), seed=1))
    plan = run.plan
    run.plan = replace(plan, items=tuple(Item(f"kernel/silu/{slug}", 1, "by hand", 1.0) for slug in "abc"))
    shutil.rmtree(root.entries / "kernel/silu/a")
    (root.entries / "kernel/silu/b/entry.toml").write_text("title =", encoding="utf-8")
    done = {one.id[-1]: str(one.note) for one in run.go()}
    assert done["a"] == "it is no longer there"
    assert "expected TOML" in done["b"]
    assert "cuda" in done["c"]
    assert run.run.ended


def test_a_broken_keyring_is_told_before_anything_is_judged(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root)
    run = begin(root, Request())
    (root.entries / "keyring.toml").write_text("[[key]]\nid = 3\n", encoding="utf-8")
    with pytest.raises(EntryFormatError, match="key 1"):
        next(run.go())
    assert run.done == []


def test_a_device_that_is_not_here_stops_at_once(root: Root, write_silu: WriteSilu, capsys: Capture) -> None:
    write_silu(root)
    assert launch.main(["revalidate", "--device", "cuda:99", "--root", str(root.path)]) == 9
    assert "no device 'cuda:99' here" in capsys.readouterr().err


def test_an_interrupt_ends_cleanly_and_the_same_call_goes_on(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root)
    write_silu(root, "second")
    argv = [sys.executable, "-m", "kb", "revalidate", "--root", str(root.path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("judging "):
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert re.search(r"[01] of 2 done; the same call goes on from there", err)
    assert "Traceback" not in out + err
    assert begin(root, Request()).resumed
    assert verify(root).faults == ()


def test_waiting_for_the_lock_is_short(root: Root) -> None:
    ready, end = threading.Event(), threading.Event()

    def hold() -> None:
        with device_lock("cpu"):
            ready.set()
            end.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait(10)
    began = time.monotonic()
    try:
        with pytest.raises(LockBusyError), device_lock("cpu"):
            pass
    finally:
        end.set()
        holder.join()
    assert time.monotonic() - began < 10
    assert os.environ["KB_CACHE_DIR"] in str(Path(os.environ["KB_CACHE_DIR"]) / "locks")
