"""Beings on the command line, and over stdio."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from commonplace.access.vault import open_vault
from commonplace.cli.app import run
from commonplace.platform.llm_keys import LlmKeys
from commonplace.storage.system import open_system

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def command(tmp_path: Path, *words: str) -> int:
    return run([*words, "--data", str(tmp_path)])


def test_beings_are_made_listed_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "being", "create", "Aria") == 0
    being = capsys.readouterr().out.strip()
    assert command(tmp_path, "being", "create", "Brin", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Brin"
    assert command(tmp_path, "being", "list") == 0
    out = capsys.readouterr().out
    assert being in out and "Aria" in out and "Brin" in out
    assert command(tmp_path, "being", "delete", being) == 0
    capsys.readouterr()
    assert command(tmp_path, "being", "delete", being) == 3
    capsys.readouterr()
    assert command(tmp_path, "being", "list", "--json") == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["Brin"]
    assert command(tmp_path, "undo") == 0, "what was deleted can be had back"


def test_a_being_that_was_made_can_be_found_by_meaning_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "being", "create", "Aria") == 0
    capsys.readouterr()
    assert command(tmp_path, "doctor") == 0
    assert capsys.readouterr().out.splitlines()[0] == "default: healthy"


def test_a_being_needs_a_name(tmp_path: Path) -> None:
    assert command(tmp_path, "being", "create", " ") == 2
    assert command(tmp_path, "being", "create", "x" * 201) == 2


def test_the_key_is_read_from_standard_input_and_survives_a_new_master_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("sk-ant-secret-1234\n"))
    assert command(tmp_path, "being", "llm-key", "--model", "claude-x") == 0
    assert "secret" not in capsys.readouterr().out
    assert command(tmp_path, "token", "rotate-key", "--master") == 0
    store = open_system(tmp_path)
    held = LlmKeys(store, open_vault(store)).get("default")
    store.close()
    assert held is not None and (held.key, held.model) == ("sk-ant-secret-1234", "claude-x")
    assert "secret" not in repr(held)
    assert command(tmp_path, "being", "llm-key", "--forget", "--json") == 0


@pytest.mark.parametrize("key", ["", "short", "sk with blanks in it", "ключ-ключ-ключ"])
def test_what_is_no_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(key + "\n"))
    assert command(tmp_path, "being", "llm-key") == 2


async def over_stdio(tmp_path: Path, *words: str) -> dict[str, Any]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "commonplace.cli", "mcp", "--dialect", "being", "--embedding", "none",
              "--data", str(tmp_path), *words],
        env=dict(os.environ),
    )  # fmt: skip
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert len((await session.list_tools()).tools) == 11
        result = await session.call_tool("get_context", {})
        assert isinstance(result, types.CallToolResult)
        item = result.content[0]
        assert isinstance(item, types.TextContent)
        told: dict[str, Any] = json.loads(item.text)
        return told


async def test_over_stdio_the_only_being_answers_or_the_one_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path, "being", "create", "Aria")
    capsys.readouterr()
    assert (await over_stdio(tmp_path))["metadata"]["soul_name"] == "Aria"
    command(tmp_path, "being", "create", "Brin")
    brin = capsys.readouterr().out.strip()
    for name in (brin, brin[:8], "brin"):
        assert (await over_stdio(tmp_path, "--being", name))["metadata"]["soul_name"] == "Brin"


def test_over_stdio_a_being_must_be_named_if_there_are_several(
    tmp_path: Path,
) -> None:
    command(tmp_path, "being", "create", "Aria")
    command(tmp_path, "being", "create", "Brin")
    words = ["mcp", "--dialect", "being", "--embedding", "none", "--data", str(tmp_path)]
    for how in ([], ["--in-process"]):
        ended = subprocess.run(
            [sys.executable, "-m", "commonplace.cli", *words, *how], capture_output=True,
            stdin=subprocess.DEVNULL, timeout=120, text=True,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Say which one to use" in ended.stderr
