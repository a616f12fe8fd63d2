"""Backups: a directory with one file for each space, and a manifest of their contents.

A backup is taken while others write. It is written under a temporary name, verified, and then
renamed. A backup of all spaces also contains the files that belong to no space, but never the
master key: secrets encrypted with that key cannot be read from a backup alone. `restore.py`
restores a backup.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import (
    DISK_FULL_ERRNOS,
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
    typed_error,
    version_of,
)
from commonplace.storage.directories import make_private, replace_file
from commonplace.storage.ports import Contents
from commonplace.storage.reports import BackupReport, Progress
from commonplace.storage.sqlite import shared_files
from commonplace.storage.sqlite.hashed_rows import take_census
from commonplace.storage.sqlite.readonly import connect_immutable
from commonplace.storage.writing import read_head

FORMAT = "commonplace-backup"
VERSION = 2
SHARED_FOLDER = "beside"  # the folder of the files that belong to no space
MANIFEST = "manifest.json"
STEP_PARTS = 1_000  # Progress is reported in thousandths of a step.
NEWER = "Use the newer release that wrote the backup."


class Steps:
    """Reports the progress of several steps as one count that only grows."""

    def __init__(self, progress: Progress | None, steps: int) -> None:
        self._progress, self._steps = progress, steps
        self._step = 0

    def part(self, done: int, total: int) -> None:
        if self._progress is not None:
            share = min(STEP_PARTS, STEP_PARTS * done // max(1, total))
            self._progress(self._step * STEP_PARTS + share, self._steps * STEP_PARTS)

    def next(self) -> None:
        self.part(1, 1)
        self._step += 1


def backup(
    library: Contents,
    target: Path,
    *,
    spaces: Sequence[str] | None = None,
    system: bool | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy spaces into a new directory while others write; earlier commits are all in it.

    With `system`, or without `spaces`, it also contains the files that belong to no space. The
    directory appears complete and verified, or not at all.
    """
    target = Path(target).expanduser().absolute()
    names = chosen_spaces(library.spaces(), spaces, str(library.path))
    system = spaces is None if system is None else system
    files = shared_files.existing_files(library.path) if system else []
    if target.exists() or target.is_symlink():
        raise _already_exists(target)
    steps = Steps(progress, 2 * len(names) + 2 * len(files))
    part: Path | None = None
    try:
        make_private(target.parent)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        due = shared_files.due_requests(library.path) if system else []
        others = {name: _copy_shared(library, name, part, steps) for name in files}
        started: set[str] = set()
        if shared_files.WORKFLOWS in others:
            workflows = part / others[shared_files.WORKFLOWS]["file"]
            with contextlib.closing(connect_immutable(workflows)) as connection:
                started = shared_files.started_turns(connection)
        entries = {name: _copy_space(library, name, part, steps) for name in names}
        if system:
            due = shared_files.requests_to_back_up(library.path, due, started)
        _write_manifest(part / MANIFEST, entries, others, due)
        report = verify_files(part, read_manifest(part), names, files, steps)
        sync_directory(part)
        part.rename(target)
        sync_directory(target.parent)
    except BaseException as error:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            raise write_error(error, target) from error
        if isinstance(error, apsw.Error):
            raise typed_error(error) from error
        raise
    return BackupReport(target, report.spaces, report.digest, report.files)


def chosen_spaces(existing: Sequence[str], wanted: Sequence[str] | None, place: str) -> list[str]:
    """Return the wanted spaces, by default all; raise NotFound if one does not exist."""
    if wanted is None:
        return list(existing)
    missing = [name for name in wanted if name not in existing]
    if missing or isinstance(wanted, str):
        raise NotFound(
            f"There is no space {missing[0] if missing else wanted!r} in {place}.",
            hint=f"Its spaces: {', '.join(existing) or 'none'}.",
            field="spaces",
        )
    return list(dict.fromkeys(wanted))


