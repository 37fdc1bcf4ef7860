"""Filters are checked against what is known, and never guessed."""

import sqlite3

import pytest

from kb.errors import DeviceUnavailableError, RetrievalError
from kb.retrieval import filters


def test_no_filter_leaves_only_withdrawn_entries_out(connection: sqlite3.Connection) -> None:
    condition, values = filters.make(connection).condition()
    assert condition == "1 AND e.withdrawn IS NULL"
    assert values == ()


@pytest.mark.parametrize("given", ["bf16", "BF16", "bfloat16", "brain float"])
def test_a_dtype_may_be_written_in_any_spelling(connection: sqlite3.Connection, given: str) -> None:
    assert filters.make(connection, dtype=given).dtypes == ("bfloat16",)


def test_a_dtype_family_stands_for_its_members(connection: sqlite3.Connection) -> None:
    assert set(filters.make(connection, dtype="fp8").dtypes) >= {"float8_e4m3fn", "float8_e5m2"}


def test_an_operator_family_stands_for_its_members(connection: sqlite3.Connection) -> None:
    assert "moe_grouped_gemm_nvfp4" in filters.make(connection, operator="moe").operators
    assert filters.make(connection, operator="RMS-Norm").operators == ("rmsnorm",)


@pytest.mark.parametrize(
    ("name", "given", "near"),
    [
        ("kind", "kernal", "kernel"),
        ("operator", "rmsnrom", "rmsnorm"),
        ("dtype", "bflaot16", "bfloat16"),
        ("outcome", "regresion", "regression"),
    ],
)
def test_an_unknown_value_names_the_nearest(connection: sqlite3.Connection, name: str, given: str, near: str) -> None:
    with pytest.raises(RetrievalError, match=f"no {name} is called '{given}'") as caught:
        filters.make(connection, **{name: given})  # type: ignore[arg-type]
    assert near in str(caught.value.hint)


def test_a_value_like_nothing_lists_what_is_known(connection: sqlite3.Connection) -> None:
    with pytest.raises(RetrievalError) as caught:
        filters.make(connection, kind="%%%")
    assert "campaign" in str(caught.value.hint)


def test_an_unknown_device_names_the_nearest(connection: sqlite3.Connection) -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        filters.make(connection, device="H1000")
    assert "H100" in str(caught.value.hint)


def test_arch_and_device_together_are_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(RetrievalError, match="same thing"):
        filters.make(connection, arch="sm_90", device="H100")


def test_the_scope_is_reported_with_all_its_names(connection: sqlite3.Connection) -> None:
    assert filters.make(connection, kind="kernels").to_json() == {
        "kind": "kernel", "operator": None, "dtype": None, "arch": None, "device": None, "outcome": None,
        "withdrawn": False,
    }  # fmt: skip
