"""Move spaces, or a whole installation, from files to a database and back.

A space is copied as a backup, which is the same on every engine, and restored from the backup in
one transaction. Then the target is copied as well, and the two copies are compared row by row. An
interrupted move has moved whole spaces, and the next move continues with the others.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from commonplace.errors import Conflict, StorageCorrupt
from commonplace.storage.comparing import NEVER_EMPTY_TABLES, Total, totals_of_tables
from commonplace.storage.ports import Coordination, Maintenance
from commonplace.storage.reports import MoveReport, Progress
from commonplace.storage.sqlite.backup import SHARED_FOLDER, Steps, chosen_spaces
from commonplace.storage.sqlite.readonly import connect_immutable
from commonplace.storage.sqlite.shared_files import SYSTEM

LOCK_SECONDS = 60.0  # This is longer than the lock of a killed move stays held by default.
_PREFIX = ".commonplace-move-"  # TO may be a directory with other files, which are left alone
_CHANGED_BY_READING = ("counters",)
"""Tables that change when memories are read."""


class Installation(Protocol):
    """The interface that a move requires of its source and of its target."""

    @property
    def path(self) -> Path:
        """The data directory."""

    @property
    def coordination(self) -> Coordination:
        """Locks, so that only one move at a time writes into a target."""

    @property
    def maintenance(self) -> Maintenance:
        """Backups and restores."""

    def spaces(self) -> list[str]:
        """Return the names of all spaces."""


def move(
    source: Installation,
    target: Installation,
    *,
    spaces: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> MoveReport:
    """Copy spaces, or all spaces with accounts and tokens, into another installation.

    The source does not change. The existing spaces of the target are compared first: if one that is
    to be moved has different rows there, raise Conflict and change nothing.
    """
    names = chosen_spaces(source.spaces(), spaces, "the source")
    existing = set(target.spaces())
    steps = Steps(progress, 2 * len(names) + 2)
    moved: dict[str, int] = {}
    there: list[str] = []
    with target.coordination.lock("move", LOCK_SECONDS), _temporary_folder(target.path) as folder:
        mover = _Mover(source.maintenance, target.maintenance, folder, steps.part)
        for name in names:
            if name in existing and mover.is_moved_already(name):
                there.append(name)
            steps.next()
        with_system = spaces is None and mover.has_system()
        system_there = with_system and mover.is_moved_already(None)
        steps.next()
        for name in names:
            if name not in there:
                moved[name] = mover.copy(name)
            steps.next()
        if with_system and not system_there:
            mover.copy(None)
        steps.next()
    if spaces is not None:
        return MoveReport(moved, there, "left out")
    if not with_system:
        return MoveReport(moved, there, "none")
    return MoveReport(moved, there, "there" if system_there else "moved")


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Create a folder for temporary copies; remove the copies that a killed move left there."""
    for left in path.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=path) as made:
        yield Path(made)


class _Mover:
    """Copies spaces by name; the name None means the tables that belong to no space."""

    def __init__(
        self, source: Maintenance, target: Maintenance, folder: Path, part: Progress
    ) -> None:
        self._source = source
        self._target = target
        self._folder = folder
        self._part = part

    @contextlib.contextmanager
    def _copied_into_file(self, side: Maintenance, name: str | None) -> Iterator[Path]:
        """Make a backup of one space, or of the system tables, in a temporary directory."""
        with tempfile.TemporaryDirectory(dir=self._folder) as made:
            folder = Path(made) / "backup"
            wanted = [] if name is None else [name]
            side.backup(folder, spaces=wanted, system=name is None, progress=self._part)
            yield folder

    def has_system(self) -> bool:
        """Return whether the source has rows that belong to no space."""
        with self._copied_into_file(self._source, None) as folder:
            return _backup_file(folder, None).exists() and not _is_empty(_backup_file(folder, None))

    def is_moved_already(self, name: str | None) -> bool:
        """Return whether the target already has the same rows; raise Conflict if they differ."""
        with self._copied_into_file(self._target, name) as folder:
            found = _backup_file(folder, name)
            if not found.exists() or _is_empty(found):
                return False
            with self._copied_into_file(self._source, name) as own:
                table = _differing_table(
                    _backup_file(own, name), found, leave_out=_CHANGED_BY_READING
                )
        if table is None:
            return True
        what = f"a space {name}" if name is not None else "accounts or tokens"
        raise Conflict(
            f"The target has {what} with different rows (in the table {table}); nothing was moved.",
            hint="Choose another target, or restore a backup with --overwrite. If the source was"
            " written to after an earlier move, stop its servers before moving.",
            field="to",
        )

    def copy(self, name: str | None) -> int:
        """Copy one space, or the system tables, and compare all rows; return their number."""
        with self._copied_into_file(self._source, name) as own:
            wanted = None if name is None else [name]
            self._target.restore(
                own, spaces=wanted, overwrite="empty", system=name is None, progress=self._part
            )
            with self._copied_into_file(self._target, name) as made:
                table = _differing_table(_backup_file(own, name), _backup_file(made, name))
            if table is not None:
                raise StorageCorrupt(
                    f"The moved table {table} of {name or SYSTEM} differs from the source.",
                    hint="The source is unchanged. Do not use the target.",
                )
            return sum(count for count, _ in _table_totals(_backup_file(own, name)).values())


def _backup_file(backup: Path, name: str | None) -> Path:
    return backup / SHARED_FOLDER / SYSTEM if name is None else backup / f"{name}.db"


def _table_totals(file: Path) -> dict[str, Total]:
    with contextlib.closing(connect_immutable(file)) as connection:
        return totals_of_tables(connection)


def _is_empty(file: Path) -> bool:
    return not any(
        count for name, (count, _) in _table_totals(file).items() if name not in NEVER_EMPTY_TABLES
    )


def _differing_table(one: Path, other: Path, leave_out: Sequence[str] = ()) -> str | None:
    """Return the name of a table whose rows differ; None if all are equal."""
    first, second = _table_totals(one), _table_totals(other)
    names = [name for name in {**first, **second} if name not in leave_out]
    return next((name for name in names if first.get(name) != second.get(name)), None)
