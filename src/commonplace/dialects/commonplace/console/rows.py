"""Schemas, filters and the JSON format of memories, for all routes of the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import Schema
from commonplace.dialects.tool_schemas import FLAG, TEXT, integer
from commonplace.engine.content.projects import PROJECT, Project
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import LIVE_STATES, TRUSTS, Memory, Origin, iso
from commonplace.storage.fields import STATES
from commonplace.text.analysis import analyse_query, token_spans
from commonplace.text.snippets import snippet

EXCERPT_CHARS = 280
PAGE = 50
ANY_STATE = "any"
NO_PROJECT = "-"
"""The value of the filter `project` that selects memories without a project."""
FILTERS: dict[str, Schema] = {
    "kind": TEXT, "tag": TEXT, "client": TEXT, "source": TEXT, "project": TEXT,
    "trust": {"enum": list(TRUSTS)},
    "state": {"enum": [*STATES, ANY_STATE]},
    "pinned": FLAG,
    "since": TEXT, "until": TEXT, "as_of": TEXT,
}  # fmt: skip
LIMIT = integer(1, 200, PAGE)
OFFSET = integer(0, 1_000_000, 0)


def filters_of(
    *,
    kind: str = "",
    tag: str = "",
    client: str = "",
    source: str = "",
    project: str = "",
    trust: str = "",
    state: str = "",
    pinned: bool | None = None,
    since: str | None = None,
    until: str | None = None,
    ids: Sequence[str] | None = None,
) -> Filters:
    """Return the filters of a list or a search; an empty value means no condition."""
    states = STATES if state == ANY_STATE else (state,) if state else LIVE_STATES
    project_tags = [f"{PROJECT}{project}"] if project and project != NO_PROJECT else []
    return Filters(
        kinds=[kind] if kind else None,
        tags_all=[*project_tags, *([tag] if tag else [])],
        project=Project("") if project == NO_PROJECT else None,
        origin=Origin(client=client) if client else None,
        trust=[trust] if trust else None,
        states=states, pinned=pinned, since=since or None, until=until or None, ids=ids,
        fields={"source": source} if source else {},
    )  # fmt: skip


def memory_to_dict(memory: Memory) -> dict[str, Any]:
    """Return a memory with its full text."""
    return {**_common_fields(memory), "text": memory.text, "attrs": dict(memory.attrs)}


def memory_to_row(memory: Memory, query: str = "") -> dict[str, Any]:
    """Return a memory for lists: an excerpt, split at the words of the query."""
    excerpt = snippet(memory.text, query, EXCERPT_CHARS)
    return {**_common_fields(memory), "excerpt": split_at_matches(excerpt, query)}


def _common_fields(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id, "kind": memory.kind, "title": memory.title, "chars": len(memory.text),
        "tags": list(memory.tags), "importance": memory.importance,
        "confidence": memory.confidence, "credit": round(memory.credit, 4),
        "state": memory.state, "pinned": memory.pinned, "trust": memory.trust,
        "source": memory.source, "origin": memory.origin.as_dict(),
        "occurred_at": iso(memory.occurred_at), "created_at": iso(memory.created_at),
        "updated_at": iso(memory.updated_at), "version": memory.version,
    }  # fmt: skip


def split_at_matches(text: str, query: str) -> list[str]:
    """Split a text at the words of the query; every second piece is a matching word."""
    terms = set(analyse_query(query)) if query else set()
    pieces, at = [], 0
    for start, stop, tokens in token_spans(text) if terms else ():
        if terms.isdisjoint(tokens) or start < at:
            continue
        pieces += [text[at:start], text[start:stop]]
        at = stop
    return [*pieces, text[at:]]
