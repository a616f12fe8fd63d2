"""Chat over a real WebSocket, with a real model server on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES
from commonplace.access.credentials import Grant
from commonplace.dialects.mama.platform import chat, sessions
from commonplace.engine.content.conversations import Line
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel

from .conftest import Web, serving

PICTURE = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as made:
        yield made


@pytest.fixture
def web(tmp_path: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
    monkeypatch.setenv("COMMONPLACE_LLM_OPENAI_URL", model.url)
    with serving(tmp_path / "data", None) as made:
        yield made


class Talk:
    """One end of a socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def next(self, kind: str = "") -> dict[str, Any]:
        """The next message; of a kind, what came before it is passed over."""
        while True:
            message: dict[str, Any] = json.loads(self.socket.recv(timeout=30))
            if not kind or message["type"] == kind:
                return message

    def until_end(self) -> list[dict[str, Any]]:
        """All messages up to the end of an answer, or its failure."""
        found = []
        while not found or found[-1]["type"] not in ("stream_end", "error"):
            found.append(self.next())
        return found


@contextmanager
def talking(web: Web, query: str = "", **headers: str) -> Iterator[Talk]:
    address = web.url.replace("http", "ws") + "/ws" + query
    with connect(address, additional_headers=headers, open_timeout=20) as socket:
        yield Talk(socket)


@contextmanager
def attached(web: Web, **more: Any) -> Iterator[tuple[Talk, str]]:
    with talking(web) as talk:
        assert talk.next().keys() == {"type", "clientId", "userId"}
        talk.send(type="attach", osAgentMode=True, **more)
        told = talk.next("attached")
        yield talk, told["sessionId"]


def test_a_message_is_answered(web: Web, model: FakeModel) -> None:
    model.reply = lambda _: "Hello, you."
    with attached(web) as (talk, session):
        talk.send(type="send", content="Hi there")
        told = talk.until_end()

    assert told[0] == {"type": "typing", "status": "processing"}
    assert told[-2] == {"type": "stream", "content": "Hello, you.", "sessionId": session}
    assert told[-1]["type"] == "stream_end" and told[-1]["sessionId"] == session
    assert told[-1]["duration"] >= 0
    with attached(web, sessionId=session) as (talk, again):
        assert again == session
        history = talk.next("history")["messages"]
    assert [(each["role"], each["content"]) for each in history] == [
        ("user", "Hi there"), ("assistant", "Hello, you."),
    ]  # fmt: skip
    assert all(each["timestamp"] > 1e12 for each in history)
    (listed,) = web.get("/api/sessions").json()["viewer"]
    assert (listed["id"], listed["messageCount"]) == (session, 2)


def test_the_model_is_shown_what_was_said_before(web: Web, model: FakeModel) -> None:
    with attached(web) as (talk, _):
        for text in ("My cat is called Ada.", "What is she called?"):
            talk.send(type="send", content=text)
            talk.until_end()
    assert "My cat is called Ada." in str(model.requests[-1]["messages"])


def test_tools_are_told_while_they_are_used(web: Web, model: FakeModel) -> None:
    decision = {"type": "decision", "topic": "tea", "decision": "Green", "reasoning": "Calm"}
    model.reply = lambda messages: (
        "Saved." if messages[-1]["role"] == "tool" else [("mama_save", decision)]
    )
    with attached(web) as (talk, _):
        talk.send(type="send", content="Remember: green tea")
        told = talk.until_end()
    use = next(each for each in told if each["type"] == "tool_use")
    assert use == {"type": "tool_use", "tool": "mama_save", "index": 0, "input": decision}
    done = next(each for each in told if each["type"] == "tool_complete")
    assert done == {"type": "tool_complete", "tool": "mama_save", "index": 0, "isError": False}


def test_a_phone_may_only_read(web: Web, model: FakeModel) -> None:
    with talking(web) as talk:
        talk.send(type="attach")
        assert talk.next("attached")["osAgentMode"] is False
        talk.send(type="send", content="Hi")
        talk.until_end()
    offered = {tool["function"]["name"] for tool in model.requests[0]["tools"]}
    assert "mama_search" in offered and "mama_save" not in offered


def test_a_session_in_which_nothing_was_said_yet_can_be_attached(web: Web) -> None:
    with attached(web) as (_, session), attached(web, sessionId=session) as (other, again):
        assert again == session
        other.send(type="send", content="Hello")
        assert other.until_end()[-1]["sessionId"] == session
    (listed,) = web.get("/api/sessions").json()["viewer"]
    assert (listed["id"], listed["messageCount"]) == (session, 2)


