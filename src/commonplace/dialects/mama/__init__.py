"""The MAMA dialect: decisions with topics, outcomes and relations; checkpoints of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType

from commonplace.engine.content.write_policy import Reservation

RESERVED = Reservation(
    owner="the MAMA dialect",
    reason="its configuration, jobs, skills and media are kept there",
    artifacts=("mama/*",),
    records={
        "mama_file": {"content": (Mapping, list, str), "copies": list},
        "mama_delegation": {
            "fromAgentId": str, "toAgentId": str, "task": str, "status": str, "depth": int,
            "startedAt": int, "completedAt": (int, NoneType),
        },
        "schedule": {
            "name": str, "cron_expr": str, "prompt": str, "enabled": bool,
            "last_run": (int, NoneType),
        },
        "schedule_run": {
            "job": str, "prompt": str, "status": str, "started_at": int,
            "finished_at": (int, NoneType), "output": (str, NoneType), "error": (str, NoneType),
        },
    },
)  # fmt: skip
