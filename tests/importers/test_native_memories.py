"""Agents' own memory files are kept in every version, found, and brought back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run as run_command
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.importers import native_memories as native
from commonplace.platform import lookup


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    texts = {
        ".claude/projects/-w-api/memory/MEMORY.md": "# Index\r\n- the gateway listens on 8080\r\n",
        ".claude/projects/-w-api/memory/debugging.md": "The cache must be cleared first.\n",
        ".claude/CLAUDE.md": "Use tabs.\n",
        ".codex/memories/summary.md": "Prefers short answers.",
        ".codex/memories/.hidden.md": "no",
        ".codex/memories/raw.db": "no",
    }
    for name, text in texts.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(text.encode())
    return home


def usual(home: Path) -> list[Path]:
    return native.usual_files(home=home, environ={})


def test_files_are_found_stored_and_searched(memory: Commonplace, home: Path) -> None:
    report = native.store_changes(memory, usual(home))
    assert len(report.added) == 4
    (hit,) = memory.recall("gateway 8080", limit=1)
    assert hit.memory.text == "# Index\r\n- the gateway listens on 8080\r\n"
    assert hit.memory.source.endswith("MEMORY.md")
    again = native.store_changes(memory, usual(home))
    assert again.as_dict() == {"added": [], "changed": [], "gone": [], "unchanged": 4,
                               "skipped": []}  # fmt: skip


def test_every_version_is_kept_and_a_deleted_file_comes_back(
    memory: Commonplace, home: Path
) -> None:
    file = home / ".claude/projects/-w-api/memory/debugging.md"
    native.store_changes(memory, usual(home))
    file.write_text("The cache must be cleared last.\n")
    assert native.store_changes(memory, usual(home)).changed == [str(file)]
    file.unlink()
    report = native.store_changes(memory, usual(home))
    assert report.gone == [str(file)]
    assert native.store_changes(memory, usual(home)).gone == []
    (hit,) = memory.recall("cache cleared", limit=1)
    assert hit.memory.attrs["gone_since"]
    native.bring_back(memory, file)
    assert file.read_text() == "The cache must be cleared last.\n"
    assert "gone_since" not in memory.get(hit.memory.id).attrs
    texts = [version.memory.text for version in memory.history.versions(hit.memory.id)]
    assert "The cache must be cleared first.\n" in texts


def test_an_earlier_version_comes_back_and_the_present_one_is_kept(
    memory: Commonplace, home: Path
) -> None:
    file = home / ".claude/CLAUDE.md"
    native.store_changes(memory, [file])
    first = memory.history.operations(limit=1)[0].at
    file.write_text("Use spaces.\n")
    native.store_changes(memory, [file])
    file.write_text("Use both.\n")
    with pytest.raises(Conflict):
        native.bring_back(memory, file, as_of=first)
    assert file.read_text() == "Use both.\n"
    native.bring_back(memory, file, as_of=first, overwrite=True)
    assert file.read_text() == "Use tabs.\n"
    (one,) = native.guarded_memories(memory)
    texts = [version.memory.text for version in memory.history.versions(one.id)]
    assert texts == ["Use tabs.\n", "Use both.\n", "Use spaces.\n", "Use tabs.\n"]


def test_an_emptied_file_counts_as_gone(memory: Commonplace, home: Path) -> None:
    file = home / ".codex/memories/summary.md"
    native.store_changes(memory, usual(home))
    file.write_text("\n")
    assert native.store_changes(memory, usual(home)).gone == [str(file)]
    native.bring_back(memory, file)
    assert file.read_text() == "Prefers short answers."


def test_one_look_is_one_undo_and_a_forgotten_file_stays_forgotten(
    memory: Commonplace, home: Path
) -> None:
    native.store_changes(memory, usual(home))
    memory.undo()
    assert list(native.guarded_memories(memory)) == []
    assert len(native.store_changes(memory, usual(home)).added) == 4
    (one,) = [one for one in native.guarded_memories(memory) if one.text == "Use tabs.\n"]
    memory.forget(one.id)
    assert native.store_changes(memory, usual(home)).unchanged == 4
    assert lookup.find_live_memory(memory, one.id) is None


def test_a_file_with_a_masked_secret_is_not_written_back_masked(
    memory: Commonplace, tmp_path: Path
) -> None:
    file = tmp_path / "MEMORY.md"
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    file.write_text(f"The token is {secret}.\n")
    native.store_changes(memory, [file])
    (one,) = native.guarded_memories(memory)
    assert secret not in one.text
    assert native.store_changes(memory, [file]).unchanged == 1
    file.unlink()
    with pytest.raises(InvalidInput, match="masked"):
        native.bring_back(memory, file)
    assert not file.exists()


def test_files_that_are_no_text_are_skipped(memory: Commonplace, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe")
    (tmp_path / "b.md").write_text("x" * 1_000_001)
    (tmp_path / "c.md").write_text("fine")
    (tmp_path / "d.md").write_text("a\0b")
    report = native.store_changes(memory, native.expand_directories([tmp_path]))
    assert len(report.skipped) == 3 and report.added == [str(tmp_path / "c.md")]
    with pytest.raises(NotFound):
        native.bring_back(memory, tmp_path / "a.md")


def test_the_commands_guard_list_and_bring_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = tmp_path / "MEMORY.md", ["--data", str(tmp_path / "data")]
    file.write_text("Keep me.")
    assert run_command(["guard", "look", str(file), *data]) == 0
    assert f"added: {file}" in capsys.readouterr().out
    file.unlink()
    assert run_command(["guard", "look", str(tmp_path), *data]) == 0
    assert f"gone: {file}" in capsys.readouterr().out
    assert run_command(["guard", "list", *data, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["file"] == str(file) and listed["versions"] == 1 and listed["gone_since"]
    assert run_command(["guard", "bring-back", str(file), *data]) == 0
    assert file.read_text() == "Keep me."
    capsys.readouterr()
    assert run_command(["guard", "bring-back", str(file), "--at", "often", *data]) == 2
    assert "--at is not a date or time." in capsys.readouterr().err
    assert run_command(["guard", "look", str(tmp_path / "none"), *data]) == 3
    (tmp_path / "binary").write_bytes(b"\xd0\x00")
    capsys.readouterr()
    assert run_command(["guard", "look", str(tmp_path / "binary"), *data]) == 0
    assert (
        capsys.readouterr().err == f"skipped: {tmp_path / 'binary'}: the file is not UTF-8 text\n"
    )


def test_a_watched_file_is_stored_as_it_changes(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    file = folder / "MEMORY.md"
    file.write_text("First.")
    command = [sys.executable, "-m", "commonplace.cli", "guard", "watch", str(folder)]
    with subprocess.Popen(
        [*command, "--data", str(tmp_path / "data")], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for change, told in ((lambda: None, "added"), (lambda: file.write_text("2"), "changed"),
                             (file.unlink, "gone")):  # fmt: skip
            change()
            for line in process.stdout:
                if line == f"{told}: {file}\n":
                    break
                assert line.endswith("unchanged\n")
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr and process.stderr.read()) == (0, "")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        (one,) = native.guarded_memories(memory)
        assert one.text == "2" and one.attrs["gone_since"]


def test_a_file_that_was_purged_is_not_kept_again(memory: Commonplace, home: Path) -> None:
    native.store_changes(memory, usual(home))
    (one,) = [one for one in native.guarded_memories(memory) if one.text == "Use tabs.\n"]
    memory.purge(one.id)
    seen = native.store_changes(memory, usual(home))
    assert seen.added == [] and "purged" in seen.skipped[0]


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_guarded(
    memory: Commonplace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.store_changes(memory, usual(home))
    closed, changed = home / ".claude/CLAUDE.md", home / ".codex/memories/summary.md"
    changed.write_text("Prefers long answers.")
    opened = Path.open

    def refuse(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    report = native.store_changes(memory, usual(home))
    assert report.changed == [str(changed)] and report.gone == []
    assert report.skipped == [f"{closed}: Permission denied"]
