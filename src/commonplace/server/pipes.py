"""What a pipe needs beside the SDK's transport: an answer to every line, and none cut off.

The SDK drops a line that it cannot read, so that its sender waits for ever, puts a sign of its own
in place of bytes that are no text, and gives up what is being answered when the other end closes,
though it may have been stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import TextIOWrapper
from types import TracebackType
from typing import Any, BinaryIO, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from commonplace.server.protocol import UNREADABLE, identity_of, message_in, wrong_with

CANCELLED = "notifications/cancelled"


def lines(wire: BinaryIO) -> anyio.AsyncFile[str]:
    """The lines of a pipe; bytes that are not UTF-8 stay what they are, and get theirs refused."""
    return anyio.wrap_file(TextIOWrapper(wire, encoding="utf-8", errors="surrogateescape"))


class Pipes:
    """Both directions of a pipe: `incoming` and `outgoing` stand in for the transport's own."""

    def __init__(self, incoming: Any, outgoing: Any, seconds: float) -> None:
        self._open: set[int | str] = set()
        self._quiet = anyio.Event()
        self._seconds = seconds
        self._source = incoming
        self._sink = outgoing
        self.incoming = _Incoming(self, incoming)
        self.outgoing = _Outgoing(self, outgoing)

    async def next(self) -> SessionMessage:
        """The next message; a line that is none is answered. The end waits for open answers."""
        while True:
            try:
                item = await self._source.receive()
            except anyio.EndOfStream:
                await self._answered()
                raise
            if isinstance(item, Exception):
                if (told := refusal(item)) is not None:
                    await self._sink.send(SessionMessage(told))
                continue
            message: SessionMessage = item
            self._came(message.message)
            return message

    async def send(self, item: SessionMessage) -> None:
        await self._sink.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._done(item.message.id)

    def _came(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            self._done((message.params or {}).get("requestId"))  # it may never be answered

    def _done(self, identity: object) -> None:
        if isinstance(identity, int | str):
            self._open.discard(identity)
        if not self._open:
            self._quiet.set()

    async def _answered(self) -> None:
        self._quiet = anyio.Event()
        if self._open:
            with anyio.move_on_after(self._seconds):
                await self._quiet.wait()


def refusal(error: Exception) -> types.JSONRPCError | None:
    """The answer to a line that is no message; with its id, where one can be made out.

    None for an empty line, which asks for nothing.
    """
    first: Any = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
    if first.get("type") == "string_unicode":
        found, code = _escaped(first["input"]), types.PARSE_ERROR
        why = "This line is not UTF-8. Nothing of it was carried out."
    elif first.get("type") != "json_invalid":
        found, code = _message(error), types.INVALID_REQUEST
        why = wrong_with(found) or "This is not a JSON-RPC 2.0 message."
    elif not str(first["input"]).strip():
        return None
    else:
        found, code = (
            message_in(str(first["input"]).encode(errors="surrogatepass")),
            types.PARSE_ERROR,
        )
        why = "This is not JSON. Send one message a line."
        if found is not UNREADABLE:
            why = "A text holds half a character (a lone surrogate), or a number is too long."
    return types.JSONRPCError(
        jsonrpc="2.0", id=identity_of(found), error=types.ErrorData(code=code, message=why)
    )


def _escaped(line: str) -> Any:
    """What a line would say if its odd bytes were signs, to find its id."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return UNREADABLE


def _message(error: Exception) -> Any:
    """The whole message, which an error about a part of it does not show."""
    if isinstance(error, ValidationError):
        for each in error.errors(include_url=False):
            if each["type"] == "missing" or len(each["loc"]) < 2:
                return each["input"]  # of a missing field, what it is missing from
    return None


class _Stream:
    """What closes with the stream that it stands in for."""

    _close: Callable[[], Any]

    async def aclose(self) -> None:
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Incoming(_Stream):
    def __init__(self, pipes: Pipes, source: Any) -> None:
        self._pipes = pipes
        self._close = source.aclose

    async def receive(self) -> SessionMessage | Exception:
        return await self._pipes.next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Stream):
    def __init__(self, pipes: Pipes, sink: Any) -> None:
        self._pipes = pipes
        self._close = sink.aclose

    async def send(self, item: SessionMessage, /) -> None:
        await self._pipes.send(item)
