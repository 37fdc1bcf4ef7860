"""References compute where their arguments lie: on a GPU the arbiter gives them tensors of the device."""

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload, generator

READ_VALUES = {
    "attention_biased", "connected_components", "embedding", "fused_moe", "gated_delta_prefill", "grouped_gemm",
    "kv_append", "moe_grouped_gemm_mxfp4", "moe_grouped_gemm_nvfp4", "nms", "paged_attention_decode", "roi_align",
    "rope_kv_append", "top_k_top_p",
}  # fmt: skip
"""Their references branch on numbers of their arguments, which tensors without storage do not have."""

ON_THE_HOST = {"attention_prefill", "attention_window"}
"""Their results are put together on the CPU, head by head."""


def small(operator: Operator) -> Workload:
    """Return the smallest workload that is not empty."""
    sizes = [(operator.cost(w.axes, w.dtype).essential_bytes, at) for at, w in enumerate(operator.workloads)]
    return operator.workloads[min((size, at) for size, at in sizes if size > 0)[1]]


@pytest.mark.parametrize("name", sorted(set(operators.VALUES) - READ_VALUES - ON_THE_HOST))
def test_a_reference_computes_where_its_arguments_lie(name: str) -> None:
    operator = operators.load(name)
    workload = small(operator)
    drawn = operator.laws[workload.law](workload.axes, workload.dtype, generator(1))
    given = [one.to("meta") if isinstance(one, torch.Tensor) else one for one in drawn]
    for made in (operator.reference, operator.condition):
        if made is not None:
            assert {one.device.type for one in made(*given)} == {"meta"}
