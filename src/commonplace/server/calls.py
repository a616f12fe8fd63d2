"""Answer tool calls without the MCP SDK: parse the message, find the caller, run the tool.

The SDK takes a second to load, and uses more CPU time than most calls. A `tools/call` request of
the usual form is answered here; every other message is passed to the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from commonplace.access.caller import Caller, NotPermitted
from commonplace.client.static_answers import is_usual_client_info
from commonplace.dialects.contract import Dialect, RequestInfo, Tool, Wire
from commonplace.errors import CommonplaceError, NotFound
from commonplace.server.gate import (
    PIPE_KEY,
    CallState,
    Decision,
    Gate,
    Operation,
    Outcome,
    TookTooLong,
)
from commonplace.server.quotas import Quota
from commonplace.server.tracing import is_traced

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

DIALECT = "commonplace.dialect"  # scope key: the name of the dialect that answers
ADMITTED = "commonplace.admitted"  # scope key: the authenticated caller (`AdmittedRequest`)
JSON_BODY = "commonplace.json"  # scope key: the body of a request, as parsed JSON
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = b"mcp-protocol-version", b"mcp-method", b"mcp-name"
FORBIDDEN = -32003
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAULT_MESSAGE = "Something went wrong on our side."
MOST_CALLS = 100  # most calls in one message, since each refused call gets an audit entry
UNREADABLE = object()
IDEMPOTENCY_META = "commonplace/idempotency-key"
CONFIRMED_META = "commonplace/confirmed-keys"
MOST_CONFIRMED = 100
THREADS = 64
OUTSIDE_THREADS = 128  # threads for calls that wait for another service
LOOKUP_THREADS = 4  # threads that look up credentials, so that slow calls never delay a lookup
# MCP versions whose results have exactly the fields that dialects return.
PLAIN_MCP_VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
# Since this version there is no `initialize`: each request says who the client is in its `_meta`,
# and each result says who the server is.
STATELESS_MCP_VERSION = "2026-07-28"
# `json.loads` and the SDK read lone surrogates and infinite numbers in different ways.
_READ_DIFFERENTLY = (b"\\ud", b"\\uD", b"NaN", b"Infinity")
RESERVED_META = "io.modelcontextprotocol/"
VERSION_META, CLIENT_META, CAPABILITIES_META, SERVER_META = (
    f"{RESERVED_META}{name}"
    for name in ("protocolVersion", "clientInfo", "clientCapabilities", "serverInfo")
)
# With tracing the SDK handles all calls, since it creates the spans.
IS_TRACED = is_traced(os.environ)
UNNAMED_CLIENT = {"name": "", "version": ""}
MOST_BRACKETS = 100  # a message with more is passed to the SDK, which limits the nesting

COMPLETE = {"resultType": "complete"}  # required since 2026-07-28; left out for older clients
REQUIRED_ACCEPT = (b"application/json", b"text/event-stream")

log = logging.getLogger(__name__)


def client_name(name: object, version: object) -> str:
    """Return the name of a client with its version; empty if there is none."""
    return f"{name} {version}".strip()[:200] if isinstance(name, str) else ""


def tool_and_arguments(params: object) -> tuple[str, Mapping[str, Any]]:
    """Return the tool name and arguments of an unchecked call; empty if they have the wrong
    type."""
    given = params if isinstance(params, Mapping) else {}
    name, arguments = given.get("name"), given.get("arguments")
    return (
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, Mapping) else {},
    )


def parse_message(body: bytes) -> Any:
    """Return the parsed JSON of a body, or `UNREADABLE` if it is not JSON (the SDK then reports the
    error)."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return UNREADABLE


def messages_of(message: Any) -> list[dict[str, Any]]:
    """Return the messages of a body, one or a batch; an empty list for anything else."""
    messages = message if isinstance(message, list) else [message]
    return [each for each in messages if isinstance(each, dict)]


