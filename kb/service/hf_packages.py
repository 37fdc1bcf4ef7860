"""Our own kernels as packages of HF kernels: a source that its builder takes, and the build that its loader takes.

A kernel of ours is one file of Python that needs torch and perhaps Triton, so nothing is compiled: the build
(``torch-cuda``) is the program text, its ``metadata.json`` and the digests of all files.

Source:
    kernels 0.17.2 (``kernels.importer``, ``kernels.variants``, ``kernels.archs``) and huggingface/kernels-community.
"""

import base64
import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from kb.config import Root
from kb.importers.base import Exported, Filed, Skipped
from kb.importers.carried import with_notice
from kb.importers.naming import slug
from kb.store import layout

_EDITION = 5
"""Of the builder's format."""
_KNOWN = frozenset({"torch", "triton"})
"""Packages that come with torch; its loader knows few others."""
_PORTABLE = frozenset({"python", "torch"})
"""Languages of kernels that run wherever torch does."""
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")
_PYTHON = "torch-ext"


class Packages:
    """One export of our kernels as packages."""

    def __init__(self, root: Root, standing: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what stands for the entries, of which this format has no word."""
        del root, standing

    @staticmethod
    def holds(entry: Filed) -> bool:
        """Tell whether an entry is a kernel that is called through a function of a Python file."""
        return entry.id.startswith("kernel/") and ".py:" in str(entry.facts.get("entry_point", ""))

    def written(self, entry: Filed, made: Container[str]) -> Iterator[Exported | Skipped]:
        """Write one kernel: ``build.toml``, its program text, and a build for each backend.

        Args:
            entry: One that :meth:`holds` lets pass.
            made: Paths that are written already.
        """
        facts = entry.facts
        file, _, function = str(facts["entry_point"]).partition(":")
        others = sorted(name for name in entry.files if layout.is_candidate(name) and name != file)
        packages = sorted(set(facts.get("requires", {}).get("packages", {})) - _KNOWN)
        if others or packages:
            wants = f"runs {file} with {', '.join(others)}" if others else f"needs {', '.join(packages)}"
            yield Skipped(entry.id, f"a package without a build is one file with torch alone; this {wants}"[:300])
            return
        name = package_name(entry.id)
        if f"{name}/build.toml" in made:
            yield Skipped(entry.id, f"an imported package has the name {name}")
            return
        license_ = str(facts["license"])
        module = name.replace("-", "_")
        code = with_notice(entry.files[file].decode(), license_, file.rpartition(".")[2]).encode()
        sources = {"__init__.py": _init(entry, file, function, license_), file: code}
        backends = ["cpu", "cuda"] if facts.get("language") in _PORTABLE else ["cuda"]
        yield Exported(f"{name}/build.toml", _build(entry, name, license_, backends), entry.id)
        yield Exported(f"{name}/README.md", entry.readme.encode(), entry.id)
        for path, body in sources.items():
            yield Exported(f"{name}/{_PYTHON}/{module}/{path}", body, entry.id)
        for backend in backends:
            folder = f"{name}/build/torch-{backend}"
            for path, body in sources.items():
                yield Exported(f"{folder}/{path}", body, entry.id)
            metadata = _metadata(entry, name, license_, backend, sources)
            yield Exported(f"{folder}/metadata.json", metadata, entry.id)


def package_name(entry: str) -> str:
    """Return the name under which a kernel goes out: lower-case letters, digits and hyphens, a letter first."""
    return slug("kb", *entry.split("/")[1:])


def _init(entry: Filed, file: str, function: str, license_: str) -> bytes:
    said = json.dumps(f"{entry.facts['title']} (kernel-kb {entry.id}, version {entry.version}).", ensure_ascii=False)
    name = file.rpartition(".")[0].replace("/", ".")
    text = f"from .{name} import {function}\n\n__doc__ = {said}\n__all__ = [{json.dumps(function)}]\n"
    return with_notice(text, license_, "py").encode()


def _build(entry: Filed, name: str, license_: str, backends: list[str]) -> bytes:
    lines = [
        "[general]",
        f"name = {json.dumps(name)}",
        f"version = {entry.version}",
        f"edition = {_EDITION}",
        f"license = {json.dumps(license_)}",
        f"backends = {json.dumps(backends)}",
        "",
        "[torch-noarch]",
        "",
        "[kernel]",
        "",
    ]
    return "\n".join(lines).encode()


def _metadata(entry: Filed, name: str, license_: str, backend: str, sources: Mapping[str, bytes]) -> bytes:
    digests = {path: base64.b64encode(hashlib.sha256(body).digest()).decode() for path, body in sorted(sources.items())}
    mark = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:7]
    archs = _archs(entry.facts.get("requires", {}).get("arch", ())) if backend == "cuda" else []
    body = {
        "name": name,
        "id": f"_{name.replace('-', '_')}_{backend}_{mark}",
        "version": entry.version,
        "license": license_,
        "python-depends": [],
        "backend": {"type": backend, **({"archs": archs} if archs else {})},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return (json.dumps(body, indent=2) + "\n").encode("ascii")


def _archs(stated: object) -> list[str]:
    """Return compute capabilities as the format has them: ``sm_100a`` is ``10.0a``."""
    texts = stated if isinstance(stated, list | tuple) else ()
    found = [match for one in texts if (match := _ARCH.fullmatch(str(one)))]
    return [f"{one.group(1)}.{one.group(2)}{one.group(3)}" for one in found]
