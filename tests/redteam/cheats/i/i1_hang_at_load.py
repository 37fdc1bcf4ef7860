"""Never finish loading.

row: I1
operator: rmsnorm
reason: timed_out
"""

# mypy: ignore-errors

import torch

while True:
    pass
