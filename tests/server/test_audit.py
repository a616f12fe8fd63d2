"""T30: one row for every call, whatever becomes of it, written with what it did."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine

from commonplace import Commonplace
from commonplace.access.caller import Caller
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.library import Library
from commonplace.engine.maintenance.purge import purge
from commonplace.engine.model import Origin
from commonplace.errors import InvalidInput, StorageFull, StorageUnavailable
from commonplace.server import gate as gates
from commonplace.server import http
from commonplace.server.settings import Settings
from commonplace.storage.system import open_system
from server.harness import (
    BOOKKEEPING,
    MCP,
    NEW,
    Running,
    cli,
    content_of,
    lab,
    message,
    registered,
    running,
    wait_until,
)

LAB = "/mcp/lab"


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with registered(lab()), running(shared_data, call_seconds=0.5) as one:
        yield one


@pytest.fixture(scope="module")
def hurried(server: Running) -> Iterator[Running]:
    """A server beside it that gives a call next to no time."""
    with running(server.settings.data / "hurried", call_seconds=0.1) as one:
        yield one


@pytest.fixture
def space(request: pytest.FixtureRequest) -> str:
    """A space of the test's own, so that its rows can be counted."""
    return re.sub("[^a-z]+", "-", request.node.name.lower())[:60].strip("-")


def only(server: Running, space: str) -> audit.Call:
    wait_until(lambda: server.calls(space), 5)
    time.sleep(0.02)
    (call,) = server.calls(space)
    assert server.verdict(space).faults == ()
    return call


KINDS: dict[str, tuple[str, str, dict[str, Any], bool, str]] = {
    "ok": (MCP, "remember", {"text": "x"}, True, ""),
    "a read": (MCP, "recall", {"query": "x"}, True, ""),
    "not found": (MCP, "read", {"id": "nothing"}, False, "NOT_FOUND"),
    "invalid": (MCP, "remember", {}, False, "INVALID_INPUT"),
    "invalid type": (MCP, "remember", {"text": 5}, False, "INVALID_INPUT"),
    "unknown parameter": (MCP, "recall", {"query": "x", "odd": 1}, False, "INVALID_INPUT"),
    "unknown tool": (MCP, "no_such_tool", {"a": 1}, False, "NOT_FOUND"),
    "a fault of ours": (LAB, "break", {"text": "x"}, False, "INTERNAL_ERROR"),
    "too late": (LAB, "nap", {"seconds": 0.3, "text": "x"}, False, "TIMEOUT"),
    "too large": (LAB, "large", {"size": 2_000_000}, False, "RESPONSE_TOO_LARGE"),
}


@pytest.mark.parametrize("key", ["", "a-key"])
def test_what_fails_after_it_is_stored_has_one_row_and_says_so(
    server: Running, space: str, key: str
) -> None:
    """ClawBrain's file cannot be written: the memory is stored, and the caller is told both."""
    space = f"{space}{len(key)}"
    client = server.client(server.token(space, dialects=None), "/mcp/clawbrain")
    blocked = server.parts.library.path / "clawbrain" / space / "entities" / "projects"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("no directory")
    stored = {"type": "entity", "category": "projects", "name": "cup", "content": "for tea"}
    asked = message("memory_store", stored)
    answer = client.request("POST", "/mcp/clawbrain", asked, {"idempotency-key": key})
    assert "stored, but its file could not be written" in answer.error
    call = only(server, space)
    assert (call.tool, call.success, call.operation > 0) == ("memory_store", True, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["streamable", "2026", "older", "stdio"])
