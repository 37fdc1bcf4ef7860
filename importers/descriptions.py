"""Descriptions without code: GPU MODE problems (``task.yml``) and the build files of HF kernels (``build.toml``)."""

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.base import Context, Draft, Folder, Item, Skipped, provenance_of
from kb.importers.license import of_file, spdx
from kb.importers.naming import slug
from kb.importers.reading import depth_fault, text_of, yaml_of

_MOST_BYTES = 256 << 10
_MOST_DOTS = 64
"""In a line of TOML: the parser needs memory that grows with the square of a dotted key's parts."""


def _line(text: object, most: int) -> str:
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def _toml_of(raw: bytes) -> dict[str, Any]:
    if any(line.count(b".") > _MOST_DOTS and b'"' not in line for line in raw.split(b"\n")):
        raise SourceFormatError(f"expected at most {_MOST_DOTS} dots in a line of TOML")
    try:
        value = tomllib.loads(text_of(raw))
    except (ValueError, RecursionError) as error:
        raise SourceFormatError(f"expected TOML, found: {_line(error, 200)}") from error
    fault = depth_fault(value)
    if fault is not None:
        raise SourceFormatError(fault)
    return value


def _draft(item: Item, raw: bytes, *, names: tuple[str, str], title: str, said: str, license_: str | None) -> Draft:
    topic, name = names
    facts = {"title": _line(title, 80), "summary": _line(said, 160), "outcome": "works", "tags": ["unverified"]}
    readme = f"# {_line(title, 80)}\n\n{_line(said, 400)}\n\nAs published; unverified.\n"
    file = {item.files[0].name: raw}
    return Draft(
        f"technique/{topic}/{name}", facts, readme, file, provenance_of(item.files[0], item.tree, raw), license_
    )


def _capabilities(body: dict[str, Any]) -> list[str]:
    kernels = body.get("kernel")
    found: set[str] = set()
    for kernel in kernels.values() if isinstance(kernels, dict) else ():
        stated = kernel.get("cuda-capabilities") if isinstance(kernel, dict) else None
        if isinstance(stated, list):
            found.update(one for one in stated if isinstance(one, str))
    return sorted(found)


class GpuMode:
    """Problems of GPU MODE; their dtypes are in code beside them, so none is taken from the prose."""

    name = "gpumode"
    summary = "GPU MODE: task.yml"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim ``task.yml``."""
        return [Item(folder.tree, (file,)) for file in folder.files if file.name == "task.yml"]

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of a problem.

        Raises:
            SourceFormatError: It is no YAML, or lacks its test cases.
        """
        del context
        raw = item.tree.read(item.path, limit=_MOST_BYTES)
        body = yaml_of(raw)
        if not isinstance(body, dict) or not isinstance(body.get("tests"), list):
            raise SourceFormatError("expected a mapping with a list of tests")
        timed = body.get("benchmarks")
        count = len(timed) if isinstance(timed, list) else 0
        place = "-".join(item.path.split("/")[-3:-1])
        said = f"GPU MODE problem: {len(body['tests'])} tests, {count} timed shapes; dtypes not taken from its prose"
        names = ("gpumode", slug(place or "task"))
        yield _draft(
            item, raw, names=names, title=f"Problem {place}", said=said, license_=of_file(item.tree, item.path, raw)
        )


class HfKernels:
    """Build files of HF kernels."""

    name = "hf-kernels"
    summary = "HF kernels: build.toml"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim ``build.toml``."""
        return [Item(folder.tree, (file,)) for file in folder.files if file.name == "build.toml"]

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of a build file; its own statement of a license comes first.

        Raises:
            SourceFormatError: It is no TOML, or no build file of a kernel.
        """
        del context
        raw = item.tree.read(item.path, limit=_MOST_BYTES)
        body = _toml_of(raw)
        general = body.get("general")
        if not isinstance(general, dict) or not isinstance(general.get("name"), str):
            raise SourceFormatError("expected [general] with a name")
        stated = general.get("license")
        license_ = spdx(stated) if isinstance(stated, str) else of_file(item.tree, item.path, raw)
        archs = ", ".join(_capabilities(body)) or "all that its builder supports"
        said = f"Build of {general['name']}; CUDA capabilities: {archs}"
        names = ("hf_kernels", slug(general["name"]))
        yield _draft(item, raw, names=names, title=f"Build of {general['name']}", said=said, license_=license_)


IMPORTERS = (GpuMode(), HfKernels())
