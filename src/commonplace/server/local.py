"""Serves clients of the same user over a local socket: pipes of agents, and the command line.

A client's first line says who it is; the answer is one line. What follows on a pipe is MCP, one
message a line, as over standard input and output. A connection of another user is closed without
an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import logging
import os
import secrets
import socket
import struct
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace import __version__
from commonplace.access.caller import ALL_SCOPES, READ_ONLY_SCOPES, Caller
from commonplace.client import connection
from commonplace.client.static_answers import StaticAnswers
from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect, RequestInfo, Setting
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.projects import Project
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.platform.loading import without_garbage_collection
from commonplace.platform.projects import project_here
from commonplace.server.calls import AdmittedRequest, Workers
from commonplace.server.gate import Gate
from commonplace.server.refusals import Refusals
from commonplace.server.session import LocalSession
from commonplace.storage.database import file_identity

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from commonplace.engine.library import Library
    from commonplace.platform.sealed import Sealing
    from commonplace.server.settings import Settings
    from commonplace.storage.ports import Store

GREETING_SECONDS = 10.0
BACKLOG = 128
CALL_SECONDS = 30.0
TICK_SECONDS = 0.25
USAGE_EXIT_CODE = 2  # the exit code of a client whose greeting is refused

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedParts:
    """The objects that a local server gives its clients access to."""

    library: Library
    system: Store
    vault: Callable[[], Sealing]
    store_settings: Mapping[str, str]
    """The settings that apply to all clients; a client with other settings is told so."""
    running: frozenset[str] = frozenset()
    """The dialects whose background work has already been started elsewhere."""
    kind: str = "background"
    """`background`, or `serve`."""
    http: str = ""
    """The URL, if it also serves HTTP."""
    restart: Callable[[], None] | None = None
    """Restarts the server; None if it cannot be restarted."""


@dataclass(frozen=True, slots=True)
class _ServedDialect:
    """A dialect with a prefix of its tools' names, ready to be called."""

    dialect: Dialect
    gate: Gate
    workers: Workers
    refusals: Refusals
    sdk: list[Server[Any]] = field(default_factory=list)
    """The MCP SDK's server, once a client has needed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The greeting of a client: its first line, which says who it is and what it wants."""

    kind: str
    pid: int = 0
    version: str = ""
    dialect: str = "commonplace"
    space: str = "default"
    prefix: str = ""
    subject: str = ""
    read_only: bool = False
    cwd: str = ""
    user: str = "local"
    everywhere: bool = False
    project: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, line: bytes) -> Hello:
        """Return the greeting in a line; raise InvalidInput if the line is not a greeting."""
        try:
            given = json.loads(line)
            if given.pop("commonplace") != connection.PROTOCOL:
                raise InvalidInput(
                    "The client and the server are of different versions.",
                    hint="Restart the older one ('commonplace restart'), or use --in-process.",
                )
            return cls(**given)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidInput("This is not the greeting of a client.") from None

    def caller(self) -> Caller:
        """Return the caller: the person at this machine, with the rights that it asks for."""
        scopes = READ_ONLY_SCOPES if self.read_only else ALL_SCOPES
        return Caller(space=checks.space(self.space), user=self.user or "local", scopes=scopes)

    def find_project(self) -> Project | None:
        """Return the project that the client names, or else that of its working directory."""
        if self.everywhere:
            return None
        if self.cwd:
            return project_here(self.project, self.cwd, self.environ)
        return None if self.project is None else Project(self.project)


def store_settings(settings: Settings) -> dict[str, str]:
    """Return the settings that apply to all clients, by the names of their variables."""
    given = {name: os.environ.get(name, "") for name in connection.STORE_VARIABLES}
    return {"COMMONPLACE_EMBEDDING": settings.embedding, **given}


def warm_up(library: Library) -> None:
    """Load the embedding model before the first request needs it."""
    if library.embedder is None:
        return
    try:
        library.embedder.embed(["warm"])
    except CommonplaceError as error:
        log.warning("the embedding provider does not answer", extra={"why": error.message})


