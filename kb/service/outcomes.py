"""What happened when somebody used an entry: stored beside it, append-only, and read by the plan."""

from kb.config import Root
from kb.models.plan import Outcome


def report_outcome(
    root: Root, entry: str, *, target: str, result: str, record: str | None = None, note: str | None = None
) -> Outcome:
    """Store what came of using an entry on a target.

    Args:
        root: The knowledge base.
        entry: Id of the entry that was used.
        target: Id of the target that it was used on.
        result: ``won``, ``neutral``, ``lost`` or ``not_applied``.
        record: Path of a record by the judge, of this version of the entry; needed for ``won``.
        note: One line of at most 400 characters.

    Returns:
        What was stored; reporting the same again stores nothing and returns it as it stands.

    Raises:
        ConfigError: The result or the note is none, or the knowledge base cannot be written.
        EntryNotFoundError: There is no such entry or target.
        EvidenceRefusedError: ``won`` without a record that verifies, is of this entry version, and shows a gain.
    """
    raise NotImplementedError
