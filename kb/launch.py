"""The console script: the few commands that must start fast, on the standard library; all else goes to ``kb.cli``.

``search``, ``show``, ``list`` and ``--version`` read the catalogue with ``sqlite3`` alone. A stale or missing one is
brought up to date first, which loads the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence

from kb.errors import ConfigError, EntryNotFoundError, IndexStaleError, KbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import sqlite3
    from pathlib import Path
    from typing import Any, NoReturn, TextIO

    from kb.config import Root
    from kb.retrieval.filters import Scope

FAST = frozenset({"search", "show", "list"})
"""Commands that run here."""

SLOW_OPTIONS = frozenset({"--tier"})
"""Options of those commands that need more than the standard library."""

_PIPE_CLOSED = 141
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; those of the process if None.

    Returns:
        The exit code: 0, that of the error, 130 after an interrupt, 141 if nobody reads the output any more.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _quiet(_PIPE_CLOSED)
    except KbError as error:
        if "--debug" in arguments:
            raise
        _say(f"kb: {error.message}")
        if error.hint:
            _say(f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        return _quiet(_INTERRUPTED)
    except OSError as error:
        if "--debug" in arguments:
            raise
        _say(f"kb: {error.filename or 'the output'}: {error.strerror or error}")
        return _quiet(1)


def _mend_streams() -> None:
    """Give a process that was started with closed streams some that nobody reads, and let every text be written."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - stays open to the end
        stream = getattr(sys, name)
        # A title may have characters that the terminal's encoding lacks; that is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _quiet(code: int) -> int:
    """Point stdout nowhere, so that the interpreter's last flush finds an open file."""
    try:  # noqa: SIM105 - contextlib is slow to import
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    return code


def _run(argv: list[str]) -> int:
    if argv[:1] in (["--version"], ["-V"]):
        from kb import __version__

        _write([f"kb {__version__}"])
        return 0
    if argv and argv[0] in FAST and not SLOW_OPTIONS.intersection(argv):
        return {"search": _search, "show": _show, "list": _list}[argv[0]](argv[1:])
    if argv[:1] == ["mcp"] and (len(argv) == 1 or (argv[1] == "--root" and len(argv) == 3)):
        # An agent's host waits for this one at its own start: it needs nothing of what reads other commands' options.
        from kb.server.stdio import serve

        serve(argv[2] if len(argv) == 3 else None, bare=False, say=lambda words: _say(f"kb: {words}"))
        return 0
    return _slow(argv)


def _slow(argv: list[str]) -> int:
    from kb.cli.main import run

    return int(run(argv))


def _say(text: str, stream: TextIO | None = None) -> None:
    from kb import plain

    (stream or sys.stderr).write(plain.neutral(text) + "\n")


