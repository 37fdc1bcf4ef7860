"""kb import: nothing without --write, all or nothing with it, nothing twice, and no hostile source gets further."""

import gzip
import io
import json
import os
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from kb.config import MARKER, Root
from kb.errors import ConfigError, KbError, SourceFormatError, SourceUnavailableError
from kb.service import importing

ROWS = {str(1 << n): {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": n} for n in range(5)}
NAME = "E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"
ID = "config/fused_moe/vllm-e256-n512-fp8-w8a8-nvidia-h200"
APACHE = "Apache License\nVersion 2.0\n"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    base = tmp_path / "kb"
    (base / "entries").mkdir(parents=True)
    (base / MARKER).write_text("schema = 1\n", encoding="utf-8")
    return Root(base)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    base = tmp_path / "source"
    base.mkdir()
    (base / "LICENSE").write_text(APACHE, encoding="utf-8")
    (base / NAME).write_text(json.dumps(ROWS), encoding="utf-8")
    return base


def run(root: Root, place: Path | str, *, write: bool = True, **given: object) -> importing.Report:
    wanted: dict[str, object] = {
        "format_": None, "stated": (None, None, None), "allow": [], "device": None, "toolchain": [], **given,
    }  # fmt: skip
    return importing.run(root, str(place), importing.options_of(write=write, **wanted))  # type: ignore[arg-type]


def facts(root: Root, entry_id: str = ID) -> dict[str, object]:
    return tomllib.loads((root.entries / entry_id / "entry.toml").read_text(encoding="utf-8"))


def names_of(root: Root) -> list[str]:
    return sorted(file.parent.relative_to(root.entries).as_posix() for file in root.entries.rglob("entry.toml"))


def test_without_write_nothing_is_changed(root: Root, source: Path) -> None:
    report = run(root, source, write=False)
    assert [line.id for line in report.lines if line.state == "add"] == [ID]
    assert list(root.entries.iterdir()) == []


def test_an_update_of_the_source_makes_a_new_version_and_keeps_what_was_learnt(root: Root, source: Path) -> None:
    run(root, source)
    record = root.entries / ID / "records" / "2026-01-01-sm_90-0123456789ab.json"
    record.parent.mkdir()
    record.write_text("{}\n", encoding="utf-8")
    entry = root.entries / ID / "entry.toml"
    text = entry.read_text(encoding="utf-8")
    gone = '\n[withdrawn]\ndate = 2026-01-02\nreason = "slower than the default"\n'
    entry.write_text(f"{text}{gone}", encoding="utf-8")
    assert {line.state for line in run(root, source).lines} == {"unchanged", "left"}
    assert entry.read_text(encoding="utf-8") == f"{text}{gone}"
    (source / NAME).write_text(json.dumps({**ROWS, "64": {"BLOCK_SIZE_M": 32}}), encoding="utf-8")
    report = run(root, source)
    assert [(line.state, line.version) for line in report.lines if line.id] == [("update", 2)]
    assert facts(root)["version"] == 2
    assert str(facts(root)["withdrawn"]).count("slower than the default") == 1
    assert record.read_text(encoding="utf-8") == "{}\n"


def test_two_sources_of_one_key_stand_side_by_side(root: Root, source: Path, tmp_path: Path) -> None:
    run(root, source, stated=("owner/one", "abc", None))
    other = tmp_path / "other"
    other.mkdir()
    (other / NAME).write_text(json.dumps({"1": {"BLOCK_SIZE_M": 64}}), encoding="utf-8")
    for _ in range(2):
        run(root, other, stated=("owner/two", None, "MIT"))
    assert len(names_of(root)) == 2
    assert facts(root)["source"]["origin"] == "owner/one"  # type: ignore[index]


def test_the_same_file_twice_is_one_entry(root: Root, source: Path) -> None:
    (source / "copy").mkdir()
    (source / "copy" / NAME).write_bytes((source / NAME).read_bytes())
    report = run(root, source)
    assert sorted(line.state for line in report.lines if line.id) == ["add", "duplicate"]
    assert names_of(root) == [ID]


def test_one_file_can_be_imported_by_its_path(root: Root, source: Path) -> None:
    (source / "E=1,N=2,device_name=X.json").write_text("{}", encoding="utf-8")
    report = run(root, source / NAME)
    assert [line.state for line in report.lines] == ["add"]


def test_a_format_can_be_forced_and_an_unknown_one_is_refused(root: Root, source: Path) -> None:
    report = run(root, source, format_="aiter")
    assert [line.reason for line in report.lines if line.state == "refused"] == ["it is not of the format aiter"]
    with pytest.raises(KbError, match="no format is called"):
        run(root, source, format_="nonsense")
    with pytest.raises(ConfigError):
        run(root, source, toolchain=["triton"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Researcher Reciprocity License\n", "research-reciprocity"),
        ("All rights reserved.\n", "not one that is known"),
        ("GNU General Public License\n", "not on the allow-list"),
    ],
)
def test_the_license_at_hand_decides(root: Root, source: Path, text: str, reason: str) -> None:
    (source / "LICENSE").write_text(text, encoding="utf-8")
    report = run(root, source)
    assert [reason in str(line.reason) for line in report.lines if line.state == "refused"] == [True]
    assert names_of(root) == []


def test_a_license_let_in_by_hand_travels_as_a_restriction(root: Root, source: Path) -> None:
    (source / "LICENSE").write_text("Researcher Reciprocity License\n", encoding="utf-8")
    run(root, source, allow=["LicenseRef-Research-Reciprocity"])
    assert "let in by hand" in str(facts(root)["restrictions"])


def test_no_license_is_no_license(root: Root, source: Path) -> None:
    (source / "LICENSE").unlink()
    assert [line.state for line in run(root, source).lines] == ["refused"]
    assert [line.state for line in run(root, source, stated=(None, None, "MIT")).lines] == ["add"]
    assert facts(root)["license"] == "MIT"


def test_a_manifest_says_where_each_file_came_from_and_is_held_to_it(root: Root, source: Path) -> None:
    from kb.importers.base import sha256

    row = {
        "file": NAME, "repo": "owner/name", "commit": "c0ffee", "path": f"deep/{NAME}", "license": "MIT",
        "saved_sha256": sha256((source / NAME).read_bytes()),
    }  # fmt: skip
    (source / "MANIFEST.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    run(root, source)
    assert facts(root)["license"] == "MIT"
    assert facts(root)["source"]["commit"] == "c0ffee"  # type: ignore[index]
    (source / NAME).write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16}}), encoding="utf-8")
    assert "digest" in str([line.reason for line in run(root, source).lines if line.state == "refused"])
    (source / "MANIFEST.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(SourceFormatError):
        run(root, source)


def test_a_git_checkout_names_repository_and_commit(root: Root, source: Path) -> None:
    git = ("git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    remote = ("remote", "add", "origin", "https://user:secret@example.org/owner/name.git")
    subprocess.run([*git, *remote], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    run(root, source)
    told = facts(root)["source"]
    assert isinstance(told, dict)
    assert (told["origin"], told["commit"], told["url"]) == ("owner/name", head, "https://example.org/owner/name")
    assert "secret" not in str(facts(root))


def test_a_repository_is_cloned_by_its_address(root: Root, source: Path) -> None:
    git = ("git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    assert [line.state for line in run(root, f"file://{source}").lines if line.id] == ["add"]
    for bad in ("https://127.0.0.1:9/owner/name.git", "ext::sh -c true.git", "--upload-pack=true.git"):
        with pytest.raises(SourceUnavailableError):
            run(root, bad)


def test_archives_are_sources_too(root: Root, source: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for file in source.iterdir():
            made.write(file, file.name)
    assert [line.state for line in run(root, archive, write=False).lines if line.id] == ["add"]
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(source, "top")
    assert [line.state for line in run(root, tmp_path / "a.tar.gz", write=False).lines if line.id] == ["add"]
    wheel = tmp_path / "tuner-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.write(source / NAME, f"tuner/{NAME}")
        made.writestr("tuner-1.2.dist-info/METADATA", "Name: tuner\nVersion: 1.2\nLicense-Expression: MIT\n\ntext")
    run(root, wheel)
    assert facts(root)["license"] == "MIT"
    assert facts(root)["source"]["commit"] == "wheel 1.2"  # type: ignore[index]


def _zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("E=1,N=1,device_name=X.json", b"0" * (64 << 20))


def _gzip_bomb(path: Path) -> None:
    path.write_bytes(gzip.compress(b"0" * (64 << 20)))


def _climbing_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("../../climbed.json", b"{}")


def _climbing_tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("/abs/climbed.json")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))


def _half_a_zip(path: Path) -> None:
    _climbing_zip(path)
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.zip", _zip_bomb), ("a.json.gz", _gzip_bomb), ("b.zip", _climbing_zip), ("b.tar", _climbing_tar),
        ("c.zip", _half_a_zip),
    ],
)  # fmt: skip
def test_hostile_archives_are_refused_and_leave_nothing(root: Root, tmp_path: Path, name: str, make: object) -> None:
    make(tmp_path / name)  # type: ignore[operator]
    with pytest.raises(SourceFormatError):
        run(root, tmp_path / name)
    assert list(root.entries.iterdir()) == []
    assert not list(tmp_path.rglob("climbed.json"))


def test_hostile_names_links_and_pipes_are_refused(root: Root, source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (source / "E=1,N=1,device_name=X.json").symlink_to(tmp_path / "outside.json")
    (source / "loop").symlink_to(source)
    os.mkfifo(source / "E=2,N=1,device_name=X.json")
    (source / "E=3,N=1,device_name=X\n.json").write_text(json.dumps(ROWS), encoding="utf-8")
    undecodable = os.fsencode(source) + b"/E=4,N=1,device_name=\xff.json"
    with open(undecodable, "wb") as file:  # noqa: PTH123 - a name that is no text
        file.write(b"{}")
    (source / "E=5,N=1,device_name=con|<a>:..json").write_text(json.dumps(ROWS), encoding="utf-8")
    report = run(root, source)
    assert sorted(line.state for line in report.lines) == ["add", "add", "left"] + ["refused"] * 5
    assert names_of(root) == [
        "config/fused_moe/vllm-e256-n512-fp8-w8a8-nvidia-h200",
        "config/fused_moe/vllm-e5-n1-con-a",
    ]


def test_an_importer_that_breaks_stops_no_other_file(root: Root, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kb.importers import registry

    importer = registry.importer("vllm-mamba")
    (source / "headdim=64,dstate=1,device_name=X,cache_dtype=a.json").write_text("{}", encoding="utf-8")

    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(type(importer), "_recipe", broken)
    report = run(root, source)
    assert all("refused" in line.state or line.state == "left" for line in report.lines)


def test_a_failure_on_the_way_leaves_nothing(root: Root, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kb.store import bulk

    (source / NAME.replace("512", "256")).write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16}}), encoding="utf-8")
    stage = bulk.Filing.stage

    def full(self: bulk.Filing, entry_id: str, files: dict[str, bytes]) -> None:
        if self.count == 1:
            raise KeyboardInterrupt
        stage(self, entry_id, files)

    monkeypatch.setattr(bulk.Filing, "stage", full)
    with pytest.raises(KeyboardInterrupt):
        run(root, source)
    assert names_of(root) == []
    assert not any((root.entries / ".kb" / "stage").iterdir())


def test_the_entries_of_the_installation_are_never_written(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        run(Root(tmp_path, packaged=True), source)
    with pytest.raises(ConfigError):
        run(Root(tmp_path / "nothing"), source)
    (tmp_path / "entries").mkdir()
    with pytest.raises(SourceUnavailableError):
        run(Root(tmp_path), tmp_path / "missing")
