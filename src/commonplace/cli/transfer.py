"""The commands `import` and `export`."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, Data, Embedding, Space, option, path_argument
from commonplace.cli.stores import Overwrite
from commonplace.cli.terminal import (
    columns,
    count_with_noun,
    dim,
    emit_json,
    local_time,
    note,
    one_line,
    progress,
    say,
    width,
)
from commonplace.errors import Conflict, InvalidInput, NotFound, StorageUnavailable
from commonplace.storage.directories import replace_file
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.transfer.reading import ImportReport
    from commonplace.importers.storing import Imported

SOME_SKIPPED = 4  # the exit code if something was not imported
SAMPLES = 3


To = Annotated[
    str | None,
    option(
        "--to FORMAT",
        "A format of another program, without history: obsidian or markdown (a directory of notes),"
        " jsonl, mem0, server-memory or claude-md.",
    ),
]


def export(
    file: Annotated[
        Path | None,
        path_argument(
            "FILE", "The file to write, or a directory for obsidian; standard output by default."
        ),
    ] = None,
    to: To = None,
    overwrite: Overwrite = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Export everything in a space, with its history, as JSON lines.

    The last line has counts and a SHA-256 of all lines before it, so that a truncated file
    is detected. With --to, write the memories and their links for another program.

    \b
      commonplace export team.jsonl
      commonplace export | gzip > team.jsonl.gz
      commonplace export --to obsidian ~/vault
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.transfer import exporting

    if file is None and as_json:
        raise InvalidInput(
            "With --json the report goes to standard output, so the export needs a file.",
            hint="Name a FILE.",
        )
    if to is not None:
        _export_to(to, file, overwrite, data, space, as_json)
        return
    with (
        options.open_memory(data, space) as memory,
        lease(memory) as opened,
        _open_output(file, overwrite) as stream,
        progress("Exporting") as show,
    ):
        report = exporting.export_space(opened, stream.write, show)
    if as_json:
        emit_json({"file": str(file), **report.as_dict()})
    elif file is not None:
        say(f"exported {_counts_in_words(report.counts)} to {escape_hidden(str(file))}")


def _export_to(
    to: str, file: Path | None, overwrite: bool, data: Path | None, space: str, as_json: bool
) -> None:
    from commonplace.importers import exporting

    to = exporting.OBSIDIAN if to == "markdown" else to
    if to not in exporting.NAMES:
        raise InvalidInput(
            f"Unknown export format {to}.",
            hint=f"Choose one of {', '.join(exporting.NAMES)}.",
            field="to",
        )
    if to == exporting.OBSIDIAN:
        if file is None:
            raise InvalidInput(
                "An Obsidian vault must be a directory.", hint="Name it.", field="file"
            )
        if file.exists() and (not file.is_dir() or any(file.iterdir())) and not overwrite:
            raise Conflict(
                f"{file} is not an empty directory.",
                hint="Name a new directory, or add --overwrite.",
            )
    with options.open_memory(data, space) as memory:
        what = exporting.collect_export(memory)
    for name, text in exporting.export_files(to, what):
        target = file / name if file is not None and name else file
        if target is not None and name:
            target.parent.mkdir(parents=True, exist_ok=True)
        with _open_output(target, overwrite) as stream:
            stream.write(text)
    links = sum(map(len, what.links.values()))
    if as_json:
        emit_json({"file": str(file), "to": to, "memories": len(what.memories), "links": links,
              "lines_left_out": what.lines_left_out})  # fmt: skip
        return
    if file is not None:
        counts = {"memory": len(what.memories), "link": links}
        say(f"exported {_counts_in_words(counts)} to {escape_hidden(str(file))}")
    if what.lines_left_out:
        note(
            f"{what.lines_left_out:,} lines of conversations are not exported; 'commonplace export'"
            " without --to includes them"
        )


@contextlib.contextmanager
def _open_output(file: Path | None, overwrite: bool) -> Iterator[IO[str]]:
    """Open standard output, or a private file that is replaced atomically."""
    if file is None:
        yield sys.stdout
        return
    if file.exists() and not overwrite:
        raise Conflict(f"{file} exists.", hint="Choose another name, or add --overwrite.")
    file = file.resolve()  # a symbolic link is kept, and its target is replaced
    if file.exists() and not file.is_file():
        raise InvalidInput(
            f"{file} is not a file that can be replaced.",
            hint="Name a file, or omit it to write to standard output.",
        )
    try:
        with replace_file(file) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
            yield text
            text.flush()
            text.detach()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StorageUnavailable(
            f"{file} cannot be written: {error.strerror}.", hint="Choose another path."
        ) from error


def import_(
    file: Annotated[
        Path,
        path_argument(
            "FILE|DIR|NAME|-",
            "A file or directory, or - for standard input. An agent's name stands for its history"
            " on this machine.",
        ),
    ],
    from_: Annotated[
        str | None,
        option("--from FORMAT", "The format, such as obsidian; an unknown name lists all formats."),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Only count, and show three samples; store nothing.")
    ] = False,
    trust_file: Annotated[
        bool,
        option("--trust-file", "Keep the trust stated in the file; by default it is external."),
    ] = False,
    partial: Annotated[
        bool, option("--partial", "Import the readable part of a truncated or changed export.")
    ] = False,
    wait: Annotated[
        bool, option("--wait/--no-wait", "Wait until all embeddings are computed.")
    ] = True,
    allow_secrets: options.AllowSecrets = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Import agents' histories, other memories, exports or notes.

    The format is detected, or named with --from. Importing the same data again changes nothing, an
    interrupted import continues when it is run again, and 'commonplace undo' reverts it completely.

    Of our own formats, a .jsonl file has one object per line with "text", and optionally kind,
    title, tags, importance, occurred_at, ref, attrs, links; a .md or .txt file becomes one memory.
    Every line is checked before the first is stored. Lines that conflict with stored data, and
    files of a directory that are not text, are reported and skipped (exit code 4); nothing is
    overwritten. JSON lines are UTF-8; notes may also be UTF-16 with a byte order mark.

    \b
      commonplace import claude-code --dry-run
      commonplace import ~/Downloads/chatgpt-export.zip
      commonplace import ~/vault --from obsidian
      commonplace import team.jsonl --trust-file
      gunzip -c team.jsonl.gz | commonplace import -
    """
    from commonplace.engine.transfer import reading
    from commonplace.importers import registry

    options.check_embedding(embedding)
    with contextlib.ExitStack() as stack:
        if str(file) == "-":
            path = stack.enter_context(reading.copy_stream(sys.stdin.buffer, "stdin"))
            name = registry.detect_input_format(path, from_)
        else:
            path, from_ = _path_to_import(file, from_)
            name = registry.detect_format(path, from_)
        chosen = _ImportOptions(
            path, name, trust_file, partial, wait, allow_secrets, data, space, embedding
        )
        _run_import(chosen, dry_run, as_json)


