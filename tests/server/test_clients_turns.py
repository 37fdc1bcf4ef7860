"""Judgements ordered over HTTP and by agents at /mcp take turns: they share one runner."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("mcp")

from kb.config import Root
from kb.server.http import judging
from kb.server.http.settings import Settings
from kb.server.http.state import State
from kb.service.judging_apart import Order

SOURCE = "def run(x):\n    return x\n"


@pytest.mark.parametrize("judges", [1, 2])
def test_no_more_judge_at_once_than_may_wherever_they_were_ordered(
    root: Root, monkeypatch: pytest.MonkeyPatch, judges: int
) -> None:
    now, most, guard = 0, 0, threading.Lock()

    def counted(*_given: object, **_more: object) -> Mapping[str, Any]:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with guard:
            now -= 1
        return {"verdict": "accepted"}

    monkeypatch.setattr(judging, "judge_apart", counted)  # what is tested is who waits, not what a judge says
    settings = Settings(semantic=False)
    state = State(root, replace(settings, limits=replace(settings.limits, judges=judges)))
    order = Order("silu", SOURCE)
    agents = [threading.Thread(target=state.knowledge.judge, args=("silu", SOURCE)) for _ in range(3)]
    others = [threading.Thread(target=state.queue.judge, args=(order, None, None)) for _ in range(3)]
    for one in (*agents, *others):
        one.start()
    for one in (*agents, *others):
        one.join()
    state.close()
    assert 1 <= most <= judges
