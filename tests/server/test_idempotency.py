"""R8: a write that is sent again does not act again, and nothing else is taken for one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import Caller
from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.filters import Filters
from commonplace.platform.llm_keys import LlmKeys
from server.harness import NEW, OLD, Client, Process, Running, message, running

DYING = """
import os, signal, sys
from commonplace.server import gate
perform = gate.Gate.perform
def dies(self, caller, info, dialect, name, arguments, turn=None, decision=None):
    outcome = perform(self, caller, info, dialect, name, arguments, turn, decision)
    if "die now" in str(arguments):
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome
gate.Gate.perform = dies
from commonplace.cli import main
main()
"""


@pytest.fixture
def count(server: Running) -> Any:
    """How often a text is stored in a space."""

    def counted(space: str, text: str) -> int:
        client = server.client(server.token(space))
        found = client.call("recall", {"query": text, "limit": 50}).result["memories"]
        return sum(one["text"] == text for one in found)

    return counted


def test_a_retry_with_a_renewed_token_is_one(server: Running, count: Any) -> None:
    def send(family: str) -> str:
        client = server.client(server.token("renewed", family=family))
        identity: str = client.call("remember", {"text": "larder"}, key="k").result["id"]
        return identity

    assert send("a family") == send("a family")
    assert send("") not in {send("a family"), send("another")}
    assert count("renewed", "larder") == 3


@pytest.mark.parametrize("first", ["header", "meta", "header 2026", "meta 2026"])
@pytest.mark.parametrize("second", ["header", "meta"])
def test_a_retry_is_answered_as_before(
    server: Running, count: Any, first: str, second: str
) -> None:
    client = server.client(server.token("retries"))
    text = f"kettle {first} {second}"

    def send(how: str, identity: int) -> Any:
        era = NEW if how.endswith("2026") else OLD
        given = {"key" if how.startswith("header") else "meta_key": f"key {text}"}
        answer = client.call("remember", {"text": text}, era=era, identity=identity, **given)
        assert answer.json["id"] == identity
        return answer.result

    assert send(first, 1) == send(second, 2)
    assert count("retries", text) == 1
    assert [call.success for call in server.calls("retries", tool="remember")][:2] == [True, True]


def test_over_stdio_too(server: Running, count: Any) -> None:
    pipes = server.stdio(Caller(space="pipes"))
    told = [
        pipes.call("remember", {"text": "by pipe"}, identity=number, key="k") for number in (1, 2)
    ]
    assert told[0]["result"] == told[1]["result"]
    assert count("pipes", "by pipe") == 1


def test_over_the_oldest_transport_too(server: Running, count: Any) -> None:
    older = server.older(server.token("older"))
    for number in (1, 2):
        older.send(message("remember", {"text": "by events"}, identity=number, key="k"))
        older.event()
    assert count("older", "by events") == 1


def test_the_same_id_of_a_message_is_no_retry(server: Running, count: Any) -> None:
    client = server.client(server.token("ids"))
    for _ in range(2):
        client.call("remember", {"text": "twice meant"}, identity=7)
    assert count("ids", "twice meant") == 2


def test_only_the_same_call_of_the_same_credential_is_a_retry(server: Running, count: Any) -> None:
    one, other = (server.client(server.token("keys")) for _ in range(2))
    assert one.call("remember", {"text": "apple"}, key="k").result
    assert one.call("remember", {"text": "pear"}, key="k").result
    assert other.call("remember", {"text": "apple"}, key="k").result
    assert one.call("remember", {"text": "apple", "kind": "note"}, key="k").result
    assert one.call("remember", {"text": "apple"}, key="K").result
    assert one.call("remember", {"text": "apple"}, key="k" * 250 + "a").result
    assert one.call("remember", {"text": "apple"}, key="k" * 250 + "b").result
    assert one.call("remember", {"text": "apple"}, key="").result
    assert (count("keys", "apple"), count("keys", "pear")) == (7, 1)
    elsewhere = server.client(server.token("keys-elsewhere"))
    assert elsewhere.call("remember", {"text": "apple"}, key="k").result
    assert count("keys-elsewhere", "apple") == 1


def test_what_failed_is_tried_again(server: Running) -> None:
    client = server.client(server.token("failing"))
    assert client.call("revise", {"id": "later", "text": "x"}, key="k").error
    Commonplace(library=server.parts.library, space="failing").remember("y", ref="later")
    assert client.call("revise", {"id": "later", "text": "x"}, key="k").result


def test_a_read_is_always_asked_anew(server: Running) -> None:
    client = server.client(server.token("reading"))
    assert client.call("recall", {"query": "late"}, key="k").result["memories"] == []
    client.call("remember", {"text": "late"})
    assert client.call("recall", {"query": "late"}, key="k").result["memories"]


def test_a_refused_retry_is_not_answered_from_what_is_kept(server: Running) -> None:
    full, reader = (server.client(server.token("refused", scopes)) for scopes in
                    ({"read", "write"}, {"read"}))  # fmt: skip
    assert full.call("remember", {"text": "x"}, key="k").status == 200
    assert reader.call("remember", {"text": "x"}, key="k").status == 403


def test_of_many_at_once_one_acts(server: Running, count: Any) -> None:
    token = server.token("at-once")

    def send(number: int) -> str:
        client = Client(server.port, token)
        try:
            return str(client.call("remember", {"text": "at once"}, key="k").result["id"])
        finally:
            client.close()

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(send, range(32)))) == 1
    assert count("at-once", "at once") == 1


def test_also_in_two_processes_and_after_a_kill_before_the_answer(data: Path) -> None:
    with running(data) as first, Process(data) as second:
        ports = first.port, second.ready()
        start = threading.Barrier(16)

        def send(number: int) -> str:
            client = Client(ports[number % 2])
            start.wait()
            told = client.call("remember", {"text": f"pair {number // 8}"}, key="k").result
            client.close()
            return str(told["id"])

        with ThreadPoolExecutor(16) as pool:
            ids = list(pool.map(send, range(16)))
        assert [len(set(ids[:8])), len(set(ids[8:]))] == [1, 1]
        second.stop()

        with Process(data, program=("-c", DYING)) as dying:
            client = Client(dying.ready())
            with pytest.raises((ConnectionError, OSError)):
                client.call("remember", {"text": "die now"}, key="last")
            dying.end()
        client = Client(ports[0])
        stored = client.call("remember", {"text": "die now"}, key="last").result
        found = client.call("recall", {"query": "die now"}).result["memories"]
        assert [one["id"] for one in found if one["text"] == "die now"] == [stored["id"]]
        client.call("remember", {"text": "die now"}, key="other")
        found = client.call("recall", {"query": "die now"}).result["memories"]
        assert len([one for one in found if one["text"] == "die now"]) == 2
        client.close()


# A key is valid for one place that a write goes to.


def test_one_key_at_two_beings_is_two_writes(server: Running) -> None:
    memory = Commonplace(library=server.parts.library, space="two-beings")
    ones = [beings.create(memory, name).id for name in ("Aria", "Bo")]
    owner = server.client(server.token("two-beings", dialects=frozenset({"being"})))
    entry = {"target": "diary", "action": "append", "content": "The harbour was closed."}
    note = {"content": "Ask when it opens."}
    for _ in range(2):
        for being in ones:
            assert owner.call("update_memory", entry, key="k", path=f"/mcp/{being}").status == 200
            headers = {"idempotency-key": "k"}
            told = owner.request("POST", f"/v1/beings/{being}/notes", note, headers)
            assert told.status == 201, told.body
    for being in ones:
        rows, _ = memory.browse(filters=Filters(tags_all=[f"being:{being}"]), limit=50)
        assert sorted(row.text for row in rows if row.kind != "being.soul") == [
            "Ask when it opens.", "The harbour was closed.",
        ]  # fmt: skip


def test_one_key_in_two_conversations_is_two_writes(server: Running) -> None:
    client = server.client(server.token("two-talks"), "/mcp/v1")
    headers = {"idempotency-key": "start"}
    talks = []
    for title in ("One", "Two"):
        path = "/v1/workspaces/two-talks/conversations"
        told = client.request("POST", path, {"title": title}, headers)
        assert told.status < 300, told.body
        talks.append(told.json["id"])
    noted = {"agent_slug": "manager", "title": "The harbour is closed."}
    for session in ("first", "after a reconnect"):
        for talk in talks:
            sent = {"x-conversation-id": talk, "mcp-session-id": session}
            assert client.call("create_agent_history", noted, key="k", headers=sent).result
    memory = Commonplace(library=server.parts.library, space="two-talks")
    events = memory.events.all(kind="agent_history", limit=10)
    assert [(event.payload or {})["conversation_id"] for event in events] == talks


def test_one_key_with_two_values_in_a_header_is_two_writes(server: Running) -> None:
    client = server.client(server.token("two-headers", dialects=frozenset({"being"})))
    for secret in ("sk-ant-first", "sk-ant-second"):
        sent = {"x-llm-api-key": secret, "idempotency-key": "k"}
        assert client.request("PUT", "/v1/llm-key", {}, sent).status == 200
    stored = LlmKeys(server.parts.system, server.parts.vault).get("two-headers")
    assert stored is not None and stored.key == "sk-ant-second"


WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "/mcp/commonplace": ("remember", {"text": "a retry"}),
    "/mcp/mama": ("save", {"type": "decision", "topic": "t", "decision": "d", "reasoning": "r"}),
    "/mcp/clawbrain": (
        "memory_store",
        {"type": "entity", "category": "people", "name": "ana", "content": "# Ana"},
    ),
    "/mcp/penfield": ("store", {"content": "a retry"}),
    "/mcp/v1": ("memory_add_drawer", {"wing": "w", "room": "r", "content": "a retry"}),
    "/mcp": ("update_notes", {"notes": [{"content": "a retry"}]}),
}
"""Of each dialect a tool that writes."""


@pytest.mark.parametrize("path", WRITES)
def test_a_retry_after_a_reconnect_is_one_in_every_dialect(server: Running, path: str) -> None:
    space = "again" + path.replace("/", "-")
    memory = Commonplace(library=server.parts.library, space=space)
    being = beings.create(memory, "Aria").id if path == "/mcp" else ""
    client = server.client(server.token(space, subject=being), path)
    tool, arguments = WRITES[path]

    def send(session: str, key: str) -> Any:
        sent = {"mcp-session-id": session, "user-agent": session}
        return client.call(tool, arguments, key=key, headers=sent).json["result"]

    first = send("one", "k")
    assert not first.get("isError"), first
    written = memory.operation
    assert send("two", "k") == first
    assert memory.operation == written
    send("two", "other")
    assert len(server.calls(space, tool=tool)) == 3
