"""Operator specs: what is computed, in float64, with its cost and its error bound.

One file an operator. Imports the standard library, numpy and torch only, nothing else of kb, because a bundle
carries these files to machines that have nothing else. ``NAMES`` needs no torch; ``load`` does.
"""

import importlib
from typing import TYPE_CHECKING

from kb.validators.operators.names import ALLOCATION, COMM, NAMES, VALUES

if TYPE_CHECKING:  # the specs need torch, the names do not
    from kb.validators.operators.allocation import Allocation
    from kb.validators.operators.spec import Operator

__all__ = ["ALLOCATION", "COMM", "NAMES", "VALUES", "load", "load_allocation"]


def load(name: str) -> "Operator":
    """Load one operator spec by name.

    Args:
        name: One of ``VALUES`` or ``COMM``.

    Returns:
        The trusted spec.

    Raises:
        KeyError: No operator that computes values has this name.
        ImportError: torch is not installed.
    """
    if name not in NAMES or name in ALLOCATION:
        raise KeyError(name)
    spec: Operator = importlib.import_module(f"kb.validators.operators.{name}").SPEC
    return spec


def load_allocation(name: str) -> "Allocation":
    """Load the spec of an allocation operator by name.

    Args:
        name: One of ``ALLOCATION``.

    Returns:
        The trusted spec.

    Raises:
        KeyError: No allocation operator has this name.
        ImportError: torch is not installed.
    """
    if name not in ALLOCATION:
        raise KeyError(name)
    spec: Allocation = importlib.import_module(f"kb.validators.operators.{name}").SPEC
    return spec
