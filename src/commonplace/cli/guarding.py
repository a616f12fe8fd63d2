"""Commands that store every version of agents' own memory files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, Data, Space, option, path_argument
from commonplace.cli.terminal import count_with_noun, emit_json, note, say
from commonplace.errors import NotFound
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.importers.native_memories import GuardReport

guard = typer.Typer(
    help="Keep every version of agents' own memory files.",
    no_args_is_help=True,
)
GROUPS = {"guard": guard}
CHECK_SECONDS = 5  # seconds between two checks, if the system does not report changes

Paths = Annotated[
    list[Path] | None,
    path_argument(
        "PATH...",
        "Files and directories; by default those of Claude Code, Codex and Gemini CLI, and"
        " CLAUDE.md and AGENTS.md and such in this directory.",
    ),
]


def _files_to_guard(paths: list[Path] | None) -> list[Path]:
    """Return the files to guard; raise NotFound if one of the paths does not exist."""
    from commonplace.importers import native_memories

    if not paths:
        return native_memories.usual_files(Path.cwd())
    for path in paths:
        if not path.exists():
            raise NotFound(f"There is no file {path}.", hint="Check its name.", field="path")
    return native_memories.expand_directories(paths)


@guard.command("look")
def look(
    paths: Paths = None, data: Data = None, space: Space = "default", as_json: AsJson = False
) -> None:
    """Store new, changed and deleted files. `commonplace undo` reverts this.

    \b
      commonplace guard look
      commonplace guard look ~/notes/MEMORY.md
    """
    from commonplace.importers import native_memories

    files = _files_to_guard(paths)
    with options.open_memory(data, space, create=True) as memory:
        report = native_memories.store_changes(memory, files)
    emit_json(report.as_dict()) if as_json else _show_report(report)


def _show_report(report: GuardReport) -> None:
    for what in ("added", "changed", "gone"):
        for path in getattr(report, what):
            say(f"{what}: {escape_hidden(path)}")
    for problem in report.skipped:
        note(f"skipped: {escape_hidden(problem)}")
    if not any((report.added, report.changed, report.gone, report.skipped, report.unchanged)):
        say("no memory files of agents were found")
        return
    say(f"{report.unchanged} unchanged")


@guard.command("watch")
def watch(paths: Paths = None, data: Data = None, space: Space = "default") -> None:
    """Watch the files and store every change, until Ctrl-C."""
    from watchfiles import watch as changes

    from commonplace.importers import native_memories

    files = _files_to_guard(paths)
    folders = {file.parent for file in files} | {path for path in paths or () if path.is_dir()}
    with options.open_memory(data, space, create=True) as memory:
        # A short timeout, so that a change between the first check and the watch is found too.
        watched = changes(*folders, recursive=bool(paths),
                          rust_timeout=CHECK_SECONDS * 1_000, yield_on_timeout=True)  # fmt: skip
        report = native_memories.store_changes(memory, files)
        _show_report(report)
        with suppress(KeyboardInterrupt):  # the usual end; each check is stored in one transaction
            for _ in watched:
                report = native_memories.store_changes(memory, _current_files(paths))
                if report.added or report.changed or report.gone:
                    _show_report(report)


def _current_files(paths: list[Path] | None) -> list[Path]:
    """Return the files to guard that exist now; paths that were deleted are left out."""
    from commonplace.importers import native_memories

    if not paths:
        return native_memories.usual_files(Path.cwd())
    return native_memories.expand_directories(paths)


@guard.command("list")
def list_(data: Data = None, space: Space = "default", as_json: AsJson = False) -> None:
    """List the guarded files. With --json, one object per line."""
    from commonplace.importers import native_memories

    with options.open_memory(data, space) as memory:
        found = list(native_memories.guarded_memories(memory))
        if not found:
            note("No file is guarded yet. Start with: commonplace guard look.")
        for one in found:
            versions = len({each.memory.text for each in memory.history.versions(one.id)})
            path, gone = str(one.attrs["file"]), one.attrs.get("gone_since")
            if as_json:
                emit_json({"file": path, "id": one.id, "versions": versions, "gone_since": gone})
            else:
                many = count_with_noun(versions, "version", "versions")
                state = f"gone since {gone}" if gone else many
                say(f"{one.id[:8]}  {escape_hidden(path)}  ({state})")


@guard.command("bring-back")
def bring_back(
    path: Annotated[Path, path_argument("FILE", "The file's path.")],
    at: Annotated[str | None, option("--at WHEN", "Restore the version at this time.")] = None,
    overwrite: Annotated[
        bool, option("--overwrite", "Replace an existing file, after storing it.")
    ] = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Restore a guarded file to its last or an older version.

    \b
      commonplace guard bring-back ~/.codex/memories/MEMORY.md
      commonplace guard bring-back CLAUDE.md --at 2026-05-31 --overwrite
    """
    from commonplace.importers import native_memories

    with options.open_memory(data, space) as memory:
        when = options.parse_time(at, "until", "--at")
        written = native_memories.bring_back(memory, path, as_of=when, overwrite=overwrite)
    emit_json({"file": str(written)}) if as_json else say(f"written: {escape_hidden(str(written))}")
