"""Remembering, correcting, forgetting: every change of a memory's row and of what finds it."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from commonplace.engine import checks
from commonplace.engine.content import reserved
from commonplace.engine.finding.filters import Filters, field_labels, origin_labels, trust_labels
from commonplace.engine.model import (
    LIVE_STATES,
    NOBODY,
    TRUSTS,
    Memory,
    Origin,
    Usage,
    When,
    moment,
)
from commonplace.engine.space import OpenSpace, used
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage import counters, derived, outbox
from commonplace.storage import labels as stored_labels
from commonplace.storage import memories as stored
from commonplace.storage.database import new_id, new_ids, now
from commonplace.storage.derived import quantise
from commonplace.storage.fields import DEFAULTS, FIELDS, FILTERABLE, STATES, MemoryFields
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES, MESSAGES, Row
from commonplace.storage.writing import Unit
from commonplace.text.analysis import fold, trigrams
from commonplace.text.passages import Span, split

if TYPE_CHECKING:
    from numpy.typing import NDArray

INLINE_PASSAGES = 64  # more than this is embedded in the background
CHANGEABLE = {name for name, known in FIELDS.items() if known.changeable}
# The column of the index that a listing goes by: its highest values first, but for the oldest.
ORDERS = {"newest": "created", "oldest": "created", "importance": "importance",
          "credit": "credit", "updated": "row_seq", "latest": "occurred"}  # fmt: skip
FOUND_ORDERS = ("newest", "latest")
_VECTORS = struct.Struct("<iii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(MemoryFields):
    """A memory before it is stored: the fields of `MemoryFields`, of which it needs its text."""

    text: str
    updated_at: None = field(default=None, init=False, repr=False)
    vectors: Sequence[bytes] | None = None
    """Ready-made vectors of the current model, one for each passage, as `pack` makes them."""


DRAFT_FIELDS: tuple[str, ...] = tuple(each.name for each in fields(Draft) if each.init)


@dataclass(slots=True)
class Prepared:
    """All that can be computed about a draft without holding the write lock."""

    values: dict[str, Any]
    terms: bytes
    folded: str
    spans: Sequence[Span]
    labels: Sequence[str]
    vectors: Sequence[bytes] | None = None
    lead: str = ""
    """What goes before each passage when it is embedded: its title, its speaker."""
    named: bool = False
    """Whether the caller chose its id or ref, which may then be taken."""

    @property
    def embeddable(self) -> list[str]:
        """The passages as the embedder reads them."""
        text = self.values["text"]
        return [self.lead + text[span.start : span.stop] for span in self.spans]


def prepare(draft: Draft, origin: Origin, speaker: str = "") -> Prepared:
    """Check a draft and analyse it; raises InvalidInput before anything is written."""
    return _of_checked(draft, _checked(draft, origin), new_id(), speaker)


def _checked(draft: Draft, origin: Origin) -> dict[str, Any]:
    """A draft's values in their stored form; without an id if it brings none."""
    if not isinstance(draft, Draft):
        raise InvalidInput("What is stored are drafts.", hint="Use Draft.", field="drafts")
    whence = draft.origin or origin
    if whence is not NOBODY:
        whence = checks.origin(whence)
    values = _USUAL.copy()
    if draft.id is not None:
        values["id"] = _identity(draft.id)
    values["text"] = checks.text(draft.text)
    values["origin"] = whence.dump()
    given = _values(draft)
    if not all(map(is_, given, _USUAL_VALUES)):  # many say nothing but their text
        for name, value, usual in zip(_SAID, given, _USUAL_VALUES, strict=True):
            if value is not usual:
                values[name] = _CHECKS[name](value)
    reserved.check(values)
    return values


