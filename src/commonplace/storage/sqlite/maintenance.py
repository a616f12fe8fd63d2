"""Maintenance of SQLite files: backups, checks, repair.

Rows are the truth: repair never changes or drops one. What finds them is compared with what
their text gives now, and written anew where it differs, in one transaction. Only where the file's
own structure is broken is it written anew as a whole, aside, and put in place if nothing is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

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
from commonplace.storage.sqlite import Store, backup, beside, restoring, salvaging
from commonplace.storage.sqlite.comparing import DERIVED
from commonplace.storage.sqlite.examining import examine_beside, examine_file
from commonplace.storage.sqlite.rebuilding import mend
from commonplace.storage.sqlite.swapping import JOURNAL
from commonplace.storage.tables import VERSIONED

READ_ONLY = "It can only be read."
READ_ONLY_HINT = "To store anything, mount the disk for writing, or look at the rights."


class SqliteMaintenance:
    """`ports.Maintenance` for a data directory with one SQLite file a space."""

    def __init__(self, library: Contents) -> None:
        self._library = library

    def backup(
        self, target: Path, *, spaces: Sequence[str] | None = None, progress: Progress | None = None
    ) -> BackupReport:
        """As `backup.backup`."""
        return backup.backup(self._library, target, spaces=spaces, progress=progress)

    def restore(
        self,
        source: Path,
        *,
        spaces: Sequence[str] | None = None,
        into: str | None = None,
        overwrite: bool = False,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> RestoreReport:
        """As `restoring.restore`."""
        return restoring.restore(
            self._library, source, spaces=spaces, into=into, overwrite=overwrite, system=system,
            progress=progress,
        )  # fmt: skip

    def salvage(self, space: str, target: Path, *, progress: Progress | None = None) -> Salvage:
        """As `salvaging.salvage`."""
        return salvaging.salvage(self._library, space, target, progress=progress)

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Compare all that a space's file holds with what it must be; nothing is changed."""
        diagnosis = Diagnosis(space)
        with _opened(self._library, space, diagnosis) as store:
            if store is None:
                return diagnosis
            if store.read_only:
                diagnosis.add("file", READ_ONLY, READ_ONLY_HINT, "note")
            with store.read() as connection:
                examine_file(connection, space, self._library, diagnosis, progress)
        return diagnosis.finish()

    def check_shared_files(self) -> list[Diagnosis]:
        """The same for the files that belong to no space, as far as there are any."""
        found = []
        for name in beside.present(self._library.path):
            diagnosis = Diagnosis(name)
            found.append(diagnosis)
            if not (self._library.path / name).stat().st_size:
                diagnosis.add("file", "It is empty.", RESTORE_SYSTEM)
                continue
            try:
                with beside.reading(self._library.path, name) as connection:
                    examine_beside(connection, name, diagnosis)
            except CommonplaceError as error:
                diagnosis.add("file", f"It cannot be opened: {error.message}", RESTORE_SYSTEM)
            diagnosis.finish()
        if (self._library.path / JOURNAL).exists():
            half = Diagnosis(JOURNAL)
            what = (
                "A restore was interrupted, and its journal cannot be read:"
                " some files are the backup's, and some the former ones."
            )
            hint = "Run it again with --overwrite; the former files are kept as *.before-restore-*."
            half.add("restore", what, hint)
            found.append(half)
        return found

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild what is derived from the rows wherever it is not what they give.

        All in one transaction: a kill leaves the old or the new. No row is changed or lost; those
        that do not match their hash are only reported.
        """
        before = self.check(space, progress=progress)
        rebuilt: list[str] = []
        if before.findings:
            # A page that cannot be read, freed or written over: only a new file helps.
            hopeless = contextlib.suppress(StorageCorrupt, StorageUnavailable, Conflict)
            with hopeless, _opened(self._library, space, Diagnosis(space)) as store:
                if store is not None:
                    rebuilt = mend(store, self._library, before)
            _forget(self._library, space)
        after = self.check(space)
        if after.ill("file", "schema", "grams", *DERIVED):
            salvaging.write_anew(self._library, space)
            rebuilt = ["file", *DERIVED, "grams"]
            _forget(self._library, space)
            after = self.check(space)
        for table in (table.name for table in VERSIONED):
            if before.counts.get(table, 0) > after.counts.get(table, 0):
                raise StorageCorrupt(f"{table} has fewer rows than before.", hint=RESTORE)
        return Repair(rebuilt, before, after)


@contextlib.contextmanager
def _opened(library: Contents, space: str, diagnosis: Diagnosis) -> Iterator[Store | None]:
    """The file, opened without the library: what the library does first may be what is broken."""
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space {space}.", field="space")
    try:
        store = Store(path, space)
    except CommonplaceError as error:
        diagnosis.add("file", f"It cannot be opened: {error.message}", RESTORE)
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def _forget(library: Contents, space: str) -> None:
    """What is held in memory of the space is loaded anew."""
    with contextlib.suppress(CommonplaceError), library.lease(space) as opened:
        opened.forget_index()
