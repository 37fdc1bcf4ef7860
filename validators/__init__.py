"""See ARCHITECTURE.md; always imported as kb.validators."""

if __name__ != "kb.validators":
    raise ImportError("import kb.validators instead of validators: a second copy of the module would be made")
