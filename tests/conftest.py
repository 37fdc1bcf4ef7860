"""Settings that every test needs before torch or triton is imported, and a knowledge base to try things on."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from kb.config import MARKER, Root

os.environ.setdefault("TRITON_INTERPRET", "1")

# Whoever starts tests in the background of a script has this signal ignored, and so had the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is slow at random; that is no property of the code.
hypothesis.settings.register_profile("kb", deadline=None)
hypothesis.settings.load_profile("kb")

FACTS = """\
schema = 1
version = {version}
title = "RMSNorm, one CTA a row"
summary = "A norm that keeps its row in registers."
outcome = "works"
operator = "{operator}"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["bfloat16"]
tags = ["norm", "decode"]
license = "Apache-2.0"

[requires]
arch = ["sm_90"]

[source]
origin = "written here"
"""

WriteEntry = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the user's settings, caches and git identity."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KB_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("KB_CONFIG_DIR", str(home / "config"))
    monkeypatch.delenv("KB_ROOT", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return an empty knowledge base."""
    folder = tmp_path / "base"
    (folder / "entries").mkdir(parents=True)
    (folder / MARKER).write_text("schema = 1\n", encoding="utf-8")
    return Root(folder)


@pytest.fixture
def write_entry() -> WriteEntry:
    """Return a function that writes a kernel entry: ``write_entry(entries, id, version=1, kernel=…, facts=…)``."""

    def write(
        entries: Path,
        entry_id: str = "kernel/rmsnorm/row-per-cta",
        *,
        version: int = 1,
        kernel: str = "def run(x):\n    return x\n",
        readme: str = "# RMSNorm\n\nReads x once.\n",
        facts: str | None = None,
    ) -> Path:
        folder = entries / entry_id
        folder.mkdir(parents=True, exist_ok=True)
        text = (
            facts if facts is not None else FACTS.format(version=version, operator=folder.parent.name.replace("-", "_"))
        )
        (folder / "entry.toml").write_text(text, encoding="utf-8")
        (folder / "README.md").write_text(readme, encoding="utf-8")
        (folder / "kernel.py").write_text(kernel, encoding="utf-8")
        return folder

    return write
