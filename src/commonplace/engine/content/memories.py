"""Store, change and hide memories, and update the index entries derived from them."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from commonplace.engine import checks
from commonplace.engine.binding import keyword_fields
from commonplace.engine.content import projects, write_policy
from commonplace.engine.content.projects import BRANCH, PROJECT, Project, is_labelled, labels_of
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
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage import counters, derived, outbox
from commonplace.storage import memories as stored
from commonplace.storage.database import new_id, new_ids, now
from commonplace.storage.derived import quantise
from commonplace.storage.fields import DEFAULTS, FIELDS, FILTERABLE, STATES, MemoryFields
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES, MESSAGES, Row
from commonplace.storage.writing import Unit
from commonplace.text.analysis import fold
from commonplace.text.passages import Span, split_passages

if TYPE_CHECKING:
    from commonplace.engine.library import OpenSpace

INLINE_PASSAGES = 64  # A call with more passages than this is embedded in the background.
CHANGEABLE = {name for name, known in FIELDS.items() if known.changeable}
_VECTORS = struct.Struct("<iii")


class Changes(TypedDict, total=False):
    """The fields of a memory that can be changed, except its text.

    The class is for type checkers and editors. A test compares it with `MemoryFields`.
    """

    kind: str
    title: str
    tags: Sequence[str]
    importance: float
    confidence: float
    credit: float
    state: str
    pinned: bool
    occurred_at: When | None
    ref: str | None
    attrs: Mapping[str, Any] | None
    trust: str
    source: str


class Details(Changes, total=False):
    """The fields of a new memory, except its text and its origin."""

    id: str | None
    created_at: When | None
    vectors: Sequence[bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(MemoryFields):
    """A memory that is not stored yet: the fields of `MemoryFields`. Only the text is required."""

    text: str
    updated_at: None = field(default=None, init=False, repr=False)
    vectors: Sequence[bytes] | None = None
    """Vectors of the current model, one for each passage, as `pack` makes them."""


DRAFT_FIELDS: tuple[str, ...] = tuple(each.name for each in fields(Draft) if each.init)


def draft_of(text: str, details: Mapping[str, Any]) -> Draft:
    """Return a draft from a text and keyword fields."""
    unknown = details.keys() - set(DRAFT_FIELDS)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"A memory has no field named {name}.",
            hint=f"Its fields are {', '.join(DRAFT_FIELDS)}.",
            field=name,
        )
    return Draft(text=text, **details)


@dataclass(slots=True)
class PreparedMemory:
    """A checked draft with everything that is computed before the write lock is taken."""

    values: dict[str, Any]
    terms: bytes
    folded: str
    spans: Sequence[Span]
    labels: Sequence[str]
    vectors: Sequence[bytes] | None = None
    embedding_prefix: str = ""
    """Text added before each passage for its embedding: the title and the speaker."""
    chosen_name: bool = False
    """Whether the caller chose the id or ref, which then needs a check for duplicates."""

    @property
    def embeddable(self) -> list[str]:
        """The texts to embed, one for each passage."""
        text = self.values["text"]
        return [self.embedding_prefix + text[span.start : span.stop] for span in self.spans]


def prepare(space: OpenSpace, draft: Draft, origin: Origin, speaker: str = "") -> PreparedMemory:
    """Check a draft and compute its index entries."""
    return _prepare_checked(draft, _checked_values(space, draft, origin), new_id(), speaker)


def _checked_values(space: OpenSpace, draft: Draft, origin: Origin) -> dict[str, Any]:
    """Return a draft's values in their stored form; the id is None if the draft has none."""
    if not isinstance(draft, Draft):
        raise InvalidInput("A memory to store must be a Draft.", hint="Use Draft.", field="drafts")
    own = origin if draft.origin is None else draft.origin
    if own is not NOBODY:
        own = checks.origin(own)
    if draft.vectors is not None:
        checks.vectors(draft.vectors)
    values = _DEFAULT_VALUES.copy()
    if draft.id is not None:
        values["id"] = _checked_id(draft.id)
    values["text"] = checks.text(draft.text)
    values["origin"] = own.dump()
    given = _other_values(draft)
    # Many drafts have only a text, so the other fields need no check.
    if not all(map(is_, given, _OTHER_DEFAULTS)):
        for name, value, usual in zip(_OTHER_FIELDS, given, _OTHER_DEFAULTS, strict=True):
            if value is not usual:
                values[name] = _CHECKS[name](value)
    write_policy.check_reserved(values)
    write_policy.mask_row(space, values)
    return values


