"""Purge: delete memories permanently, and prove the deletion by a scan of the files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.content.write_policy import check_reserved
from commonplace.engine.library import OpenSpace
from commonplace.engine.maintenance import outside, purged_refs
from commonplace.engine.maintenance.outside import PurgedMemories
from commonplace.engine.model import Origin
from commonplace.errors import Conflict, NotFound, StorageFull, StorageUnavailable
from commonplace.storage import answers, derived, events, operations
from commonplace.storage.tables import (
    FACTS,
    LINKS,
    MEMBERS,
    MEMORIES,
    MESSAGES,
    VERSIONED,
    Row,
    Table,
)
from commonplace.storage.versions import erase_derived, erase_row
from commonplace.storage.writing import Unit

WINDOW = 24  # The length in bytes of a piece of purged text; no file may contain such a piece.
STRIDE = 8
MOST_WINDOWS = 2_000
UNPROVED_MESSAGE = "The memories are deleted, but some of their bytes may still be in the files."
SWEEP_HINT = "Close every program that has the space open: the last one to close deletes the log."
NAMING_COLUMNS = ("kind", "origin")
TEXT_COLUMNS = ("text", "title", "ref", "reason", "subject", "object", "subject_key", "object_key")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a purge: what it removed, and what a scan of the files found afterwards."""

    memories: int
    rows: int
    files: tuple[str, ...]
    bytes_scanned: int
    traces: int | None
    """Pieces of the purged texts that are still in the files and in no other stored text.

    None on PostgreSQL, whose vacuum, log, replicas and backups determine when they go."""
    copies: tuple[str, ...] = ()
    """Copies that a restore or a migration left next to the file; they may contain the texts."""
    removed: tuple[str, ...] = ()
    """Other files of the data directory that contained copies and were deleted or rewritten."""
    held: tuple[str, ...] = ()
    """What still holds a text or a piece of one: files of the data directory, and columns that say
    who did something."""
    sources: tuple[str, ...] = ()
    """The formats that some were imported from: the files of those programs still hold the texts,
    which are not imported again."""


def purge(
    space: OpenSpace, *identities: str, origin: Origin | None = None, words: Sequence[str] = ()
) -> Proof:
    """Delete memories and their history permanently, and prove it by a scan of the files.

    `words`, which may be short, are removed too: audit entries that contain them lose their
    arguments and results. Copies in other files of the data directory are removed or reported.
    Purged lines of an import are not imported again. A purge cannot be part of a unit of work.
    """
    if space.store.in_unit:  # the files can be scanned only when the deletion is final
        raise Conflict(
            "A purge cannot be part of a unit of work.", hint="Purge after the end of its block."
        )
    words = [checks.text(word, "words") for word in checks.iterable(words, "words")]
    texts: list[str] = []
    referring: list[str] = []  # texts of links, facts and other rows that refer to the memories
    names: set[str] = set()
    said: set[str] = set()
    imported: dict[str, str] = {}  # maps a ref to the source of its import
    gone = PurgedMemories()
    rows = purged = 0
    with space.write("purge", origin) as unit:
        for identity in identities:
            found = _row_numbers(unit, identity)
            if not found:
                raise NotFound("There is no such memory.", field="id")
            for num, ids in found.items():
                texts += _texts_of_row(unit, MEMORIES, num)
                gone.nums.add(num)
                for row in _row_and_versions(unit, MEMORIES, num):
                    said.add(row["text"])
                    if row["kind"] in outside.RECORDS and row["ref"]:
                        gone.records.add((row["kind"], row["ref"]))
                    came = Origin.load(row["origin"])
                    if came.tool in purged_refs.TOOLS and row["ref"]:
                        imported[row["ref"]] = came.client
                rows += _erase(unit, num, ids, referring)
                names |= ids
                purged += 1
        rows += _redact_events(unit, texts, words)
        forms = {form for word in words for form in _stored_forms(word)}
        pieces = _windows(texts + referring) | forms
        rows += _redact_calls(space, unit, pieces, names)
        rows += _redact_origins(unit, words)
        purged_refs.record_purged(unit, imported)
        named = _remaining_mentions(unit, words)
    try:
        swept = space.store.sweep(pieces)
    except (StorageFull, StorageUnavailable) as error:
        raise StorageUnavailable(
            UNPROVED_MESSAGE, hint=f"Free disk space if it ran out. {SWEEP_HINT}"
        ) from error
    if swept.traces:
        raise StorageUnavailable(
            f"{swept.traces} pieces of the purged text are still in the files.",
            hint="The memories are deleted; another process may still be reading them."
            f" {SWEEP_HINT}",
        )
    # Tags, refs and sources are not searched for: other files contain the same paths and URLs.
    whole = {
        form for text in said if len(text) >= WINDOW // 2 for form in _stored_forms(text)
    } | forms
    removed, held = outside.remove_copies(space, gone, whole, _windows(sorted(said)) | forms)
    return Proof(
        purged, rows, swept.files, swept.scanned, swept.traces, swept.copies, removed,
        (*named, *held), tuple(sorted(set(imported.values()))),
    )  # fmt: skip