def test_a_send_before_attach_opens_a_session(web: Web) -> None:
    with talking(web) as talk:
        talk.send(type="send", content="Hi")
        assert talk.next("attached")["sessionId"]
        assert talk.until_end()[-1]["type"] == "stream_end"


def test_an_unknown_session_is_a_new_one(web: Web) -> None:
    with attached(web, sessionId="unknown") as (_, session):
        assert session != "unknown"


@pytest.mark.parametrize(
    "text",
    [
        "no json", "[1]", '{"type": "other"}', '{"type": "send"}',
        '{"type": "send", "content": ""}', '{"type": "send", "content": 5}',
        json.dumps({"type": "send", "content": "x" * 20_001}),
        json.dumps({"type": "send", "content": "x", "attachments": [{}] * 11}),
        '{"type": "attach", "sessionId": 5}', '{"type": "attach", "sessionId": "\\u0000"}', b"{}",
        "[" * 65 + "]" * 65,
    ],
)  # fmt: skip
def test_what_is_no_message_gets_an_error_and_the_socket_stays(web: Web, text: str | bytes) -> None:
    with talking(web) as talk:
        talk.socket.send(text)
        assert talk.next("error")["error"] not in ("", "unauthorized")
        talk.send(type="ping")
        assert talk.next("pong")["timestamp"] > 1e12


def test_what_cannot_be_stored_or_sent_as_it_is_leaves_the_socket_open(web: Web) -> None:
    with talking(web, "?sessionId=%00") as talk:
        assert talk.next("error")["error"]
        files = [{"filename": "half a character: \ud83d"}]
        talk.send(type="send", content="Hi", attachments=files)
        assert talk.next("attachment_failed")["filename"] == files[0]["filename"]
        assert talk.next("stream_end")


def test_a_model_that_fails_keeps_what_was_said(web: Web, model: FakeModel) -> None:
    model.reply = lambda _: 401
    with attached(web) as (talk, session):
        talk.send(type="send", content="Are you there?")
        told = talk.until_end()
        assert told[-1]["type"] == "error" and told[-1]["error"] == told[-1]["message"]
    with attached(web, sessionId=session) as (talk, _):
        assert [each["content"] for each in talk.next("history")["messages"]] == ["Are you there?"]


def test_an_answer_outlives_the_browser(web: Web, model: FakeModel) -> None:
    model.delay, model.reply = 1.0, lambda _: "Late, but here."
    with attached(web) as (talk, session):
        talk.send(type="send", content="Hi")
        talk.next("typing")

    def answered() -> bool:
        with attached(web, sessionId=session) as (talk, _):
            found = talk.next("history")["messages"]
            return bool(found[-1]["content"] == "Late, but here.")

    wait_until(answered, 30)


def test_messages_of_a_session_are_answered_in_turn(web: Web, model: FakeModel) -> None:
    model.delay = 0.3
    with attached(web) as (talk, _):
        for number in range(2):
            talk.send(type="send", content=f"number {number}")
        assert talk.next("queued")["message"]
        talk.next("stream_end")
        talk.next("stream_end")
        for number in range(8):
            talk.send(type="send", content=f"more {number}")
        assert "already waiting" in talk.next("error")["error"]


def test_attachments_are_given_to_the_model(web: Web, model: FakeModel) -> None:
    def upload(name: str, data: bytes) -> str:
        answer = web.client.post(web.url + "/api/upload", files={"file": (name, data)})
        return str(answer.json()["filename"])

    picture, text = upload("a.png", PICTURE), upload("a.txt", b"words")
    with attached(web) as (talk, _):
        talk.send(type="send", content="Look", attachments=[
            {"filename": picture, "contentType": "image/png"}, {"filename": text},
            {"filename": "missing.png"},
        ])  # fmt: skip
        told = talk.until_end()
    failed = [each for each in told if each["type"] == "attachment_failed"]
    assert [each["filename"] for each in failed] == ["missing.png"]
    sent = str(model.requests[0]["messages"])
    assert "image_url" in sent and text in sent


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_attachments_need_no_words(web: Web, model: FakeModel, content: str | None) -> None:
    answer = web.client.post(web.url + "/api/upload", files={"file": ("a.txt", b"words")})
    files = [{"filename": answer.json()["filename"]}]
    with attached(web) as (talk, session):
        talk.send(type="send", content=content, attachments=files)
        assert talk.until_end()[-1]["type"] == "stream_end"
    with attached(web, sessionId=session) as (talk, _):
        assert talk.next("history")["messages"][0]["content"] == "(attachment)"
    assert files[0]["filename"] in str(model.requests[0]["messages"])


