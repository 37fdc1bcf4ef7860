"""Whatever is wrong with a file, it is refused with its reason, the others are not, and nothing is half written."""

import io
import json
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import KbError
from kb.service import importing

DATA = Path(__file__).parents[1] / "importers" / "data" / "tuned"
ROWS = {str(1 << n): {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": n} for n in range(5)}
NAME = "E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"
GOOD = "good/E=3,N=512,device_name=NVIDIA_H200.json"
_NUMBER = re.compile(rb"(?<=[:\[,\s])(\s*)-?\d+(\.\d+)?(?=\s*[,}\]])")


def run(root: Root, place: Path, *, license_: str | None = "MIT") -> importing.Report:
    options = importing.options_of(
        format_=None, write=True, stated=(None, None, license_), allow=[], device="NVIDIA H200", toolchain=[]
    )
    return importing.run(root, str(place), options)


def snapshot(root: Root) -> dict[str, bytes]:
    """All that a knowledge base holds, what is half filed included; what only a lock leaves does not count."""
    files = (path.relative_to(root.path) for path in root.path.rglob("*") if path.is_file())
    own = (path for path in files if ".kb" not in path.parts or "stage" in path.parts)
    return {str(path): (root.path / path).read_bytes() for path in own if ".lock" not in path.name}


def _with(number: bytes) -> Callable[[bytes], bytes]:
    return lambda body: _NUMBER.sub(rb"\g<1>" + number, body)


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda body: body.rstrip()[: len(body.rstrip()) * 2 // 3],
    "cut at the end": lambda body: body.rstrip()[:-1],
    "duplicate keys": lambda body: re.sub(rb"\{", b'{"twice": 1, "twice": 2, ', body, count=1),
    "NaN": _with(b"NaN"),
    "minus infinity": _with(b"-Infinity"),
    "1e400": _with(b"1e400"),
    "a number of 5,000 digits": _with(b"9" * 5000),
    "deep nesting": lambda body: b'{"1": ' * 100_000 + body + b"}" * 100_000,
    "deep lists": lambda body: b"[" * 20_000 + b"]" * 20_000,
    "no UTF-8": lambda body: body.replace(b'"', b'"\xff', 1),
    "UTF-16": lambda body: body.decode().encode("utf-16"),
    "NUL": lambda body: body + b"\0",
    "something behind it": lambda body: body + b"{}",
    "empty": lambda _: b"",
    "blanks": lambda _: b" \n" * 40,
    "a huge line": lambda body: body[:1] + b" " * (17 << 20) + body[1:],
}


@pytest.mark.parametrize("mutation", list(MUTATIONS))
def test_every_json_format_refuses_what_is_wrong_with_it(root: Root, tmp_path: Path, mutation: str) -> None:
    source = tmp_path / "in"
    shutil.copytree(DATA, source, ignore=shutil.ignore_patterns("broken", "unknown", "no_known_license", "reciprocity"))
    shutil.rmtree(source / "aiconfigurator")
    changed = []
    for path in sorted(source.rglob("*.json")):
        before = path.read_bytes()
        after = MUTATIONS[mutation](before)
        if after != before:
            path.write_bytes(after)
            changed.append(path.relative_to(source).as_posix())
        if len(after) > 1 << 20 and len(changed) == 6:
            break  # six formats of that size will do
    (source / "good").mkdir()
    (source / GOOD).write_text(json.dumps(ROWS), encoding="utf-8")
    report = run(root, source)
    assert len(changed) > 5
    assert {path: report.fates.get(path, ("nothing",))[0] for path in changed} == dict.fromkeys(changed, "refused")
    assert report.fates[GOOD][0] == "imported"
    assert all(line.reason for line in report.lines if line.state == "refused")
    assert {line.state for line in run(root, source).lines if line.id} == {"unchanged"}


HEADER = b"framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
CSV = HEADER + b"VLLM,1.0.0,NVIDIA H200,gemm,x,bfloat16,%s\n"


@pytest.mark.parametrize(
    "cells",
    [b"8,8,8,nan", b"8,8,8,inf", b"8,8,8,-1", b"8,8,8,1e400", b"8,8,8,", b"8,8,8", b"8,8,8,1,1", b"8,8,x,1",
     b"8,8,8,12500000", b"8,8,8,\xff", b"8,8,8,1\0", b"-8,8,8,1", b'8,8,8,"1', b"8,8,8," + b"1" * 5000,
     b"99999999999999999999999,8,8,1"],
)  # fmt: skip
def test_tables_refuse_what_is_no_measurement(root: Root, tmp_path: Path, cells: bytes) -> None:
    source = tmp_path / "in" / "data" / "h200_sxm" / "gemm" / "vllm" / "1.0.0"
    source.mkdir(parents=True)
    (source / "gemm_perf.csv").write_bytes(CSV % cells)
    before = snapshot(root)
    report = run(root, tmp_path / "in")
    assert [line.state for line in report.lines] == ["refused"]
    assert snapshot(root) == before


def test_a_table_that_is_no_parquet_is_refused(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "in" / "data" / "h200_sxm" / "gemm" / "vllm" / "1.0.0"
    source.mkdir(parents=True)
    for name, body in (("gemm_perf", b"PAR1" + b"\xff" * 64 + b"PAR1"), ("moe_perf", b"PAR1"), ("mla_perf", b"")):
        (source / f"{name}.parquet").write_bytes(body)
    report = run(root, tmp_path / "in")
    assert [line.state for line in report.lines] == ["refused"] * 3


def _zip(names: list[str], body: bytes = b"{}") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, body)
    return made.getvalue()


def _link_in_a_zip(target: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        link = zipfile.ZipInfo("folder")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, target)
        archive.writestr(f"folder/{NAME}", json.dumps(ROWS))
    return made.getvalue()


def _tar(members: list[tuple[str, bytes, str]], size: int = 0) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, size
            archive.addfile(info, io.BytesIO(b"0" * size))
    return made.getvalue()


def _overlapping() -> bytes:
    made = bytearray(_zip(["a.json", "b.json"], b"0" * 64))
    made[made.rindex(b"b.json") - 4 : made.rindex(b"b.json")] = b"\0\0\0\0"
    return bytes(made)


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "absolute.zip": lambda: _zip(["/climbed/climbed.json"]),
    "backslash.zip": lambda: _zip(["..\\..\\climbed.json"]),
    "drive.zip": lambda: _zip(["C:\\climbed.json"]),
    "inside.zip": lambda: _zip(["a/../../climbed.json"]),
    "twice.zip": lambda: _zip(["a.json", "b.json"]).replace(b"b.json", b"a.json"),
    "newline.zip": lambda: _zip(["a\n.json"]),
    "garbage.zip": lambda: b"PK\x03\x04" + bytes(range(200)),
    "no.zip": lambda: b"this is no archive",
    "bomb.tar.xz": lambda: lzma.compress(_tar([("a.json", tarfile.REGTYPE, "")], size=40 << 20), preset=0),
    "cut.tar.gz": lambda: b"\x1f\x8b\x08\0\0\0\0\0\0\x03garbage",
    "cut.json.gz": lambda: b"\x1f\x8b\x08",
    "climbing.tar": lambda: _tar([("../climbed.json", tarfile.REGTYPE, "")]),
    "overlapping.zip": _overlapping,
}


@pytest.mark.parametrize("name", list(ARCHIVES))
def test_hostile_archives_leave_nothing(root: Root, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name]())
    before = snapshot(root)
    with pytest.raises(KbError):
        run(root, tmp_path / name)
    assert snapshot(root) == before
    assert not list(tmp_path.parent.rglob("climbed.json"))


