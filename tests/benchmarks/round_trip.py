"""Import, export, import again: how many entries, and whether all digests are the same.

    python tests/benchmarks/round_trip.py FORMAT SOURCE

SOURCE is any folder with files of the format; nothing is kept.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kb.config import find_root
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout


def _imported(form: str, source: Path, home: Path) -> tuple[Counter[str], importing.Report]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_=form, write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
    )
    report = importing.run(root, str(source), options)
    ids = layout.entry_ids(root.entries)
    return Counter(files.read(layout.folder_of(root.entries, one), one).digest for one in ids), report


def main(arguments: list[str]) -> None:
    """Try one format on one source, print what came of it, and fail if a digest is not the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format")
    parser.add_argument("source", type=Path)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        first, _ = _imported(asked.format, asked.source, place / "one")
        made = exporting.export(find_root(str(place / "one")), asked.format, [], place / "out")
        again, _ = _imported(asked.format, place / "out", place / "two")
        for reason, count in Counter(one.reason for one in made.left_out).most_common():
            sys.stdout.write(f"{count:>6} {reason}\n")
        same = sum((first & again).values())
        sys.stdout.write(f"{first.total():>6} entries, {len(made.files)} files, {same} of the same digest again\n")
    if first != again or not first:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
