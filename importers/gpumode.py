"""GPU MODE: problems (``task.yml``) and sets of them; dtypes come from the code beside a problem, never from prose."""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices
from kb.importers.base import Context, Draft, Folder, Item, Skipped, provenance_of
from kb.importers.descriptions import MOST_BYTES, line_of
from kb.importers.license import of_file
from kb.importers.naming import slug
from kb.importers.reading import text_of, yaml_of
from kb.importers.tree import Tree

TOPIC = "gpumode"
_SET = re.compile(rb"^problems\s*:", re.MULTILINE)
_DIRECTORY = re.compile(rb"^\s*-?\s*directory\s*:", re.MULTILINE)
_HEAD = 4096
_CODE = ("reference.py", "task.py")
_DRAWS = "generate_input"
"""Function of a problem's reference that makes the arguments."""


class GpuMode:
    """Problems of GPU MODE, and the sets that they are given out in."""

    name = "gpumode"
    summary = "GPU MODE: task.yml and sets of problems"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim ``task.yml``, and YAML files that list the folders of problems."""
        for file in folder.files:
            if file.name == "task.yml":
                yield Item(folder.tree, (file,), extra={"kind": "task"})
            elif file.name.endswith((".yaml", ".yml")):
                head = folder.tree.head(file.path, _HEAD)
                if _SET.search(head) and _DIRECTORY.search(head):
                    yield Item(folder.tree, (file,), extra={"kind": "set"})

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of a problem or of a set.

        Raises:
            SourceFormatError: It is no YAML, or lacks its test cases or problems.
        """
        del context
        raw = item.tree.read(item.path, limit=MOST_BYTES)
        body = yaml_of(raw)
        if not isinstance(body, dict):
            raise SourceFormatError(f"expected a mapping, found {type(body).__name__}")
        yield _task(item, raw, body) if item.extra["kind"] == "task" else _set(item, raw, body)


def _draft(item: Item, raw: bytes, name: str, *, title: str, said: str, dtypes: tuple[str, ...] = ()) -> Draft:
    facts = {
        "title": line_of(title, 80),
        "summary": line_of(said, 160),
        "outcome": "works",
        "tags": ["unverified"],
        **({"dtypes": list(dtypes)} if dtypes else {}),
    }
    readme = f"# {line_of(title, 80)}\n\n{line_of(said, 400)}\n\nAs published; unverified.\n"
    held = "task.yml" if item.files[0].name == "task.yml" else "set.yaml"
    where = provenance_of(item.files[0], item.tree, raw)
    license_ = of_file(item.tree, item.path, raw)
    return Draft(f"technique/{TOPIC}/{name}", facts, readme, {held: raw}, where, license_)


def _task(item: Item, raw: bytes, body: dict[str, Any]) -> Draft:
    if not isinstance(body.get("tests"), list):
        raise SourceFormatError("expected a mapping with a list of tests")
    timed = body.get("benchmarks")
    count = len(timed) if isinstance(timed, list) else 0
    place = "-".join(item.path.split("/")[-3:-1])
    dtypes = dtypes_in_code(item.tree, item.files[0].folder)
    types = f"{', '.join(dtypes)} in its code" if dtypes else "dtypes not taken from its prose"
    said = f"GPU MODE problem: {len(body['tests'])} tests, {count} timed shapes; {types}"
    return _draft(item, raw, slug(place or "task"), title=f"Problem {place}", said=said, dtypes=dtypes)


def dtypes_in_code(tree: Tree, folder: str) -> tuple[str, ...]:
    """Return the dtypes that the code of a problem makes its arguments of; none where no code lies beside it.

    Args:
        tree: The source.
        folder: The problem's folder.
    """
    for name in _CODE:
        path = f"{folder}/{name}" if folder else name
        if not tree.exists(path):
            continue
        try:
            program = ast.parse(text_of(tree.read(path, limit=MOST_BYTES)))
        except (SourceFormatError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        draws = [one for one in program.body if isinstance(one, ast.FunctionDef) and one.name == _DRAWS]
        found = {
            dtype
            for part in draws or program.body
            for one in ast.walk(part)
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "torch"
            for dtype in devices.dtypes_of(one.attr)
        }
        if found:
            return tuple(sorted(found))
    return ()


def _set(item: Item, raw: bytes, body: dict[str, Any]) -> Draft:
    problems = body.get("problems")
    if not isinstance(problems, list) or not all(isinstance(one, dict) and one.get("directory") for one in problems):
        raise SourceFormatError("expected a list of problems, each with its directory")
    gpus = sorted({str(gpu) for one in problems for gpu in _listed(one.get("gpus"))})
    names = ", ".join(line_of(one.get("name") or one["directory"], 60) for one in problems)
    title = f"Problem set {body.get('name') or item.files[0].name.rpartition('.')[0]}"
    on = f" on {', '.join(gpus)}" if gpus else ""
    said = f"{len(problems)} GPU MODE problems{on}: {names}"
    return _draft(item, raw, slug("set", item.files[0].name.rpartition(".")[0]), title=title, said=said)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


IMPORTER = GpuMode()
