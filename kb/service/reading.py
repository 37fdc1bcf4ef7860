"""The files of an entry, as the server hands them out."""

from collections.abc import Mapping
from typing import Any

from kb.config import Root
from kb.errors import EntryNotFoundError
from kb.store import content, layout


def contents(root: Root, found: Mapping[str, Any]) -> dict[str, str]:
    """Return the code of an entry by file name.

    Args:
        root: The knowledge base.
        found: The entry as ``kb.service.searching.show_root`` gives it, of any version.

    Raises:
        EntryNotFoundError: Its folder is gone.
    """
    if "contents" in found:
        return {name: body for name, body in sorted(found["contents"].items()) if layout.is_candidate(name)}
    folder = layout.folder_of(root.entries, found["id"])
    if not folder.is_dir():
        raise EntryNotFoundError(f"the folder of {found['id']} is gone", hint="kb index")
    files = content.read(folder).files
    return {name: files[name].decode("utf-8", "replace") for name in sorted(files) if layout.is_candidate(name)}
