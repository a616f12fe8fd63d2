"""The spaces of a data directory: one file each, DATA/spaces/NAME.db."""

from __future__ import annotations

from pathlib import Path

from commonplace.errors import StorageUnavailable
from commonplace.storage.database import check_runtime, sync_directory
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents, Maintenance
from commonplace.storage.sqlite.coordination import FileCoordination
from commonplace.storage.sqlite.readonly import is_writable
from commonplace.storage.sqlite.store import Store
from commonplace.storage.sqlite.swap import delete_file, undo_interrupted
from commonplace.storage.sqlite.watching import Watch


def unusable_error(path: Path, why: str | None) -> StorageUnavailable:
    """Return the error for a data directory that cannot be used."""
    return StorageUnavailable(
        f"{path} cannot be used: {why}.",
        hint="Choose another directory with --data or COMMONPLACE_DATA.",
    )


class SqliteSpaces:
    """`ports.Spaces` for a data directory, which is created if it does not exist."""

    warnings = ()

    def __init__(self, data: Path) -> None:
        self._folder = data / "spaces"
        self.coordination = FileCoordination(data)
        try:
            new = not self._folder.exists()
            if not data.exists():  # An existing directory keeps its mode.
                make_private(data)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if new:  # New directories must be durable, too.
                sync_directory(data)
                sync_directory(data.parent)
        except OSError as error:
            raise unusable_error(data, error.strerror) from error
        check_runtime(data)
        undo_interrupted(data)  # This undoes a restore that was killed.

    @property
    def read_only(self) -> bool:
        """Whether the spaces are read-only."""
        return not is_writable(self._folder)

    def names(self) -> list[str]:
        """Return the names of all spaces."""
        found = (path.stem for path in self._folder.glob("*.db"))
        return sorted(name for name in found if ".before-" not in name)

    def file(self, name: str) -> Path:
        """Return the file of a space."""
        return self._folder / f"{name}.db"

    def exists(self, name: str) -> bool:
        """Return whether the space exists."""
        return self.file(name).exists()

    def size(self, name: str) -> int:
        """Return the size of a space in bytes."""
        return self.file(name).stat().st_size

    def open(self, name: str) -> Store:
        """Return the store of a space; create the space if it does not exist."""
        return Store(self.file(name), name)

    def remove(self, name: str) -> None:
        """Delete a space that no process uses, with all its content."""
        delete_file(self.file(name))

    def watch(self, name: str) -> Watch:
        """Return an object that reports changes in a space."""
        return Watch(self.file(name))

    def close(self) -> None:
        """Do nothing: each file has its own connections, and there is no pool to close."""

    def maintenance(self, contents: Contents) -> Maintenance:
        """Return the object for backups, checks and repair."""
        # imported here because it is rarely used
        from commonplace.storage.sqlite.maintenance import SqliteMaintenance

        return SqliteMaintenance(contents)
