"""What a source says of its precision and its collectives is read from its syntax, never by running it."""

import pytest

from kb.validators.runtime.comm.declared import collectives, wire_precision


@pytest.mark.parametrize(
    ("source", "precision"),
    [
        ("def run(x, group): ...", None),
        ('WIRE = "float8_e4m3fn"', "float8_e4m3fn"),
        ('WIRE: str = "bfloat16"', "bfloat16"),
        ("WIRE = None", None),
        ('def run(x, group):\n    WIRE = "bfloat16"', None),
        ('wire = "bfloat16"', None),
        ("def (", None),
        ("\0", None),
    ],
)
def test_the_precision_is_a_constant_at_the_top(source: str, precision: str | None) -> None:
    assert wire_precision(source.encode()) == precision


@pytest.mark.parametrize("value", ['"fp8"', "8", '"float8" + "_e4m3fn"', "torch.bfloat16", '"int8"', "f()", ""])
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="WIRE"):
        wire_precision(f"WIRE: str = {value}".encode() if value else b"WIRE: str")


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("dist.all_reduce(y)", {"all_reduce"}),
        ("torch.distributed.all_gather_into_tensor(y, x)", {"all_gather"}),
        ("group.allreduce([y])", {"all_reduce"}),
        ("dist.isend(y, 1)", set()),
        ("numpy.all_reduce(y)", set()),
        ("all_reduce(y)", set()),
        ("def (", set()),
    ],
)
def test_collectives_of_the_library_are_named(call: str, names: set[str]) -> None:
    assert collectives(call.encode()) == names
