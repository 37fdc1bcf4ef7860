"""What a bundle carries runs where there is nothing but Python 3.10, numpy and torch."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kb.validators
from kb.validators import bundle

HERE = Path(str(kb.validators.__file__)).parent
FILES = {name: body for name, body in bundle._judge() if name.startswith("kb/validators/")}
SINCE_3_11 = {
    "tomllib", "StrEnum", "verify", "ExceptionGroup", "BaseExceptionGroup", "Self", "Never", "LiteralString",
    "assert_never", "reveal_type", "TaskGroup", "file_digest", "UTC", "batched", "override",
}  # fmt: skip
"""Names of the standard library that Python 3.10 does not have, where they are imported from it or asked of it."""
OUTSIDE = {"numpy", "torch", "triton", "torchvision"}


def imports(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Yield (module, imported name or None)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from ((str(node.module), one.name) for one in node.names)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_is_python_3_10_and_needs_nothing_else(name: str) -> None:
    tree = ast.parse(FILES[name], name, feature_version=(3, 10))
    for module, imported in imports(tree):
        top = module.partition(".")[0]
        if top == "kb":
            parts = module.split(".")
            assert parts[1:2] in ([], ["validators"]), module
            assert len(parts) < 3 or parts[2] in ("runtime", "operators", "baselines"), module
        else:
            assert top in sys.stdlib_module_names or top in OUTSIDE, module
            assert top not in SINCE_3_11
            if top in sys.stdlib_module_names:
                assert imported not in SINCE_3_11, (module, imported)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {
                ("datetime", "UTC"), ("enum", "StrEnum"), ("hashlib", "file_digest"), ("contextlib", "chdir"),
            }  # fmt: skip


def test_the_key_of_a_judge_stays_at_home() -> None:
    assert not any("keys" in Path(name).stem or "revisions" in name for name in FILES)
    assert {Path(name).parts[2] for name in FILES if len(Path(name).parts) > 3} == {"runtime", "operators", "baselines"}
    assert len(FILES) > 100
