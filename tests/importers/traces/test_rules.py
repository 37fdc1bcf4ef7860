"""Names of kernels as libraries write them, and the operator that each is."""

from pathlib import Path

import pytest

from kb.errors import SourceUnavailableError
from kb.importers.traces.profile import Key, Operation
from kb.importers.traces.rules import Rules, known_operators, load
from kb.validators.operators import names

KERNELS = {
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "gemm",
    "nvjet_tst_128x64_64x8_2x1_v_bz_TNT": "gemm",
    "nvjet_qqtst_128x256_128x6_2x1_h_bz_TNT": "gemm_fp8",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128": "gemm_fp8",
    "void gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, false, true>": "gemm",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>": "gemm",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u>": "gemm_fp8_block",
    "_w8a8_block_fp8_matmul": "gemm_fp8_block",
    "void deep_gemm::fp8_m_grouped_gemm_nt_contiguous": "moe_grouped_gemm_fp8",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>": "attention_prefill",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>": "attention_prefill",
    "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>": "paged_attention_decode",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<x>>>": "attention_prefill",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention_prefill",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": "attention_prefill",
    "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128>": "paged_attention_decode",
    "kernel_unified_attention_2d": "paged_attention_decode",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": "kv_append",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>": "rope",
    "void vllm::rms_norm_kernel<c10::BFloat16>": "rmsnorm",
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>": "fused_add_rmsnorm",
    "void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel<c10::BFloat16>>": "silu_and_mul",
    "void vllm::moe::topkGatingSoftmax<8, 256, 4, 16>": "topk_router",
    "void vllm::moe::moe_align_block_size_kernel<int>": "moe_align",
    "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>": "moe_combine",
    "fused_moe_kernel": "grouped_gemm",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>": "all_reduce",
    "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>": "quantize_nvfp4",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>": "paged_attention_decode",
    "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<1>": "attention_prefill",
    "void flashinfer::norm::FusedAddRMSNormKernel<8, __nv_bfloat16>": "fused_add_rmsnorm",
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>": "top_k_top_p",
    "bmm_E2m1_E2m1E2m1_Fp32_t128x8x512_s5_et128x8": "moe_grouped_gemm_nvfp4",
    "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvDenseP32VarSeqQ16Kv128Generation": "paged_attention_decode",
    "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128Kv128PersistentContext": "attention_prefill",
    "fused_recurrent_gated_delta_rule_fwd_kernel": "gated_delta_decode",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64": "gated_delta_prefill",
    "_causal_conv1d_update_kernel": "causal_conv1d_update",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "reduce_scatter",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": "rmsnorm",
    "triton_per_fused_native_layer_norm_1": "layernorm",
    "triton_poi_fused_mul_silu_3": "silu_and_mul",
    "triton_poi_fused_gelu_2": "gelu",
    "triton_poi_fused_add_mul_4": "elementwise",
    "triton_poi_fused_clone_transpose_5": "copy",
    "triton_red_fused_sum_6": "reduction",
    "triton_tem_fused_mm_7": "gemm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>": "elementwise",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(x)>": "copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": "fill",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(x)>": "gelu",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>": "layernorm",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "reduction",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<x>": "concat",
    "void cub::DeviceRadixSortOnesweepKernel<x>": "sort",
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc": "conv2d",
    "sm80_xmma_dgrad_implicit_gemm_bf16bf16": "conv_transpose2d",
    "void vision::ops::nms_kernel_impl<float>": "nms",
    "Memcpy DtoD (Device -> Device)": "copy",
    "[CUDA memset]": "fill",
    "Cijk_Alik_Bljk_BBS_BH_MT128x128x64": "gemm",
    "nvjet_sm90_tst_mma_128x256x64_4_64x256x64_tmaAB_bz_TNT": "gemm",
    "void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>": "gemm",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, false, __nv_bfloat16>": "gemm",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, false>": "softmax",
    "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>": "sort",
    "void at::native::mbtopk::radixFindKthValues<float, unsigned int>": "sort",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_fill>": "indexing",
    "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel(x)>": "silu",
    "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::BFloat16>": "groupnorm",
    "void at::native::(anonymous namespace)::upsample_bilinear2d_nhwc_out_frame<x, float>": "resize_bilinear",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>": "copy",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x128_32x4>": "conv2d",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816dgrad_optimized_bf16_128x64>": "conv_transpose2d",
    "void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>": "conv2d",
    "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>": "groupnorm",
    "triton_poi_fused__to_copy_add_cat_mul_neg_rsqrt_slice_3": "rope",
    "triton_per_fused_add_native_layer_norm_view_4": "layernorm",
    "triton_red_fused_native_group_norm_10": "groupnorm",
    "triton_red_fused__softmax__to_copy_topk_5": "softmax",
    "triton_tem_fused_bmm_2": "batched_gemm",
    "triton_tem_fused_addmm_gelu_9": "gemm",
}  # fmt: skip

