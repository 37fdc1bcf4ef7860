"""See ARCHITECTURE.md; always imported as kb.retrieval."""

if __name__ != "kb.retrieval":
    raise ImportError("import kb.retrieval instead of retrieval: a second copy of the module would be made")
