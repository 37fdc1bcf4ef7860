"""The page stands at every address that a person may open, its files have types, and nothing else is served."""

import re

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb.server.http.pages import PAGE
from tests.server.http.conftest import QUIET, ROW, client_of

HTML = {"Accept": "text/html,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/", "/?q=x", f"/entry/{ROW}", "/matrix", "/targets", "/target/a/b", "/campaigns"])
def test_every_address_of_the_page_has_its_document(ask: TestClient, path: str) -> None:
    answer = ask.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "<title>kernel-kb</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"


def test_the_policy_lets_nothing_in_from_elsewhere_and_no_text_become_code(ask: TestClient) -> None:
    answer = ask.get("/")
    rules = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert rules["img-src"] == "'self' data:"
    assert {rules[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert (rules["require-trusted-types-for"], rules["trusted-types"]) == ("'script'", "'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_files_have_their_types_and_tags(ask: TestClient) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
    for file in sorted(PAGE.iterdir()):
        answer = ask.get(f"/{file.name}")
        assert answer.headers["content-type"].split(";")[0] == types[file.suffix], file.name
        again = ask.get(f"/{file.name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code in (200, 304)


def test_unknown_addresses_are_a_page_for_people_and_a_problem_for_programs(ask: TestClient) -> None:
    person = ask.get("/nowhere", headers=HTML)
    assert (person.status_code, person.headers["content-type"].split(";")[0]) == (404, "text/html")
    program = ask.get("/nowhere.js")
    assert program.status_code == 404
    assert program.headers["content-type"].startswith("application/problem+json")
    assert ask.get("/v1/nowhere").headers["content-type"].startswith("application/problem+json")


@pytest.mark.parametrize(
    "path", ["/../http/app.py", "/%2e%2e/http/app.py", "/..%2fhttp%2fapp.py", "/%5c..%5chttp", "//etc/passwd"]
)
def test_nothing_outside_the_folder_is_served(ask: TestClient, path: str) -> None:
    answer = ask.get(path)
    assert answer.status_code in (400, 404, 405)
    assert "import" not in answer.text


def test_the_page_itself_needs_no_token_and_its_data_does(base: object) -> None:
    from dataclasses import replace

    settings = replace(QUIET, host="0.0.0.0", allow_hosts=("localhost",))  # noqa: S104 - not bound
    with client_of(base, settings) as ask:  # type: ignore[arg-type]
        assert ask.get("/").status_code == 200
        assert ask.get("/main.js").status_code == 200
        assert ask.get("/v1/search?q=x").status_code == 401


def test_the_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_text() -> None:
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function)", text) == []
        outside = re.findall(r"""(?:src|href|from|import|url)\s*[=(]?\s*["']?(https?:|//)""", text)
        assert outside == [], file.name
        assert len(text.splitlines()) <= 400, file.name
    shell = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", shell) == []


def test_every_module_that_is_imported_is_there() -> None:
    for file in PAGE.glob("*.js"):
        for name in re.findall(r'from "/([^"]+)"', file.read_text(encoding="utf-8")):
            assert (PAGE / name).is_file(), (file.name, name)
    shell = (PAGE / "index.html").read_text(encoding="utf-8")
    for name in re.findall(r'(?:src|href)="/([\w.]+\.(?:js|css|svg))"', shell):
        assert (PAGE / name).is_file(), name
