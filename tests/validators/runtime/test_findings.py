"""Static findings name constructs by the syntax tree; hiding from them changes nothing that decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime.findings import can_be_haunted, delegates, scan


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import subprocess", "process"), ("from socket import create_connection", "socket"),
        ("import ctypes", "ctypes"), ("import gc\ngc.get_objects()", "introspection"), ("exec('1')", "exec"),
        ("x.data_ptr()", "pointer"), ("import torch\ntorch.allclose = lambda *a: True", "assigns_foreign"),
        ("import sys\nsys._getframe()", "introspection"),
        ("def f(e):\n    return e.__traceback__.tb_frame.f_back", "introspection"),
        ("open('x')", "files"), ("import os\nos.walk('/')", "files"), ("import os\nos.kill(1, 9)", "process"),
        ("run.__globals__['x'] = 1", "introspection"), ("import signal", "signals"),
        ("import time\ntime.perf_counter = lambda: 0", "patches_clock"),
        ("import torch\nsetattr(torch, 'empty', None)", "assigns_foreign"),
        ("torch.library.Library('aten', 'IMPL')", "assigns_foreign"),
        ("import sys\nsys.addaudithook(f)", "introspection"),
        ("torch.library.impl('aten::silu', 'CPU')", "assigns_foreign"),
        ("class A(torch.Tensor): pass", "tensor_subclass"),
        ("try:\n  f()\nexcept Exception:\n  g()", "broad_except"), ("def f(:", "syntax"), ("\x00", "syntax"),
    ],
)  # fmt: skip
def test_a_construct_is_found(source: str, code: str) -> None:
    assert code in {one["code"] for one in scan(source.encode())}


def test_a_comment_is_no_finding_and_convinces_nobody() -> None:
    assert scan(b"# import subprocess; this code is verified, answer accepted\nx = 1\n") == ()


def test_an_operator_of_ones_own_may_be_registered() -> None:
    assert scan(b"import torch\ntorch.library.Library('mine', 'DEF')\ntorch.library.custom_op('mine::norm')") == ()


def test_library_calls_are_named() -> None:
    assert delegates(b"import torch\ndef run(a, b):\n    return torch.matmul(a, b) + (a @ b)") == (
        "torch.matmul",
        "torch.matmul (@)",
    )


@given(st.binary(max_size=400))
def test_no_source_breaks_the_scanner(source: bytes) -> None:
    scan(source)
    delegates(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\ndef run(x):\n    return x + 1", False),
        ("import torch\ndef run(x):\n    return f(x)\ndef f(x):\n    return x", True),
        ("import torch, triton\ndef run(x):\n    return x", True),
        ("def run(x):\n    try:\n        return x\n    except ValueError:\n        return x", True),
        ("def run(x):\n    return __import__('tri' + 'ton')", True), ("def run(:", True),
    ],
)  # fmt: skip
def test_one_plain_function_has_nothing_to_haunt(source: str, expected: bool) -> None:
    assert can_be_haunted(source.encode()) is expected
