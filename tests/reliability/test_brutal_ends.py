"""Sessions that are killed lose no line: after the next start each is stored, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.platform import hooks

WORKER = Path(__file__).with_name("session_worker.py")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory if there is one: these processes are killed, not the machine."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as made:
        yield Path(made)


def _run(data: Path, work: Path, sessions: int, seed: int, mutant: str = "") -> int:
    """Run sessions in processes that die by chance; return how many processes that took."""
    first = started = 0
    work.mkdir()
    while first < sessions:
        words = [str(data), str(work), str(first), str(sessions - first), str(seed)]
        subprocess.run(
            [sys.executable, str(WORKER), *words, *([mutant] if mutant else [])],
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        started += 1
        first = _at(work) + 1
        for file in work.glob("*.jsonl"):  # these sessions are long over
            os.utime(file, (1_700_000_000, 1_700_000_000))
    return started


def _at(work: Path) -> int:
    try:
        return int((work / "at").read_text() or -1)
    except (FileNotFoundError, ValueError):
        return -1


def _lost_and_double(data: Path, work: Path) -> tuple[set[str], set[str]]:
    """Start a session, and compare what the transcripts hold with what is stored."""
    said: Counter[str] = Counter()
    for file in work.glob("*.jsonl"):
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                said[json.loads(line)["message"]["content"]] += 1
    with Commonplace(data, embedding="none") as memory:
        hooks.handle_spooled_events(data, memory.at)
        hooks.handle_event(memory, {"event": "SessionStart", "cwd": str(work), "session": "last"})
        stored: Counter[str] = Counter()
        offset, total = 0, 1
        while offset < total:
            page, total = memory.browse(kinds=["message"], limit=1000, offset=offset)
            stored.update(each.text for each in page)
            offset += 1000
    return set(said - stored), set(stored - said)


def test_no_line_of_a_killed_session_is_lost_or_stored_twice(folder: Path) -> None:
    data, work = folder / "data", folder / "work"
    assert _run(data, work, sessions=500, seed=7) >= 10
    assert len(list(work.glob("*.jsonl"))) >= 450
    assert _lost_and_double(data, work) == (set(), set())


@pytest.mark.soak
def test_ten_thousand_sessions_that_end_brutally(folder: Path) -> None:
    data, work = folder / "data", folder / "work"
    assert _run(data, work, sessions=10_000, seed=8) >= 200
    assert _lost_and_double(data, work) == (set(), set())


@pytest.mark.parametrize("mutant", ["note first", "no note"])
def test_the_harness_notices_lost_lines(folder: Path, mutant: str) -> None:
    data, work = folder / "data", folder / "work"
    _run(data, work, sessions=12, seed=1, mutant=mutant)
    assert _lost_and_double(data, work)[0]
