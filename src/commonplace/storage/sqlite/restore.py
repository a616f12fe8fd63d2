"""Restore a backup: verified before and after, completely or not at all.

If a file cannot be replaced, or the process is killed, all former files are put back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import (
    CommonplaceError,
    Conflict,
    InvalidInput,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage import audit, schema
from commonplace.storage.database import Connection, connect, typed_error
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents
from commonplace.storage.reports import Progress, RestoreReport
from commonplace.storage.sqlite import Store, shared_files
from commonplace.storage.sqlite.backup import (
    Steps,
    chosen_spaces,
    read_manifest,
    sha256,
    verify_files,
    write_error,
)
from commonplace.storage.sqlite.hashed_rows import TABLES, take_census
from commonplace.storage.sqlite.swap import JOURNAL, Swap, close_space, journal


def restore(
    library: Contents,
    source: Path,
    *,
    spaces: Sequence[str] | None = None,
    into: str | None = None,
    overwrite: bool = False,
    system: bool | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore a whole backup, some of its spaces, or one space under another name.

    With `system`, the files that belong to no space are restored too, or alone if no spaces are
    named. Existing files are replaced only with `overwrite`, and are then kept under another name.
    Everything is restored, or nothing is changed.
    """
    source = Path(source).expanduser().absolute()
    manifest = read_manifest(source)
    targets, files = _chosen_targets(library, source, manifest, spaces, into, system)
    if not overwrite:
        _refuse_existing(library, targets, files, into)
    steps = Steps(progress, 3 * len(targets) + 2 * len(files))
    verify_files(source, manifest, list(targets), files, steps)
    restored = {}
    copies: list[_Copy] = []
    try:
        for copy in _copies(library, source, manifest, targets, files):
            copies.append(copy)
            copy.stage()
            steps.next()
        swaps = [Swap.plan(copy.live, copy.staged, "restore") for copy in copies]
        with journal(library.path, swaps), _replace_files(copies, swaps, overwrite) as former:
            for name, target in targets.items():
                restored[target] = _verify_restored(
                    library, target, manifest["spaces"][name], steps
                )
            if files:
                shared_files.write_due_requests(library.path, manifest["due"])
    except OSError as error:
        raise write_error(error, library.path) from error
    except apsw.Error as error:
        raise typed_error(error) from error
    finally:
        if not (library.path / JOURNAL).exists():  # Otherwise the recovery needs the staged files.
            for copy in copies:
                copy.staged.unlink(missing_ok=True)
    return RestoreReport(
        source,
        {name: memories for name, (memories, _) in restored.items()},
        {name: digest for name, (_, digest) in restored.items()},
        former,
        tuple(files),
    )


@contextlib.contextmanager
def _replace_files(
    copies: Sequence[_Copy], swaps: Sequence[Swap], overwrite: bool
) -> Iterator[dict[str, str]]:
    """Replace the files in use; yield the new paths of the former files, by the copies' names."""
    former: dict[str, str] = {}
    swapped: list[_Copy] = []
    try:
        for copy, swap in zip(copies, swaps, strict=True):
            if swap.run(copy.close, overwrite=overwrite):
                former[copy.name] = str(swap.former)
            swapped.append(copy)
        yield former
    except BaseException:
        for copy in swapped:  # This process must not have the file open while it is put back.
            with contextlib.suppress(CommonplaceError):
                copy.close()
        raise


def _chosen_targets(
    library: Contents,
    source: Path,
    manifest: Mapping[str, Any],
    spaces: Sequence[str] | None,
    into: str | None,
    system: bool | None,
) -> tuple[dict[str, str], list[str]]:
    """Return the new name of each space to restore, and the files that belong to no space."""
    whole = spaces is None and into is None
    wanted = list(spaces or ()) if system and whole else spaces
    names = chosen_spaces(list(manifest["spaces"]), wanted, str(source))
    files = list(manifest["files"]) if (whole if system is None else system) else []
    if system and not files:
        raise NotFound(
            f"There is no {shared_files.SYSTEM} in {source}.",
            hint="A backup of single spaces does not contain it; use a backup of all spaces.",
            field="system",
        )
    if into is not None and len(names) != 1:
        raise InvalidInput(
            f"{len(names)} spaces cannot be restored into one.",
            hint=f"Choose one of {', '.join(names)}.",
            field="into",
        )
    return {name: library.file(into or name).stem for name in names}, files


