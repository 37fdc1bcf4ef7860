"""Planning a target: what the store offers it, in which order, and what is missing; docs/seeding.md.

Pure functions of entries, target, evidence and reported outcomes. Standard library and the models only.
"""

from kb.planning.making import make_plan
from kb.planning.values import Forecast, Known, Size, Tally, Wanted, Wish

__all__ = ["Forecast", "Known", "Size", "Tally", "Wanted", "Wish", "make_plan"]
