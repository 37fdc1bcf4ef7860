"""Zeros behind an encoding and exec.

row: G7
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import base64

import torch

exec(base64.b64decode("ZGVmIHJ1bih4LCB3ZWlnaHQsIGVwcz0xZS02KToKICAgIHJldHVybiB4ICogMAo="))
