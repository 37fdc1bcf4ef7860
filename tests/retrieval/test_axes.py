"""Sizes in a query are held against what tuned parameters are for."""

from collections.abc import Mapping

import pytest

from kb.retrieval import axes

H200 = {"device": "NVIDIA H200", "axes": {"num_experts": 256, "intermediate_size": 512}}
ASKED = (("E", 256), ("N", 512))


@pytest.mark.parametrize(
    ("query", "sizes"),
    [
        ("tuned moe E=256 N = 512 fp8 H200", ASKED),
        ("E=256,N=512 E=1", ASKED),
        ("a==1 x=1.5 =3 n=99999999999 v1.2=3", ()),
        ("no sizes", ()),
    ],
)
def test_sizes_are_read_from_a_query(query: str, sizes: tuple[tuple[str, int], ...]) -> None:
    assert axes.asked(query) == sizes


def fit(
    tuned: Mapping[str, object], *, names: tuple[str, ...] | None, said: str = "", dtypes: str = ""
) -> axes.Fit | None:
    words = frozenset(said.split())
    return axes.fit(ASKED, tuned, device_names=names, said=words, asked_dtypes=dtypes.split(), dtypes=["float8_e4m3fn"])


def test_what_is_tuned_for_just_these_differs_in_nothing() -> None:
    found = fit(H200, names=("NVIDIA H200",), dtypes="float8_e4m3fn float8_e5m2")
    assert found is not None
    assert (found.exact, found.agreement) == (True, 1.0)


def test_each_difference_is_named_and_nearer_sizes_agree_more() -> None:
    found = fit(H200, names=("NVIDIA B200",), dtypes="bfloat16")
    assert found is not None
    assert found.differences == ("tuned on NVIDIA H200, asked NVIDIA B200", "float8_e4m3fn, asked bfloat16")
    near = fit({"axes": {"num_experts": 256, "intermediate_size": 256}}, names=None)
    far = fit({"axes": {"num_experts": 8, "intermediate_size": 16384}}, names=None)
    assert near is not None
    assert far is not None
    assert near.differences == ("N=256, asked 512",)
    assert 1.0 > near.agreement > far.agreement > 0.0


def test_a_device_that_the_hardware_table_lacks_is_told_by_its_words() -> None:
    h20 = {**H200, "device": "NVIDIA H20"}
    same, other = fit(h20, names=None, said="moe h20 fp8"), fit(h20, names=None, said="moe h100")
    assert same is not None
    assert same.exact
    assert other is not None
    assert other.differences == ("tuned on NVIDIA H20, asked h100",)


def test_parameters_without_any_asked_size_are_not_judged() -> None:
    assert fit({"axes": {"k": 1}}, names=None) is None
    assert fit({}, names=None) is None
