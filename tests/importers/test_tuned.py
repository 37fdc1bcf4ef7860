"""Files of the field become entries with their source, or are refused with a reason; none is lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kb.config import MARKER, Root
from kb.errors import SourceFormatError
from kb.importers import registry, tuned
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Skipped
from kb.importers.tree import Origin, Tree, open_tree
from kb.service import import_report, importing
from kb.store import content, files, layout

DATA = Path(__file__).parent / "data" / "tuned"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "importers.md"
COMMAND = "kb import tests/importers/data/tuned --report docs/importers.md"
NAME = "E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
ROWS = {str(1 << n): {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": n} for n in range(5)}

PutFile = Callable[[str, object], Path]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return an empty knowledge base."""
    base = tmp_path / "kb"
    (base / "entries").mkdir(parents=True)
    (base / MARKER).write_text("schema = 1\n", encoding="utf-8")
    return Root(base)


@pytest.fixture
def source(tmp_path: Path) -> PutFile:
    """Return a function that puts a file into a source with a license."""
    base = tmp_path / "source"
    base.mkdir()
    (base / "LICENSE").write_text("Apache License\nVersion 2.0\n", encoding="utf-8")

    def put(path: str, body: object) -> Path:
        file = base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
        return file

    return put


def run(root: Root, place: Path, *, write: bool = False, device: str | None = None) -> importing.Report:
    options = importing.options_of(
        format_=None, write=write, stated=(None, None, None), allow=[], device=device, toolchain=[]
    )
    return importing.run(root, str(place), options)


def drafts(place: Path, name: str, context: Context | None = None) -> Iterator[Draft | Skipped]:
    """Parse a folder with one importer."""
    importer = registry.importer(name)
    tree = open_tree(place, Origin("tests", ""))
    for listing in tree.walk():
        for item in importer.discover(Folder(tree, listing.path, listing.files)):
            yield from importer.parse(item, context or Context())


def only(place: Path, name: str, context: Context | None = None) -> Draft:
    found = list(drafts(place, name, context))
    assert len(found) == 1, found
    assert isinstance(found[0], Draft), found
    return found[0]


def test_the_page_has_the_counts_of_the_committed_samples(root: Root) -> None:
    report = run(root, DATA)
    assert import_report.table(report) in PAGE.read_text(encoding="utf-8"), f"write them anew: {COMMAND}"


def test_every_file_is_imported_or_has_a_reason(root: Root) -> None:
    report = run(root, DATA)
    on_disk = {file.relative_to(DATA).as_posix() for file in DATA.rglob("*") if file.is_file()}
    assert set(report.fates) == on_disk
    assert report.files == len(on_disk)
    assert all(line.reason for line in report.lines if line.state in ("refused", "left"))
    assert {fate for path, (fate, _) in report.fates.items() if path.startswith("broken/")} == {"refused"}


def test_all_drafts_are_valid_entries_and_only_documented_or_reported(root: Root) -> None:
    report = run(root, DATA, write=True, device="NVIDIA H200")
    added = [line for line in report.lines if line.state == "add"]
    assert len(added) > 25
    for line in added:
        assert line.id is not None
        stored, faults = files.inspect(content.read(layout.folder_of(root.entries, line.id)), line.id)
        assert stored is not None, faults
        assert line.evidence == ("reported" if stored.file.claims else "documented")
        assert stored.file.source.sha256 is not None
    again = run(root, DATA, write=True, device="NVIDIA H200")
    assert {line.state for line in again.lines} == {"unchanged", "refused", "left"}


def test_a_config_keeps_the_original_bytes_and_says_what_it_is_for(source: PutFile) -> None:
    file = source(NAME, {"triton_version": "3.6.0", **ROWS})
    draft = only(file.parent, "vllm-fused-moe")
    assert draft.files == {"config.json": file.read_bytes()}
    tuned_for = draft.facts["tuned"]
    assert tuned_for["device"] == "NVIDIA H200"
    assert tuned_for["axes"] == {"num_experts": 256, "intermediate_size": 512}
    assert tuned_for["toolchain"] == {"triton": "3.6.0"}
    assert draft.facts["dtypes"] == ["float8_e4m3fn"]
    assert draft.evidence == "documented"
    assert "no timings" in draft.facts["summary"]


def test_the_folder_tells_sglangs_version_and_a_pair_is_one_entry(source: PutFile) -> None:
    stem = "E=257,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]"
    first = source(f"triton_3_5_1/{stem}.json", ROWS)
    second = source(f"triton_3_5_1/{stem}_down.json", {"1": {"BLOCK_SIZE_M": 16, "USE_TMA": True}})
    draft = only(first.parents[1], "sglang-fused-moe")
    assert draft.files == {"config.json": first.read_bytes(), "config_down.json": second.read_bytes()}
    assert draft.facts["tuned"]["toolchain"] == {"triton": "3.5.1"}
    assert "config_down.json" in str(draft.provenance.note)


def test_an_empty_device_is_said_and_not_guessed(source: PutFile) -> None:
    file = source("triton_3_4_0/E=64,N=512,device_name=,dtype=fp8_w8a8.json", ROWS)
    draft = only(file.parents[1], "sglang-fused-moe")
    assert draft.facts["tuned"]["device"] == "unknown"
    assert "requires" not in draft.facts
    assert "names no device" in draft.readme


