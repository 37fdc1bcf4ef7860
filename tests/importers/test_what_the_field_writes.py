"""Files as published: forms that whole repositories of the field showed, beyond the collected samples."""

import json
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kb.config import Root
from kb.importers.descriptions import toml_of
from kb.service.importing import Report
from tests.importers.repositories import MIT, commit

Run = Callable[..., Report]
APACHE = b"Apache License\nVersion 2.0\n"
TILE = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}
ROWS = {str(1 << n): {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": n + 1} for n in range(4)}
WORKLOAD = {"uuid": "11111111-aaaa", "axes": {"n": 3}, "inputs": {"x": {"type": "random"}}}
TRACE_ROW = {"definition": "exp_h64", "solution": None, "workload": WORKLOAD, "evaluation": None}
DEFINITION = {
    "name": "append_h64", "op_type": "page_append", "axes": {"n": {"type": "var"}, "page": {"type": "const"}},
    "inputs": {"x": {"shape": ["n", "page"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "page"], "dtype": "float32"}}, "reference": "def run(x):\n    return x\n",
}  # fmt: skip


@pytest.fixture
def put(tmp_path: Path) -> Callable[[Mapping[str, object]], Path]:
    """Return a function that makes a source of files, with a license at its top unless it brings one."""

    def made(files: Mapping[str, object], *, license_: bytes | None = APACHE) -> Path:
        base = tmp_path / "source"
        for path, body in {**({"LICENSE": license_} if license_ else {}), **files}.items():
            file = base / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
        return base

    return made


def refusals(report: Report) -> dict[str, str | None]:
    return {line.path: line.reason for line in report.lines if line.state == "refused"}


def added(root: Root, report: Report) -> dict[str, tuple[dict[str, object], str]]:
    """Facts and readme of what was added, by id."""
    ids = [str(line.id) for line in report.lines if line.state == "add"]
    return {
        one: (
            tomllib.loads((root.entries / one / "entry.toml").read_text(encoding="utf-8")),
            (root.entries / one / "README.md").read_text(encoding="utf-8"),
        )
        for one in ids
    }


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("gfx942-MHA-DEFAULT.json", {"fwd": {"default": TILE, "pe": TILE}, "bkwd": {"pre": {"PRE_BLOCK": 8}}}, "cases"),
        ("gfx950-MHC_POST.json", {"default": TILE, "C_512": TILE}, "cases"),
        ("moe/gfx950-A8W4.json", {"bm128_n1024_k7168": TILE, "bm16_n4096_k7168_tiny": TILE}, "cases"),
        ("conv/gfx1100-CONV-1X1.json", {"shapes": {"N=1,C=64,sh=2": TILE}, "M_LEQ_64": TILE, "any": TILE}, "ranges"),
        ("gfx942/triton/chunk_delta_attn/DEFAULT.json", {"chunk_fwd_kernel_o": {"BK": 32}}, "CHUNK_DELTA_ATTN"),
        ("gemm/gfx1250-GEMM-A16WFP4.json", {"_note": "a stopgap, not tuned", "any": TILE}, "a stopgap, not tuned"),
    ],
    ids=["passes", "default", "named", "shapes", "folder", "note"],
)  # fmt: skip
def test_aiter_names_cases_as_well_as_ranges(
    run: Run, root: Root, put: Callable[..., Path], path: str, body: object, said: str
) -> None:
    report = run(put({path: body}))
    ((_, readme),) = added(root, report).values()
    assert said in readme, (readme, refusals(report))


@pytest.mark.parametrize(
    "body",
    [{"fwd": {"default": {"BLOCK_M": -1}}}, {"_note": 5, "any": TILE}, {"default": 5}, {"a b": TILE}],
    ids=["value", "note", "flat", "key"],
)
def test_what_is_no_parameter_of_aiter_is_still_refused(run: Run, put: Callable[..., Path], body: object) -> None:
    report = run(put({"gfx942-GMM.json": body}))
    assert list(refusals(report)) == ["gfx942-GMM.json"]


@pytest.mark.parametrize(
    "path",
    [
        "triton_3.5.1/NVIDIA_H200/grouped_moe:v1/{K=64,N=32}_NVIDIA_H200.json",
        "N=32,K=64,device_name=NVIDIA_L40S,dtype=fp8_w8a8,block_shape=[128,128].json",
    ],
    ids=["lightllm", "block-gemm"],
)
def test_a_size_that_could_not_be_tuned_is_said_and_loses_nothing_else(
    run: Run, root: Root, put: Callable[..., Path], path: str
) -> None:
    body = {**ROWS, "4096": None}
    report = run(put({path: body}))
    (found,) = added(root, report)
    facts, readme = added(root, report)[found]
    assert "nothing for 4096" in readme
    assert "4 rows" in str(facts["summary"])
    assert json.loads((root.entries / found / "config.json").read_bytes()) == body


