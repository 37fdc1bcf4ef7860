"""What tells our own configuration from somebody else's."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

NAME = "kb"
"""Under which tools know the server."""


def is_ours(value: object) -> bool:
    """Tell whether a server's configuration starts ``kb mcp``, however it is spelled.

    Args:
        value: As the tool's file has it.
    """
    if not isinstance(value, Mapping):
        return False
    command, given = value.get("command"), value.get("args")
    if not isinstance(command, str) or not isinstance(given, Sequence) or isinstance(given, str):
        return False
    words = [one for one in given if one != "-P"]
    if words[:3] == ["-m", "kb", "mcp"]:
        return True
    return words[:1] == ["mcp"] and PurePath(command.replace("\\", "/")).name in ("kb", "kb.exe")
