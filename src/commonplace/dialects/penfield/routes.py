"""The REST endpoints as a FastAPI application; loaded by the HTTP server alone."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount

from commonplace.access.caller import NotPermitted, Session
from commonplace.dialects.contract import Rest
from commonplace.dialects.penfield.failures import (
    VERSION,
    Failure,
    Invalid,
    error_body,
    meta,
    named,
)
from commonplace.dialects.penfield.openapi import description
from commonplace.dialects.penfield.operations import ENDPOINTS, Endpoint
from commonplace.dialects.penfield.rates import Left, Minutes
from commonplace.errors import CommonplaceError, InvalidInput

REFRESH_BYTES = 16_384  # nobody has been let in yet when this body is read
_TOP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,3})?")
_WHOLE = re.compile(r"-?\d{1,18}")
_STATUS_CODES = {404: "RES_NOT_FOUND", 405: "VAL_VALIDATION_FAILED"}
_SAYS = {
    404: "There is no such endpoint; see GET /api/v2/openapi.json.",
    405: "This endpoint has another method; see GET /api/v2/openapi.json.",
}

Answering = Callable[[Request], Awaitable[Response]]


def routes(rest: Rest) -> list[BaseRoute]:
    """Everything under /api/v2."""
    return [Mount("/api/v2", _application(rest))]


def _application(rest: Rest) -> FastAPI:
    minutes = rest.pace
    if not isinstance(minutes, Minutes):
        raise TypeError("the REST endpoints are counted together with the tools")
    app = FastAPI(
        title="Penfield API",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    for endpoint in ENDPOINTS:
        app.add_api_route(
            endpoint.path,
            _limited(rest, minutes, endpoint),
            methods=[endpoint.method],
            status_code=endpoint.status,
            response_class=Response,
            response_model=None,
            name=endpoint.operation,
            **description(endpoint),
        )

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        says = str(error.detail) if isinstance(error, HTTPException) else "Something went wrong."
        says = _SAYS.get(status, says)
        code = _STATUS_CODES.get(status, "VAL_VALIDATION_FAILED" if status < 500 else
                                 "SYS_INTERNAL_ERROR")  # fmt: skip
        headers = getattr(error, "headers", None)
        return JSONResponse(error_body(code, says, rest.request_id(request)), status, headers)

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, refused)
    return app


def _limited(rest: Rest, minutes: Minutes, endpoint: Endpoint) -> Answering:
    """The endpoint, within its tenant's rate, whatever comes of it."""
    answering = _SPECIAL.get(endpoint.operation, _ordinary)
    public = endpoint.operation == "renew_session"

    async def answer(request: Request) -> Response:
        host = request.client.host if request.client else ""
        left = minutes.take(f"address {host}" if public else rest.caller(request).space)
        if left.wait:
            return _too_many(rest, request, left)
        arguments: dict[str, Any] = {}
        try:
            response = await answering(rest, request, endpoint, arguments)
        except CommonplaceError as error:
            response = _failed(rest, request, endpoint, arguments, error)
        response.headers.update(left.headers())
        return response

    return answer


def _too_many(rest: Rest, request: Request, left: Left) -> Response:
    body = error_body(
        "BIZ_RATE_LIMIT_EXCEEDED",
        left.message,
        rest.request_id(request),
        {"limit": left.limit, "retry_after": left.wait},
    )
    return JSONResponse(body, 429, left.headers())


# --- answering ----------------------------------------------------------------------------------