def _checked_id(value: object) -> str:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise InvalidInput(
            "id must be a UUID.", hint="Leave it out, and use ref for your own ids.", field="id"
        ) from None


def _prepare_checked(
    draft: Draft, values: dict[str, Any], fresh: str, speaker: str = ""
) -> PreparedMemory:
    """Compute the index entries of a checked draft; `fresh` is the id to use if it has none."""
    if values["id"] is None:
        values["id"] = fresh
    prepared = index_entries(values, speaker)
    prepared.chosen_name = draft.id is not None or draft.ref is not None
    if draft.vectors is not None:
        if len(draft.vectors) != len(prepared.spans):
            raise InvalidInput(
                f"There are {len(draft.vectors)} vectors for {len(prepared.spans)} passages.",
                hint="Give one vector for each passage, or none.",
                field="vectors",
            )
        prepared.vectors = draft.vectors
    return prepared


_CHECKS: dict[str, Callable[[Any], Any]] = {
    name: checks.check_of_field(name, known)
    for name, known in FIELDS.items()
    if known.type not in ("identity", "origin")
}
# The fields of a draft except text, id and origin, and their defaults.
_OTHER_FIELDS = tuple(name for name in _CHECKS if name not in ("text", "updated_at"))
_OTHER_DEFAULTS = tuple(DEFAULTS[name] for name in _OTHER_FIELDS)
_DEFAULT_VALUES: dict[str, Any] = {
    **dict.fromkeys(("id", "text", "origin")),
    **{name: _CHECKS[name](DEFAULTS[name]) for name in _OTHER_FIELDS},
}
_other_values = attrgetter(*_OTHER_FIELDS)


def origin_labels(origin: Origin) -> list[str]:
    """Return a label for each known part of an origin."""
    if origin is NOBODY:
        return []
    return [f"{part}:{value}" for part, value in origin.as_dict().items()]


def field_labels(values: Mapping[str, Any]) -> list[str]:
    """Return a label for each filterable field whose value differs from its default.

    The label holds a digest, because the value may be too long for an index key.
    """
    return [
        f"{name}:{hashlib.sha256(values[name].encode()).hexdigest()[:32]}"
        for name in FILTERABLE
        if name in values and values[name] != DEFAULTS[name]
    ]


def trust_labels(trust: str) -> list[str]:
    """Return a label for a trust level other than the default."""
    return [] if trust == TRUSTS[0] else [f"trust:{trust}"]


def index_entries(values: dict[str, Any], speaker: str = "") -> PreparedMemory:
    """Compute the index entries of a memory from its values."""
    title, whole = values["title"], values["text"]
    spans = split_passages(whole)
    labels = trust_labels(values["trust"]) + field_labels(values)
    if title:
        whole = f"{title}\n{whole}" if whole else title
    searched = whole
    if values["tags"] != "[]":
        tags = json.loads(values["tags"])
        # Project labels are not indexed as words, because all memories of a project have them.
        words = [tag for tag in tags if not tag.startswith((PROJECT, BRANCH))]
        searched, whole = ("\n".join(filter(None, (whole, *some))) for some in (words, tags))
        labels += [f"tag:{tag}" for tag in tags]
    if values["origin"] != "{}":
        labels += origin_labels(Origin.load(values["origin"]))
    if speaker:
        searched = f"{speaker}: {searched}"
    if values["occurred_at"] is not None:
        # Index the date in words, so that a search for "3 May 2026" finds it.
        when = moment(values["occurred_at"])
        searched = f"{when.day} {when:%B} {when.year} {searched}"
    lead = embedding_prefix(title, speaker)
    return PreparedMemory(
        values, derived.pack_text(searched), fold(whole), spans, labels, None, lead
    )


def embedding_prefix(title: str, speaker: str) -> str:
    """Return the text added before each passage for its embedding."""
    return (f"{title}\n" if title else "") + (f"{speaker}: " if speaker else "")