def _copy_shared(library: Contents, name: str, folder: Path, steps: Steps) -> dict[str, Any]:
    path = folder / SHARED_FOLDER / Path(name).name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = shared_files.copy_file(library.path, name, path)
    steps.next()
    return {**_file_entry(folder, path), **content}


def _copy_space(library: Contents, name: str, folder: Path, steps: Steps) -> dict[str, Any]:
    path = folder / f"{name}.db"
    with library.lease(name) as space:
        if space.store.open_unit is not None:
            raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
        # Read counts that cannot be written must not prevent a backup.
        with contextlib.suppress(StorageFull):
            space.write_reads()
        with space.store.read() as connection:
            assert isinstance(connection, Connection)
            copy_database(connection, path, steps.part)
            # Count in the space itself, so that verifying the copy compares the two.
            census = take_census(connection, name)
            seq = read_head(connection, name)[0]
            version = version_of(connection)
    if census.damaged:
        raise StorageCorrupt(
            f"{census.damaged} rows of {name} do not match their hash; the first is"
            f" {census.first_damaged}.",
            hint="Run 'commonplace doctor'; a damaged space cannot be backed up.",
        )
    steps.next()
    return {
        **_file_entry(folder, path),
        "schema": version,
        "seq": seq,
        "rows": census.rows,
        "digest": census.digest,
    }


