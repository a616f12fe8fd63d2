"""The memory provider for Hermes, found and used by Hermes's own loader and manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PLUGIN = "from commonplace.integrations.hermes import register_memory_provider as register\n"


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The provider as Hermes loads it from its home directory."""
    folder = tmp_path / "hermes" / "plugins" / "commonplace"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "hermes"))
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "data"))
    from plugins.memory import discover_memory_providers, load_memory_provider

    assert "commonplace" in [name for name, *_ in discover_memory_providers()]
    loaded = load_memory_provider("commonplace")
    assert loaded is not None and loaded.is_available()
    loaded.initialize("one", hermes_home=str(tmp_path / "hermes"), platform="cli")
    yield loaded
    loaded.shutdown()


def call(provider: Any, tool: str, **args: Any) -> Any:
    """The result of a tool call, read from its JSON."""
    return json.loads(provider.handle_tool_call(tool, args))


def test_a_turn_is_recalled_in_a_later_session(provider: Any, tmp_path: Path) -> None:
    from agent.memory_manager import MemoryManager

    manager = MemoryManager()
    manager.add_provider(provider)
    manager.sync_all("My sister Ana lives in Porto", "Good to know", session_id="one")
    manager.shutdown_all()
    provider.initialize("two", hermes_home=str(tmp_path), platform="cli")
    assert "Ana lives in Porto" in provider.prefetch("Where does Ana live?", session_id="two")
    assert "Ana lives in Porto" not in provider.prefetch("Where does Ana live?", session_id="one")
    assert provider.prefetch("  ") == ""


def test_a_turn_that_cannot_be_stored_keeps_no_later_turn_from_being_stored(
    provider: Any, tmp_path: Path
) -> None:
    provider.sync_turn("\ud800 zebras", "A lone surrogate is no text", session_id="one")
    provider.sync_turn("My sister Ana lives in Porto", "Good to know", session_id="one")
    provider.shutdown()
    provider.initialize("two", hermes_home=str(tmp_path), platform="cli")
    assert "Ana lives in Porto" in provider.prefetch("Where does Ana live?", session_id="two")


def test_the_tools_store_and_recall(provider: Any) -> None:
    names = {schema["name"] for schema in provider.get_tool_schemas()}
    assert names == {"commonplace_recall", "commonplace_remember"}
    stored = call(provider, "commonplace_remember", text="The build uses ninja", tags=["build"])
    found = call(provider, "commonplace_recall", query="what builds it: ninja?", limit=1)
    assert [each["id"] for each in found["memories"]] == [stored["id"]]
    assert "error" in call(provider, "commonplace_remember", text="")
    assert "error" in call(provider, "commonplace_recall", query="x", limit=0)
    assert "error" in call(provider, "other")


def test_an_agent_that_is_not_the_primary_one_only_reads(provider: Any, tmp_path: Path) -> None:
    provider.initialize("cron", hermes_home=str(tmp_path), platform="cron", agent_context="cron")
    provider.sync_turn("run the nightly job about zebras", "done")
    provider.on_memory_write("add", "memory", "zebras")
    assert "error" in call(provider, "commonplace_remember", text="zebras")
    assert not call(provider, "commonplace_recall", query="zebras")["memories"]


def test_what_hermes_remembers_itself_is_stored_too(provider: Any) -> None:
    provider.on_memory_write("add", "user", "Prefers metric units", {"session_id": "zero"})
    provider.on_memory_write("remove", "user", "Prefers imperial units")
    found = call(provider, "commonplace_recall", query="metric units")["memories"]
    assert [each["text"] for each in found] == ["Prefers metric units"]
