"""HF kernels, both ways: build files, the metadata of builds, and lock files, byte for byte."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped, provenance_of
from kb.importers.descriptions import MOST_BYTES, line_of, toml_of
from kb.importers.license import of_file, spdx
from kb.importers.naming import slug
from kb.importers.reading import json_of, object_of

TOPIC = "hf_kernels"
_METADATA = (re.compile(rb'"backend"\s*:'), re.compile(rb'"(digest|provenance|python-depends)"\s*:'))
_HEAD = 4096
_DEPTH = 12
_LOCK = "kernels.lock"
_HELD_AS = {"build.toml": "build.toml", "metadata.json": "metadata.json", "kernels_lock.json": _LOCK}
"""File of the entry → name that its readers look for; a store takes no suffix ``lock``."""
_BUILDERS = frozenset({"build-variants.json", "cuda_supported_archs.json"})
_BACKENDS = frozenset({"cpu", "cuda", "rocm", "xpu", "metal", "npu", "neuron", "cann"})


def _capabilities(body: dict[str, Any]) -> list[str]:
    kernels = body.get("kernel")
    found: set[str] = set()
    for kernel in kernels.values() if isinstance(kernels, dict) else ():
        stated = kernel.get("cuda-capabilities") if isinstance(kernel, dict) else None
        if isinstance(stated, list):
            found.update(one for one in stated if isinstance(one, str))
    return sorted(found)


class HfKernels:
    """Build files, metadata and lock files of HF kernels."""

    name = "hf-kernels"
    summary = "HF kernels: build.toml, metadata.json, kernels.lock"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim build and lock files by their names, metadata by its fields."""
        for file in folder.files:
            if file.name in ("build.toml", _LOCK):
                yield Item(folder.tree, (file,), extra={"kind": file.name})
            elif file.name in _BUILDERS:
                yield Item(folder.tree, (file,), extra={"kind": "builder"})
            elif file.name.endswith(".json"):
                head = folder.tree.head(file.path, _HEAD)
                if all(field.search(head) for field in _METADATA):
                    yield Item(folder.tree, (file,), extra={"kind": "metadata.json"})

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of a file; its own statement of a license comes first.

        Raises:
            SourceFormatError: It is not of its format.
        """
        del context
        kind = item.extra["kind"]
        if kind == "builder":
            yield Skipped(item.path, "what the builder supports: it describes no kernel", refused=False)
        elif kind == "build.toml":
            yield _build(item)
        elif kind == _LOCK:
            yield _lock(item)
        else:
            yield _metadata(item)

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry came from one of the files."""
        return entry.id.startswith(f"technique/{TOPIC}/") and any(name in entry.files for name in _HELD_AS)

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Write the files as they came, each in a folder of its entry's name."""
        for entry in entries:
            held = next((name for name in _HELD_AS if name in entry.files), None)
            if held is None or not self.can_export(entry):
                yield Skipped(entry.id, "neither a build file, metadata nor a lock file of HF kernels")
                continue
            yield Exported(f"{entry.id.rsplit('/', 1)[-1]}/{_HELD_AS[held]}", entry.files[held], entry.id)


def _draft(item: Item, raw: bytes, name: str, *, held: str, title: str, said: str, license_: str | None) -> Draft:
    facts = {"title": line_of(title, 80), "summary": line_of(said, 160), "outcome": "works", "tags": ["unverified"]}
    readme = f"# {line_of(title, 80)}\n\n{line_of(said, 400)}\n\nAs published; unverified.\n"
    where = provenance_of(item.files[0], item.tree, raw)
    return Draft(f"technique/{TOPIC}/{name}", facts, readme, {held: raw}, where, license_)


def _build(item: Item) -> Draft:
    raw = item.tree.read(item.path, limit=MOST_BYTES)
    body = toml_of(raw)
    general = body.get("general")
    if not isinstance(general, dict) or not isinstance(general.get("name"), str):
        raise SourceFormatError("expected [general] with a name")
    stated = general.get("license")
    license_ = spdx(stated) if isinstance(stated, str) else of_file(item.tree, item.path, raw)
    archs = ", ".join(_capabilities(body)) or "all that its builder supports"
    said = f"Build of {general['name']}; CUDA capabilities: {archs}"
    title = f"Build of {general['name']}"
    return _draft(item, raw, slug(general["name"]), held="build.toml", title=title, said=said, license_=license_)


def _metadata(item: Item) -> Draft:
    raw = item.tree.read(item.path, limit=MOST_BYTES)
    body = object_of(raw, depth=_DEPTH)
    backend = body.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else None
    if kind not in _BACKENDS:
        raise SourceFormatError(f"field backend.type: expected one of {', '.join(sorted(_BACKENDS))}")
    version = body.get("version")
    if version is not None and (type(version) is not int or version < 0):
        raise SourceFormatError(f"field version: expected a whole number, found {version!r:.40}")
    parent = item.path.split("/")[-2] if "/" in item.path else "build"
    name = next((body[one] for one in ("name", "id") if isinstance(body.get(one), str) and body[one]), parent)
    build = body["id"] if isinstance(body.get("id"), str) and body["id"] else parent
    digest = body.get("digest")
    files = digest.get("files") if isinstance(digest, dict) else None
    if files is not None and not isinstance(files, dict):
        raise SourceFormatError("field digest.files: expected an object of paths")
    archs = backend.get("archs") if isinstance(backend, dict) else None
    stated = body.get("license")
    for_ = f" for {', '.join(map(str, archs))}" if isinstance(archs, list) and archs else ""
    said = f"A build of {name}, version {version if version is not None else 'not stated'}, {kind}{for_}"
    said += f"; digests of {len(files)} files" if files else ""
    license_ = spdx(stated) if isinstance(stated, str) else of_file(item.tree, item.path, raw)
    title = f"Metadata of {name}, {kind}"
    return _draft(
        item, raw, slug("metadata", name, build), held="metadata.json", title=title, said=said, license_=license_
    )


def _lock(item: Item) -> Draft:
    raw = item.tree.read(item.path, limit=MOST_BYTES)
    rows = json_of(raw, depth=_DEPTH)
    if not isinstance(rows, list) or not rows:
        raise SourceFormatError("expected a list of locked kernels")
    names = []
    for number, row in enumerate(rows):
        wanted = isinstance(row, dict) and isinstance(row.get("repo_id"), str) and isinstance(row.get("variants"), dict)
        if not wanted or not re.fullmatch(r"[0-9a-f]{40}", str(row.get("sha"))):
            raise SourceFormatError(f"kernel {number}: expected repo_id, a commit's sha and variants")
        names.append(row["repo_id"])
    variants = sum(len(row["variants"]) for row in rows)
    said = f"{len(rows)} kernels at fixed commits, {variants} builds with digests: {', '.join(names)}"
    name = slug("lock", *names[:3], len(rows) if len(rows) > 3 else "")
    license_ = of_file(item.tree, item.path, raw)
    return _draft(item, raw, name, held="kernels_lock.json", title="Lock of HF kernels", said=said, license_=license_)


IMPORTER = HfKernels()
