"""Requests and responses other than plain JSON objects, and the format of responses and errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request

from commonplace.access.caller import Session
from commonplace.dialects import binary
from commonplace.dialects.contract import Schema, TooManyCalls
from commonplace.dialects.penfield.failures import (
    Failure,
    Invalid,
    codes_of,
    error_body,
    response_meta,
)
from commonplace.dialects.rest import Exchange, Rejected, Reply
from commonplace.errors import CommonplaceError, InvalidInput

FORM_PART_BYTES = 1024 * 1024
_TOP_LEVEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Required(Invalid, rest="VAL_FIELD_REQUIRED"):
    """A required field is missing."""


async def relationship_list_arguments(exchange: Exchange) -> dict[str, Any]:
    """Return the arguments of a request whose body is a list of relationships."""
    return {"relationships": await exchange.json_body(list)}


async def open_session(exchange: Exchange) -> Reply:
    """Exchange an API key for tokens."""
    return _session_reply(exchange, await exchange.open_session())


async def renew_session(exchange: Exchange) -> Reply:
    """Exchange a refresh token for new tokens."""
    token = (await exchange.json_body()).get("refresh_token")
    if not isinstance(token, str):
        wrong = _Required if token is None else Invalid
        message = "refresh_token is required." if token is None else "refresh_token must be text."
        raise wrong(message, field="refresh_token", details={"field": "refresh_token"})
    return _session_reply(exchange, await exchange.renew_session(token))


def _session_reply(exchange: Exchange, session: Session) -> Reply:
    data = {
        "access_token": session.access_token,
        "token_type": "Bearer",
        "expires_in": session.expires_in,
        "tenant_id": session.tenant,
        "refresh_token": session.refresh_token,
    }
    return Reply(format_result(exchange, data))


async def upload(exchange: Exchange) -> Reply:
    """Store the file of a multipart form."""
    request = exchange.request
    assert isinstance(request, Request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise Rejected(415, "CONTENT_TYPE", "The body must be multipart/form-data.")
    async with request.form(max_files=1, max_fields=10, max_part_size=FORM_PART_BYTES) as form:
        file, about = form.get("file"), form.get("metadata")
        if not isinstance(file, UploadFile):
            raise _Required("file is required.", field="file", details={"field": "file"})
        data = await file.read()
        arguments: dict[str, Any] = {"filename": file.filename or ""}
    if isinstance(about, str) and about.strip():
        arguments["metadata"] = await _parse_metadata(exchange, about)
    # Without the file's content, which error messages must not contain.
    exchange.arguments |= arguments
    encoded = await asyncio.to_thread(binary.encode, data)
    value = await exchange.perform({**arguments, "data": encoded})
    return Reply(format_result(exchange, value), exchange.route.status)


async def _parse_metadata(exchange: Exchange, text: str) -> dict[str, Any]:
    try:
        value = await exchange.parse_json(text)
    except InvalidInput:
        value = None
    if not isinstance(value, dict):
        raise Invalid("metadata must be a JSON object.", field="metadata")
    return value


async def download(exchange: Exchange) -> Reply:
    """Send a file as a download, never inline, because it may be an untrusted page."""
    exchange.arguments |= await exchange.request_arguments()
    value = await exchange.perform(exchange.arguments)
    data = await asyncio.to_thread(binary.decode, value["data"])
    name = value["filename"]
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return Reply(
        data,
        media_type=value["content_type"],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''"
            + quote(name, safe=""),
            "content-security-policy": "sandbox; default-src 'none'",
            "x-content-type-options": "nosniff",
        },
    )


def format_result(exchange: Exchange, data: Any) -> dict[str, Any]:
    """Return the body of a successful response."""
    return {"status": "success", "data": data, "meta": response_meta(exchange.request_id)}


def format_error(exchange: Exchange, error: CommonplaceError) -> Reply:
    """Return the REST error response for an error."""
    _, code, status = codes_of(error)
    details: dict[str, Any] = dict(error.details) if isinstance(error, Failure) else {}
    if isinstance(error, TooManyCalls):
        details = {"limit": error.limit, "retry_after": error.wait}
    fields = {error.field: [str(error)]} if error.field and status in (400, 413, 422) else {}
    if status == 422 and type(error) is InvalidInput:
        code, details = _argument_error(exchange.input, exchange.arguments, error)
    if exchange.route.operation == "open_session" and status == 401:
        code = "AUTH_INVALID_CREDENTIALS"
    return Reply(error_body(code, str(error), exchange.request_id, details, fields), status)


def _argument_error(
    taken: Schema, arguments: Mapping[str, Any], error: CommonplaceError
) -> tuple[str, dict[str, Any]]:
    """Return the contract's error code and details for an invalid argument."""
    field = error.field or ""
    top = _TOP_LEVEL.match(field)
    schema = taken["properties"].get(top[0]) if top else None
    if top is None or schema is None:
        return "VAL_VALIDATION_FAILED", {}
    name = top[0]
    if name not in arguments:
        return "VAL_FIELD_REQUIRED", {"field": name}
    if field != name:
        return "VAL_VALIDATION_FAILED", {"field": field}
    value = arguments[name]
    if isinstance(value, str):
        most = schema.get("maxLength")
        if most is not None and len(value) > most:
            return "VAL_FIELD_TOO_LONG", {
                "field": name, "max_length": most, "actual_length": len(value),
            }  # fmt: skip
        if schema.get("format") == "uuid":
            return "VAL_UUID_INVALID", {"field": name}
    if "enum" in schema:
        return "VAL_ENUM_INVALID", {"field": name, "allowed": schema["enum"]}
    return "VAL_FIELD_INVALID", {"field": name}
