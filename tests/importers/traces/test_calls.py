"""How often an operator was called, a trace says by what called what; how long each took has no part in it."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.errors import SourceUnavailableError
from kb.importers.traces import chrome
from kb.importers.traces.chrome import Reader
from kb.importers.traces.profile import Profile
from kb.importers.traces.reading import read_trace
from kb.importers.traces.rows import reconcile
from kb.importers.traces.rules import load

RULES = load()
Call: TypeAlias = tuple[str, list["Call"]]
LINEAR: Call = (
    "aten::linear",
    [("aten::t", [("aten::transpose", [("aten::as_strided", [])])]),
     ("aten::matmul", [("aten::reshape", [("aten::view", [])]), ("aten::mm", []), ("aten::_unsafe_view", [])])],
)  # fmt: skip
NAMES = 9


def events(call: Call, own: list[float], start: float = 0.0) -> list[dict[str, Any]]:
    """Return a call and all inside it as a profiler writes them; each takes from ``own`` what it spends itself."""
    name, inside = call
    made: list[dict[str, Any]] = []
    end = start + own.pop(0)
    for one in inside:
        made += events(one, own, round(end + 0.1, 3))
        end = made[-1]["ts"] + made[-1]["dur"] + 0.1
    return [*made, {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": start, "dur": round(end - start, 3)}]


def profiled(found: list[dict[str, Any]]) -> Profile:
    reader = Reader()
    for one in found:
        reader.event(one)
    return reader.finish()


def calls(profile: Profile) -> dict[str, float]:
    rows = reconcile(profile, RULES, steps=1, phase=None).rows
    return {row.operator: row.calls_per_step or 0 for row in rows}


@pytest.mark.parametrize("slow", range(NAMES))
def test_a_call_that_leads_to_another_is_one_call_whichever_was_interrupted(slow: int) -> None:
    own = [4000.0 if place == slow else 1.0 for place in range(NAMES)]
    assert calls(profiled(events(LINEAR, own))) == {"gemm": 1, "host": 3}


@given(st.lists(st.floats(0.001, 5000.0).map(lambda one: round(one, 3)), min_size=2 * NAMES, max_size=2 * NAMES))
def test_times_change_no_number_of_calls(own: list[float]) -> None:
    first = events(LINEAR, own)
    assert calls(profiled(first + events(LINEAR, own, first[-1]["dur"] + 1.0))) == {"gemm": 2, "host": 6}


def test_two_calls_of_one_operator_inside_another_of_it_are_two() -> None:
    inside: list[Call] = [("aten::mm", []), ("aten::add", []), ("aten::mm", [])]
    assert calls(profiled(events(("aten::matmul", inside), [1.0, 2.0, 30.0, 4.0]))) == {"gemm": 2, "elementwise": 1}


def test_what_another_operator_calls_is_counted_beside_it() -> None:
    inside: list[Call] = [("aten::matmul", [("aten::bmm", [])]), ("aten::softmax", [("aten::_softmax", [])])]
    found = calls(profiled(events(("aten::scaled_dot_product_attention", inside), [1.0, 2.0, 3.0, 4.0, 50.0])))
    assert found == {"attention_prefill": 1, "gemm": 1, "batched_gemm": 1, "softmax": 1}


def test_memory_is_bounded_where_no_two_calls_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MOST_NAMES", 5)
    monkeypatch.setattr(chrome, "_DEEPEST", 20)
    file = tmp_path / "t.json"
    wide: list[dict[str, Any]] = []
    for number in range(5):
        wide += events(("aten::linear", [(f"aten::x{number}", [])]), [1.0, 1.0], 10.0 * number)
    file.write_text(json.dumps(wide), encoding="utf-8")
    assert len(read_trace(file).held) == 5
    more = events(("aten::linear", [("aten::y", [])]), [1.0, 1.0], 100.0)
    file.write_text(json.dumps(wide + more), encoding="utf-8")
    with pytest.raises(SourceUnavailableError, match="more than 5 ways"):
        read_trace(file)
    deep: Call = ("aten::t", [])
    for _ in range(20):
        deep = ("aten::t", [deep])
    file.write_text(json.dumps(events(deep, [1.0] * 21)), encoding="utf-8")
    with pytest.raises(SourceUnavailableError, match="more than 20 operations inside each other"):
        read_trace(file)