def test_every_call_has_one_row(
    server: Running, hurried: Running, space: str, kind: str, way: str
) -> None:
    path, tool, arguments, success, error = KINDS[kind]
    server = hurried if kind == "too late" else server
    token = server.token(space, user="ann", name="laptop")
    if way == "stdio":
        dialect = path.rpartition("/")[2]
        caller = Caller(space=space, user="ann")
        server.stdio(caller, dialect).call(tool, arguments)
    elif way == "older":
        older = server.older(token, path)
        older.call(tool, arguments)
        older.close()
    else:
        era = {"era": NEW} if way == "2026" else {}
        client = server.client(token, path)
        client.call(tool, arguments, **era)
    call = only(server, space)
    assert (call.caller, call.tool, call.success) == ("ann", tool, success)
    assert call.dialect == path.rpartition("/")[2]
    assert call.error.startswith(error) and bool(call.error) != success
    assert call.arguments == arguments
    assert 0 <= call.milliseconds < 5_000
    assert (call.operation > 0) == (success and tool == "remember")
    if way == "stdio":
        assert call.session == "stdio-test"
    else:
        assert call.address == "127.0.0.1"
        assert call.credential and call.request
    assert call.client


def test_a_call_beyond_its_scope_has_one_row(server: Running, space: str) -> None:
    client = server.client(server.token(space, {"read"}, user="ann"))
    assert client.call("remember", {"text": "x"}).status == 403
    call = only(server, space)
    assert (call.tool, call.success, call.address) == ("remember", False, "127.0.0.1")
    assert call.error.startswith("FORBIDDEN")
    assert call.arguments == {"text": "x"}


def test_a_route_beyond_its_scope_has_one_row(server: Running, space: str) -> None:
    assert server.client(server.token(space, {"read"})).request("GET", "/metrics").status == 403
    call = only(server, space)
    assert (call.dialect, call.tool, call.success) == ("server", "metrics", False)


@pytest.mark.parametrize(
    ("method", "path", "body", "tool"),
    [
        ("POST", MCP, message("remember", {"text": "x"}), f"POST {MCP}"),
        ("GET", "/metrics", None, "GET /metrics"),
        ("GET", "/health/details", None, "GET /health/details"),
    ],
)
def test_a_call_of_nobody_has_one_row_above_the_spaces(
    server: Running, method: str, path: str, body: Any, tool: str
) -> None:
    before = len(server.calls("system"))
    answer = server.client("cpt_nobody").request(method, path, body)
    assert answer.status == 401
    call, *others = server.calls("system")
    assert len(others) == before
    assert (call.tool, call.success, call.caller, call.address) == (tool, False, "", "127.0.0.1")
    assert call.error.startswith("UNAUTHORIZED")
    assert audit.verify(server.parts.system).faults == ()


def test_each_refused_call_of_a_batch_has_a_row(server: Running, space: str) -> None:
    client = server.client(server.token(space, {"read"}))
    batch = [message(tool, {}) for tool in ("remember", "recall", "forget")]
    assert client.request("POST", MCP, batch).status == 403
    calls = server.calls(space)
    assert [call.tool for call in calls] == ["forget", "recall", "remember"]
    assert not any(call.success for call in calls)
    assert all(call.error.startswith("FORBIDDEN") for call in calls)


@pytest.mark.parametrize("path", [LAB, f"{LAB}/"])
def test_a_call_whose_client_left_has_one_row(server: Running, space: str, path: str) -> None:
    body = json.dumps(message("nap", {"seconds": 0.2, "text": "left"})).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost:{server.port}\r\n"
    head += f"authorization: Bearer {server.token(space)}\r\ncontent-type: application/json\r\n"
    head += f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + body)
        time.sleep(0.05)
    call = only(server, space)
    assert (call.tool, call.success) == ("nap", True)  # it was begun, so it ends


def test_a_call_whose_older_client_left_has_one_row(server: Running, space: str) -> None:
    older = server.older(server.token(space), LAB)
    older.send(message("nap", {"seconds": 0.2, "text": "left"}))
    time.sleep(0.05)
    older.close()
    assert only(server, space).success


