"""Somebody else's configuration file: read, changed without loss, and replaced whole."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from commonplace.cli import json_text
from commonplace.cli.clients import Format
from commonplace.errors import Conflict, InvalidInput, StorageUnavailable

BOM = "\ufeff"
BACKUPS_LOOKED_AT = 20
CONTEXT = 3  # lines around a change that are shown
PRIVATE, SHARED = 0o600, 0o666  # a new file's mode, before the umask


@dataclass(frozen=True)
class Settings:
    """A file as it was read; `data` is None where there is none, `target` what a link leads to."""

    path: Path
    target: Path
    format: Format
    data: bytes | None

    @property
    def text(self) -> str:
        """What it says, without a byte order mark."""
        try:
            return (self.data or b"").decode("utf-8").removeprefix(BOM)
        except UnicodeDecodeError:
            raise self.unreadable("it is not UTF-8 text") from None

    def unreadable(self, why: str, snippet: str = "") -> InvalidInput:
        """The refusal to touch the file."""
        paste = f" Or add this by hand:\n{snippet}" if snippet else ""
        return InvalidInput(
            f"{self.path} cannot be changed safely: {why}.",
            hint=f"Nothing was changed. Mend the file and try again.{paste}",
            field="config",
        )

    def contents(self) -> dict[str, Any]:
        """What it holds; nothing where there is nothing."""
        value = _parsed(self, self.text)
        if not isinstance(value, Mapping):
            raise self.unreadable("it does not hold names and values")
        return dict(value)


def open_settings(path: Path, format: Format) -> Settings:
    """The file as it is now; that there is none is fine."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise InvalidInput(f"{path} is not a file.", hint="Name one.", field="config")
        data = target.read_bytes() if target.exists() else None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go round in a circle
        raise _refused(path, "read", error) from error
    return Settings(path, target, format, data)


