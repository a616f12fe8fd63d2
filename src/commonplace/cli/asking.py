"""Commands that the server of the data directory answers, or this process if none runs.

The server has the indexes and the model in memory. A command that it answers loads neither, nor
numpy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.cli import options
from commonplace.errors import error_of

if TYPE_CHECKING:
    from commonplace.engine.content.projects import Project

ANSWER_SECONDS = 30.0
COMMANDS_WITHOUT_MODEL = ("search text", "list")  # the same answer, whatever model the server has


def answer(
    command: str,
    asked: Mapping[str, Any],
    data: Path | None,
    space: str,
    embedding: str | None = "none",
    project: Project | None = None,
) -> dict[str, Any]:
    """Return the answer to a command of `server/commands.py`: the server's, or else our own."""
    asked = {name: _json_value(value) for name, value in asked.items()}
    options.check_space(data, space)
    answered = _answer_from_server(command, asked, data, space, embedding, project)
    if answered is not None:
        return answered
    from commonplace.server import commands

    with options.open_memory(data, space, embedding, project=project) as memory:
        return commands.run_command(memory, command, asked)


def _answer_from_server(
    command: str,
    asked: Mapping[str, Any],
    data: Path | None,
    space: str,
    embedding: str | None,
    project: Project | None,
) -> dict[str, Any] | None:
    """Return the server's answer; None if none runs, or if this process may answer differently."""
    from commonplace import __version__
    from commonplace.client import connection
    from commonplace.engine.library import directory

    try:
        place = connection.place_of(str(directory(data)), options.database_of(data) or "")
    except (OSError, connection.Unusable):
        return None
    chosen = {}
    if command not in COMMANDS_WITHOUT_MODEL:
        name = options.settings_of(data).embedding if embedding is None else embedding
        chosen = {name: os.environ.get(name, "") for name in connection.STORE_VARIABLES}
        chosen["COMMONPLACE_EMBEDDING"] = name
    hello = {
        "kind": "command", "pid": os.getpid(), "version": __version__, "space": space,
        "settings": chosen, "tool": command,
        "arguments": {
            "asked": asked, "zone": connection.time_zone(),
            "project": None if project is None else [project.name, project.branch],
        },
    }  # fmt: skip
    answer = connection.ask(place, hello, ANSWER_SECONDS)
    if answer is None or answer.get("version") != __version__:
        return None
    if "error" in answer:
        raise error_of(answer["error"])
    found: dict[str, Any] | None = answer.get("answer")
    return found


def _json_value(value: Any) -> Any:
    """Return a value with its times as text, as in JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _json_value(each) for name, each in value.items()}
    return value
