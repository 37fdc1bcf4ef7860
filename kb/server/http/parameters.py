"""What requests ask for, in their paths and queries."""

from dataclasses import asdict
from typing import Annotated, Literal, Self
from urllib.parse import urlencode

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kb.models.vocabulary import EVIDENCE, KINDS, LANGUAGES
from kb.server.http.narrowing import Narrowing
from kb.service.searching import Filters

MOST = 200
"""Longest page."""
DEEPEST = 1_000
"""How far pages of a search reach."""

Kind = Annotated[str, Path(description=f"One of {', '.join(KINDS)}.", examples=["kernel"], max_length=20)]
Topic = Annotated[str, Path(description="Operator, collective or topic.", examples=["rmsnorm"], max_length=100)]
Slug = Annotated[str, Path(description="The last part of the id.", examples=["row-per-cta"], max_length=100)]
VersionNumber = Annotated[int, Query(ge=1, le=9_999_999, description="A version.", examples=[1])]
Devices = Annotated[
    list[Annotated[str, Field(max_length=80)]] | None,
    Query(max_length=32, description="Devices, families or architectures; may be repeated. All if left out."),
]


class Scoped(BaseModel):
    """The hard filters; unknown ones are refused, and so are values that nothing has."""

    model_config = ConfigDict(extra="forbid")

    kind: str | None = Field(None, max_length=80, description=f"One of {', '.join(KINDS)}.")
    operator: str | None = Field(None, max_length=80, description="An operator (rmsnorm) or a family of them (moe).")
    dtype: str | None = Field(None, max_length=80, description="A dtype in any spelling: nvfp4, bf16, fp8.")
    arch: str | None = Field(None, max_length=80, description="An architecture: sm_90, gfx942.")
    device: str | None = Field(None, max_length=80, description="A device or family: NVIDIA H200, H100, hopper.")
    outcome: str | None = Field(
        None, max_length=80, description="works, regression, no_effect, incorrect, infeasible or inconclusive."
    )
    withdrawn: bool = Field(False, description="Show withdrawn entries as well.")
    language: Literal[LANGUAGES] | None = Field(None, description="What its code is written in.")  # type: ignore[valid-type]
    evidence: Literal[EVIDENCE] | None = Field(  # type: ignore[valid-type]
        None, description="At least this level of evidence, on the asked device if one is named."
    )
    runs: bool = Field(False, description="Only entries whose code runs on the asked device or architecture.")

    @model_validator(mode="after")
    def _runs_somewhere(self) -> Self:
        if self.runs and self.device is None and self.arch is None:
            raise ValueError("runs asks for what runs on a device: name device or arch too")
        return self

    def filters(self) -> Filters:
        """Return them as the use cases take them."""
        return Filters(self.kind, self.operator, self.dtype, self.arch, self.device, self.outcome, self.withdrawn)

    def narrowing(self) -> Narrowing:
        """Return what is left out of what was found."""
        return Narrowing(self.language, self.evidence, self.runs)


class SearchQuery(Scoped):
    """A search."""

    q: str = Field(
        min_length=1,
        max_length=8_000,
        description="Any words; nothing in them is syntax.",
        examples=["nvfp4 moe grouped gemm decode"],
    )
    limit: int = Field(10, ge=1, le=MOST, description="Hits on a page.")
    offset: int = Field(0, ge=0, lt=DEEPEST, description="Hits before this page.")
    counts: bool = Field(False, description="Count the values of each facet among all that was found.")


class ListQuery(Scoped):
    """A list."""

    limit: int = Field(50, ge=1, le=MOST, description="Entries on a page.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Entries before this page.")
    figures: bool = Field(False, description="Add the best figure of each entry.")
    counts: bool = Field(False, description="Count the values of each facet among all entries in the list.")


def next_page(path: str, query: Scoped, *, offset: int) -> str:
    """Return where another page of the same question is.

    Args:
        path: Of the request.
        query: Of the request.
        offset: Where the page begins.
    """
    kept = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.model_dump(exclude_defaults=True, exclude={"offset"}).items()
    }
    return f"{path}?{urlencode({**kept, 'offset': offset}, encoding='utf-8', errors='replace')}"


def said(filters: Filters) -> dict[str, object]:
    """Return the filters that are set, for a result's name."""
    return {name: value for name, value in asdict(filters).items() if value}
