"""Copies of stored texts in files of the data directory, beside the databases.

A purge deletes or rewrites the copies that are known here. Any other file that still holds a piece
of a purged text is reported.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commonplace.client.files import INBOX_FOLDER, STARTS_FOLDER
from commonplace.engine.library import OpenSpace
from commonplace.storage import files as stored_files
from commonplace.storage import locking
from commonplace.storage.directories import replace_file

TRANSCRIPTS = "transcripts"
RECORDS = {"mama_file": "mama"}
"""By the kind of a record, the folder of its copy; its ref is `FOLDER:PATH`."""
MIRRORS = "clawbrain"
"""The folder with a directory of Markdown files for each space."""
BRIEFING = "MEMORY.md"
_ID = Path(".commonplace", "id")
_LOCK_SECONDS = 5.0
_ATTEMPTS = 20  # to overwrite lines while a plugin writes them again; then the file is reported
CHUNK = 1 << 20
"""How many bytes of a file are searched at once."""


@dataclass(slots=True)
class PurgedMemories:
    """What was purged, as far as files are concerned."""

    nums: set[int] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)
    """(kind, ref) of the memories whose kind is one of `RECORDS`."""


def remove_copies(
    space: OpenSpace, purged: PurgedMemories, whole: Collection[bytes], pieces: Set[bytes]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove copies of purged texts; return (files removed or rewritten, what still holds one).

    `whole` are complete texts in the forms in which files hold them. A file that holds one of the
    `pieces`, which are parts of the texts, is only reported.
    """
    data = _data_directory(space)
    done = [
        *_delete_start_contexts(data),
        *_delete_record_copies(data, purged),
        *_clean_spooled_events(space, whole),
    ]
    done += _clean_transcripts(data, whole)
    mirrored, left = _delete_mirrored_files(space, purged)
    done += mirrored
    left += [name for name in _files_holding(data, space.name, pieces) if name not in left]
    return tuple(done), tuple(left)


def _data_directory(space: OpenSpace) -> Path:
    return space.store.path.parents[1]  # the space's own file is in `spaces`


def _delete_files(data: Path, *paths: Path) -> Iterator[str]:
    """Delete files; yield the names of those that were there."""
    for path in paths:
        with contextlib.suppress(OSError):  # what cannot be deleted is found below, and reported
            path.unlink()
            yield _relative_name(data, path)


def _relative_name(data: Path, path: Path) -> str:
    return path.relative_to(data).as_posix()


def _delete_start_contexts(data: Path) -> Iterator[str]:
    """Delete the contexts prepared for session starts, which quote memories; hooks make others."""
    return _delete_files(data, *sorted((data / STARTS_FOLDER).glob("*.json")))


def _delete_record_copies(data: Path, purged: PurgedMemories) -> Iterator[str]:
    """Delete the copies of records."""
    for kind, ref in sorted(purged.records):
        folder = data / RECORDS[kind]
        path = folder / ref.partition(":")[2]
        with contextlib.suppress(OSError, ValueError):
            if path.resolve().parent == path.parent.absolute() and folder in path.parents:
                yield from _delete_files(data, path)


def _clean_spooled_events(space: OpenSpace, whole: Collection[bytes]) -> Iterator[str]:
    """Take the texts out of events that wait for a server, and delete refused ones with a text."""
    data = _data_directory(space)
    folder = data / INBOX_FOLDER
    found = [path for path in sorted(folder.glob("*")) if _contains_piece(path, whole)]
    if not found:
        return
    with contextlib.suppress(locking.Busy), locking.file_lock(folder / "lock", _LOCK_SECONDS):
        for path in found:
            with contextlib.suppress(OSError):
                event = _read_spooled_event(path)
                if event.get("space", space.name) != space.name:
                    continue
                if not event or path.suffix != ".json":
                    yield from _delete_files(data, path)
                else:
                    yield from _rewrite_file(
                        data, path, json.dumps(_without_texts(event, whole)).encode()
                    )


