"""Limits on connections: their number, their time limits, and the check of their credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Protocol

from starlette.types import Message, Receive
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from commonplace.access.caller import Caller
from commonplace.access.credentials import Unauthenticated
from commonplace.access.rates import network_of
from commonplace.dialects.rest import Rejected
from commonplace.errors import CommonplaceError

HEADER_SECONDS = 10.0  # time limit for receiving a request's headers
MOST_CONNECTIONS = 8_192  # most open connections, unless the limit of open files is lower
MOST_ADDRESS_CONNECTIONS = 512  # most open connections from one address, unless it is a proxy
MOST_STREAMS = 256  # most open event streams; the same limit applies to WebSockets
MOST_CREDENTIAL_STREAMS = 64  # most open streams of one credential
GOING_AWAY = 1001  # WebSocket close code: the server stops
RECHECK_SECONDS = 2.0  # how often the credential of a stream is checked again
_BUSY = json.dumps(
    {"error": {"code": "BUSY", "message": "Too many connections are open. Close some of them."}}
)
_REFUSAL = (
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    f"content-type: application/json\r\ncontent-length: {len(_BUSY)}\r\n\r\n{_BUSY}"
).encode()

log = logging.getLogger(__name__)


class Connection(Protocol):
    """An HTTP connection or a WebSocket."""

    transport: asyncio.Transport
    client: tuple[str, int] | None


class Connections:
    """The open connections. Used from one thread, the event loop.

    When an address or the server has reached its limit, a new connection replaces the connection
    that has been idle longest; it is refused if no connection is idle.
    """

    def __init__(self, total: int, each: int, proxies: Collection[str] = ()) -> None:
        self._total = total
        self._each = each
        self._proxies = frozenset(map(network_of, proxies))
        self._count = 0
        self._open: dict[str, set[Connection]] = {}
        self._waiting: dict[Connection, None] = {}  # idle connections, the longest idle first

    def add(self, connection: Connection) -> bool:
        """Count a new connection; return False if a limit is reached and none is idle."""
        address = _address(connection)
        same = self._open.get(address, set())
        if len(same) >= self._each and address not in self._proxies:
            if not self._drop_longest_idle(same):
                return False
        elif self._count >= self._total and not self._drop_longest_idle(self._waiting):
            return False
        self._open.setdefault(address, set()).add(connection)
        self._count += 1
        return True

    def discard(self, connection: Connection) -> None:
        """Stop counting a connection."""
        address = _address(connection)
        self._waiting.pop(connection, None)
        same = self._open.get(address, set())
        if connection in same:
            self._count -= 1
            same.remove(connection)
        if not same:
            self._open.pop(address, None)

    def mark_idle(self, connection: Connection) -> None:
        """Record that the connection is idle, unless it was refused."""
        if connection in self._open.get(_address(connection), ()):
            self._waiting.setdefault(connection)

    def mark_busy(self, connection: Connection) -> None:
        """Record that a request of the connection is being answered."""
        self._waiting.pop(connection, None)

    def _drop_longest_idle(self, among: Collection[Connection]) -> bool:
        for connection in self._waiting:
            if connection in among:
                self.discard(connection)
                connection.transport.abort()
                return True
        return False


def _address(connection: Connection) -> str:
    return network_of(connection.client[0]) if connection.client else ""


class HttpConnection(H11Protocol):
    """An HTTP connection that is counted, with a time limit for the headers of a request."""

    def __init__(self, *arguments: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counted = connections
        self._timer: asyncio.TimerHandle | None = None
        self._upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the headers, or refuse the connection."""
        super().connection_made(transport)
        if self._counted.add(self):
            self._update_timer()
        else:
            transport.write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._stop_timer()
        self._counted.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timer with the first bytes of a request; stop it when its headers are
        complete."""
        super().data_received(data)
        self._update_timer()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection over to the WebSocket protocol, which has no time limit for
        headers.
        """
        self._upgraded = True
        self._stop_timer()
        self._counted.discard(self)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Mark the connection as idle; the keep-alive time limit applies until the next request."""
        super().on_response_complete()
        if not self._is_serving() and not self._upgraded:
            self._counted.mark_idle(self)

    def _update_timer(self) -> None:
        if self._upgraded:
            return
        if self._is_serving():
            self._counted.mark_busy(self)
            self._stop_timer()
        elif self._timer is None:
            self._counted.mark_idle(self)
            self._timer = self.loop.call_later(HEADER_SECONDS, self._on_header_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _on_header_timeout(self) -> None:
        if not self._is_serving() and not self.transport.is_closing():
            self.transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that is counted; it may be dropped while it waits for the closing frame."""

    def __init__(self, *arguments: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counted = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the place of the HTTP connection that was upgraded."""
        super().connection_made(transport)
        self._counted.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._counted.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close with code 1001, "going away"; uvicorn itself would send 1012."""
        if self.handshake_complete and not self.close_sent:
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})
            self.conn.send_close(GOING_AWAY)
            self.transport.write(b"".join(self.conn.data_to_send()))
        super().shutdown()

    async def send(self, message: Any) -> None:
        """Send a message of the application to the client."""
        if message["type"] == "websocket.close":
            self._counted.mark_idle(self)
        await super().send(message)


