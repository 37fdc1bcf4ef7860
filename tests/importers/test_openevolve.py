"""Checkpoints of OpenEvolve come in with their parents and go out as they were; our kernels go out as programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, find_root
from kb.errors import ConfigError
from kb.importers.base import Filed
from kb.service import exporting, importing
from kb.service.checking import check, require_valid
from kb.service.initialising import init
from kb.service.openevolve_population import Population, program_id
from kb.store import files, layout

ROOT = Path(__file__).parents[2]


def program(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of the format
    return {
        "id": name,
        "code": f"def run(x):\n    return x + {len(name)}  # {name} é\n",
        "changes_description": "",
        "language": "python",
        "parent_id": None,
        "generation": 0,
        "timestamp": 1.5,
        "iteration_found": 0,
        "metrics": {"combined_score": 1.25},
        "metadata": {"island": 0},
        "embedding": None,
        **fields,
    }


METADATA: dict[str, Any] = {
    "island_feature_maps": [{"1-2": "a"}, {}],
    "islands": [["a", "b"], []],
    "archive": ["a"],
    "best_program_id": "a",
    "last_iteration": 7,
}


def checkpoint(folder: Path, *programs: dict[str, Any]) -> Path:
    (folder / "programs").mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    (folder / "best_program.py").write_text("pass\n", encoding="utf-8")
    for one in programs:
        (folder / "programs" / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")
    return folder


def imported(home: Path, source: Path, device: str | None = None) -> tuple[dict[str, str], importing.Report]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_="openevolve", write=True, stated=("some/run", None, "MIT"), allow=[], device=device, toolchain=[]
    )
    report = importing.run(root, str(source), options)
    ids = list(layout.entry_ids(root.entries))
    return {one: files.read(layout.folder_of(root.entries, one), one).digest for one in ids}, report


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    given = [program("a"), program("b", parent_id="a", generation=1), program("c", parent_id="gone")]
    source = checkpoint(tmp_path / "in/checkpoint_7", *given).parent
    first, report = imported(tmp_path / "one", source)
    assert len(first) == 4
    assert report.counts == {"add": 4, "left": 1}
    exporting.export(find_root(str(tmp_path / "one")), "openevolve", list(first), tmp_path / "out")
    place = tmp_path / "out/checkpoint_7"
    assert json.loads((place / "metadata.json").read_text(encoding="utf-8")) == METADATA
    for one in given:
        assert json.loads((place / f"programs/{one['id']}.json").read_text(encoding="utf-8")) == one
    again, _ = imported(tmp_path / "two", tmp_path / "out")
    assert again == first


def test_parents_are_lineage_where_they_are_there_and_the_store_stays_sound(tmp_path: Path) -> None:
    broken = program("bad", metrics={"combined_score": []})
    given = [program("a"), program("b", parent_id="a"), program("c", parent_id="gone"), program("d", parent_id="bad")]
    first, report = imported(tmp_path / "kb", checkpoint(tmp_path / "in", *given, broken))
    read = {one: files.read(layout.folder_of(tmp_path / "kb/entries", one), one) for one in first}
    assert [each.parent for each in read["technique/openevolve/program-b"].file.lineage] == [
        "technique/openevolve/program-a"
    ]
    assert all(not read[f"technique/openevolve/program-{one}"].file.lineage for one in "acd")
    assert [line.path for line in report.lines if line.state == "refused"] == ["programs/bad.json"]
    require_valid(check(None, find_root(str(tmp_path / "kb")), history=False))


def test_a_score_is_no_figure_until_the_device_is_stated_and_equal_code_is_a_copy(tmp_path: Path) -> None:
    same = program("b", code=program("a")["code"])
    source = checkpoint(tmp_path / "in", program("a"), same)
    _, report = imported(tmp_path / "one", source)
    assert {line.evidence for line in report.lines if line.evidence} == {"documented"}
    assert report.copies == 1
    _, report = imported(tmp_path / "two", source, device="NVIDIA H200")
    assert [line.evidence for line in report.lines if "program" in (line.id or "")] == ["reported", "reported"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:-20], "expected JSON"),
        (lambda text: text.replace("1.25", "NaN"), "NaN"),
        (lambda text: text.replace("1.25", "Infinity"), "Infinity"),
        (lambda text: text.replace("1.25", "1e400"), "1e400"),
        (lambda text: text.replace('"generation": 0', '"generation": 0, "generation": 1'), "distinct keys"),
        (lambda text: text.replace('"generation": 0', '"generation": -1'), "field generation"),
        (lambda text: text.replace('"island": 0', '"island": ' + "[" * 40 + "]" * 40), "levels of nesting"),
        (lambda text: text.replace('"parent_id": null', '"parent_id": "../../x"'), "field parent_id"),
        (lambda text: text.replace('"parent_id": null', '"parent_id": "a"'), "its own parent"),
        (lambda text: text.replace('"id": "a"', '"id": "b"'), "the name of the file"),
        (lambda text: text.replace("return x", "return x\\u0000"), "NUL byte"),
    ],
    ids=["cut", "nan", "inf", "1e400", "twice", "negative", "deep", "escape", "self", "name", "nul"],
)
def test_a_hostile_program_is_refused_and_stops_no_other(tmp_path: Path, change: Any, reason: str) -> None:  # noqa: ANN401
    folder = checkpoint(tmp_path / "in", program("a"), program("z"))
    place = folder / "programs/a.json"
    place.write_text(change(place.read_text(encoding="utf-8")), encoding="utf-8")
    first, report = imported(tmp_path / "kb", folder)
    assert "technique/openevolve/program-z" in first
    refused = [line.reason or "" for line in report.lines if line.state == "refused"]
    assert "technique/openevolve/program-a" not in first
    assert reason in refused[0]


def test_the_best_entries_of_an_operator_become_a_population_and_no_claim_becomes_a_fitness(tmp_path: Path) -> None:
    root = find_root(str(ROOT))
    made = exporting.export(root, "openevolve", [], tmp_path / "out", choice=exporting.Choice("rmsnorm", top=2))
    written = [
        json.loads((tmp_path / "out" / one).read_text(encoding="utf-8")) for one in made.files if "/programs/" in one
    ]
    assert len(written) == 2
    for one in written:
        assert one["metadata"]["kb_operator"] == "rmsnorm"
        assert one["metrics"] == {} or one["metadata"]["kb_evidence"] in ("measured", "confirmed", "end_to_end")
    found, _ = imported(tmp_path / "kb", tmp_path / "out")
    assert len(found) == 2
    # Which two are the best changes with the records; whose parent is what stands in the entries, in all of them.
    whole = exporting.export(root, "openevolve", [], tmp_path / "all", choice=exporting.Choice("rmsnorm", top=100))
    programs = [json.loads((tmp_path / "all" / one).read_text("utf-8")) for one in whole.files if "/programs/" in one]
    assert len(programs) > 2
    assert {one["parent_id"] for one in programs} & {one["id"] for one in programs}
    with pytest.raises(ConfigError, match="best entries"):
        exporting.export(root, "openevolve", [], tmp_path / "other", choice=exporting.Choice(top=2))


def test_only_a_record_gives_a_metric() -> None:
    entry = Filed(
        "kernel/rmsnorm/x",
        3,
        {"entry_point": "kernel.py:run", "title": "t", "summary": "s", "operator": "rmsnorm", "license": "MIT"},
        "",
        {"kernel.py": b"def run(x):\n    return x\n", "entry.toml": b"", "README.md": b""},
    )
    figure = {"speedup": 1.5, "metric": "latency_us", "value": 10.0, "regime": "eager-cold"}
    for level, best, metrics in (
        ("measured", figure, {"combined_score": 1.5, "speedup": 1.5, "latency_us": 10.0}),
        ("reported", figure, {}),
        ("measured", {**figure, "regime": None}, {}),
        ("documented", None, {}),
    ):
        row = {"id": entry.id, "version": 3, "operator": "rmsnorm", "evidence": level, "best": best}
        first, second = Population(Root(Path()), {entry.id: row}).written(entry, ())
        assert json.loads(first.body)["metrics"] == metrics  # type: ignore[union-attr]
        assert program_id(entry.id, 3) in first.path
        assert second.path.startswith("kb_population_rmsnorm/initial/")
    two = Filed(entry.id, 3, entry.facts, "", {**entry.files, "kernel.cu": b"x"})
    (left,) = Population(Root(Path()), {}).written(two, ())
    assert "kernel.cu" in left.reason  # type: ignore[union-attr]
