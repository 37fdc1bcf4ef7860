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
