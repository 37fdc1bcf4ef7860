"""What the shell offers while a command is being typed: ids of entries and targets, results, uses."""


def entry_ids(incomplete: str) -> list[str]:
    """Return the ids of entries that begin so; none where there is no knowledge base."""
    return [one for one in _ids() if one.startswith(incomplete) and not one.startswith(("target/", "campaign/"))]


def target_ids(incomplete: str) -> list[str]:
    """Return the ids of targets that begin so."""
    return [one for one in _ids() if one.startswith(incomplete) and one.startswith("target/")]


def results(incomplete: str) -> list[str]:
    """Return what can come of using an entry."""
    from kb.models.plan import RESULTS

    return [one for one in RESULTS if one.startswith(incomplete)]


def uses(incomplete: str) -> list[str]:
    """Return what entries can be used for."""
    from kb.models.plan import USES

    return [one for one in USES if one.startswith(incomplete)]


def agents(incomplete: str) -> list[str]:
    """Return the coding agents that can be told of the knowledge base."""
    from kb.service.kit.tools import TOOLS

    return [one for one in TOOLS if one.startswith(incomplete)]


def devices(incomplete: str) -> list[str]:
    """Return devices and families by their short names."""
    from kb.hardware import known_names

    return [one for one in known_names() if one.lower().startswith(incomplete.lower())]


def _ids() -> list[str]:
    from kb.config import find_root
    from kb.errors import KbError
    from kb.store import layout

    try:
        return list(layout.entry_ids(find_root().entries))
    except KbError:
        return []  # a shell that waits for completions is no place for errors
