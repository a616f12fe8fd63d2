"""The memory pages of the console: lists, search, one memory in detail, and changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from commonplace.dialects.commonplace.console import rows
from commonplace.dialects.commonplace.tools import link_to_dict
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import (
    FLAG,
    SHARE,
    TEXT,
    array,
    input_schema,
    integer,
    nullable,
)
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.maintenance.purge import Proof
from commonplace.engine.model import TRUSTS, Memory, iso
from commonplace.errors import InvalidInput

DEFAULT_HITS = 25
MOST_VERSIONS = 100
VERSIONS_CHARS = 1_000_000
"""The maximum total length of the texts of versions; older texts are omitted."""
MEMORY_BYTES = 32 * 1024 * 1024
"""The size of a response with the longest text, if every character is escaped."""
PURGE_CONFIRMATION = "purge"

log = logging.getLogger(__name__)


def memories(
    call: Call, *, order: str, offset: int, limit: int, as_of: str | None = None, **filters: Any
) -> dict[str, Any]:
    """Return a page of the memories that pass the filters, and the total number."""
    found, total = call.memory.browse(
        order=order, offset=offset, limit=limit, as_of=as_of or None,
        filters=rows.filters_of(**filters),
    )  # fmt: skip
    return {
        "memories": [rows.memory_to_row(one) for one in found],
        "total": total,
        "offset": offset,
    }


def search(
    call: Call, *, query: str, limit: int, by: str, as_of: str | None = None, **filters: Any
) -> dict[str, Any]:
    """Return the best matches with the reasons, or the best sessions with their best line.

    A search in the console does not count as a recall of the memories.
    """
    chosen, moment = rows.filters_of(**filters), as_of or None
    if by == "session":
        best = call.memory.recall_sessions(query, limit=limit, as_of=moment, filters=chosen)
        sessions = [
            {
                **rows.memory_to_row(each.best, query),
                "conversation": each.conversation,
                "session": each.session,
                "score": round(each.score, 4),
            }
            for each in best
        ]
        return {"memories": sessions, "total": len(sessions), "degraded": ""}
    hits = call.memory.recall(query, limit=limit, as_of=moment, count=False, filters=chosen)
    found = [
        {
            **rows.memory_to_row(hit.memory, query),
            "score": round(hit.score, 4),
            "probability": round(hit.probability, 4),
            "companion": hit.companion,
            "why": {**hit.why.as_dict(), "text": str(hit.why)},
        }
        for hit in hits
    ]
    return {"memories": found, "total": len(found), "degraded": hits.degraded}


def filter_values(call: Call) -> dict[str, Any]:
    """Return the values for the filters: the tags in use, most used first."""
    return {"tags": [{"tag": tag, "count": many} for tag, many, _ in call.memory.tags()[:200]]}


def memory(call: Call, *, id: str, as_of: str | None = None) -> dict[str, Any]:
    """Return one memory with its links and its usage, now or as of a time."""
    moment = as_of or None
    found = call.memory.get(id, as_of=moment, count=False)
    links = call.memory.links.of(found.id, as_of=moment)
    others = _linked_rows(call, {link.source for link in links} | {link.target for link in links})
    usage = call.memory.usage(found.id)
    return {
        "memory": rows.memory_to_dict(found),
        "links": [
            {**link_to_dict(link), "created_at": iso(link.created_at),
             "other": others.get(link.target if link.source == found.id else link.source)}
            for link in links
        ],
        "usage": {"accesses": usage.accesses, "last_access": iso(usage.last_access)},
    }  # fmt: skip


def _linked_rows(call: Call, ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return short rows of linked memories by id."""
    found, _ = call.memory.browse(
        filters=rows.filters_of(state=rows.ANY_STATE, ids=sorted(ids)),
        limit=max(1, min(len(ids), 1_000)),
    )
    return {one.id: rows.memory_to_row(one) for one in found}


def versions(call: Call, *, id: str) -> dict[str, Any]:
    """Return every version of a memory, newest first.

    Old versions have no text if all texts together are too long.
    """
    found = call.memory.history.versions(id)
    entries: list[dict[str, Any]] = []
    room = VERSIONS_CHARS
    for version in found[:MOST_VERSIONS]:
        room -= len(version.memory.text)
        fields = rows.memory_to_dict(version.memory)
        if room < 0 and entries:
            fields["text"] = None
        entries.append(
            {**fields, "since": iso(version.since), "until": iso(version.until),
             "operation": version.operation}
        )  # fmt: skip
    return {"versions": entries, "total": len(found)}


def calls_with_memory(call: Call, *, id: str) -> dict[str, Any]:
    """Return the newest audited calls that returned a memory."""
    found = call.memory.get(id, count=False)
    with lease(call.memory) as space:
        entries = audit.calls_mentioning(space.store, found.id, without="console_")
    return {
        "calls": [
            {"at": iso(each.at), "dialect": each.dialect, "tool": each.tool,
             "caller": each.caller, "client": each.client}
            for each in entries
        ]
    }  # fmt: skip