def test_links_and_devices_in_archives_are_left_out(root: Root, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "link.zip").write_bytes(_link_in_a_zip(str(tmp_path / "outside")))
    run(root, tmp_path / "link.zip")
    assert list((tmp_path / "outside").iterdir()) == []
    members = [
        (NAME, tarfile.SYMTYPE, "/etc/passwd"), ("hard.json", tarfile.LNKTYPE, "/etc/passwd"),
        ("pipe.json", tarfile.FIFOTYPE, ""), ("device.json", tarfile.CHRTYPE, ""), ("folder", tarfile.SYMTYPE, "/"),
    ]  # fmt: skip
    (tmp_path / "odd.tar").write_bytes(_tar(members))
    before = snapshot(root)
    assert [line for line in run(root, tmp_path / "odd.tar").lines if line.id] == []
    assert snapshot(root) == before


def test_sources_that_are_no_files_are_refused_at_once(root: Root, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        (tmp_path / "nothing").symlink_to(tmp_path / "gone")
        for source in (
            tmp_path / "pipe.json",
            tmp_path / "s",
            Path("/dev/zero"),
            tmp_path / "loop",
            tmp_path / "nothing",
        ):
            with pytest.raises(KbError):
                run(root, source)


def test_devices_in_a_folder_are_refused_without_being_opened(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    os.mkfifo(source / NAME)
    os.mkfifo(source / "LICENSE")
    os.mkfifo(source / "kernel.py")
    (source / "zero.json").symlink_to("/dev/zero")
    (source / "MANIFEST.jsonl").symlink_to("/dev/zero")
    (source / "up").symlink_to("..")
    report = run(root, source)
    assert {line.state for line in report.lines} == {"refused"}
    assert len(report.lines) == 6


def test_names_that_windows_cannot_have_make_entries_that_it_can(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "in"
    for folder in ("con", "aa:b", "x ", "y."):
        (source / folder).mkdir(parents=True)
        (source / folder / NAME.replace("256", str(len(list(source.iterdir()))))).write_text(json.dumps({
            **ROWS, "64": {"BLOCK_SIZE_M": 16 * len(list(source.iterdir()))},
        }), encoding="utf-8")  # fmt: skip
    (source / "E=7,N=1,device_name=<nul>|?*.json").write_text(json.dumps(ROWS), encoding="utf-8")
    report = run(root, source)
    assert {line.state for line in report.lines} == {"add"}
    reserved = re.compile(r'[<>:"|?*\\]|[. ]$|^(con|nul|aux|prn|com\d|lpt\d)(\.|$)', re.IGNORECASE)
    names = [path.name for path in root.entries.rglob("*") if ".kb" not in path.parts]
    assert len([name for name in names if name == "entry.toml"]) == 5
    assert [name for name in names if reserved.search(name)] == []


def test_a_manifest_cannot_lead_elsewhere(root: Root, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / NAME).write_text(json.dumps(ROWS), encoding="utf-8")
    row = {"file": NAME, "repo": "a/b\n[x]", "path": "../../../etc/passwd", "commit": '"\n[source]\n', "license": "MIT"}
    (source / "MANIFEST.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    report = run(root, source, license_=None)
    assert all(line.state in ("add", "refused", "left") for line in report.lines)
    for facts in root.entries.rglob("entry.toml"):
        assert facts.read_text(encoding="utf-8").count("[source]\norigin") == 1


@pytest.mark.parametrize("hit", [0, 5])
def test_a_full_disk_leaves_all_or_nothing(root: Root, tmp_path: Path, hit: int) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(8):
        (source / f"E={number + 1},N=1,device_name=X.json").write_text(
            json.dumps({**ROWS, "64": {"BLOCK_SIZE_M": number + 1}}), encoding="utf-8"
        )
    code = (
        "import sys, resource, signal\nfrom pathlib import Path\nfrom kb.config import Root\n"
        "from kb.service import importing\nfrom kb.store import bulk\n"
        "stage = bulk.Filing.stage\n"
        "def full(self, name, files):\n"
        f"    if self.count == {hit}:\n        raise OSError(28, 'No space left on device')\n"
        "    stage(self, name, files)\n"
        "bulk.Filing.stage = full\n"
        "options = importing.options_of(format_=None, write=True, stated=(None, None, 'MIT'), allow=[], device=None,"
        " toolchain=[])\n"
        "try:\n    importing.run(Root(Path(sys.argv[1])), sys.argv[2], options)\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    before = snapshot(root)
    done = subprocess.run(
        [sys.executable, "-c", code, str(root.path), str(source)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "StoreError"
    assert snapshot(root) == before
