"""Agents over HTTP: the MCP endpoint of this very process, behind the same guard as everything else."""

from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from starlette.routing import Route

from kb.server.app import http_app
from kb.server.calling import SCOPES
from kb.server.http.state import State

PATH = "/mcp"


def mount(app: FastAPI, state: State) -> AbstractAsyncContextManager[None]:
    """Let agents in at ``/mcp``; what they are offered depends on the scopes of the caller that the guard let in.

    Args:
        app: Gets the route.
        state: What routes share.

    Returns:
        What has to be open while the endpoint is used.
    """
    settings = state.settings
    offer = frozenset({"read"}) if settings.read_only else SCOPES
    endpoint = http_app(state.knowledge, offer=offer, branch=settings.branch, guarded=True)
    app.router.routes.append(Route(PATH, endpoint=endpoint))
    return endpoint.running()
