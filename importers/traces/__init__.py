"""Profiler traces: read as streams, their kernels reconciled with operators by rules that are data."""
