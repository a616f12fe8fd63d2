"""`commonplace mcp`: passes an agent's messages to the server of its data directory.

`initialize` and `tools/list` of most dialects are answered here, from files that are made when the
package is built. If the server dies, another one is started, and calls that were not answered are
sent again, each under an idempotency key, so that none has an effect twice.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from commonplace.client import connection
from commonplace.client.static_answers import StaticAnswers

IDEMPOTENCY_META = "commonplace/idempotency-key"
CONFIRMED_META = "commonplace/confirmed-keys"
MOST_CONFIRMED = 100  # so many keys can one call confirm; the server reads no more
PIPE_KEY = "commonplace-pipe:"
OWN_ID = "commonplace-pipe-initialize"
CANCELLED = "notifications/cancelled"
INITIALIZED = "notifications/initialized"
LISTING = "tools/list"  # the last thing that agents ask before they count a server as connected
END_SECONDS = 45.0  # how long the end of the input waits for answers
HOOK = "hook"
HOOK_SECONDS = 2.5  # less than agents wait for a hook before they report an error
ADDED_BYTES = 65_536  # room in a message for what the pipe adds to it
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
UNKNOWN_OUTCOME = -32002


class Options(NamedTuple):
    """What the command line says."""

    place: connection.Place
    hello: Mapping[str, Any]
    """The greeting, without its kind."""
    server: Mapping[str, Any]
    """Options of a server that has to be started."""


class _Pending:
    """A request that was not answered yet."""

    def __init__(self, identity: Any, line: bytes, tool: str = "", key: str = "") -> None:
        self.identity = identity
        self.line = line
        self.tool = tool
        self.key = key
        """The idempotency key that the pipe has made for it."""
        self.confirms: list[str] = []
        """Keys of earlier calls, whose stored answers the server deletes when it gets this."""
        self.sent = False
        self.answered = False
        """Whether the pipe has answered it itself; the server still handles it."""


class _State:
    """What the two threads share; changed under `changed`."""

    def __init__(self) -> None:
        self.connection: connection.ServerConnection | None = None
        self.pending: list[_Pending] = []
        self.loose: list[bytes] = []
        """Lines that wait for a connection and get no answer."""
        self.confirmed: list[str] = []
        self.initialize: dict[str, Any] | None = None
        self.initialized = False
        self.greeted = False
        """Whether a server has accepted this client."""


class Pipe:
    """One client over standard input and output.

    The thread that runs `run` reads the client's messages; another one connects, sends what waits,
    and passes answers on.
    """

    def __init__(self, options: Options, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._options = options
        self._incoming = incoming
        self._outgoing = outgoing
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._state = _State()
        hello = options.hello
        self._static = StaticAnswers.load(hello["dialect"], hello["prefix"], hello["read_only"])
        self._hook = hello["prefix"] + HOOK if hello["dialect"] == "commonplace" else None
        self._calls = 0
        self._nonce = os.urandom(12).hex()
        self._told: set[str] = set()

    def run(self) -> int:
        """Pass messages on until the input ends; return the exit code."""
        threading.Thread(target=self._receive, daemon=True).start()
        for line in self._incoming:
            if line.strip():
                self._hear(line if line.endswith(b"\n") else line + b"\n")
        with self._changed:
            self._changed.wait_for(self._may_end, END_SECONDS)
        return 0

    def _may_end(self) -> bool:
        """Whether everything is answered; without static answers, the server must have been
        reached.
        """
        there = self._static.known or self._state.greeted
        return there and not self._state.pending

    # From the client

    def _hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if len(line) > connection.LINE_BYTES - ADDED_BYTES:
            self._refuse_long(message, len(line))
            return
        if not isinstance(message, dict):
            self._pass_on(line)  # the server answers malformed lines
            return
        method, identity = message.get("method"), message.get("id")
        if method == "initialize":
            with self._changed:
                self._state.initialize = message
        if (answer := self._static.answer(message)) is not None:
            self._write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
            if method == LISTING:
                self._note_ready()
            return
        if method == INITIALIZED:
            self._note_initialized(line)
        elif method == CANCELLED:
            self._cancel(message, line)
        elif isinstance(method, str) and isinstance(identity, int | str):
            self._request(message, line)
        else:
            self._pass_on(line)

    def _refuse_long(self, message: Any, size: int) -> None:
        """Answer a message that no server reads: it would close the connection."""
        found = message.get("id") if isinstance(message, dict) else None
        most = (connection.LINE_BYTES - ADDED_BYTES) // 1_000_000
        self._refuse(
            found if isinstance(found, int | str) else None, INVALID_REQUEST,
            f"The message has {size:,} bytes; at most {most} MB are read. Nothing of it was"
            " carried out: send it in parts.",
        )  # fmt: skip

    def _note_ready(self) -> None:
        """Let `commonplace-hook` know that hooks of the agent can call tools from now on."""
        with suppress(OSError):
            os.close(os.open(self._options.place.ready, os.O_CREAT | os.O_WRONLY, 0o600))
            os.utime(self._options.place.ready)

    def _note_initialized(self, line: bytes) -> None:
        with self._changed:
            self._state.initialized = True
            connected = self._state.connection is not None
        if connected:  # otherwise it is sent after `initialize`
            self._pass_on(line)

    def _cancel(self, message: Mapping[str, Any], line: bytes) -> None:
        params = message.get("params")
        identity = params.get("requestId") if isinstance(params, dict) else None
        with self._changed:
            held = [each for each in self._state.pending if each.identity != identity]
            unsent = len(held) < len(self._state.pending) and any(
                each.identity == identity and not each.sent for each in self._state.pending
            )
            self._state.pending = held
            self._changed.notify_all()
        if not unsent:
            self._pass_on(line)

    def _request(self, message: dict[str, Any], line: bytes) -> None:
        pending = _Pending(message["id"], line)
        params = message.get("params")
        if message["method"] == "tools/call" and isinstance(params, dict):
            name = params.get("name")
            pending.tool = name if isinstance(name, str) else ""
            self._add_key(message, params, pending)
        with self._changed:
            self._state.pending.append(pending)
            self._send_waiting()
        if pending.tool == self._hook:
            late = threading.Timer(HOOK_SECONDS, self._answer_hook, (pending,))
            late.daemon = True
            late.start()

    def _answer_hook(self, pending: _Pending) -> None:
        """Say nothing to an event while the server starts: the agent goes on without an error."""
        with self._changed:
            if pending.answered or pending not in self._state.pending:
                return
            pending.answered = True
        result = {"content": [{"type": "text", "text": ""}], "isError": False}
        answer = {"jsonrpc": "2.0", "id": pending.identity, "result": result}
        self._write(json.dumps(answer).encode() + b"\n")

    def _add_key(self, message: dict[str, Any], params: dict[str, Any], pending: _Pending) -> None:
        """Give a call an idempotency key, unless its client has given one; and confirm earlier
        answers.
        """
        meta = params.get("_meta", {})
        if not isinstance(meta, dict) or pending.tool not in self._static.repeatable:
            return
        with self._changed:
            known = self._state.confirmed
            pending.confirms, self._state.confirmed = known[:MOST_CONFIRMED], known[MOST_CONFIRMED:]
        added: dict[str, Any] = {CONFIRMED_META: pending.confirms} if pending.confirms else {}
        if not isinstance(meta.get(IDEMPOTENCY_META), str):
            self._calls += 1
            pending.key = f"{PIPE_KEY}{self._nonce}-{self._calls}"
            added[IDEMPOTENCY_META] = pending.key
        params["_meta"] = {**meta, **added}
        try:
            pending.line = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        # a lone surrogate: the line is sent unchanged, and the server refuses it
        except UnicodeEncodeError:
            pending.key = ""

    def _pass_on(self, line: bytes) -> None:
        """Send a line that is not a request."""
        with self._changed:
            self._state.loose.append(line)
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Send what waits, if there is a connection; the lock is held."""
        state = self._state
        if state.connection is not None:
            waiting = [each for each in state.pending if not each.sent]
            lines = [*state.loose, *(each.line for each in waiting)]
            with suppress(OSError):  # the other thread notices, and sends again
                state.connection.send(b"".join(lines))
            for each in waiting:
                each.sent = True
            state.loose.clear()
        self._changed.notify_all()

    # From the server

    def _receive(self) -> None:
        """Connect, pass answers on, and connect again, until the process ends."""
        try:
            while True:
                made = self._connected()
                with self._changed:
                    self._state.greeted = True
                    self._changed.notify_all()
                    self._changed.wait_for(self._has_work)  # sent again after `initialize`
                if self._introduce(made):
                    with self._changed:
                        self._begin(made)
                    while line := made.line():
                        self._answered(line)
                made.close()
                with self._changed:
                    self._state.connection = None
                    self._give_up_unrepeatable()
                    self._changed.wait_for(self._has_work)
        except connection.Unusable as error:
            self._fail(str(error), error.code)
        except Exception as error:
            self._fail(f"error: {error!r}", 1)

    def _has_work(self) -> bool:
        return bool(self._state.pending or self._state.loose)

    def _connected(self) -> connection.ServerConnection:
        """A connection to a server that accepts this client; one is started if none runs."""
        given = self._options.place
        # The directory may have been deleted or replaced since; then it has another server.
        place = connection.place_of(given.data, given.database)
        hello = {"kind": "mcp", **self._options.hello}
        starting = connection.Starting(place, self._options.server)
        try:
            while True:
                made = connection.connect(place)
                if made is not None:
                    found = connection.ServerConnection(made)
                    if found.greet(hello) and not self._replaces(place, found.answer):
                        self._check(found.answer)
                        return found
                    found.close()
                starting.wait()
        finally:
            starting.close()

    def _replaces(self, place: connection.Place, answer: Mapping[str, Any]) -> bool:
        """Ask an older server that was started in the background to stop; False if it does not."""
        ours, theirs = self._options.hello["version"], str(answer.get("version", ""))
        if "error" in answer or answer.get("kind") != "background" or not _older(theirs, ours):
            return False
        stopped = connection.ask(place, {"kind": "stop"})
        return stopped is not None and bool(stopped.get("stops"))

    def _check(self, answer: Mapping[str, Any]) -> None:
        """Show the notes in the server's answer; Unusable if it refuses this client."""
        if "error" in answer:
            error = answer["error"]
            text = f"error: {error.get('message', '')} {error.get('hint', '')}".rstrip()
            raise connection.Unusable(text, int(answer.get("exit", 2)))
        notes = list(answer.get("notes", ()))
        if _older(str(answer.get("version", "")), self._options.hello["version"]):
            notes.append(
                f"The server that runs is older ({answer.get('version')}): restart it"
                " ('commonplace restart')."
            )
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                _complain(f"commonplace: {note}\n")

    def _introduce(self, made: connection.ServerConnection) -> bool:
        """Repeat the client's `initialize`, if it was answered; False if the server has gone.

        Its answer is waited for: the server may handle messages that follow at once, and would not
        know the client's name.
        """
        with self._changed:
            first = self._state.initialize
            if first is None or self._is_waiting(first):
                return True
        with suppress(OSError):
            made.send(json.dumps({**first, "id": OWN_ID}).encode() + b"\n")
        return bool(made.line())

    def _begin(self, made: connection.ServerConnection) -> None:
        """Send what waits; the lock is held."""
        state = self._state
        state.connection = made
        if state.initialized:
            told = {"jsonrpc": "2.0", "method": INITIALIZED}
            state.loose.insert(0, json.dumps(told).encode() + b"\n")
        for each in state.pending:
            each.sent = False
        self._send_waiting()

    def _is_waiting(self, initialize: Mapping[str, Any]) -> bool:
        """Whether `initialize` itself was not answered yet; it is then sent unchanged."""
        return any(each.identity == initialize.get("id") for each in self._state.pending)

    def _answered(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = {}
        identity = message.get("id") if isinstance(message, dict) else None
        answer = identity is not None and "method" not in message
        with self._changed:
            same = [each for each in self._state.pending if answer and each.identity == identity]
            first = same[0] if same else None
            late = first is not None and first.answered
            if first is not None:  # before the client can send its next call
                first.answered = True
                self._confirm(first, message)
        if not late:
            self._write(line)
        if first is not None:
            with self._changed:
                self._state.pending.remove(first)
                self._changed.notify_all()

    def _confirm(self, answered: _Pending, answer: Mapping[str, Any]) -> None:
        """Let the next call confirm this answer; if this call failed, also the keys that it was to
        confirm.
        """
        result = answer.get("result")
        if not isinstance(result, dict) or result.get("isError"):
            self._state.confirmed += answered.confirms
        if answered.key:
            self._state.confirmed.append(answered.key)

    def _give_up_unrepeatable(self) -> None:
        """Answer calls that may have had an effect outside, and are not sent again."""
        again = {*self._static.repeatable, self._hook}  # an event may come twice
        for each in list(self._state.pending):
            if each.sent and each.tool and each.tool not in again:
                self._state.pending.remove(each)
                self._refuse(
                    each.identity, UNKNOWN_OUTCOME,
                    f"The server ended during {each.tool}, and it is not known whether it was"
                    " carried out. See 'commonplace audit list', or ask for its result, before you"
                    " call it again.",
                )  # fmt: skip

    def _refuse(self, identity: Any, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        answer = {"jsonrpc": "2.0", "id": identity, "error": error}
        self._write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")

    def _fail(self, why: str, code: int) -> None:
        """Answer what waits with an error, and end the process."""
        _complain(why + "\n")
        with suppress(OSError):
            for each in self._state.pending:
                if not each.answered:
                    self._refuse(each.identity, INTERNAL_ERROR, why)
        os._exit(code)

    def _write(self, line: bytes) -> None:
        with self._writing:
            try:
                self._outgoing.write(line)
                self._outgoing.flush()
            except (BrokenPipeError, ValueError):
                os._exit(0)  # the client has gone


def _complain(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _older(one: str, other: str) -> bool:
    """Whether a version is older than another."""
    return _numbers(one) < _numbers(other)


def _numbers(version: str) -> list[int]:
    parts = version.partition("+")[0].split(".")
    return [int("".join(filter(str.isdigit, part)) or 0) for part in parts]
