"""A directory of text files, stored as memories: the commands of Anthropic's memory tool.

Each file is one memory, so that every other client can recall its content, and history and undo
work for it. Directories are not stored: a directory exists while the path of a file contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

ROOT = "/memories"
KIND = "memory_file"
REF_PREFIX = "memory-file:"
PATH_CHARS = 450
MOST_LINES = 999_999
NUMBER_WIDTH = 6
LISTED_DEPTH = 2
LINES_AROUND = 2  # lines shown before and after an edit
PAGE_FILES = 1_000
CONTENT_ATTR = "content"  # the attribute that holds a content without visible characters


def view(memory: Commonplace, path: str, view_range: Sequence[int] | None = None) -> str:
    """List a directory, or return the lines of a file with their numbers."""
    path = _clean_path(path)
    found = _find_file(memory, path, count=True)
    if found is None:
        return _directory_listing(memory, path)
    lines = content_of(found).split("\n")
    if len(lines) > MOST_LINES:
        raise InvalidInput(f"File {path} exceeds maximum line limit of {MOST_LINES:,} lines.")
    first, last = 0, len(lines)
    if view_range is not None:
        if len(view_range) != 2:
            raise InvalidInput(
                "view_range must be [first line, last line].",
                hint="The last line may be -1.",
                field="view_range",
            )
        first = max(1, view_range[0]) - 1
        last = len(lines) if view_range[1] == -1 else view_range[1]
    shown = _numbered_lines(lines, first, min(last, len(lines)))
    return f"Here's the content of {path} with line numbers:\n{shown}"


def create(memory: Commonplace, path: str, file_text: str) -> str:
    """Store a new file."""
    path = _clean_path(path, file=True)
    with exclusive(memory, "create memory file"):
        if _find_file(memory, path) is not None or any(_files_below(memory, path)):
            raise Conflict(
                f"File {path} already exists", hint="Edit it, or choose another path.", field="path"
            )
        _check_parents(memory, path)
        _store_file(memory, path, file_text)
    return f"File created successfully at: {path}"


def str_replace(memory: Commonplace, path: str, old_str: str, new_str: str = "") -> str:
    """Replace a text that occurs exactly once in a file."""
    path = _clean_path(path, file=True)
    if not old_str:
        raise InvalidInput("old_str is empty.", hint="Give the text to replace.", field="old_str")
    with exclusive(memory, "edit memory file"):
        found = _existing_file(memory, path)
        content = content_of(found)
        if not (times := content.count(old_str)):
            raise InvalidInput(
                f"No replacement was performed, old_str `{old_str}` did not appear verbatim"
                f" in {path}.",
                field="old_str",
            )
        if times > 1:
            lines = ", ".join(str(number) for number in _line_numbers(content, old_str))
            raise InvalidInput(
                f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in"
                f" lines: {lines}. Please ensure it is unique",
                field="old_str",
            )
        line = content[: content.index(old_str)].count("\n")
        changed = content.replace(old_str, new_str)
        _revise(memory, found, path, changed)
    lines_now = changed.split("\n")
    shown = _numbered_lines(
        lines_now, max(0, line - LINES_AROUND), min(len(lines_now), line + LINES_AROUND + 1)
    )
    return (
        "The memory file has been edited. Here is the snippet showing the change"
        f" (with line numbers):\n{shown}"
    )


def insert(memory: Commonplace, path: str, insert_line: int, insert_text: str) -> str:
    """Insert a text after a line; 0 is the start of the file."""
    path = _clean_path(path, file=True)
    with exclusive(memory, "edit memory file"):
        found = _existing_file(memory, path)
        lines = content_of(found).split("\n")
        if not lines[-1]:
            lines.pop()
        if not 0 <= insert_line <= len(lines):
            raise InvalidInput(
                f"Invalid `insert_line` parameter: {insert_line}. It should be within the range"
                f" [0, {len(lines)}].",
                field="insert_line",
            )
        lines.insert(insert_line, insert_text.rstrip("\n"))
        _revise(memory, found, path, "\n".join(lines) + "\n")
    return f"The file {path} has been edited."


def delete(memory: Commonplace, path: str) -> str:
    """Hide a file, or all files of a directory; undo brings them back."""
    path = _clean_path(path)
    if path == ROOT:
        raise InvalidInput(f"Cannot delete the {ROOT} directory itself", field="path")
    with exclusive(memory, "delete memory file"):
        found = _find_file(memory, path)
        gone = [found] if found is not None else list(_files_below(memory, path))
        if not gone:
            raise NotFound(f"The path {path} does not exist", field="path")
        memory.forget(*(each.id for each in gone))
    return f"Successfully deleted {path}"


def rename(memory: Commonplace, old_path: str, new_path: str) -> str:
    """Move a file, or all files of a directory."""
    old_path, new_path = (
        _clean_path(old_path, "old_path"),
        _clean_path(new_path, "new_path", file=True),
    )
    if old_path == ROOT:
        raise InvalidInput(f"Cannot rename the {ROOT} directory itself", field="old_path")
    with exclusive(memory, "rename memory file"):
        found = _find_file(memory, old_path)
        moved = [found] if found is not None else list(_files_below(memory, old_path))
        if not moved:
            raise NotFound(f"The path {old_path} does not exist", field="old_path")
        if new_path.startswith(f"{old_path}/"):
            raise InvalidInput(
                f"{new_path} is inside {old_path}.", hint="Choose another path.", field="new_path"
            )
        if _find_file(memory, new_path) is not None or any(_files_below(memory, new_path)):
            raise Conflict(f"The destination {new_path} already exists", field="new_path")
        _check_parents(memory, new_path)
        for each in moved:
            path = _clean_path(new_path + path_of(each)[len(old_path) :], "new_path", file=True)
            _release_path(memory, path)
            memory.revise(each.id, ref=REF_PREFIX + path, title=path)
    return f"Successfully renamed {old_path} to {new_path}"


def clear_all(memory: Commonplace) -> str:
    """Hide every file; undo brings them back."""
    with exclusive(memory, "clear memory files"):
        if found := list(_files_below(memory, ROOT)):
            memory.forget(*(each.id for each in found))
    return "All memory cleared"


COMMANDS: Mapping[str, Callable[..., str]] = {
    "view": view,
    "create": create,
    "str_replace": str_replace,
    "insert": insert,
    "delete": delete,
    "rename": rename,
}
PARAMETERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "view": (("path",), ("view_range",)),
    "create": (("path", "file_text"), ()),
    "str_replace": (("path", "old_str"), ("new_str",)),
    "insert": (("path", "insert_line", "insert_text"), ()),
    "delete": (("path",), ()),
    "rename": (("old_path", "new_path"), ()),
}
"""The required and the optional parameters of each command."""


def run_command(memory: Commonplace, command: str, arguments: Mapping[str, Any]) -> str:
    """Carry out one command of the memory tool."""
    if command not in COMMANDS:
        raise InvalidInput(
            f"Unknown command: {command}", hint=f"Use {', '.join(COMMANDS)}.", field="command"
        )
    needed, optional = PARAMETERS[command]
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in needed:
        if name not in given:
            raise InvalidInput(f"{command} needs {name}.", hint=f"Give {name}.", field=name)
    for name in given:
        if name not in (*needed, *optional):
            raise InvalidInput(
                f"{command} has no parameter {name}.",
                hint=f"It takes {', '.join((*needed, *optional))}.",
                field=name,
            )
    return COMMANDS[command](memory, **given)


def content_of(file: Memory) -> str:
    """Return the text of a file."""
    held = file.attrs.get(CONTENT_ATTR)
    return held if isinstance(held, str) else file.text


def path_of(file: Memory) -> str:
    """Return the path of a file."""
    return (file.ref or "").removeprefix(REF_PREFIX)


def _clean_path(path: str, field: str = "path", *, file: bool = False) -> str:
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise InvalidInput(
            f"Path must start with {ROOT}, got: {path}", hint=f"Use {ROOT}/notes.md.", field=field
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or "\\" in path:
        raise InvalidInput(f"Path {path} would escape {ROOT} directory", field=field)
    clean = "/" + "/".join(parts)
    if len(clean) > PATH_CHARS:
        raise InvalidInput(
            f"The path has {len(clean)} characters; at most {PATH_CHARS} are allowed.", field=field
        )
    if file and clean == ROOT:
        raise InvalidInput(f"The path {clean} is not a file.", field=field)
    return clean


def _find_file(memory: Commonplace, path: str, *, count: bool = False) -> Memory | None:
    try:
        found = memory.get(REF_PREFIX + path, count=False)
    except NotFound:
        return None
    if found.kind != KIND or found.state not in LIVE_STATES:
        return None
    return memory.get(found.id) if count else found


def _existing_file(memory: Commonplace, path: str) -> Memory:
    found = _find_file(memory, path)
    if found is not None:
        return found
    if any(_files_below(memory, path)):
        raise InvalidInput(f"The path {path} is not a file.", field="path")
    raise NotFound(f"The path {path} does not exist. Please provide a valid path.", field="path")


def _files_below(memory: Commonplace, path: str) -> Iterator[Memory]:
    """Yield the files of a directory and of its subdirectories."""
    start = f"{REF_PREFIX}{path}/"
    offset = 0
    while True:
        found, count = memory.browse(kinds=[KIND], order="oldest", limit=PAGE_FILES, offset=offset)
        yield from (each for each in found if (each.ref or "").startswith(start))
        offset += len(found)
        if not found or offset >= count:
            return


def _check_parents(memory: Commonplace, path: str) -> None:
    parts = path.split("/")
    for size in range(3, len(parts)):
        if _find_file(memory, parent := "/".join(parts[:size])) is not None:
            raise Conflict(
                f"{parent} is a file, so it cannot hold {path}.",
                hint="Choose another path.",
                field="path",
            )


def _fields_to_store(path: str, content: str) -> dict[str, Any]:
    """Return the fields that store a content; a memory's text must have a visible character."""
    if content.strip():
        return {"text": content, "attrs": {}}
    return {"text": path, "attrs": {CONTENT_ATTR: content}}