def _of_checked(draft: Draft, values: dict[str, Any], fresh: str, speaker: str = "") -> Prepared:
    """Analyse the checked values of a draft; `fresh` is its id if it brings none."""
    if values["id"] is None:
        values["id"] = fresh
    prepared = analysed(values, speaker)
    prepared.named = draft.id is not None or draft.ref is not None
    if draft.vectors is not None:
        if len(draft.vectors) != len(prepared.spans):
            raise InvalidInput(
                f"There are {len(draft.vectors)} vectors for {len(prepared.spans)} passages.",
                hint="Give one for each, or none.",
                field="vectors",
            )
        prepared.vectors = draft.vectors
    return prepared


_CHECKS: dict[str, Callable[[Any], Any]] = {
    name: checks.of_field(name, known)
    for name, known in FIELDS.items()
    if known.type not in ("identity", "origin")
}
# What a draft may say beside its text, id and origin, and what it usually says.
_SAID = tuple(name for name in _CHECKS if name not in ("text", "updated_at"))
_USUAL_VALUES = tuple(DEFAULTS[name] for name in _SAID)
_USUAL: dict[str, Any] = {
    **dict.fromkeys(("id", "text", "origin")),
    **{name: _CHECKS[name](DEFAULTS[name]) for name in _SAID},
}
_values = attrgetter(*_SAID)


def analysed(values: dict[str, Any], speaker: str = "") -> Prepared:
    """What finds a memory, computed from its values."""
    title, whole = values["title"], values["text"]
    spans = split(whole)
    labels = trust_labels(values["trust"]) + field_labels(values)
    if title:
        whole = f"{title}\n{whole}" if whole else title
    if values["tags"] != "[]":
        tags = json.loads(values["tags"])
        whole = "\n".join([part for part in (whole, *tags) if part])
        labels += [f"tag:{tag}" for tag in tags]
    if values["origin"] != "{}":
        labels += origin_labels(Origin.load(values["origin"]))
    said = f"{speaker}: {whole}" if speaker else whole
    if values["occurred_at"] is not None:
        said = f"{_day(values['occurred_at'])} {said}"
    lead = (f"{title}\n" if title else "") + (f"{speaker}: " if speaker else "")
    return Prepared(values, derived.pack_text(said), fold(whole), spans, labels, None, lead)


def _day(at: int) -> str:
    """A date as people write it, so that its words find it."""
    when = moment(at)
    return f"{when.day} {when:%B} {when.year}"


def embed_now(space: OpenSpace, prepared: Sequence[Prepared]) -> None:
    """Give vectors to what is few and near; the rest waits in the outbox."""
    if space.embedder is None or not space.embedder.local:
        return
    due = [item for item in prepared if item.vectors is None]
    texts = [text for item in due for text in item.embeddable]
    if not texts or len(texts) > INLINE_PASSAGES:
        return
    vectors = quantise(space.embedder.embed(texts))
    for item in due:
        item.vectors, vectors = vectors[: len(item.spans)], vectors[len(item.spans) :]


def put(space: OpenSpace, unit: Unit, prepared: Sequence[Prepared]) -> list[Row]:
    """Insert prepared memories with all that finds them."""
    seq, at = unit.seq, unit.at  # the operation comes first, so that its time is known
    assert seq
    for item in prepared:
        values = item.values
        if values["created_at"] is None:
            values["created_at"] = at
        values["updated_at"] = values["created_at"]
        if item.named:
            _check_free(unit, values)
    rows = MEMORIES.insert_many(unit, [item.values for item in prepared])
    write_derived(space, unit.connection, [row["num"] for row in rows], prepared)
    return rows


def _check_free(unit: Unit, values: Mapping[str, Any]) -> None:
    """Refuse an id or a ref that another memory has."""
    taken = stored.holder(unit.connection, unit.space, values["id"], values["ref"])
    if taken is not None:
        which = "id" if taken == values["id"] else "ref"
        raise Conflict(
            f"A memory with this {which} exists already.",
            hint="Revise it, or choose another.",
            field=which,
        )
    _check_unambiguous(unit, values["id"], values["ref"])


