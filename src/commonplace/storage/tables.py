"""Versioned tables: each row has the operation that wrote it and a hash of its values.

Before a row is changed, it is copied to `versions`, so that updates destroy nothing. Every read
checks the hash, so that damaged rows are not returned. All tables with hashes are declared at the
end.

Every hashed table has a column `format`. Format 1 covers the first columns of the table by
position; no new row uses it, and no row is ever rehashed. Format 2 covers the format number and the
columns by name, except added columns with their default value. So a new column, which has its
default in every existing row, changes no hash and needs no new format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any, Protocol

import apsw

from commonplace.errors import StorageCorrupt
from commonplace.storage.fields import DEFAULTS, FIELDS
from commonplace.storage.ports import Rows

Row = dict[str, Any]

ORIGIN_PARTS = ("user", "client", "tool", "session", "url", "label")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who stored a memory, with which client and tool, in which session. It never changes."""

    user: str = ""
    client: str = ""
    tool: str = ""
    session: str = ""
    url: str = ""
    label: str = ""
    """The label that the operations of one import or patrol share; older ones have it as `url`."""

    def as_dict(self) -> dict[str, str]:
        """Return the parts that are not empty."""
        return {name: value for name in ORIGIN_PARTS if (value := getattr(self, name))}

    def dump(self) -> str:
        """Return the stored JSON."""
        if self is NOBODY or self == NOBODY:
            return "{}"
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def load(text: str) -> Origin:
        """Parse the stored JSON; unknown keys of newer releases are ignored."""
        return NOBODY if text == "{}" else _origin(text)


NOBODY = Origin()


@lru_cache(maxsize=1024)  # Many memories share few origins.
def _origin(text: str) -> Origin:
    known = json.loads(text)
    return Origin(**{name: known[name] for name in ORIGIN_PARTS if name in known})


FORMAT = 2
"""The format of new rows."""
_PIECE = 65_536
"""Longer texts and bytes are hashed in pieces of this length."""

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_PLAIN_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__), (bytes, bytes), (int, int.__int__), (float, float.__float__),
)  # fmt: skip


def digest(*values: Any) -> bytes:
    """Return a SHA-256 over values, with unambiguous boundaries between them.

    `ascii` formats texts, bytes, numbers and None the same on every version of Python. `repr` does
    not, because the characters that it escapes depend on Python's Unicode version.
    """
    return sha256(ascii(plain_values(values)).encode()).digest()


