"""The console script `commonplace-hook`: it never fails, and it stores what it can."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.cli import agent_hooks
from commonplace.client import files, hook, pipe
from commonplace.platform import hooks
from commonplace.storage import locking

from .harness import Agent, place_of, wait_until

PROGRAM = [sys.executable, "-c", "from commonplace.client.hook import main; main()"]


def ran(data: Path, given: bytes, *options: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "COMMONPLACE_DATA": str(data)}
    return subprocess.run(
        [*PROGRAM, *options], input=given, capture_output=True, timeout=60, env=environment, **how
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    with Commonplace(place, embedding="none") as memory:
        memory.remember("Half way", kind="checkpoint")
        hooks.handle_event(memory, {"event": "Stop", "cwd": str(tmp_path)})
    return place


@pytest.mark.parametrize("given", [
    b"", b"{", b"[1]", b"7", b"\xff\xfe", b"{}", b'{"hook_event_name": 5}', b"[" * 100_000,
    b'{"hook_event_name": "Unknown"}', b'{"hook_event_name": "SessionStart"}',
    b'{"hook_event_name": "SessionStart", "cwd": 5}',
    b'{"hook_event_name": "SessionStart", "cwd": "/nowhere"}',
    b'{"hook_event_name": "SessionEnd", "x": "' + b"y" * hook.INPUT_BYTES + b'"}',
], ids=lambda given: repr(given[:40]))  # fmt: skip
def test_garbage_and_unknown_events_get_nothing(data: Path, given: bytes) -> None:
    done = ran(data, given)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (data / files.INBOX_FOLDER).exists()


@pytest.mark.parametrize("options", [("--unknown",), ("--data",), ("word",), ("--space=",)])
def test_a_wrong_command_line_is_no_error(data: Path, options: tuple[str, ...]) -> None:
    done = ran(data, b'{"hook_event_name": "Stop"}', *options)
    assert (done.returncode, done.stdout) == (0, b"")


def test_cursor_is_answered_in_its_own_words(data: Path, tmp_path: Path) -> None:
    start = {"hook_event_name": "sessionStart", "conversation_id": "c1",
             "workspace_roots": [str(tmp_path)], "transcript_path": None}  # fmt: skip
    stop = {**start, "hook_event_name": "stop", "transcript_path": str(tmp_path / "t.jsonl")}
    odd = {"hook_event_name": "stop", "workspace_roots": 5, "conversation_id": []}
    inbox = data / files.INBOX_FOLDER
    inbox.mkdir()
    with locking.file_lock(inbox / "lock"):  # a server that the hook starts takes nothing
        assert ran(data, json.dumps(stop).encode()).stdout == b""
        assert ran(data, json.dumps(odd).encode()).stdout == b""
        (spooled,) = inbox.glob("*.json")
        event = json.loads(spooled.read_bytes())["event"]
    assert (event["hook_event_name"], event["session_id"]) == ("Stop", "c1")
    assert event["cwd"] == str(tmp_path)
    told = json.loads(ran(data, json.dumps(start).encode()).stdout)
    assert set(told) == {"additional_context"} and "Half way" in told["additional_context"]
    prompt = {**start, "hook_event_name": "beforeSubmitPrompt", "prompt": "what now?"}
    assert json.loads(ran(data, json.dumps(prompt).encode()).stdout)["continue"] is True


@pytest.mark.parametrize("field", ["transcript", "transcript_path", "transcriptPath"])
def test_without_a_server_an_event_with_a_transcript_is_spooled_whatever_its_field_is_called(
    data: Path, tmp_path: Path, field: str
) -> None:
    event = {"hookEventName": "Stop", "sessionId": "s", field: str(tmp_path / "t.jsonl")}
    assert hook._answer_from_files(str(data), "default", event) == ""
    (spooled,) = (data / files.INBOX_FOLDER).glob("*.json")
    assert json.loads(spooled.read_bytes())["event"] == event


def test_without_a_server_a_session_starts_with_the_prepared_context(
    data: Path, tmp_path: Path
) -> None:
    event = {"hook_event_name": "SessionStart", "cwd": str(tmp_path)}
    done = ran(data, json.dumps(event).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Half way" in hooks.context_in(json.loads(done.stdout))


@pytest.mark.parametrize("connected", [True, False])
def test_a_session_starts_when_its_agent_is_connected_or_does_not_connect(
    data: Path, tmp_path: Path, connected: bool
) -> None:
    event = {"hook_event_name": "SessionStart", "source": "startup", "cwd": str(tmp_path)}
    with Agent(data) as agent:
        agent.call("recall", query="x")
        ready = Path(place_of(data).ready_file)
        assert not ready.exists()
        if connected:
            agent.ask("tools/list")
            wait_until(ready.exists)  # it is noted after the answer
        done = ran(data, json.dumps(event).encode(), hook.UNTIL_CONNECTED)
    assert "Half way" in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_a_server_the_end_of_a_session_is_spooled(data: Path, tmp_path: Path) -> None:
    event = {"hook_event_name": "SessionEnd", "session_id": "s", "reason": "exit"}
    done = ran(tmp_path / "else", json.dumps(event).encode(), "--data", str(data), "--space=work")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (file,) = (data / files.INBOX_FOLDER).iterdir()
    assert json.loads(file.read_bytes()) == {
        "version": 1, "space": "work", "event": event, "environ": {"COMMONPLACE_PROJECT": "-"},
    }  # fmt: skip
    assert file.stat().st_mode & 0o077 == 0


def test_it_waits_less_for_the_server_than_agents_wait_for_it() -> None:
    for file in agent_hooks.HOOK_FILES.values():
        for event, groups in file.hooks("x").items():
            for one in (each for group in groups for each in group.get("hooks", [group])):
                seconds = one["timeout"] / (1_000 if one["timeout"] >= 1_000 else 1)
                ends = event in ("SessionEnd", "sessionEnd")
                waits = hook.END_SECONDS if ends else hook.ANSWER_SECONDS
                by_tool = one.get("type") == "mcp_tool"
                assert (pipe.HOOK_SECONDS if by_tool else waits) < seconds, (event, one)


def test_a_server_that_hangs_does_not_lose_the_end_of_a_session(data: Path, tmp_path: Path) -> None:
    with Agent(data) as agent:
        agent.call("recall", query="x")
        pid = int(Path(place_of(data).lock_file).read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            event = {"hook_event_name": "SessionEnd", "cwd": str(tmp_path)}
            done = ran(data, json.dumps(event).encode())
        finally:
            os.kill(pid, signal.SIGCONT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (spooled,) = (data / files.INBOX_FOLDER).glob("*.json")
    assert json.loads(spooled.read_bytes())["event"] == event


def test_nothing_is_created_where_there_is_no_memory(tmp_path: Path) -> None:
    done = ran(tmp_path / "data", b'{"hook_event_name": "SessionEnd"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "data").exists()


def test_a_database_that_the_file_names_is_a_memory_too(tmp_path: Path) -> None:
    """Its data directory has no spaces."""
    data = tmp_path / "machine"
    data.mkdir()
    settings = data / "config.toml"
    settings.write_text('database = "postgresql://127.0.0.1:1/none"\n')  # nobody answers there
    settings.chmod(0o600)
    given = {"hook_event_name": "SessionEnd", "session_id": "s", "cwd": str(tmp_path)}
    assert ran(data, json.dumps(given).encode()).returncode == 0
    (spooled,) = (data / files.INBOX_FOLDER).glob("*.json")
    assert json.loads(spooled.read_bytes())["event"] == given


def test_a_directory_that_cannot_be_written_is_no_error(data: Path) -> None:
    (data / files.INBOX_FOLDER).write_bytes(b"a file in its place")
    done = ran(data, b'{"hook_event_name": "SessionEnd"}')
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"commonplace-hook: nothing was done: ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(data: Path, tmp_path: Path, closed: str) -> None:
    event = json.dumps({"hook_event_name": "SessionStart", "cwd": str(tmp_path)})
    shut = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM]
    environment = {**os.environ, "COMMONPLACE_DATA": str(data)}
    done = subprocess.run(
        shut, input=event.encode(), capture_output=True, timeout=60, env=environment
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr


def test_it_imports_only_the_standard_library() -> None:
    code = (
        "import sys\nfrom commonplace.client import hook\nhook.run([], b'')\n"
        "ours = {name for name in sys.modules if name.startswith('commonplace')}\n"
        "assert ours <= {'commonplace', 'commonplace.client', 'commonplace.client.files',"
        " 'commonplace.client.hook'}, ours\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - {'commonplace'}\n"
        "outside = roots - sys.stdlib_module_names - {'_distutils_hack', '__main__', 'loop_guard',"
        " 'sitecustomize', 'usercustomize'}\n"
        "assert not {name for name in outside if not name.startswith('_')}, outside\n"
        "slow = {'asyncio', 'subprocess', 'typing_extensions', 'ssl', 'dataclasses', 'tempfile'}\n"
        "assert not slow & sys.modules.keys(), slow & sys.modules.keys()\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=clean)


@pytest.mark.parametrize("letter", ["鷺", "🪶"])
def test_without_a_server_a_context_keeps_its_size_in_bytes(tmp_path: Path, letter: str) -> None:
    data = tmp_path / "data"
    with Commonplace(data, embedding="none") as memory:
        for number in range(60):
            memory.remember(f"{number} {letter * 900}", kind="decision")
        hooks.handle_event(memory, {"event": "Stop", "cwd": str(tmp_path)})
    shown = hook._answer_from_files(
        str(data), "default", {"event": "SessionStart", "cwd": str(tmp_path)}
    )
    assert letter in hooks.context_in(json.loads(shown))
    assert 5_000 < len(shown.encode()) <= 10_000


def test_the_output_is_utf_8_whatever_the_terminal_has(data: Path, tmp_path: Path) -> None:
    with Commonplace(data, embedding="none") as memory:
        memory.remember("鷺 nests here", kind="decision")
        hooks.handle_event(memory, {"event": "Stop", "cwd": str(tmp_path)})
    event = {"hook_event_name": "SessionStart", "cwd": str(tmp_path)}
    environment = {**os.environ, "COMMONPLACE_DATA": str(data), "PYTHONIOENCODING": "latin-1"}
    with Agent(data) as agent:  # a server runs
        agent.call("recall", query="heron")
        done = subprocess.run(PROGRAM, input=json.dumps(event).encode(), capture_output=True,
                              timeout=60, env=environment)  # fmt: skip
    assert done.stderr == b""
    assert "鷺 nests here" in hooks.context_in(json.loads(done.stdout))
