"""Attention, gated delta rule, routing and sampling: what the specs accept and what they refuse."""

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.attention_window import rotate
from kb.validators.operators.spec import Arguments, Workload, generator
from kb.validators.runtime.compare import compare_call

ATTENTION = ("attention_prefill", "attention_window", "attention_biased", "paged_attention_decode")
NUMERIC = (*ATTENTION, "gated_delta_prefill", "gated_delta_decode", "causal_conv1d_update")
FAMILY = (*NUMERIC, "topk_router", "top_k_top_p", "sample_categorical")
LOWER = {torch.float32: torch.float16, torch.float16: torch.float8_e4m3fn, torch.bfloat16: torch.float8_e4m3fn}
"""The next format down that a fast candidate would use; float16 has TF32's 11 bits."""


def draw(name: str, axes: dict[str, int], dtype: str, law: str = "normal") -> Arguments:
    """Draw one call of an operator."""
    return operators.load(name).laws[law](axes, dtype, generator(3))


def rounded(results: tuple[torch.Tensor, ...], name: str, dtype: str) -> tuple[torch.Tensor, ...]:
    """Store float64 results in the dtypes of the operator's outputs."""
    spec = operators.load(name)
    kinds = [dtype if b.dtype == "data" else b.dtype for b in spec.outputs]
    return tuple(r.to(getattr(torch, kind)) for r, kind in zip(results, kinds, strict=True))


def verdicts(name: str, arguments: Arguments, actual: tuple[torch.Tensor, ...], dtype: str) -> list[str]:
    """Return the verdict of every output."""
    return [one.verdict for one in compare_call(operators.load(name), arguments, actual, dtype=dtype)]


def solid(name: str) -> list[Workload]:
    """Return the awkward workloads with something in them and more than a handful of numbers."""
    spec = operators.load(name)
    return [w for w in spec.workloads if w.use == "awkward" and w.law not in spec.exact_laws and _big(name, w)]


def _big(name: str, workload: Workload) -> bool:
    sizes = {axis: size for axis, size in workload.axes.items() if axis != "causal"}
    arguments = draw(name, dict(workload.axes), workload.dtype, workload.law)
    largest = max(a.numel() for a in arguments if isinstance(a, torch.Tensor))
    return min(sizes.values()) > 0 and max(sizes.values()) > 16 and largest > 64


CASES = [pytest.param(name, w, id=f"{name}-{i}") for name in FAMILY for i, w in enumerate(solid(name))]
NUMERIC_CASES = [case for case in CASES if case.values[0] in NUMERIC]


@pytest.mark.parametrize(("name", "workload"), CASES)
def test_the_reference_stored_in_the_output_dtype_is_accepted(name: str, workload: Workload) -> None:
    arguments = draw(name, dict(workload.axes), workload.dtype, workload.law)
    honest = rounded(operators.load(name).reference(*arguments), name, workload.dtype)
    assert set(verdicts(name, arguments, honest, workload.dtype)) == {"passed"}


@pytest.mark.parametrize(("name", "workload"), CASES)
def test_zeros_are_refused(name: str, workload: Workload) -> None:
    arguments = draw(name, dict(workload.axes), workload.dtype, workload.law)
    zeros = tuple(map(torch.zeros_like, rounded(operators.load(name).reference(*arguments), name, workload.dtype)))
    assert set(verdicts(name, arguments, zeros, workload.dtype)) == {"wrong_values"}


@pytest.mark.parametrize(("name", "workload"), NUMERIC_CASES)
def test_inputs_one_precision_lower_are_refused(name: str, workload: Workload) -> None:
    arguments = draw(name, dict(workload.axes), workload.dtype, workload.law)
    kind = getattr(torch, workload.dtype)
    cheap = tuple(
        a.to(LOWER[kind]).to(kind) if isinstance(a, torch.Tensor) and a.dtype == kind else a for a in arguments
    )
    results = rounded(operators.load(name).reference(*cheap), name, workload.dtype)
    assert verdicts(name, arguments, results, workload.dtype)[0] == "wrong_values"


def test_values_one_precision_lower_are_refused_where_the_result_is_float32() -> None:
    for name, axes in (("topk_router", {"num_tokens": 7, "num_experts": 256, "top_k": 8}),
                       ("top_k_top_p", {"num_rows": 4, "vocab_size": 500})):  # fmt: skip
        arguments = draw(name, axes, "float32")
        first, *rest = operators.load(name).reference(*arguments)
        assert verdicts(name, arguments, (first.half().float(), *rest), "float32")[0] == "wrong_values"


