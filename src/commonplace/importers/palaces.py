"""Stores of MemPalace and MAMA, imported by our dialects, which keep rooms, chains and links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama import importing as mama
from commonplace.dialects.orchestrator import importing as mempalace
from commonplace.engine.history.timeline import IMPORT
from commonplace.engine.model import Origin
from commonplace.importers.databases import first_with_tables, has_tables
from commonplace.importers.items import Item
from commonplace.importers.storing import Imported
from commonplace.platform.exclusive import exclusive
from commonplace.storage.sqlite import foreign
from commonplace.transcripts.record import text_of

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

Progress = Callable[[int, int], None]


class MemPalace:
    """MemPalace: drawers, diaries and the knowledge graph."""

    NAME = "mempalace"
    TITLE = "MemPalace"

    def recognises(self, path: Path) -> bool:
        """Return whether a path is a palace's directory, its Chroma file, or its Markdown
        export."""
        chroma = path / mempalace.CHROMA if path.is_dir() else path
        if has_tables(chroma, "collections", "segments", "embeddings", "embedding_metadata"):
            return True
        exported = path.is_dir() and (path / "index.md").is_file()
        return exported and next(mempalace.exported_drawers(path), None) is not None

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the drawers, for a dry run."""
        for found in mempalace.palace_drawers(path):
            if found.content.strip():
                tags = [str(found.about[name]) for name in ("wing", "room") if name in found.about]
                yield Item(key=found.id, text=found.content, tags=tags)

    def store(
        self, memory: Commonplace, path: Path, origin: Origin, progress: Progress | None
    ) -> Imported:
        """Import the palace with the importer of the orchestrator's dialect."""
        done = mempalace.import_palace(memory, path, progress, origin)
        report = Imported(self.NAME)
        for counts in (done.drawers, done.triples):
            report.found += counts.found
            report.added += counts.added
            report.unchanged += counts.unchanged
            for why in counts.left_out:
                report.add_problem(why)
        return report


class Mama:
    """MAMA: chains of decisions, their edges, and checkpoints."""

    NAME = "mama"
    TITLE = "MAMA"

    def recognises(self, path: Path) -> bool:
        """Return whether a path is MAMA's database, or a directory with it."""
        return self._find_database(path) is not None

    def _find_database(self, path: Path) -> Path | None:
        return first_with_tables(path, ("mama-memory.db",), "decisions", "checkpoints")

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the decisions and checkpoints, for a dry run."""
        for row in self._rows(path):
            text = text_of(row.get("decision")) or text_of(row.get("summary"))
            if text.strip():
                yield Item(key=str(row.get("id")), text=text, title=text_of(row.get("topic")))

    def _rows(self, path: Path) -> Iterator[dict[str, Any]]:
        file = self._find_database(path)
        if file is not None:
            found = foreign.read_tables(file, mama.TABLES)
            yield from found["decisions"]
            yield from found["checkpoints"]

    def store(
        self, memory: Commonplace, path: Path, origin: Origin, progress: Progress | None
    ) -> Imported:
        """Import the database with the importer of MAMA's dialect, in one operation."""
        file = self._find_database(path)
        assert file is not None
        report = Imported(self.NAME, found=sum(1 for _ in self.items(path)))
        with exclusive(memory, IMPORT, origin):
            done = mama.import_database(memory, file, again=True)
        report.added, report.links = done.decisions + done.checkpoints, done.links
        report.skipped = done.skipped
        report.unchanged = max(0, report.found - report.added - report.skipped)
        if progress is not None:
            progress(report.found, report.found)
        return report


MEMPALACE = MemPalace()
MAMA = Mama()
