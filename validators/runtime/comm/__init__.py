"""Judging of communication schemes: one sandboxed process a rank, joined by a switch that the judge owns.

Imports the standard library, numpy and torch only, as all of the runtime does.
"""
