"""Which operator a kernel or table of the field computes, by its name; None where nobody can say for sure."""

import re
from functools import lru_cache

_RULES: tuple[tuple[str, str], ...] = (
    (r"rms_?norm.*quant", "rmsnorm_quantize_fp8"),
    (r"qk_norm_rope", "rmsnorm"),
    (r"silu.*(quant|fp8)", "silu_and_mul_quantize"),
    (r"silu_and_mul", "silu_and_mul"),
    (r"rms_?norm", "rmsnorm"),
    (r"grouped_(matmul|moe|gemm)|group(ed)?_gemm", "grouped_gemm"),
    (r"moe_routing|routing|topk_(softmax|sigmoid)|moe_gate", "topk_router"),
    (r"causal_conv1d(_fn|_fwd|_update)?", "causal_conv1d_update"),
    (r"(decode|recurrent|update).*(gated_delta|gdn|kda)|(gated_delta|gdn|kda).*(decode|recurrent|update)",
     "gated_delta_decode"),
    (r"chunk_(gated_delta|fwd_o|scaled_dot_kkt)|gated_delta|chunk_kda", "gated_delta_prefill"),
    (r"generation_attention|flash_decode|paged_attention|decode_att", "paged_attention_decode"),
    (r"context_attention|prefill_att|flash_attn", "attention_prefill"),
    (r"rope", "rope"),
    (r"all_?reduce", "all_reduce"),
    (r"all_?gather", "all_gather"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?to_?all|alltoall|a2a|deepep|dispatch|combine", "all_to_all"),
    (r"(per_token|dynamic|static).*quant|quantize_fp8|scaled_fp8_quant", "quantize_fp8"),
    (r"scaled_mm|gemm.*a8w8|a8w8.*gemm|fp8_gemm", "gemm_fp8"),
    (r"afp4wfp4|fp4_gemm", "gemm_mxfp4"),
    (r"(^|_)(fused_)?moe($|_)|megamoe|expert", "fused_moe"),
    (r"(^|_)(b?gemm|matmul|linear|bmm|mm)($|_)", "gemm"),
    (r"softmax", "softmax"),
    (r"layer_?norm", "layernorm"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def operator_of(name: str) -> str | None:
    """Return the operator that a name stands for.

    Args:
        name: Of a kernel, a folder of tuned parameters or a measured table.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return next((operator for pattern, operator in _RULES if re.search(pattern, plain)), None)
