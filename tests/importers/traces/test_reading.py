"""Traces of every form are read; those that are broken, hostile or empty give an error in one line."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kb.errors import KbError, SourceUnavailableError
from kb.importers.traces import events, opening
from kb.importers.traces.profile import NAMELESS, Profile
from kb.importers.traces.reading import read_trace


def kernel(name: str = "gemm_kernel", dur: object = 5.0, **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - an event
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1.0, "dur": dur, "tid": 7, "args": {}, **changed}


def operation(name: str, ts: float, dur: float, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - an event
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "tid": 1, "args": arguments}


def written(tmp_path: Path, body: object, name: str = "t.json") -> Path:
    file = tmp_path / name
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def times(profile: Profile) -> dict[str, float]:
    """Return time by name."""
    found: dict[str, float] = {}
    for key, spent in profile.spent.items():
        name = key.kernel or (key.operation.name if key.operation else "")
        found[name] = found.get(name, 0.0) + spent.time_us
    return found


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_device_time_counts_where_there_is_any_and_a_kernel_knows_what_launched_it(tmp_path: Path, name: str) -> None:
    dims = {"Input Dims": [[4, 8], [8, 16]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    trace = {
        "deviceProperties": [{"name": "NVIDIA H200"}],
        "traceEvents": [
            {"ph": "M", "name": "process_name"},
            kernel("late", 2.0, args={"External id": 9}),
            operation("aten::mm", 0, 100, **{"External id": 9, **dims}),
            kernel("late", 3.0, args={"External id": 9}),
            {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 1, "dur": 1},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "ts": 0, "dur": 9},
        ],
        "traceName": "x",
    }
    profile = read_trace(written(tmp_path, trace, name))
    assert (profile.device, profile.steps, profile.total_us) == ("NVIDIA H200", 2, 6.0)
    (launched,) = [key.operation for key in profile.spent if key.kernel == "late"]
    assert launched is not None
    assert (launched.name, launched.dims) == ("aten::mm", ((4, 8), (8, 16)))


def test_on_a_cpu_an_operation_has_the_time_that_no_inner_one_took(tmp_path: Path) -> None:
    inner = [operation("aten::linear", 0, 100), operation("aten::t", 1, 10), operation("aten::addmm", 20, 70)]
    other = {**operation("aten::mul", 5, 30), "tid": 2}
    profile = read_trace(written(tmp_path, [inner[2], other, inner[0], inner[1]]))
    assert times(profile) == {"aten::linear": 20.0, "aten::t": 10.0, "aten::addmm": 70.0, "aten::mul": 30.0}
    assert profile.device == "cpu"


def test_a_trace_is_read_the_same_however_it_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = {"a": 12345, "traceEvents": [kernel(f"k{i}é", i + 0.5) for i in range(50)], "z": [1, {"b": None}]}
    file = written(tmp_path, json.dumps(trace, ensure_ascii=False, indent=1).encode())
    whole = times(read_trace(file))
    assert len(whole) == 50
    for size in (1, 3, 17, 1000):
        monkeypatch.setattr(events, "_CHUNK", size)
        assert times(read_trace(file)) == whole


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   \n",
        b"hello",
        b"\x00\x01\x02binary",
        b"{}",
        b"[]",
        b'{"traceEvents": []}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": [1]}',
        b'{"traceEvents": [{"ph": "X"',
        b'{"traceEvents": [] "x": 1}',
        b'{"traceEvents": [{"a": 1} {"b": 2}]}',
        b'{"traceEvents": [' + b"[" * 200_000,
        b'{"x": ' + b'{"a":' * 100_000,
        b'{"traceEvents": [], "x": tru',
        [kernel(dur=0.0)],
        [kernel(dur=-1.0)],
        [kernel(dur=float("nan"))],
        [kernel(dur=float("inf"))],
        [kernel(dur="5")],
        [kernel(dur=None)],
        [kernel(dur=True)],
        [kernel(dur=1e300)],
        [kernel(name="")],
        [{**kernel(), "name": 3}],
        [operation("aten::mm", float("nan"), 1.0)],
        [{**operation("aten::mm", 0, 1), "tid": [1]}],
        [{**operation("aten::mm", 0, 1), "name": ["aten::mm"]}],
        json.dumps([kernel()]).encode() + b"]",
    ],
)
def test_a_broken_trace_is_refused_in_one_line(tmp_path: Path, body: object) -> None:
    with pytest.raises(SourceUnavailableError) as found:
        read_trace(written(tmp_path, body))
    assert found.value.message.isprintable()
    assert len(found.value.message) < 300


def test_a_name_with_characters_that_cannot_be_printed_counts_without_them(tmp_path: Path) -> None:
    names = {
        "gemm\u200b_kernel": "gemm_kernel",
        "a\x1b[31mb": "a [31mb",
        "flash\tattention\n<float>": "flash attention <float>",
        "\u202eevil": "evil",
        "lone\ud800": "lone",
        "\u200b\u200c": NAMELESS,
        "plain": "plain",
    }
    profile = read_trace(written(tmp_path, [kernel(name, 1.0) for name in [*names, "gemm_kernel"]]))
    assert times(profile) == dict.fromkeys(names.values(), 1.0) | {"gemm_kernel": 2.0}
    assert profile.cleaned == set(names.values()) - {"plain"}
    assert read_trace(written(tmp_path, [operation("aten::\u2060mm", 0, 1.0)], "cpu.json")).cleaned == {"aten::mm"}
    table = "Total Time (ns),Instances,Name\n1000,1,gemm\u200b_kernel\n".encode()
    assert times(read_trace(written(tmp_path, table, "t.csv"))) == {"gemm_kernel": 1.0}


def test_a_compressed_trace_that_is_cut_damaged_or_a_bomb_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gzip.compress(json.dumps([kernel(f"kernel {i}", i + 1.0) for i in range(2000)]).encode())
    file = tmp_path / "t.json.gz"
    for body, said in (
        (whole[: len(whole) // 2], "truncated"),
        (whole[:-4], "truncated"),
        (whole[:40] + b"\xff" * 40 + whole[80:], "damaged"),
        (whole[:12], "truncated"),
    ):
        file.write_bytes(body)
        with pytest.raises(SourceUnavailableError, match=said):
            read_trace(file)
    monkeypatch.setattr(opening, "_FREE_BYTES", 1 << 20)
    file.write_bytes(gzip.compress(b"[" + b" " * (8 << 20) + b"]"))
    with pytest.raises(SourceUnavailableError, match="times its size"):
        read_trace(file)


def test_one_value_without_end_is_not_collected_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_CHUNK", 1 << 12)
    monkeypatch.setattr(events, "_MOST_VALUE", 1 << 14)
    with pytest.raises(SourceUnavailableError, match="too large or broken"):
        read_trace(written(tmp_path, b'{"x": "' + b"a" * (1 << 17) + b'"}'))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", Path("/dev/zero")):
        with pytest.raises(KbError, match="expected a file"):
            read_trace(path)
    report = written(tmp_path, b"anything", "x.nsys-rep")
    with pytest.raises(SourceUnavailableError) as found:
        read_trace(report)
    assert found.value.hint == "nsys export --type sqlite x.nsys-rep"


def database(tmp_path: Path, *statements: str) -> Path:
    file = tmp_path / "t.sqlite"
    file.unlink(missing_ok=True)
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE filler (x)")
        for one in statements:
            connection.execute(one)
    connection.close()
    return file


TABLES = (
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER, shortName INTEGER)",
)


def test_a_database_of_nsight_systems_is_read(tmp_path: Path) -> None:
    file = database(
        tmp_path,
        *TABLES,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER)",
        "CREATE TABLE TARGET_INFO_GPU (name TEXT)",
        "INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200')",
        "INSERT INTO StringIds VALUES (1, 'nvjet_tst_128x64'), (2, 'rms_norm_kernel')",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 5000, 1, 1), (6000, 7000, 2, 2), (8000, 9000, 2, 2)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 500)",
    )
    profile = read_trace(file)
    assert times(profile) == {"nvjet_tst_128x64": 5.0, "rms_norm_kernel": 2.0, "[CUDA memcpy]": 0.5}
    assert profile.device == "NVIDIA H200"
    assert sorted(spent.calls for spent in profile.spent.values()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ((), "no table CUPTI_ACTIVITY_KIND_KERNEL"),
        (("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end",), "no table"),
        (TABLES, "no kernel in it took any time"),
        ((*TABLES, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 5, 1, 1)"), "0 to"),
        ((*TABLES, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5, 1, 1)"), "name of a kernel"),
        ((*TABLES, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', NULL, 1, 1)"), "expected a time"),
    ],
)
def test_a_database_without_kernels_is_refused(tmp_path: Path, statements: tuple[str, ...], said: str) -> None:
    with pytest.raises(SourceUnavailableError, match=said):
        read_trace(database(tmp_path, *statements))


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError):
        read_trace(written(tmp_path, b"SQLite format 3\x00" + b"\xff" * 5000, "t.sqlite"))


SUMMARY = """Generating SQLite file x.sqlite
Processing [x.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000,1000,900,1100,10,"void gemm<float, 1>(int, float)"
25.0,1000,1,1000,1000,1000,1000,0,rms_norm_kernel

"""
TRACE = """Start (us),Duration (us),CorrId,GrdX,Device,Ctx,Strm,Name
1.0,2.5,7,1,NVIDIA H200 (0),1,7,"void gemm<float, 1>(int, float)"
4.0,1.5,8,1,NVIDIA H200 (0),1,7,"void gemm<float, 1>(int, float)"
"""


def test_both_tables_of_nsight_systems_are_read(tmp_path: Path) -> None:
    summary = read_trace(written(tmp_path, SUMMARY.encode(), "s.csv"))
    assert times(summary) == {"void gemm<float, 1>(int, float)": 3.0, "rms_norm_kernel": 1.0}
    assert sorted(spent.calls for spent in summary.spent.values()) == [1, 3]
    trace = read_trace(written(tmp_path, b"\xef\xbb\xbf" + TRACE.replace("\n", "\r\n").encode(), "t.csv"))
    assert times(trace) == {"void gemm<float, 1>(int, float)": 4.0}
    assert trace.device == "NVIDIA H200"


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        SUMMARY.replace("3000", "many"),
        SUMMARY.replace("3000", "-5"),
        SUMMARY.replace("3000", "nan"),
        SUMMARY.replace("rms_norm_kernel", ""),
        SUMMARY.split("75.0", maxsplit=1)[0],
        SUMMARY.replace("25.0,1000,1", "25.0"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceUnavailableError):
        read_trace(written(tmp_path, text.encode(), "t.csv"))