def test_a_blank_answer_is_stored(web: Web, model: FakeModel) -> None:
    model.reply = lambda _: " \n"
    with attached(web) as (talk, session):
        talk.send(type="send", content="Hi")
        assert talk.until_end()[-1]["type"] == "stream_end"
    with attached(web, sessionId=session) as (talk, _):
        assert talk.next("history")["messages"][1]["content"] == "…"


# Who may come in


def refused(web: Web, query: str = "", **headers: str) -> tuple[dict[str, Any], int]:
    with talking(web, query, **headers) as talk:
        message = talk.next()
        with pytest.raises(ConnectionClosed) as closed:
            talk.next()
        assert closed.value.rcvd is not None
        return message, closed.value.rcvd.code


def test_a_token_is_needed_once_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAMA_AUTH_TOKEN", "the-token")
    with serving(tmp_path / "data", None, {"MAMA_AUTH_TOKEN": "the-token"}) as web:
        unauthorized = ({"type": "error", "error": "unauthorized"}, 4001)
        assert refused(web) == unauthorized
        assert refused(web, "?token=wrong") == unauthorized
        assert refused(web, authorization="Bearer wrong") == unauthorized
        for query, headers in (("?token=the-token", {}), ("", {"authorization": "the-token"})):
            with talking(web, query, **headers) as talk:
                assert talk.next()["type"] == "connected"


def test_other_credentials_are_refused(web: Web) -> None:
    for grant in (
        Grant(space="other", scopes=ALL_SCOPES),
        Grant(space="default", scopes=FULL_SCOPES),
    ):
        token = web.tokens.credentials.create(grant).token
        told = refused(web, authorization=f"Bearer {token}")
        assert told == ({"type": "error", "error": "unauthorized"}, 4001)


def test_another_site_cannot_open_a_socket(web: Web) -> None:
    with (
        pytest.raises(Exception, match=r"403|1008|HTTP"),
        talking(web, origin="https://evil.example") as talk,
    ):
        talk.next()


def test_a_frame_that_is_too_large_ends_the_socket(web: Web) -> None:
    with talking(web) as talk:
        talk.next()
        talk.socket.send("x" * (256 * 1024 + 1))
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                talk.next()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


def test_only_so_many_sockets_are_open(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_SOCKETS", 2)
    with talking(web) as one, talking(web) as two:
        one.next()
        two.next()
        assert refused(web)[1] == 4029


def test_only_uploads_can_be_attached(web: Web, model: FakeModel) -> None:
    outbound = web.library.path / "mama" / "workspace" / "media" / "outbound"
    outbound.mkdir(parents=True)
    (outbound / "made.txt").write_text("made by an agent")
    assert web.get("/api/media/made.txt").status_code == 200
    with talking(web) as talk:
        talk.send(type="send", content="Read it", attachments=[{"filename": "made.txt"}])
        assert talk.next("attachment_failed")["filename"] == "made.txt"


def test_a_session_with_a_very_long_history_can_be_attached(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "UNSENT_CHARS", 300_000)
    name = sessions.conversation_name("viewer", chat.WEB_CHANNEL, "long")
    for number in range(20):  # in JSON, each has 30,000 bytes
        web.memory.conversations.add(name, Line(speaker="user", text=f"{number} " + "語" * 5_000))
    with attached(web, sessionId="long") as (talk, session):
        assert session == "long"
        history = talk.next("history")["messages"]
        assert [each["content"].split()[0] for each in history] == [
            str(number) for number in range(13, 20)
        ]


def test_a_client_that_does_not_read_is_disconnected_and_loses_nothing(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "UNSENT_CHARS", 3_000_000)
    monkeypatch.setattr(chat, "CLOSE_SECONDS", 0.2)
    with attached(web) as (talk, session):
        talk.send(type="send", content="Hi")
        talk.until_end()
    name = sessions.conversation_name("viewer", chat.WEB_CHANNEL, session)
    for _ in range(100):
        web.memory.conversations.add(name, Line(speaker="user", text="x" * 20_000))
    address = web.url.replace("http", "ws") + "/ws"
    with connect(address, max_size=None, max_queue=1, ping_interval=None) as silent:
        wait_until(lambda: bool(chat._clients))
        with pytest.raises(ConnectionClosed):
            for _ in range(200):  # each answer has two megabytes, and none is read
                silent.send(json.dumps({"type": "attach", "sessionId": session}))
                if not chat._clients:
                    break
                time.sleep(0.05)
            wait_until(lambda: not chat._clients, 30)
            while True:
                silent.recv(timeout=30)
    assert chat._channels == {}
    with talking(web, f"?sessionId={session}") as talk:
        assert talk.next("attached")["sessionId"] == session
