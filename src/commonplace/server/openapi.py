"""Builds the OpenAPI document of a dialect from its declared routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from commonplace.dialects.contract import Dialect, Schema
from commonplace.dialects.rest import OpenApi, Rest, Route


def openapi_document(dialect: Dialect, rest: Rest, openapi: OpenApi) -> dict[str, Any]:
    """Return the document; paths are relative to the dialect's root if it has exactly one."""
    root = rest.roots[0] if len(rest.roots) == 1 else ""
    inputs = {tool.name: tool.input for tool in dialect.operations}
    paths: dict[str, dict[str, Any]] = {}
    told: Counter[str] = Counter()
    for route in openapi.routes or rest.routes:
        if route.method != "WEBSOCKET":
            for path in route.paths:
                described = _operation_object(route, inputs.get(route.operation, {}), openapi, root)
                told[route.operation] += 1
                if told[route.operation] > 1:  # OpenAPI ids must be unique
                    described["operationId"] += f"_{told[route.operation]}"
                paths.setdefault(path.removeprefix(root), {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": openapi.title, "version": openapi.version},
        "servers": [{"url": root or "/"}],
        "paths": paths,
    }


def _operation_object(route: Route, taken: Schema, openapi: OpenApi, root: str) -> dict[str, Any]:
    properties: Mapping[str, Schema] = taken.get("properties", {})
    required = set(taken.get("required", ()))
    in_path = re.findall(r"{(\w+)}", route.path)
    rest = {name: schema for name, schema in properties.items() if name not in in_path}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties[name]}
        for name in in_path
    ]
    described: dict[str, Any] = {
        "tags": [route.path.removeprefix(root).removeprefix("/api").split("/")[1]],
        "summary": route.summary,
        "operationId": route.operation,
        "parameters": parameters,
    }
    if route.method in ("GET", "DELETE"):
        outside = {inside: name for name, inside in route.names}
        parameters += [
            {"name": outside.get(name, name), "in": "query", "required": name in required,
             "schema": schema}
            for name, schema in rest.items()
        ]  # fmt: skip
    elif route.request_body is not None:
        described["requestBody"] = route.request_body
    elif rest:
        needed = sorted(required & rest.keys())
        body: dict[str, Any] = {"type": "object", "properties": rest}
        if needed:
            body["required"] = needed
        described["requestBody"] = {"required": bool(needed), "content": _json_content(body)}
    described["responses"] = _responses_object(route, openapi)
    return described


def _responses_object(route: Route, openapi: OpenApi) -> dict[str, Any]:
    words = {**openapi.other_statuses, **openapi.statuses}
    responses: dict[str, Any] = {
        str(status): {"description": words[status], "content": _json_content(openapi.error)}
        for status in sorted({*openapi.statuses, *route.errors})
    }
    if route.status == 204:
        responses["204"] = {"description": "Done"}
    elif route.media_type != "application/json":
        responses[str(route.status)] = {
            "description": "The file",
            "content": {route.media_type: {}},
        }
    else:
        content = _json_content(openapi.envelope(route.data or {}))
        responses[str(route.status)] = {"description": "Done", "content": content}
    return responses


def _json_content(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
