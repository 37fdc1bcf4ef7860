"""The judge, end to end: honest work passes, and every way to fail is a verdict with its reason."""

import json
from collections.abc import Callable

import pytest

from kb.validators.runtime import report
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge
from kb.validators.runtime.report import Report

HONEST = """
import torch

def run(x, weight, eps=1e-6):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
"""

FAST = Options(ghosts=False, call_limit_s=8, load_limit_s=20, calls=(2, 3), memory_bytes=2 << 30)


@pytest.fixture(scope="module")
def judged() -> Callable[[str], Report]:
    made: dict[str, Report] = {}

    def run(source: str) -> Report:
        if source not in made:
            made[source] = judge("rmsnorm", source.encode(), options=FAST)
        return made[source]

    return run


def test_honest_work_is_accepted_in_a_verified_sandbox(judged: Callable[[str], Report]) -> None:
    found = judged(HONEST)
    assert (found.verdict, found.reasons) == ("accepted", ())
    assert all(case.verdict == "passed" for case in found.cases)
    assert all(found.sandbox["verified"].values())
    assert found.plan_sha256 is not None
    assert found.master_seed is not None


def test_the_report_is_json_without_anything_secret_in_it(judged: Callable[[str], Report]) -> None:
    text = json.dumps(judged(HONEST).to_json(), allow_nan=False)
    assert "kb-judge-" not in text


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import torch\ndef run(x, weight, eps=1e-6):\n    return torch.zeros_like(x)", "wrong_values"),
        ("def run(x, weight, eps=1e-6):\n    return x", "wrong_values"),
        ("def run(x, weight, eps=1e-6):\n    return x[:, :1]", "wrong_shape"),
        ("def run(x, weight, eps=1e-6):\n    return None", "wrong_dtype"),
        ("def run(x, weight, eps=1e-6):\n    return x.double()", "wrong_dtype"),
        ("def run(x, weight, eps=1e-6):\n    raise SystemExit(0)", "crashed"),
        ("def walk(x, weight, eps=1e-6):\n    return x", "build_failed"),
        ("def run(:", "build_failed"),
        ("import os\nos._exit(0)", "exited"),
        ("import os\ndef run(x, weight, eps=1e-6):\n    os.abort()", "crashed"),
        ("def run(x, weight, eps=1e-6):\n    while True: pass", "timed_out"),
    ],
)
def test_a_failure_is_a_verdict_with_its_reason(source: str, reason: str, judged: Callable[[str], Report]) -> None:
    found = judged(source)
    assert found.verdict == "rejected"
    assert reason in found.reasons, found.details


def test_what_a_candidate_prints_is_escaped_and_bounded(judged: Callable[[str], Report]) -> None:
    noisy = HONEST.replace("    wide", "    print('\\x1b[2J\\u202e' + 'a' * 100000, flush=True)\n    wide", 1)
    found = judged(noisy)
    assert found.verdict == "accepted"
    assert len(found.output) <= 2001
    assert found.output.isprintable()


def test_an_exception_with_hostile_text_is_escaped(judged: Callable[[str], Report]) -> None:
    hostile = "def run(x, weight, eps=1e-6):\n    raise ValueError('\\x1b[31m\\n\\u202eaccepted' * 1000)"
    found = judged(hostile)
    assert found.reasons == ("crashed",)
    assert all(detail.isprintable() and len(detail) < 600 for detail in found.details)


def test_every_reason_code_has_a_meaning(judged: Callable[[str], Report]) -> None:
    assert all(reason in report.REASONS for reason in judged(HONEST).reasons)
    assert all(meaning.strip() for meaning in report.REASONS.values())


def test_an_unknown_operator_is_no_verdict() -> None:
    with pytest.raises(KeyError):
        judge("no_such_operator", HONEST.encode())


def test_a_dtype_that_the_operator_lacks_is_an_error_of_the_asker() -> None:
    with pytest.raises(JudgeError):
        judge("rmsnorm", HONEST.encode(), options=Options(dtypes=["float8_e5m2"]))
