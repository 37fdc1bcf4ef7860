"""Which operator a kernel or table of the field computes or is part of, by its name; nothing where nobody can say."""

import re
from functools import lru_cache

_WHOLE: tuple[tuple[str, str], ...] = (
    (r"rms_?norm.*quant", "rmsnorm_quantize_fp8"),
    (r"silu.*(quant|fp8)", "silu_and_mul_quantize"),
    (r"silu_and_mul", "silu_and_mul"),
    (r"^(fused_)?add_rms_?norm", "fused_add_rmsnorm"),
    (r"rms_?norm", "rmsnorm"),
    (r"grouped_(matmul|moe_gemm|gemm)|group_gemm", "grouped_gemm"),
    (r"moe_routing|topk_(softmax|sigmoid)", "topk_router"),
    (r"causal_conv1d_update", "causal_conv1d_update"),
    (r"(decode|recurrent).*(gated_delta|gdn)|(gated_delta|gdn).*(decode|recurrent|update)", "gated_delta_decode"),
    (r"chunk_gated_delta_rule($|_flashinfer|_fwd$)", "gated_delta_prefill"),
    (r"^generation_attention|^paged_attention", "paged_attention_decode"),
    (r"^context_attention", "attention_prefill"),
    (r"^m?rope", "rope"),
    (r"all_?reduce", "all_reduce"),
    (r"all_?gather", "all_gather"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?to_?all|a2a|^(ll|ht)$", "all_to_all"),
    (r"per_token.*quant|scaled_fp8_quant", "quantize_fp8"),
    (r"^scaled_mm|^gemm.*a8w8", "gemm_fp8"),
    (r"^gemm.*afp4wfp4", "gemm_mxfp4"),
    (r"^(fused_)?moe$|^moe_(default|fp8|int8|int4|generation|context)", "fused_moe"),
    (r"^gemm($|_a16w16$)|^matmul|^linear$", "gemm"),
    (r"^softmax", "softmax"),
    (r"^layer_?norm", "layernorm"),
)
_PART: tuple[tuple[str, str], ...] = (
    (r"qk_norm_rope", "rmsnorm"),
    (r"qk_norm_rope", "rope"),
    (r"chunk_(gated_delta|fwd_o|scaled_dot_kkt|local_cumsum)|gdn_gating|chunk_kda|solve_tril|recompute_w_u",
     "gated_delta_prefill"),
    (r"flash_decode|decode_att|mla_generation|mla_gen|mla_decode", "paged_attention_decode"),
    (r"flash_attn|prefill_att|mla_context", "attention_prefill"),
    (r"moe|expert", "fused_moe"),
    (r"a2a|deepep", "all_to_all"),
    (r"gemm|matmul|bmm", "gemm"),
    (r"causal_conv1d", "causal_conv1d_update"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def meaning_of(name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the operator that a name stands for, and those that it is a part or a relative of.

    Args:
        name: Of a kernel, a folder of tuned parameters or a measured table.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if re.search(r"batched|mla|sparse|mamba|kda", plain) is None and re.search(r"qk_norm_rope", plain) is None:
        for pattern, operator in _WHOLE:
            if re.search(pattern, plain):
                return operator, ()
    return None, tuple(dict.fromkeys(operator for pattern, operator in _PART if re.search(pattern, plain)))