def _check_unambiguous(unit: Unit, identity: str, ref: str | None) -> None:
    """Refuse names by which another memory would be found, or would be found no more."""
    if stored.is_ambiguous(unit.connection, unit.space, identity, ref):
        raise Conflict(
            "One memory's ref would be the id of another.",
            hint="Choose another ref.",
            field="ref",
        )


def write_derived(
    space: OpenSpace, connection: Rows, nums: Sequence[int], prepared: Sequence[Prepared]
) -> None:
    """Store what finds memories; passages without a vector are put into the outbox."""
    embedder, model = space.embedder, None
    if embedder is not None and any(item.vectors is not None for item in prepared):
        model = derived.model_number(connection, space.name, embedder)
        size = 4 + embedder.dimensions
        if any(len(vector) != size for item in prepared for vector in item.vectors or ()):
            raise InvalidInput(
                f"A packed vector must have {size} bytes.", hint="Use pack().", field="vectors"
            )
    derived.write_entries(connection, space.name, nums, prepared, model)
    if embedder is not None:
        waiting = [num for num, item in zip(nums, prepared, strict=True) if item.vectors is None]
        for num in waiting:
            outbox.add(connection, space.name, num)
        if waiting:
            space.has_work = True
            space.wake()


def remember(space: OpenSpace, drafts: Sequence[Draft], origin: Origin) -> list[Memory]:
    """Store drafts together: all of them, or none."""
    if not drafts:
        return []
    origin = NOBODY if origin == NOBODY else origin
    checked = [_checked(draft, origin) for draft in drafts]
    prepared = list(map(_of_checked, drafts, checked, new_ids(len(drafts))))
    embed_now(space, prepared)
    with space.write("remember", origin) as unit:
        return list(map(Memory.of, put(space, unit, prepared)))


def find_row(connection: Rows, space: str, identity: str) -> Row | None:
    """A memory's row by its id, or by the id its dialect gave it."""
    checks.text(identity, "id", max_chars=checks.REF_CHARS)
    row = MEMORIES.by_id(connection, space, identity.lower())
    if row is None:
        row = MEMORIES.first(connection, space, ref=identity)
        if row is not None and row["ref"] != identity:
            row = None
    return row


def need_row(connection: Rows, space: str, identity: str) -> Row:
    """As find_row, or NotFound."""
    row = find_row(connection, space, identity)
    if row is None:
        raise NotFound(
            "There is no such memory.", hint="Search for it; its id may be another.", field="id"
        )
    return row


def get(space: OpenSpace, identity: str, *, count: bool) -> Memory:
    """One memory in any state."""
    with space.store.read() as connection:
        memory = Memory.of(need_row(connection, space.name, identity))
    if count:
        space.count_reads([memory.num], now())
    return memory


def usage(space: OpenSpace, identity: str) -> Usage:
    """Return how often a memory was read, and when last."""
    with space.store.read() as connection:
        num = need_row(connection, space.name, identity)["num"]
    return usages(space, [num])[num]


def numbered(space: OpenSpace, nums: Sequence[int]) -> list[Memory]:
    """Memories by their numbers, in that order; those that are gone are left out."""
    with space.store.read() as connection:
        rows = MEMORIES.by_nums(connection, space.name, nums)
    return [Memory.of(rows[num]) for num in nums if num in rows]


def usages(space: OpenSpace, nums: Collection[int]) -> dict[int, Usage]:
    """How often memories were read, reads of a moment ago included."""
    noted = {num: space.noted_reads(num) for num in nums}
    with space.store.read() as connection:
        return {num: used(connection, space.name, num, noted[num]) for num in nums}


def used_since(space: OpenSpace, since: When) -> list[int]:
    """Return the numbers of the memories that were read at or after a moment."""
    at = checks.when(since, "since")
    assert at is not None
    space.write_reads()
    with space.store.read() as connection:
        return counters.used_since(connection, space.name, at)


