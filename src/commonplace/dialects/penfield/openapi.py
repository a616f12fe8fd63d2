"""What the OpenAPI document says of an endpoint, made of the row that also runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from commonplace.dialects.contract import Schema
from commonplace.dialects.penfield.operations import Endpoint
from commonplace.dialects.tool_schemas import OBJECT, gives

# What any endpoint can answer with: at the door, in the gate, or because of its arguments.
COMMON = {
    400: "Malformed",
    401: "Not signed in",
    403: "Not permitted",
    404: "Not found",
    405: "Another method is needed",
    413: "Too large",
    415: "Another content type is needed",
    422: "Not valid",
    429: "Too many requests",
    503: "Not available",
}
OTHERS = {409: "Exists already", 501: "Not implemented", 507: "No room"}
META = gives(
    timestamp={"type": "string"}, version={"type": "string"}, request_id={"type": "string"}
)
ERROR = gives(
    status={"type": "string", "enum": ["error"]},
    error=gives(
        code={"type": "string"}, message={"type": "string"}, details=OBJECT, field_errors=OBJECT
    ),
    meta=META,
)


def description(endpoint: Endpoint) -> dict[str, Any]:
    """The options of the route."""
    return {
        "summary": endpoint.does,
        "tags": [endpoint.path.split("/")[1]],
        "operation_id": endpoint.operation,
        "responses": _responses(endpoint),
        "openapi_extra": _taken(endpoint),
    }


def _responses(endpoint: Endpoint) -> dict[int | str, dict[str, Any]]:
    told: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*COMMON, *endpoint.errors}):
        said = COMMON.get(status) or OTHERS[status]
        told[status] = {"description": said, "content": _json(ERROR)}
    if endpoint.status == 204:
        told[204] = {"description": "Done"}
    elif endpoint.operation == "download_document":
        told[200] = {"description": "The file", "content": {"*/*": {}}}
    else:
        whole = gives(status={"type": "string", "enum": ["success"]}, data=endpoint.data or {},
                      meta=META)  # fmt: skip
        told[endpoint.status] = {"description": "Done", "content": _json(whole)}
    return told


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _taken(endpoint: Endpoint) -> dict[str, Any]:
    """Parameters and the body."""
    properties: Mapping[str, Schema] = endpoint.input["properties"]
    required = set(endpoint.input.get("required", ()))
    in_path = re.findall(r"{(\w+)}", endpoint.path)
    outside = {inside: name for name, inside in endpoint.names}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties[name]}
        for name in in_path
    ]
    rest = {name: schema for name, schema in properties.items() if name not in in_path}
    if endpoint.method in ("GET", "DELETE"):
        parameters += [
            {"name": outside.get(name, name), "in": "query", "required": name in required,
             "schema": schema}
            for name, schema in rest.items()
        ]  # fmt: skip
        return {"parameters": parameters}
    needed = sorted(required & rest.keys())
    body: dict[str, Any] = {"type": "object", "properties": rest}
    if needed:
        body["required"] = needed
    taken: dict[str, Any] = {"parameters": parameters}
    if endpoint.operation == "create_relationships":
        taken["requestBody"] = _body(rest["relationships"])
    elif endpoint.operation == "upload_document":
        form = {
            "type": "object",
            "properties": {
                "file": {"type": "string", "format": "binary"},
                "metadata": {"type": "string", "description": "A JSON object."},
            },
            "required": ["file"],
        }
        taken["requestBody"] = {
            "required": True,
            "content": {"multipart/form-data": {"schema": form}},
        }
    elif rest:
        taken["requestBody"] = _body(body, required=bool(needed))
    return taken


def _body(schema: Schema, *, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": _json(schema)}
