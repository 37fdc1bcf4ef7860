"""A small knowledge base that has what the page shows: versions, times by shape, claims, relatives, hostile text."""

import copy
import hashlib
import subprocess
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from kb.config import MARKER, Root, config_folder
from kb.models.record import canonical
from kb.service.validating import chain_head
from kb.store import files, layout, records
from kb.validators import keys

TIMED = "kernel/silu/one-pass"
TOKENS = (16, 64, 256, 1024, 4096, 16_384)
WIDTH = 4096
H200: Mapping[str, Any] = {
    "name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1", "driver": "580.159.04",
    "peaks": {"copy_gbps": 4000.0, "matmul_tflops": {"bfloat16": 700.0}, "launch_us": 2.0, "l2_bytes": None},
}  # fmt: skip
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}

HOSTILE = """# Hostile

<script>window.broken = 'script'; fetch('http://evil.example/')</script>
<img src=x onerror="window.broken = 'img'"> <svg onload="window.broken='svg'"></svg>

[press me](javascript:window.broken='link') [and me](data:text/html,<script>window.broken='data'</script>)
![a picture](http://evil.example/pixel.png) [plain link](https://example.org/paper)

| a | b |
|--:|---|
| 1 | <b>two</b> |

LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL `CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC`

```python
def run(x):  # <img src=x onerror="window.broken='code'">
    return x
```
"""
_FACTS = """schema = 1
version = {version}
title = "{title}"
summary = "{summary}"
outcome = "works"
operator = "{operator}"
language = "{language}"
entry_point = "kernel.py:run"
dtypes = ["bfloat16", "float32"]
tags = ["activation", "decode"]
license = "Apache-2.0"
{more}
[requires]
arch = ["sm_90", "cpu"]
[source]
origin = "written here"
"""
_NEGATIVE = """schema = 1
version = 1
title = "Staging a row in shared memory"
summary = "A round trip that bought nothing on an H100."
outcome = "no_effect"
operator = "silu"
language = "none"
license = "Apache-2.0"
[source]
origin = "written here"
[negative]
hypothesis = "Shared memory would hide the latency of the second read."
condition = "Rows below 16 KiB on sm_90."
effect = "There is no second read: the row is in registers, so nothing changed."
"""
_CLAIM = """
[[claims]]
metric = "latency_us"
value = {value}
unit = "us"
better = "lower"
device = "NVIDIA H100 80GB HBM3"
workload = "router-sized GEMM, M={m}, N=256, K=2048"
backend = "{backend}"
source = "a table that somebody published"
"""
_TARGET = """schema = 1
version = 1
title = "A small model on one H200"
summary = "Two operators, both memory-bound."
outcome = "works"
language = "none"
dtypes = ["bfloat16"]
license = "Apache-2.0"
[source]
origin = "written here"
[target]
model = "A model"
devices = ["NVIDIA H200"]
device_count = 1
precision = "bf16"
accuracy = "as the original"
share_basis = "estimated from bytes"
[[target.traffic]]
name = "decode"
summary = "one stream"
phase = "decode"
batch_size = 1
concurrency = 1
weight = 1
[[target.goals]]
metric = "tokens_per_s"
better = "higher"
against = "the framework"
[[target.operators]]
operator = "silu"
name = "MLP activation"
axes = {{ num_tokens = 64, hidden_size = 4096 }}
dtypes = ["bfloat16"]
calls_per_step = 32
share = 0.6
share_from = "estimated"
[[target.operators]]
operator = "softmax"
name = "router softmax"
axes = {{ num_tokens = 64, num_classes = 128 }}
dtypes = ["bfloat16"]
calls_per_step = 32
share = 0.1
share_from = "estimated"
"""
_CAMPAIGN = """schema = 1
version = 1
title = "A run on the small model"
summary = "Twice as fast in two days."
outcome = "works"
language = "none"
dtypes = ["bfloat16"]
license = "Apache-2.0"
[source]
origin = "written here"
[campaign]
target = "target/small/bf16-h200"
baseline = "the framework 1.0"
duration_days = 2
tokens = 5_000_000
reused = ["kernel/silu/one-pass"]
[[claims]]
metric = "tokens_per_s"
value = 200
unit = "tokens/s"
better = "higher"
device = "NVIDIA H200"
workload = "single stream"
backend = "ours"
baseline = "the framework 1.0"
baseline_value = 100
source = "a table that somebody published"
"""


