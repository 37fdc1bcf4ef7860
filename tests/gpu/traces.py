"""Take traces of a Qwen-like block and of a SAM-like encoder with torch's profiler, eager and compiled.

    python3 tests/gpu/traces.py take OUT [--device cpu --small] [--only eager]   where the device is; needs torch alone
    PYTHONPATH=. python tests/gpu/traces.py read OUT                             here: targets, and the share named
    python3 tests/gpu/traces.py reduce OUT FOLDER                                what tests keep of them

``take`` writes OUT/{qwen,sam}-{eager,compiled}.json.gz; ``read`` prints a line a trace, writes the targets below
OUT/targets, and exits 1 if less than 95 % of the time of one is named. The models have random weights, and the layers
and shapes that make the kernels: gated grouped-query attention with QK norms and RoPE, routed experts; patch embedding,
window and global attention, a neck of convolutions, resizing.
"""

import argparse
import gzip
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

NAMED = 0.95
"""Least share of the time that a rule has to name."""
STEPS = 3

_USED = frozenset({"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "user_annotation"})
_ARGUMENTS = frozenset({"External id", "Input Dims", "Input type", "Concrete Inputs"})


class RMSNorm(nn.Module):
    """x [..., width] over its root mean square, computed in float32, times 1 + weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (scaled * (1 + self.weight.float())).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [..., tokens, head_dim] with its first part rotated by the angles of cos and sin [tokens, part]."""
    turned, kept = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turned.chunk(2, -1)
    return torch.cat((turned * cos + torch.cat((-second, first), -1) * sin, kept), -1)


class Qwen(nn.Module):
    """One block: gated attention and a mixture of experts, all experts over all tokens."""

    def __init__(self, width: int, heads: int, shared: int, head: int, experts: int, inner: int) -> None:
        super().__init__()
        self.heads, self.shared, self.head, self.used = heads, shared, head, min(8, experts // 2)
        self.before, self.after = RMSNorm(width), RMSNorm(width)
        self.q_norm, self.k_norm = RMSNorm(head), RMSNorm(head)
        self.q = nn.Linear(width, 2 * heads * head, bias=False)
        self.k = nn.Linear(width, shared * head, bias=False)
        self.v = nn.Linear(width, shared * head, bias=False)
        self.o = nn.Linear(heads * head, width, bias=False)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, gate = self.q(x).view(batch, tokens, self.heads, 2 * self.head).chunk(2, -1)
        k = self.k(x).view(batch, tokens, self.shared, self.head)
        v = self.v(x).view(batch, tokens, self.shared, self.head).transpose(1, 2)
        q = rotated(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotated(self.k_norm(k).transpose(1, 2), cos, sin)
        k, v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        out: torch.Tensor = self.o((mixed * torch.sigmoid(gate)).reshape(batch, tokens, -1))
        return out

    def experts(self, x: Tensor) -> Tensor:
        weights, chosen = torch.softmax(self.router(x).float(), -1).topk(self.used, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros(x.shape[0], self.up.shape[0], device=x.device).scatter(1, chosen, weights)
        gate, value = torch.einsum("td,edn->etn", x, self.up).chunk(2, -1)
        out = torch.einsum("etn,end->etd", F.silu(gate) * value, self.down)
        return torch.einsum("etd,te->td", out, gates.to(out.dtype))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), cos, sin)
        return x + self.experts(self.after(x).view(-1, x.shape[-1])).view(x.shape)


class Block(nn.Module):
    """A transformer block over a grid of patches [batch, rows, columns, width], in windows or over all of them."""

    def __init__(self, width: int, heads: int, inner: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, columns, width = x.shape
        side = self.window or rows
        tiles = self.before(x).view(batch, rows // side, side, columns // side, side, width)
        tokens = tiles.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, width)
        shape = (tokens.shape[0], side * side, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(tokens).view(shape).permute(2, 0, 3, 1, 4)
        mixed = self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(tokens.shape))
        back = mixed.view(batch, rows // side, columns // side, side, side, width).permute(0, 1, 3, 2, 4, 5)
        x = x + back.reshape(x.shape)
        out: torch.Tensor = x + self.down(F.gelu(self.up(self.after(x))))
        return out


class Sam(nn.Module):
    """An encoder of patches, and a neck that gives a map of higher resolution."""

    def __init__(self, width: int, heads: int, inner: int, window: int, neck: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 14, 14, bias=False)
        self.blocks = nn.ModuleList(Block(width, heads, inner, size) for size in (window, 0))
        self.larger = nn.ConvTranspose2d(width, neck, 2, 2)
        self.mixed, self.norm = nn.Conv2d(neck, neck, 3, padding=1), nn.GroupNorm(8, neck)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).permute(0, 2, 3, 1).contiguous()
        for block in self.blocks:
            x = block(x)
        y = F.relu(self.norm(self.mixed(self.larger(x.permute(0, 3, 1, 2)))))
        return F.interpolate(y, scale_factor=2, mode="bilinear")


def made(which: str, device: str, *, small: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model and its inputs: in bfloat16 and at sizes of the real ones, or small and in float32."""
    torch.manual_seed(0)
    dtype = torch.float32 if small else torch.bfloat16
    model: nn.Module
    inputs: tuple[Tensor, ...]
    if which == "qwen":
        tokens, width, turned = (64, 128, 16) if small else (1024, 2048, 64)
        model = Qwen(width, 4, 2, 32, 8, 64) if small else Qwen(width, 16, 2, 256, 64, 512)
        inputs = (torch.randn(1, tokens, width), torch.randn(tokens, turned), torch.randn(tokens, turned))
    else:
        model = Sam(96, 4, 192, 4, 32) if small else Sam(1024, 16, 4736, 24, 256)
        inputs = (torch.randn(1, 3, 112, 112) if small else torch.randn(1, 3, 1008, 1008),)
    return model.to(device, dtype).eval(), tuple(one.to(device, dtype) for one in inputs)


def take(which: str, *, compiled: bool, device: str, small: bool, path: Path) -> None:
    """Run a model until it is warm, then write a trace of some steps."""
    from torch.profiler import ProfilerActivity, profile, record_function

    run, inputs = made(which, device, small=small)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.inference_mode():
        model = torch.compile(run, dynamic=False) if compiled else run
        for _ in range(3):
            model(*inputs)
        with profile(activities=activities, record_shapes=True) as profiler:
            for step in range(STEPS):
                # As the profiler's own schedule marks them.
                with record_function(f"ProfilerStep#{step}"):
                    model(*inputs)
                    if device == "cuda":
                        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))


def take_all(out: Path, *, device: str, small: bool, only: str | None) -> None:
    """Write the traces, each with a line of what it took."""
    import torch._inductor.config as inductor

    # Without it all that was compiled for a CPU is one region to the profiler.
    inductor.cpp.enable_kernel_profile = True
    out.mkdir(parents=True, exist_ok=True)
    for which in ("qwen", "sam"):
        for how in (only,) if only else ("eager", "compiled"):
            began = time.monotonic()
            path = out / f"{which}-{how}.json.gz"
            take(which, compiled=how == "compiled", device=device, small=small, path=path)
            print(f"{path.name}: {path.stat().st_size:,} bytes, {time.monotonic() - began:.1f} s", flush=True)


def read_all(out: Path) -> int:
    """Make targets of the traces of a folder; returns the exit code."""
    from kb.service.profiling import Asked, from_trace
    from kb.service.targets import write_draft

    code = 0
    for path in sorted(out.glob("*.json.gz")):
        found = from_trace(path, Asked(model=path.name.removesuffix(".json.gz")))
        folder = write_draft(found.drafted, out / "targets")
        rows = len(found.drafted.target.operators)
        print(f"{path.name}: {100 * found.named_share:.2f} % of {found.total_us:,.0f} us named, {rows} rows, {folder}")
        for rest in found.drafted.target.unnamed:
            print(f"  not named: {100 * rest.share:.2f} % {rest.name}")
        code |= found.named_share < NAMED
    return int(code)


def reduce_all(out: Path, folder: Path) -> None:
    """Write what a reader uses of the traces of a folder: no names of machines, no dates, no process ids."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(out.glob("*.json.gz")):
        whole = json.loads(gzip.decompress(path.read_bytes()))
        events = [one for one in whole["traceEvents"] if one.get("ph") == "X" and one.get("cat") in _USED]
        events = [one for one in events if one["cat"] != "user_annotation" or one["name"].startswith("ProfilerStep#")]
        start = min(one["ts"] for one in events)
        threads: dict[object, int] = {}
        kept = [
            {
                **{name: one[name] for name in ("ph", "cat", "name", "dur")},
                "ts": round(one["ts"] - start, 3),
                "tid": threads.setdefault(one["tid"], len(threads)),
                "args": {name: value for name, value in one.get("args", {}).items() if name in _ARGUMENTS},
            }
            for one in events
        ]
        devices = [{"name": one["name"]} for one in whole.get("deviceProperties", [])]
        text = json.dumps({"deviceProperties": devices, "traceEvents": kept}, separators=(",", ":"))
        (folder / path.name).write_bytes(gzip.compress(text.encode("ascii"), mtime=0))


def main(argv: list[str] | None = None) -> int:
    """Take, read or reduce; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("take", "read", "reduce"))
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", help="where reduced traces are written")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="small sizes in float32, for a CPU")
    parser.add_argument("--only", choices=("eager", "compiled"))
    asked = parser.parse_args(argv)
    if asked.what == "read":
        return read_all(asked.out)
    if asked.what == "reduce":
        reduce_all(asked.out, asked.folder or parser.error("reduce takes a folder to write to"))
    else:
        take_all(asked.out, device=asked.device, small=asked.small, only=asked.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
