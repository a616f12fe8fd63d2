"""The console script `commonplace-hook`: passes an agent's hook event to the memory.

The event is JSON on standard input; the answer is JSON on standard output. The exit code is always
0, and nothing else is written to standard output, so that the agent always continues.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.client import files

if TYPE_CHECKING:
    from commonplace.client.connection import Place

USAGE = """Usage: commonplace-hook [--data DIR] [--space NAME] [--until-connected]

Passes a hook event of an agent, which is JSON on standard input, to the memory, and writes what the
agent is to read. 'commonplace start' writes it into the configuration of agents.
"""
INPUT_BYTES = 4_194_304
EVENT_NAMES = ("hook_event_name", "hookEventName", "event")
START_EVENT, END_EVENT = "SessionStart", "SessionEnd"
PROMPT_EVENTS = ("UserPromptSubmit", "BeforeAgent")
RUNNING_SESSION_SOURCES = ("clear", "compact")  # sources of a start event within a running session
# Events with a transcript, which are spooled if no server is running.
TRANSCRIPT_EVENTS = (START_EVENT, END_EVENT, "Stop", "AfterAgent", "PreCompact", "PreCompress")
# Cursor's events, and the names that other agents use for them.
CURSOR_EVENTS = {
    "sessionStart": START_EVENT, "beforeSubmitPrompt": "UserPromptSubmit", "stop": "Stop",
    "preCompact": "PreCompact", "sessionEnd": END_EVENT,
}  # fmt: skip
OPTIONS = ("--data", "--space")
# For agents whose later hooks call an MCP tool, which fails until the server is connected.
UNTIL_CONNECTED = "--until-connected"
RECENT_SECONDS = 10.0
SETTLED_SECONDS = 0.4  # seconds until an agent's hooks can call tools, on a busy machine
DATABASE_VARIABLE = "COMMONPLACE_DATABASE"
ANSWER_SECONDS = 4.0
END_SECONDS = 1.0  # agents that end wait less; unanswered events are spooled
# The arguments of the tool `hook`, and the agents' names for them.
ARGUMENT_KEYS = {
    "session": ("session", "session_id", "sessionId"),
    "cwd": ("cwd",),
    "prompt": ("prompt",),
    "transcript": ("transcript", "transcript_path", "transcriptPath"),
    "source": ("source",),
    "agent": ("agent", "agent_id", "agentId"),
}


def main() -> None:
    """Run the hook and exit with code 0."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.stdout.write(USAGE)
        return
    try:
        written = run(sys.argv[1:], sys.stdin.buffer.read(INPUT_BYTES + 1))
        if written:
            # JSON is UTF-8, whatever encoding the terminal has.
            sys.stdout.buffer.write(written.encode("utf-8", "replace") + b"\n")
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        _print_error(f"commonplace-hook: nothing was done: {error}\n")
    os._exit(0)  # an error at exit, such as a closed output, must not become the exit code


