"""Bringing a backup back: verified before and after, all of it or nothing.

If one of its files cannot be put in place, or it is killed, those that were are taken back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
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
from commonplace.storage import schema
from commonplace.storage.database import Connection, connect, typed
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents
from commonplace.storage.reports import Progress, RestoreReport
from commonplace.storage.sqlite import Store, beside, swapping
from commonplace.storage.sqlite.backup import (
    TABLES,
    Told,
    chosen,
    read_manifest,
    refused,
    sha256,
    take_census,
    verified,
)
from commonplace.storage.sqlite.swapping import JOURNAL, journal, planned, swap_in


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
    """Bring back all that a backup holds, or some spaces, or one of them under another name.

    With `system`, what is beside spaces is restored with the spaces that are named, or alone if
    none is; without it, spaces alone. What exists is replaced only with `overwrite`; its file is
    then kept beside it. All of it is restored, or nothing is changed.
    """
    source = Path(source).expanduser().absolute()
    manifest = read_manifest(source)
    places, files = _wanted(library, source, manifest, spaces, into, system)
    _check_free(library, places, files, into, overwrite)
    told = Told(progress, 3 * len(places) + 2 * len(files))
    verified(source, manifest, list(places), files, told)
    counts, digests = {}, {}
    laid: list[_Laid] = []
    replaced: dict[Path, Path | None] = {}
    try:
        for each in _to_lay(library, source, manifest, places, files):
            laid.append(each)
            each.lay()
            told.next()
        swaps = [planned(each.live, each.aside, "restore") for each in laid]
        with journal(library.path, swaps), _let_go_if_it_fails(laid, replaced):
            for each, swap in zip(laid, swaps, strict=True):
                replaced[each.live] = swap_in(
                    each.live, each.aside, "restore", each.let_go, overwrite=overwrite,
                    kept=swap.kept,
                )  # fmt: skip
            for name, place in places.items():
                entry = manifest["spaces"][name]
                counts[place], digests[place] = _confirm(library, place, entry, told)
            if files:
                beside.ask_again(library.path, manifest["due"])
    except OSError as error:
        raise refused(error, library.path) from error
    except apsw.Error as error:
        raise typed(error) from error
    finally:
        if not (library.path / JOURNAL).exists():  # else it is to be taken back, and goes by them
            for each in laid:
                each.aside.unlink(missing_ok=True)
    named = {**{library.path / name: name for name in files},
             **{library.file(place): place for place in places.values()}}  # fmt: skip
    kept = {named[live]: str(former) for live, former in replaced.items() if former is not None}
    return RestoreReport(source, counts, digests, kept, tuple(files))


@contextlib.contextmanager
def _let_go_if_it_fails(
    laid: Sequence[_Laid], replaced: Mapping[Path, Path | None]
) -> Iterator[None]:
    """Nobody here may have a file open that is about to be taken back."""
    try:
        yield
    except BaseException:
        for each in laid:
            if each.live in replaced:
                with contextlib.suppress(CommonplaceError):
                    each.let_go()
        raise


def _wanted(
    library: Contents,
    source: Path,
    manifest: Mapping[str, Any],
    spaces: Sequence[str] | None,
    into: str | None,
    system: bool | None,
) -> tuple[dict[str, str], list[str]]:
    """(which spaces of the backup, each with its place; which files beside them)."""
    whole = spaces is None and into is None
    wanted = list(spaces or ()) if system and whole else spaces
    names = chosen(list(manifest["spaces"]), wanted, f"{source} has")
    files = list(manifest["files"]) if (whole if system is None else system) else []
    if system and not files:
        raise NotFound(
            f"{source} has no {beside.SYSTEM}.",
            hint="A backup of chosen spaces holds those alone; use one of all spaces.",
            field="system",
        )
    if into is not None and len(names) != 1:
        raise InvalidInput(
            f"{len(names)} spaces cannot be restored into one.",
            hint=f"Choose one of {', '.join(names)}.",
            field="into",
        )
    return {name: library.file(into or name).stem for name in names}, files


def _check_free(
    library: Contents,
    places: Mapping[str, str],
    files: Sequence[str],
    into: str | None,
    overwrite: bool,
) -> None:
    """Refuse to replace what is there, unless told to."""
    if overwrite:
        return
    for place in places.values():
        if library.file(place).exists():
            raise Conflict(
                f"There is a space {place}.",
                hint="Choose another name with --into, or say --overwrite: it keeps the old file.",
                field="into" if into else "spaces",
            )
    for name in files:
        if (library.path / name).exists():
            raise Conflict(
                f"There is a {name} in {library.path}.",
                hint="Say --no-system to leave it, or --overwrite: it keeps the old file.",
                field="system",
            )


@dataclass(frozen=True, slots=True)
class _Laid:
    """A file of a backup, and where it is to be."""

    live: Path
    file: Path
    entry: Mapping[str, Any]
    let_go: Callable[[], None]
    rename: str | None = None

    @property
    def aside(self) -> Path:
        """Where it waits until all are ready."""
        return self.live.with_name(self.live.name + ".restoring")

    def lay(self) -> None:
        """Copy it there."""
        make_private(self.live.parent)
        _lay_aside(self.file, self.aside, self.entry, self.rename)


def _to_lay(
    library: Contents,
    source: Path,
    manifest: Mapping[str, Any],
    places: Mapping[str, str],
    files: Sequence[str],
) -> Iterator[_Laid]:
    for name in files:
        entry = manifest["files"][name]
        yield _Laid(library.path / name, source / entry["file"], entry, lambda: None)
    for name, place in places.items():
        yield _Laid(
            library.file(place), source / f"{name}.db", manifest["spaces"][name],
            partial(let_go, library, place), None if place == name else place,
        )  # fmt: skip


def _lay_aside(file: Path, aside: Path, entry: Mapping[str, Any], rename: str | None) -> None:
    """A copy of a backup's file, ready to be opened; as another space, if it is to be one."""
    aside.unlink(missing_ok=True)
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(file, aside)
    if sha256(aside) != entry["sha256"]:
        raise StorageUnavailable(
            "The disk did not keep what was written to it.", hint="Look at the disk."
        )
    connection = connect(aside)
    try:
        if rename is not None:
            if entry["schema"] != len(schema.MIGRATIONS):
                raise UnsupportedVersion(
                    "A backup of an older release cannot be renamed while it is restored.",
                    hint="Restore it under its own name elsewhere, and back it up again.",
                )
            _rename_space(connection, rename)
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close(True)
    with aside.open("rb+") as whole:
        os.fsync(whole.fileno())


