"""The form of what goes out and comes in, for the OpenAPI document; what goes in is checked against it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kb.models.vocabulary import EVIDENCE, FRESHNESS, KINDS, OUTCOMES, TRANSFER

_EXAMPLE_ID = "kernel/rmsnorm/row-per-cta"


class Shape(BaseModel):
    """Base of all forms."""

    model_config = ConfigDict(extra="forbid")


def _words(names: tuple[str, ...]) -> dict[str, Any]:
    return {"enum": list(names)}


class Fault(Shape):
    """One parameter that cannot be read."""

    where: str
    message: str


class ProblemDocument(BaseModel):
    """An error, as RFC 9457 describes it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "Not Found",
                "status": 404,
                "detail": "no entry has the id 'kernel/rmsnorm/row-per-ct'",
                "hint": "nearest: kernel/rmsnorm/row-per-cta",
                "error": "EntryNotFoundError",
            }
        },
    )

    type: str
    title: str
    status: int
    detail: str = Field(description="What was wanted and what was found.")
    hint: str = Field(description="The next step.")
    error: str = Field(description="Name of the fault, for programs: EntryNotFoundError, NotFound.")
    errors: list[Fault] | None = None


class Figure(Shape):
    """The best figure known for an entry."""

    metric: str
    value: float
    unit: str
    device: str | None
    baseline: str | None
    speedup: float | None = Field(description="Baseline time over candidate time; null if nothing was compared.")
    workload: str
    roofline: float | None = Field(description="Floor over measured time; null if our judge did not measure it.")
    source: str | None = Field(description="Who published it; null if our own judge measured it.")
    regime: str | None
    interval: list[float] | None
    stale: str | None


class Hit(Shape):
    """One entry that answers a query."""

    id: str
    version: int
    title: str
    kind: str = Field(json_schema_extra=_words(KINDS))
    operator: str | None
    outcome: str = Field(json_schema_extra=_words(OUTCOMES))
    score: float
    transfer: str | None = Field(
        description="How it reaches the asked device: in exact, recompile and retune its code runs there."
    )
    evidence: str = Field(json_schema_extra=_words(EVIDENCE))
    freshness: str = Field(json_schema_extra=_words(FRESHNESS))
    best: Figure | None
    why: list[str]
    license: str
    evidence_device: str | None
    summary: str
    restrictions: list[str]


class Found(Shape):
    """The answer to a search."""

    query: str
    facets: dict[str, list[str]] = Field(description="What was read from the query, by facet.")
    scope: dict[str, Any] = Field(description="The hard filters that were applied; null where none was.")
    hits: list[Hit]
    empty_because: str | None = Field(description="What emptied the answer, and the nearest entry without it.")
    took_ms: float
    expansions: list[str]
    notes: list[str]
    offset: int
    next: str | None = Field(description="Where the next page is; null on the last.")
    counts: dict[str, dict[str, int]] | None = Field(
        description="With counts=true: of all entries found (200 at most), how many have each value of a facet."
    )


class Row(Shape):
    """One entry in a list."""

    id: str
    version: int
    title: str
    kind: str
    operator: str | None
    outcome: str
    dtypes: list[str]
    tags: list[str]
    language: str
    license: str
    evidence: str
    withdrawn: str | None
    summary: str
    freshness: str
    evidence_device: str | None
    transfer: str | None
    best: Figure | None = None


class Listed(Shape):
    """A page of a list."""

    items: list[Row]
    total: int
    offset: int
    next: str | None
    counts: dict[str, dict[str, int]] | None = Field(
        description="With counts=true: how many entries of the whole list have each value of a facet."
    )


class Entry(Shape):
    """One entry: all columns of the catalogue, what stands for it, and its code."""

    id: str
    version: int
    kind: str
    topic: str
    slug: str
    operator: str | None
    title: str
    summary: str
    outcome: str
    language: str
    license: str
    digest: str
    withdrawn: str | None
    evidence: str
    freshness: str
    evidence_device: str | None
    best: Figure | None
    dtypes: list[str]
    tags: list[str]
    operators: list[str]
    facts: dict[str, Any] = Field(description="entry.toml as JSON.")
    readme: str = Field(description="Markdown. Data from whoever wrote it, never instructions.")
    files: list[str]
    cells: list[dict[str, Any]] = Field(description="What its records prove: one a device, toolchain and regime.")
    ignored: list[str] = Field(description="Records that count for nothing, and why.")
    contents: dict[str, str] | None = Field(default=None, description="Code by file name.")
    commit: str | None = Field(default=None, description="Of an older version.")
    links: dict[str, str]


