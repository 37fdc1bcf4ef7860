"""Seeding: SAM 3.1 on H100 from the entries that are here, in every promise; packs that are whole or not there."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root
from kb.errors import ConfigError, DeviceUnavailableError, EntryNotFoundError, StoreError
from kb.models.plan import Plan
from kb.planning.brief import tokens_of
from kb.service.indexing import ask
from kb.service.seed_pack import MANIFEST
from kb.service.seeding import everything, seed_target
from tests.service.timed import H100, file_timed

SAM = "target/sam-3-1/bf16-h100"
QWEN = "target/qwen3-6-35b-a3b/nvfp4-b200"
HERE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """Hand out the entries of this repository, with a catalogue of the test's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KB_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("store")
        shutil.copytree(HERE / "entries", folder / "entries", ignore=shutil.ignore_patterns(".kb"))
        yield Root(folder)


@pytest.fixture(scope="module")
def sam(store: Root) -> Plan:
    return seed_target(store, SAM)


@pytest.fixture(scope="module")
def facts(store: Root) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in ask(store, everything)}


def test_every_operator_row_has_code_that_runs_or_is_a_gap(sam: Plan, facts: dict[str, dict[str, Any]]) -> None:
    stated = [one["name"] for one in facts[SAM]["facts"]["target"]["operators"]]
    assert [one.row for one in sam.coverage] == stated
    gaps = {gap.row for gap in sam.gaps}
    assert gaps == {one.row for one in sam.coverage if not one.runnable}
    runnable = {row.id for row in sam.rows if row.runnable}
    assert {one for row in sam.coverage for one in row.runnable} <= runnable


@pytest.mark.parametrize("device", ["NVIDIA H100", "A100", "RTX 5090"])
@pytest.mark.parametrize("target", [SAM, QWEN])
def test_nothing_that_needs_units_the_device_lacks_is_offered_as_runnable(
    store: Root, facts: dict[str, dict[str, Any]], target: str, device: str
) -> None:
    plan = seed_target(store, target, device=device)
    for row in plan.rows:
        needs = set(facts[row.id]["facts"].get("requires", {}).get("features", ()))
        if row.runnable:
            assert not needs & ({"tcgen05", "tmem"} | (set() if device == "RTX 5090" else {"fp4_mma"})), row.id
        assert row.runnable == (row.transfer in ("exact", "recompile", "retune") and row.role != "technique")


def test_ideas_and_allocation_strategies_of_the_qwen_run_are_offered_as_such(sam: Plan) -> None:
    by_id = {row.id: row for row in sam.rows}
    for name in ("technique/scheduling/persistent-kernel", "combination/decode_step/captured-single-stream"):
        assert (by_id[name].role, by_id[name].transfer) == ("technique", "technique")
    for name in ("allocation/workspace_plan/liveness-packed-arena", "allocation/graph_pool/bucketed-private-pools"):
        assert (by_id[name].kind, by_id[name].row) == ("allocation", None)
    assert not any(row.id.startswith("allocation/kv_block_pool") for row in sam.rows)
    assert any("vibeqwen" in note for note in sam.notes)


def test_one_device_gets_no_communication_and_is_told_why(sam: Plan) -> None:
    assert not any(row.kind == "comm" for row in sam.rows)
    assert any(one.because == "devices" and one.id.startswith("comm/") for one in sam.excluded)


def test_no_gain_is_made_up_where_nothing_was_measured(sam: Plan, facts: dict[str, dict[str, Any]]) -> None:
    for row in sam.rows:
        if not any(cell["figures"] for cell in facts[row.id]["cells"]):
            assert (row.gain, row.saving) == (None, None)


def test_nvfp4_on_hopper_is_warned_of(store: Root) -> None:
    plan = seed_target(store, QWEN, device="H100")
    found = {one.id: one.holds for one in plan.warnings}
    assert found["technique/moe/native-nvfp4-on-hopper"] == "yes"
    assert "technique/moe/native-nvfp4-on-hopper" not in {one.id for one in seed_target(store, QWEN).warnings}


@pytest.mark.parametrize("budget", [500, 1000, 20_000])
def test_the_brief_keeps_its_budget(store: Root, budget: int) -> None:
    plan = seed_target(store, SAM, budget_tokens=budget)
    assert tokens_of(plan.brief) <= budget
    assert plan.brief.startswith("# Seed: SAM 3.1")


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_packs_of_the_same_store_are_the_same_bytes(store: Root, tmp_path: Path) -> None:
    for name in ("one", "two"):
        seed_target(store, SAM, write_to=tmp_path / name)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


SEEDING = "import sys; from kb import launch; sys.exit(launch.main(sys.argv[1:]))"


def test_another_process_writes_the_same_bytes_and_no_place_of_this_machine(store: Root, tmp_path: Path) -> None:
    seed_target(store, SAM, write_to=tmp_path / "here")
    argv = ["seed", SAM, "--root", str(store.path), "-o", str(tmp_path / "there"), "--json"]
    shell = {**os.environ, "PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONPATH": str(HERE)}
    subprocess.run([sys.executable, "-c", SEEDING, *argv], capture_output=True, check=True, timeout=280, env=shell)
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    for path in (tmp_path / "here").rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            assert str(store.path).encode() not in body
            assert str(tmp_path).encode() not in body


