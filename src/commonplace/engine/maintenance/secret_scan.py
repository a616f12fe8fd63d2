"""Find secrets in the stored data and its former versions, and delete them permanently."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

from commonplace.engine.content import memories
from commonplace.engine.content.memories import DRAFT_FIELDS, Draft
from commonplace.engine.library import OpenSpace
from commonplace.engine.maintenance.purge import Proof, purge
from commonplace.engine.model import Memory, Origin
from commonplace.storage.tables import (
    ARTIFACTS,
    CLUSTERS,
    CONTENTS,
    FACTS,
    LINKS,
    MEMORIES,
    MESSAGES,
    REVIEWS,
    Row,
    Table,
)
from commonplace.text import secrets

EXCERPT = 40
# For each table: the name of its rows, the column that identifies a row, and the text columns.
_SCANNED: tuple[tuple[Table, str, str, tuple[str, ...]], ...] = (
    (MEMORIES, "memory", "id", ("title", "text", "attrs", "tags", "ref", "source")),
    (FACTS, "fact", "id", ("subject", "predicate", "object", "attrs")),
    (LINKS, "link", "id", ("reason", "attrs")),
    (CLUSTERS, "cluster", "id", ("name", "digest", "attrs")),
    (ARTIFACTS, "artifact", "id", ("path", "title", "attrs")),
    (CONTENTS, "artifact", "artifact", ("content", "summary")),
    (REVIEWS, "artifact", "artifact", ("reviewer", "comments")),
    (MESSAGES, "conversation", "conversation", ("conversation", "session", "speaker")),
)


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A secret, or a text that was searched for, in a stored object."""

    what: str
    """The type: memory, fact, link, cluster, artifact or conversation."""
    id: str
    kind: str
    excerpt: str
    """The surrounding text, with the secret masked."""
    former: bool
    """Whether only former versions contain the secret."""


_LABEL_COLUMNS = ("tags", "ref", "path", "conversation", "session", "speaker", "reviewer")
_UNCERTAIN_KINDS = ("password", "key")  # see secrets.find_certain_secrets
ColumnTexts = Iterator[tuple[str, str]]
"""Pairs of a column and its text."""
FindSecrets = Callable[[str], list[secrets.Secret]]
"""Returns the secrets in a text."""


def finder_of_texts(*wanted: str) -> FindSecrets:
    """Return a function that finds these texts in other texts, ignoring case."""
    pattern = re.compile("|".join(map(re.escape, wanted)), re.IGNORECASE)

    def find(text: str) -> list[secrets.Secret]:
        found = pattern.finditer(text)
        return [secrets.Secret(match.start(), match.end(), "text") for match in found]

    return find


def scan(space: OpenSpace, find: FindSecrets = secrets.find_secrets) -> list[FoundSecret]:
    """Return the secrets in all stored objects and their former versions."""
    found: dict[tuple[str, str, str, str], FoundSecret] = {}

    def add(what: str, identity: str, texts: ColumnTexts, former: bool) -> None:
        for column, text in texts:
            for secret in find(text):
                if column in _LABEL_COLUMNS and secret.kind in _UNCERTAIN_KINDS:
                    continue
                excerpt = _excerpt(text, secret)
                each = FoundSecret(what, identity, secret.kind, excerpt, former)
                found.setdefault((what, identity, secret.kind, excerpt), each)

    with space.store.read() as connection:
        paths: dict[str, str] = {
            row["id"]: row["path"] or row["id"] for row in ARTIFACTS.where(connection, space.name)
        }
        for table, what, named, columns in _SCANNED:
            current = [(row, False) for row in table.where(connection, space.name)]
            past = [(row, True) for row, _, _ in table.past(connection, space.name)]
            for row, former in current + past:
                name = str(row[named])
                add(what, paths.get(name, name), _texts(row, columns), former)
    return list(found.values())


def _texts(row: Row, columns: Iterable[str]) -> ColumnTexts:
    for name in columns:
        if value := row[name]:
            yield name, value.decode("utf-8", "ignore") if isinstance(value, bytes) else value


def _excerpt(text: str, secret: secrets.Secret) -> str:
    first, last = max(0, secret.start - EXCERPT), secret.stop + EXCERPT
    before = ("…" if first else "") + secrets.mask(text[first : secret.start])[0].lstrip()
    after = secrets.mask(text[secret.stop : last])[0].rstrip() + ("…" if last < len(text) else "")
    return " ".join(f"{before}{secrets.mask_for(secret.kind)}{after}".split())


def purge_secrets(
    space: OpenSpace, identities: Iterable[str], *, origin: Origin | None = None
) -> tuple[Proof, dict[str, str]]:
    """Purge memories, and store a copy of each with its secrets masked.

    Return the proof of the purge, and the id of each copy by the id of its memory. A copy has no
    links and belongs to no conversation.
    """
    wanted = list(dict.fromkeys(identities))
    with space.store.read() as connection:
        rows = {each: memories.need_row(connection, space.name, each) for each in wanted}
    drafts = {each: _masked_draft(Memory.of(row)) for each, row in rows.items()}
    stored = memories.remember(space, list(drafts.values()), origin=origin)
    kept = dict(zip(drafts, stored, strict=True))
    proof = purge(space, *wanted, origin=origin)
    for identity, copy in kept.items():
        ref = rows[identity]["ref"]
        if ref is not None and not secrets.find_certain_secrets(ref):
            memories.change(space, copy.id, {"ref": ref}, origin)
    return proof, {identity: copy.id for identity, copy in kept.items()}


def _masked_draft(memory: Memory) -> Draft:
    """Return a draft of the memory with masked secrets, without its id and ref.

    The secrets are masked here because the library may allow secrets.
    """
    known = {each.name for each in fields(memory)} & set(DRAFT_FIELDS) - {"id", "ref"}
    values = {name: getattr(memory, name) for name in known}
    masked = {
        "text": secrets.mask(memory.text)[0],
        "title": secrets.mask(memory.title)[0],
        "source": secrets.mask(memory.source)[0],
        "tags": list(dict.fromkeys(secrets.mask_label(tag)[0] for tag in memory.tags)),
        "attrs": secrets.mask_values(memory.attrs)[0],
    }
    return Draft(**{**values, **masked})
