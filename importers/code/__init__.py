"""Kernels in program text: found by syntax, taken out with what they need, mapped to operators where that is sure."""
