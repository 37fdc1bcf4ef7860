"""Submissions and outcomes over HTTP: filed once, on a branch, in the name of the token."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb.config import Root
from tests.server.http.conftest import QUIET, ROW, bearer, client_of

WriteEntry = Callable[..., Path]
REPOSITORY = Path(__file__).resolve().parents[3]
TARGET = "target/sam-3-1/bf16-h100"

NEGATIVE = {
    "title": "Vector loads of sixteen bytes",
    "claim": "Wider loads were expected to help a norm of short rows, and did not.",
    "operator": "rmsnorm",
    "outcome": "no_effect",
    "condition": "rows of 128 bfloat16 on an H100",
    "effect": "12.1 us instead of 12.0 us",
    "license": "CC0-1.0",
}


@pytest.fixture
def write(base: Root) -> Iterator[TestClient]:
    """Return a client that may write, of a knowledge base in git."""
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *who, *words], cwd=base.path, check=True)
    with client_of(base) as client:
        client.headers.update(bearer("write", name="agent-7"))
        yield client


def ended(client: TestClient, where: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found: dict[str, Any] = client.get(where).json()
        if found["state"] not in ("queued", "running"):
            return found
        time.sleep(0.1)
    raise AssertionError(f"no end: {client.get(where).text}")


def test_a_negative_result_is_filed_once_on_a_branch(write: TestClient, base: Root) -> None:
    accepted = write.post("/v1/submissions", json=NEGATIVE)
    assert accepted.status_code == 202
    first = ended(write, accepted.headers["location"])
    assert (first["state"], first["error"], first["verdict"]) == ("done", None, None)
    assert (first["submitted"]["state"], first["submitted"]["branch"]) == ("filed", "submissions")
    author = subprocess.run(
        ["git", "log", "-1", "--format=%an", "submissions"], cwd=base.path, check=True, capture_output=True, text=True
    )
    assert author.stdout.strip() == "agent-7"
    again = ended(write, write.post("/v1/submissions", json=NEGATIVE).headers["location"])
    assert again["submitted"]["state"] == "unchanged"
    assert again["submitted"]["commit"] == first["submitted"]["commit"]
    assert [one["state"] for one in write.get("/v1/submissions").json()["items"]] == ["done", "done"]
    assert write.get("/v1/judgements").status_code == 403


def test_submissions_go_to_the_branch_that_the_server_was_given(write: TestClient, base: Root) -> None:
    with client_of(base, replace(QUIET, branch="from/agents")) as client:
        client.headers.update(bearer("write", name="agent-8"))
        filed = ended(client, client.post("/v1/submissions", json=NEGATIVE).headers["location"])["submitted"]
    assert (filed["state"], filed["branch"]) == ("filed", "from/agents")
    branches = subprocess.run(
        ["git", "branch", "--format=%(refname:short)"], cwd=base.path, check=True, capture_output=True, text=True
    )
    assert sorted(branches.stdout.split()) == ["from/agents", "main"]
    log = ["git", "log", "--format=%an", "main..from/agents"]
    assert subprocess.run(log, cwd=base.path, check=True, capture_output=True, text=True).stdout.split() == ["agent-8"]


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"condition": None}, 422, "needs condition and effect"),
        ({"outcome": "works"}, 422, "source is missing"),
        ({"outcome": "great"}, 422, "body.outcome"),
        ({"parents": ["../../etc"]}, 422, "is no id"),
        ({"title": "x"}, 422, "body.title"),
        ({"figure": {"latency_us": -1, "device": "x", "workload": "y"}}, 422, "latency_us"),
        ({"source": "def run(x):\n    return x\n"}, 403, "does not have the scope judge"),
    ],
)
def test_what_cannot_be_filed_is_refused_at_once(
    write: TestClient, changes: dict[str, object], status: int, said: str
) -> None:
    answer = write.post("/v1/submissions", json={**NEGATIVE, **changes})
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_without_git_nothing_is_filed_and_the_reason_said(base: Root) -> None:
    with client_of(base) as client:
        client.headers.update(bearer("write"))
        found = ended(client, client.post("/v1/submissions", json=NEGATIVE).headers["location"])
        assert (found["state"], found["submitted"]) == ("failed", None)
        assert found["error"]["error"] == "HistoryError"


def test_an_outcome_is_stored_once_and_needs_proof_to_be_won(write: TestClient) -> None:
    report = {"entry": ROW, "target": "target/nothing/there", "result": "neutral"}
    missing = write.post("/v1/outcomes", json=report)
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert write.post("/v1/outcomes", json={**report, "result": "great"}).status_code == 422
    assert write.post("/v1/outcomes", json={**report, "entry": "../../x"}).status_code in (404, 422)


def test_the_same_outcome_again_is_no_new_one(base: Root) -> None:
    shutil.copytree(REPOSITORY / "entries" / TARGET, base.entries / TARGET)
    with client_of(base) as client:
        client.headers.update(bearer("write"))
        report = {"entry": ROW, "target": TARGET, "result": "lost", "note": "slower by a tenth"}
        first, again = client.post("/v1/outcomes", json=report), client.post("/v1/outcomes", json=report)
        assert (first.status_code, again.status_code) == (201, 200)
        assert (first.json()["new"], again.json()["new"]) == (True, False)
        assert {**first.json(), "new": False} == again.json()
        unknown = client.post("/v1/outcomes", json={**report, "nte": "x"})
        assert (unknown.status_code, unknown.json()["detail"]) == (422, "body.nte: no such member")
        assert unknown.json()["hint"].startswith("did you mean note? known: entry, target")


def test_a_read_only_server_takes_none(base: Root) -> None:
    with client_of(base, replace(QUIET, read_only=True)) as client:
        client.headers.update(bearer("write"))
        assert client.post("/v1/submissions", json=NEGATIVE).status_code == 403
