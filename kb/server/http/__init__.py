"""The endpoint over HTTP: the same answers as the shell, for programs, for the web page, and for agents at /mcp."""
