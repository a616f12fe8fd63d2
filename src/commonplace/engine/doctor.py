"""Examining a space's file, and rebuilding what is derived from its rows.

Rows are the truth: repair never changes or drops one. What finds them is compared with what
their text gives now, and written anew where it differs, in one transaction. Only where the file's
own structure is broken is it written anew as a whole, aside, and put in place if nothing is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from commonplace.engine import beside
from commonplace.engine.backup import Progress
from commonplace.engine.comparing import DERIVED
from commonplace.engine.diagnosis import RESTORE, RESTORE_SYSTEM, Diagnosis
from commonplace.engine.examining import examine_beside as examine_one_beside
from commonplace.engine.examining import examine_file
from commonplace.engine.library import Library
from commonplace.engine.rebuilding import mend
from commonplace.engine.salvaging import write_anew
from commonplace.errors import (
    CommonplaceError,
    Conflict,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
)
from commonplace.storage.sqlite import Store
from commonplace.storage.swapping import JOURNAL
from commonplace.storage.tables import VERSIONED

READ_ONLY = "It can only be read."
READ_ONLY_HINT = "To store anything, mount the disk for writing, or look at the rights."


@dataclass(frozen=True, slots=True)
class Repair:
    """What was rebuilt, and the examinations before and after."""

    rebuilt: list[str]
    before: Diagnosis
    after: Diagnosis

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rebuilt": self.rebuilt,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
        }


def examine(library: Library, space: str, *, progress: Progress | None = None) -> Diagnosis:
    """Compare all that a space's file holds with what it must be; nothing is changed."""
    diagnosis = Diagnosis(space)
    with _opened(library, space, diagnosis) as store:
        if store is None:
            return diagnosis
        if store.read_only:
            diagnosis.add("file", READ_ONLY, READ_ONLY_HINT, "note")
        with store.read() as connection:
            examine_file(connection, space, library.embedder, diagnosis, progress)
    return diagnosis.finish()


@contextlib.contextmanager
def _opened(library: Library, space: str, diagnosis: Diagnosis) -> Iterator[Store | None]:
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


def examine_beside(library: Library) -> list[Diagnosis]:
    """The same for the files that belong to no space, as far as there are any."""
    found = []
    for name in beside.present(library.path):
        diagnosis = Diagnosis(name)
        found.append(diagnosis)
        if not (library.path / name).stat().st_size:
            diagnosis.add("file", "It is empty.", RESTORE_SYSTEM)
            continue
        try:
            with beside.reading(library.path, name) as connection:
                examine_one_beside(connection, name, diagnosis)
        except CommonplaceError as error:
            diagnosis.add("file", f"It cannot be opened: {error.message}", RESTORE_SYSTEM)
        diagnosis.finish()
    if (library.path / JOURNAL).exists():
        half = Diagnosis(JOURNAL)
        what = (
            "A restore was interrupted, and its journal cannot be read:"
            " some files are the backup's, and some the former ones."
        )
        hint = "Run it again with --overwrite; the former files are kept as *.before-restore-*."
        half.add("restore", what, hint)
        found.append(half)
    return found


def repair(library: Library, space: str, *, progress: Progress | None = None) -> Repair:
    """Rebuild what is derived from the rows wherever it is not what they give.

    All in one transaction: a kill leaves the old or the new. No row is changed or lost; those
    that do not match their hash are only reported.
    """
    before = examine(library, space, progress=progress)
    rebuilt: list[str] = []
    if before.findings:
        # A page that cannot be read, freed or written over: only a new file helps.
        hopeless = contextlib.suppress(StorageCorrupt, StorageUnavailable, Conflict)
        with hopeless, _opened(library, space, Diagnosis(space)) as store:
            if store is not None:
                rebuilt = mend(store, library.embedder, before)
        _forget(library, space)
    after = examine(library, space)
    if after.ill("file", "schema", "grams", *DERIVED):
        write_anew(library, space)
        rebuilt = ["file", *DERIVED, "grams"]
        _forget(library, space)
        after = examine(library, space)
    for table in (table.name for table in VERSIONED):
        if before.counts.get(table, 0) > after.counts.get(table, 0):
            raise StorageCorrupt(f"{table} has fewer rows than before.", hint=RESTORE)
    return Repair(rebuilt, before, after)


def _forget(library: Library, space: str) -> None:
    """What is held in memory of the space is loaded anew."""
    with contextlib.suppress(CommonplaceError), library.lease(space) as opened:
        opened.forget_index()
