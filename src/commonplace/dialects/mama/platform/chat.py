"""Chat over a WebSocket: sessions and their history. Answers are stored even if the client left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import agents, media, service, sessions
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.dialects.mama.platform.service import operation
from commonplace.dialects.rest import Exchange, Route
from commonplace.dialects.tool_schemas import OBJECT, TEXT, array, integer
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.conversations import Line
from commonplace.errors import CommonplaceError

UNAUTHORIZED, TOO_MANY, TOO_LARGE, TOO_SLOW = 4001, 4029, 1009, 1013
MAX_SOCKETS = 20
FRAME_BYTES = 256 * 1024
CONTENT_CHARS = 20_000
MAX_ATTACHMENTS = 10
MAX_WAITING = 5
HISTORY_MESSAGES = 200
MAX_UNSENT, UNSENT_CHARS = 500, 16_000_000
"""The maximum number and total length of messages that wait for a slow client."""
PROMPT_MESSAGES = 20
"""The maximum number of a session's lines in a prompt."""
PING_SECONDS, TYPING_SECONDS = 30.0, 10.0
ANSWER_SECONDS = 600.0
CLOSE_SECONDS = 5.0
WEB_CHANNEL = "web"
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
Message = dict[str, Any]


def format_socket_refusal(error: CommonplaceError) -> tuple[Message, int]:
    """Return the error message and close code for a refused socket."""
    if error.code == "RATE_LIMITED":
        return {"type": "error", "error": "too many connections"}, TOO_MANY
    if error.code in ("TOO_DEEP", "TOO_LARGE"):  # an error of one message; the socket stays open
        return _error_frame(error.message), TOO_LARGE
    return {"type": "error", "error": "unauthorized"}, UNAUTHORIZED


def _error_frame(message: str) -> Message:
    return {"type": "error", "error": message, "message": message}


# --- sessions ------------------------------------------------------------------------------------


def _find_conversation(memory: Commonplace, id: str) -> str:
    """Return the conversation name of a session, or an empty string if there is none."""
    for source in ("viewer", "mobile"):
        name = sessions.conversation_name(source, WEB_CHANNEL, id)
        if memory.conversations.history(name, limit=1):
            return name
    return ""


def open_chat(call: Call) -> Any:
    """Check that the caller may open the chat; the gate has authorised the call."""
    del call
    return {"clientId": uuid.uuid4().hex, "userId": "local"}


def attach_session(call: Call, *, session: str, source: str) -> Any:
    """Return a session with its history; create a session if the id is unknown."""
    name = _find_conversation(call.memory, session) if session else ""
    if not name and (opened := _channels.get(session)) is not None:
        name = opened.name  # the session has no messages yet
    id = session if name else uuid.uuid4().hex
    name = name or sessions.conversation_name(source, WEB_CHANNEL, id)
    messages: list[Message] = []
    size = 0
    for line in reversed(call.memory.conversations.history(name, limit=HISTORY_MESSAGES)):
        message = {
            "role": line.speaker if line.speaker in ("user", "assistant") else "user",
            "content": line.memory.text,
            "timestamp": int(line.memory.created_at.timestamp() * 1000),
        }
        size += len(json.dumps(message))
        if size > UNSENT_CHARS * 3 // 4:  # more would disconnect the client as a slow one
            break
        messages.append(message)
    return {"session": id, "name": name, "messages": messages[::-1]}


def store_user_message(call: Call, *, name: str, content: str) -> Any:
    """Store the message of the user, before the model is called."""
    call.memory.conversations.add(name, Line(speaker="user", text=content))
    return {}


def check_attachment(call: Call, *, filename: str) -> Any:
    """Check that a file was uploaded; raise an error otherwise."""
    media.find_file(call.memory, service.service_of(call), filename, (media.INBOUND,))
    return {}


def answer_message(
    call: Call,
    *,
    name: str,
    session: str,
    content: str,
    tier: int,
    files: Sequence[Mapping[str, Any]],
) -> Any:
    """Call the agent, and store its answer."""
    running = service.service_of(call)
    prompt, images = content, []
    for file in files:
        data = media.find_file(call.memory, running, str(file["filename"]), (media.INBOUND,))
        kind = media.TYPES.get(media.extension_of(str(file["filename"])), "")
        if kind in IMAGE_TYPES:
            images.append((data, kind))
        else:
            prompt += f"\n\n(Attached file: media/inbound/{file['filename']}; Read shows it.)"
    lines = call.memory.conversations.history(name, limit=PROMPT_MESSAGES + 1)[:-1]
    history = "\n".join(f"{line.speaker}: {line.memory.text}" for line in lines)
    before = f"The conversation so far:\n{history}" if history else ""
    channel = _channels.get(session)
    asked = agents.AgentPrompt(
        prompt, "chat", ANSWER_SECONDS, tier=tier, history=before, images=tuple(images),
        watch=None if channel is None else channel.report_tool_call,
    )  # fmt: skip
    answer = agents.run_agent(running, asked)
    call.memory.conversations.add(
        name, Line(speaker="assistant", text="…" if service.is_blank(answer) else answer)
    )
    return {"answer": answer}


