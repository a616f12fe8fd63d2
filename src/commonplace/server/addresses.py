"""Checks the Host and Origin headers against the allowed ones, by parsed equality."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

from commonplace.dialects.rest import Rejected
from commonplace.errors import InvalidInput
from commonplace.server.settings import Settings, is_loopback

_HOST = re.compile(
    r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}))(?::(?P<port>[0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_NOT_OURS = "{} name not allowed. Add it to `allow_hosts`."
# No packet is sent there; connecting shows which local address would be used.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Place:
    """A host with its port."""

    name: str
    port: int


class Addresses:
    """The allowed Host names and Origins."""

    def __init__(self, settings: Settings) -> None:
        base = urlsplit(settings.base_url)
        names = {Place(name, settings.port) for name in own_names(settings)}
        origins = {("http", place) for place in names}
        if settings.public_url:
            place = Place(_bracketed(base.hostname or ""), base.port or _DEFAULT_PORTS[base.scheme])
            names.add(place)
            origins.add((base.scheme, place))
        default_port = _DEFAULT_PORTS[base.scheme] if settings.public_url else settings.port
        for host in settings.allow_hosts:
            parsed = parse_host(host, default_port)
            if parsed is None:
                raise InvalidInput(f"{host!r} is not a host.", field="allow_hosts")
            names.add(parsed)
        for origin in settings.allow_origins:
            parsed_origin = parse_origin(origin)
            if parsed_origin is None:
                raise InvalidInput(f"{origin!r} is not an origin.", field="allow_origins")
            origins.add(parsed_origin)
        self._hosts = frozenset(names)
        self._origins = frozenset(origins)
        self._default_port = _DEFAULT_PORTS[base.scheme]

    def check(self, headers: Headers, *, visited: bool = False) -> None:
        """Reject a request whose Host or Origin is not allowed.

        A page that is `visited` may be opened by a link on another site.
        """
        hosts = _all(headers, b"host")
        forwarded = _all(headers, b"x-forwarded-host")
        if len(hosts) != 1 or not self._all_ours(hosts):
            raise Rejected(421, "ADDRESS", _NOT_OURS.format("Host"))
        if not self._all_ours(forwarded):
            raise Rejected(421, "ADDRESS", _NOT_OURS.format("X-Forwarded-Host"))
        origins = _all(headers, b"origin")
        if not origins:
            sites = _all(headers, b"sec-fetch-site")
            ours = all(site in ("same-origin", "none") for site in sites)
            if not ours and not (visited and _followed(headers)):
                raise Rejected(403, "ADDRESS", "Requests from other sites' pages are not accepted.")
            return
        origin = parse_origin(origins[0]) if len(origins) == 1 else None
        if origin is None or origin not in self._origins:
            raise Rejected(403, "ADDRESS", "Requests from that Origin are not accepted.")

    def _all_ours(self, hosts: Sequence[str]) -> bool:
        return all(parse_host(host, self._default_port) in self._hosts for host in hosts)


def own_names(settings: Settings) -> list[str]:
    """The host names that are allowed by default: the address that the server listens on.

    Where that is every address of the machine, those by which others reach it, and its name.
    """
    if settings.everywhere:
        return [*_reachable(), *LOOPBACK_NAMES]
    bound = _bracketed(settings.host)
    more = LOOPBACK_NAMES if is_loopback(settings.host) else ()
    return [bound, *(name for name in more if name != bound)]


def _reachable() -> list[str]:
    """This machine's addresses towards the network, and its name."""
    found: list[str] = []
    for family, elsewhere in _ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((elsewhere, 9))
            found.append(_bracketed(asking.getsockname()[0]))
    found.append(socket.gethostname().lower())
    return [name for name in dict.fromkeys(found) if parse_host(name, 80) is not None]


def _followed(headers: Headers) -> bool:
    """Whether the request is a top-level navigation."""
    return _all(headers, b"sec-fetch-mode") == ["navigate"] and _all(
        headers, b"sec-fetch-dest"
    ) == ["document"]


def peer(scope: Scope, proxies: Collection[str]) -> str:
    """The client's address; X-Forwarded-For counts only from a configured proxy."""
    address: str = scope["client"][0] if scope.get("client") else ""
    # Dual-stack sockets show IPv4 addresses as ::ffff:a.b.c.d.
    address = address.removeprefix("::ffff:") if "." in address else address
    if address in proxies:
        told = ",".join(_all(scope["headers"], b"x-forwarded-for")).split(",")
        for hop in reversed([hop.strip() for hop in told if hop.strip()]):
            if hop not in proxies:
                return hop[:64]
    return address


def _all(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def parse_host(text: str, default_port: int) -> Place | None:
    """A Host header as name and port; None if it is not valid."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else default_port
    if not 0 < port < 65_536 or (match["port"] or "").startswith("0"):
        return None
    return Place(match["name"].lower(), port)


def parse_origin(text: str) -> tuple[str, Place] | None:
    """An Origin header as scheme and place; `null` and anything with a path are None."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    place = parse_host(rest, _DEFAULT_PORTS[scheme])
    return None if place is None else (scheme, place)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
