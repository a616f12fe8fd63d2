"""Hooks: the envelope for an event, and events that were spooled while no server ran."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.client import files
from commonplace.platform import hooks
from commonplace.storage import locking

PROMPT = "Please fix the failing login test of the API"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


def prompted(prompt: str, **more: Any) -> dict[str, Any]:
    return {"event": "UserPromptSubmit", "prompt": prompt, **more}


def test_a_prompt_gets_what_is_relevant_in_an_envelope(memory: Commonplace) -> None:
    stored = memory.remember("The failing login test of the API needs Redis")
    memory.remember("Pasta on Tuesday")
    envelope = hooks.handle_event(memory, prompted(PROMPT))
    assert envelope is not None
    assert envelope.keys() == {"hookSpecificOutput"}
    assert envelope["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    context = hooks.context_in(envelope)
    assert context.startswith("<recalled ") and f"id: {stored.id}" in context
    assert "Pasta" not in context


@pytest.mark.parametrize("event", [
    {}, {"event": "Unknown"}, {"event": 7}, {"event": "UserPromptSubmit"},
    {"event": "UserPromptSubmit", "prompt": ["x"]}, prompted("What is for dinner?"),
    prompted("abc"), {"event": "SessionEnd"}, {"event": "Stop", "cwd": "/nowhere"},
], ids=json.dumps)  # fmt: skip
def test_other_events_get_nothing(memory: Commonplace, event: dict[str, Any]) -> None:
    memory.remember("The failing login test of the API needs Redis")
    assert hooks.handle_event(memory, event) is None


@pytest.mark.parametrize("event", [
    {"event": "SessionStart", "session": "s", "transcript": "/t"},
    {"hook_event_name": "SessionStart", "session_id": "s", "transcript_path": "/t"},
    {"hookEventName": "SessionStart", "sessionId": "s", "transcriptPath": "/t"},
])  # fmt: skip
def test_the_fields_of_every_agent_are_read(event: dict[str, Any]) -> None:
    found = hooks.parse_event({**event, "cwd": "/here\0", "prompt": "half \ud800", "source": None})
    assert (found.name, found.session, found.transcript) == ("SessionStart", "s", "/t")
    assert (found.cwd, found.prompt, found.source) == ("/here", "half ?", "")
    assert found.fields["source"] is None


def test_a_session_starts_with_the_open_checkpoint_and_the_newest_decisions(
    memory: Commonplace,
) -> None:
    for number in range(12):
        memory.remember(f"Decision number {number}.", kind="decision")
    memory.remember("This is done", kind="checkpoint", attrs={"done": True})
    memory.remember("Half way through the login", kind="checkpoint")
    memory.remember("This one, too", kind="checkpoint", attrs={"done": True})
    context = hooks.context_in(hooks.handle_event(memory, {"event": "SessionStart"}))
    assert "Half way" in context and "done" not in context and "too" not in context
    assert [number for number in range(12) if f"number {number}." in context] == [*range(2, 12)]


def test_the_context_of_the_next_start_is_stored_and_removed(memory: Commonplace) -> None:
    data = str(memory.library.path)
    kept = Path(files.prepared_context_file(data, "default", "/project"))
    assert hooks.handle_event(memory, {"event": "Stop", "cwd": "/project"}) is None
    assert not kept.exists()
    stored = memory.remember("Half way", kind="checkpoint")
    hooks.handle_event(memory, {"event": "Stop", "cwd": "/project"})
    envelope = json.loads(kept.read_text())
    assert envelope["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert "Half way" in hooks.context_in(envelope)
    assert kept.stat().st_mode & 0o077 == 0
    memory.forget(stored.id)
    hooks.handle_event(memory, {"event": "Stop", "cwd": "/project"})
    assert not kept.exists()
    assert files.prepared_context_file(data, "default", "/project") != files.prepared_context_file(
        data, "b", "/project"
    )


def test_spooled_events_are_taken_in_once_and_in_order(memory: Commonplace) -> None:
    memory.remember("Half way", kind="checkpoint")
    data = memory.library.path
    for cwd in ("/one", "/two"):
        files.spool_event(str(data), "default", {"event": "Stop", "cwd": cwd})
    names = [file.name for file in sorted((data / files.INBOX_FOLDER).iterdir())]
    assert len(names) == 2 and all(name.endswith(".json") for name in names)
    assert hooks.handle_spooled_events(data, memory.at) == 2
    assert hooks.handle_spooled_events(data, memory.at) == 0
    assert not list((data / files.INBOX_FOLDER).glob("*.json"))
    for cwd in ("/one", "/two"):
        assert Path(files.prepared_context_file(str(data), "default", cwd)).exists()


def test_a_spooled_file_that_is_no_event_is_set_aside(memory: Commonplace) -> None:
    data = memory.library.path
    memory.remember("x")
    good = files.spool_event(str(data), "default", {"event": "Stop"})
    for number, content in enumerate((b"", b"{", b"[1]", b'{"event": 1}', b"[" * 100_000)):
        (data / files.INBOX_FOLDER / f"0-{number}.json").write_bytes(content)
    files.spool_event(str(data), "not a space!", {"event": "Stop", "cwd": "/x"})
    assert hooks.handle_spooled_events(data, memory.at) == 1
    assert not Path(good).exists()
    refused = [file for file in (data / files.INBOX_FOLDER).iterdir() if file.suffix == ".refused"]
    assert len(refused) == 6


def test_a_spooled_event_without_a_readable_transcript_does_not_hold_up_the_others(
    memory: Commonplace, tmp_path: Path
) -> None:
    memory.remember("x")
    data, gone = memory.library.path, str(tmp_path / "gone.jsonl")
    hooks.handle_event(memory, {"event": "SessionStart", "transcript": gone, "session": "s"})
    unreadable = {"event": "Stop", "transcript": f"/{'a' * 300}.jsonl"}
    kept = Path(files.spool_event(str(data), "default", unreadable))
    compacted = {"event": "PreCompact", "transcript": gone, "session": "s"}
    files.spool_event(str(data), "default", compacted)
    files.spool_event(str(data), "default", {"event": "Stop"})
    assert hooks.handle_spooled_events(data, memory.at) == 2
    assert list((data / files.INBOX_FOLDER).glob("*.json")) == [kept]


def test_spooled_events_stay_while_another_process_takes_them_in(memory: Commonplace) -> None:
    data = memory.library.path
    spooled = Path(files.spool_event(str(data), "default", {"event": "Stop"}))
    descriptor = locking.open_locked(data / files.INBOX_FOLDER / "lock")
    assert descriptor is not None
    assert hooks.handle_spooled_events(data, memory.at) == 0
    assert spooled.exists()
    os.close(descriptor)
    assert hooks.handle_spooled_events(data, memory.at) == 1