def _store_file(memory: Commonplace, path: str, content: str) -> None:
    _release_path(memory, path)
    fields = _fields_to_store(path, content)
    memory.remember(
        fields.pop("text"), kind=KIND, title=path, ref=REF_PREFIX + path, trust="inferred", **fields
    )


def _release_path(memory: Commonplace, path: str) -> None:
    """Remove the ref of a deleted file that still has the path."""
    try:
        former = memory.get(REF_PREFIX + path, count=False)
    except NotFound:
        return
    memory.revise(former.id, ref=None)


def _revise(memory: Commonplace, file: Memory, path: str, content: str) -> None:
    fields = _fields_to_store(path, content)
    if (fields["text"], fields["attrs"]) != (file.text, dict(file.attrs)):
        memory.revise(file.id, fields.pop("text"), **fields)


def _numbered_lines(lines: Sequence[str], first: int, last: int) -> str:
    return "\n".join(
        f"{number + 1:>{NUMBER_WIDTH}}\t{lines[number]}" for number in range(first, last)
    )


def _line_numbers(content: str, needle: str) -> Iterator[int]:
    at = content.find(needle)
    while at != -1:
        yield content[:at].count("\n") + 1
        at = content.find(needle, at + 1)


def _directory_listing(memory: Commonplace, path: str) -> str:
    files = {path_of(each): len(content_of(each).encode()) for each in _files_below(memory, path)}
    if not files and path != ROOT:
        raise NotFound(
            f"The path {path} does not exist. Please provide a valid path.", field="path"
        )
    sizes: dict[str, int] = {}
    for name, size in files.items():
        parts = name[len(path) + 1 :].split("/")
        if any(part.startswith(".") for part in parts):
            continue
        for depth in range(1, min(len(parts), LISTED_DEPTH) + 1):
            shown = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            sizes[shown] = sizes.get(shown, 0) + size
    rows = [(path, sum(files.values()))]
    rows += [(f"{path}/{name}", sizes[name]) for name in sorted(sizes)]
    shown_rows = "\n".join(f"{_format_size(size)}\t{name}" for name, size in rows)
    return (
        f"Here're the files and directories up to {LISTED_DEPTH} levels deep in {path},"
        f" excluding hidden items:\n{shown_rows}"
    )


def _format_size(count: int) -> str:
    """Return a size as `du -h` shows it: 512B, 1.5K, 2M."""
    unit = min(max(count.bit_length() - 1, 0) // 10, 3)
    size = count / 1024**unit
    return f"{int(size) if size == int(size) else f'{size:.1f}'}{'BKMG'[unit]}"
