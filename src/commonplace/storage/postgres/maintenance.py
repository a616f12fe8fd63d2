"""Backups and checks of a database. Its spaces are first copied into SQLite files.

So a backup is the same directory on both engines, and the same code checks every row. A copy does
not show damage in PostgreSQL's own pages and indexes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from commonplace.errors import Conflict, NotFound, StorageUnavailable
from commonplace.storage.database import now
from commonplace.storage.derived import DerivedData, Model
from commonplace.storage.locking import try_lock
from commonplace.storage.ports import Contents, LeasedSpace
from commonplace.storage.postgres import copying
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.rows import PostgresRows
from commonplace.storage.postgres.schema import SPACES_PART, SYSTEM_PART
from commonplace.storage.postgres.store import switch_space, transaction
from commonplace.storage.reports import (
    BackupReport,
    Diagnosis,
    Progress,
    Repair,
    RestoreReport,
    Salvage,
)
from commonplace.storage.sqlite.backup import chosen_spaces
from commonplace.storage.sqlite.maintenance import SqliteMaintenance
from commonplace.storage.sqlite.readonly import connect_immutable
from commonplace.storage.sqlite.store import Store
from commonplace.storage.system import NAME, system_file
from commonplace.storage.tables import Row

LOCK = "lock"
UNLOCKED_SECONDS = 86_400.0


class _OpenCopy:
    """A space that is open in a temporary SQLite copy. Implements `ports.LeasedSpace`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write_reads(self) -> None:
        """Do nothing: a copy counts no reads."""

    def forget_index(self) -> None:
        """Do nothing: there is no in-memory index."""


class _CopiedSpaces:
    """`ports.Contents` for a directory of copies."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path = path
        self.embedder: Model | None = contents.embedder
        self._contents = contents
        (path / "spaces").mkdir(mode=0o700)

    def spaces(self) -> list[str]:
        """Return the names of the copied spaces."""
        return sorted(file.stem for file in (self.path / "spaces").glob("*.db"))

    def file(self, space: str) -> Path:
        """Return the file of a copy."""
        return self.path / "spaces" / f"{space}.db"

    @contextlib.contextmanager
    def lease(self, space: str) -> Iterator[LeasedSpace]:
        """Open a copy during the block."""
        with contextlib.closing(Store(self.file(space), space)) as store:
            yield _OpenCopy(store)

    def drop(self, space: str) -> None:
        """Do nothing: no copy stays open."""

    def derive(self, row: Row, speaker: str) -> DerivedData:
        """Compute the derived rows of a memory, as the engine does."""
        return self._contents.derive(row, speaker)


def _stored_meanwhile_error(what: str) -> Conflict:
    return Conflict(
        f"Another server has written to {what} of the database meanwhile; nothing was restored.",
        hint="Choose another place, or restore a backup with --overwrite.",
    )


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Create a directory for copies; remove those that killed processes left."""
    for left in path.glob("copy-*"):
        if _is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="copy-", dir=path) as made:
        folder, lock = Path(made) / "files", Path(made) / LOCK
        folder.mkdir(mode=0o700)
        with lock.open("xb", buffering=0) as file:
            try_lock(file.fileno())
            file.write(b"1")  # from now on the lock counts
            yield folder


def _is_abandoned(folder: Path) -> bool:
    """Return whether the process that made a directory of copies has ended.

    A directory of an earlier release has no lock; it is abandoned after a day.
    """
    try:
        with (folder / LOCK).open("r+b") as file:
            if file.read(1):
                return try_lock(file.fileno())
    except OSError:
        pass
    try:
        age = time.time() - folder.stat().st_mtime
    except OSError:
        return False
    named = re.fullmatch("copy-[a-z0-9_]{8}", folder.name) is not None
    return named and (folder / "spaces").is_dir() and age > UNLOCKED_SECONDS