def reactivate(space: OpenSpace, identities: Iterable[str], times: int = 1) -> None:
    """Count memories as read, at once: contracts go by it."""
    with space.store.read() as connection:
        nums = [need_row(connection, space.name, each)["num"] for each in identities]
    if nums:
        space.add_reads(nums, times, now())


def revise(
    space: OpenSpace,
    identity: str,
    changes: Mapping[str, Any],
    origin: Origin,
    *,
    expected: int | None = None,
    name: str = "revise",
    promote: bool = False,
) -> Memory:
    """A memory with changes; what it was stays as a version."""
    unknown = set(changes) - CHANGEABLE
    if unknown:
        raise InvalidInput(
            f"A memory has no {sorted(unknown)[0]} that can be changed.",
            hint=f"These can: {', '.join(sorted(CHANGEABLE))}.",
            field=sorted(unknown)[0],
        )
    values = checked_changes(changes)
    with space.store.read() as connection:
        row = need_row(connection, space.name, identity)
        speaker = speaker_of(connection, space.name, row["num"])
    prepared = _prepare_change(space, row, values, speaker)
    with space.write(name, origin) as unit:
        current = need_row(unit.connection, space.name, identity)
        if expected is not None and current["seq"] != expected:
            raise Conflict(
                f"The memory was changed meanwhile: version {expected} was expected,"
                f" it has version {current['seq']}.",
                hint="Read it again and repeat the change.",
            )
        if "trust" in values and not promote:
            _check_trust(current["trust"], values["trust"])
        if current["seq"] != row["seq"]:
            prepared = _prepare_change(space, current, values, speaker)
        values = {k: v for k, v in values.items() if current[k] != v}
        if not values:
            return Memory.of(current)
        return Memory.of(change_row(space, unit, current, values, prepared))


def checked_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changed fields in their stored form."""
    return {name: _CHECKS[name](value) for name, value in changes.items()}


def _prepare_change(
    space: OpenSpace, row: Row, values: Mapping[str, Any], speaker: str
) -> Prepared | None:
    """New terms, passages and labels, or None when none of them can change."""
    finding = ("title", "text", "tags", "trust", "occurred_at", *FILTERABLE)
    if not any(row[name] != values[name] for name in finding if name in values):
        return None
    prepared = analysed({**row, **values}, speaker)
    if any(row[name] != values[name] for name in ("title", "text") if name in values):
        embed_now(space, [prepared])
    return prepared


def change_row(
    space: OpenSpace, unit: Unit, row: Row, values: Mapping[str, Any], prepared: Prepared | None
) -> Row:
    """Apply checked changes in an open unit."""
    reserved.check({**row, **values}, row)
    connection = unit.connection
    seq = unit.seq
    if values.get("ref") is not None:
        if stored.ref_is_taken(connection, unit.space, values["ref"], row["num"]):
            raise Conflict("A memory with this ref exists already.", field="ref")
        _check_unambiguous(unit, row["id"], values["ref"])
    vectors = stored_vectors(connection, unit.space, row["num"]) if prepared else None
    new = MEMORIES.replace(unit, row, {**values, "updated_at": unit.at}, vectors)
    assert new["seq"] == seq
    if prepared is not None:
        if prepared.vectors is None and new["text"] == row["text"] and new["title"] == row["title"]:
            prepared.vectors = usable_vectors(space, connection, vectors, len(prepared.spans))
        derived.drop(connection, unit.space, row["num"])
        write_derived(space, connection, [row["num"]], [prepared])
    return new


def speaker_of(connection: Rows, space: str, num: int) -> str:
    """Who said it, if the memory is a line of a conversation."""
    message = MESSAGES.first(connection, space, memory=num)
    return str(message["speaker"]) if message else ""


def stored_vectors(connection: Rows, space: str, num: int) -> bytes | None:
    """A memory's vectors as a version keeps them, if they are complete and of one model."""
    passages = derived.read_passages(connection, space, num)
    models = {passage.model for passage in passages}
    if len(models) != 1 or None in models:
        return None
    vectors = [passage.vector or b"" for passage in passages]
    return _VECTORS.pack(models.pop() or 0, len(vectors), len(vectors[0])) + b"".join(vectors)


