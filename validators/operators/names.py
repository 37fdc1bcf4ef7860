"""The names of all operators by family, readable without torch; a test compares the list with the folder."""

VALUES: tuple[str, ...] = (
    "attention_biased",
    "attention_prefill",
    "attention_window",
    "causal_conv1d",
    "causal_conv1d_update",
    "connected_components",
    "conv2d",
    "conv_transpose2d",
    "depthwise_conv2d",
    "embedding",
    "fused_add_rmsnorm",
    "fused_moe",
    "gated_delta_decode",
    "gated_delta_prefill",
    "gated_rmsnorm",
    "gelu",
    "gemm",
    "gemm_bias_gelu",
    "gemm_fp8",
    "gemm_fp8_block",
    "gemm_mxfp4",
    "gemm_nvfp4",
    "grouped_gemm",
    "groupnorm",
    "kv_append",
    "l2norm",
    "layernorm",
    "mask_decode",
    "max_pool2d",
    "moe_combine",
    "moe_grouped_gemm_mxfp4",
    "moe_grouped_gemm_nvfp4",
    "nms",
    "paged_attention_decode",
    "patch_embed",
    "quantize_fp8",
    "quantize_nvfp4",
    "resize_bilinear",
    "rmsnorm",
    "rmsnorm_quantize_fp8",
    "roi_align",
    "rope",
    "rope_2d",
    "rope_kv_append",
    "sample_categorical",
    "sigmoid_mul",
    "silu",
    "silu_and_mul",
    "silu_and_mul_quantize",
    "softmax",
    "top_k_top_p",
    "topk_router",
)
"""One process, tensors in and tensors out."""

ALLOCATION: tuple[str, ...] = ("graph_pool", "kv_block_pool", "workspace_plan")
"""Strategies that serve allocation traces."""

COMM: tuple[str, ...] = ("all_gather", "all_reduce", "all_reduce_rmsnorm", "all_to_all", "reduce_scatter")
"""Schemes in which several ranks take part: one process a rank."""

NAMES: tuple[str, ...] = tuple(sorted((*VALUES, *ALLOCATION, *COMM)))
"""All of them."""
