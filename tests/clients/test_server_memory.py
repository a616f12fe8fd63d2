"""The graph of the real server-memory is imported, and it reads what we export."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from clients import programs
from commonplace import Commonplace
from commonplace.importers import exporting, registry, storing
from commonplace.platform import lookup


def called(file: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What the server answers to these calls, with its graph in a file."""
    server = programs.package("@modelcontextprotocol/server-memory", "dist/index.js")
    how = StdioServerParameters(
        command=programs.node(), args=[server], env={"MEMORY_FILE_PATH": str(file)}
    )

    async def run() -> list[Any]:
        async with Client(how) as client:
            return [(await client.call_tool(name, given)).structured_content
                    for name, given in calls]  # fmt: skip

    return asyncio.run(run())


def test_a_graph_comes_over_and_goes_back(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    entities = [
        {"name": "Ana", "entityType": "person", "observations": ["Runs", "Ünïcode 🙂"]},
        {"name": "Acme", "entityType": "company", "observations": ["Makes anvils"]},
    ]
    relation = {"from": "Ana", "to": "Acme", "relationType": "works at"}
    called(file, ("create_entities", {"entities": entities}),
           ("create_relations", {"relations": [relation]}))  # fmt: skip
    assert registry.detect_format(file) == "server-memory"
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        report = registry.run_import(memory, file, "server-memory", origin=storing.import_origin())
        assert (report.added, report.links) == (2, 1)
        texts = {one.title: one.text for one in lookup.all_memories(memory)}
        assert texts == {"Ana": "Runs\nÜnïcode 🙂", "Acme": "Makes anvils"}
        ((_, text),) = exporting.export_files("server-memory", exporting.collect_export(memory))
    exported = tmp_path / "exported"
    exported.write_text(text)
    (graph,) = called(exported, ("read_graph", {}))
    assert graph["relations"] == [relation]
    shown = {each["name"]: each["observations"] for each in graph["entities"]}
    assert shown == {"Ana": ["Runs", "Ünïcode 🙂"], "Acme": ["Makes anvils"]}
