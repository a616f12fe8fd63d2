"""What each dialect reserves: memories that others may find, but neither write nor forge.

The contracts' public kinds (`decision`, `entity`, `checkpoint`, `scene` …) are not here: they are
shared. This table imports no dialect, since a server of one dialect enforces those of all others.
"""

from __future__ import annotations

from collections.abc import Mapping

from commonplace.engine.reserved import Reserved

RESERVED: Mapping[str, Reserved] = {
    "being": Reserved(
        owner="the Being dialect",
        reason="a Being takes its instructions and its context from what it marks",
        kinds=("being", "being.*"),
        tags=("being:*", "being-history"),
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
                "step_index", "step_name", "agent_slug", "status", "duration_ms", "error",
                "attempts",
            }),
            "agent_message": frozenset({"status", "conversation_id", "depth", "response"}),
            "push_subscription": frozenset({"user", "endpoint", "keys", "gone"}),
            "push_notification": frozenset({"status"}),
            "palace_upkeep": frozenset({"day"}),
        },
    ),
}  # fmt: skip


def by_others(dialect: str) -> tuple[Reserved, ...]:
    """What the code of a dialect must not write."""
    return tuple(each for name, each in RESERVED.items() if name != dialect)
