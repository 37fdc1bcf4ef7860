"""Targets from the shell: lists, tables and JSON; new ones printed, written and filed; the page on them is true."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kb import launch
from kb.cli import target, target_new
from kb.config import Root

Capture = pytest.CaptureFixture[str]
HERE = Path(__file__).resolve().parents[2]
PAGE = HERE / "docs" / "targets.md"
CONFIG = {
    "model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
    "intermediate_size": 512, "moe_intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
TRACE: dict[str, Any] = {
    "deviceProperties": [{"name": "NVIDIA H200"}],
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x64_bf16", "ts": 1, "dur": 90.0, "tid": 7, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "our_attn_v2", "ts": 1, "dur": 10.0, "tid": 7, "args": {}},
    ],
}
CSV = 'Time (%),Total Time (ns),Instances,Name\n100.0,3000,3,"void gemm<float>"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with what the page's examples name, and stand in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    (tmp_path / "nsys.csv").write_text(CSV, encoding="utf-8")
    (rule,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "rules.toml").write_text(rule, encoding="utf-8")
    return tmp_path


def call(capsys: Capture, *argv: str | Path) -> tuple[int, str, str]:
    code = launch.main([str(one) for one in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def examples() -> list[list[str]]:
    """Return the commands of the page's first block."""
    block = re.findall(r"```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    return [[one.strip('"') for one in re.findall(r'"[^"]*"|\S+', line)] for line in block.splitlines()]


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_every_example_of_the_page_works(words: list[str], here: Path, capsys: Capture) -> None:
    assert words[:2] == ["kb", "target"]
    root = ("--root", HERE) if words[2] in ("list", "show") else ()
    code, out, err = call(capsys, *words[1:], *root)
    assert (code, bool(out)) == (0, True), err
    assert (here / "drafts").is_dir() == ("drafts" in words)


def test_the_page_names_every_option_and_field(capsys: Capture) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("share_from", "share_basis", "per_token", "per_sequence", "unnamed", "accuracy_budget", "--steps"):
        assert name in text
    code, out, _ = call(capsys, "target", "--help")
    assert code == 0
    for command in ("list", "show", "new", "from-trace"):
        assert command in out


def test_a_list_is_a_table_or_json_and_an_empty_one_says_what_to_do(root: Root, capsys: Capture) -> None:
    code, out, err = call(capsys, "target", "list", "--root", HERE)
    assert (code, err) == (0, "")
    assert "target/sam-3-1/bf16-h100" in out
    assert "estimated" in out
    found = json.loads(call(capsys, "target", "list", "--root", HERE, "--json")[1])
    assert {"id", "model", "devices", "device_count", "precision", "rows", "shares"} == set(found[0])
    code, out, err = call(capsys, "target", "list", "--root", root.path)
    assert code == 0
    assert "kb target new CONFIG.json makes one" in out + err


def test_a_target_is_shown_with_its_rows_by_share(capsys: Capture) -> None:
    code, out, _ = call(capsys, "target", "show", "bf16-h100", "--root", HERE)
    assert code == 0
    for said in ("traffic: image", "goal: images_per_s, higher is better", "shares: estimated", "window", "batch 1"):
        assert said in out
    shares = [float(one) for one in re.findall(r"(\d+\.\d) % estimated", out)]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) > 20
    shown = json.loads(call(capsys, "target", "show", "bf16-h100", "--root", HERE, "--json")[1])
    assert shown["id"] == "target/sam-3-1/bf16-h100"


def test_a_new_target_is_printed_written_or_filed(here: Path, root: Root, capsys: Capture) -> None:
    asked = ("target", "new", "config.json", "--device", "B200", "--model", "Tiny")
    code, out, err = call(capsys, *asked)
    assert (code, out.startswith("schema = 1")) == (0, True)
    assert "this is target/tiny/bf16-b200, not written" in err
    code, out, _ = call(capsys, *asked, "-o", "out", "--write", "--root", root.path)
    assert code == 0
    assert out.splitlines() == ["folder: out/target/tiny/bf16-b200", "filed: target/tiny/bf16-b200@1"]
    assert (root.entries / "target/tiny/bf16-b200/entry.toml").read_bytes() == (
        here / "out/target/tiny/bf16-b200/entry.toml"
    ).read_bytes()
    assert "Tiny" in call(capsys, "target", "show", "bf16-b200", "--root", root.path)[1]
    assert call(capsys, "seed", "target/tiny/bf16-b200", "--root", root.path)[0] == 0


