"""Parsing in other processes gives what one process gives, and survives what ends a process."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TypeVar

import pytest

from kb.config import MARKER, Root
from kb.errors import ImporterError
from kb.service import importing, parsing_apart, parsing_worker

Found = TypeVar("Found")
DATA = Path(__file__).resolve().parents[1] / "importers" / "data" / "tuned"
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add_{0}(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a + tl.load(y + i, mask=i < n) * {0}, mask=i < n)
"""
PLUGIN = """
import os
from kb.importers.base import Item, Skipped


class Fatal:
    name = "fatal"
    summary = "ends the process that reads it"

    def discover(self, folder):
        return [Item(folder.tree, (each,)) for each in folder.files if each.name.endswith(".fatal")]

    def parse(self, item, context):
        os._exit(3)
        yield Skipped(item.path, "never")


IMPORTER = Fatal()
"""


def knowledge_base(place: Path) -> Root:
    (place / "entries").mkdir(parents=True)
    (place / MARKER).write_text("schema = 1\n", encoding="utf-8")
    return Root(place)


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    """Return a folder with 160 files in several folders: kernels, tuned parameters, prose, broken and unknown ones."""
    base = tmp_path / "source"
    base.mkdir()
    (base / "LICENSE").write_text("Apache License\nVersion 2.0\n", encoding="utf-8")
    for number in range(40):
        folder = base / f"part{number % 5}"
        folder.mkdir(exist_ok=True)
        (folder / f"add_{number}.py").write_text(KERNEL.format(number), encoding="utf-8")
        rows = {str(1 << n): {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": n + number % 3} for n in range(6)}
        text = json.dumps(rows)
        name = f"E={number + 1},N=512,device_name=NVIDIA_H200.json"
        (folder / name).write_text(text if number % 7 else text[:-9], encoding="utf-8")
        (folder / f"note_{number}.md").write_text("text\n", encoding="utf-8")
        (folder / f"data_{number}.bin").write_bytes(bytes([number]))
    return base


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes pay from the first kilobyte on, in small batches, so that small inputs show what large ones do."""
    monkeypatch.setattr(parsing_apart, "PAYS_FROM_BYTES", 1 << 10)
    monkeypatch.setattr(parsing_apart, "_BATCH_ENTRIES", 5)


def run(
    home: Path, source: Path, *, jobs: int, write: bool = False, progress: importing.Progress | None = None
) -> tuple[str, dict[str, tuple[str, str | None]]]:
    root = Root(home) if (home / MARKER).exists() else knowledge_base(home)
    options = importing.options_of(
        format_=None, write=write, stated=(None, None, None), allow=[], device=None, toolchain=[], jobs=jobs
    )
    report = importing.run(root, str(source), options, progress=progress)
    assert multiprocessing.active_children() == []
    return json.dumps(importing.as_json(report)), report.fates


def filed(home: Path) -> dict[str, bytes]:
    entries = home / "entries"
    return {each.relative_to(entries).as_posix(): each.read_bytes() for each in entries.rglob("*") if each.is_file()}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("place", ["samples", "generated"])
def test_several_processes_report_and_file_to_the_byte_what_one_does(
    tmp_path: Path, generated: Path, place: str
) -> None:
    source = DATA if place == "samples" else generated
    started: set[int | None] = set()
    alone = run(tmp_path / "one", source, jobs=1, write=True)
    apart = run(tmp_path / "three", source, jobs=3, write=True, progress=lambda *_: started.update(_pids()))
    assert len(started) == 3
    assert apart == alone
    assert list(apart[1]) == list(alone[1])
    assert filed(tmp_path / "three") == filed(tmp_path / "one")
    assert filed(tmp_path / "one")


@pytest.mark.usefixtures("eager")
def test_a_repository_at_a_commit_is_read_alike_with_its_history(tmp_path: Path, generated: Path) -> None:
    git = ("git", "-C", str(generated), "-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *command], check=True)
    assert run(tmp_path / "two", generated, jobs=2) == run(tmp_path / "one", generated, jobs=1)


@pytest.mark.usefixtures("eager")
def test_drafts_too_many_for_the_pipe_come_through_a_file_in_their_order(
    tmp_path: Path, generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process reads the module anew, so the batch is made as a process makes it, and read as it is read here.
    monkeypatch.setattr(parsing_worker, "MOST_HELD_BYTES", 1 << 10)
    from kb.importers import registry
    from kb.importers.base import Folder
    from kb.importers.tree import Origin, open_tree
    from kb.service.parsing import Rules

    tree = open_tree(generated / "part0", Origin("a/b", "", license="MIT"))
    items = registry.importer("kernel-code").discover(Folder(tree, "", next(tree.walk()).files))
    batch = [parsing_worker.Sent("kernel-code", item.files, item.whole, item.extra) for item in items]
    setup = parsing_worker.Setup(tree, Rules(), tmp_path)
    reply = parsing_worker.Kept(tmp_path).reply(parsing_worker.parsed(batch, setup))
    assert reply.file is not None
    assert list(reply) == list(parsing_worker.parsed(batch, setup))
    assert not reply.file.exists()


@pytest.mark.parametrize("jobs", [1, 8])
def test_a_small_source_and_one_job_start_no_process(tmp_path: Path, generated: Path, jobs: int) -> None:
    started: set[int | None] = set()
    run(tmp_path / "kb", generated, jobs=jobs, progress=lambda *_: started.update(_pids()))
    assert started == set()


@pytest.mark.usefixtures("eager")
def test_one_job_starts_no_process_however_large_the_source(tmp_path: Path, generated: Path) -> None:
    started: set[int | None] = set()
    run(tmp_path / "kb", generated, jobs=1, progress=lambda *_: started.update(_pids()))
    assert started == set()


@pytest.mark.usefixtures("eager")
def test_one_large_file_alone_starts_no_process(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text(KERNEL.format(1) + "# filler\n" * 9_000, encoding="utf-8")
    started: set[int | None] = set()
    run(tmp_path / "kb", source, jobs=4, progress=lambda *_: started.update(_pids()))
    assert started == set()


@pytest.mark.usefixtures("eager")
def test_a_process_killed_from_outside_costs_nothing(tmp_path: Path, generated: Path) -> None:
    killed: list[int] = []

    def kill(*_: object) -> None:
        for pid in _pids() if not killed else ():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    apart = run(tmp_path / "two", generated, jobs=2, progress=kill)
    assert killed
    assert apart == run(tmp_path / "one", generated, jobs=1)


@pytest.mark.usefixtures("eager")
def test_processes_that_end_as_they_start_end_the_import_with_a_hint(
    tmp_path: Path, generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    # Python starts its tracker of shared memory by the same program, once: not the process that is looked at here.
    resource_tracker.ensure_running()
    before = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(str(broken))
    try:
        with pytest.raises(ImporterError, match="end as soon as they are started") as caught:
            run(tmp_path / "kb", generated, jobs=2)
    finally:
        multiprocessing.set_executable(before)
    assert "--jobs 1" in (caught.value.hint or "")


@pytest.fixture
def fatal(tmp_path: Path) -> Path:
    """Return a folder with an installed importer whose parser ends its process."""
    site = tmp_path / "site"
    (site / "fatal-1.0.dist-info").mkdir(parents=True)
    (site / "fatal_importer.py").write_text(PLUGIN, encoding="utf-8")
    (site / "fatal-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1.0\n")
    points = "[kb.importers]\nfatal = fatal_importer:IMPORTER\n"
    (site / "fatal-1.0.dist-info" / "entry_points.txt").write_text(points, encoding="utf-8")
    return site


def _command(site: Path, home: Path, source: Path) -> list[str]:
    here = Path(__file__).resolve().parents[2]
    program = f"""
import sys
sys.path[:0] = [{str(here)!r}, {str(site)!r}]
from kb.launch import main
from kb.service import parsing_apart
parsing_apart.PAYS_FROM_BYTES = 1 << 10
parsing_apart._BATCH_ENTRIES = 5
sys.argv[1:] = ["import", {str(source)!r}, "--root", {str(home)!r}, "--jobs", "2", "--json"]
sys.exit(main())
"""
    return [sys.executable, "-c", program]


def test_a_file_that_ends_its_process_is_refused_and_all_others_come_in(
    tmp_path: Path, generated: Path, fatal: Path
) -> None:
    knowledge_base(tmp_path / "kb")
    whole = json.loads(run(tmp_path / "one", generated, jobs=1)[0])
    for name in ("part1/a.fatal", "part3/b.fatal"):
        (generated / name).write_bytes(b"x")
    done = subprocess.run(_command(fatal, tmp_path / "kb", generated), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lost = [line for line in found["lines"] if line.get("format") == "fatal"]
    assert [(line["state"], line["path"]) for line in lost] == [
        ("refused", "part1/a.fatal"),
        ("refused", "part3/b.fatal"),
    ]
    assert all("ended without an answer" in line["reason"] for line in lost)
    assert [line for line in found["lines"] if line not in lost] == whole["lines"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_ends_the_processes_with_the_import(tmp_path: Path, generated: Path, fatal: Path) -> None:
    knowledge_base(tmp_path / "kb")
    plugin = fatal / "fatal_importer.py"
    plugin.write_text(PLUGIN.replace("os._exit(3)", "import time; time.sleep(600)"), encoding="utf-8")
    (generated / "a.fatal").write_bytes(b"x")
    with subprocess.Popen(_command(fatal, tmp_path / "kb", generated), start_new_session=True) as process:
        workers = _until(lambda: [pid for pid in _children(process.pid) if "spawn_main" in _line_of(pid)])
        time.sleep(1.0)  # the sleeping parser has its file by then
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(timeout=30)
    _until(lambda: not any("spawn_main" in _line_of(pid) for pid in workers))


def _until(met: Callable[[], Found]) -> Found:
    end = time.monotonic() + 60
    while not (found := met()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _pids() -> list[int]:
    return [each.pid for each in multiprocessing.active_children() if each.pid is not None]
