"""Commands for whole spaces: backup, restore, check."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import options
from commonplace.cli.options import (
    AsJson,
    Data,
    Embedding,
    argument,
    option,
    path_argument,
    path_option,
)
from commonplace.cli.terminal import bold, count_with_noun, emit_json, note, progress, say, tell
from commonplace.errors import (
    CommonplaceError,
    InvalidInput,
    NotFound,
    StorageUnavailable,
)
from commonplace.storage.directories import replace_file
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.engine.library import Library
    from commonplace.storage.reports import Diagnosis

UNHEALTHY = 6
LAST_BACKUP_FILE = "last-backup"
MASTER_KEY_FILE = "master.key"
NO_SPACES = "There are no spaces yet."

Overwrite = Annotated[bool, option("--overwrite", "Replace existing data.")]
Spaces = Annotated[list[str] | None, option("--space NAME", "Only this space; repeatable.")]


def backup(
    target: Annotated[Path, path_argument("DIR", "A new directory.")],
    spaces: Spaces = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Copy all spaces, tokens and accounts, and verify the copy. With --space, copy only
    those spaces. Other processes may write meanwhile.

    A backup contains hashes of tokens and passwords, and encrypted API keys. It does not contain
    the master key (master.key in the data directory, or COMMONPLACE_MASTER_KEY): keep a copy
    elsewhere, since the API keys cannot be read without it. It does not contain config.toml either.

    \b
      commonplace backup ~/backups/today
    """

    with (
        options.open_library(options.existing_directory(data)) as library,
        progress("Backing up") as show,
    ):
        if not library.spaces():
            raise NotFound(NO_SPACES, hint="There is nothing to back up.")
        report = library.maintenance.backup(target, spaces=spaces, progress=show)
        _note_backup(library.path, report.path)
    if as_json:
        emit_json(report.as_dict())
    else:
        rows = sum(report.spaces.values())
        held = ", ".join([*report.spaces, *report.files])
        say(f"backed up {held} ({rows:,} rows) to {escape_hidden(str(report.path))}")
        key = library.path / MASTER_KEY_FILE
        if report.files and key.exists():
            note(f"The backup does not contain {escape_hidden(str(key))}, which its tokens and keys"
                 " need. Keep a copy elsewhere.")  # fmt: skip


def _note_backup(data: Path, target: Path) -> None:
    """Store the time and the path of the last backup, for `status`."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.suppress(OSError), replace_file(data / LAST_BACKUP_FILE) as stream:
        stream.write(f"{at} {target}\n".encode("utf-8", "surrogateescape"))


def last_backup(data: Path) -> str | None:
    """Return the time and path of the last backup; None if there was none."""
    try:
        return (data / LAST_BACKUP_FILE).read_text(
            encoding="utf-8", errors="replace"
        ).strip() or None
    except OSError:
        return None


def restore(
    source: Annotated[Path, path_argument("BACKUP", "A directory that `backup` wrote.")],
    spaces: Spaces = None,
    into: Annotated[
        str | None, option("--into NAME", "Restore the space under another name.")
    ] = None,
    overwrite: Overwrite = False,
    system: Annotated[
        bool | None,
        option(
            "--system/--no-system",
            "Restore tokens, accounts and workflows: only these, or together with the spaces"
            " named; or not at all. By default they are restored together with all spaces.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[bool, option("--check", "Only verify the backup; change nothing.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup. The backup is verified first; a failed restore changes nothing.

    Tokens and accounts get their state at the time of the backup: tokens revoked since then are
    valid again, unless --no-system is given. On another machine, put master.key (mode 0600) into
    the data directory first.

    \b
      commonplace restore ~/backups/today --check
      commonplace restore ~/backups/today --space default --into yesterday
    """
    from commonplace.cli.access import token_ids_by_state
    from commonplace.storage.sqlite import backup

    if check:
        with progress("Verifying") as show:
            found = backup.verify(source, progress=show)
        rows = sum(found.spaces.values())
        held = ", ".join([*found.spaces, *found.files])
        tell(as_json, found.as_dict(), f"the backup is complete: {held} ({rows:,} rows)")
        return
    backup.read_manifest(source)  # check first, so that no empty directory is created
    with options.open_library(data) as library, progress("Restoring") as show:
        revoked, _ = token_ids_by_state(library.path)
        report = library.maintenance.restore(
            source, spaces=spaces, into=into, overwrite=overwrite, system=system, progress=show
        )
        again = sorted(revoked & token_ids_by_state(library.path)[1])
    parts = report.as_dict() | {"valid_again": again}
    held = ", ".join([*report.spaces, *report.files])
    tell(as_json, parts, f"restored {held} from {escape_hidden(str(source))}")
    if report.files and not as_json:
        _check_master_key(library.path)
    if again and not as_json:
        names = ", ".join(each[:8] for each in again)
        note(f"Tokens that were revoked after the backup are valid again: {names}."
             " Revoke them with: commonplace token revoke ID")  # fmt: skip


