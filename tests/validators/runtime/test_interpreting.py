"""Triton's interpreter rounds as a GPU does, in workers that judge Triton candidates."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kb.validators.runtime.interpreting import bfloat16_bits

ROOT = Path(__file__).parents[3]
KERNEL = """
import torch, triton, triton.language as tl
from kb.validators.runtime.interpreting import round_as_a_gpu_does

assert round_as_a_gpu_does()

@triton.jit
def narrow(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(y + offsets, value, mask=offsets < n)
    tl.store(z + offsets, value.to(tl.bfloat16, fp_downcast_rounding="rtz"), mask=offsets < n)

x = torch.randn(1000)
x[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 3.4e38])
y, z = torch.empty(1000, dtype=torch.bfloat16), torch.empty(1000, dtype=torch.bfloat16)
narrow[(1,)](x, y, z, 1000, BLOCK=1024)
assert torch.equal(y[1:], x[1:].bfloat16()) and y[0].isnan()
assert (z[3:].float().abs() <= x[3:].abs()).all() and not torch.equal(z[3:], y[3:])
"""


def test_rounding_is_that_of_torch_bit_by_bit() -> None:
    patterns = torch.randint(-(1 << 31), 1 << 31, (1 << 18,), generator=torch.Generator().manual_seed(1))
    values = patterns.to(torch.int32).view(torch.float32)
    ties = torch.tensor([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001, 0x00008000, 0x00018000], dtype=torch.int32)
    values = torch.cat([values, ties.view(torch.float32), torch.tensor([float("nan"), float("inf"), 0.0, -0.0])])
    made = torch.from_numpy(bfloat16_bits(values.numpy()).astype(np.int16)).view(torch.bfloat16)
    wanted = values.to(torch.bfloat16)
    assert torch.equal(made.isnan(), wanted.isnan())
    assert torch.equal(made.view(torch.int16)[~wanted.isnan()], wanted.view(torch.int16)[~wanted.isnan()])
    assert bfloat16_bits(np.zeros((3, 5), np.float32)).shape == (3, 5)


def test_a_kernel_stores_the_nearest_bfloat16_and_cuts_off_only_where_it_asks_to(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "narrow.py"
    script.write_text(KERNEL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
