"""Every input law of every operator: repeatable, varied, and no easier than it looks."""

import re
from collections.abc import Iterator

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.draws import extremes
from kb.validators.operators.spec import DTYPES, Arguments, Buffer, Operator, Workload, generator, numel
from kb.validators.runtime import building, judge
from kb.validators.runtime.compare import Comparison, compare_call
from kb.validators.runtime.contents import draw_arguments
from kb.validators.runtime.plan import draw

ANY_VALUE = {
    ("attention_biased", "masked"), ("embedding", "special"), ("gated_rmsnorm", "poison"), ("gelu", "poison"),
    ("groupnorm", "poison"),
    ("kv_append", "special"), ("l2norm", "poison"), ("layernorm", "poison"), ("max_pool2d", "special"),
    ("moe_combine", "elsewhere"),
    ("rmsnorm", "poison"), ("sigmoid_mul", "poison"), ("silu", "poison"), ("silu_and_mul", "poison"),
    ("softmax", "masked"), ("top_k_top_p", "ties"),
}  # fmt: skip
"""(operator, law) that draw NaN or infinities on purpose; elsewhere every value is finite."""

UNOWNED_PAGES = "paged_attention_decode"
"""Fills slots that nobody owns with NaN under every law."""

TRIVIAL = {
    ("connected_components", "checkerboard"), ("kv_append", "skipped"), ("rope_kv_append", "skipped"),
}  # fmt: skip
"""(operator, law) whose answer may be one of the trivial ones."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def awkward(name: str) -> list[Workload]:
    """Return the workloads of an operator that are not empty, small enough for a CPU."""
    spec = operators.load(name)
    return [w for w in spec.workloads if w.use == "awkward" and 0 not in w.axes.values()]


def drawn(spec: Operator, workload: Workload, *, seed: int) -> Arguments:
    return spec.laws[workload.law](workload.axes, workload.dtype, generator(seed))


def tensors(arguments: Arguments) -> list[torch.Tensor]:
    return [one for one in arguments if isinstance(one, torch.Tensor)]


def bits(one: torch.Tensor) -> torch.Tensor:
    return one.contiguous().flatten().view(torch.uint8)


def each_law() -> Iterator[tuple[str, Workload]]:
    """Yield every law with its largest awkward workload."""
    for name in operators.VALUES:
        spec = operators.load(name)
        for law in spec.laws:
            users = [w for w in awkward(name) if w.law == law]
            if users:
                yield name, max(users, key=lambda w: (spec.cost(w.axes, w.dtype).essential_bytes, w.dtype))


LAWS = [pytest.param(name, workload, id=f"{name}-{workload.law}") for name, workload in each_law()]


@pytest.mark.parametrize("name", operators.VALUES)
def test_every_law_is_asked_for_by_an_awkward_workload_and_every_workload_has_its_law(name: str) -> None:
    spec = operators.load(name)
    assert {w.law for w in spec.workloads} <= set(spec.laws)
    assert {w.law for w in spec.workloads if w.use == "awkward"} == set(spec.laws)
    assert set(spec.exact_laws) <= set(spec.laws)
    assert {w.dtype for w in spec.workloads if w.use == "awkward"} == set(spec.dtypes)
    assert len(spec.laws) >= 3
    assert all(function.__doc__ for function in spec.laws.values())


@pytest.mark.parametrize("name", operators.VALUES)
def test_costs_are_positive_and_targets_are_named(name: str) -> None:
    spec = operators.load(name)
    for workload in spec.workloads:
        assert set(workload.axes) == set(spec.axes)
        cost = spec.cost(workload.axes, workload.dtype)
        assert cost.essential_bytes >= 0
        assert cost.flops >= 0
        if workload.use == "target":
            assert workload.note
            assert cost.essential_bytes > 0
            assert cost.flops > 0 or name in ("embedding", "kv_append"), "only a copy computes nothing"
    assert any(w.use == "target" for w in spec.workloads)
    assert spec.baselines
    assert spec.source


WHOLE_TABLES = {"embedding", "moe_grouped_gemm_nvfp4"}
"""Have a target that reads little of far more than the exchange holds; such a target can not be judged by itself."""


@pytest.mark.parametrize("name", operators.VALUES)
def test_a_target_that_is_judged_as_small_brings_no_more_than_small_ones_may(name: str) -> None:
    spec = operators.load(name)
    targets = [w for w in spec.workloads if w.use == "target" and not building.heavy(spec, w)]
    assert (max((brought(spec, w) for w in targets), default=0) > judge.ARENA_BYTES // 2) == (name in WHOLE_TABLES)


def brought(spec: Operator, workload: Workload) -> int:
    """Return the bytes of all inputs, without those of scales and offsets (a sum or a ceiling among their axes)."""
    total = 0
    for one in spec.inputs:
        if isinstance(one, Buffer) and not re.search(r"[(+]", " ".join(one.axes)):
            shape = [re.match(r"([^/]*)(?:/(\d+))?", axis) for axis in one.axes]
            size = DTYPES[workload.dtype if one.dtype == "data" else one.dtype].itemsize
            for part in shape:
                assert part is not None
                size = size * numel(workload.axes, (part[1],)) // int(part[2] or 1)
            total += size
    return total


@pytest.mark.parametrize(("name", "workload"), LAWS)
def test_a_law_draws_by_the_seed_and_only_values_it_declares(name: str, workload: Workload) -> None:
    spec = operators.load(name)
    first, again, other = (drawn(spec, workload, seed=seed) for seed in (11, 11, 12))
    assert len(first) <= len(spec.inputs)
    for one, same in zip(first, again, strict=True):
        assert torch.equal(bits(one), bits(same)) if isinstance(one, torch.Tensor) else one == same  # type: ignore[arg-type]
    pairs = list(zip(tensors(first), tensors(other), strict=True))
    assert any(not torch.equal(bits(one), bits(new)) for one, new in pairs)
    for declared, one in zip(spec.inputs, first, strict=False):
        if isinstance(declared, Buffer):
            assert isinstance(one, torch.Tensor)
            assert one.dtype == DTYPES[workload.dtype if declared.dtype == "data" else declared.dtype]
            assert one.numel() == 0 or one.stride(-1) == 1 or one.shape[-1] == 1, "the last axis is contiguous"
            if (name, workload.law) not in ANY_VALUE and name != UNOWNED_PAGES and one.is_floating_point():
                assert bool(torch.isfinite(one.to(torch.float64)).all())


@pytest.mark.parametrize(("name", "workload"), LAWS)
def test_the_rounded_reference_passes_and_trivial_answers_do_not(name: str, workload: Workload) -> None:
    spec = operators.load(name)
    arguments = drawn(spec, workload, seed=5)
    expected = spec.reference(*arguments)

    def passes(made: list[torch.Tensor]) -> bool:
        found = compare_call(spec, arguments, tuple(made), dtype=workload.dtype, law=workload.law)
        return all(one.verdict == "passed" for one in found)

    kinds = [DTYPES[workload.dtype if b.dtype == "data" else b.dtype] for b in spec.outputs]
    right = [stored(one, kind) for one, kind in zip(expected, kinds, strict=True)]
    assert passes(right)
    if (name, workload.law) in TRIVIAL:
        return
    for place, one in enumerate(right):
        for made in (torch.zeros_like(one), mean_of(one), *(x for x in tensors(arguments) if x.shape == one.shape)):
            if made.dtype == one.dtype and not torch.equal(bits(made), bits(one)):
                changed = [*right[:place], made.clone(), *right[place + 1 :]]
                same = torch.equal(made.to(torch.float64).nan_to_num(), one.to(torch.float64).nan_to_num())
                assert same or not passes(changed)


def stored(value: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Round once, saturating where the format has no infinity."""
    return (value.clamp(-448, 448) if kind == torch.float8_e4m3fn else value).to(kind)