def _refuse_existing(
    library: Contents, targets: Mapping[str, str], files: Sequence[str], into: str | None
) -> None:
    for target in targets.values():
        if library.file(target).exists():
            raise Conflict(
                f"The space {target} already exists.",
                hint="Choose another name with --into, or replace it with --overwrite, which keeps"
                " the old file under another name.",
                field="into" if into else "spaces",
            )
    for name in files:
        if (library.path / name).exists():
            raise Conflict(
                f"{name} already exists in {library.path}.",
                hint="Leave it as it is with --no-system, or replace it with --overwrite, which"
                " keeps the old file under another name.",
                field="system",
            )


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file of a backup, and the file that it will replace or create."""

    name: str
    live: Path
    source: Path
    entry: Mapping[str, Any]
    close: Callable[[], None]
    rename: str | None = None
    """The new name of the space, or None."""

    @property
    def staged(self) -> Path:
        """The temporary path of the copy until all copies are ready."""
        return self.live.with_name(self.live.name + ".restoring")

    def stage(self) -> None:
        """Make the copy, and prepare it for opening."""
        make_private(self.live.parent)
        self.staged.unlink(missing_ok=True)
        os.close(os.open(self.staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shutil.copyfile(self.source, self.staged)
        if sha256(self.staged) != self.entry["sha256"]:
            raise StorageUnavailable(
                "The disk returned different bytes than were written.",
                hint="Check the disk for errors, or restore to another disk.",
            )
        connection = connect(self.staged)
        try:
            if self.rename is not None:
                if self.entry["schema"] != len(schema.MIGRATIONS):
                    raise UnsupportedVersion(
                        "A space in a backup of an older release cannot be restored under another"
                        " name.",
                        hint="Restore it under its own name in another data directory, and make a"
                        " new backup of it.",
                    )
                _rename_space(connection, self.source.stem, self.rename)
            connection.pragma("journal_mode", "wal")
        finally:
            connection.close(True)
        with self.staged.open("rb+") as file:
            os.fsync(file.fileno())


def _copies(
    library: Contents,
    source: Path,
    manifest: Mapping[str, Any],
    targets: Mapping[str, str],
    files: Sequence[str],
) -> Iterator[_Copy]:
    for name in files:
        entry = manifest["files"][name]
        yield _Copy(name, library.path / name, source / entry["file"], entry, lambda: None)
    for name, target in targets.items():
        yield _Copy(
            target, library.file(target), source / f"{name}.db", manifest["spaces"][name],
            partial(close_space, library, target), None if target == name else target,
        )  # fmt: skip


def _rename_space(connection: Connection, former: str, space: str) -> None:
    """Set the space of every row in the file, and update the hashes, which include the name.

    Stored answers and records of file copies keep their hashes, so that they are ignored.
    """

    def rehash(*values: Any) -> bytes:
        table, format, *covered = values
        return TABLES[table].hash(tuple(covered), format)

    connection.create_scalar_function("rehash", rehash, -1)
    tables = connection.execute(
        "SELECT t.name FROM sqlite_schema t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table' AND c.name = 'space'"
    ).fetchall()
    with connection:
        audit.rename_space(connection, former, space)
        for (name,) in tables:
            new_hash = ""
            if name in TABLES:
                covered = ("?1" if each == "space" else each for each in TABLES[name].covered)
                new_hash = f", hash = rehash('{name}', format, {', '.join(covered)})"
            connection.execute(f"UPDATE {name} SET space = ?1{new_hash}", (space,))  # noqa: S608


def _verify_restored(
    library: Contents, space: str, entry: Mapping[str, Any], steps: Steps
) -> tuple[int, str]:
    """Read the restored space through a Store; return its number of memories and its digest."""
    store = Store(library.file(space), space)
    try:
        with store.read() as connection:
            total = sum(entry["rows"].values())
            census = take_census(connection, space, lambda done: steps.part(done, total))
    finally:
        store.close()
    steps.next()
    migrated = entry["schema"] != len(schema.MIGRATIONS)
    if census.damaged or (census.digest != entry["digest"] and not migrated):
        raise StorageCorrupt(
            f"The restored space {space} does not have the content that was backed up.",
            hint="The disk may be failing; restore to another disk.",
        )
    return census.rows["memories"], census.digest
