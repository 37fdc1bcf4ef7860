"""Serve one agent over stdin and stdout."""

import gc
from collections.abc import Callable

from kb.config import find_root
from kb.errors import ConfigError


def serve(
    root: str | None, *, bare: bool, read_only: bool = False, branch: str = "submissions", say: Callable[[str], None]
) -> None:
    """Serve until the client hangs up.

    Args:
        root: The asked knowledge base, or None for the usual ones.
        bare: Search by words alone, also where embeddings are installed.
        read_only: Offer nothing that writes.
        branch: Where submissions go.
        say: Told in words what takes long, such as embedding; must not write to stdout.

    Raises:
        ConfigError: There is no knowledge base there, the branch has a name that is none, or the MCP SDK is not
            installed.
    """
    found = find_root(root)
    gc.disable()  # the SDK builds thousands of types; collecting between them frees nothing and takes 0.1 s
    try:
        from kb.server.app import BRANCH, make_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise ConfigError("the MCP SDK is not installed", hint='pip install "kernel-kb[serve]"') from error
    finally:
        gc.enable()
    from kb.knowledge_base import KnowledgeBase

    if branch != BRANCH:
        from kb.store.branches import check_name

        check_name(found.path, branch)
    offer = frozenset({"read", "judge"} if read_only else {"read", "judge", "write"})
    with KnowledgeBase(found, semantic=not bare, say=say) as base:
        make_server(base, offer=offer, branch=branch).run("stdio")
