"""Runs every operation of every dialect (`Gate`): scope, validation, transaction, audit.

One table holds every declared operation with the scope that it needs; besides them only dynamic
tools can be run, which a dialect finds in the caller's space. The space comes from the caller's
credential alone. A call is one transaction: its changes and its audit entry are committed together
or rolled back together. Only stepwise tools commit in several transactions of their own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from commonplace.access.caller import Caller, NotPermitted
from commonplace.dialects import schema
from commonplace.dialects.contract import Call, Dialect, RequestInfo, Schema, Tool, Wire, as_json
from commonplace.dialects.reserved import reservations_of_others
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import write_policy
from commonplace.engine.history import answers, audit
from commonplace.engine.library import Library
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.storage.ports import Store
from commonplace.text import secrets
from commonplace.text.hidden import escape_hidden

RESPONSE_BYTES = 1_048_576
IGNORED_META = "commonplace/ignored-arguments"
MASKED_META = "commonplace/masked-secrets"
PIPE_KEY = "commonplace-pipe:"  # prefix of the idempotency keys that our stdio pipe makes
MOST_IGNORED_ARGUMENTS = 20  # most unknown arguments named in the log and the response

log = logging.getLogger(__name__)


class CallCounter(Protocol):
    """A metric that counts calls by dialect, tool and outcome."""

    def labels(self, *values: str) -> Any:
        """Return the counter for these labels."""


class TooLarge(CommonplaceError):
    """The response would exceed the size limit; nothing was changed."""

    code = "RESPONSE_TOO_LARGE"


class TookTooLong(CommonplaceError):
    """The call exceeded its time limit; nothing was changed."""

    code = "TIMEOUT"


class UnexpectedError(CommonplaceError):
    """An unexpected error; the log has the details under the request's id."""

    code = "INTERNAL_ERROR"


