"""R8: a write that is sent again does not act again, and nothing else is taken for one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import Caller
from server.harness import NEW, OLD, Client, Process, Running, message, running

DYING = """
import os, signal, sys
from commonplace.server import gate
perform = gate.Gate.perform
def dies(self, caller, around, dialect, name, arguments, turn=None):
    outcome = perform(self, caller, around, dialect, name, arguments, turn)
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
    from commonplace.engine.commonplace import Commonplace

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