def _read_spooled_event(path: Path) -> dict[str, Any]:
    """Return the spooled event in a file; an empty one if the file holds no JSON object."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _without_texts(value: Any, whole: Collection[bytes]) -> Any:
    """Return a JSON value with an empty string for each string that holds one of the texts."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return "" if any(text in raw for text in whole) else value
    if isinstance(value, dict):
        return {name: _without_texts(item, whole) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_texts(item, whole) for item in value]
    return value


def _clean_transcripts(data: Path, whole: Collection[bytes]) -> Iterator[str]:
    """Overwrite the lines with a text in transcripts that our plugins wrote.

    A plugin writes without a lock: it replaces its file whenever more was said. If we replaced the
    file too, we could put back an older one. So lines are overwritten where they are, and the file
    that is there then is looked at again.
    """
    for path in sorted((data / TRANSCRIPTS).glob("*/*.jsonl")):
        overwritten = False
        with contextlib.suppress(OSError):
            for _ in range(_ATTEMPTS):
                if not _contains_piece(path, whole) or not _overwrite_lines(path, whole):
                    break
                overwritten = True
        if overwritten:
            yield _relative_name(data, path)


def _overwrite_lines(path: Path, whole: Collection[bytes]) -> bool:
    """Turn each line that holds a text into a record without any, of the same length.

    Return whether there was such a line. The record names the client, by which the format of the
    file is recognised.
    """
    record = json.dumps({"transcript": path.parent.name}).encode()
    with path.open("r+b") as stream:
        found, at = [], 0
        for line in stream:
            body = line.removesuffix(b"\n")
            blank = (record if len(record) <= len(body) else b"").ljust(len(body))
            if body != blank and any(text in body for text in whole):
                found.append((at, blank))
            at += len(line)
        for at, blank in found:
            stream.seek(at)
            stream.write(blank)
        stream.flush()
        os.fsync(stream.fileno())
    return bool(found)


def _rewrite_file(data: Path, path: Path, content: bytes) -> Iterator[str]:
    with replace_file(path) as stream:
        stream.write(content)
    yield _relative_name(data, path)


def _delete_mirrored_files(space: OpenSpace, purged: PurgedMemories) -> tuple[list[str], list[str]]:
    """Delete the Markdown files of purged memories, and the summary that quotes them.

    Return the deleted files, and what may still hold a text: the files' git history, and
    directories elsewhere.
    """
    data = _data_directory(space)
    folder = data / MIRRORS / space.name
    with space.store.read() as connection:
        found = stored_files.of_memories(connection, space.name, sorted(purged.nums))
    here = ""
    with contextlib.suppress(OSError, IndexError):
        here = (folder / _ID).read_text(encoding="utf-8").split()[0]
    own = [folder / path for root, path in found if root == here and ".." not in Path(path).parts]
    done = list(_delete_files(data, *own, folder / BRIEFING)) if own else []
    left = []
    if own and (folder / ".git").exists():
        left.append(f"{_relative_name(data, folder)}/.git")
    if any(root != here for root, _ in found):
        left.append("a ClawBrain directory elsewhere (MEMORY_DIR), until ClawBrain starts there")
    return done, left


def _files_holding(data: Path, space: str, pieces: Set[bytes]) -> list[str]:
    """Return the files that hold a piece, except databases of spaces and files of other spaces."""
    found = []
    for folder, folders, names in os.walk(data):
        here = Path(folder)
        if here == data:
            folders[:] = [name for name in folders if name != "spaces"]
        elif here == data / MIRRORS:
            folders[:] = [name for name in folders if name == space]
        holding = (here / name for name in names if _contains_piece(here / name, pieces))
        if here == data / INBOX_FOLDER:
            holding = (
                path for path in holding if _read_spooled_event(path).get("space", space) == space
            )
        found += [_relative_name(data, path) for path in holding]
    return sorted(found)


def _contains_piece(path: Path, pieces: Collection[bytes]) -> bool:
    if not pieces or path.is_symlink() or not path.is_file():
        return False
    overlap = max(map(len, pieces)) - 1
    try:
        with path.open("rb") as stream:
            content = b""
            while chunk := stream.read(max(CHUNK, overlap)):
                content = content[max(0, len(content) - overlap) :] + chunk
                if any(piece in content for piece in pieces):
                    return True
    except OSError:
        pass
    return False
