"""Lines of agents' histories as messages, the same whether they are captured or imported."""

from __future__ import annotations

from functools import lru_cache

from commonplace.engine.content.conversations import Line
from commonplace.engine.content.projects import Project
from commonplace.errors import InvalidInput
from commonplace.platform.projects import project_of
from commonplace.transcripts.record import Record

TRUST = "inferred"


def conversation_of(record: Record) -> str:
    """The conversation that a record belongs to: one for each session of a client."""
    return f"{record.client}:{record.session}"


def ref_of(record: Record) -> str:
    """The ref of its memory, by which it is stored once."""
    return f"{record.client}:{record.id}"


def line_of(record: Record) -> Line:
    """The record as a message with the labels of its project and branch."""
    return Line(
        speaker=record.role,
        text=record.text,
        at=record.at,
        session=record.session,
        ref=ref_of(record),
        trust=TRUST,
        tags=labels_of(record.cwd, record.branch),
    )


def labels_of(cwd: str, branch: str) -> tuple[str, ...]:
    """The labels of the project of a directory, and of the branch that the history names.

    The directory decides, not a variable of this process: the line was said elsewhere.
    """
    name = _project(cwd) if cwd else ""
    return Project(name, branch).labels


@lru_cache(maxsize=1_024)
def _project(cwd: str) -> str:
    try:
        found = project_of(cwd, {}, any_directory=True)
    except (InvalidInput, OSError, ValueError):
        return ""
    return found.name if found else ""