@dataclass(frozen=True)
class _ImportOptions:
    """The source and the destination of an import."""

    path: Path
    format: str
    trust_file: bool
    partial: bool
    wait: bool
    allow_secrets: bool
    data: Path | None
    space: str
    embedding: str | None


def _path_to_import(file: Path, from_: str | None) -> tuple[Path, str | None]:
    """Return the path to import; for the name of an agent, the path of its history."""
    from commonplace.importers import histories

    # check first, so that no empty space is created
    if file.exists():
        return file, from_
    known = histories.usual_history_paths().get(str(file))
    if known is None:
        raise NotFound(f"There is no file {file}.", hint="Check its name.", field="path")
    if not known.exists():
        raise NotFound(f"There is no history in {known}.", hint="Give its path.",
                       field="path")  # fmt: skip
    return known, from_ or str(file)


def _run_import(chosen: _ImportOptions, dry_run: bool, as_json: bool) -> None:
    from commonplace.importers import registry

    if chosen.format == registry.OWN_FORMAT:
        _import_own_format(chosen, dry_run, as_json)
        return
    if dry_run:
        report = registry.dry_run(chosen.path, chosen.format)
        _show_dry_run(report, as_json)
    else:
        report = import_other_format(chosen)
        emit_json(report.as_dict()) if as_json else show_imported(report)
    if report.skipped:
        raise typer.Exit(SOME_SKIPPED)


