"""What is written as TOML is read back as it was."""

import math
import tomllib
from datetime import date

import hypothesis
import pytest
from hypothesis import strategies as st

from kb.store import toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LEAF = TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


@hypothesis.given(st.dictionaries(TEXT, VALUE, max_size=5))
@hypothesis.settings(max_examples=150)
def test_every_value_comes_back(facts: dict[str, object]) -> None:
    assert tomllib.loads(toml.dumps(facts)) == facts


def test_none_is_left_out_and_dates_stay_dates() -> None:
    text = toml.dumps({"a": None, "b": {"c": None, "d": date(2026, 1, 2)}, "e": [{"f": 1, "g": None}]})
    assert tomllib.loads(text) == {"b": {"d": date(2026, 1, 2)}, "e": [{"f": 1}]}


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        toml.dumps({"a": value})
