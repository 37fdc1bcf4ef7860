"""Judging allocation strategies: a worker that serves traces, and a judge that keeps the books."""