def expire(space: OpenSpace, *identities: str, origin: Origin | None = None) -> int:
    """Delete outdated records with their history; return how many were deleted.

    Their disk space is reused. Unlike a purge, this proves nothing, so it can run in the
    background. Records that something refers to are not deleted.
    """
    deleted = 0
    with space.write("expire", origin) as unit:
        for identity in identities:
            row = memories.find_row(unit.connection, unit.space, identity)
            if row is None or _is_referred_to(unit, row["id"]):
                continue
            erase_row(unit.connection, unit.space, MEMORIES, row["num"])
            erase_derived(unit.connection, unit.space, row["num"])
            derived.record_derived_change(unit, row["num"])
            deleted += 1
    return deleted


def _is_referred_to(unit: Unit, identity: str) -> bool:
    columns = ((LINKS, "source"), (LINKS, "target"), (MEMBERS, "memory"), (FACTS, "memory"))
    where: list[tuple[Table, dict[str, Any]]] = [
        (table, {column: identity}) for table, column in columns
    ]
    return any(table.where(unit.connection, unit.space, **values) for table, values in where)


def _row_numbers(unit: Unit, identity: str) -> dict[int, set[str]]:
    """Return the row number of a memory with its id and ref.

    If the memory was removed, return the numbers of its former rows, each with its id. A memory
    that exists is not found by a ref that it has lost.
    """
    row = memories.find_row(unit.connection, unit.space, identity)
    if row is not None:
        check_reserved(row)
        return {row["num"]: {row["id"]} | ({row["ref"]} if row["ref"] else set())}
    found: dict[int, set[str]] = {}
    for former, _, _ in MEMORIES.past(unit.connection, unit.space):
        if identity in (former["id"], former["ref"]):
            check_reserved(former)
            found[former["num"]] = {former["id"]}
    present = MEMORIES.by_nums(unit.connection, unit.space, list(found))
    return {num: ids for num, ids in found.items() if num not in present}


def _row_and_versions(unit: Unit, table: Table, num: int) -> list[Row]:
    """Return a row and its former versions."""
    rows = table.where(unit.connection, unit.space, num=num)
    return rows + [row for row, _, _ in table.past(unit.connection, unit.space, num=num)]


def _texts_of_row(unit: Unit, table: Table, num: int) -> list[str]:
    """Return all texts of a row and of its former versions."""
    rows = _row_and_versions(unit, table, num)
    # The source of a link is an id, not a text.
    names = (*TEXT_COLUMNS, "source") if table is MEMORIES else TEXT_COLUMNS
    found = [row[name] for row in rows for name in names if row.get(name)]
    for row in rows:
        for name in ("attrs", "tags"):
            found += _strings_in(json.loads(row.get(name) or "[]"))
    return found


def _strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings_in(item)]
    return []


def _erase(unit: Unit, num: int, ids: set[str], texts: list[str]) -> int:
    """Remove the row, its versions, its index entries, and rows of other tables that refer to it.

    The texts of these other rows are added to `texts`.
    """
    connection, space = unit.connection, unit.space
    rows = erase_row(connection, space, MEMORIES, num) + erase_derived(connection, space, num)
    for identity in ids:
        for table, columns in ((LINKS, ("source", "target")), (MEMBERS, ("memory",)),
                               (FACTS, ("memory",))):  # fmt: skip
            rows += _erase_rows(unit, table, columns, identity, texts)
    rows += _erase_rows(unit, MESSAGES, ("memory",), num, [])
    derived.record_derived_change(unit, num)
    return rows


def _erase_rows(
    unit: Unit, table: Table, columns: Sequence[str], value: Any, texts: list[str]
) -> int:
    """Delete the rows that refer to a memory, or once did; return how many were deleted."""
    nums = {
        row["num"]
        for column in columns
        for row in table.where(unit.connection, unit.space, **{column: value})
    }
    for row, _, _ in table.past(unit.connection, unit.space):
        if any(row[column] == value for column in columns):
            nums.add(row["num"])
    rows = 0
    for num in nums:
        texts += _texts_of_row(unit, table, num)
        rows += erase_row(unit.connection, unit.space, table, num)
    return rows


