"""Problems and build files come in as what they say, and no further."""

from pathlib import Path

import pytest

from kb.config import find_root
from kb.service import importing
from kb.service.initialising import init
from kb.store import files, layout

TASK = 'lang: py\ndescription: |\n  Scales are fp8 (e4m3fnuz).\ntests:\n  - {"m": 8}\nbenchmarks:\n  - {"m": 64}\n'
BUILD = (
    '[general]\nname = "scale"\nlicense = "MIT"\n\n[kernel.scale]\ncuda-capabilities = ["9.0a"]\nsrc = ["scale.cu"]\n'
)


def _imported(tmp_path: Path, name: str, body: str) -> list[files.StoredEntry]:
    folder = tmp_path / "in/set/one"
    folder.mkdir(parents=True)
    (folder / name).write_text(body, encoding="utf-8")
    init(tmp_path / "kb")
    root = find_root(str(tmp_path / "kb"))
    form = "gpumode" if name == "task.yml" else "hf-kernels"
    stated = ("some/where", None, "MIT")
    options = importing.options_of(format_=form, write=True, stated=stated, allow=[], device=None, toolchain=[])
    importing.run(root, str(tmp_path / "in"), options)
    return [files.read(layout.folder_of(root.entries, one), one) for one in layout.entry_ids(root.entries)]


def test_a_problem_takes_no_dtype_from_its_prose(tmp_path: Path) -> None:
    (found,) = _imported(tmp_path, "task.yml", TASK)
    assert found.id == "technique/gpumode/set-one"
    assert found.file.dtypes == []
    assert found.files["task.yml"].decode() == TASK


def test_a_build_file_names_its_capabilities_and_license(tmp_path: Path) -> None:
    (found,) = _imported(tmp_path, "build.toml", BUILD)
    assert "9.0a" in found.file.summary
    assert found.file.license == "MIT"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("task.yml", "tests: [unclosed"),
        ("task.yml", "lang: py\n"),
        ("task.yml", "tests: !!python/object/apply:os.getcwd []\n"),
        ("task.yml", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
         "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
         "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\ntests: [*e,*e,*e]\n"),
        ("build.toml", "[general"),
        ("build.toml", "[torch]\n"),
        ("build.toml", "a = " + "[" * 5000),
        ("build.toml", ".".join("a" * 5000) + " = 1\n"),
    ],
    ids=["truncated", "no-tests", "tag", "aliases", "cut", "no-name", "deep", "dots"],
)  # fmt: skip
def test_hostile_descriptions_are_refused_and_nothing_is_written(tmp_path: Path, name: str, body: str) -> None:
    assert _imported(tmp_path, name, body) == []
