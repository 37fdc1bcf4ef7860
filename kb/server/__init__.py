"""The endpoint for agents: the same answers as the shell, over the Model Context Protocol."""
