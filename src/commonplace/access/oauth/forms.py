"""Reads form and JSON bodies of limited size, in which every parameter occurs at most once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from commonplace.access.oauth.errors import OAuthError, invalid_request

MOST_BYTES = 16 * 1024
MOST_QUERY_CHARS = 8 * 1024
MOST_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie that browsers send only with requests from pages of this server
    (SameSite=Strict)."""

    base: str
    seconds: int
    secure: bool
    """Whether clients reach the server over https."""

    @property
    def name(self) -> str:
        """The cookie's name; its `__Host-` prefix makes browsers accept it from this host over
        https only."""
        return f"__Host-{self.base}" if self.secure else self.base

    def set(self, response: Response, value: str) -> Response:
        """Set the cookie with a response."""
        response.set_cookie(
            self.name, value, self.seconds, secure=self.secure, httponly=True, samesite="strict"
        )
        return response

    def delete(self, response: Response) -> Response:
        """Delete the cookie with a response."""
        response.delete_cookie(self.name, secure=self.secure, httponly=True, samesite="strict")
        return response


def parse_parameters(text: str, *, joined: str = "") -> dict[str, str]:
    """Return the parameters of a query or form. Empty ones count as missing (RFC 6749, 3.1).

    Repeated parameters are refused, except the one named `joined`, whose values are joined by a
    space.
    """
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict"
        )
    except (ValueError, UnicodeDecodeError):
        raise invalid_request("The parameters are not valid.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if "\0" in value:
            raise invalid_request("The parameters are not valid.")
        if name in found and name != joined:
            raise invalid_request("A parameter is given more than once.")
        found[name] = f"{found[name]} {value}" if name in found else value
    return {name: value for name, value in found.items() if value}


async def read_form(request: Request) -> dict[str, str]:
    """Return the parameters of a form body."""
    if _media_type(request) != "application/x-www-form-urlencoded":
        raise invalid_request("The body must be application/x-www-form-urlencoded.")
    body = await _read_body(request)
    try:
        return parse_parameters(body.decode("ascii"))
    except UnicodeDecodeError:
        raise invalid_request("The parameters are not valid.") from None


async def read_json(request: Request) -> dict[str, Any]:
    """Return the object in a JSON body."""
    if _media_type(request) != "application/json":
        raise invalid_request("The body must be application/json.")
    body = await _read_body(request)
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_refuse_repeated_keys)
    except (ValueError, RecursionError):
        raise invalid_request("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise invalid_request("The body must be a JSON object.")
    return value


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _media_type(request: Request) -> str:
    kinds = request.headers.getlist("content-type")
    return kinds[0].partition(";")[0].strip().lower() if len(kinds) == 1 else ""


async def _read_body(request: Request) -> bytes:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise invalid_request("The body must not be compressed.")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise OAuthError(
                    "invalid_request", f"The body is larger than {MOST_BYTES:,} bytes.", status=413
                )
    except ClientDisconnect:
        raise invalid_request("The body is incomplete.") from None
    return bytes(body)
