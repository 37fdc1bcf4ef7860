"""Code that was overwritten in memory is told from a library that was only just built."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = """
import ctypes, os, sys
from kb.validators.runtime.processes import patched_code

library = ctypes.CDLL(sys.argv[1])
said = [library.f(1), sys.argv[1] in patched_code([os.getpid()])]
address = ctypes.cast(library.f, ctypes.c_void_p).value
page, system = address & ~4095, ctypes.CDLL(None)
assert system.mprotect(ctypes.c_void_p(page), 8192, 7) == 0
code = bytes.fromhex("b82a000000c3" if os.uname().machine == "x86_64" else "40058052c0035fd6")
ctypes.memmove(address, code, len(code))
assert system.mprotect(ctypes.c_void_p(page), 8192, 5) == 0
print([*said, sys.argv[1] in patched_code([os.getpid()])])
"""


@pytest.mark.parametrize("base", ["/dev/shm", None])  # noqa: S108 - a file system in memory
def test_a_library_that_was_just_built_is_not_a_patched_one(base: str | None, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or (base is not None and not Path(base).is_dir()):
        pytest.skip("no C compiler, or no file system in memory")
    folder = tmp_path if base is None else Path(base, f"kb-test-{tmp_path.name}")
    folder.mkdir(exist_ok=True)
    try:
        source, library = folder / "f.c", folder / "f.so"
        source.write_text("int f(int x) { return x + 1; } int g(int x) { return x * 3 + f(x); }\n", encoding="ascii")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(library)], capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == "[2, False, True]", done.stderr
    finally:
        if base is not None:
            shutil.rmtree(folder)
