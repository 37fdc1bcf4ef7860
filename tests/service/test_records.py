"""Records: what a validation files can be checked by anybody, and an edit of any field shows."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, config_folder
from kb.models.record import canonical, record_id, written
from kb.service import validating
from kb.service.validating import validate
from kb.service.verifying import verify
from kb.store import records
from kb.validators import keys

WriteEntry = Callable[..., Path]

KERNEL = """import torch


def run(x):
    return (x.double() / (1 + torch.exp(-x.double()))).to(x.dtype)
"""

FACTS = """schema = 1
version = 1
title = "SiLU in double"
summary = "The formula, once, in float64."
outcome = "works"
operator = "silu"
language = "torch"
entry_point = "kernel.py:run"
dtypes = ["float32"]
license = "Apache-2.0"
[requires]
arch = ["cpu"]
[source]
origin = "written here"
"""

ID = "kernel/silu/in-double"


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Root, Path]]:
    """Validate one entry twice, for real, and hand out the knowledge base with its settings folder."""
    with pytest.MonkeyPatch.context() as patch:
        settings = tmp_path_factory.mktemp("settings")
        patch.setenv("KB_CONFIG_DIR", str(settings))
        root = Root(tmp_path_factory.mktemp("base"))
        folder = root.entries / ID
        folder.mkdir(parents=True)
        (folder / "entry.toml").write_text(FACTS, encoding="utf-8")
        (folder / "README.md").write_text("# SiLU\n", encoding="utf-8")
        (folder / "kernel.py").write_text(KERNEL, encoding="utf-8")
        for _ in range(2):
            done = list(validate(root, [ID]))
            assert [(one.verdict, one.note) for one in done] == [("accepted", None)], done
        yield root, settings


def paths(root: Root) -> list[Path]:
    return sorted((root.entries / ID / "records").glob("*.json"))


def test_two_validations_are_two_chained_records_that_verify(filed: tuple[Root, Path]) -> None:
    root, settings = filed
    found = verify(root)
    assert (found.records, found.faults, found.not_recomputed) == (2, (), 0)
    first, second = sorted(validating.all_records(root.entries), key=lambda one: one.record.prev is not None)
    assert first.record.prev is None
    assert second.record.prev == record_id(first.raw)
    assert (settings / "judge-key.pem").stat().st_mode & 0o777 == 0o600


def test_a_record_says_what_was_judged_where_and_with_what(filed: tuple[Root, Path]) -> None:
    record = next(iter(validating.all_records(filed[0].entries))).record
    assert record.entry.id == ID
    assert record.device["arch"] == "cpu"
    assert "torch" in record.software
    assert all(case.max_normalised is not None and case.max_normalised <= 1 for case in record.cases)
    assert record.timing is None


def leaves(value: object, place: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yield the places of all values in plain JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value[:2]):
            yield from leaves(inner, (*place, index))
    else:
        yield place


def changed(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return ("0" if not value.startswith("0") else "1") + value[1:] if value else "x"
    return ["x"] if value == [] else {"x": "x"} if value == {} else "x"


def test_an_edit_of_any_field_shows(filed: tuple[Root, Path]) -> None:
    root, _ = filed
    path = paths(root)[0]
    original = path.read_bytes()
    raw = json.loads(original)
    places = list(leaves(raw))
    assert len(places) > 40
    for place in places:
        edited = copy.deepcopy(raw)
        owner = edited
        for part in place[:-1]:
            owner = owner[part]
        owner[place[-1]] = changed(owner[place[-1]])
        body = written(edited)
        # The cunning editor also renames the file after its new content.
        name = records.file_name(body, created_utc=edited["created_utc"], arch=str(edited["device"].get("arch")))
        path.unlink()
        other = path.with_name(name.replace("/", "_"))
        other.write_bytes(body)
        try:
            assert verify(root).faults, place
        finally:
            other.unlink()
            path.write_bytes(original)
    assert verify(root).faults == ()


def test_a_missing_record_breaks_the_chain(filed: tuple[Root, Path]) -> None:
    root, _ = filed
    first = next(p for p in paths(root) if json.loads(p.read_bytes())["prev"] is None)
    body = first.read_bytes()
    first.unlink()
    try:
        assert any("is missing" in fault.message for fault in verify(root).faults)
    finally:
        first.write_bytes(body)


def test_a_record_signed_by_a_stranger_is_refused(filed: tuple[Root, Path], tmp_path: Path) -> None:
    root, _ = filed
    stranger = keys.own_key(tmp_path / "stranger")
    raw = json.loads(paths(root)[0].read_bytes())
    raw["judge"]["key"] = stranger.id
    raw["prev"] = None
    raw["signature"] = stranger.sign(canonical(raw))
    body = written(raw)
    name = records.file_name(body, created_utc=raw["created_utc"], arch="cpu")
    path = root.entries / ID / "records" / name
    path.write_bytes(body)
    try:
        assert any("keyring does not know" in fault.message for fault in verify(root).faults)
    finally:
        path.unlink()


def test_a_changed_kernel_leaves_its_records_but_not_their_plan(filed: tuple[Root, Path]) -> None:
    root, _ = filed
    kernel = root.entries / ID / "kernel.py"
    kernel.write_text(KERNEL + "\n# another\n", encoding="utf-8")
    try:
        found = verify(root)
        assert (found.faults, found.not_recomputed) == ((), 2)
    finally:
        kernel.write_text(KERNEL, encoding="utf-8")


def test_what_cannot_be_judged_here_says_why(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, facts=FACTS.replace('"torch"', '"cuda"').replace("silu", "rmsnorm"))
    done = list(validate(root, []))
    assert [(one.verdict, one.record) for one in done] == [(None, None)]
    assert "cuda" in str(done[0].note)


def test_a_broken_private_key_is_named(tmp_path: Path) -> None:
    from kb.errors import ConfigError

    (tmp_path / "judge-key.pem").write_text("no key", encoding="ascii")
    with pytest.raises(ConfigError, match="judge-key"):
        keys.own_key(tmp_path)
    assert config_folder() != tmp_path
