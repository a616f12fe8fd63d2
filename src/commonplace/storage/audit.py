"""The table `audit`: rows chained by hashes, and the head of the chain.

The chain covers the hashes of arguments and results, so payloads can be cleared without breaking
it. `audit_head` holds the number of rows and the hash of the last row, so that missing rows at the
end are noticed. When the oldest rows are removed, an anchor row records the number and the hash of
the last removed row; verification starts there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store
from commonplace.storage.tables import AUDIT, digest

START = bytes(32)
"""The `previous` hash of the first row."""
REDACTION = "redact"
"""The tool name of a row that lists rows whose payloads were cleared."""
ANCHOR = "anchor"
"""The tool name of an anchor row, which records the removal of the oldest rows."""
PAYLOAD_BYTES = 4096
"""The limit in bytes; only the beginning of longer arguments and results is stored."""
_RENAMED_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An audit entry that is not written yet."""

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
    """The error code. Messages are not stored, because a purge could not delete them."""
    milliseconds: int
    arguments: str
    """The whole JSON; `capped_payload` shortens it for storage."""
    result: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the audit chain."""

    num: int
    what: str


def read_head(rows: Rows, space: str) -> tuple[int, bytes]:
    """Return the number of rows and the hash of the last row."""
    found = rows.execute("SELECT rows, hash FROM audit_head WHERE space = ?", (space,)).fetchone()
    return (0, START) if found is None else (found[0], found[1])


def capped_payload(payload: str) -> str:
    """Return a small payload unchanged; of a large one its size, hash and beginning, as JSON."""
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
    head = data[:room].decode(errors="ignore")  # Do not cut inside a UTF-8 character.
    written = json.dumps(head, ensure_ascii=False)[1:-1]
    shown = written.encode()[:room].decode(errors="ignore")
    while not _ends_outside_escape(shown):
        shown = shown[:-1]
    return f'{prefix}{shown}"}}'


def _ends_outside_escape(written: str) -> bool:
    """Return whether a part of a JSON string ends outside of an escape."""
    if "\\" not in written[-5:]:  # The longest escape, \u0000, has six characters.
        return True
    try:
        json.loads(f'"{written}"')
    except ValueError:
        return False
    return True


def append(store: Store, entry: Entry, *, durable: bool = True) -> int:
    """Write a row in the open unit of work, or in its own transaction; return its number.

    Outside of a unit, the write may use the disk space reserved for a full disk. Unless `durable`
    is true, it is committed without a sync: it survives a crash of the process, but survives a
    power cut only if something was synced after it.
    """
    operation = store.open_unit.seq if store.open_unit and store.open_unit.changed else 0

    def write() -> int:
        with store.maintain(durable=durable) as connection:
            return insert(connection, store.space, entry, operation)

    return store.with_reserve(write)


def insert(rows: Rows, space: str, entry: Entry, operation: int = 0) -> int:
    """Append a row to the chain and update the head; return its number."""
    arguments, result = capped_payload(entry.arguments), capped_payload(entry.result)
    count, previous = read_head(rows, space)
    chained = (
        count + 1, space, now(), entry.request, entry.dialect, entry.tool, entry.caller,
        entry.credential, entry.client, entry.session, entry.address, int(entry.success),
        entry.error, entry.milliseconds, operation, digest(arguments), digest(result), previous,
    )  # fmt: skip
    row = AUDIT.row(chained, arguments, result)
    rows.execute(AUDIT.insert_sql, row)
    rows.execute(
        "INSERT INTO audit_head (space, rows, hash) VALUES (?, ?, ?)"
        " ON CONFLICT (space) DO UPDATE SET rows = excluded.rows, hash = excluded.hash",
        (space, count + 1, row[-1]),
    )
    return count + 1


def newest(
    rows: Rows,
    space: str,
    limit: int,
    *,
    tool: str | None,
    caller: str | None,
    success: int | None,
    since: int | None,
    until: int | None,
    before: int | None,
) -> list[dict[str, Any]]:
    """Return the rows that meet all conditions that are not None, newest first."""
    conditions = {
        "tool = ?": tool, "caller = ?": caller, "success = ?": success,
        "at >= ?": since, "at < ?": until, "num < ?": before,
    }  # fmt: skip
    given = {each: value for each, value in conditions.items() if value is not None}
    clause = "".join(f" AND {each}" for each in given)
    found = rows.execute(
        f"{AUDIT.select_sql}{clause} ORDER BY num DESC LIMIT ?", (space, *given.values(), limit)
    )
    return [dict(zip(AUDIT.stored, row, strict=True)) for row in found]


def rows_mentioning(
    rows: Rows, space: str, text: str, among: int, limit: int, without: str
) -> list[dict[str, Any]]:
    """Return rows of successful calls whose stored result contains this text, newest first.

    Only the newest `among` rows are searched. Rows of tools whose names begin with `without` are
    left out.
    """
    clause = (
        " AND num > ? AND success = 1 AND substr(tool, 1, ?) != ? AND result LIKE ?"
        " ORDER BY num DESC LIMIT ?"
    )
    after = read_head(rows, space)[0] - among
    values = (space, after, len(without), without, f"%{text}%", limit)
    found = rows.execute(f"{AUDIT.select_sql}{clause}", values)
    return [dict(zip(AUDIT.stored, row, strict=True)) for row in found]


def call_counts(
    rows: Rows, space: str, since: int, among: int
) -> list[tuple[str, str, str, str, int, int, int]]:
    """Count the calls since a time, among the newest `among` rows.

    Each result is (dialect, tool, caller, client, success, calls, last).
    """
    found: list[tuple[str, str, str, str, int, int, int]] = rows.execute(
        "SELECT dialect, tool, caller, client, success, count(*), max(at) FROM audit"
        " WHERE space = ? AND at >= ? AND num > ?"
        " GROUP BY dialect, tool, caller, client, success ORDER BY 6 DESC, 7 DESC",
        (space, since, read_head(rows, space)[0] - among),
    ).fetchall()
    return found


def payloads(rows: Rows, space: str) -> Iterator[tuple[int, str | None, str | None]]:
    """Return (number, arguments, result) of all rows."""
    found: Iterator[tuple[int, str | None, str | None]] = rows.execute(
        "SELECT num, arguments, result FROM audit WHERE space = ?", (space,)
    )
    return found


def caller_columns(rows: Rows, space: str) -> Iterator[dict[str, str]]:
    """Return the text columns of all rows that the chain covers, without the payloads."""
    names = ("request", "tool", "caller", "credential", "client", "session", "address", "error")
    statement = f"SELECT {', '.join(names)} FROM audit WHERE space = ?"  # noqa: S608
    return (dict(zip(names, row, strict=True)) for row in rows.execute(statement, (space,)))


def clear_payloads(rows: Rows, space: str, nums: Sequence[int]) -> None:
    """Clear the payloads of rows; their hashes stay."""
    rows.executemany(
        "UPDATE audit SET arguments = NULL, result = NULL WHERE space = ? AND num = ?",
        [(space, num) for num in nums],
    )


def rename_space(rows: Rows, former: str, space: str) -> None:
    """Move the chain to another space; it is hashed again, because the hashes cover the name.

    A row that does not match its hash keeps it, so that `faults` still reports the row.
    """
    last, old_hash, new_hash = 0, b"", b""
    page_sql = f"{AUDIT.select_sql} AND num > ? ORDER BY num LIMIT {_RENAMED_AT_ONCE}"
    while page := rows.execute(page_sql, (former, last)).fetchall():
        changes = []
        for values in page:
            row = dict(zip(AUDIT.stored, values, strict=True))
            previous = new_hash if row["previous"] == old_hash else row["previous"]
            hashed = row["hash"]
            if AUDIT.matches_hash(values):
                moved = {**row, "space": space, "previous": previous}
                hashed = AUDIT.hash(tuple(moved[name] for name in AUDIT.covered), row["format"])
            changes.append((space, previous, hashed, former, row["num"]))
            last, old_hash, new_hash = row["num"], row["hash"], hashed
        rows.executemany(
            "UPDATE audit SET space = ?, previous = ?, hash = ? WHERE space = ? AND num = ?",
            changes,
        )
    head = read_head(rows, former)[1]
    rows.execute(
        "UPDATE audit_head SET space = ?, hash = ? WHERE space = ?",
        (space, new_hash if head == old_hash else head, former),
    )


def oldest_before(rows: Rows, space: str, before: int, most: int) -> tuple[int, int, bytes] | None:
    """Return (first number, last number, hash of the last) of the oldest rows before a time.

    There are at most `most` such rows. The range ends at the first row that is not older, even if
    later rows have an earlier time. Return None if there is no such row, or only an anchor row.
    """
    first, tool = rows.execute(
        "SELECT num, tool FROM audit WHERE space = ? ORDER BY num LIMIT 1", (space,)
    ).fetchone() or (0, "")
    kept = rows.execute(
        "SELECT min(num) FROM audit WHERE space = ? AND at >= ?", (space, before)
    ).fetchone()[0]
    end = read_head(rows, space)[0] if kept is None else kept - 1
    last = min(end, first + most - 1)
    if not first or last < first or (last == first and tool == ANCHOR):
        return None
    found = rows.execute(
        "SELECT hash FROM audit WHERE space = ? AND num = ?", (space, last)
    ).fetchone()
    return None if found is None else (first, last, found[0])


def remove_through(rows: Rows, space: str, last: int) -> None:
    """Remove rows up to a number."""
    rows.execute("DELETE FROM audit WHERE space = ? AND num <= ?", (space, last))


def last_removed(rows: Rows, space: str) -> tuple[int, str]:
    """Return the number and hash of the last removed row; (0, "") if no row was removed."""
    found = rows.execute(
        "SELECT num, previous FROM audit WHERE space = ? ORDER BY num LIMIT 1", (space,)
    ).fetchone()
    return (0, "") if found is None or found[0] == 1 else (found[0] - 1, as_hex(found[1]))


def as_hex(value: Any) -> str:
    """Return a hash as hexadecimal text; an empty string if the value is not a hash."""
    return value.hex() if isinstance(value, bytes) else ""


def faults(rows: Rows, space: str, expected_head: str | None = None) -> Iterator[Fault]:
    """Yield the faults in the chain.

    `expected_head` is the hash of a row that the chain must contain.
    """
    start, start_hash = last_removed(rows, space)
    expected, previous = start + 1, bytes.fromhex(start_hash) if start else START
    emptied, redacted = set[int](), set[int]()
    anchors = {(0, "")}
    seen = expected_head is None or expected_head == start_hash
    for values in rows.execute("SELECT * FROM audit WHERE space != ? LIMIT 1", (space,)):
        yield Fault(values[0], "a row belongs to another space")
    select = AUDIT.select_from(rows)  # The table in a backup may lack newer columns.
    for values in rows.execute(f"{select} ORDER BY num", (space,)):
        row = dict(zip(AUDIT.stored, values, strict=True))
        num = row["num"]
        if num != expected:
            yield Fault(expected, f"rows are missing before row {num}")
        if row["previous"] != previous:
            yield Fault(num, "its hash of the previous row does not match")
        if not AUDIT.matches_hash(values):
            yield Fault(num, "was changed")
        for name in ("arguments", "result"):
            if row[name] is None:
                emptied.add(num)
            elif digest(row[name]) != row[f"{name}_hash"]:
                yield Fault(num, f"its {name} were changed")
            # The hash of the row was checked above.
            elif name == "arguments" and row["dialect"] == "":
                if row["tool"] == REDACTION:
                    redacted.update(json.loads(row[name])["rows"])
                elif row["tool"] == ANCHOR:
                    anchor = json.loads(row[name])
                    anchors.add((anchor["last"], anchor["hash"]))
        expected, previous = num + 1, row["hash"]
        seen = seen or expected_head == as_hex(previous)
    if (start, start_hash) not in anchors:
        yield Fault(
            1, f"rows are missing before row {start + 1}, and no anchor row records their removal"
        )
    for num in sorted(emptied - redacted):
        yield Fault(num, "its payload was deleted, but no purge is recorded")
    if read_head(rows, space) != (expected - 1, previous):
        yield Fault(expected, "rows are missing at the end, or the head was changed")
    if not seen:
        why = "rows were deleted or rewritten"
        if start:
            why += f", or it was among the {start:,} oldest, which were removed"
        yield Fault(expected, f"the given head is not in the chain: {why}")
