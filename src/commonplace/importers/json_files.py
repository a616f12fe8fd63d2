"""Reads JSON documents of other programs: from a file, a directory or a ZIP archive."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from commonplace.importers.items import Skipped

MOST_BYTES = 2 * 1024**3
_HEAD_BYTES = 4_096


def documents(path: Path, *names: str) -> Iterator[Any]:
    """Yield the JSON documents with these names in a directory or a ZIP archive, or the one file.

    A document that is not valid JSON is yielded as `Skipped`.
    """
    for name, raw in _read_documents(path, names, None):
        try:
            yield json.loads(raw)
        except (ValueError, RecursionError):
            yield Skipped(f"{name}: it is not valid JSON; perhaps it is cut off. Export it again.")


def read_heads(path: Path, *names: str) -> list[bytes]:
    """Return the first bytes of these documents."""
    return list(_cached_heads(path, names, _size_and_time(path)))


def _size_and_time(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=32)
def _cached_heads(path: Path, names: tuple[str, ...], _state: tuple[int, int]) -> tuple[bytes, ...]:
    return tuple(head for _, head in _read_documents(path, names, _HEAD_BYTES))


def _read_documents(
    path: Path, names: tuple[str, ...], most_bytes: int | None
) -> Iterator[tuple[str, bytes]]:
    size = MOST_BYTES if most_bytes is None else most_bytes
    try:
        if path.is_dir():
            for name in names:
                if (path / name).is_file():
                    with (path / name).open("rb") as stream:
                        yield name, stream.read(size)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for each in archive.namelist():
                    if each.rpartition("/")[2] in names:
                        with archive.open(each) as stream:
                            yield each, stream.read(size)
        elif path.is_file():
            with path.open("rb") as stream:
                yield path.name, stream.read(size)
    except (OSError, zipfile.BadZipFile):
        return
