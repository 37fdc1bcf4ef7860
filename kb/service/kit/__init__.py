"""What is written for coding agents: how each tool is configured, and edits that leave everything else alone."""
