"""OAuth clients: registered clients (RFC 7591), and clients whose id is the URL of a document.

Anybody may register a client, so the number of registrations is limited, and a client that no
person has allowed is deleted after a day. If the id is an https URL, the metadata of the client is
the JSON document at that URL, which is cached.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
import unicodedata
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from commonplace.access.credentials import SECOND, token_digest
from commonplace.access.oauth.errors import OAuthError, PageError
from commonplace.access.oauth.redirects import BadRedirect, parse_redirect
from commonplace.access.oauth.resources import (
    AUTH_METHODS,
    DEVICE_CODE,
    GRANT_TYPES,
    USUAL_GRANT_TYPES,
)
from commonplace.access.oauth.rows import MacRows
from commonplace.platform.fetching import Fetcher, FetchRefused, FetchResponse, parse_target
from commonplace.storage import oauth as stored
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

MOST_CLIENTS = 1_000
MOST_REDIRECTS = 10
NAME_CHARS = 80
UNUSED_SECONDS = 86_400
UNUSED_SECONDS_WHEN_FULL = 600
"""How long an unused registration is kept when the number of registrations reaches its limit."""
IDLE_SECONDS = 90 * 86_400

DOCUMENT_BYTES = 5 * 1024
DOCUMENT_SECONDS = 10.0
DOCUMENT_URL_CHARS = 500
LEAST_FRESH_SECONDS = 60.0
USUAL_FRESH_SECONDS = 3_600.0
MOST_FRESH_SECONDS = 86_400.0
FAILURE_SECONDS = 30.0
MOST_CACHED_DOCUMENTS = 256
FETCHES_AT_ONCE = 8

_METADATA = ("name", "redirect_uris", "auth_method", "grant_types")
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,10})")
_JSON = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json")


@dataclass(frozen=True, slots=True)
class Client:
    """An OAuth client."""

    id: str
    name: str
    """The name that the client chose for itself; it is not verified."""
    redirect_uris: tuple[str, ...]
    auth_method: str = "none"
    grant_types: tuple[str, ...] = USUAL_GRANT_TYPES
    secret: bytes | None = None
    """The SHA-256 of the client's secret, if it has one."""

    @property
    def host(self) -> str:
        """The host of the client's metadata document; empty for a registered client."""
        return urlsplit(self.id).netloc if is_document_url(self.id) else ""

    @property
    def may_refresh(self) -> bool:
        """Whether the client can use a refresh token."""
        return "refresh_token" in self.grant_types

    @property
    def uses_redirects(self) -> bool:
        """Whether the client uses redirects."""
        return "authorization_code" in self.grant_types

    @property
    def uses_devices(self) -> bool:
        """Whether the client may use the device grant."""
        return DEVICE_CODE in self.grant_types

    def has_secret(self, secret: str) -> bool:
        """Return whether the secret is right."""
        return self.secret is not None and hmac.compare_digest(self.secret, token_digest(secret))


@dataclass(frozen=True, slots=True)
class NewClient:
    """A new client with its secret, if it has one; only the secret's digest is stored."""

    client: Client
    secret: str | None
    created_at: int

    def body(self) -> dict[str, Any]:
        """Return the response body of RFC 7591."""
        client = self.client
        body: dict[str, Any] = {
            "client_id": client.id,
            "client_id_issued_at": self.created_at // SECOND,
            "client_name": client.name,
            "redirect_uris": list(client.redirect_uris),
            "grant_types": list(client.grant_types),
            "response_types": ["code"] if client.uses_redirects else [],
            "token_endpoint_auth_method": client.auth_method,
        }
        if self.secret is not None:
            body |= {"client_secret": self.secret, "client_secret_expires_at": 0}
        return body


def is_document_url(client_id: str) -> bool:
    """Return whether a client id is the URL of a client metadata document."""
    return client_id.startswith("https://")


# Client metadata


def parse_registration(body: Mapping[str, Any]) -> Client:
    """Return the client of a registration request, without an id."""
    grants = _grant_types(body)
    uris = _redirect_uris(body.get("redirect_uris"), grants)
    method = body.get("token_endpoint_auth_method")
    method = "none" if method is None else method
    if method not in AUTH_METHODS:
        raise _bad_metadata(f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}.")
    return Client("", _client_name(body.get("client_name"), uris), uris, method, grants)


