"""Reads a client's configuration file, changes one entry, and reverts the change.

The name of a backup is derived from the file's path and the contents that we wrote, so that it is
found only while the file still has these contents.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import hashlib
import os
import stat
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commonplace.cli import json_text
from commonplace.cli.clients import Format
from commonplace.errors import Conflict, InvalidInput, NotFound, StorageUnavailable
from commonplace.storage.directories import make_private, replace_file

BOM = "\ufeff"
UNDO_STEPS = 20
_NEW_PREFIX = "new-"  # prefix of a marker file: the settings file did not exist before
PRIVATE_MODE, SHARED_MODE = 0o600, 0o666  # a new file's mode, before the umask


@dataclass(frozen=True)
class SettingsFile:
    """A file's contents (None if it does not exist), and its path with links resolved
    (`target`)."""

    path: Path
    target: Path
    format: Format
    data: bytes | None

    @property
    def text(self) -> str:
        """The file's text, without a byte order mark."""
        try:
            return (self.data or b"").decode("utf-8").removeprefix(BOM)
        except UnicodeDecodeError:
            raise self.change_error("it is not UTF-8 text") from None

    def change_error(self, why: str, snippet: str = "") -> InvalidInput:
        """Return the error for a file that cannot be changed."""
        paste = f" Or add this by hand:\n{snippet}" if snippet else ""
        return InvalidInput(
            f"{self.path} cannot be changed safely: {why}.",
            hint=f"Nothing was changed. Correct the file and try again.{paste}",
            field="config",
        )

    def contents(self) -> dict[str, Any]:
        """Return the parsed contents of the file; empty if there is no file."""
        try:
            value = _parse(self.format, self.text)
        except ValueError as error:
            why = str(error).rstrip(".")
            raise self.change_error(f"it is not valid {self.format.value} ({why})") from None
        if not isinstance(value, Mapping):
            raise self.change_error("it is not an object with keys and values")
        return dict(value)


