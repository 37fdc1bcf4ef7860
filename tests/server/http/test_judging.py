"""Judgements over HTTP: in their turn, in a process of their own, ended when their owner says so."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("torch")

from starlette.testclient import TestClient

from kb.config import Root
from kb.server.http.settings import Limits
from tests.server.http.conftest import QUIET, bearer, client_of

SILU = "import torch\n\n\ndef run(x):\n    return (x.double() / (1 + torch.exp(-x.double()))).to(x.dtype)\n"
ENDLESS = "import time\n\nwhile True:\n    time.sleep(1)\n"
HOSTILE = """import os, signal, socket, subprocess, sys

found = []
try:
    os.kill(os.getppid(), signal.SIGKILL)
    found.append("killed its parent")
except Exception:
    pass
try:
    os.killpg({server}, signal.SIGKILL)
    os.kill({server}, signal.SIGKILL)
    found.append("killed the server")
except Exception:
    pass
try:
    open({secret!r}).read()
    found.append("read the tokens")
except Exception:
    pass
try:
    open({proof!r}, "w").write("was here")
except Exception:
    pass
try:
    socket.create_connection(("127.0.0.1", 80), timeout=1)
    found.append("has a network")
except Exception:
    pass
print(found)


def run(x):
    print('{{"report": {{"verdict": "accepted"}}}}')
    sys.stdout.flush()
    return x.new_zeros(x.shape)
"""


@pytest.fixture
def judge(base: Root) -> Iterator[TestClient]:
    """Return a client whose token may judge, of a server that takes little."""
    limits = Limits(queued=2, queued_each=3, judging_s=120)
    with client_of(base, replace(QUIET, limits=limits)) as client:
        client.headers.update(bearer("judge"))
        yield client


def order(source: str, **more: object) -> dict[str, object]:
    return {"operator": "silu", "source": source, "dtypes": ["float32"], **more}


def ended(judge: TestClient, where: str, seconds: float = 120) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found: dict[str, Any] = judge.get(where).json()
        if found["state"] not in ("queued", "running"):
            return found
        time.sleep(0.2)
    raise AssertionError(f"no end: {judge.get(where).text}")


def test_a_judgement_ends_with_the_judges_verdict(judge: TestClient) -> None:
    accepted = judge.post("/v1/judgements", json=order(SILU, ghosts=False))
    assert accepted.status_code == 202
    where = accepted.headers["location"]
    assert accepted.json()["state"] in ("queued", "running")
    found = ended(judge, where)
    assert (found["state"], found["verdict"], found["error"]) == ("done", "accepted", None)
    assert found["report"]["operator"] == "silu"
    assert found["progress"]
    listed = judge.get("/v1/judgements").json()["items"]
    assert [(one["id"], one["verdict"], one["report"]) for one in listed] == [(found["id"], "accepted", None)]
    assert judge.get(where, headers=bearer("judge", name="another")).status_code == 404
    assert 'kb_judgements_total{ending="accepted"} 1.0' in judge.get("/metrics").text
    assert judge.delete(where).json()["state"] == "done"


def test_a_hostile_candidate_reaches_nothing(judge: TestClient, base: Root, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    secret = os.environ["KB_CONFIG_DIR"] + "/tokens.json"
    source = HOSTILE.format(server=os.getpid(), secret=secret, proof=str(proof))
    found = ended(judge, judge.post("/v1/judgements", json=order(source)).headers["location"])
    assert (found["state"], found["verdict"]) == ("done", "rejected")
    assert not proof.exists()
    assert judge.get("/v1").json()["entries"] == 3
    said = str(found["report"])
    for sin in ("killed its parent", "killed the server", "read the tokens", "has a network"):
        assert sin not in said


def test_the_queue_is_bounded_and_cancelling_frees_it(judge: TestClient) -> None:
    first = judge.post("/v1/judgements", json=order(ENDLESS)).headers["location"]
    until = time.monotonic() + 30
    while judge.get(first).json()["state"] != "running" and time.monotonic() < until:
        time.sleep(0.05)
    waiting = [judge.post("/v1/judgements", json=order(ENDLESS)) for _ in range(2)]
    assert [one.json()["before"] for one in waiting] == [0, 1]
    full = judge.post("/v1/judgements", json=order(SILU))
    assert (full.status_code, full.headers["content-type"]) == (429, "application/problem+json")
    assert int(full.headers["retry-after"]) >= 1
    assert judge.delete(waiting[0].headers["location"]).json()["state"] == "cancelled"
    assert judge.get(waiting[1].headers["location"]).json()["before"] == 0
    began = time.monotonic()
    assert judge.delete(first).json()["state"] == "cancelled"
    assert time.monotonic() - began < 15
    assert judge.delete(waiting[1].headers["location"]).json()["state"] == "cancelled"
    assert judge.delete(first).json()["state"] == "cancelled"
    assert "kb_judgements_running 0.0" in judge.get("/metrics").text


def test_what_takes_too_long_is_ended(base: Root) -> None:
    with client_of(base, replace(QUIET, limits=Limits(judging_s=1.0))) as judge:
        judge.headers.update(bearer("judge"))
        found = ended(judge, judge.post("/v1/judgements", json=order(ENDLESS)).headers["location"], 30)
        assert (found["state"], found["verdict"]) == ("timed_out", None)
        assert found["error"]["message"] == "the judgement took longer than 1 s"


def test_a_judge_that_cannot_work_says_so_and_nothing_of_the_candidate(judge: TestClient) -> None:
    found = ended(judge, judge.post("/v1/judgements", json=order(SILU, device="cuda:63")).headers["location"])
    assert (found["state"], found["verdict"]) == ("failed", None)
    assert found["error"]["error"] == "DeviceUnavailableError"
    assert found["error"]["hint"] == "device = cpu"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"operator": "nothing"}, 404),
        ({"operator": "../silu"}, 404),
        ({"source": ""}, 422),
        ({"source": "x" * ((1 << 20) + 1)}, 422),
        ({"source": 7}, 422),
        ({"device": "cuda"}, 422),
        ({"device": "cpu; rm -rf /"}, 422),
        ({"dtypes": ["float33"]}, 422),
        ({"dtypes": []}, 422),
        ({"more": 1}, 422),
    ],
)
def test_what_cannot_be_judged_is_refused(judge: TestClient, changes: dict[str, object], status: int) -> None:
    answer = judge.post("/v1/judgements", json={**order(SILU), **changes})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_bodies_that_are_no_json_are_refused(judge: TestClient) -> None:
    surrogate = json.dumps(order("\ud800")).encode("ascii")
    for body in (b"{", b"[" * 50_000, b"\xff\xfe", b"x=1", b"null", b"[]", surrogate):
        for kind in ("application/json", "text/plain"):
            answer = judge.post("/v1/judgements", content=body, headers={"Content-Type": kind})
            assert answer.status_code in ((400, 422) if kind == "application/json" else (415,)), body[:10]
            assert answer.headers["content-type"] == "application/problem+json"
    assert judge.post("/v1/judgements", content=b"a" * (3 << 20)).status_code == 413
    assert judge.get("/v1/judgements/0123456789abcdef").status_code == 404
    assert judge.get("/v1/judgements/..%2f..").status_code in (404, 422)
