"""The spaces of a data directory: one file each, DATA/spaces/NAME.db."""

from __future__ import annotations

from pathlib import Path

from commonplace.errors import StorageUnavailable
from commonplace.storage.database import check_runtime, sync_directory
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents, Maintenance
from commonplace.storage.sqlite.coordination import FileCoordination
from commonplace.storage.sqlite.readonly import writable
from commonplace.storage.sqlite.store import Store
from commonplace.storage.sqlite.swap import delete, recover
from commonplace.storage.sqlite.watching import Watch


def unusable(path: Path, why: str | None) -> StorageUnavailable:
    """The error for a data directory that cannot be used."""
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
            if not data.exists():  # an existing directory keeps its mode
                make_private(data)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if new:  # new directories must be durable too
                sync_directory(data)
                sync_directory(data.parent)
        except OSError as error:
            raise unusable(data, error.strerror) from error
        check_runtime(data)
        recover(data)  # undoes a restore that was killed

    @property
    def read_only(self) -> bool:
        """Whether the spaces can only be read."""
        return not writable(self._folder)

    def names(self) -> list[str]:
        """The names of all spaces."""
        found = (path.stem for path in self._folder.glob("*.db"))
        return sorted(name for name in found if ".before-" not in name)

    def file(self, name: str) -> Path:
        """The file of a space."""
        return self._folder / f"{name}.db"

    def exists(self, name: str) -> bool:
        """Whether there is such a space."""
        return self.file(name).exists()

    def size(self, name: str) -> int:
        """How many bytes a space takes."""
        return self.file(name).stat().st_size

    def open(self, name: str) -> Store:
        """The store of a space, which is created if it does not exist."""
        return Store(self.file(name), name)

    def remove(self, name: str) -> None:
        """Delete a space that no process uses, with all that it holds."""
        delete(self.file(name))

    def watch(self, name: str) -> Watch:
        """A watch for changes in a space."""
        return Watch(self.file(name))

    def close(self) -> None:
        """Do nothing: each file has its own connections, and there is no pool to close."""

    def maintenance(self, contents: Contents) -> Maintenance:
        """Backups, checks and repair."""
        from commonplace.storage.sqlite.maintenance import SqliteMaintenance  # rarely used

        return SqliteMaintenance(contents)
