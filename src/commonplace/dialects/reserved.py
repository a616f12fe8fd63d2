"""What each dialect reserves: memories that others may find, but neither write nor forge.

The contracts' public kinds (`decision`, `entity`, `checkpoint`, `scene` …) are not here: they are
shared. This table imports no dialect, since a server of one dialect enforces those of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING

from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.engine.reserved import NEVER_LIVE, NUMBER, Reserved

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

PAGE = 1_000

RESERVED: Mapping[str, Reserved] = {
    "being": Reserved(
        owner="the Being dialect",
        reason="a Being takes its instructions and its context from what it marks",
        kinds=("being", "being.*"),
        tags=("being:*", "being-history"),
        shapes={
            "being.capability": {
                "capability": {
                    **dict.fromkeys(("id", "type", "name", "description"), str),
                    "config": Mapping,
                },
            },
            "being.rule": {"category?": str, "sort_order?": NUMBER, "enabled?": bool},
            "being.scene": {"scene?": Mapping},
            "being.note": {"type?": str},
            "being.party": {"from?": str},
        },
    ),
    "penfield": Reserved(
        owner="the Penfield dialect",
        reason="a persona is made of such memories",
        kinds=("identity_core", "personality_trait"),
    ),
    "orchestrator": Reserved(
        owner="the orchestrator dialect",
        reason="its workspaces, agents and workflows are such records",
        records={
            "workspace": {"id": str, "name": str},
            "agent": dict.fromkeys(("slug", "name", "role", "system_prompt", "model"), str),
            "person": {"id": str},
            "conversation": {"title": str, "type": str, "agent_id": str},
            "workflow": {"name": str, "description": str, "steps": list, "is_active": bool},
            "workflow_execution": {
                "workflow_id": str, "name": str, "steps": list, "context": Mapping, "user": str,
                "conversation_id": str, "status": str, "current_step": int, "error": str,
                "turn": int, "started_at": (str, NoneType),
            },
            "workflow_step": {
                "step_index": int, "step_name": str, "agent_slug": str, "status": str,
                "duration_ms": (int, NoneType), "error": str, "attempts": int,
            },
            "agent_message": {"status": str, "conversation_id": str, "depth": int, "response": str},
            "push_subscription": {"user": str, "endpoint": str, "keys": Mapping, "gone": bool},
            "push_notification": {"status": str},
            "palace_upkeep": {"day": str},
        },
    ),
}  # fmt: skip


def by_others(dialect: str) -> tuple[Reserved, ...]:
    """What the code of a dialect must not write."""
    return tuple(each for name, each in RESERVED.items() if name != dialect)


def unreadable(memory: Commonplace) -> Iterator[tuple[Memory, str]]:
    """Memories that their dialect skips since it cannot read them, and the dialect."""
    for each in RESERVED.values():
        for kinds, states in ((each.shapes, LIVE_STATES), (each.records, (NEVER_LIVE,))):
            offset, total = 0, 1 if kinds else 0
            while offset < total:
                page, total = memory.browse(
                    kinds=list(kinds), states=states, order="oldest", limit=PAGE, offset=offset
                )
                for one in page:
                    if each.unreadable(one.kind, one.state, one.attrs):
                        yield one, each.owner
                offset += PAGE