def test_a_table_of_which_nothing_could_be_tuned_is_no_recipe(run: Run, put: Callable[..., Path]) -> None:
    base = put({"E=8,N=64,device_name=NVIDIA_H200.json": {"1": None}, "k/{K=64}_NVIDIA_H200.json": {"1": None}})
    assert len(refusals(run(base))) == 2


def test_sglangs_strategies_and_plans_of_dense_layers_come_in(run: Run, root: Root, put: Callable[..., Path]) -> None:
    strategies = {"meta": {"device": "NVIDIA GB300"}, "configs": {"736": "overlap", "768": "overlap"}}
    plans = {"rows": [{"name": "decode.le16", "phase": "decode", "spec": {"block_size": 16}}]}
    base = put({
        "moe_front/strategy,E=896,topk=16,device_name=NVIDIA_GB300.json": strategies,
        "lora/dense/configs/sm90.plans.json": plans,
    })  # fmt: skip
    report = run(base)
    assert not refusals(report)
    assert sorted(line.format or "" for line in report.lines if line.id) == ["sglang-moe-front", "sglang-other"]
    bad = {"meta": {}, "configs": {"736": "two words"}}
    assert refusals(run(put({"moe_front/strategy,E=896,topk=17,device_name=NVIDIA_GB300.json": bad})))


def test_a_definition_whose_constant_has_no_value_comes_in_and_is_not_for_the_loader(
    run: Run, root: Root, put: Callable[..., Path], tmp_path: Path
) -> None:
    from kb.service import exporting

    assert not refusals(run(put({"definitions/page_append/append_h64.json": DEFINITION})))
    made = exporting.export(root, "flashinfer-trace", [], tmp_path / "out")
    assert any("not_loadable/" in one for one in made.files)
    assert any("without a value" in one.reason for one in made.left_out)
    states = {line.state for line in run(tmp_path / "out").lines if line.id}
    assert states <= {"unchanged", "duplicate"}


def test_rows_of_a_commit_are_read_as_a_stream_as_those_of_a_folder(run: Run, root: Root, tmp_path: Path) -> None:
    rows = [{**TRACE_ROW, "workload": {**WORKLOAD, "uuid": f"{n:08}-aaaa"}} for n in range(300)]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    commit(tmp_path / "set.git", {"LICENSE": MIT.encode(), "workloads/exp_h64.jsonl": body})
    report = run(tmp_path / "set.git")
    assert not refusals(report)
    (found,) = added(root, report)
    kept = "".join(one.read_text(encoding="utf-8") for one in (root.entries / found).glob("*.json"))
    assert kept.count("-aaaa") == 300


