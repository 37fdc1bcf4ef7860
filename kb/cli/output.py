"""How commands write: results to stdout, all else to stderr, JSON on request, tables through rich."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.plain import cells, neutral

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RootOption = Annotated[
    str | None,
    typer.Option("--root", metavar="DIR", help="The knowledge base; else KB_ROOT, the folder above, the starter."),
]

_PIPE_WIDTH = 1_000


def write(text: str = "") -> None:
    """Write one line of a result; what a terminal would obey in it is neutralised."""
    sys.stdout.write(neutral(text) + "\n")


def write_json(value: object) -> None:
    """Write a result as JSON; ASCII only, so that stored control characters do no harm."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def say(text: str) -> None:
    """Tell the person something that is no result."""
    sys.stderr.write(neutral(text) + "\n")


def console() -> "Console":
    """Return a console on stdout; wide when nobody looks, so that pipes get whole lines."""
    from rich.console import Console

    return Console(soft_wrap=False, highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def fits(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a table of these rows, the head among them, takes no more than the width there is."""
    gap = 3
    return sum(max(map(cells, column)) + gap for column in zip(*rows, strict=True)) <= console().width


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """Print a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(neutral(cell)) for cell in row))
    console().print(made)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr while long work runs; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # At a terminal rich writes above the bar what goes to stdout; what goes to a file or pipe has to stay there.
    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task: Any = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