def unpack_vectors(kept: bytes) -> tuple[int, list[bytes]]:
    """(model number, vectors) of a version."""
    model, count, size = _VECTORS.unpack_from(kept)
    start = _VECTORS.size
    return model, [kept[start + i * size : start + (i + 1) * size] for i in range(count)]


def usable_vectors(
    space: OpenSpace, connection: Rows, kept: bytes | None, passages: int
) -> list[bytes] | None:
    """A version's vectors, if the present model made them."""
    if kept is None:
        return None
    model, vectors = unpack_vectors(kept)
    fits = model == space.current_model(connection) and len(vectors) == passages
    return vectors if fits else None


def _check_trust(before: str, after: str) -> None:
    order: list[str] = list(TRUSTS)
    if order.index(after) < order.index(before):
        raise InvalidInput(
            f"Trust cannot be raised from {before} to {after} by a revision.",
            hint="Use promote, which needs to be asked for separately.",
            field="trust",
        )


def set_state(
    space: OpenSpace, identities: Iterable[str], state: str, origin: Origin, name: str
) -> list[Memory]:
    """Put memories into a state; unchanged ones stay unchanged."""
    changed = []
    with space.write(name, origin) as unit:
        for identity in identities:
            row = need_row(unit.connection, space.name, identity)
            if row["state"] != state:
                row = change_row(space, unit, row, {"state": state}, None)
            changed.append(Memory.of(row))
    return changed


def supersede(space: OpenSpace, identity: str, draft: Draft, origin: Origin, reason: str) -> Memory:
    """Store a successor; the old one stays, superseded and linked."""
    from commonplace.engine.content.links import put_link

    checks.optional(reason, "reason", max_chars=checks.REASON_CHARS)
    prepared = prepare(draft, origin)
    embed_now(space, [prepared])
    with space.write("supersede", origin) as unit:
        old = need_row(unit.connection, space.name, identity)
        if old["state"] not in LIVE_STATES:
            raise Conflict(
                f"The memory is {old['state']}; only a live one can be superseded.",
                hint="Supersede the newest of its chain.",
            )
        if prepared.values["ref"] is not None and prepared.values["ref"] == old["ref"]:
            old = change_row(space, unit, old, {"ref": None}, None)
        (new,) = put(space, unit, [prepared])
        change_row(space, unit, old, {"state": "superseded"}, None)
        put_link(unit, new["id"], old["id"], "supersedes", 1.0, reason, "{}", origin)
        return Memory.of(new)


def browse(
    space: OpenSpace, filters: Filters, *, order: str, limit: int, offset: int
) -> tuple[list[Memory], int]:
    """Memories that pass the filters in a plain order, and how many there are in all."""
    import numpy as np

    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        column = ORDERS[checks.one_of(order, "order", tuple(ORDERS))]
        values = getattr(snapshot, column)[at]
        if order == "latest":
            values = happened(values, snapshot.created[at])
        sign = 1 if order == "oldest" else -1
        keys = (sign * snapshot.num[at], sign * values)
        chosen = at[np.lexsort(keys)][offset : offset + limit]
        nums = snapshot.num[chosen].tolist()
        rows = MEMORIES.by_nums(connection, space.name, nums)
        return [Memory.of(rows[num]) for num in nums if num in rows], len(at)


def happened(occurred: NDArray[Any], created: NDArray[Any]) -> NDArray[Any]:
    """When each memory happened; where nobody said, when it was stored."""
    import numpy as np

    from commonplace.storage.index import NEVER

    return np.where(occurred == NEVER, created, occurred)


