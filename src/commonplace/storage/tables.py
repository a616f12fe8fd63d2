"""Versioned tables: each row carries the operation that wrote it and a hash of all it holds.

A change first keeps the row as it was in `versions`, so nothing is destroyed by an update, and
every read compares the hash, so nothing that rotted on disk is returned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, Protocol

import apsw

from commonplace.errors import StorageCorrupt

Row = dict[str, Any]

_AT_ONCE = 100  # ids in one statement

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_MADE_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__), (bytes, bytes), (int, int.__int__), (float, float.__float__),
)  # fmt: skip


def _plain(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def digest(*values: Any) -> bytes:
    """A SHA-256 over values, unambiguous about where one ends and the next begins.

    `ascii` writes texts, bytes, numbers and None the same on every version of Python; `repr`
    does not, since what is printable changes with Unicode.
    """
    if not _PLAIN.issuperset(map(type, values)):
        values = tuple(map(_as_stored, values))
    return sha256(ascii(values).encode()).digest()


def _as_stored(value: Any) -> Any:
    """The value as SQLite gives it back: a text of a type of its own may print as anything."""
    for plain, make in _MADE_PLAIN:
        if isinstance(value, plain) and type(value) not in _PLAIN:
            return make(value)
    return value


def dump(values: Iterable[Any]) -> str:
    """A row's values as JSON text, exact for every value that SQLite can hold for us."""
    return _encode([_plain(value) for value in values])


def load(text: str) -> list[Any]:
    """The values that `dump` wrote."""
    return [bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in json.loads(text)]


class Writing(Protocol):
    """What a versioned write needs of the open unit of work."""

    @property
    def connection(self) -> apsw.Connection: ...
    @property
    def space(self) -> str: ...
    @property
    def seq(self) -> int: ...
    def next_num(self) -> int: ...