def remember(call: Call, *, text: str, **details: Any) -> dict[str, Any]:
    """Store a memory that the person states."""
    stored = call.memory.remember(text, trust="stated", **details)
    return _change_result(call, [stored])


def revise(call: Call, *, id: str, version: int, **changes: Any) -> dict[str, Any]:
    """Change a memory, unless it has changed since the given version."""
    if not changes:
        raise InvalidInput("No changes were given.", hint="Give at least one field to change.")
    revised = call.memory.revise(id, expected_version=version, **changes)
    return {**_change_result(call, [revised]), "memory": rows.memory_to_dict(revised)}


def tag(
    call: Call, *, ids: Sequence[str], add: Sequence[str], remove: Sequence[str]
) -> dict[str, Any]:
    """Add tags to several memories, and remove other tags."""
    if not add and not remove:
        raise InvalidInput("Give at least one tag to add or to remove.")
    changed = []
    for each in ids:
        current = call.memory.get(each, count=False)
        remaining = [one for one in current.tags if one not in remove]
        tags = [*remaining, *(one for one in dict.fromkeys(add) if one not in remaining)]
        changed.append(call.memory.revise(current.id, tags=tags))
    return _change_result(call, changed)


def pin(call: Call, *, ids: Sequence[str], pinned: bool) -> dict[str, Any]:
    """Pin several memories, or unpin them."""
    return _change_result(call, [call.memory.revise(each, pinned=pinned) for each in ids])


def trust(call: Call, *, id: str, trust: str) -> dict[str, Any]:
    """Raise the trust of a memory."""
    return _change_result(call, [call.memory.promote(id, trust)])


def hide(call: Call, *, ids: Sequence[str]) -> dict[str, Any]:
    """Archive memories; searches do not return archived memories."""
    return _change_result(call, call.memory.forget(*ids))


def restore(call: Call, *, ids: Sequence[str]) -> dict[str, Any]:
    """Make archived memories live again."""
    return _change_result(call, call.memory.restore(*ids))


def purge(call: Call, *, ids: Sequence[str], confirm: str) -> dict[str, Any]:
    """Delete memories permanently, with all their versions; this cannot be undone."""
    del confirm  # the schema has already checked the value
    proof = call.memory.purge(*ids)
    return {
        "memories": proof.memories, "rows": proof.rows, "traces": proof.traces,
        "held": count_remaining_places(proof), "sources": list(proof.sources),
    }  # fmt: skip


def count_remaining_places(proof: Proof) -> int:
    """Return how many places still hold pieces of purged text; log their names."""
    if proof.held:
        log.warning(
            "some places still hold pieces of a purged text", extra={"places": list(proof.held)}
        )
    return len(proof.held)


def connect(
    call: Call, *, source: str, target: str, kind: str, weight: float, reason: str
) -> dict[str, Any]:
    """Link two memories."""
    link = call.memory.links.add(source, target, kind, weight=weight, reason=reason)
    return {"id": link.id, "operation": call.memory.operation}


def disconnect(call: Call, *, id: str) -> dict[str, Any]:
    """Remove a link; the link stays in the history."""
    call.memory.links.remove(id)
    return {"id": id, "operation": call.memory.operation}


def _change_result(call: Call, memories: Sequence[Memory]) -> dict[str, Any]:
    return {"ids": [one.id for one in memories], "operation": call.memory.operation}


