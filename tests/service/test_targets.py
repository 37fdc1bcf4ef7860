"""Targets that are filed are listed and found; new ones pass the format, are whole, and never replace another."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root
from kb.errors import (
    ConfigError,
    DeviceUnavailableError,
    EntryFormatError,
    EntryNotFoundError,
    KbError,
    SourceUnavailableError,
)
from kb.models.documents import Target
from kb.service.checking import check
from kb.service.targets import (
    Drafted,
    draft,
    file_draft,
    find_target,
    from_config,
    list_targets,
    share_source,
    spec_cost,
    target_ids,
    write_draft,
)
from kb.targeting.configs import MAX_BYTES
from kb.targeting.making import Deployment

CONFIG: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "torch_dtype": "bfloat16",
}  # fmt: skip
SHIPPED = Root(Path(__file__).resolve().parents[2])


def config(tmp_path: Path, name: str = "Small-1B/config.json", **changed: object) -> Path:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**CONFIG, **changed}), encoding="utf-8")
    return file


def drafted(tmp_path: Path, **asked: Any) -> Drafted:  # noqa: ANN401 - fields of a deployment
    return from_config(config(tmp_path), Deployment(**{"device": "H100", **asked}))


def test_a_config_becomes_an_entry_that_passes_every_check(tmp_path: Path, root: Root) -> None:
    made = drafted(tmp_path)
    assert made.id == "target/small-1b/bf16-h100"
    assert made.target.devices == ["H100"], "the family: the name fits several"
    added = file_draft(made, root)
    assert added.reference == f"{made.id}@1"
    assert [one for one in check(None, root, history=False).findings if one.severity == "problem"] == []
    assert find_target(root, "small-1b/bf16-h100") == (made.id, made.target)
    (listed,) = list_targets(root)
    assert (listed.id, listed.model, listed.shares) == (made.id, "Small-1B", "estimated")
    assert listed.rows == len(made.target.operators)


def test_shares_of_a_config_are_estimated_and_add_up(tmp_path: Path) -> None:
    target = drafted(tmp_path).target
    assert {row.share_from for row in target.operators} == {"estimated"}
    assert sum(row.share or 0 for row in target.operators) == pytest.approx(1, abs=5e-3)
    assert target.share_basis is not None
    assert target.share_basis.startswith("estimated: 2 us a call")


def test_two_devices_halve_widths_and_show_in_the_id(tmp_path: Path) -> None:
    one, two = drafted(tmp_path), drafted(tmp_path, count=2)
    assert two.id == "target/small-1b/bf16-h100x2"
    widths = [
        {row.name: row.axes["n"] for row in made.target.operators if row.operator == "gemm"} for made in (one, two)
    ]
    assert any(2 * widths[1][name] == size for name, size in widths[0].items() if name in widths[1])
    assert any(row.operator == "all_reduce" for row in two.target.operators)


def test_the_same_id_with_other_contents_is_not_overwritten(tmp_path: Path, root: Root) -> None:
    file_draft(drafted(tmp_path), root)
    file_draft(drafted(tmp_path), root)
    with pytest.raises(KbError, match="version") as changed:
        file_draft(drafted(tmp_path, batch_size=7), root)
    assert "--id" in str(changed.value.hint)
    write_draft(drafted(tmp_path), tmp_path / "out")
    with pytest.raises(SourceUnavailableError, match="it is there already"):
        write_draft(drafted(tmp_path), tmp_path / "out")


def test_what_is_written_is_what_is_filed(tmp_path: Path) -> None:
    made = drafted(tmp_path)
    folder = write_draft(made, tmp_path / "out")
    assert folder == tmp_path / "out" / made.id
    facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
    assert Target.model_validate(facts["target"]) == made.target
    assert facts["source"]["note"] == "Shapes derived from a config.json of qwen3."


@pytest.mark.parametrize("wrong", ["kernel/gemm/x", "target/only", "../target/a/b", "target/A/b", "target/a/b/c", ""])
def test_an_id_that_is_none_of_a_target_is_refused(tmp_path: Path, wrong: str) -> None:
    if wrong:
        with pytest.raises(EntryFormatError):
            from_config(config(tmp_path), Deployment("H100"), entry_id=wrong)
    else:
        assert from_config(config(tmp_path), Deployment("H100"), entry_id="").id.startswith("target/small-1b/")


@pytest.mark.parametrize("model", ["Größe 9", "..", "a" * 300, '"] version = 9', "名前", "[target]", "'''"])
def test_any_name_of_a_model_makes_an_id_and_a_file_that_can_be_read(tmp_path: Path, model: str) -> None:
    made = from_config(config(tmp_path), Deployment("H100"), model=model)
    facts = tomllib.loads(made.facts)
    assert (facts["version"], facts["target"]["model"]) == (1, model)
    assert write_draft(made, tmp_path / "out").is_dir()


@pytest.mark.parametrize("model", ["\u202ex", "x\ny", '"]\nversion = 9', "\x1b[31m", "x\x00"])
def test_a_name_that_cannot_be_printed_is_refused_in_one_line(tmp_path: Path, model: str) -> None:
    with pytest.raises(EntryFormatError) as found:
        from_config(config(tmp_path), Deployment("H100"), model=model)
    assert found.value.message.isprintable()


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"device": "Acme Q9"}, DeviceUnavailableError),
        ({"count": 3}, ConfigError),
        ({"precision": "fp3"}, ConfigError),
        ({"phases": ("vision",)}, ConfigError),
    ],
)
def test_what_cannot_be_deployed_is_an_error(tmp_path: Path, asked: dict[str, Any], error: type[KbError]) -> None:
    with pytest.raises(error):
        drafted(tmp_path, **asked)


def test_a_config_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    large, fifo = tmp_path / "large.json", tmp_path / "fifo.json"
    with large.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    os.mkfifo(fifo)
    for path in (tmp_path / "none.json", tmp_path, large, fifo):
        with pytest.raises(SourceUnavailableError):
            from_config(path, Deployment("H100"))
    for changed in ({"model_type": "acme"}, {"hidden_size": -1}, {"hidden_size": 1e9}, {"head_dim": "64"}):
        with pytest.raises(EntryFormatError):
            from_config(config(tmp_path, **changed), Deployment("H100"))
    broken = tmp_path / "broken.json"
    for body in (b"", b"[]", b"{", b"\xff\xfe", b'{"a":' * 100_000):
        broken.write_bytes(body)
        with pytest.raises(EntryFormatError):
            from_config(broken, Deployment("H100"))


def test_names_that_are_none_or_several_say_which_there_are(root: Root, tmp_path: Path) -> None:
    with pytest.raises(EntryNotFoundError) as none:
        find_target(root, "x")
    assert none.value.hint == "targets: none is filed"
    for model in ("one", "two"):
        file_draft(from_config(config(tmp_path), Deployment("H100"), entry_id=f"target/{model}/same"), root)
    with pytest.raises(EntryNotFoundError, match="several targets are called 'same'") as several:
        find_target(root, "same")
    assert several.value.hint == "targets: target/one/same, target/two/same"
    with pytest.raises(EntryNotFoundError) as strange:
        find_target(root, "\x1b[31m" + "x" * 5000)
    assert strange.value.message.isprintable()


def test_a_broken_target_is_not_listed_and_the_others_are(root: Root, tmp_path: Path) -> None:
    file_draft(drafted(tmp_path), root)
    folder = root.entries / "target" / "broken" / "one"
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text("schema = 1\n", encoding="utf-8")
    assert target_ids(root) == ["target/broken/one", "target/small-1b/bf16-h100"]
    assert [one.id for one in list_targets(root)] == ["target/small-1b/bf16-h100"]
    with pytest.raises(EntryFormatError):
        find_target(root, "broken/one")


def test_the_shipped_targets_are_those_that_the_product_is_for() -> None:
    by_id = {one.id: one for one in list_targets(SHIPPED)}
    assert {"target/qwen3-6-35b-a3b/nvfp4-b200", "target/sam-3-1/bf16-h100"} < set(by_id)
    assert len(by_id) >= 3
    for entry_id in by_id:
        target = find_target(SHIPPED, entry_id)[1]
        assert target.operators
        assert share_source(target) in ("measured", "estimated", "mixed")
        shared = [row for row in target.operators if row.share is not None]
        assert len(shared) >= 0.7 * len(target.operators)


def test_costs_come_from_the_specs_and_not_from_guesses() -> None:
    gemm = spec_cost("gemm")
    assert gemm is not None
    assert gemm.work({"m": 4, "n": 8, "k": 16}, "bfloat16").flops == 2 * 4 * 8 * 16
    assert spec_cost("elementwise") is None
    assert spec_cost("no_such") is None


def test_a_target_needs_one_word_for_its_source(tmp_path: Path) -> None:
    target = drafted(tmp_path).target
    assert draft(target, precision="x", source={"origin": "y"}).readme.rstrip().endswith("**Source.** y.")
