"""Wraps the SDK's streams: adds the caller, answers malformed lines, waits for pending replies.

Without this wrapper the SDK drops a line that it cannot parse (the sender would wait for ever),
replaces bytes that are not UTF-8, and abandons pending replies at EOF although the calls may have
been committed. It also refuses some calls itself; these are audited here.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from io import TextIOWrapper
from types import SimpleNamespace
from typing import Any, BinaryIO

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from commonplace.dialects.contract import Dialect
from commonplace.errors import InvalidInput
from commonplace.server.calls import (
    ADMITTED,
    MOST_CALLS,
    UNREADABLE,
    AdmittedRequest,
    calls_in,
    fault_of,
    identity_of,
    tool_and_arguments,
)
from commonplace.server.refusals import CalledTool, Refusals

BRACKETS = "[]{}:"
ID_CHARS = 1_000
# The last `"?` lets an unterminated string match to the end, which avoids quadratic time.
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}:]|-?\d+', re.DOTALL)
NOTIFICATIONS = "notifications/"
CANCELLED = f"{NOTIFICATIONS}cancelled"
UNPARSED_CALL = "stdio"  # the audited name of a call in an unparsable line


def open_lines(wire: BinaryIO) -> anyio.AsyncFile[str]:
    """Open a pipe to read its lines; invalid UTF-8 is preserved, so that the line is refused
    later."""
    return anyio.wrap_file(TextIOWrapper(wire, encoding="utf-8", errors="surrogateescape"))


async def parse_messages(
    source: AsyncIterator[bytes],
) -> AsyncIterator[SessionMessage | Exception]:
    """Yield the message of each line, or the exception of parsing it, as the SDK does."""
    async for line in source:
        text = line.decode("utf-8", "surrogateescape")
        try:
            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except Exception as error:
            yield error
            continue
        yield SessionMessage(message)


@dataclass(frozen=True, slots=True, eq=False)
class _PendingRequest:
    """A request without a response yet, and the tool that it calls, if any."""

    admitted: AdmittedRequest | None
    called: CalledTool | None


class Pipes:
    """Both directions of a pipe; `incoming` and `outgoing` replace the streams of the transport.

    `local` is the caller of a local pipe; over HTTP `Door` has set the caller. At EOF, `receive`
    waits up to `seconds` for pending replies.
    """

    def __init__(
        self,
        incoming: Any,
        outgoing: Any,
        dialect: Dialect,
        refusals: Refusals,
        local: AdmittedRequest | None = None,
        seconds: float = 0,
    ) -> None:
        self._pending: dict[int | str, list[_PendingRequest]] = {}
        self._sending = 0
        self._idle = anyio.Event()
        self._source = incoming
        self._sink = outgoing
        self._dialect = dialect
        self._refusals = refusals
        self._local = local
        self._seconds = seconds
        self.incoming = _Incoming(self, incoming)
        self.outgoing = _Outgoing(self, outgoing)

    async def serve(self, server: Server[Any]) -> None:
        """Answer messages until the other end closes."""
        await server.run(self.incoming, self.outgoing, server.create_initialization_options())

    async def receive(self) -> SessionMessage:
        """Return the next message. Answer malformed lines with an error; at EOF, wait for
        replies."""
        while True:
            try:
                item = await self._source.receive()
            except anyio.EndOfStream:
                await self._wait_for_replies()
                raise
            if isinstance(item, Exception):
                await self._refuse(_fault_of_error(item))
                continue
            if (fault := _missing_id_fault(item.message)) is not None:
                await self._refuse(fault)
                continue
            message = self._with_caller(item)
            self._track(message)
            return message

    async def send(self, item: SessionMessage) -> None:
        """Send a message, and audit a call that the SDK refused."""
        answer = item.message
        self._sending += 1
        try:
            if isinstance(answer, types.JSONRPCResponse | types.JSONRPCError):
                pending = self._take_pending(answer.id)
                if isinstance(answer, types.JSONRPCError) and pending and pending.called:
                    await self._audit(pending.admitted, [pending.called], answer.error.message)
            await self._sink.send(item)
        finally:
            self._sending -= 1
            self._wake_if_idle()

    def _with_caller(self, message: SessionMessage) -> SessionMessage:
        """Return the message with its caller in the scope, as `Door` does for HTTP."""
        if self._local is None:
            return message
        context = SimpleNamespace(scope={ADMITTED: replace(self._local, audited=[])})
        return replace(message, metadata=ServerMessageMetadata(request_context=context))

    def _track(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            pending = _PendingRequest(_admitted_request(item), _called_tool(message))
            self._pending.setdefault(message.id, []).append(pending)
        elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            # a cancelled request may get no answer
            self._take_pending((message.params or {}).get("requestId"))
            self._wake_if_idle()

    def _take_pending(self, identity: object) -> _PendingRequest | None:
        """Remove and return the pending request with this id; of two, the audited one."""
        if not isinstance(identity, int | str) or identity not in self._pending:
            return None
        same = self._pending[identity]
        first = next((one for one in same if one.admitted and one.admitted.audited), same[0])
        same.remove(first)
        if not same:
            del self._pending[identity]
        return first

    async def _refuse(self, fault: _Fault | None) -> None:
        """Answer a malformed line with an error, and audit its tool calls."""
        if fault is None or self._local is None:  # over HTTP `Door` has already answered
            return
        calls = [tool_and_arguments(call.get("params")) for call in calls_in(fault.parsed_part)]
        if fault.parsed_part is UNREADABLE or len(calls) > MOST_CALLS:
            calls = [(UNPARSED_CALL, {})]
        await self._audit(replace(self._local, audited=[]), calls, fault.why)
        await self._sink.send(SessionMessage(fault.answer()))

    async def _audit(
        self, admitted: AdmittedRequest | None, calls: list[CalledTool], why: str
    ) -> None:
        """Write audit entries for refused calls that have no entry yet."""
        if admitted is None or admitted.audited:
            return
        admitted.audited.append(InvalidInput.code)
        await self._refusals.audit(
            admitted.caller, admitted.request_info, self._dialect.name, calls, InvalidInput(why)
        )

    def _wake_if_idle(self) -> None:
        if not self._pending and not self._sending:
            self._idle.set()

    async def _wait_for_replies(self) -> None:
        self._idle = anyio.Event()
        if self._pending or self._sending:
            with anyio.move_on_after(self._seconds):
                await self._idle.wait()


def _admitted_request(item: SessionMessage) -> AdmittedRequest | None:
    request = getattr(item.metadata, "request_context", None)
    return None if request is None else request.scope.get(ADMITTED)


def _called_tool(message: types.JSONRPCMessage) -> CalledTool | None:
    is_call = getattr(message, "method", "") == "tools/call"
    return tool_and_arguments(getattr(message, "params", None)) if is_call else None


@dataclass(frozen=True, slots=True)
class _Fault:
    """The error of a malformed line, and the part of it that could be parsed."""

    parsed_part: Any
    code: int
    why: str
    identity: int | str | None = None
    """The id, if nothing else could be parsed."""

    def answer(self) -> types.JSONRPCError:
        """Return the error response, with the id of the request if it is valid."""
        error = types.ErrorData(code=self.code, message=self.why)
        identity = (
            self.identity if self.parsed_part is UNREADABLE else identity_of(self.parsed_part)
        )
        return types.JSONRPCError(jsonrpc="2.0", id=identity, error=error)


def _fault_of_error(error: Exception) -> _Fault | None:
    """Return the fault of a malformed line; None for an empty line, which gets no answer."""
    first: Any = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
    if first.get("type") == "string_unicode":
        why = "This line is not UTF-8. Nothing of it was carried out."
        return _Fault(_parse_not_utf8(first["input"]), types.PARSE_ERROR, why)
    if first.get("type") != "json_invalid":
        found = _message_of_error(error)
        why = fault_of(found) or "This is not a JSON-RPC 2.0 message."
        return _Fault(found, types.INVALID_REQUEST, why)
    line = str(first["input"])
    if not line.strip():
        return None
    found = _parse_with_long_numbers(line)
    if (why := _nesting_error(line)) != "":
        return _Fault(found, types.PARSE_ERROR, why, _outer_id(line))
    why = "This is not JSON. Send one message a line."
    if found is not UNREADABLE:
        why = "A string holds half a character (a lone surrogate), or a number is too long."
    return _Fault(found, types.PARSE_ERROR, why)


def _parse_with_long_numbers(line: str) -> Any:
    """Return the parsed line, with too long numbers replaced by 0; UNREADABLE if it is not JSON."""
    try:
        return json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < 4_000 else 0)
    except (ValueError, RecursionError):
        return UNREADABLE


def _nesting_error(line: str) -> str:
    """Return the error if a line exceeds the nesting limits of HTTP; empty if it does not."""
    from commonplace.dialects.rest import Rejected
    from commonplace.server.request import check_nesting

    try:
        check_nesting(line.encode(errors="surrogatepass"))
    except Rejected as error:
        return error.message
    return ""


def _outer_id(line: str) -> int | str | None:
    """Find the id of a message that is nested too deep to be parsed."""
    level, before, last = 0, "", ""
    for mark in _TOKENS.finditer(line):
        part = mark[0]
        if level == 1 and (before, last) == ('"id"', ":"):
            return None if part in BRACKETS or len(part) > ID_CHARS else _parse_id(part)
        level += (part in "[{") - (part in "]}")
        before, last = last, part
    return None


def _parse_id(part: str) -> int | str | None:
    """Parse an id; return None if it is not JSON, such as a string without an end."""
    found = _parse_not_utf8(part)
    return None if found is UNREADABLE else found


def _missing_id_fault(message: types.JSONRPCMessage) -> _Fault | None:
    """Return the fault of a request without a valid id, which the SDK takes for a notification."""
    if not isinstance(message, types.JSONRPCNotification):
        return None
    if message.method.startswith(NOTIFICATIONS):
        return None
    why = "The id of this request is missing or wrong: it must be a string or an integer."
    return _Fault(message.model_dump(), types.INVALID_REQUEST, why)


def _parse_not_utf8(line: str) -> Any:
    """Parse a line that is not UTF-8, to find its id; return UNREADABLE if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return UNREADABLE


def _message_of_error(error: Exception) -> Any:
    """Return the whole message that a validation error refers to."""
    if isinstance(error, ValidationError):
        for each in error.errors(include_url=False):
            if each["type"] == "missing" or len(each["loc"]) < 2:
                return each["input"]  # for a missing field: the object that lacks it
    return None


class _Incoming(ObjectReceiveStream[SessionMessage | Exception]):
    def __init__(self, pipes: Pipes, source: Any) -> None:
        self._pipes = pipes
        self._source = source

    async def receive(self) -> SessionMessage | Exception:
        return await self._pipes.receive()

    async def aclose(self) -> None:
        await self._source.aclose()


class _Outgoing(ObjectSendStream[SessionMessage]):
    def __init__(self, pipes: Pipes, sink: Any) -> None:
        self._pipes = pipes
        self._sink = sink

    async def send(self, item: SessionMessage) -> None:
        await self._pipes.send(item)

    async def aclose(self) -> None:
        await self._sink.aclose()
