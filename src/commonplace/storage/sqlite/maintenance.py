"""Maintenance of SQLite files: backups, checks, repair.

Repair never changes or deletes content. Derived rows that do not match the text are replaced in one
transaction; damaged counters are reset. Only if the structure of the file is broken, all rows are
copied to a new file, which replaces the old one if no row was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from commonplace.errors import (
    CommonplaceError,
    Conflict,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
)
from commonplace.storage.ports import Contents
from commonplace.storage.reports import (
    RESTORE,
    RESTORE_SYSTEM,
    BackupReport,
    Diagnosis,
    Progress,
    Repair,
    RestoreReport,
    Salvage,
)
from commonplace.storage.sqlite import Store, backup, restore, salvage, shared_files
from commonplace.storage.sqlite.check import DERIVED, check_shared_file, check_space
from commonplace.storage.sqlite.repair import rebuild
from commonplace.storage.sqlite.swap import JOURNAL
from commonplace.storage.tables import VERSIONED

READ_ONLY = "The file is read-only."
READ_ONLY_HINT = "To write, mount the disk for writing, or change the permissions."


class SqliteMaintenance:
    """`ports.Maintenance` for a data directory with one SQLite file for each space."""

    def __init__(self, library: Contents) -> None:
        self._library = library

    def backup(
        self,
        target: Path,
        *,
        spaces: Sequence[str] | None = None,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy spaces into a new directory while others write; see `backup.backup`."""
        return backup.backup(self._library, target, spaces=spaces, system=system, progress=progress)

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
        """Restore a backup, completely or not at all; see `restore.restore`."""
        return restore.restore(
            self._library, source, spaces=spaces, into=into, overwrite=bool(overwrite),
            system=system, progress=progress,
        )  # fmt: skip

    def salvage(self, space: str, target: Path, *, progress: Progress | None = None) -> Salvage:
        """Write all intact rows of a damaged space into a new file."""
        return salvage.salvage(self._library, space, target, progress=progress)

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Check a space's file without changing it."""
        diagnosis = Diagnosis(space)
        with _opened(self._library, space, diagnosis) as store:
            if store is None:
                return diagnosis
            if store.read_only:
                diagnosis.add("file", READ_ONLY, READ_ONLY_HINT, "note")
            with store.read() as connection:
                check_space(connection, space, self._library, diagnosis, progress)
        return diagnosis.finish()

    def check_shared_files(self) -> list[Diagnosis]:
        """Check the files that belong to no space, and whether a restore was interrupted."""
        found = []
        for name in shared_files.existing_files(self._library.path):
            diagnosis = Diagnosis(name)
            found.append(diagnosis)
            if not (self._library.path / name).stat().st_size:
                diagnosis.add("file", "The file is empty.", RESTORE_SYSTEM)
                continue
            try:
                with shared_files.open_snapshot(self._library.path, name) as connection:
                    check_shared_file(connection, name, diagnosis)
            except CommonplaceError as error:
                diagnosis.add("file", f"The file cannot be opened: {error.message}", RESTORE_SYSTEM)
            diagnosis.finish()
        if (self._library.path / JOURNAL).exists():
            half = Diagnosis(JOURNAL)
            what = (
                "A restore was interrupted, and its journal cannot be read:"
                " some files may be the backup's, and others the former ones."
            )
            hint = (
                "Run the restore again with --overwrite;"
                " the former files are kept as *.before-restore-*."
            )
            half.add("restore", what, hint)
            found.append(half)
        return found

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild derived rows that do not match the text, in one transaction.

        No content is changed or lost: rows of content that do not match their hash are only
        reported. Damaged counters are reset.
        """
        before = self.check(space, progress=progress)
        rebuilt: list[str] = []
        if before.findings:
            # If a page cannot be read, freed or overwritten, the file is rewritten below.
            unwritable = contextlib.suppress(StorageCorrupt, StorageUnavailable, Conflict)
            with unwritable, _opened(self._library, space, Diagnosis(space)) as store:
                if store is not None:
                    rebuilt = rebuild(store, self._library, before)
            _reload_index(self._library, space)
        after = self.check(space)
        if after.has_damage_in("file", "schema", "grams", *DERIVED):
            salvage.rewrite(self._library, space)
            rebuilt = ["file", *DERIVED, "grams"]
            _reload_index(self._library, space)
            after = self.check(space)
        for table in (table.name for table in VERSIONED):
            if before.counts.get(table, 0) > after.counts.get(table, 0):
                raise StorageCorrupt(f"{table} has fewer rows than before.", hint=RESTORE)
        return Repair(rebuilt, before, after)


@contextlib.contextmanager
def _opened(library: Contents, space: str, diagnosis: Diagnosis) -> Iterator[Store | None]:
    """Open the file directly, since reads by the library might fail; return None if that fails."""
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space named {space}.", field="space")
    try:
        store = Store(path, space)
    except CommonplaceError as error:
        diagnosis.add("file", f"The file cannot be opened: {error.message}", RESTORE)
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def _reload_index(library: Contents, space: str) -> None:
    """Make the library load the space's index again."""
    with contextlib.suppress(CommonplaceError), library.lease(space) as opened:
        opened.forget_index()