def test_a_trace_says_how_much_of_it_is_named_and_lists_the_rest(here: Path, capsys: Capture) -> None:
    code, out, err = call(capsys, "target", "from-trace", "trace.json.gz")
    assert code == 0
    assert 'share_from = "measured"' in out
    assert "90.0 % of 0.1 ms named (torch profiler, Chrome JSON)" in err
    assert "not named: 10.00 % our_attn_v2" in err
    code, out, err = call(capsys, "target", "from-trace", "trace.json.gz", "--rules", "rules.toml", "--json")
    assert code == 0
    assert "100.0 % of 0.1 ms named" in err
    assert {row["operator"] for row in json.loads(out)["target"]["operators"]} == {"gemm", "attention_prefill"}
    assert not (here / "target").exists()


def test_a_region_that_was_compiled_says_how_to_see_into_it(here: Path, capsys: Capture) -> None:
    region = {"ph": "X", "cat": "cpu_op", "name": "Torch-Compiled Region: 0/0", "ts": 1, "dur": 9, "tid": 1, "args": {}}
    (here / "cpu.json").write_text(json.dumps([region]), encoding="utf-8")
    code, _, err = call(capsys, "target", "from-trace", "cpu.json")
    assert code == 0
    assert "enable_kernel_profile = True" in err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("show", "none"), 3, "no target is called 'none'"),
        (("new", "none.json", "--device", "H100"), 11, "expected a file"),
        (("new", "config.json", "--device", "Acme"), 9, "no device is called 'Acme'"),
        (("new", "config.json", "--device", "H100", "--count", "3"), 2, "3"),
        (("new", "config.json", "--device", "H100", "--precision", "fp3"), 2, "fp3"),
        (("new", "config.json", "--device", "H100", "--phase", "vision"), 2, "expected prefill or decode"),
        (("new", "config.json", "--device", "H100", "--batch", "0"), 2, "--batch"),
        (("new", "config.json", "--device", "H100", "--id", "kernel/a/b"), 4, "expected a target"),
        (("new", "nsys.csv", "--device", "H100"), 4, "config.json"),
        (("from-trace", "none.json"), 11, "expected a file"),
        (("from-trace", "cut.json.gz"), 11, "truncated"),
        (("from-trace", "zero.json"), 11, "any time"),
        (("from-trace", "acme.json"), 9, "no device is called 'Acme Q9'"),
        (("from-trace", "nsys.csv"), 9, "does not say on which device"),
        (("from-trace", "config.json"), 11, "the trace cannot be read"),
        (("from-trace", "trace.json.gz", "--rules", "none.toml"), 11, "none.toml"),
        (("from-trace", "trace.json.gz", "--write", "--root", "none"), 2, "none"),
        (("from-trace", "trace.json.gz", "--phase", "dreaming"), 2, "'dreaming': expected one of prefill"),
        (("from-trace", "trace.json.gz", "--prompt", "999999999"), 2, "traffic.0.input_tokens"),
        (("from-trace", "trace.json.gz", "--model", "a\nb"), 4, "expected printable text"),
    ],
)
def test_errors_are_one_line_with_their_code(
    here: Path, capsys: Capture, argv: tuple[str, ...], code: int, said: str
) -> None:
    (here / "cut.json.gz").write_bytes((here / "trace.json.gz").read_bytes()[:-6])
    idle = {**TRACE, "traceEvents": [{**one, "dur": 0} for one in TRACE["traceEvents"]]}
    (here / "zero.json").write_text(json.dumps(idle), encoding="utf-8")
    (here / "acme.json").write_text(json.dumps({**TRACE, "deviceProperties": [{"name": "Acme Q9"}]}), encoding="utf-8")
    root = () if "--root" in argv or argv[0] != "show" else ("--root", str(HERE))
    got, out, err = call(capsys, "target", *argv, *root)
    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert not list(here.glob("target"))


def test_shells_complete_targets_devices_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_ROOT", str(HERE))
    assert "target/sam-3-1/bf16-h100" in target.target_names("target/s")
    assert "H200-SXM" in target_new.device_names("h2")
    assert target_new.precisions("fp8") == ["fp8", "fp8-block"]
    assert target_new.phases("v") == ["vision"]
    monkeypatch.setenv("KB_ROOT", "/nowhere")
    assert target.target_names("") == []
