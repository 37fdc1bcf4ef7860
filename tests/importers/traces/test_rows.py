"""No time of a trace is lost: what has no name is listed, and what is small stands together."""

import math

from kb.importers.traces.profile import Key, Operation, Profile
from kb.importers.traces.rows import MOST_ROWS, MOST_UNNAMED, reconcile
from kb.importers.traces.rules import load
from kb.importers.traces.shapes import axes_of, dtype_of

RULES = load()
BF16 = ("c10::BFloat16", "c10::BFloat16")


def product(m: int, k: int = 8, n: int = 16) -> Operation:
    return Operation("aten::mm", ((m, k), (k, n)), BF16)


def test_calls_of_one_shape_are_one_row_with_its_axes_and_dtype() -> None:
    profile = Profile("test")
    for _ in range(4):
        profile.add(Key("nvjet_tst_64", product(4)), 10.0)
    profile.add(Key("nvjet_tst_64", product(32)), 40.0)
    profile.add(Key("zzz_mystery", None), 20.0)
    found = reconcile(profile, RULES, steps=2, phase="decode")
    assert [(row.axes, row.share, row.calls_per_step) for row in found.rows] == [
        ({"m": 32, "n": 16, "k": 8}, 0.4, 0.5),
        ({"m": 4, "n": 16, "k": 8}, 0.4, 2.0),
    ]
    assert {row.share_from for row in found.rows} == {"measured"}
    assert found.rows[0].dtypes == ["bfloat16"]
    assert [(one.name, one.share) for one in found.unnamed] == [("zzz_mystery", 0.2)]
    assert found.named_share == 0.8


def test_many_shapes_and_many_strangers_are_put_together_and_nothing_is_dropped() -> None:
    profile = Profile("test")
    for size in range(1, 3 * MOST_ROWS):
        profile.add(Key("nvjet", product(size)), float(size))
        profile.add(Key(f"zzz_{size}", None), float(size))
    found = reconcile(profile, RULES, steps=1, phase=None)
    assert len(found.rows) == MOST_ROWS + 1
    assert len(found.unnamed) == MOST_UNNAMED + 1
    assert found.unnamed[-1].name == f"{3 * MOST_ROWS - 1 - MOST_UNNAMED} more kernels"
    whole = math.fsum(row.share or 0 for row in found.rows) + math.fsum(one.share for one in found.unnamed)
    assert abs(whole - 1) < 2e-3


def test_axes_are_read_where_they_are_those_of_the_operator_and_never_guessed() -> None:
    assert axes_of("gemm", product(4)) == {"m": 4, "n": 16, "k": 8}
    assert axes_of("rmsnorm", product(4)) == {}
    assert axes_of("gemm", Operation("aten::mm", ((4,),))) == {}
    assert axes_of("gemm", None) == {}
    linear = Operation("aten::linear", ((2, 3, 8), (16, 8), ()))
    assert axes_of("gemm", linear) == {"m": 6, "n": 16, "k": 8}
    attention = Operation("aten::scaled_dot_product_attention", ((2, 8, 5, 64), (2, 2, 7, 64), (2, 2, 7, 64)))
    assert axes_of("attention_prefill", attention) == {
        "batch_size": 2, "q_len": 5, "kv_len": 7, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64,
    }  # fmt: skip
    assert dtype_of(Operation("x", (), ("long int", "c10::Half"))) == "float16"
    assert dtype_of(Operation("x", (), ("", "Scalar"))) is None