def _rename_space(connection: Connection, place: str) -> None:
    """Give every row of the file another space, and the hash that goes with it."""

    def rehash(*values: Any) -> bytes:
        return TABLES[values[0]].hash(values[1], values[2:])

    connection.create_scalar_function("rehash", rehash, -1)
    tables = connection.execute(
        "SELECT t.name FROM sqlite_schema t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table' AND c.name = 'space'"
    ).fetchall()
    with connection:
        for (name,) in tables:
            anew = ""
            if name in TABLES:
                anew = f", hash = rehash('{name}', ?1, {', '.join(TABLES[name].columns)})"
            connection.execute(f"UPDATE {name} SET space = ?1{anew}", (place,))  # noqa: S608


def _confirm(
    library: Contents, place: str, entry: Mapping[str, Any], told: Told
) -> tuple[int, str]:
    """Read the restored space as the engine does; (its memories, its digest)."""
    store = Store(library.file(place), place)
    try:
        with store.read() as connection:
            total = sum(entry["rows"].values())
            census = take_census(connection, place, lambda done: told.part(done, total))
    finally:
        store.close()
    told.next()
    migrated = entry["schema"] != len(schema.MIGRATIONS)
    if census.unsound or (census.digest != entry["digest"] and not migrated):
        raise StorageCorrupt(
            f"{place} was restored, but does not say what was backed up.",
            hint="The disk may be failing; restore to another one.",
        )
    return census.rows["memories"], census.digest


def put_in_place(
    library: Contents,
    space: str,
    aside: Path,
    why: str,
    *,
    overwrite: bool = True,
    unchanged: Callable[[Connection], bool] = lambda _: True,
) -> Path | None:
    """Make a finished file the space's file; what was there stays beside it under another name.

    Refused while another process has the space open: what it wrote would be lost to sight.
    A kill leaves the old file or the new one.
    """
    return swap_in(
        library.file(space), aside, why, partial(let_go, library, space),
        overwrite=overwrite, unchanged=unchanged,
    )  # fmt: skip


def let_go(library: Contents, space: str) -> None:
    """Close the space here, waiting a little for who uses it."""
    until = time.monotonic() + swapping.ALONE_SECONDS
    while True:
        try:
            library.drop(space)
            return
        except StorageUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        except CommonplaceError:
            return  # what was noted could not be written: the file is damaged