def mean_of(one: torch.Tensor) -> torch.Tensor:
    return torch.full_like(one, float(one.to(torch.float64).nanmean().nan_to_num(0, 0, 0)))


@pytest.mark.parametrize("name", operators.VALUES)
def test_a_plan_can_draw_fresh_edited_and_repeated_contents_of_every_workload(name: str) -> None:
    spec = operators.load(name)
    asked = [w for w in spec.workloads if w.use == "awkward"]
    plan = draw(name, asked, master_seed=3, calls=(3, 3))
    first: dict[int, Arguments] = {}
    for case, arguments in draw_arguments(spec, plan):
        before = first.setdefault(case.workload, arguments)
        for one, other in zip(tensors(arguments), tensors(before), strict=True):
            assert one.shape == other.shape
            assert one.stride() == other.stride() or one.numel() < 2


@pytest.mark.parametrize("name", operators.VALUES)
def test_the_answer_depends_on_every_input_that_is_not_a_weight(name: str) -> None:
    """Some workload notices if an input of one draw is replaced by that of another draw."""
    spec = operators.load(name)
    free = {i: b.name for i, b in enumerate(spec.inputs) if isinstance(b, Buffer) and not b.static}
    noticed = set()
    for workload in awkward(name):
        one, other = (drawn(spec, workload, seed=seed) for seed in (21, 22))
        before = spec.reference(*one)
        for place in free:
            if place in noticed or not fits(one[place], other[place]):
                continue
            after = spec.reference(*one[:place], other[place], *one[place + 1 :])
            if any(not torch.equal(bits(x), bits(y)) for x, y in zip(before, after, strict=True)):
                noticed.add(place)
        if len(noticed) == len(free):
            break
    assert noticed == set(free), {free[i] for i in set(free) - noticed}