def _write(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _write_json(value: object) -> None:
    import json

    # ASCII only: a stored control character or an exotic encoding of stdout can do no harm.
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _parser(command: str, description: str, usage: str) -> argparse.ArgumentParser:
    import argparse

    from kb import plain

    class Parser(argparse.ArgumentParser):
        """Reports usage errors as every other error is reported."""

        def error(self, message: str) -> NoReturn:
            raise ConfigError(message + _near_options(self, message), hint=f"kb {command} --help")

    def formatter(prog: str) -> argparse.HelpFormatter:
        # Given a width, it need not import shutil to ask for one, which it would do for every argument added.
        return argparse.HelpFormatter(prog, width=plain.terminal_width() - 2)

    parser = Parser(
        prog=f"kb {command}",
        usage=f"kb {command} {usage}[options]",
        description=description,
        formatter_class=formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", metavar="DIR", help="the knowledge base; else KB_ROOT, the folder above, the starter")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _near_options(parser: argparse.ArgumentParser, message: str) -> str:
    if not message.startswith("unrecognized arguments: -"):
        return ""
    import difflib

    known = [option for action in parser._actions for option in action.option_strings]
    near = difflib.get_close_matches(message.split()[2].split("=")[0], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", help="kernel, allocation, comm, config, technique, combination, target or campaign")
    parser.add_argument("--operator", metavar="O", help="an operator (rmsnorm) or a family of them (moe)")
    parser.add_argument("--dtype", metavar="D", help="a dtype in any spelling: nvfp4, bf16, fp8")
    parser.add_argument("--arch", metavar="A", help="an architecture: sm_90, gfx942")
    parser.add_argument("--device", metavar="NAME", help="a device or family: 'NVIDIA H200', H100, hopper")
    parser.add_argument(
        "--outcome", metavar="X", help="works, regression, no_effect, incorrect, infeasible, inconclusive"
    )
    parser.add_argument("--withdrawn", action="store_true", help="show withdrawn entries as well")


def _words_and_options(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[argparse.Namespace, str]:
    """Let words and options stand in any order; argparse's own way to do so formats the help first, which is slow."""
    cut = argv.index("--") if "--" in argv else len(argv)
    options, rest = parser.parse_known_args(argv[:cut])
    unknown = [word for word in rest if word.startswith("-") and word[1:2] not in "0123456789."]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options, " ".join([*rest, *argv[cut + 1 :]])


def _scope(connection: sqlite3.Connection, options: argparse.Namespace) -> Scope:
    from kb.retrieval import filters

    return filters.make(
        connection,
        kind=options.kind,
        operator=options.operator,
        dtype=options.dtype,
        arch=options.arch,
        device=options.device,
        outcome=options.outcome,
        withdrawn=options.withdrawn,
    )


def _search(argv: list[str]) -> int:
    parser = _parser(
        "search", "Search the knowledge base in the words you use: kb search 'nvfp4 moe grouped gemm'", "WORDS… "
    )
    _add_filters(parser)
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="most hits to print (10)")
    parser.add_argument("--semantic", action="store_true", help="use embeddings too (extra: semantic)")
    options, query = _words_and_options(parser, argv)

    def ask(connection: sqlite3.Connection) -> object:
        scope = _scope(connection, options)
        if options.semantic:
            return _by_meaning(connection, query, scope, options)
        from kb.retrieval import retriever

        return retriever.search(connection, query, scope=scope, limit=options.limit)

    answer: Any = _with_catalogue(options.root, ask)
    if options.json:
        _write_json(answer.to_json())
        return 0
    from kb import plain

    _write(plain.answer(answer, width=plain.terminal_width()))
    for note in answer.notes:
        _say(f"note: {note}")
    return 0


def _by_meaning(connection: sqlite3.Connection, query: str, scope: Scope, options: argparse.Namespace) -> object:
    """Search by words and meaning: loads an embedder, but neither Chroma nor the command line's other packages."""
    from kb.config import find_root
    from kb.service.embedding import search_semantic

    few, said = 8, False  # a few take no longer than it takes to read that they are embedded

    def progress(done: int, total: int) -> None:
        nonlocal said
        if not said and total - done > few:
            said = True
            _say(f"embedding {total:,} entries for search by meaning…")

    root = find_root(options.root)
    return search_semantic(root, connection, query, scope=scope, limit=options.limit, progress=progress)


def _list(argv: list[str]) -> int:
    parser = _parser("list", "List the entries of the knowledge base.", "")
    _add_filters(parser)
    parser.add_argument("--evidence", action="store_true", help="what is proven, where, and the best figure")
    options = parser.parse_args(argv)

    def ask(connection: sqlite3.Connection) -> object:
        from kb.retrieval import browse

        return browse.listing(connection, _scope(connection, options), figures=options.evidence)

    entries: Any = _with_catalogue(options.root, ask)
    if options.json:
        _write_json(entries)
        return 0
    from kb import plain

    lines = plain.evidence_listing if options.evidence else plain.listing
    _write(lines(entries, width=plain.terminal_width()))
    if not entries:
        _say("no entry is in this scope")
    return 0


def _show(argv: list[str]) -> int:
    parser = _parser("show", "Show one entry: facts, files, prose.", "ID[@VERSION] ")
    parser.add_argument("id", metavar="ID[@VERSION]", help="kernel/rmsnorm/row-per-cta, or a slug that one entry has")
    options = parser.parse_args(argv)
    name, at, version = options.id.rpartition("@")
    if not at:
        name = version
    elif not version.isdecimal():
        raise ConfigError(f"expected a version number after @, found {version!r}", hint="kb show ID@2")

    def ask(connection: sqlite3.Connection) -> object:
        from kb.retrieval import browse

        return browse.get(connection, name)

    try:
        found: Any = _with_catalogue(options.root, ask)
    except EntryNotFoundError:
        if not at:
            raise
        found = None
    if at and (found is None or int(version) != found["version"]):
        # Older versions come from git, which the fast path does not load.
        return _slow(["show", *argv])
    if options.json:
        _write_json(found)
        return 0
    from kb import plain

    _write(plain.entry(found, width=plain.terminal_width()))
    return 0


def _with_catalogue(asked: str | None, use: Callable[[sqlite3.Connection], object]) -> object:
    """Run a question on an up-to-date catalogue; one that turns out to be corrupt is rebuilt once."""
    import sqlite3

    from kb.config import find_root

    root = find_root(asked)
    connection = _current(root)
    if connection is None:
        connection = _opened(_index(root))
    try:
        try:
            answer = use(connection)
        except (IndexStaleError, sqlite3.DatabaseError, LookupError):
            # A fault of our own shows again after this; one byte that fell over in a stored name does not.
            connection.close()
            connection = _opened(_index(root, rebuild=True))
            answer = use(connection)
    except EntryNotFoundError:
        # What was looked for may be among what the index lacks.
        _warn(connection)
        raise
    else:
        _warn(connection)
        return answer
    finally:
        connection.close()


def _current(root: Root) -> sqlite3.Connection | None:
    """Open the catalogue if it is up to date, without reading any entry."""
    from kb import catalogue
    from kb.config import derived_candidates
    from kb.retrieval import lexicon

    tree = catalogue.tree_state(root.entries)
    for folder in derived_candidates(root):
        file = folder / catalogue.FILE
        connection = None
        try:
            connection = catalogue.open_reader(file)
            kept = [catalogue.read_meta(connection, key) for key in ("tree", "lexicon")]
            if not catalogue.is_of_today(connection):
                kept = []
        except IndexStaleError:
            kept = []
        if kept == [tree, lexicon.digest()]:
            return connection
        if connection is not None:
            connection.close()
    return None


def _opened(file: Path) -> sqlite3.Connection:
    from kb import catalogue

    return catalogue.open_reader(file)


def _index(root: Root, *, rebuild: bool = False) -> Path:
    from kb import catalogue
    from kb.config import derived_candidates
    from kb.service.indexing import ensure_index

    first = rebuild or not any((folder / catalogue.FILE).is_file() for folder in derived_candidates(root))

    def progress(done: int, total: int) -> None:
        if first and done == 1:
            _say(f"building the index (first use): {total} entries…")

    return ensure_index(root, rebuild=rebuild, progress=progress)


def _warn(connection: sqlite3.Connection) -> None:
    """Say which folders the catalogue lacks, because a search that misses them would look complete."""
    from kb import catalogue

    stored = catalogue.read_meta(connection, "problems")
    if stored in (None, "[]"):
        return
    problems = catalogue.stored_json(str(stored))
    _say(f"kb: {len(problems)} left out of the index; the first: {problems[0]['message']}")
    _say("hint: kb check")


if __name__ == "__main__":
    sys.exit(main())
