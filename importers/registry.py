"""The importers there are: an explicit tuple, then what other packages offer; a broken one stops no other."""

import importlib
import logging
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from kb.errors import ImporterError
from kb.importers.base import Exporter, Importer

logger = logging.getLogger(__name__)

GROUP = "kb.importers"
"""Entry-point group of other packages: each names an object that is an :class:`kb.importers.base.Importer`."""

MODULES: tuple[str, ...] = (
    "keyed", "autotune", "caches", "tables", "kernelbench", "hf_kernels", "openevolve", "flashinfer_trace",
    "gpumode", "code.importer",
)  # fmt: skip
"""Modules with an object ``IMPORTER``, or a tuple ``IMPORTERS``; earlier ones are asked first, so what is recognised
surely comes before what is recognised by its looks."""


def _built_in(module: str) -> tuple[Importer, ...]:
    loaded = importlib.import_module(f"kb.importers.{module}")
    if hasattr(loaded, "IMPORTERS"):
        return cast("tuple[Importer, ...]", loaded.IMPORTERS)
    return (cast("Importer", loaded.IMPORTER),)


def _offered(points: Iterable[EntryPoint]) -> list[Importer]:
    found = []
    for point in sorted(points, key=lambda each: each.name):
        try:
            made = point.load()
        except Exception as error:  # noqa: BLE001 - foreign code: one broken plug-in must not stop an import
            logger.warning("importer %s of %s cannot be loaded: %s", point.name, point.value, error)
            continue
        if not all(hasattr(made, name) for name in ("name", "summary", "discover", "parse")):
            logger.warning("importer %s of %s lacks name, summary, discover or parse", point.name, point.value)
            continue
        found.append(made)
    return found


@cache
def importers() -> tuple[Importer, ...]:
    """Return all importers in the order in which they are asked; a name that is taken is not taken twice."""
    found: dict[str, Importer] = {}
    for importer in (*(each for module in MODULES for each in _built_in(module)), *_offered(entry_points(group=GROUP))):
        if importer.name in found:
            logger.warning("a second importer is called %s; the first is used", importer.name)
        found.setdefault(importer.name, importer)
    return tuple(found.values())


def importer(name: str) -> Importer:
    """Return one importer.

    Args:
        name: Its name, as ``--format`` takes it.

    Raises:
        ImporterError: There is none of this name.
    """
    known = {each.name: each for each in importers()}
    if name not in known:
        raise ImporterError(f"no format is called {name!r}", hint=f"known: {', '.join(known)}")
    return known[name]


def exporter(name: str) -> Exporter:
    """Return one importer that also exports.

    Args:
        name: Its name.

    Raises:
        ImporterError: There is none of this name, or it cannot write.
    """
    found = importer(name)
    if isinstance(found, Exporter):
        return found
    raise ImporterError(
        f"{name} can be read, not written", hint=f"formats that can be written: {', '.join(exporters())}"
    )


def exporters() -> tuple[str, ...]:
    """Return the names of the formats that can be written."""
    return tuple(each.name for each in importers() if isinstance(each, Exporter))
