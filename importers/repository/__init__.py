"""A git repository as a source: its objects are read, nothing of it is checked out, and nothing of it is run."""
