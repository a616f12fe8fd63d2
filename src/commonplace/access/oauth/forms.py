"""Reads form and JSON bodies: limited in size, every parameter at most once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from commonplace.access.oauth.errors import OAuthError, invalid_request

MOST_BYTES = 16 * 1024
MOST_QUERY = 8 * 1024
MOST_PARAMETERS = 64


class Repeated(OAuthError):
    """A parameter is given more than once."""

    def __init__(self, names: set[str], parameters: Mapping[str, str]) -> None:
        super().__init__("invalid_request", "A parameter is given more than once.")
        self.names = names
        self.parameters = parameters


def parse(text: str) -> dict[str, str]:
    """The parameters of a query or form. Empty ones count as not given (RFC 6749, 3.1)."""
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            max_num_fields=MOST_PARAMETERS,
            errors="strict",
        )
    except (ValueError, UnicodeDecodeError):
        raise invalid_request("The parameters are not valid.") from None
    found: dict[str, str] = {}
    repeated: set[str] = set()
    for name, value in pairs:
        if name in found:
            repeated.add(name)
        found[name] = value
    if any("\0" in value for value in found.values()):
        raise invalid_request("The parameters are not valid.")
    given = {name: value for name, value in found.items() if value}
    if repeated:
        raise Repeated(repeated, given)
    return given


async def read_form(request: Request) -> dict[str, str]:
    """The parameters of a form body."""
    if _kind(request) != "application/x-www-form-urlencoded":
        raise invalid_request("The body must be application/x-www-form-urlencoded.")
    body = await _body(request)
    try:
        return parse(body.decode("ascii"))
    except UnicodeDecodeError:
        raise invalid_request("The parameters are not valid.") from None


async def read_json(request: Request) -> dict[str, Any]:
    """The object in a JSON body."""
    if _kind(request) != "application/json":
        raise invalid_request("The body must be application/json.")
    body = await _body(request)
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise invalid_request("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise invalid_request("The body must be a JSON object.")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is there twice")
    return value


def _kind(request: Request) -> str:
    kinds = request.headers.getlist("content-type")
    return kinds[0].partition(";")[0].strip().lower() if len(kinds) == 1 else ""


async def _body(request: Request) -> bytes:
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
        raise invalid_request("The body was not sent completely.") from None
    return bytes(body)
