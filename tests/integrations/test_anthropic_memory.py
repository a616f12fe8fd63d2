"""Anthropic's memory tool: the SDK's own file-based tool and ours give the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

from commonplace import Commonplace
from commonplace.integrations.anthropic_memory import (
    AsyncCommonplaceMemoryTool,
    CommonplaceMemoryTool,
)

PATH = "/memories/notes.md"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


def answer(tool: Any, command: dict[str, Any]) -> str:
    """What a tool says to a command, also if that is an error."""
    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"error: {error}"


SESSION: list[dict[str, Any]] = [
    {"command": "create", "path": PATH, "file_text": "one\ntwo\nthree\nfour\nfive\nsix\n"},
    {"command": "create", "path": PATH, "file_text": "again"},
    {"command": "view", "path": PATH},
    {"command": "view", "path": PATH, "view_range": [2, 4]},
    {"command": "view", "path": PATH, "view_range": [3, -1]},
    {"command": "view", "path": "/memories/missing.md"},
    {"command": "str_replace", "path": PATH, "old_str": "three", "new_str": "3"},
    {"command": "str_replace", "path": PATH, "old_str": "absent", "new_str": "x"},
    {"command": "insert", "path": PATH, "insert_line": 0, "insert_text": "zero\n"},
    {"command": "insert", "path": PATH, "insert_line": 7, "insert_text": "seven"},
    {"command": "insert", "path": PATH, "insert_line": 99, "insert_text": "x"},
    {"command": "insert", "path": PATH, "insert_line": -1, "insert_text": "x"},
    {"command": "str_replace", "path": PATH, "old_str": "e", "new_str": "x"},
    {"command": "view", "path": PATH},
    {"command": "create", "path": "/memories/empty.txt", "file_text": ""},
    {"command": "view", "path": "/memories/empty.txt"},
    {"command": "insert", "path": "/memories/empty.txt", "insert_line": 0, "insert_text": "ok"},
    {"command": "view", "path": "/memories/empty.txt"},
    {"command": "create", "path": "/memories/a/b/c.md", "file_text": "деep 漢字"},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/z"},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/y"},
    {"command": "rename", "old_path": PATH, "new_path": "/memories/empty.txt"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/x"},
    {"command": "view", "path": "/memories/z/b/c.md"},
    {"command": "delete", "path": "/memories/z"},
    {"command": "delete", "path": "/memories/z"},
    {"command": "delete", "path": "/memories"},
    {"command": "create", "path": "/memories/z/b/c.md", "file_text": "anew"},
    {"command": "view", "path": "/memories/z/b/c.md"},
    {"command": "view", "path": "/elsewhere"},
    {"command": "view", "path": "/memories/../../etc/passwd"},
    {"command": "str_replace", "path": "/memories/z", "old_str": "a", "new_str": "b"},
    {"command": "insert", "path": "/memories/none", "insert_line": 0, "insert_text": "b"},
]


def test_every_answer_is_that_of_the_sdks_own_tool(memory: Commonplace, tmp_path: Path) -> None:
    theirs, ours = BetaLocalFilesystemMemoryTool(str(tmp_path)), CommonplaceMemoryTool(memory)
    for command in SESSION:
        assert answer(ours, command) == answer(theirs, command), command


def test_a_directory_lists_two_levels_without_hidden_files(memory: Commonplace) -> None:
    tool = CommonplaceMemoryTool(memory)
    for path in ("b.md", "a/one.md", "a/deep/two.md", ".hidden", "a/.secret/x"):
        tool.call({"command": "create", "path": f"/memories/{path}", "file_text": "x" * 512})
    assert tool.call({"command": "view", "path": "/memories"}).splitlines() == [
        "Here're the files and directories up to 2 levels deep in /memories,"
        " excluding hidden items:",
        "2.5K\t/memories",
        "1K\t/memories/a/",
        "512B\t/memories/a/deep/",
        "512B\t/memories/a/one.md",
        "512B\t/memories/b.md",
    ]


def test_what_the_tool_stores_is_recalled_and_can_be_undone(memory: Commonplace) -> None:
    tool = CommonplaceMemoryTool(memory)
    tool.call({"command": "create", "path": PATH, "file_text": "Alice prefers tea"})
    assert [hit.memory.title for hit in memory.recall("tea")] == [PATH]
    tool.call({"command": "str_replace", "path": PATH, "old_str": "tea", "new_str": "coffee"})
    memory.undo()
    assert "tea" in tool.call({"command": "view", "path": PATH})
    assert tool.clear_all_memory() == "All memory cleared"
    assert not memory.recall("tea")
    memory.undo()
    assert "tea" in tool.call({"command": "view", "path": PATH})


def test_a_file_cannot_hold_another(memory: Commonplace) -> None:
    tool = CommonplaceMemoryTool(memory)
    tool.call({"command": "create", "path": "/memories/a", "file_text": "x"})
    with pytest.raises(ToolError, match="is a file"):
        tool.call({"command": "create", "path": "/memories/a/b", "file_text": "x"})
    with pytest.raises(ToolError, match="450"):
        tool.call({"command": "create", "path": "/memories/" + "x" * 441, "file_text": "x"})
    tool.call({"command": "create", "path": "/memories/" + "x" * 440, "file_text": "x"})


def test_the_asynchronous_tool_does_the_same(memory: Commonplace) -> None:
    tool = AsyncCommonplaceMemoryTool(memory)

    async def session() -> list[str]:
        path = {"path": PATH}
        return [
            str(await tool.call(each))
            for each in (
                {"command": "create", "file_text": "one\n", **path},
                {"command": "insert", "insert_line": 1, "insert_text": "two", **path},
                {"command": "str_replace", "old_str": "one", "new_str": "1", **path},
                {"command": "view", **path},
                {"command": "rename", "old_path": PATH, "new_path": "/memories/b"},
                {"command": "delete", "path": "/memories/b"},
            )
        ]

    said = asyncio.run(session())
    assert said[3].splitlines()[1:] == ["     1\t1", "     2\ttwo", "     3\t"]
    assert said[5] == "Successfully deleted /memories/b"
