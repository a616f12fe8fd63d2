"""The records of a workspace, and the attrs that each kind has."""

from __future__ import annotations

from commonplace.platform.records import Records

records = Records({
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
})  # fmt: skip
