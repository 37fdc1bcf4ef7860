"""Assemble the commands and run one."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kb import __version__
from kb.cli import (
    accept,
    add,
    agent,
    bundle,
    check,
    config,
    diff,
    doctor,
    evidence,
    export,
    fast,
    history,
    import_,
    index,
    init,
    judge,
    judge_model,
    mcp,
    operators,
    outcome,
    revalidate,
    seed,
    serve,
    status,
    target,
    token,
    tuned,
    validate,
    verify,
)
from kb.cli import eval as evaluation
from kb.errors import ConfigError
from kb.plain import terminal_width

EPILOG = (
    "Exit codes: 0 done, 1 any other error, 2 settings or usage, 3 not found, 4 format, 5 changed without a version, "
    "6 store, 7 search, 8 operator, 9 device, 10 judge, 11 no such source, 12 license, 13 evidence refused, "
    "20 not accepted, 130 interrupted."
)

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
    accept,
    add,
    agent,
    bundle,
    check,
    config,
    diff,
    doctor,
    evaluation,
    evidence,
    export,
    history,
    import_,
    index,
    init,
    judge,
    judge_model,
    mcp,
    operators,
    outcome,
    revalidate,
    seed,
    serve,
    status,
    target,
    token,
    tuned,
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
    if os.environ.get("COLUMNS"):
        # What a terminal may claim is more than rich can build a line of.
        os.environ["COLUMNS"] = str(terminal_width())
    command = typer.main.get_command(app)
    try:
        result = command.main(list(argv), prog_name="kb", standalone_mode=False)
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):
            raise ending.__context__ from None
        return ending.code if isinstance(ending.code, int) else 0
    except Exception as error:
        if hasattr(error, "format_message"):
            return _misused(error)
        if type(error).__name__ == "Abort":
            return 130
        raise
    return result if isinstance(result, int) else 0


def _misused(error: Any) -> int:  # noqa: ANN401 - the parser's own errors have no public base
    """Raise an error of usage as every other error, unless the parser has answered it with the help."""
    words = str(error.format_message())
    if not words:
        return int(error.exit_code)
    context = getattr(error, "ctx", None)
    command = "kb" if context is None else context.command_path
    raise ConfigError(words[:1].lower() + words[1:].rstrip("."), hint=f"{command} --help") from error