def _check_master_key(data: Path) -> None:
    """Warn if the restored tokens and keys cannot be used with the present master key."""
    from commonplace.cli.access import damaged_rows

    try:
        list(damaged_rows(data))
    except CommonplaceError as error:
        note(f"The memories are restored; tokens, accounts and keys cannot be used yet:"
             f" {escape_hidden(error.message)} {escape_hidden(error.hint)}")  # fmt: skip


def move(
    source: Annotated[str, argument("FROM", "A data directory, or the address of a database.")],
    target: Annotated[str, argument("TO", "A data directory, or the address of a database.")],
    spaces: Spaces = None,
    machine: Annotated[
        Path | None,
        path_option(
            "--data DIR",
            "The data directory of this machine for temporary copies, if TO is a database.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy everything from files to a database, or back. With --space, copy
    only those spaces. All rows are compared afterwards; the source is not changed.

    Stop the servers of the source first. After an interruption, run the command again to continue.
    A target with other data under the same name is refused and not changed. The master key is not
    copied: copy master.key of the source to the data directory of the new servers.

    \b
      commonplace move ~/.commonplace postgresql://commonplace@db/commonplace
    """
    from commonplace.storage import moving

    _check_target(target)
    _check_not_served(source, machine)
    with (
        _open_library_at(source, machine, must_exist=True) as first,
        _open_library_at(target, machine) as second,
        progress("Moving") as show,
    ):
        if (first.path, first.database) == (second.path, second.database):
            raise InvalidInput("FROM and TO are the same place.", hint="Choose another TO.")
        report = moving.move(first, second, spaces=spaces, progress=show)
    if as_json:
        emit_json(report.as_dict())
        return
    rows = sum(report.moved.values())
    say(f"moved {', '.join(report.moved) or 'no space'} ({rows:,} rows); all rows are equal")
    if report.there:
        say(f"already there, with equal rows: {', '.join(report.there)}")
    if report.system in ("moved", "there"):
        said = "moved" if report.system == "moved" else "there already"
        say(f"tokens and accounts: {said}; they need the master key of the source")


def _check_target(target: str) -> None:
    """Refuse a name that may be a mistyped address; a new directory must be given as a path."""
    from commonplace.storage.opening import is_database_url

    path = Path(target).expanduser()
    if is_database_url(target) or path.exists():
        return
    if "://" in target or "/" not in target.replace("\\", "/"):
        raise InvalidInput(
            f"TO is neither the address of a database nor a directory: {target}.",
            hint="An address begins with postgresql://. For a new directory here, write"
            f" ./{path.name}.",
            field="target",
        )


def _check_not_served(source: str, machine: Path | None) -> None:
    """Refuse to move data that a running server of this machine may write to."""
    from commonplace.client import connection
    from commonplace.engine.library import directory
    from commonplace.storage.opening import is_database_url

    database = source if is_database_url(source) else ""
    path = directory(machine if database else source)
    if not path.is_dir():
        return  # a check must not create the directory
    try:
        answer = connection.ask(connection.place_of(str(path), database), {"kind": "status"})
    except (OSError, connection.Unusable):
        return
    if answer is not None:
        raise StorageUnavailable(
            f"A server (process {answer['pid']}) is using FROM.",
            hint="Stop it first: commonplace stop "
            + ("--database URL, with the address of FROM." if database else f"--data {path}"),
        )


def _open_library_at(
    where: str, machine: Path | None, *, must_exist: bool = False
) -> contextlib.closing[Library]:
    """Open the library at a path or an address."""
    from commonplace.engine.library import Library, directory
    from commonplace.storage.opening import is_database_url

    if is_database_url(where):
        return contextlib.closing(Library(machine, embedder=None, database=where))
    path = directory(where)
    if must_exist and not (path / "spaces").is_dir():
        raise NotFound(f"There is no memory in {path}.", hint="Name a data directory.")
    return contextlib.closing(Library(path, embedder=None))


def doctor(
    repair: Annotated[
        bool, option("--repair", "Rebuild indexes, and compute missing vectors.")
    ] = False,
    salvage: Annotated[
        Path | None,
        path_option(
            "--salvage DIR",
            "Copy every intact row into DIR, a new data directory; keep the damaged one.",
        ),
    ] = None,
    spaces: Spaces = None,
    data: Data = None,
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Check every row and index. With --json, one object per line.

    Exit code 6 means that a problem was found.
    """

    from commonplace.storage.sqlite.shared_files import SYSTEM

    healthy = True
    with options.open_library(options.existing_directory(data), embedding) as library:
        if not (spaces or library.spaces()):
            note(NO_SPACES)
        for name in spaces or library.spaces():
            healthy = _examine_space(library, name, repair, salvage, as_json) and healthy
        for other in library.maintenance.check_shared_files() if not spaces else ():
            if other.space == SYSTEM and other.healthy:
                _examine_access(library.path, other)
            healthy = healthy and other.healthy
            if as_json:
                parts = other.as_dict()
                emit_json({"file": parts.pop("space"), **parts})
            else:
                _show_diagnosis(other)
    if not healthy:
        raise typer.Exit(UNHEALTHY)


def _examine_space(
    library: Library, name: str, repair: bool, salvage: Path | None, as_json: bool
) -> bool:
    """Check a space, after an optional repair or salvage; return whether it is healthy."""
    from commonplace.engine.commonplace import Commonplace

    if not library.exists(name):
        raise NotFound(f"There is no space {name}.", hint="See 'commonplace spaces'.")
    more: dict[str, Any] = {}
    lines: list[str] = []
    if repair:
        with progress(f"Repairing {name}") as show:
            more["repair"] = library.maintenance.repair(name, progress=show).as_dict()
        lines.append(f"rebuilt: {', '.join(more['repair'].get('rebuilt', ())) or 'nothing'}")
        with contextlib.suppress(CommonplaceError):  # the check below reports the problem
            memory = Commonplace(library=library, space=name)
            if more["repair"].setdefault("embedded", options.compute_embeddings(memory)):
                many = count_with_noun(more["repair"]["embedded"], "memory", "memories")
                lines.append(f"computed: the vectors of {many}")
    if salvage is not None:
        with progress(f"Salvaging {name}") as show:
            saved = library.maintenance.salvage(name, salvage / "spaces", progress=show)
        more |= {"salvaged": saved.saved, "lost": list(saved.lost)}
        lines.append(f"saved {sum(saved.saved.values()):,} rows into {salvage}, lost"
                     f" {len(saved.lost)}; use it with --data {salvage}")  # fmt: skip
        lines += [f"lost: {row}" for row in saved.lost]
    with progress(f"Examining {name}") as show:
        diagnosis = library.maintenance.check(name, progress=show)
    if diagnosis.healthy:
        _examine_dialect_records(library, name, diagnosis)
    if as_json:
        emit_json({"space": name, **diagnosis.as_dict(), **more})
    else:
        _show_diagnosis(diagnosis, lines)
    return diagnosis.healthy


def _examine_dialect_records(library: Library, space: str, diagnosis: Diagnosis) -> None:
    """Report memories whose attrs their dialect cannot read."""
    from commonplace.dialects.reserved import unreadable_memories
    from commonplace.engine.commonplace import Commonplace

    for memory, owner in unreadable_memories(Commonplace(library=library, space=space)):
        what = f"Memory {{row}}: {owner} cannot read it as a {memory.kind} and ignores it."
        hint = (
            "Its attrs do not match its kind. Hide it with 'forget', or import or restore it again."
        )
        diagnosis.add("attrs", what, hint, "warning", row=memory.id)


def _examine_access(data: Path, diagnosis: Diagnosis) -> None:
    """Report tokens, accounts and keys whose MAC does not match."""
    from commonplace.cli.access import damaged_rows
    from commonplace.storage.reports import RESTORE_SYSTEM

    try:
        for what in damaged_rows(data):
            diagnosis.add("access", f"{what} is damaged.", RESTORE_SYSTEM)
    except CommonplaceError as error:
        told = f"Tokens, accounts and keys were not checked: {error.message}"
        diagnosis.add("access", told, error.hint, "note")
    diagnosis.finish()


def _show_diagnosis(diagnosis: Diagnosis, more: Sequence[str] = ()) -> None:
    say(f"{bold(diagnosis.space)}: {'healthy' if diagnosis.healthy else 'not healthy'}")
    for line in more:
        say(escape_hidden(f"  {line}"))
    for finding in diagnosis.findings:
        say(escape_hidden(f"  {finding.severity}: {finding} {finding.hint}".rstrip()))


def demo(
    keep: Annotated[bool, option("--keep", "Keep the temporary directory.")] = False,
) -> None:
    """Show a tour with a temporary memory. No network is needed."""
    from commonplace import demo

    demo.run(keep=keep)


def spaces(data: Data = None, as_json: AsJson = False) -> None:
    """List the spaces of the data directory. With --json, one object per line."""
    from commonplace.engine.commonplace import Commonplace

    where = options.existing_directory(data)
    with options.open_library(where) as library:
        if not library.spaces():
            note(NO_SPACES)
        for name in library.spaces():
            size = library.size(name)
            _, count = Commonplace(space=name, library=library).browse(limit=1)
            held = "memory  " if count == 1 else "memories"
            text = f"{bold(name):<24}  {count:>9,} {held}  {size / 1e6:>9.1f} MB"
            tell(as_json, {"space": name, "memories": count, "bytes": size}, text)


def version(as_json: AsJson = False) -> None:
    """Show the version of this program and of its SQLite."""
    from commonplace import __version__
    from commonplace.storage.database import sqlite_version

    text = f"commonplace {__version__} (SQLite {sqlite_version()})"
    tell(as_json, {"commonplace": __version__, "sqlite": sqlite_version()}, text)


COMMANDS = (backup, restore, move, doctor, demo, spaces, version)