# --- the socket ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Channel:
    """An open session with its sockets and its queue of messages."""

    name: str
    loop: asyncio.AbstractEventLoop
    sockets: set[_Client] = field(default_factory=set)
    waiting: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    def report_tool_call(self, kind: str, about: Mapping[str, Any]) -> None:
        """Report a tool call to all sockets, from the agent's thread."""
        self.loop.call_soon_threadsafe(self.broadcast, {"type": kind, **about})

    def broadcast(self, message: Message) -> None:
        """Send a message to all sockets of the session."""
        for client in list(self.sockets):
            client.send(message)


async def connect(exchange: Exchange) -> None:
    """Serve one socket until either side closes it."""
    socket = exchange.request
    assert isinstance(socket, WebSocket)
    await socket.accept()
    try:
        let_in = await exchange.perform({})
    except CommonplaceError as error:
        known = isinstance(error, (NotPermitted, PlatformError))
        await socket.send_json(
            {"type": "error", "error": "unauthorized" if known else "unavailable"}
        )
        await socket.close(UNAUTHORIZED if known else 1011)
        return
    if len(_clients) >= MAX_SOCKETS:
        await socket.send_json({"type": "error", "error": "too many connections"})
        await socket.close(TOO_MANY)
        return
    client = _Client(exchange, socket)
    _clients.add(client)
    try:
        await client.run(let_in)
    finally:
        _clients.discard(client)


_clients: set[_Client] = set()


