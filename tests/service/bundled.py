"""A knowledge base with two small entries, and a bundle that was really run, without anything of kb's own needs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.config import Root

HONEST = """import torch


def run(x):
    return (x.double() / (1 + torch.exp(-x.double()))).to(x.dtype)
"""

CURIOUS = """import os
import torch

LOOKED_FOR = {paths!r}


def look(path):
    try:
        with open(path, "rb") as file:
            return "read " + str(len(file.read()))
    except OSError as error:
        return type(error).__name__


print("FOUND", {{os.path.basename(path): look(path) for path in LOOKED_FOR}})


def run(x):
    return torch.softmax(x.double(), -1).to(x.dtype)
"""

FACTS = """schema = 1
version = 1
title = "In double"
summary = "The formula, once, in float64."
outcome = "works"
operator = "{operator}"
language = "torch"
entry_point = "kernel.py:run"
dtypes = ["{dtype}"]
license = "Apache-2.0"
[limits]
num_tokens = {{ max = 1000 }}
[requires]
arch = ["cpu"]
[source]
origin = "written here"
"""

SILU, SOFTMAX = "kernel/silu/in-double", "kernel/softmax/curious"

_BLOCKED = ("pydantic", "typer", "sqlmodel", "sqlalchemy", "git", "tomlkit", "rich", "cryptography")

_WITHOUT = f"""import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_BLOCKED!r}:
            raise ImportError(name + " is not to be had here")
sys.meta_path.insert(0, Blocked())
"""


@dataclass(frozen=True)
class Ran:
    """A bundle and what came of it."""

    root: Root
    settings: Path
    archive: Path
    evidence: Path
    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    before: dict[str, Any]
    """What the first run had written when it was interrupted."""


def base(folder: Path, *, looked_for: Sequence[Path] = ()) -> Root:
    """Make a knowledge base with an honest entry and one that looks for some files."""
    root = Root(folder)
    bodies = {SILU: HONEST, SOFTMAX: CURIOUS.format(paths=[str(one) for one in looked_for])}
    for entry_id, body in bodies.items():
        place = root.entries / entry_id
        place.mkdir(parents=True)
        operator = entry_id.split("/")[1]
        dtype = {"silu": "bfloat16", "softmax": "float16"}[operator]
        (place / "entry.toml").write_text(FACTS.format(operator=operator, dtype=dtype), encoding="utf-8")
        (place / "README.md").write_text("# In double\n", encoding="utf-8")
        (place / "kernel.py").write_text(body, encoding="utf-8")
    return root


def interpreter(folder: Path) -> Path:
    """Write a stand-in for the interpreter that blocks what a bundle must not need, wherever ``-c`` is given."""
    script = folder / "python-without"
    script.write_text(
        f"#!{sys.executable} -I\n"
        "import os, sys\n"
        "arguments = sys.argv[1:]\n"
        "if '-c' in arguments:\n"
        f"    arguments[arguments.index('-c') + 1] = {_WITHOUT!r} + arguments[arguments.index('-c') + 1]\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def run(archive: Path, *arguments: str, interrupt_at: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a bundle as on a machine that has torch and nothing of kb's, with a bare environment.

    Args:
        archive: The bundle.
        arguments: Of the command line.
        interrupt_at: Interrupt it, as Ctrl-C does, when it says this.
    """
    code = (
        f"{_WITHOUT}\nimport runpy\nsys.executable = {str(interpreter(archive.parent))!r}\n"
        f"sys.argv = {[str(archive), *arguments]!r}\nrunpy.run_path({str(archive)!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-I", "-B", "-c", code]
    errors = archive.parent / "stderr.txt"
    with errors.open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            command, cwd=archive.parent, env={"PATH": os.environ["PATH"], "HOME": str(archive.parent)},
            stdout=subprocess.PIPE, stderr=said, text=True,
        )  # fmt: skip
        while interrupt_at is not None and process.poll() is None:
            if interrupt_at in errors.read_text(encoding="utf-8"):
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.01)
        output, _ = process.communicate(timeout=280)
    return subprocess.CompletedProcess(command, process.returncode, output, errors.read_text(encoding="utf-8"))


def resealed(source: Path, target: Path, key: bytes, document: dict[str, object] | None = None) -> Path:
    """Write evidence with a seal of its own, as somebody who has the key could."""
    from kb.validators.runtime import sealing

    sealing.write(target, json.loads(source.read_bytes()) if document is None else document, key)
    return target
