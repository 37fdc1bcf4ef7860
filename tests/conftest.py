"""Settings that every test needs before torch or triton is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
