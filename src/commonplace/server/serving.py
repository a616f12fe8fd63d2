"""Starting and stopping the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from commonplace.access.accounts import Accounts
from commonplace.access.signed import Tokens, environment_tokens
from commonplace.access.vault import open_vault
from commonplace.client import connection
from commonplace.dialects import registry
from commonplace.embedding.provider import configured_embedder
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError, InvalidInput, StorageUnavailable
from commonplace.platform.loading import prepare_for_calls, without_garbage_collection
from commonplace.server import http
from commonplace.server.connections import (
    Connections,
    HttpConnection,
    WebSocketConnection,
    connection_limits,
    raise_file_limit,
)
from commonplace.server.door import Door
from commonplace.server.local import HostedParts, LocalServer, store_settings, warm_up
from commonplace.server.observing import set_up_logging
from commonplace.server.settings import Settings
from commonplace.server.tracing import tracing
from commonplace.storage.database import now
from commonplace.storage.system import system_file

DRAIN_SECONDS = 10
CLAIM_SECONDS = 10.0  # how long `serve` waits for a background server to stop
HEADER_BYTES = 65_536
WEBSOCKET_BYTES = 262_144
BACKLOG = 256  # the backlog of the listening socket

# variable with the listening socket, for the process after a restart
SOCKET_VARIABLE = "COMMONPLACE_LISTENING_SOCKET"

log = logging.getLogger(__name__)


class Restart:
    """Restarts the server on the same socket."""

    def __init__(self) -> None:
        self.asked = False
        self.server: StoppableServer | None = None

    def __call__(self) -> None:
        """Stop the server gracefully; the process then replaces itself by exec."""
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True


class StoppableServer(uvicorn.Server):
    """A uvicorn server that returns after a signal, so that the caller can close all files."""

    def __init__(
        self, app: Door, local: LocalServer | None = None, idle_seconds: float = math.inf
    ) -> None:
        super().__init__(uvicorn_config(app, app.proxies))
        self._door = app
        self._local = local
        self._idle_seconds = idle_seconds
        self._idling: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, also on the local socket."""
        await super().startup(sockets)
        if self._local is not None and self.started:
            await self._local.start()
            self._idling = asyncio.create_task(self._stop_when_idle(self._local))

    async def _stop_when_idle(self, local: LocalServer) -> None:
        await local.wait_until_idle(self._idle_seconds)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Disconnect local clients, then close the streams, since uvicorn waits for open
        responses."""
        if self._idling is not None:
            self._idling.cancel()
        if self._local is not None:
            ending = asyncio.create_task(self._local.close(DRAIN_SECONDS))
            while not ending.done() and not self.force_exit:
                await asyncio.wait({ending}, timeout=0.1)
        self._door.end_streams()
        await super().shutdown(sockets)
        if self.force_exit:  # do not wait for requests, but let background work finish
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop gracefully on the first signal, and at once on the second."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        if sys.platform == "win32":
            for number in signals:
                signal.signal(number, self.handle_exit)
        else:
            for number in signals:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


@dataclass(frozen=True, slots=True)
class OpenServer:
    """A server with open files and an open port, ready to run."""

    settings: Settings
    parts: http.ApplicationParts
    app: Door
    listening: socket.socket


@contextlib.contextmanager
def open_server(settings: Settings, restart: Restart | None = None) -> Iterator[OpenServer]:
    """Open the parts of a server, and close them at the end of the block."""
    with contextlib.ExitStack() as stack:
        # These checks come first, so that a refused start creates no data directory.
        listening = stack.enter_context(contextlib.closing(bind(settings.host, settings.port)))
        settings = replace(settings, port=listening.getsockname()[1])
        if not settings.database and not system_file(settings.data).exists():
            check_exposure(settings)
        library = Library(
            settings.data,
            embedder=configured_embedder(settings.embedding),
            database=settings.database or None,
            allow_secrets=settings.allow_secrets,
            auto_accept=settings.auto_accept,
            embed="later",
        )
        stack.callback(library.close)
        for each in library.warnings:
            log.warning(each)
        system = stack.enter_context(contextlib.closing(library.open_system()))
        vault = open_vault(system)
        tokens = Tokens(system, vault, registry.token_formats())
        stack.callback(tokens.close)
        accounts = Accounts(system, vault, tokens.credentials)
        check_exposure(settings, tokens, accounts)
        parts = http.ApplicationParts(settings, library, system, tokens, accounts, vault, restart)
        with without_garbage_collection():
            app = http.build_application(parts)
        yield OpenServer(settings, parts, app, listening)


def serve(settings: Settings, ready: Callable[[Settings], None] | None = None) -> None:
    """Run until asked to stop. `ready` is called with the settings once the port is open."""
    set_up_logging(settings.log)
    raise_file_limit()
    restart, inherited = None if sys.platform == "win32" else Restart(), -1
    with tracing(os.environ), open_server(settings, restart) as made:
        server = StoppableServer(
            made.app, _local_server(made, lock_local_socket(settings), "serve", restart)
        )
        if restart is not None:
            restart.server = server
            inherited = os.dup(made.listening.fileno())
        if ready is not None:
            ready(made.settings)
        prepare_for_calls()
        threading.Thread(target=warm_up, args=(made.parts.library,), daemon=True).start()
        asyncio.run(server.serve(sockets=[made.listening]))
    if restart is not None and restart.asked:
        os.set_inheritable(inherited, True)
        os.environ[SOCKET_VARIABLE] = str(inherited)
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this very command again
    if inherited >= 0:
        os.close(inherited)


def lock_local_socket(settings: Settings) -> tuple[connection.Place, int] | None:
    """Lock the local socket; return None if it cannot be used, or if another `serve` has it.

    A server that was started in the background stops and releases it.
    """
    try:
        place = connection.place_of(str(settings.data), settings.database)
        lock = connection.try_lock(place.lock_file)
        if lock is None and (connection.ask(place, {"kind": "give way"}) or {}).get("stops", True):
            until = time.monotonic() + CLAIM_SECONDS
            while lock is None and time.monotonic() < until:
                time.sleep(connection.RETRY_SECONDS)
                lock = connection.try_lock(place.lock_file)
    except (OSError, connection.Unusable) as error:
        log.warning("there is no local socket", extra={"why": str(error)})
        return None
    if lock is None:
        log.warning("another server has the local socket; clients over stdio use that one")
        return None
    return place, lock


def _local_server(
    made: OpenServer,
    claimed: tuple[connection.Place, int] | None,
    kind: str,
    restart: Restart | None = None,
) -> LocalServer | None:
    if claimed is None:
        return None
    hosted = HostedParts(
        library=made.parts.library, system=made.parts.system, vault=lambda: made.parts.vault,
        store_settings=store_settings(made.settings), running=frozenset(registry.names()),
        kind=kind, http=made.settings.local_url, restart=restart,
    )  # fmt: skip
    return LocalServer(*claimed, hosted)


def serve_in_background(settings: Settings, place: connection.Place, lock: int) -> bool:
    """Serve HTTP and the local socket until idle; return False if HTTP cannot be served."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(open_server(settings))
        except CommonplaceError as error:
            log.warning("HTTP is not served", extra={"why": error.message})
            return False
        local = _local_server(made, (place, lock), "background")
        server = StoppableServer(made.app, local, settings.idle_seconds)
        prepare_for_calls()
        threading.Thread(target=warm_up, args=(made.parts.library,), daemon=True).start()
        asyncio.run(server.serve(sockets=[made.listening]))
        return True


