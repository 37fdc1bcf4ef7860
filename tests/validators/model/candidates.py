"""Candidates for the model oracle, as source text."""

ENDLESS = """
import torch

class Model:
    def logits(self, tokens):
        return torch.zeros(len(tokens), 997)

    def generate(self, tokens, uniforms):
        return torch.full((len(uniforms),), 7)

def load(folder):
    return Model()
"""
"""The founding cheat: infinitely fast."""

BASE = """
import torch
from transformers import AutoModelForCausalLM

class Model:
    def __init__(self, folder):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def logits(self, tokens):
        return self.model(tokens[None]).logits[0]

    @torch.no_grad()
    def generate(self, tokens, uniforms):
        tokens, made = tokens.tolist(), []
        for u in uniforms.tolist():
            chances = torch.softmax(self.model(torch.tensor([tokens])).logits[0, -1].double(), -1)
            made.append(min(int((chances.cumsum(-1) <= u).sum()), chances.numel() - 1))
            tokens.append(made[-1])
        return torch.tensor(made)
"""

INT8 = (
    BASE
    + """
@torch.no_grad()
def load(folder):
    made = Model(folder)
    for name, weight in made.model.named_parameters():
        if weight.ndim >= 2 and "embed" not in name and "lm_head" not in name:
            low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
            step = (high - low) / 255
            weight.copy_(((weight - low) / step).round() * step + low)
    return made
"""
)
"""Weights on an asymmetric 8-bit grid: another rounding than the judge's own emulation."""

CACHED = (
    BASE
    + """
class Cached(Model):
    kept = None

    def logits(self, tokens):
        if self.kept is None or len(self.kept) < len(tokens):
            self.kept = super().logits(tokens)
        return self.kept[: len(tokens)]

def load(folder):
    return Cached(folder)
"""
)
"""Answers a text with what it answered to another one."""

CHEAP_GENERATOR = (
    BASE
    + """
class Cheap(Model):
    def generate(self, tokens, uniforms):
        return (uniforms * 997).long()

def load(folder):
    return Cheap(folder)
"""
)
"""Right where it is compared with the original's distributions, and a draw from thin air where it generates."""
