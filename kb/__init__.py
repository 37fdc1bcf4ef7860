"""kernel-kb: verified GPU kernels, allocation strategies and communication schemes, searchable.

What type checkers read stands in ``__init__.pyi``.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the Python API when it is asked for: the command line starts without it."""
    if name != "KnowledgeBase":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module("kb.knowledge_base").KnowledgeBase
