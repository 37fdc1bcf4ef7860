"""What can be read over HTTP is what the shell says, in pages, with tags, and with errors that say the next step."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb import launch
from kb.config import Root
from tests.server.http.conftest import QUIET, ROW, bearer, client_of

WriteEntry = Callable[..., Path]


def git(root: Root, *words: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *words], cwd=root.path, check=True, capture_output=True)


def test_a_search_finds_what_the_shell_finds(base: Root, ask: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["search", "rmsnorm", "--device", "H100", "--json", "--root", str(base.path)]) == 0
    shell = json.loads(capsys.readouterr().out)
    found = ask.get("/v1/search", params={"q": "rmsnorm", "device": "H100"}).json()
    more = {"offset": 0, "next": None, "counts": None}
    assert found["hits"]
    assert {**found, "took_ms": 0} == {**shell, "took_ms": 0, **more}


def test_pages_of_a_search_are_the_whole_search_in_its_order(root: Root, write_entry: WriteEntry) -> None:
    for number in range(60):
        write_entry(root.entries, f"kernel/rmsnorm/variant-{number}")
    with client_of(root) as ask:
        seen: list[str] = []
        where: str | None = "/v1/search?q=rmsnorm&limit=7"
        while where is not None:
            page = ask.get(where).json()
            seen += [hit["id"] for hit in page["hits"]]
            where = page["next"]
        assert len(seen) == len(set(seen)) == 60
        assert seen[:20] == [hit["id"] for hit in ask.get("/v1/search?q=rmsnorm&limit=20").json()["hits"]]


def test_facets_are_counted_among_all_that_was_found(root: Root, write_entry: WriteEntry) -> None:
    for number in range(12):
        write_entry(root.entries, f"kernel/rmsnorm/variant-{number}")
    with client_of(root) as ask:
        counts = ask.get("/v1/search?q=rmsnorm&limit=2&counts=true").json()["counts"]
        assert counts["kind"] == {"kernel": 12}
        assert counts["dtype"] == {"bfloat16": 12}
        assert counts["operator"] == {"rmsnorm": 12}


def test_a_list_has_pages_and_filters(ask: TestClient) -> None:
    first = ask.get("/v1/entries?limit=2").json()
    assert (first["total"], len(first["items"])) == (3, 2)
    second = ask.get(first["next"]).json()
    assert second["next"] is None
    assert [one["id"] for one in first["items"] + second["items"]] == sorted(
        [ROW, "kernel/layernorm/two-moment", "kernel/softmax/online-row"]
    )
    assert [one["id"] for one in ask.get("/v1/entries?operator=rmsnorm").json()["items"]] == [ROW]


def test_an_entry_comes_with_prose_and_code_as_data(ask: TestClient) -> None:
    answer = ask.get(f"/v1/entries/{ROW}")
    found = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert found["contents"] == {"kernel.py": "def run(x):\n    return x\n"}
    assert "<script>" in found["readme"]
    assert found["links"]["evidence"] == f"/v1/entries/{ROW}/evidence"


def test_a_new_entry_is_seen_by_the_next_question(base: Root, ask: TestClient, write_entry: WriteEntry) -> None:
    for number in range(5):
        slug = f"kernel/rmsnorm/new-{number}"
        assert ask.get(f"/v1/entries/{slug}").status_code == 404
        write_entry(base.entries, slug)
        assert ask.get(f"/v1/entries/{slug}").status_code == 200
        assert slug in [hit["id"] for hit in ask.get("/v1/search?q=rmsnorm").json()["hits"]]


def test_a_changed_file_is_seen_by_the_next_question(base: Root, ask: TestClient) -> None:
    facts = base.entries / ROW / "entry.toml"
    for title in ("First", "Secnd", "Third"):
        facts.write_text(facts.read_text().replace(facts.read_text().split('"')[1], title), encoding="utf-8")
        assert ask.get(f"/v1/entries/{ROW}").json()["title"] == title


def test_what_the_client_has_is_not_sent_again_until_it_changes(
    base: Root, ask: TestClient, write_entry: WriteEntry
) -> None:
    places = ("/v1/search?q=rmsnorm", "/v1/entries", f"/v1/entries/{ROW}", "/v1/matrix?devices=H100", "/v1/facets")
    for place in places:
        tag = ask.get(place).headers["etag"]
        again = ask.get(place, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    tag = ask.get("/v1/entries").headers["etag"]
    write_entry(base.entries, "kernel/rmsnorm/another")
    assert ask.get("/v1/entries", headers={"If-None-Match": tag}).status_code == 200
    assert ask.get("/v1/search?q=rmsnorm", headers={"If-None-Match": '"x"'}).status_code == 200


def test_versions_and_their_difference_come_from_git(base: Root, write_entry: WriteEntry) -> None:
    git(base, "init", "-q")
    git(base, "add", "-A")
    git(base, "commit", "-qm", "first")
    write_entry(base.entries, ROW, version=2, kernel="def run(x):\n    return x + 0\n")
    git(base, "commit", "-qam", "second")
    with client_of(base) as ask:
        found = ask.get(f"/v1/entries/{ROW}/versions").json()
        assert [(one["version"], one["subject"]) for one in found["versions"]] == [(2, "second"), (1, "first")]
        old = ask.get(f"/v1/entries/{ROW}?version=1").json()
        assert old["contents"]["kernel.py"].endswith("return x\n")
        assert old["commit"]
        lines = ask.get(f"/v1/entries/{ROW}/diff?old=1").json()["lines"]
        assert "+    return x + 0" in lines
        assert ask.get(f"/v1/entries/{ROW}/diff?old=7").status_code == 404


def test_without_git_there_is_one_version_and_a_reason(ask: TestClient) -> None:
    found = ask.get(f"/v1/entries/{ROW}/versions").json()
    assert [one["version"] for one in found["versions"]] == [1]
    assert (found["complete"], bool(found["note"])) == (False, True)


def test_evidence_figures_lineage_and_the_matrix_have_their_forms(ask: TestClient) -> None:
    proven = ask.get(f"/v1/entries/{ROW}/evidence?device=H100").json()
    assert proven["lines"][0]["transfer"] == "recompile"
    assert ask.get(f"/v1/entries/{ROW}/figures").json()["timings"] == []
    graph = ask.get(f"/v1/entries/{ROW}/lineage").json()
    assert [(node["id"], node["distance"]) for node in graph["nodes"]] == [(ROW, 0)]
    matrix = ask.get("/v1/matrix?devices=H100&devices=B200&kind=kernel&limit=2").json()
    assert (matrix["total"], len(matrix["items"]), len(matrix["devices"])) == (3, 2, 2)
    assert {cell["transfer"] for row in matrix["items"] for cell in row["cells"]} == {"recompile", "retune"}


def test_hardware_and_facets_are_complete(ask: TestClient) -> None:
    names = {one["name"] for one in ask.get("/v1/hardware").json()["items"]}
    assert {"H100-SXM", "GB200", "CPU"} <= names
    facets = ask.get("/v1/facets").json()
    assert facets["total"] == 3
    assert facets["values"]["operator"] == {"layernorm": 1, "rmsnorm": 1, "softmax": 1}
    assert facets["values"]["kind"]["comm"] == 0


@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("/v1/search", 422, "query.q: field required"),
        ("/v1/search?q=", 422, "query.q"),
        ("/v1/search?q=%20", 400, "the query is empty"),
        ("/v1/search?q=x&limit=0", 422, "query.limit"),
        ("/v1/search?q=x&limit=1e9", 422, "query.limit"),
        ("/v1/search?q=x&lmit=3", 422, "query.lmit: no such parameter"),
        ("/v1/search?q=x&kind=kernle", 400, "no kind is called 'kernle'"),
        ("/v1/search?q=x&device=H1000", 404, "no device is called 'H1000'"),
        ("/v1/entries/kernel/rmsnorm/row-per-ct", 404, "no entry has the id"),
        ("/v1/entries/kernel/rmsnorm/..%2f..%2f..%2fetc%2fpasswd", 404, ""),
        ("/v1/entries/kernel/..%5c../x", 404, ""),
        ("/v1/entries/kernel/rmsnorm/row-per-cta%00", 404, ""),
        (f"/v1/entries/{ROW}?version=0", 422, "query.version"),
        (f"/v1/entries/{ROW}/records/..%2f..%2fentry.toml", 404, ""),
        (f"/v1/entries/{ROW}/records/entry.toml", 422, "path.record"),
        (f"/v1/entries/{ROW}/records/2026-01-01-cpu-0123456789ab.json", 404, "has no record"),
        ("/v1/matrix?devices=nothing", 404, "no device is called 'nothing'"),
        ("/v1/nothing", 404, "there is nothing at /v1/nothing"),
    ],
)
def test_an_error_is_a_problem_document(ask: TestClient, place: str, status: int, said: str) -> None:
    answer = ask.get(place)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert said in problem["detail"]
    assert set(problem) - {"errors"} == {"type", "title", "status", "detail", "hint", "error"}
    assert problem["hint"]
    assert "Traceback" not in answer.text
    assert "/entries/kernel/.." not in answer.text


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("/v1/search?q=x&lmit=3", "did you mean limit? known: kind, operator, dtype"),
        (f"/v1/entries/{ROW}/evidence?devce=H100", "did you mean device? known: device"),
        ("/v1/facets?x=1", "this route takes no parameters"),
        ("/v1/entries?zzz=1", "known: kind, operator"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_known_ones(ask: TestClient, place: str, hint: str) -> None:
    answer = ask.get(place)
    assert answer.status_code == 422
    assert answer.json()["hint"].startswith(hint)
    assert answer.json()["errors"][0]["message"] == "no such parameter"


@pytest.mark.parametrize(
    ("method", "place", "takes"),
    [
        ("PUT", "/v1/search", "GET, HEAD"),
        ("GET", "/v1/outcomes", "POST"),
        ("DELETE", "/v1/judgements", "GET, HEAD, POST"),
        ("DELETE", "/style.css", "GET, HEAD"),
    ],
)
def test_another_method_is_refused_with_those_that_there_are(base: Root, method: str, place: str, takes: str) -> None:
    with client_of(base) as ask:
        answer = ask.request(method, place, headers=bearer("read", "write", "judge"))
    assert (answer.status_code, answer.headers["allow"]) == (405, takes)
    assert answer.json()["hint"] == f"it takes {takes}"
    assert answer.json()["error"] == "MethodNotAllowed"


def test_a_damaged_catalogue_is_mended_without_anyone_noticing(base: Root, ask: TestClient) -> None:
    assert ask.get("/v1/search?q=rmsnorm").status_code == 200
    (base.path / ".kb" / "catalogue.db").unlink()
    assert ask.get("/v1/search?q=rmsnorm").json()["hits"]
    (base.path / ".kb" / "catalogue.db").write_bytes(b"nothing of the kind")
    assert ask.get("/v1/search?q=layernorm").json()["hits"]


def test_the_document_has_examples_and_every_answer_its_form(ask: TestClient) -> None:
    document = ask.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    search = document["paths"]["/v1/search"]["get"]
    assert next(one for one in search["parameters"] if one["name"] == "q")["schema"]["examples"]
    assert "example" in document["components"]["schemas"]["ProblemDocument"]
    for path, methods in document["paths"].items():
        for method in methods.values():
            assert method.get("description"), path


def test_liveness_needs_nothing_and_metrics_count(ask: TestClient) -> None:
    assert ask.get("/healthz").json() == {"status": "ok"}
    ask.get("/v1/search?q=rmsnorm")
    ask.get("/v1/made/up/by/a/client")
    text = ask.get("/metrics").text
    assert 'kb_http_requests_total{method="GET",route="/v1/search",status="200"} 1.0' in text
    assert "made" not in text


def test_the_server_says_what_it_is(base: Root, ask: TestClient) -> None:
    about = ask.get("/v1").json()
    assert (about["entries"], about["meaning"], about["scopes"]) == (3, "off", ["read"])
    (base.entries / "kernel" / "rmsnorm" / "broken").mkdir()
    (base.entries / "kernel" / "rmsnorm" / "broken" / "entry.toml").write_text("schema = ", encoding="utf-8")
    assert len(ask.get("/v1").json()["left_out"]) == 1
    assert QUIET.is_loopback
