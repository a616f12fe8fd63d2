"""Thousands of sessions come over line by line, once, and one undo takes all of them back."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run as run_command
from reliability.progress import report_progress

WORDS = ["gateway", "table", "parser", "deploy", "friday", "logo", "tests", "cache", "schema",
         "branch", "review", "token", "budget", "queue", "worker", "socket", "cursor"]  # fmt: skip


def write_histories(home: Path, sessions: int, seed: int) -> dict[str, list[str]]:
    """Write sessions of Claude Code and Codex; return what was said in each, without noise."""
    rng = random.Random(seed)
    said: dict[str, list[str]] = {}
    for number in range(sessions):
        lines = [
            f"{number}.{line} {' '.join(rng.choices(WORDS, k=rng.randrange(3, 30)))}"
            for line in range(rng.randrange(1, 12))
        ]
        write = _claude if number % 2 else _codex
        path, records, name = write(home, number, lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(record) + "\n" for record in records)
        if rng.random() < 0.2:  # the client was killed while it wrote
            text += json.dumps(records[-1])[: rng.randrange(1, 60)]
        path.write_text(text)
        said[name] = lines
    return said


def _claude(home: Path, number: int, lines: list[str]) -> tuple[Path, list[Any], str]:
    def record(index: int, text: str, **more: Any) -> dict[str, Any]:
        role = "assistant" if index % 2 else "user"
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"type": role, "uuid": f"{number}-{index}", "sessionId": f"s{number}",
                "timestamp": "2026-03-01T10:00:00Z", "cwd": f"/w/p{number % 7}",
                "message": message, **more}  # fmt: skip

    noise = [record(100, "<command-name>/clear</command-name>"), record(101, "x", isMeta=True),
             record(102, "x", isSidechain=True), {"type": "summary", "summary": "x"}]  # fmt: skip
    records = [*noise, *(record(index, text) for index, text in enumerate(lines))]
    path = home / ".claude" / "projects" / f"-w-p{number % 7}" / f"s{number}.jsonl"
    return path, records, f"claude-code:s{number}"


def _codex(home: Path, number: int, lines: list[str]) -> tuple[Path, list[Any], str]:
    def record(index: int, role: str, text: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text}]
        return {"timestamp": f"2026-03-01T10:00:{index:02}Z", "type": "response_item",
                "payload": {"type": "message", "role": role, "content": content}}  # fmt: skip

    meta = {"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta",
            "payload": {"id": f"c{number}", "cwd": f"/w/p{number % 7}"}}  # fmt: skip
    noise = [record(0, "developer", "x"), record(0, "user", "<environment_context>x")]
    spoken = [record(i, "assistant" if i % 2 else "user", text) for i, text in enumerate(lines)]
    day = home / ".codex" / "sessions" / "2026" / "03" / f"{number % 28 + 1:02}"
    return day / f"rollout-{number}.jsonl", [meta, *noise, *spoken], f"codex:c{number}"


def stored(data: Path, said: dict[str, list[str]]) -> dict[str, list[str]]:
    with Commonplace(data, embedding="none") as memory:
        assert dict(memory.conversations.names()) == Counter(
            {name: len(lines) for name, lines in said.items()}
        )
        found = {}
        for number, name in enumerate(said):
            report_progress(number, len(said), "conversations compared")
            found[name] = [one.memory.text for one in memory.conversations.history(name)]
        return found


def come_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int, seed: int) -> int:
    """Start, compare every line, start again, undo, and start once more."""
    home, data = tmp_path / "home", tmp_path / "data"
    said = write_histories(home, sessions, seed)
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    start = ["start", "--yes", "--only", "claude-code", "--only", "codex", "--data", str(data)]
    assert run_command(start) == 0
    assert stored(data, said) == said
    assert run_command(start) == 0
    assert stored(data, said) == said
    with Commonplace(data, embedding="none") as memory:
        memory.undo()
        assert memory.browse(limit=1)[1] == 0 and memory.conversations.names() == []
    assert run_command(start) == 0
    assert stored(data, said) == said
    return sum(map(len, said.values()))


def test_every_line_of_many_sessions_comes_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: Callable[[str], None]
) -> None:
    lines = come_over(tmp_path, monkeypatch, sessions=120, seed=1)
    publish(f"120 sessions, {lines:,} lines")


@pytest.mark.soak
def test_every_line_of_two_thousand_sessions_comes_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: Callable[[str], None]
) -> None:
    lines = come_over(tmp_path, monkeypatch, sessions=2_000, seed=2)
    publish(f"2,000 sessions, {lines:,} lines, seed 2")
