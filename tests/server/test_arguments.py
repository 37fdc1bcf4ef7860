"""Arguments are read under the names that agents use; unknown ones are refused, never dropped."""

import inspect

import pytest

from kb.errors import RetrievalError
from kb.server import arguments


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"q": "x", "k": 3, "gpu": "H100"}, {"query": "x", "limit": 3, "device": "H100"}),
        ({"query": "x", "precision": "fp8"}, {"query": "x", "dtype": "fp8"}),
        ({"question": "x", "top_k": 3, "archs": ["sm_90"]}, {"query": "x", "limit": 3, "arch": "sm_90"}),
        ({"query": "x", "dtypes": [], "kind": None}, {"query": "x"}),
    ],
)  # fmt: skip
def test_other_names_and_lists_of_one_are_understood(given: dict[str, object], own: dict[str, object]) -> None:
    assert arguments.read("search", given) == own


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(RetrievalError, match="search has no argument 'devise'") as caught:
        arguments.read("search", {"query": "x", "devise": "H100"})
    assert str(caught.value.hint).startswith("did you mean device? valid: query, limit, cursor, kind")


def test_several_values_or_the_same_argument_twice_are_refused() -> None:
    with pytest.raises(RetrievalError, match="one value a call"):
        arguments.read("search", {"dtypes": ["fp8", "nvfp4"]})
    with pytest.raises(RetrievalError, match="query is given twice"):
        arguments.read("search", {"query": "x", "q": "y"})


@pytest.mark.parametrize("tool", ["search", "get"])
def test_every_other_name_leads_to_an_argument_of_the_tool(tool: str) -> None:
    assert set(arguments.ALIASES[tool].values()) <= set(arguments.NAMES[tool])
    assert not set(arguments.ALIASES[tool]) & set(arguments.NAMES[tool])


def test_names_are_those_of_the_filters() -> None:
    from kb.service.searching import Filters

    assert set(inspect.signature(Filters).parameters) <= set(arguments.NAMES["search"])