def embed_now(space: OpenSpace, prepared: Sequence[PreparedMemory]) -> None:
    """Embed memories before they are stored, if the model is local and the passages are few.

    Otherwise, and if the library embeds later, the outbox embeds them.
    """
    if space.embedder is None or not space.embedder.local:
        return
    if space.embed_later and not write_policy.current_policy().embed_first:
        return
    due = [item for item in prepared if item.vectors is None]
    texts = [text for item in due for text in item.embeddable]
    if not texts or len(texts) > INLINE_PASSAGES:
        return
    vectors = quantise(space.embedder.embed(texts))
    for item in due:
        item.vectors, vectors = vectors[: len(item.spans)], vectors[len(item.spans) :]


def insert_prepared(space: OpenSpace, unit: Unit, prepared: Sequence[PreparedMemory]) -> list[Row]:
    """Insert prepared memories and their index entries."""
    for item in prepared:
        values = item.values
        if values["created_at"] is None:
            values["created_at"] = unit.at
        values["updated_at"] = values["created_at"]
        if item.chosen_name:
            _check_free(unit, values)
    rows = MEMORIES.insert_many(unit, [item.values for item in prepared])
    write_derived(space, unit.connection, [row["num"] for row in rows], prepared)
    return rows


def _check_free(unit: Unit, values: Mapping[str, Any]) -> None:
    """Raise Conflict if another memory has the id or the ref."""
    taken = stored.find_by_id_or_ref(unit.connection, unit.space, values["id"], values["ref"])
    if taken is not None:
        which = "id" if taken == values["id"] else "ref"
        raise Conflict(
            f"A memory with this {which} exists already.",
            hint="Revise that memory, or choose another id or ref.",
            field=which,
        )
    _check_unambiguous(unit, values["id"], values["ref"])


def _check_unambiguous(unit: Unit, identity: str, ref: str | None) -> None:
    """Raise Conflict if the ref would equal another memory's id, or the id another's ref."""
    if stored.is_ambiguous(unit.connection, unit.space, identity, ref):
        raise Conflict(
            "The ref of one memory would equal the id of another.",
            hint="Choose another ref.",
            field="ref",
        )


def write_derived(
    space: OpenSpace, connection: Rows, nums: Sequence[int], prepared: Sequence[PreparedMemory]
) -> None:
    """Store the index entries of memories; queue memories without vectors in the outbox."""
    embedder, model = space.embedder, None
    if embedder is not None and any(item.vectors is not None for item in prepared):
        model = derived.model_number(connection, space.name, embedder)
        size = 4 + embedder.dimensions
        if any(len(vector) != size for item in prepared for vector in item.vectors or ()):
            raise InvalidInput(
                f"A packed vector must have {size} bytes.", hint=checks.PACK_HINT, field="vectors"
            )
    derived.write_entries(connection, space.name, nums, prepared, model)
    if embedder is not None:
        waiting = [num for num, item in zip(nums, prepared, strict=True) if item.vectors is None]
        lane = write_policy.current_policy().lane
        for num in waiting:
            outbox.add(connection, space.name, num, lane)
        if waiting:
            space.store.after_commit(
                lambda: space.embed_soon(waiting if lane == outbox.FIRST else ())
            )


def remember(
    space: OpenSpace,
    drafts: Sequence[Draft],
    *,
    origin: Origin | None = None,
    project: Project | None = None,
) -> list[Memory]:
    """Store memories together: all of them, or none."""
    origin = checks.origin(origin)
    drafts = list(checks.iterable(drafts, "drafts", "drafts"))
    if not drafts:
        return []
    drafts = [_with_project_labels(draft, project) for draft in drafts]
    checked = [_checked_values(space, draft, origin) for draft in drafts]
    prepared = list(map(_prepare_checked, drafts, checked, new_ids(len(drafts))))
    embed_now(space, prepared)
    with space.write("remember", origin) as unit:
        return list(map(Memory.of, insert_prepared(space, unit, prepared)))


def _with_project_labels(draft: Draft, project: Project | None) -> Draft:
    """Return the draft with the project's labels; memories of the kind `identity` get none."""
    if project is None or not isinstance(draft, Draft) or draft.kind == "identity":
        return draft
    return replace(draft, tags=projects.checked_project(project).label(checks.tags(draft.tags)))


