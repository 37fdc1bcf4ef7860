"""What is written parses to what was meant, whatever the words."""

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from kb.models.documents import Target
from kb.targeting.writing import facts_text, readme_text

HEAD = {"schema": 1, "version": 1, "title": "A title", "source": {"origin": "written here"}}
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


def target(model: str, note: str, axes: dict[str, int], share: float) -> Target:
    """Return a target of one row."""
    rows = [
        {
            "operator": "gemm", "name": note, "axes": axes, "dtypes": [], "share": share, "share_from": "measured",
            "note": note, "kernels": [note],
        }
    ]  # fmt: skip
    return Target.model_validate(
        {
            "model": model, "devices": ["H200"], "device_count": 1, "precision": "x", "traffic": [{"name": "a"}],
            "accuracy": note, "goals": [{"metric": "x", "better": "lower"}], "operators": rows,
        }
    )  # fmt: skip


@settings(max_examples=40)
@given(WORDS, WORDS, st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 1 << 50), max_size=3),
       st.floats(1e-12, 1))  # fmt: skip
def test_a_written_target_is_read_back_as_it_was(model: str, note: str, axes: dict[str, int], share: float) -> None:
    made = target(model, note, axes, share)
    text = facts_text(made, HEAD)
    assert Target.model_validate(tomllib.loads(text)["target"]) == made


def test_a_readme_names_the_heaviest_rows_and_stays_short() -> None:
    text = readme_text(target("Model", "the product", {"n": 4}, 0.5), "written here")
    assert "the product (`gemm`): 50.0 % measured" in text
    assert len(text.splitlines()) <= 60