def calls_in(message: Any) -> list[dict[str, Any]]:
    """Return the tool calls in a JSON-RPC message or batch; an empty list for anything else."""
    return [each for each in messages_of(message) if each.get("method") == "tools/call"]


def fault_of(message: Any) -> str:
    """Return why a message is not valid MCP, as a sentence; an empty string if it is valid, or
    `UNREADABLE`, which the SDK reports.

    The SDK treats a request with an invalid id as a notification: it would accept the request,
    but neither carry it out nor answer it.
    """
    if message is UNREADABLE:
        return ""
    if isinstance(message, list):
        return "Send one message at a time; batches are not accepted."
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return "This is not a JSON-RPC 2.0 message."
    if "method" not in message:
        answer = "result" in message or "error" in message
        return "" if answer else "method is missing."
    identity = message.get("id", "")
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        return "id must be a string or a whole number."
    if not isinstance(message["method"], str):
        return "method must be a string."
    if not isinstance(message.get("params", {}), dict | None):
        return "params must be an object."
    if message["method"] == "tools/call" and "id" not in message:
        return "A tools/call request needs an id; without one it cannot be answered."
    return ""


def identity_of(message: Any) -> int | str | None:
    """Return the id for the response to a message; None if the message has no valid id."""
    identity = message.get("id") if isinstance(message, dict) else None
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        return None
    return identity.encode(errors="replace").decode() if isinstance(identity, str) else identity


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """An authenticated caller and the request that it sent."""

    caller: Caller
    request_info: RequestInfo
    audited: list[str] = field(default_factory=list)
    """Not empty if an audit entry for this request has been written."""
    decision: Decision | None = None
    """Whether the caller may use the called tool; None if that is not decided yet."""


class _Pool:
    """A thread pool that limits the threads in use by one credential and by one space.

    Calls over the limit wait in a queue, in order. Use it on the event loop only.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._limits = {"credential": threads * 3 // 8, "space": threads * 5 // 8}
        self._running: Counter[tuple[str, str]] = Counter()
        self._waiting: list[tuple[Caller, Callable[[], None]]] = []

    def submit(self, caller: Caller, work: Callable[[], None]) -> None:
        """Run `work` in a thread as soon as the caller is below the limits.

        When the work has ended, `release` must be called.
        """
        self._waiting.append((caller, work))
        self._start_waiting()

    def cancel(self, work: Callable[[], None]) -> bool:
        """Cancel queued work if it has not started; return whether it was cancelled."""
        waiting = [each for each in self._waiting if each[1] is not work]
        withdrawn = len(waiting) < len(self._waiting)
        self._waiting = waiting
        return withdrawn

    def release(self, caller: Caller) -> None:
        """Count one of the caller's running calls as finished."""
        for key in self._keys(caller):
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
        self._start_waiting()

    def _start_waiting(self) -> None:
        still: list[tuple[Caller, Callable[[], None]]] = []
        for caller, work in self._waiting:
            keys = self._keys(caller)
            if all(self._running[key] < self._limits[key[0]] for key in keys):
                self._running.update(keys)
                self.executor.submit(work)
            else:
                still.append((caller, work))
        self._waiting = still

    @staticmethod
    def _keys(caller: Caller) -> tuple[tuple[str, str], ...]:
        credential = caller.family or caller.credential or f"{caller.space}/{caller.user}"
        return ("credential", credential), ("space", caller.space)


