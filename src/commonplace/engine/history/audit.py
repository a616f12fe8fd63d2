"""The audit: one row for every call, chained by hashes, committed with the call's effects.

Rows are written by `append` of `storage/audit.py`; here they are read, verified and removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from commonplace.engine import checks
from commonplace.engine.model import moment
from commonplace.errors import InvalidInput
from commonplace.storage import audit as stored
from commonplace.storage.audit import PAYLOAD_BYTES, REDACTION, Entry, Fault, append, capped
from commonplace.storage.ports import Store

__all__ = [
    "AMONG",
    "PAYLOAD_BYTES",
    "Call",
    "Count",
    "Entry",
    "Verdict",
    "append",
    "capped",
    "counts",
    "cut",
    "listing",
    "mentioning",
    "redact",
    "verify",
]

_HASH = re.compile("[0-9a-f]{64}")
_REDACTIONS_A_ROW = 400
_REMOVED_AT_ONCE = 10_000  # rows deleted in one write, so that others can write in between


@dataclass(frozen=True, slots=True)
class Call:
    """An audit entry that was read."""

    num: int
    at: datetime
    request: str
    dialect: str
    tool: str
    caller: str
    credential: str
    client: str
    session: str
    address: str
    success: bool
    error: str
    """The code, and the message from the result."""
    milliseconds: int
    operation: int
    arguments: Any
    result: Any
    """None if a purge deleted it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying the chain."""

    rows: int
    """How many were written, removed ones included."""
    head: str
    faults: tuple[Fault, ...]
    removed: int = 0
    """The number of the last row that retention removed; 0 if none was."""
    anchor: str = ""
    """The hash of that row, at which the chain begins."""


def listing(
    store: Store,
    *,
    tool: str | None = None,
    caller: str | None = None,
    success: bool | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Call]:
    """Entries that meet all conditions, the newest first."""
    with store.read() as connection:
        rows = stored.newest(
            connection,
            store.space,
            checks.limit(limit),
            tool=None if tool is None else checks.optional(tool, "tool"),
            caller=None if caller is None else checks.optional(caller, "caller"),
            success=None if success is None else int(success),
            since=checks.when(since, "since"),
            until=checks.when(until, "until"),
            before=None if before is None else checks.whole(before, "before"),
        )
        return [_call(row) for row in rows]


AMONG = 20_000
"""How many of the newest entries are looked through for a text, or counted."""


def mentioning(store: Store, text: str, *, without: str, limit: int = 50) -> list[Call]:
    """Successful calls whose result has this text, among the newest `AMONG`, newest first.

    Calls of tools whose names begin with `without` are left out.
    Of a result of more than `PAYLOAD_BYTES` only the beginning is stored and found.
    """
    with store.read() as connection:
        rows = stored.mentioning(connection, store.space, text, AMONG, checks.limit(limit), without)
        return [_call(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Count:
    """How often a tool was called by somebody with a client, and when last."""

    dialect: str
    tool: str
    caller: str
    client: str
    success: bool
    calls: int
    last: datetime


def counts(store: Store, since: datetime) -> list[Count]:
    """Calls since a time by tool, caller, client and success, among the newest `AMONG`."""
    at = checks.when(since, "since")
    assert at is not None
    with store.read() as connection:
        found = stored.counted(connection, store.space, at, AMONG)
    return [
        Count(dialect, tool, caller, client, bool(success), calls, moment(last))
        for dialect, tool, caller, client, success, calls, last in found
    ]


def _call(row: dict[str, Any]) -> Call:
    result, error = _payload(row["result"]), row["error"]
    if error and ":" not in error and (text := _error_text(result)):
        error = f"{error}: {text.removeprefix(f'{error}: ')}"[:1000]
    return Call(
        num=row["num"],
        at=moment(row["at"]),
        request=row["request"],
        dialect=row["dialect"],
        tool=row["tool"],
        caller=row["caller"],
        credential=row["credential"],
        client=row["client"],
        session=row["session"],
        address=row["address"],
        success=bool(row["success"]),
        error=error,
        milliseconds=row["milliseconds"],
        operation=row["operation"],
        arguments=_payload(row["arguments"]),
        result=result,
    )


def _error_text(result: Any) -> str:
    """The error message in a result of any dialect; empty if there is none."""
    match result:
        case {"message": str(text)} | {"error": str(text) | {"message": str(text)}}:
            return text
        case {"content": [{"text": str(text)}, *_]}:
            return _error_text(_payload(text)) or text  # some dialects put JSON into the text
    return ""


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return {"_raw": text}


def verify(store: Store, *, head: str | None = None) -> Verdict:
    """Verify the whole chain; `head` is a hash noted earlier that must still be in it."""
    if head is not None and not _HASH.fullmatch(head):
        raise InvalidInput(
            "The head is not a hash of 64 hexadecimal digits.",
            hint="Give one that 'commonplace audit verify' has printed.",
            field="head",
        )
    with store.read() as connection:
        found = list(stored.faults(connection, store.space, head))
        count, hashed = stored.read_head(connection, store.space)
        removed, anchor = stored.removed(connection, store.space)
    head = stored.as_hex(hashed) if count else ""
    return Verdict(count, head, tuple(found), removed, anchor)


def cut(store: Store, before: datetime | str) -> int:
    """Remove the rows written before a time, oldest first; return their number.

    Each removal leaves an anchor row with the number and the hash of the last row removed, in the
    same transaction. Rows that were purged of their payloads are removed like others.
    """
    until, count = checks.when(before, "before"), 0
    assert until is not None
    while True:
        with store.maintain() as connection:
            found = stored.oldest_before(connection, store.space, until, _REMOVED_AT_ONCE)
            if found is None:
                return count
            first, last, hashed = found
            anchor = json.dumps({"last": last, "hash": stored.as_hex(hashed)})
            stored.insert(connection, store.space, _own_entry(stored.ANCHOR, anchor))
            stored.remove_through(connection, store.space, last)
        count += last - first + 1


def redact(store: Store, nums: Sequence[int]) -> None:
    """Delete the payloads of rows, and add a row that says so; their hashes stay."""
    for start in range(0, len(nums), _REDACTIONS_A_ROW):
        some = list(nums[start : start + _REDACTIONS_A_ROW])
        with store.maintain() as connection:
            stored.clear_payloads(connection, store.space, some)
        append(store, _own_entry(REDACTION, json.dumps({"rows": some})))


def _own_entry(tool: str, arguments: str) -> Entry:
    """An entry about the audit itself, which belongs to no dialect."""
    return Entry(
        request="", dialect="", tool=tool, success=True, milliseconds=0, arguments=arguments,
        result="{}",
    )  # fmt: skip
