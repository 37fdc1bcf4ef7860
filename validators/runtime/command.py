"""Judge one file where there is nothing but Python, numpy and torch.

    PYTHONPATH=. python3 -m kb.validators.runtime.command OPERATOR FILE [--device cuda:0] [--sanitizer memcheck]

Prints the report as JSON; exits 0 if the candidate is accepted, 20 if not, 10 if the judge cannot work here.
"""

import argparse
import json
import sys
from pathlib import Path

from kb.validators.operators.names import NAMES
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge
from kb.validators.runtime.report import ACCEPTED
from kb.validators.runtime.sanitizer import TOOLS


def main(arguments: list[str] | None = None) -> int:
    """Judge and print.

    Args:
        arguments: The command line without the program; None for this process's own.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="kb.validators.runtime.command", description=__doc__)
    parser.add_argument("operator", choices=NAMES, metavar="OPERATOR")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sanitizer", action="append", default=[], choices=TOOLS)
    given = parser.parse_args(arguments)
    options = Options(device=given.device, sanitizers=tuple(given.sanitizer))
    try:
        found = judge(
            given.operator,
            given.file.read_bytes(),
            options=options,
            progress=_say,
        )
    except (JudgeError, OSError) as error:
        sys.stderr.write(f"{error}; {getattr(error, 'hint', '')}\n")
        return 10
    sys.stdout.write(json.dumps(found.to_json(), indent=2, sort_keys=True) + "\n")
    return 0 if found.verdict == ACCEPTED else 20


def _say(phrase: str) -> None:
    sys.stderr.write(f"{phrase}\n")


if __name__ == "__main__":
    raise SystemExit(main())
