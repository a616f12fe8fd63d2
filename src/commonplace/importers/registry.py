"""The formats that `commonplace import` supports, and their detection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from commonplace.engine.content import write_policy
from commonplace.engine.transfer.importing import SUFFIXES
from commonplace.engine.transfer.replay import is_export
from commonplace.errors import InvalidInput
from commonplace.importers import (
    chatgpt,
    claude_ai,
    claude_mem,
    csv_table,
    histories,
    instructions,
    json_lines,
    mcp_memory_service,
    mem0,
    palaces,
    server_memory,
    vaults,
)
from commonplace.importers.items import ImportFormat, Item, Remark, Skipped
from commonplace.importers.storing import Import, Imported, count_items

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Origin

OWN_FORMAT = "commonplace"
"""Our own format, which `engine/transfer` reads: exports, JSON lines, notes."""
OWN_FORMAT_TITLE = "an export of Commonplace, JSON lines with `text`, Markdown and text files"

FORMATS: Mapping[str, ImportFormat] = {
    known.NAME: known
    for known in cast(
        tuple[ImportFormat, ...],
        (
            *histories.ALL, chatgpt, claude_ai, mem0, server_memory, palaces.MEMPALACE,
            palaces.MAMA, claude_mem, mcp_memory_service, vaults.OBSIDIAN, vaults.BASIC_MEMORY,
            instructions, csv_table, json_lines,
        ),
    )
}  # fmt: skip
NAMES = (*FORMATS, OWN_FORMAT)

KEPT_CHARS = 64_000_000  # up to this size a source is read once; a larger one is read again
ITEM_CHARS = 1_000  # what an item takes besides its text

Progress = Callable[[int, int], None]


def detect_format(path: Path, name: str | None = None) -> str:
    """Return the name of a file's or directory's format; raise InvalidInput if it is unknown."""
    if name is not None:
        if name not in NAMES:
            raise InvalidInput(f"Not a format I know. Known: {', '.join(NAMES)}.", field="from")
        return name
    if path.is_file() and is_export(path):
        return OWN_FORMAT
    for known in FORMATS.values():
        if known.recognises(path):
            return known.NAME
    if _has_own_suffix(path):
        return OWN_FORMAT
    raise InvalidInput(f"Not a format I know. Known: {', '.join(NAMES)}.", field="path")


def detect_input_format(path: Path, name: str | None) -> str:
    """Return the name of the format of standard input, which has no file name: our own by
    default."""
    if name is not None or is_export(path):
        return OWN_FORMAT if name is None else detect_format(path, name)
    return json_lines.NAME if json_lines.has_links(path) else OWN_FORMAT


def _has_own_suffix(path: Path) -> bool:
    """Return whether a file, or one in a directory, has the suffix of notes or JSON lines.

    A path that is no file counts too, and so does an empty directory.
    """
    if not path.is_dir():
        return not path.is_file() or path.suffix.lower() in SUFFIXES
    return any(_has_own_suffix(file) for file in path.rglob("*") if file.is_file()) or not any(
        path.iterdir()
    )


def dry_run(path: Path, name: str) -> Imported:
    """Count the items of a format other than our own, and return three samples."""
    report = count_items(name, _items(path, name))
    _check_format(path, name, report.found)
    return report


def _items(path: Path, name: str) -> Iterator[Item | Skipped | Remark]:
    """Yield the items of a source; raise InvalidInput for a directory if the format is a file."""
    try:
        yield from FORMATS[name].items(path)
    except IsADirectoryError:
        raise InvalidInput(
            f"{path} is a directory.", hint=f"Name a file of the format {name}.", field="path"
        ) from None


def _check_format(path: Path, name: str, found: int) -> None:
    """Raise InvalidInput if a file does not have the format given by the user."""
    if not found and not FORMATS[name].recognises(path):
        raise InvalidInput(
            f"{path} contains no data in the format {name}.",
            hint="Omit --from to detect the format.",
            field="from",
        )


def run_import(
    memory: Commonplace,
    path: Path,
    name: str,
    *,
    origin: Origin,
    trust: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Import a file or directory of a format other than our own.

    The whole source is read before anything is stored, so that an unreadable file changes nothing.
    """
    known: Any = FORMATS[name]
    kept: list[Item | Skipped | Remark] = []
    own = hasattr(known, "store")  # the format reads the source itself
    total = count_items(
        name, _items(path, name) if own else _yield_and_keep(_items(path, name), kept), 0
    ).found
    _check_format(path, name, total)
    masked: list[str] = []
    with write_policy.apply_policy(masked=masked):
        if own:
            done: Imported = known.store(memory, path, origin, progress)
        else:
            run = Import(memory, name, origin=origin, trust=trust)
            done = run.run(iter(kept or _items(path, name)), total, progress)
    done.masked += masked
    return done


def _yield_and_keep(
    items: Iterable[Item | Skipped | Remark], kept: list[Item | Skipped | Remark]
) -> Iterator[Item | Skipped | Remark]:
    """Yield the items and add them to `kept`; it is emptied if they take too much memory."""
    room = KEPT_CHARS
    for item in items:
        room -= ITEM_CHARS + (len(item.text) if isinstance(item, Item) else 0)
        if room >= 0:
            kept.append(item)
        else:
            kept.clear()
        yield item
