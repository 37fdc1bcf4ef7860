"""What the OpenAPI document promises: no request that fits it, or nearly fits it, is answered with a server error."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import hypothesis
import schemathesis
from starlette.testclient import TestClient

from kb.config import Root
from kb.server.http.app import make_app
from kb.server.http.running import guarded
from kb.server.http.state import State
from tests.server.http.conftest import QUIET, ROW, bearer

WriteEntry = Callable[..., Path]

EXAMPLES = 8
"""Of each kind, for each of some twenty operations: a few hundred requests in all."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the document of a server; it does not depend on what is served."""
    state = State(Root(Path("/nonexistent")), QUIET)
    try:
        return make_app(state).openapi()
    finally:
        state.close()


@pytest.fixture
def everything(root: Root, write_entry: WriteEntry) -> Iterator[TestClient]:
    """Return a client that may do everything but judge, which takes processes."""
    write_entry(root.entries, ROW)
    write_entry(root.entries, "kernel/softmax/online-row")
    with TestClient(guarded(State(root, QUIET)), base_url="http://localhost", raise_server_exceptions=False) as client:
        client.headers.update(bearer("read", "write"))
        yield client


def test_no_request_is_answered_with_a_server_error(everything: TestClient, document: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_dict(document)
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    asked = 0
    results: Any = schema.get_all_operations()
    for operation in (found.ok() for found in results):
        if operation.path.startswith(("/v1/operators", "/v1/judgements", "/v1/submissions")):
            continue  # the first call of one takes a process with torch, each of the others a judge
        strategies = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]
        for strategy in strategies:

            @settings
            @hypothesis.given(case=strategy)
            def attempt(case: Any) -> None:  # noqa: ANN401 - a case of schemathesis
                nonlocal asked
                asked += 1
                answer = everything.request(**_plain(case))
                assert answer.status_code < 500, (case.method, case.formatted_path, answer.text)
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == "application/problem+json"

            with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # some have nothing that could be wrong
                attempt()
    assert asked > 100


def _plain(case: Any) -> dict[str, Any]:  # noqa: ANN401 - a case of schemathesis
    """Return a case as the arguments of a client's request."""
    given = case.as_transport_kwargs(base_url="http://localhost")
    kept = {name: given[name] for name in ("method", "url", "params", "json", "headers") if given.get(name) is not None}
    return kept | ({} if given.get("data") is None else {"content": str(given["data"]).encode("utf-8", "replace")})
