"""A MemPalace brought over: its Chroma store with its knowledge graph, or its export.

Every drawer keeps its id, so that a second import adds nothing. The source is only read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.dialects.orchestrator import drawers
from commonplace.dialects.orchestrator.classifier import classify
from commonplace.engine import checks
from commonplace.engine.facts import key
from commonplace.engine.memories import Draft
from commonplace.engine.model import microseconds
from commonplace.errors import InvalidInput, NotFound
from commonplace.storage import foreign

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Fact

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
class Found:
    """A drawer of the source."""

    id: str
    content: str
    about: Mapping[str, Any]


@dataclass
class Counts:
    """How many there were, and what came of them."""

    found: int = 0
    added: int = 0
    unchanged: int = 0
    left_out: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For a script."""
        return {
            "found": self.found,
            "added": self.added,
            "unchanged": self.unchanged,
            "left_out": list(self.left_out),
        }


@dataclass
class Report:
    """What an import did."""

    drawers: Counts = field(default_factory=Counts)
    triples: Counts = field(default_factory=Counts)
    identity: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For a script."""
        return {
            "drawers": self.drawers.as_dict(),
            "triples": self.triples.as_dict(),
            "identity": self.identity,
        }


def bring(memory: Commonplace, source: Path, progress: Progress | None = None) -> Report:
    """Import all that is in a MemPalace's directory, its Chroma file, or its export."""
    report = Report()
    tell = progress or (lambda _done, _total: None)
    home = source if source.is_dir() else source.parent
    chroma = home / CHROMA if source.is_dir() else source
    if chroma.is_file():
        found = chroma_drawers(chroma)
    elif source.is_dir() and (source / "index.md").is_file():
        found = list(exported_drawers(source))
    elif not (home / GRAPH).is_file():
        raise NotFound(
            f"There is no MemPalace in {source}.",
            hint=f"Give the directory that has {CHROMA}, or one that 'mempalace export' wrote.",
        )
    else:
        found = []
    triples = graph_triples(home / GRAPH) if (home / GRAPH).is_file() else []
    total = len(found) + len(triples)
    _bring_drawers(memory, found, report.drawers, lambda done: tell(done, total))
    _bring_triples(memory, triples, report.triples, lambda done: tell(len(found) + done, total))
    report.identity = _bring_identity(memory, home / IDENTITY)
    return report


def chroma_drawers(file: Path) -> list[Found]:
    """The drawers of a Chroma store, in the order in which they were filed."""
    tables = foreign.read(file, _CHROMA_TABLES)
    if not tables["embeddings"] and not tables["collections"]:
        raise InvalidInput(f"{file} is not a Chroma store.", hint=f"Give the {CHROMA} of a palace.")
    wanted = {row["id"] for row in tables["collections"] if row["name"] == COLLECTION}
    segments = {row["id"] for row in tables["segments"] if row["collection"] in wanted}
    about: dict[int, dict[str, Any]] = {
        row["id"]: {} for row in tables["embeddings"] if row["segment_id"] in segments
    }
    for row in tables["embedding_metadata"]:
        if row["id"] in about:
            values = (row.get(name) for name in _VALUES)
            about[row["id"]][row["key"]] = next((v for v in values if v is not None), None)
    return [
        Found(row["embedding_id"], str(told.pop(DOCUMENT, "") or ""), told)
        for row in tables["embeddings"]
        if (told := about.get(row["id"])) is not None
    ]


def exported_drawers(folder: Path) -> Iterator[Found]:
    """The drawers of an export: one Markdown file a room, in a folder for each wing."""
    for file in sorted(folder.glob("*/*.md")):
        text = file.read_text(encoding="utf-8")
        heading = _HEADING.match(text)
        wing, room = (
            (heading["wing"], heading["room"]) if heading else (file.parent.name, file.stem)
        )
        for section in _SECTION.finditer(text):
            lines = section["quote"].split("\n")
            content = "\n".join(line.removeprefix("> ").removeprefix(">") for line in lines)
            told = {"source_file": section["source"], "filed_at": section["filed"],
                    "added_by": section["added_by"]}  # fmt: skip
            known = {name: value for name, value in told.items() if value != "unknown"}
            yield Found(section["id"], content, {"wing": wing, "room": room, **known})


