"""Import an original MAMA database; every server start imports its new rows."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama import checkpoints, decisions
from commonplace.dialects.mama.searching import LINK_KINDS, RELATIONS, SUPERSEDES
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory, Origin, microseconds, moment
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.storage.sqlite import foreign
from commonplace.storage.sqlite.foreign import Row

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

MIN_MILLISECONDS = 1_577_836_800_000  # 2020 in milliseconds; a smaller number is a time in seconds

TABLES = {
    "decisions": (
        "id", "topic", "decision", "reasoning", "outcome", "failure_reason", "limitation",
        "duration_days", "user_involvement", "session_id", "supersedes", "superseded_by",
        "refined_from", "confidence", "created_at", "needs_validation", "usage_count",
        "trust_context", "evidence", "alternatives", "risks",
    ),
    "decision_edges": (
        "from_id", "to_id", "relationship", "reason", "weight", "created_by", "approved_by_user",
    ),
    "checkpoints": (
        "id", "timestamp", "summary", "open_files", "next_steps", "recent_conversation", "status",
    ),
}  # fmt: skip
BATCH = 200
PAGE = 1_000
ORIGIN = Origin(client="mama", tool="import")
IMPORT_EVENT = "mama.import"
ALL_STATES = ("active", "dying", "archived", "superseded", "dead")
KEPT_COLUMNS = (
    "limitation", "duration_days", "user_involvement", "session_id", "needs_validation",
    "usage_count", "trust_context", "evidence", "alternatives", "risks",
)  # fmt: skip

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Imported:
    """The numbers of rows and links that an import added."""

    decisions: int = 0
    checkpoints: int = 0
    links: int = 0
    skipped: int = 0
    """The number of rows that cannot be stored, such as rows without text."""


def import_database(memory: Commonplace, path: Path, *, again: bool = False) -> Imported:
    """Import new rows with their ids and times; the source database is not changed.

    A file that has not changed since its last import is skipped, unless `again` is set: the import
    may have been undone.
    """
    imported = Imported()
    fingerprint = foreign.fingerprint(path)
    subject = str(path)[-400:]
    if not again and _is_imported(memory, subject, fingerprint):
        return imported
    found = foreign.read_tables(path, TABLES)
    imported.decisions = _store_rows(memory, found["decisions"], _decision_draft, imported)
    imported.checkpoints = _store_rows(memory, found["checkpoints"], _checkpoint_draft, imported)
    # no caller must extend a chain before its links are imported
    with exclusive(memory, "import links", ORIGIN):
        memory.events.record(IMPORT_EVENT, subject, {"fingerprint": fingerprint})
        imported.links = _Linking(memory, found).run()
    return imported


def _is_imported(memory: Commonplace, subject: str, fingerprint: str) -> bool:
    after, last = 0, None
    while events := memory.events.all(kind=IMPORT_EVENT, subject=subject, limit=PAGE, after=after):
        after, last = events[-1].num, events[-1].payload
    return bool(last and last.get("fingerprint") == fingerprint)


def _store_rows(
    memory: Commonplace, rows: Sequence[Row], draft: Callable[[Row], Draft], imported: Imported
) -> int:
    """Store new rows, in batches; return their number."""
    drafts = []
    for row in rows:
        try:
            drafts.append(draft(row))
        except InvalidInput:
            imported.skipped += 1
    added = 0
    for first in range(0, len(drafts), BATCH):
        part = drafts[first : first + BATCH]
        try:
            added += _store_drafts(memory, part)
        except (InvalidInput, Conflict):  # a row is invalid, or another caller has stored it
            for each in part:
                try:
                    added += _store_drafts(memory, [each])
                except (InvalidInput, Conflict) as error:
                    imported.skipped += 1
                    log.warning("a row of MAMA was not imported", extra={"why": error.message})
    return added


def _store_drafts(memory: Commonplace, drafts: Sequence[Draft]) -> int:
    new = [found for each in drafts if (found := _draft_unless_stored(memory, each)) is not None]
    with memory.unit("import", ORIGIN):
        memory.remember_many(new, origin=ORIGIN)
    return len(new)


def _draft_unless_stored(memory: Commonplace, draft: Draft) -> Draft | None:
    """Return the draft, or None if it is already imported.

    Both sides number their checkpoints: one whose number another checkpoint has here gets a ref
    with its time.
    """
    held, at = lookup.find_memory(memory, draft.ref or ""), draft.created_at
    if held is None:
        return draft
    if draft.kind != checkpoints.KIND or not isinstance(at, datetime) or at == held.created_at:
        return None
    other = replace(draft, ref=f"{draft.ref}@{microseconds(at) // 1_000}")
    return other if lookup.find_memory(memory, other.ref or "") is None else None


def _decision_draft(row: Row) -> Draft:
    """Return the draft of a memory from a row of decisions."""
    identity, topic, text = (_text(row.get(name)) for name in ("id", "topic", "decision"))
    if not identity or not (topic or text):
        raise InvalidInput("A decision needs an id and a text.")
    stated = decisions.Decision(topic, text, _text(row.get("reasoning")))
    outcome = decisions.OUTCOMES.get(_text(row.get("outcome")).upper())
    attrs = {
        **stated.attrs,
        **{name: row[name] for name in KEPT_COLUMNS if row.get(name) is not None},
    }
    if outcome:
        attrs["outcome"] = outcome
    if row.get("failure_reason"):
        attrs["failure_reason"] = _text(row["failure_reason"])
    confidence = row.get("confidence")
    known = isinstance(confidence, int | float) and 0 <= confidence <= 1
    return Draft(
        text=stated.text, kind=decisions.KIND, ref=identity,
        tags=decisions.decision_tags(topic, outcome),
        confidence=float(confidence) if known else 0.5,  # type: ignore[arg-type]
        state="superseded" if row.get("superseded_by") else "active",
        created_at=_parse_time(row.get("created_at")), attrs=attrs, trust="inferred", origin=ORIGIN,
    )  # fmt: skip


def _checkpoint_draft(row: Row) -> Draft:
    """Return the draft of a memory from a row of checkpoints."""
    number, summary = row.get("id"), _text(row.get("summary"))
    if not isinstance(number, int) or not summary.strip():
        raise InvalidInput("A checkpoint needs an id and a summary.")
    files = [str(file) for file in _json_list(row.get("open_files"))]
    checkpoint = checkpoints.Checkpoint(summary, _text(row.get("next_steps")), files)
    attrs = checkpoint.attrs
    if said := _json_list(row.get("recent_conversation")):
        attrs["recent_conversation"] = said
    return Draft(
        text=checkpoint.text, kind=checkpoints.KIND, ref=f"{checkpoints.REF_PREFIX}{number}",
        state="archived" if row.get("status") == "archived" else "active",
        created_at=_parse_time(row.get("timestamp")), attrs=attrs, trust="inferred", origin=ORIGIN,
    )  # fmt: skip


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ("" if value is None else str(value))


def _parse_time(value: Any) -> datetime | None:
    """Parse a time in milliseconds; MAMA has stored some times in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        return None
    try:
        return moment(int(value * 1000 if value < MIN_MILLISECONDS else value) * 1000)
    except OverflowError:
        return None