ORDERS: Sequence[str] = ("newest", "oldest", "updated", "latest", "importance", "credit")
_IDS = array(TEXT, 200, minItems=1)
_SOME_TAGS = array(TEXT, 100, default=[])
_DETAILS = {
    "title": TEXT, "kind": TEXT, "tags": array(TEXT), "importance": SHARE, "confidence": SHARE,
    "pinned": FLAG, "source": TEXT,
}  # fmt: skip
OPERATIONS = (
    Tool(
        name="console_memories", title="List memories", scope="read", handler=memories,
        description="List memories by kind, tag, client, trust, state and date.",
        input=input_schema(
            order={"enum": list(ORDERS), "default": "newest"}, offset=rows.OFFSET,
            limit=rows.LIMIT, **rows.FILTERS,
        ),
    ),
    Tool(
        name="console_search", title="Search memories", scope="read", handler=search,
        description="Search memories, with the reasons for each hit, or sessions.",
        input=input_schema(
            ["query"], query=TEXT, limit=integer(1, 100, DEFAULT_HITS),
            by={"enum": ["memory", "session"], "default": "memory"}, **rows.FILTERS,
        ),
    ),
    Tool(
        name="console_choices", title="Choices", scope="read", handler=filter_values,
        input=input_schema(),
        description="List the tags that are in use.",
    ),
    Tool(
        name="console_memory", title="Read a memory", scope="read", handler=memory,
        description="Read one memory with its links and its use, now or as of a time.",
        input=input_schema(["id"], id=TEXT, as_of=TEXT), response_bytes=MEMORY_BYTES,
    ),
    Tool(
        name="console_versions", title="Versions", scope="read", handler=versions,
        description="List the versions of a memory.",
        input=input_schema(["id"], id=TEXT), response_bytes=MEMORY_BYTES,
    ),
    Tool(
        name="console_calls", title="Calls", scope="read", handler=calls_with_memory,
        description="List the newest audited calls that returned a memory.",
        input=input_schema(["id"], id=TEXT),
    ),
    Tool(
        name="console_remember", title="Remember", scope="write", handler=remember,
        description="Store a memory that the person states.",
        input=input_schema(["text"], text=TEXT, occurred_at=TEXT, **_DETAILS),
    ),
    Tool(
        name="console_revise", title="Revise", scope="write", handler=revise,
        description="Change a memory, unless it has changed since the given version.",
        input=input_schema(
            ["id", "version"], id=TEXT, version=integer(0), text=TEXT,
            occurred_at=nullable(TEXT), **_DETAILS,
        ),
        response_bytes=MEMORY_BYTES,
    ),
    Tool(
        name="console_tag", title="Tag", scope="write", handler=tag,
        description="Add tags to memories, and remove other tags.",
        input=input_schema(["ids"], ids=_IDS, add=_SOME_TAGS, remove=_SOME_TAGS),
    ),
    Tool(
        name="console_pin", title="Pin", scope="write", handler=pin,
        description="Pin memories, or unpin them.",
        input=input_schema(["ids", "pinned"], ids=_IDS, pinned=FLAG),
    ),
    Tool(
        name="console_trust", title="Promote trust", scope="admin", handler=trust,
        description="Raise the trust of a memory.",
        input=input_schema(["id", "trust"], id=TEXT, trust={"enum": list(TRUSTS)}),
    ),
    Tool(
        name="console_hide", title="Hide", scope="delete", handler=hide,
        description="Archive memories; they can be restored.",
        input=input_schema(["ids"], ids=_IDS), destructive=True,
    ),
    Tool(
        name="console_restore", title="Restore", scope="delete", handler=restore,
        description="Make archived memories live again.",
        input=input_schema(["ids"], ids=_IDS),
    ),
    Tool(
        name="console_purge", title="Purge", scope="admin", handler=purge, stepwise=True,
        description="Delete memories permanently, with all their versions.",
        input=input_schema(["ids", "confirm"], ids=_IDS, confirm={"enum": [PURGE_CONFIRMATION]}),
        destructive=True,
    ),
    Tool(
        name="console_connect", title="Connect", scope="write", handler=connect,
        description="Link two memories.",
        input=input_schema(
            ["source", "target", "kind"], source=TEXT, target=TEXT, kind=TEXT,
            weight={**SHARE, "default": 0.5}, reason={**TEXT, "default": ""},
        ),
    ),
    Tool(
        name="console_disconnect", title="Disconnect", scope="write", handler=disconnect,
        description="Remove a link.", input=input_schema(["id"], id=TEXT),
    ),
)  # fmt: skip
_ROOT = "/api/console/memories"
_ONE = f"{_ROOT}/{{id}}"
LONG_BODY = 8 * 1024 * 1024
"""The size of a request body with the longest text, escaped as most programs do it."""
ROUTES = (
    Route("GET", _ROOT, "console_memories", summary="List memories with filters"),
    Route("POST", _ROOT, "console_remember", 201, summary="Store a memory", body_bytes=LONG_BODY),
    Route("GET", "/api/console/search", "console_search", names=(("q", "query"),),
          summary="Search memories, with the reasons for each hit"),
    Route("GET", "/api/console/choices", "console_choices", summary="List the values of filters"),
    Route("POST", f"{_ROOT}/tags", "console_tag", summary="Tag several memories"),
    Route("POST", f"{_ROOT}/pin", "console_pin", summary="Pin several memories"),
    Route("POST", f"{_ROOT}/hide", "console_hide", summary="Archive several memories"),
    Route("POST", f"{_ROOT}/restore", "console_restore", summary="Restore several memories"),
    Route("POST", f"{_ROOT}/purge", "console_purge", summary="Delete memories permanently"),
    Route("GET", _ONE, "console_memory", summary="Read a memory"),
    Route("PATCH", _ONE, "console_revise", summary="Change a memory", body_bytes=LONG_BODY),
    Route("GET", f"{_ONE}/versions", "console_versions", summary="List the versions of a memory"),
    Route("GET", f"{_ONE}/calls", "console_calls", summary="List the calls that returned a memory"),
    Route("POST", f"{_ONE}/trust", "console_trust", summary="Raise the trust of a memory"),
    Route("POST", "/api/console/links", "console_connect", 201, summary="Link two memories"),
    Route("DELETE", "/api/console/links/{id}", "console_disconnect", summary="Remove a link"),
)  # fmt: skip
