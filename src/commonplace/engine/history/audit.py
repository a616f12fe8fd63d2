"""The audit log: one row for every call, chained by hashes, committed with the call's effects.

`append` of `storage/audit.py` writes the rows; this module reads, verifies and removes them.
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
from commonplace.storage.audit import (
    PAYLOAD_BYTES,
    REDACTION,
    Entry,
    Fault,
    append,
    capped_payload,
)
from commonplace.storage.ports import Store

__all__ = [
    "PAYLOAD_BYTES",
    "SEARCHED_ENTRIES",
    "Call",
    "Count",
    "Entry",
    "Verdict",
    "append",
    "calls_mentioning",
    "capped_payload",
    "counts",
    "listing",
    "redact",
    "remove_before",
    "verify",
]

_HASH = re.compile("[0-9a-f]{64}")
_REDACTIONS_A_ROW = 400
# Delete at most this many rows in one write, so that others can write in between.
_REMOVED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Call:
    """One audit entry."""

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
    """The error code, and the error message from the result."""
    milliseconds: int
    operation: int
    arguments: Any
    result: Any
    """None if a purge has deleted the payload."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying the chain of hashes."""

    rows: int
    """How many rows were written, including rows that were removed since."""
    head: str
    faults: tuple[Fault, ...]
    removed: int = 0
    """The number of the last row that retention has removed, or 0."""
    anchor: str = ""
    """The hash of the last removed row, at which the chain begins."""


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
    """Return the entries that meet all conditions, newest first."""
    with store.read() as connection:
        rows = stored.newest(
            connection,
            store.space,
            checks.limit(limit),
            tool=None if tool is None else checks.optional_text(tool, "tool"),
            caller=None if caller is None else checks.optional_text(caller, "caller"),
            success=None if success is None else int(success),
            since=checks.time(since, "since"),
            until=checks.time(until, "until"),
            before=None if before is None else checks.integer(before, "before"),
        )
        return [_call_of(row) for row in rows]


SEARCHED_ENTRIES = 20_000
"""How many of the newest entries are searched for a text, or counted."""


def calls_mentioning(store: Store, text: str, *, without: str, limit: int = 50) -> list[Call]:
    """Return successful calls whose result contains this text, newest first.

    Only the newest `SEARCHED_ENTRIES` entries are searched. Calls of tools whose names begin with
    `without` are left out. Only the beginning of a result larger than `PAYLOAD_BYTES` is stored and
    searched.
    """
    with store.read() as connection:
        rows = stored.rows_mentioning(
            connection, store.space, text, SEARCHED_ENTRIES, checks.limit(limit), without
        )
        return [_call_of(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Count:
    """How often one caller called a tool with one client, and the time of the last call."""

    dialect: str
    tool: str
    caller: str
    client: str
    success: bool
    calls: int
    last: datetime


def counts(store: Store, since: datetime) -> list[Count]:
    """Count the calls since a time by tool, caller, client and success.

    Only the newest `SEARCHED_ENTRIES` entries are counted.
    """
    at = checks.time(since, "since")
    assert at is not None
    with store.read() as connection:
        found = stored.call_counts(connection, store.space, at, SEARCHED_ENTRIES)
    return [
        Count(dialect, tool, caller, client, bool(success), calls, moment(last))
        for dialect, tool, caller, client, success, calls, last in found
    ]


def _call_of(row: dict[str, Any]) -> Call:
    result, error = _parsed_payload(row["result"]), row["error"]
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
        arguments=_parsed_payload(row["arguments"]),
        result=result,
    )


def _error_text(result: Any) -> str:
    """Return the error message in a result of any dialect; empty if there is none."""
    match result:
        case {"message": str(text)} | {"error": str(text) | {"message": str(text)}}:
            return text
        case {"content": [{"text": str(text)}, *_]}:
            return (
                _error_text(_parsed_payload(text)) or text
            )  # Some dialects put JSON into the text.
    return ""


def _parsed_payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return {"_raw": text}


def verify(store: Store, *, head: str | None = None) -> Verdict:
    """Verify the whole chain.

    `head` is a hash noted earlier; the chain must still contain it.
    """
    if head is not None and not _HASH.fullmatch(head):
        raise InvalidInput(
            "The head is not a hash of 64 hexadecimal digits.",
            hint="Use a hash that 'commonplace audit verify' has printed.",
            field="head",
        )
    with store.read() as connection:
        found = list(stored.faults(connection, store.space, head))
        count, hashed = stored.read_head(connection, store.space)
        removed, anchor = stored.last_removed(connection, store.space)
    head = stored.as_hex(hashed) if count else ""
    return Verdict(count, head, tuple(found), removed, anchor)


def remove_before(store: Store, before: datetime | str) -> int:
    """Remove the rows written before a time, oldest first; return their number.

    Each removal writes an anchor row in the same transaction, with the number and the hash of the
    last removed row. Rows without a payload, after a purge, are removed like others.
    """
    until, count = checks.time(before, "before"), 0
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
    """Delete the payloads of rows, and append a row that records the deletion. The hashes stay."""
    for start in range(0, len(nums), _REDACTIONS_A_ROW):
        some = list(nums[start : start + _REDACTIONS_A_ROW])
        with store.maintain() as connection:
            stored.clear_payloads(connection, store.space, some)
        append(store, _own_entry(REDACTION, json.dumps({"rows": some})))


def _own_entry(tool: str, arguments: str) -> Entry:
    """Return an entry about the audit log itself, which belongs to no dialect."""
    return Entry(
        request="", dialect="", tool=tool, success=True, milliseconds=0, arguments=arguments,
        result="{}",
    )  # fmt: skip