class CallState:
    """Whether a call may still take effect: it is committed or cancelled, never both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = "running"

    def commit(self) -> bool:
        """Mark the call as committing; return False if it was cancelled."""
        return self._move("committing")

    def cancel(self) -> bool:
        """Mark the call as cancelled; return False if the worker is already committing."""
        return self._move("cancelled")

    def _move(self, state: str) -> bool:
        with self._lock:
            if self._state == "running":
                self._state = state
            return self._state == state


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call as it is sent, and the error if it failed."""

    wire: Wire
    error: CommonplaceError | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a dialect, with the compiled schema of its arguments."""

    dialect: Dialect
    tool: Tool
    checker: schema.Checker
    omissible: frozenset[str]
    """Optional arguments whose schema does not allow null; many clients send null for them."""
    rest_only: bool = False
    """Whether the operation belongs to a REST route and is not an MCP tool."""

    def without_nulls(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Remove optional arguments that are null, if their schema does not allow null."""
        if None not in arguments.values():
            return arguments
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in self.omissible
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may use an operation: allowed if `refusal` is None."""

    dialect: str
    name: str
    operation: Operation | None
    """The operation; None if no operation has the name."""
    refusal: NotFound | NotPermitted | None = None


@dataclass
class _RunningCall:
    """A call that is being carried out."""

    operation: Operation
    caller: Caller
    request_info: RequestInfo
    arguments: str
    """All arguments as JSON, for the audit and the idempotency key."""
    begun: float = field(default_factory=time.monotonic)
    ignored: tuple[str, ...] = ()
    """Names of unknown arguments, which are ignored."""
    masked: list[str] = field(default_factory=list)
    """The kinds of secrets that were masked in the stored text."""
    reads: bool = False
    """Whether the call only reads, so that its audit entry need not be synced to disk."""
    is_stored: bool = False
    """Whether the changes and the audit entry are committed; a later error gets no second entry."""

    def with_notes(self, wire: Wire) -> Wire:
        """Add the ignored arguments and the kinds of masked secrets to `_meta` of an MCP result."""
        notes = {IGNORED_META: list(self.ignored), MASKED_META: self.masked}
        told = {name: value for name, value in notes.items() if value}
        if not told or self.operation.rest_only:
            return wire
        return {**wire, "_meta": told}


@dataclass(frozen=True, slots=True)
class _Payload:
    """The arguments and the result of a call as JSON, and its error, for the audit."""

    arguments: str
    result: str
    error: CommonplaceError | None

    def with_masked_secrets(self) -> _Payload:
        """Return the payload with the secrets in the arguments masked."""
        if not secrets.find_secrets(self.arguments):
            return self
        given, _ = secrets.mask_values(json.loads(self.arguments))
        return replace(self, arguments=as_json(given))

    def with_names_only(self, tool: Tool) -> _Payload:
        """Return the payload of a tool whose arguments may be secrets: argument names without
        values.

        Unknown argument names and the messages of input errors are not stored either: they may
        contain the secret.
        """
        given = json.loads(self.arguments)
        known = sorted(given.keys() & tool.input.get("properties", {}).keys())
        arguments = {"_withheld": True, "_named": known, "_others": len(given) - len(known)}
        if not isinstance(self.error, InvalidInput):
            return replace(self, arguments=as_json(arguments))
        error = InvalidInput("The arguments may hold secrets, so their error is not stored.")
        return _Payload(as_json(arguments), as_json(error.as_dict()), error)


class Gate:
    """Runs operations for MCP and REST: scope, validation, transaction, idempotency and audit."""

    def __init__(
        self,
        library: Library,
        system: Store,
        dialects: Iterable[Dialect],
        counter: CallCounter | None = None,
    ) -> None:
        self._memory = Commonplace(library=library)
        self._system = system
        system.with_reserve(lambda: None)  # the server must be able to start on a full disk
        self._counter = counter
        self._table: dict[tuple[str, str], Operation] = {}
        self._dynamic: dict[str, Dialect] = {}
        for dialect in dialects:
            if dialect.dynamic_tools is not None:
                self._dynamic[dialect.name] = dialect
            for tool in dialect.tools:
                self._register(dialect, tool)
            for tool in dialect.operations:
                shaped = replace(dialect, format_result=_value_as_wire, format_error=_error_as_wire)
                self._register(shaped, tool, rest_only=True)

    def _register(self, dialect: Dialect, tool: Tool, *, rest_only: bool = False) -> None:
        if tool.scope not in ("read", "write", "delete", "admin"):
            raise ValueError(f"{dialect.name}.{tool.name} declares no scope")
        if (dialect.name, tool.name) in self._table:
            raise ValueError(f"{dialect.name}.{tool.name} is declared twice")
        self._table[dialect.name, tool.name] = _operation(dialect, tool, rest_only)

    def operations(self) -> list[tuple[str, Tool]]:
        """Return (dialect, operation) for every operation."""
        return [(dialect, operation.tool) for (dialect, _), operation in self._table.items()]

    def decide(
        self, caller: Caller, dialect: str, name: str, *, tools_only: bool = False
    ) -> Decision:
        """Decide whether the caller may use the operation of that name.

        No other code decides this. With `tools_only`, REST operations are not found. An undeclared
        name may be a dynamic tool, which is looked up in the database (see
        `is_known_without_lookup`).
        """
        operation = self._find(caller, dialect, name, tools_only)
        if operation is None:
            return Decision(dialect, name, None, _tool_not_found(name))
        if not _may_use(caller, dialect, operation.tool):
            refusal = not_permitted(caller, dialect, operation.tool)
            return Decision(dialect, name, operation, refusal)
        return Decision(dialect, name, operation)

    def is_known_without_lookup(self, dialect: str, name: str) -> bool:
        """Return whether `decide` needs no database for this name: it is declared, or the dialect
        has no dynamic tools."""
        return (dialect, name) in self._table or dialect not in self._dynamic

    def _find(self, caller: Caller, dialect: str, name: str, tools_only: bool) -> Operation | None:
        found = self._table.get((dialect, name))
        if found is not None:
            return None if tools_only and found.rest_only else found
        whole = self._dynamic.get(dialect)
        if whole is None:
            return None
        tools = (tool for tool in self._dynamic_tools(caller, whole) if tool.name == name)
        tool = next(tools, None)
        return None if tool is None else _operation(whole, tool)

    def caller_as_subject(self, dialect: Dialect, caller: Caller, named: Sequence[str]) -> Caller:
        """Return the caller, acting as the subject that the request (`named`) or the token names,
        if any."""
        if dialect.subject is None:
            return caller
        return dialect.subject.identify(self._memory.at(caller.space), caller, named)

    def caller_as_named_subject(self, dialect: Dialect, caller: Caller, name: str) -> Caller:
        """Return the caller, acting as the subject that a person named; empty for the only one."""
        if dialect.subject is None or not name:
            return self.caller_as_subject(dialect, caller, [])
        found = dialect.subject.find_named(self._memory.at(caller.space), name)
        return self.caller_as_subject(dialect, caller, [found.id])

    def visible_tools(self, caller: Caller, dialect: Dialect) -> list[Tool]:
        """Return the tools that are listed for the caller: those they may use, without hidden ones.

        Declared tools come first, in a fixed order; dynamic tools are read from the database.
        """
        tools = (*dialect.tools, *self._dynamic_tools(caller, dialect))
        return [tool for tool in tools if not tool.hidden and _may_use(caller, dialect.name, tool)]

    def _dynamic_tools(self, caller: Caller, dialect: Dialect) -> tuple[Tool, ...]:
        """Return the current dynamic tools of a dialect for this caller."""
        if dialect.dynamic_tools is None:
            return ()
        return dialect.dynamic_tools(self._memory.at(caller.space), caller)

    def refuse(
        self,
        caller: Caller | None,
        request_info: RequestInfo,
        dialect: str,
        name: str,
        arguments: Mapping[str, Any] | None,
        error: CommonplaceError,
    ) -> None:
        """Audit a refused call: in the caller's space, or in system.db without a caller."""
        known = self._table.get((dialect, name))
        payload = _Payload(as_json(arguments or {}), as_json(error.as_dict()), error)
        if known is not None and known.tool.has_secret_arguments:
            payload = payload.with_names_only(known.tool)
        entry = _audit_entry(caller, request_info, dialect, name, payload)
        if caller is None:
            audit.append(self._system, entry)
            return
        with self._memory.library.lease(caller.space) as space:
            audit.append(space.store, entry)

    def perform(
        self,
        caller: Caller,
        request_info: RequestInfo,
        dialect: str,
        name: str,
        arguments: Mapping[str, Any],
        state: CallState | None = None,
        decision: Decision | None = None,
    ) -> Outcome:
        """Run one operation as the caller; an error of the operation is part of the outcome.

        Raise NotFound or NotPermitted if there is no such operation or the caller may not use it.
        `decision` is the result of `decide` for this call, if it is already known.
        """
        decision = decision or self.decide(caller, dialect, name)
        if decision.operation is None or decision.refusal is not None:
            refusal = decision.refusal or _tool_not_found(name)
            self.refuse(caller, request_info, dialect, name, arguments, refusal)
            raise refusal
        running = _RunningCall(
            decision.operation, caller, request_info, as_json(arguments),
            reads=decision.operation.tool.reads,
        )  # fmt: skip
        try:
            outcome = self._run(running, arguments, state or CallState())
        except CommonplaceError as error:
            outcome = self._failed_outcome(running, error)
        except Exception:
            log.exception("a tool failed", extra={"tool": name, "request": request_info.request})
            fault = UnexpectedError(
                "Something went wrong on our side.",
                hint=f"See the log for request {request_info.request or 'without id'}.",
            )
            outcome = self._failed_outcome(running, fault)
        if self._counter is not None:
            result = outcome.error.code if outcome.error else "ok"
            label = name if self.is_known_without_lookup(dialect, name) else "dynamic"
            self._counter.labels(dialect, label, result).inc()
        return outcome

    def _run(
        self, running: _RunningCall, arguments: Mapping[str, Any], state: CallState
    ) -> Outcome:
        operation, caller, request_info = running.operation, running.caller, running.request_info
        ignored: list[str] | None = [] if operation.dialect.contract else None
        checked = operation.checker.check(operation.without_nulls(arguments), ignored)
        # An unknown argument name may itself be the secret.
        if ignored and not operation.tool.has_secret_arguments:
            running.ignored = tuple(_one_line(name) for name in ignored[:MOST_IGNORED_ARGUMENTS])
            names = {"tool": operation.tool.name, "arguments": ", ".join(running.ignored)}
            log.info("unknown arguments are ignored", extra=names)
        tool = operation.tool
        if tool.only_reads_with is not None and tool.only_reads_with(checked):
            running.reads = True
        keyed = request_info.idempotency_key and tool.scope != "read"
        with self._memory.library.lease(caller.space) as space:
            origin = Origin(
                user=caller.user,
                client=request_info.client,
                tool=tool.name,
                session=request_info.session,
            )
            memory = self._memory.at(caller.space, origin)
            if not operation.dialect.contract and request_info.project is not None:
                memory = memory.within(request_info.project)
            call = Call(
                memory=memory, caller=caller, request_info=request_info, origin=origin,
                reads=tool.reads,
            )  # fmt: skip
            key = _retry_key(running, call) if keyed else None
            if key is not None:
                if (earlier := answers.find(space.store, key)) is not None:
                    return self._repeat_earlier(running, space.store, earlier)
                call = replace(call, retry_key=key.hex())
            try:
                attempt = functools.partial(
                    self._attempt, running, space.store, call, checked, state, key
                )
                # A read must work on a full disk, although it writes an audit entry.
                wire = space.store.with_reserve(attempt) if tool.reads else attempt()
            # a concurrent call with the same idempotency key has committed
            except answers.AlreadyAnswered as answered:
                return self._repeat_earlier(running, space.store, answered.result)
            except CommonplaceError:
                if running.is_stored:
                    raise
                # A retry of the same call may have committed just before and caused the conflict.
                earlier = answers.find_newest(space.store, key) if key is not None else None
                if earlier is None:
                    raise
                return self._repeat_earlier(running, space.store, earlier)
        for begin in call.afterwards:
            begin()
        return Outcome(wire)

    def _attempt(
        self,
        running: _RunningCall,
        store: Store,
        call: Call,
        checked: Mapping[str, Any],
        state: CallState,
        key: bytes | None,
    ) -> Wire:
        """Run the handler, commit its changes with the audit entry, and return the result."""
        dialect, tool = running.operation.dialect, running.operation.tool
        wrapper = dialect.call_wrapper
        call.afterwards.clear()
        with wrapper(call, checked) if wrapper else contextlib.nullcontext():
            unit = None if tool.stepwise else call.memory.unit(tool.name, call.origin)
            with unit or contextlib.nullcontext():
                running.masked = []
                with write_policy.apply_policy(
                    reservations=reservations_of_others(dialect.name),
                    embed_first=not tool.embeds_later,
                    masked=running.masked,
                ):
                    value = tool.handler(call, **checked)
                wire = running.with_notes(dialect.format_result(tool, value))
                result = as_json(wire)
                _refuse_too_large(result, tool.response_bytes or RESPONSE_BYTES)
                if tool.secret_results:
                    told = dialect.format_result(tool, tool.without_secrets(value))
                    result = as_json(running.with_notes(told))
                if not state.commit() and not tool.stepwise:
                    raise TookTooLong("The call took too long and was cancelled.")
                confirmed = [
                    _pipe_key(running.caller, one) for one in call.request_info.confirmed_keys
                ]
                if key is not None:
                    answers.keep(store, key, result, confirmed)
                elif confirmed:
                    answers.forget(store, confirmed)
                self._audit(running, store, result, None)
            running.is_stored = True
        return wire

    def _repeat_earlier(self, running: _RunningCall, store: Store, earlier: str) -> Outcome:
        self._audit(running, store, earlier, None)
        wire: Wire = json.loads(earlier)
        return Outcome(wire)

    def _failed_outcome(self, running: _RunningCall, error: CommonplaceError) -> Outcome:
        dialect, tool = running.operation.dialect, running.operation.tool
        wire = running.with_notes(_escape_hidden_text(dialect.format_error(tool, error)))
        if running.is_stored:
            return Outcome(wire, error)
        try:
            with self._memory.library.lease(running.caller.space) as space:
                self._audit(running, space.store, as_json(wire), error)
        except CommonplaceError as worse:  # only the audit entry of the failed call is missing
            log.error("a call could not be audited", extra={"tool": tool.name, "why": worse.code})
            return Outcome(dialect.format_error(tool, worse), worse)
        return Outcome(wire, error)

    def _audit(
        self, running: _RunningCall, store: Store, result: str, error: CommonplaceError | None
    ) -> None:
        operation = running.operation
        payload = _Payload(running.arguments, result, error)
        if operation.tool.has_secret_arguments:
            payload = payload.with_names_only(operation.tool)
        elif not self._memory.library.allow_secrets:
            payload = payload.with_masked_secrets()
        audit.append(
            store,
            _audit_entry(
                running.caller, running.request_info, operation.dialect.name, operation.tool.name,
                payload, int((time.monotonic() - running.begun) * 1000),
            ),
            durable=not running.reads,
        )  # fmt: skip


