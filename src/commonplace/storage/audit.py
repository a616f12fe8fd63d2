"""The table `audit`: rows chained by hashes, and its head.

The chain runs over the hashes of arguments and results, so that payloads can be cleared and the
chain stays whole. `audit_head` holds the number of rows and the last one's hash, so that rows cut
off at the end are noticed. When the oldest rows are removed, an anchor row in the chain says up to
which number, and what hash that row had: the chain is verified from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.storage.ports import Rows
from commonplace.storage.tables import AUDIT, digest

START = bytes(32)
"""The `previous` hash of the first row."""
REDACTION = "redact"
"""The tool of a row that lists rows whose payloads were cleared."""
ANCHOR = "anchor"
"""The tool of a row that says which of the oldest rows were removed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the audit chain."""

    num: int
    what: str


def read_head(rows: Rows, space: str) -> tuple[int, bytes]:
    """(number of rows, hash of the last row)."""
    found = rows.execute("SELECT rows, hash FROM audit_head WHERE space = ?", (space,)).fetchone()
    return (0, START) if found is None else (found[0], found[1])


def insert(rows: Rows, chained: tuple[Any, ...], arguments: str, result: str) -> None:
    """Append a row and update the head; `chained` are its values from `num` to `previous`."""
    row = AUDIT.row(chained, arguments, result)
    rows.execute(AUDIT.insert_sql, row)
    rows.execute(
        "INSERT INTO audit_head (space, rows, hash) VALUES (?, ?, ?)"
        " ON CONFLICT (space) DO UPDATE SET rows = excluded.rows, hash = excluded.hash",
        (chained[1], chained[0], row[-1]),
    )


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
    """The rows that meet all conditions that are not None, newest first."""
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


def mentioning(rows: Rows, space: str, text: str, among: int, limit: int) -> list[dict[str, Any]]:
    """Rows whose stored result has this text, of the newest `among`, newest first."""
    clause = " AND num > ? AND success = 1 AND result LIKE ? ORDER BY num DESC LIMIT ?"
    after = read_head(rows, space)[0] - among
    found = rows.execute(f"{AUDIT.select_sql}{clause}", (space, after, f"%{text}%", limit))
    return [dict(zip(AUDIT.stored, row, strict=True)) for row in found]


def counted(
    rows: Rows, space: str, since: int, among: int
) -> list[tuple[str, str, str, str, int, int, int]]:
    """(dialect, tool, caller, client, success, calls, last) of the newest `among` since a time."""
    found: list[tuple[str, str, str, str, int, int, int]] = rows.execute(
        "SELECT dialect, tool, caller, client, success, count(*), max(at) FROM audit"
        " WHERE space = ? AND at >= ? AND num > ?"
        " GROUP BY dialect, tool, caller, client, success ORDER BY 6 DESC, 7 DESC",
        (space, since, read_head(rows, space)[0] - among),
    ).fetchall()
    return found


def payloads(rows: Rows, space: str) -> Iterator[tuple[int, str | None, str | None]]:
    """(number, arguments, result) of all rows."""
    found: Iterator[tuple[int, str | None, str | None]] = rows.execute(
        "SELECT num, arguments, result FROM audit WHERE space = ?", (space,)
    )
    return found


def clear_payloads(rows: Rows, space: str, nums: Sequence[int]) -> None:
    """Clear the payloads of rows; their hashes stay."""
    rows.executemany(
        "UPDATE audit SET arguments = NULL, result = NULL WHERE space = ? AND num = ?",
        [(space, num) for num in nums],
    )


def old_end(rows: Rows, space: str, before: int, most: int) -> tuple[int, int, bytes] | None:
    """(first number, last number, hash of the last) of the oldest rows, written before a moment.

    At most so many; None if there are none. Rows after one that is newer stay, whatever their
    clock said. An anchor alone is not worth another one.
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


def removed(rows: Rows, space: str) -> tuple[int, str]:
    """(number, hash) of the last row that was removed; (0, "") if none was."""
    found = rows.execute(
        "SELECT num, previous FROM audit WHERE space = ? ORDER BY num LIMIT 1", (space,)
    ).fetchone()
    return (0, "") if found is None or found[0] == 1 else (found[0] - 1, as_hex(found[1]))


def as_hex(value: Any) -> str:
    """A hash as hexadecimal text; an empty text if the value is not a hash."""
    return value.hex() if isinstance(value, bytes) else ""


def faults(rows: Rows, space: str, expected_head: str | None = None) -> Iterator[Fault]:
    """The faults in the chain; `expected_head` is the hash of a row that must be in it."""
    start, start_hash = removed(rows, space)
    expected, previous = start + 1, bytes.fromhex(start_hash) if start else START
    emptied, redacted = set[int](), set[int]()
    anchors = {(0, "")}
    seen = expected_head is None or expected_head == start_hash
    for values in rows.execute("SELECT * FROM audit WHERE space != ? LIMIT 1", (space,)):
        yield Fault(values[0], "a row belongs to another space")
    select = AUDIT.select_from(rows)  # the table in a backup may lack newer columns
    for values in rows.execute(f"{select} ORDER BY num", (space,)):
        row = dict(zip(AUDIT.stored, values, strict=True))
        num = row["num"]
        if num != expected:
            yield Fault(expected, f"rows are missing before row {num}")
        if row["previous"] != previous:
            yield Fault(num, "its hash of the previous row does not match")
        if not AUDIT.sound(values):
            yield Fault(num, "was changed")
        for name in ("arguments", "result"):
            if row[name] is None:
                emptied.add(num)
            elif digest(row[name]) != row[f"{name}_hash"]:
                yield Fault(num, f"its {name} were changed")
            elif name == "arguments" and row["dialect"] == "":  # its hash was checked above
                if row["tool"] == REDACTION:
                    redacted.update(json.loads(row[name])["rows"])
                elif row["tool"] == ANCHOR:
                    anchor = json.loads(row[name])
                    anchors.add((anchor["last"], anchor["hash"]))
        expected, previous = num + 1, row["hash"]
        seen = seen or expected_head == as_hex(previous)
    if (start, start_hash) not in anchors:
        yield Fault(1, f"rows are missing before row {start + 1}, and no anchor row says so")
    for num in sorted(emptied - redacted):
        yield Fault(num, "its payload was deleted, but no purge is recorded")
    if read_head(rows, space) != (expected - 1, previous):
        yield Fault(expected, "rows are missing at the end, or the head was changed")
    if not seen:
        why = "rows were deleted or rewritten"
        if start:
            why += f", or it was among the {start:,} oldest, which were removed"
        yield Fault(expected, f"the given head is not in the chain: {why}")