def _json_list(value: Any) -> list[Any]:
    """Parse a column with a JSON list; return an empty list if it has none."""
    with contextlib.suppress(TypeError, ValueError):
        found = json.loads(value)
        if isinstance(found, list):
            return found
    return []


class _Linking:
    """Adds the edges of a database as links, and joins the decisions of each topic to one chain."""

    def __init__(self, memory: Commonplace, found: Mapping[str, list[Row]]) -> None:
        self._memory = memory
        self._found = found
        self._all = list(
            lookup.all_memories(memory, order="oldest", kinds=[decisions.KIND], states=ALL_STATES)
        )
        self._by_ref = {each.ref: each for each in self._all if each.ref}
        self._ids = {each.id for each in self._all}
        self._known = {
            (link.source, link.target, link.kind)
            for link in memory.links.of(kinds=LINK_KINDS)
            if link.source in self._ids and link.target in self._ids
        }
        self._after: dict[str, str] = {}
        self._before: dict[str, str] = {}
        for source, target, kind in self._known:
            if kind == SUPERSEDES:
                self._after[target], self._before[source] = source, target
        self._added = 0

    def run(self) -> int:
        """Add the links; return their number."""
        for new, old, reason in self._successions():
            self._supersede(new, old, reason)
        for edge in self._found["decision_edges"]:
            if edge.get("relationship") in RELATIONS and edge.get("approved_by_user", 1) != 0:
                weight = edge.get("weight")
                self._link(
                    _text(edge.get("from_id")), _text(edge.get("to_id")), edge["relationship"],
                    float(weight) if isinstance(weight, int | float) else 1.0,
                    _text(edge.get("reason")),
                )  # fmt: skip
        for row in self._found["decisions"]:
            for earlier in _json_list(row.get("refined_from")):
                self._link(_text(row.get("id")), _text(earlier), "refines", 1.0, "")
        self._join_chains()
        return self._added

    def _successions(self) -> Iterable[tuple[Memory, Memory, str]]:
        """Return (newer, older, reason) of each succession that an edge or a row states."""
        reasons: dict[tuple[str, str], str] = {}
        for edge in self._found["decision_edges"]:
            if edge.get("relationship") == SUPERSEDES:
                pair = (_text(edge.get("from_id")), _text(edge.get("to_id")))
                reasons[pair] = _text(edge.get("reason"))
        for row in self._found["decisions"]:
            identity = _text(row.get("id"))
            if row.get("supersedes"):
                reasons.setdefault((identity, _text(row["supersedes"])), "")
            if row.get("superseded_by"):
                reasons.setdefault((_text(row["superseded_by"]), identity), "")
        for (new, old), reason in reasons.items():
            if new in self._by_ref and old in self._by_ref:
                yield self._by_ref[new], self._by_ref[old], reason

    def _supersede(self, new: Memory, old: Memory, reason: str) -> None:
        """Mark a decision as superseded by another, unless a chain would fork or become a cycle."""
        if old.id in self._after or new.id in self._before or self._has_predecessor(old.id, new.id):
            return
        self._after[old.id], self._before[new.id] = new.id, old.id
        self._memory.links.add(
            new.id, old.id, SUPERSEDES, weight=1.0, reason=reason[:10_000], origin=ORIGIN
        )
        self._added += 1
        if old.state == "active":
            self._memory.revise(old.id, state="superseded", origin=ORIGIN)

    def _has_predecessor(self, decision: str, other: str) -> bool:
        """Return whether `other` is the decision or one of its predecessors."""
        here: str | None = decision
        while here is not None and here != other:
            here = self._before.get(here)
        return here == other

    def _link(self, source: str, target: str, kind: str, weight: float, reason: str) -> None:
        one, other = self._by_ref.get(source), self._by_ref.get(target)
        if one is None or other is None or one.id == other.id:
            return
        if (one.id, other.id, kind) in self._known:
            return
        self._known.add((one.id, other.id, kind))
        self._memory.links.add(
            one.id, other.id, kind, weight=min(1.0, max(0.0, weight)), reason=reason[:10_000],
            origin=ORIGIN,
        )  # fmt: skip
        self._added += 1

    def _join_chains(self) -> None:
        """Join the chains of each topic, ordered by the age of their newest decision."""
        topics: dict[str, list[Memory]] = {
            _text(row.get("topic")): [] for row in self._found["decisions"]
        }
        for each in self._all:
            ends = topics.get(decisions.topic_of(each) or "")
            if (
                ends is not None
                and each.id not in self._after
                and each.state in decisions.VISIBLE_STATES
            ):
                ends.append(each)
        by_id = {each.id: each for each in self._all}
        for ends in topics.values():
            ends.sort(key=lambda each: (each.created_at, each.num))
            for earlier, later in pairwise(ends):
                root = later.id
                while root in self._before:
                    root = self._before[root]
                self._supersede(by_id[root], earlier, "Joined: both were saved on this topic")
            # the decision that superseded it was not imported
            if ends and ends[-1].state == "superseded":
                self._memory.revise(ends[-1].id, state="active", origin=ORIGIN)


def import_at_start(memory: Commonplace, path: str) -> None:
    """Import the file of MAMA_DB_PATH; log a missing or unreadable file."""
    file = Path(path).expanduser()
    if not file.is_file():
        log.info("MAMA_DB_PATH names no file; nothing is imported", extra={"file": str(file)})
        return
    try:
        imported = import_database(memory, file)
    except CommonplaceError as error:
        log.warning("the MAMA database was not imported", extra={"why": str(error)})
        return
    if imported.decisions or imported.checkpoints or imported.skipped:
        log.info(
            "imported from MAMA",
            extra={
                "decisions": imported.decisions, "checkpoints": imported.checkpoints,
                "links": imported.links, "skipped": imported.skipped,
            },
        )  # fmt: skip