def _print_error(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return  # standard error is closed


def run(arguments: Sequence[str], given: bytes) -> str:
    """Handle an event; return the output for the agent as JSON, or an empty string."""
    event = parse_event(given)
    if event is not None and event_name(event) in CURSOR_EVENTS:
        return _to_cursor_output(
            event_name(event), run(arguments, json.dumps(_from_cursor_event(event)).encode())
        )
    options = _parse_options(arguments)
    if event is None or options is None:
        return ""
    data = files.data_directory(options.get("--data"))
    space = options.get("--space", "default")
    if not os.path.isdir(os.path.join(data, "spaces")) and not _has_database(data):  # noqa: PTH112, PTH118
        return ""  # there is no data directory yet
    until = time.monotonic() + ANSWER_SECONDS
    answered = _answer_from_server(data, space, event)
    if answered is None:
        answered = _answer_from_files(data, space, event)
    if UNTIL_CONNECTED in options and event.get("source") not in RUNNING_SESSION_SOURCES:
        _wait_for_agent(data, until)
    return answered


def _has_database(data: str) -> bool:
    """Return whether a database holds the memories, so that the directory has no spaces."""
    if os.environ.get(DATABASE_VARIABLE):
        return True
    from commonplace.client import config

    try:
        return bool(config.read(data).get("database"))
    except config.Unreadable as error:
        _print_error(f"commonplace-hook: {error} {error.hint}\n")
        return False


def _wait_for_agent(data: str, until: float) -> None:
    """Wait a limited time until the starting agent has connected to the server."""
    from commonplace.client import command, config, connection

    try:
        ready = command.place_of(data, None).ready_file
    except (OSError, connection.Unusable, config.Unreadable):
        return
    since = time.time() - RECENT_SECONDS  # the agent may have connected before this process started
    while time.monotonic() < until:
        try:
            if since < os.stat(ready).st_mtime < time.time() - SETTLED_SECONDS:  # noqa: PTH116
                return
        except OSError:
            pass  # no agent has ever connected
        time.sleep(connection.RETRY_SECONDS)


def _from_cursor_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields of a Cursor event to the names that other agents use."""
    roots = event.get("workspace_roots")
    cwd = roots[0] if isinstance(roots, list) and roots else event.get("cwd")
    session = event.get("conversation_id") or event.get("session_id")
    named = {"hook_event_name": CURSOR_EVENTS[event_name(event)], "session_id": session, "cwd": cwd}
    return {**event, **{name: value for name, value in named.items() if isinstance(value, str)}}


def _to_cursor_output(name: str, envelope: str) -> str:
    """Convert an answer to Cursor's format; a prompt is never blocked."""
    given = json.loads(envelope).get("hookSpecificOutput", {}) if envelope else {}
    answer: dict[str, Any] = {"continue": True} if CURSOR_EVENTS[name] == "UserPromptSubmit" else {}
    if given.get("additionalContext"):
        answer["additional_context"] = given["additionalContext"]
    return _json_without_escapes(answer) if answer else ""


def _json_without_escapes(value: Any) -> str:
    """Return JSON with all characters as they are; the size limits do not count escapes."""
    return json.dumps(value, ensure_ascii=False)


def parse_event(given: bytes) -> dict[str, Any] | None:
    """Parse the event on standard input; return None if it is not an event, or too large."""
    if len(given) > INPUT_BYTES:
        return None
    try:
        event = json.loads(given)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and event_name(event) else None


def event_name(event: Mapping[str, Any]) -> str:
    """Return the name of an event; empty if it has none."""
    names = (event.get(key) for key in EVENT_NAMES)
    return next((name for name in names if isinstance(name, str)), "")


def _parse_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """Parse the options of the command line; return None if they are not valid."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, separator, value = rest.pop(0).partition("=")
        if name == UNTIL_CONNECTED and not separator:
            found[name] = ""
            continue
        if name not in OPTIONS or not (separator or rest):
            return None
        found[name] = value if separator else rest.pop(0)
    return found


def _answer_from_server(data: str, space: str, event: Mapping[str, Any]) -> str | None:
    """Return the server's answer; None if there is none."""
    from commonplace.client import command, config, connection

    try:
        place = command.place_of(data, None)
        hello = {
            **command.describe_process(), "kind": "call", "space": space, "tool": "hook",
            "arguments": _tool_arguments(event),
        }  # fmt: skip
        answer = _ask_server(place, hello, event_name(event))
    except config.Unreadable as error:
        _print_error(f"commonplace-hook: {error} {error.hint}\n")
        return None
    except (OSError, connection.Unusable):
        return None
    if answer is None or "result" not in answer:
        return None
    return str(answer["result"]["content"][0]["text"])


def _ask_server(place: Place, hello: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Ask the server; if none is running, start one, and wait for it at a prompt."""
    from commonplace.client import connection

    until = time.monotonic() + ANSWER_SECONDS
    answer = connection.ask(place, hello, END_SECONDS if name == END_EVENT else ANSWER_SECONDS)
    if answer is not None or name == END_EVENT:
        return answer
    starting = connection.ServerStarter(place, {})
    try:
        starting.start_or_wait()
        while name in PROMPT_EVENTS and answer is None and (left := until - time.monotonic()) > 0:
            starting.start_or_wait()
            answer = connection.ask(place, hello, left)
    finally:
        starting.close()
    return answer


def _tool_arguments(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the event as arguments of the tool `hook`."""
    found = {"event": event_name(event)}
    for name, keys in ARGUMENT_KEYS.items():
        values = [event[key] for key in keys if isinstance(event.get(key), str)]
        if values:
            found[name] = values[0]
    return found


def _answer_from_files(data: str, space: str, event: Mapping[str, Any]) -> str:
    """Handle an event without a server: spool it, or return the prepared context."""
    name = event_name(event)
    # Spool a start event, so that the transcript is read even without an end event.
    if name == END_EVENT or (name in TRANSCRIPT_EVENTS and "transcript" in _tool_arguments(event)):
        files.spool_event(data, space, event)
    if name != START_EVENT or not isinstance(event.get("cwd"), str):
        return ""
    project = os.environ.get(files.PROJECT_VARIABLE, "").strip()
    prepared = files.prepared_context_file(data, space, event["cwd"], project)
    try:
        with open(prepared, encoding="utf-8") as file:  # noqa: PTH123
            return _json_without_escapes(json.load(file))
    except (OSError, ValueError):
        return ""


if __name__ == "__main__":
    main()