def _redact_events(unit: Unit, texts: Sequence[str], words: Sequence[str]) -> int:
    """Remove the payloads of events that quote a purged text; their hashes stay."""
    redacted = 0
    for num, payload in events.payloads(unit.connection, unit.space):
        quoted = _strings_in(json.loads(payload))
        # One or two words in common are not a quotation.
        if any(
            (len(text) >= WINDOW // 2 and text in quote) or (len(quote) >= WINDOW and quote in text)
            for text in texts
            for quote in quoted
        ) or any(word in quote for word in words for quote in quoted):
            events.clear_payload(unit.connection, unit.space, num)
            redacted += 1
    return redacted


def _redact_calls(space: OpenSpace, unit: Unit, pieces: set[bytes], names: Iterable[str]) -> int:
    """Remove payloads of audit entries, and stored answers, that name or quote a memory."""
    from commonplace.engine.history import audit
    from commonplace.storage import audit as stored_audit

    # Also search for the id, because a text of a few characters is too short to search for.
    windows = pieces | {json.dumps(name, ensure_ascii=False).encode() for name in names}
    windows |= {window.replace(b'"', b'\\"') for window in windows if window[:1] == b'"'}
    audited = [
        num
        for num, *payloads in stored_audit.payloads(unit.connection, unit.space)
        if any(_contains_piece(payload, windows) for payload in payloads)
    ]
    audit.redact(space.store, audited)
    answered = [
        key
        for key, result in answers.results(unit.connection, unit.space)
        if _contains_piece(result, windows)
    ]
    answers.remove(unit.connection, unit.space, answered)
    return len(audited) + len(answered)


def _redact_origins(unit: Unit, words: Sequence[str]) -> int:
    """Clear the fields of operations' origins that contain a word; the caller's name stays."""
    changed = 0
    for row in list(operations.in_order(unit.connection, unit.space)) if words else ():
        parts = Origin.load(row.origin).as_dict()
        kept = {
            name: value
            for name, value in parts.items()
            if name == "user" or not _contains_word(value, words)
        }
        if kept != parts:
            operations.replace_origin(unit.connection, unit.space, row, Origin(**kept).dump())
            changed += 1
    return changed


def _remaining_mentions(unit: Unit, words: Sequence[str]) -> list[str]:
    """Return the columns that contain a word and that a purge keeps, each with its row count.

    These columns say who did what. Rows of the audit log cannot change, because hashes chain them.
    """
    from commonplace.storage import audit

    found: Counter[str] = Counter()
    if not words:
        return []
    for table in VERSIONED:
        rows = table.where(unit.connection, unit.space)
        for row in [*rows, *(past for past, _, _ in table.past(unit.connection, unit.space))]:
            found.update(
                f"{table.name}.{name}"
                for name in NAMING_COLUMNS
                if _contains_word(row.get(name), words)
            )
    for done in operations.in_order(unit.connection, unit.space):
        found.update(["operations.origin"] if _contains_word(done.origin, words) else [])
    for event in events.find(unit.connection, unit.space, events.EventConditions()):
        found.update(f"events.{name}" for name in ("kind", "subject")
                     if _contains_word(getattr(event, name), words))  # fmt: skip
    for each in audit.caller_columns(unit.connection, unit.space):
        found.update(
            f"audit.{name}" for name, value in each.items() if _contains_word(value, words)
        )
    return [f"{name} ({count} {'row' if count == 1 else 'rows'})" for name, count in found.items()]


def _contains_word(value: Any, words: Sequence[str]) -> bool:
    return isinstance(value, str) and any(word.lower() in value.lower() for word in words)


def _contains_piece(payload: Any, windows: set[bytes]) -> bool:
    data = payload.encode() if isinstance(payload, str) else b""
    return any(window in data for window in windows)


def _windows(texts: Sequence[str]) -> set[bytes]:
    """Return pieces of all texts to search for, evenly spaced, plain and as escaped JSON."""
    every = [
        encoded[start : start + WINDOW]
        for text in texts
        for encoded in _stored_forms(text)
        for start in range(0, max(1, len(encoded) - WINDOW + 1), STRIDE)
    ]
    step = max(1, len(every) // MOST_WINDOWS)
    return {window for window in every[::step] if len(window) >= WINDOW // 2}


def _stored_forms(text: str) -> set[bytes]:
    """Return the forms in which a text is stored: plain, or escaped as JSON up to three times.

    Files may contain the text as JSON of ASCII characters only.
    """
    forms = [text]
    for _ in range(3):
        forms.append(json.dumps(forms[-1], ensure_ascii=False)[1:-1])
    forms.append(json.dumps(text)[1:-1])
    return {form.encode() for form in forms}
