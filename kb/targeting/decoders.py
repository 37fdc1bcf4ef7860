"""Operators of a step of a decoder: dense, mixture of experts, gated delta net with attention, and latent attention."""

from kb.errors import ConfigError, EntryFormatError
from kb.targeting.configs import Config
from kb.targeting.rows import Rows, divided


def add_decoder(config: Config, rows: Rows) -> None:
    """Add every operator of one forward pass.

    Args:
        config: Of a family other than ``vit``.
        rows: Where they go; says precision and number of devices.

    Raises:
        EntryFormatError: The config lacks a size.
        ConfigError: A size cannot be divided over the devices.
    """
    layers = config.size("num_hidden_layers")
    hidden = config.size("hidden_size")
    linear = _linear_layers(config, layers) if config.family == "hybrid" else 0
    rows.add("embedding", "token embedding", calls=1, axes={"hidden_size": hidden})
    rows.add("rmsnorm", "first norm", calls=1, axes={"hidden_size": hidden})
    note = "with the sum of the residual; the last of them is the final norm"
    rows.add("fused_add_rmsnorm", "norms", calls=2 * layers, axes={"hidden_size": hidden}, note=note)
    if config.family == "mla":
        _latent_attention(config, rows, hidden=hidden, calls=layers)
    else:
        _attention(config, rows, hidden=hidden, calls=layers - linear)
    if linear:
        _delta_net(config, rows, hidden=hidden, calls=linear)
    experts = _expert_layers(config, layers)
    _dense_block(config, rows, hidden=hidden, calls=layers - experts)
    if experts:
        _expert_block(config, rows, hidden=hidden, calls=experts)
    rows.all_reduce(hidden, calls=2 * layers)
    rows.head(config.size("vocab_size"), hidden)


def _linear_layers(config: Config, layers: int) -> int:
    kinds = config.words("layer_types")
    if kinds:
        if len(kinds) != layers:
            raise EntryFormatError(f"config.json: field layer_types: expected {layers} words, found {len(kinds)}")
        return kinds.count("linear_attention")
    return layers - layers // config.size("full_attention_interval", default=4)


def _expert_layers(config: Config, layers: int) -> int:
    """Return how many layers have experts."""
    if config.family == "dense" or config.model_type in ("qwen3_5", "qwen3_5_text"):
        return 0
    if config.family == "mla":
        if not config.count("n_routed_experts"):
            return 0
        first, step = config.count("first_k_dense_replace"), config.size("moe_layer_freq", default=1)
        return sum(layer >= first and layer % step == 0 for layer in range(layers))
    step, plain = config.size("decoder_sparse_step", default=1), set(config.numbers("mlp_only_layers"))
    return sum((layer + 1) % step == 0 and layer not in plain for layer in range(layers))


