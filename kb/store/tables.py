"""The catalogue's tables, named as ``kb.catalogue`` says; written here, read by the fast path with plain SQL."""

from sqlmodel import Field, SQLModel

from kb import catalogue


class EntryTable(SQLModel, table=True):
    """One entry; lists and facts as JSON text."""

    __tablename__ = catalogue.ENTRY

    rowid: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True)
    version: int
    kind: str = Field(index=True)
    topic: str
    slug: str
    operator: str | None = None
    title: str
    summary: str
    outcome: str
    language: str
    license: str
    digest: str = Field(index=True)
    withdrawn: str | None = None
    evidence: str
    dtypes: str
    tags: str
    operators: str
    facts: str
    readme: str
    files: str
    cells: str
    ignored: str
    stamp: str
    """State of the files by name, size and time; empty if they were too young to trust their times."""
    content: str
    """Digest of all bytes."""


class EntryDtypeTable(SQLModel, table=True):
    """A dtype of an entry."""

    __tablename__ = catalogue.ENTRY_DTYPE

    entry_id: int = Field(primary_key=True)
    dtype: str = Field(primary_key=True, index=True)


class EntryOperatorTable(SQLModel, table=True):
    """An operator that an entry is about."""

    __tablename__ = catalogue.ENTRY_OPERATOR

    entry_id: int = Field(primary_key=True)
    operator: str = Field(primary_key=True, index=True)


class LexiconTable(SQLModel, table=True):
    """One way to say something."""

    __tablename__ = catalogue.LEXICON

    rowid: int | None = Field(default=None, primary_key=True)
    term: str = Field(index=True)
    facet: str
    canonical: str
    weight: float


class MetaTable(SQLModel, table=True):
    """What the catalogue says of itself."""

    __tablename__ = catalogue.META

    key: str = Field(primary_key=True)
    value: str


TABLES = (EntryTable, EntryDtypeTable, EntryOperatorTable, LexiconTable, MetaTable)
