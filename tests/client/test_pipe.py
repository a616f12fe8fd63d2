"""`commonplace mcp` through the server in the background."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.client import connection, pipe
from commonplace.client.static_answers import StaticAnswers
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from conftest import background_servers, kill_background_servers

from .harness import HELLO, PROGRAM, Agent, kill_server, place_of, server_of, wait_until

ROOT = Path(__file__).parents[2]


def texts(data: Path, space: str = "default") -> list[str]:
    with Commonplace(data, embedding="none", space=space) as memory:
        return sorted(each.text for each in memory.browse(limit=1_000)[0])


def kept_answers(data: Path) -> int:
    from commonplace.storage import answers

    with (
        Commonplace(data, embedding="none") as memory,
        lease(memory) as space,
        space.store.read() as rows,
    ):
        return len(list(answers.results(rows, "default")))


def test_two_clients_share_one_server(tmp_path: Path) -> None:
    with Agent(tmp_path) as one, Agent(tmp_path, "--space", "work") as two:
        one.call("remember", text="of the first")
        two.call("remember", text="of the second")
        found = server_of(tmp_path)
        assert found is not None
        assert {each["space"] for each in found["clients"]} == {"default", "work"}
        assert len({each["pid"] for each in found["clients"]}) == 2
        assert one.end() == (0, "") and two.end() == (0, "")
    assert (texts(tmp_path), texts(tmp_path, "work")) == (["of the first"], ["of the second"])


def test_calls_are_audited_with_the_client(tmp_path: Path) -> None:
    with Agent(tmp_path) as other:  # so that a server is there before the client speaks
        other.call("recall", query="x")
    with Agent(tmp_path, greet=False) as agent:
        wait_until(lambda: len((server_of(tmp_path) or {"clients": ()})["clients"]) == 1)
        agent.ask("initialize", HELLO)
        agent.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        agent.call("remember", text="x")
        with pytest.raises(RuntimeError):
            agent.call("remember", text="")
        pid = agent.process.pid
        agent.end()
    with Commonplace(tmp_path, embedding="none") as memory, lease(memory) as space:
        failed, stored, _ = audit.listing(space.store)
        assert (stored.tool, stored.session, stored.client) == (
            "remember",
            f"stdio-{pid}",
            "tests 1",
        )
        assert (failed.success, stored.success) == (False, True)
        assert not audit.verify(space.store).faults


def test_a_pipe_that_may_only_read_cannot_write(tmp_path: Path) -> None:
    with Agent(tmp_path, "--read-only") as agent:
        listed = agent.ask("tools/list")["result"]["tools"]
        assert {tool["name"] for tool in listed} == {"recall", "read", "explore", "context"}
        with pytest.raises(RuntimeError, match="scope 'write'"):
            agent.call("remember", text="x")
        agent.call("recall", query="x")


def test_a_killed_server_is_replaced_and_the_client_sees_nothing(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        pids = set()
        for number in range(2):
            agent.call("remember", text=f"line {number}")
            pids.add(kill_server(tmp_path))
        assert agent.call("recall", query="line")["memories"]
        assert len(pids) == 2
        assert agent.end() == (0, "")
    assert texts(tmp_path) == ["line 0", "line 1"]


@pytest.mark.parametrize("killed", [False, True])
def test_an_event_is_answered_while_the_server_hangs_and_handled_once_it_is_back(
    tmp_path: Path, killed: bool
) -> None:
    transcript = tmp_path / "one.jsonl"
    said = {"role": "user", "content": "we use tabs here"}
    line = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": said}
    transcript.write_text(json.dumps({**line, "timestamp": "2026-11-17T10:00:00Z"}) + "\n")
    event = {"event": "Stop", "session": "s1", "cwd": str(tmp_path), "transcript": str(transcript)}
    data = tmp_path / "data"
    with Agent(data) as agent:
        agent.call("recall", query="x")
        pid = int(Path(place_of(data).lock_file).read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            found = agent.call("hook", **event)
        finally:
            os.kill(pid, signal.SIGKILL if killed else signal.SIGCONT)
        assert found["content"] == [{"type": "text", "text": ""}]
        assert agent.call("recall", query="tabs", everywhere=True)  # `ask` compares the ids
        assert agent.end() == (0, "")
    assert texts(data) == ["we use tabs here"]


def test_kept_answers_do_not_grow(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        for number in range(12):
            agent.call("remember", text=f"line {number}")
        assert kept_answers(tmp_path) == 1  # the last one, which no other call has confirmed
        with pytest.raises(RuntimeError):
            agent.call("remember", text="")  # a call that fails confirms nothing
        agent.call("recall", query="line")
        assert kept_answers(tmp_path) == 0


def test_a_clients_own_key_is_kept(tmp_path: Path) -> None:
    asked = {
        "name": "remember", "arguments": {"text": "once"},
        "_meta": {"commonplace/idempotency-key": "mine"},
    }  # fmt: skip
    with Agent(tmp_path) as agent:
        one = agent.ask("tools/call", asked)["result"]
        two = agent.ask("tools/call", asked)["result"]
        assert one["structuredContent"] == two["structuredContent"]
        agent.end()
    assert texts(tmp_path) == ["once"]


def test_the_server_outlives_the_agent_that_started_it(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.call("remember", text="x")
        pid = (server_of(tmp_path) or {})["pid"]
        assert os.getsid(pid) == pid, "it has a session of its own"
        os.killpg(os.getpgid(agent.process.pid), 0)
        agent.kill()
    with Agent(tmp_path) as agent:
        agent.call("recall", query="x")
        assert (server_of(tmp_path) or {})["pid"] == pid


@pytest.mark.parametrize("words", [(), ("--dialect", "mama")], ids=["socket", "http"])
def test_calls_do_not_wait_for_the_threads_that_embed(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    site, noted = tmp_path / "site", tmp_path / "noted"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import atexit, gc, os, pathlib, sys\n"
        "note = lambda: pathlib.Path(os.environ['NOTED']).write_text(\n"
        "    f'{sys.getswitchinterval():g} {gc.get_freeze_count()}')\n"
        "if 'COMMONPLACE_BACKGROUND' in os.environ: atexit.register(note)\n"
    )
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    environ = {"PYTHONPATH": path, "NOTED": str(noted), "MAMA_SERVER_PORT": "0"}
    with Agent(tmp_path / "data", *words, environ=environ) as agent:
        agent.ask("tools/list")
        wait_until(lambda: server_of(tmp_path / "data") is not None)
        connection.ask(place_of(tmp_path / "data"), {"kind": "stop"})
        wait_until(lambda: noted.exists() and noted.read_text())
    interval, frozen = noted.read_text().split()
    assert float(interval) <= 0.001, "Python's own interval is 5 ms"
    assert int(frozen) > 10_000, "the collector would scan all that is loaded"


def test_an_idle_server_ends(tmp_path: Path) -> None:
    with Agent(tmp_path, environ={"COMMONPLACE_IDLE_SECONDS": "0.2"}) as agent:
        agent.call("remember", text="x")
        pid = (server_of(tmp_path) or {})["pid"]
        agent.end()
    wait_until(lambda: server_of(tmp_path) is None)
    assert not Path(place_of(tmp_path).socket_path).exists()
    wait_until(lambda: not _lives(pid))


def test_idle_ends_and_new_connections_do_not_race(tmp_path: Path) -> None:
    stored = []
    for number in range(4):
        with Agent(tmp_path, environ={"COMMONPLACE_IDLE_SECONDS": "0.05"}) as agent:
            agent.call("remember", text=f"line {number}")
            stored.append(f"line {number}")
            assert agent.end() == (0, "")
    assert texts(tmp_path) == stored


def test_clients_that_start_at_once_start_one_server(tmp_path: Path) -> None:
    agents = [Agent(tmp_path, greet=False) for _ in range(6)]
    try:
        for agent in agents:
            agent.ask("initialize", HELLO)
        for number, agent in enumerate(agents):
            agent.call("remember", text=f"line {number}")
        found = server_of(tmp_path)
        assert found is not None and len(found["clients"]) == 6
        assert len(_servers_of(tmp_path)) == 1
    finally:
        for agent in agents:
            agent.end()
    assert len(texts(tmp_path)) == 6


def test_servers_of_clients_that_pass_no_environment_on_are_found(tmp_path: Path) -> None:
    """Those of the tests must end with them; such clients leave out where sockets are."""
    passed = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [*PROGRAM, "mcp", "--data", str(tmp_path), "--embedding", "none"]
    call = {"name": "remember", "arguments": {"text": "x"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]  # fmt: skip
    written = "".join(json.dumps(line) + "\n" for line in lines).encode()
    done = subprocess.run(command, input=written, env=passed, capture_output=True, timeout=120)
    assert json.loads(done.stdout.splitlines()[1])["id"] == 2
    (pid,) = _servers_of(tmp_path)
    assert pid in background_servers()
    kill_background_servers()
    wait_until(lambda: not _lives(pid))


def _servers_of(data: Path) -> list[int]:
    """The background servers of a data directory that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            its = f"COMMONPLACE_DATA={data}\0".encode() in environ
            if its and b"commonplace.server.background" in command:
                found.append(int(entry.name))
    return found


