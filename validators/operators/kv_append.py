"""Append new keys and values to a paged KV cache."""

import torch

from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Workload,
    itemsize,
)


def append(new: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor) -> torch.Tensor:
    """Return a copy of cache [num_pages, page_size, heads, dim] with new[t] at slot slot_mapping[t], if not -1."""
    updated = cache.clone()
    rows = updated.view(-1, *cache.shape[2:])
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            rows[slot] = new[token]
    return updated


def reference(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return both caches after the append, in float64 (a pure copy, so exact)."""
    wide = [t.to(torch.float64) for t in (k, v, k_cache, v_cache)]
    return append(wide[0], wide[2], slot_mapping), append(wide[1], wide[3], slot_mapping)


def cost(axes: Axes, dtype: str) -> Cost:
    """No operations. The contract returns new caches, so both are written whole: k and v read, untouched slots read.

    Bytes = 2 * heads * dim * size * (slots written + slots read), slots read = all but the num_tokens replaced, plus
    num_tokens read from k and v; that is 2 * num_pages * page_size slots a cache, plus the int64 slot of each token.
    """
    slots = axes["num_pages"] * axes["page_size"]
    row = axes["num_kv_heads"] * axes["head_dim"] * itemsize(dtype)
    return Cost(flops=0, essential_bytes=2 * row * 2 * slots + 8 * axes["num_tokens"])


def slots(axes: Axes, generator: torch.Generator) -> torch.Tensor:
    """Draw distinct slots, int64 [num_tokens], every fifth token padded out with -1."""
    drawn = torch.randperm(axes["num_pages"] * axes["page_size"], generator=generator)[: axes["num_tokens"]]
    drawn[4::5] = -1
    return drawn


def _drawn(axes: Axes, dtype: str, generator: torch.Generator) -> list[torch.Tensor]:
    new = (axes["num_tokens"], axes["num_kv_heads"], axes["head_dim"])
    cache = (axes["num_pages"], axes["page_size"], *new[1:])
    return [torch.randn(shape, generator=generator).to(DTYPES[dtype]) for shape in (new, new, cache, cache)]


def scattered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Slots scattered over all pages, as in decoding many sequences; the caches' other values must survive."""
    return (*_drawn(axes, dtype, generator), slots(axes, generator))


def prefill(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pages in random order, slots running inside each: one long prompt. k and v are views into one projection."""
    k, v, k_cache, v_cache = _drawn(axes, dtype, generator)
    pages = torch.randperm(axes["num_pages"], generator=generator)
    running = (pages[:, None] * axes["page_size"] + torch.arange(axes["page_size"])).flatten()[: axes["num_tokens"]]
    both = torch.cat([k, v], dim=1)
    return both[:, : axes["num_kv_heads"]], both[:, axes["num_kv_heads"] :], k_cache, v_cache, running


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Decoding: slots scattered, heads of scale 2^-4 … 2^4 in the new rows and in the caches."""
    made = []
    for one in _drawn(axes, "float32", generator):
        size = torch.exp2(torch.randint(-4, 5, (*one.shape[:-1], 1), generator=generator).to(torch.float32))
        made.append((one.clamp(-4, 4) * size).to(DTYPES[dtype]))
    return (*made, slots(axes, generator))


def special(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """NaN, infinities (where the format has them) and the largest numbers in new rows and caches: all are copied."""
    made = _drawn(axes, dtype, generator)
    values = [torch.nan, torch.finfo(DTYPES[dtype]).max, torch.finfo(DTYPES[dtype]).smallest_normal / 4]
    if dtype != "float8_e4m3fn":
        values += [torch.inf, -torch.inf]
    table = torch.tensor(values, dtype=torch.float64).to(DTYPES[dtype])
    for place, one in enumerate(made):
        hit = torch.rand(one.shape, generator=generator) < 0.2
        pick = torch.randint(0, len(values), one.shape, generator=generator)
        # float8 has no torch.where: the choice is made in float32, which holds all of its numbers.
        chosen = torch.where(hit, table.to(torch.float32)[pick], one.to(torch.float32))
        made[place] = chosen.to(DTYPES[dtype])
    return (*made, slots(axes, generator))


def skipped(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Every token is padding: nothing but -1, and the caches must come out as they went in."""
    return (*_drawn(axes, dtype, generator), torch.full((axes["num_tokens"],), -1))


def page_edges(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Slots at the first and last place of every page, last pages first: a page may be written at both ends."""
    size, count = axes["page_size"], axes["num_pages"] * axes["page_size"]
    first = torch.arange(axes["num_pages"]).flip(0) * size
    edges = torch.stack([first + size - 1, first], dim=1).flatten()
    rest = torch.randperm(count, generator=generator)
    order = torch.cat([edges, rest]).tolist()
    distinct = torch.tensor(list(dict.fromkeys(order)), dtype=torch.int64)
    return (*_drawn(axes, dtype, generator), distinct[: axes["num_tokens"]].clone())


_AXES = ("num_tokens", "num_kv_heads", "head_dim", "num_pages", "page_size")
_NEW = ("num_tokens", "num_kv_heads", "head_dim")
_CACHE = ("num_pages", "page_size", "num_kv_heads", "head_dim")


def _workload(sizes: tuple[int, ...], dtype: str, law: str, use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(_AXES, sizes, strict=True)), dtype, law, use, note)


SPEC = Operator(
    name="kv_append",
    summary="cache.view(-1, heads, dim)[slot_mapping[t]] = new[t] where slot >= 0, for k and v; returns new caches",
    signature="kv_append(k, v, k_cache, v_cache, slot_mapping)",
    axes=_AXES,
    inputs=(
        Buffer("k", _NEW, doc="the token stride is free"),
        Buffer("v", _NEW, doc="the token stride is free"),
        Buffer("k_cache", _CACHE, doc="row-major; read only, a new cache is returned"),
        Buffer("v_cache", _CACHE, doc="row-major; read only, a new cache is returned"),
        Buffer(
            "slot_mapping", ("num_tokens",), "int64", "page * page_size + offset; -1: skip the token; no slot twice"
        ),
    ),
    outputs=(
        Buffer("k_cache_out", _CACHE, doc="every slot not named by slot_mapping equals k_cache bit for bit"),
        Buffer("v_cache_out", _CACHE, doc="likewise"),
    ),
    dtypes=("float32", "float16", "bfloat16", "float8_e4m3fn"),
    reference=reference,
    condition=None,
    # A copy rounds nothing: no error is admitted (tiny only keeps 0/0 out of the comparison).
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0, tiny=1e-300),
    cost=cost,
    laws={
        "scattered": scattered,
        "prefill": prefill,
        "normal": normal,
        "special": special,
        "skipped": skipped,
        "page_edges": page_edges,
    },
    workloads=(
        _workload((1, 1, 1, 1, 1), "float32", "scattered"),
        _workload((0, 2, 64, 3, 16), "bfloat16", "scattered"),
        _workload((7, 3, 37, 5, 4), "float32", "scattered"),
        _workload((13, 2, 256, 2, 16), "bfloat16", "prefill"),
        _workload((6, 1, 72, 4, 3), "float16", "prefill"),
        _workload((9, 2, 128, 6, 8), "float8_e4m3fn", "scattered"),
        _workload((5, 2, 33, 3, 7), "float32", "normal"),
        _workload((11, 3, 17, 4, 5), "float8_e4m3fn", "normal"),
        _workload((9, 2, 31, 3, 5), "bfloat16", "special"),
        _workload((4, 1, 40, 2, 3), "float32", "special"),
        _workload((6, 2, 16, 2, 5), "float8_e4m3fn", "special"),
        _workload((3, 2, 17, 2, 3), "bfloat16", "skipped"),
        _workload((15, 1, 24, 8, 4), "float16", "page_edges"),
        _workload((7, 2, 9, 8, 1), "bfloat16", "page_edges"),
        _workload((64, 2, 256, 64, 16), "bfloat16", "scattered", "target", "Qwen3.6 decode, batch 64"),
        _workload(
            (8192, 2, 256, 513, 16), "bfloat16", "prefill", "target", "Qwen3.6 prefill, cache about the size written"
        ),
    ),
    exact=True,
    source="Kwon et al., PagedAttention, 2023; slot_mapping as in vLLM's reshape_and_cache_flash",
    baselines=("index_copy",),
    rivals=("clone + vllm reshape_and_cache_flash",),
)
