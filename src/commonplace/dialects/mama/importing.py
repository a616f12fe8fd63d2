"""Taking over what an original MAMA database holds: what is new in it, at every start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama import checkpoints, decisions, originals
from commonplace.dialects.mama.originals import Row, milliseconds
from commonplace.dialects.mama.searching import EDGES, RELATIONS, SUPERSEDES
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory, Origin, moment
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform import lookup

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

BATCH = 200
PAGE = 1_000
ORIGIN = Origin(client="mama", tool="import")
EVENT = "mama.import"
ALL_STATES = ("active", "dying", "archived", "superseded", "dead")
KEPT = (
    "limitation", "duration_days", "user_involvement", "session_id", "needs_validation",
    "usage_count", "trust_context", "evidence", "alternatives", "risks",
)  # fmt: skip

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """What an import did."""

    decisions: int = 0
    checkpoints: int = 0
    links: int = 0
    skipped: int = 0
    """Rows that cannot be stored, such as one without any text."""


def import_database(memory: Commonplace, path: Path) -> Report:
    """Add the rows that are not here yet; with their ids and times. Nothing is changed there."""
    report = Report()
    seen = originals.fingerprint(path)
    subject = str(path)[-400:]
    if _already(memory, subject, seen):
        return report
    found = originals.read(path)
    report.decisions = _add(memory, found.decisions, _decision, report)
    report.checkpoints = _add(memory, found.checkpoints, _checkpoint, report)
    with memory.unit("import links", ORIGIN):
        # The first write takes the turn, so that no chain grows between the look and the link.
        memory.events.record(EVENT, subject, {"fingerprint": seen})
        report.links = _Linking(memory, found).run()
    return report


def _already(memory: Commonplace, subject: str, seen: str) -> bool:
    after, last = 0, None
    while events := memory.events.all(kind=EVENT, subject=subject, limit=PAGE, after=after):
        after, last = events[-1].num, events[-1].payload
    return bool(last and last.get("fingerprint") == seen)


def _add(
    memory: Commonplace, rows: Sequence[Row], draft: Callable[[Row], Draft], report: Report
) -> int:
    """Store the rows that are new, in batches; how many those were."""
    drafts = []
    for row in rows:
        try:
            drafts.append(draft(row))
        except InvalidInput:
            report.skipped += 1
    added = 0
    for first in range(0, len(drafts), BATCH):
        part = drafts[first : first + BATCH]
        try:
            added += _store(memory, part)
        except (InvalidInput, Conflict):  # one that cannot be stored, or that another just stored
            for each in part:
                try:
                    added += _store(memory, [each])
                except (InvalidInput, Conflict) as error:
                    report.skipped += 1
                    log.warning("a row of MAMA was left out", extra={"why": error.message})
    return added


def _store(memory: Commonplace, drafts: Sequence[Draft]) -> int:
    new = [each for each in drafts if each.ref and not _there(memory, each.ref)]
    with memory.unit("import", ORIGIN):
        memory.remember_many(new, origin=ORIGIN)
    return len(new)


def _there(memory: Commonplace, ref: str) -> bool:
    try:
        memory.get(ref, count=False)
    except NotFound:
        return False
    return True


def _decision(row: Row) -> Draft:
    """A row of decisions as a memory."""
    identity, topic, text = (_text(row.get(name)) for name in ("id", "topic", "decision"))
    if not identity or not (topic or text):
        raise InvalidInput("A decision has neither id nor text.")
    stated = decisions.Decision(topic, text, _text(row.get("reasoning")))
    outcome = decisions.OUTCOMES.get(_text(row.get("outcome")).upper())
    attrs = {**stated.lengths, **{name: row[name] for name in KEPT if row.get(name) is not None}}
    if outcome:
        attrs["outcome"] = outcome
    if row.get("failure_reason"):
        attrs["failure_reason"] = _text(row["failure_reason"])
    confidence = row.get("confidence")
    known = isinstance(confidence, int | float) and 0 <= confidence <= 1
    return Draft(
        text=stated.text, kind=decisions.KIND, ref=identity,
        tags=decisions.tags(topic, outcome), confidence=float(confidence) if known else 0.5,  # type: ignore[arg-type]
        state="superseded" if row.get("superseded_by") else "active",
        created_at=_when(row.get("created_at")), attrs=attrs, trust="inferred", origin=ORIGIN,
    )  # fmt: skip


def _checkpoint(row: Row) -> Draft:
    """A row of checkpoints as a memory."""
    number, summary = row.get("id"), _text(row.get("summary"))
    if not isinstance(number, int) or not summary.strip():
        raise InvalidInput("A checkpoint has neither id nor summary.")
    files = [str(file) for file in originals.listed(row.get("open_files"))]
    checkpoint = checkpoints.Checkpoint(summary, _text(row.get("next_steps")), files)
    attrs = checkpoint.attrs
    if said := originals.listed(row.get("recent_conversation")):
        attrs["recent_conversation"] = said
    return Draft(
        text=checkpoint.text, kind=checkpoints.KIND, ref=f"{checkpoints.PREFIX}{number}",
        state="archived" if row.get("status") == "archived" else "active",
        created_at=_when(row.get("timestamp")), attrs=attrs, trust="inferred", origin=ORIGIN,
    )  # fmt: skip


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ("" if value is None else str(value))


def _when(value: Any) -> datetime | None:
    told = milliseconds(value)
    try:
        return None if told is None else moment(told * 1000)
    except OverflowError:
        return None


class _Linking:
    """The edges of a database as links; and every topic one chain, whatever both sides saved."""

    def __init__(self, memory: Commonplace, found: originals.Originals) -> None:
        self._memory = memory
        self._found = found
        self._all = list(
            lookup.every(memory, order="oldest", kinds=[decisions.KIND], states=ALL_STATES)
        )
        self._by_ref = {each.ref: each for each in self._all if each.ref}
        self._ids = {each.id for each in self._all}
        self._known = {
            (link.source, link.target, link.kind)
            for link in memory.links.of(kinds=EDGES)
            if link.source in self._ids and link.target in self._ids
        }
        self._after: dict[str, str] = {}
        self._before: dict[str, str] = {}
        for source, target, kind in self._known:
            if kind == SUPERSEDES:
                self._after[target], self._before[source] = source, target
        self._added = 0

    def run(self) -> int:
        """How many links were added."""
        for new, old, reason in self._successions():
            self._follow(new, old, reason)
        for edge in self._found.edges:
            if edge.get("relationship") in RELATIONS and edge.get("approved_by_user", 1) != 0:
                weight = edge.get("weight")
                self._link(
                    _text(edge.get("from_id")), _text(edge.get("to_id")), edge["relationship"],
                    float(weight) if isinstance(weight, int | float) else 1.0,
                    _text(edge.get("reason")),
                )  # fmt: skip
        for row in self._found.decisions:
            for earlier in originals.listed(row.get("refined_from")):
                self._link(_text(row.get("id")), _text(earlier), "refines", 1.0, "")
        self._join()
        return self._added

    def _successions(self) -> Iterable[tuple[Memory, Memory, str]]:
        """(newer, older, reason), told by edges or by either row."""
        told: dict[tuple[str, str], str] = {}
        for edge in self._found.edges:
            if edge.get("relationship") == SUPERSEDES:
                pair = (_text(edge.get("from_id")), _text(edge.get("to_id")))
                told[pair] = _text(edge.get("reason"))
        for row in self._found.decisions:
            identity = _text(row.get("id"))
            if row.get("supersedes"):
                told.setdefault((identity, _text(row["supersedes"])), "")
            if row.get("superseded_by"):
                told.setdefault((_text(row["superseded_by"]), identity), "")
        for (new, old), reason in told.items():
            if new in self._by_ref and old in self._by_ref:
                yield self._by_ref[new], self._by_ref[old], reason

    def _follow(self, new: Memory, old: Memory, reason: str) -> None:
        """Let one decision supersede another, unless a chain would fork or close to a ring."""
        if old.id in self._after or new.id in self._before or self._ends_in(old.id, new.id):
            return
        self._after[old.id], self._before[new.id] = new.id, old.id
        self._memory.links.add(
            new.id, old.id, SUPERSEDES, weight=1.0, reason=reason[:10_000], origin=ORIGIN
        )
        self._added += 1
        if old.state == "active":
            self._memory.revise(old.id, state="superseded", origin=ORIGIN)

    def _ends_in(self, start: str, end: str) -> bool:
        """Whether going back from a decision leads to another."""
        here: str | None = start
        while here is not None and here != end:
            here = self._before.get(here)
        return here == end

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

    def _join(self) -> None:
        """Put the chains of one topic behind one another, by the age of their newest."""
        topics: dict[str, list[Memory]] = {
            _text(row.get("topic")): [] for row in self._found.decisions
        }
        for each in self._all:
            ends = topics.get(decisions.topic_of(each) or "")
            if ends is not None and each.id not in self._after and each.state in decisions.STATES:
                ends.append(each)
        by_id = {each.id: each for each in self._all}
        for ends in topics.values():
            ends.sort(key=lambda each: (each.created_at, each.num))
            for earlier, later in pairwise(ends):
                root = later.id
                while root in self._before:
                    root = self._before[root]
                self._follow(by_id[root], earlier, "Joined: both were saved on this topic")
            if ends and ends[-1].state == "superseded":  # its successor was never here
                self._memory.revise(ends[-1].id, state="active", origin=ORIGIN)


def import_at_start(memory: Commonplace, path: str) -> None:
    """Import what MAMA_DB_PATH names, if it is there; a file that cannot be read stops nothing."""
    file = Path(path).expanduser()
    if not file.is_file():
        log.info("MAMA_DB_PATH names no file; nothing is imported", extra={"file": str(file)})
        return
    try:
        report = import_database(memory, file)
    except CommonplaceError as error:
        log.warning("the MAMA database was not imported", extra={"why": str(error)})
        return
    if report.decisions or report.checkpoints or report.skipped:
        log.info(
            "imported from MAMA",
            extra={
                "decisions": report.decisions, "checkpoints": report.checkpoints,
                "links": report.links, "skipped": report.skipped,
            },
        )  # fmt: skip
