"""Hooks of agents: handle an event of a session, and return context for the model.

The MCP tool `hook` calls `handle_event`; the console script `commonplace-hook` calls that tool of a
running server. `handle_spooled_events` handles events that the script spooled while no server was
running.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.client import files
from commonplace.engine.content.projects import Project
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.platform import capture, compaction, session_context
from commonplace.platform.projects import named_project, project_of_session
from commonplace.storage import locking
from commonplace.storage.directories import make_private, replace_file

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

START_EVENTS = ("SessionStart", "before_agent_start")
PROMPT_EVENTS = ("UserPromptSubmit", "BeforeAgent")
BEFORE_COMPACTION = ("PreCompact", "PreCompress")
AFTER_COMPACTION = ("PostCompact",)
TURN_END_EVENTS = ("Stop", "AfterAgent")
END_EVENTS = (*TURN_END_EVENTS, "SessionEnd", *BEFORE_COMPACTION)
SOURCES_OF_PEOPLE = ("", "user")
"""The sources of prompts that a person writes; other sources are programs."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A hook event of any agent."""

    name: str
    session: str = ""
    cwd: str = ""
    prompt: str = ""
    transcript: str = ""
    """The path of the session's transcript."""
    source: str = ""
    """The reason why a session starts, or the sender of a prompt."""
    agent: str = ""
    """The id of the sub-agent that sent the event, if any."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The whole event, as the agent sent it."""


# The names of each field: in our plugins, in Claude Code and Codex, and in VS Code.
_FIELDS = {
    "name": ("event", "hook_event_name", "hookEventName"),
    "session": ("session", "session_id", "sessionId"),
    "cwd": ("cwd",),
    "prompt": ("prompt",),
    "transcript": ("transcript", "transcript_path", "transcriptPath"),
    "source": ("source",),
    "agent": ("agent", "agent_id", "agentId"),
}


def parse_event(given: Mapping[str, Any]) -> Event:
    """Parse an event of an agent; fields of the wrong type count as missing."""

    def text(names: tuple[str, ...]) -> str:
        values = (given.get(name) for name in names)
        found = next((value for value in values if isinstance(value, str)), "")
        return found.replace("\0", "").encode("utf-8", "replace").decode()

    found = {name: text(names) for name, names in _FIELDS.items()}
    return Event(**found, fields=dict(given))


def stores_nothing(given: Mapping[str, Any]) -> bool:
    """Return whether `handle_event` stores nothing for an event."""
    event = parse_event(given)
    return bool(event.agent) or event.name not in (*START_EVENTS, *END_EVENTS, *AFTER_COMPACTION)


def handle_event(
    memory: Commonplace,
    given: Mapping[str, Any],
    *,
    capturing: bool = True,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """Handle an event; return the JSON output with context for the model, or None.

    The result is None for an unknown event and for events of sub-agents. Without `capturing` no
    transcript is read, since the event may come from another machine. `environ` has the variables
    of the agent; by default those of this process.
    """
    event = parse_event(given)
    if event.agent:
        return None
    here, project = _project_memory(memory, event, environ), named_project(environ)
    if event.name in START_EVENTS:
        return _handle_start(here, event, capturing, project)
    if event.name in PROMPT_EVENTS:
        if event.source not in SOURCES_OF_PEOPLE:
            return None
        return _hook_output(
            event.name, session_context.prompt_context(here, event.prompt, event.session)
        )
    if event.name in END_EVENTS and capturing and event.transcript:
        capture.capture(here, event.transcript, event.cwd, event.session, project)
        if event.name in BEFORE_COMPACTION:
            compaction.store_checkpoint(here, event.transcript, event.cwd, event.session)
        capture.drop_copy(here, event.transcript)
        if event.name in TURN_END_EVENTS:
            capture.capture_again(here, event.transcript, event.cwd, event.session, project)
    if event.name in AFTER_COMPACTION:
        summary = event.fields.get("compact_summary", event.fields.get("summary"))
        compaction.prune_checkpoint(here, event.session, str(summary or ""))
    if event.name in END_EVENTS and event.cwd:
        envelope = _hook_output(START_EVENTS[0], session_context.start_context(here))
        _store_start_context(here, event, project, envelope)
    return None


def _handle_start(
    memory: Commonplace, event: Event, capturing: bool, project: str
) -> dict[str, Any] | None:
    """Read the rest of killed sessions' transcripts, record this session, and return its
    context."""
    if capturing:
        capture.capture_known_transcripts(memory, besides=event.transcript)
        if event.transcript:
            capture.create_note(memory, event.transcript, event.cwd, event.session, project)
    since = _last_start_or_stop(memory, event.cwd, project)
    context = session_context.start_context(memory, since=since, session=event.session)
    envelope = _hook_output(event.name, context)
    _store_start_context(memory, event, project, envelope)
    return envelope


def _last_start_or_stop(memory: Commonplace, cwd: str, project: str) -> datetime | None:
    """Return when a session in this directory last started or stopped; None if that is unknown."""
    try:
        state = _start_file(memory, cwd, project).stat() if cwd else None
    except OSError:
        return None
    return None if state is None else datetime.fromtimestamp(state.st_mtime, UTC)


def _start_file(memory: Commonplace, cwd: str, project: str) -> Path:
    return Path(files.prepared_context_file(str(memory.library.path), memory.name, cwd, project))


def _project_memory(
    memory: Commonplace, event: Event, environ: Mapping[str, str] | None
) -> Commonplace:
    """Return the memory as seen from the event's project: outside of one, only global memories."""
    if not event.cwd:
        return memory
    try:
        found = project_of_session(event.cwd, environ)
    except (OSError, ValueError):
        found = None
    return memory.within(found or Project(""))


def context_in(envelope: Mapping[str, Any] | None) -> str:
    """Return the text for the model in a hook's output."""
    given = (envelope or {}).get("hookSpecificOutput", {}).get("additionalContext", "")
    return str(given)


def _hook_output(name: str, context: str) -> dict[str, Any] | None:
    if not context:
        return None
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}}


