"""What a new version makes stale: the table, and the digits that count."""

import pytest

from kb import toolchain


@pytest.mark.parametrize(
    ("component", "version", "kept"),
    [
        ("python", "3.11.9", "3.11"),
        ("numpy", "2.1.3", "2.1"),
        ("torch", "2.11.0+cu130", "2.11.0"),
        ("driver", "580.159.04", "580.159"),
        ("triton", "3.6.0", "3.6.0"),
        ("triton", "", ""),
    ],
)
def test_only_digits_that_can_matter_are_kept(component: str, version: str, kept: str) -> None:
    assert toolchain.cut(component, version) == kept


def test_cuda_is_read_from_torch_where_nothing_states_it() -> None:
    record = {"software": {"torch": "2.11.0+cu130", "python": "3.12.1"}, "device": {"driver": "580.159.04"}}
    assert toolchain.versions_of(record) == {"torch": "2.11.0", "cuda": "13.0", "driver": "580.159", "python": "3.12"}
    stated = {"software": {"torch": "2.11.0+cu130", "cuda": "12.9.1"}}
    assert toolchain.versions_of(stated)["cuda"] == "12.9"
    assert "cuda" not in toolchain.versions_of({"software": {"torch": "2.13.0+cpu"}})


@pytest.mark.parametrize("record", [{}, {"software": None, "device": None}, {"software": {"torch": None, "triton": 3}}])
def test_a_record_that_states_nothing_hangs_on_nothing(record: dict[str, object]) -> None:
    assert toolchain.versions_of(record) == {}


def test_a_new_triton_matters_to_triton_and_not_to_prebuilt_cuda() -> None:
    assert "triton" in toolchain.pins("triton", timing=False)
    assert "triton" in toolchain.pins("gluon", timing=False)
    assert "triton" not in toolchain.pins("cuda", timing=True)


def test_a_new_torch_matters_to_torch_and_to_times_against_torch() -> None:
    assert "torch" in toolchain.pins("torch", timing=False)
    assert "torch" not in toolchain.pins("triton", timing=True, baselines=frozenset({"flashinfer.norm.rmsnorm"}))
    assert "torch" in toolchain.pins("triton", timing=True, baselines=frozenset({"torch.nn.functional.rms_norm"}))
    assert "torch" not in toolchain.pins("triton", timing=True, baselines=frozenset({"torchao.quantise"}))


@pytest.mark.parametrize("language", ["triton", "cuda", "torch", "cute_dsl", "none"])
def test_a_new_driver_matters_to_times_and_never_to_values(language: str) -> None:
    assert "driver" in toolchain.pins(language, timing=True)
    assert "driver" not in toolchain.pins(language, timing=False)
    assert "numpy" not in toolchain.pins(language, timing=True)