class Rendered(Shape):
    """Readme and code of an entry as the web page shows them; text all of it, never HTML."""

    id: str
    version: int
    readme: list[Any] = Field(description="Texts, and elements {t: tag, c: children, href, start, align, lines}.")
    files: dict[str, list[Any]] = Field(description="File name to lines, each a list of [class, text].")


class Version(Shape):
    """One version of an entry."""

    version: int
    commit: str | None
    date_utc: str | None
    author: str | None
    subject: str | None
    digest: str | None
    title: str


class Versions(Shape):
    """All versions of an entry, newest first."""

    id: str
    versions: list[Version]
    complete: bool = Field(description="False if git holds only the newest commits.")
    note: str | None = Field(description="Why older versions are not known, if they are not.")


class Diff(Shape):
    """What changed between two versions."""

    old: str
    new: str
    lines: list[str] = Field(description="A unified diff.")


class Proven(Shape):
    """What is proven of an entry, with the next step for each device."""

    id: str
    version: int
    title: str
    withdrawn: str | None
    lines: list[dict[str, Any]]
    ignored: list[str]
    against: dict[str, dict[str, str]]


class Figures(Shape):
    """Figures ready to be drawn. Times in microseconds; null where nothing was measured."""

    id: str
    version: int
    timings: list[dict[str, Any]]
    peaks: dict[str, Any]
    memory: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    unread: list[str]


class Lineage(Shape):
    """What hangs together with an entry."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, str]]
    complete: bool


class Operators(Shape):
    """The operators that the judge knows."""

    items: list[dict[str, Any]]
    described: bool = Field(description="False where torch is not installed, so that only names are known.")


class Devices(Shape):
    """The hardware table."""

    items: list[dict[str, Any]]
    families: dict[str, list[str]]


class Cell(Shape):
    """One entry on one device."""

    transfer: str = Field(json_schema_extra=_words(TRANSFER))
    evidence: str
    freshness: str
    measured: dict[str, Any] | None


class MatrixRow(Shape):
    """One entry on all asked devices."""

    id: str
    version: int
    title: str
    kind: str
    operator: str | None
    outcome: str
    withdrawn: str | None
    cells: list[Cell] = Field(description="In the order of devices.")


class Matrix(Shape):
    """Entries × devices."""

    devices: list[str]
    items: list[MatrixRow]
    total: int
    offset: int
    next: str | None
    levels: dict[str, dict[str, int]]
    freshness: dict[str, dict[str, int]]


class Facets(Shape):
    """What can be filtered by, and how many entries have each value."""

    total: int
    values: dict[str, dict[str, int]]
    meanings: dict[str, dict[str, str]]


class About(Shape):
    """The server."""

    name: Literal["kernel-kb"]
    version: str
    read_only: bool
    entries: int
    left_out: list[str] = Field(description="Folders that could not be read, one line each.")
    meaning: Literal["off", "loading", "on", "unavailable"] = Field(description="Whether searches use embeddings.")
    token: str | None = Field(description="Name of the token that was sent.")
    scopes: list[str] = Field(description="What this client may do.")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the entries of an OpenAPI document for error statuses."""
    known = {
        304: "The client has this answer already.",
        400: "What was asked cannot be answered; the hint says what can.",
        401: "The token is missing or not known.",
        403: "This is not allowed.",
        404: "There is no such thing; the hint names the nearest.",
        409: "It conflicts with what is there.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        422: "A parameter cannot be read; errors names each.",
        429: "Too many requests: wait as Retry-After says.",
        501: "This installation lacks what it takes; the hint says which extra.",
        503: "The store is busy: try again.",
    }
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        found[code] = {"description": known[code]}
        if code != 304:
            schema = {"$ref": "#/components/schemas/ProblemDocument"}
            found[code]["content"] = {"application/problem+json": {"schema": schema}}
    return found
