"""Directories whose sessions are never stored: `.commonplaceignore`, in Git's syntax."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE = ".commonplaceignore"
_ANYTHING = "any name"


def is_ignored(directory: str) -> bool:
    """Return whether an ignore file in the directory, or above it, excludes the directory.

    A file excludes its own directory if it matches any name in it, as `*` does.
    """
    if not directory or not Path(directory).is_absolute():
        return False
    try:
        here = Path(os.path.realpath(directory))
    except ValueError:  # no path can have these characters
        return False
    return any(_is_excluded_by(above, here) for above in (here, *here.parents))


def _is_excluded_by(above: Path, here: Path) -> bool:
    rules = _read_rules(above / FILE)
    if rules is None:
        return False
    names = (*here.relative_to(above).parts, _ANYTHING)
    # Paths with a slash at the end are directories; the last path stands for any file.
    paths = ["/".join(names[:count]) + "/" for count in range(1, len(names))]
    return any(rules.match_file(path) for path in (*paths, "/".join(names)))


def _read_rules(file: Path) -> GitIgnoreSpec | None:
    try:
        state = file.stat()
    except OSError:
        return None
    return _parse_rules(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _parse_rules(file: Path, changed: int, size: int) -> GitIgnoreSpec:  # noqa: ARG001  (the key)
    from pathspec import GitIgnoreSpec

    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = ["*"]  # an ignore file that cannot be read ignores everything
    return GitIgnoreSpec.from_lines(filter(_is_pattern, lines))


def _is_pattern(line: str) -> bool:
    """Return whether a line is a pattern; as in Git, one that is none, such as `!`, is skipped."""
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
