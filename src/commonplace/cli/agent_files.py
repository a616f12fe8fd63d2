"""What `start` changes in an agent's files, and how `stop-using` takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from commonplace.cli import agent_hooks, agent_plugins, clients, json_text, settings_files
from commonplace.cli.agent_hooks import HOOK_FILES, HOOKS
from commonplace.cli.agent_plugins import PLUGINS
from commonplace.cli.clients import Client, Stdio
from commonplace.cli.settings_files import Settings
from commonplace.errors import CommonplaceError

LONG = 100  # lines


@dataclass(frozen=True)
class Change:
    """A file of an agent, as it is and as it will be; None if it does not exist."""

    client: Client
    settings: Settings
    new: bytes | None

    @property
    def diff(self) -> str:
        """The change as a diff; empty if there is none."""
        if self.new == self.settings.data:
            return ""
        return settings_files.difference(self.settings, self.new)

    @property
    def shown(self) -> str:
        """The change for a person: a diff, or of a long new file only its name."""
        lines = self.diff.splitlines()
        if self.settings.data is None and len(lines) > LONG:
            return f"+++ {self.settings.path}\n+ a new file of {len(lines) - 3} lines"
        return self.diff

    def write(self, backups: Path) -> None:
        """Write the file, and keep a backup of its former contents."""
        settings_files.write(self.settings, self.new, backups)
        settings_files.note_whether_new(self.settings, self.new, backups)


class _Edit(Protocol):
    """One of our entries in an agent's settings file: how it is added, recognised and removed."""

    def written(self, settings: Settings, /) -> Settings:
        """The settings with our entry."""

    def is_in(self, settings: Settings, /) -> bool:
        """Whether the settings hold our entry."""

    def removed(self, settings: Settings, /) -> Settings:
        """The settings without our entry."""


@dataclass(frozen=True)
class _Entry:
    """A value in a file of names and values."""

    path: tuple[str, ...]
    new_value: Callable[[Any], Mapping[str, Any]]
    is_ours: Callable[[Any], bool]
    left: Callable[[Any], Mapping[str, Any] | None]

    def written(self, settings: Settings) -> Settings:
        """The settings with our entry."""
        value = self.new_value(settings_files.find(settings.contents(), self.path))
        return replace(settings, data=settings_files.with_entry(settings, self.path, value))

    def is_in(self, settings: Settings) -> bool:
        """Whether the settings hold our entry."""
        return self.is_ours(settings_files.find(settings.contents(), self.path))

    def removed(self, settings: Settings) -> Settings:
        """The settings without our entry."""
        present = settings_files.find(settings.contents(), self.path)
        if not self.is_ours(present):
            return settings
        return replace(
            settings, data=settings_files.edited(settings, self.path, self.left(present))
        )


@dataclass(frozen=True)
class _FormatNumber:
    """The number of a file's format, which is written where it is missing and never removed."""

    number: int

    def written(self, settings: Settings) -> Settings:
        """The settings with our entry."""
        if "version" in settings.contents():
            return settings
        new = json_text.write(settings.text, settings.format, ("version",), self.number)
        return replace(settings, data=new.encode())

    def is_in(self, _: Settings) -> bool:
        """Never: the number does not show that the file is ours."""
        return False

    def removed(self, settings: Settings) -> Settings:
        """The settings unchanged."""
        return settings


@dataclass(frozen=True)
class _WholeFile:
    """A file of which every line is ours."""

    text: str

    def written(self, settings: Settings) -> Settings:
        """The file with our lines alone; a file of somebody else is refused."""
        if settings.data is not None and not self.is_in(settings):
            raise settings.unreadable("somebody else wrote it")
        return replace(settings, data=self.text.encode())

    def is_in(self, settings: Settings) -> bool:
        """Whether the file is ours."""
        return agent_plugins.MARK in settings.text

    def removed(self, settings: Settings) -> Settings:
        """None: the whole file is removed."""
        return replace(settings, data=None)


def changes(client: Client, server: Stdio, hook_command: Sequence[str], name: str) -> list[Change]:
    """The files that make an agent use this memory, each with all changes at once."""
    return [
        Change(chosen, settings, _applied(settings, edits))
        for chosen, settings, edits in _files(client, server, hook_command, name)
    ]


def _applied(settings: Settings, edits: Sequence[_Edit]) -> bytes | None:
    for edit in edits:
        settings = edit.written(settings)
    return settings.data


def removals(client: Client, name: str, backups: Path) -> list[Change]:
    """The files without our entries: byte for byte as before, if nobody else changed them."""
    found = []
    for chosen, settings, edits in _files(client, Stdio("-"), ("-",), name):
        if settings.data is None or not _has_ours(edits, settings):
            continue
        before = settings_files.before_ours(settings, partial(_has_ours, edits), backups)
        if before is None:
            before = settings
            for edit in edits:
                before = edit.removed(before)
        found.append(Change(chosen, settings, before.data))
    return found


def _has_ours(edits: Sequence[_Edit], settings: Settings) -> bool:
    return any(edit.is_in(settings) for edit in edits)


def _files(
    client: Client, server: Stdio, hook_command: Sequence[str], name: str
) -> list[tuple[Client, Settings, list[_Edit]]]:
    """(client, file, edits) for each file of an agent that we change."""
    chosen, settings = opened(client, name)
    hook_file = HOOK_FILES.get(client.name)
    needed = hook_file.server if hook_file is not None else {}

    def entry(former: Any) -> dict[str, Any]:
        known = former if isinstance(former, dict) else None
        return {**needed, **clients.entry(chosen, server, former=known)}

    own = _Entry((*chosen.container, name), entry, lambda value: value is not None, lambda _: None)
    found: list[tuple[Client, Settings, list[_Edit]]] = [(chosen, settings, [own])]
    if (plugin := PLUGINS.get(client.name)) is not None:
        for each, text in agent_plugins.texts(client.name, hook_command).items():
            path = plugin.folder(settings.path) / each
            file = settings_files.open_settings(path, agent_hooks.FORMAT)
            found.append((chosen, file, [_WholeFile(text)]))
        if plugin.setting is not None:
            where, value = plugin.setting
            found[0][2].append(
                _Entry(where, lambda _: value, lambda present: present == value, lambda _: None)
            )
    if hook_file is None:
        return found
    edits = _hook_edits(hook_file, agent_hooks.command_line(hook_command))
    path = hook_file.file(client)
    if path == settings.path:
        found[0][2].extend(edits)
    else:
        found.append((chosen, settings_files.open_settings(path, agent_hooks.FORMAT), edits))
    return found


def _hook_edits(hook_file: agent_hooks.HookFile, command: str) -> list[_Edit]:
    ours = hook_file.hooks(command)
    hooks = _Entry(
        HOOKS,
        lambda value: agent_hooks.merged(value, ours),
        agent_hooks.has_ours,
        lambda value: agent_hooks.others(value) or None,
    )
    return [hooks] if hook_file.version is None else [_FormatNumber(hook_file.version), hooks]


def opened(client: Client, name: str) -> tuple[Client, Settings]:
    """The configuration file with our entry, or else the one to add it to."""
    first: tuple[Client, Settings] | None = None
    for path in clients.files(client):
        try:
            settings = settings_files.open_settings(path, client.format)
            chosen = clients.as_written(client, path, settings.contents())
        except CommonplaceError:
            if first is None:
                raise
            continue
        if first is None:
            first = chosen, settings
        if settings_files.find(settings.contents(), (*chosen.container, name)) is not None:
            return chosen, settings
    assert first is not None
    return first
