"""Commands for whole spaces: export, import, backup, restore, check."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, Data, Embedding, Space, argument, option
from commonplace.cli.terminal import bold, emit, note, progress, say, tell
from commonplace.errors import (
    CommonplaceError,
    Conflict,
    InvalidInput,
    NotFound,
    StorageUnavailable,
)
from commonplace.storage.directories import replacing
from commonplace.text.hidden import visible

if TYPE_CHECKING:
    from commonplace.engine.library import Library
    from commonplace.engine.transfer.reading import ImportReport
    from commonplace.storage.reports import Diagnosis

CONFLICT = 4
UNHEALTHY = 6

Overwrite = Annotated[bool, option("--overwrite", "Replace existing data.")]
Spaces = Annotated[list[str] | None, option("--space NAME", "Only this space; repeatable.")]


def export(
    file: Annotated[
        Path | None, argument("FILE", "The file to write; standard output by default.")
    ] = None,
    overwrite: Overwrite = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Export everything in a space, with its history, as JSON lines.

    The last line has counts and a SHA-256 of all lines before it, so that a truncated file
    is detected.

    \b
      commonplace export team.jsonl
      commonplace export | gzip > team.jsonl.gz
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.transfer import exporting

    if file is None and as_json:
        raise InvalidInput(
            "--json writes a report to standard output, where the export goes.", hint="Name a FILE."
        )
    with (
        options.memory(data, space) as memory,
        lease(memory) as opened,
        _written(file, overwrite) as stream,
        progress("Exporting") as show,
    ):
        report = exporting.export_space(opened, stream.write, show)
    if as_json:
        emit({"file": str(file), **report.as_dict()})
    elif file is not None:
        say(f"exported {_things(report.counts)} to {visible(str(file))}")


@contextlib.contextmanager
def _written(file: Path | None, overwrite: bool) -> Iterator[IO[str]]:
    """Stdout, or a private file that is written completely or not at all."""
    if file is None:
        yield sys.stdout
        return
    if file.exists() and not overwrite:
        raise Conflict(f"{file} exists.", hint="Choose another name, or add --overwrite.")
    file = file.resolve()  # what a link leads to is replaced, not the link
    if file.exists() and not file.is_file():
        raise InvalidInput(
            f"{file} is not a file that can be replaced.",
            hint="Name a file, or leave it out to write to standard output.",
        )
    try:
        with replacing(file) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
            yield text
            text.flush()
            text.detach()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StorageUnavailable(
            f"{file} cannot be written: {error.strerror}.", hint="Choose another place."
        ) from error


def import_(
    file: Annotated[
        Path,
        argument(
            "FILE|DIR|-", "An export, .jsonl, .md, .txt, or a directory of them; - reads stdin."
        ),
    ],
    trust_file: Annotated[
        bool,
        option("--trust-file", "Keep the trust stated in the file; by default it is external."),
    ] = False,
    partial: Annotated[
        bool, option("--partial", "Import what can be read of a truncated or changed export.")
    ] = False,
    wait: Annotated[
        bool, option("--wait/--no-wait", "Wait until all embeddings are computed.")
    ] = True,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = "builtin",
) -> None:
    """Import an export, or notes. Importing the same file again changes nothing.

    A .jsonl file has one object per line with "text", and optionally kind, title, tags, importance,
    occurred_at, ref, attrs; a .md or .txt file becomes one memory. Every line is checked before the
    first is stored. Lines that conflict with stored data are reported and skipped (exit code 4);
    nothing is overwritten.

    \b
      commonplace import team.jsonl --trust-file
      commonplace import ~/notes
      gunzip -c team.jsonl.gz | commonplace import -
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.transfer import importing, reading

    # check first: otherwise an empty space would be created
    if str(file) != "-" and not file.exists():
        raise NotFound(f"There is no file {file}.", hint="Check its name.", field="path")
    with (
        contextlib.ExitStack() as given,
        options.memory(data, space, embedding, create=True) as memory,
    ):
        if str(file) == "-":
            file = given.enter_context(reading.spooled(sys.stdin.buffer, "stdin"))
        with lease(memory) as opened, progress("Importing") as show:
            report = importing.import_file(
                opened, file, trust_file=trust_file, partial=partial, progress=show
            )
        if wait:
            options.compute_embeddings(memory)
    if as_json:
        emit(report.as_dict())
    else:
        _show_import(report)
    if report.conflicts:
        raise typer.Exit(CONFLICT)


