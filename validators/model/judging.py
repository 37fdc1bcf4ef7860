"""Judge a whole model: first that it generates at all, then that its distributions are those of the original weights.

Order as for kernels: freeze and hash the candidate, start it in its sandbox, load it, and only then draw texts and
uniform numbers. The founding cheat, a generator that yields one token for ever, ends at the first answer.
"""

import contextlib
import hashlib
import json
import random
import secrets
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch

from kb.validators.model import figures, limits
from kb.validators.model.figures import Distance
from kb.validators.model.precision import PRECISIONS
from kb.validators.runtime import replies, report
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.report import CaseResult, Report
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.starting import boot_command
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

LENGTHS = (1, 17, 48, 96, 33, 128)
"""Lengths of the texts of teacher forcing, in tokens."""

NEW_TOKENS = 48
"""Tokens that each generation draws."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Options:
    """How a model is judged."""

    precision: str = "bfloat16"
    """The weight format that the candidate declares; its budget is what that format costs the original itself."""
    lengths: tuple[int, ...] = LENGTHS
    generations: int = 2
    new_tokens: int = NEW_TOKENS
    load_limit_s: float = 600.0
    call_limit_s: float = 300.0
    memory_bytes: int = 16 << 30


@dataclass
class _State:
    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def reject(self, reason: str, detail: str) -> None:
        self.reasons.append(reason)
        self.details.append(f"{reason}: {detail}")

    def note(self, kind: str, axes: dict[str, int], worst: float | None, *, passed: bool, detail: str = "") -> None:
        verdict = "passed" if passed else "wrong_values"
        self.cases.append(CaseResult(axes, "int64", kind, "fresh", verdict, worst, detail))


class Reference:
    """The judge's handle on the trusted process with the original weights."""

    def __init__(self, weights: Path, folder: Path, *, limit_s: float) -> None:
        self.folder, self.limit_s = folder, limit_s
        with (folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                boot_command("kb.validators.model.reference", str(weights), str(folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._names = 0

    def ready(self) -> int:
        """Wait until the weights are loaded; returns the size of the vocabulary."""
        return int(self._read()["vocabulary"])

    def texts(self, seed: int, lengths: list[int]) -> list[list[int]]:
        """Draw texts."""
        self._write({"op": "texts", "seed": seed, "lengths": lengths})
        made: list[list[int]] = self._read()["texts"]
        return made

    def draw(self, tokens: list[int], uniforms: list[float]) -> list[int]:
        """Return what the original draws from uniform numbers."""
        self._write({"op": "draw", "tokens": tokens, "uniforms": uniforms})
        made: list[int] = self._read()["tokens"]
        return made

    def log_probs(self, texts: list[list[int]], how: str) -> list[torch.Tensor]:
        """Return float64 log-probabilities [length, vocabulary] of each text."""
        self._names += 1
        self._write({"op": "logits", "name": f"answer-{self._names}", "how": how, "texts": texts})
        self._read()
        files = [self.folder / f"answer-{self._names}-{number}.npy" for number in range(len(texts))]
        return [torch.log_softmax(torch.from_numpy(np.load(one)).double(), -1) for one in files]

    def _write(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None  # noqa: S101 - it was asked for
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        timer = threading.Timer(self.limit_s, self._process.kill)
        timer.start()
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            tail = (self.folder / "errors").read_text("utf-8", "replace").strip()[-500:]
            raise JudgeError(
                f"the original model cannot be used: {report.escaped(tail, 500)}",
                "--reference names a transformers model directory with safetensors",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def judge_model(
    reference: Path,
    source: bytes,
    weights: Path,
    *,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Judge one model against the original weights.

    Args:
        reference: A transformers model directory: the original weights.
        source: The candidate's file: ``load(folder)`` returns an object with ``logits(tokens)`` and
            ``generate(tokens, uniforms)``, as ``kb.validators.model.directory`` has them.
        weights: The folder that is handed to ``load``; read-only.
        options: Declared precision and limits.
        progress: Called with a phrase at each step.

    Returns:
        The report; its figures are in ``model``.

    Raises:
        JudgeError: The judge itself cannot work here, or the original cannot be loaded.
    """
    chosen = options or Options()
    if chosen.precision not in PRECISIONS:
        raise JudgeError(f"no weight format {chosen.precision!r}", f"one of: {', '.join(PRECISIONS)}")
    say = progress or (lambda _: None)
    frozen = _digest(source, weights)
    place, arena = Workplace(), Arena(512 << 20)
    state = _State()
    worker: Worker | None = None
    original = Reference(reference, place.folder("reference"), limit_s=chosen.load_limit_s)
    try:
        say("loading the original and the candidate")
        bounds = Limits(memory_bytes=chosen.memory_bytes, data_bytes=2 * chosen.memory_bytes)
        worker = Worker(
            source, place=place, arena=arena, limits=bounds, triton=False, module="kb.validators.model.stub",
            read=[weights.resolve()],
        )  # fmt: skip
        layers = worker.wait_ready(limit_s=120)
        vocabulary = original.ready()
        state.measured["original"] = _named(reference)
        seed = secrets.randbits(62)
        with contextlib.suppress(_EndedError):
            _Conversation(worker, arena, original, vocabulary, chosen, state, say).run(weights, seed)
        for name in sorted(worker.blocked):
            state.reject("forbidden_call", f"{name} was refused")
        if _digest(source, weights) != frozen:
            state.reject("changed_environment", "the weights changed while they were judged")
        return _report(state, frozen, seed, layers, worker)
    finally:
        if worker is not None:
            worker.end()
        original.end()
        arena.close()
        place.close()


class _EndedError(Exception):
    """Nothing more can be learnt of this candidate."""


class _Conversation:
    """All questions that one candidate is asked."""

    def __init__(
        self, worker: Worker, arena: Arena, original: Reference, vocabulary: int, options: Options, state: _State,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.worker, self.arena, self.original, self.vocabulary = worker, arena, original, vocabulary
        self.options, self.state, self.say = options, state, say

    def run(self, weights: Path, seed: int) -> None:
        """Load, generate, compare distributions; the first thing that cannot be right ends it."""
        self.ask(
            {"op": "load", "weights": str(weights.resolve())}, limit_s=self.options.load_limit_s, why="build_failed"
        )
        dice = random.Random(seed)  # noqa: S311 - carries the system's entropy, and must be repeatable
        generations = [self._generate(dice) for _ in range(self.options.generations)]
        self.say("what the original answers, its noise and its budget")
        texts = self._paused(lambda: self.original.texts(dice.getrandbits(62), list(self.options.lengths)))
        exact = self._paused(lambda: self.original.log_probs(texts, "exact"))
        limit = self._paused(lambda: self._limits(texts, exact))
        self.say(f"{len(texts)} texts")
        self._compare(texts, exact, limit, dice)
        for prompt, uniforms, drawn in generations:
            self._replay(prompt, uniforms, drawn, limit)

    def ask(self, message: dict[str, Any], *, limit_s: float, why: str = "crashed") -> dict[str, Any]:
        """Ask the candidate; whatever goes wrong is a reason and the end."""
        try:
            reply = self.worker.ask(message, limit_s=limit_s)
            failed = replies.failure(reply)
        except WorkerEndedError as error:
            self._end(why if error.reason == "crashed" else error.reason, error.detail or f"in {message['op']}")
        except replies.ForgedReplyError as error:
            self._end("forged_protocol", str(error))
        if failed is not None:
            self._end(why, failed)
        return reply

    def _end(self, reason: str, detail: str) -> NoReturn:
        self.state.reject(reason, detail)
        raise _EndedError

    def _paused(self, compute: Callable[[], Answer]) -> Answer:
        """Compute on the trusted side while the candidate is stopped."""
        self.worker.pause(stopped=True)
        try:
            return compute()
        finally:
            self.worker.pause(stopped=False)

    def _generate(self, dice: random.Random) -> tuple[list[int], list[float], list[int]]:
        """Have it generate, and look at once whether that is a text at all."""
        self.say("generating")
        prompt = [dice.randrange(self.vocabulary) for _ in range(dice.randint(4, 16))]
        uniforms = [dice.random() for _ in range(self.options.new_tokens)]
        reply = self.ask({"op": "generate", "tokens": prompt, "uniforms": uniforms}, limit_s=self.options.call_limit_s)
        drawn = _tokens(reply.get("tokens"), self.vocabulary)
        if drawn is None or len(drawn) != len(uniforms):
            self._end("wrong_shape", f"{len(uniforms)} tokens of the vocabulary were asked for")
        # The original's own text from the same numbers says how varied this text should be.
        own = self._paused(lambda: self.original.draw(prompt, uniforms))
        expected, found = figures.variety(own), figures.variety(drawn)
        if found < 0.5 * expected or figures.entropy(drawn) < 0.5 * figures.entropy(own):
            detail = f"{len(set(drawn))} distinct tokens among {len(drawn)}; the original draws {len(set(own))}"
            self.state.note("generate", {"new_tokens": len(drawn)}, None, passed=False, detail=detail)
            self._end("degenerate_output", detail)
        return prompt, uniforms, drawn

    def _limits(self, texts: list[list[int]], exact: list[torch.Tensor]) -> dict[str, float]:
        """Return the largest distance that is admitted, from the original's noise and the declared format."""
        noise = figures.distance(exact, self.original.log_probs(texts, "stored"), texts)
        budget = figures.distance(exact, self.original.log_probs(texts, self.options.precision), texts)
        self.state.measured.update(noise=vars(noise), budget=vars(budget), precision=self.options.precision)
        made = limits.admitted(vars(noise), vars(budget))
        self.state.measured["limits"] = made
        return made

    def _compare(
        self, texts: list[list[int]], exact: list[torch.Tensor], limit: dict[str, float], dice: random.Random
    ) -> None:
        answers = {which: self._answer(texts[which]) for which in _order([len(text) for text in texts], dice)}
        other = [answers[which] for which in range(len(texts))]
        for which, text in enumerate(texts):
            one = figures.distance([exact[which]], [other[which]], [text])
            worst = one.kl_max / limit["kl_max"]
            self.state.note("teacher_forced", {"length": len(text)}, worst, passed=worst <= 1)
        found = figures.distance(exact, other, texts)
        self.state.measured["found"] = vars(found)
        self._decide(found, limit)

    def _decide(self, found: Distance, limit: dict[str, float]) -> None:
        for name in limits.exceeded(vars(found), limit):
            admitted = f"{limit[name]:.3g} is what {self.options.precision} admits"
            self.state.reject("diverges_from_original", f"{name} {vars(found)[name]:.3g} nats; {admitted}")

    def _answer(self, tokens: list[int]) -> torch.Tensor:
        reply = self.ask({"op": "logits", "tokens": tokens}, limit_s=self.options.call_limit_s)
        shape = [len(tokens), self.vocabulary]
        size = 4 * shape[0] * shape[1]
        if reply.get("shape") != shape or reply.get("size_bytes") != size or size > self.arena.size_bytes:
            self._end("wrong_shape", f"logits of {shape} were asked for")
        raw = torch.frombuffer(bytearray(self.arena.read(0, size)), dtype=torch.float32).reshape(shape)
        if not bool(torch.isfinite(raw).all()):
            self._end("wrong_values", "logits that are no numbers")
        return torch.log_softmax(raw.double(), -1)

    def _replay(self, prompt: list[int], uniforms: list[float], drawn: list[int], limit: dict[str, float]) -> None:
        """Hold every drawn token against the original's distribution at its place."""
        (log_probs,) = self._paused(lambda: self.original.log_probs([prompt + drawn[:-1]], "exact"))
        missed = figures.misses(log_probs[len(prompt) - 1 :], uniforms, drawn)
        worst, outside = limits.drawn(missed, limit)
        self.state.measured.setdefault("same_tokens", []).append(float((missed == 0).double().mean()))
        self.state.note("generate", {"new_tokens": len(drawn)}, worst, passed=worst <= 1)
        if worst > 1:
            self.state.reject(
                "wrong_tokens",
                f"{outside} of {len(drawn)} tokens that the original would not have drawn from the same numbers",
            )


def _order(lengths: list[int], dice: random.Random) -> list[int]:
    """Return the order in which texts are asked: some after a longer and some after a shorter one.

    Else what a candidate keeps of a longer text, or carries on from a shorter one, would be right by chance.
    """
    order = list(range(len(lengths)))
    while True:
        dice.shuffle(order)
        asked = [lengths[which] for which in order]
        if len(set(lengths)) < 3 or (asked != sorted(asked) and asked != sorted(asked, reverse=True)):
            return order


def _named(reference: Path) -> dict[str, Any]:
    """Say which original judged: its architecture, and the digest of its whole folder."""
    facts = json.loads((reference / "config.json").read_text(encoding="utf-8"))
    return {"architectures": facts.get("architectures"), "sha256": _digest(b"", reference)}


def _tokens(answered: object, vocabulary: int) -> list[int] | None:
    """Return what is a list of tokens, None for anything else."""
    if not isinstance(answered, list):
        return None
    tokens = [one for one in answered if type(one) is int and 0 <= one < vocabulary]
    return tokens if len(tokens) == len(answered) else None


def _digest(source: bytes, weights: Path) -> str:
    """Hash the candidate: its file, and names, sizes and bytes of the folder it loads."""
    made = hashlib.sha256(len(source).to_bytes(8, "big") + source)
    for file in sorted(one for one in weights.rglob("*") if one.is_file()):
        made.update(f"{file.relative_to(weights)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while part := stream.read(1 << 22):
                made.update(part)
    return made.hexdigest()


def _report(state: _State, frozen: str, seed: int, layers: dict[str, Any], worker: Worker) -> Report:
    return Report(
        operator="causal_lm",
        verdict=report.REJECTED if state.reasons else report.ACCEPTED,
        reasons=tuple(dict.fromkeys(state.reasons)),
        details=tuple(dict.fromkeys(state.details))[:40],
        cases=tuple(state.cases),
        source_sha256=frozen,
        plan_sha256=None,
        master_seed=f"{seed:032x}",
        sandbox={"active": layers.get("active", {}), "verified": layers.get("verified", {})},
        blocked=tuple(sorted(worker.blocked)),
        findings=(),
        delegates=(),
        ghosts={},
        output=report.escaped(worker.output()[-4000:], 2000),
        seconds=state.seconds,
        model=state.measured,
    )
