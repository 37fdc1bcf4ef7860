"""The red team of the GPU is whole, and its table names every candidate; running it needs a GPU and is one command."""

from tests.gpu.samples import CHEATS, HERE, HONEST, MUST

from kb.validators.runtime.report import REASONS

TABLE = HERE.parents[1] / "docs" / "redteam-cuda.md"


def test_every_row_that_needs_a_gpu_has_an_exploit() -> None:
    assert set(MUST) <= {one.sample.row for one in CHEATS}
    assert len(HONEST) >= 8


def test_every_expected_reason_is_a_reason_of_the_judge() -> None:
    assert {reason for one in CHEATS for reason in one.sample.reasons} <= set(REASONS)


def test_a_cheat_that_is_accepted_for_its_values_forges_time_and_nothing_else() -> None:
    assert {one.name for one in CHEATS if one.sample.verdict == "accepted"} == {
        one.name for one in CHEATS if one.forges_time
    }


def test_the_table_names_every_candidate_and_what_happened_was_expected() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    for one in CHEATS:
        (line,) = [found for found in lines if f"`{one.name}`" in found]
        verdict, _, reasons = line.rstrip("| ").rpartition("| ")[2].partition(":")
        assert one.sample.agrees(verdict, [r.strip() for r in reasons.split(",") if r.strip()]), line
    for one in HONEST:
        (line,) = [found for found in lines if f"`{one.name}`" in found]
        assert "| accepted |" in line
