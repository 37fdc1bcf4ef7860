"""Import what the field already has: walk, parse, gate, find duplicates and copies, and file all of it or nothing."""

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from kb.config import Root
from kb.errors import ConfigError, ImporterError, SourceFormatError
from kb.importers import registry
from kb.importers.base import Context, Draft, Folder, Importer, Item
from kb.importers.tree import MANIFEST, Listing, SourceFile, Tree
from kb.service import parsing_apart
from kb.service.drafts import Shelf, Verdict
from kb.service.parsing import Line, Noted, Rules
from kb.service.parsing_apart import Walked
from kb.service.sources import Stated, opened
from kb.store import bulk

_PROSE = (".md", ".rst", ".txt", ".html", ".pdf", ".png", ".svg")
_PROSE_NAMES = ("license", "notice", "copying", "authors", "codeowners", MANIFEST.lower())

Progress = Callable[[str, int, int | None], None]
"""Called with the stage, how much is done, and the total if it is known."""


@dataclass(frozen=True)
class Options:
    """How to import."""

    format: str | None = None
    """Only this importer; None for whichever knows a file."""
    write: bool = False
    stated: Stated = field(default_factory=Stated)
    allow_licenses: frozenset[str] = frozenset()
    context: Context = field(default_factory=Context)
    jobs: int = 1
    """Most processes that parse; 1 for this very process."""


@dataclass
class Report:
    """What an import did, or would do."""

    source: str
    written: bool
    lines: list[Line] = field(default_factory=list)
    files: int = 0
    """Files seen."""
    fates: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """File → what became of it (``imported``, ``refused``, ``left``) and the format that took it."""

    @property
    def counts(self) -> Mapping[str, int]:
        """State → number of lines."""
        return Counter(line.state for line in self.lines)

    @property
    def copies(self) -> int:
        """Drafts whose values repeat another's."""
        return sum(line.copy_of is not None for line in self.lines)

    def note(self, line: Line, files: Sequence[str] = ()) -> None:
        """Take one line, and what it means for the files behind it: one draft of a file is enough."""
        self.lines.append(line)
        fate = {"refused": "refused", "left": "left"}.get(line.state, "imported")
        for path in files or (line.path.partition("#")[0],):
            known = self.fates.get(path)
            if known is None or (known[0] != "imported" and fate == "imported"):
                self.fates[path] = (fate, line.format)


def run(root: Root, source: str, options: Options, *, progress: Progress | None = None) -> Report:
    """Import a source; without ``options.write`` only say what would be done.

    Args:
        root: The knowledge base.
        source: A path or the address of a git repository.
        options: How.
        progress: Told what is being done.

    Returns:
        One line a draft and one for every file without; nothing is left out silently.

    Raises:
        ConfigError: The knowledge base cannot be added to.
        SourceUnavailableError: The source cannot be read.
        SourceFormatError: The source as a whole is broken or hostile.
        StoreError: The entries cannot be written; nothing was changed then.
    """
    if options.write and root.packaged:
        raise ConfigError(
            "the starter entries of the installation are never written to",
            hint="kb init DIR, then kb import --root DIR",
        )
    if not root.entries.is_dir():
        raise ConfigError(f"no folder {root.entries}", hint=f"kb init {root.path}")
    asked = (registry.importer(options.format),) if options.format else registry.importers()
    report = Report(source, options.write)
    tell = progress or (lambda _stage, _done, _total: None)
    with ExitStack() as stack:
        tree = stack.enter_context(opened(source, options.stated))
        spool = stack.enter_context(tempfile.TemporaryFile())
        shelf = Shelf(root.entries)
        _parse_all(_items(tree, asked, report), options, spool, shelf, report, tell)
        filing = stack.enter_context(bulk.filing(root.entries)) if options.write else None
        spool.seek(0)
        for done, (name, draft, files) in enumerate(_spooled(spool), start=1):
            verdict = shelf.judge(draft)
            report.note(_line(name, draft, verdict, files[0]), files)
            if filing is not None and verdict.state in ("add", "update"):
                filing.stage(verdict.id, verdict.files)
            if done % 100 == 0:
                tell("filing" if options.write else "checking", done, shelf.drafts)
        tell("filing" if options.write else "checking", shelf.drafts, shelf.drafts)
    return report


def _line(name: str, draft: Draft, verdict: Verdict, file: str) -> Line:
    refused = verdict.state == "refused"
    return Line(
        state=verdict.state,
        path=draft.provenance.path,
        format=name,
        file=file,
        id=None if refused else verdict.id,
        version=verdict.version,
        evidence=None if refused else draft.evidence,
        license=draft.license,
        copy_of=verdict.copy_of,
        reason=verdict.reason,
    )


