"""The hardware table resolves the names that people write, and every figure has a source."""

import pytest

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.models.vocabulary import FEATURES


@pytest.mark.parametrize(
    ("asked", "arches"),
    [
        ("NVIDIA H200", ("sm_90",)),
        ("h200", ("sm_90",)),
        ("NVIDIA H100", ("sm_90",)),
        ("NVIDIA H100 80GB HBM3", ("sm_90",)),
        ("sm_90a", ("sm_90",)),
        ("rtx 5090", ("sm_120",)),
        ("GeForce RTX 5090", ("sm_120",)),
        ("AMD Instinct MI300X", ("gfx942",)),
        ("Blackwell", ("sm_100", "sm_103", "sm_120")),
        ("cpu", ("cpu",)),
    ],
)
def test_a_name_as_people_write_it_is_resolved(asked: str, arches: tuple[str, ...]) -> None:
    assert hardware.resolve(asked).arches == arches


def test_a_family_has_all_its_members_and_a_range_of_peaks() -> None:
    scope = hardware.resolve("NVIDIA H100")
    assert [member.name for member in scope.members] == ["H100-SXM", "H100-PCIe", "H100-NVL"]
    assert scope.figure_range("mem_gbps") == (2000, 3900)
    assert scope.smem_bytes == 227 * 1024
    assert "H100-PCIe" in scope.label


def test_a_family_is_as_able_as_its_weakest_member() -> None:
    assert "tcgen05" not in hardware.resolve("Blackwell").features
    assert "tcgen05" in hardware.resolve("B200").features
    assert "fp4_mma" in hardware.resolve("Blackwell").features


@pytest.mark.parametrize("asked", ["H1000", "", "x" * 500, "NVIDIA", "💥", "sm_"])
def test_an_unknown_name_is_refused_with_known_ones(asked: str) -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        hardware.resolve(asked)
    assert caught.value.hint


def test_an_unknown_architecture_is_refused_with_known_ones() -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        hardware.resolve_arch("sm_91")
    assert "sm_90" in str(caught.value.hint)


def test_every_figure_names_its_source_and_is_positive() -> None:
    for device in hardware.devices():
        for key, figure in device.figures.items():
            assert figure.source, (device.name, key)
            assert figure.value > 0, (device.name, key)


def test_features_are_of_the_vocabulary() -> None:
    for arch, features in hardware.architectures().items():
        assert features <= set(FEATURES), arch


def test_facts_that_decide_transfer_are_as_the_makers_say() -> None:
    assert "fp4_mma" not in hardware.resolve("H200").features
    assert "wgmma" in hardware.resolve("H200").features
    assert "wgmma" not in hardware.resolve("B200").features
    assert {"tcgen05", "wgmma"}.isdisjoint(hardware.resolve("RTX 5090").features)
    assert hardware.fp8_variant("gfx942") == "fnuz"
    assert hardware.fp8_variant("sm_90") == "ocp"
    assert hardware.resolve("B300").members[0].value("tflops.int8") == 153.5
    assert hardware.resolve("H200").members[0].figures["l2_mb"].disputed