def build(folder: Path, judged: Mapping[str, Any]) -> Root:
    """Write the knowledge base.

    Args:
        folder: An empty folder.
        judged: A genuine record of values, of the operator ``silu``.
    """
    root = Root(folder)
    (folder / MARKER).write_text("schema = 1\n", encoding="utf-8")
    _kernel(root, TIMED, "SiLU in one pass", "Reads x once and writes y once.", code="def run(x):\n    return x\n")
    _git(folder, "init", "-q", "-b", "main")
    _commit(folder, "First version")
    better = "def run(x):\n    y = x * x.sigmoid()\n    return y\n"
    _kernel(root, TIMED, "SiLU in one pass", "Reads x once and writes y once.", version=2, code=better)
    parent = '[[lineage]]\nparent = "kernel/silu/one-pass"\nrelation = "mutated"\n'
    _kernel(root, "kernel/silu/two-rows", "SiLU, two rows a CTA", "For short rows.", more=parent)
    _kernel(root, "kernel/softmax/online-row", "Softmax, one row a CTA", "Online maximum.", language="cuda")
    _kernel(
        root,
        "kernel/rmsnorm/hostile",
        f"<b>Bold</b> & <script> {'W' * 50}",
        f"Text is data. {'w' * 90}",
        readme=HOSTILE,
    )
    _document(root, "technique/numerics/shared-memory-row", _NEGATIVE)
    claims = [(name, m, value * factor) for name, factor in (("fast", 1.0), ("plain", 2.5)) for m, value in _CURVE]
    written = "".join(_CLAIM.format(backend=name, m=m, value=value) for name, m, value in claims)
    facts = _NEGATIVE.partition("[negative]")[0].replace('"no_effect"', '"works"').replace('operator = "silu"\n', "")
    _document(root, "technique/gemm/router", facts.replace("Staging a row in shared memory", "Router GEMM") + written)
    _document(root, "target/small/bf16-h200", _TARGET.format())
    _document(root, "campaign/small/first", _CAMPAIGN)
    _times(root, judged)
    _commit(folder, "Second version")
    return root


_CURVE = ((1, 6.1), (64, 6.6), (512, 9.0), (4096, 31.0))


def _kernel(
    root: Root,
    name: str,
    title: str,
    summary: str,
    *,
    version: int = 1,
    language: str = "triton",
    code: str = "def run(x):\n    return x\n",
    readme: str = "# Title\n\n**What it does.** As its name says.\n",
    more: str = "",
) -> None:
    operator = name.split("/")[1]
    text = _FACTS.format(
        version=version, title=title, summary=summary, operator=operator, language=language, more=""
    ).replace("[source]", f"{more}[source]")
    folder = _document(root, name, text, readme)
    (folder / "kernel.py").write_text(code, encoding="utf-8")


def _document(root: Root, name: str, facts: str, readme: str = "# Title\n\nProse.\n") -> Path:
    folder = root.entries / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entry.toml").write_text(facts, encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return folder


def _times(root: Root, judged: Mapping[str, Any]) -> None:
    """File one signed record with times of all shapes: a launch cost and bytes over bandwidth."""
    stored = files.read(layout.folder_of(root.entries, TIMED), TIMED)
    raw = copy.deepcopy(dict(judged))
    raw["created_utc"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raw["entry"] |= {"id": TIMED, "version": 2, "digest": stored.digest, "language": "triton"}
    raw["device"], raw["software"] = dict(H200), SOFTWARE
    raw["timing"] = [_timing(tokens, dtype) for dtype in ("bfloat16", "float32") for tokens in TOKENS]
    raw["roofline"] = [
        {"workload": one["workload"], "flops": 5 * _size(one), "essential_bytes": _moved(one)} for one in raw["timing"]
    ]
    samples = b'{"by": "a test"}\n'
    raw["samples_sha256"] = hashlib.sha256(samples).hexdigest()
    key = keys.own_key(config_folder())
    with records.writing(root.entries):
        keys.enrol(root.entries, key, today=date(2026, 1, 1), note="a test")
        raw["prev"] = chain_head(root.entries, key.id)
        raw["judge"] = {**raw["judge"], "key": key.id}
        raw["signature"] = key.sign(canonical(raw))
        records.append(root.entries, raw, samples=samples)


def _size(timing: Mapping[str, Any]) -> int:
    return int(timing["workload"]["axes"]["num_tokens"]) * WIDTH


def _moved(timing: Mapping[str, Any]) -> int:
    return _size(timing) * (4 if timing["workload"]["dtype"] == "bfloat16" else 8)


def _timing(tokens: int, dtype: str) -> dict[str, Any]:
    workload = {"axes": {"num_tokens": tokens, "hidden_size": WIDTH}, "dtype": dtype, "law": "normal", "note": ""}
    floor = tokens * WIDTH * (4 if dtype == "bfloat16" else 8) / 4000e3
    took = round(2.2 + floor * 1.12, 3)
    against = round(4.1 + floor * 1.9, 3)

    def spread(middle: float) -> dict[str, float]:
        return {"median": middle, "p10": middle * 0.97, "p90": middle * 1.08, "min": middle * 0.95, "n": 150}

    ratio = round(against / took, 4)
    return {
        "workload": workload, "regime": {"cache": "cold", "launch": "eager"}, "calls_per_batch": 64, "slots": 64,
        "blocks": [], "candidate_us": spread(took), "baseline_us": spread(against),
        "baseline": {"name": "torch.nn.functional.silu", "version": "torch 2.11.0+cu130", "source_sha256": "0" * 64},
        "ratio": ratio, "interval": [ratio * 0.98, ratio * 1.02], "noise": 0.01, "verdict": "FAST",
        "floor_us": round(floor, 4), "roofline": round(floor / took, 4), "bound": "memory", "clocks_agree": True,
        "quarantined": None, "confirms": False,
    }  # fmt: skip


def _git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path, message: str) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", message)