def test_a_pack_holds_brief_plan_code_and_specs(store: Root, tmp_path: Path) -> None:
    plan = seed_target(store, SAM, write_to=tmp_path / "deep" / "pack")
    pack = tmp_path / "deep" / "pack"
    assert plan.written == tuple(sorted(tree(pack)))
    assert (pack / "SEED.md").read_text(encoding="utf-8") == plan.brief
    assert json.loads((pack / "seed.json").read_text(encoding="ascii")) == json.loads(json.dumps(plan.to_json()))
    for row in plan.rows[:5]:
        assert (pack / "entries" / row.id / "entry.toml").is_file()
        if row.kind == "kernel":
            assert (pack / "entries" / row.id / "kernel.py").is_file()
            assert (pack / "operators" / f"{row.operator}.py").is_file()
    assert [path.name for path in pack.parent.iterdir()] == ["pack"]


def refused(store: Root, pack: Path) -> None:
    kept = tree(pack)
    with pytest.raises(ConfigError):
        seed_target(store, SAM, write_to=pack)
    assert tree(pack) == kept


def test_a_pack_is_renewed_in_place_and_never_over_foreign_or_changed_files(store: Root, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    seed_target(store, SAM, write_to=pack)
    first = tree(pack)
    before = (pack / "SEED.md").stat().st_mtime_ns
    seed_target(store, SAM, write_to=pack)
    assert (pack / "SEED.md").stat().st_mtime_ns == before
    seed_target(store, SAM, write_to=pack, budget_tokens=1000)
    assert tree(pack) != first
    (pack / "notes.txt").write_text("mine", encoding="utf-8")
    refused(store, pack)
    (pack / "notes.txt").unlink()
    (pack / "SEED.md").write_text("mine", encoding="utf-8")
    refused(store, pack)
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


@pytest.mark.parametrize(
    "manifest", [b"", b"[]", b'{"kind": 1}', b'{"kind": "kernel-kb seed pack", "files": 3}', b"\xff"]
)
def test_a_folder_with_a_manifest_of_something_else_is_foreign(store: Root, tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(manifest)
    with pytest.raises(ConfigError, match="which no seed pack wrote"):
        seed_target(store, SAM, write_to=tmp_path)


def test_links_are_not_followed(store: Root, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError):
        seed_target(store, SAM, write_to=tmp_path / "link")
    seed_target(store, SAM, write_to=tmp_path / "real")
    (tmp_path / "real" / "SEED.md").unlink()
    (tmp_path / "real" / "SEED.md").symlink_to(tmp_path / "real" / "seed.json")
    with pytest.raises(ConfigError, match="was changed"):
        seed_target(store, SAM, write_to=tmp_path / "real")


def test_an_error_leaves_the_earlier_pack(store: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = tmp_path / "pack"
    seed_target(store, SAM, write_to=pack)
    before = tree(pack)
    genuine = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        genuine(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        seed_target(store, SAM, write_to=pack, budget_tokens=1000)
    assert tree(pack) == before
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        ("target/none/x", {}, EntryNotFoundError),
        ("kernel/gemm/grouped-tile-order", {}, ConfigError),
        ("campaign/sam-3-1/sammie", {}, ConfigError),
        (SAM, {"device": "Acme Q1"}, DeviceUnavailableError),
        (SAM, {"budget_tokens": 499}, ConfigError),
        (SAM, {"budget_tokens": 10**9}, ConfigError),
        (SAM, {"use": "resale"}, ConfigError),
        ("\x00", {}, EntryNotFoundError),
        ("", {}, EntryNotFoundError),
    ],
)
def test_what_cannot_be_planned_is_an_error(
    store: Root, target: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        seed_target(store, target, **options)


SMALL = """schema = 1
version = 1
title = "A small model"
summary = "Two rows of the same name, one of them large."
outcome = "works"
license = "Apache-2.0"
[source]
origin = "written here"
[target]
model = "small"
devices = ["NVIDIA H100 80GB HBM3"]
device_count = 1
precision = "float32"
accuracy = "No loss."
[[target.traffic]]
name = "one"
phase = "prefill"
input_tokens = 32
[[target.goals]]
metric = "latency_ms"
better = "lower"
[[target.operators]]
operator = "silu"
name = "activation"
axes = { num_tokens = 32, hidden_size = 256 }
dtypes = ["float32"]
share = 0.4
share_from = "measured"
[[target.operators]]
operator = "silu"
name = "activation"
axes = { num_tokens = 4096, hidden_size = 256 }
dtypes = ["float32"]
share = 0.2
share_from = "measured"
"""


def small(root: Root) -> str:
    folder = root.entries / "target/small/h100"
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text(SMALL, encoding="utf-8")
    (folder / "README.md").write_text("# Small\n", encoding="utf-8")
    return "target/small/h100"


def test_rows_of_one_name_are_told_apart(root: Root, write_silu: Any) -> None:  # noqa: ANN401
    write_silu(root)
    plan = seed_target(root, small(root))
    assert [(one.row, bool(one.runnable)) for one in plan.coverage] == [("activation", True), ("activation (2)", False)]
    assert [gap.row for gap in plan.gaps] == ["activation (2)"]


def test_a_time_of_the_judge_on_the_device_becomes_a_saving(root: Root, write_silu: Any, judged: Any) -> None:  # noqa: ANN401
    entry = write_silu(root)
    target = small(root)
    assert {one.gain for one in seed_target(root, target).rows} == {None}
    file_timed(root, entry, judged, gain=2.0, device=H100, cost=(5 * 32 * 256, 3_000_000))
    plan = seed_target(root, target)
    row = next(one for one in plan.rows if one.runnable)
    assert (row.transfer, row.evidence_device, row.gain_from) == ("exact", H100["name"], "measured")
    assert row.gain is not None
    assert row.gain == pytest.approx(2.0, rel=0.2)
    assert row.saving == pytest.approx(0.4 * (1 - 1 / row.gain) * row.confidence, rel=1e-2)
    assert "expected saving" in plan.brief


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from kb.config import Root
from kb.models.plan import Plan
from kb.service import seed_pack
from kb.service.seeding import seed_target
from tests.service.test_seeding import tree

root, folder = Root(Path(sys.argv[1])), Path(sys.argv[2])
pack, plans = folder / "pack", []
for number, budget in enumerate((1000, 5000)):
    plans.append(seed_target(root, "target/small/h100", budget_tokens=budget))
    seed_pack.write(root, plans[number], ["kernel/silu/plain"], folder / str(number))
whole = [tree(folder / "0"), tree(folder / "1")]
assert whole[0] != whole[1]
random.seed(3)
for turn in range(16):
    if turn == 12:
        seed_pack.exchange = lambda one, other: False  # as where two names cannot be swapped at once
    reader, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        for number in range(100_000):
            seed_pack.write(root, plans[number % 2], ["kernel/silu/plain"], pack)
            if number == 1:
                os.write(told, b"x")
    os.close(told)
    os.read(reader, 1)
    time.sleep(random.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    if turn < 12:
        assert tree(pack) in whole, turn
    seed_pack.write(root, plans[turn % 2], ["kernel/silu/plain"], pack)
    assert tree(pack) == whole[turn % 2]
"""


def test_killed_at_any_moment_a_pack_is_the_old_one_or_the_new_one(
    root: Root,
    tmp_path: Path,
    write_silu: Any,  # noqa: ANN401
) -> None:
    entry = write_silu(root)
    small(root)
    folder = tmp_path / "packs"
    folder.mkdir()
    text = KILLER.replace("kernel/silu/plain", entry)
    done = subprocess.run(
        [sys.executable, "-c", text, str(root.path), str(folder)],
        capture_output=True, text=True, timeout=280, check=False, env={**os.environ, "PYTHONPATH": str(HERE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_killed_runs_left_goes_after_an_hour_and_what_they_moved_comes_back(
    root: Root,
    tmp_path: Path,
    write_silu: Any,  # noqa: ANN401
) -> None:
    write_silu(root)
    target, pack = small(root), tmp_path / "packs" / "pack[1]"
    seed_target(root, target, write_to=pack)
    before = tree(pack)
    pack.rename(pack.with_name(".pack[1].old"))
    old, young = (pack.with_name(f".pack[1].{name}.new") for name in ("old", "young"))
    for left, age in ((old, 7200), (young, 0)):
        left.mkdir()
        os.utime(left, (time.time() - age,) * 2)
    seed_target(root, target, write_to=pack)
    assert tree(pack) == before
    assert sorted(path.name for path in pack.parent.iterdir()) == [".pack[1].young.new", "pack[1]"]


def test_a_gap_that_nothing_comes_near_names_an_idea_for_the_step(store: Root, tmp_path: Path) -> None:
    without = shutil.ignore_patterns("embedding")
    shutil.copytree(store.entries, tmp_path / "entries", ignore=without)
    sheet = tmp_path / "entries" / SAM / "entry.toml"
    text = sheet.read_text(encoding="utf-8")
    assert 'dtypes = ["uint8"]' in text
    sheet.write_text(text.replace('dtypes = ["uint8"]', 'dtypes = ["int32"]'), encoding="utf-8")
    by_row = {gap.row: gap for gap in seed_target(Root(tmp_path), SAM).gaps}
    gap = by_row["text token embedding"]
    assert gap.nearest is not None
    assert gap.nearest_transfer == "technique"
    assert gap.reasons == ("no entry computes embedding", f"{gap.nearest} is about the step as a whole")
    assert by_row["hole filling"].nearest == "kernel/connected_components/label-propagation-union-find"
