"""How fast a large trace of torch's profiler becomes a target, and in how much memory.

    PYTHONPATH=. python tests/benchmarks/trace.py [--megabytes 200] [--gzip] [--keep FILE]

Writes a made-up trace of the asked size (an operation and the kernel that it launched, again and again, spelled as the
profiler spells them), reads it in a fresh process, and prints seconds and the peak of resident memory.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 64, 4, false, false>>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
)
READ = """
import resource, sys, time
from pathlib import Path
from kb.service.profiling import Asked, from_trace
began = time.perf_counter()
found = from_trace(Path(sys.argv[1]), Asked(model="made-up"))
seconds, cpu = time.perf_counter() - began, time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{seconds:.1f} s ({cpu:.1f} s of CPU), {peak:.0f} MiB at most, {100 * found.named_share:.1f} % named, "
      f"{len(found.drafted.target.operators)} rows")
"""


def events(number: int, rng: random.Random) -> list[dict[str, object]]:
    """Return an operation and its kernel."""
    start = 1e9 + 7.5 * number
    dims = [[rng.randrange(1, 65), 2048], [2048, 9216]]
    called: dict[str, object] = {
        "External id": number, "Record function id": 0, "Concrete Inputs": ["", ""],
        "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[2048, 1], [1, 2048]], "Input Dims": dims,
        "Ev Idx": number,
    }  # fmt: skip
    launched: dict[str, object] = {
        "External id": number, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": number,
        "registers per thread": 128, "shared memory": 1024, "blocks per SM": 1.5, "warps per SM": 4.5,
        "grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 30,
    }  # fmt: skip
    return [
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start, "dur": 5.125,
            "args": called,
        },
        {
            "ph": "X", "cat": "kernel", "name": rng.choice(KERNELS), "pid": 0, "tid": 7, "ts": start + 3,
            "dur": round(0.1 + 9 * rng.random(), 3), "args": launched,
        },
    ]  # fmt: skip


def write(stream: TextIO, size: int) -> None:
    """Write a trace of about ``size`` bytes."""
    rng = random.Random(1)  # noqa: S311 - a made-up trace
    stream.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [\n')
    written, number = 0, 0
    while written < size:
        for event in events(number, rng):
            text = ("," if written else "") + json.dumps(event, indent=1) + "\n"
            stream.write(text)
            written += len(text)
        number += 1
    stream.write('], "traceName": "made-up"}')


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--keep", type=Path, help="where to leave the trace; it is used as it is if it is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = given.keep or Path(folder) / ("trace.json.gz" if given.gzip else "trace.json")
        if not file.exists():
            opened = gzip.open(file, "wt", 1, encoding="utf-8") if given.gzip else file.open("w", encoding="utf-8")  # noqa: SIM115
            with opened as stream:
                write(stream, given.megabytes << 20)
        done = subprocess.run([sys.executable, "-c", READ, str(file)], check=True, capture_output=True, text=True)
        print(f"{file.stat().st_size / 1e6:.0f} MB: {done.stdout.strip()}")


if __name__ == "__main__":
    main()