def open_settings(path: Path, format: Format) -> SettingsFile:
    """Read a file; it may be missing."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise InvalidInput(f"{path} is not a file.", hint="Name one.", field="config")
        data = target.read_bytes() if target.exists() else None
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        raise _access_error(path, "read", error) from error
    return SettingsFile(path, target, format, data)


def value_at(contents: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at this path of keys, or None."""
    value: Any = contents
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def entry_text(format: Format, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Return the entry as text for copying."""
    return _edited_text(format, "", path, entry)


def with_entry(settings: SettingsFile, path: Sequence[str], entry: Mapping[str, Any]) -> bytes:
    """Return the file's contents with this entry."""
    if settings.data is not None and value_at(settings.contents(), path) == entry:
        return settings.data
    return _verified_edit(settings, path, entry)


def without_entry(settings: SettingsFile, path: Sequence[str], backups: Path) -> bytes | None:
    """Return the file's contents without this entry; None if the file was created for the entry.

    If nobody else changed the file, return its original contents byte for byte.
    """
    earlier: SettingsFile | None = settings
    for _ in range(UNDO_STEPS):
        if earlier is None:
            break
        if value_at(earlier.contents(), path) is None:
            return earlier.data
        earlier = _former_contents(earlier, path, backups)
    return _verified_edit(settings, path, None)


def contents_before_last_change(
    settings: SettingsFile, path: Sequence[str], backups: Path
) -> bytes | None:
    """Return the file's contents before our last change; None if the file did not exist.

    Raise NotFound without a backup, and Conflict if somebody else has changed the file since.
    """
    before = _former_contents(settings, path, backups)
    if before is not None:
        return before.data
    prefix = f"{_backup_name(settings.target)}-"
    ours = backups.glob(f"{glob.escape(prefix)}*") if backups.is_dir() else []
    newest = max(ours, key=lambda backup: backup.stat().st_mtime_ns, default=None)
    if newest is None:
        raise NotFound(
            f"There is no backup of {settings.path} in {backups}.",
            hint="Remove Commonplace's entry with --remove.",
            field="config",
        )
    raise Conflict(
        f"{settings.path} was changed by somebody else after our last change.",
        hint="Nothing was written. To remove only our entry, use --remove. Undo would change:\n"
        + unified_diff(settings, newest.read_bytes()),
        field="config",
    )


def _former_contents(
    settings: SettingsFile, path: Sequence[str], backups: Path
) -> SettingsFile | None:
    """Return the file's contents before our last write; None if somebody else wrote the file
    since."""
    backup = backups / _backup_name(settings.target, settings.data or b"")
    if backup.is_file():
        return replace(settings, data=backup.read_bytes())
    entry = value_at(settings.contents(), path)
    made_for_it = isinstance(entry, dict) and (
        settings.data == entry_text(settings.format, path, entry).encode()
    )
    return replace(settings, data=None) if made_for_it else None


def settings_before_ours(
    settings: SettingsFile, is_ours: Callable[[SettingsFile], bool], backups: Path
) -> SettingsFile | None:
    """Return the file's contents before all our changes; None if somebody else changed it since."""
    earlier = settings
    for _ in range(UNDO_STEPS):
        if earlier.data is None or not is_ours(earlier):
            return earlier
        name = _backup_name(settings.target, earlier.data)
        if (backups / f"{_NEW_PREFIX}{name}").is_file():
            earlier = replace(settings, data=None)
        elif (backups / name).is_file():
            earlier = replace(settings, data=(backups / name).read_bytes())
        else:
            return None
    return None


def note_whether_new(settings: SettingsFile, written: bytes | None, backups: Path) -> None:
    """Write a marker file if the settings file did not exist before our write."""
    note = backups / f"{_NEW_PREFIX}{_backup_name(settings.target, written or b'')}"
    if settings.data is not None:
        note.unlink(missing_ok=True)
        return
    make_private(backups)
    with replace_file(note):
        pass


def with_or_without_entry(
    settings: SettingsFile, path: Sequence[str], entry: Mapping[str, Any] | None
) -> bytes:
    """Return the file's contents with this entry; without it if `entry` is None."""
    return _verified_edit(settings, path, entry)


def _backup_name(target: Path, written: bytes | None = None) -> str:
    name = f"{target.name}-{hashlib.sha256(os.fsencode(target)).hexdigest()[:16]}"
    return name if written is None else f"{name}-{hashlib.sha256(written).hexdigest()[:16]}"


def unified_diff(settings: SettingsFile, new: bytes | None) -> str:
    """Return the change as a unified diff."""
    old, now = (
        str(settings.path) if data is not None else os.devnull for data in (settings.data, new)
    )
    lines = difflib.unified_diff(
        _diff_lines(settings.data), _diff_lines(new), old, now, lineterm=""
    )
    return "\n".join(lines)


def _diff_lines(data: bytes | None) -> list[str]:
    if not data:
        return []
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def write(
    settings: SettingsFile, new: bytes | None, backups: Path, *, mode: int = PRIVATE_MODE
) -> Path | None:
    """Replace the file atomically, or delete it; return the path of the backup.

    Raise Conflict, and write nothing, if somebody else has changed the file since it was read.
    """
    from commonplace.storage.database import sync_directory

    target = settings.target
    try:
        _check_unchanged(settings)
        target.parent.mkdir(parents=True, exist_ok=True)
        if settings.data is not None:
            if not os.access(target, os.W_OK):
                raise PermissionError(None, "it is write-protected")
            mode = stat.S_IMODE(target.stat().st_mode)
        if new is None:
            backup = _back_up(settings, new, backups)
            _check_unchanged(settings)
            target.unlink()
            sync_directory(target.parent)
        else:
            with replace_file(target, mode=mode) as stream:
                _copy_rights(stream.fileno(), mode, target)
                stream.write(new)
                backup = _back_up(settings, new, backups)
                _check_unchanged(settings)
    except OSError as error:
        raise _access_error(settings.path, "written", error) from error
    return backup


def _check_unchanged(settings: SettingsFile) -> None:
    now = settings.target.read_bytes() if settings.target.exists() else None
    if now != settings.data or settings.path.resolve() != settings.target:
        raise Conflict(
            f"{settings.path} was changed by somebody else in the meantime.",
            hint="Nothing was written; run the command again.",
            field="config",
        )


def _copy_rights(descriptor: int, mode: int, like: Path) -> None:
    if like.exists() and hasattr(os, "fchown"):
        os.fchmod(descriptor, mode)
        with contextlib.suppress(OSError):
            os.fchown(descriptor, like.stat().st_uid, like.stat().st_gid)


def _back_up(settings: SettingsFile, new: bytes | None, backups: Path) -> Path | None:
    if settings.data is None:
        return None
    make_private(backups)
    backup = backups / _backup_name(settings.target, new or b"")
    # do not overwrite a backup, which has the original contents
    with replace_file(backup, only_new=True) as stream:
        stream.write(settings.data)
    return backup


def _access_error(path: Path, what: str, error: Exception) -> StorageUnavailable:
    why = getattr(error, "strerror", None) or error
    return StorageUnavailable(
        f"{path} cannot be {what}: {why}.",
        hint="Nothing was changed; check the path and its permissions.",
        field="config",
    )


# Reading and editing the formats


def _verified_edit(
    settings: SettingsFile, path: Sequence[str], entry: Mapping[str, Any] | None
) -> bytes:
    """Return the contents with or without this entry; parse them to verify the change."""
    text, contents = settings.text, settings.contents()
    mark = BOM if (settings.data or b"").startswith(BOM.encode()) else ""
    windows = "\r\n" in text and text.count("\r\n") == text.count("\n")
    paste = "" if entry is None else entry_text(settings.format, path, entry)
    try:
        text = _edited_text(
            settings.format, text.replace("\r\n", "\n") if windows else text, path, entry
        )
        said = _parse(settings.format, text)
    except ValueError as error:
        raise settings.change_error(str(error), paste) from None
    if value_at(said, path) != entry or _without_value(said, path) != _without_value(
        contents, path
    ):
        raise settings.change_error("its layout is too unusual to be edited automatically", paste)
    return (mark + (text.replace("\n", "\r\n") if windows else text)).encode()


def _without_value(contents: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return the contents without the value at this path and without objects that become empty."""
    name, *rest = path
    others = {key: value for key, value in contents.items() if key != name}
    held = contents.get(name)
    if not rest or held is None:
        return others
    left = _without_value(held, rest) if isinstance(held, Mapping) else held
    return others | {name: left} if left else others


def _parse(format: Format, text: str) -> Any:
    return tomllib.loads(text) if format is Format.TOML else json_text.read(text, format)


def _edited_text(
    format: Format, text: str, path: Sequence[str], entry: Mapping[str, Any] | None
) -> str:
    if format is Format.TOML:
        return (
            _toml_without_entry(text, path)
            if entry is None
            else _toml_with_entry(text, path, entry)
        )
    if entry is None:
        return json_text.remove(text, format, path)
    return json_text.write(text, format, path, entry)


def _toml_with_entry(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    former, above = value_at(document, path), value_at(document, path[:-1])
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
    start = text if not text or text.endswith("\n") else text + "\n"
    lines = tomlkit.dumps({name: _toml_value(value) for name, value in entry.items()})
    gap = "\n" if start.strip() else ""
    return f"{start}{gap}[{'.'.join(path)}]\n{lines}"


def _toml_value(value: Any) -> Any:
    import tomlkit

    if not isinstance(value, Mapping):
        return value
    table = tomlkit.inline_table()
    table.update({name: _toml_value(each) for name, each in value.items()})
    return table


def _toml_without_entry(text: str, path: Sequence[str]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    entry = value_at(tomllib.loads(text), path)
    del value_at(document, path[:-1])[path[-1]]
    removed = tomlkit.dumps(document)
    shorter = removed.removesuffix("\n")  # without the empty line that `_toml_with_entry` adds
    came = isinstance(entry, dict) and _toml_with_entry(shorter, path, entry) == text
    return shorter if came else removed
