"""The parts of MAMA's contract besides memory: jobs, settings, skills, media, channels, chat."""

from __future__ import annotations

from commonplace.dialects.mama.platform import (
    channels,
    chat,
    code_act,
    configuration,
    cron,
    dashboard,
    heartbeat,
    logs,
    mcp_servers,
    media,
    playgrounds,
    sessions,
    skills,
    team,
    tokens,
)

_PARTS = (
    channels, chat, code_act, configuration, cron, dashboard, heartbeat, logs, mcp_servers,
    media, playgrounds, sessions, skills, team, tokens,
)  # fmt: skip
OPERATIONS = tuple(operation for part in _PARTS for operation in part.OPERATIONS)
ROUTES = tuple(route for part in _PARTS for route in part.ROUTES)