class PostgresMaintenance:
    """`ports.Maintenance` for a database."""

    def __init__(self, pool: Pool, names: Callable[[], list[str]], contents: Contents) -> None:
        self._pool = pool
        self._names = names
        self._contents = contents

    @contextlib.contextmanager
    def _copy_spaces(self, spaces: Sequence[str], *, system: bool) -> Iterator[_CopiedSpaces]:
        """Copy spaces, each from one snapshot, into a temporary directory."""
        with _temporary_folder(self._contents.path) as folder:
            files = _CopiedSpaces(folder, self._contents)
            if system:
                with transaction(self._pool, SYSTEM_PART, NAME) as rows:
                    copying.write_system(rows, system_file(files.path))
            for name in spaces:
                with contextlib.suppress(StorageUnavailable), self._contents.lease(name) as space:
                    space.write_reads()
                with transaction(self._pool, SPACES_PART, name) as rows:
                    copying.write_space(rows, name, files.file(name))
            yield files

    def backup(
        self,
        target: Path,
        *,
        spaces: Sequence[str] | None = None,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Make a backup in the format of SQLite files; either engine can restore it."""
        names = chosen_spaces(self._names(), spaces, "the database")
        system = spaces is None if system is None else system
        with self._copy_spaces(names, system=system) as files:
            return SqliteMaintenance(files).backup(
                target, spaces=names, system=system, progress=progress
            )

    def restore(
        self,
        source: Path,
        *,
        spaces: Sequence[str] | None = None,
        into: str | None = None,
        overwrite: bool | Literal["empty"] = False,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Restore the backup into temporary files, to verify it, and then into the database."""
        with _temporary_folder(self._contents.path) as folder:
            files = _CopiedSpaces(folder, self._contents)
            report = SqliteMaintenance(files).restore(
                source, spaces=spaces, into=into, system=system, progress=progress
            )
            existing = self._names()
            there = [name for name in files.spaces() if name in existing]
            if there and not overwrite:
                raise Conflict(
                    f"The space {there[0]} exists already.",
                    hint="Choose another name with --into, or replace it with --overwrite.",
                )
            if system_file(files.path).exists() and not overwrite and self._has_system(files):
                raise Conflict(
                    "The database has accounts, tokens or other rows of system.db already.",
                    hint="Keep them with --no-system, or replace them with --overwrite.",
                    field="system",
                )
            for name in files.spaces():
                self._contents.drop(name)
            with transaction(self._pool, SPACES_PART, "", writes=True) as rows:
                self._write_restored(rows, files, replace=overwrite is True)
            return report

    def _has_system(self, files: _CopiedSpaces) -> bool:
        """Return whether a system table has rows that a restore would replace."""
        with (
            contextlib.closing(connect_immutable(system_file(files.path))) as file,
            transaction(self._pool, SYSTEM_PART, NAME) as rows,
        ):
            return copying.has_system(rows, file)

    def _write_restored(self, rows: PostgresRows, files: _CopiedSpaces, *, replace: bool) -> None:
        """Write all restored files into the database in one transaction.

        Unless `replace` is true, raise Conflict if something is stored there. Since the earlier
        check, another server may have stored it; from here on its writes wait for this transaction.
        """
        for name in files.spaces():
            rows.execute(
                "INSERT INTO spaces (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (name, now()),
            )
            switch_space(rows, SPACES_PART, name)
            with contextlib.closing(connect_immutable(files.file(name))) as file:
                if not replace and copying.has_space(rows, name, file):
                    raise _stored_meanwhile_error(f"the space {name}")
                copying.read_space(rows, name, file, self._contents.derive)
        if system_file(files.path).exists():
            switch_space(rows, SYSTEM_PART, NAME)
            with contextlib.closing(connect_immutable(system_file(files.path))) as file:
                if not replace and copying.has_system(rows, file):
                    raise _stored_meanwhile_error("the accounts and tokens")
                copying.read_system(rows, file)

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Check all rows of a space in a copy, without changing anything."""
        with self._copy_spaces([space], system=False) as files:
            return SqliteMaintenance(files).check(space, progress=progress)

    def check_shared_files(self) -> list[Diagnosis]:
        """Check the rows that belong to no space."""
        with self._copy_spaces([], system=True) as files:
            return SqliteMaintenance(files).check_shared_files()

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild derived rows that do not match the text, in one transaction.

        They are rebuilt in a copy and then written back. Writers of the space wait meanwhile.
        """
        if space not in self._names():
            raise NotFound(f"There is no space named {space}.", field="space")
        with _temporary_folder(self._contents.path) as folder:
            files = _CopiedSpaces(folder, self._contents)
            with transaction(self._pool, SPACES_PART, space, writes=True) as rows:
                rows.lock(SPACES_PART.lock, space)
                copying.write_space(rows, space, files.file(space))
                report = SqliteMaintenance(files).repair(space, progress=progress)
                if report.rebuilt:
                    with contextlib.closing(connect_immutable(files.file(space))) as file:
                        copying.read_space(rows, space, file, self._contents.derive)
        with contextlib.suppress(StorageUnavailable), self._contents.lease(space) as opened:
            opened.forget_index()
        return report

    def salvage(
        self,
        space: str,  # noqa: ARG002
        target: Path,  # noqa: ARG002
        *,
        progress: Progress | None = None,  # noqa: ARG002
    ) -> Salvage:
        """Raise an error: salvage is only for damaged SQLite files."""
        raise StorageUnavailable(
            "Salvage is for damaged SQLite files; this space is in PostgreSQL.",
            hint="Restore the database from a backup.",
        )
