"""Backups: a directory with one file a space and a manifest that says what each must hold.

A backup is taken while others write, is written aside and put in place whole, and is read again
before anybody is told that it exists. A backup of all spaces also holds what is beside them, but
never the master key: what it seals cannot be read from a backup alone. `restoring.py` brings it
back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import (
    NO_ROOM,
    CommonplaceError,
    Conflict,
    NotFound,
    StorageCorrupt,
    StorageFull,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage import schema
from commonplace.storage.database import (
    Connection,
    copy_database,
    sync_directory,
    typed,
    version_of,
)
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents
from commonplace.storage.reports import BackupReport, Progress
from commonplace.storage.sqlite import beside
from commonplace.storage.tables import (
    COUNTERS,
    EVENTS,
    HEAD,
    OPERATIONS,
    VERSIONED,
    VERSIONS,
    Hashed,
    digest,
)
from commonplace.storage.writing import read_head

FORMAT = "commonplace-backup"
VERSION = 2
BESIDE = "beside"  # the folder of what belongs to no space, since a space may be called system
MANIFEST = "manifest.json"
SHARE = 1_000  # a step's progress is told in thousandths
NAMED = 100  # more damaged rows of one table than this are only counted


@dataclass(frozen=True, slots=True)
class Kept:
    """A table whose rows carry a hash, as its rows are read one by one."""

    table: Hashed
    key: tuple[str, ...]
    """What identifies a row."""
    columns: tuple[str, ...]
    """All columns but `space` and the hash."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def hash(self, space: str, values: Sequence[Any]) -> bytes:
        """What the hash of a row must be, for values in the order of `columns`."""
        row = dict(zip(self.columns, values, strict=True), space=space)
        payload = row.get("payload")  # of an event; its own hash is part of the row's
        if payload is not None and digest(payload) != row["payload_hash"]:
            return b""
        return self.table.hash(tuple(row[name] for name in self.table.covered), row["format"])

    def said(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The values of a row without what later formats added to it and left at its default."""
        row = dict(zip(self.columns, values, strict=True))
        newer = self.table.newer([row[name] for name in self.table.added])
        kept = [row[name] for name in self.columns if name not in (*self.table.added, "format")]
        return (*kept, *newer.items())


def _kept(table: Hashed, *key: str) -> Kept:
    columns = tuple(name for name in table.stored[:-1] if name != "space")
    return Kept(table, key, columns)


KEPT: tuple[Kept, ...] = (
    _kept(HEAD, "seq"),
    _kept(OPERATIONS, "num"),
    *(_kept(table, "num") for table in VERSIONED),
    _kept(EVENTS, "num"),
    _kept(VERSIONS, "entity", "num", "until"),
    _kept(COUNTERS, "memory"),
)
TABLES = {kept.name: kept for kept in KEPT}


@dataclass(slots=True)
class Census:
    """How many rows a file holds, a digest of what they say, and which of them are not sound."""

    rows: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    rotten: dict[str, list[str]] = field(default_factory=dict)
    unsound: int = 0

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())

    def note(self, table: str, row: str) -> None:
        """A row that is not what was written."""
        self.unsound += 1
        named = self.rotten.setdefault(table, [])
        if len(named) < NAMED:
            named.append(row)


def take_census(
    connection: Connection, space: str, told: Callable[[int], None] | None = None
) -> Census:
    """Read every row of every table that has hashes. The digest does not depend on the space."""
    census, whole, seen = Census(), hashlib.sha256(), 0
    for kept in KEPT:
        count = 0
        for owner, values, sound in read_rows(connection, kept):
            count += 1
            if not sound or owner != space:
                census.note(kept.name, named(kept, values))
            whole.update(ascii((kept.name, *kept.said(values))).encode())
            if told is not None and count % 1_000 == 0:
                told(seen + count)
        census.rows[kept.name] = count
        seen += count
    census.digest = whole.hexdigest()
    return census


def named(kept: Kept, values: Sequence[Any]) -> str:
    """A row as people find it: its table and what identifies it."""
    at = dict(zip(kept.columns, values, strict=True))
    return f"{kept.name} {', '.join(f'{part} {at[part]}' for part in kept.key)}"


def read_rows(connection: Connection, kept: Kept) -> Iterator[tuple[Any, tuple[Any, ...], bool]]:
    """(space, values, whether they match their hash) of every row, in the order of its key."""
    after: tuple[Any, ...] | None = None
    try:
        for space, *values, hashed in connection.execute(_select(kept, kept.columns)):
            yield space, tuple(values), kept.hash(space, values) == hashed
            after = tuple(values)
        return
    except UnicodeDecodeError:
        pass  # a text that is no text any more ends a cursor: read the rest byte by byte
    skipping = after is not None
    for row in connection.execute(_select(kept, [f"CAST({c} AS BLOB)" for c in kept.columns])):
        values, sound = _again(connection, kept, row)
        if skipping:
            skipping = values != after
            continue
        yield row[0], values, sound


def _select(kept: Kept, columns: Sequence[str]) -> str:
    order = ", ".join(kept.key)
    return f"SELECT space, {', '.join(columns)}, hash FROM {kept.name} ORDER BY {order}"  # noqa: S608


def _again(connection: Connection, kept: Kept, row: Sequence[Any]) -> tuple[tuple[Any, ...], bool]:
    """One row by its key; where its texts cannot be read, what can be shown of it."""
    raw = dict(zip(kept.columns, row[1:-1], strict=True))
    where = " AND ".join(f"CAST({part} AS BLOB) = ?" for part in kept.key)
    try:
        found = connection.execute(
            f"SELECT space, {', '.join(kept.columns)}, hash FROM {kept.name} WHERE {where}",  # noqa: S608
            [raw[part] for part in kept.key],
        ).fetchone()
    except UnicodeDecodeError:
        found = None
    if found is None:
        shown = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in row[1:-1])
        return tuple(shown), False
    space, *values, hashed = found
    return tuple(values), kept.hash(space, values) == hashed


class Told:
    """Progress of several steps as one count that only grows."""

    def __init__(self, progress: Progress | None, steps: int) -> None:
        self._progress, self._steps = progress, steps
        self._step = 0

    def part(self, done: int, total: int) -> None:
        if self._progress is not None:
            share = min(SHARE, SHARE * done // max(1, total))
            self._progress(self._step * SHARE + share, self._steps * SHARE)

    def next(self) -> None:
        self.part(1, 1)
        self._step += 1


def backup(
    library: Contents,
    target: Path,
    *,
    spaces: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy spaces into a new directory, while others write; it holds all that was acknowledged.

    Without a choice of spaces it also holds what is beside them. The directory appears whole and
    verified, or not at all.
    """
    target = Path(target).expanduser().absolute()
    names = chosen(library.spaces(), spaces, f"{library.path} has")
    files = beside.present(library.path) if spaces is None else []
    if target.exists() or target.is_symlink():
        raise Conflict(f"{target} exists already.", hint="Choose a new name.", field="target")
    told = Told(progress, 2 * len(names) + 2 * len(files))
    aside: Path | None = None
    try:
        make_private(target.parent)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        due = beside.asked(library.path) if spaces is None else []
        others = {name: _copy_beside(library, name, aside / BESIDE, told) for name in files}
        begun: set[str] = set()
        if beside.WORKFLOWS in others:
            with open_sealed(aside / others[beside.WORKFLOWS]["file"]) as connection:
                begun = beside.begun(connection)
        entries = {name: _copy(library, name, aside / f"{name}.db", told) for name in names}
        if spaces is None:
            due = beside.due_since(library.path, due, begun)
        _write_manifest(aside / MANIFEST, entries, others, due)
        report = verified(aside, read_manifest(aside), names, files, told)
        sync_directory(aside)
        aside.rename(target)
        sync_directory(target.parent)
    except BaseException as error:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            raise refused(error, target) from error
        if isinstance(error, apsw.Error):
            raise typed(error) from error
        raise
    return BackupReport(target, report.spaces, report.digest, report.files)


def _copy_beside(library: Contents, name: str, folder: Path, told: Told) -> dict[str, Any]:
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / Path(name).name
    entry = beside.copy(library.path, name, target)
    told.next()
    return {
        "file": f"{BESIDE}/{target.name}",
        "sha256": sha256(target),
        "bytes": target.stat().st_size,
        **entry,
    }


def chosen(there: Sequence[str], wanted: Sequence[str] | None, whose: str) -> list[str]:
    if wanted is None:
        return list(there)
    missing = [name for name in wanted if name not in there]
    if missing or isinstance(wanted, str):
        raise NotFound(
            f"{whose} no space {missing[0] if missing else wanted!r}.",
            hint=f"It has {', '.join(there) or 'none'}.",
            field="spaces",
        )
    return list(dict.fromkeys(wanted))


def _copy(library: Contents, name: str, target: Path, told: Told) -> dict[str, Any]:
    with library.lease(name) as space:
        if space.store.open_unit is not None:
            raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
        with contextlib.suppress(StorageFull):  # the counts of reads alone must not prevent it
            space.write_reads()
        with space.store.read() as connection:
            assert isinstance(connection, Connection)
            copy_database(connection, target, told.part)
            # Counted in the space itself, so that reading the copy compares the two.
            census = take_census(connection, name)
            seq = read_head(connection, name)[0]
            version = version_of(connection)
    for rows in census.rotten.values():
        raise StorageCorrupt(
            f"{census.unsound} rows of {name} do not match their hash, first {rows[0]}.",
            hint="Run 'commonplace doctor'; a backup of damage would only hide it.",
        )
    told.next()
    return {
        "file": target.name,
        "sha256": sha256(target),
        "bytes": target.stat().st_size,
        "schema": version,
        "seq": seq,
        "rows": census.rows,
        "digest": census.digest,
    }


@contextlib.contextmanager
def open_sealed(path: Path) -> Iterator[Connection]:
    """A file that nobody writes to, opened so that reading leaves no mark on it or beside it."""
    connection = Connection(
        f"{path.absolute().as_uri()}?immutable=1",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    try:
        yield connection
    finally:
        connection.close(True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_sum(manifest: Mapping[str, Any]) -> str:
    said = {name: value for name, value in manifest.items() if name != "sum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _write_manifest(
    path: Path, entries: Mapping[str, Any], files: Mapping[str, Any], due: Sequence[Any]
) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "spaces": entries,
        "files": files,
        "due": due,
    }
    manifest["sum"] = _manifest_sum(manifest)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(source: Path) -> dict[str, Any]:
    if not source.is_dir():
        raise NotFound(f"There is no backup at {source}.", hint="Name its directory.")
    try:
        manifest = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError
    except FileNotFoundError:
        raise _broken(source, f"{MANIFEST} is missing") from None
    except ValueError:
        raise _broken(source, f"{MANIFEST} is not one") from None
    if _manifest_sum(manifest) != manifest.get("sum"):
        raise _broken(source, f"{MANIFEST} is not as it was written")
    if manifest["version"] > VERSION:
        raise UnsupportedVersion(
            f"The backup has format version {manifest['version']}, this release knows {VERSION}.",
            hint="Use the newer release that wrote it.",
        )
    return {"files": {}, "due": [], **manifest}  # the first version had neither


def _broken(source: Path, what: str) -> StorageCorrupt:
    return StorageCorrupt(f"The backup {source} is damaged: {what}.", hint="Use another backup.")


def verify(path: Path, progress: Progress | None = None) -> BackupReport:
    """Read a whole backup; StorageCorrupt names what is not as it was written."""
    path = Path(path).expanduser().absolute()
    manifest = read_manifest(path)
    steps = len(manifest["spaces"]) + len(manifest["files"])
    return verified(
        path, manifest, list(manifest["spaces"]), list(manifest["files"]), Told(progress, steps)
    )


def verified(
    source: Path,
    manifest: Mapping[str, Any],
    names: Sequence[str],
    files: Sequence[str],
    told: Told,
) -> BackupReport:
    spaces, digests = {}, {}
    for name in files:
        entry = manifest["files"][name]
        try:
            _verify_beside(source, name, entry)
        except FileNotFoundError:
            raise _broken(source, f"{name} is missing") from None
        except apsw.Error as error:
            raise _broken(source, f"{name} cannot be read ({error})") from error
        told.next()
    for name in names:
        entry = manifest["spaces"][name]
        try:
            _verify_file(source, name, entry, told)
        except FileNotFoundError:
            raise _broken(source, f"{name}.db is missing") from None
        except apsw.Error as error:
            raise _broken(source, f"{name}.db cannot be read ({error})") from error
        spaces[name], digests[name] = entry["rows"]["memories"], entry["digest"]
    return BackupReport(source, spaces, digests, tuple(files))


def _verify_beside(source: Path, name: str, entry: Mapping[str, Any]) -> None:
    if name not in beside.FILES or entry["file"] != f"{BESIDE}/{Path(name).name}":
        raise _broken(source, f"{MANIFEST} names the file {entry['file']!r} for {name}")
    path = source / entry["file"]
    _verify_bytes(source, path, entry)
    with open_sealed(path) as connection:
        for fault in beside.faults(connection, name):
            raise _broken(source, f"{name}: {fault}")
        for part, value in beside.summary(connection, name).items():
            if entry[part] != value:
                raise _broken(source, f"{name} has {part} {value} instead of {entry[part]}")


def _verify_bytes(source: Path, path: Path, entry: Mapping[str, Any]) -> None:
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise _broken(source, f"{path.name} has {size} bytes instead of {entry['bytes']}")
    if sha256(path) != entry["sha256"]:
        raise _broken(source, f"{path.name} does not match its SHA-256")


def _verify_file(source: Path, name: str, entry: Mapping[str, Any], told: Told) -> None:
    if entry["file"] != f"{name}.db" or Path(entry["file"]).name != entry["file"]:
        raise _broken(source, f"{MANIFEST} names the file {entry['file']!r} for {name}")
    if entry["schema"] > len(schema.MIGRATIONS):
        raise UnsupportedVersion(
            f"{name}.db has schema version {entry['schema']}, this release knows up to"
            f" {len(schema.MIGRATIONS)}.",
            hint="Use the newer release that wrote it.",
        )
    path = source / entry["file"]
    _verify_bytes(source, path, entry)
    with open_sealed(path) as connection:
        if version_of(connection) != entry["schema"]:
            raise _broken(source, f"{path.name} has another schema version than {MANIFEST} says")
        for (fault,) in connection.execute("PRAGMA integrity_check(5)"):
            if fault != "ok":
                raise _broken(source, f"{path.name}: {fault}")
        if entry["schema"] == len(schema.MIGRATIONS):
            _verify_rows(connection, source, name, entry, told)
    told.next()


def _verify_rows(
    connection: Connection, source: Path, name: str, entry: Mapping[str, Any], told: Told
) -> None:
    total = sum(entry["rows"].values())
    census = take_census(connection, name, lambda done: told.part(done, total))
    for rows in census.rotten.values():
        raise _broken(
            source, f"{census.unsound} rows of {name}.db do not match their hash, first {rows[0]}"
        )
    for table, count in entry["rows"].items():
        if census.rows.get(table) != count:
            raise _broken(
                source, f"{name}.db has {census.rows.get(table)} {table} instead of {count}"
            )
    if read_head(connection, name)[0] != entry["seq"]:
        raise _broken(source, f"{name}.db has another change counter")
    if census.digest != entry["digest"]:
        raise _broken(source, f"{name}.db does not say what was backed up")


def refused(error: OSError, path: Path) -> CommonplaceError:
    if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
        return Conflict(f"{path} exists already.", hint="Choose a new name.", field="target")
    if error.errno in NO_ROOM:
        return StorageFull(f"There is no room for {path}.", hint="Free disk space and try again.")
    return StorageUnavailable(
        f"{path} cannot be written: {error.strerror or error}.", hint="Choose another place."
    )