class Table:
    """One versioned table. Rows are dictionaries of `num`, its columns and `seq`."""

    def __init__(self, name: str, *columns: str) -> None:
        self.name = name
        self.columns = columns
        self.fields = ("num", *columns, "seq")
        names = ", ".join(("num", *columns, "seq", "hash"))
        marks = ", ".join("?" * (len(columns) + 4))
        self._select = f"SELECT num, {', '.join(columns)}, seq, hash FROM {name} WHERE space = ? "
        self._insert = f"INSERT INTO {name} (space, {names}) VALUES ({marks})"
        settings = ", ".join(f"{column} = ?" for column in (*columns, "seq", "hash"))
        self._update = f"UPDATE {name} SET {settings} WHERE space = ? AND num = ?"
        self._content = itemgetter(*columns)
        self._delete = f"DELETE FROM {name} WHERE space = ? AND num = ?"

    def hash(self, space: str, values: Sequence[Any]) -> bytes:
        """What the row's hash must be, for values in the order of `fields`."""
        return digest(self.name, space, *values)

    def verified(self, space: str, stored: Sequence[Any]) -> Row:
        """The row as a dictionary, or an error if it is not what was written."""
        values = stored[:-1]
        if self.hash(space, values) != stored[-1]:
            raise StorageCorrupt(
                f"Row {stored[0]} of {self.name} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        return dict(zip(self.fields, values, strict=True))

    def fetch(
        self, connection: apsw.Connection, space: str, clause: str = "", *params: Any
    ) -> list[Row]:
        """Verified rows of the space; `clause` continues the WHERE."""
        fields, name = self.fields, self.name
        found = []
        for stored in connection.execute(self._select + clause, (space, *params)):
            values = stored[:-1]
            # As `verified`, for the many rows that are as they were written.
            if sha256(ascii((name, space, *values)).encode()).digest() != stored[-1]:
                self.verified(space, stored)
            found.append(dict(zip(fields, values)))  # noqa: B905
        return found

    def fetch_one(
        self, connection: apsw.Connection, space: str, clause: str, *params: Any
    ) -> Row | None:
        """The first verified row, or None."""
        rows = self.fetch(connection, space, clause + " LIMIT 1", *params)
        return rows[0] if rows else None

    def by_id(self, connection: apsw.Connection, space: str, identity: str) -> Row | None:
        """The verified row of an id, or None; never the row that a rotten index leads to."""
        row = self.fetch_one(connection, space, "AND id = ?", identity)
        if row is not None and row["id"] != identity:
            raise self._damaged_by_id()
        return row

    def by_ids(
        self, connection: apsw.Connection, space: str, identities: Sequence[str]
    ) -> dict[str, Row]:
        """Verified rows by their id, in few statements; as `by_id` for each."""
        found: dict[str, Row] = {}
        for first in range(0, len(identities), _AT_ONCE):
            wanted = identities[first : first + _AT_ONCE]
            clause = f"AND id IN ({', '.join('?' * len(wanted))})"
            rows = self.fetch(connection, space, clause, *wanted)
            if not {row["id"] for row in rows} <= set(wanted):
                raise self._damaged_by_id()
            found.update((row["id"], row) for row in rows)
        return found

    def _damaged_by_id(self) -> StorageCorrupt:
        return StorageCorrupt(
            f"The index of {self.name} by id is damaged.",
            hint="Run 'commonplace doctor --repair' to rebuild it from the rows.",
        )

    def by_nums(
        self, connection: apsw.Connection, space: str, nums: Sequence[int]
    ) -> dict[int, Row]:
        """Verified rows by their number."""
        # One look-up each: for a list, SQLite would rather walk an index of the whole space.
        found = [self.fetch(connection, space, "AND num = ?", num) for num in nums]
        return {row["num"]: row for rows in found for row in rows}

    def insert(self, unit: Writing, values: Mapping[str, Any]) -> Row:
        """A new row, numbered, hashed and stamped with the unit's operation."""
        return self._put(unit, [unit.next_num(), *(values[c] for c in self.columns), unit.seq])

    def insert_many(self, unit: Writing, rows: list[Row]) -> list[Row]:
        """New rows, as `insert` makes them, in one statement.

        What is given becomes the rows: it gets their numbers and operation.
        """
        # Stamped one by one as they are stored, so that no second list of them is built.
        unit.connection.executemany(self._insert, (self._stamped(unit, row) for row in rows))
        return rows

    def _stamped(self, unit: Writing, row: Row) -> tuple[Any, ...]:
        num = row["num"] = unit.next_num()
        seq = row["seq"] = unit.seq
        values = (unit.space, num, *self._content(row), seq)
        return (*values, digest(self.name, *values))

    def _put(self, unit: Writing, values: list[Any]) -> Row:
        hashed = self.hash(unit.space, values)
        unit.connection.execute(self._insert, (unit.space, *values, hashed))
        return dict(zip(self.fields, values, strict=True))

    def replace(
        self, unit: Writing, row: Row, changes: Mapping[str, Any], vectors: bytes | None = None
    ) -> Row:
        """The row with changes; what it was stays as a version."""
        self._keep(unit, row, vectors)
        new = {**row, **changes, "seq": unit.seq}
        values = [new[field] for field in self.fields]
        hashed = self.hash(unit.space, values)
        unit.connection.execute(self._update, (*values[1:], hashed, unit.space, row["num"]))
        return new

    def remove(self, unit: Writing, row: Row, vectors: bytes | None = None) -> None:
        """The row is no longer current; what it was stays as a version."""
        self._keep(unit, row, vectors)
        unit.connection.execute(self._delete, (unit.space, row["num"]))

    def restore(self, unit: Writing, row: Row) -> Row:
        """A row that had been removed, current again under its old number."""
        return self._put(unit, [*(row[field] for field in self.fields[:-1]), unit.seq])

    def _keep(self, unit: Writing, row: Row, vectors: bytes | None) -> None:
        if row["seq"] == unit.seq:
            return  # written by this very operation: nobody ever saw it
        text = dump(row[field] for field in self.fields)
        key = (unit.space, self.name, row["num"], row["seq"], unit.seq)
        unit.connection.execute(
            "INSERT INTO versions (space, entity, num, since, until, row, vectors, hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, text, vectors, digest(*key, text, vectors)),
        )

    def versions(
        self, connection: apsw.Connection, space: str, clause: str = "", *params: Any
    ) -> list[tuple[Row, int, bytes | None]]:
        """Former rows as (row, replaced by operation, vectors), each verified."""
        found = []
        for num, since, until, text, vectors, hashed in connection.execute(
            "SELECT num, since, until, row, vectors, hash FROM versions"
            " WHERE space = ? AND entity = ? " + clause,
            (space, self.name, *params),
        ):
            if digest(space, self.name, num, since, until, text, vectors) != hashed:
                raise StorageCorrupt(
                    f"A version of row {num} of {self.name} does not match its hash.",
                    hint="Run 'commonplace doctor' and restore from a backup.",
                )
            found.append((dict(zip(self.fields, load(text), strict=True)), until, vectors))
        return found


MEMORIES = Table(
    "memories", "id", "kind", "title", "text", "tags", "importance", "confidence", "credit",
    "state", "pinned", "occurred_at", "created_at", "updated_at", "ref", "attrs", "origin", "trust",
)  # fmt: skip
MESSAGES = Table("messages", "memory", "conversation", "session", "position", "speaker")
LINKS = Table(
    "links", "id", "source", "target", "kind", "weight", "reason", "attrs", "origin", "created_at"
)
FACTS = Table(
    "facts", "id", "subject", "predicate", "object", "subject_key", "predicate_key", "object_key",
    "valid_from", "valid_to", "confidence", "memory", "attrs", "origin", "created_at",
)  # fmt: skip
CLUSTERS = Table(
    "clusters", "id", "name", "digest", "parent", "centroid", "attrs", "origin", "created_at"
)
MEMBERS = Table("members", "cluster", "memory")
ARTIFACTS = Table(
    "artifacts", "id", "path", "title", "media_type", "version", "status", "state", "attrs",
    "origin", "created_at", "updated_at",
)  # fmt: skip
CONTENTS = Table("contents", "artifact", "version", "content", "summary", "origin", "created_at")
REVIEWS = Table(
    "reviews", "artifact", "version", "reviewer", "outcome", "comments", "origin", "created_at"
)
VERSIONED: tuple[Table, ...] = (
    MEMORIES, MESSAGES, LINKS, FACTS, CLUSTERS, MEMBERS, ARTIFACTS, CONTENTS, REVIEWS,
)  # fmt: skip
EVENTS = Table("events", "kind", "subject", "at", "payload", "payload_hash")
