"""What a workspace is made of beside what it remembers: agents, conversations, workflows, ….

Each is a memory that is never live, so that no search brings it up, and everything else that holds
for memories holds for it: versions, undo, backup, export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commonplace.dialects.holding import holding
from commonplace.engine.model import Memory
from commonplace.errors import NotFound

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

STATE = "archived"
PAGE = 1_000
# What a record of a kind has in its attrs. Whatever else is called so, and archived, is no record:
# a memory has the kind that whoever stored it gave it.
_HOLDS: Mapping[str, frozenset[str]] = {
    "workspace": frozenset({"id", "name"}),
    "agent": frozenset({"slug", "name", "role", "system_prompt", "model"}),
    "person": frozenset({"id"}),
    "conversation": frozenset({"title", "type", "agent_id"}),
    "workflow": frozenset({"name", "description", "steps", "is_active"}),
    "workflow_execution": frozenset({
        "workflow_id", "name", "steps", "context", "user", "conversation_id", "status",
        "current_step", "error", "turn", "started_at",
    }),
    "workflow_step": frozenset({
        "step_index", "step_name", "agent_slug", "status", "duration_ms", "error", "attempts",
    }),
    "agent_message": frozenset({"status", "conversation_id", "depth", "response"}),
    "push_subscription": frozenset({"user", "endpoint", "keys", "gone"}),
    "push_notification": frozenset({"status"}),
    "palace_upkeep": frozenset({"day"}),
}  # fmt: skip


def _is_record(memory: Memory) -> bool:
    holds = _HOLDS.get(memory.kind)
    return memory.state == STATE and holds is not None and holds <= memory.attrs.keys()


def add(
    memory: Commonplace,
    kind: str,
    ref: str | None,
    name: str,
    attrs: Mapping[str, Any],
    *tags: str,
    id: str | None = None,
) -> Memory:
    """A new record; a ref that is taken is a Conflict."""
    return memory.remember(
        name, kind=kind, ref=ref, attrs=attrs, tags=tags, id=id, state=STATE, trust="inferred"
    )


def find(memory: Commonplace, ref: str, kind: str | None = None) -> Memory | None:
    """A record by its ref or id."""
    try:
        found = memory.get(ref, count=False)
    except NotFound:
        return None
    return found if kind in (None, found.kind) and _is_record(found) else None


def change(memory: Commonplace, record: Memory, **attrs: Any) -> Memory:
    """The record with some of its attrs changed; what others changed meanwhile stays."""
    with holding(memory, "change record"):
        stands = memory.get(record.id, count=False)
        return memory.revise(record.id, attrs={**stands.attrs, **attrs})


def listing(memory: Commonplace, kind: str, *tags: str) -> list[Memory]:
    """All records of a kind, oldest first."""
    found: list[Memory] = []
    while True:
        page, total = memory.browse(
            kinds=[kind], states=[STATE], tags_all=tags, order="oldest", limit=PAGE,
            offset=len(found),
        )  # fmt: skip
        found += page
        if not page or len(found) >= total:
            return [one for one in found if _is_record(one)]
