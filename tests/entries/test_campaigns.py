"""Targets, campaigns and published figures: complete, arithmetically sound, and never mistaken for one another."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.models import vocabulary
from kb.models.entry import EntryFile
from kb.validators import operators
from kb.validators.operators import names

ENTRIES = Path(__file__).resolve().parents[2] / "entries"
BESIDE_KERNELS = {
    "all_gather", "all_reduce", "all_reduce_rmsnorm", "all_to_all", "graph_pool", "kv_block_pool", "workspace_plan",
}  # fmt: skip
"""Operators of allocation strategies and communication schemes; the others are in ``names``."""
CAMPAIGN_AUTHORS = "published by the campaign's authors"


def facts(entry_id: str) -> EntryFile:
    """Load one entry through the model."""
    return EntryFile.model_validate(tomllib.loads((ENTRIES / entry_id / "entry.toml").read_text(encoding="utf-8")))


def ids(*kinds: str) -> list[str]:
    """Return the ids of all entries of these kinds."""
    return sorted(
        "/".join(file.parent.relative_to(ENTRIES).parts)
        for kind in kinds
        for file in ENTRIES.glob(f"{kind}/*/*/entry.toml")
    )


WRITTEN = ids("allocation", "comm", "config", "technique", "combination", "target", "campaign")
TARGETS = ids("target")
MEASURED = [entry_id for entry_id in ids("config") if "entry" in facts(entry_id).model_dump(exclude_none=True)["tuned"]]
"""Configs that ``kb tuned`` made; the others came from other projects."""
IMPORTED = sorted({*ids("config")} - {*MEASURED})


@pytest.mark.parametrize("entry_id", WRITTEN)
def test_an_entry_is_complete_and_its_readme_short(entry_id: str) -> None:
    entry = facts(entry_id)
    assert entry.missing_for(entry_id.split("/")[0]) == []
    readme = (ENTRIES / entry_id / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# ")
    assert len(readme.splitlines()) <= 60
    if entry.entry_point:
        assert (ENTRIES / entry_id / entry.entry_point.split(":")[0]).is_file()


@pytest.mark.parametrize("entry_id", WRITTEN)
def test_what_an_entry_names_exists(entry_id: str) -> None:
    entry, known = facts(entry_id), set(ids("*"))
    named = {*entry.uses, *(ancestor.parent for ancestor in entry.lineage)}
    if entry.campaign is not None:
        named |= {entry.campaign.target, *entry.campaign.reused, *entry.campaign.produced}
    if entry.tuned is not None and entry.tuned.entry is not None:
        named.add(entry.tuned.entry)
    assert named <= known
    mentioned = {entry.operator} if entry.operator else set()
    assert mentioned | set(entry.applies_to) <= {*names.NAMES, *BESIDE_KERNELS}


@pytest.mark.parametrize("entry_id", WRITTEN)
def test_a_figure_names_its_source_and_only_a_campaign_speaks_for_its_authors(entry_id: str) -> None:
    for claim in facts(entry_id).claims:
        if entry_id.startswith("campaign/"):
            assert claim.source == CAMPAIGN_AUTHORS
        else:
            assert claim.source != CAMPAIGN_AUTHORS
            assert claim.backend is not None
            assert not {"vibeqwen", "sammie"} & set(claim.backend.lower().split())


def test_the_published_figures_of_both_campaigns_are_stored_as_published() -> None:
    qwen, sam = facts("campaign/qwen3-6-35b-a3b/vibeqwen"), facts("campaign/sam-3-1/sammie")
    stored = {c.metric: (c.value, c.baseline_value, c.gain_percent, c.gain_kind, c.baseline) for c in qwen.claims}
    assert stored == {
        "decode_tokens_per_s": (1792, 943, 90, "increase", "vLLM 0.25.1"),
        "ttft_ms": (12, 28, 57, "reduction", "vLLM 0.25.1"),
        "throughput_tokens_per_s": (10307, 6030, 71, "increase", "vLLM 0.25.1"),
    }
    (only,) = sam.claims
    assert (only.value, only.baseline_value, only.gain_percent) == (91, None, 50)
    assert sam.campaign is not None
    assert sam.campaign.reused == ["campaign/qwen3-6-35b-a3b/vibeqwen"]


def rows() -> Iterator[tuple[str, int]]:
    """Yield each operator row of each target."""
    for entry_id in TARGETS:
        target = facts(entry_id).target
        assert target is not None
        yield from ((entry_id, index) for index in range(len(target.operators)))


@pytest.mark.parametrize(("entry_id", "index"), list(rows()))
def test_a_row_of_a_target_is_an_operator_with_its_own_axes(entry_id: str, index: int) -> None:
    target = facts(entry_id).target
    assert target is not None
    row = target.operators[index]
    if row.operator in vocabulary.UNJUDGED_OPERATORS:
        return
    assert row.operator in names.NAMES
    workloads = operators.load(row.operator).workloads
    known = {axis for workload in workloads for axis in workload.axes}
    assert {*row.axes, *row.per_token, *row.per_sequence} <= known


@pytest.mark.parametrize("entry_id", IMPORTED)
def test_tuned_parameters_are_readable_and_say_where_they_come_from(entry_id: str) -> None:
    entry = facts(entry_id)
    stored = json.loads((ENTRIES / entry_id / "config.json").read_text(encoding="utf-8"))
    lists = stored["parameters"] if isinstance(stored["parameters"], dict) else {"all": stored["parameters"]}
    for listed in lists.values():
        keys = [row[stored["selected_by"]] for row in listed]
        assert keys == sorted(set(keys))
        assert all(row["BLOCK_SIZE_K"] > 0 and row["num_stages"] > 0 for row in listed)
    assert entry.source.sha256 == stored["sources"][0]["sha256"]
    assert all(source["license"] == "Apache-2.0" for source in stored["sources"])
    assert entry.claims == [], "a tuned config without timings claims no speed"


def test_launch_parameters_of_ours_are_those_of_the_record_that_each_row_names() -> None:
    for entry_id in MEASURED:
        entry = facts(entry_id)
        stored = json.loads((ENTRIES / entry_id / "config.json").read_text(encoding="utf-8"))
        assert entry.tuned is not None
        assert stored["entry"] == entry.tuned.entry
        for kernel, rows in stored["kernels"].items():
            for row in rows:
                assert row["record"].startswith(f"{entry.tuned.entry}/records/"), entry_id
                record = json.loads((ENTRIES / row["record"]).read_text(encoding="utf-8"))
                assert record["device"]["name"] == entry.tuned.device
                assert record["software"]["triton"] == entry.tuned.toolchain["triton"]
                launch = {"kernel": kernel, **{name: row[name] for name in ("axes", "dtype", "parameters")}}
                assert launch in record["ghosts"]["launched"], entry_id
                medians = {one["candidate_us"]["median"] for one in record["timing"]}
                assert row["median_us"], entry_id
                assert set(row["median_us"].values()) <= medians, entry_id


def test_a_negative_result_says_what_was_expected_where_and_what_came_out() -> None:
    negatives = [facts(entry_id) for entry_id in WRITTEN if facts(entry_id).outcome != "works"]
    assert len(negatives) >= 5
    assert all(entry.negative is not None for entry in negatives)
