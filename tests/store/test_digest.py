"""The entry digest changes with what runs, and with nothing else."""

from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kb.models.entry import EntryFile
from kb.store.digest import entry_digest

BASE: Mapping[str, Any] = {
    "schema": 1,
    "version": 1,
    "title": "RMSNorm, one CTA a row",
    "summary": "A norm that keeps its row in registers.",
    "outcome": "works",
    "operator": "rmsnorm",
    "language": "triton",
    "entry_point": "kernel.py:run",
    "dtypes": ["float16", "bfloat16"],
    "license": "Apache-2.0",
    "requires": {"arch": ["sm_80", "sm_90"]},
    "limits": {"hidden_size": {"max": 16384}},
    "source": {"origin": "written here"},
}
FILES = {"kernel.py": b"def run(x): return x\n"}


def digest(files: Mapping[str, bytes] = FILES, **changes: Any) -> str:  # noqa: ANN401
    return entry_digest(EntryFile.model_validate({**BASE, **changes}), files)


def test_what_does_not_run_does_not_count() -> None:
    claim = {
        "metric": "latency_us", "value": 2.0, "unit": "us", "better": "lower", "device": "NVIDIA H200", "workload": "w",
        "source": "s",
    }  # fmt: skip
    changes: list[dict[str, Any]] = [
        {"title": "Another"},
        {"summary": "Another summary."},
        {"tags": ["decode"]},
        {"version": 7},
        {"claims": [claim]},
        {"license": "MIT"},
        {"source": {"url": "https://example.org"}},
        {"lineage": [{"parent": "kernel/rmsnorm/a", "relation": "mutated"}]},
        {"cost": {"tokens": 5}},
    ]
    assert {digest(**each) for each in changes} == {digest()}


def test_what_runs_counts() -> None:
    changes: list[dict[str, Any]] = [
        {"entry_point": "kernel.py:go"},
        {"dtypes": ["float16"]},
        {"requires": {"arch": ["sm_90"]}},
        {"requires": {"arch": ["sm_80", "sm_90"], "smem_bytes": 1}},
        {"limits": {"hidden_size": {"max": 8192}}},
        {"limits": {}},
        {"contracts": {"provides": ["graph:capture_safe"]}},
        {"language": "torch"},
        {"operator": "layernorm"},
    ]
    assert len({digest(), *(digest(**each) for each in changes)}) == len(changes) + 1


def test_an_edit_of_the_kernel_counts() -> None:
    assert digest({"kernel.py": b"def run(x): return x \n"}) != digest()


def test_the_order_of_lists_that_are_sets_does_not_count() -> None:
    assert digest(dtypes=["bfloat16", "float16"], requires={"arch": ["sm_90", "sm_80"]}) == digest()


def test_an_absent_field_and_an_empty_one_are_the_same() -> None:
    assert digest(requires={"arch": ["sm_80", "sm_90"], "features": [], "packages": {}}, contracts={}) == digest()


names = st.text("abc/.", min_size=1, max_size=6)
trees = st.dictionaries(names, st.binary(max_size=6), max_size=4)


@given(trees, st.randoms())
def test_the_order_of_files_does_not_count(files: dict[str, bytes], random: Random) -> None:
    items = list(files.items())
    random.shuffle(items)
    assert digest(dict(items)) == digest(files)


@given(trees, trees)
def test_different_files_never_give_the_same_digest(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert (digest(one) == digest(other)) == (one == other)


def test_bytes_cannot_move_between_name_and_content() -> None:
    assert digest({"ab": b"c"}) != digest({"a": b"bc"})
    assert digest({"a": b"1", "b": b"2"}) != digest({"a": b"1b2"})
    assert digest({"a": b"", "b": b""}) != digest({"ab": b""})
