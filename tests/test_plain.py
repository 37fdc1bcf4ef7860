"""Plain text is aligned, fits the width, and does nothing to the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb import plain
from kb.models.hit import Answer, Best, Hit

HIT = Hit(
    id="kernel/rmsnorm/row",
    version=2,
    title="RMSNorm",
    kind="kernel",
    operator="rmsnorm",
    outcome="works",
    score=0.9,
    transfer=None,
    evidence="reported",
    freshness="unknown",
    best=Best("latency_us", 12.5, "us", "NVIDIA B200", "vLLM 0.25.1", 1.9, "one token", None, "somebody"),
    why=("about rmsnorm",),
    license="Apache-2.0",
)


def answer(*hits: Hit, because: str | None = None) -> Answer:
    return Answer("q", {"operator": ("rmsnorm",)}, {}, hits, because, 1.0, ("rms norm → rmsnorm",))


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b31m", "a\x07b", "\u202eabc", "\u2066", "\u200b", "\udc80", "\x7f", "\r"]
)
def test_what_a_terminal_would_obey_is_replaced(text: str) -> None:
    assert plain.neutral(text).isprintable()


def test_line_ends_are_kept_only_where_they_are_wanted() -> None:
    assert plain.neutral("a\nb\tc") == "a b c"
    assert plain.neutral("a\nb\tc", lines=True) == "a\nb\tc"


@given(st.text(st.characters(codec=None)), st.integers(5, 80))
def test_a_shortened_text_fits(text: str, width: int) -> None:
    assert plain.cells(plain.shorten(plain.neutral(text), width)) <= width


def test_wide_characters_take_two_columns() -> None:
    assert plain.cells("核") == 2
    assert plain.shorten("核核核", 5) == "核核…"


@given(st.text(st.characters(codec=None), max_size=200), st.integers(40, 120))
def test_every_line_of_a_hit_fits_and_is_harmless(text: str, width: int) -> None:
    for line in plain.answer(answer(HIT.with_(title=text, why=(text,))), width=width):
        assert line.isprintable()
        assert plain.cells(line) <= width


def test_a_hit_shows_what_it_is_what_stands_for_it_and_why() -> None:
    assert list(plain.answer(answer(HIT.with_(transfer="port", outcome="regression")), width=200)) == [
        "read as: operator rmsnorm",
        "also looked for: rms norm → rmsnorm",
        " 1  kernel/rmsnorm/row@2  RMSNorm",
        "    regression; transfer port; reported; latency_us 12.5 us on NVIDIA B200, 1.9x vLLM 0.25.1 (as published); "
        "Apache-2.0",
        "    why: about rmsnorm",
    ]


def test_an_empty_answer_says_why() -> None:
    assert list(plain.answer(answer(because="no such word"), width=80))[-1] == "nothing found: no such word"


def test_the_width_follows_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert plain.terminal_width() == 72
    monkeypatch.setenv("COLUMNS", "nonsense")
    assert plain.terminal_width() >= 40


def test_an_entry_shows_nested_facts_by_dotted_name() -> None:
    found = {
        "id": "kernel/a/b", "version": 1, "title": "T", "summary": "S", "evidence": "documented", "digest": "0" * 64,
        "files": ["entry.toml"], "readme": "# Prose\x1b[0m\n",
        "facts": {"schema": 1, "requires": {"arch": ["sm_90"], "features": []},
                  "claims": [{"metric": "m", "value": 2}]},
    }  # fmt: skip
    lines = list(plain.entry(found, width=80))
    assert any(line.split() == ["requires.arch", "sm_90"] for line in lines)
    assert any("metric = m, value = 2" in line for line in lines)
    assert not any("features" in line for line in lines)
    assert lines[-1] == "# Prose\N{REPLACEMENT CHARACTER}[0m"