def find_row(connection: Rows, space: str, identity: str) -> Row | None:
    """Return a memory's row by its id or its ref, or None."""
    checks.text(identity, "id", max_chars=checks.REF_CHARS)
    row = MEMORIES.by_id(connection, space, identity.lower())
    if row is None:
        row = MEMORIES.first(connection, space, ref=identity)
        if row is not None and row["ref"] != identity:
            row = None
    return row


def need_row(connection: Rows, space: str, identity: str) -> Row:
    """Return a memory's row by its id or its ref, or raise NotFound."""
    row = find_row(connection, space, identity)
    if row is None:
        raise NotFound(
            "There is no such memory.", hint="Check the id, or search for the memory.", field="id"
        )
    return row


def get(
    space: OpenSpace, identity: str, *, as_of: When | None = None, count: bool = True
) -> Memory:
    """Return one memory by its id or ref, in any state; with `as_of`, as it was at that time.

    The call counts as a read, unless `count` is False or `as_of` is used.
    """
    checks.flag(count, "count")
    if as_of is not None:
        from commonplace.engine.history.timeline import need_memory, read_as_of

        with read_as_of(space, as_of) as (connection, seq):
            return Memory.of(need_memory(connection, space.name, identity, seq))
    with space.store.read() as connection:
        memory = Memory.of(need_row(connection, space.name, identity))
    if count:
        space.count_reads([memory.num], now())
    return memory


def usage(space: OpenSpace, identity: str) -> Usage:
    """Return how often a memory was read, and when it was read last."""
    with space.store.read() as connection:
        num = need_row(connection, space.name, identity)["num"]
    return usages(space, [num])[num]


def memories_by_number(space: OpenSpace, nums: Sequence[int]) -> list[Memory]:
    """Return memories by their numbers, in the same order; missing memories are left out."""
    with space.store.read() as connection:
        rows = MEMORIES.by_nums(connection, space.name, nums)
    return [Memory.of(rows[num]) for num in nums if num in rows]


def usages(space: OpenSpace, nums: Collection[int]) -> dict[int, Usage]:
    """Return how often, and when last, memories were read; unwritten reads are included."""
    pending = {num: space.pending_reads(num) for num in nums}
    found = {}
    with space.store.read() as connection:
        for num in nums:
            accesses, last = counters.read(connection, space.name, num)
            # A stored counter that has reached the pending value already includes the pending
            # reads.
            waiting = [r for r in pending[num] if r.reaches is None or accesses < r.reaches]
            newest = max(last, *(reads.at for reads in waiting), 0)
            count = accesses + sum(reads.count for reads in waiting)
            found[num] = Usage(count, moment(newest) if newest else None)
    return found


def numbers_read_since(space: OpenSpace, since: When) -> list[int]:
    """Return the numbers of the memories that were read at or after a time."""
    at = checks.time(since, "since")
    assert at is not None
    space.write_reads()
    with space.store.read() as connection:
        return counters.memories_read_since(connection, space.name, at)


def count_reads_now(space: OpenSpace, identities: Iterable[str], times: int = 1) -> None:
    """Count memories as read, and write the counts now instead of in the background."""
    with space.store.read() as connection:
        nums = [need_row(connection, space.name, each)["num"] for each in identities]
    if nums:
        space.add_reads(nums, times, now())


@keyword_fields(Changes)
def revise(
    space: OpenSpace,
    identity: str,
    text: str | None = None,
    *,
    expected_version: int | None = None,
    origin: Origin | None = None,
    project: Project | None = None,
    **changes: Unpack[Changes],
) -> Memory:
    """Change a memory; its former version stays in its history.

    With `expected_version`, raise Conflict if the memory has been changed since. With a `project`,
    new tags without a project label keep the memory in its present project.
    """
    wanted = {**changes} if text is None else {"text": text, **changes}
    if project is not None:
        projects.checked_project(project)
    if project and "tags" in changes and not is_labelled(checks.tags(changes["tags"])):
        with space.store.read() as connection:
            row = need_row(connection, space.name, identity)
        wanted["tags"] = [*checks.tags(changes["tags"]), *labels_of(json.loads(row["tags"]))]
    return change(space, identity, wanted, origin, expected=expected_version)


