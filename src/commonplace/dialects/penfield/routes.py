"""The REST endpoints, under /api/v2."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request

from commonplace.access.caller import Session
from commonplace.dialects.contract import Schema, TooManyCalls
from commonplace.dialects.penfield.failures import (
    VERSION,
    Failure,
    Invalid,
    error_body,
    meta,
    named,
)
from commonplace.dialects.penfield.operations import ENDPOINTS, Endpoint
from commonplace.dialects.rest import (
    IGNORES_ALL,
    Exchange,
    OpenApi,
    Rejected,
    Reply,
    Rest,
    Route,
)
from commonplace.dialects.tool_schemas import OBJECT, gives
from commonplace.errors import CommonplaceError, InvalidInput

ROOT = "/api/v2"
MIB = 1024 * 1024
_TOP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INPUTS: Mapping[str, Schema] = {endpoint.operation: endpoint.input for endpoint in ENDPOINTS}
_META = gives(
    timestamp={"type": "string"}, version={"type": "string"}, request_id={"type": "string"}
)
_ERROR = gives(
    status={"type": "string", "enum": ["error"]},
    error=gives(
        code={"type": "string"}, message={"type": "string"}, details=OBJECT, field_errors=OBJECT
    ),
    meta=_META,
)


# --- what the rows cannot say -------------------------------------------------------------------


async def _links(exchange: Exchange) -> dict[str, Any]:
    """The body is the list itself."""
    return {"relationships": await exchange.json(list)}


async def _open(exchange: Exchange) -> Reply:
    return _session(exchange, await exchange.open_session())


async def _renew(exchange: Exchange) -> Reply:
    token = (await exchange.json()).get("refresh_token")
    if token is not None:
        exchange.arguments["refresh_token"] = token
    if not isinstance(token, str):
        raise InvalidInput("refresh_token is required.", field="refresh_token")
    return _session(exchange, await exchange.renew_session(token))


def _session(exchange: Exchange, session: Session) -> Reply:
    data = {
        "access_token": session.access_token,
        "token_type": "Bearer",
        "expires_in": session.expires_in,
        "tenant_id": session.tenant,
        "refresh_token": session.refresh_token,
    }
    return Reply(_succeed(exchange, data))


async def _upload(exchange: Exchange) -> Reply:
    request = exchange.request
    assert isinstance(request, Request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise Rejected(415, "CONTENT_TYPE", "The body must be multipart/form-data.")
    async with request.form(max_files=1, max_fields=10, max_part_size=MIB) as form:
        file, about = form.get("file"), form.get("metadata")
        if not isinstance(file, UploadFile):
            raise InvalidInput("file is required.", field="file")
        data = await file.read()
        given: dict[str, Any] = {"filename": file.filename or ""}
    if isinstance(about, str) and about.strip():
        given["metadata"] = _metadata(about)
    exchange.arguments |= given  # not the file, which no error shall repeat
    value = await exchange.perform({**given, "data": base64.b64encode(data).decode()})
    return Reply(_succeed(exchange, value), exchange.route.status)


def _metadata(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Invalid("metadata must be a JSON object.", field="metadata")
    return value


def _download(exchange: Exchange, value: Any) -> Reply:
    """A file, to be saved and never shown: it may be a page that somebody else wrote."""
    del exchange
    name = value["filename"]
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return Reply(
        base64.b64decode(value["data"]),
        media_type=value["content_type"],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''"
            + quote(name, safe=""),
            "content-security-policy": "sandbox; default-src 'none'",
            "x-content-type-options": "nosniff",
        },
    )


# --- the rows -----------------------------------------------------------------------------------


def _json(schema: Schema, *, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


_FORM = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "metadata": {"type": "string", "description": "A JSON object."},
    },
    "required": ["file"],
}
_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "open_session": {"answer": _open},
    "renew_session": {
        "answer": _renew,
        "public": True,
        "request_body": _json(
            {
                "type": "object",
                "properties": _INPUTS["renew_session"]["properties"],
                "required": ["refresh_token"],
            }
        ),
    },
    "create_relationships": {
        "read": _links,
        "request_body": _json(_INPUTS["create_relationships"]["properties"]["relationships"]),
    },
    "rest_save_artifact": {"body_bytes": 16 * MIB},
    "upload_document": {
        "answer": _upload,
        "uploads": 21 * MIB,
        "request_body": {
            "required": True,
            "content": {"multipart/form-data": {"schema": _FORM}},
        },
    },
    "download_document": {"show": _download, "media_type": "*/*"},
}


def _route(endpoint: Endpoint) -> Route:
    return Route(
        endpoint.method,
        ROOT + endpoint.path,
        endpoint.operation,
        endpoint.status,
        names=endpoint.names,
        summary=endpoint.does,
        data=endpoint.data,
        errors=endpoint.errors,
        **_SPECIAL.get(endpoint.operation, {}),
    )


def _succeed(exchange: Exchange, data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data, "meta": meta(exchange.request_id)}


# --- what went wrong ----------------------------------------------------------------------------


def _fail(exchange: Exchange, error: CommonplaceError) -> Reply:
    _, code, status = named(error)
    operation = exchange.route.operation
    details: dict[str, Any] = dict(error.details) if isinstance(error, Failure) else {}
    if isinstance(error, TooManyCalls):
        details = {"limit": error.limit, "retry_after": error.wait}
    fields = {error.field: [str(error)]} if error.field and status in (400, 413, 422) else {}
    if status == 422 and type(error) is InvalidInput:
        code, details = _verdict(_INPUTS[operation], exchange.arguments, error)
    if operation == "open_session" and status == 401:
        code = "AUTH_INVALID_CREDENTIALS"
    return Reply(error_body(code, str(error), exchange.request_id, details, fields), status)


def _verdict(
    taken: Schema, arguments: Mapping[str, Any], error: CommonplaceError
) -> tuple[str, dict[str, Any]]:
    """The contract's code for an argument that was refused, with what it says of it."""
    field = error.field or ""
    top = _TOP.match(field)
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


REST = Rest(
    routes=tuple(map(_route, ENDPOINTS)),
    roots=(ROOT,),
    ignores=IGNORES_ALL,
    succeed=_succeed,
    fail=_fail,
    openapi=OpenApi(
        path=f"{ROOT}/openapi.json",
        title="Penfield API",
        version=VERSION,
        error=_ERROR,
        envelope=lambda data: gives(
            status={"type": "string", "enum": ["success"]}, data=data, meta=_META
        ),
        statuses={
            400: "Malformed", 401: "Not signed in", 403: "Not permitted", 404: "Not found",
            405: "Another method is needed", 413: "Too large",
            415: "Another content type is needed", 422: "Not valid", 429: "Too many requests",
            503: "Not available",
        },
        other_statuses={409: "Exists already", 501: "Not implemented", 507: "No room"},
    ),
)  # fmt: skip