def import_other_format(chosen: _ImportOptions) -> Imported:
    """Import from another program, and compute the embeddings afterwards."""
    from commonplace.importers import registry, storing

    with (
        options.open_memory(
            chosen.data, chosen.space, create=True, allow_secrets=chosen.allow_secrets
        ) as memory,
        progress("Importing") as show,
    ):
        report = registry.run_import(
            memory, chosen.path, chosen.format, origin=storing.import_origin(),
            trust="stated" if chosen.trust_file else None, progress=show,
        )  # fmt: skip
    if chosen.wait:
        with options.open_memory(chosen.data, chosen.space, chosen.embedding) as memory:
            options.compute_embeddings(memory)
    return report


def show_imported(report: Imported, *, undo: bool = True) -> None:
    """Print the result of an import."""
    from commonplace.importers import registry

    title = registry.FORMATS[report.format].TITLE
    say(f"imported {report.added:,} of {report.found:,} from {title}"
        + (f", {count_with_noun(report.links, 'link', 'links')}" if report.links else "")
        + (f"; {report.changed:,} changed" if report.changed else "")
        + (f"; {report.unchanged:,} were already stored" if report.unchanged else ""))  # fmt: skip
    _tell_masked(report.masked)
    if report.purged:
        note(f"skipped, since purged here before: {report.purged:,};"
             " 'commonplace remember' stores such a text again")  # fmt: skip
    _tell_skipped(report.problems, report.skipped)
    _tell_remarks(report)
    if undo and (report.added or report.changed or report.links):
        say(dim("to undo: commonplace undo"))


def _tell_skipped(problems: list[str], total: int, *, advice: bool = True) -> None:
    for problem in problems:
        note(f"skipped: {escape_hidden(problem)}")
    if total > len(problems):
        note(f"skipped: {total - len(problems):,} more")
    if total and advice:
        note("to import what was skipped: correct or convert it, and run the import again")


def _tell_remarks(report: Imported) -> None:
    for remark in report.remarks:
        note(f"note: {escape_hidden(remark)}")
    if report.remark_count > len(report.remarks):
        note(f"note: {report.remark_count - len(report.remarks):,} more such properties")


def _tell_masked(kinds: list[str]) -> None:
    if kinds:
        told = ", ".join(f"{many} × {kind}" for kind, many in Counter(kinds).items())
        note(f"masked: {told}; --allow-secrets of 'import' stores such values as they are")


def _show_dry_run(report: Imported, as_json: bool) -> None:
    from commonplace.importers import registry

    if as_json:
        emit_json({"format": report.format, "found": report.found, "samples": report.samples,
              "skipped": report.skipped, "problems": report.problems,
              "remarks": report.remarks})  # fmt: skip
        return
    title = registry.FORMATS[report.format].TITLE
    say(f"{report.found:,} to import from {title}; nothing was stored")
    _tell_skipped(report.problems, report.skipped)
    _tell_remarks(report)
    for each in report.samples:
        at = local_time(datetime.fromisoformat(each["at"])) if "at" in each else ""
        lead = " ".join(part for part in (at, *map(each.get, ("speaker", "title"))) if part)
        _show_sample(lead, each["text"])


