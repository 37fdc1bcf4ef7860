"""The jobs that this user's bundles carry: each with its one-time key, in the settings folder, mode 0600."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kb.config import config_folder
from kb.errors import ConfigError, EvidenceRefusedError
from kb.models.claims import Strict
from kb.models.measured import Sha256
from kb.models.record import UTC_SECONDS

_FOLDER = "jobs"
_ID = re.compile(r"[0-9a-f]{16}")


class Ordered(Strict):
    """One entry of a job, as it was when the bundle was made."""

    id: str
    version: int
    digest: Sha256
    entry_point: str
    language: str
    operator: str
    operator_sha256: Sha256
    source_sha256: dict[str, Sha256]
    uses: list[str]
    calls: list[int]
    workloads: list[dict[str, Any]]
    timed: list[dict[str, Any]]
    regimes: list[list[str]] | None
    effort: dict[str, Any] | None
    """How much is measured, None for the usual."""
    baselines: list[Sha256]
    """sha256 of the sources that it may be timed against."""


class Job(Strict):
    """A bundle that was made, and what its evidence must agree with."""

    schema_: int = Field(alias="schema", ge=1, le=1)
    job: str = Field(pattern=r"^[0-9a-f]{16}$")
    key: Sha256
    """The one-time key, 32 bytes in hexadecimal."""
    made_utc: str = Field(pattern=UTC_SECONDS)
    expires_utc: str = Field(pattern=UTC_SECONDS)
    device_kind: str
    timing: bool
    judge_revision: int
    judge_sha256: Sha256
    entries: list[Ordered]

    @property
    def secret(self) -> bytes:
        """The key's bytes."""
        return bytes.fromhex(self.key)


@dataclass(frozen=True)
class Fresh:
    """Id and key of a new job."""

    job: str
    key: bytes


def fresh() -> Fresh:
    """Draw a key; the id follows from it, so that one file is one job."""
    key = secrets.token_bytes(32)
    return Fresh(hashlib.sha256(b"kb-job-1\0" + key).hexdigest()[:16], key)


def times(days: float, *, now: datetime | None = None) -> tuple[str, str]:
    """Return when a job is made and when it expires.

    Args:
        days: How long evidence of it is accepted.
        now: The time; that of the clock if None.
    """
    made = now or datetime.now(UTC)
    return tuple(one.strftime("%Y-%m-%dT%H:%M:%SZ") for one in (made, made + timedelta(days=days)))  # type: ignore[return-value]


def save(job: Mapping[str, Any]) -> Path:
    """Keep a job, readable by this user alone.

    Args:
        job: Plain form of a :class:`Job`.

    Raises:
        ConfigError: The settings folder cannot be written.
    """
    folder = config_folder() / _FOLDER
    file = folder / f"{job['job']}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            json.dump(dict(job), stream, sort_keys=True, indent=1)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ConfigError(
            f"cannot keep the key of the job in {file}: {error.strerror}", hint="check permissions"
        ) from error
    return file


def find(job: str, *, now: datetime | None = None) -> Job:
    """Return a job that was made here and has not expired.

    Args:
        job: Its id, as evidence names it.
        now: The time; that of the clock if None.

    Raises:
        EvidenceRefusedError: It is not known here, or its time is over.
        ConfigError: Its file is broken.
    """
    if not _ID.fullmatch(job):
        raise EvidenceRefusedError("the evidence names no job", hint="give the file that the bundle wrote")
    file = config_folder() / _FOLDER / f"{job}.json"
    if not file.is_file():
        raise EvidenceRefusedError(
            f"job {job} was not made here: its key is not in {file.parent}",
            hint="accept it where kb bundle was run, as the same user",
        )
    try:
        found = Job.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{file}: no valid job: {str(error).splitlines()[0]}", hint=f"remove {file}") from error
    if (now or datetime.now(UTC)) > datetime.fromisoformat(found.expires_utc):
        raise EvidenceRefusedError(
            f"job {job} expired on {found.expires_utc[:10]}", hint="make a new bundle and run it: kb bundle …"
        )
    return found