OPERATIONS = {
    "aten::mm": "gemm", "aten::addmm": "gemm", "mkldnn::_linear_pointwise": "gemm", "aten::bmm": "batched_gemm",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention_prefill", "aten::native_layer_norm": "layernorm",
    "aten::mkldnn_convolution": "conv2d", "aten::_convolution.transposed": "conv_transpose2d",
    "aten::mul": "elementwise",
    "aten::add_": "elementwise", "aten::copy_": "copy", "aten::cat": "concat", "aten::topk": "sort",
    "aten::view": "host",
    "aten::as_strided": "host", "aten::empty": "host", "aten::sum": "reduction", "aten::_softmax": "softmax",
    "aten::gelu": "gelu", "aten::upsample_bilinear2d": "resize_bilinear", "aten::embedding": "embedding",
    "graph_1_cpp_fused_mul_permute_silu_split_view_8": "silu_and_mul",
    "graph_3_cpp_fused_clone_native_layer_norm_permute_view_1": "layernorm",
}  # fmt: skip


@pytest.fixture(scope="module")
def rules() -> Rules:
    return load()


@pytest.mark.parametrize(("name", "operator"), KERNELS.items())
def test_a_kernel_is_the_operator_that_it_computes(rules: Rules, name: str, operator: str) -> None:
    found = rules.name(Key(name, None))
    assert found is not None
    assert found.operator == operator, found.rule


@pytest.mark.parametrize(("name", "operator"), OPERATIONS.items())
def test_an_operation_of_the_framework_is_the_operator_that_it_computes(rules: Rules, name: str, operator: str) -> None:
    found = rules.name(Key("", Operation(name)))
    assert found is not None
    assert found.operator == operator, found.rule


def test_what_launched_a_kernel_decides_only_where_its_name_says_little(rules: Rules) -> None:
    generic = "void at::native::vectorized_gather_kernel<16, long>"
    for kernel, operation, operator in (
        (generic, "aten::embedding", "embedding"),
        (generic, "aten::gather", "indexing"),
        ("flash_fwd_kernel", "aten::mm", "attention_prefill"),
        ("an_unheard_of_name", "aten::mm", "gemm"),
        ("ampere_sgemm_32x32_tn", "aten::bmm", "batched_gemm"),
        ("ampere_sgemm_32x32_tn", "aten::view", "gemm"),
    ):
        found = rules.name(Key(kernel, Operation(operation)))
        assert found is not None
        assert found.operator == operator
    assert rules.name(Key("an_unheard_of_name", None)) is None
    assert rules.name(Key("an_unheard_of_name", Operation("aten::view"))) is None


def test_every_rule_names_an_operator_and_has_an_id_of_its_own(rules: Rules) -> None:
    assert {one.operator for one in rules.rules} <= known_operators(names.NAMES)
    ids = [one.id for one in rules.rules]
    assert len(set(ids)) == len(ids)


def test_rules_of_ones_own_come_first_and_broken_ones_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[rule]]\nid = "m"\non = "kernel"\nmatch = "^mine$"\noperator = "nms"\n', encoding="utf-8")
    found = load(file).name(Key("mine", None))
    assert found is not None
    assert found.rule == "m"
    for text in (
        "rule = 3",
        "[[rule]]",
        '[[rule]]\nid = "m"\non = "kernel"\nmatch = "("\noperator = "nms"',
        '[[rule]]\nid = "m"\non = "night"\nmatch = "x"\noperator = "nms"',
        '[[rule]]\nid = "m"\non = "kernel"\nmatch = 3\noperator = "nms"',
        "x =",
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SourceUnavailableError):
            load(file)
    with pytest.raises(SourceUnavailableError):
        load(tmp_path / "none.toml")
