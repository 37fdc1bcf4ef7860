"""Assemble the commands and run one."""

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kb import __version__
from kb.cli import (
    add,
    check,
    config,
    diff,
    doctor,
    fast,
    history,
    index,
    init,
    judge,
    operators,
    status,
    validate,
    verify,
)
from kb.cli import eval as evaluation

EPILOG = "Exit codes: 0 done, 2 settings or usage, 3 not found, 4 format, 6 store, 7 search, 20 not accepted."

app = typer.Typer(
    name="kb",
    help="A searchable knowledge base of verified GPU kernels, memory-allocation strategies and communication schemes.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"kb {__version__}\n")
        raise typer.Exit


@app.callback()
def _settings(
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Say more on stderr; twice for everything.")
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Configure logging; only the command line does."""
    del debug, version
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(level=levels[min(verbose, 2)], stream=sys.stderr, format="%(name)s: %(message)s")


for module in (
    fast,
    add,
    check,
    config,
    diff,
    doctor,
    evaluation,
    history,
    index,
    init,
    judge,
    operators,
    status,
    validate,
    verify,
):
    module.register(app)


def run(argv: Sequence[str]) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name.

    Returns:
        The exit code.

    Raises:
        KbError: As the command raised it; the console script says it in one line.
    """
    command = typer.main.get_command(app)
    try:
        result = command.main(list(argv), prog_name="kb", standalone_mode=False)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    except Exception as error:
        # Usage errors of the parser carry their own words and exit code; everything else passes on.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            return int(error.exit_code)
        if type(error).__name__ == "Abort":
            return 130
        raise
    return result if isinstance(result, int) else 0
