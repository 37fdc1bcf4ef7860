"""Agents over HTTP: the MCP endpoint of this very process, behind the same guard as everything else."""

from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from kb.server.app import Searcher, make_server
from kb.server.http.state import State

PATH = "/mcp"


def mount(app: FastAPI, state: State) -> AbstractAsyncContextManager[object]:
    """Let agents in at ``/mcp``.

    Args:
        app: Gets the route.
        state: What routes share.

    Returns:
        What has to be open while the endpoint is used.
    """
    server = make_server(Searcher(state.root, semantic=state.settings.semantic))
    inner: Starlette = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,  # a session would be bound to a process, and nothing here needs one
        max_request_body_size=state.settings.limits.body_bytes,
        # The guard has looked at Host and Origin already, and knows by which further names it is called.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    app.router.routes.extend(inner.routes)
    return inner.router.lifespan_context(inner)