class LocalServer:
    """Listens on the socket of a data directory. Used on the event loop."""

    def __init__(self, place: connection.Place, lock: int, hosted: HostedParts) -> None:
        self._place = place
        self._lock: int | None = lock
        self._hosted = hosted
        self._served: dict[tuple[str, str], _ServedDialect] = {}
        self._building = threading.Lock()
        self._background = contextlib.ExitStack()
        self._running = set(hosted.running)
        self._pipes: dict[asyncio.StreamWriter, tuple[Hello, asyncio.StreamReader]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._secret = b""
        self._since = time.time()
        self._last_used = time.monotonic()
        self.asked_to_stop = asyncio.Event()
        """Set when a client asks the server to stop, or to give way to another."""

    async def start(self) -> None:
        """Begin to listen."""
        listening, self._secret = _open_listening_socket(self._place)
        listening.setblocking(False)
        how = asyncio.start_server if connection.USES_LOOPBACK else asyncio.start_unix_server
        self._server = await how(self._on_connection, sock=listening, limit=connection.LINE_BYTES)

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until nobody was connected for that long, or a client asks to stop.

        It also ends when the data directory was deleted or replaced: what clients send next belongs
        to the directory that has its name then, with a server of its own.
        """
        directory = file_identity(self._place.data)
        while not self.asked_to_stop.is_set() and file_identity(self._place.data) == directory:
            if self._pipes:
                self._last_used = time.monotonic()
            if time.monotonic() - self._last_used >= seconds:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.asked_to_stop.wait(), min(TICK_SECONDS, seconds))

    async def close(self, seconds: float = CALL_SECONDS) -> None:
        """Stop listening, let another server take over, and finish the calls that run."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                Path(self._place.socket_path).unlink()
            self._server.close()
            self._server = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for writer, (_, reader) in list(self._pipes.items()):
            with contextlib.suppress(RuntimeError):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            reader.feed_eof()  # lines already received are answered, then the connection is closed
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        await asyncio.to_thread(self._close_dialects)

    def _close_dialects(self) -> None:
        for served in self._served.values():
            served.workers.close()
        self._background.close()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer_client(reader, writer)
        except (OSError, ValueError, TimeoutError) as error:
            log.debug("a local connection ended", extra={"why": str(error)})
        except Exception:
            log.exception("a local connection failed")
        finally:
            if self._pipes.pop(writer, None) is not None:
                self._last_used = time.monotonic()
            self._tasks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not _is_same_user(writer.get_extra_info("socket")):
            log.warning("a connection of another user was closed")
            return
        async with asyncio.timeout(GREETING_SECONDS):
            if connection.USES_LOOPBACK:
                given = (await reader.readline()).rstrip(b"\n")
                if not hmac.compare_digest(given, self._secret):
                    log.warning("a connection without the secret was closed")
                    return
            line = await reader.readline()
        if not line.endswith(b"\n"):
            return
        try:
            hello = Hello.read(line)
            handle = {
                "mcp": self._serve_mcp, "status": self._answer_status, "stop": self._answer_stop,
                "give way": self._answer_give_way, "call": self._answer_call,
                "embed": self._answer_embed, "command": self._answer_command,
                "restart": self._answer_restart,
            }.get(hello.kind)  # fmt: skip
            if handle is None:
                raise InvalidInput(f"Unknown kind of client: {hello.kind[:40]!r}.")
            await handle(hello, reader, writer)
        except CommonplaceError as error:
            await _send_line(
                writer, {"error": error.as_dict(), "exit": USAGE_EXIT_CODE, **self._own_identity()}
            )

    def _own_identity(self) -> dict[str, Any]:
        return {
            "commonplace": connection.PROTOCOL, "version": __version__, "pid": os.getpid(),
            "kind": self._hosted.kind,
        }  # fmt: skip

    async def _answer_stop(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        del hello, reader
        await _send_line(writer, {**self._own_identity(), "stops": True})
        self.asked_to_stop.set()

    async def _answer_give_way(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Let another server take over, if this one was started in the background."""
        del hello, reader
        stops = self._hosted.kind == "background"
        await _send_line(writer, {**self._own_identity(), "stops": stops})
        if stops:
            self.asked_to_stop.set()

    async def _answer_restart(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Restart the server, with the same command line and on the same port."""
        del hello, reader
        restart = self._hosted.restart
        await _send_line(writer, {**self._own_identity(), "restarts": restart is not None})
        if restart is not None:
            restart()

    async def _answer_status(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        del hello, reader
        clients = [
            {"dialect": each.dialect, "space": each.space, "pid": each.pid, "cwd": each.cwd}
            for each, _ in self._pipes.values()
        ]
        answer = {
            **self._own_identity(), "since": self._since, "http": self._hosted.http,
            "clients": clients, "settings": dict(self._hosted.store_settings),
        }  # fmt: skip
        await _send_line(writer, answer)

    async def _answer_call(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Call a tool and answer in one line, for programs that make only one call."""
        self._pipes[writer] = (hello, reader)
        served, admitted = await self._admit(hello)
        outcome = await served.workers.perform_for_outcome(
            admitted, served.dialect, hello.tool, dict(hello.arguments)
        )
        await _send_line(writer, {**self._own_identity(), "result": outcome.wire})

    async def _answer_embed(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Return the vectors of texts, for a command that has not loaded the model."""
        del reader
        texts, embedder = hello.arguments.get("texts"), self._hosted.library.embedder
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidInput("texts must be a list of strings.", field="texts")
        answer = self._own_identity()
        if embedder is not None and embedder.weights == hello.arguments.get("weights"):
            rows = await asyncio.to_thread(embedder.embed, texts)
            answer["vectors"] = b64encode(rows.astype("<f4").tobytes()).decode()
        await _send_line(writer, answer)

    async def _answer_command(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run a command for the command line, which then need not open the store.

        There is no answer if the command line itself might answer differently: if its settings or
        its time zone are not the server's.
        """
        self._pipes[writer] = (hello, reader)
        answer = self._own_identity()
        if (
            not self._ignored_settings(hello)
            and hello.arguments.get("zone") == connection.time_zone()
        ):
            found = await asyncio.to_thread(self._command_answer, hello)
            answer["answer"] = found
        await _send_line(writer, answer)

    def _command_answer(self, hello: Hello) -> dict[str, Any] | None:
        """Return the answer to a command; None if the command line must say what is wrong."""
        from commonplace.server import commands

        library, project = self._hosted.library, hello.arguments.get("project")
        if library.read_only or not library.exists(hello.space):
            return None
        seen_from = None if project is None else Project(*project)
        memory = Commonplace(
            space=hello.space, origin=Origin(client="cli"), library=library, project=seen_from
        )
        return commands.run_command(memory, hello.tool, hello.arguments.get("asked", {}))

    async def _admit(self, hello: Hello) -> tuple[_ServedDialect, AdmittedRequest]:
        """Return the dialect that a client wants, and the caller with the data of the request."""
        served = await asyncio.to_thread(self._start_dialect, hello.dialect, hello.prefix)
        caller = await asyncio.to_thread(
            served.gate.caller_as_named_subject, served.dialect, hello.caller(), hello.subject
        )
        project = await asyncio.to_thread(hello.find_project)
        info = RequestInfo(
            session=f"stdio-{hello.pid}", project=project, environ=dict(hello.environ)
        )
        return served, AdmittedRequest(caller, info)

    async def _serve_mcp(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve MCP on a connection until the client closes it."""
        self._pipes[writer] = (hello, reader)
        served, admitted = await self._admit(hello)
        dialect = served.dialect
        setting = self._dialect_setting(served.gate, hello.prefix, hello.environ, hello.space)
        context = (
            dialect.stdio_connection(setting)
            if dialect.stdio_connection
            else contextlib.nullcontext()
        )
        await asyncio.to_thread(context.__enter__)
        try:
            await _send_line(
                writer, {**self._own_identity(), "notes": self._ignored_settings(hello)}
            )
            await LocalSession(
                dialect, served.workers, served.refusals, admitted,
                static=StaticAnswers.load(hello.dialect, hello.prefix, hello.read_only),
                load=functools.partial(self._load_sdk, served), writer=writer, seconds=CALL_SECONDS,
            ).serve(reader)  # fmt: skip
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)

    def _start_dialect(self, name: str, prefix: str) -> _ServedDialect:
        """Return the dialect, with its background work started. Call this in a thread."""
        with self._building:
            known = self._served.get((name, prefix))
            if known is not None:
                return known
            dialect = registry.load(name).prefixed(prefix)
            gate = Gate(self._hosted.library, self._hosted.system, [dialect])
            if name not in self._running and dialect.background_work is not None:
                setting = self._dialect_setting(gate, prefix, os.environ, None)
                self._background.enter_context(dialect.background_work(setting))
            self._running.add(name)
            workers = Workers(gate, CALL_SECONDS)
            made = _ServedDialect(dialect, gate, workers, Refusals(gate, workers))
            self._served[name, prefix] = made
            return made

    def _load_sdk(self, served: _ServedDialect) -> Server[Any]:
        """Return the MCP SDK's server of a dialect. Call this in a thread."""
        with self._building:
            if not served.sdk:
                with without_garbage_collection():
                    from commonplace.server.protocol import build_server

                served.sdk.append(build_server(served.dialect, served.workers))
            return served.sdk[0]

    def _dialect_setting(
        self, gate: Gate, prefix: str, environ: Mapping[str, str], space: str | None
    ) -> Setting:
        return Setting(
            library=self._hosted.library, system=self._hosted.system, space=space,
            environ=environ, perform=gate.perform, prefix=prefix, vault=self._hosted.vault,
        )  # fmt: skip

    def _ignored_settings(self, hello: Hello) -> list[str]:
        """Return a note on each setting of the client that has no effect, since the server's
        differs."""
        ours = self._hosted.store_settings
        return [
            f"{name} is {ours.get(name) or 'not set'} in the server that runs, not {value};"
            " stop it ('commonplace stop'), or use --in-process."
            for name, value in hello.settings.items()
            if value and value != ours.get(name, "")
        ]


async def _send_line(writer: asyncio.StreamWriter, answer: Mapping[str, Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()


def _open_listening_socket(place: connection.Place) -> tuple[socket.socket, bytes]:
    """Return the listening socket, and the secret that clients must send if it is a TCP socket."""
    with contextlib.suppress(FileNotFoundError):
        Path(place.socket_path).unlink()  # left by a server that was killed
    if not connection.USES_LOOPBACK:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(place.socket_path)  # in a directory that only the owner can open
        Path(place.socket_path).chmod(0o600)
        made.listen(BACKLOG)
        return made, b""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind(("127.0.0.1", 0))
    made.listen(BACKLOG)
    secret = secrets.token_hex(32)
    part = Path(f"{place.socket_path}.{os.getpid()}.part")
    with open(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
        file.write(f"{made.getsockname()[1]} {secret}")
    part.replace(place.socket_path)
    return made, secret.encode()


def _is_same_user(peer: Any) -> bool:
    """Return whether a connection comes from a process of this user."""
    if connection.USES_LOOPBACK:
        return True  # the client must know the secret instead
    if sys.platform == "linux":
        found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return bool(struct.unpack("3i", found)[1] == os.geteuid())
    if sys.platform == "darwin":  # struct xucred: its version, the user, groups
        found = peer.getsockopt(0, 1, 76)
        return bool(struct.unpack("2I", found[:8])[1] == os.geteuid())
    return True  # only this user can open the socket's directory
