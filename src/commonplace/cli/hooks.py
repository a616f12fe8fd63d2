"""Commands for hooks of agents; their exit code is always 0."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from commonplace.cli import asking
from commonplace.cli.options import Data, Embedding, Space, option
from commonplace.engine.content.projects import Project
from commonplace.errors import CommonplaceError, NotFound

INPUT_BYTES = 1_048_576
START_EVENTS = ("SessionStart", "before_agent_start")

hook = typer.Typer(help="Commands for the hooks of agents.")


@hook.callback()
def _hooks() -> None:
    """Make typer keep the group although it has only one command."""


@hook.command("recall")
def recall(
    data: Data = None,
    space: Space = "default",
    embedding: Embedding = None,
    start: Annotated[
        bool, option("--start", "Add the latest checkpoint, as at the start of a session.")
    ] = False,
    tokens: Annotated[
        int, option("--tokens", "Maximum size of the output in tokens.", min=100, max=20_000)
    ] = 1_000,
) -> None:
    """Print memories that are relevant to a prompt.

    The prompt comes on standard input: as text, or as the JSON of a hook's event (`prompt`,
    `hook_event_name`). The exit code is always 0, so that the agent continues.
    """
    prompt, starts, cwd = _parse_event(sys.stdin.buffer.read(INPUT_BYTES))
    try:
        asked = {"prompt": prompt, "start": start or starts, "tokens": tokens}
        here = _project_of_session(cwd)
        found = asking.answer("hook recall", asked, data, space, embedding, here)["text"]
    except NotFound:
        return  # there is no data directory yet
    except CommonplaceError as error:
        sys.stderr.write(f"commonplace: nothing was recalled: {error}\n")
        return
    if found:
        sys.stdout.write(found + "\n")


def _parse_event(given: bytes) -> tuple[str, bool, str]:
    """Return the prompt of an event, whether a session starts, and its working directory."""
    text = given.decode("utf-8", "replace").replace("\0", "")
    try:
        event: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text, False, ""
    if not isinstance(event, dict):
        return event if isinstance(event, str) else text, False, ""
    prompt, cwd = event.get("prompt"), event.get("cwd")
    asked = prompt if isinstance(prompt, str) else ""
    starts = event.get("hook_event_name") in START_EVENTS
    return asked.encode("utf-8", "replace").decode(), starts, cwd if isinstance(cwd, str) else ""


def _project_of_session(cwd: str) -> Project:
    """Return the project of a session's directory; outside of one, the project with only global
    memories."""
    from commonplace.platform.projects import project_of_session

    try:
        return project_of_session(cwd or Path.cwd()) or Project("")
    except (OSError, ValueError):  # the directory was deleted, or its name is not valid
        return Project("")


GROUPS = {"hook": hook}
