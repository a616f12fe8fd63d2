"""The gate: the one way from any request to the memory.

Every operation of every dialect is in one table with the scope it needs; what is not in the table
does not run. The space comes from the caller's credential alone. A call is one unit of work: what
it stored and the audit row that tells of it are committed together, or not at all.
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
from commonplace.dialects.reserved import by_others
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import reserved
from commonplace.engine.history import answers, audit
from commonplace.engine.library import Library
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.storage.ports import Store

RESPONSE_BYTES = 1_048_576
IGNORED_META = "commonplace/ignored-arguments"
MOST_IGNORED = 20  # unknown arguments that the log and the answer name

log = logging.getLogger(__name__)


class Counter(Protocol):
    """What counts calls by dialect, tool and outcome."""

    def labels(self, *values: str) -> Any:
        """The count for these."""


class TooLarge(CommonplaceError):
    """The answer is larger than a response may be; nothing was changed."""

    code = "RESPONSE_TOO_LARGE"


class TookTooLong(CommonplaceError):
    """The call did not end in the time a call may take; nothing was changed."""

    code = "TIMEOUT"


class Internal(CommonplaceError):
    """A fault of ours; the log has it under the request's id."""

    code = "INTERNAL_ERROR"


class Turn:
    """Whether a call may still take effect: it ends, or is given up, but never both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = "running"

    def finish(self) -> bool:
        """Called by the worker before it commits; False when it was given up."""
        return self._move("finishing")

    def give_up(self) -> bool:
        """Called by who waits; False when the worker is already committing."""
        return self._move("given up")

    def _move(self, state: str) -> bool:
        with self._lock:
            if self._state == "running":
                self._state = state
            return self._state == state


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: the wire result, or the error that explains why there is none."""

    wire: Wire
    error: CommonplaceError | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a dialect, with the check of its arguments."""

    dialect: Dialect
    tool: Tool
    checker: schema.Checker
    omissible: frozenset[str]
    """Arguments that may be left out; many clients send null for those."""
    rest_only: bool = False
    """It is carried out for a REST route; it is not an MCP tool."""

    def without_nulls(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments without those that are null where that can only mean: left out."""
        if None not in arguments.values():
            return arguments
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in self.omissible
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may use an operation: they may if there is no refusal."""

    dialect: str
    name: str
    operation: Operation | None
    """None if there is no operation of that name."""
    refusal: NotFound | NotPermitted | None = None


@dataclass
class _Open:
    """A call while it runs."""

    operation: Operation
    caller: Caller
    request_info: RequestInfo
    arguments: str
    """As JSON, whole; a retry is recognised by them."""
    begun: float = field(default_factory=time.monotonic)
    ignored: tuple[str, ...] = ()
    """Arguments that the tool does not have; the clients of other systems may send more."""
    stored: bool = False
    """Whether it took effect, and its row with it: what fails after that has no other row."""

    def with_ignored(self, wire: Wire) -> Wire:
        """The result of a tool with the names of ignored arguments, where MCP has room for them."""
        if not self.ignored or self.operation.rest_only:
            return wire
        return {**wire, "_meta": {IGNORED_META: list(self.ignored)}}


@dataclass(frozen=True, slots=True)
class _Written:
    """What the audit is told of a call: its arguments and its result as JSON, and its failure."""

    arguments: str
    result: str
    error: CommonplaceError | None

    def withheld(self, tool: Tool) -> _Written:
        """The same of a tool whose arguments may be secrets: which came, and no value.

        What is wrong with an argument is told with its words, and a name that is not the tool's
        may be the secret itself.
        """
        given = json.loads(self.arguments)
        known = sorted(given.keys() & tool.input.get("properties", {}).keys())
        arguments = {"_withheld": True, "_named": known, "_others": len(given) - len(known)}
        if not isinstance(self.error, InvalidInput):
            return replace(self, arguments=as_json(arguments))
        error = InvalidInput("What was wrong with the arguments is withheld, as they are.")
        return _Written(as_json(arguments), as_json(error.as_dict()), error)


class Gate:
    """Scope, validation, unit of work, idempotency and audit, for MCP and REST alike."""

    def __init__(
        self,
        library: Library,
        system: Store,
        dialects: Iterable[Dialect],
        counter: Counter | None = None,
    ) -> None:
        self._whole = Commonplace(library=library)
        self._system = system
        system.with_reserve(lambda: None)  # so that a server can start again on a full disk
        self._counter = counter
        self._table: dict[tuple[str, str], Operation] = {}
        self._dynamic: dict[str, Dialect] = {}
        for dialect in dialects:
            if dialect.dynamic_tools is not None:
                self._dynamic[dialect.name] = dialect
            for tool in dialect.tools:
                self._register(dialect, tool)
            for tool in dialect.operations:
                shaped = replace(dialect, succeed=_as_value, fail=_as_error)
                self._register(shaped, tool, rest_only=True)

    def _register(self, dialect: Dialect, tool: Tool, *, rest_only: bool = False) -> None:
        if tool.scope not in ("read", "write", "delete", "admin"):
            raise ValueError(f"{dialect.name}.{tool.name} declares no scope")
        if (dialect.name, tool.name) in self._table:
            raise ValueError(f"{dialect.name}.{tool.name} is declared twice")
        self._table[dialect.name, tool.name] = _operation(dialect, tool, rest_only)

    def operations(self) -> list[tuple[str, Tool]]:
        """Every operation there is."""
        return [(dialect, operation.tool) for (dialect, _), operation in self._table.items()]

    def decide(
        self, caller: Caller, dialect: str, name: str, *, tools_only: bool = False
    ) -> Decision:
        """Decide whether the caller may use the operation of that name.

        This is the only place that decides it. With `tools_only`, REST operations do not count.
        A name that is not declared may be a dynamic tool; to find that out the memory is read
        (see `declared`).
        """
        operation = self._find(caller, dialect, name, tools_only)
        if operation is None:
            return Decision(dialect, name, None, _no_such_tool(name))
        if not _allows(caller, dialect, operation.tool):
            refusal = not_permitted(caller, dialect, operation.tool)
            return Decision(dialect, name, operation, refusal)
        return Decision(dialect, name, operation)

    def declared(self, dialect: str, name: str) -> bool:
        """Whether `decide` finds this name, or its absence, without reading the memory."""
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

    def identify(self, dialect: Dialect, caller: Caller, named: Sequence[str]) -> Caller:
        """The caller with the subject that the address or the token names."""
        if dialect.subject is None:
            return caller
        return dialect.subject.identify(self._whole.at(caller.space), caller, named)

    def visible(self, caller: Caller, dialect: Dialect) -> list[Tool]:
        """The tools that the caller may use, in their fixed order. Dynamic ones need a read."""
        tools = (*dialect.tools, *self._dynamic_tools(caller, dialect))
        return [tool for tool in tools if not tool.hidden and _allows(caller, dialect.name, tool)]

    def _dynamic_tools(self, caller: Caller, dialect: Dialect) -> tuple[Tool, ...]:
        """The dynamic tools of a dialect, as they are for this caller now."""
        if dialect.dynamic_tools is None:
            return ()
        return dialect.dynamic_tools(self._whole.at(caller.space), caller)

    def refuse(
        self,
        caller: Caller | None,
        request_info: RequestInfo,
        dialect: str,
        name: str,
        arguments: Mapping[str, Any] | None,
        error: CommonplaceError,
    ) -> None:
        """Write down a call that was not let through: in its space, or above all spaces."""
        known = self._table.get((dialect, name))
        written = _Written(as_json(arguments or {}), as_json(error.as_dict()), error)
        if known is not None and known.tool.withheld:
            written = written.withheld(known.tool)
        entry = _entry(caller, request_info, dialect, name, written)
        if caller is None:
            audit.append(self._system, entry)
            return
        with self._whole.library.lease(caller.space) as space:
            audit.append(space.store, entry)

    def perform(
        self,
        caller: Caller,
        request_info: RequestInfo,
        dialect: str,
        name: str,
        arguments: Mapping[str, Any],
        turn: Turn | None = None,
        decision: Decision | None = None,
    ) -> Outcome:
        """Run one operation as the caller. Raises NotFound and NotPermitted, and nothing else.

        `decision` is what `decide` has said of this call, if it was asked already.
        """
        decision = decision or self.decide(caller, dialect, name)
        if decision.operation is None or decision.refusal is not None:
            refusal = decision.refusal or _no_such_tool(name)
            self.refuse(caller, request_info, dialect, name, arguments, refusal)
            raise refusal
        opened = _Open(decision.operation, caller, request_info, as_json(arguments))
        try:
            outcome = self._run(opened, arguments, turn or Turn())
        except CommonplaceError as error:
            outcome = self._failed(opened, error)
        except Exception:
            log.exception("a tool failed", extra={"tool": name, "request": request_info.request})
            fault = Internal(
                "Something went wrong on our side.",
                hint=f"The log has it as request {request_info.request or 'without id'}.",
            )
            outcome = self._failed(opened, fault)
        if self._counter is not None:
            result = outcome.error.code if outcome.error else "ok"
            label = name if self.declared(dialect, name) else "dynamic"
            self._counter.labels(dialect, label, result).inc()
        return outcome

    def _run(self, opened: _Open, arguments: Mapping[str, Any], turn: Turn) -> Outcome:
        operation, caller, request_info = opened.operation, opened.caller, opened.request_info
        ignored: list[str] | None = [] if operation.dialect.contract else None
        checked = operation.checker.check(operation.without_nulls(arguments), ignored)
        if ignored and not operation.tool.withheld:  # such a name may be the secret itself
            opened.ignored = tuple(_plain(name) for name in ignored[:MOST_IGNORED])
            names = {"tool": operation.tool.name, "arguments": ", ".join(opened.ignored)}
            log.info("unknown arguments are ignored", extra=names)
        tool = operation.tool
        keyed = request_info.idempotency_key and tool.scope != "read"
        with self._whole.library.lease(caller.space) as space:
            origin = Origin(
                user=caller.user,
                client=request_info.client,
                tool=tool.name,
                session=request_info.session,
            )
            memory = self._whole.at(caller.space, origin)
            call = Call(
                memory=memory, caller=caller, request_info=request_info, origin=origin,
                reads=tool.reads,
            )  # fmt: skip
            key = _retry_key(opened, call) if keyed else None
            if key is not None:
                if (kept := answers.find(space.store, key)) is not None:
                    return self._again(opened, space.store, kept)
                call = replace(call, retry_key=key.hex())
            try:
                attempt = functools.partial(
                    self._attempt, opened, space.store, call, checked, turn, key
                )
                # A read notes what it needs to, the audit row at least, and works on a full disk.
                wire = space.store.with_reserve(attempt) if tool.reads else attempt()
            except answers.Answered as earlier:  # the same key, at the same time
                return self._again(opened, space.store, earlier.result)
            except CommonplaceError:
                if opened.stored:
                    raise
                # What was in the way may be the same call's own doing, a moment ago.
                kept = answers.find_newest(space.store, key) if key is not None else None
                if kept is None:
                    raise
                return self._again(opened, space.store, kept)
        for begin in call.afterwards:
            begin()
        return Outcome(wire)

    def _attempt(
        self,
        opened: _Open,
        store: Store,
        call: Call,
        checked: Mapping[str, Any],
        turn: Turn,
        key: bytes | None,
    ) -> Wire:
        """Run the handler and commit what it did with its audit row; the result."""
        dialect, tool = opened.operation.dialect, opened.operation.tool
        wrapper = dialect.call_wrapper
        call.afterwards.clear()
        with wrapper(call, checked) if wrapper else contextlib.nullcontext():
            unit = None if tool.stepwise else call.memory.unit(tool.name, call.origin)
            with unit or contextlib.nullcontext():
                with reserved.enforced(by_others(dialect.name)):
                    value = tool.handler(call, **checked)
                wire = opened.with_ignored(dialect.succeed(tool, value))
                result = as_json(wire)
                _check_size(result, tool.response_bytes or RESPONSE_BYTES)
                if not turn.finish() and not tool.stepwise:
                    raise TookTooLong("The call took too long and was given up.")
                if key is not None:
                    answers.keep(store, key, result)
                self._write_down(opened, store, result, None)
            opened.stored = True
        return wire

    def _again(self, opened: _Open, store: Store, kept: str) -> Outcome:
        self._write_down(opened, store, kept, None)
        wire: Wire = json.loads(kept)
        return Outcome(wire)

    def _failed(self, opened: _Open, error: CommonplaceError) -> Outcome:
        dialect, tool = opened.operation.dialect, opened.operation.tool
        wire = opened.with_ignored(dialect.fail(tool, error))
        if opened.stored:
            return Outcome(wire, error)
        try:
            with self._whole.library.lease(opened.caller.space) as space:
                self._write_down(opened, space.store, as_json(wire), error)
        except CommonplaceError as worse:  # nothing was done, and nobody can be told of it here
            log.error(
                "a call could not be written down", extra={"tool": tool.name, "why": worse.code}
            )
            return Outcome(dialect.fail(tool, worse), worse)
        return Outcome(wire, error)

    def _write_down(
        self, opened: _Open, store: Store, result: str, error: CommonplaceError | None
    ) -> None:
        operation = opened.operation
        written = _Written(opened.arguments, result, error)
        if operation.tool.withheld:
            written = written.withheld(operation.tool)
        audit.append(
            store,
            _entry(
                opened.caller, opened.request_info, operation.dialect.name, operation.tool.name,
                written, int((time.monotonic() - opened.begun) * 1000),
            ),
        )  # fmt: skip


def _omissible(taken: Schema) -> frozenset[str]:
    """The names of arguments that are not required, and of which null is no value."""
    properties = taken.get("properties", {})
    return frozenset(
        name
        for name, property in properties.items()
        if name not in taken.get("required", ()) and not _takes_null(property)
    )


def _takes_null(property: Mapping[str, Any]) -> bool:
    if "enum" in property:
        return None in property["enum"]
    return "null" in str(property.get("type", "null"))


def _operation(dialect: Dialect, tool: Tool, rest_only: bool = False) -> Operation:
    checker = schema.compile(tool.input)
    return Operation(dialect, tool, checker, _omissible(tool.input), rest_only)


def _allows(caller: Caller, dialect: str, tool: Tool) -> bool:
    """Whether the caller's credential is for the dialect and has the tool's scope."""
    return (caller.dialects is None or dialect in caller.dialects) and tool.scope in caller.scopes


def _no_such_tool(name: str) -> NotFound:
    return NotFound(f"There is no tool {name[:80]!r}.", hint="See tools/list.")


def not_permitted(caller: Caller, dialect: str, tool: Tool) -> NotPermitted:
    """The refusal of a caller whose credential is for something else, or does not reach."""
    made = f"commonplace token create --dialect {dialect}"
    if tool.scope == "admin":  # which no other scope includes
        made += " --scope admin"
    if caller.dialects is not None and dialect not in caller.dialects:
        spoken = " and ".join(sorted(caller.dialects)) or "none"
        return NotPermitted(
            f"The credential is for another dialect ({spoken}), and {tool.name} is of {dialect}.",
            hint=f"Make one for it: '{made}'.",
        )
    return NotPermitted(
        f"{tool.name} needs the scope '{tool.scope}'.",
        hint=f"Use a credential that has it ('{made}').",
    )


def _entry(
    caller: Caller | None,
    request_info: RequestInfo,
    dialect: str,
    tool: str,
    written: _Written,
    milliseconds: int = 0,
) -> audit.Entry:
    error = written.error
    return audit.Entry(
        request=_plain(request_info.request),
        dialect=dialect,
        tool=_plain(tool),
        caller=caller.user if caller else "",
        credential=caller.credential if caller else "",
        client=_plain(request_info.client),
        session=_plain(request_info.session),
        address=request_info.address[:200],
        success=error is None,
        error=error.code if error else "",
        milliseconds=milliseconds,
        arguments=written.arguments,
        result=written.result,
    )


def _retry_key(opened: _Open, call: Call) -> bytes:
    """A digest of the idempotency key and of everything that decides what a call writes, and where.

    - The credential's family (or the credential), the user and the subject. The path of a request
      only chooses the dialect, the tool, the subject and arguments, which are all in the digest.
    - The tool and its arguments. Objects are compared without the order of their names, which some
      clients do not keep.
    - The headers that contracts read, such as `X-Conversation-Id`.
    - Of the session only the part that the tool's effect depends on (`Tool.session`). A client that
      reconnects gets another session id, and its retry must still be recognised.

    What says nothing of the effect is left out: address, client name and request id may differ.
    """
    request, caller, tool = opened.request_info, opened.caller, opened.operation.tool
    arguments = json.dumps(json.loads(opened.arguments), sort_keys=True)
    parts = (
        caller.family or caller.credential, caller.user, caller.subject,
        opened.operation.dialect.name, tool.name, arguments,
        sorted(request.headers.items()), tool.session(call) if tool.session else "",
        request.idempotency_key,
    )  # fmt: skip
    return hashlib.sha256(as_json(parts).encode()).digest()


def _as_value(tool: Tool, value: Any) -> Wire:
    """The result of a REST operation: its route gives it its shape."""
    del tool
    return {"value": value}


def _as_error(tool: Tool, error: CommonplaceError) -> Wire:
    del tool
    return {"error": error.as_dict()}


def _check_size(result: str, most: int) -> None:
    if len(result) * 4 > most and (size := len(result.encode())) > most:
        raise TooLarge(
            f"The answer has {size:,} bytes, more than the {most:,} of a response.",
            hint="Ask for fewer results.",
        )


def _plain(text: str) -> str:
    """What somebody calls something, as one line that can be stored and shown."""
    text = text[:200]
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)[:400]