def _file_entry(folder: Path, path: Path) -> dict[str, Any]:
    return {
        "file": path.relative_to(folder).as_posix(),
        "sha256": sha256(path),
        "bytes": path.stat().st_size,
    }


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_sum(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "sum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
    with replace_file(path) as stream:
        stream.write(json.dumps(manifest, indent=1).encode())


def read_manifest(source: Path) -> dict[str, Any]:
    """Return the manifest of a backup; raise an error if it is missing, damaged or too new."""
    if not source.is_dir():
        raise NotFound(
            f"There is no backup at {source}.", hint="Use the path of the backup's directory."
        )
    try:
        manifest = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError
    except FileNotFoundError:
        if any(source.glob("*.db")):
            raise _damaged_backup(source, f"{MANIFEST} is missing") from None
        raise NotFound(
            f"{source} is not a backup: it has no {MANIFEST}.",
            hint="Use a directory that 'commonplace backup' has written.",
        ) from None
    except ValueError:
        raise _damaged_backup(source, f"{MANIFEST} is not a backup's manifest") from None
    if _manifest_sum(manifest) != manifest.get("sum"):
        raise _damaged_backup(source, f"{MANIFEST} does not match its checksum")
    if manifest["version"] > VERSION:
        raise UnsupportedVersion(
            f"The backup has format version {manifest['version']}; this release supports up to"
            f" {VERSION}.",
            hint=NEWER,
        )
    return {"files": {}, "due": [], **manifest}  # The first version had neither of these keys.


def _damaged_backup(source: Path, what: str) -> StorageCorrupt:
    return StorageCorrupt(f"The backup {source} is damaged: {what}.", hint="Use another backup.")


def verify(path: Path, progress: Progress | None = None) -> BackupReport:
    """Verify a whole backup; raise StorageCorrupt if a part is damaged."""
    path = Path(path).expanduser().absolute()
    manifest = read_manifest(path)
    names, files = list(manifest["spaces"]), list(manifest["files"])
    return verify_files(path, manifest, names, files, Steps(progress, len(names) + len(files)))


def verify_files(
    source: Path,
    manifest: Mapping[str, Any],
    names: Sequence[str],
    files: Sequence[str],
    steps: Steps,
) -> BackupReport:
    """Compare the files of spaces, and the files that belong to no space, with the manifest."""
    for name in files:
        entry = manifest["files"][name]
        expected = f"{SHARED_FOLDER}/{Path(name).name}" if name in shared_files.FILES else None
        with _verified_file(source, name, entry, expected) as connection:
            _verify_shared(connection, source, name, entry)
        steps.next()
    entries = {name: manifest["spaces"][name] for name in names}
    for name, entry in entries.items():
        if entry["schema"] > len(schema.MIGRATIONS):
            raise UnsupportedVersion(
                f"{name}.db has schema version {entry['schema']}; this release supports up to"
                f" {len(schema.MIGRATIONS)}.",
                hint=NEWER,
            )
        expected = f"{name}.db" if Path(name).name == name else None
        with _verified_file(source, f"{name}.db", entry, expected) as connection:
            _verify_space(connection, source, name, entry, steps)
        steps.next()
    return BackupReport(
        source,
        {name: entry["rows"]["memories"] for name, entry in entries.items()},
        {name: entry["digest"] for name, entry in entries.items()},
        tuple(files),
    )


@contextlib.contextmanager
def _verified_file(
    source: Path, name: str, entry: Mapping[str, Any], expected: str | None
) -> Iterator[Connection]:
    """Open a file of a backup if its path, size and SHA-256 match the manifest."""
    if entry["file"] != expected:
        raise _damaged_backup(source, f"{MANIFEST} names the file {entry['file']!r} for {name}")
    path = source / entry["file"]
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise _damaged_backup(
                source, f"{path.name} has {size} bytes instead of {entry['bytes']}"
            )
        if sha256(path) != entry["sha256"]:
            raise _damaged_backup(source, f"{path.name} does not match its SHA-256")
        with contextlib.closing(connect_immutable(path)) as connection:
            yield connection
    except FileNotFoundError:
        raise _damaged_backup(source, f"{name} is missing") from None
    except apsw.Error as error:
        raise _damaged_backup(source, f"{name} cannot be read ({error})") from error


def _verify_shared(
    connection: Connection, source: Path, name: str, entry: Mapping[str, Any]
) -> None:
    for fault in shared_files.file_faults(connection, name):
        raise _damaged_backup(source, f"{name}: {fault}")
    for part, value in shared_files.file_summary(connection, name).items():
        if entry[part] != value:
            raise _damaged_backup(source, f"{name} has {part} {value} instead of {entry[part]}")


def _verify_space(
    connection: Connection, source: Path, name: str, entry: Mapping[str, Any], steps: Steps
) -> None:
    if version_of(connection) != entry["schema"]:
        raise _damaged_backup(source, f"{name}.db does not have the schema version in {MANIFEST}")
    for (fault,) in connection.execute("PRAGMA integrity_check(5)"):
        if fault != "ok":
            raise _damaged_backup(source, f"{name}.db: {fault}")
    if entry["schema"] != len(schema.MIGRATIONS):
        return  # The rows of an older release are checked after the restored file is migrated.
    total = sum(entry["rows"].values())
    census = take_census(connection, name, lambda done: steps.part(done, total))
    if census.damaged:
        raise _damaged_backup(
            source,
            f"{census.damaged} rows of {name}.db do not match their hash; the first is"
            f" {census.first_damaged}",
        )
    for table, count in entry["rows"].items():
        if census.rows.get(table) != count:
            found = census.rows.get(table)
            raise _damaged_backup(
                source, f"{name}.db has {found} rows in {table} instead of {count}"
            )
    if read_head(connection, name)[0] != entry["seq"]:
        raise _damaged_backup(source, f"{name}.db does not have the change counter in {MANIFEST}")
    if census.digest != entry["digest"]:
        raise _damaged_backup(source, f"{name}.db does not have the content that was backed up")


def _already_exists(path: Path) -> Conflict:
    return Conflict(f"{path} already exists.", hint="Choose a new name.", field="target")


def write_error(error: OSError, path: Path) -> CommonplaceError:
    """Return the error of this package for a failed write to a path."""
    if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
        return _already_exists(path)
    if error.errno in DISK_FULL_ERRNOS:
        return StorageFull(
            f"There is not enough disk space for {path}.", hint="Free disk space and try again."
        )
    return StorageUnavailable(
        f"{path} cannot be written: {error.strerror or error}.", hint="Choose another directory."
    )