def graph_triples(file: Path) -> list[dict[str, Any]]:
    """The triples of a knowledge graph, with the names of what they join."""
    tables = foreign.read(file, _GRAPH_TABLES)
    names = {row["id"]: row["name"] for row in tables["entities"]}
    return [
        {**row, "subject": names.get(row["subject"], row["subject"]),
         "object": names.get(row["object"], row["object"])}
        for row in tables["triples"]
    ]  # fmt: skip


def _bring_drawers(
    memory: Commonplace, found: list[Found], counts: Counts, tell: Callable[[int], None]
) -> None:
    counts.found = len(found)
    for first in range(0, len(found), BATCH):
        with memory.unit("import mempalace"):
            new: dict[str, Draft] = {}
            for each in found[first : first + BATCH]:
                if not each.content.strip():
                    counts.left_out.append(f"{each.id}: it is empty")
                elif each.id in new or drawers.named(memory, each.id) is not None:
                    counts.unchanged += 1
                else:
                    new[each.id] = _draft(each)
            memory.remember_many(list(new.values()))
        counts.added += len(new)
        tell(min(first + BATCH, len(found)))


def _draft(found: Found) -> Draft:
    about = found.about
    wing, room = str(about.get("wing") or "unknown"), str(about.get("room") or "general")
    diary = about.get("type") == "diary_entry" or (room == drawers.DIARY and "agent" in about)
    sorts = classify(found.content) if not diary else []
    importance = _number(about.get("importance"))
    if importance is None:
        importance = max([drawers.USUAL, *(drawers.SCALE * sort.confidence for sort in sorts)])
    hall = about.get("topic") if diary else about.get("hall")
    told = {
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
        importance=min(1.0, max(0.0, importance / drawers.SCALE)),
        trust="inferred",
        created_at=_moment(about.get("filed_at")),
        attrs={name: value for name, value in told.items() if value},
    )


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None


def _moment(value: Any) -> datetime | None:
    """A date as it was written; one that nobody can read is left out."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        at = at.replace(tzinfo=UTC) if at.utcoffset() is None else at
        microseconds(at)
    except (ValueError, OverflowError):
        return None
    return at


def _bring_triples(
    memory: Commonplace, found: list[dict[str, Any]], counts: Counts, tell: Callable[[int], None]
) -> None:
    counts.found = len(found)
    for first in range(0, len(found), BATCH):
        with memory.unit("import mempalace"):
            for triple in found[first : first + BATCH]:
                _bring_triple(memory, triple, counts)
        tell(min(first + BATCH, len(found)))


def _bring_triple(memory: Commonplace, triple: Mapping[str, Any], counts: Counts) -> None:
    names = [str(triple[part] or "") for part in ("subject", "predicate", "object")]
    if not all(name.strip() for name in names):
        counts.left_out.append(f"{triple['id']}: a part of it is empty")
        return
    start, end = _moment(triple["valid_from"]), _moment(triple["valid_to"])
    if start is not None and end is not None and end < start:
        counts.left_out.append(f"{triple['id']}: it ends before it begins")
        return
    subject, predicate, object_ = names
    known = memory.facts.query(subject, role="subject", predicate=predicate, limit=checks.LIMIT)
    if any(_is_same(fact, triple, object_, start, end) for fact in known):
        counts.unchanged += 1
        return
    closet = str(triple.get("source_closet") or "")
    source = drawers.named(memory, closet) if closet else None
    confidence = _number(triple.get("confidence"))
    memory.facts.add(
        subject, predicate, object_, valid_from=start, valid_to=end,
        confidence=min(1.0, max(0.0, 1.0 if confidence is None else confidence)),
        memory=source.id if source else None,
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
    """Whether a fact is the triple: imported before, or said here in the same words."""
    if fact.attrs.get("mempalace") == triple["id"]:
        return True
    same = key(fact.object) == key(object_) and fact.valid_to == end
    return same and (end is None or fact.valid_from == start)


def _bring_identity(memory: Commonplace, file: Path) -> bool:
    """Who the palace is, unless the workspace says so already."""
    if not file.is_file() or drawers.identity_of(memory):
        return False
    text = file.read_text(encoding="utf-8", errors="replace").strip()[: drawers.IDENTITY_CHARS]
    if text:
        drawers.set_identity(memory, text)
    return bool(text)
