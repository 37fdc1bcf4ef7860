"""``kb check`` says where a target names a device, an operator or an axis that nobody knows."""

import tomllib
from pathlib import Path

import pytest

from kb.config import Root
from kb.service.checking_targets import target_findings
from kb.store import content, files

TEXT = """schema = 1
version = 1
title = "A small model"
summary = "Rows of every sort."
outcome = "works"
license = "Apache-2.0"
[source]
origin = "written here"
[target]
model = "small"
devices = ["NVIDIA H200", "sm_90"]
device_count = 1
precision = "bfloat16"
accuracy = "No loss."
[[target.traffic]]
name = "one"
[[target.goals]]
metric = "latency_ms"
better = "lower"
[[target.operators]]
operator = "rmsnorm"
name = "norm"
axes = { hidden_size = 2048 }
per_token = { num_tokens = 8 }
dtypes = ["bfloat16"]
[[target.operators]]
operator = "elementwise"
name = "whatever"
axes = { anything = 3 }
dtypes = []
[[target.operators]]
operator = "kv_block_pool"
name = "blocks"
axes = {}
dtypes = []
"""
HERE = Path(__file__).resolve().parents[2] / "entries"


def said(root: Root, text: str) -> list[tuple[str, str | None]]:
    """Return what is wrong with a target, and the hint."""
    folder = root.entries / "target/small/one"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entry.toml").write_text(text, encoding="utf-8")
    (folder / "README.md").write_text("# Small\n", encoding="utf-8")
    stored, faults = files.inspect(content.read(folder), "target/small/one")
    assert stored is not None, faults
    found = list(target_findings(stored))
    assert all(one.severity == "problem" and one.message.isprintable() for one in found)
    return [(one.message.removeprefix("entries/target/small/one/entry.toml: field target"), one.hint) for one in found]


def test_a_target_of_known_words_is_fine(root: Root) -> None:
    assert said(root, TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"sm_90"', '"Acme Q9"', ".devices: no device is called 'Acme Q9'"),
        ('"rmsnorm"', '"rmsnorn"', ".operators[0]: no operator is called 'rmsnorn'"),
        ("hidden_size", "hiden_size", ".operators[0]: expected an axis of rmsnorm (num_tokens, hidden_size), found"),
        ("num_tokens = 8", "m = 8", ".operators[0]: expected an axis of rmsnorm (num_tokens, hidden_size), found 'm'"),
    ],
)
def test_every_unknown_word_is_named_with_its_place(root: Root, old: str, new: str, message: str) -> None:
    ((found, hint),) = said(root, TEXT.replace(old, new))
    assert found.startswith(message)
    assert hint


def test_all_that_is_wrong_is_said_at_once(root: Root) -> None:
    text = TEXT.replace('"NVIDIA H200"', '"X"').replace('"sm_90"', '"Y"').replace('"rmsnorm"', '"z"')
    assert len(said(root, text)) == 3


def test_what_is_no_target_has_nothing_to_say() -> None:
    folder = HERE / "kernel" / "gemm" / "grouped-tile-order"
    stored, _ = files.inspect(content.read(folder), "kernel/gemm/grouped-tile-order")
    assert stored is not None
    assert list(target_findings(stored)) == []


def test_the_shipped_targets_name_what_there_is() -> None:
    for folder in sorted(HERE.glob("target/*/*")):
        entry_id = str(folder.relative_to(HERE))
        stored, _ = files.inspect(content.read(folder), entry_id)
        assert stored is not None
        assert list(target_findings(stored)) == []
        assert tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))["target"]["operators"]
