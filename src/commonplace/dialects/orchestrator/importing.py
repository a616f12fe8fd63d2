"""Import a MemPalace: its Chroma store with its knowledge graph, or its export.

Every drawer keeps its id, so that a second import, or one after a crash, adds missing drawers only.
The source is read piece by piece and is never changed.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commonplace.dialects.orchestrator import drawers
from commonplace.dialects.orchestrator.classifier import classify
from commonplace.dialects.orchestrator.knowledge import id_of_source
from commonplace.engine import checks
from commonplace.engine.content.facts import name_key
from commonplace.engine.content.memories import Draft
from commonplace.engine.history.timeline import IMPORT, LABEL_PREFIX
from commonplace.engine.model import microseconds, moment
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.storage.database import new_id
from commonplace.storage.sqlite import foreign

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Fact, Origin

CHROMA, GRAPH, IDENTITY = "chroma.sqlite3", "knowledge_graph.sqlite3", "identity.txt"
COLLECTION = "mempalace_drawers"
DOCUMENT = "chroma:document"
BATCH = 200
_VALUES = ("string_value", "int_value", "float_value", "bool_value")
_CHROMA_TABLES = {
    "collections": ("id", "name"),
    "segments": ("id", "collection"),
    "embeddings": ("id", "segment_id", "embedding_id"),
    "embedding_metadata": ("id", "key", *_VALUES),
}
_GRAPH_TABLES = {
    "entities": ("id", "name"),
    "triples": (
        "id", "subject", "predicate", "object", "valid_from", "valid_to", "confidence",
        "source_closet", "source_file",
    ),
}  # fmt: skip
_SECTION = re.compile(
    r"^## (?P<id>\S.*)\n\n(?P<quote>> .*(?:\n>.*)*)\n\n\| Field \| Value \|\n\|-+\|-+\|\n"
    r"\| Source \| (?P<source>.*) \|\n\| Filed \| (?P<filed>.*) \|\n"
    r"\| Added by \| (?P<added_by>.*) \|\n\n---$",
    re.MULTILINE,
)
_HEADING = re.compile(r"# (?P<wing>.*) / (?P<room>.*)")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FoundDrawer:
    """A drawer of the source, with its metadata."""

    id: str
    content: str
    about: Mapping[str, Any]


@dataclass
class Counts:
    """The numbers of found, added and unchanged rows, and the reasons for skipped rows."""

    found: int = 0
    added: int = 0
    unchanged: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass
class Report:
    """The result of an import."""

    drawers: Counts = field(default_factory=Counts)
    triples: Counts = field(default_factory=Counts)
    identity: bool = False


def import_palace(
    memory: Commonplace,
    source: Path,
    progress: Progress | None = None,
    origin: Origin | None = None,
) -> Report:
    """Import the directory of a MemPalace, its Chroma file, or its export.

    Each batch is one transaction, so that other callers can write between batches and a crash loses
    one batch only. Undo reverts all batches of an import together.
    """
    home = source if source.is_dir() else source.parent
    chroma = home / CHROMA if source.is_dir() else source
    graph = home / GRAPH
    with contextlib.ExitStack() as stack:
        drawers_found, triples_found = 0, 0
        filed: Iterator[FoundDrawer] = iter(())
        triples: Iterator[dict[str, Any]] = iter(())
        if chroma.is_file():
            copy = stack.enter_context(foreign.open_copy(chroma, _CHROMA_TABLES))
            segments = _drawer_segments(copy, chroma)
            rows = copy.rows("embeddings", ("segment_id",))
            drawers_found = sum(row["segment_id"] in segments for row in rows)
            filed = chroma_drawers(copy, segments)
        elif source.is_dir() and (source / "index.md").is_file():
            drawers_found = sum(1 for _ in exported_drawers(source))
            filed = exported_drawers(source)
        elif not graph.is_file():
            raise NotFound(
                f"There is no MemPalace in {source}.",
                hint=f"Give the directory that has {CHROMA}, or one that 'mempalace export' wrote.",
            )
        if graph.is_file():
            copy = stack.enter_context(foreign.open_copy(graph, _GRAPH_TABLES))
            triples_found = sum(1 for _ in copy.rows("triples", ("id",)))
            triples = graph_triples(copy)
        run = _Import(memory, progress, drawers_found + triples_found, origin)
        report = Report()
        run.store(filed, report.drawers, run.store_drawers)
        run.store(triples, report.triples, run.store_triples)
        report.identity = run.store_identity(home / IDENTITY)
    return report


SourceRow = TypeVar("SourceRow")


def _drawer_segments(copy: foreign.Copy, file: Path) -> set[Any]:
    """Return the ids of the segments of a Chroma store that hold drawers."""
    collections = list(copy.rows("collections", _CHROMA_TABLES["collections"]))
    if not collections and next(copy.rows("embeddings", ("id",)), None) is None:
        raise InvalidInput(f"{file} is not a Chroma store.", hint=f"Give the {CHROMA} of a palace.")
    wanted = {row["id"] for row in collections if row["name"] == COLLECTION}
    rows = copy.rows("segments", _CHROMA_TABLES["segments"])
    return {row["id"] for row in rows if row["collection"] in wanted}


def chroma_drawers(copy: foreign.Copy, segments: Container[Any]) -> Iterator[FoundDrawer]:
    """Yield the drawers of a Chroma store, in the order in which they were filed."""
    metadata = itertools.groupby(
        copy.rows("embedding_metadata", _CHROMA_TABLES["embedding_metadata"], "id"),
        key=lambda row: row["id"],
    )
    at, rows = next(metadata, (None, iter(())))
    for drawer in copy.rows("embeddings", _CHROMA_TABLES["embeddings"], "id"):
        while at is not None and at < drawer["id"]:  # both queries are sorted by id
            at, rows = next(metadata, (None, iter(())))
        if drawer["segment_id"] not in segments:
            continue
        about = {row["key"]: _metadata_value(row) for row in rows} if at == drawer["id"] else {}
        yield FoundDrawer(drawer["embedding_id"], str(about.pop(DOCUMENT, "") or ""), about)


def _metadata_value(row: Mapping[str, Any]) -> Any:
    values = (row.get(name) for name in _VALUES)
    return next((value for value in values if value is not None), None)


def exported_drawers(folder: Path) -> Iterator[FoundDrawer]:
    """Yield the drawers of an export: a Markdown file for each room, in a folder for each wing."""
    for file in sorted(folder.glob("*/*.md")):
        text = file.read_text(encoding="utf-8")
        heading = _HEADING.match(text)
        wing, room = (
            (heading["wing"], heading["room"]) if heading else (file.parent.name, file.stem)
        )
        for section in _SECTION.finditer(text):
            lines = section["quote"].split("\n")
            content = "\n".join(line.removeprefix("> ").removeprefix(">") for line in lines)
            about = {"source_file": section["source"], "filed_at": section["filed"],
                     "added_by": section["added_by"]}  # fmt: skip
            known = {name: value for name, value in about.items() if value != "unknown"}
            yield FoundDrawer(section["id"], content, {"wing": wing, "room": room, **known})


def graph_triples(copy: foreign.Copy) -> Iterator[dict[str, Any]]:
    """Yield the triples of a knowledge graph, with the names of their entities."""
    entities = copy.rows("entities", _GRAPH_TABLES["entities"])
    names = {row["id"]: row["name"] for row in entities}
    for row in copy.rows("triples", _GRAPH_TABLES["triples"]):
        yield {**row, "subject": names.get(row["subject"], row["subject"]),
               "object": names.get(row["object"], row["object"])}  # fmt: skip


def palace_drawers(source: Path) -> Iterator[FoundDrawer]:
    """Yield the drawers of a MemPalace, from its Chroma file or its export."""
    chroma = source / CHROMA if source.is_dir() else source
    if not chroma.is_file():
        yield from exported_drawers(source)
        return
    with foreign.open_copy(chroma, _CHROMA_TABLES) as copy:
        yield from chroma_drawers(copy, _drawer_segments(copy, chroma))


class _Import:
    """One import; its batches share a label."""

    def __init__(
        self, memory: Commonplace, progress: Progress | None, total: int, origin: Origin | None
    ) -> None:
        self._memory = memory
        self._progress = progress
        self._total = total
        self._done = 0
        self._origin = origin or replace(memory.origin, label=LABEL_PREFIX + new_id())

    def _unit(self) -> contextlib.AbstractContextManager[None]:
        return self._memory.unit(IMPORT, self._origin)

    def store(
        self,
        rows: Iterator[SourceRow],
        counts: Counts,
        store_batch: Callable[[list[SourceRow], Counts], None],
    ) -> None:
        """Store all rows in batches."""
        while batch := list(itertools.islice(rows, BATCH)):
            counts.found += len(batch)
            store_batch(batch, counts)
            self._done += len(batch)
            if self._progress is not None:
                self._progress(self._done, self._total)

    def store_drawers(self, batch: list[FoundDrawer], counts: Counts) -> None:
        """Store the drawers of a batch that are missing."""
        drafts: dict[str, Draft] = {}
        for each in batch:
            if not each.content.strip():
                counts.left_out.append(f"{each.id}: the text is empty")
            elif each.id in drafts:
                counts.unchanged += 1
            else:
                drafts[each.id] = _drawer_draft(each)
        with self._unit():
            try:
                added, stored = self._store_missing(drafts), len(drafts)
            except InvalidInput:  # the others of the batch can be stored
                added = stored = 0
                for id, draft in drafts.items():
                    try:
                        added += self._store_missing({id: draft})
                        stored += 1
                    except InvalidInput as error:
                        counts.left_out.append(f"{id}: {error.message}")
        counts.added += added
        counts.unchanged += stored - added

    def _store_missing(self, drafts: Mapping[str, Draft]) -> int:
        """Store the drawers that are missing, and return their number."""
        new = [
            draft for id, draft in drafts.items() if lookup.find_memory(self._memory, id) is None
        ]
        self._memory.remember_many(new)
        return len(new)

    def store_triples(self, batch: list[dict[str, Any]], counts: Counts) -> None:
        """Store the triples of a batch that are missing."""
        with self._unit():
            for triple in batch:
                try:
                    _store_triple(self._memory, triple, counts)
                except InvalidInput as error:
                    counts.left_out.append(f"{triple['id']}: {error.message}")

    def store_identity(self, file: Path) -> bool:
        """Store the palace's identity unless the workspace has one; return whether it did so."""
        if not file.is_file() or drawers.workspace_identity(self._memory):
            return False
        text = file.read_text(encoding="utf-8", errors="replace").strip()[: drawers.IDENTITY_CHARS]
        if text:
            with self._unit():
                drawers.set_identity(self._memory, text)
        return bool(text)