def _show_sample(lead: str, text: str) -> None:
    """Show what would be imported, on one line."""
    lead = one_line(lead, columns() // 2) + ": " if lead else ""
    say(f"  {dim(lead)}{one_line(text, columns() - 2 - width(lead))}")


def _import_own_format(chosen: _ImportOptions, dry_run: bool, as_json: bool) -> None:
    from commonplace.engine.binding import lease
    from commonplace.engine.content import write_policy
    from commonplace.engine.transfer import importing

    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(
            _temporary_memory(chosen)
            if dry_run
            else options.open_memory(
                chosen.data, chosen.space, chosen.embedding, create=True,
                allow_secrets=chosen.allow_secrets,
            )
        )  # fmt: skip
        masked: list[str] = []
        with (
            lease(memory) as opened,
            progress("Importing") as show,
            write_policy.apply_policy(masked=masked),
        ):
            report = importing.import_file(
                opened, chosen.path, trust_file=chosen.trust_file, partial=chosen.partial,
                progress=show,
            )  # fmt: skip
        if dry_run:
            found, total = memory.browse(limit=SAMPLES, order="oldest")
            samples = [{"text": one.text[:200], "title": one.title} for one in found]
            if as_json:
                emit_json({"format": chosen.format, "found": total, "samples": samples,
                      "skipped": report.conflicts + report.skipped,
                      "problems": _problem_lines(report)})  # fmt: skip
            else:
                say(f"{_counts_in_words(report.counts)} to import; nothing was stored")
                _tell_skipped(
                    _problem_lines(report),
                    report.conflicts + report.skipped,
                    advice=bool(report.unreadable),
                )
                for one in samples:
                    _show_sample("", one["text"])
        elif chosen.wait:
            options.compute_embeddings(memory)
    if as_json and not dry_run:
        emit_json({**report.as_dict(), "masked": dict(Counter(masked))})
    elif not dry_run:
        _show_own_import(report, trusted=chosen.trust_file)
        _tell_masked(masked)
    if report.conflicts or report.unreadable:
        raise typer.Exit(SOME_SKIPPED)


@contextlib.contextmanager
def _temporary_memory(chosen: _ImportOptions) -> Iterator[Commonplace]:
    """Open a memory in temporary files, whatever database is configured."""
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import Library

    allow_secrets = chosen.allow_secrets or options.settings_of(chosen.data).allow_secrets
    with (
        tempfile.TemporaryDirectory(prefix="commonplace-") as folder,
        contextlib.closing(
            Library(Path(folder), embedder=None, allow_secrets=allow_secrets)
        ) as library,
    ):
        yield Commonplace(space=chosen.space, library=library)


def _show_own_import(report: ImportReport, *, trusted: bool) -> None:
    former = report.added - sum(report.counts.values())
    say(f"imported {_counts_in_words(report.counts)}"
        + (f", {former:,} lines of history" if former else "")
        + (f"; {report.unchanged:,} lines were already stored" if report.unchanged else "")
        + ("" if report.complete else "; the file was incomplete"))  # fmt: skip
    if former:
        note("the history begins with this import: --as-of finds nothing earlier;"
             " a backup keeps the times")  # fmt: skip
    if report.counts.get("memory") and not trusted:
        note("memories have the trust external; --trust-file keeps the trust in the file")
    _tell_skipped(
        _problem_lines(report), report.conflicts + report.skipped, advice=bool(report.unreadable)
    )


def _problem_lines(report: ImportReport) -> list[str]:
    return [f"{problem.where}: {problem.what}" for problem in report.problems]


COMMANDS = (export, import_)


_PLURALS = {
    "memory": "memories",
    "artifact_version": "artifact versions",
    "member": "cluster members",
}


def _counts_in_words(counts: Any) -> str:
    """Return counts in words, such as “3 memories, 1 link”."""
    shown = [
        f"{count:,} {name.replace('_', ' ') if count == 1 else _PLURALS.get(name, name + 's')}"
        for name, count in counts.items()
        if count
    ]
    return ", ".join(shown) or "nothing"
