"""Seed a new target: what the store knows that helps there, how sure it is, and what is missing."""

from pathlib import Path

from kb.config import Root
from kb.models.plan import Plan


def seed_target(
    root: Root,
    target: str,
    *,
    budget_tokens: int = 8000,
    device: str | None = None,
    write_to: Path | None = None,
    use: str = "commercial",
) -> Plan:
    """Plan the work on a target from what the store holds.

    Args:
        root: The knowledge base.
        target: Id of a target entry, or a slug that only one entry has.
        budget_tokens: Most tokens of the brief, at least 500.
        device: Plan for this device or family instead of the target's own.
        write_to: Folder for the seed pack; made if it is missing. None writes nothing.
        use: ``commercial`` or ``research``; entries whose license forbids it are left out, and named.

    Returns:
        The plan, with the text of the brief. The same store and target give the same plan, byte for byte.

    Raises:
        ConfigError: The entry is no target; the folder holds foreign files; the budget or the use is none.
        DeviceUnavailableError: The device is not known.
        EntryNotFoundError: There is no such entry.
    """
    raise NotImplementedError