def plain_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values as SQLite returns them; subclasses of str and int may print differently."""
    if _PLAIN.issuperset(map(type, values)):
        return values
    return tuple(map(_as_stored, values))


def _as_stored(value: Any) -> Any:
    for plain_type, make in _PLAIN_CONVERSIONS:
        if isinstance(value, plain_type) and type(value) not in _PLAIN:
            return make(value)
    return value


def _hash_in_pieces(prefix: bytes, values: tuple[Any, ...]) -> bytes:
    """Return the SHA-256 of `prefix + ascii(values).encode()`, computed piece by piece.

    For a value of many megabytes, a single call of `ascii` would hold the interpreter lock and
    block all other requests for a tenth of a second.
    """
    hashed = sha256(prefix + b"(")
    for at, value in enumerate(values):
        hashed.update(b", " if at else b"")
        if isinstance(value, str | bytes) and len(value) > _PIECE:
            for piece in _ascii_pieces(value):
                hashed.update(piece.encode())
        else:
            hashed.update(ascii(value).encode())
    hashed.update(b",)" if len(values) == 1 else b")")
    return hashed.digest()


def _ascii_pieces(value: str | bytes) -> Iterator[str]:
    """Yield `ascii(value)` in pieces.

    Python encloses a value in double quotes if it contains single quotes only. Each piece gets
    quotes at its end, which make Python choose the same quotes for it, and which are cut off.
    """
    single, double = ("'", '"') if isinstance(value, str) else (b"'", b'"')
    if single in value and double not in value:  # type: ignore[operator]
        quote, appended, written = '"', single, "'"
    else:
        quote, appended, written = "'", single + double, "\\'\""  # type: ignore[operator]
    start = "b" * isinstance(value, bytes) + quote
    yield start
    for at in range(0, len(value), _PIECE):
        piece = ascii(value[at : at + _PIECE] + appended)  # type: ignore[operator]
        yield piece[len(start) : -len(written) - 1]
    yield quote


class Hashed:
    """A table whose rows have a hash, and the format in which the hash was computed.

    `columns` are the columns of format 1 in hashing order, including `space`. `tag` is the text
    that format 1 hashes before them. `added` are later columns with the constant default of their
    migration, oldest first; a new column goes to the end. `unhashed` are columns that the hash does
    not cover. `long_values` says that values may have megabytes.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        added: Mapping[str, Any] | None = None,
        unhashed: Sequence[str] = (),
        tag: tuple[str, ...] = (),
        hash_column: str = "hash",
        long_values: bool = False,
    ) -> None:
        self.name = name
        self.added: Mapping[str, Any] = dict(added or {})
        self.covered = (*columns, *self.added)
        self.unhashed = tuple(unhashed)
        self.hash_column = hash_column
        self.stored = (*columns, *self.unhashed, *self.added, "format", hash_column)
        names, marks = ", ".join(self.stored), ", ".join("?" * len(self.stored))
        before, after = names.split("space, ", 1)
        self.select_sql = f"SELECT {names} FROM {name} WHERE space = ?"
        self.insert_sql = f"INSERT INTO {name} ({before}space, {after}) VALUES ({marks})"
        self._first = tuple(columns)
        self._tag = tag
        self._long_values = long_values
        self._defaults = tuple(self.added.values())
        self._prefixes: dict[tuple[str, ...], bytes] = {}
        self._prefix = self._names_prefix(())

    def _names_prefix(self, newer: tuple[str, ...]) -> bytes:
        """Return the names of the table and columns, which format 2 hashes before the values."""
        prefix = self._prefixes.get(newer)
        if prefix is None:
            prefix = ascii((self.name, FORMAT, (*self._first, *newer))).encode()
            self._prefixes[newer] = prefix
        return prefix

    def hash(self, values: tuple[Any, ...], format: Any = FORMAT) -> bytes:
        """Return the hash of a row, for plain values in the order of `covered`.

        It is empty for an invalid row: the format is unknown, or a row of format 1 has an added
        column that differs from its default.
        """
        at = len(self._first)
        first, usual = values[:at], values[at:] == self._defaults
        if format == FORMAT:
            prefix = self._prefix
            if not usual:
                newer = self.changed_additions(values[at:])
                prefix = self._names_prefix(tuple(newer))
                first = (*first, *newer.values())
            if self._long_values:
                return _hash_in_pieces(prefix, first)
            return sha256(prefix + ascii(first).encode()).digest()
        if format == 1 and usual:
            return sha256(ascii((*self._tag, *first)).encode()).digest()
        return b""

    def changed_additions(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the added columns that differ from their default, in order."""
        pairs = zip(self.added.items(), values, strict=True)
        return {name: value for (name, default), value in pairs if value != default}

    def row(self, values: tuple[Any, ...], *unhashed: Any) -> tuple[Any, ...]:
        """Return a new row for `insert_sql`, from values in the order of `covered`.

        Missing added columns get their default.
        """
        at = len(self._first)
        if len(values) < len(self.covered):
            values = (*values, *self._defaults[len(values) - at :])
        values = plain_values(values)
        if unhashed:
            return (*values[:at], *unhashed, *values[at:], FORMAT, self.hash(values))
        return (*values, FORMAT, self.hash(values))

    def matches_hash(self, stored: Sequence[Any]) -> bool:
        """Return whether a row that `select_sql` returned matches its hash."""
        at = len(self._first)
        covered = (*stored[:at], *stored[at + len(self.unhashed) : -2])
        return bool(self.hash(covered, stored[-2]) == stored[-1])

    def select_from(self, connection: Rows) -> str:
        """Return `select_sql` with defaults for columns that an older file lacks."""
        there = connection.columns(self.name)
        absent = {"format": 1, **self.added}
        names = [
            name if name in there else f"{apsw.format_sql_value(absent[name])} AS {name}"
            for name in self.stored
        ]
        return f"SELECT {', '.join(names)} FROM {self.name} WHERE space = ?"

    def upsert(self, *key: str) -> str:
        """Return an upsert statement; the key is the space and these columns."""
        others = [name for name in self.stored if name not in ("space", *key)]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        more = "".join(f", {name}" for name in key)
        return f"{self.insert_sql} ON CONFLICT (space{more}) DO UPDATE SET {changes}"


_IDS_AT_ONCE = 100  # How many ids are looked up in one statement.

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _as_json(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _from_json(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


class WritingUnit(Protocol):
    """The attributes of a unit of work that a versioned write uses."""

    @property
    def connection(self) -> Rows: ...
    @property
    def space(self) -> str: ...
    @property
    def seq(self) -> int: ...
    def next_num(self) -> int: ...


class Table(Hashed):
    """One versioned table. Rows are dictionaries of `num`, its columns and `seq`."""

    def __init__(
        self,
        name: str,
        *columns: str,
        added: Mapping[str, Any] | None = None,
        long_values: bool = False,
    ) -> None:
        super().__init__(
            name, ("space", "num", *columns, "seq"), added=added, tag=(name,),
            long_values=long_values,
        )  # fmt: skip
        self.fields = self.covered[1:]
        self.columns = tuple(field for field in self.fields if field not in ("num", "seq"))
        names = ", ".join((*self.fields, "format", "hash"))
        self._read = f"SELECT {names} FROM {name} WHERE space = ? "
        settings = ", ".join(f"{field} = ?" for field in (*self.fields[1:], "format", "hash"))
        self._update = f"UPDATE {name} SET {settings} WHERE space = ? AND num = ?"
        self._delete = f"DELETE FROM {name} WHERE space = ? AND num = ?"
        self._values = itemgetter(*self.fields)
        self._needed = len(self.fields) - len(self.added)  # the columns of format 1

    def verified(self, space: str, stored: Sequence[Any]) -> Row:
        """Return the row as a dictionary; raise StorageCorrupt if it does not match its hash."""
        values = tuple(stored[:-2])
        if self.hash((space, *values), stored[-2]) != stored[-1]:
            raise StorageCorrupt(
                f"Row {stored[0]} of {self.name} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        return dict(zip(self.fields, values, strict=True))

    def fetch(self, connection: Rows, space: str, clause: str = "", *params: Any) -> list[Row]:
        """Return verified rows of the space; `clause` continues the WHERE clause."""
        return self._all_verified(space, connection.execute(self._read + clause, (space, *params)))

    def _all_verified(self, space: str, rows: Iterable[tuple[Any, ...]]) -> list[Row]:
        fields, hashed = self.fields, self.hash
        found = []
        for stored in rows:
            values = stored[:-2]
            # This does the same as `verified`, but faster for intact rows.
            if hashed((space, *values), stored[-2]) != stored[-1]:
                self.verified(space, stored)
            found.append(dict(zip(fields, values)))  # noqa: B905
        return found

    def fetch_one(self, connection: Rows, space: str, clause: str, *params: Any) -> Row | None:
        """Return the first verified row, or None."""
        rows = self.fetch(connection, space, clause + " LIMIT 1", *params)
        return rows[0] if rows else None

    def where(
        self,
        connection: Rows,
        space: str,
        /,
        *,
        upto: int | None = None,
        without: int | None = None,
        in_order: bool = False,
        **equal: Any,
    ) -> list[Row]:
        """Return verified rows with these values; `in_order` sorts them by number.

        `upto` is the newest operation whose rows count; `without` is the number of a row to skip.
        """
        clause = "".join([f"AND {name} = ? " for name in equal])
        values = list(equal.values())
        if upto is not None:
            clause += "AND seq <= ? "
            values.append(upto)
        if without is not None:
            clause += "AND num <> ? "
            values.append(without)
        rows = self.fetch(connection, space, clause + "ORDER BY num" * in_order, *values)
        return self._checked_values(rows, equal)

    def first(self, connection: Rows, space: str, /, **equal: Any) -> Row | None:
        """Return a verified row with these values, or None."""
        clause = "".join([f"AND {name} = ? " for name in equal])
        row = self.fetch_one(connection, space, clause, *equal.values())
        return None if row is None else self._checked_values([row], equal)[0]

    def _checked_values(self, rows: list[Row], equal: Mapping[str, Any]) -> list[Row]:
        """Return the rows; raise StorageCorrupt if one has other values: the index is damaged."""
        for name, value in equal.items():
            if any(row[name] != value for row in rows):
                raise self._damaged_index(name)
        return rows

    def is_empty(self, connection: Rows, space: str) -> bool:
        """Return whether a space has no row in this table."""
        select = f"SELECT 1 FROM {self.name} WHERE space = ? LIMIT 1"
        return connection.execute(select, (space,)).fetchone() is None

    def among(
        self, connection: Rows, space: str, column: str, values: Sequence[Any], /, **equal: Any
    ) -> list[Row]:
        """Return verified rows with one of these values in a column, in few statements."""
        clause = "".join([f"AND {name} = ? " for name in equal])
        found: list[Row] = []
        for at in range(0, len(values), _IDS_AT_ONCE):
            part = values[at : at + _IDS_AT_ONCE]
            marks = ", ".join("?" * len(part))
            whole = f"{clause}AND {column} IN ({marks})"
            found += self.fetch(connection, space, whole, *equal.values(), *part)
        wanted = set(values)
        if any(row[column] not in wanted for row in found):
            raise self._damaged_index(column)
        return self._checked_values(found, equal)

    def by_id(self, connection: Rows, space: str, identity: str) -> Row | None:
        """Return the verified row with an id, or None; raise StorageCorrupt for a damaged index."""
        row = self.fetch_one(connection, space, "AND id = ?", identity)
        if row is not None and row["id"] != identity:
            raise self._damaged_index("id")
        return row

    def by_ids(self, connection: Rows, space: str, identities: Sequence[str]) -> dict[str, Row]:
        """Return verified rows by their id, like `by_id`, but in few statements."""
        found: dict[str, Row] = {}
        for first in range(0, len(identities), _IDS_AT_ONCE):
            wanted = identities[first : first + _IDS_AT_ONCE]
            clause = f"AND id IN ({', '.join('?' * len(wanted))})"
            rows = self.fetch(connection, space, clause, *wanted)
            if not {row["id"] for row in rows} <= set(wanted):
                raise self._damaged_index("id")
            found.update((row["id"], row) for row in rows)
        return found

    def _damaged_index(self, column: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"The index of {self.name} by {column} is damaged.",
            hint="Run 'commonplace doctor --repair' to rebuild it from the rows.",
        )

    def by_nums(self, connection: Rows, space: str, nums: Sequence[int]) -> dict[int, Row]:
        """Return verified rows by their number."""
        found = connection.select_each(self._read, "num", space, nums)
        return {row["num"]: row for row in self._all_verified(space, found)}

    def insert(self, unit: WritingUnit, values: Mapping[str, Any]) -> Row:
        """Insert a row with a new number, the unit's operation and a hash."""
        row = {**self.added, **values, "num": unit.next_num(), "seq": unit.seq}
        return self._put(unit, row)

    def insert_many(self, unit: WritingUnit, rows: list[Row]) -> list[Row]:
        """Insert rows as `insert` does, in one statement.

        The dictionaries in `rows` get the numbers and the operation.
        """
        # Use a generator, so that no second list of all rows is built.
        unit.connection.executemany(self.insert_sql, (self._with_number(unit, row) for row in rows))
        return rows

    def _with_number(self, unit: WritingUnit, row: Row) -> tuple[Any, ...]:
        row["num"] = unit.next_num()
        row["seq"] = unit.seq
        return self.row((unit.space, *self._values(row)))

    def _put(self, unit: WritingUnit, row: Row) -> Row:
        values = self._values(row)
        unit.connection.execute(self.insert_sql, self.row((unit.space, *values)))
        return dict(zip(self.fields, values, strict=True))

    def replace(
        self, unit: WritingUnit, row: Row, changes: Mapping[str, Any], vectors: bytes | None = None
    ) -> Row:
        """Change a row; its former state becomes a version."""
        self._keep_version(unit, row, vectors)
        new = {**row, **changes, "seq": unit.seq}
        values = plain_values(self._values(new))
        hashed = self.hash((unit.space, *values))
        changed = (*values[1:], FORMAT, hashed, unit.space, row["num"])
        unit.connection.execute(self._update, changed)
        return new

    def remove(self, unit: WritingUnit, row: Row, vectors: bytes | None = None) -> None:
        """Remove a row; its former state becomes a version."""
        self._keep_version(unit, row, vectors)
        unit.connection.execute(self._delete, (unit.space, row["num"]))

    def restore(self, unit: WritingUnit, row: Mapping[str, Any]) -> Row:
        """Insert a removed row again, with its old number."""
        return self._put(unit, {**self.added, **row, "seq": unit.seq})

    def _keep_version(self, unit: WritingUnit, row: Row, vectors: bytes | None) -> None:
        if row["seq"] == unit.seq:
            return  # The current operation wrote this row, so no reader has seen it.
        key = (unit.space, self.name, row["num"], row["seq"], unit.seq)
        unit.connection.execute(VERSIONS.insert_sql, VERSIONS.row((*key, self.dump(row), vectors)))

    def dump(self, row: Row) -> str:
        """Return a row as JSON for `versions`, without added columns that have their default."""
        values = self._values(row)
        named = dict(zip(self.fields, values[: self._needed], strict=False))
        named |= self.changed_additions(values[self._needed :])
        return _encode({name: _as_json(value) for name, value in named.items()})

    def load(self, text: str) -> Row:
        """Return the row of a version: a JSON object, or a list in format 1."""
        kept = json.loads(text)
        needed = self.fields[: self._needed]
        if isinstance(kept, list) and len(kept) == len(needed):
            kept = dict(zip(needed, kept, strict=True))
        if (
            not isinstance(kept, dict)
            or not kept.keys() >= set(needed)
            or not kept.keys() <= set(self.fields)
        ):
            raise StorageCorrupt(
                f"A version of a row of {self.name} does not have the columns of the table.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        row = {**dict.fromkeys(needed), **self.added, **kept}
        return {name: _from_json(value) for name, value in row.items()}

    def past(
        self,
        connection: Rows,
        space: str,
        /,
        *,
        num: int | None = None,
        at: int | None = None,
        after: int | None = None,
        since: int | None = None,
        until: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[tuple[Row, int, bytes | None]]:
        """Return verified former rows as (row, operation that replaced it, vectors).

        Select them by the row's number, or by operation: current at `at`, written after `after`,
        written by `since`, or replaced by `until`.
        """
        given = (
            ("num = ?", num), ("since <= ?", at), ("until > ?", at), ("since > ?", after),
            ("since = ?", since), ("until = ?", until),
        )  # fmt: skip
        clause = "".join([f"AND {each} " for each, value in given if value is not None])
        if num is not None:  # Otherwise the index by operation is used.
            clause += "ORDER BY until" + " DESC" * newest_first
        clause += "" if limit is None else f" LIMIT {limit:d}"
        values = [value for _, value in given if value is not None]
        return self.versions(connection, space, clause, *values)

    def versions(
        self, connection: Rows, space: str, clause: str = "", *params: Any
    ) -> list[tuple[Row, int, bytes | None]]:
        """Return verified former rows as (row, operation that replaced it, vectors)."""
        found = []
        statement = f"{VERSIONS.select_sql} AND entity = ? {clause}"
        for stored in connection.execute(statement, (space, self.name, *params)):
            _, _, num, _, until, text, vectors, *_ = stored
            if not VERSIONS.matches_hash(stored):
                raise StorageCorrupt(
                    f"A version of row {num} of {self.name} does not match its hash.",
                    hint="Run 'commonplace doctor' and restore from a backup.",
                )
            found.append((self.load(text), until, vectors))
        return found


MEMORIES = Table(
    "memories",
    *(name for name, field in FIELDS.items() if not field.added),
    added={name: DEFAULTS[name] for name, field in FIELDS.items() if field.added},
)
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
CONTENTS = Table(
    "contents", "artifact", "version", "content", "summary", "origin", "created_at",
    long_values=True,
)  # fmt: skip
REVIEWS = Table(
    "reviews", "artifact", "version", "reviewer", "outcome", "comments", "origin", "created_at"
)
VERSIONED: tuple[Table, ...] = (
    MEMORIES, MESSAGES, LINKS, FACTS, CLUSTERS, MEMBERS, ARTIFACTS, CONTENTS, REVIEWS,
)  # fmt: skip

HEAD = Hashed("head", ("space", "seq", "next_num"), added={"operation": "", "derived": 0})
OPERATIONS = Hashed("operations", ("num", "space", "id", "at", "name", "origin", "undoes"))
VERSIONS = Hashed("versions", ("space", "entity", "num", "since", "until", "row", "vectors"))
EVENTS = Hashed(
    "events",
    ("num", "space", "kind", "subject", "at", "payload_hash", "seq"),
    unhashed=("payload",),
)
COUNTERS = Hashed("counters", ("space", "memory", "accesses", "last_access"))
ANSWERS = Hashed("answers", ("space", "key", "at", "result"), hash_column="sum")
FILES = Hashed(
    "files",
    ("space", "root", "memory", "path", "size", "mtime", "inode", "digest", "rendered", "seq"),
    hash_column="sum",
)
AUDIT = Hashed(
    "audit",
    ("num", "space", "at", "request", "dialect", "tool", "caller", "credential", "client",
     "session", "address", "success", "error", "milliseconds", "operation", "arguments_hash",
     "result_hash", "previous"),
    unhashed=("arguments", "result"),
)  # fmt: skip
HASHED: tuple[Hashed, ...] = (
    *VERSIONED, HEAD, OPERATIONS, VERSIONS, EVENTS, COUNTERS, ANSWERS, FILES, AUDIT,
)  # fmt: skip
