"""The data of the dashboard: gateways, agent, memory, sessions, server."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace import __version__
from commonplace.dialects.contract import Call
from commonplace.dialects.mama import checkpoints, decisions
from commonplace.dialects.mama.platform import configuration, service, sessions
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.dialects.mama.platform.service import operation
from commonplace.dialects.rest import Route
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.memories import count_by_attrs
from commonplace.engine.model import iso

MAX_TOPICS, MAX_CHANNELS = 5, 10
ANSWER_SECONDS = 0.2  # seconds for sending the response before the restart
STARTED_MS = time.time_ns() // 1_000_000


def status(call: Call) -> Any:
    """Return gateways, memory statistics and a summary of the configuration."""
    tree = configuration.effective_configuration(call.memory, service.service_of(call))
    agent, beat = tree["agent"], tree["heartbeat"]
    return {
        "timestamp": iso(datetime.now(UTC)),
        "gateways": _gateway_states(tree),
        "heartbeat": {
            "enabled": beat["enabled"], "interval": beat["interval"],
            "quietStart": beat["quiet_start"], "quietEnd": beat["quiet_end"],
        },
        "agent": {
            "model": agent["model"], "maxTurns": agent["max_turns"], "timeout": agent["timeout"],
            "tools": agent["tools"],
        },
        "memory": _memory_statistics(call.memory),
        "sessions": _session_statistics(call.memory),
        "database": {"path": tree["database"]["path"]},
        "server": {"started_at": STARTED_MS, "version": __version__},
    }  # fmt: skip


def _gateway_states(tree: dict[str, Any]) -> dict[str, Any]:
    def gateway(name: str, secret: str, more: str, value: Any) -> dict[str, Any]:
        settings = tree[name]
        return {"configured": bool(settings[secret]), "enabled": settings["enabled"], more: value}

    return {
        "discord": gateway(
            "discord", "token", "channel", tree["discord"]["default_channel_id"] or None
        ),
        "slack": gateway("slack", "bot_token", "channel", None),
        "telegram": gateway("telegram", "token", "chats", []),
        "chatwork": gateway("chatwork", "api_token", "rooms", []),
    }


def _memory_statistics(memory: Commonplace) -> dict[str, Any]:
    now = datetime.now(UTC)

    def count(**conditions: Any) -> int:
        return memory.browse(limit=1, **conditions)[1]

    # superseded decisions are counted, too: they are the history of their topic
    counted = engine_call(
        memory, count_by_attrs, ["topic", "outcome"], [decisions.KIND], decisions.VISIBLE_STATES
    )
    topics: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for (topic, outcome), number in counted.items():
        topics[topic] += number if topic else 0
        if outcome in decisions.OUTCOMES.values():
            outcomes[outcome.lower()] += number
    best = sorted(((-number, topic) for topic, number in topics.items() if number))
    return {
        "total": count(),
        "thisWeek": count(created_since=now - timedelta(days=7)),
        "thisMonth": count(created_since=now - timedelta(days=30)),
        "checkpoints": count(kinds=[checkpoints.KIND]),
        "outcomes": dict(outcomes),
        "topTopics": [{"topic": topic, "count": -number} for number, topic in best[:MAX_TOPICS]],
    }


def _session_statistics(memory: Commonplace) -> dict[str, Any]:
    found = sessions.all_sessions(memory)
    return {
        "total": len(found),
        "bySource": dict(Counter(each["source"] for each in found)),
        "channels": found[:MAX_CHANNELS],
    }


def restart(call: Call) -> Any:
    """Restart the server after this request has been answered."""
    again = service.service_of(call).setting.restart
    if again is None:
        raise PlatformError(501, "NOT_CONFIGURED", "This server cannot restart itself.")
    timer = threading.Timer(ANSWER_SECONDS, again)
    timer.daemon = True
    call.afterwards.append(timer.start)
    return {"success": True, "message": "The server restarts"}


OPERATIONS = (
    operation("dashboard_status", "Dashboard status", "read", status),
    operation("restart_server", "Restart the server", "operator", restart),
)
ROUTES = (
    Route("GET", "/api/dashboard/status", "dashboard_status"),
    Route("POST", "/api/restart", "restart_server"),
)
