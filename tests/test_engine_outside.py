"""Copies of purged texts in files beside the databases."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from commonplace.engine.maintenance import outside
from commonplace.transcripts.formats import client_of
from commonplace.transcripts.lines import json_lines

SECRET = b"the vault opens with 4711-0815"


def _line(number: int, text: str = "an ordinary line") -> str:
    said = {"session": "s", "id": str(number), "role": "user", "text": text}
    return json.dumps({"transcript": "opencode", **said}) + "\n"


def _numbers(path: Path) -> list[int]:
    return [int(value["id"]) for value, _, _ in json_lines(path) if "id" in value]


def _file(data: Path) -> Path:
    path = data / outside.TRANSCRIPTS / "opencode" / "s.jsonl"
    path.parent.mkdir(parents=True)
    return path


def _purge_while(data: Path, write: Callable[[], None]) -> int:
    """Purge again and again while another thread writes; return how many purges changed a file."""
    thread = threading.Thread(target=write)
    thread.start()
    changed = 0
    while thread.is_alive():
        changed += len(list(outside._clean_transcripts(data, [SECRET])))
    thread.join()
    list(outside._clean_transcripts(data, [SECRET]))
    return changed


def test_no_line_is_lost_that_is_appended_while_a_purge_runs(tmp_path: Path) -> None:
    path = _file(tmp_path)
    path.write_text(_line(0))

    def append() -> None:
        for number in range(1, 6_000):
            text = SECRET.decode() if number % 10 == 0 else "an ordinary line"
            with path.open("a") as stream:
                stream.write(_line(number, text))

    assert _purge_while(tmp_path, append) > 0
    assert SECRET not in path.read_bytes()
    assert _numbers(path) == [0, *(n for n in range(1, 6_000) if n % 10)]


def test_a_purge_puts_back_no_older_file_than_the_one_that_a_plugin_has_just_written(
    tmp_path: Path,
) -> None:
    path, missing = _file(tmp_path), list[int]()

    def write_as_plugins_do() -> None:
        for number in range(2_000):
            new = path.with_name("s.jsonl.new")
            new.write_text(_line(0, SECRET.decode()) + _line(number + 1))
            new.replace(path)
            for _ in range(3):  # the hook reads it
                if _numbers(path)[-1:] != [number + 1]:
                    missing.append(number)

    assert _purge_while(tmp_path, write_as_plugins_do) > 0
    assert missing == []
    assert SECRET not in path.read_bytes()


def test_a_transcript_is_recognised_and_read_on_after_a_purge(tmp_path: Path) -> None:
    path = _file(tmp_path)
    path.write_text(_line(0, SECRET.decode()) + _line(1) + _line(2, SECRET.decode()))
    before = path.stat()
    assert list(outside._clean_transcripts(tmp_path, [SECRET])) == ["transcripts/opencode/s.jsonl"]
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    assert client_of(path) == "opencode"
    assert _numbers(path) == [1]
    assert list(outside._clean_transcripts(tmp_path, [SECRET])) == []


def test_a_text_that_overwritten_lines_hold_too_is_not_overwritten_for_ever(tmp_path: Path) -> None:
    path = _file(tmp_path)
    path.write_text(_line(0) + '{"id": "opencode"}\n')
    assert list(outside._clean_transcripts(tmp_path, [b"opencode"])) != []
    assert list(outside._clean_transcripts(tmp_path, [b"opencode"])) == []
    assert _numbers(path) == []


@pytest.mark.parametrize("at", [0, outside.CHUNK - 5, 3 * outside.CHUNK - len(SECRET), 64 << 20])
def test_a_large_file_is_searched_in_pieces(tmp_path: Path, at: int) -> None:
    path = tmp_path / "backup"
    with path.open("wb") as stream:
        stream.truncate(64 << 20)
        stream.seek(at)
        stream.write(SECRET)
    tracemalloc.start()
    found = outside._files_holding(tmp_path, "default", {SECRET, b"not in there"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == ["backup"]
    assert peak < 8 << 20
    assert outside._files_holding(tmp_path, "default", {b"not in there"}) == []
