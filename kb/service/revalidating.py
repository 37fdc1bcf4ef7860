"""Judge many entries again, one after another, so that a kill at any moment costs one judgement at most.

Each run has a journal. Before an entry is judged its records are noted; when its record is filed, that is noted. A run
that was cut off is taken up by the next call that asks for the same: what was filed is not judged again, even where the
kill came between filing and noting, and what was being judged is judged anew.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kb.config import Root, config_folder, derived_folder
from kb.errors import ConfigError, EntryFormatError
from kb.service import validating
from kb.service.choosing import Item, Left, Plan, Request, choose
from kb.service.device_locking import device_lock
from kb.store import layout, records, runs
from kb.validators import keys


@dataclass(frozen=True)
class Done:
    """What came of one entry."""

    id: str
    version: int
    verdict: str | None
    """None if it could not be judged here."""
    reasons: tuple[str, ...]
    record: str | None
    """Path of the record below ``entries/``."""
    note: str | None
    seconds: float


@dataclass(frozen=True)
class Group:
    """Entries that were not judged for one reason."""

    why: str
    ids: tuple[str, ...]


class Revalidation:
    """One run: what it has to do, what is done."""

    def __init__(self, root: Root, plan: Plan, run: runs.Run, *, resumed: bool) -> None:
        self.root = root
        self.plan = plan
        self.run = run
        self.resumed = resumed

    @property
    def done(self) -> list[Done]:
        """What was judged, in that order; what an earlier call did among it."""
        return [_done_of(line) for line in self.run.lines if "done" in line]

    def go(self, progress: Callable[[int, int, str], None] | None = None) -> Iterator[Done]:
        """Judge what is left, one entry after another.

        Args:
            progress: Called before each entry with the number of those done, their total and the id.

        Yields:
            What came of each entry judged by this call; what an earlier call did is in ``done``.

        Raises:
            ConfigError: The knowledge base cannot be written.
            DeviceUnavailableError: The judge cannot use the device.
            EntryFormatError: The keyring is broken.
            ValidatorError: The judge cannot work here at all.
            LockBusyError: Another run judges on this device.
        """
        keys.read_keyring(self.root.entries)  # a broken one is told before anything is judged
        with device_lock(self.plan.device):
            # Whoever held the lock before may have gone on with this very run.
            self.run = runs.read(self.run.file) or self.run
            self._recover()
            while todo := self._todo():
                yield from self._judge(todo, progress)
            if not self.run.ended:
                self.run.append({"ended": True})

    def could_not(self) -> tuple[Group, ...]:
        """Return what was not judged, by reason, the most frequent first."""
        return grouped([*self.plan.left, *(Left(one.id, one.note or "") for one in self.done if one.verdict is None)])

    def _todo(self) -> list[Item]:
        finished = {one.id for one in self.done}
        return [item for item in self.plan.items if item.id not in finished]

    def _judge(self, todo: Sequence[Item], progress: Callable[[int, int, str], None] | None) -> Iterator[Done]:
        """Judge entries until one cannot be read any more, which is noted; the others come in the next round."""
        there = set(layout.entry_ids(self.root.entries))
        for item in todo:
            if item.id not in there:
                yield self._note(
                    validating.Validated(item.id, item.version, None, (), None, "it is no longer there"), 0
                )
        began = 0.0

        def starting(entry_id: str) -> None:
            nonlocal began
            if progress is not None:
                progress(len(self.done), len(self.plan.items), entry_id)
            had = _record_names(self.root.entries, entry_id)
            self.run.append({"began": entry_id, "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "had": had})
            began = time.monotonic()

        versions = {item.id: item.version for item in todo if item.id in there}
        if not versions:
            return
        try:
            for made in validating.judged(
                self.root,
                list(versions),
                device=self.plan.device,
                timing=self.run.head["request"]["timing"],
                progress=starting,
            ):
                yield self._note(made, time.monotonic() - began)
        except EntryFormatError as error:
            broken = str(self.run.lines[-1].get("began", ""))
            if broken not in versions:
                raise
            yield self._note(validating.Validated(broken, versions[broken], None, (), None, error.message), 0)

    def _note(self, made: validating.Validated, seconds: float) -> Done:
        line = {
            "done": made.id,
            "version": made.version,
            "verdict": made.verdict,
            "reasons": list(made.reasons),
            "record": made.record,
            "note": made.note,
            "seconds": round(seconds, 2),
        }
        self.run.append(line)
        return _done_of(line)

    def _recover(self) -> None:
        """Note what was filed just before a kill came."""
        last = self.run.lines[-1]
        if "began" not in last:
            return
        new = set(_record_names(self.root.entries, last["began"])) - set(last["had"])
        key = keys.own_key(config_folder()).id
        for name in sorted(new):
            try:
                filed = records.read_one(self.root.entries, last["began"], name)
            except EntryFormatError:
                continue
            record = filed.record
            mine = record.judge.key == key and record.device.get("name") == self.plan.name
            if mine and record.created_utc >= last["utc"]:
                decision = record.decision
                made = validating.Validated(
                    filed.entry_id, record.entry.version, decision.verdict, tuple(decision.reasons), filed.path
                )
                self._note(made, 0.0)
                return


def _record_names(entries: Path, entry_id: str) -> list[str]:
    folder = layout.folder_of(entries, entry_id) / layout.RECORDS
    return sorted(file.name for file in folder.glob("*.json")) if folder.is_dir() else []


def _done_of(line: Mapping[str, Any]) -> Done:
    return Done(
        line["done"],
        line["version"],
        line["verdict"],
        tuple(line["reasons"]),
        line["record"],
        line["note"],
        line["seconds"],
    )


def grouped(left: Sequence[Left]) -> tuple[Group, ...]:
    """Group entries by reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for one in left:
        by_reason.setdefault(one.why, []).append(one.id)
    rows = sorted(by_reason.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple(Group(why, tuple(sorted(ids))) for why, ids in rows)


def begin(root: Root, request: Request, *, anew: bool = False) -> Revalidation:
    """Take up the last run that asked for the same and was cut off, or begin one.

    Args:
        root: The knowledge base, not the packaged starter.
        request: What to judge.
        anew: Begin one in any case.

    Raises:
        ConfigError: The knowledge base is the packaged starter, or cannot be written.
        DeviceUnavailableError: There is no such device here.
        EntryNotFoundError: An id is not in the knowledge base.
    """
    if root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb init DIR; kb --root DIR …")
    folder = derived_folder(root)
    asked = asdict(request) | {"ids": sorted(request.ids)}
    for run in () if anew else runs.all_runs(folder):
        if run.head.get("request") == asked:
            if run.ended:
                break
            return Revalidation(root, _plan_of(run.head), run, resumed=True)
    plan = choose(root, request)
    return Revalidation(root, plan, runs.begin(folder, {"request": asked, "plan": asdict(plan)}), resumed=False)


def _plan_of(head: Mapping[str, Any]) -> Plan:
    raw = head["plan"]
    return Plan(
        raw["device"],
        raw["name"],
        tuple(Item(**item) for item in raw["items"]),
        tuple(Left(**one) for one in raw["left"]),
        raw["elsewhere"],
        raw["seed"],
        raw["timed"],
    )
