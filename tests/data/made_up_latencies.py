"""Writes ``tests/data/latencies``: made-up times in aiconfigurator's format, for tests and the notebook.

Nothing in them was measured. They follow a simple law (launch, memory and arithmetic at part of their peaks, something
that no peak explains) with a few percent of scatter, so that whoever reads them knows what a prediction should find.

    python tests/data/made_up_latencies.py tests/data/latencies
"""

import csv
import math
import sys
from pathlib import Path

PEAKS = {
    "NVIDIA B200": (8000, 2250, 1.0),
    "NVIDIA GB200": (8000, 2500, 1.02),
    "NVIDIA H100 80GB HBM3": (3350, 989, 1.0),
    "NVIDIA H200": (4800, 989, 1.0),
    "NVIDIA L40S": (864, 362, 1.1),
}
"""10⁹ bytes a second, 10¹² operations a second, and how much longer the unexplained part takes."""


def scatter(*key: object) -> float:
    """Return a factor within 3 % of 1 that hangs on the key alone."""
    total = 0
    for character in repr(key):
        total = (total * 131 + ord(character)) % 1_000_003
    return 1 + 0.03 * math.sin(total)


def time_ms(device: str, flops: float, moved: float, rest_us: float, key: object) -> float:
    """Return the time of some work in ms."""
    gbps, tflops, slower = PEAKS[device]
    memory, compute = 1.3 * moved / gbps / 1e3, 1.6 * flops / tflops / 1e6
    busy: float = (memory**3 + compute**3 + (rest_us * slower) ** 3) ** (1 / 3)
    return (2.0 + busy) * scatter(device, key) / 1e3


def gemms() -> list[dict[str, object]]:
    """Return rows of a matrix product."""
    made: list[dict[str, object]] = []
    for device in PEAKS:
        for n, k in ((16384, 4096), (4096, 16384)):
            for m in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
                moved = 2.0 * (m * k + n * k + m * n)
                latency = time_ms(device, 2.0 * m * n * k, moved, 6.0, (n, k, m))
                made.append(
                    {
                        "framework": "made-up", "version": "1", "device": device, "op_name": "gemm",
                        "kernel_source": "tiles", "gemm_dtype": "bfloat16", "m": m, "n": n, "k": k,
                        "latency": f"{latency:.6g}",
                    }
                )  # fmt: skip
    return made


def decodes() -> list[dict[str, object]]:
    """Return rows of decode attention."""
    made: list[dict[str, object]] = []
    for device in PEAKS:
        for batch in (16, 32, 64, 128, 256):
            for step in (1023, 2047, 4095, 8191):
                moved = 2.0 * 2 * batch * (step + 1) * 4 * 128 + 4.0 * batch * 32 * 128
                latency = time_ms(device, 4.0 * batch * 32 * 128 * (step + 1), moved, 9.0, (batch, step))
                made.append(
                    {
                        "framework": "made-up", "version": "1", "device": device, "op_name": "generation_attention",
                        "kernel_source": "split", "batch_size": batch, "isl": 1, "num_heads": 32,
                        "num_key_value_heads": 4, "head_dim": 128, "beam_width": 1, "attn_dtype": "bfloat16",
                        "kv_cache_dtype": "bfloat16", "step": step, "window_size": 0, "latency": f"{latency:.6g}",
                    }
                )  # fmt: skip
    return made


def main(folder: Path) -> None:
    """Write the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("gemm", gemms()), ("generation_attention", decodes())):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