def parse_client_document(url: str, document: object) -> Client:
    """Return the client that a metadata document describes."""
    if not isinstance(document, dict):
        raise _bad_metadata("The document is not a JSON object.")
    if document.get("client_id") != url:
        raise _bad_metadata("The document's client_id is not its own URL.")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise _bad_metadata("The document must not hold a secret.")
    offered = _text_list(document.get("token_endpoint_auth_methods_supported")) or []
    if "none" not in (*offered, document.get("token_endpoint_auth_method", "none")):
        # Some clients prefer private_key_jwt but also support `none`.
        raise _bad_metadata("The document must offer token_endpoint_auth_method none.")
    grants = _grant_types(document)
    uris = _redirect_uris(document.get("redirect_uris"), grants)
    return Client(url, _client_name(document.get("client_name"), uris), uris, grant_types=grants)


def check_document_url(url: str) -> None:
    """Refuse a URL that is not valid as a client id."""
    try:
        parse_target(url)
    except FetchRefused as error:
        raise _bad_metadata(
            f"The client_id is not a URL that can be fetched: {error.message}"
        ) from None
    path = urlsplit(url).path
    if len(url) > DOCUMENT_URL_CHARS or path in ("", "/"):
        raise _bad_metadata("The client_id must have a path, and at most 500 characters.")
    if {".", ".."} & set(path.lower().replace("%2e", ".").split("/")):
        raise _bad_metadata("The client_id's path must not have dot segments.")


def _redirect_uris(value: object, grants: tuple[str, ...]) -> tuple[str, ...]:
    if "authorization_code" not in grants:
        return ()  # redirect URIs of clients with other grants only are ignored
    uris = _text_list(value)
    if uris is None or not 1 <= len(uris) <= MOST_REDIRECTS:
        raise OAuthError(
            "invalid_redirect_uri", f"redirect_uris must be a list of 1 to {MOST_REDIRECTS} URLs."
        )
    for position, uri in enumerate(uris, 1):
        try:
            parse_redirect(uri)
        except BadRedirect as error:
            raise OAuthError(
                "invalid_redirect_uri", f"Redirect URI number {position} is refused: {error}."
            ) from None
    return tuple(dict.fromkeys(uris))


def _grant_types(body: Mapping[str, Any]) -> tuple[str, ...]:
    asked = _text_list(body.get("grant_types", list(USUAL_GRANT_TYPES))) or []
    if "authorization_code" not in asked and DEVICE_CODE not in asked:
        raise _bad_metadata(f"grant_types must include authorization_code or {DEVICE_CODE}.")
    responses = _text_list(body.get("response_types", ["code"]))
    if responses is None or ("authorization_code" in asked and "code" not in responses):
        raise _bad_metadata("response_types must include code.")
    return tuple(kind for kind in GRANT_TYPES if kind in asked)


def _client_name(value: object, uris: tuple[str, ...]) -> str:
    if value is not None and not isinstance(value, str):
        raise _bad_metadata("client_name must be a string.")
    host = parse_redirect(uris[0]).host if uris else ""
    return clean_name(value or "") or host or "An unnamed program"


def clean_name(name: str) -> str:
    """Return a name as one line, without invisible or bidirectional control characters."""
    visible = (
        " " if unicodedata.category(sign)[0] in "CZ" else sign
        for sign in unicodedata.normalize("NFC", name[: 4 * NAME_CHARS])
    )
    return " ".join("".join(visible).split())[:NAME_CHARS].strip()


def _text_list(value: object) -> list[str] | None:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        return None
    return value


