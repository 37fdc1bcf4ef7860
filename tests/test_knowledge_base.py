"""The Python API: one open knowledge base."""

from pathlib import Path

import pytest

from kb import KnowledgeBase
from kb.errors import ConfigError, EntryNotFoundError, RetrievalError

STARTER = Path(__file__).resolve().parents[1]


def test_it_answers_as_the_shell_does() -> None:
    with KnowledgeBase.open(STARTER) as base:
        first = base.search("nvfp4 moe grouped gemm", device="NVIDIA H100", limit=3).hits[0]
        assert first.id == "kernel/moe_grouped_gemm_nvfp4/dequant-in-registers"
        assert base.get(first.id)["contents"]
        assert len(base.list(kind="kernel")) > 50


def test_a_path_is_for_open_and_the_error_says_so() -> None:
    with pytest.raises(TypeError, match=r"KnowledgeBase\.open\(PATH\)"):
        KnowledgeBase("somewhere")  # type: ignore[arg-type]


def test_what_is_not_there_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        KnowledgeBase.open(tmp_path)
    with KnowledgeBase.open(STARTER) as base:
        with pytest.raises(EntryNotFoundError) as caught:
            base.get("kernel/rmsnorm/row-per-ct")
        assert "row-per-cta" in str(caught.value.hint)
        with pytest.raises(RetrievalError):
            base.search("")


@pytest.mark.parametrize(
    ("method", "given", "named", "said"),
    [
        ("search", (None,), {}, "query: expected str, found NoneType"),
        ("search", ("x",), {"limit": "3"}, "limit: expected int, found str"),
        ("search", ("x",), {"limit": True}, "limit: expected int, found bool"),
        ("search", ("x",), {"device": 3}, "device: expected str or None, found int"),
        ("search", ("x",), {"devicez": "H100"}, "there is no filter 'devicez': did you mean device?"),
        ("list", (), {"withdrawn": "yes"}, "withdrawn: expected bool, found str"),
        ("get", (None,), {}, "reference: expected str"),
        ("get", ("x",), {"version": "2"}, "version: expected int or None, found str"),
        ("evidence", (7,), {}, "reference: expected str"),
        ("operator", (None,), {}, "name: expected str"),
        ("seed", (None,), {}, "target: expected str"),
        ("seed", ("x",), {"budget_tokens": "many"}, "budget_tokens: expected int"),
        ("judge", ("silu", None), {}, "source: expected str"),
        ("judge", ("silu", "x"), {"dtypes": "float32"}, "dtypes: expected a list of str or None, found str"),
        ("judge", ("silu", "x"), {"dtypes": [1]}, "dtypes: each: expected str, found int"),
        ("submit", ({"title": "x"},), {}, "made: expected Submission, found dict"),
        ("outcome", ("x",), {"target": None, "result": "won"}, "target: expected str"),
        ("open", (3,), {}, "path: expected str or Path or None, found int"),
    ],
)
def test_an_argument_of_another_type_is_named_at_once(
    method: str, given: tuple[object, ...], named: dict[str, object], said: str
) -> None:
    with KnowledgeBase.open(STARTER) as base, pytest.raises(TypeError) as caught:
        getattr(base, method)(*given, **named)
    assert str(caught.value).startswith(said)
