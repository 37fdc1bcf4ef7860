"""See ARCHITECTURE.md; always imported as kb.importers."""

if __name__ != "kb.importers":
    raise ImportError("import kb.importers instead of importers: a second copy of the module would be made")
