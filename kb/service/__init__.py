"""The use cases: what a command, a tool or a server calls; the only place that sees all siblings."""
