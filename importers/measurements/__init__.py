"""Latencies that others measured, in public formats, read as samples for predictions."""
