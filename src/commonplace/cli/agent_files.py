"""The changes that `start` makes to an agent's files, and that `stop-using` reverts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from commonplace.cli import agent_hooks, agent_plugins, clients, json_text, settings_files
from commonplace.cli.agent_hooks import HOOK_FILES, HOOKS_PATH
from commonplace.cli.agent_plugins import PLUGINS
from commonplace.cli.clients import Client, Stdio
from commonplace.cli.settings_files import SettingsFile
from commonplace.errors import CommonplaceError

LONG_DIFF_LINES = 100  # lines


@dataclass(frozen=True)
class Change:
    """A change to a file of an agent; contents are None if the file does not exist."""

    client: Client
    settings: SettingsFile
    new: bytes | None

    @property
    def diff(self) -> str:
        """Return the change as a diff; empty if nothing changes."""
        if self.new == self.settings.data:
            return ""
        return settings_files.unified_diff(self.settings, self.new)

    @property
    def display_text(self) -> str:
        """Return the change for display: a diff, or only the name of a long new file."""
        lines = self.diff.splitlines()
        if self.settings.data is None and len(lines) > LONG_DIFF_LINES:
            return f"+++ {self.settings.path}\n+ a new file of {len(lines) - 3} lines"
        return self.diff

    def write(self, backups: Path) -> None:
        """Write the file, and back up its former contents."""
        settings_files.write(self.settings, self.new, backups)
        settings_files.note_whether_new(self.settings, self.new, backups)


class _Edit(Protocol):
    """An entry of ours in an agent's settings file, which can be added, detected and removed."""

    def with_entry(self, settings: SettingsFile, /) -> SettingsFile:
        """Return the settings with our entry."""

    def is_in(self, settings: SettingsFile, /) -> bool:
        """Return whether the settings hold our entry."""

    def without_entry(self, settings: SettingsFile, /) -> SettingsFile:
        """Return the settings without our entry."""


@dataclass(frozen=True)
class _Entry:
    """A key with its value in a settings file."""

    path: tuple[str, ...]
    new_value: Callable[[Any], Mapping[str, Any]]
    is_ours: Callable[[Any], bool]
    remaining_value: Callable[[Any], Mapping[str, Any] | None]

    def with_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return the settings with our entry."""
        value = self.new_value(settings_files.value_at(settings.contents(), self.path))
        return replace(settings, data=settings_files.with_entry(settings, self.path, value))

    def is_in(self, settings: SettingsFile) -> bool:
        """Return whether the settings hold our entry."""
        return self.is_ours(settings_files.value_at(settings.contents(), self.path))

    def without_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return the settings without our entry."""
        present = settings_files.value_at(settings.contents(), self.path)
        if not self.is_ours(present):
            return settings
        return replace(
            settings,
            data=settings_files.with_or_without_entry(
                settings, self.path, self.remaining_value(present)
            ),
        )


@dataclass(frozen=True)
class _FormatNumber:
    """The key `version` of a settings file, which is added if it is missing and never removed."""

    number: int

    def with_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return the settings with our entry."""
        if "version" in settings.contents():
            return settings
        new = json_text.write(settings.text, settings.format, ("version",), self.number)
        return replace(settings, data=new.encode())

    def is_in(self, _: SettingsFile) -> bool:
        """Return False: the number does not show that the file is ours."""
        return False

    def without_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return the settings unchanged."""
        return settings


@dataclass(frozen=True)
class _WholeFile:
    """A file that only we write."""

    text: str

    def with_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return our contents; raise an error if another program wrote the file."""
        if settings.data is not None and not self.is_in(settings):
            raise settings.change_error("another program wrote it")
        return replace(settings, data=self.text.encode())

    def is_in(self, settings: SettingsFile) -> bool:
        """Return whether the file is ours."""
        return agent_plugins.MARK in settings.text

    def without_entry(self, settings: SettingsFile) -> SettingsFile:
        """Return the settings of a file that does not exist: the whole file is removed."""
        return replace(settings, data=None)


def changes(client: Client, server: Stdio, hook_command: Sequence[str], name: str) -> list[Change]:
    """Return the changes to an agent's files that connect it, one for each file."""
    return [
        Change(chosen, settings, _apply_edits(settings, edits))
        for chosen, settings, edits in _files_to_edit(client, server, hook_command, name)
    ]


def _apply_edits(settings: SettingsFile, edits: Sequence[_Edit]) -> bytes | None:
    for edit in edits:
        settings = edit.with_entry(settings)
    return settings.data


def removals(client: Client, name: str, backups: Path) -> list[Change]:
    """Return the changes that remove our entries.

    A file that nobody else has changed gets its original contents, byte for byte."""
    found = []
    for chosen, settings, edits in _files_to_edit(client, Stdio("-"), ("-",), name):
        if settings.data is None or not _has_our_entry(edits, settings):
            continue
        before = settings_files.settings_before_ours(
            settings, partial(_has_our_entry, edits), backups
        )
        if before is None:
            before = settings
            for edit in edits:
                before = edit.without_entry(before)
        found.append(Change(chosen, settings, before.data))
    return found


def _has_our_entry(edits: Sequence[_Edit], settings: SettingsFile) -> bool:
    return any(edit.is_in(settings) for edit in edits)


def _files_to_edit(
    client: Client, server: Stdio, hook_command: Sequence[str], name: str
) -> list[tuple[Client, SettingsFile, list[_Edit]]]:
    """Return (client, file, edits) for each file of an agent that we change."""
    chosen, settings = open_configuration(client, name)
    hook_file = HOOK_FILES.get(client.name)
    needed = hook_file.server_keys if hook_file is not None else {}

    def entry(former: Any) -> dict[str, Any]:
        known = former if isinstance(former, dict) else None
        return {**needed, **clients.server_entry(chosen, server, former=known)}

    own = _Entry((*chosen.container, name), entry, lambda value: value is not None, lambda _: None)
    found: list[tuple[Client, SettingsFile, list[_Edit]]] = [(chosen, settings, [own])]
    if (plugin := PLUGINS.get(client.name)) is not None:
        for each, text in agent_plugins.plugin_files(client.name, hook_command).items():
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
        HOOKS_PATH,
        lambda value: agent_hooks.hooks_with_ours(value, ours),
        agent_hooks.has_our_hook,
        lambda value: agent_hooks.hooks_without_ours(value) or None,
    )
    if hook_file.format_number is None:
        return [hooks]
    return [_FormatNumber(hook_file.format_number), hooks]


def open_configuration(client: Client, name: str) -> tuple[Client, SettingsFile]:
    """Return the configuration file with our entry, or else the file to add it to."""
    first: tuple[Client, SettingsFile] | None = None
    for path in clients.configuration_paths(client):
        try:
            settings = settings_files.open_settings(path, client.format)
            chosen = clients.client_for_file(client, path, settings.contents())
        except CommonplaceError:
            if first is None:
                raise
            continue
        if first is None:
            first = chosen, settings
        if settings_files.value_at(settings.contents(), (*chosen.container, name)) is not None:
            return chosen, settings
    assert first is not None
    return first
