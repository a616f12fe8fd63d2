"""What a pipe needs beside the SDK's transport: who calls, an answer to every line, none cut off.

The SDK drops a line that it cannot read, so that its sender waits for ever, puts a sign of its own
in place of bytes that are no text, and gives up what is being answered when the other end closes,
though it may have been stored. And it refuses calls of its own accord: those are written down here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import TextIOWrapper
from types import TracebackType
from typing import Any, BinaryIO, Self

import anyio
import mcp_types as types
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from commonplace.dialects.contract import Dialect
from commonplace.errors import InvalidInput
from commonplace.server.protocol import (
    ADMITTED,
    MOST_CALLS,
    UNREADABLE,
    Admitted,
    calls_in,
    identity_of,
    message_in,
    named,
    wrong_with,
)
from commonplace.server.refusals import Called, Refusals

NOTIFICATIONS = "notifications/"
CANCELLED = f"{NOTIFICATIONS}cancelled"
UNREAD = "stdio"  # what a line is called of which nobody can say what it calls
INVALID = "INVALID_INPUT"


def lines(wire: BinaryIO) -> anyio.AsyncFile[str]:
    """The lines of a pipe; bytes that are not UTF-8 stay what they are, and get theirs refused."""
    return anyio.wrap_file(TextIOWrapper(wire, encoding="utf-8", errors="surrogateescape"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """What stands for the request where there is none: it says who calls, as the door does."""

    scope: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A request that was not answered yet; what it calls, if it calls a tool."""

    who: Admitted | None
    called: Called | None


class Pipes:
    """Both directions of a pipe: `incoming` and `outgoing` stand in for the transport's own.

    `local` is who calls where nobody is let in by a door. `seconds` is how long the end waits for
    what is being answered.
    """

    def __init__(
        self,
        incoming: Any,
        outgoing: Any,
        dialect: Dialect,
        refusals: Refusals,
        local: Admitted | None = None,
        seconds: float = 0,
    ) -> None:
        self._open: dict[int | str, list[_Asked]] = {}
        self._sending = 0
        self._quiet = anyio.Event()
        self._source = incoming
        self._sink = outgoing
        self._dialect = dialect
        self._refusals = refusals
        self._local = local
        self._seconds = seconds
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
                await self._refuse(_fault(item))
                continue
            if (unheard := _without_id(item.message)) is not None:
                await self._refuse(unheard)
                continue
            message = self._from_somebody(item)
            self._came(message)
            return message

    async def send(self, item: SessionMessage) -> None:
        answer = item.message
        self._sending += 1
        try:
            if isinstance(answer, types.JSONRPCResponse | types.JSONRPCError):
                asked = self._done(answer.id)
                if isinstance(answer, types.JSONRPCError) and asked is not None and asked.called:
                    await self._note(asked.who, [asked.called], answer.error.message)
            await self._sink.send(item)
        finally:
            self._sending -= 1
            self._look()

    def _from_somebody(self, message: SessionMessage) -> SessionMessage:
        """The message with who sent it, as messages have it that came in through a door."""
        if self._local is None:
            return message
        arrival = Arrival({ADMITTED: replace(self._local, audited=[])})
        return replace(message, metadata=ServerMessageMetadata(request_context=arrival))

    def _came(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            asked = _Asked(_who(item), _called(message))
            self._open.setdefault(message.id, []).append(asked)
        elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            self._done((message.params or {}).get("requestId"))  # it may never be answered
            self._look()

    def _done(self, identity: object) -> _Asked | None:
        """Take what was answered from what is open: of two with one id, the one written down."""
        if not isinstance(identity, int | str) or identity not in self._open:
            return None
        asked = self._open[identity]
        first = next((each for each in asked if each.who and each.who.audited), asked[0])
        asked.remove(first)
        if not asked:
            del self._open[identity]
        return first

    async def _refuse(self, fault: _Fault | None) -> None:
        """Answer a line that is no message, and write down what it calls."""
        if fault is None or self._local is None:  # what came in through a door was answered there
            return
        calls = [named(call.get("params")) for call in calls_in(fault.found)]
        if fault.found is UNREADABLE or len(calls) > MOST_CALLS:
            calls = [(UNREAD, {})]
        await self._note(replace(self._local, audited=[]), calls, fault.why)
        await self._sink.send(SessionMessage(fault.answer()))

    async def _note(self, who: Admitted | None, calls: list[Called], why: str) -> None:
        """Write down calls that are not carried out, unless that was done."""
        if who is None or who.audited:
            return
        who.audited.append(INVALID)
        await self._refusals.note(
            who.caller, who.request_info, self._dialect.name, calls, InvalidInput(why)
        )

    def _look(self) -> None:
        if not self._open and not self._sending:
            self._quiet.set()

    async def _answered(self) -> None:
        self._quiet = anyio.Event()
        if self._open or self._sending:
            with anyio.move_on_after(self._seconds):
                await self._quiet.wait()


def _who(item: SessionMessage) -> Admitted | None:
    request = getattr(item.metadata, "request_context", None)
    return None if request is None else request.scope.get(ADMITTED)


def _called(message: types.JSONRPCMessage) -> Called | None:
    is_call = getattr(message, "method", "") == "tools/call"
    return named(getattr(message, "params", None)) if is_call else None


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with a line, and what it says as far as anything can be made out."""

    found: Any
    code: int
    why: str

    def answer(self) -> types.JSONRPCError:
        """With its id, where one can be made out."""
        told = types.ErrorData(code=self.code, message=self.why)
        return types.JSONRPCError(jsonrpc="2.0", id=identity_of(self.found), error=told)


def _fault(error: Exception) -> _Fault | None:
    """Why a line is no message; None for an empty line, which asks for nothing."""
    first: Any = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
    if first.get("type") == "string_unicode":
        why = "This line is not UTF-8. Nothing of it was carried out."
        return _Fault(_escaped(first["input"]), types.PARSE_ERROR, why)
    if first.get("type") != "json_invalid":
        found = _message(error)
        why = wrong_with(found) or "This is not a JSON-RPC 2.0 message."
        return _Fault(found, types.INVALID_REQUEST, why)
    line = str(first["input"])
    if not line.strip():
        return None
    found = message_in(line.encode(errors="surrogatepass"))
    why = "This is not JSON. Send one message a line."
    if found is not UNREADABLE:
        why = "A text holds half a character (a lone surrogate), or a number is too long."
    return _Fault(found, types.PARSE_ERROR, why)


def _without_id(message: types.JSONRPCMessage) -> _Fault | None:
    """A request whose id is missing, or is none: the SDK takes it for a notification."""
    if not isinstance(message, types.JSONRPCNotification):
        return None
    if message.method.startswith(NOTIFICATIONS):
        return None
    why = "The id of this request is missing or wrong: it must be a text or a whole number."
    return _Fault(message.model_dump(), types.INVALID_REQUEST, why)


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
