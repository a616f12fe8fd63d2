"""Fetches URLs from untrusted text, with protection against server-side request forgery.

Only https is allowed. The host name is resolved once, every address must be public, and the
connection goes to a checked address and verifies the certificate of the host name. Each redirect is
checked again. Size and time are limited; proxies, cookies and credentials of the environment are
not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore

from commonplace.errors import CommonplaceError

MOST_BYTES = 5 * 1024 * 1024
MOST_SECONDS = 10.0
CONNECT_SECONDS = 3.0  # time limit for the connection to each address of a host
MOST_REDIRECTS = 3
MOST_URL_CHARS = 2_048

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

# Networks that are refused although `is_global` accepts them in some versions of Python: networks
# that embed an IPv4 address, and withdrawn ranges.
_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64",
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7",
        "fe80::/10", "fec0::/10", "ff00::/8",
    )
)  # fmt: skip
_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?)+"
)
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_UNSAFE = re.compile(r"[^\x21-\x7e]|[\\<>\"{}|^`]")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchRefused(CommonplaceError):
    """The URL may not be fetched, or its response is not acceptable."""

    code = "FETCH_REFUSED"


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A well-formed URL; its host name is not resolved yet."""

    url: str
    host: str
    port: int
    address: Address | None
    """The host, if it is an IP address."""


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A response."""

    url: str
    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name; the last one of repeated headers."""
    body: bytes


def is_public(address: Address) -> bool:
    """Return whether an address is public, and does not embed another address."""
    if address.version == 6 and (address.scope_id or address.ipv4_mapped or address.sixtofour):
        return False
    if any(
        address in network for network in _REFUSED_NETWORKS if network.version == address.version
    ):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def parse_target(url: str) -> FetchTarget:
    """Parse an https URL; refuse a URL that different parsers could read in different ways."""
    if not url or len(url) > MOST_URL_CHARS or _UNSAFE.search(url):
        raise FetchRefused("The URL is empty, too long, or has characters that are not allowed.")
    if not url.startswith("https://"):
        raise FetchRefused("Only https addresses are fetched.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise FetchRefused("The address is not a valid URL.") from None
    if "@" in parts.netloc:
        raise FetchRefused("The address must not hold a user name or password.")
    if "#" in url:
        raise FetchRefused("The address must not have a fragment.")
    host = parts.netloc.partition("]")[0] + "]" if "[" in parts.netloc else parts.netloc
    host = host if host.endswith("]") else host.partition(":")[0]
    rest = parts.netloc[len(host) :]
    if rest and (port is None or rest != f":{port}" or not port):
        raise FetchRefused("The address has no valid port.")
    return FetchTarget(url, host, port or 443, _parse_ip_address(host.lower()))


def _parse_ip_address(host: str) -> Address | None:
    if host.startswith("["):
        try:
            return ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise FetchRefused("The address's host is not valid.") from None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        # Some parsers read 127.1, 0x7f.1 and 2130706433 as addresses, others as names.
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise FetchRefused("The address's host is not valid.") from None
    if not _NAME.fullmatch(host):
        raise FetchRefused("The address's host is not a full domain name.")
    return None


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host name with the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(addresses)
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception | None = None
        for address in self._addresses:
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout or CONNECT_SECONDS, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError("no address")


class Fetcher:
    """Fetches URLs with the checks of this module.

    `allow` holds (address, port) pairs that are exempt from the checks, such as a local service;
    `resolver` and `tls` replace those of the system.
    """

    def __init__(
        self,
        *,
        allow: Collection[tuple[str, int]] = (),
        resolver: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow = frozenset((ipaddress.ip_address(address), port) for address, port in allow)
        self._resolver = resolver
        self._tls = tls

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        most_bytes: int = MOST_BYTES,
        seconds: float = MOST_SECONDS,
        redirects: int = MOST_REDIRECTS,
    ) -> FetchResponse:
        """Fetch a URL and return its response; raise FetchRefused for every failure."""
        sent = dict(headers or {})
        try:
            async with asyncio.timeout(seconds):
                while True:
                    fetched = await self._fetch_once(
                        parse_target(url), method, sent, content, most_bytes
                    )
                    if fetched.status not in _REDIRECTS:
                        return fetched
                    if redirects <= 0 or content is not None:
                        raise FetchRefused(
                            "The URL redirects, and redirects are not followed here."
                        )
                    redirects -= 1
                    # Headers for one host are not sent to another.
                    sent = {k: v for k, v in sent.items() if k.lower() in ("accept", "user-agent")}
                    url = urljoin(url, fetched.headers.get("location", ""))
        except TimeoutError:
            raise FetchRefused(f"No response within {seconds:.0f} seconds.") from None
        except (
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            OSError,  # an invalid certificate, or a name that does not resolve
            UnicodeError,
        ) as error:
            raise FetchRefused(f"The fetch failed ({type(error).__name__}).") from None

    async def _checked_addresses(self, target: FetchTarget) -> list[str]:
        if target.address is not None:
            found: list[Address] = [target.address]
        else:
            answers = await self._resolver(target.host, target.port)
            found = [ipaddress.ip_address(answer) for answer in answers]
        for address in found:
            if not is_public(address) and (address, target.port) not in self._allow:
                raise FetchRefused("The address leads into a network that is not public.")
        if not found:
            raise FetchRefused("The host name does not resolve.")
        return [str(address) for address in found]

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx  # slow to import

            self._tls = httpx.create_ssl_context()
        return self._tls

    async def _fetch_once(
        self,
        target: FetchTarget,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None,
        most_bytes: int,
    ) -> FetchResponse:
        pinned = _PinnedBackend(await self._checked_addresses(target))
        sent = {"User-Agent": "Commonplace", "Accept-Encoding": "identity", **headers}
        sent["Host"] = urlsplit(target.url).netloc
        async with (
            httpcore.AsyncConnectionPool(
                ssl_context=self._tls_context(), network_backend=pinned
            ) as pool,
            pool.stream(method, target.url, headers=list(sent.items()), content=content) as answer,
        ):
            received = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in answer.headers
            }
            if received.get("content-encoding", "identity") != "identity":
                raise FetchRefused(
                    "The response is compressed although compression was not accepted."
                )
            body = bytearray()
            if answer.status not in _REDIRECTS:
                async for part in answer.aiter_stream():
                    body += part
                    if len(body) > most_bytes:
                        raise FetchRefused(f"The response is larger than {most_bytes:,} bytes.")
        return FetchResponse(target.url, answer.status, received, bytes(body))
