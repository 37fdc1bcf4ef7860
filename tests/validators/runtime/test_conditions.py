"""Where a layer, memory, disk or torch is missing: the judge says so, or judges under what is left."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kb.validators.runtime import plan, processes, workplace
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("judge_under.py")
HONEST = b"""
import torch

def run(x, weight, eps=1e-6):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
"""
ZEROS = b"import torch\n\ndef run(x, weight, eps=1e-6):\n    return torch.zeros_like(x)\n"
TOUCHY = HONEST.replace(
    b"    wide = x.float()\n",
    b"    import socket\n    try:\n        socket.socket()\n    except OSError:\n        pass\n    wide = x.float()\n",
)

pytestmark = pytest.mark.timeout(240)


def under(
    *conditions: str, source: bytes = HONEST, before: tuple[str, ...] = (), **environment: str
) -> dict[str, object]:
    """Judge in a process of its own under conditions."""
    done = subprocess.run(
        [*before, sys.executable, str(SCRIPT), "rmsnorm", *conditions],
        input=source,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def active(found: dict[str, object]) -> dict[str, str]:
    sandbox = found["sandbox"]
    assert isinstance(sandbox, dict)
    return dict(sandbox["active"])


def test_without_namespaces_the_base_holds_and_the_report_says_what_is_absent() -> None:
    found = under("--refuse", f"unshare={errno.EPERM}")
    assert found["verdict"] == "accepted", found
    assert active(found)["pid"].startswith("absent: ")
    assert active(found)["network"].startswith("absent: ")
    assert active(found)["cache"].startswith("absent: ")
    assert active(found)["landlock"].startswith("ABI ")


def test_without_namespaces_what_is_wrong_or_forbidden_is_still_found() -> None:
    assert under("--refuse", f"unshare={errno.EPERM}", source=ZEROS)["verdict"] == "rejected"
    found = under("--refuse", f"unshare={errno.EPERM}", source=TOUCHY)
    assert found["reasons"] == ["forbidden_call"], found


def as_somebody() -> tuple[str, ...]:
    """Return the start of a command that runs the rest of it without root, or skip.

    An interpreter in root's own home is shown at its place in a mount namespace, for nobody could enter it otherwise.
    """
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can take another uid, with setpriv")
    who: tuple[str, ...] = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
    base = Path(sys.base_prefix).resolve()
    closed = [one for one in base.parents if not one.stat().st_mode & 0o001]
    if closed:
        steps = (
            f"shown=$(mktemp -d) && mount --bind {base} $shown && mount -t tmpfs -o mode=755 none {closed[-1]}"
            f' && mkdir -p {base} && mount --move $shown {base} && rmdir $shown && exec "$@"'
        )
        who = ("unshare", "-m", "sh", "-c", steps, "sh", *who)
    look = f"import json; open({str(SCRIPT)!r})"
    if subprocess.run([*who, sys.executable, "-c", look], check=False).returncode != 0:
        pytest.skip("another uid cannot read this checkout")
    return who


@pytest.mark.parametrize("conditions", [(), ("--refuse", f"unshare={errno.EPERM}")], ids=["userns", "no-userns"])
def test_without_root_it_works_as_well(conditions: tuple[str, ...]) -> None:
    who = as_somebody()
    own = Path(tempfile.mkdtemp(prefix="kb-test-"))
    os.chown(own, 12345, 12345)
    own.chmod(0o700)
    left = b"import os, tempfile\nopen(os.path.join(tempfile.gettempdir(), 'left'), 'w').close()\n" + HONEST
    wrote = HONEST.replace(b"wide = x.float()\n", b"wide = x.float()\n    open('/tmp/x', 'w').close()\n", 1)
    try:
        found = under(*conditions, before=who, TMPDIR=str(own), HOME=str(own))
        assert found.get("verdict") == "accepted", found
        for source, reason in ((wrote, "crashed"), (left, "wrote_files"), (TOUCHY, "forbidden_call")):
            found = under(*conditions, before=who, source=source, TMPDIR=str(own))
            assert found.get("reasons") == [reason], found
        assert list(own.iterdir()) == []
    finally:
        shutil.rmtree(own)


@pytest.mark.parametrize(
    "conditions",
    [
        ("--refuse", f"landlock_create_ruleset={errno.ENOSYS}"),
        ("--refuse", f"landlock_create_ruleset={errno.EOPNOTSUPP}"),
        ("--refuse", f"seccomp={errno.ENOSYS}"),
        ("--memory", "300"),
    ],
    ids=["no-landlock", "landlock-off", "no-seccomp", "no-memory"],
)
def test_without_the_base_there_is_no_verdict(conditions: tuple[str, ...]) -> None:
    found = under(*conditions)
    assert "verdict" not in found
    assert found["error"]
    assert "kb doctor" in str(found["hint"])


def test_without_user_notification_calls_are_refused_unseen_and_the_report_says_so() -> None:
    found = under("--no-listener", source=TOUCHY)
    assert active(found)["seccomp"] == "errno"
    assert found["verdict"] in ("accepted", "needs_review")


def test_without_room_for_files_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(JudgeError):
        judge("rmsnorm", HONEST)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_on_a_full_disk_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], check=False).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(JudgeError):
            judge("rmsnorm", HONEST, options=Options(ghosts=False))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=False)


def test_without_torch_in_the_worker_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="ascii")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(JudgeError, match="torch"):
        judge("rmsnorm", HONEST)


def test_a_reference_that_fails_is_the_judges_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = plan.draw

    def strange(operator: str, *args: object, **kwargs: object) -> plan.Plan:
        made = drawn(operator, *args, **kwargs)  # type: ignore[arg-type]
        return plan.Plan("no_such_operator", made.workloads, made.cases)

    monkeypatch.setattr(plan, "draw", strange)
    with pytest.raises(JudgeError, match="reference"):
        judge("rmsnorm", HONEST)


def test_a_killed_judge_leaves_no_process_and_its_folders_go_with_the_next_one(tmp_path: Path) -> None:
    endless = b"import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nwhile True: pass\n"
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "rmsnorm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    process.stdin.write(endless)
    process.stdin.close()
    deadline = time.monotonic() + 90
    while not spinning(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    family = processes.tree(process.pid)[1:]
    assert spinning(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while [one for one in family if state(one) != "Z"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [one for one in family if state(one) != "Z"] == []
    assert list(tmp_path.glob("kb-judge-*"))
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    try:
        workplace.sweep()
    finally:
        tempfile.tempdir = before
    assert list(tmp_path.iterdir()) == []


def spinning(judge: int) -> bool:
    """Tell whether a process below a judge has become a candidate, which has a root of its own and works hard."""
    below = [one for one in processes.tree(judge)[1:] if processes.cpu_seconds([one]) > 1]
    return any("candidate" in os.readlink(f"/proc/{one}/cwd") for one in below)  # noqa: PTH115 - of a process


def state(pid: int) -> str:
    """Return the state letter of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