def _drawer_draft(found: FoundDrawer) -> Draft:
    about = found.about
    wing, room = str(about.get("wing") or "unknown"), str(about.get("room") or "general")
    diary = about.get("type") == "diary_entry" or (room == drawers.DIARY and "agent" in about)
    sorts = classify(found.content) if not diary else []
    importance = _parse_number(about.get("importance"))
    if importance is None:
        importance = max(
            [
                drawers.NEW_IMPORTANCE,
                *(drawers.IMPORTANCE_SCALE * sort.confidence for sort in sorts),
            ]
        )
    hall = about.get("topic") if diary else about.get("hall")
    attrs = {
        "wing": wing,
        "room": room,
        "hall": str(hall or ""),
        "memory_type": drawers.DIARY if diary else sorts[0].memory_type if sorts else "general",
        "source_file": str(about.get("source_file") or ""),
        "added_by": str(about.get("added_by") or about.get("agent") or ""),
        "mempalace": {name: value for name, value in about.items() if value is not None},
    }
    return Draft(
        text=found.content,
        kind=drawers.DIARY if diary else drawers.DRAWER,
        ref=found.id,
        tags=drawers.address_tags(wing, room),
        importance=min(1.0, max(0.0, importance / drawers.IMPORTANCE_SCALE)),
        trust="inferred",
        created_at=_parse_time(about.get("filed_at")),
        attrs={name: value for name, value in attrs.items() if value},
    )


