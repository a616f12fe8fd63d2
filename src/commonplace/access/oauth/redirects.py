"""Validates redirect URIs and compares them with the registered ones.

A redirect URI must equal a registered one exactly, except that a loopback URI may have any port
(RFC 8252). URIs that different parsers read in different ways are refused.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

MOST_URI_CHARS = 2_048
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "[::1]", "localhost"})

# Custom schemes of known programs. RFC 8252 requires a reversed domain name; these are shorter.
KNOWN_SCHEMES = frozenset(
    (
        "claude", "codex", "cursor", "goose", "jan", "jetbrains", "kiro", "lmstudio", "raycast",
        "vscode", "vscode-insiders", "vscodium", "warp", "windsurf", "zed",
    )
)  # fmt: skip
RESPONSE_PARAMETERS = frozenset({"code", "state", "iss", "error", "error_description", "error_uri"})

_URI = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*):(?://(?P<authority>[^/?]*))?(?P<path>[^?]*)(?:\?(?P<query>.*))?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^:@\[\]]*)(?::(?P<port>.*))?")
_HOST = re.compile(r"\[.*\]|[a-z0-9._-]+")
_DOMAIN_NAME = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
_REVERSED_DOMAIN = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)+")
_URI_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:[01][0-9A-Fa-f]|2[eEfF]|5[cC]|7[fF])")
_DOT_SEGMENTS = frozenset({".", ".."})


class BadRedirect(ValueError):
    """The redirect URI is not allowed; the message says why."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """An allowed redirect URI, parsed."""

    uri: str
    scheme: str
    host: str
    port: int | None
    path: str
    query: str | None

    @property
    def is_loopback(self) -> bool:
        """Whether the redirect leads to a program on the person's own machine."""
        return self.scheme == "http"

    @property
    def target_text(self) -> str:
        """The redirect's target in words, for the person."""
        if self.is_loopback:
            return "a program on this computer"
        if self.scheme == "https":
            return self.host if self.port is None else f"{self.host}:{self.port}"
        return f"the program for {self.scheme}: links on this device"

    @property
    def form_sources(self) -> str:
        """Return the sources that a page's `form-action` directive must allow for this redirect.

        Browsers apply the directive to every redirect after the form, including later redirects by
        the client, so for https the whole scheme is allowed.
        """
        if self.is_loopback and self.host != "[::1]":  # a CSP source cannot be an IPv6 address
            return "http://localhost:* http://127.0.0.1:*"
        return f"{self.scheme}:"

    def uri_with(self, parameters: dict[str, str]) -> str:
        """Return the URI with the response parameters in its query."""
        joint = "?" if self.query is None else "&" if self.query else ""
        return f"{self.uri}{joint}{urlencode(parameters)}"


def parse_redirect(uri: str) -> Redirect:
    """Parse a redirect URI; raise BadRedirect if it is not allowed."""
    if not uri or len(uri) > MOST_URI_CHARS:
        raise BadRedirect("it must have 1 to 2048 characters")
    if not _URI_CHARACTERS.fullmatch(uri):
        raise BadRedirect("it has a fragment, or characters that are not allowed in a URL")
    if _BAD_ESCAPE.search(uri):
        raise BadRedirect(
            "it has an invalid percent-escape, or one that encodes a separator or control character"
        )
    match = _URI.fullmatch(uri)
    if match is None:
        raise BadRedirect("it is not an absolute URL with a lower-case scheme")
    scheme, authority, path = match["scheme"], match["authority"], match["path"]
    if "//" in path or _DOT_SEGMENTS & set(path.split("/")):
        raise BadRedirect("its path must not have empty or dot segments")
    query = match["query"]
    for name, _ in parse_qsl(query or "", keep_blank_values=True):
        if name in RESPONSE_PARAMETERS:
            raise BadRedirect(f"its query must not have {name}")
    if scheme in ("http", "https"):
        host, port = _web_host(scheme, authority)
    else:
        host, port = _custom_scheme_host(scheme, authority, path), None
    if path and not path.startswith("/"):
        raise BadRedirect("its path must begin with a slash")
    return Redirect(uri, scheme, host, port, path, query)


def _web_host(scheme: str, authority: str | None) -> tuple[str, int | None]:
    if not authority:
        raise BadRedirect("it has no host")
    if "@" in authority:
        raise BadRedirect("it has a user name")
    match = _AUTHORITY.fullmatch(authority)
    if match is None or not _HOST.fullmatch(match["host"].lower()):
        raise BadRedirect("its host has characters that are not allowed in a host name")
    host = match["host"]
    if host != host.lower():
        raise BadRedirect("its host is not in lower case")
    port = _port(match["port"], least=0 if scheme == "http" else 1)
    if scheme == "http":
        if host not in LOOPBACK_HOSTS:
            raise BadRedirect("http is only for 127.0.0.1, [::1] and localhost; use https")
        return host, port
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise BadRedirect("its host is not a valid address") from None
        if f"[{address}]" != host or address.ipv4_mapped is not None:
            raise BadRedirect("its host is an IPv6 address that is not in its short form")
    elif host.rpartition(".")[2][:1].isdigit():
        try:
            ipaddress.IPv4Address(host)  # refuses octal, hexadecimal and shortened forms
        except ValueError:
            raise BadRedirect("its host is not a valid address") from None
    elif host != "localhost" and not _DOMAIN_NAME.fullmatch(host):
        raise BadRedirect("its host is not a full domain name")
    return host, port


def _port(text: str | None, *, least: int) -> int | None:
    """Return a port number; 0 is allowed on loopback, where the program chooses its port later."""
    if text is None:
        return None
    port = int(text) if re.fullmatch(r"0|[1-9][0-9]{0,4}", text) else -1
    if not least <= port <= 65_535:
        raise BadRedirect(f"its port is not a number from {least} to 65535")
    return port


def _custom_scheme_host(scheme: str, authority: str | None, path: str) -> str:
    if scheme not in KNOWN_SCHEMES and not _REVERSED_DOMAIN.fullmatch(scheme):
        raise BadRedirect(
            "its scheme must be https, http on loopback, or a reversed domain name such as"
            " com.example.app"
        )
    if authority is not None and not re.fullmatch(r"[a-z0-9._-]*", authority):
        raise BadRedirect("its host is not valid")
    if not authority and not path:
        raise BadRedirect("it has a scheme and nothing else")
    return authority or ""


def find_match(registered: list[str], asked: str) -> Redirect | None:
    """Return the requested redirect URI if it matches a registered one."""
    try:
        wanted = parse_redirect(asked)
    except BadRedirect:
        return None
    for uri in registered:
        if uri == asked:
            return wanted
        if wanted.is_loopback and _differs_in_port_only(uri, wanted):
            return wanted
    return None


def _differs_in_port_only(uri: str, wanted: Redirect) -> bool:
    try:
        known = parse_redirect(uri)
    except BadRedirect:
        return False
    return (known.scheme, known.host, known.path, known.query) == (
        wanted.scheme, wanted.host, wanted.path, wanted.query,
    )  # fmt: skip
