"""Blocks of real model steps, from the shapes of the two targets.

Qwen3.6-35B-A3B: hidden 2,048, layers in the pattern of three Gated DeltaNet and one attention layer, each followed by a
mixture of 256 experts (top 8, width 512) with a shared expert; vocabulary 248,320. SAM 3.1's image encoder: 5,184
tokens an image, width 1,024, MLP 4,736, then a neck with three heads of three scales. Every intermediate is one block;
its lifetime is counted in kernels. Activations are bfloat16, router and sampling float32.
"""

from kb.validators.operators.allocation import Block

_HIDDEN, _EXPERTS, _TOP, _WIDTH, _VOCABULARY = 2048, 256, 8, 512, 248_320
_CHUNK, _HEADS, _STATE = 64, 32, 128 * 128
_SPLITS, _QUERY_HEADS, _HEAD_DIM = 8, 16, 256


class Recorder:
    """Writes down blocks as a step would make them: time is the number of kernels launched."""

    def __init__(self, start: int = 0) -> None:
        self.now = start
        self._made: list[list[int]] = []

    def kernel(self, reads: tuple[int, ...], *sizes: int) -> tuple[int, ...]:
        """Launch one kernel.

        Args:
            reads: Handles of blocks that it reads.
            sizes: Bytes of each block that it writes; zero-sized ones are left out as if of one byte.

        Returns:
            Handles of what it wrote.
        """
        for one in reads:
            self._made[one][2] = self.now
        first = len(self._made)
        self._made += [[max(1, size), self.now, self.now] for size in sizes]
        self.now += 1
        return tuple(range(first, len(self._made)))

    def blocks(self) -> tuple[Block, ...]:
        """Return what was written down, by handle."""
        return tuple(Block(size, first, last) for size, first, last in self._made)


def decoder_step(record: Recorder, *, tokens: int, layers: int, sampled: int) -> None:
    """Record one forward step of Qwen3.6-35B-A3B.

    Args:
        record: Where the blocks go.
        tokens: Tokens in the batch.
        layers: Layers to run; the whole model has 40.
        sampled: Rows for which logits are computed; all tokens in decode, the last of each prompt in prefill.
    """
    row = tokens * 2
    (residual,) = record.kernel((), row * _HIDDEN)
    (normed,) = record.kernel((residual,), row * _HIDDEN)
    for layer in range(layers):
        mixed = _attention(record, normed, tokens) if layer % 4 == 3 else _delta_net(record, normed, tokens)
        (normed,) = record.kernel((residual, mixed), row * _HIDDEN)
        mixed = _experts(record, normed, tokens)
        (normed,) = record.kernel((residual, mixed), row * _HIDDEN)
    (logits,) = record.kernel((normed,), sampled * _VOCABULARY * 4)
    (probabilities,) = record.kernel((logits,), sampled * _VOCABULARY * 4)
    ordered = record.kernel((probabilities,), sampled * _VOCABULARY * 4, sampled * _VOCABULARY * 4)
    record.kernel((*ordered, probabilities), sampled * 8)


def _delta_net(record: Recorder, normed: int, tokens: int) -> int:
    row = tokens * 2
    (projected,) = record.kernel((normed,), row * 12_288)
    (narrow,) = record.kernel((normed,), row * 64)
    (convolved,) = record.kernel((projected,), row * 8_192)
    gates, keys = record.kernel((narrow, convolved), tokens * 64 * 4, row * 4_096)
    # In decode the state is updated in place; a prefill keeps one a chunk, the largest block of the step.
    chunks = -(-tokens // _CHUNK) if tokens > _CHUNK else 0
    (states,) = record.kernel((gates, keys, convolved), chunks * _HEADS * _STATE * 4)
    (mixed,) = record.kernel((states, gates, keys, convolved), row * 4_096)
    (gated,) = record.kernel((mixed, projected), row * 4_096)
    return record.kernel((gated,), row * _HIDDEN)[0]


def _attention(record: Recorder, normed: int, tokens: int) -> int:
    row = tokens * 2
    (projected,) = record.kernel((normed,), row * 9_216)
    (query,) = record.kernel((projected,), row * _QUERY_HEADS * _HEAD_DIM)
    partial = record.kernel((query,), tokens * _QUERY_HEADS * _SPLITS * (_HEAD_DIM + 1) * 4)
    (mixed,) = record.kernel(partial, row * _QUERY_HEADS * _HEAD_DIM)
    (gated,) = record.kernel((mixed, projected), row * 4_096)
    return record.kernel((gated,), row * _HIDDEN)[0]


def _experts(record: Recorder, normed: int, tokens: int) -> int:
    row, routed = tokens * 2, tokens * _TOP
    (router,) = record.kernel((normed,), tokens * _EXPERTS * 4)
    chosen, weights = record.kernel((router,), routed * 4, routed * 4)
    order, offsets = record.kernel((chosen,), (routed + _EXPERTS) * 4, (_EXPERTS + 1) * 4)
    (up,) = record.kernel((normed, order, offsets), routed * 2 * 2 * _WIDTH)
    (activated,) = record.kernel((up,), routed * 2 * _WIDTH)
    (down,) = record.kernel((activated, order, offsets), routed * 2 * _HIDDEN)
    (shared_up,) = record.kernel((normed,), row * 2 * _WIDTH)
    (shared,) = record.kernel((shared_up,), row * _WIDTH)
    (shared_down,) = record.kernel((shared,), row * _HIDDEN)
    return record.kernel((down, weights, shared_down, order), row * _HIDDEN)[0]


def image_encoder(record: Recorder, *, images: int, layers: int) -> None:
    """Record SAM 3.1's image encoder and neck; the nine feature maps live until the end.

    Args:
        record: Where the blocks go.
        images: Images in the batch, each of 5,184 tokens.
        layers: Layers to run; the whole encoder has 32.
    """
    row = images * 5_184 * 2
    (pixels,) = record.kernel((), images * 1008 * 1008 * 3 * 4)
    (hidden,) = record.kernel((pixels,), row * 1_024)
    for _ in range(layers):
        (normed,) = record.kernel((hidden,), row * 1_024)
        (qkv,) = record.kernel((normed,), row * 3_072)
        (rotated,) = record.kernel((qkv,), row * 2_048)
        (mixed,) = record.kernel((rotated, qkv), row * 1_024)
        (added,) = record.kernel((mixed, hidden), row * 1_024)
        (normed,) = record.kernel((added,), row * 1_024)
        (up,) = record.kernel((normed,), row * 4_736)
        (hidden,) = record.kernel((up, added), row * 1_024)
    kept: list[int] = []
    for _ in range(3):
        kept += _neck(record, hidden, images * 2)
    record.kernel(tuple(kept), images * 4)


def _neck(record: Recorder, hidden: int, width: int) -> list[int]:
    """Record one head: maps of 288, 144 and 72 pixels; ``width`` is the bytes of one channel of one pixel."""
    maps = []
    for side, channels in ((288, (512, 256)), (144, (512,)), (72, ())):
        source, pixels = hidden, width * 144 * 144
        for number, channel in enumerate(channels):
            pixels = width * (144 << number) ** 2
            (source,) = record.kernel((source,), pixels * channel)
        (reduced,) = record.kernel((source,), width * side * side * 256)
        maps.append(record.kernel((reduced,), width * side * side * 256)[0])
    return maps
