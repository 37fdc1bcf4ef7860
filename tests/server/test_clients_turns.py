"""Judgements take turns: those ordered over HTTP and at /mcp share one runner, those of several servers a lock."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("mcp")

from kb.config import Root
from kb.server.http import judging
from kb.server.http.settings import Settings
from kb.server.http.state import State
from kb.service.judging_apart import Order
from tests.server.talking import Wire, below, starter_in_git, until
from tests.service.test_device_locking import held

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


def test_an_agent_that_waits_for_another_process_can_give_up(tmp_path: Path) -> None:
    wire = Wire(starter_in_git(tmp_path / "base"))
    try:
        with held("cpu"):
            wire.call(1, "judge", operator="silu", source=SOURCE)
            wire.call(2, "search", query="silu")
            assert wire.reply(2) is not None
            assert wire.reply(1, seconds=2) is None
            assert below(wire.process.pid) == set()
            wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            wire.call(3, "judge", operator="silu", source="")
            refused = wire.reply(3)
            assert refused is not None
            assert "expected the source" in refused["result"]["content"][0]["text"]
        # Had it not been given up, it would be its turn now.
        assert not until(lambda: bool(below(wire.process.pid)), seconds=2)
    finally:
        wire.close()
    assert wire.process.returncode == 0