def _not_nullable_arguments(taken: Schema) -> frozenset[str]:
    """Return the names of optional arguments whose schema does not allow null."""
    properties = taken.get("properties", {})
    return frozenset(
        name
        for name, property in properties.items()
        if name not in taken.get("required", ()) and not _allows_null(property)
    )


def _allows_null(property: Mapping[str, Any]) -> bool:
    if "enum" in property:
        return None in property["enum"]
    return "null" in str(property.get("type", "null"))


def _operation(dialect: Dialect, tool: Tool, rest_only: bool = False) -> Operation:
    checker = schema.compile(tool.input)
    return Operation(dialect, tool, checker, _not_nullable_arguments(tool.input), rest_only)


def _may_use(caller: Caller, dialect: str, tool: Tool) -> bool:
    """Return whether the caller's credential is for the dialect and has the tool's scope."""
    return (caller.dialects is None or dialect in caller.dialects) and tool.scope in caller.scopes


def _tool_not_found(name: str) -> NotFound:
    return NotFound(f"There is no tool {name[:80]!r}.", hint="See tools/list.")


def not_permitted(caller: Caller, dialect: str, tool: Tool) -> NotPermitted:
    """Return the error for a caller whose credential lacks the dialect or the scope."""
    command = f"commonplace token create --dialect {dialect}"
    if tool.scope == "admin":  # no other scope includes "admin"
        command += " --scope admin"
    if caller.dialects is not None and dialect not in caller.dialects:
        allowed = " and ".join(sorted(caller.dialects)) or "none"
        return NotPermitted(
            f"The credential is only for {allowed}, but {tool.name} belongs to {dialect}.",
            hint=f"Create a credential for {dialect}: '{command}'.",
        )
    return NotPermitted(
        f"{tool.name} needs the scope '{tool.scope}'.",
        hint=f"Create a credential with this scope: '{command}'.",
    )


