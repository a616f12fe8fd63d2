"""The body of a request: how large and how deep it may be, and the JSON in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Receive

from commonplace.access.browser import FORM
from commonplace.dialects.rest import Rejected
from commonplace.server.paths import Entrance
from commonplace.server.protocol import message_in

JSON = "application/json"
DEPTH = 64
CONTAINERS = 100_000  # arrays and objects: json.loads makes them under the interpreter lock
BODY_SECONDS = 30.0  # in which a body must have come
INLINE_BYTES = 65_536  # larger bodies are checked and parsed in a worker
TOTAL_BYTES = 256 * 1024 * 1024  # held in memory at the same time, for all requests
ADDRESS_BYTES = 64 * 1024 * 1024  # of these for the requests of one address
# An unterminated string is matched to its end at once, not once for each quote in it.
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_NOT_JSON = "The body must be application/json."


class Buffers:
    """Bytes of bodies that are held in memory. Used from one thread, the event loop."""

    def __init__(self) -> None:
        self._total = 0
        self._of: dict[str, int] = {}

    def take(self, sender: str, size: int) -> bool:
        """Count bytes of an address; False, and nothing counted, if there is no room for them."""
        held = self._of.get(sender, 0)
        if self._total + size > TOTAL_BYTES or held + size > ADDRESS_BYTES:
            return False
        self._total += size
        self._of[sender] = held + size
        return True

    def give_back(self, sender: str, size: int) -> None:
        """Free what a request has taken."""
        self._total -= size
        left = self._of.get(sender, 0) - size
        if left > 0:
            self._of[sender] = left
        else:
            self._of.pop(sender, None)


def content_type(header: Callable[[str], str]) -> str:
    """The media type that the headers declare, without parameters."""
    return header("content-type").split(";")[0].strip().lower()


def limit_of(header: Callable[[str], str], entrance: Entrance, most: int) -> int:
    """How many bytes the body may have; Rejected if its headers alone rule it out."""
    limit = max(most, entrance.body)
    kind, declared = content_type(header), header("content-length")
    if entrance.uploads and kind == "multipart/form-data":
        limit = entrance.uploads
    elif entrance.forms and kind == FORM:
        limit = min(most, INLINE_BYTES)
    elif kind != JSON and (kind or declared not in ("", "0")):
        raise Rejected(415, "CONTENT_TYPE", _NOT_JSON)
    if header("content-encoding") not in ("", "identity"):
        raise Rejected(415, "CONTENT_ENCODING", "The body must not be compressed.")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    return limit


async def read(
    receive: Receive, limit: int, *, typed: bool, take: Callable[[int], bool]
) -> bytes | None:
    """The whole body; None if the client has gone. `take` says whether there is room for more.

    A body without a content type (`typed` is False) must be empty.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                if not take(len(part)):
                    raise Rejected(
                        503, "BUSY", "Too many large requests are open. Try again in a moment."
                    )
                parts.append(part)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise Rejected(408, "TOO_SLOW", "The body did not come in time.") from None
    if size and not typed:
        raise Rejected(415, "CONTENT_TYPE", _NOT_JSON)
    return b"".join(parts)


def parse(body: bytes) -> Any:
    """The JSON of a body, or UNREADABLE. Rejected if it is nested too deep, or in too much."""
    check_nesting(body)
    return message_in(body)


def check_nesting(body: bytes) -> None:
    """Refuse JSON that is too deep, or has too many arrays and objects; stop at the first excess.

    Brackets inside strings do not count.
    """
    if body.count(b"[") + body.count(b"{") <= DEPTH:
        return
    level = opened = 0
    for mark in _MARKS.finditer(body):
        sign = mark[0]
        if sign in (b"[", b"{"):
            level += 1
            opened += 1
            if level > DEPTH:
                raise Rejected(400, "TOO_DEEP", f"JSON may be {DEPTH} levels deep.")
            if opened > CONTAINERS:
                raise Rejected(
                    413, "TOO_LARGE", f"JSON may have {CONTAINERS:,} arrays and objects."
                )
        elif sign in (b"]", b"}"):
            level -= 1


def in_time(receive: Receive) -> Receive:
    """A body that is read as it comes: a client whose body comes too slowly counts as gone."""
    until = asyncio.get_running_loop().time() + BODY_SECONDS
    whole = False

    async def timely() -> Message:
        nonlocal whole
        try:
            async with asyncio.timeout_at(None if whole else until):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        whole = whole or not message.get("more_body")
        return message

    return timely


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, for the application behind the door.

    It comes in pieces, and other requests get their turn between them.
    """
    at = 0
    done = False

    async def again() -> Message:
        nonlocal at, done
        if done:
            return await receive()
        if at:
            await asyncio.sleep(0)
        piece = body[at : at + INLINE_BYTES]
        at += len(piece)
        done = at >= len(body)
        return {"type": "http.request", "body": piece, "more_body": not done}

    return again


def _too_large(limit: int) -> Rejected:
    return Rejected(
        413, "TOO_LARGE",
        f"The body is larger than {limit:,} bytes. Send less at a time,"
        " or let the operator set body_bytes.",
    )  # fmt: skip