class Workers:
    """Thread pools that run tool calls, so that a slow call does not delay the others.

    Calls that wait for another service (a bridge, a language model, a push service) have a pool
    of their own, so that they never delay other calls.
    """

    def __init__(self, gate: Gate, seconds: float) -> None:
        self._gate = gate
        self._seconds = seconds
        self._calls = _Pool("commonplace-call", THREADS)
        self._outside = _Pool("commonplace-outside", OUTSIDE_THREADS)
        self._pool = self._calls.executor
        self._recognisers = ThreadPoolExecutor(
            LOOKUP_THREADS, thread_name_prefix="commonplace-recognise"
        )

    async def decide(
        self, caller: Caller, dialect: str, name: str, *, tools_only: bool = False
    ) -> Decision:
        """Call `Gate.decide`, in a worker thread if it has to look for a dynamic tool."""
        decide = functools.partial(self._gate.decide, tools_only=tools_only)
        if self._gate.is_known_without_lookup(dialect, name):
            return decide(caller, dialect, name)
        decision: Decision = await self.run(decide, caller, dialect, name)
        return decision

    async def visible_tools(self, caller: Caller, dialect: Dialect) -> list[Tool]:
        """Return the tools that a caller may use; look up dynamic tools in a worker thread."""
        if dialect.dynamic_tools is None:
            return self._gate.visible_tools(caller, dialect)
        tools: list[Tool] = await self.run(self._gate.visible_tools, caller, dialect)
        return tools

    async def perform(
        self,
        admitted: AdmittedRequest,
        dialect: Dialect,
        name: str,
        arguments: Mapping[str, Any],
        decision: Decision | None = None,
    ) -> Wire:
        """Run one call and return its result in the format of the dialect."""
        return (await self.perform_for_outcome(admitted, dialect, name, arguments, decision)).wire

    async def perform_for_outcome(
        self,
        admitted: AdmittedRequest,
        dialect: Dialect,
        name: str,
        arguments: Mapping[str, Any],
        decision: Decision | None = None,
    ) -> Outcome:
        """Run one call and return its outcome.

        A call over the time limit is cancelled and rolled back; stepwise tools have no limit.
        """
        admitted.audited.append(name)  # `Gate` writes the audit entry in any case
        caller = admitted.caller
        decided = decision or await self.decide(caller, dialect.name, name)
        operation = decided.operation
        outside = operation is not None and (operation.tool.stepwise or operation.tool.open_world)
        pool = self._outside if outside else self._calls
        state = CallState()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def finish(outcome: Outcome | None, error: BaseException | None) -> None:
            pool.release(caller)
            settle(outcome, error)

        def settle(outcome: Outcome | None, error: BaseException | None) -> None:
            if answer.done():  # the call was cancelled, or the client has disconnected
                return
            if outcome is not None:
                answer.set_result(outcome)
            elif error is not None:
                answer.set_exception(error)

        def work() -> None:
            outcome: Outcome | None = None
            failure: BaseException | None = None
            try:
                outcome = self._gate.perform(
                    caller, admitted.request_info, dialect.name, name, arguments, state, decided
                )
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the event loop was closed in the meantime
                loop.call_soon_threadsafe(finish, outcome, failure)

        def cancel() -> None:
            if state.cancel():
                settle(_timeout_outcome(operation, self._seconds), None)

        timer = None
        if operation is None or not operation.tool.stepwise:
            timer = loop.call_later(self._seconds, cancel)
        try:
            pool.submit(caller, work)
            outcome = await answer
        finally:
            if timer is not None:
                timer.cancel()
        if outcome.error is not None and pool.cancel(work):  # timed out before it started
            await self.refuse(admitted, dialect, name, arguments, outcome.error)
        return outcome

    async def refuse(
        self,
        admitted: AdmittedRequest,
        dialect: Dialect,
        name: str,
        arguments: Mapping[str, Any],
        error: CommonplaceError,
    ) -> None:
        """Audit a call that is not carried out."""
        admitted.audited.append(name)
        await self.run(
            self._gate.refuse, admitted.caller, admitted.request_info, dialect.name, name,
            arguments, error,
        )  # fmt: skip

    async def run(self, function: Any, *arguments: Any) -> Any:
        """Run a blocking function in a worker thread."""
        call = functools.partial(function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_lookup(self, function: Callable[[], Caller]) -> Caller:
        """Look up a credential, in a thread pool for lookups only."""
        return await asyncio.get_running_loop().run_in_executor(self._recognisers, function)

    def close(self) -> None:
        """Wait for running calls, and stop the threads."""
        self._pool.shutdown(wait=True)
        self._outside.executor.shutdown(wait=True)
        self._recognisers.shutdown(wait=True)


def _timeout_outcome(operation: Operation | None, seconds: float) -> Outcome:
    late = TookTooLong(
        f"The call took longer than {seconds:g} s and was cancelled.",
        hint="Nothing was changed; ask for less, or try again.",
    )
    return Outcome(operation.dialect.format_error(operation.tool, late) if operation else {}, late)


async def perform_if_permitted(
    dialect: Dialect,
    workers: Workers,
    quota: Quota | None,
    admitted: AdmittedRequest,
    name: str,
    arguments: Mapping[str, Any],
) -> Wire:
    """Run a tool call if the caller may use the tool and is within the quota; return the result."""
    decision = admitted.decision
    # `Door` may have decided already, but a decision is valid for one tool only.
    if decision is None or (decision.dialect, decision.name) != (dialect.name, name):
        decision = await workers.decide(admitted.caller, dialect.name, name, tools_only=True)
    operation = decision.operation
    late = quota.count_tool_call(admitted.caller) if quota is not None and operation else None
    if late is not None and operation is not None:
        await workers.refuse(admitted, dialect, name, arguments, late)
        return dialect.format_error(operation.tool, late)
    return await workers.perform(admitted, dialect, name, arguments, decision)


def with_message_details(admitted: AdmittedRequest, meta: object, client: str) -> AdmittedRequest:
    """Return the caller with the client's name, and with the idempotency key and the confirmed keys
    that a message carries."""
    request_info = admitted.request_info
    key = meta.get(IDEMPOTENCY_META) if isinstance(meta, Mapping) else None
    client = client or request_info.client
    confirmed = _confirmed_keys(meta)
    if client == request_info.client and not isinstance(key, str) and not confirmed:
        return admitted
    key = key if isinstance(key, str) else request_info.idempotency_key
    info = replace(request_info, client=client, idempotency_key=key, confirmed_keys=confirmed)
    return replace(admitted, request_info=info)


def _confirmed_keys(meta: object) -> tuple[str, ...]:
    """Return the idempotency keys of a stdio client's calls whose responses it has received."""
    given = meta.get(CONFIRMED_META) if isinstance(meta, Mapping) else None
    if not isinstance(given, list):
        return ()
    keys = (key for key in given[:MOST_CONFIRMED] if isinstance(key, str))
    return tuple(key for key in keys if key.startswith(PIPE_KEY))


def sdk_reads_alike(text: bytes) -> bool:
    """Return whether the SDK reads this JSON in the same way as `json.loads`."""
    return (
        not any(each in text for each in _READ_DIFFERENTLY)
        and text.count(b"[") + text.count(b"{") <= MOST_BRACKETS
    )


def parse_line(line: bytes) -> Any:
    """Return the parsed line, or `UNREADABLE` if the SDK might parse it in another way."""
    if not sdk_reads_alike(line):
        return UNREADABLE
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return UNREADABLE


@dataclass(frozen=True, slots=True)
class UsualCall:
    """A valid `tools/call` request that needs no feature of the SDK."""

    identity: int | str
    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    stateless: bool
    """Whether the request is of `STATELESS_MCP_VERSION`, and so is its result."""
    client: str
    """The client's name in such a request."""

    @classmethod
    def read(cls, message: Any) -> UsualCall | None:
        """Return the call in a message; None for any other message and for calls that need the
        SDK."""
        if IS_TRACED or not isinstance(message, dict) or message.get("method") != "tools/call":
            return None
        identity, params = message.get("id"), message.get("params")
        if message.keys() != {"jsonrpc", "id", "method", "params"} or message["jsonrpc"] != "2.0":
            return None
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            return None
        if not isinstance(params, dict) or params.keys() - {"name", "arguments", "_meta"}:
            return None
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta", {})
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            return None
        if not isinstance(meta, dict):
            return None
        stateless = any(key.startswith(RESERVED_META) for key in meta)
        if stateless and not _is_usual_envelope(meta):
            return None
        token = meta.get("progressToken", "")
        if isinstance(token, bool) or not isinstance(token, int | str):
            return None
        told = meta.get(CLIENT_META, {})
        client = client_name(told.get("name"), told.get("version"))
        return cls(identity, name, arguments or {}, meta, stateless, client)


def _is_usual_envelope(meta: Mapping[str, Any]) -> bool:
    """Return whether the reserved fields of a request's `_meta` are those of a usual client."""
    given = {key for key in meta if key.startswith(RESERVED_META)}
    told, able = meta.get(CLIENT_META, UNNAMED_CLIENT), meta.get(CAPABILITIES_META)
    return (
        given <= {VERSION_META, CLIENT_META, CAPABILITIES_META}
        and meta.get(VERSION_META) == STATELESS_MCP_VERSION
        and is_usual_client_info(told)
        and isinstance(able, dict)
        and all(
            isinstance(each, dict) and all(isinstance(part, dict) for part in each.values())
            for each in able.values()
        )
    )


def usual_call_of_request(scope: Mapping[str, Any]) -> UsualCall | None:
    """Return the call in an HTTP request; None if there is none, or if it needs the SDK."""
    if JSON_BODY not in scope:
        return None
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"accept", VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
            if name in headers:
                return None
            headers[name] = value
    accepted = headers.get(b"accept", b"")
    version = headers.get(VERSION_HEADER, b"").decode("latin-1")
    if not all(each in accepted for each in REQUIRED_ACCEPT):
        return None
    call = UsualCall.read(scope[JSON_BODY])
    if call is None or not call.stateless:
        return call if version in PLAIN_MCP_VERSIONS else None
    # The SDK decodes other names in the header.
    plain = call.tool.isascii() and not call.tool.startswith("=?")
    routed = (headers.get(METHOD_HEADER), headers.get(NAME_HEADER))
    same = plain and routed == (b"tools/call", call.tool.encode())
    return call if same and version == STATELESS_MCP_VERSION else None


async def answer_usual_call(
    call: UsualCall,
    dialect: Dialect,
    workers: Workers,
    quota: Quota | None,
    admitted: AdmittedRequest,
) -> dict[str, Any]:
    """Run a call and return its JSON-RPC response."""
    try:
        result = await perform_if_permitted(
            dialect, workers, quota, admitted, call.tool, call.arguments
        )
    except NotFound as error:
        code, why = INVALID_PARAMS, str(error)
    except NotPermitted as error:
        code, why = FORBIDDEN, str(error)
    except Exception as error:
        log.error("a request failed", exc_info=error)
        code, why = (
            INTERNAL_ERROR,
            error.message if isinstance(error, CommonplaceError) else FAULT_MESSAGE,
        )
    else:
        if call.stateless:
            server = {"name": dialect.server, "version": dialect.version}
            result = {**COMPLETE, **result, "_meta": {SERVER_META: server}}
        return {"jsonrpc": "2.0", "id": call.identity, "result": result}
    return {"jsonrpc": "2.0", "id": call.identity, "error": {"code": code, "message": why}}


def usual_call_application(
    dialect: Dialect, workers: Workers, quota: Quota | None, otherwise: ASGIApp
) -> ASGIApp:
    """Return an ASGI application that answers usual calls and passes other requests to
    `otherwise`."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        call = usual_call_of_request(scope)
        if call is None:
            await otherwise(scope, receive, send)
            return
        admitted = with_message_details(scope[ADMITTED], call.meta, call.client)
        found = await answer_usual_call(call, dialect, workers, quota, admitted)
        body = json.dumps(found, ensure_ascii=False).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        wrong = call.stateless and found.get("error", {}).get("code") == INVALID_PARAMS
        status = 400 if wrong else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answered
