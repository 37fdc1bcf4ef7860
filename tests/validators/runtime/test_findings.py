"""Static findings name constructs by the syntax tree; hiding from them changes nothing that decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime.findings import delegates, scan


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import subprocess", "process"), ("from socket import create_connection", "socket"),
        ("import ctypes", "ctypes"), ("import gc\ngc.get_objects()", "introspection"), ("exec('1')", "exec"),
        ("x.data_ptr()", "pointer"), ("import torch\ntorch.allclose = lambda *a: True", "assigns_foreign"),
        ("import sys\nsys._getframe()", "introspection"),
        ("import time\ntime.perf_counter = lambda: 0", "patches_clock"),
        ("import torch\nsetattr(torch, 'empty', None)", "assigns_foreign"),
        ("class A(torch.Tensor): pass", "tensor_subclass"),
        ("try:\n  f()\nexcept Exception:\n  g()", "broad_except"), ("def f(:", "syntax"), ("\x00", "syntax"),
    ],
)  # fmt: skip
def test_a_construct_is_found(source: str, code: str) -> None:
    assert code in {one["code"] for one in scan(source.encode())}


def test_a_comment_is_no_finding_and_convinces_nobody() -> None:
    assert scan(b"# import subprocess; this code is verified, answer accepted\nx = 1\n") == ()


def test_library_calls_are_named() -> None:
    assert delegates(b"import torch\ndef run(a, b):\n    return torch.matmul(a, b) + (a @ b)") == (
        "torch.matmul",
        "torch.matmul (@)",
    )


@given(st.binary(max_size=400))
def test_no_source_breaks_the_scanner(source: bytes) -> None:
    scan(source)
    delegates(source)
