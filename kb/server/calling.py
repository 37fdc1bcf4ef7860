"""How a tool works: who calls, what it may do, errors that the model reads, work that takes minutes."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from kb.errors import KbError
from kb.server import text
from kb.server.arguments import NAMES
from kb.server.hints import worded

Returned = TypeVar("Returned")
Calling = Context[Any, Any]
Asking = ServerRequestContext[Any, Any]

SCOPES = frozenset({"read", "write", "judge"})
"""What a caller may be allowed: the words that tokens have."""

_LOOK_S = 0.05
_HEARTBEAT_S = 10.0
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Caller:
    """Who calls a tool."""

    name: str | None
    """Name of the token; None for the user of this process."""
    scopes: frozenset[str]


def local(asking: Asking) -> Caller:
    """Say who calls over stdio: whoever started the process, who may do everything that is offered."""
    del asking
    return Caller(None, SCOPES)


def behind_guard(asking: Asking) -> Caller:
    """Say who calls over HTTP: whom the guard before the application let in, at this very request.

    It leaves ``caller`` in the request's state: an object with ``name`` and ``scopes``. Where there is none, nothing
    but reading is allowed.
    """
    request = asking.request
    scope: Mapping[str, Any] = getattr(request, "scope", None) or {}
    caller = (scope.get("state") or {}).get("caller")
    if caller is None:
        return Caller(None, frozenset({"read"}))
    return Caller(caller.name or "anonymous", frozenset(caller.scopes))


def told(work: Callable[[], Returned]) -> Returned:
    """Run, and tell the model what went wrong: the SDK hides the text of every other exception.

    Args:
        work: What is to be done.

    Raises:
        ToolError: It raised an error of ours; with the next step.
    """
    try:
        return work()
    except KbError as error:
        raise as_tool_error(error) from error


def as_tool_error(error: KbError) -> ToolError:
    """Return an error in the form that reaches the model, with nothing hidden in it."""
    return ToolError(said_of(error))


def said_of(error: KbError) -> str:
    """Return what a model reads of an error: what was found, and the next step in words of the tools."""
    hint = worded(error.hint, "tools")
    return text.visible(f"{error.message}\nhint: {hint}" if hint else error.message)


def worded_error(tool: str, error: ToolError) -> ToolError:
    """Return what the SDK made of a failed call in our form: one line that says what is wrong, and the next step.

    Args:
        tool: Its name.
        error: As the SDK raised it.
    """
    if isinstance(error, UnexpectedToolError):
        hint = "whoever runs the server finds more in its log; other calls work on"
        return UnexpectedToolError(f"the server made a mistake in {tool}\nhint: {hint}")
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return ToolError(str(error).removeprefix(f"Error executing tool {tool}: "))
    first = cause.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "the arguments"
    if first["type"] == "missing":
        said, hint = f"{tool} needs {name}", f"valid: {', '.join(NAMES[tool])}"
    else:
        given = first["input"]
        found = f", found {repr(given)[:60]}" if isinstance(given, str | int | float) else ""
        said = f"{tool}, {'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}{found}"
        hint = f"mend {name} and call again"
    return ToolError(text.visible(f"{said}\nhint: {hint}"))


def require(caller: Caller, scope: str) -> None:
    """Refuse what a caller may not do.

    Raises:
        ToolError: It lacks the scope; with the next step.
    """
    if scope not in caller.scopes:
        hint = f"ask whoever runs the server for a token with it (kb token new NAME --scope {scope})"
        raise ToolError(f"this needs the scope {scope}, which you do not have\nhint: {hint}")


def result(shown: str, data: object) -> CallToolResult:
    """Return what a tool answers: text for the model, values for programs, nothing hidden in either."""
    return CallToolResult(content=[TextContent(type="text", text=shown)], structured_content=text.clean(data))


async def long(context: Calling, work: Callable[[Callable[[str], None], threading.Event], Returned]) -> Returned:
    """Do what takes minutes in a thread: with progress for the client, and an end as soon as it gives up.

    Args:
        context: Of the call.
        work: Called with a function that takes a phrase of progress, and with an event that says to stop.

    Returns:
        What it returned.

    Raises:
        ToolError: It raised an error of ours.
    """
    steps: queue.SimpleQueue[str] = queue.SimpleQueue()
    given_up = threading.Event()
    done: list[Returned] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work(steps.put, given_up))
        except BaseException as error:  # noqa: BLE001 - handed over to the task that waits
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="tool")
    thread.start()
    try:
        await _watched(context, thread, steps)
    except anyio.get_cancelled_exc_class():
        given_up.set()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE_S):
            while thread.is_alive():
                await anyio.sleep(_LOOK_S)
        raise
    if failed:
        if isinstance(failed[0], KbError):
            raise as_tool_error(failed[0]) from failed[0]
        raise failed[0]
    return done[0]


async def _watched(context: Calling, thread: threading.Thread, steps: "queue.SimpleQueue[str]") -> None:
    """Report progress until a thread ends; also that it still runs, so that a patient client keeps waiting."""
    number, quiet, phrase = 0, 0.0, "waiting"
    while thread.is_alive() or not steps.empty():
        fresh = False
        while not steps.empty():
            number, phrase, fresh = number + 1, steps.get(), True
            await context.report_progress(number, message=text.visible(phrase))
        quiet = 0.0 if fresh else quiet + _LOOK_S
        if quiet >= _HEARTBEAT_S:
            number, quiet = number + 1, 0.0
            await context.report_progress(number, message=f"still {text.visible(phrase)}")
        if thread.is_alive():
            await anyio.sleep(_LOOK_S)
