"""Answers calls of their usual form without the protocol SDK.

The SDK takes a second to load, and more of the processor than most calls. Whatever is unusual about
a message is left to it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Dialect
from commonplace.errors import CommonplaceError, NotFound
from commonplace.server.messages import (
    FAULT,
    FORBIDDEN,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    JSON_BODY,
    UNREADABLE,
    VERSION_HEADER,
)
from commonplace.server.quotas import Quota
from commonplace.server.tracing import is_traced
from commonplace.server.workers import Admitted, Workers, called

# The versions whose results have all fields that dialects give them, and no others.
VERSIONS = frozenset({"2025-06-18", "2025-11-25"})
_UNLIKE = (b"\\ud", b"\\uD", b"NaN", b"Infinity")  # half a character, perhaps, or no number
RESERVED_META = "io.modelcontextprotocol/"
TRACED = is_traced(os.environ)  # the SDK makes the spans, and so handles all calls then
NESTED = 100  # brackets in a line: more may be nested too deeply, which the SDK refuses

ACCEPTED = (b"application/json", b"text/event-stream")

log = logging.getLogger(__name__)


def is_plain(text: bytes) -> bool:
    """Whether the SDK reads this JSON in the same way as `json.loads`."""
    return (
        not any(each in text for each in _UNLIKE) and text.count(b"[") + text.count(b"{") <= NESTED
    )


def parsed(line: bytes) -> Any:
    """The JSON of a line, if the SDK would read it in the same way; else `UNREADABLE`."""
    if not is_plain(line):
        return UNREADABLE
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return UNREADABLE


@dataclass(frozen=True, slots=True)
class UsualCall:
    """A valid `tools/call` without anything that only the SDK knows."""

    identity: int | str
    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]

    @classmethod
    def read(cls, message: Any) -> UsualCall | None:
        """The call that a message makes; None if it is another message, or an unusual call."""
        if not isinstance(message, dict) or message.get("method") != "tools/call":
            return None
        identity, params = message.get("id"), message.get("params")
        if message.keys() != {"jsonrpc", "id", "method", "params"} or message["jsonrpc"] != "2.0":
            return None
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            return None
        if not isinstance(params, dict) or params.keys() - {"name", "arguments", "_meta"}:
            return None
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta", {})
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            return None
        if not isinstance(meta, dict) or any(key.startswith(RESERVED_META) for key in meta):
            return None
        token = meta.get("progressToken", "")
        if isinstance(token, bool) or not isinstance(token, int | str):
            return None
        return cls(identity, name, arguments or {}, meta)


def usual_over_http(scope: Mapping[str, Any]) -> UsualCall | None:
    """The usual call that a request makes, whose body the door has parsed; else None."""
    if TRACED or JSON_BODY not in scope:
        return None
    named: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"accept", VERSION_HEADER):
            if name in named:
                return None
            named[name] = value
    accepted = named.get(b"accept", b"")
    version = named.get(VERSION_HEADER, b"").decode("latin-1")
    if version not in VERSIONS or not all(each in accepted for each in ACCEPTED):
        return None
    return UsualCall.read(scope[JSON_BODY])


async def answer(
    call: UsualCall, dialect: Dialect, workers: Workers, quota: Quota | None, admitted: Admitted
) -> dict[str, Any]:
    """The response to a call."""
    try:
        result = await called(dialect, workers, quota, admitted, call.tool, call.arguments)
    except NotFound as error:
        code, why = INVALID_PARAMS, str(error)
    except NotPermitted as error:
        code, why = FORBIDDEN, str(error)
    except Exception as error:
        log.error("a request failed", exc_info=error)
        code, why = INTERNAL_ERROR, error.message if isinstance(error, CommonplaceError) else FAULT
    else:
        return {"jsonrpc": "2.0", "id": call.identity, "result": result}
    return {"jsonrpc": "2.0", "id": call.identity, "error": {"code": code, "message": why}}