def test_attention_without_its_last_key_is_refused() -> None:
    axes = {"batch_size": 1, "q_len": 40, "kv_len": 90, "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "causal": 0}
    for dtype in ("float32", "bfloat16"):
        q, k, v, scale, causal = draw("attention_prefill", axes, dtype)
        assert isinstance(k, torch.Tensor)
        assert isinstance(v, torch.Tensor)
        short = operators.load("attention_prefill").reference(q, k[:, :-1], v[:, :-1], scale, causal)
        results = rounded(short, "attention_prefill", dtype)
        assert verdicts("attention_prefill", (q, k, v, scale, causal), results, dtype) == ["wrong_values"]


def test_dense_attention_agrees_with_torch() -> None:
    axes = {"batch_size": 2, "q_len": 33, "kv_len": 33, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    for causal in (0, 1):
        q, k, v, scale, _ = draw("attention_prefill", {**axes, "causal": causal}, "float32")
        (got,) = operators.load("attention_prefill").reference(q, k, v, scale, causal)
        wide = [x.double().transpose(1, 2) for x in (q, k, v) if isinstance(x, torch.Tensor)]
        wide[1:] = [x.repeat_interleave(2, 1) for x in wide[1:]]
        assert isinstance(scale, float)
        want = torch.nn.functional.scaled_dot_product_attention(
            wide[0], wide[1], wide[2], is_causal=bool(causal), scale=scale
        )
        torch.testing.assert_close(got, want.transpose(1, 2), rtol=1e-12, atol=1e-12)


def test_biased_attention_agrees_with_torch_and_hidden_rows_are_zero() -> None:
    axes = {"batch_size": 2, "q_len": 9, "kv_len": 21, "num_heads": 2, "head_dim": 16}
    q, k, v, bias, scale = draw("attention_biased", axes, "float32", "masked")
    (got,) = operators.load("attention_biased").reference(q, k, v, bias, scale)
    assert isinstance(bias, torch.Tensor)
    assert isinstance(scale, float)
    wide = [x.double().transpose(1, 2) for x in (q, k, v) if isinstance(x, torch.Tensor)]
    want = torch.nn.functional.scaled_dot_product_attention(
        wide[0], wide[1], wide[2], attn_mask=bias.double(), scale=scale
    )
    torch.testing.assert_close(got[:, 1:], want.transpose(1, 2)[:, 1:], rtol=1e-12, atol=1e-12)
    assert not got[:, 0].any()


def test_paged_attention_equals_dense_attention_over_the_gathered_pages() -> None:
    axes = {"num_seqs": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "page_size": 4}
    axes |= {"max_pages": 8, "num_pages": 20, "context_len": 13}
    q, k_cache, v_cache, table, lens, scale = draw("paged_attention_decode", axes, "float32", "ragged")
    (got,) = operators.load("paged_attention_decode").reference(q, k_cache, v_cache, table, lens, scale)
    for x in (q, k_cache, v_cache):
        assert isinstance(x, torch.Tensor)
    assert isinstance(table, torch.Tensor)
    assert isinstance(lens, torch.Tensor)
    assert int(lens.sum()) == 39
    assert int(lens[0]) == 0
    assert not got[0].any()
    for seq in (1, 2):
        slots = [(int(table[seq, t // 4]), t % 4) for t in range(int(lens[seq]))]
        k = torch.stack([k_cache[page, slot] for page, slot in slots])[None]  # type: ignore[index]
        v = torch.stack([v_cache[page, slot] for page, slot in slots])[None]  # type: ignore[index]
        (want,) = operators.load("attention_prefill").reference(q[seq][None, None], k, v, scale, 0)  # type: ignore[index]
        torch.testing.assert_close(got[seq], want[0, 0], rtol=1e-12, atol=1e-12)


def test_window_rotation_depends_on_the_distance_of_tokens_only() -> None:
    axes = {"num_windows": 1, "window_tokens": 16, "num_heads": 1, "head_dim": 8, "half_dim": 4}
    _, _, _, cos, sin, _ = draw("attention_window", axes, "float32")
    assert isinstance(cos, torch.Tensor)
    assert isinstance(sin, torch.Tensor)
    x = torch.randn(8, generator=generator(5)).expand(1, 16, 1, 8)
    y = torch.randn(8, generator=generator(6)).expand(1, 16, 1, 8)
    scores = rotate(x, cos, sin)[0, :, 0] @ rotate(y, cos, sin)[0, :, 0].T
    torch.testing.assert_close(scores[0, 5], scores[10, 15], rtol=1e-6, atol=1e-6)
    assert abs(float(scores[0, 1] - scores[0, 4])) > 1e-3, "a step right is not a step down"


def test_gated_delta_prefill_is_decode_repeated() -> None:
    axes = {"batch_size": 2, "seq_len": 7, "num_heads": 1, "num_v_heads": 2, "head_dim": 8, "head_dim_v": 6}
    q, k, v, g, beta, state, scale = draw("gated_delta_prefill", axes, "float32")
    y, last = operators.load("gated_delta_prefill").reference(q, k, v, g, beta, state, scale)
    for t in range(7):
        step = [x[:, t] for x in (q, k, v, g, beta) if isinstance(x, torch.Tensor)]
        out, state = operators.load("gated_delta_decode").reference(*step, state, scale)
        torch.testing.assert_close(out, y[:, t], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, last, rtol=1e-12, atol=1e-12)


def test_a_gated_delta_rule_that_forgets_a_term_or_keeps_its_state_in_bfloat16_is_refused() -> None:
    axes = {"num_seqs": 2, "num_heads": 1, "num_v_heads": 2, "head_dim": 32, "head_dim_v": 32}
    q, k, v, g, beta, state, scale = arguments = draw("gated_delta_decode", axes, "bfloat16")
    spec = operators.load("gated_delta_decode")
    assert isinstance(g, torch.Tensor)
    assert isinstance(state, torch.Tensor)
    undecayed = rounded(spec.reference(q, k, v, torch.zeros_like(g), beta, state, scale), spec.name, "bfloat16")
    assert verdicts(spec.name, arguments, undecayed, "bfloat16") == ["wrong_values", "wrong_values"]
    y, new_state = rounded(spec.reference(*arguments), spec.name, "bfloat16")
    assert verdicts(spec.name, arguments, (y, new_state.bfloat16().float()), "bfloat16") == ["passed", "wrong_values"]


def test_the_convolution_agrees_with_torch_and_moves_its_state_exactly() -> None:
    axes = {"num_seqs": 3, "num_channels": 10, "width": 4, "state_len": 3}
    x, state, weight, silu = draw("causal_conv1d_update", axes, "float32")
    assert isinstance(x, torch.Tensor)
    assert isinstance(state, torch.Tensor)
    assert isinstance(weight, torch.Tensor)
    y, new_state = operators.load("causal_conv1d_update").reference(x, state, weight, silu)
    window = torch.cat([state, x[:, None]], 1).double().transpose(1, 2)
    want = torch.nn.functional.conv1d(window, weight.double()[:, None], groups=10)[:, :, 0]
    torch.testing.assert_close(y, torch.nn.functional.silu(want), rtol=1e-12, atol=1e-12)
    assert torch.equal(new_state[:, -1].float(), x)
    assert torch.equal(new_state[:, :-1].float(), state[:, 1:])


def test_equal_router_logits_go_to_the_lower_expert() -> None:
    logits = torch.tensor([[0.0, 1.0, -0.0, 1.0, 0.0]])
    weights, ids = operators.load("topk_router").reference(logits, 4, 1)
    assert ids.tolist() == [[1, 3, 0, 2]]
    assert ids.dtype == torch.int32
    assert float(weights.sum()) == pytest.approx(1.0)
    swapped = torch.tensor([[1, 3, 2, 0]], dtype=torch.int32)
    assert verdicts("topk_router", (logits, 4, 1), (weights.float(), swapped), "float32") == ["passed", "wrong_values"]


def test_the_router_law_has_no_ties_and_the_other_has() -> None:
    axes = {"num_tokens": 20, "num_experts": 256, "top_k": 8}
    smooth, tied = (draw("topk_router", axes, "bfloat16", law)[0] for law in ("normal", "ties"))
    assert isinstance(smooth, torch.Tensor)
    assert isinstance(tied, torch.Tensor)
    assert all(row.unique().numel() == 256 for row in smooth)
    assert all(row.unique().numel() <= 5 for row in tied)


def test_top_k_keeps_ties_together_and_top_p_counts_what_lies_above() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.2, 0.1]]))
    spec = operators.load("top_k_top_p")
    off, on = torch.ones(1), torch.tensor([0.5])
    two, all_of_them = torch.tensor([2], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
    (probs,) = spec.reference(logits, two, off)
    torch.testing.assert_close(probs, torch.tensor([[0.0, 0.5, 0.25, 0.25, 0.0]]).double(), rtol=1e-6, atol=1e-7)
    (probs,) = spec.reference(logits, all_of_them, on)
    torch.testing.assert_close(probs, torch.tensor([[0.0, 0.5, 0.25, 0.25, 0.0]]).double(), rtol=1e-6, atol=1e-7)
    (probs,) = spec.reference(logits, two, torch.tensor([0.3]))
    assert probs.count_nonzero() == 1


def test_top_p_of_the_laws_is_clear_of_every_step() -> None:
    for law in ("normal", "ties"):
        logits, top_k, top_p = draw("top_k_top_p", {"num_rows": 8, "vocab_size": 900}, "bfloat16", law)
        spec = operators.load("top_k_top_p")
        assert isinstance(top_p, torch.Tensor)
        limited = top_p < 1
        kept = spec.reference(logits, top_k, top_p)[0] > 0
        for step in (-1e-5, 1e-5):
            moved = spec.reference(logits, top_k, torch.where(limited, top_p + step, top_p))[0] > 0
            assert torch.equal(moved, kept)


def test_sampling_agrees_with_searchsorted_and_its_laws_stay_clear_of_edges() -> None:
    for law in ("normal", "sparse"):
        probs, u = draw("sample_categorical", {"num_rows": 12, "vocab_size": 3000}, "float32", law)
        assert isinstance(probs, torch.Tensor)
        assert isinstance(u, torch.Tensor)
        (token,) = operators.load("sample_categorical").reference(probs, u)
        edges = probs.double().cumsum(-1)
        want = torch.searchsorted(edges, u.double()[:, None], side="right")[:, 0]
        assert torch.equal(token, want)
        assert bool((probs.gather(1, token[:, None]) > 0).all())
        distance = (edges - u.double()[:, None]).abs().amin(-1)
        assert bool(((distance > 1e-6) | (u == 0)).all())
        assert verdicts("sample_categorical", (probs, u), (token + 1,), "float32") == ["wrong_values"]


def test_costs_equal_counts_made_by_hand() -> None:
    dense = {"batch_size": 1, "q_len": 2, "kv_len": 3, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "causal": 1}
    made = operators.load("attention_prefill").cost(dense, "bfloat16")
    assert made.flops == 4 * 8 * 2 * (2 + 3)
    assert made.essential_bytes == 2 * 8 * (2 * 2 * 2 + 2 * 3)
    paged = {"num_seqs": 2, "num_heads": 4, "num_kv_heads": 1, "head_dim": 8, "page_size": 4, "context_len": 8}
    made = operators.load("paged_attention_decode").cost(paged, "float32")
    assert made.flops == 4 * 16 * 4 * 8
    assert made.essential_bytes == 4 * (2 * 16 * 8 + 2 * 2 * 4 * 8) + 4 * (4 + 2)
    delta = {"num_seqs": 1, "num_heads": 16, "num_v_heads": 32, "head_dim": 128, "head_dim_v": 128}
    made = operators.load("gated_delta_decode").cost(delta, "bfloat16")
    assert made.essential_bytes == 2 * 2**21 + 2 * (2 * 2048 + 2 * 4096) + 8 * 32
    conv = {"num_seqs": 1, "num_channels": 10, "width": 4, "state_len": 3}
    made = operators.load("causal_conv1d_update").cost(conv, "bfloat16")
    assert made.flops == 120
    assert made.essential_bytes == 2 * (80 + 40)
    made = operators.load("topk_router").cost({"num_tokens": 2, "num_experts": 256, "top_k": 8}, "bfloat16")
    assert made.essential_bytes == 2 * 256 * 2 + 2 * 8 * 8
    rows = {"num_rows": 2, "vocab_size": 10}
    assert operators.load("sample_categorical").cost(rows, "float32").essential_bytes == 2 * (40 + 4 + 8)
    assert operators.load("top_k_top_p").cost(rows, "bfloat16").essential_bytes == 2 * (60 + 8)
