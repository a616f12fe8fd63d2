"""What a JSON-RPC message says, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DIALECT = "commonplace.dialect"  # scope key: the name of the dialect that answers
ADMITTED = "commonplace.admitted"  # scope key: who calls, set by the door or a pipe
JSON_BODY = "commonplace.json"  # scope key: the body of a request, as parsed JSON
VERSION_HEADER = b"mcp-protocol-version"
FORBIDDEN = -32003
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAULT = "Something went wrong on our side."
MOST_CALLS = 100  # most calls in one message, since each refused one is audited
UNREADABLE = object()


def client_name(name: object, version: object) -> str:
    """The name of a client with its version; empty if there is none."""
    return f"{name} {version}".strip()[:200] if isinstance(name, str) else ""


def named(params: object) -> tuple[str, Mapping[str, Any]]:
    """The tool name and arguments of an unchecked call; empty if they have the wrong type."""
    given = params if isinstance(params, Mapping) else {}
    name, arguments = given.get("name"), given.get("arguments")
    return (
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, Mapping) else {},
    )


def message_in(body: bytes) -> Any:
    """The parsed JSON of a body; `UNREADABLE` if it is not JSON, which the SDK reports."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return UNREADABLE


def messages_of(message: Any) -> list[dict[str, Any]]:
    """The messages of a body, one or a batch; an empty list for anything else."""
    messages = message if isinstance(message, list) else [message]
    return [each for each in messages if isinstance(each, dict)]


def calls_in(message: Any) -> list[dict[str, Any]]:
    """The tool calls in a JSON-RPC message or batch; an empty list for anything else."""
    return [each for each in messages_of(message) if each.get("method") == "tools/call"]


def fault_of(message: Any) -> str:
    """Why a message is not valid MCP, as a sentence; empty if it is valid.

    The SDK treats a request with an invalid id as a notification: it would be accepted, but
    neither carried out nor answered.
    """
    if message is UNREADABLE:
        return ""
    if isinstance(message, list):
        return "Send one message at a time; batches are not accepted."
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return "This is not a JSON-RPC 2.0 message."
    if "method" not in message:
        answer = "result" in message or "error" in message
        return "" if answer else "method is missing."
    identity = message.get("id", "")
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        return "id must be a string or a whole number."
    if not isinstance(message["method"], str):
        return "method must be a string."
    if not isinstance(message.get("params", {}), dict | None):
        return "params must be an object."
    if message["method"] == "tools/call" and "id" not in message:
        return "A tools/call request needs an id; without one it cannot be answered."
    return ""


def identity_of(message: Any) -> int | str | None:
    """The id for the response to a message."""
    identity = message.get("id") if isinstance(message, dict) else None
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        return None
    return identity.encode(errors="replace").decode() if isinstance(identity, str) else identity
