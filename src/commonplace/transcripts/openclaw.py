"""OpenClaw: transcripts that our plugin (`cli/agent_plugins.py`) writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commonplace.transcripts import plugin_lines
from commonplace.transcripts.record import Reading

CLIENT = "openclaw"


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are those that our plugin writes."""
    return plugin_lines.are_plugin_records(CLIENT, first)


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a file of our plugin."""
    return plugin_lines.read(CLIENT, path, offset, most_bytes)
