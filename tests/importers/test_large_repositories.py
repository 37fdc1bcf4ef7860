"""A repository of very many files is read in bounded memory."""

import os
import subprocess
import sys
from pathlib import Path

from kb.config import Root
from tests.importers.repositories import commit, commit_tree, git, tree_of
from tests.importers.test_git_repositories import FILES

BIG = """import resource, sys
from pathlib import Path
from kb.config import Root
from kb.service import importing
options = importing.options_of(format_=None, write=True, stated=(None, None, None), allow=[], device=None, toolchain=[])
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = importing.run(Root(Path(sys.argv[1])), sys.argv[2], options)
print(report.files, report.counts["add"], (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024)
"""


def test_a_repository_of_100_000_files_is_read_in_bounded_memory(root: Root, tmp_path: Path) -> None:
    place = tmp_path / "big.git"
    commit(place, FILES)
    blob = git(place, "rev-parse", "main:LICENSE")
    thousand = tree_of(place, [("100644", b"f%03d.txt" % n, blob) for n in range(1000)])
    own = [("100644", b"LICENSE", blob), ("40000", b"ops", git(place, "rev-parse", "main:ops"))]
    commit_tree(place, tree_of(place, [*(("40000", b"d%03d" % n, thousand) for n in range(100)), *own]))
    done = subprocess.run(
        [sys.executable, "-c", BIG, str(root.path), str(place)],
        capture_output=True, text=True, check=True, timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    files, added, grown_mib = map(int, done.stdout.split())
    assert (files, added) == (100_002, 2)
    assert grown_mib < 200
