"""A server that is killed in the middle of submissions loses nothing that it acknowledged; two at once both arrive."""

from pathlib import Path

import pytest

pytest.importorskip("mcp")

from kb.config import Root
from tests.server import killing
from tests.server.talking import Wire, git, starter_in_git


@pytest.fixture
def base(tmp_path: Path) -> Root:
    return starter_in_git(tmp_path / "base")


def test_what_was_acknowledged_survives_five_kills(base: Root) -> None:
    acknowledged = killing.run(base, kills=5, seed=20)
    assert len(acknowledged) >= 5
    assert killing.lost(base, acknowledged) == []
    assert git(base.path, "status", "--short") == ""
    wire = Wire(base)
    number, (name, commit) = next(iter(acknowledged.items()))
    wire.call(1, "submit", **killing.negative(number))
    wire.call(2, "submit", **killing.negative(9_999))
    replies = [wire.reply(one) for one in (1, 2)]
    wire.close()
    again, new = (one["result"]["structuredContent"] for one in replies if one is not None)
    assert (again["state"], again["id"], again["commit"]) == ("unchanged", name, commit)
    assert new["state"] == "filed"


def test_two_servers_that_file_at_once_lose_nothing_and_file_the_same_once(base: Root) -> None:
    first, second = Wire(base), Wire(base)
    for number in range(4):
        first.call(number + 1, "submit", **killing.negative(number))
        second.call(number + 1, "submit", **killing.negative(number if number < 2 else number + 10))
    found: dict[int, list[tuple[str, str, str]]] = {}
    for wire in (first, second):
        for number in range(4):
            reply = wire.reply(number + 1)
            assert reply is not None
            said = reply["result"]["structuredContent"]
            found.setdefault(number, []).append((said["state"], said["id"], said["commit"]))
        wire.close()
    for number in (0, 1):
        assert sorted(state for state, _, _ in found[number]) == ["filed", "unchanged"]
        assert len({(name, commit) for _, name, commit in found[number]}) == 1
    commits = git(base.path, "log", "--format=%H", "main..submissions").split()
    assert len(commits) == 6
    assert {commit for rows in found.values() for _, _, commit in rows} == set(commits)
    git(base.path, "fsck", "--strict")