def _bad_metadata(message: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", message)


# Registered clients


class Clients:
    """The registered clients of a data directory. Methods block; threads may share an instance."""

    def __init__(self, store: Store, mac_rows: MacRows, *, most: int = MOST_CLIENTS) -> None:
        self._store = store
        self._mac_rows = mac_rows
        self._most = most

    def register(self, described: Client) -> NewClient:
        """Store a client under a new id."""
        secret = None if described.auth_method == "none" else f"csc_{secrets.token_urlsafe(32)}"
        client = replace(
            described,
            id=f"cid_{uuid.uuid4()}",
            secret=None if secret is None else token_digest(secret),
        )
        at = now()
        metadata = json.dumps({name: getattr(client, name) for name in _METADATA})
        with self._store.maintain() as rows:
            self._make_room(rows, at)
            self._mac_rows.put(
                rows, "oauth_clients", id=client.id, secret=client.secret, metadata=metadata,
                created_at=at, used_at=0,
            )  # fmt: skip
        return NewClient(client, secret, at)

    def _make_room(self, rows: Rows, at: int) -> None:
        stored.delete_unused_clients(rows, at - UNUSED_SECONDS * SECOND)
        stored.delete_idle_clients(rows, at - IDLE_SECONDS * SECOND)
        if stored.count_clients(rows) >= self._most:
            stored.delete_unused_clients(rows, at - UNUSED_SECONDS_WHEN_FULL * SECOND)
        if stored.count_clients(rows) >= self._most:
            raise OAuthError(
                "temporarily_unavailable",
                "Too many clients are registered.",
                status=503,
                retry_after=UNUSED_SECONDS_WHEN_FULL,
            )

    def find(self, client_id: str) -> Client | None:
        """Return the client with this id."""
        with self._store.read() as rows:
            row = self._mac_rows.get(rows, "oauth_clients", client_id)
        if row is None:
            return None
        metadata = json.loads(row["metadata"])
        for name in ("redirect_uris", "grant_types"):
            metadata[name] = tuple(metadata[name])
        return Client(id=row["id"], secret=row["secret"], **metadata)

    def record_use(self, rows: Rows, client_id: str) -> None:
        """Record that a person has allowed the client; unused clients are deleted."""
        row = self._mac_rows.get(rows, "oauth_clients", client_id)
        if row is not None:
            self._mac_rows.put(rows, "oauth_clients", row, used_at=now())


# Clients with a metadata document


class ClientDocuments:
    """A cache of clients by the URL of their metadata document. Use it on the event loop only."""

    def __init__(self, fetcher: Fetcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._cache: OrderedDict[str, tuple[float, Client | OAuthError]] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[Client | OAuthError]] = {}

    def knows(self, url: str) -> bool:
        """Return whether the document is in the cache, or is being fetched."""
        cached = self._cache.get(url)
        return (cached is not None and cached[0] > self._clock()) or url in self._under_way

    async def find(self, url: str) -> Client:
        """Return the client whose metadata document is at a URL."""
        check_document_url(url)
        cached = self._cache.get(url)
        if cached is not None and cached[0] > self._clock():
            found = cached[1]
        else:
            if url not in self._under_way:
                if len(self._under_way) >= FETCHES_AT_ONCE:
                    raise PageError(
                        "temporarily_unavailable",
                        "Too many clients are being looked up.",
                        status=503,
                    )
                task = asyncio.create_task(self._fetch(url))
                self._under_way[url] = task
                task.add_done_callback(lambda _: self._under_way.pop(url, None))
            found = await asyncio.shield(self._under_way[url])
        if isinstance(found, OAuthError):
            raise OAuthError(found.error, found.message)
        return found

    async def _fetch(self, url: str) -> Client | OAuthError:
        found: Client | OAuthError
        try:
            answer = await self._fetcher.fetch(
                url,
                headers={"Accept": "application/json"},
                most_bytes=DOCUMENT_BYTES,
                seconds=DOCUMENT_SECONDS,
                redirects=0,
            )
            found, seconds = (
                parse_client_document(url, _json_document(answer)),
                seconds_to_cache(answer.headers),
            )
        except FetchRefused as error:
            found = _bad_metadata(f"The client's document could not be fetched: {error.message}")
            seconds = FAILURE_SECONDS
        except OAuthError as error:
            found, seconds = error, FAILURE_SECONDS
        self._cache[url] = (self._clock() + seconds, found)
        self._cache.move_to_end(url)
        if len(self._cache) > MOST_CACHED_DOCUMENTS:
            self._cache.popitem(last=False)
        return found


def _json_document(answer: FetchResponse) -> object:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if answer.status != 200 or not _JSON.fullmatch(kind):
        raise _bad_metadata("The client's URL does not return a JSON document.")
    try:
        return json.loads(answer.body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _bad_metadata("The client's document is not valid JSON.") from None


def seconds_to_cache(headers: Mapping[str, str]) -> float:
    """Return how many seconds to cache a document, by its headers and within fixed limits."""
    control = headers.get("cache-control", "").lower()
    if "no-store" in control or "no-cache" in control:
        return LEAST_FRESH_SECONDS
    match = _MAX_AGE.search(control)
    if match is None:
        return USUAL_FRESH_SECONDS
    age = headers.get("age", "0")
    left = int(match[1]) - (int(age) if age.isdecimal() and len(age) < 10 else 0)
    return min(max(float(left), LEAST_FRESH_SECONDS), MOST_FRESH_SECONDS)
