"""The text for agents: when to ask, how to read an answer, what to report."""

from importlib.resources import files

_WRITING = """\
5. `submit` what works: claim, parents, license (the SPDX id under which the code may be passed on; what you adapted
   keeps its own). `submit` what did not work as well, with outcome, condition and effect in figures.
6. `outcome` for every entry that you tried on the target, also those that lost or could not be applied. An entry that
   nobody reports on is tried again by the next run.
"""
_READING = """\
5. This server only reads and judges. Say in your final report which entries you tried, on what, and what came of each,
   also where it lost: whoever keeps the knowledge base files it with `kb add` and `kb outcome`.
"""


def words(*, read_only: bool) -> str:
    """Return the text, without front matter.

    Args:
        read_only: Say nothing of tools that write.
    """
    text = files("kb.service.kit").joinpath("skill.md").read_text(encoding="utf-8")
    writes = "" if read_only else ", `submit`, `outcome`"
    return text.replace("{writes}", writes).replace("{reporting}\n", _READING if read_only else _WRITING)
