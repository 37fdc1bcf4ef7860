"""Agents over HTTP: the MCP endpoint of this very process, behind the same guard as everything else."""

from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from starlette.routing import Route

from kb.errors import ConfigError
from kb.server.app import http_app
from kb.server.calling import SCOPES
from kb.server.http.state import State

PATH = "/mcp"


def mount(app: FastAPI, state: State) -> AbstractAsyncContextManager[None]:
    """Let agents in at ``/mcp``; tools check the scopes of the caller that the guard let in.

    Args:
        app: Gets the route.
        state: What routes share.

    Returns:
        What has to be open while the endpoint is used.
    """
    endpoint = http_app(state.knowledge, offer=_offered(state), guarded=True)
    app.router.routes.append(Route(PATH, endpoint=endpoint))
    return endpoint.running()


def _offered(state: State) -> frozenset[str]:
    """Return what is offered at all: a model pays for every tool that it reads of, so none that nobody may use."""
    try:
        writes = not state.settings.read_only and bool(state.tokens.known())
    except ConfigError:
        writes = False
    return SCOPES if writes else frozenset({"read"})
