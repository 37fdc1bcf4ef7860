"""Every error that kernel-kb raises on purpose, with its exit code and the next step."""


class KbError(Exception):
    """Base of all errors of kernel-kb.

    Args:
        message: What was wanted and what was found, lower-case, one line.
        hint: The next command or action; shown after the message.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(KbError):
    """Bad settings, or no knowledge base where one was expected."""

    exit_code = 2


class EntryError(KbError):
    """An entry cannot be used."""


class EntryNotFoundError(EntryError):
    """No entry has this id (or version)."""

    exit_code = 3


class EntryFormatError(EntryError):
    """A file of an entry breaks its format: names file, field, expectation and finding."""

    exit_code = 4


class EntryChangedError(EntryError):
    """The content of an entry changed without a version bump."""

    exit_code = 5


class StoreError(KbError):
    """The store cannot be read or written."""

    exit_code = 6


class IndexStaleError(StoreError):
    """The catalogue is missing, locked, corrupt or older than the files."""


class HistoryError(StoreError):
    """An older version was asked for and git cannot give it."""


class RetrievalError(KbError):
    """A search cannot be answered as asked."""

    exit_code = 7


class EmbedderUnavailableError(RetrievalError):
    """The semantic tier was asked for and no embedder is installed or loadable."""


class ValidatorError(KbError):
    """The judge could not do its work; says nothing about the candidate."""


class UnknownOperatorError(ValidatorError):
    """No operator spec has this name."""

    exit_code = 8


class DeviceUnavailableError(ValidatorError):
    """The device does not exist here, or its name is not known."""

    exit_code = 9


class StubProtocolError(ValidatorError):
    """The judge and its worker no longer understand each other."""

    exit_code = 10


class EvidenceRefusedError(ValidatorError):
    """Evidence from another machine is edited, unknown, too old, or does not hold together."""

    exit_code = 13


class ImporterError(KbError):
    """An import cannot be done."""


class SourceUnavailableError(ImporterError):
    """The source of an import cannot be read."""

    exit_code = 11


class LicenseError(ImporterError):
    """The licence of a source forbids what was asked."""

    exit_code = 12


class SourceFormatError(ImporterError):
    """A file of a source is not what its format says, or is hostile."""

    exit_code = 4