def promote(space: OpenSpace, identity: str, trust: str, *, origin: Origin | None = None) -> Memory:
    """Raise the trust of a memory, as an operation of its own."""
    return change(space, identity, {"trust": trust}, origin, name="promote")


def change(
    space: OpenSpace,
    identity: str,
    changes: Mapping[str, Any],
    origin: Origin | None,
    *,
    expected: int | None = None,
    name: str = "revise",
) -> Memory:
    """Change fields of a memory; only the operation `promote` may raise the trust."""
    checks.optional_integer(expected, "expected_version")
    unknown = sorted(set(changes) - CHANGEABLE)
    if unknown:
        raise InvalidInput(
            f"A memory has no changeable field named {unknown[0]}.",
            hint=f"These can be changed: {', '.join(sorted(CHANGEABLE))}.",
            field=unknown[0],
        )
    values = {field: _CHECKS[field](value) for field, value in changes.items()}
    write_policy.mask_row(space, values)
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
        if "trust" in values and name != "promote":
            _check_trust(current["trust"], values["trust"])
        if current["seq"] != row["seq"]:
            prepared = _prepare_change(space, current, values, speaker)
        values = {k: v for k, v in values.items() if current[k] != v}
        if not values:
            return Memory.of(current)
        return Memory.of(change_row(space, unit, current, values, prepared))


def _prepare_change(
    space: OpenSpace, row: Row, values: Mapping[str, Any], speaker: str
) -> PreparedMemory | None:
    """Compute new index entries; return None if the change affects no index entry."""
    indexed = ("title", "text", "tags", "trust", "occurred_at", *FILTERABLE)
    if not any(row[name] != values[name] for name in indexed if name in values):
        return None
    prepared = index_entries({**row, **values}, speaker)
    if any(row[name] != values[name] for name in ("title", "text") if name in values):
        embed_now(space, [prepared])
    return prepared


def change_row(
    space: OpenSpace,
    unit: Unit,
    row: Row,
    values: Mapping[str, Any],
    prepared: PreparedMemory | None,
) -> Row:
    """Apply checked changes in an open unit."""
    write_policy.check_reserved({**row, **values}, row)
    connection = unit.connection
    if values.get("ref") is not None:
        if stored.ref_is_taken(connection, unit.space, values["ref"], row["num"]):
            raise Conflict("A memory with this ref exists already.", field="ref")
        _check_unambiguous(unit, row["id"], values["ref"])
    vectors = stored_vectors(connection, unit.space, row["num"]) if prepared else None
    new = MEMORIES.replace(unit, row, {**values, "updated_at": unit.at}, vectors)
    if prepared is not None:
        if prepared.vectors is None and new["text"] == row["text"] and new["title"] == row["title"]:
            prepared.vectors = usable_vectors(space, connection, vectors, len(prepared.spans))
        derived.drop_entries(connection, unit.space, row["num"])
        write_derived(space, connection, [row["num"]], [prepared])
    return new


def speaker_of(connection: Rows, space: str, num: int) -> str:
    """Return the speaker of a memory that is a message, or an empty string."""
    message = MESSAGES.first(connection, space, memory=num)
    return str(message["speaker"]) if message else ""


def stored_vectors(connection: Rows, space: str, num: int) -> bytes | None:
    """Return a memory's vectors packed for `versions`; None unless one model made all of them."""
    passages = derived.read_passages(connection, space, num)
    models = {passage.model for passage in passages}
    if len(models) != 1 or None in models:
        return None
    vectors = [passage.vector or b"" for passage in passages]
    return _VECTORS.pack(models.pop() or 0, len(vectors), len(vectors[0])) + b"".join(vectors)


def unpack_vectors(kept: bytes) -> tuple[int, list[bytes]]:
    """Return the model number and the vectors that a version holds."""
    model, count, size = _VECTORS.unpack_from(kept)
    start = _VECTORS.size
    return model, [kept[start + i * size : start + (i + 1) * size] for i in range(count)]


