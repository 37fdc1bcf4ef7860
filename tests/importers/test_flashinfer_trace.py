"""FlashInfer Trace comes in, goes out and comes in again as the same entries."""

import json
from pathlib import Path

import pytest

from kb.config import find_root
from kb.errors import ConfigError, ImporterError
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

REFERENCE = "import torch\n\n\ndef run(x):\n    return torch.exp(x)\n"
DEFINITION = {
    "name": "exp_h64",
    "description": "Exponential of every element, rows of 64.",
    "op_type": "exp",
    "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 64}},
    "inputs": {"x": {"shape": ["n", "h"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float32"}},
    "reference": REFERENCE,
}
SOLUTION = {
    "name": "exp_rows",
    "definition": "exp_h64",
    "author": "nobody",
    "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "aux.py::run", "dependencies": []},
    "sources": [{"path": "aux.py", "content": REFERENCE}],
}


def _source(folder: Path, *bodies: tuple[str, str]) -> Path:
    folder.mkdir()
    for name, body in bodies:
        (folder / name).write_text(body, encoding="utf-8")
    return folder


def _imported(source: Path, home: Path) -> tuple[dict[str, str], importing.Report]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_="flashinfer-trace", write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
    )
    report = importing.run(root, str(source), options)
    ids = list(layout.entry_ids(root.entries))
    return {one: files.read(layout.folder_of(root.entries, one), one).digest for one in ids}, report


def test_an_export_that_is_imported_again_has_the_same_digests(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", ("a.json", json.dumps(DEFINITION)), ("b.json", json.dumps(SOLUTION)))
    first, _ = _imported(source, tmp_path / "one")
    assert len(first) == 2
    made = exporting.export(find_root(str(tmp_path / "one")), "flashinfer-trace", [], tmp_path / "out")
    written = [json.loads((tmp_path / "out" / one).read_text()) for one in made.files]
    assert written == [DEFINITION, SOLUTION]
    again, _ = _imported(tmp_path / "out", tmp_path / "two")
    assert again == first


def test_program_text_lies_in_files_and_a_name_that_windows_reserves_in_none(tmp_path: Path) -> None:
    source = _source(tmp_path / "in", ("b.json", json.dumps(SOLUTION)))
    _imported(source, tmp_path / "kb")
    folder = tmp_path / "kb/entries/technique/flashinfer_trace/solution-exp-rows"
    assert (folder / "source_0.py").read_text() == REFERENCE
    assert "torch" not in (folder / "solution.json").read_text()


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(DEFINITION)[:-40],
        json.dumps(DEFINITION).replace('"value": 64', '"value": NaN'),
        json.dumps(DEFINITION).replace('"value": 64', '"value": 1e400'),
        json.dumps(DEFINITION).replace('"name"', '"name": "x", "name"', 1),
        json.dumps({**DEFINITION, "axes": []}),
        json.dumps({**DEFINITION, "tags": json.loads("[" * 60 + "]" * 60)}),
        json.dumps({**SOLUTION, "sources": [{"path": "../../escape.py", "content": "x"}]}),
        json.dumps({**SOLUTION, "sources": []}),
    ],
    ids=["truncated", "nan", "1e400", "twice", "axes", "deep", "escape", "empty"],
)
def test_hostile_files_are_refused_with_a_reason_and_nothing_is_written(tmp_path: Path, body: str) -> None:
    found, report = _imported(_source(tmp_path / "in", ("a.json", body)), tmp_path / "kb")
    assert found == {}
    assert "expected" in json.dumps(importing.as_json(report)) or ".." in body


def test_an_export_never_writes_into_a_folder_that_holds_something(tmp_path: Path) -> None:
    _imported(_source(tmp_path / "in", ("a.json", json.dumps(DEFINITION))), tmp_path / "kb")
    root = find_root(str(tmp_path / "kb"))
    with pytest.raises(ConfigError, match="is there already"):
        exporting.export(root, "flashinfer-trace", [], tmp_path / "in")
    with pytest.raises(ImporterError):
        exporting.export(root, "no-such-format", [], tmp_path / "out")