def _parse_number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None


def _parse_time(value: Any) -> datetime | None:
    """Parse a date; return None if it is invalid."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        at = at.replace(tzinfo=UTC) if at.utcoffset() is None else at
        moment(microseconds(at))
    except (ValueError, OverflowError):
        return None
    return at


def _store_triple(memory: Commonplace, triple: Mapping[str, Any], counts: Counts) -> None:
    names = [str(triple[part] or "") for part in ("subject", "predicate", "object")]
    if not all(name.strip() for name in names):
        counts.left_out.append(f"{triple['id']}: subject, predicate or object is empty")
        return
    start, end = _parse_time(triple["valid_from"]), _parse_time(triple["valid_to"])
    if start is not None and end is not None and end < start:
        counts.left_out.append(f"{triple['id']}: the end is before the start")
        return
    subject, predicate, object_ = names
    known = memory.facts.query(subject, role="subject", predicate=predicate, limit=checks.MAX_LIMIT)
    if any(_is_same(fact, triple, object_, start, end) for fact in known):
        counts.unchanged += 1
        return
    closet = str(triple.get("source_closet") or "")
    confidence = _parse_number(triple.get("confidence"))
    memory.facts.add(
        subject, predicate, object_, valid_from=start, valid_to=end,
        confidence=min(1.0, max(0.0, 1.0 if confidence is None else confidence)),
        memory=id_of_source(memory, closet),
        attrs={"mempalace": triple["id"], **({"source_closet": closet} if closet else {})},
    )  # fmt: skip
    counts.added += 1


def _is_same(
    fact: Fact,
    triple: Mapping[str, Any],
    object_: str,
    start: datetime | None,
    end: datetime | None,
) -> bool:
    """Return whether a fact equals the triple, by its id or by its words and dates."""
    if fact.attrs.get("mempalace") == triple["id"]:
        return True
    same = name_key(fact.object) == name_key(object_) and fact.valid_to == end
    return same and (end is None or fact.valid_from == start)