def _lives(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def test_serve_takes_over_and_clients_go_on(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.call("remember", text="before")
        first = (server_of(tmp_path) or {})["pid"]
        serve = subprocess.Popen(
            [*PROGRAM, "serve", "--data", str(tmp_path), "--port", "0", "--embedding", "none"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            wait_until(lambda: (server_of(tmp_path) or {}).get("kind") == "serve")
            agent.call("remember", text="after")
            found = server_of(tmp_path)
            assert found is not None and found["pid"] == serve.pid != first
            assert found["http"].startswith("http://127.0.0.1:")
        finally:
            serve.send_signal(signal.SIGTERM)
            assert serve.wait(60) == 0
            assert serve.stderr is not None
            serve.stderr.close()
        agent.call("remember", text="later")
        assert agent.end() == (0, "")
    assert texts(tmp_path) == ["after", "before", "later"]


def test_malformed_lines_are_answered_and_nothing_is_lost(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.tell(b"this is not JSON\n")
        assert agent.hear()["error"]["code"] == -32700
        agent.tell(b'[{"jsonrpc": "2.0"}]\n')
        assert agent.hear()["error"]["code"] == -32600
        agent.tell(b"\n\xff\xfe{}\n")
        assert agent.hear()["error"]["code"] == -32700
        assert agent.ask("nothing/here")["error"]["code"] == -32601
        agent.call("remember", text="x" * 500_000)
        params = {"name": "remember", "arguments": {"text": "no line end"}}
        message = {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": params}
        agent.tell(json.dumps(message).encode())
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.hear()["id"] == "last"
        assert agent.end()[0] == 0
    assert "no line end" in texts(tmp_path)


def test_a_call_that_is_cancelled_while_its_answer_is_written_does_not_end_the_pipe(
    tmp_path: Path,
) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}

    class Output(io.BytesIO):
        """The client's end: it cancels its call at the moment in which it is answered."""

        def write(self, line: Any) -> int:
            client._handle_line(json.dumps({"jsonrpc": "2.0", **cancel}).encode())
            return super().write(line)

    hello = {"dialect": "commonplace", "prefix": "", "read_only": False, "version": "1"}
    output = Output()
    client = pipe.Pipe(pipe.Options(place_of(tmp_path), hello, {}), io.BytesIO(), output)
    client._handle_line(calling(1, b'"x"'))
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
    client._handle_answer(answer)
    assert (output.getvalue(), client._state.pending) == (answer, [])


@pytest.mark.parametrize("at_once", [False, True])
def test_large_answers_arrive_while_a_large_message_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    ours, theirs = socket.socketpair()
    connections = [connection.ServerConnection(ours)]
    never = threading.Event()

    def connected(client: pipe.Pipe) -> connection.ServerConnection:
        if at_once:  # all calls are sent over the new connection
            wait_until(lambda: len(client._state.pending) == 3)
        if not connections:
            never.wait()
        return connections.pop()

    def serve() -> None:
        """Answer two calls at length before the third is read, as the server may."""
        with theirs.makefile("rb") as lines:
            for number in range(3):
                lines.readline()
                if number > 0:
                    answers = [1, 2] if number == 1 else [3]
                    for identity in answers:
                        result = {"content": [{"type": "text", "text": "x" * 4_000_000}]}
                        answer = {"jsonrpc": "2.0", "id": identity, "result": result}
                        theirs.sendall(json.dumps(answer).encode() + b"\n")

    monkeypatch.setattr(pipe.Pipe, "_connect", connected)
    small, large = b'"x"', b'"' + b"x" * 4_000_000 + b'"'
    given = io.BytesIO(calling(1, small) + calling(2, small) + calling(3, large))
    hello = {"dialect": "commonplace", "prefix": "", "read_only": False, "version": "1"}
    output = io.BytesIO()
    client = pipe.Pipe(pipe.Options(place_of(tmp_path), hello, {}), given, output)
    threading.Thread(target=serve, daemon=True).start()
    running = threading.Thread(target=client.run, daemon=True)
    running.start()
    running.join(30)
    assert [json.loads(line)["id"] for line in output.getvalue().splitlines()] == [1, 2, 3]
    theirs.close()


def calling(identity: object, note: bytes) -> bytes:
    """A call of `remember` with a value that is already JSON."""
    head = json.dumps({"jsonrpc": "2.0", "id": identity, "method": "tools/call"}).encode()[:-1]
    return head + b', "params": {"name": "remember", "arguments": {"text": ' + note + b"}}}\n"


def test_a_message_that_no_server_reads_is_answered_and_the_next_one_too(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.tell(calling("long", b'"' + b"x" * 34_000_000 + b'"'))
        answer = agent.hear()
        assert answer["id"] == "long" and answer["error"]["code"] == -32600
        assert "at most 33 MB" in answer["error"]["message"]
        agent.call("remember", text="the next one")
        assert agent.end() == (0, "")
    assert texts(tmp_path) == ["the next one"]


@pytest.mark.parametrize("in_process", [False, True])
def test_a_message_that_is_too_deep_gets_its_id_and_the_reason(
    tmp_path: Path, in_process: bool
) -> None:
    with Agent(tmp_path, *(["--in-process"] if in_process else [])) as agent:
        for identity in (7, "seven", 'a "quoted" \\ one'):
            for levels in (500, 5_000):
                agent.tell(calling(identity, b'[{"id": ' * levels + b"1" + b"}]" * levels))
                answer = agent.hear()
                assert answer["id"] == identity
                assert "64 levels deep" in answer["error"]["message"]
            agent.tell(calling(identity, b"9" * 5_000))
            answer = agent.hear()
            assert answer["id"] == identity and "a number is too long" in answer["error"]["message"]


@pytest.mark.parametrize("in_process", [False, True])
def test_a_message_that_is_too_deep_may_have_an_id_or_a_string_that_is_not_json(
    tmp_path: Path, in_process: bool
) -> None:
    deep = b'"x": ' + b"[" * 70
    with Agent(tmp_path, *(["--in-process"] if in_process else [])) as agent:
        for identity in (rb'"\q"', b"007", b'"a\tb"'):
            agent.tell(b'{"jsonrpc": "2.0", "id": ' + identity + b", " + deep + b"\n")
            answer = agent.hear()
            assert answer["id"] is None
            assert "64 levels deep" in answer["error"]["message"]
        # a string without an end, with many quotes: reading it must not take quadratic time
        agent.tell(b"{" + deep + b'"' + rb"\"" * 500_000 + b"\n")
        assert "64 levels deep" in agent.hear()["error"]["message"]
        agent.call("remember", text="the next one")
        assert agent.end() == (0, "")
    assert texts(tmp_path) == ["the next one"]


def test_the_answers_from_files_are_those_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "write_static.py"), "--check"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), "run `make docs`"


def test_unusual_requests_are_left_to_the_server() -> None:
    def answer(**message: Any) -> Any:
        found = StaticAnswers.load("commonplace", "", False)
        return found.answer({"jsonrpc": "2.0", "id": 1, **message})

    usual = {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }  # fmt: skip
    assert answer(method="initialize", params=usual) is not None
    for odd in (
        {"protocolVersion": "1999-01-01"}, {"protocolVersion": 5}, {"capabilities": []},
        {"clientInfo": {"name": "a"}}, {"clientInfo": {"name": 1, "version": "1"}}, {"more": 1},
    ):  # fmt: skip
        assert answer(method="initialize", params={**usual, **odd}) is None
    for message in (
        {"method": "tools/list"}, {"method": "tools/list", "params": {"cursor": "x"}},
        {"method": "ping"}, {"method": "initialize", "params": usual, "id": None},
        {"method": "initialize", "params": usual, "id": True},
        {"method": "initialize", "params": usual, "jsonrpc": "1.0"},
        {"method": ["initialize"], "params": usual}, {"method": "initialize", "params": [usual]},
    ):  # fmt: skip
        assert answer(**message) is None


@pytest.mark.parametrize("client", [
    ("2025-11-25", {"name": "claude-code", "title": "Claude Code", "version": "2.1.197",
                    "description": "Anthropic's agentic coding tool",
                    "websiteUrl": "https://claude.com/claude-code"}, {}),
    ("2025-06-18", {"name": "codex-mcp-client", "title": "Codex", "version": "0.166.0"},
     {"params": {"_meta": {"progressToken": 0}}}),
    ("2025-11-25", {"name": "gemini-cli-mcp-client-commonplace", "version": "0.61.0"},
     {"params": {}}),
])  # fmt: skip
def test_what_the_agents_ask_first_is_answered_without_the_server(
    client: tuple[str, dict[str, str], dict[str, Any]],
) -> None:
    """An agent skips hooks that call a tool while its server is not connected."""
    version, info, listing = client
    asked = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": info}
    found = StaticAnswers.load("commonplace", "", False)
    first = found.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": asked})
    assert first is not None and first["result"]["protocolVersion"] == version
    listed = found.answer({"jsonrpc": "2.0", "id": 1, "method": "tools/list", **listing})
    assert listed is not None and listed["result"]["tools"]
    for odd in ({"progressToken": []}, {"progressToken": 1, "more": 1}, []):
        unusual = {"method": "tools/list", "params": {"_meta": odd}}
        assert found.answer({"jsonrpc": "2.0", "id": 2, **unusual}) is None


def test_it_imports_only_the_standard_library(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom commonplace.client import command, connection, pipe, static_answers\n"
        "from commonplace.cli import main\n"
        "ours = {name for name in sys.modules if name.startswith('commonplace')}\n"
        "assert {name.split('.')[1] for name in ours if '.' in name} <= {'client', 'cli'}, ours\n"
        "outside = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "outside -= {'commonplace', '_distutils_hack', '__main__', 'sitecustomize'}\n"
        "assert not outside, outside\n"
        "slow = {'asyncio', 'subprocess', 'logging', 'typer', 'dataclasses', 'tempfile'}\n"
        "assert not slow & sys.modules.keys(), slow & sys.modules.keys()\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=clean)


def test_a_pipe_with_other_settings_is_told(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.call("remember", text="x")
        with Agent(tmp_path, "--embedding", "http://127.0.0.1:9/v1") as other:
            other.call("recall", query="x")
            code, said = other.end()
    assert code == 0
    assert "COMMONPLACE_EMBEDDING is none in the server that runs" in said


def test_in_process_needs_no_server(tmp_path: Path) -> None:
    with Agent(tmp_path, "--in-process") as agent:
        agent.call("remember", text="x")
        assert server_of(tmp_path) is None
        assert agent.end()[0] == 0


def test_in_process_loads_only_what_the_first_answer_needs(tmp_path: Path) -> None:
    site, noted = tmp_path / "site", tmp_path / "noted"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import atexit, os, pathlib, sys\n"
        "note = lambda: pathlib.Path(os.environ['NOTED']).write_text(' '.join(sys.modules))\n"
        "atexit.register(note)\n"
    )
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    environ = {"PYTHONPATH": path, "NOTED": str(noted)}
    identity = Commonplace(tmp_path / "data", embedding="none").remember("stored before").id
    with Agent(tmp_path / "data", "--in-process", environ=environ) as agent:
        assert "stored before" in str(agent.call("read", id=identity))
        assert agent.end() == (0, "")
    loaded = set(noted.read_text().split())
    assert "commonplace.server.stdio" in loaded
    slow = {"typer", "numpy", "commonplace.cli.app", "commonplace.platform.hooks"}
    slow |= {"commonplace.text.proposals", "commonplace.text.prose", "commonplace.transcripts"}
    assert not slow & loaded


@pytest.mark.parametrize("words", [("--space", "b" * 64 + "!"), ("--embedding", "nonsense")])
def test_in_process_tells_its_errors_as_other_commands(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    def told(*more: str) -> tuple[int, str]:
        done = subprocess.run(
            [*PROGRAM, "mcp", "--in-process", "--data", str(tmp_path), *words, *more],
            input="", capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stderr

    usual = told()
    assert usual[0] == 2 and usual[1].startswith("error: ") and usual[1].count("\n") == 1
    assert told("--allow-secrets") == usual, "an option that the whole program reads"


def test_over_loopback_as_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loopback = {"COMMONPLACE_SOCKET": "loopback"}
    with Agent(tmp_path, environ=loopback) as agent:
        agent.call("remember", text="x")
        base = place_of(tmp_path).base
        assert Path(f"{base}.port").stat().st_mode & 0o077 == 0
        assert not Path(f"{base}.sock").exists()
        kill = int(Path(f"{base}.lock").read_text())
        os.kill(kill, signal.SIGKILL)
        agent.call("remember", text="y")
        monkeypatch.setattr(connection, "USES_LOOPBACK", True)
        assert server_of(tmp_path) is not None
        Path(f"{base}.port").write_text(Path(f"{base}.port").read_text()[:-1] + "x")
        assert server_of(tmp_path) is None, "closed without a byte"
        assert agent.end()[0] == 0
    assert texts(tmp_path) == ["x", "y"]


def test_a_server_that_mama_started_also_serves_http(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mama = {"MAMA_SERVER_PORT": str(port), "MAMA_EMBEDDING_PORT": ""}
    with Agent(tmp_path, "--dialect", "mama", environ=mama) as agent:
        agent.call("load_checkpoint")
        found = server_of(tmp_path)
        assert found is not None
        assert (found["kind"], found["http"]) == ("background", f"http://127.0.0.1:{port}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert answer.status == 200
        with Agent(tmp_path / "other", "--dialect", "mama", environ=mama) as second:
            second.call("load_checkpoint")  # the port is taken: it goes without
            assert (server_of(tmp_path / "other") or {})["http"] == ""


def test_variables_of_a_contract_are_each_clients_own(tmp_path: Path) -> None:
    data, text = tmp_path / "data", "# Ann\n\nLikes tea."
    agents = [
        Agent(data, "--dialect", "clawbrain", "--space", name,
              environ={"MEMORY_DIR": str(tmp_path / name)})
        for name in ("one", "two")
    ]  # fmt: skip
    try:
        for agent in agents:
            agent.call("memory_store", type="entity", category="people", name="ann", content=text)
        for name in ("one", "two"):
            assert "Likes tea." in (tmp_path / name / "entities/people/ann.md").read_text()
        assert len(_servers_of(data)) == 1
    finally:
        for agent in agents:
            agent.end()
