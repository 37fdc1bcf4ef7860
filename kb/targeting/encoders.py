"""Operators of a pass of a vision transformer, with or without windows."""

from kb.errors import EntryFormatError
from kb.targeting.configs import Config
from kb.targeting.rows import Rows, divided


def add_encoder(config: Config, rows: Rows) -> None:
    """Add every operator of one batch of images.

    Args:
        config: Of the family ``vit``.
        rows: Where they go.

    Raises:
        EntryFormatError: The config lacks a size, or its sizes do not fit together.
        ConfigError: A size cannot be divided over the devices.
    """
    hidden, layers = config.size("hidden_size"), config.size("num_hidden_layers")
    side, patch, channels = config.size("image_size"), config.size("patch_size"), config.size("num_channels", default=3)
    grid = side // patch
    if grid == 0:
        raise EntryFormatError(f"config.json: a patch of {patch} pixels does not fit an image of {side}")
    windowed = config.model_type == "sam3_vit_model"
    extra = 0 if windowed or config.model_type == "siglip_vision_model" else 1 + config.count("num_register_tokens")
    tokens = grid * grid + extra
    width = config.count("intermediate_size") or hidden * config.size("mlp_ratio", default=4)
    width = divided(width, rows.devices, "MLP width")
    heads = divided(config.size("num_attention_heads"), rows.devices, "heads")
    head_dim = divided(hidden, config.size("num_attention_heads"), "hidden size over heads")
    axes = {
        "patches_h": grid, "patches_w": grid, "patch_size": patch, "in_channels": channels, "embed_dim": hidden,
    }  # fmt: skip
    rows.add("patch_embed", "patch embedding", calls=1, axes=axes)
    each = {"num_tokens": tokens}
    rows.add("layernorm", "norms", calls=2 * layers + 1, axes={"hidden_size": hidden}, per_token=each)
    rows.projection("attention qkv", n=3 * heads * head_dim, k=hidden, calls=layers, rows=tokens, note="with bias")
    if windowed:
        _windows(config, rows, grid=grid, heads=heads, head_dim=head_dim, layers=layers)
    else:
        _everywhere(rows, tokens=tokens, heads=heads, head_dim=head_dim, calls=layers)
    rows.projection("attention output", n=hidden, k=heads * head_dim, calls=layers, rows=tokens, note="with bias")
    if "gelu" in str(config.values.get("hidden_act", "gelu")) and rows.precision in ("bfloat16", "float16"):
        axes = {"in_features": hidden, "out_features": width}
        rows.add("gemm_bias_gelu", "MLP up", calls=layers, axes=axes, per_token=each)
    else:
        rows.projection("MLP up", n=width, k=hidden, calls=layers, rows=tokens, note="with bias")
        rows.add("gelu", "MLP activation", calls=layers, axes={"hidden_size": width}, per_token=each)
    rows.projection("MLP down", n=hidden, k=width, calls=layers, rows=tokens, note="with bias")
    note = "sums of residuals, where no norm or product takes them in"
    axes = {"hidden_size": hidden}
    rows.add("elementwise", "residual sums", calls=2 * layers, axes=axes, per_token=each, note=note)
    rows.all_reduce(hidden, calls=2 * layers)


def _everywhere(rows: Rows, *, tokens: int, heads: int, head_dim: int, calls: int) -> None:
    axes = {
        "q_len": tokens, "kv_len": tokens, "num_heads": heads, "num_kv_heads": heads, "head_dim": head_dim, "causal": 0,
    }  # fmt: skip
    rows.add("attention_prefill", "attention", calls=calls, axes=axes, note="not causal")


def _windows(config: Config, rows: Rows, *, grid: int, heads: int, head_dim: int, layers: int) -> None:
    """Add the attention of an encoder of which some layers see everything and the others a window."""
    window, everywhere = config.size("window_size"), set(config.numbers("global_attn_indexes"))
    if any(layer >= layers for layer in everywhere):
        raise EntryFormatError(f"config.json: field global_attn_indexes: expected layers below {layers}")
    per_side = -(-grid // window)
    axes = {"height": grid, "width": grid, "num_heads": heads, "head_dim": head_dim}
    rows.add("rope_2d", "2-D RoPE of q and k", calls=layers, axes=axes)
    axes = {"window_tokens": window * window, "num_heads": heads, "head_dim": head_dim, "half_dim": head_dim // 2}
    each = {"num_windows": per_side * per_side}
    calls = layers - len(everywhere)
    note = "no mask: the windows cover the grid" if grid % window == 0 else "windows at the edge are padded"
    rows.add("attention_window", "window attention", calls=calls, axes=axes, per_token=each, note=note)
    _everywhere(rows, tokens=grid * grid, heads=heads, head_dim=head_dim, calls=len(everywhere))
