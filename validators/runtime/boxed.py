"""The inner process of a bundle: the judge. It holds no key; it reads orders and writes what came of each.

Orders come on standard input and answers go to a descriptor of their own, one line of JSON each, so that nothing
printed can be taken for an answer. Between two steps of an order it says what the next one needs, ``together`` or
``alone``, and waits until it may go on: there may be several inner processes, and only one of them measures. What could
not be judged comes with a traceback, the phase that it was in, and the seconds of all phases.
"""

import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from kb.validators.runtime.attempt import Machine
    from kb.validators.runtime.stopwatch import Stopwatch


def main() -> None:
    """Serve orders until standard input ends."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="ascii") as answers:
        device, folder = sys.argv[2], Path(sys.argv[3])
        try:
            machine = _ready(device, json.loads((folder / "job.json").read_bytes()))
        except Exception as error:  # noqa: BLE001 - whatever is missing on a box is said, not shown as a traceback
            _answer(answers, {"unable": f"{type(error).__name__}: {error}"[:500]})
            return
        _answer(answers, {"ready": machine.facts, "toolchain": _toolchain(), "candidates_read": _read_by_candidates()})
        for line in sys.stdin:
            order = json.loads(line)
            _answer(answers, _serve(order, (folder / order["file"]).read_bytes(), machine, answers))


def _ready(device: str, job: dict[str, Any]) -> "Machine":
    import numpy  # noqa: F401 - the judge needs it
    import torch

    from kb.validators.runtime.attempt import Machine

    if device != "cpu" and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no GPU")
    machine = Machine(device)
    machine.ceilings = job["ceilings"].get(machine.facts["name"], {})
    return machine


def _serve(order: dict[str, Any], source: bytes, machine: "Machine", answers: TextIO) -> dict[str, Any]:
    from kb.validators.runtime.attempt import attempt_steps
    from kb.validators.runtime.errors import JudgeError
    from kb.validators.runtime.stopwatch import Stopwatch, fault_of

    watch = Stopwatch()

    def say(what: str) -> None:
        _answer(answers, {"step": what})

    def hold(made: dict[str, Any]) -> None:
        _answer(answers, {"held": made})

    steps = attempt_steps(order, source, machine=machine, say=say, hold=hold, watch=watch)
    try:
        while True:
            _answer(answers, {"needs": next(steps), "peaks": machine.known_peaks})
            go = json.loads(sys.stdin.readline())
            if go["peaks"] is not None:
                machine.adopt(go["peaks"])
    except StopIteration as end:
        return {"evidence": end.value.evidence, "samples": end.value.samples, "peaks": machine.known_peaks}
    except JudgeError as error:
        return {"skipped": f"{error.message} ({error.hint})", "log": fault_of(error), **_where(watch)}
    except Exception as error:  # noqa: BLE001 - a fault of the judge's own costs this entry, and is understood from afar
        return {"failed": f"{type(error).__name__}: {error}"[:400], "log": fault_of(error), **_where(watch)}


def _where(watch: "Stopwatch") -> dict[str, Any]:
    return {"phase": watch.phase, "seconds": watch.seconds}


def _toolchain() -> str:
    from kb.validators.runtime import fingerprint

    named = fingerprint.software()
    return ", ".join(f"{name} {version}" for name, version in named.items()) + f", {platform.system()}"


def _read_by_candidates() -> list[str]:
    """Return the folders that a candidate may read, so that the outer process can see that the bundle is in none."""
    from kb.validators.runtime import sandbox

    return [str(path.resolve()) for path in sandbox.toolchain_paths()]


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, ensure_ascii=True, allow_nan=False) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
