"""Converts lines of agents' histories to messages, for capture and for import."""

from __future__ import annotations

import time
from functools import lru_cache

from commonplace.engine.content.conversations import Line
from commonplace.engine.content.projects import Project
from commonplace.platform.projects import project_of_session
from commonplace.transcripts.record import Record

TRUST = "inferred"
PROJECT_SECONDS = 2.0  # how long the project of a directory is taken as unchanged


def conversation_of(record: Record) -> str:
    """Return the conversation of a record: one for each session of a client."""
    return f"{record.client}:{record.session}"


def ref_of(record: Record) -> str:
    """Return the ref of a record's memory, which prevents a second copy."""
    return f"{record.client}:{record.id}"


def line_of(record: Record) -> Line:
    """Return the record as a message with the labels of its project and branch."""
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
    """Return the labels of a directory's project and of the branch in the history.

    Environment variables of this process are ignored, since the line comes from another session.
    """
    name = _project_name(cwd, int(time.monotonic() / PROJECT_SECONDS)) if cwd else ""
    return Project(name, branch).labels


@lru_cache(maxsize=1_024)
def _project_name(cwd: str, _period: int) -> str:
    """Return the project's name; a server that runs for long sees when it changes."""
    try:
        found = project_of_session(cwd, {})
    except (OSError, ValueError):
        return ""
    return found.name if found else ""
