"""The orchestrator's dialect: a Memory Palace, artifacts, agents and workflows of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType

from commonplace.engine.content.write_policy import Reservation

RESERVED = Reservation(
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
)  # fmt: skip