def _store_start_context(
    memory: Commonplace, event: Event, project: str, envelope: Mapping[str, Any] | None
) -> None:
    """Store the context for the next session that starts in this directory.

    `commonplace-hook` prints it when no server runs.
    """
    if not event.cwd or memory.library.read_only:
        return
    file = _start_file(memory, event.cwd, project)
    with contextlib.suppress(OSError):  # the hook's output does not depend on this file
        if envelope is None:
            file.unlink(missing_ok=True)
            return
        make_private(file.parent)
        with replace_file(file) as stream:
            stream.write(json.dumps(envelope).encode())


def capture_known_transcripts(data: Path, memory_of: Callable[[str], Commonplace]) -> int:
    """Read the transcripts of killed sessions of every space to their end."""
    folders = [each for each in (data / capture.NOTES_FOLDER).glob("*") if each.is_dir()]
    return sum(capture.capture_known_transcripts(memory_of(each.name)) for each in sorted(folders))


def handle_spooled_events(data: Path, memory_of: Callable[[str], Commonplace]) -> int:
    """Handle the events that hooks spooled while no server was running; return their number.

    A file is removed after its event is committed, so after a crash an event may be handled twice.
    Invalid files are renamed to `.refused`. Events stay spooled if they cannot be stored now, or if
    their transcript cannot be read.
    """
    folder = data / files.INBOX_FOLDER
    if not folder.is_dir() or not any(folder.glob("*.json")):
        return 0
    done = 0
    with contextlib.suppress(locking.Busy), locking.file_lock(folder / "lock"):
        for file in sorted(folder.glob("*.json")):
            try:
                space, event, environ = _read_spooled_event(file)
                handle_event(memory_of(space), event, environ=environ)
            except (InvalidInput, NotFound) as error:
                log.warning("a spooled hook event is refused", extra={"why": error.message})
                file.replace(file.with_suffix(".refused"))
                continue
            except CommonplaceError as error:
                log.warning(
                    "spooled hook events cannot be stored now", extra={"why": error.message}
                )
                break
            except OSError as error:  # of the transcript, or of the spooled file
                log.warning("a spooled hook event cannot be read now", extra={"why": str(error)})
                continue
            file.unlink()
            done += 1
    return done


def _read_spooled_event(file: Path) -> tuple[str, Mapping[str, Any], Mapping[str, str] | None]:
    """Return the space and the event in a spooled file, and the variables of its agent."""
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("event"), dict):
        raise InvalidInput(f"{file.name} holds no hook event.")
    given = found.get("environ")  # older releases did not store it
    environ = {name: str(each) for name, each in given.items()} if isinstance(given, dict) else None
    return str(found.get("space", "")), found["event"], environ
