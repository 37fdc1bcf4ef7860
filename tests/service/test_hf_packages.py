"""Our own kernels go out as packages of HF kernels: what is stated, what the digests are of, and what is left out."""

import base64
import hashlib
import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, find_root
from kb.importers.base import Exported, Filed, Skipped
from kb.service import exporting
from kb.service.hf_packages import Packages, package_name

ROOT = Path(__file__).parents[2]
FACTS: dict[str, Any] = {
    "title": 'A "scale"\u2028',
    "license": "MIT",
    "language": "torch",
    "entry_point": "kernel.py:run",
    "requires": {"arch": ["sm_90", "sm_100a", "gfx942"]},
}
CODE = b"def run(x):\n    return 2 * x\n"


def written(facts: dict[str, Any], **files: bytes) -> tuple[dict[str, bytes], list[str]]:
    entry = Filed("kernel/scale/plain", 3, {**FACTS, **facts}, "# Scale\n", {"kernel.py": CODE, **files})
    made = list(Packages(Root(Path()), {}).written(entry, ()))
    bodies = {one.path: one.body for one in made if isinstance(one, Exported)}
    return bodies, [one.reason for one in made if isinstance(one, Skipped)]


def test_a_package_has_its_source_and_a_build_for_each_backend_with_digests_of_all_files() -> None:
    bodies, left_out = written({})
    assert left_out == []
    build = tomllib.loads(bodies["kb-scale-plain/build.toml"].decode())
    assert build["general"] == {
        "name": "kb-scale-plain",
        "version": 3,
        "edition": 5,
        "license": "MIT",
        "backends": ["cpu", "cuda"],
    }
    for backend, archs in (("cpu", None), ("cuda", ["9.0", "10.0a"])):
        folder = f"kb-scale-plain/build/torch-{backend}"
        metadata = json.loads(bodies[f"{folder}/metadata.json"])
        assert metadata["backend"].get("archs") == archs
        beside = {path.removeprefix(f"{folder}/"): body for path, body in bodies.items() if path.startswith(folder)}
        assert set(metadata["digest"]["files"]) == set(beside) - {"metadata.json"}
        for path, digest in metadata["digest"]["files"].items():
            assert base64.b64decode(digest) == hashlib.sha256(beside[path]).digest()
        assert beside["kernel.py"] == b"# SPDX-License-Identifier: MIT\n" + CODE
        assert bodies["kb-scale-plain/torch-ext/kb_scale_plain/kernel.py"] == beside["kernel.py"]


def test_a_build_of_the_starter_entries_is_a_package_that_python_imports(tmp_path: Path) -> None:
    made = exporting.export(find_root(str(ROOT)), "hf-kernels", ["kernel/rmsnorm/row-per-cta"], tmp_path / "out")
    assert made.left_out == ()
    place = tmp_path / "out/kb-rmsnorm-row-per-cta/build/torch-cuda"
    spec = importlib.util.spec_from_file_location("_kb_package_of_a_test", place / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        assert callable(module.run)
        assert "kernel/rmsnorm/row-per-cta, version 1" in str(module.__doc__)
    finally:
        for name in [one for one in sys.modules if one.startswith(spec.name)]:
            del sys.modules[name]


def test_what_one_file_with_torch_cannot_be_is_left_out_with_the_reason() -> None:
    bodies, (reason,) = written({}, **{"helper.py": b"x = 1\n"})
    assert bodies == {}
    assert "runs kernel.py with helper.py" in reason
    bodies, (reason,) = written({"requires": {"packages": {"cutlass": ">=4", "torch": ">=2"}}})
    assert bodies == {}
    assert "needs cutlass" in reason


def test_a_name_that_is_taken_by_a_package_that_came_in_is_not_written_twice() -> None:
    entry = Filed("kernel/scale/plain", 3, FACTS, "# Scale\n", {"kernel.py": CODE})
    (only,) = Packages(Root(Path()), {}).written(entry, {"kb-scale-plain/build.toml"})
    assert isinstance(only, Skipped)


@pytest.mark.parametrize("name", ["kernel/rmsnorm/row-per-cta", "kernel/x_con/" + "a" * 150])
def test_names_are_those_that_the_package_takes(name: str) -> None:
    assert re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", package_name(name))


def test_a_kernel_without_python_is_none_of_this_format() -> None:
    assert not Packages.holds(Filed("kernel/a/b", 1, {"entry_point": "kernel.cu:run"}, "", {}))
    assert not Packages.holds(Filed("technique/a/b", 1, {"entry_point": "kernel.py:run"}, "", {}))
