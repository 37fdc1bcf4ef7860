"""Judge a source from standard input under conditions that a test cannot put on itself; prints one JSON object.

    python judge_under.py OPERATOR [--refuse SYSCALL=ERRNO]... [--no-listener] [--memory MIB] [--then-wait]

Stands in for kernels and containers that lack a layer: a filter of its own answers for them.
"""

import argparse
import json
import resource
import sys
from pathlib import Path

from kb.validators.runtime import seccomp, syscalls
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge

NUMBERS = {
    "landlock_create_ruleset": syscalls.LANDLOCK_CREATE,
    "seccomp": syscalls.SECCOMP[syscalls.machine()],
    "unshare": syscalls.blocked()["unshare"],
    "mount": syscalls.blocked()["mount"],
}
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def main() -> None:
    """Put the conditions on this process, judge, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operator")
    parser.add_argument("--refuse", action="append", default=[])
    parser.add_argument("--no-listener", action="store_true")
    parser.add_argument("--memory", type=int)
    given = parser.parse_args()
    source = sys.stdin.buffer.read()
    rules = [(NUMBERS[name], int(number)) for name, _, number in (one.partition("=") for one in given.refuse)]
    body: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]
    for number, errno in rules:
        body += [(0x15, 0, 1, number), (0x06, 0, 0, ERRNO | errno)]
    if given.no_listener:  # the flag that asks for one, 8, is unknown to old kernels
        body += [(0x15, 0, 4, NUMBERS["seccomp"]), (0x20, 0, 0, 24), (0x15, 0, 1, 8), (0x06, 0, 0, ERRNO | 22)]
        body += [(0x06, 0, 0, ALLOW)]
    if len(body) > 1:
        library = seccomp.libc()
        library.prctl(38, 1, 0, 0, 0)
        if seccomp._load(library, [*body, (0x06, 0, 0, ALLOW)], 1) < 0:
            raise SystemExit("no filter")
    if given.memory is not None:
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (given.memory << 20),) * 2)
    print("started", file=sys.stderr, flush=True)
    try:
        found = judge(given.operator, source, options=Options(ghosts=False, call_limit_s=20, calls=(2, 2)))
    except JudgeError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}))
    else:
        row = {"verdict": found.verdict, "reasons": found.reasons, "details": found.details, "sandbox": found.sandbox}
        print(json.dumps(row))


if __name__ == "__main__":
    main()
