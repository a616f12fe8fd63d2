"""Stores imported items: each item once, in batches that are undone together."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.memories import Draft
from commonplace.engine.history.timeline import IMPORT, LABEL_PREFIX
from commonplace.engine.library import OpenSpace
from commonplace.engine.maintenance import purged_refs
from commonplace.engine.model import LIVE_STATES, Memory, Origin
from commonplace.errors import Conflict, InvalidInput
from commonplace.importers.items import Item, Remark, Skipped, digest_key, storable_kind
from commonplace.platform.exclusive import exclusive
from commonplace.storage.database import new_id
from commonplace.storage.tables import MEMORIES
from commonplace.text import secrets

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

BATCH_ITEMS = 250
BATCH_CHARS = 2_000_000
MOST_PROBLEMS = 20
IMPORTED_DIGEST = "imported"
"""The attribute with a digest of the imported text, to detect whether it was changed here."""
KEY_SCOPE = "imported_from"
"""The attribute with a digest of `Item.key_scope`, to tell equal keys of two sources apart."""

Progress = Callable[[int, int], None]
_SURROGATE = re.compile("[\ud800-\udfff]")


def import_origin() -> Origin:
    """Return the origin of one import; operations with its label are undone together."""
    return Origin(client="commonplace", tool="import", label=LABEL_PREFIX + new_id())


@dataclass(slots=True)
class Imported:
    """The result of an import, or of a dry run."""

    format: str
    found: int = 0
    added: int = 0
    changed: int = 0
    """Number of items imported before whose text in the source has changed."""
    unchanged: int = 0
    purged: int = 0
    """Number of items that were imported before and purged; they are not stored again."""
    skipped: int = 0
    links: int = 0
    problems: list[str] = field(default_factory=list)
    remark_count: int = 0
    remarks: list[str] = field(default_factory=list)
    """What a person should know about items that were imported."""
    masked: list[str] = field(default_factory=list)
    """The kinds of the masked secrets, one entry for each secret."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)

    def add_problem(self, problem: str) -> None:
        """Count an item or a file that is not stored."""
        self.skipped += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def add_remark(self, message: str) -> None:
        """Count a remark on an item that is stored."""
        self.remark_count += 1
        if len(self.remarks) < MOST_PROBLEMS:
            self.remarks.append(message)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {
            "format": self.format, "found": self.found, "added": self.added,
            "changed": self.changed, "unchanged": self.unchanged, "purged": self.purged,
            "skipped": self.skipped,
            "links": self.links, "problems": self.problems, "remarks": self.remarks,
            "operations": self.operations,
            "masked": dict(Counter(self.masked)),
        }  # fmt: skip


def sample(item: Item) -> dict[str, Any]:
    """Return an item as a sample for a dry run."""
    text = " ".join(item.text.split())
    shown = {"text": text[:200] + ("…" if len(text) > 200 else ""), "title": item.title,
             "tags": list(item.tags), "speaker": item.speaker,
             "at": item.occurred_at.isoformat() if item.occurred_at else ""}  # fmt: skip
    return {name: value for name, value in shown.items() if value}


def count_items(name: str, items: Iterable[Item | Skipped | Remark], samples: int = 3) -> Imported:
    """Count the items and return samples of them; store nothing."""
    report = Imported(name)
    for item in items:
        if isinstance(item, Skipped):
            report.add_problem(item.message)
            continue
        if isinstance(item, Remark):
            report.add_remark(item.message)
            continue
        report.found += 1
        if len(report.samples) < samples:
            report.samples.append(sample(item))
    return report