def fits(one: object, other: object) -> bool:
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape


@pytest.mark.parametrize(
    ("name", "law"), [(name, law) for name in operators.VALUES for law in operators.load(name).exact_laws]
)
def test_one_wrong_unit_shows_under_an_exact_law(name: str, law: str) -> None:
    spec = operators.load(name)
    for workload in (w for w in awkward(name) if w.law == law):
        arguments = drawn(spec, workload, seed=9)
        kinds = [DTYPES[workload.dtype if b.dtype == "data" else b.dtype] for b in spec.outputs]
        expected = spec.reference(*arguments)
        made = [stored(one, kind) for one, kind in zip(expected, kinds, strict=True)]
        assert all(torch.equal(one.to(torch.float64), want) for one, want in zip(made, expected, strict=True))
        off = made[0].clone()
        off.view(-1)[0] += made[0].abs().max() / 128 + 1e-3

        def judged(first: torch.Tensor) -> Comparison:
            return compare_call(spec, arguments, (first, *made[1:]), dtype=workload.dtype, law=law)[0]  # noqa: B023

        assert judged(made[0]).max_normalised == 0.0
        assert judged(off).verdict == "wrong_values"


TIMED = sorted(
    {(name, one.law) for name in operators.VALUES for one in operators.load(name).workloads if one.use == "target"}
)


@pytest.mark.parametrize(("name", "law"), TIMED)
def test_a_law_that_is_timed_draws_the_same_scalars_always(name: str, law: str) -> None:
    """Calls whose scalars differ may take different times, or be compiled anew."""
    spec = operators.load(name)
    small = next((one for one in spec.workloads if one.law == law and one.use == "awkward"), None)
    assert small is not None, "what is timed is also judged at awkward sizes"
    drawn = [spec.laws[law](small.axes, small.dtype, generator(seed)) for seed in range(6)]
    scalars = {tuple(one for one in arguments if not isinstance(one, torch.Tensor)) for arguments in drawn}
    assert len(scalars) == 1


@pytest.mark.parametrize(
    "name",
    ["fused_add_rmsnorm", "gated_rmsnorm", "groupnorm", "l2norm", "layernorm", "rmsnorm", "rmsnorm_quantize_fp8"],
)
def test_some_law_of_a_norm_draws_its_eps(name: str) -> None:
    spec = operators.load(name)
    small = {one.law: one for one in spec.workloads if one.use == "awkward"}
    drawn = [spec.laws[law](one.axes, one.dtype, generator(seed)) for law, one in small.items() for seed in range(6)]
    assert {1e-6, 1e-4, 1e-3} <= {arguments[-1] for arguments in drawn}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("largest", [None, 100.0])
def test_no_corner_is_larger_than_what_was_asked_for(dtype: str, largest: float | None) -> None:
    """An honest x (1 + erf) doubles x before it halves it: torch's own does so on some processors."""
    x = extremes((64, 257), dtype, generator(7), largest=largest)
    assert float(x.abs().max()) == pytest.approx(torch.finfo(DTYPES[dtype]).max / 2 if largest is None else 100.0)
    assert torch.isfinite(x * 2).all()
    assert (x.abs() < torch.finfo(DTYPES[dtype]).smallest_normal).any()