def _heads(config: Config, rows: Rows) -> tuple[int, int, int]:
    """Return query heads and key heads of one device, and their width."""
    heads = config.size("num_attention_heads")
    shared = config.size("num_key_value_heads", default=heads)
    if heads % shared:
        raise EntryFormatError(f"config.json: {heads} query heads cannot be grouped over {shared} key heads")
    width = config.size("head_dim", default=config.size("hidden_size") // heads or 1)
    own = divided(heads, rows.devices, "query heads")
    # Fewer key heads than devices are kept on several of them.
    return own, divided(shared, rows.devices, "key heads") if shared >= rows.devices else 1, width


def _attention(config: Config, rows: Rows, *, hidden: int, calls: int) -> None:
    heads, shared, width = _heads(config, rows)
    gated = config.family == "hybrid"
    n = (heads * (2 if gated else 1) + 2 * shared) * width
    note: str | None = "query, output gate, key and value in one" if gated else "query, key and value in one"
    rows.projection("attention qkv", n=n, k=hidden, calls=calls, note=note)
    normed = gated or config.model_type.startswith("qwen3")
    cache = (rows.activation, rows.cache_dtype) if rows.cache_dtype else (rows.activation,)
    sizes = {"num_heads": heads, "num_kv_heads": shared, "head_dim": width}
    note = "RMSNorm of every head of q and k first" if normed else None
    rotary = {**sizes, "rotary_dim": config.rotary(width)}
    rows.add("rope_kv_append", "RoPE and KV append", calls=calls, axes=rotary, dtypes=cache, note=note)
    window = config.values.get("sliding_window")
    note = f"sliding window of {window} tokens in some or all layers" if isinstance(window, int) and window else None
    causal = {**sizes, "causal": 1}
    rows.add(
        "attention_prefill", "attention, prefill", calls=calls, axes=causal, dtypes=cache, phase="prefill", note=note
    )
    rows.add(
        "paged_attention_decode", "attention, decode", calls=calls, axes=sizes, dtypes=cache, phase="decode", note=note
    )
    if gated:
        gate = {"num_heads": heads, "head_dim": width}
        rows.add("sigmoid_mul", "attention output gate", calls=calls, axes=gate)
    rows.projection("attention output", n=hidden, k=heads * width, calls=calls)


def _latent_attention(config: Config, rows: Rows, *, hidden: int, calls: int) -> None:
    heads = divided(config.size("num_attention_heads"), rows.devices, "query heads")
    latent, turned = config.size("kv_lora_rank"), config.size("qk_rope_head_dim")
    plain, value = config.size("qk_nope_head_dim"), config.size("v_head_dim")
    query = config.count("q_lora_rank")
    if query:
        rows.projection("latents of q and kv", n=query + latent + turned, k=hidden, calls=calls)
        rows.add("rmsnorm", "norm of the query latent", calls=calls, axes={"hidden_size": query})
        rows.projection("query from its latent", n=heads * (plain + turned), k=query, calls=calls)
    else:
        rows.projection("query", n=heads * (plain + turned), k=hidden, calls=calls)
        rows.projection("latent of kv", n=latent + turned, k=hidden, calls=calls)
    rows.add("rmsnorm", "norm of the kv latent", calls=calls, axes={"hidden_size": latent})
    axes = {"num_heads": heads, "num_kv_heads": 1, "head_dim": turned, "rotary_dim": turned}
    rows.add("rope", "RoPE of q and the shared key", calls=calls, axes=axes)
    sizes = {"num_heads": heads, "kv_lora_rank": latent, "rope_dim": turned, "nope_dim": plain, "v_dim": value}
    cache = (rows.activation, rows.cache_dtype) if rows.cache_dtype else (rows.activation,)
    rows.add(
        "mla_decode", "latent attention, decode", calls=calls, axes=sizes, dtypes=cache, phase="decode",
        note="absorbed: all heads share one key of latent + rotary width",
    )  # fmt: skip
    for name, n, k in (("query into the latent", latent, plain), ("value out of the latent", value, latent)):
        batched = {"batch": heads, "n": n, "k": k}
        rows.add("batched_gemm", name, calls=calls, axes=batched, per_token={"m": 1}, phase="decode")
    rows.add("mla_prefill", "latent attention, prefill", calls=calls, axes={**sizes, "causal": 1}, phase="prefill")
    operator = rows.made
    rows.projection("keys and values from the latent", n=heads * (plain + value), k=latent, calls=calls)
    operator[-1] = operator[-1].model_copy(update={"phase": "prefill"})
    rows.projection("attention output", n=hidden, k=heads * value, calls=calls)


def _delta_net(config: Config, rows: Rows, *, hidden: int, calls: int) -> None:
    keys = divided(config.size("linear_num_key_heads"), rows.devices, "GDN key heads")
    values = divided(config.size("linear_num_value_heads"), rows.devices, "GDN value heads")
    wide, out = config.size("linear_key_head_dim"), config.size("linear_value_head_dim")
    taps = config.size("linear_conv_kernel_dim")
    channels = 2 * keys * wide + values * out
    note = f"{channels} + {values * out}, fused"
    rows.projection("GDN in-projection qkv and z", n=channels + values * out, k=hidden, calls=calls, note=note)
    rows.projection("GDN in-projection b and a", n=2 * values, k=hidden, calls=calls, plain=True)
    state = {"num_channels": channels, "width": taps, "state_len": taps - 1}
    rows.add("causal_conv1d_update", "GDN causal conv, decode", calls=calls, axes=state, phase="decode")
    rows.add(
        "causal_conv1d", "GDN causal conv, prefill", calls=calls, axes={"num_channels": channels, "width": taps},
        phase="prefill",
    )  # fmt: skip
    rows.add("l2norm", "GDN L2 norm of q and k", calls=calls, axes={"num_heads": 2 * keys, "head_dim": wide})
    heads = {"num_heads": keys, "num_v_heads": values, "head_dim": wide, "head_dim_v": out}
    kept = (rows.activation, "float32")
    rows.add("gated_delta_prefill", "GDN chunked prefill", calls=calls, axes=heads, dtypes=kept, phase="prefill")
    rows.add("gated_delta_decode", "GDN recurrent decode", calls=calls, axes=heads, dtypes=kept, phase="decode")
    rows.add("gated_rmsnorm", "GDN gated norm", calls=calls, axes={"num_heads": values, "head_dim": out})
    rows.projection("GDN out-projection", n=hidden, k=values * out, calls=calls)


def _dense_block(config: Config, rows: Rows, *, hidden: int, calls: int) -> None:
    if calls == 0:
        return
    width = divided(config.size("intermediate_size"), rows.devices, "MLP width")
    rows.projection("MLP gate and up", n=2 * width, k=hidden, calls=calls)
    rows.add("silu_and_mul", "MLP activation", calls=calls, axes={"intermediate_size": width})
    rows.projection("MLP down", n=hidden, k=width, calls=calls)


def _expert_block(config: Config, rows: Rows, *, hidden: int, calls: int) -> None:
    experts = config.size("num_experts", "num_local_experts", "n_routed_experts")
    top_k = config.size("num_experts_per_tok")
    if top_k > experts:
        raise ConfigError(f"config.json: {top_k} experts a token of {experts} that there are")
    whole = config.size("moe_intermediate_size", "intermediate_size")
    width = divided(whole, rows.devices, "width of an expert")
    rows.projection("router logits", n=experts, k=hidden, calls=calls, plain=True)
    router = {"num_experts": experts, "top_k": top_k}
    if config.family == "mla" and config.count("n_group"):
        grouped = {**router, "num_groups": config.size("n_group"), "top_groups": config.size("topk_group")}
        rows.add("group_router", "top-k of the best groups", calls=calls, axes=grouped)
    else:
        rows.add("topk_router", "top-k of experts", calls=calls, axes=router, dtypes=(rows.activation, "float32"))
    rows.experts("experts gate and up", experts=experts, top_k=top_k, n=2 * width, k=hidden, calls=calls)
    rows.add(
        "silu_and_mul", "experts' activation", calls=calls, axes={"intermediate_size": width},
        per_token={"num_tokens": top_k},
    )  # fmt: skip
    rows.experts("experts down", experts=experts, top_k=top_k, n=hidden, k=width, calls=calls)
    rows.add("moe_combine", "weighted sum of experts", calls=calls, axes={"hidden_size": hidden, "top_k": top_k})
    shared = config.count("shared_expert_intermediate_size") or config.count("n_shared_experts") * whole
    if shared:
        width = divided(shared, rows.devices, "width of the shared expert")
        rows.projection("shared expert gate and up", n=2 * width, k=hidden, calls=calls)
        rows.add("silu_and_mul", "shared expert's activation", calls=calls, axes={"intermediate_size": width})
        rows.projection("shared expert down", n=hidden, k=width, calls=calls)