async def _ordinary(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    arguments |= _from_address(request, endpoint)
    if endpoint.method in ("POST", "PUT", "PATCH"):
        arguments |= _known(_body(rest, request), endpoint)
    value = await rest.perform(request, endpoint.operation, arguments)
    return _succeeded(rest, request, endpoint, value)


async def _bulk(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    """The body is the list itself."""
    arguments["relationships"] = _body(rest, request, list)
    value = await rest.perform(request, endpoint.operation, arguments)
    return _succeeded(rest, request, endpoint, value)


async def _open(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    del arguments
    return _session(rest, request, await rest.open_session(request, endpoint.operation))


async def _renew(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    arguments |= _known(_parsed(await _little(request), dict), endpoint)
    token = arguments.get("refresh_token")
    if not isinstance(token, str):
        raise InvalidInput("refresh_token is required.", field="refresh_token")
    return _session(rest, request, await rest.renew_session(request, endpoint.operation, token))


def _session(rest: Rest, request: Request, session: Session) -> Response:
    data = {
        "access_token": session.access_token,
        "token_type": "Bearer",
        "expires_in": session.expires_in,
        "tenant_id": session.tenant,
        "refresh_token": session.refresh_token,
    }
    return JSONResponse(_enveloped(rest, request, data))


async def _upload(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise HTTPException(415, "The body must be multipart/form-data.")
    async with request.form(max_files=1, max_fields=10, max_part_size=1_048_576) as form:
        file, about = form.get("file"), form.get("metadata")
        if not isinstance(file, UploadFile):
            raise InvalidInput("file is required.", field="file")
        data = await file.read()
        given: dict[str, Any] = {"filename": file.filename or ""}
    if isinstance(about, str) and about.strip():
        try:
            given["metadata"] = _parsed(about.encode(), dict)
        except (InvalidInput, UnicodeEncodeError):
            raise Invalid("metadata must be a JSON object.", field="metadata") from None
    arguments |= given  # not the file, which no error shall repeat
    value = await rest.perform(
        request, endpoint.operation, {**given, "data": base64.b64encode(data).decode()}
    )
    return _succeeded(rest, request, endpoint, value)


async def _download(
    rest: Rest, request: Request, endpoint: Endpoint, arguments: dict[str, Any]
) -> Response:
    """A file, to be saved and never shown: it may be a page that somebody else wrote."""
    arguments |= _from_address(request, endpoint)
    value = await rest.perform(request, endpoint.operation, arguments)
    name = value["filename"]
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return Response(
        base64.b64decode(value["data"]),
        media_type=value["content_type"],
        headers={
            "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''"
            + quote(name, safe=""),
            "content-security-policy": "sandbox; default-src 'none'",
            "x-content-type-options": "nosniff",
        },
    )


_SPECIAL = {
    "open_session": _open,
    "renew_session": _renew,
    "create_relationships": _bulk,
    "upload_document": _upload,
    "download_document": _download,
}


def _enveloped(rest: Rest, request: Request, data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data, "meta": meta(rest.request_id(request))}


def _succeeded(rest: Rest, request: Request, endpoint: Endpoint, value: Any) -> Response:
    if endpoint.status == 204:
        return Response(status_code=204)
    return JSONResponse(_enveloped(rest, request, value), endpoint.status)


# --- what came in -------------------------------------------------------------------------------


def _from_address(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """Arguments of the path and, where there is no body, of the query, in their types."""
    inside = dict(endpoint.names)
    properties: Mapping[str, Any] = endpoint.input["properties"]
    found: dict[str, Any] = dict(request.path_params)
    if endpoint.method in ("GET", "DELETE"):
        for name, value in request.query_params.multi_items():
            meant = inside.get(name, name)
            if meant in properties and meant not in request.path_params:
                found[meant] = _typed(value, properties[meant].get("type"))
    return found


def _typed(text: str, kind: Any) -> Any:
    """A text of a query as the type that is wanted; as it is if it cannot be one."""
    if kind == "integer" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean" and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    return text


def _body(rest: Rest, request: Request, wanted: type = dict) -> Any:
    try:
        value = rest.json(request, {}) if wanted is dict else rest.json(request)
    except ValueError:
        raise InvalidInput("The body is not valid JSON.") from None
    return _checked(value, wanted)


async def _little(request: Request) -> bytes:
    """A body of somebody whom nobody knows."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > REFRESH_BYTES:
            raise HTTPException(413, f"The body is larger than {REFRESH_BYTES:,} bytes.")
        parts.append(part)
    return b"".join(parts)


def _parsed(body: bytes, wanted: type) -> Any:
    if not body and wanted is dict:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInput("The body is not valid JSON.") from None
    return _checked(value, wanted)


def _checked(value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        raise InvalidInput(f"The body must be a JSON {'list' if wanted is list else 'object'}.")
    return value


def _known(body: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """What the endpoint takes; other names are let pass, as the contract's own server does."""
    in_path = set(re.findall(r"{(\w+)}", endpoint.path))
    names = endpoint.input["properties"].keys() - in_path
    return {name: value for name, value in body.items() if name in names}


# --- what went wrong ----------------------------------------------------------------------------


def _failed(
    rest: Rest,
    request: Request,
    endpoint: Endpoint,
    arguments: Mapping[str, Any],
    error: CommonplaceError,
) -> Response:
    _, code, status = named(error)
    details: dict[str, Any] = dict(error.details) if isinstance(error, Failure) else {}
    fields = {error.field: [str(error)]} if error.field and status in (400, 413, 422) else {}
    if status == 422 and type(error) is InvalidInput:
        code, details = verdict(endpoint, arguments, error)
    if endpoint.operation == "open_session" and status == 401:
        code = "AUTH_INVALID_CREDENTIALS"
    body = error_body(code, str(error), rest.request_id(request), details, fields)
    headers = {}
    if isinstance(error, NotPermitted):
        headers["www-authenticate"] = f'Bearer error="insufficient_scope", scope="{endpoint.scope}"'
    return JSONResponse(body, status, headers)


def verdict(
    endpoint: Endpoint, arguments: Mapping[str, Any], error: CommonplaceError
) -> tuple[str, dict[str, Any]]:
    """The contract's code for an argument that was refused, with what it says of it."""
    field = error.field or ""
    top = _TOP.match(field)
    schema = endpoint.input["properties"].get(top[0]) if top else None
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