def uvicorn_config(app: ASGIApp, proxies: Collection[str] = ()) -> uvicorn.Config:
    """Return the uvicorn configuration."""
    counted = Connections(*connection_limits(), proxies)
    http_connection = functools.partial(HttpConnection, connections=counted)
    websocket = functools.partial(WebSocketConnection, connections=counted)
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", http_connection),
        ws=cast("type[asyncio.Protocol]", websocket),
        backlog=BACKLOG,
        ws_max_size=WEBSOCKET_BYTES,
        ws_ping_interval=None,  # bridges send their own pings
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        h11_max_incomplete_event_size=HEADER_BYTES,
    )


def check_exposure(
    settings: Settings, tokens: Tokens | None = None, accounts: Accounts | None = None
) -> None:
    """Refuse to listen on a network address while no credential is stored or in the environment."""
    if settings.is_local or environment_tokens(os.environ, registry.token_formats()):
        return
    if tokens is not None and accounts is not None:
        at = now()
        alive = (
            one
            for one in tokens.credentials.listing()
            if one.revoked_at is None and (one.expires_at is None or at < one.expires_at)
        )
        if any(alive) or accounts.listing():
            return
    where = settings.public_url or f"{settings.host}:{settings.port}"
    raise InvalidInput(
        f"{where} is reachable from other machines, but no credential is configured.",
        hint=f"Create one first ('{settings.command_line('token create')}'), or stay on 127.0.0.1"
        " without public_url and proxies.",
        field="host",
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise StorageUnavailable if the address cannot be used.

    After a restart, return the socket of the former process.
    """
    if given := os.environ.pop(SOCKET_VARIABLE, ""):
        listening = socket.socket(fileno=int(given))
        if port in (0, listening.getsockname()[1]):
            return listening
        listening.close()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the socket's protocol is IPPROTO_TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (
        OSError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:  # unusual host names raise errors other than OSError
        listening.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = (
            "Stop the program on this port, or choose another --port."
            if taken
            else "Choose another --host or --port."
        )
        raise StorageUnavailable(f"{host}:{port} cannot be used: {error}.", hint=hint) from error
    listening.set_inheritable(True)
    return listening
