"""One query a sequence against keys and values in pages; the error model is that of ``attention_prefill``."""

from typing import cast

import torch

from kb.validators.operators.attention_prefill import C_ACC, C_OUT, attend, attention_condition
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Workload,
    itemsize,
)

AXES = (
    "num_seqs",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "page_size",
    "max_pages",
    "num_pages",
    "context_len",
)


def _gather(cache: torch.Tensor, pages: torch.Tensor, length: int, head: int) -> torch.Tensor:
    """Return the first ``length`` rows [length, head_dim] of one head, in float64, reading no other page or slot."""
    page_size = cache.shape[1]
    used = pages[: -(-length // page_size)].long()
    return cache[used, :, head].flatten(0, 1)[:length].double()


def _each(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    *,
    scales: bool,
) -> torch.Tensor:
    out = torch.zeros(q.shape, dtype=torch.float64)
    group = q.shape[1] // k_cache.shape[2]
    for seq in range(q.shape[0]):
        length = int(context_lens[seq])
        for head in range(k_cache.shape[2]):
            rows = slice(head * group, (head + 1) * group)
            k = _gather(k_cache, page_table[seq], length, head)
            v = _gather(v_cache, page_table[seq], length, head)
            query = q[seq, rows].double()
            if scales:
                out[seq, rows] = attention_condition(query, k, v, None, scale=scale, dtype=v_cache.dtype)
            else:
                out[seq, rows] = attend(query, k, v, None, scale=scale)
    return out


def reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return attention of each sequence over its own pages in float64; shapes as in ``SPEC``."""
    return (_each(q, k_cache, v_cache, page_table, context_lens, scale, scales=False),)


def condition(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Return S of ``attention_prefill``, shaped like the result; zero where the context is empty."""
    return (_each(q, k_cache, v_cache, page_table, context_lens, scale, scales=True),)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 * head_dim operations a head and cached token; every cached K and V row once, q, result, page numbers.

    The laws of the targets hold exactly num_seqs * context_len cached tokens, however they are spread over sequences.
    """
    tokens = axes["num_seqs"] * axes["context_len"]
    cached = 2 * tokens * axes["num_kv_heads"] * axes["head_dim"]
    queries = 2 * axes["num_seqs"] * axes["num_heads"] * axes["head_dim"]
    table = 4 * (tokens // axes["page_size"] + axes["num_seqs"])
    return Cost(
        flops=4 * tokens * axes["num_heads"] * axes["head_dim"],
        essential_bytes=(cached + queries) * itemsize(dtype) + table,
    )


def _draw(axes: Axes, dtype: str, generator: torch.Generator, lens: torch.Tensor, *, sharp: float) -> Arguments:
    """Scatter the pages over the pool; holes of the table are -1, and slots that nobody owns are NaN."""
    shape = (axes["num_pages"], axes["page_size"], axes["num_kv_heads"], axes["head_dim"])
    k = torch.randn(shape, generator=generator)
    size = torch.exp2(torch.randint(-2, 3, shape[:3], generator=generator).float())
    v = torch.randn(shape, generator=generator) * size[..., None]
    order = torch.randperm(axes["num_pages"], generator=generator)
    table = torch.full((axes["num_seqs"], axes["max_pages"]), -1, dtype=torch.int32)
    owned = torch.zeros(shape[:2], dtype=torch.bool)
    taken = 0
    for seq, length in enumerate(lens.tolist()):
        needed = -(-length // axes["page_size"])
        pages = order[taken : taken + needed]
        table[seq, :needed] = pages.int()
        slots = torch.arange(needed * axes["page_size"]).view(needed, axes["page_size"]) < length
        owned[pages] = slots
        taken += needed
    k[~owned], v[~owned] = torch.nan, torch.nan
    q = sharp * torch.randn(axes["num_seqs"], axes["num_heads"], axes["head_dim"], generator=generator)
    kind = DTYPES[dtype]
    return q.to(kind), k.to(kind), v.to(kind), table, lens.int(), axes["head_dim"] ** -0.5


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Every context is context_len long; logits of standard deviation 1.5."""
    return _draw(axes, dtype, generator, torch.full((axes["num_seqs"],), axes["context_len"]), sharp=1.5)


def ragged(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Uneven contexts, the first one empty, the sum num_seqs * context_len; logits of standard deviation 4."""
    count, capacity = axes["num_seqs"], axes["max_pages"] * axes["page_size"]
    lens = torch.zeros(count, dtype=torch.int64)
    share = torch.rand(count, generator=generator).square()
    share[:1] = 0
    left = count * axes["context_len"]
    while left:
        room = ((lens < capacity) & (share > 0)).nonzero().flatten()
        step = torch.ceil(left * share[room] / share[room].sum()).long()
        for seq, add in zip(room.tolist(), step.tolist(), strict=True):
            add = min(add, left, capacity - int(lens[seq]))
            lens[seq] += add
            left -= add
    return _draw(axes, dtype, generator, lens, sharp=4)


def _case(sizes: tuple[int, ...], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


_CACHE = ("num_pages", "page_size", "num_kv_heads", "head_dim")


def _capacity(axes: Axes) -> int:
    return min(axes["max_pages"], axes["num_pages"] // max(axes["num_seqs"], 1)) * axes["page_size"]


def page_edges(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Contexts of 0, 1 and one token around whole pages; logits of standard deviation 4."""
    size = axes["page_size"]
    edges = torch.tensor([0, 1, size - 1, size, size + 1, 2 * size, _capacity(axes)])
    pick = torch.randint(0, len(edges), (axes["num_seqs"],), generator=generator)
    return _draw(axes, dtype, generator, edges[pick].clamp(0, _capacity(axes)), sharp=4)


def shared_prefix(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All sequences begin with the pages of the first one, as after a common prompt."""
    lens = torch.randint(0, _capacity(axes) + 1, (axes["num_seqs"],), generator=generator)
    lens[:1] = _capacity(axes)
    q, k, v, table, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, dtype, generator, lens, sharp=1.5))
    for seq, length in enumerate(lens.tolist()):
        whole = length // axes["page_size"]
        table[seq, : (whole + 1) // 2] = table[0, : (whole + 1) // 2]
    return q, k, v, table, *rest


def offset_logits(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All keys look the same way as the queries: logits around 36 sqrt(head_dim), whose exp overflows."""
    lens = torch.full((axes["num_seqs"],), axes["context_len"])
    q, k, v, *rest = cast(tuple[torch.Tensor, ...], _draw(axes, "float32", generator, lens, sharp=1.5))
    way = 6 - 12.0 * torch.randint(0, 2, q.shape[-1:], generator=generator)
    return *(one.to(DTYPES[dtype]) for one in (q + way, k + way, v)), *rest


SPEC = Operator(
    name="paged_attention_decode",
    summary="y = softmax(scale * q k^T) v per sequence, k and v gathered through a page table",
    signature="paged_attention_decode(q, k_cache, v_cache, page_table, context_lens, scale)",
    axes=AXES,
    inputs=(
        Buffer("q", ("num_seqs", "num_heads", "head_dim"), doc="one new token a sequence; its own K and V are cached"),
        Buffer("k_cache", _CACHE, doc="token-major pages; slots past a context may hold anything, NaN too"),
        Buffer("v_cache", _CACHE, doc="as k_cache"),
        Buffer("page_table", ("num_seqs", "max_pages"), "int32", "page of tokens i*page_size …; holes are undefined"),
        Buffer("context_lens", ("num_seqs",), "int32", "cached tokens a sequence; 0 gives a row of zeros"),
        Scalar("scale", None, "factor on the logits, usually head_dim^-0.5"),
    ),
    outputs=(Buffer("y", ("num_seqs", "num_heads", "head_dim")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=C_OUT),
    cost=cost,
    laws={
        "normal": normal,
        "ragged": ragged,
        "page_edges": page_edges,
        "shared_prefix": shared_prefix,
        "offset_logits": offset_logits,
    },
    workloads=(
        _case((1, 1, 1, 16, 1, 1, 1, 1), "float32"),
        _case((0, 2, 1, 32, 16, 2, 4, 5), "bfloat16"),
        _case((2, 4, 2, 32, 16, 1, 2, 0), "float16", note="all contexts empty"),
        _case((3, 16, 2, 256, 16, 9, 16, 41), "bfloat16", law="ragged"),
        _case((5, 6, 2, 64, 16, 13, 40, 67), "float32", law="ragged"),
        _case((2, 7, 1, 72, 5, 31, 64, 97), "float16", note="a group of 7, odd pages, odd head_dim"),
        _case((1, 16, 1, 128, 64, 9, 12, 517), "bfloat16"),
        _case((4, 20, 1, 32, 8, 40, 120, 90), "bfloat16", law="ragged", note="a group above 16"),
        _case((6, 4, 2, 32, 16, 3, 24, 20), "float32", law="page_edges"),
        _case((5, 6, 1, 64, 8, 4, 24, 9), "bfloat16", law="page_edges"),
        _case((4, 4, 2, 32, 8, 5, 24, 17), "bfloat16", law="shared_prefix"),
        _case((3, 3, 1, 16, 5, 7, 24, 17), "float32", law="shared_prefix"),
        _case((2, 4, 1, 64, 16, 3, 8, 33), "float32", law="offset_logits"),
        _case((2, 2, 1, 32, 16, 9, 20, 129), "float16", law="offset_logits"),
        _case((1, 16, 2, 256, 16, 256, 264, 4096), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((16, 16, 2, 256, 16, 512, 4200, 4096), "bfloat16", law="ragged", use="target", note="Qwen3.6 decode"),
        _case((64, 16, 2, 256, 64, 64, 4096, 4096), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((256, 16, 2, 256, 16, 32, 8192, 512), "bfloat16", use="target", note="Qwen3.6, short contexts"),
    ),
    source="Kwon et al., PagedAttention, 2023; layout of flashinfer NHD and of vLLM's flash-attention backend",
    baselines=("gather_sdpa_compiled", "gather_sdpa"),
    rivals=("flashinfer BatchDecodeWithPagedKVCacheWrapper", "flash_attn_3 with_kvcache", "vllm unified_attention"),
)
