"""One graph over all entries: ancestors, uses, targets and campaigns, within bounds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import EntryNotFoundError
from kb.service import lineage
from kb.service.indexing import ask

WriteEntry = Callable[..., Path]


def descend(folder: Path, parent: str, relation: str = "mutated") -> None:
    facts = folder / "entry.toml"
    more = f'\n[[lineage]]\nparent = "{parent}"\nrelation = "{relation}"\n'
    facts.write_text(facts.read_text(encoding="utf-8") + more, encoding="utf-8")


@pytest.fixture
def chain(root: Root, write_entry: WriteEntry) -> Root:
    """Return a knowledge base of five kernels, each made from the one before; the first one's parent is gone."""
    for number in range(5):
        folder = write_entry(root.entries, f"kernel/rmsnorm/k{number}")
        descend(folder, f"kernel/rmsnorm/k{number - 1}" if number else "kernel/rmsnorm/gone")
    return root


def test_what_hangs_together_is_found_in_both_directions(chain: Root) -> None:
    part = lineage.around(ask(chain, lineage.graph), "kernel/rmsnorm/k2", depth=1)
    assert [(node["id"], node["distance"]) for node in part.nodes] == [
        ("kernel/rmsnorm/k2", 0),
        ("kernel/rmsnorm/k1", 1),
        ("kernel/rmsnorm/k3", 1),
    ]
    assert [(edge.source, edge.target, edge.relation) for edge in part.edges] == [
        ("kernel/rmsnorm/k1", "kernel/rmsnorm/k2", "mutated"),
        ("kernel/rmsnorm/k2", "kernel/rmsnorm/k3", "mutated"),
    ]
    assert part.complete


def test_an_ancestor_that_no_entry_is_shows_as_missing(chain: Root) -> None:
    part = lineage.around(ask(chain, lineage.graph), "kernel/rmsnorm/k0", depth=1)
    gone = next(node for node in part.nodes if node["id"] == "kernel/rmsnorm/gone")
    assert (gone["missing"], gone["kind"], gone["title"]) == (True, "kernel", None)


def test_circles_end_and_too_much_is_said_to_be(
    root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    descend(write_entry(root.entries, "kernel/rmsnorm/a"), "kernel/rmsnorm/b")
    descend(write_entry(root.entries, "kernel/rmsnorm/b"), "kernel/rmsnorm/a")
    whole = ask(root, lineage.graph)
    assert len(lineage.around(whole, "kernel/rmsnorm/a", depth=10).nodes) == 2
    monkeypatch.setattr(lineage, "MOST_NODES", 1)
    assert not lineage.around(whole, "kernel/rmsnorm/a").complete


def test_an_unknown_entry_is_no_node(chain: Root) -> None:
    with pytest.raises(EntryNotFoundError):
        lineage.around(ask(chain, lineage.graph), "kernel/rmsnorm/gone")
