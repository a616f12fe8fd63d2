"""`commonplace mcp`: passes an agent's messages to the server of its data directory.

`initialize` and `tools/list` of most dialects are answered here, from files that are generated when
the package is built. If the server dies, another one is started, and unanswered calls are sent
again with their idempotency keys, so that none is carried out twice.
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
MOST_CONFIRMED = 100  # most keys that one call confirms; the server ignores further keys
PIPE_KEY_PREFIX = "commonplace-pipe:"
OWN_INITIALIZE_ID = "commonplace-pipe-initialize"
CANCELLED = "notifications/cancelled"
INITIALIZED = "notifications/initialized"
LIST_TOOLS = "tools/list"  # the last request of agents before they count a server as connected
END_SECONDS = 45.0  # how long to wait for answers after the end of the input
HOOK_TOOL = "hook"
HOOK_SECONDS = 2.5  # less than the agents' time limit for a hook
ADDED_BYTES = 65_536  # bytes reserved in a message for the fields that the pipe adds
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
UNKNOWN_OUTCOME = -32002


class Options(NamedTuple):
    """The options of the command line."""

    place: connection.Place
    hello: Mapping[str, Any]
    """The fields of the greeting, except its kind."""
    server: Mapping[str, Any]
    """Options for a server that this process starts."""


class _Pending:
    """A request without an answer yet."""

    def __init__(self, identity: Any, line: bytes, tool: str = "", key: str = "") -> None:
        self.identity = identity
        self.line = line
        self.tool = tool
        self.key = key
        """The idempotency key that the pipe has generated."""
        self.confirmed_keys: list[str] = []
        """The keys of earlier calls whose answers this request confirms; the server then deletes
        these answers."""
        self.sent = False
        self.answered = False
        """Whether the pipe has already answered; the server still handles the request."""


class _State:
    """The state shared by the two threads; protected by `changed`."""

    def __init__(self) -> None:
        self.connection: connection.ServerConnection | None = None
        self.pending: list[_Pending] = []
        self.unsent_lines: list[bytes] = []
        """Lines that wait for a connection and need no answer."""
        self.keys_to_confirm: list[str] = []
        self.initialize: dict[str, Any] | None = None
        self.initialized = False
        self.accepted = False
        """Whether a server has accepted this client."""


class Pipe:
    """One client over standard input and output.

    The thread in `run` reads the client's messages; another thread connects, sends waiting
    messages, and forwards the answers.
    """

    def __init__(self, options: Options, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._options = options
        self._incoming = incoming
        self._outgoing = outgoing
        self._writing = threading.Lock()
        self._sending = threading.Lock()
        """Held while lines are sent, so that they keep their order; acquired before `_changed`."""
        self._changed = threading.Condition()
        self._state = _State()
        hello = options.hello
        self._static = StaticAnswers.load(hello["dialect"], hello["prefix"], hello["read_only"])
        self._hook_tool = hello["prefix"] + HOOK_TOOL if hello["dialect"] == "commonplace" else None
        self._calls = 0
        self._nonce = os.urandom(12).hex()
        self._shown_notes: set[str] = set()

    def run(self) -> int:
        """Forward messages until the input ends; return the exit code."""
        threading.Thread(target=self._receive, daemon=True).start()
        for line in self._incoming:
            if line.strip():
                self._handle_line(line if line.endswith(b"\n") else line + b"\n")
        with self._changed:
            self._changed.wait_for(self._may_end, END_SECONDS)
        return 0

    def _may_end(self) -> bool:
        """Return whether all requests are answered; without static answers, a server must have
        accepted this client."""
        there = self._static.answers_initialize or self._state.accepted
        return there and not self._state.pending

    # From the client

    def _handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if len(line) > connection.LINE_BYTES - ADDED_BYTES:
            self._refuse_long(message, len(line))
            return
        if not isinstance(message, dict):
            self._forward(line)  # the server answers malformed lines
            return
        method, identity = message.get("method"), message.get("id")
        if method == "initialize":
            with self._changed:
                self._state.initialize = message
        if (answer := self._static.answer(message)) is not None:
            self._write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
            if method == LIST_TOOLS:
                self._note_ready()
            return
        if method == INITIALIZED:
            self._note_initialized(line)
        elif method == CANCELLED:
            self._handle_cancel(message, line)
        elif isinstance(method, str) and isinstance(identity, int | str):
            self._handle_request(message, line)
        else:
            self._forward(line)

    def _refuse_long(self, message: Any, size: int) -> None:
        """Answer a message over the size limit, for which a server would close the connection."""
        found = message.get("id") if isinstance(message, dict) else None
        most = (connection.LINE_BYTES - ADDED_BYTES) // 1_000_000
        self._refuse(
            found if isinstance(found, int | str) else None, INVALID_REQUEST,
            f"The message has {size:,} bytes; at most {most} MB are allowed. Nothing was carried"
            " out; send it in parts.",
        )  # fmt: skip

    def _note_ready(self) -> None:
        """Touch the file that tells `commonplace-hook` that the agent's hooks can call tools."""
        with suppress(OSError):
            os.close(os.open(self._options.place.ready_file, os.O_CREAT | os.O_WRONLY, 0o600))
            os.utime(self._options.place.ready_file)

    def _note_initialized(self, line: bytes) -> None:
        with self._changed:
            self._state.initialized = True
            connected = self._state.connection is not None
        if connected:  # without a connection it is sent after `initialize`
            self._forward(line)

    def _handle_cancel(self, message: Mapping[str, Any], line: bytes) -> None:
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
            self._forward(line)

    def _handle_request(self, message: dict[str, Any], line: bytes) -> None:
        pending = _Pending(message["id"], line)
        params = message.get("params")
        if message["method"] == "tools/call" and isinstance(params, dict):
            name = params.get("name")
            pending.tool = name if isinstance(name, str) else ""
            self._add_key(message, params, pending)
        with self._changed:
            self._state.pending.append(pending)
        self._send_waiting()
        if pending.tool == self._hook_tool:
            late = threading.Timer(HOOK_SECONDS, self._answer_hook, (pending,))
            late.daemon = True
            late.start()

    def _answer_hook(self, pending: _Pending) -> None:
        """Answer a hook event with an empty result while the server starts."""
        with self._changed:
            if pending.answered or pending not in self._state.pending:
                return
            pending.answered = True
        result = {"content": [{"type": "text", "text": ""}], "isError": False}
        answer = {"jsonrpc": "2.0", "id": pending.identity, "result": result}
        self._write(json.dumps(answer).encode() + b"\n")

    def _add_key(self, message: dict[str, Any], params: dict[str, Any], pending: _Pending) -> None:
        """Add an idempotency key to a call, unless the client has set one; and confirm earlier
        answers.
        """
        meta = params.get("_meta", {})
        if not isinstance(meta, dict) or pending.tool not in self._static.repeatable_tools:
            return
        with self._changed:
            known = self._state.keys_to_confirm
            pending.confirmed_keys = known[:MOST_CONFIRMED]
            self._state.keys_to_confirm = known[MOST_CONFIRMED:]
        added: dict[str, Any] = (
            {CONFIRMED_META: pending.confirmed_keys} if pending.confirmed_keys else {}
        )
        if not isinstance(meta.get(IDEMPOTENCY_META), str):
            self._calls += 1
            pending.key = f"{PIPE_KEY_PREFIX}{self._nonce}-{self._calls}"
            added[IDEMPOTENCY_META] = pending.key
        params["_meta"] = {**meta, **added}
        try:
            pending.line = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        # a line with a lone surrogate is sent unchanged; the server refuses it
        except UnicodeEncodeError:
            pending.key = ""

    def _forward(self, line: bytes) -> None:
        """Forward a line that is not a request."""
        with self._changed:
            self._state.unsent_lines.append(line)
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send waiting messages if there is a connection.

        The receiving thread never waits for this: a server may read on only after its answers are
        received.
        """
        with self._sending:
            with self._changed:
                made, lines = self._state.connection, self._take_waiting()
                self._changed.notify_all()
            if made is not None and lines:
                with suppress(OSError):  # the other thread detects the disconnect, and sends again
                    made.send(b"".join(lines))

    def _take_waiting(self) -> list[bytes]:
        """Return the lines to send now, and mark them as sent; the caller holds the lock."""
        state = self._state
        if state.connection is None:
            return []
        waiting = [each for each in state.pending if not each.sent]
        lines = [*state.unsent_lines, *(each.line for each in waiting)]
        for each in waiting:
            each.sent = True
        state.unsent_lines.clear()
        return lines

    # From the server

    def _receive(self) -> None:
        """Connect, forward answers, and reconnect, until the process ends."""
        try:
            while True:
                made = self._connect()
                with self._changed:
                    self._state.accepted = True
                    self._changed.notify_all()
                    self._changed.wait_for(self._has_work)
                if self._repeat_initialize(made):
                    self._resend(made)
                    while line := made.read_line():
                        self._handle_answer(line)
                made.close()
                with self._changed:
                    self._state.connection = None
                    self._give_up_unrepeatable()
                    self._changed.wait_for(self._has_work)
        except connection.Unusable as error:
            self._fail_and_exit(str(error), error.code)
        except Exception as error:
            self._fail_and_exit(f"error: {error!r}", 1)

    def _has_work(self) -> bool:
        return bool(self._state.pending or self._state.unsent_lines)

    def _connect(self) -> connection.ServerConnection:
        """Connect to a server that accepts this client; start one if none is running."""
        given = self._options.place
        # The directory may have been replaced, and then has another server.
        place = connection.place_of(given.data, given.database)
        hello = {"kind": "mcp", **self._options.hello}
        starting = connection.ServerStarter(place, self._options.server)
        try:
            while True:
                made = connection.connect(place)
                if made is not None:
                    found = connection.ServerConnection(made)
                    if found.greet(hello) and not self._stop_if_older(place, found.answer):
                        self._check_greeting(found.answer)
                        return found
                    found.close()
                starting.start_or_wait()
        finally:
            starting.close()

    def _stop_if_older(self, place: connection.Place, answer: Mapping[str, Any]) -> bool:
        """Stop the server if it runs in the background and is older; return whether it stops."""
        ours, theirs = self._options.hello["version"], str(answer.get("version", ""))
        if "error" in answer or answer.get("kind") != "background" or not _is_older(theirs, ours):
            return False
        stopped = connection.ask(place, {"kind": "stop"})
        return stopped is not None and bool(stopped.get("stops"))

    def _check_greeting(self, answer: Mapping[str, Any]) -> None:
        """Show the notes in the server's answer; raise Unusable if it refuses this client."""
        if "error" in answer:
            error = answer["error"]
            text = f"error: {error.get('message', '')} {error.get('hint', '')}".rstrip()
            raise connection.Unusable(text, int(answer.get("exit", 2)))
        notes = list(answer.get("notes", ()))
        if _is_older(str(answer.get("version", "")), self._options.hello["version"]):
            notes.append(
                f"The running server is older ({answer.get('version')}): restart it"
                " ('commonplace restart')."
            )
        for note in notes:
            if note not in self._shown_notes:
                self._shown_notes.add(note)
                _print_error(f"commonplace: {note}\n")

    def _repeat_initialize(self, made: connection.ServerConnection) -> bool:
        """Send the client's `initialize` again, if it was answered; return False on a disconnect.

        Wait for the answer, since the server may handle later messages first and would not know
        the client's name.
        """
        with self._changed:
            first = self._state.initialize
            if first is None or self._is_waiting(first):
                return True
        with suppress(OSError):
            made.send(json.dumps({**first, "id": OWN_INITIALIZE_ID}).encode() + b"\n")
        return bool(made.read_line())

    def _resend(self, made: connection.ServerConnection) -> None:
        """Send all unanswered messages over a new connection, in another thread."""
        state = self._state
        with self._changed:
            state.connection = made
            if state.initialized:
                told = {"jsonrpc": "2.0", "method": INITIALIZED}
                state.unsent_lines.insert(0, json.dumps(told).encode() + b"\n")
            for each in state.pending:
                each.sent = False
        threading.Thread(target=self._send_waiting, daemon=True).start()

    def _is_waiting(self, initialize: Mapping[str, Any]) -> bool:
        """Return whether `initialize` is still unanswered; it is then sent unchanged."""
        return any(each.identity == initialize.get("id") for each in self._state.pending)

    def _handle_answer(self, line: bytes) -> None:
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
            if first is not None:  # confirm before the client can send its next call
                first.answered = True
                self._confirm(first, message)
        if not late:
            self._write(line)
        if first is not None:
            with self._changed:
                if first in self._state.pending:  # the client may have cancelled it meanwhile
                    self._state.pending.remove(first)
                self._changed.notify_all()

    def _confirm(self, answered: _Pending, answer: Mapping[str, Any]) -> None:
        """Let the next call confirm this answer and, if this call failed, the keys that it should
        have confirmed.
        """
        result = answer.get("result")
        if not isinstance(result, dict) or result.get("isError"):
            self._state.keys_to_confirm += answered.confirmed_keys
        if answered.key:
            self._state.keys_to_confirm.append(answered.key)

    def _give_up_unrepeatable(self) -> None:
        """Answer calls with an error that cannot be sent again, since they may have had external
        effects."""
        # a hook event may be handled twice
        again = {*self._static.repeatable_tools, self._hook_tool}
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

    def _fail_and_exit(self, why: str, code: int) -> None:
        """Answer all waiting requests with an error, and end the process."""
        _print_error(why + "\n")
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
                os._exit(0)  # the client has disconnected


def _print_error(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _is_older(one: str, other: str) -> bool:
    """Return whether a version is older than another."""
    return _version_numbers(one) < _version_numbers(other)


def _version_numbers(version: str) -> list[int]:
    parts = version.partition("+")[0].split(".")
    return [int("".join(filter(str.isdigit, part)) or 0) for part in parts]
