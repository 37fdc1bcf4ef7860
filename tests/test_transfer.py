"""Transfer: what runs where, and why not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb import hardware
from kb.models.facts import EntryFacts, Limit
from kb.models.vocabulary import FEATURES, KINDS, LANGUAGES, TRANSFER
from kb.transfer import Asked, assess, facts_of, lacks_unit, unchecked_limits

TRITON = EntryFacts("kernel/rmsnorm/a", "kernel", "triton", ("bfloat16",), ("sm_80", "sm_90"))
NATIVE = EntryFacts(
    "kernel/moe/native", "kernel", "triton", ("nvfp4", "bfloat16"), ("sm_100a",), ("fp4_mma", "tcgen05")
)


def test_fp4_matrix_units_are_never_runnable_on_hopper() -> None:
    for name in ("NVIDIA H100", "H200", "sm_90", "Hopper"):
        found = assess(NATIVE, hardware.resolve(name))
        assert found.kind == "technique"
        assert not found.runnable
        assert "needs fp4_mma" in found.reasons[0]


def test_fp4_matrix_units_are_there_on_b200() -> None:
    assert assess(NATIVE, hardware.resolve("B200")).kind == "recompile"


def test_an_sm_100a_kernel_does_not_run_on_sm_120_though_it_has_fp4() -> None:
    found = assess(NATIVE, hardware.resolve("RTX 5090"))
    assert not found.runnable
    assert "tcgen05" in found.reasons[0]


def test_in_kernel_dequantisation_runs_without_fp4_units_and_says_so() -> None:
    found = assess(replace(TRITON, dtypes=("nvfp4", "bfloat16"), features=("bf16_mma",)), hardware.resolve("H100"))
    assert found.kind == "recompile"
    assert any("no matrix unit for nvfp4" in reason for reason in found.reasons)


def test_measured_there_is_exact() -> None:
    assert assess(replace(TRITON, measured_on=("NVIDIA H200",)), hardware.resolve("H200")).kind == "exact"
    assert assess(replace(TRITON, measured_on=("NVIDIA H200",)), hardware.resolve("Hopper")).kind == "recompile"


def test_a_portable_source_on_an_architecture_it_does_not_name_is_retuned() -> None:
    assert assess(TRITON, hardware.resolve("B200")).kind == "retune"


def test_an_architecture_specific_target_is_not_forward_compatible() -> None:
    wgmma = EntryFacts("kernel/gemm/w", "kernel", "cuda", ("bfloat16",), ("sm_90a",), ("wgmma", "tma"))
    assert assess(wgmma, hardware.resolve("H200")).kind == "recompile"
    found = assess(wgmma, hardware.resolve("B200"))
    assert found.kind == "port"
    assert "tcgen05 does that job there" in found.reasons[0]


def test_limits_are_evaluated_at_the_asked_axes() -> None:
    limited = replace(TRITON, limits={"hidden_size": Limit(max=16384, multiple_of=8)})
    h100 = hardware.resolve("H100")
    assert assess(limited, h100, axes={"hidden_size": 4096}).runnable
    assert "above 16384" in assess(limited, h100, axes={"hidden_size": 16392}).reasons[0]
    assert "not a multiple of 8" in assess(limited, h100, axes={"hidden_size": 4097}).reasons[0]
    assert not assess(limited, h100, axes={"hidden_size": 4097}).runnable
    assert assess(limited, h100, axes={"num_tokens": 3}).runnable


def test_too_much_shared_memory_needs_other_tiles() -> None:
    big = replace(TRITON, arch=("sm_90", "sm_120"), smem_bytes=200_000)
    assert assess(big, hardware.resolve("H200")).kind == "recompile"
    assert assess(big, hardware.resolve("RTX 5090")).kind == "retune"
    assert assess(replace(big, language="cuda"), hardware.resolve("RTX 5090")).kind == "port"


def test_fp8_values_do_not_carry_over_to_fnuz_hardware() -> None:
    fp8 = replace(TRITON, dtypes=("float8_e4m3fn",))
    found = assess(fp8, hardware.resolve("MI300X"))
    assert found.kind == "port"
    assert "factor of two" in found.reasons[0]


def test_the_cpu_is_for_values() -> None:
    assert "interpreter" in assess(TRITON, hardware.resolve("cpu")).reasons[0]
    assert assess(replace(TRITON, language="cuda"), hardware.resolve("cpu")).kind == "port"


def test_an_interpreter_needs_no_units_of_a_gpu() -> None:
    native = replace(TRITON, features=("bf16_mma", "cp_async"))
    assert assess(native, hardware.resolve("cpu")).kind == "recompile"
    assert assess(replace(native, language="cuda"), hardware.resolve("cpu")).kind == "technique"
    assert assess(replace(native, kind="technique"), hardware.resolve("cpu")).kind == "technique"


def test_where_code_is_known_not_to_run_it_says_why() -> None:
    facts = facts_of("kernel/x/y", {"language": "triton", "cannot_run_on": {"cpu": "no such instruction there"}})
    found = assess(facts, hardware.resolve("cpu"))
    assert (found.kind, found.reasons) == ("port", ("it cannot run on CPU: no such instruction there",))
    assert assess(facts, hardware.resolve("H200")).runnable


def test_a_config_is_exact_only_where_it_was_tuned() -> None:
    config = facts_of("config/fused_moe/x", {"tuned": {"device": "NVIDIA H200"}})
    assert assess(config, hardware.resolve("H200")).kind == "exact"
    assert assess(config, hardware.resolve("B200")).kind == "retune"


def test_facts_are_read_from_the_plain_form() -> None:
    facts = facts_of(
        "kernel/rmsnorm/a",
        {"language": "triton", "requires": {"arch": ["sm_90"]}, "limits": {"hidden_size": {"in": [64, 128]}}},
    )
    assert facts.arch == ("sm_90",)
    assert facts.limits["hidden_size"].violation(96) == "not one of 64, 128"


ANY_FACTS = st.builds(
    EntryFacts,
    id=st.just("kernel/x/y"),
    kind=st.sampled_from(KINDS),
    language=st.sampled_from(LANGUAGES),
    dtypes=st.lists(st.sampled_from(["bfloat16", "nvfp4", "float8_e4m3fn"]), max_size=2).map(tuple),
    arch=st.lists(st.sampled_from(["sm_80", "sm_90", "sm_90a", "sm_100a", "gfx942"]), max_size=2).map(tuple),
    features=st.lists(st.sampled_from(FEATURES), max_size=3, unique=True).map(tuple),
    smem_bytes=st.none() | st.integers(0, 300_000),
)


@given(ANY_FACTS, st.sampled_from(list(hardware.known_names())))
def test_nothing_runs_on_a_device_that_lacks_a_required_feature(facts: EntryFacts, name: str) -> None:
    scope = hardware.resolve(name)
    found = assess(facts, scope)
    assert found.kind in TRANSFER
    assert found.reasons
    interpreted = scope.arches == ("cpu",) and facts.language == "triton"
    if not set(facts.features) <= scope.features and not interpreted:
        assert not found.runnable


@given(ANY_FACTS, st.sampled_from(["Hopper", "Blackwell", "H100", "Ampere", "Ada"]))
def test_a_family_is_never_better_than_any_member(facts: EntryFacts, family: str) -> None:
    whole = TRANSFER.index(assess(facts, hardware.resolve(family)).kind)
    parts = [TRANSFER.index(assess(facts, hardware.resolve(m.name)).kind) for m in hardware.resolve(family).members]
    assert whole == max(parts)


def test_what_an_entry_needs_beside_the_device_is_asked_too() -> None:
    h100 = hardware.resolve("H100")
    pair = replace(TRITON, kind="comm", devices=2)
    assert assess(pair, h100, asked=Asked(device_count=1)).kind == "none"
    assert assess(pair, h100, asked=Asked(device_count=2)).runnable
    assert assess(pair, h100).runnable
    found = assess(TRITON, h100, asked=Asked(dtypes=("float16",)))
    assert (found.kind, found.reasons) == ("port", ("takes bfloat16; here it is float16",))
    assert assess(TRITON, h100, asked=Asked(dtypes=("float16", "bfloat16"))).runnable
    huge = replace(TRITON, hbm_bytes=100 * 2**30)
    assert assess(huge, hardware.resolve("A100")).kind == "port"
    assert assess(huge, hardware.resolve("H200")).runnable


@pytest.mark.parametrize(
    ("version", "wanted", "met"),
    [
        ("3.4.0", ">=3.4", True), ("3.3.1", ">=3.4", False), ("2.11.0+cu130", ">=2.8", True),
        ("3.6", ">=3.4,<3.6", False),
        ("3.5", ">=3.4,<3.6", True), ("1.0", "==1", True), ("1.1", "!=1.1", False), ("2.9", "~=2.8", True),
        ("3.0", "~=2.8", False), ("2", ">1.9", True), ("1.9", ">1.9", False), ("1.9", "<=1.9", True),
        ("nightly", ">=3.4", False), ("3.4", "", True), ("3.4", "whatever", True), ("10.0", ">=9.9", True),
    ],
)  # fmt: skip
def test_a_package_that_is_too_old_there_makes_it_a_port(version: str, wanted: str, met: bool) -> None:
    needing = replace(TRITON, packages={"triton": wanted})
    found = assess(needing, hardware.resolve("H100"), asked=Asked(toolchain={"triton": version}))
    assert found.runnable == met
    if not met:
        assert found.reasons == (f"needs triton {wanted}; the target has {version}",)
    assert assess(needing, hardware.resolve("H100"), asked=Asked(toolchain={"torch": "1"})).runnable


def test_parameters_tuned_at_other_sizes_are_retuned_even_on_their_own_device() -> None:
    tuned = EntryFacts("config/fused_moe/x", "config", tuned_device="NVIDIA B200", tuned_axes={"num_experts": 256})
    b200 = hardware.resolve("B200")
    assert assess(tuned, b200).kind == "exact"
    assert assess(tuned, b200, axes={"num_experts": 256, "n": 1}).kind == "exact"
    found = assess(tuned, b200, axes={"num_experts": 128})
    assert (found.kind, found.reasons) == ("retune", ("tuned at num_experts = 256; here num_experts = 128",))


def test_limits_on_axes_that_nobody_stated_are_named() -> None:
    limited = replace(TRITON, limits={"m": Limit(max=128), "n": Limit(max=4)})
    assert unchecked_limits(limited, {"n": 1}) == ("m",)


def test_a_family_lacks_a_unit_if_a_member_does() -> None:
    assert lacks_unit("nvfp4", hardware.resolve("H100"))
    assert not lacks_unit("nvfp4", hardware.resolve("B200"))
    assert not lacks_unit("int32", hardware.resolve("cpu"))