def _spooled(spool: IO[bytes]) -> Iterator[tuple[str, Draft, tuple[str, ...]]]:
    with suppress(EOFError):
        while True:
            yield pickle.load(spool)  # noqa: S301 - written by processes of our own


def _parse_all(
    walked: Iterator[Walked], options: Options, spool: IO[bytes], shelf: Shelf, report: Report, tell: Progress
) -> None:
    """Spool all drafts that pass the license gate; nothing is held in memory but digests."""
    rules = Rules(options.context, options.allow_licenses)
    with closing(parsing_apart.outcomes(walked, rules, jobs=options.jobs)) as found:
        for done, one in enumerate(found):
            if isinstance(one, Noted):
                report.note(one.line, one.files)
            else:
                shelf.expect(one.id, values=one.values, device=one.device)
                spool.write(one.body)
            if done % 10 == 0:
                tell("reading", report.files, None)


def _items(tree: Tree, asked: Sequence[Importer], report: Report) -> Iterator[Walked]:
    """Walk once; every importer is offered what the ones before it left."""
    whole: set[str] = set()
    for listing in tree.walk(whole):
        report.files += len(listing.files) + len(listing.left_out)
        named: dict[str, SourceFile] = {}
        yield from _looked_through(listing, named)
        for importer in asked:
            for item in _discovered(importer, Folder(tree, listing.path, tuple(named.values()))):
                for file in item.files:
                    named.pop(file.path, None)
                if item.whole:
                    whole.add(listing.path)
                if tree.only is None or any(file.path == tree.only for file in item.files):
                    yield importer, item
        for file in named.values():
            if tree.only is None or file.path == tree.only:
                yield _unclaimed(file, asked)


def _looked_through(listing: Listing, named: dict[str, SourceFile]) -> Iterator[Line]:
    """Take the files of a folder whose names can be used; yield a line for each of the others."""
    for path, reason in listing.left_out:
        yield Line("refused", path, None, reason=reason)
    for file in listing.files:
        fault = _name_fault(file.path)
        if fault is None:
            named[file.path] = file
        else:
            shown = file.path.encode("utf-8", "backslashreplace").decode()
            yield Line("refused", shown, None, reason=fault)


def _discovered(importer: Importer, folder: Folder) -> Sequence[Item]:
    try:
        return tuple(importer.discover(folder))
    except (SourceFormatError, ValueError, KeyError, TypeError, OSError) as error:
        raise ImporterError(f"{importer.name} fails on the folder {folder.path or '.'}: {error}") from error


def _name_fault(path: str) -> str | None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is no UTF-8"
    return None if path.isprintable() else "its name has characters that cannot be printed"


def _unclaimed(file: SourceFile, asked: Sequence[Importer]) -> Line:
    lowered = file.name.lower()
    if lowered.endswith(_PROSE) or lowered.startswith(_PROSE_NAMES):
        return Line("left", file.path, None, reason="prose or a list of names, not data")
    known = f"it is not of the format {asked[0].name}" if len(asked) == 1 else "no importer knows this format"
    return Line("refused", file.path, None, reason=known)


def options_of(
    *,
    format_: str | None,
    write: bool,
    stated: tuple[str | None, str | None, str | None],
    allow: Sequence[str],
    device: str | None,
    toolchain: Sequence[str],
    jobs: int = 1,
) -> Options:
    """Read options as a user writes them.

    Args:
        format_: Name of an importer.
        write: Whether to file.
        stated: Repository, commit and license of files that state none.
        allow: Licenses beyond the list.
        device: For formats that name none.
        toolchain: ``NAME=VERSION`` each.
        jobs: Most processes that parse, from 1.

    Raises:
        ConfigError: A toolchain is not of that form.
    """
    versions = {}
    for one in toolchain:
        name, equals, version = one.partition("=")
        if not (name and equals and version):
            raise ConfigError(f"toolchain: expected NAME=VERSION, found {one!r}", hint="--toolchain triton=3.6.0")
        versions[name] = version
    return Options(format_, write, Stated(*stated), frozenset(allow), Context(device, versions), jobs)


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        "source": report.source,
        "written": report.written,
        "files": report.files,
        "counts": dict(report.counts),
        "copies": report.copies,
        "lines": [{name: value for name, value in vars(line).items() if value is not None} for line in report.lines],
    }
