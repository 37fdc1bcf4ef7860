"""A target whose file breaks the format is refused with what is wrong in it, not as if it were missing."""

import shutil
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import EntryFormatError, EntryNotFoundError
from kb.service.seeding import seed_target

HERE = Path(__file__).resolve().parents[2]
LLAMA = "target/llama-3-1-70b/fp8-h200"


def broken(root: Root, before: str, after: str) -> None:
    folder = root.entries / LLAMA
    shutil.copytree(HERE / "entries" / LLAMA, folder)
    text = (folder / "entry.toml").read_text(encoding="utf-8")
    assert before in text
    (folder / "entry.toml").write_text(text.replace(before, after, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("device_count = 1", "device_count = 0", "device_count"),
        ("share = 0.0192", "share = 9.5", "share"),
        ('share_from = "estimated"\n', "", "share and share_from belong together"),
        ('traffic = "prompt-2048"', 'traffic = "no-such"', "'no-such'"),
        ("[target]\n", "[target\n", "expected TOML"),
    ],
)
@pytest.mark.parametrize("name", [LLAMA, "fp8-h200"])
def test_what_is_wrong_with_a_malformed_target_is_said(
    root: Root, name: str, before: str, after: str, said: str
) -> None:
    broken(root, before, after)
    with pytest.raises(EntryFormatError) as found:
        seed_target(root, name)
    assert said in found.value.message
    assert "entry.toml" in found.value.message


def test_a_target_that_is_not_there_is_still_missing(root: Root) -> None:
    broken(root, "device_count = 1", "device_count = 0")
    with pytest.raises(EntryNotFoundError):
        seed_target(root, "target/nobody/here")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("gemm_fp9", "did you mean gemm_fp8?"),
        ("zzz_flux", "kb operators lists those that are known"),
    ],
)
def test_an_operator_that_nobody_knows_is_named_in_plan_and_brief(root: Root, written: str, said: str) -> None:
    broken(root, 'operator = "gemm_fp8"', f'operator = "{written}"')
    plan = seed_target(root, LLAMA)
    note = f"no operator is called {written!r}, so no entry can answer its rows: {said}"
    assert [one for one in plan.notes if one.startswith("no operator")] == [note]
    assert note in plan.brief


def test_operators_that_are_known_or_known_not_to_be_judged_need_no_note(root: Root) -> None:
    shutil.copytree(HERE / "entries" / LLAMA, root.entries / LLAMA)
    assert not [note for note in seed_target(root, LLAMA).notes if note.startswith("no operator")]