class Import:
    """One import of a format into a space."""

    def __init__(
        self, memory: Commonplace, name: str, *, origin: Origin, trust: str | None = None
    ) -> None:
        self._memory = memory
        self._name = name
        self._origin = replace(origin, client=name)
        self._item_origin = Origin(client=name, tool="import")
        self._trust = trust
        self._links: list[tuple[str, str, str]] = []
        self._ids: dict[str, str] = {}
        self.report = Imported(name)

    def run(
        self,
        items: Iterator[Item | Skipped | Remark],
        total: int = 0,
        progress: Progress | None = None,
    ) -> Imported:
        """Store all items, then the links between them."""
        for batch in _batches(self._items_to_store(items)):
            self.report.found += len(batch)
            try:
                self._store_batch(batch)
            except (InvalidInput, Conflict):
                for item in batch:  # one item of the batch cannot be stored
                    try:
                        self._store_batch([item])
                    except (InvalidInput, Conflict) as error:
                        self.report.add_problem(f"{item.key}: {error.message}")
            if progress is not None:
                progress(min(self.report.found, total), total)
        self._store_links()
        return self.report

    def _items_to_store(self, items: Iterator[Item | Skipped | Remark]) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Skipped):
                self.report.add_problem(item.message)
            elif isinstance(item, Remark):
                self.report.add_remark(item.message)
            else:
                yield item

    def _ref(self, key: str) -> str:
        ref = _storable_text(f"{self._name}:{key}")
        return ref if len(ref) <= checks.REF_CHARS else f"{self._name}:{digest_key(key)}"

    def _scoped_ref(self, item: Item) -> str:
        """Return the ref of an item whose key another source has used already."""
        return self._ref(f"{digest_key(item.key_scope)}:{item.key}")

    def _find_stored(self, item: Item, known: dict[str, Memory]) -> tuple[str, Memory | None]:
        """Return the ref of an item, and its memory if it was imported before.

        Two files may number their rows alike, and two vaults have notes of the same name: a memory
        of another source is not revised with an unrelated text.
        """
        ref, own = self._ref(item.key), self._scoped_ref(item)
        if item.key_scope and own in known:
            return own, known[own]
        row = known.get(ref) or known.get(item.id or "")
        if row is not None and item.key_scope and row.text != self._stored_text(item):
            source = row.attrs.get(KEY_SCOPE)
            if source is not None and source != digest_key(item.key_scope):
                return own, None
        return ref, row

    def _stored_text(self, item: Item) -> str:
        """Return the text of an item as it is stored."""
        text = _storable_text(item.text)
        return text if self._memory.library.allow_secrets else secrets.mask(text)[0]

    def _stored_attrs(self, item: Item) -> dict[str, Any]:
        """Return the attributes that are stored with an item."""
        if item.id:
            return dict(item.attrs)
        source = {KEY_SCOPE: digest_key(item.key_scope)} if item.key_scope else {}
        return {**item.attrs, IMPORTED_DIGEST: digest_key(self._stored_text(item)), **source}

    def _store_batch(self, batch: Sequence[Item]) -> None:
        """Store the new and changed items of a batch in one transaction."""
        stored: list[tuple[Item, str]] = []
        changed = unchanged = purged = 0
        refs = [self._ref(one.key) for one in batch]
        refs += [self._scoped_ref(one) for one in batch if one.key_scope]
        with exclusive(self._memory, IMPORT, self._origin):
            known = engine_call(self._memory, _find_existing, batch, refs)
            gone = engine_call(self._memory, purged_refs.purged_among, set(refs) - known.keys())
            new: dict[str, Item] = {}
            for item in batch:
                ref, row = self._find_stored(item, known)
                if ref in gone:
                    purged += 1
                elif row is None and ref not in new:
                    new[ref] = item
                elif row is not None and self._revise_if_changed(row, item):
                    changed += 1
                else:
                    unchanged += 1
                if row is not None:
                    stored.append((item, row.id))
            stored += self._add_new(new)
            operation = self._memory.operation
        self.report.added += len(new)
        self.report.changed += changed
        self.report.unchanged += unchanged
        self.report.purged += purged
        if operation and (new or changed):
            self.report.operations.append(operation)
        for item, identity in stored:
            if not item.speaker:
                self._ids[item.key] = identity
                self._links += [(item.key, kind, target) for kind, target in item.links]

    def _add_new(self, new: dict[str, Item]) -> Iterator[tuple[Item, str]]:
        """Add memories, and messages conversation by conversation; yield memories with ids."""
        notes = {ref: item for ref, item in new.items() if not item.speaker}
        drafts = [self._draft(ref, item) for ref, item in notes.items()]
        stored = self._memory.remember_many(drafts, origin=self._item_origin)
        yield from ((item, each.id) for item, each in zip(notes.values(), stored, strict=True))
        said = [(ref, item) for ref, item in new.items() if item.speaker]
        for conversation, lines in itertools.groupby(said, key=lambda one: one[1].conversation):
            self._memory.conversations.add(
                conversation[: checks.NAME_CHARS],
                *(self._line(ref, item) for ref, item in lines),
                origin=self._item_origin,
            )

    def _line(self, ref: str, item: Item) -> Line:
        return Line(
            speaker=item.speaker,
            text=_storable_text(item.text),
            at=item.occurred_at,
            session=item.session[: checks.NAME_CHARS],
            ref=ref,
            tags=item.tags,
            trust=self._trust or item.trust,
        )

    def _draft(self, ref: str, item: Item) -> Draft:
        text = _storable_text(item.text)
        return Draft(
            text=text,
            id=item.id,
            ref=(item.ref or None) if item.id else ref,
            kind=storable_kind(item.kind, "note"),
            title=_storable_text(item.title),
            tags=[_storable_text(tag) for tag in item.tags],
            occurred_at=item.occurred_at,
            created_at=item.created_at,
            attrs=self._stored_attrs(item),
            source=item.source,
            importance=item.importance,
            pinned=item.pinned,
            trust=(item.trust_in_file or self._trust) if self._trust else item.trust,
        )

    def _revise_if_changed(self, row: Memory, item: Item) -> bool:
        """Update a memory to the changed text of its source, unless it was changed here.

        Return whether it was updated.
        """
        imported = row.attrs.get(IMPORTED_DIGEST)
        if imported is None or imported != digest_key(row.text) or row.state not in LIVE_STATES:
            return False
        if self._stored_text(item) == row.text:
            return False
        self._memory.revise(
            row.id, text=_storable_text(item.text), title=_storable_text(item.title),
            tags=list(item.tags), attrs=self._stored_attrs(item), origin=self._item_origin,
        )  # fmt: skip
        return True

    def _store_links(self) -> None:
        """Add the missing links between stored memories."""
        links = iter(dict.fromkeys(self._links))
        while part := list(itertools.islice(links, BATCH_ITEMS)):
            with exclusive(self._memory, IMPORT, self._origin):
                before = self.report.links
                for source, kind, target in part:
                    self._add_link(self._ids.get(source), kind, self._ids.get(target))
                if self.report.links > before:
                    self.report.operations.append(self._memory.operation)

    def _add_link(self, source: str | None, kind: str, target: str | None) -> None:
        if source is None or target is None:
            return
        name = storable_kind(kind, "links")
        there = self._memory.links.of(source, direction="out", kinds=[name])
        if not any(link.target == target for link in there):
            reason = "" if name == kind else _storable_text(kind)[: checks.REASON_CHARS]
            self._memory.links.add(source, target, name, reason=reason, origin=self._item_origin)
            self.report.links += 1


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item.text)
        if len(batch) >= BATCH_ITEMS or size > BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _find_existing(
    space: OpenSpace, items: Sequence[Item], refs: Sequence[str]
) -> dict[str, Memory]:
    """Return the memories that already exist, by their ref and by their id."""
    with space.store.read() as connection:
        rows = MEMORIES.among(connection, space.name, "ref", list(refs))
        ids = [_storable_text(item.id) for item in items if item.id]
        rows += MEMORIES.among(connection, space.name, "id", ids) if ids else []
    found = [Memory.of(row) for row in rows]
    return {each.id: each for each in found} | {each.ref: each for each in found if each.ref}


def _storable_text(text: str) -> str:
    """Return the text with lone surrogates and NULs replaced, which cannot be stored."""
    return _SURROGATE.sub("\ufffd", text).replace("\0", "\ufffd")