def test_the_effect_and_its_row_are_one_transaction(
    server: Running, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client(server.token(space))
    client.call("remember", {"text": "first"})
    before = content_of(server.file(space), BOOKKEEPING)
    assert unaudited(server, space, monkeypatch) == []
    assert content_of(server.file(space), BOOKKEEPING) == before


def unaudited(server: Running, space: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that are stored although their row could not be written."""
    append = audit.append

    def full(store: Any, told: audit.Entry, **options: bool) -> int:
        if store.space == space:
            raise StorageFull("There is no room.")
        return append(store, told, **options)

    with monkeypatch.context() as patch:
        patch.setattr(audit, "append", full)
        answer = server.client(server.token(space)).call("remember", {"text": "unaudited"})
        assert answer.error.startswith("STORAGE_FULL")
    found = server.client(server.token(space)).call("recall", {"query": "unaudited"})
    return [one["text"] for one in found.result["memories"] if one["text"] == "unaudited"]


def test_a_row_outside_the_transaction_is_found_by_that_test(
    server: Running, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_down = gates.Gate._audit

    def later(self: Any, opened: Any, store: Any, *rest: Any) -> None:
        if store.open_unit is None:
            write_down(self, opened, store, *rest)

    run = gates.Gate._run

    def run_then_write(self: Any, opened: Any, *rest: Any) -> Any:
        outcome = run(self, opened, *rest)
        with self._memory.library.lease(opened.caller.space) as leased:
            write_down(self, opened, leased.store, "{}", None)
        return outcome

    monkeypatch.setattr(gates.Gate, "_audit", later)
    monkeypatch.setattr(gates.Gate, "_run", run_then_write)
    assert unaudited(server, space, monkeypatch) == ["unaudited"]


@pytest.mark.parametrize(
    ("tool", "arguments", "synced"),
    [
        ("recall", {"query": "x"}, False),
        ("read", {"id": "unknown"}, False),
        ("remember", {"text": "stored"}, True),
        ("revise", {"id": "unknown", "text": "refused"}, True),
        ("hook", {"event": "Nothing"}, False),
        ("hook", {"event": "UserPromptSubmit", "prompt": "x"}, False),
        ("hook", {"event": "Stop", "transcript": "/nowhere"}, True),
    ],
)
def test_only_the_entry_of_a_read_is_committed_without_a_sync(
    server: Running,
    space: str,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    arguments: dict[str, Any],
    synced: bool,
) -> None:
    taken: list[bool] = []
    append = audit.append

    def noted(store: Any, told: audit.Entry, *, durable: bool = True) -> int:
        taken.append(durable or store.open_unit is not None)
        return append(store, told, durable=durable)

    monkeypatch.setattr(audit, "append", noted)
    server.client(server.token(space)).call(tool, arguments)
    assert taken == [synced]
    assert server.calls(space)[0].tool == tool


def test_a_read_is_written_down_before_it_is_answered(server: Running, space: str) -> None:
    client = server.client(server.token(space))
    for number in range(1, 4):
        client.call("recall", {"query": "x"})
        assert len(server.calls(space)) == number


def test_large_arguments_and_results_are_told_by_their_hash(server: Running, space: str) -> None:
    import hashlib

    client = server.client(server.token(space))
    text = "größe " * 3_000
    identity = client.call("remember", {"text": text}).result["id"]
    client.call("read", {"id": identity})
    read, remember = server.calls(space)
    whole = json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":")).encode()
    assert remember.arguments["_sha256"] == hashlib.sha256(whole).hexdigest()
    assert remember.arguments["_original_size"] == len(whole)
    assert read.result["_truncated"] and read.arguments == {"id": identity}


def test_what_somebody_calls_themselves_is_only_a_value(server: Running, space: str) -> None:
    forged = "ok\n  999  2026-01-01  forged"
    client = server.client(server.token(space, user="ann"))
    client.call(forged, {}, headers={"user-agent": "x" * 5_000})
    call = only(server, space)
    assert call.tool == forged.replace("\n", "\\n")
    assert len(call.client) <= 200
    told = cli("audit", "list", "--data", str(server.settings.data), "--space", space)
    entries = [line for line in told.stdout.splitlines() if re.match(r" *\d+ +\d{4}-", line)]
    assert len(entries) == 1 and re.match(r" +1 ", entries[0])


def test_the_command_line_lists_and_verifies(server: Running, space: str) -> None:
    ann = server.client(server.token(space, user="ann"))
    bob = server.client(server.token(space, user="bob"))
    ann.call("remember", {"text": "one"})
    bob.call("recall", {"query": "one"})
    bob.call("read", {"id": "nothing"})
    where = ("--data", str(server.settings.data), "--space", space)

    def nums(*options: str) -> list[int]:
        told = cli("audit", "list", *where, "--json", *options)
        assert told.returncode == (0 if told.stdout else 1), told.stderr
        return [json.loads(line)["num"] for line in told.stdout.splitlines()]

    assert nums() == [3, 2, 1]
    assert nums("--tool", "recall", "--user", "bob", "--succeeded", "--before", "3") == [2]
    assert nums("--failed", "--limit", "1") == [3]
    assert nums("--since", "2999-01-01") == []
    whole = cli("audit", "verify", *where, "--json")
    head = json.loads(whole.stdout)["head"]
    assert (whole.returncode, json.loads(whole.stdout)["rows"]) == (0, 3)
    ann.call("recall", {"query": "more"})
    assert cli("audit", "verify", *where, "--head", head).returncode == 0
    with server.parts.library.lease(space) as opened, opened.store.maintain() as connection:
        connection.execute("UPDATE audit SET caller = 'eve' WHERE num = 2")
    broken = cli("audit", "verify", *where)
    assert broken.returncode == 6 and "row 2" in broken.stdout
    missing = cli("audit", "verify", "--data", str(server.settings.data), "--space", "nobody")
    assert missing.returncode == 3


def test_a_purge_over_the_command_line_leaves_no_trace(data: Path) -> None:
    secret = "zqsecretzq the harbour lantern ledger orchard"
    with running(data) as server:
        client = server.client()
        identity = client.call("remember", {"text": secret}, key="k1").result["id"]
        for tool, arguments in (
            ("recall", {"query": "harbour lantern"}),
            ("read", {"id": identity, "history": True}),
            ("context", {"about": "ledger"}),
            ("revise", {"id": identity, "text": secret + " again"}),
        ):
            assert client.call(tool, arguments, key=f"k-{tool}").status == 200
        with server.parts.library.lease("default") as space:
            purge(space, identity, origin=Origin())
        assert server.verdict().faults == ()
        assert client.call("remember", {"text": "after"}).status == 200
        assert server.verdict().faults == ()
    for path in data.rglob("*"):
        assert not path.is_file() or b"zqsecretzq" not in path.read_bytes(), path


def test_a_refusal_that_quotes_a_memory_is_told_until_it_is_purged(
    server: Running, space: str
) -> None:
    secret = "the harbour lantern ledger"
    token = server.token(space, dialects=None)
    identity = server.client(token).call("remember", {"text": secret}).result["id"]
    refusing = server.client(token, "/mcp/penfield")
    assert secret in refusing.call("fetch", {"id": secret}).body.decode()
    with server.parts.library.lease(space) as opened:
        (refused,) = audit.listing(opened.store, success=False)
        assert refused.error.startswith("INVALID_INPUT: ") and secret in refused.error
        purge(opened, identity, origin=Origin())
        (refused,) = audit.listing(opened.store, success=False)
        assert (refused.error, refused.result) == ("INVALID_INPUT", None)
    assert server.verdict(space).faults == ()


def test_a_gate_is_audited_without_any_server(server: Running, space: str) -> None:
    outcome = server.gate.perform(
        Caller(space=space), RequestInfo(), "commonplace", "remember", {"text": "x"}
    )
    assert outcome.error is None
    assert only(server, space).caller == "local"


def old_entries(data: Path) -> None:
    """Calls of long ago, in a space and in system.db."""
    entry = audit.Entry(
        request="1", dialect="commonplace", tool="recall", success=True, milliseconds=0,
        arguments="{}", result="{}",
    )  # fmt: skip
    with (
        Commonplace(data, embedding="none") as memory,
        lease(memory) as space,
        contextlib.closing(open_system(data)) as system,
        time_machine.travel("2020-01-01", tick=False),
    ):
        for store in (space.store, system):
            audit.append(store, entry)
            audit.append(store, entry)


@pytest.mark.parametrize(("days", "removed"), [(0, 0), (30, 2)])
def test_a_server_removes_entries_that_are_too_old(data: Path, days: int, removed: int) -> None:
    old_entries(data)
    with running(data, audit_days=days) as server:
        server.client().call("recall", {"query": "kettle"})
        wait_until(lambda: server.verdict().removed == removed)
        wait_until(lambda: audit.verify(server.parts.system).removed == removed)
        assert server.verdict().faults == audit.verify(server.parts.system).faults == ()
        assert len(server.calls(tool="recall")) == 3 - removed
    assert cli("audit", "verify", "--data", str(data)).returncode == 0
    assert cli("doctor", "--data", str(data)).returncode == 0


def test_a_server_goes_on_to_remove_entries_after_the_spaces_could_not_be_listed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_entries(data)
    listed, failed = Library.spaces, list[str]()

    def failing_once(library: Library) -> list[str]:
        if not failed and threading.current_thread().name.startswith("commonplace-call"):
            failed.append("once")
            raise StorageUnavailable("The database cannot be reached.")
        return listed(library)

    monkeypatch.setattr(Library, "spaces", failing_once)
    monkeypatch.setattr(http, "PRUNE_AUDIT_SECONDS", 0.05)
    with running(data, audit_days=30) as server:
        wait_until(lambda: server.verdict().removed == 2)
        wait_until(lambda: audit.verify(server.parts.system).removed == 2)
    assert failed


def test_the_command_line_cuts_and_verify_says_where_it_starts(data: Path) -> None:
    old_entries(data)
    where = ("--data", str(data))
    for more in ((), ("--system",)):
        head = json.loads(cli("audit", "verify", *where, *more, "--json").stdout)["head"]
        assert cli("audit", "cut", "--before", "2019-12-31", *where, *more).stdout == (
            "No entry is that old.\n"
        )
        assert cli("audit", "cut", "--before", "2020-01-02", *where, *more).stdout == (
            "2 rows removed\n"
        )
        told = cli("audit", "verify", *where, *more)
        assert told.returncode == 0
        assert "rows 1 to 2 were removed" in told.stdout
        assert f"verified from anchor {head}" in told.stdout
        found = json.loads(cli("audit", "verify", *where, *more, "--json").stdout)
        assert (found["removed"], found["anchor"], found["faults"]) == (2, head, [])
    assert cli("audit", "cut", "--before", "never", *where).returncode == 2
    assert cli("audit", "cut", "--before", "3000d", *where).returncode == 0
    wrong = cli("audit", "verify", "--head", "zz", *where)
    assert (wrong.returncode, wrong.stdout) == (2, "") and "not a hash" in wrong.stderr


@pytest.mark.parametrize(
    ("days", "fine"), [(-1, False), (0, True), (36_500, True), (36_501, False)]
)
def test_the_days_of_the_audit_are_a_setting(data: Path, days: int, fine: bool) -> None:
    (data / "config.toml").write_text(f"audit_days = {days}\n", encoding="utf-8")
    (data / "config.toml").chmod(0o600)
    if fine:
        assert Settings.load({}, data=data).audit_days == days
    else:
        with pytest.raises(InvalidInput, match="audit_days"):
            Settings.load({}, data=data)
