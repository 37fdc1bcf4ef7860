"""A trace becomes a target with measured shares; what it does not say has to be said, and what is wrong is refused."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root
from kb.errors import ConfigError, DeviceUnavailableError, KbError, SourceUnavailableError, UnknownOperatorError
from kb.importers.traces import opening
from kb.service.checking import check
from kb.service.profiling import Asked, from_trace, rules_for
from kb.service.targets import file_draft

H200 = [{"name": "NVIDIA H200"}]


def kernel(name: str, dur: float, **arguments: object) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1.0, "dur": dur, "tid": 7, "args": arguments}


def marked(number: int) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": 0, "dur": 1}


EVENTS = [
    marked(1),
    marked(2),
    kernel("nvjet_tst_128x64_bf16", 60.0),
    kernel("nvjet_tst_128x64_bf16", 20.0),
    kernel("void vllm::rms_norm_kernel<c10::BFloat16>", 15.0),
    kernel("a_kernel_of_nobody", 5.0),
]


def trace(tmp_path: Path, events: object = EVENTS, devices: object = H200, name: str = "run.json") -> Path:
    file = tmp_path / name
    body = json.dumps({"deviceProperties": devices, "traceEvents": events}).encode()
    file.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    return file


def test_shares_calls_and_strangers_are_those_of_the_trace(tmp_path: Path) -> None:
    found = from_trace(trace(tmp_path), Asked(phase="decode", batch_size=4, context_len=100))
    target = found.drafted.target
    assert [(row.operator, row.share, row.calls_per_step) for row in target.operators] == [
        ("gemm", 0.8, 1.0),
        ("rmsnorm", 0.15, 0.5),
    ]
    assert [(one.name, one.share) for one in target.unnamed] == [("a_kernel_of_nobody", 0.05)]
    assert (found.named_share, found.total_us, target.precision) == (0.95, 100.0, "bfloat16")
    assert (target.traffic[0].batch_size, target.traffic[0].context_len) == (4, 100)
    assert target.devices == ["NVIDIA H200"]
    assert found.drafted.id == "target/run/bf16-decode-h200"
    assert found.cleaned == 0
    hidden = [*EVENTS[:-1], kernel("a_kernel\u200b_of_nobody", 5.0)]
    assert from_trace(trace(tmp_path, hidden), Asked()).cleaned == 1
    assert target.share_basis is not None
    assert "50 us a step over 2 step(s), 95.00 % of it named" in target.share_basis


def test_a_traced_target_is_filed_and_passes_every_check(tmp_path: Path, root: Root) -> None:
    found = from_trace(trace(tmp_path, name="run.json.gz"), Asked(model="Small", count=2))
    assert file_draft(found.drafted, root).reference == "target/small/bf16-trace-h200x2@1"
    assert [one for one in check(None, root, history=False).findings if one.severity == "problem"] == []


def test_steps_can_be_said_and_have_to_be_some(tmp_path: Path) -> None:
    rows = from_trace(trace(tmp_path), Asked(steps=4)).drafted.target.operators
    assert rows[0].calls_per_step == 0.5
    for steps in (0, -1):
        with pytest.raises(ConfigError, match="at least one step"):
            from_trace(trace(tmp_path), Asked(steps=steps))


@pytest.mark.parametrize(
    ("devices", "asked", "said"),
    [
        ([], None, "does not say on which device"),
        ([{"name": "NVIDIA H200"}, {"name": "NVIDIA H100"}], None, "does not say on which device"),
        ([{"name": "Acme Q9"}], None, "'Acme Q9'"),
        (H200, "Acme Q9", "'Acme Q9'"),
        ([{"name": ["NVIDIA H200"]}], None, "does not say on which device"),
        ([{"name": "\x1b[31mH200"}], None, "does not say on which device"),
        ([{"name": "x" * 100_000}], None, "does not say on which device"),
        ("NVIDIA H200", None, "does not say on which device"),
        ([None, 3], None, "does not say on which device"),
    ],
)
def test_a_device_that_nobody_knows_is_refused_in_one_line(
    tmp_path: Path, devices: object, asked: str | None, said: str
) -> None:
    with pytest.raises(KbError) as found:
        from_trace(trace(tmp_path, devices=devices), Asked(device=asked))
    assert said in found.value.message
    assert found.value.message.isprintable()
    assert len(found.value.message) < 300
    if isinstance(found.value, DeviceUnavailableError):
        assert (found.value.hint or "").startswith("--device NAME")


def test_what_is_asked_wins_over_what_the_trace_says(tmp_path: Path) -> None:
    target = from_trace(trace(tmp_path), Asked(device="H100", precision="fp8")).drafted.target
    assert target.devices == ["H100"]
    assert target.precision == "fp8"


@pytest.mark.parametrize("events", [[], [kernel("gemm", 0.0)], [marked(1)]])
def test_a_trace_without_time_is_refused(tmp_path: Path, events: object) -> None:
    with pytest.raises(SourceUnavailableError, match="any time"):
        from_trace(trace(tmp_path, events), Asked())


def test_the_shortest_time_there_is_makes_a_share(tmp_path: Path) -> None:
    rows = from_trace(trace(tmp_path, [kernel("gemm", 5e-324)]), Asked()).drafted.target.operators
    assert [row.share for row in rows] == [1.0]


def test_a_cut_gzip_is_refused(tmp_path: Path) -> None:
    file = trace(tmp_path, name="run.json.gz")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(SourceUnavailableError, match="truncated"):
        from_trace(file, Asked())


def test_a_trace_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1 << 20)
    file = trace(tmp_path, [kernel("gemm", 1.0)] * 20_000)
    with pytest.raises(SourceUnavailableError, match="it has more than"):
        from_trace(file, Asked())


READ = """
import resource, sys
from pathlib import Path
from kb.service.profiling import Asked, from_trace
from_trace(Path(sys.argv[1]), Asked())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from_trace(Path(sys.argv[2]), Asked())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    small = trace(tmp_path, [kernel("gemm", 1.0)] * 60_000, name="small.json")
    large = tmp_path / "large.json"
    one = json.dumps(kernel("void at::native::vectorized_elementwise_kernel<4, x>", 1.5, grid=[1, 2, 3])).encode()
    with large.open("wb") as stream:
        stream.write(b'{"deviceProperties": [{"name": "NVIDIA H200"}], "traceEvents": [' + one)
        for _ in range(40):
            stream.write((b"," + one) * 6_000)
        stream.write(b"]}")
    assert large.stat().st_size > 30 << 20
    done = subprocess.run(
        [sys.executable, "-c", READ, str(small), str(large)], capture_output=True, text=True, timeout=280, check=True
    )
    assert int(done.stdout) < 24, "MiB more than for a trace of a fifth of the size"


def test_rules_of_ones_own_name_what_was_unnamed_and_have_to_name_operators(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    rule = '[[rule]]\nid = "own"\non = "kernel"\nmatch = "^a_kernel_of_nobody$"\noperator = "{}"\n'
    mine.write_text(rule.format("softmax"), encoding="utf-8")
    found = from_trace(trace(tmp_path), Asked(rules=mine))
    assert found.named_share == 1
    assert "softmax" in {row.operator for row in found.drafted.target.operators}
    mine.write_text(rule.format("softmin"), encoding="utf-8")
    with pytest.raises(UnknownOperatorError, match="'softmin'"):
        rules_for(mine)
