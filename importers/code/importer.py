"""The importer of kernels in program text: Python, CUDA and HIP files of a repository, folder or archive."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kb.errors import SourceFormatError
from kb.importers.base import Context, Draft, Folder, Item, Skipped, provenance_of
from kb.importers.code import cuda_text, mapping, notices, triton_text
from kb.importers.code.mapping import Meaning
from kb.importers.code.parts import Kernel, copyright_lines
from kb.importers.naming import slug, topic
from kb.importers.reading import text_of
from kb.importers.repository.tree import GitTree

_MAX_BYTES = 1 << 20
"""Of a file that is taken apart; generated ones are larger."""
_MOST_KERNELS = 200
_PYTHON = (".py",)
_CUDA = (".cu", ".cuh", ".hip")
_HEADERS = (".h", ".hpp", ".hh", ".inl")


@dataclass(frozen=True)
class KernelDraft(Draft):
    """A draft that is the same as another one if their kernels are, wherever they stand."""

    normal: str = ""
    """Digest of the kernel without comments, blanks and places."""

    @property
    def content(self) -> str:
        """Digest that tells kernels apart."""
        return self.normal


class KernelCode:
    """Kernels of program text, found by syntax."""

    name = "kernel-code"
    summary = "Triton, Gluon, CUDA and HIP kernels in program text"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim program text; whether a kernel is in it is seen when it is read."""
        found = []
        for file in folder.files:
            suffix = "." + file.name.rpartition(".")[2].lower()
            header = suffix in _HEADERS and cuda_text.MARK in folder.tree.head(file.path, _MAX_BYTES)
            if header or suffix in _PYTHON + _CUDA:
                found.append(Item(folder.tree, (file,)))
        return found

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of every kernel of a file.

        Raises:
            SourceFormatError: A file with kernels cannot be read.
        """
        del context
        if item.files[0].size > _MAX_BYTES:
            yield Skipped(
                item.path, f"expected at most {_MAX_BYTES:,} bytes of program text, found {item.files[0].size:,}"
            )
            return
        raw = item.tree.read(item.path, limit=_MAX_BYTES)
        python = item.path.endswith(_PYTHON)
        if not (triton_text.MARK.search(raw) if python else cuda_text.MARK in raw):
            yield Skipped(item.path, "program text without a kernel", refused=False)
            return
        text = text_of(raw)
        found = triton_text.kernels_of(text) if python else cuda_text.kernels_of(text, hip=_is_hip(item.path, raw))
        kernels = list(found)
        if not kernels:
            yield Skipped(item.path, "program text without a kernel", refused=False)
        if len(kernels) > _MOST_KERNELS:
            raise SourceFormatError(f"expected at most {_MOST_KERNELS} kernels in a file, found {len(kernels)}")
        stated = notices.license_of(item.tree, item.path, raw)
        seen: dict[str, int] = {}
        for kernel in kernels:
            seen[kernel.name] = seen.get(kernel.name, 0) + 1
            yield _draft(item, raw, text, kernel, stated, seen[kernel.name])


def _is_hip(path: str, raw: bytes) -> bool:
    return path.endswith(".hip") or b"hip/hip_runtime" in raw or b"__builtin_amdgcn" in raw


def _line(text: str, most: int) -> str:
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def _draft(item: Item, raw: bytes, text: str, kernel: Kernel, stated: str | None, number: int) -> Draft:
    path = item.path
    meaning = mapping.meaning_of(kernel, path)
    kind = {"triton": "Triton", "gluon": "Gluon", "cuda": "CUDA", "hip": "HIP"}[kernel.language]
    where = provenance_of(item.files[0], item.tree, raw)
    said = f"Unverified {kind} kernel {kernel.name} of {where.repository}; {_meant(meaning)}"
    facts: dict[str, object] = {
        "title": _line(f"{kernel.name} of {where.repository}", 80),
        "summary": _line(said, 160),
        "outcome": "works",
        "language": kernel.language,
        "tags": ["kernel-code", kernel.language.replace("_", "-"), "unverified"],
        "symbols": {"profiler_names": [kernel.name]},
    }
    if meaning.operator is not None:
        facts["operator"] = meaning.operator
    elif meaning.part_of is not None:
        facts["applies_to"] = [meaning.part_of]
    suffix = "py" if kernel.language in ("triton", "gluon") else kernel.language.replace("cuda", "cu")
    note = "# " if suffix == "py" else "// "
    kept = "".join(f"{note}{one}\n" for one in copyright_lines(text))
    files = {f"kernel.{suffix}": f"{kept}\n{kernel.text}".encode() if kept else kernel.text.encode()}
    if kernel.configs is not None:
        files["autotune.json"] = (json.dumps(kernel.configs, indent=2, allow_nan=False) + "\n").encode()
    files |= notices.texts(item.tree, path, stated)
    blob = item.tree.blob_of(path) if isinstance(item.tree, GitTree) else None
    place = meaning.operator or meaning.part_of or topic(where.repository.rpartition("/")[2])
    name = slug(kernel.name, path.rsplit("/", 1)[-1].rpartition(".")[0], f"n{number}" if number > 1 else "")
    return KernelDraft(
        f"technique/{place}/{name}",
        facts,
        _readme(item, kernel, meaning, blob),
        files,
        replace(where, note=f"{kernel.name}{f', number {number} of that name' if number > 1 else ''}"),
        stated,
        normal=kernel.normal,
    )


def _meant(meaning: Meaning) -> str:
    if meaning.operator is not None:
        return f"computes {meaning.operator} by signature and body, confidence {meaning.confidence:.2f}"
    if meaning.part_of is not None:
        return f"part of {meaning.part_of}, confidence {meaning.confidence:.2f}"
    if meaning.nearest is not None:
        return f"no operator; nearest {meaning.nearest} ({meaning.confidence:.2f})"
    return "no operator"


def _readme(item: Item, kernel: Kernel, meaning: Meaning, blob: str | None) -> str:
    first, last = kernel.lines
    lines = [
        f"# {_line(kernel.name, 100)}",
        "",
        f"As published, unverified; it was not run. {_line(_meant(meaning), 200)}: {_line(meaning.reason, 200)}.",
        "",
        f"- Lines {first} to {last} of `{_line(item.path, 200)}`" + (f", blob `{blob}`" if blob else ""),
    ]
    changes = item.tree.objects.history(item.path) if isinstance(item.tree, GitTree) else ()
    if changes:
        lines.append("- Changed by " + ", ".join(f"`{each.commit[:12]}` ({each.date})" for each in changes))
    elif isinstance(item.tree, GitTree):
        lines.append("- Its last change is older than the history that is there")
    lines += [f"- {title}: {_listed(names)}" for title, names in (
        ("Parameters", [f"{each.name} ({each.kind})" for each in kernel.parameters]),
        ("With it", kernel.helpers),
        ("Launched by", kernel.launchers),
        ("Needs from other files", kernel.elsewhere),
        ("Does", sorted(kernel.features)),
    ) if names]  # fmt: skip
    if kernel.configs is not None:
        found = kernel.configs.get("configs")
        count = len(found) if isinstance(found, list) else 0
        lines.append(f"- Tuned over {count} configurations (`autotune.json`)" if kernel.configs["complete"]
                     else "- Tuned over configurations that are computed (`autotune.json` has their text)")  # fmt: skip
    return "\n".join(lines) + "\n"


def _listed(names: Iterable[str]) -> str:
    shown = [re.sub(r"[`\s]", "", each) if "(" not in each else each for each in names]
    more = f" and {len(shown) - 24} more" if len(shown) > 24 else ""
    return _line(", ".join(shown[:24]) + more, 900)


IMPORTER = KernelCode()
