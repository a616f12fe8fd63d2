"""The audit: one row for every call, chained by hashes, committed with the call's effects.

The chain covers the hashes of arguments and results, so that a purge can delete a payload without
breaking the chain. `audit_head` holds the number of rows and the hash of the last one, so that
deleted rows at the end are noticed too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from commonplace.engine import checks
from commonplace.engine.model import moment
from commonplace.storage import audit as stored
from commonplace.storage.audit import REDACTION, Fault
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store
from commonplace.storage.tables import digest

PAYLOAD_BYTES = 4096
_REDACTIONS_A_ROW = 400
_REMOVED_AT_ONCE = 10_000  # rows deleted in one write, so that others can write in between


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An audit entry to be written."""

    request: str
    dialect: str
    tool: str
    caller: str = ""
    credential: str = ""
    client: str = ""
    session: str = ""
    address: str = ""
    success: bool
    error: str = ""
    """An error code only: it is part of the chain, so a purge could not delete a message."""
    milliseconds: int
    arguments: str
    """The whole JSON; `capped` limits what is stored."""
    result: str


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


def capped(payload: str) -> str:
    """The payload if it is small; otherwise its size, its hash and its beginning, as JSON."""
    data = payload.encode()
    if len(data) <= PAYLOAD_BYTES:
        return payload
    summary = {
        "_truncated": True,
        "_original_size": len(data),
        "_limit": PAYLOAD_BYTES,
        "_sha256": hashlib.sha256(data).hexdigest(),
    }
    prefix = json.dumps({**summary, "_head": ""})[:-2]
    room = PAYLOAD_BYTES - len(prefix) - 2
    head = data[:room].decode(errors="ignore")  # never cut inside a character
    written = json.dumps(head, ensure_ascii=False)[1:-1]
    shown = written.encode()[:room].decode(errors="ignore")
    while not _is_whole(shown):
        shown = shown[:-1]
    return f'{prefix}{shown}"}}'


def _is_whole(written: str) -> bool:
    """Whether the beginning of a JSON string does not end inside an escape."""
    if "\\" not in written[-5:]:  # the longest escape, \u0000, has six characters
        return True
    try:
        json.loads(f'"{written}"')
    except ValueError:
        return False
    return True


def append(store: Store, entry: Entry) -> int:
    """Write a row in the open unit of work, or in its own transaction; return its number.

    Outside a unit it may use the room that is set aside for a full disk.
    """
    operation = store.open_unit.seq if store.open_unit and store.open_unit.changed else 0

    def write() -> int:
        with store.maintain() as connection:
            return _insert(connection, store.space, entry, operation)

    return store.with_reserve(write)


def _insert(rows: Rows, space: str, entry: Entry, operation: int = 0) -> int:
    arguments, result = capped(entry.arguments), capped(entry.result)
    count, previous = stored.read_head(rows, space)
    chained = (
        count + 1, space, now(), entry.request, entry.dialect, entry.tool, entry.caller,
        entry.credential, entry.client, entry.session, entry.address, int(entry.success),
        entry.error, entry.milliseconds, operation, digest(arguments), digest(result), previous,
    )  # fmt: skip
    stored.insert(rows, chained, arguments, result)
    return count + 1


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


def mentioning(store: Store, text: str, *, limit: int = 50) -> list[Call]:
    """Successful calls whose result has this text, among the newest `AMONG`, newest first.

    Of a result of more than `PAYLOAD_BYTES` only the beginning is stored and found.
    """
    with store.read() as connection:
        rows = stored.mentioning(connection, store.space, text, AMONG, checks.limit(limit))
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
            found = stored.old_end(connection, store.space, until, _REMOVED_AT_ONCE)
            if found is None:
                return count
            first, last, hashed = found
            anchor = json.dumps({"last": last, "hash": stored.as_hex(hashed)})
            _insert(connection, store.space, _own_entry(stored.ANCHOR, anchor))
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