def tally(
    space: OpenSpace,
    names: Sequence[str],
    kinds: Sequence[str],
    states: Sequence[str] = LIVE_STATES,
) -> dict[tuple[str, ...], int]:
    """How many memories of these kinds and states have the same texts in these attrs."""
    for name in names:
        checks.kind(name, "names")
    wanted = [checks.kind(kind, "kinds") for kind in checks.listed(kinds, "kinds")]
    living = [checks.one_of(each, "states", STATES) for each in checks.listed(states, "states")]
    with space.store.read() as connection:
        return stored.tally(connection, space.name, names, wanted, living)


def find_text(
    space: OpenSpace, needle: str, filters: Filters, *, limit: int, order: str, in_text: bool
) -> tuple[list[Memory], int]:
    """Memories that contain the needle as it stands, and how many there are."""
    folded = fold(checks.text(needle, "needle", max_chars=1_000))
    with space.store.read() as connection:
        numbers = candidates(connection, space.name, folded)
        found = []
        for first in range(0, len(numbers), 500):
            part = numbers[first : first + 500]
            rows = MEMORIES.by_nums(connection, space.name, part)
            for num in part:
                if num not in rows:
                    continue
                memory = Memory.of(rows[num])
                held = holds(memory, folded, in_text=in_text)
                if held and _admits(connection, space.name, filters, memory):
                    found.append(memory)
    return in_order(found, order)[:limit], len(found)


def in_order(found: list[Memory], order: str) -> list[Memory]:
    """What was found, the newest first: that was stored last, or that happened last."""
    if checks.one_of(order, "order", FOUND_ORDERS) == "latest":
        return sorted(found, key=lambda m: (m.occurred_at or m.created_at, m.num), reverse=True)
    return sorted(found, key=lambda m: -m.num)


def holds(memory: Memory, folded: str, *, in_text: bool = False) -> bool:
    """Whether a folded text is in a memory's title, text or tags; or in its text alone."""
    if in_text:
        return folded in fold(memory.text)
    return folded in fold("\n".join(p for p in (memory.title, memory.text, *memory.tags) if p))


def tags(space: OpenSpace) -> list[tuple[str, int, int]]:
    """(tag, how many live memories have it, when the first of them was made), most used first."""
    with space.store.read() as connection:
        return stored_labels.tags(connection, space.name, LIVE_STATES)


def _admits(connection: Rows, space: str, filters: Filters, memory: Memory) -> bool:
    speaker = "" if filters.speakers is None else speaker_of(connection, space, memory.num)
    return filters.admits(memory, speaker)


def candidates(connection: Rows, space: str, folded: str) -> list[int]:
    """Numbers of the memories that may contain the text, newest first."""
    grams = trigrams(folded)
    if grams:
        return sorted(derived.holding(connection, space, grams), reverse=True)
    # Shorter than three characters: nothing to look up.
    return stored.all_numbers(connection, space)


def restore_row(
    space: OpenSpace, unit: Unit, current: Row | None, before: Row, vectors: bytes | None
) -> Row:
    """Make a former row current again, with all that finds it."""
    connection = unit.connection
    if current is None:
        row = MEMORIES.restore(unit, before)
    else:
        kept = stored_vectors(connection, unit.space, current["num"])
        row = MEMORIES.replace(unit, current, before, kept)
        derived.drop(connection, unit.space, current["num"])
    prepared = analysed(row, speaker_of(connection, unit.space, row["num"]))
    prepared.vectors = usable_vectors(space, connection, vectors, len(prepared.spans))
    write_derived(space, connection, [row["num"]], [prepared])
    derived.touch(unit, row["num"])
    return row


def remove_row(unit: Unit, row: Row) -> None:
    """Take a memory out of the present; its version stays."""
    connection = unit.connection
    MEMORIES.remove(unit, row, stored_vectors(connection, unit.space, row["num"]))
    derived.drop(connection, unit.space, row["num"])
    outbox.remove(connection, unit.space, row["num"])
    derived.touch(unit, row["num"])


def _identity(value: object) -> str:
    if value is None:
        return new_id()
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise InvalidInput(
            "id must be a UUID.", hint="Leave it out, and use ref for an id of yours.", field="id"
        ) from None
