"""Read the Chrome JSON of torch's profiler (Kineto): kernels and what launched them, or the own time of operations."""

from array import array
from collections.abc import Mapping
from typing import Any

from kb.importers.traces.events import entries
from kb.importers.traces.opening import Limited
from kb.importers.traces.profile import MOST_NAMES, Key, Operation, Profile, checked_time, device_of, malformed

_DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_HOST_CATEGORIES = frozenset({"cpu_op", "Operator"})
_STEP = "ProfilerStep#"
_CONVOLUTIONS = frozenset({"aten::convolution", "aten::_convolution"})
_TRANSPOSED = 6
"""Place of the argument that says so."""
_REGION = "Torch-Compiled Region"
_FUSED = "_fused_"
_MOST_DIMS = 16
_MOST_THREADS = 100_000
_DEEPEST = 10_000
"""Operations inside each other."""


class _Thread:
    """Operations of one thread, compact: there may be millions."""

    __slots__ = ("durations", "operations", "starts")

    def __init__(self) -> None:
        self.starts = array("d")
        self.durations = array("d")
        self.operations = array("l")


class Reader:
    """Collects a profile, event by event."""

    def __init__(self) -> None:
        self.profile = Profile("torch profiler, Chrome JSON")
        self._operations: list[Operation] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._launched: dict[int, int] = {}
        self._threads: dict[object, _Thread] = {}
        self._waiting: list[tuple[str, int, float]] = []
        self._steps: set[str] = set()
        self._device_seen = False
        self._events = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one event; only complete ones of kernels, copies and operations count.

        Raises:
            SourceUnavailableError: A name or time of one that counts is none.
        """
        self._events += 1
        if event.get("ph") != "X":
            return
        category = event.get("cat")
        if category in _DEVICE_CATEGORIES:
            self._on_device(event)
        elif category in _HOST_CATEGORIES:
            self._on_host(event)
        else:
            name = event.get("name")
            if isinstance(name, str) and name.startswith(_STEP):
                self._steps.add(name)

    def beside(self, name: str, value: object) -> None:
        """Take what stands beside the events: the device."""
        if name == "deviceProperties" and isinstance(value, list):
            self.profile.device = device_of(one.get("name") for one in value if isinstance(one, dict))

    def _where(self) -> str:
        return f"event {self._events - 1}"

    def _on_device(self, event: Mapping[str, Any]) -> None:
        name = self.profile.named(event.get("name"))
        spent = checked_time(event.get("dur"), f"{self._where()}, dur")
        self._device_seen = True
        arguments = event.get("args")
        external = arguments.get("External id") if isinstance(arguments, dict) else None
        if not isinstance(external, int):
            self.profile.add(Key(name, None), spent)
            return
        number = self._launched.get(external)
        if number is None:
            self._waiting.append((name, external, spent))
        else:
            self.profile.add(Key(name, self._operations[number]), spent)

    def _on_host(self, event: Mapping[str, Any]) -> None:
        start = checked_time(event.get("ts"), f"{self._where()}, ts")
        spent = checked_time(event.get("dur"), f"{self._where()}, dur")
        arguments = event.get("args")
        number = self._number(self.profile.named(event.get("name")), arguments if isinstance(arguments, dict) else {})
        if isinstance(arguments, dict) and isinstance(external := arguments.get("External id"), int):
            self._launched[external] = number
        track = event.get("tid")
        if not isinstance(track, int | str):
            raise malformed(f"{self._where()}: expected the number of a thread, found {str(track)[:40]!a}")
        thread = self._threads.get(track)
        if thread is None:
            if len(self._threads) >= _MOST_THREADS:
                raise malformed(f"more than {_MOST_THREADS:,} threads")
            thread = self._threads[track] = _Thread()
        thread.starts.append(start)
        thread.durations.append(spent)
        thread.operations.append(number)

    def _number(self, name: str, arguments: Mapping[str, Any]) -> int:
        """Return the number of an operation with these shapes, giving it one if it is new."""
        dims, types = arguments.get("Input Dims"), arguments.get("Input type")
        if name in _CONVOLUTIONS:
            given = arguments.get("Concrete Inputs")
            if isinstance(given, list) and len(given) > _TRANSPOSED and given[_TRANSPOSED] == "True":
                name = f"{name}.transposed"
        key = (name, str(dims), str(types)) if dims else (name,)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= 10 * _MOST_THREADS:
                raise malformed("more than a million different operations")
            number = self._numbers[key] = len(self._operations)
            self._operations.append(Operation(name, _shapes(dims), _types(types)))
        return number

    def finish(self) -> Profile:
        """Return the profile.

        Raises:
            SourceUnavailableError: Nothing in it took time.
        """
        self.profile.steps = len(self._steps) or None
        if self._device_seen:
            for name, external, spent in self._waiting:
                number = self._launched.get(external)
                self.profile.add(Key(name, None if number is None else self._operations[number]), spent)
        else:
            self.profile.device = "cpu"
            if any(_FUSED in one.name for one in self._operations):
                # Where the compiler's kernels are shown, what is left of a region is the code around them.
                self._operations = [
                    one._replace(name="Compiled region, around its kernels") if one.name.startswith(_REGION) else one
                    for one in self._operations
                ]
            for thread in self._threads.values():
                self._own_times(thread)
        if self.profile.total_us <= 0:
            raise malformed("no kernel and no operation in it took any time")
        return self.profile

    def _own_times(self, thread: _Thread) -> None:
        """Give each operation the time that no operation inside it took."""
        starts, durations, operations = thread.starts, thread.durations, thread.operations
        order = sorted(range(len(starts)), key=lambda each: (starts[each], -durations[each]))
        own = array("d", durations)
        stack: list[tuple[int, set[str]]] = []
        held: dict[tuple[int, frozenset[str]], int] = {}
        for each in order:
            # Times are written with three decimals, so an inner one may seem to end a little later than its outer one.
            while stack and starts[stack[-1][0]] + durations[stack[-1][0]] <= starts[each] + 5e-4:
                _left(stack, operations, held)
            if stack:
                outer, inside = stack[-1]
                own[outer] -= durations[each]
                inside.add(self._operations[operations[each]].name)
            stack.append((each, set()))
            if len(stack) > _DEEPEST:
                raise malformed(f"more than {_DEEPEST:,} operations inside each other")
        while stack:
            _left(stack, operations, held)
        for each, spent in enumerate(own):
            self.profile.add(Key("", self._operations[operations[each]]), max(0.0, spent))
        for (outer, names), calls in held.items():
            self.profile.hold(Key("", self._operations[outer]), names, calls)


def _left(
    stack: list[tuple[int, set[str]]], operations: "array[int]", held: dict[tuple[int, frozenset[str]], int]
) -> None:
    """Take the innermost operation off, and count it with the names of those that it called itself."""
    outer, inside = stack.pop()
    if inside:
        ways = operations[outer], frozenset(inside)
        held[ways] = held.get(ways, 0) + 1
        if len(held) > MOST_NAMES:
            raise malformed(f"operations that call others in more than {MOST_NAMES:,} ways")


def _shapes(dims: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(dims, list):
        return ()
    return tuple(
        tuple(one) if isinstance(one, list) and all(type(size) is int for size in one) else ()
        for one in dims[:_MOST_DIMS]
    )


def _types(types: object) -> tuple[str, ...]:
    if not isinstance(types, list):
        return ()
    return tuple(one[:80] if isinstance(one, str) else "" for one in types[:_MOST_DIMS])


def read_chrome(stream: Limited) -> Profile:
    """Read a Chrome trace.

    Args:
        stream: Its bytes, unpacked.

    Returns:
        Device time by kernel where the trace has kernels; else the own time of CPU operations.

    Raises:
        SourceUnavailableError: It is none, is broken, or says nothing of any time.
    """
    reader = Reader()
    for name, value in entries(stream):
        if name is None:
            reader.event(value)
        else:
            reader.beside(name, value)
    return reader.finish()