class _Client:
    """One browser's socket."""

    def __init__(self, exchange: Exchange, socket: WebSocket) -> None:
        self._exchange = exchange
        self._socket = socket
        self._out: asyncio.Queue[str] = asyncio.Queue()
        self._unsent = 0
        self._slow = asyncio.Event()
        self._session = ""
        self._name = ""
        self._tier = 3

    def send(self, message: Message) -> None:
        """Queue a message; disconnect the client if it does not read its messages.

        No message is lost: after reconnecting, the client gets every answer from the history.
        """
        text = json.dumps(message)  # the JSON is ASCII: one byte per character
        if self._out.qsize() >= MAX_UNSENT or self._unsent + len(text) > UNSENT_CHARS:
            self._slow.set()
            return
        self._unsent += len(text)
        self._out.put_nowait(text)

    async def run(self, let_in: Message) -> None:
        """Handle messages until either side closes the socket."""
        self.send({"type": "connected", **let_in})
        beside = [asyncio.create_task(self._write()), asyncio.create_task(self._ping())]
        reading, slow = asyncio.create_task(self._read()), asyncio.create_task(self._slow.wait())
        try:
            await asyncio.wait([reading, slow], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._disconnect()
        finally:
            self._leave()
            for task in (*beside, reading, slow):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                await reading

    async def _disconnect(self) -> None:
        """Close the socket of a client that does not read, without waiting for the client."""
        with contextlib.suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close(TOO_SLOW)

    async def _read(self) -> None:
        asked = self._socket.query_params.get("sessionId")
        if asked:
            await self._handle({"type": "attach", "sessionId": asked, "osAgentMode": True})
        while True:
            try:
                text = await self._socket.receive_text()
            except KeyError:
                self._send_error("A message must be a text frame with a JSON object.")
                continue
            if len(text.encode(errors="replace")) > FRAME_BYTES:
                await self._socket.close(TOO_LARGE)
                return
            await self._on_text(text)

    async def _write(self) -> None:
        while True:
            text = await self._out.get()
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await self._socket.send_text(text)
            self._unsent -= len(text)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self.send({"type": "ping", "timestamp": _now_milliseconds()})

    async def _on_text(self, text: str) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._send_error("A message must be a JSON object.")
            return
        await self._handle(message)

    async def _handle(self, message: Message) -> None:
        kind = message.get("type")
        try:
            if kind == "attach":
                await self._attach(message)
            elif kind == "send":
                await self._send(message)
            elif kind == "ping":
                self.send({"type": "pong", "timestamp": _now_milliseconds()})
            elif kind != "pong":
                self._send_error("Unknown message type.")
        except CommonplaceError as error:
            self._send_error(str(error))

    def _send_error(self, message: str) -> None:
        self.send(_error_frame(message))

    async def _attach(self, message: Message) -> None:
        given = message.get("sessionId")
        if given is not None and (not isinstance(given, str) or len(given) > 200):
            self._send_error("sessionId must be a string.")
            return
        viewer = message.get("osAgentMode") is True
        found = await self._exchange.perform(
            {"session": given or "", "source": "viewer" if viewer else "mobile"}, "chat_attach"
        )
        self._leave()
        self._session, self._name = found["session"], found["name"]
        self._tier = 1 if viewer else 3
        self._channel().sockets.add(self)
        self.send({"type": "attached", "sessionId": self._session, "osAgentMode": viewer})
        if found["messages"]:
            self.send({"type": "history", "messages": found["messages"]})

    def _channel(self) -> Channel:
        made = Channel(self._name, asyncio.get_running_loop())
        return _channels.setdefault(self._session, made)

    def _leave(self) -> None:
        channel = _channels.get(self._session)
        if channel is not None:
            channel.sockets.discard(self)
            if not channel.sockets and not channel.waiting:
                _channels.pop(self._session, None)

    async def _send(self, message: Message) -> None:
        content, files = message.get("content"), message.get("attachments") or []
        if content is None or service.is_blank(content):
            content = ""
        if not isinstance(content, str) or not isinstance(files, list):
            self._send_error("content must be a string, and attachments a list.")
            return
        if not content and not files:
            self._send_error("A message needs content or attachments.")
            return
        if len(content) > CONTENT_CHARS or len(files) > MAX_ATTACHMENTS:
            self._send_error(
                f"A message may have at most {CONTENT_CHARS:,} characters"
                f" and {MAX_ATTACHMENTS} attachments."
            )
            return
        if not self._session:
            await self._attach({"osAgentMode": True})
        channel = self._channel()
        if channel.waiting > MAX_WAITING:
            self._send_error(f"{MAX_WAITING} messages are already waiting. Wait for an answer.")
            return
        if channel.waiting:
            self.send(
                {
                    "type": "queued",
                    "message": "Another message is being answered. Wait for its answer.",
                }
            )
        channel.waiting += 1
        # The task is independent of the socket: the answer is stored even without a browser.
        task = asyncio.create_task(
            _answer(self, self._exchange, channel, self._session, content, self._tier, files)
        )
        _answers.add(task)
        task.add_done_callback(_answers.discard)

    async def existing_attachments(self, files: list[Any]) -> list[Message]:
        """Return the attachments that exist; send an error for each missing one."""
        known = []
        for each in files:
            name = each.get("filename") if isinstance(each, dict) else None
            try:
                if not isinstance(name, str):
                    raise PlatformError(400, "BAD_REQUEST", "filename is missing")
                await self._exchange.perform({"filename": name}, "chat_attachment")
                known.append({"filename": name})
            except CommonplaceError as error:
                self.send({"type": "attachment_failed", "filename": name, "error": error.message})
        return known


_channels: dict[str, Channel] = {}
_answers: set[asyncio.Task[None]] = set()


async def _answer(
    client: _Client,
    exchange: Exchange,
    channel: Channel,
    session: str,
    content: str,
    tier: int,
    files: list[Any],
) -> None:
    """Answer one message, after all earlier messages of the session."""
    try:
        async with channel.busy:
            begun = time.monotonic()
            typing = asyncio.create_task(_send_typing(channel, begun))
            try:
                found = await client.existing_attachments(files)
                if not content and not found:
                    raise PlatformError(404, "NOT_FOUND", "No attachment was found.")
                await exchange.perform(
                    {"name": channel.name, "content": content or "(attachment)"}, "chat_say"
                )
                arguments = {
                    "name": channel.name, "session": session, "content": content, "tier": tier,
                    "files": found,
                }  # fmt: skip
                result = await exchange.perform(arguments, "chat_reply")
            except CommonplaceError as error:
                channel.broadcast({"type": "error", "error": str(error), "message": str(error)})
            else:
                channel.broadcast(
                    {"type": "stream", "content": result["answer"], "sessionId": session}
                )
                took = int((time.monotonic() - begun) * 1000)
                channel.broadcast({"type": "stream_end", "sessionId": session, "duration": took})
            finally:
                typing.cancel()
    finally:
        channel.waiting -= 1
        if not channel.sockets and not channel.waiting:
            _channels.pop(session, None)


async def _send_typing(channel: Channel, begun: float) -> None:
    channel.broadcast({"type": "typing", "status": "processing"})
    while True:
        await asyncio.sleep(TYPING_SECONDS)
        elapsed = int((time.monotonic() - begun) * 1000)
        channel.broadcast({"type": "typing", "status": "processing", "elapsed": elapsed})


def _now_milliseconds() -> int:
    return time.time_ns() // 1_000_000


OPERATIONS = (
    operation("open_chat", "Open the chat", "operator", open_chat),
    operation("chat_attach", "Attach to a session", "operator", attach_session,
              ("session", "source"), {"session": TEXT, "source": TEXT}),
    operation("chat_attachment", "Check an attachment", "operator", check_attachment, ("filename",),
              {"filename": TEXT}),
    operation("chat_say", "Say something in a session", "operator", store_user_message,
              ("name", "content"), {"name": TEXT, "content": TEXT}),
    operation("chat_reply", "Answer in a session", "operator", answer_message,
              ("name", "session", "content", "tier", "files"),
              {"name": TEXT, "session": TEXT, "content": TEXT, "tier": integer(1, 3),
               "files": array(OBJECT)}, stepwise=True, open_world=True),
)  # fmt: skip
ROUTES = (Route("WEBSOCKET", "/ws", "open_chat", answer=connect),)