def find(contents: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What is at this path of names, or None."""
    value: Any = contents
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def snippet(format: Format, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The entry as a person would paste it."""
    return _written(format, "", path, entry)


def with_entry(settings: Settings, path: Sequence[str], entry: Mapping[str, Any]) -> bytes:
    """The file with this entry, and all else as it was."""
    expected = settings.contents()
    if find(expected, path) == entry and settings.data is not None:
        return settings.data
    _place(settings, expected, path, entry)
    return _changed(settings, _written, expected, path, entry)


def without_entry(settings: Settings, path: Sequence[str]) -> bytes | None:
    """The file without this entry; None if it was made for the entry alone.

    A backup that differs from the file by the entry alone says exactly how it was before.
    """
    expected = settings.contents()
    found = find(expected, path)
    if found is None:
        return settings.data
    entry = found if isinstance(found, Mapping) else {}
    for backup in _backups(settings.target)[:BACKUPS_LOOKED_AT]:
        with contextlib.suppress(OSError, InvalidInput):
            former = dataclasses.replace(settings, data=backup.read_bytes())
            if find(former.contents(), path) is None and (
                with_entry(former, path, entry) == settings.data
            ):
                return former.data
    if settings.data == snippet(settings.format, path, entry).encode():
        return None
    del find(expected, path[:-1])[path[-1]]
    return _changed(settings, _removed, expected, path, entry)


def difference(settings: Settings, new: bytes | None) -> str:
    """What changes, as a unified diff."""
    name, old_lines, new_lines = str(settings.path), _lines(settings.data), _lines(new)
    shortest = min(len(old_lines), len(new_lines))
    same = next((i for i in range(shortest) if old_lines[i] != new_lines[i]), shortest)
    rest = shortest - same
    tail = next((i for i in range(rest) if old_lines[-1 - i] != new_lines[-1 - i]), rest)
    start, end = max(0, same - CONTEXT), max(0, tail - CONTEXT)  # files can be large, changes not
    lines = difflib.unified_diff(
        old_lines[start : len(old_lines) - end],
        new_lines[start : len(new_lines) - end],
        name if settings.data is not None else os.devnull,
        name if new is not None else os.devnull,
        n=CONTEXT,
        lineterm="",
    )
    return "\n".join(_shifted(line, start) if line.startswith("@@") else line for line in lines)


def _shifted(header: str, by: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda match: f"{match[1]}{int(match[2]) + by}", header)


def _lines(data: bytes | None) -> list[str]:
    if not data:
        return []
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def replace(settings: Settings, new: bytes | None, *, mode: int = PRIVATE) -> Path | None:
    """Put the new contents in place, or take the file away; says where the old ones are kept.

    The file is whole at every moment. What somebody else changed since it was read is not lost:
    then nothing is written.
    """
    target = settings.target
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _unchanged(settings)
        target.parent.mkdir(parents=True, exist_ok=True)
        if settings.data is not None:
            if not os.access(target, os.W_OK):
                raise PermissionError(None, "it is write-protected")
            mode = stat.S_IMODE(target.stat().st_mode)
        if new is not None:
            _store(part, new, mode, like=target)
        backup = _back_up(settings, mode)
        _unchanged(settings)
        if new is None:
            target.unlink()
        else:
            part.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise _refused(settings.path, "written", error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return backup


def _unchanged(settings: Settings) -> None:
    now = settings.target.read_bytes() if settings.target.exists() else None
    if now != settings.data or settings.path.resolve() != settings.target:
        raise Conflict(
            f"{settings.path} was changed by somebody else in the meantime.",
            hint="Nothing was written; run the command again.",
            field="config",
        )


def _store(path: Path, data: bytes, mode: int, *, like: Path) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with open(descriptor, "wb") as stream:  # noqa: PTH123
        if like.exists() and hasattr(os, "fchown"):
            os.fchmod(descriptor, mode)
            with contextlib.suppress(OSError):
                os.fchown(descriptor, like.stat().st_uid, like.stat().st_gid)
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)


def _back_up(settings: Settings, mode: int) -> Path | None:
    if settings.data is None:
        return None
    name = f"{settings.target.name}.bak-{datetime.now(UTC):%Y%m%d%H%M%S}"
    for more in ("", *(f"-{number}" for number in range(2, 100))):
        backup = settings.target.with_name(name + more)
        with contextlib.suppress(FileExistsError):
            _store(backup, settings.data, mode, like=settings.target)
            return backup
    raise FileExistsError(None, "there are too many backups of this second")


def _backups(target: Path) -> list[Path]:
    """The newest first."""
    prefix = f"{target.name}.bak-"
    if not target.parent.is_dir():
        return []
    found = [path for path in target.parent.iterdir() if path.name.startswith(prefix)]
    return sorted(found, key=lambda path: (len(path.name) > len(prefix) + 14, path.name))[::-1]


def _sync(directory: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(path: Path, what: str, error: Exception) -> StorageUnavailable:
    why = getattr(error, "strerror", None) or error
    return StorageUnavailable(
        f"{path} cannot be {what}: {why}.",
        hint="Nothing was changed; look at the path and its rights.",
        field="config",
    )


# What a format's text says, and how it is changed


def _parsed(settings: Settings, text: str) -> Any:
    try:
        if settings.format is Format.TOML:
            return tomllib.loads(text)
        return json_text.read(text, settings.format)
    except ValueError as error:
        why = str(error).rstrip(".")
        raise settings.unreadable(f"it is not valid {settings.format.value} ({why})") from None


def _place(
    settings: Settings, contents: dict[str, Any], path: Sequence[str], entry: Mapping[str, Any]
) -> None:
    """Set it in the value, as the text is going to say."""
    at: Any = contents
    for depth, name in enumerate(path[:-1]):
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise settings.unreadable(
                f"{'.'.join(path[: depth + 1])} in it does not hold names and values",
                snippet(settings.format, path, entry),
            )
    at[path[-1]] = copy.deepcopy(dict(entry))


def _written(format: Format, text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    if format is not Format.TOML:
        return json_text.write(text, format, path, entry)
    return _in_unix_lines(text, lambda unix: _toml_written(unix, path, entry))


def _removed(format: Format, text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    if format is not Format.TOML:
        return json_text.remove(text, format, path)
    return _in_unix_lines(text, lambda unix: _toml_removed(unix, path, entry))


def _in_unix_lines(text: str, change: Callable[[str], str]) -> str:
    windows = "\r\n" in text and text.count("\r\n") == text.count("\n")
    changed = change(text.replace("\r\n", "\n") if windows else text)
    return changed.replace("\n", "\r\n") if windows else changed


def _toml_written(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    former, above = find(document, path), find(document, path[:-1])
    if isinstance(former, MutableMapping):
        for name in [name for name in former if name not in entry]:
            del former[name]
        for name, value in entry.items():
            if former.get(name) != value:
                former[name] = _toml_value(value)
        return tomlkit.dumps(document)
    if former is not None or isinstance(above, tomlkit.items.InlineTable):
        above[path[-1]] = _toml_value(entry)
        return tomlkit.dumps(document)
    table = tomlkit.table()
    for name, value in entry.items():
        table[name] = _toml_value(value)
    new: Any = {path[-1]: table}
    for name in reversed(path[:-1]):
        parent = tomlkit.table(is_super_table=True)
        for key, value in new.items():
            parent[key] = value
        new = {name: parent}
    added = tomlkit.document()
    for key, value in new.items():
        added[key] = value
    start = text if not text or text.endswith("\n") else text + "\n"
    return start + ("\n" if start.strip() else "") + tomlkit.dumps(added)


def _toml_value(value: Any) -> Any:
    import tomlkit

    if not isinstance(value, Mapping):
        return value
    table = tomlkit.inline_table()
    table.update({name: _toml_value(each) for name, each in value.items()})
    return table


def _toml_removed(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    del find(document, path[:-1])[path[-1]]
    removed = tomlkit.dumps(document)
    shorter = removed.removesuffix("\n")  # the empty line that came with the entry
    return shorter if _toml_written(shorter, path, entry) == text else removed


def _changed(
    settings: Settings,
    change: Callable[[Format, str, Sequence[str], Mapping[str, Any]], str],
    expected: Mapping[str, Any],
    path: Sequence[str],
    entry: Mapping[str, Any],
) -> bytes:
    """The new text as bytes, if it says what it should: our entry, and all else as before."""
    mark = BOM if (settings.data or b"").startswith(BOM.encode()) else ""
    paste = snippet(settings.format, path, entry)
    try:
        text = change(settings.format, settings.text, path, entry)
    except json_text.NotReadable as error:
        raise settings.unreadable(str(error), paste) from None
    said = _parsed(settings, text)
    if settings.format is Format.TOML:
        said, expected = _pruned(said), _pruned(expected)
    if said != expected:
        raise settings.unreadable("its layout is one that this program does not master", paste)
    return (mark + text).encode("utf-8")


def _pruned(value: Any) -> Any:
    """Without tables that hold nothing, which in TOML may go with their last entry."""
    if not isinstance(value, Mapping):
        return value
    pruned = {name: _pruned(each) for name, each in value.items()}
    return {name: each for name, each in pruned.items() if each != {}}
