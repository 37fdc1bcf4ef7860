"""``kb serve`` as a process: says where it listens, refuses what is unsafe, ends when told."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import httpx2

from kb import launch
from kb.config import Root
from kb.service.tokens import new_token

PROGRAM = [sys.executable, "-c", "import sys; from kb.launch import main; sys.exit(main())"]


def started(base: Root, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server on a free port; return it and its address, as it says it."""
    process, line = process_of(base, *options)
    return process, line.split(" at ")[1].split(" ")[0]


def process_of(base: Root, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server on a free port; return it and what it says first."""
    command = [*PROGRAM, "serve", "--port", "0", "--bare", "--root", str(base.path), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("kb serves "), line
    return process, line


def test_it_says_where_it_listens_and_ends_when_told(base: Root) -> None:
    process, url = started(base)
    try:
        assert url.startswith("http://127.0.0.1:")
        for _ in range(100):
            try:
                assert httpx2.get(f"{url}/v1/search?q=rmsnorm", timeout=20).json()["hits"]
                break
            except httpx2.TransportError:
                time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in said


def test_tokens_that_ran_out_are_not_counted_as_tokens(base: Root, capsys: pytest.CaptureFixture[str]) -> None:
    new_token("old", ["write"], days=1e-7)
    time.sleep(0.1)
    assert launch.main(["serve", "--host", "0.0.0.0", "--port", "0", "--root", str(base.path)]) == 2  # noqa: S104
    assert "there are no tokens" in capsys.readouterr().err
    process, line = process_of(base)
    process.terminate()
    process.communicate(timeout=30)
    assert "(read-only, 1 more ran out: kb token list)" in line


def test_a_branch_whose_name_is_none_is_refused_at_the_start(base: Root, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["serve", "--port", "0"], ["mcp"]):
        assert launch.main([*command, "--branch", "a..b", "--root", str(base.path)]) == 2
        assert "'a..b' is no name of a branch" in capsys.readouterr().err


def test_a_public_address_without_tokens_is_refused(base: Root, capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("0.0.0.0", "::", "198.51.100.1", "example.org"):  # noqa: S104 - what is to be refused
        assert launch.main(["serve", "--host", host, "--port", "0", "--root", str(base.path)]) == 2
        said = capsys.readouterr().err
        assert "can be reached from other machines, and there are no tokens" in said
        assert "hint: kb token new NAME --scope read" in said


def test_a_taken_port_is_named(base: Root, capsys: pytest.CaptureFixture[str]) -> None:
    process, url = started(base)
    try:
        port = url.rpartition(":")[2]
        assert launch.main(["serve", "--port", port, "--bare", "--root", str(base.path)]) == 2
        assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_without_the_extra_it_says_what_to_install(base: Root, tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('none', name='fastapi')\n", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*PROGRAM, "serve", "--root", str(base.path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "fastapi is not installed" in done.stderr
    assert 'pip install "kernel-kb[serve]"' in done.stderr
