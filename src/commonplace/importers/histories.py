"""Imports the histories of agents: Claude Code, Codex, Gemini CLI, Cursor, OpenCode."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from commonplace.importers.databases import first_with_tables
from commonplace.importers.items import Item, Skipped, items_of_records
from commonplace.storage.sqlite import foreign
from commonplace.transcripts import claude_code, cursor, gemini, opencode
from commonplace.transcripts.formats import FORMATS, client_of
from commonplace.transcripts.lines import first_objects, json_document

_BYTES_AT_ONCE = 8 * 1024 * 1024
_DETECTION_LINES = 20  # lines that are read to detect a file without JSON


class SessionFiles:
    """The history of a client that has a file of JSON lines for each session."""

    def __init__(self, name: str, title: str, *patterns: str) -> None:
        self.NAME = name
        self.TITLE = title
        self._patterns = patterns
        self._format = FORMATS[name]

    def recognises(self, path: Path) -> bool:
        """Return whether a file is of this client, or the first known one in a directory is."""
        for file in [path] if path.is_file() else self.files(path):
            with contextlib.suppress(OSError):
                if found := _client_of_file(file):
                    return found == self.NAME
        return False

    def files(self, path: Path) -> Iterator[Path]:
        """Yield the session files in a directory, the oldest first."""
        found = {
            file
            for pattern in self._patterns
            for file in path.glob(pattern)
            if file.is_file() and not claude_code.is_subagent(file.relative_to(path))
        }
        return iter(sorted(found, key=lambda file: (file.stat().st_mtime, file)))

    def items(self, path: Path) -> Iterator[Item | Skipped]:
        """Yield the messages, and a `Skipped` for each unreadable file of a directory."""
        if path.is_file():
            yield from self._items_of_file(path)
            return
        for file in self.files(path):
            try:
                if _client_of_file(file) == self.NAME:
                    yield from self._items_of_file(file)
                elif not _holds_json(file):
                    yield Skipped(f"{file}: The file contains no JSON.")
            except OSError as error:
                yield Skipped(f"{file}: The file cannot be read: {error.strerror}.")

    def _items_of_file(self, file: Path) -> Iterator[Item]:
        offset, before = 0, -1
        while offset != before:
            before = offset
            reading = self._format.read(file, offset, _BYTES_AT_ONCE)
            yield from items_of_records(reading.records)
            offset = before if file.suffix == ".json" else reading.offset


def _client_of_file(file: Path) -> str | None:
    if file.suffix == ".json":  # Gemini's older files are one JSON document
        return gemini.CLIENT if gemini.is_document(file) else None
    return client_of(file) if file.suffix in (".jsonl", "") else None


def _holds_json(file: Path) -> bool:
    """Return whether a file is empty or contains JSON."""
    if file.suffix == ".json":
        with file.open("rb") as stream:
            return json_document(stream) is not None or stream.tell() == 0
    return file.stat().st_size == 0 or any(first_objects(file, _DETECTION_LINES))


class OpenCode:
    """OpenCode, which stores all sessions in one database."""

    NAME = opencode.CLIENT
    TITLE = "OpenCode"

    def recognises(self, path: Path) -> bool:
        """Return whether a file is OpenCode's database, or a directory has it."""
        return self._find_database(path) is not None

    def items(self, path: Path) -> Iterator[Item]:
        """Yield every message of the sessions."""
        file = self._find_database(path)
        if file is not None:
            rows = foreign.read_tables(file, opencode.TABLES)
            found = opencode.records(rows["session"], rows["message"], rows["part"])
            yield from items_of_records(found)

    def _find_database(self, path: Path) -> Path | None:
        return first_with_tables(path, ("opencode.db",), *opencode.TABLES)


class Cursor(SessionFiles):
    """Cursor, which stores chats in a database and sessions of its agent in files."""

    def __init__(self) -> None:
        super().__init__(cursor.CLIENT, "Cursor", "agent-transcripts/**/*.jsonl",
                         "projects/*/agent-transcripts/**/*.jsonl")  # fmt: skip

    def recognises(self, path: Path) -> bool:
        """Return whether a path is a database with chats, or a session file of the agent."""
        return self._find_database(path) is not None or super().recognises(path)

    def items(self, path: Path) -> Iterator[Item | Skipped]:
        """Yield every message of the sessions."""
        database = self._find_database(path)
        if database is None:
            yield from super().items(path)
            return
        with foreign.open_copy(database, [cursor.TABLE]) as copy:
            rows = copy.rows(cursor.TABLE, cursor.COLUMNS)
            yield from items_of_records(cursor.records(rows))

    def _find_database(self, path: Path) -> Path | None:
        names = ("state.vscdb", "globalStorage/state.vscdb", "User/globalStorage/state.vscdb")
        return first_with_tables(path, names, cursor.TABLE)


CLAUDE_CODE = SessionFiles(
    "claude-code", "Claude Code", "*.jsonl", "*/*.jsonl", "projects/*/*.jsonl"
)
CODEX = SessionFiles(
    "codex", "Codex", "rollout-*.jsonl", "*/*/*/rollout-*.jsonl", "sessions/*/*/*/rollout-*.jsonl",
    "archived_sessions/rollout-*.jsonl",
)  # fmt: skip
GEMINI = SessionFiles(
    "gemini", "Gemini CLI", "*/chats/session-*.json*", "chats/session-*.json*",
    "tmp/*/chats/session-*.json*", "session-*.json*",
)  # fmt: skip
OPENCODE = OpenCode()
CURSOR = Cursor()
ALL = (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, CURSOR)


def usual_history_paths(
    environ: Mapping[str, str] = os.environ, home: Path | None = None
) -> dict[str, Path]:
    """Return the paths of the clients' histories on this machine, by the client's name."""
    home = Path.home() if home is None else home
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    settings = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if (home / "Library" / "Application Support").is_dir():
        settings = home / "Library" / "Application Support"
    if environ.get("APPDATA"):
        settings = Path(environ["APPDATA"])
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser()
    codex = Path(environ.get("CODEX_HOME") or home / ".codex").expanduser()
    return {
        "claude-code": claude / "projects",
        "codex": codex / "sessions",
        "gemini": home / ".gemini" / "tmp",
        "opencode": data / "opencode",
        "cursor": settings / "Cursor" / "User",
    }
