"""Recognises SQLite files of other programs by their tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from commonplace.errors import StorageUnavailable
from commonplace.storage.sqlite import foreign

_MAGIC = b"SQLite format 3\0"


def has_tables(path: Path, *wanted: str) -> bool:
    """Return whether a file is an SQLite database with these tables."""
    return path.is_file() and set(wanted) <= _table_names(path, foreign.fingerprint(path))


def first_with_tables(path: Path, names: Iterable[str], *wanted: str) -> Path | None:
    """Return the database itself, or the first file of these names in a directory with the
    tables."""
    for file in [path] if path.is_file() else [path / name for name in names]:
        if has_tables(file, *wanted):
            return file
    return None


@lru_cache(maxsize=64)
def _table_names(path: Path, _state: str) -> frozenset[str]:
    try:
        with path.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                return frozenset()
        return foreign.table_names(path)
    except (OSError, StorageUnavailable):
        return frozenset()
