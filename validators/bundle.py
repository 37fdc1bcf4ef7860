"""Make a bundle: one file that holds the judge, the operators, the baselines and some candidates, and runs anywhere."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kb

_HERE = Path(__file__).parent
_PARTS = ("runtime", "operators", "baselines")
"""What of this folder travels: the parts that import the standard library, numpy and torch alone."""

_EPOCH = (1980, 1, 1, 0, 0, 0)

_MAIN = '''"""Run this bundle: python job.pyz --help."""

import sys

if sys.version_info < (3, 10):
    sys.exit("error: this bundle needs Python 3.10 or later")

from kb.validators.runtime.boxing import main

sys.exit(main())
'''


def pack(job: Mapping[str, Any], candidates: Mapping[str, bytes], key: bytes) -> bytes:
    """Return the bytes of a bundle; equal arguments give equal bytes.

    Args:
        job: What the bundle is to do; plain values.
        candidates: Path inside the bundle to code, as the job's entries name it.
        key: One-time key of the job.
    """
    files = {
        "__main__.py": _MAIN.encode("ascii"),
        "job.json": (json.dumps(job, sort_keys=True, indent=1) + "\n").encode("ascii"),
        "key": key.hex().encode("ascii"),
        **dict(_judge()),
        **candidates,
    }
    held = io.BytesIO()
    held.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o100600 << 16
            archive.writestr(entry, files[name])
    return held.getvalue()


def _judge() -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of the judge's own files."""
    yield "kb/__init__.py", Path(str(kb.__file__)).read_bytes()
    yield "kb/validators/__init__.py", (_HERE / "__init__.py").read_bytes()
    for part in _PARTS:
        for file in sorted((_HERE / part).rglob("*.py")):
            yield f"kb/validators/{file.relative_to(_HERE).as_posix()}", file.read_bytes()