def _show_import(report: ImportReport) -> None:
    former = report.added - sum(report.counts.values())
    say(f"imported {_things(report.counts)}"
        + (f", {former:,} lines of history" if former else "")
        + (f"; {report.unchanged:,} lines were already stored" if report.unchanged else "")
        + ("" if report.complete else "; the file was incomplete"))  # fmt: skip
    for problem in report.problems:
        note(f"skipped: {visible(problem.where)}: {visible(problem.what)}")
    more = report.conflicts + report.skipped - len(report.problems)
    if more > 0:
        note(f"skipped: {more:,} more")


def backup(
    target: Annotated[Path, argument("DIR", "A new directory.")],
    spaces: Spaces = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Copy all spaces, tokens, accounts and workflows, and verify the copy. With --space, copy only
    those spaces. Other processes may write meanwhile.

    A backup holds hashes of tokens and passwords, and stored keys as they were sealed. It does not
    hold the master key (master.key in the data directory, or COMMONPLACE_MASTER_KEY): keep a copy
    elsewhere, since sealed keys cannot be read without it. It does not hold config.toml either.

    \b
      commonplace backup ~/backups/today
    """

    with options.library(options.existing(data)) as library, progress("Backing up") as show:
        report = library.maintenance.backup(target, spaces=spaces, progress=show)
    if as_json:
        emit(report.as_dict())
    else:
        rows = sum(report.spaces.values())
        held = ", ".join([*report.spaces, *report.files])
        say(f"backed up {held} ({rows:,} rows) to {visible(str(report.path))}")


def restore(
    source: Annotated[Path, argument("BACKUP", "A directory that `backup` wrote.")],
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
    """Restore a backup. It is verified first, and restored completely or not at all.

    Tokens and accounts get their state at the time of the backup: tokens revoked since then are
    valid again, unless --no-system is given. On another machine, put master.key (mode 0600) into
    the data directory first.

    \b
      commonplace restore ~/backups/today --check
      commonplace restore ~/backups/today --space default --into yesterday
    """
    from commonplace.cli.access import by_state
    from commonplace.storage.sqlite import backup

    if check:
        with progress("Verifying") as show:
            found = backup.verify(source, progress=show)
        rows = sum(found.spaces.values())
        held = ", ".join([*found.spaces, *found.files])
        tell(as_json, found.as_dict(), f"the backup is complete: {held} ({rows:,} rows)")
        return
    backup.read_manifest(source)  # check first: otherwise an empty directory would be created
    with options.library(data) as library, progress("Restoring") as show:
        revoked, _ = by_state(library.path)
        report = library.maintenance.restore(
            source, spaces=spaces, into=into, overwrite=overwrite, system=system, progress=show
        )
        again = sorted(revoked & by_state(library.path)[1])
    parts = report.as_dict() | {"valid_again": again}
    tell(as_json, parts, f"restored from {visible(str(source))}")
    if again and not as_json:
        names = ", ".join(each[:8] for each in again)
        note(f"Tokens that were revoked after the backup are valid again: {names}."
             " Revoke them with: commonplace token revoke ID")  # fmt: skip


def doctor(
    repair: Annotated[bool, option("--repair", "Rebuild indexes.")] = False,
    salvage: Annotated[
        Path | None,
        option(
            "--salvage DIR",
            "Copy every intact row into DIR, a new data directory; the damaged one stays.",
        ),
    ] = None,
    spaces: Spaces = None,
    data: Data = None,
    as_json: AsJson = False,
    embedding: Embedding = "builtin",
) -> None:
    """Check every row and index. With --json, one object per line.

    Exit code 6 means that a problem was found.
    """

    from commonplace.storage.sqlite.shared_files import SYSTEM

    healthy = True
    with options.library(options.existing(data), embedding) as library:
        for name in spaces or library.spaces():
            healthy = _examine_space(library, name, repair, salvage, as_json) and healthy
        for other in library.maintenance.check_shared_files() if not spaces else ():
            if other.space == SYSTEM and other.healthy:
                _examine_access(library.path, other)
            healthy = healthy and other.healthy
            if as_json:
                parts = other.as_dict()
                emit({"file": parts.pop("space"), **parts})
            else:
                _show_diagnosis(other)
    if not healthy:
        raise typer.Exit(UNHEALTHY)


def _examine_space(
    library: Library, name: str, repair: bool, salvage: Path | None, as_json: bool
) -> bool:
    """Check a space, after repairing or salvaging it if asked to; return whether it is healthy."""
    if not library.exists(name):
        raise NotFound(f"There is no space {name}.", hint="See 'commonplace spaces'.")
    more: dict[str, Any] = {}
    lines: list[str] = []
    if repair:
        with progress(f"Repairing {name}") as show:
            more["repair"] = library.maintenance.repair(name, progress=show).as_dict()
        lines.append(f"rebuilt: {', '.join(more['repair'].get('rebuilt', ())) or 'nothing'}")
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
        _examine_readers(library, name, diagnosis)
    if as_json:
        emit({"space": name, **diagnosis.as_dict(), **more})
    else:
        _show_diagnosis(diagnosis, lines)
    return diagnosis.healthy


def _examine_readers(library: Library, space: str, diagnosis: Diagnosis) -> None:
    """Report memories whose attrs their dialect cannot read."""
    from commonplace.dialects.reserved import unreadable
    from commonplace.engine.commonplace import Commonplace

    for memory, owner in unreadable(Commonplace(library=library, space=space)):
        what = f"Memory {{row}}: {owner} cannot read it as a {memory.kind} and skips it."
        hint = (
            "Its attrs do not fit its kind. Hide it with 'forget', or import or restore it again."
        )
        diagnosis.add("attrs", what, hint, "warning", row=memory.id)


def _examine_access(data: Path, diagnosis: Diagnosis) -> None:
    """Report tokens, accounts and keys whose MAC does not match."""
    from commonplace.cli.access import damaged
    from commonplace.storage.reports import RESTORE_SYSTEM

    try:
        for what in damaged(data):
            diagnosis.add("access", f"{what} is damaged.", RESTORE_SYSTEM)
    except CommonplaceError as error:
        told = f"Tokens, accounts and keys were not checked: {error.message}"
        diagnosis.add("access", told, error.hint, "note")
    diagnosis.finish()


def _show_diagnosis(diagnosis: Diagnosis, more: Sequence[str] = ()) -> None:
    say(f"{bold(diagnosis.space)}: {'healthy' if diagnosis.healthy else 'not healthy'}")
    for line in more:
        say(visible(f"  {line}"))
    for finding in diagnosis.findings:
        say(visible(f"  {finding.severity}: {finding} {finding.hint}".rstrip()))


def demo(
    keep: Annotated[bool, option("--keep", "Keep the temporary directory.")] = False,
) -> None:
    """Show a tour with a temporary memory. It needs no network."""
    from commonplace import demo

    demo.run(keep=keep)


def spaces(data: Data = None, as_json: AsJson = False) -> None:
    """List the spaces of the data directory. With --json, one object per line."""
    from commonplace.engine.commonplace import Commonplace

    where = options.existing(data)
    with options.library(where) as library:
        for name in library.spaces():
            size = library.size(name)
            _, count = Commonplace(space=name, library=library).browse(limit=1)
            text = f"{bold(name):<24}  {count:>9,} memories  {size / 1e6:>9.1f} MB"
            tell(as_json, {"space": name, "memories": count, "bytes": size}, text)


def version(as_json: AsJson = False) -> None:
    """Show the version of this program and of its SQLite."""
    from commonplace import __version__
    from commonplace.storage.database import library_version

    text = f"commonplace {__version__} (SQLite {library_version()})"
    tell(as_json, {"commonplace": __version__, "sqlite": library_version()}, text)


COMMANDS = (export, import_, backup, restore, doctor, demo, spaces, version)


_PLURALS = {
    "memory": "memories",
    "artifact_version": "artifact versions",
    "member": "cluster members",
}


def _things(counts: Any) -> str:
    """“3 memories, 1 link”."""
    shown = [
        f"{count:,} {name.replace('_', ' ') if count == 1 else _PLURALS.get(name, name + 's')}"
        for name, count in counts.items()
        if count
    ]
    return ", ".join(shown) or "nothing"
