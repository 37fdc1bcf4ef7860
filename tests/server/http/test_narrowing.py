"""Searches and lists are narrowed by language, evidence and what runs, in the same order and with right counts."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb.config import Root
from kb.models.vocabulary import RUNNABLE
from tests.conftest import FACTS
from tests.server.http.conftest import ROW, client_of

WriteEntry = Callable[..., Path]


@pytest.fixture
def mixed(root: Root, write_entry: WriteEntry) -> Root:
    """Return a knowledge base of sixty kernels, every third one in CUDA, for two architectures."""
    for number in range(60):
        facts = FACTS.format(version=1, operator="rmsnorm")
        if number % 3 == 0:
            facts = facts.replace('"triton"', '"cuda"')
        if number % 2 == 0:
            facts = facts.replace('["sm_90"]', '["sm_100"]')
        write_entry(root.entries, f"kernel/rmsnorm/variant-{number}", facts=facts)
    return root


def test_a_narrowed_search_is_the_whole_one_without_the_rest(mixed: Root) -> None:
    with client_of(mixed) as ask:
        whole = [hit["id"] for hit in ask.get("/v1/search?q=rmsnorm&limit=200").json()["hits"]]
        seen: list[str] = []
        where: str | None = "/v1/search?q=rmsnorm&language=cuda&limit=6&counts=true"
        while where is not None:
            page = ask.get(where).json()
            assert page["counts"]["language"] == {"cuda": 20}
            seen += [hit["id"] for hit in page["hits"]]
            where = page["next"]
        assert seen == [one for one in whole if int(one.rpartition("-")[2]) % 3 == 0]


def test_only_what_runs_on_a_device(mixed: Root) -> None:
    with client_of(mixed) as ask:
        for path in ("/v1/search?q=rmsnorm&", "/v1/entries?"):
            found = ask.get(f"{path}device=H100&runs=true&limit=200&counts=true").json()
            rows = found["hits"] if "hits" in found else found["items"]
            all_of_them = ask.get(f"{path}device=H100&limit=200").json()
            whole = all_of_them["hits"] if "hits" in all_of_them else all_of_them["items"]
            runs = [row["id"] for row in whole if row["transfer"] in RUNNABLE]
            assert [row["id"] for row in rows] == runs
            # CUDA that was written for another architecture does not run; Triton is compiled anew.
            assert len(runs) == 50
            assert set(found["counts"]["transfer"]) <= RUNNABLE
        assert ask.get("/v1/matrix?language=cuda&devices=H100").json()["total"] == 20


def test_a_list_counts_all_of_its_entries_and_families_of_operators(mixed: Root) -> None:
    with client_of(mixed) as ask:
        found = ask.get("/v1/entries?limit=1&counts=true").json()
        assert found["counts"]["family"] == {"norm": 60}
        assert found["counts"]["language"] == {"triton": 40, "cuda": 20}
        assert ask.get("/v1/entries?limit=1").json()["counts"] is None
        assert ask.get("/v1/facets").json()["values"]["family"] == {"norm": 60}


def test_what_emptied_an_answer_is_said(mixed: Root) -> None:
    with client_of(mixed) as ask:
        found = ask.get("/v1/search?q=rmsnorm&evidence=measured&language=cuda").json()
        assert found["hits"] == []
        assert found["empty_because"] == "nothing of what was found has: language cuda, evidence of at least measured"
        assert found["next"] is None


@pytest.mark.parametrize("query", ["language=cobol", "evidence=true", "runs=true", "runs=maybe&device=H100"])
def test_values_that_are_none_are_refused(ask: TestClient, query: str) -> None:
    answer = ask.get(f"/v1/search?q=rmsnorm&{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/problem+json")


def test_evidence_is_a_least_level(ask: TestClient) -> None:
    assert ask.get("/v1/search?q=rmsnorm&evidence=documented").json()["hits"][0]["id"] == ROW
    assert ask.get("/v1/search?q=rmsnorm&evidence=reported").json()["hits"] == []
