"""One knowledge base as Python code uses it, and every surface of the server: search, read, plan, judge, submit."""

import builtins
import getpass
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from kb.config import Root, find_root
from kb.models.hit import Answer
from kb.models.plan import Outcome, Plan
from kb.service import judging_apart
from kb.service.expecting import expect, expect_texts, filters_of
from kb.service.judging_apart import Order, Progress, Runner, Turns
from kb.service.reading import contents
from kb.service.resident import Resident
from kb.service.searching import scope_of, show_root
from kb.values import plain

if TYPE_CHECKING:
    from kb.service.evidence import Proven
    from kb.service.submission import Submission
    from kb.service.submitting import Submitted


class KnowledgeBase:
    """One open knowledge base; safe to use from several threads.

    Use it as a context manager, or call :meth:`close`. Answers come from the files as they are when one asks.
    """

    def __init__(
        self,
        root: Root,
        *,
        semantic: bool = False,
        resident: Resident | None = None,
        judge: Runner = judging_apart.judge_apart,
        judges: int = 1,
        say: Progress | None = None,
    ) -> None:
        """Name the parts; nothing is read before the first question.

        Args:
            root: The knowledge base.
            semantic: Search by meaning too, where an embedder is installed, as soon as it is loaded.
            resident: What is open already, to be shared; :meth:`close` leaves it open then.
            judge: Runs one judgement; the default starts a process of its own for each.
            judges: Judgements that run at one time; four more may wait.
            say: Told in words what is embedded for searches by meaning, where anything has to be.

        Raises:
            TypeError: The root is a path: :meth:`open` takes those.
        """
        if not isinstance(root, Root):
            raise TypeError(f"expected a Root, found {type(root).__name__}; KnowledgeBase.open(PATH) takes a path")
        self.root = root
        self.resident = resident or Resident(root, semantic=semantic, say=say)
        self._owns = resident is None
        self._run = judge
        self._turns = Turns(at_once=judges)

    @classmethod
    def open(cls, path: str | Path | None = None, *, semantic: bool = False) -> Self:
        """Open a knowledge base.

        Args:
            path: Its folder; None for ``KB_ROOT``, the folder above, or the starter entries.
            semantic: As for the constructor.

        Raises:
            ConfigError: There is no knowledge base there.
        """
        expect("path", path, str, Path, optional=True)
        return cls(find_root(None if path is None else str(path)), semantic=semantic)

    def search(self, query: str, *, limit: int = 8, **filters: Any) -> Answer:  # noqa: ANN401 - fields of Filters
        """Find entries in the words that engineers use.

        Args:
            query: Any words.
            limit: Most hits, 1 to 1,000.
            **filters: ``kind``, ``operator``, ``dtype``, ``arch``, ``device``, ``outcome`` (texts), ``withdrawn``
                (bool): hard filters, see :class:`kb.service.searching.Filters`.

        Raises:
            RetrievalError: An empty query, a limit out of range, or an unknown filter value.
            TypeError: As for every method here: an argument is of another type, or there is no such filter.
        """
        expect("query", query, str)
        expect("limit", limit, int)
        return self.resident.search(query, filters=filters_of(filters), limit=limit)

    def list(self, **filters: Any) -> "list[dict[str, Any]]":  # noqa: ANN401 - fields of Filters
        """Return one row an entry in scope, by id: facts and what stands for it, no prose.

        Args:
            **filters: As for :meth:`search`.

        Raises:
            RetrievalError: An unknown filter value.
        """
        from kb.retrieval import browse

        chosen = filters_of(filters)
        return self.resident.ask(lambda connection: browse.listing(connection, scope_of(connection, chosen)))

    def get(self, reference: str, *, version: int | None = None) -> dict[str, Any]:
        """Return one entry: all facts, ``readme``, and its code under ``contents``.

        Args:
            reference: Its id, or a slug that only one entry has; ``ID@2`` is that version.
            version: An older version, from git; None for the present one.

        Raises:
            EntryNotFoundError: There is no such entry or version; the hint names the nearest.
            HistoryError: The version is older, and git cannot give it.
            RetrievalError: Two versions are named.
        """
        from kb.errors import RetrievalError
        from kb.retrieval import browse

        expect("reference", reference, str)
        expect("version", version, int, optional=True)
        if version is not None and "@" in reference:
            message = f"the id {reference!r} names a version, and version = {version} another"
            raise RetrievalError(message, hint="give one")
        if version is None and "@" not in reference:
            found = self.resident.ask(lambda connection: browse.get(connection, reference))
        else:
            found = show_root(self.root, reference if version is None else f"{reference}@{version}")
        files = contents(self.root, found)
        return {**{name: plain(value) for name, value in found.items()}, "contents": files}

    def evidence(self, reference: str, *, device: str | None = None) -> "Proven":
        """Say what is proven of an entry, where, how fresh that is, and what would raise it.

        Args:
            reference: As for :meth:`get`.
            device: Only on this device or family; None for all.

        Raises:
            DeviceUnavailableError: The device is not known.
            EntryNotFoundError: There is no such entry.
        """
        from kb.service.evidence import proven

        expect("reference", reference, str)
        expect("device", device, str, optional=True)
        return proven(self.root, reference, device=device)

    def operators(self) -> tuple[str, ...]:
        """Return the names of all operators that the judge has specs for."""
        from kb.validators.operators.names import NAMES

        return NAMES

    def operator(self, name: str) -> dict[str, Any]:
        """Describe one operator: what it computes, signature, axes, dtypes, error bound, workloads.

        A process of its own does it, because describing needs torch.

        Args:
            name: Its name.

        Raises:
            UnknownOperatorError: No operator has this name; the hint names the nearest.
            ValidatorError: torch is not installed.
        """
        from kb.service.describing import operator_described

        expect("name", name, str)
        return operator_described(name)

    def hardware(self) -> "builtins.list[dict[str, Any]]":
        """Return one row a device that is known: name, architecture, memory, peaks with their sources."""
        from kb import hardware

        return [cast(dict[str, Any], plain(one)) for one in hardware.devices()]

    def targets(self) -> "builtins.list[dict[str, Any]]":
        """Return one row a target, by id: model, devices, precision, rows, where its shares are from."""
        from dataclasses import asdict

        from kb.service.targets import list_targets

        return [asdict(one) for one in list_targets(self.root)]

    def seed(
        self,
        target: str,
        *,
        budget_tokens: int = 8000,
        device: str | None = None,
        write_to: Path | None = None,
        use: str = "commercial",
    ) -> Plan:
        """Plan the work on a target from what the store holds.

        Args:
            target: Id or slug of a target, or words that describe one (``qwen3.6 nvfp4 b200``).
            budget_tokens: Most tokens of the plan's ``brief``, from 500.
            device: Plan for this device or family instead of the target's own.
            write_to: Folder for the seed pack; None writes nothing.
            use: ``commercial`` or ``research``.

        Raises:
            ConfigError: The entry is no target, or an argument is none.
            DeviceUnavailableError: The device is not known.
            EntryNotFoundError: No target has this id, and the words fit none, or several equally well.
        """
        from kb.service.describing import target_named
        from kb.service.seeding import seed_target

        expect("target", target, str)
        expect("budget_tokens", budget_tokens, int)
        expect("device", device, str, optional=True)
        expect("write_to", write_to, Path, optional=True)
        expect("use", use, str)
        name = target_named(self.resident, target)
        return seed_target(
            self.root, name, budget_tokens=budget_tokens, device=device, write_to=write_to, use=use
        )  # fmt: skip

    def judge(
        self,
        operator: str,
        source: str,
        *,
        device: str = "cpu",
        dtypes: Sequence[str] | None = None,
        ghosts: bool = True,
        progress: Progress | None = None,
        given_up: threading.Event | None = None,
    ) -> Mapping[str, Any]:
        """Have a candidate judged, in a sandbox of its own; waits for its turn.

        Args:
            operator: What it should compute.
            source: UTF-8 Python with a function ``run``, at most 1 MiB.
            device: ``cpu`` or ``cuda:N``.
            dtypes: Only workloads of these dtypes; None for all of the operator.
            ghosts: Replay with each kernel left out in turn.
            progress: Called with a phrase at each step.
            given_up: Ends the judgement with all its processes as soon as it is set.

        Returns:
            The judge's report: ``verdict``, ``reasons``, ``details``, ``cases`` and more. A failing candidate raises
            nothing.

        Raises:
            UnknownOperatorError: No operator has this name.
            EntryFormatError: The source is empty, too large or no text.
            DeviceUnavailableError: The judge cannot use this device.
            ValidatorError: The judge cannot work here, too many wait, or it was given up.
        """
        expect("operator", operator, str)
        expect("source", source, str)
        expect("device", device, str)
        expect_texts("dtypes", dtypes)
        return self._judged(
            Order(operator, source, device, tuple(dtypes) if dtypes else None, ghosts), progress, given_up
        )

    def submit(
        self,
        made: "Submission",
        *,
        author: str | None = None,
        branch: str | None = None,
        progress: Progress | None = None,
        given_up: threading.Event | None = None,
    ) -> "Submitted":
        """Have a submission judged and filed in one commit on a branch; see :func:`kb.service.submitting.submit`.

        Args:
            made: What is submitted.
            author: Who submits; the user of this process if None.
            branch: Where it goes; ``submissions`` if None.
            progress: Called with a phrase at each step.
            given_up: Ends the judgement as soon as it is set.

        Raises:
            KbError: As :func:`kb.service.submitting.submit` says.
        """
        from kb.service import submitting
        from kb.service.submission import Submission

        expect("made", made, Submission)
        expect("author", author, str, optional=True)
        expect("branch", branch, str, optional=True)
        return submitting.submit(
            self.root,
            made,
            author=author or _user(),
            branch=branch or submitting.BRANCH,
            judge=self._judged,
            progress=progress,
            given_up=given_up,
        )

    def outcome(
        self, entry: str, *, target: str, result: str, record: str | None = None, note: str | None = None
    ) -> Outcome:
        """Report what came of using an entry on a target; the same report again stores nothing.

        Args:
            entry: Id of the entry that was used.
            target: Id of the target that it was used on.
            result: ``won``, ``neutral``, ``lost`` or ``not_applied``.
            record: Path of a record by the judge; needed for ``won``.
            note: One line of at most 400 characters.

        Raises:
            ConfigError: The result or the note is none, or the knowledge base cannot be written.
            EntryNotFoundError: There is no such entry or target.
            EvidenceRefusedError: The record does not bear it out.
        """
        from kb.service.outcomes import report_outcome

        for name, value in (("entry", entry), ("target", target), ("result", result)):
            expect(name, value, str)
        expect("record", record, str, optional=True)
        expect("note", note, str, optional=True)
        return report_outcome(self.root, entry, target=target, result=result, record=record, note=note)

    def close(self) -> None:
        """Let go of files and connections."""
        if self._owns:
            self.resident.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _judged(self, order: Order, progress: Progress | None, given_up: threading.Event | None) -> Mapping[str, Any]:
        judging_apart.check(order)
        with self._turns.turn(given_up):
            return self._run(order, progress, given_up)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"
