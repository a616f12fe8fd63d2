"""Guards the memory files of agents: stores every version of each file.

A file is one memory with the file's text. A changed file becomes a new version. The memory of a
deleted or emptied file keeps its last text, is found like any other, and can be written back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content.memories import Draft
from commonplace.engine.history.timeline import IMPORT
from commonplace.engine.maintenance import purged_refs
from commonplace.engine.model import Memory, Origin, When, iso
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.importers import instructions
from commonplace.importers.items import digest_key, storable_title
from commonplace.importers.markdown import files as markdown_files
from commonplace.importers.storing import import_origin
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.storage.directories import replace_file

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

TAG = "native-memory"
REF_PREFIX = "guarded:"
DIGEST, GONE, FILE = "sha256", "gone_since", "file"
"""The attributes of the memory of a guarded file."""
_ORIGIN = Origin(client="commonplace", tool="guard")
_MOST_BYTES = 4 * checks.TEXT_CHARS


@dataclass(slots=True)
class GuardReport:
    """The result of one check of the files."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Files that were deleted or emptied since the last check."""
    unchanged: int = 0
    skipped: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {"added": self.added, "changed": self.changed, "gone": self.gone,
                "unchanged": self.unchanged, "skipped": self.skipped}  # fmt: skip


def usual_files(
    project: Path | None = None, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """Return the agents' memory files on this machine and in a project's directory."""
    home = Path.home() if home is None else home
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser()
    codex = Path(environ.get("CODEX_HOME") or home / ".codex").expanduser()
    folders = [*claude.glob("projects/*/memory"), codex / "memories"]
    named = [claude / "CLAUDE.md", codex / "AGENTS.md", home / ".gemini" / "GEMINI.md"]
    named += [project / name for name in instructions.FILES] if project is not None else []
    return expand_directories([*folders, *named])


def expand_directories(paths: Iterable[Path]) -> list[Path]:
    """Return the existing files, and the Markdown files of directories."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(file.absolute() for file in markdown_files(path)))
        elif path.is_file():
            found[path.absolute()] = None
    return list(found)


def store_changes(memory: Commonplace, files: Sequence[Path]) -> GuardReport:
    """Store new and changed files, and record which guarded files are gone, as one operation for
    undo.
    """
    report, origin = GuardReport(), import_origin()
    contents = {str(file): content for file in files
                if (content := _read_content(file, report)) is not None}  # fmt: skip
    with exclusive(memory, IMPORT, origin):
        known = {_path_of_memory(one): one for one in guarded_memories(memory)}
        for path, content in contents.items():
            _store_file(memory, path, content, known.get(path), report)
        for path, one in known.items():
            if GONE not in one.attrs and _is_gone(Path(path)):
                attrs = {**one.attrs, GONE: iso(datetime.now(UTC))}
                memory.revise(one.id, attrs=attrs, origin=_ORIGIN)
                report.gone.append(path)
    return report


def _is_gone(file: Path) -> bool:
    """Return whether a file was deleted or emptied; a file that cannot be read is still there."""
    try:
        return not file.read_bytes().strip()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _read_content(file: Path, report: GuardReport) -> bytes | None:
    """Return a file's bytes; None if the file is blank, or cannot be stored and is reported."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        report.skipped.append(f"{file}: {error.strerror or error}")
        return None
    except UnicodeDecodeError:
        report.skipped.append(f"{file}: the file is not UTF-8 text")
        return None
    if "\0" in text or len(text) > checks.TEXT_CHARS or len(str(file)) > checks.REF_CHARS:
        report.skipped.append(f"{file}: the file is too long, or it is not text")
        return None
    return content if text.strip() else None


def _store_file(
    memory: Commonplace, path: str, content: bytes, known: Memory | None, report: GuardReport
) -> None:
    digest = hashlib.sha256(content).hexdigest()
    attrs = {FILE: path, DIGEST: digest}
    if known is None and lookup.find_memory(memory, _ref_of_path(path)) is not None:
        report.unchanged += 1  # the memory of this file was hidden by `forget`
    elif known is None and engine_call(memory, purged_refs.purged_among, [_ref_of_path(path)]):
        report.skipped.append(f"{path}: the file was purged here, and is not stored again")
    elif known is None:
        name = Path(path)
        draft = Draft(
            text=content.decode("utf-8"), ref=_ref_of_path(path), source=path, tags=[TAG],
            title=storable_title(f"{name.parent.name}/{name.name}"), trust="inferred", attrs=attrs,
        )  # fmt: skip
        memory.remember_many([draft], origin=_ORIGIN)
        report.added.append(path)
    elif known.attrs.get(DIGEST) != digest or GONE in known.attrs:
        memory.revise(known.id, content.decode("utf-8"), attrs=attrs, origin=_ORIGIN)
        report.changed.append(path)
    else:
        report.unchanged += 1


def _ref_of_path(path: str) -> str:
    ref = f"{REF_PREFIX}{path}"
    return ref if len(ref) <= checks.REF_CHARS else f"{REF_PREFIX}{digest_key(path)}"


def _path_of_memory(one: Memory) -> str:
    return str(one.attrs[FILE])


def guarded_memories(memory: Commonplace) -> Iterator[Memory]:
    """Yield the memories of guarded files, including those of deleted files."""
    for one in lookup.all_memories(memory, order="oldest", tags_all=[TAG]):
        if (one.ref or "").startswith(REF_PREFIX) and FILE in one.attrs:
            yield one


def bring_back(
    memory: Commonplace, path: Path, *, as_of: When | None = None, overwrite: bool = False
) -> Path:
    """Restore a guarded file: write its last version, or with `as_of` its version of that time.

    Raise Conflict if the file exists with other content; with `overwrite`, store that content first
    and replace it.
    """
    where = str(path.absolute())
    if lookup.find_memory(memory, _ref_of_path(where)) is None:
        raise NotFound(
            f"{where} is not guarded.", hint="See 'commonplace guard list'.", field="path"
        )
    one = memory.get(_ref_of_path(where), as_of=as_of, count=False)
    content = one.text.encode("utf-8")
    if hashlib.sha256(content).hexdigest() != one.attrs.get(DIGEST):
        raise InvalidInput(
            f"{where} contained a secret, which is masked in the stored text.",
            hint="Copy the text from 'commonplace show', and insert the secret by hand.",
            field="path",
        )
    target = Path(where)
    if target.is_file() and target.read_bytes().strip() and target.read_bytes() != content:
        if not overwrite:
            raise Conflict(
                f"{where} exists.", hint="Add --overwrite; the existing file is stored first."
            )
        store_changes(memory, [target])
    target.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(target.resolve()) as stream:
        stream.write(content)
    store_changes(memory, [target])
    return target
