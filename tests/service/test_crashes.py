"""Killed at random moments, neither an addition nor the catalogue is lost."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from kb import catalogue
from kb.config import Root
from kb.service.indexing import ensure_index, update

WriteEntry = Callable[..., Path]

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from kb.config import Root
from kb.service.adding import add
from kb.service.indexing import update
import kb.store.writer

ROUNDS = 15
base, draft = Root(Path(sys.argv[2])), Path(sys.argv[3])

def adding(turn, told):
    for number in range(100_000):
        (draft / "kernel.py").write_text(f"x = {turn * 1_000_000 + number}\\n")
        os.write(told, add(draft, f"kernel/rmsnorm/r{turn}-{number}", base).id.encode() + b"\\n")

def updating(turn, told):
    facts = (draft / "entry.toml").read_text()
    for number in range(100_000):
        version = 2 + turn * 10_000 + number
        (draft / "entry.toml").write_text(facts.replace("version = 1\\n", f"version = {version}\\n"))
        (draft / "kernel.py").write_text(f"x = {version}\\n")
        os.write(told, str(add(draft, "kernel/rmsnorm/row-per-cta", base).version).encode() + b"\\n")

def indexing(turn, told):
    os.write(told, b"started\\n")
    for number in range(100_000):
        (base.entries / "kernel/rmsnorm/v0/kernel.py").write_text(f"x = {number}\\n")
        update(base, rebuild=number % 3 == 0)

random.seed(7)
original = (draft / "entry.toml").read_text()
for turn in range(ROUNDS):
    (draft / "entry.toml").write_text(original)
    reader, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        {"adding": adding, "updating": updating, "indexing": indexing}[sys.argv[1]](turn, told)
    os.close(told)
    heard = os.read(reader, 1)
    time.sleep(random.uniform(0, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(reader, 65536):
        heard += part
    os.close(reader)
    sys.stdout.write(heard.decode())
    sys.stdout.flush()
"""


def killed(what: str, root: Root, draft: Path) -> list[str]:
    """Run work in processes that are killed, and return what they had acknowledged."""
    command = [sys.executable, "-c", KILLER, what, str(root.path), str(draft)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_what_a_killed_adder_had_acknowledged_is_there(root: Root, tmp_path: Path, write_entry: WriteEntry) -> None:
    acknowledged = set(killed("adding", root, write_entry(tmp_path / "draft")))
    report = update(root).report
    assert report is not None
    assert report.problems == ()
    there = {f"kernel/rmsnorm/{each.name}" for each in (root.entries / "kernel" / "rmsnorm").iterdir()}
    assert len(acknowledged) >= 15
    assert acknowledged <= there
    assert len(there - acknowledged) <= 15
    assert report.total == len(there)


def test_an_entry_whose_update_was_killed_is_whole(root: Root, tmp_path: Path, write_entry: WriteEntry) -> None:
    acknowledged = max(int(each) for each in killed("updating", root, write_entry(tmp_path / "draft")))
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        rows = connection.execute("SELECT id, version FROM entry").fetchall()
    assert [row[0] for row in rows] == ["kernel/rmsnorm/row-per-cta"]
    version = rows[0][1]
    assert version in (acknowledged, acknowledged + 1)
    assert (root.entries / rows[0][0] / "kernel.py").read_text() == f"x = {version}\n"


def test_a_killed_indexer_leaves_a_catalogue_that_works(root: Root, tmp_path: Path, write_entry: WriteEntry) -> None:
    for number in range(10):
        write_entry(root.entries, f"kernel/rmsnorm/v{number}")
    file = ensure_index(root)
    killed("indexing", root, write_entry(tmp_path / "draft"))
    with closing(catalogue.open_reader(file)) as connection:
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (10,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert ensure_index(root) == file
    with closing(catalogue.open_reader(file)) as connection:
        assert connection.execute("SELECT count(*) FROM entry_text").fetchone() == (10,)
