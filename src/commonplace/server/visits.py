"""A request in the door: its headers, and what is known of it so far."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import Scope

from commonplace.access.caller import Caller, request_id
from commonplace.access.declarations import OURS
from commonplace.access.rates import block_of
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.errors import CommonplaceError
from commonplace.server.paths import Entrance
from commonplace.server.protocol import named
from commonplace.server.refusals import Called

# What proxies add to the requests that they forward, beside X-Forwarded-*.
FORWARDED = frozenset((
    b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"x-original-host",
    b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip", b"fly-client-ip", b"cdn-loop",
    b"x-envoy-external-address", b"x-original-forwarded-for",
))  # fmt: skip
RECHECK = "commonplace.recheck"  # scope key: recognises the credential again
HANDED_ON = ("x-conversation-id", "x-llm-api-key")  # headers that contracts go by
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Visit:
    """A request in the door."""

    def __init__(self, scope: Scope, entrance: Entrance, address: str) -> None:
        self.scope = scope
        self.entrance = entrance
        self.method: str = scope.get("method", "GET")
        self.status = 0
        self.ours = False
        """Whether its Host and Origin are allowed."""
        self.message: Any = None
        self.calls: list[dict[str, Any]] | None = None
        """The calls of an MCP message; None until the body is read, or if it cannot be."""
        self.buffered = 0
        """Bytes of its body that are held in memory."""
        self.caller: Caller | None = None
        self.cookie = ""
        """The session cookie that the caller was known by."""
        self.refused: CommonplaceError | None = None
        self.audited: list[str] = []
        """Audit entries already written for this request, by the door or by what is behind it."""
        self.address = address
        self.sender = block_of(address)
        given = self.header("x-request-id")
        self.id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

    def header(self, name: str) -> str:
        """The header's value; empty when it is missing."""
        wanted = name.encode()
        for key, value in self.scope["headers"]:
            if key == wanted:
                found: str = value.decode("latin-1")
                return found
        return ""

    def given(self) -> list[bytes]:
        """Its Authorization headers, or the token that a WebSocket may bring in the query."""
        found = [value for key, value in self.scope["headers"] if key == b"authorization"]
        if not found and self.scope["type"] == "websocket":
            token = self.query("token")
            forms = self.entrance.dialect.tokens if self.entrance.dialect is not None else OURS
            if forms.in_websocket_query and token.startswith(forms.personal.prefix):
                found = [b"Bearer " + token.encode("latin-1", "replace")]
        return found

    def as_documented(self) -> None:
        """Answer an unknown caller in the dialect that the path is documented for."""
        if self.entrance.of_subjects is not None:
            self.entrance = replace(self.entrance, dialect=self.entrance.of_subjects)

    @property
    def forwarded(self) -> bool:
        """Whether a proxy has sent it on."""
        return any(
            name in FORWARDED or name.startswith(b"x-forwarded-")
            for name, _ in self.scope["headers"]
        )

    @property
    def known_method(self) -> str:
        """The method, or `other` for an unknown one."""
        return self.method if self.method in METHODS else "other"

    @property
    def request(self) -> str:
        """The method and the route."""
        return f"{self.known_method} {self.entrance.route}"

    def called(self) -> list[Called]:
        """The called tools with their arguments; the route itself if no tool is known."""
        if not self.entrance.mcp:
            return [(self.request, {})]
        if self.calls is None:
            return [(self.request, {})] if self.method == "POST" else []
        return [named(call.get("params")) for call in self.calls]

    def request_info(self) -> RequestInfo:
        """The request's data for the origin and the audit."""
        return RequestInfo(
            request=self.id,
            client=self.header("user-agent")[:200],
            session=self.header("mcp-session-id")[:200],
            address=self.address,
            idempotency_key=self.header("idempotency-key"),
            headers={name: value for name in HANDED_ON if (value := self.header(name))},
        )

    def query(self, name: str) -> str:
        """A query parameter; empty when it is missing."""
        return next((value for key, value in self._query() if key == name), "")

    def _query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def named(self) -> list[str]:
        """The subjects named by the path and the query."""
        entrance = self.entrance
        spoken = entrance.of_subjects or entrance.dialect
        if not entrance.mcp or spoken is None or spoken.subject is None:
            return []
        parameter = spoken.subject.parameter
        asked = [value for name, value in self._query() if name == parameter]
        return [entrance.named, *asked] if entrance.named else asked

    def as_subject(self, caller: Caller) -> bool:
        """Whether a credential is for a subject, or for the dialect that has them."""
        spoken = self.entrance.of_subjects or self.entrance.dialect
        return bool(caller.subject) or (
            spoken is not None
            and spoken.subject is not None
            and caller.dialects is not None
            and spoken.name in caller.dialects
        )


def refusal(status: int, code: str, message: str, dialect: Dialect | None) -> Response:
    """The answer to a request that is refused before the gate, in the dialect's own format."""
    request = request_id.get()
    if dialect is not None and dialect.refuse is not None:
        body = dialect.refuse(status, code, message, request)
    else:
        body = {"error": {"code": code, "message": message, "request": request}}
    if isinstance(body, str):
        return Response(body, status, media_type="text/plain")
    return Response(json.dumps(body), status, media_type="application/json")