@pytest.mark.parametrize("amd", ["AMD_Instinct_MI300X", "AMD_Instinct_MI325X"])
def test_fp8_on_cdna3_is_the_other_format(source: PutFile, amd: str) -> None:
    file = source(f"E=8,N=64,device_name={amd},dtype=fp8_w8a8.json", ROWS)
    assert only(file.parent, "vllm-fused-moe").facts["dtypes"] == ["float8_e4m3fnuz"]


def test_equal_values_for_another_device_are_called_a_copy(source: PutFile, root: Root) -> None:
    source("E=8,N=64,device_name=AMD_Instinct_MI300X.json", ROWS)
    source("E=8,N=64,device_name=AMD_Instinct_MI325X.json", ROWS)
    place = source("E=9,N=64,device_name=NVIDIA_H200.json", {"1": {"BLOCK_SIZE_M": 16}}).parent
    source("E=9,N=64,device_name=NVIDIA_B200.json", {"1": {"BLOCK_SIZE_M": 16}})
    report = run(root, place, write=True)
    copies = [line for line in report.lines if line.copy_of]
    assert [line.id for line in copies] == ["config/fused_moe/vllm-e8-n64-amd-instinct-mi325x"]
    facts = (root.entries / str(copies[0].id) / "entry.toml").read_text(encoding="utf-8")
    assert "a copy, not a second result" in facts
    assert '"copied-values"' in facts


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (NAME, {"E": "256", "block_shape": "[128,128]"}),
        ("E=1,N=2,device_name=,dtype=a.json", {"device_name": ""}),
        ("E=1,N=2,block_shape=[128, 128],device_name=X_down.json", {"block_shape": "[128, 128]"}),
    ],
)
def test_names_are_taken_apart(name: str, fields: dict[str, str]) -> None:
    key = tuned.key_of(name)
    assert key is not None
    assert fields.items() <= key.fields.items()
    assert key.down == name.endswith("_down.json")


@pytest.mark.parametrize(
    "name", ["E=1,E=2,device_name=x.json", "plain.json", "E=1.txt", "a b=1.json", f"E={'1' * 500}.json"]
)
def test_a_name_that_says_something_twice_or_nothing_is_no_key(name: str) -> None:
    assert tuned.key_of(name) is None


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"1": {}},
        {"0": {"a": 1}},
        {"01": {"a": 1}},
        {"1": {"a": -1}},
        {"1": {"a": 1.5}},
        {"1": {"a": [1]}},
        {"1": 3},
        {"triton_version": 3, "1": {"a": 1}},
        {"triton_version": "3"},
    ],
)
def test_what_is_no_table_of_parameters_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(SourceFormatError):
        tuned.points_of(raw)


def filed(root: Root, entry_id: str) -> Filed:
    stored, faults = files.inspect(content.read(layout.folder_of(root.entries, entry_id)), entry_id)
    assert stored is not None, faults
    return Filed(entry_id, stored.file.version, stored.facts, stored.readme, stored.files)


def test_import_export_import_gives_the_same_digests(root: Root, tmp_path: Path) -> None:
    first = run(root, DATA, write=True)
    out = tmp_path / "out"
    (out / "LICENSE").parent.mkdir()
    (out / "LICENSE").write_text("Apache License\nVersion 2.0\n", encoding="utf-8")
    written = 0
    for name in ("vllm-fused-moe", "sglang-fused-moe", "vllm-block-gemm", "sglang-block-gemm"):
        ids = [str(line.id) for line in first.lines if line.format == name and line.state == "add"]
        for one in registry.exporter(name).export([filed(root, entry_id) for entry_id in ids]):
            assert isinstance(one, Exported), one
            file = out / one.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(one.body)
            written += 1
    assert written == 12
    other = Root(tmp_path / "other")
    (other.entries).mkdir(parents=True)
    second = run(other, out, write=True)
    digests = {}
    for base, report in ((root, first), (other, second)):
        digests[base.path] = {
            (line.id, digest_of(base, str(line.id)))
            for line in report.lines
            if line.state == "add" and str(line.format).endswith(("-fused-moe", "-block-gemm"))
        }
    assert digests[root.path] == digests[other.path]


def digest_of(root: Root, entry_id: str) -> str:
    stored, faults = files.inspect(content.read(layout.folder_of(root.entries, entry_id)), entry_id)
    assert stored is not None, faults
    return stored.digest


def test_an_exporter_says_what_it_cannot_write() -> None:
    entry = Filed("config/gemm/x", 1, {"source": {"path": "../../etc/E=1,N=2,device_name=X.json"}}, "", {})
    assert [type(one) for one in registry.exporter("vllm-fused-moe").export([entry])] == [Skipped]


def test_a_tree_cannot_be_left(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "secret.json").write_text("{}", encoding="utf-8")
    (tmp_path / "source" / "up").symlink_to(tmp_path)
    tree = Tree(tmp_path / "source", Origin("tests", ""))
    for path in ("../secret.json", "up/secret.json", "/etc/passwd"):
        with pytest.raises(SourceFormatError):
            tree.read(path)
    assert [reason for listing in tree.walk() for _, reason in listing.left_out] == ["a link: links are not followed"]