def usable_vectors(
    space: OpenSpace, connection: Rows, kept: bytes | None, passages: int
) -> list[bytes] | None:
    """Return the vectors of a version, if the current model made them, one for each passage."""
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
            hint="Use promote to raise the trust.",
            field="trust",
        )


def forget(space: OpenSpace, *identities: str, origin: Origin | None = None) -> list[Memory]:
    """Hide memories. No data is lost; `restore` brings them back."""
    return _set_state(space, identities, "archived", origin, "forget")


def restore(space: OpenSpace, *identities: str, origin: Origin | None = None) -> list[Memory]:
    """Bring forgotten memories back."""
    return _set_state(space, identities, "active", origin, "restore")


def _set_state(
    space: OpenSpace, identities: Iterable[str], state: str, origin: Origin | None, name: str
) -> list[Memory]:
    changed = []
    with space.write(name, origin) as unit:
        for identity in identities:
            row = need_row(unit.connection, space.name, identity)
            if row["state"] != state:
                row = change_row(space, unit, row, {"state": state}, None)
            changed.append(Memory.of(row))
    return changed


@keyword_fields(Details, Draft)
def supersede(
    space: OpenSpace,
    identity: str,
    text: str,
    *,
    reason: str = "",
    origin: Origin | None = None,
    project: Project | None = None,
    **details: Unpack[Details],
) -> Memory:
    """Store a memory that replaces another one, which becomes superseded and linked to it."""
    from commonplace.engine.content.links import put_supersedes

    origin = checks.origin(origin)
    checks.optional_text(reason, "reason", max_chars=checks.REASON_CHARS)
    reason = write_policy.mask_text(space, reason)
    prepared = prepare(space, _with_project_labels(draft_of(text, details), project), origin)
    embed_now(space, [prepared])
    with space.write("supersede", origin) as unit:
        old = need_row(unit.connection, space.name, identity)
        if old["state"] not in LIVE_STATES:
            raise Conflict(
                f"The memory is {old['state']}; only a live memory can be superseded.",
                hint="Supersede the newest memory of its chain instead.",
            )
        if prepared.values["ref"] is not None and prepared.values["ref"] == old["ref"]:
            old = change_row(space, unit, old, {"ref": None}, None)
        (new,) = insert_prepared(space, unit, [prepared])
        change_row(space, unit, old, {"state": "superseded"}, None)
        put_supersedes(unit, new["id"], old["id"], origin, reason)
        return Memory.of(new)


def count_by_attrs(
    space: OpenSpace,
    names: Sequence[str],
    kinds: Sequence[str],
    states: Sequence[str] = LIVE_STATES,
) -> dict[tuple[str, ...], int]:
    """Count memories of these kinds and states, grouped by the values of these attrs."""
    for name in names:
        checks.kind(name, "names")
    wanted = [checks.kind(kind, "kinds") for kind in checks.iterable(kinds, "kinds")]
    living = [checks.one_of(each, "states", STATES) for each in checks.iterable(states, "states")]
    with space.store.read() as connection:
        return stored.count_by_attrs(connection, space.name, names, wanted, living)


def restore_row(
    space: OpenSpace, unit: Unit, current: Row | None, before: Row, vectors: bytes | None
) -> Row:
    """Make a former row current again, and restore its index entries."""
    connection = unit.connection
    if current is None:
        row = MEMORIES.restore(unit, before)
    else:
        kept = stored_vectors(connection, unit.space, current["num"])
        row = MEMORIES.replace(unit, current, before, kept)
        derived.drop_entries(connection, unit.space, current["num"])
    prepared = index_entries(row, speaker_of(connection, unit.space, row["num"]))
    prepared.vectors = usable_vectors(space, connection, vectors, len(prepared.spans))
    write_derived(space, connection, [row["num"]], [prepared])
    derived.record_derived_change(unit, row["num"])
    return row


def remove_row(unit: Unit, row: Row) -> None:
    """Remove a memory's row and index entries; its version stays in the history."""
    connection = unit.connection
    MEMORIES.remove(unit, row, stored_vectors(connection, unit.space, row["num"]))
    derived.drop_entries(connection, unit.space, row["num"])
    outbox.remove(connection, unit.space, row["num"])
    derived.record_derived_change(unit, row["num"])
