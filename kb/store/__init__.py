"""The store: entries as files, their history in git, and the catalogue derived from them."""
