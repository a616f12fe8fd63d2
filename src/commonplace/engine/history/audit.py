"""The audit: one row for every call, chained by hashes, written with what the call did.

The chain runs over the hashes of arguments and results, so that a purge can take a payload away
and leave the chain whole. `audit_head` says how many rows there are and the last one's hash, so
that rows cut off at the end are missed too.
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
_REMOVED_AT_ONCE = 10_000  # rows, so that others can write meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call, as it is written."""

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
    """A code, and nothing that was said: it is part of the chain, and no purge can take it away."""
    milliseconds: int
    arguments: str
    """JSON, whole; what is kept of it is capped."""
    result: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as it is read."""

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
    """A code, with what the result says of it."""
    milliseconds: int
    operation: int
    arguments: Any
    result: Any
    """None when a purge took it away."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of the chain found."""

    rows: int
    """How many were written, removed ones included."""
    head: str
    faults: tuple[Fault, ...]
    removed: int = 0
    """The number of the last row that retention removed; 0 if none was."""
    anchor: str = ""
    """The hash of that row, at which the chain begins."""


def capped(payload: str) -> str:
    """The payload if it is small; otherwise its size, its hash and its head, as JSON."""
    data = payload.encode()
    if len(data) <= PAYLOAD_BYTES:
        return payload
    told = {
        "_truncated": True,
        "_original_size": len(data),
        "_limit": PAYLOAD_BYTES,
        "_sha256": hashlib.sha256(data).hexdigest(),
    }
    around = json.dumps({**told, "_head": ""})[:-2]
    room = PAYLOAD_BYTES - len(around) - 2
    head = data[:room].decode(errors="ignore")  # never cut inside a character
    written = json.dumps(head, ensure_ascii=False)[1:-1]
    shown = written.encode()[:room].decode(errors="ignore")
    while not _is_whole(shown):
        shown = shown[:-1]
    return f'{around}{shown}"}}'


def _is_whole(written: str) -> bool:
    """Whether the inside of a JSON text is not cut in the middle of an escape."""
    if "\\" not in written[-5:]:  # the longest, \u0000, has six signs
        return True
    try:
        json.loads(f'"{written}"')
    except ValueError:
        return False
    return True


def append(store: Store, entry: Entry) -> int:
    """Write a row in the open unit, or durably in a transaction of its own; its number.

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
    """The newest calls first."""
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


def _call(row: dict[str, Any]) -> Call:
    result, error = _payload(row["result"]), row["error"]
    if error and ":" not in error and (said := _said(result)):
        error = f"{error}: {said.removeprefix(f'{error}: ')}"[:1000]
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


def _said(result: Any) -> str:
    """What a result says of a failure, in whichever dialect."""
    match result:
        case {"message": str(said)} | {"error": str(said) | {"message": str(said)}}:
            return said
        case {"content": [{"text": str(said)}, *_]}:
            return _said(_payload(said)) or said  # some write JSON there
    return ""


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return {"_raw": text}


def verify(store: Store, *, head: str | None = None) -> Verdict:
    """Go through the whole chain; `head` is one that was noted elsewhere before."""
    with store.read() as connection:
        found = list(stored.faults(connection, store.space, head))
        count, hashed = stored.read_head(connection, store.space)
        removed, anchor = stored.removed(connection, store.space)
    head = stored.as_hex(hashed) if count else ""
    return Verdict(count, head, tuple(found), removed, anchor)


def cut(store: Store, before: datetime | str) -> int:
    """Remove the oldest rows, written before a moment; how many.

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
    """Take the payloads of rows away, and write down that it was done; their hashes stay."""
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
