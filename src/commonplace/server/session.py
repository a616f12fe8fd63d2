"""MCP with one client on the local socket; the SDK answers all messages but usual tool calls.

The SDK is loaded when a message first needs it. It then receives the client's `initialize` before
that message, so that it has the client's capabilities.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from commonplace.client.static_answers import StaticAnswers
from commonplace.dialects.contract import Dialect
from commonplace.server import calls
from commonplace.server.calls import AdmittedRequest, Workers, client_name, with_message_details
from commonplace.server.refusals import Refusals

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

REPEATED_INITIALIZE = (
    "commonplace-session-initialize"  # the id of an `initialize` that was already answered
)
NOTIFICATIONS = "notifications/"
CANCELLED = f"{NOTIFICATIONS}cancelled"
INITIALIZED = f"{NOTIFICATIONS}initialized"


class LocalSession:
    """Answers the messages of one client. Use it on the event loop only."""

    def __init__(
        self,
        dialect: Dialect,
        workers: Workers,
        refusals: Refusals,
        admitted: AdmittedRequest,
        *,
        static: StaticAnswers,
        load: Callable[[], Server[Any]],
        writer: asyncio.StreamWriter,
        seconds: float,
    ) -> None:
        self._dialect = dialect
        self._workers = workers
        self._refusals = refusals
        self._admitted = admitted
        self._static = static
        self._load = load
        self._writer = writer
        self._seconds = seconds
        self._client = ""
        self._direct = False
        """Whether calls are answered here: the client's `initialize` needs nothing of the SDK."""
        self._stateless = True
        """Whether the client has sent no `initialize`, so that each request stands by itself."""
        self._received: list[bytes] = []
        """Messages that the SDK must receive first."""
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._lines: asyncio.Queue[bytes] | None = None
        self._sdk_task: asyncio.Task[None] | None = None

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer messages until the client closes its end, then finish pending calls."""
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                if not await self._handle(calls.parse_line(line)):
                    self._pass_to_sdk(line)
            # The rest is an unfinished line of a client that has disconnected; ignore it.
            pending = set(self._calls.values())
            if self._lines is not None and self._sdk_task is not None:
                self._lines.put_nowait(b"")
                pending.add(self._sdk_task)
            if pending:
                await asyncio.wait(pending, timeout=self._seconds)
        finally:
            for task in (*self._calls.values(), *filter(None, [self._sdk_task])):
                task.cancel()
        if self._sdk_task is not None and self._sdk_task.done():
            self._sdk_task.result()

    async def _handle(self, message: Any) -> bool:
        """Handle a message here; return False if the SDK must handle it."""
        if not isinstance(message, dict):
            return False
        method = message.get("method")
        if method == "tools/call":
            return self._call(message)
        if method == "initialize" and self._lines is None:
            return await self._initialize(message)
        if message.get("jsonrpc") != "2.0":
            return False
        if method == CANCELLED:
            return self._cancel(message)
        if not self._direct:
            return False
        if method == "ping" and message.keys() == {"jsonrpc", "id", "method"}:
            return await self._pong(message["id"])
        if method == INITIALIZED and message.keys() == {"jsonrpc", "method"}:
            self._received[1:] = [_json_line(message)]
            return self._lines is None
        return False

    async def _pong(self, identity: Any) -> bool:
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            return False
        await self._write(_json_line({"jsonrpc": "2.0", "id": identity, "result": {}}))
        return True

    async def _initialize(self, message: dict[str, Any]) -> bool:
        answer = None if self._received else self._static.answer(message)
        if answer is None:
            return False
        self._stateless = False
        told = message["params"]["clientInfo"]
        self._client = client_name(told["name"], told["version"])
        version = answer["result"]["protocolVersion"]
        self._direct = version in calls.PLAIN_MCP_VERSIONS
        self._received.append(_json_line({**message, "id": REPEATED_INITIALIZE}))
        await self._write(_json_line(answer))
        return True

    def _call(self, message: dict[str, Any]) -> bool:
        call = calls.UsualCall.read(message)
        if call is None or not (self._stateless if call.stateless else self._direct):
            return False
        key = str(call.identity)
        task = asyncio.create_task(self._answer(call))
        self._calls[key] = task
        task.add_done_callback(lambda _: self._forget(key, task))
        return True

    async def _answer(self, call: calls.UsualCall) -> None:
        admitted = AdmittedRequest(self._admitted.caller, self._admitted.request_info)
        admitted = with_message_details(admitted, call.meta, call.client or self._client)
        found = await calls.answer_usual_call(call, self._dialect, self._workers, None, admitted)
        await self._write(_json_line(found))

    def _forget(self, key: str, task: asyncio.Task[None]) -> None:
        if self._calls.get(key) is task:
            del self._calls[key]

    def _cancel(self, message: dict[str, Any]) -> bool:
        """Send no response to a cancelled call; its work may go on."""
        params = message.get("params")
        task = self._calls.get(str(params.get("requestId"))) if isinstance(params, dict) else None
        if task is not None:
            task.cancel()
        return task is not None or self._lines is None

    async def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)
            with contextlib.suppress(OSError):  # the client has disconnected after its call
                await self._writer.drain()

    # Messages for the SDK

    def _pass_to_sdk(self, line: bytes) -> None:
        if self._lines is None:
            self._lines = asyncio.Queue()
            for each in self._received:
                self._lines.put_nowait(each)
            self._sdk_task = asyncio.create_task(self._run_sdk(self._lines))
            self._sdk_task.add_done_callback(lambda _: self._writer.close())
        if b"initialize" in line:
            self._stateless = False
        self._lines.put_nowait(line)

    async def _run_sdk(self, lines: asyncio.Queue[bytes]) -> None:
        server = await asyncio.to_thread(self._load)
        import anyio

        from commonplace.server.pipes import Pipes, parse_messages

        async def source() -> AsyncIterator[bytes]:
            while line := await lines.get():
                yield line

        sending, outgoing = anyio.create_memory_object_stream[Any](0)
        receiving, incoming = anyio.create_memory_object_stream[Any](0)

        async def receive() -> None:
            async with receiving:
                async for message in parse_messages(source()):
                    await receiving.send(message)

        async def send() -> None:
            async with outgoing:
                async for each in outgoing:
                    if getattr(each.message, "id", None) != REPEATED_INITIALIZE:
                        text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                        await self._write(text.encode() + b"\n")

        pipes = Pipes(
            incoming, sending, self._dialect, self._refusals, self._admitted, self._seconds
        )
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(send)
            await pipes.serve(server)
            group.cancel_scope.cancel()


def _json_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"