def _audit_entry(
    caller: Caller | None,
    request_info: RequestInfo,
    dialect: str,
    tool: str,
    payload: _Payload,
    milliseconds: int = 0,
) -> audit.Entry:
    error = payload.error
    return audit.Entry(
        request=_one_line(request_info.request),
        dialect=dialect,
        tool=_one_line(tool),
        caller=caller.user if caller else "",
        credential=caller.credential if caller else "",
        client=_one_line(request_info.client),
        session=_one_line(request_info.session),
        address=request_info.address[:200],
        success=error is None,
        error=error.code if error else "",
        milliseconds=milliseconds,
        arguments=payload.arguments,
        result=payload.result,
    )


def _retry_key(running: _RunningCall, call: Call) -> bytes:
    """Return a digest of the idempotency key and of everything that determines a call's effect.

    - The credential's family (or the credential), the user and the subject. The path of a request
      only selects the dialect, the tool, the subject and arguments, which are all in the digest.
    - The tool and its arguments. Keys of objects are sorted, since some clients
      do not preserve their order.
    - The headers that contracts read, such as `X-Conversation-Id`.
    - Of the session only the part that the tool's effect depends on (`Tool.session_part`). A client
      that reconnects gets another session id, and its retry must still be recognised.

    The digest does not cover the address, the client name and the request id, which do not
    change the effect.
    """
    request, caller, tool = running.request_info, running.caller, running.operation.tool
    if request.idempotency_key.startswith(PIPE_KEY):
        return _pipe_key(caller, request.idempotency_key)
    arguments = json.dumps(json.loads(running.arguments), sort_keys=True)
    parts = (
        caller.family or caller.credential, caller.user, caller.subject,
        running.operation.dialect.name, tool.name, arguments,
        sorted(request.headers.items()), tool.session_part(call) if tool.session_part else "",
        request.idempotency_key,
    )  # fmt: skip
    return hashlib.sha256(as_json(parts).encode()).digest()


def _pipe_key(caller: Caller, key: str) -> bytes:
    """Return a digest of a pipe's key for one call; the stored response is found by this digest."""
    parts = (caller.credential, caller.user, caller.subject, key)
    return hashlib.sha256(as_json(parts).encode()).digest()


def _value_as_wire(tool: Tool, value: Any) -> Wire:
    """Return the result of a REST operation unchanged; the route formats it."""
    del tool
    return {"value": value}


def _escape_hidden_text(wire: Wire) -> Wire:
    """Escape hidden characters in an error result, since it may quote an argument."""
    if "content" not in wire:
        return wire
    blocks = [{**block, "text": escape_hidden(block["text"])} for block in wire["content"]]
    return {**wire, "content": blocks}


def _error_as_wire(tool: Tool, error: CommonplaceError) -> Wire:
    del tool
    return {"error": error.as_dict()}


def _refuse_too_large(result: str, most: int) -> None:
    if len(result) * 4 > most and (size := len(result.encode())) > most:
        raise TooLarge(
            f"The answer has {size:,} bytes, more than the {most:,} of a response.",
            hint="Ask for fewer results.",
        )


def _one_line(text: str) -> str:
    """Return a client's text as one printable line of limited length."""
    text = text[:200]
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)[:400]
