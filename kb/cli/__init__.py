"""The command line beyond the fast path: parse, call the service, render. One command a file."""