def test_a_file_of_a_commit_beyond_what_is_read_whole_is_still_recognised(
    run: Run, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kb.importers.repository import tree

    monkeypatch.setattr(tree, "MAX_FILE_BYTES", 1000)
    body = b"".join(
        json.dumps({**TRACE_ROW, "workload": {**WORKLOAD, "uuid": f"{n:08}-aaaa"}}).encode() + b"\n" for n in range(20)
    )
    commit(tmp_path / "set.git", {"LICENSE": MIT.encode(), "workloads/exp_h64.jsonl": body})
    assert len(added(root, run(tmp_path / "set.git"))) == 1


BUILD = b'[general]\nname = "moe"\n'
NAME = "E=8,N=64,device_name=NVIDIA_H200.json"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"moe/build.toml": BUILD + b'license = "MIT"\n'}, "MIT"),
        ({"moe/build.toml": BUILD + b'license = "GPL-3.0-only"\n', "LICENSE": MIT.encode()}, None),
        ({"moe/build.toml": BUILD + b'license = "GPL-3.0-only"\n', "moe/LICENSE": MIT.encode()}, "MIT"),
        ({"moe/build.toml": BUILD, "LICENSE": MIT.encode()}, "MIT"),
        ({"moe/build.toml": b"broken [", "LICENSE": MIT.encode()}, "MIT"),
        ({"README.md": b"---\ntags: [x]\nlicense: apache-2.0\n---\n# A set\n"}, "Apache-2.0"),
        ({"README.md": b"# A set\n\nlicense: apache-2.0\n"}, None),
        ({"README.md": b"---\nlicense: other\n---\n"}, None),
    ],
    ids=["build", "nearest", "file-first", "unstated", "broken", "card", "prose", "other"],
)
def test_a_folder_without_a_license_file_says_its_license_in_its_build_file_or_card(
    run: Run, root: Root, put: Callable[..., Path], files: dict[str, object], expected: str | None
) -> None:
    report = run(put({f"moe/configs/{NAME}": ROWS, **files}, license_=None))
    found = [facts["license"] for one, (facts, _) in added(root, report).items() if one.startswith("config/")]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("metadata", "texts", "expected"),
    [
        ("License: Apache License\n   Version 2.0", {"licenses/LICENSE": APACHE}, "Apache-2.0"),
        ("License: UNKNOWN", {"LICENSE": MIT.encode()}, "MIT"),
        ("License-Expression: BSD-3-Clause", {"licenses/LICENSE": MIT.encode()}, "BSD-3-Clause"),
        ("License-Expression: GPL-3.0-only", {}, None),
        ("Summary: x", {"licenses/LICENSE": b"All rights reserved."}, None),
        ("Summary: x", {"licenses/LICENSE": APACHE, "licenses/LICENSE.other": b"Do no harm."}, None),
        ("Summary: x", {}, "ISC"),
    ],
    ids=["text", "unknown", "expression", "refused", "own-text", "two", "stated-by-hand"],
)
def test_a_wheel_says_its_license_in_its_metadata_and_the_option_does_not_overrule_it(
    run: Run, root: Root, tmp_path: Path, metadata: str, texts: dict[str, bytes], expected: str | None
) -> None:
    wheel = tmp_path / "tuner-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr(f"tuner/configs/{NAME}", json.dumps(ROWS))
        made.writestr(
            "tuner-1.2.dist-info/METADATA", f"Metadata-Version: 2.4\nName: tuner\nVersion: 1.2\n{metadata}\n\n"
        )
        for name, body in texts.items():
            made.writestr(f"tuner-1.2.dist-info/{name}", body)
    report = run(wheel, stated=(None, None, "ISC"))
    assert [facts["license"] for facts, _ in added(root, report).values()] == ([expected] if expected else [])


KEY = ".".join("a" * 5000)


@pytest.mark.parametrize(
    "text",
    [
        f'{KEY} = "x"\n', '"a".' * 5000 + "b = 1\n", f"[{KEY}]\n", f"x = {{{KEY} = 1}}\n",
        f'x = {{k = """a"""", {KEY} = 1}}\n', f"x = {{k = '''a''''', {KEY} = 1}}\n", f'# "\n{KEY} = 1\n',
        f'x = "\\\\"\n{KEY} = 1\n',
    ],
    ids=["string", "quoted", "table", "inline", "four-quotes", "five-quotes", "comment", "escape"],
)  # fmt: skip
def test_a_key_of_many_parts_never_reaches_the_parser(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kb.errors import SourceFormatError

    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("the parser was given a key of 5,000 parts"))
    with pytest.raises(SourceFormatError, match="dots in a key"):
        toml_of(text.encode())


def test_dots_inside_strings_and_lists_of_numbers_are_no_key() -> None:
    names = [f"a.b.c/{n}.cu" for n in range(200)]
    text = f'src = {json.dumps(names)}\nv = {[n / 2 for n in range(99)]}\nt = """\n{KEY}\n"""\n[a.b.c]\nd.e = 1\n'
    assert toml_of(text.encode())["src"] == names


def test_a_build_file_that_lists_hundreds_of_sources_comes_in(run: Run, root: Root, put: Callable[..., Path]) -> None:
    names = json.dumps([f"csrc/{'x' * 80}/{n}.cu" for n in range(5000)]).encode()
    body = b'[general]\nname = "ck"\nlicense = "MIT"\n\n[kernel.a]\nbackend = "cuda"\nsrc = ' + names + b"\n"
    assert len(body) > 262_144
    assert len(added(root, run(put({"build.toml": body})))) == 1


def test_a_decorator_that_only_a_framework_names_so_is_found(run: Run, put: Callable[..., Path]) -> None:
    text = (
        b"from own.runtime import triton_jit\nimport triton.language as tl\n\n\n@triton_jit\n"
        b"def copy_kernel(x, y, n, B: tl.constexpr):\n    at = tl.arange(0, B)\n"
        b"    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)\n"
    )
    report = run(put({"ops.py": text, "calls.py": b"from triton import jit\n\njit(print)\n"}))
    assert [line.path for line in report.lines if line.state == "add"] == ["ops.py"]
