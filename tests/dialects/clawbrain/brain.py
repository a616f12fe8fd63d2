"""A ClawBrain server in this process, with a real store and a real directory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from commonplace import Commonplace
from commonplace.access.caller import Caller
from commonplace.dialects import registry
from commonplace.dialects.clawbrain import file_sync
from commonplace.dialects.clawbrain.dialect import DIALECT
from commonplace.dialects.contract import RequestInfo, Setting
from commonplace.engine.library import Library
from commonplace.server.gate import Gate
from commonplace.storage.system import open_system


class Refused(Exception):
    """The tool answered with isError."""


class Brain:
    """Calls go through the gate, as they do from a client."""

    def __init__(self, gate: Gate, library: Library, files: Path) -> None:
        self.gate = gate
        self.library = library
        self.files = files
        self.memory = Commonplace(library=library)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        text = self.text(tool, **arguments)
        return json.loads(text)

    def text(self, tool: str, /, **arguments: Any) -> str:
        own = "clawbrain" if DIALECT.tool(tool) else "commonplace"
        wire = self.gate.perform(Caller(), RequestInfo(), own, tool, arguments).wire
        text: str = wire["content"][0]["text"]
        if wire["isError"]:
            raise Refused(text)
        return text

    def store(self, name: str = "alice-chen", content: str = "# Alice", **more: Any) -> str:
        """A memory; its id."""
        kind = more.pop("type", "entity")
        if kind == "entity":
            more.setdefault("category", "people")
        stored = self.call("memory_store", type=kind, name=name, content=content, **more)
        return str(stored["id"])

    def file(self, path: str) -> Path:
        return self.files / path

    def paths(self) -> list[str]:
        """Every file of a memory, the archive included."""
        found = (path for path in self.files.rglob("*.md") if path.is_file())
        names = sorted(path.relative_to(self.files).as_posix() for path in found)
        return [name for name in names if "/" in name]

    def sync(self) -> None:
        """Sync now, as the watching thread does."""
        file_sync._running_syncs[self.library].space_files("default").mirror.sync()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the watching thread from syncing meanwhile."""
        with file_sync._running_syncs[self.library].space_files("default").mirror.lock:
            yield

    @property
    def problems(self) -> dict[str, str]:
        kept = file_sync._running_syncs[self.library].space_files("default")
        return {path: why for path, (_, why) in kept.mirror.problems.items()}


@contextlib.contextmanager
def opened(
    data: Path, files: Path | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Brain]:
    """A server while the block runs."""
    directory = files or data / "clawbrain" / "default"
    around = {"MEMORY_DIR": str(files)} if files else {}
    with (
        contextlib.closing(Library(data, embedder=None)) as library,
        contextlib.closing(open_system(data)) as system,
    ):
        gate = Gate(library, system, [DIALECT, registry.load("commonplace")])
        setting = Setting(
            library=library, system=system, space="default", environ={**around, **(environ or {})}
        )
        with file_sync.background_work(setting):
            yield Brain(gate, library, directory)