class Streams:
    """The open event streams, or the open WebSockets.

    Each is closed when its credential ends. Use it on the event loop only.
    """

    def __init__(self, kind: str, gauge: Any) -> None:
        self._kind = kind
        self._gauge = gauge
        self._open: dict[asyncio.Event, str] = {}

    @contextlib.asynccontextmanager
    async def count_while_open(
        self, caller: Caller, recheck: Callable[[], Awaitable[Caller]] | None
    ) -> AsyncIterator[asyncio.Event]:
        """Count a stream while it is open; the event is set when it must end.

        Raise Rejected if too many are open. `recheck` verifies the credential again.
        """
        owner = caller.family or caller.credential
        if len(self._open) >= MOST_STREAMS:
            raise Rejected(503, "BUSY", f"Too many {self._kind} are open. Try again later.")
        if list(self._open.values()).count(owner) >= MOST_CREDENTIAL_STREAMS:
            raise Rejected(
                429, "RATE_LIMITED",
                f"This credential has {MOST_CREDENTIAL_STREAMS} {self._kind} open."
                " Close one of them.",
            )  # fmt: skip
        ended = asyncio.Event()
        self._open[ended] = owner
        self._gauge.inc()
        watching = asyncio.create_task(_end_with_credential(recheck, ended))
        try:
            yield ended
        finally:
            watching.cancel()
            del self._open[ended]
            self._gauge.dec()

    def close(self) -> None:
        """End all streams, because the server stops."""
        for ended in self._open:
            ended.set()


async def _end_with_credential(
    recheck: Callable[[], Awaitable[Caller]] | None, ended: asyncio.Event
) -> None:
    while recheck is not None:
        await asyncio.sleep(RECHECK_SECONDS)
        try:
            await recheck()
        except Unauthenticated:
            ended.set()
            return
        except CommonplaceError as error:
            log.warning("a stream's credential could not be checked", extra={"why": error.code})


def receive_until(ended: asyncio.Event, receive: Receive, last: Message) -> Receive:
    """Wrap `receive`: return the client's messages, and `last` as soon as the stream must end."""

    async def receive_or_end() -> Message:
        received, over = asyncio.ensure_future(receive()), asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({received, over}, return_when=asyncio.FIRST_COMPLETED)
            return received.result() if received.done() else last
        finally:
            received.cancel()
            over.cancel()

    return receive_or_end


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a hard limit that cannot be set.
    for wanted in (hard, *(fewer for fewer in (65_536, 10_240) if fewer > soft)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def connection_limits() -> tuple[int, int]:
    """Return the most connections in total and for one address: at most half of the file limit."""
    total = MOST_CONNECTIONS
    if sys.platform != "win32":
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            total = max(2, min(total, files // 2))
    return total, min(MOST_ADDRESS_CONNECTIONS, total // 2)
