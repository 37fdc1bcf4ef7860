"""A judgement ends with the process that ordered it, also where that was killed and nothing else would tell it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kb.service.judging_apart import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of a parent's death")

ORDERER = """
import os, subprocess, sys, time
command = [sys.executable, "-P", "-m", "kb.service.judge_process", str(os.getpid())]
child = subprocess.Popen(command, stdin=int(sys.argv[1]), stdout=int(sys.argv[2]))
print(child.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def ordered() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start a judge whose pipes stay open whatever becomes of its parent; yield the parent and the judge's number."""
    orders, write = os.pipe()
    read, answers = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", ORDERER, str(orders), str(answers)],
        stdout=subprocess.PIPE,
        pass_fds=(orders, answers),
        env=environment(),
        text=True,
    )
    assert parent.stdout is not None
    judge = int(parent.stdout.readline())
    try:
        yield parent, judge
    finally:
        parent.kill()
        parent.wait(30)
        parent.stdout.close()
        for handle in (orders, write, read, answers):
            os.close(handle)


def facts(number: int) -> list[str] | None:
    """Return what the system knows of a process from its state on; None if it is gone."""
    try:
        found = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if found[0] in "ZX" else found


def waits(number: int) -> bool:
    """Tell whether a process sleeps and computes nothing for half a second: it waits for its order."""
    seen = set()
    for _ in range(10):
        now = facts(number)
        seen.add(None if now is None else (now[0], now[11], now[12]))
        time.sleep(0.05)
    return len(seen) == 1 and None not in seen and {one[0] for one in seen if one} == {"S"}


def until_gone(number: int) -> bool:
    end = time.monotonic() + 30
    while facts(number) is not None and time.monotonic() < end:
        time.sleep(0.05)
    return facts(number) is None


def test_a_judge_that_waits_ends_when_its_parent_is_killed() -> None:
    with ordered() as (parent, judge):
        end = time.monotonic() + 60
        while not waits(judge):
            assert time.monotonic() < end
        parent.kill()
        parent.wait(30)
        assert until_gone(judge)


def test_a_judge_whose_parent_is_gone_before_it_looks_ends_as_well() -> None:
    with ordered() as (parent, judge):
        parent.kill()
        parent.wait(30)
        assert until_gone(judge)
