"""Every exploit of the catalogue that runs on a CPU is refused for its reason, and every honest look-alike passes.

What the judge sees of a candidate is its bytes: names and docstrings of the files stay here.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.redteam.samples import CATALOGUE, CHEATS, COMM_ALIKE, CPU_ROWS, ELSEWHERE, HERE, HONEST, Sample

from kb.validators import operators
from kb.validators.runtime.judge import Options, judge
from kb.validators.runtime.report import REASONS, Report

pytestmark = pytest.mark.timeout(300)

OPTIONS = Options(call_limit_s=12, load_limit_s=25, memory_bytes=2 << 30, calls=(3, 4))


def judged(sample: Sample) -> Report:
    """Judge one sample; where ``KB_REDTEAM_LOG`` names a file, a line is added to it."""
    options = OPTIONS
    if sample.operator in operators.COMM:  # four processes for each: every other workload will do
        asked = [one for one in operators.load(sample.operator).workloads if one.use == "awkward"]
        options = replace(OPTIONS, workloads=asked[::2], calls=(3, 3))
    found = judge(sample.operator, sample.path.read_bytes(), options=options)
    if log := os.environ.get("KB_REDTEAM_LOG"):
        row = {"name": sample.name, "verdict": found.verdict, "reasons": found.reasons, "details": found.details[:4]}
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return found


@pytest.mark.parametrize("sample", CHEATS, ids=lambda one: one.name)
def test_a_cheat_is_refused_for_its_reason(sample: Sample) -> None:
    found = judged(sample)
    assert found.verdict == sample.verdict, found.details
    assert set(found.reasons) & set(sample.reasons), found.details


@pytest.mark.parametrize("sample", HONEST, ids=lambda one: one.name)
def test_honest_work_that_looks_like_a_cheat_is_accepted(sample: Sample) -> None:
    found = judged(sample)
    assert (found.verdict, found.reasons) == ("accepted", ()), found.details


def test_every_family_has_cheats_and_at_least_three_look_alikes() -> None:
    for family in CATALOGUE:
        assert [one for one in CHEATS if one.row.startswith(family)]
        assert len([one for one in HONEST if one.path.parent.name == family.lower()]) >= 3, family


def test_every_row_of_schemes_and_strategies_has_two_exploits_and_two_look_alikes() -> None:
    alike = {row: set(names) for row, names in COMM_ALIKE.items()}
    for one in HONEST:
        if one.path.parent.name == "k":
            alike.setdefault(one.path.stem[:2].upper(), set()).add(one.path.stem)
    assert set().union(*alike.values()) == {one.path.stem for one in HONEST if one.path.parent.name in "jk"}
    for row in (row for row in CPU_ROWS if row[0] in "JK"):
        assert len([one for one in CHEATS if one.row == row]) >= 2, row
        assert len(alike[row]) >= 2, row


def test_every_expected_reason_is_a_reason_of_the_judge() -> None:
    assert {reason for one in CHEATS for reason in one.reasons} <= set(REASONS)


def test_every_row_that_runs_on_a_cpu_has_an_exploit_or_a_place_where_it_is_held() -> None:
    shown = {one.row for one in CHEATS}
    assert set(CPU_ROWS) - shown == set(ELSEWHERE)
    for place in ELSEWHERE.values():
        file = place.rpartition(" ")[2]
        assert not file.startswith("tests/") or (HERE.parents[1] / file).exists()


def test_the_table_is_current() -> None:
    text = (HERE.parents[1] / "docs" / "redteam.md").read_text(encoding="utf-8")
    rows = {line.split("|")[2].strip(" `"): line for line in text.splitlines() if line.startswith("| ")}
    for one in (*CHEATS, *HONEST):
        assert one.name in rows, "run: python -m tests.redteam.repeat --table"
        assert one.expected in rows[one.name]
