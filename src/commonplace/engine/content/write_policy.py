"""The rules for writes: reserved names, masked secrets, and when memories are embedded.

Some memories hold instructions that a program follows, or the program's own data. Their kinds, tags
and records are reserved for their owner. Code that runs for somebody else, such as a tool call of a
dialect's client, runs with the reservations of all other dialects. Undo, import and restore put
back whole rows and are not checked; neither is a program that uses the library directly.

Secrets are masked before anything is stored, unless the library was opened with `allow_secrets`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from commonplace.errors import InvalidInput
from commonplace.storage import outbox

if TYPE_CHECKING:
    from commonplace.engine.library import OpenSpace

RECORD_STATE = "archived"
"""The state of records, which no search returns by default."""
_MASKED_FIELDS = (
    "text",
    "title",
    "source",
    "reason",
    "subject",
    "object",
    "name",
    "digest",
    "comments",
)
"""Columns with text; other rules apply to tags, refs, attrs and the content of documents."""
_RANKING_FIELDS = frozenset({"importance", "confidence", "credit", "pinned", "updated_at"})
"""Fields that affect only the ranking; every caller may change them."""

Shape = Mapping[str, Any]
"""Maps names of attrs to the type or shape of their values; a name with `?` is optional."""


def has_shape(value: Any, shape: Shape) -> bool:
    """Return whether a value is an object of that shape; additional names are allowed."""
    if not isinstance(value, Mapping):
        return False
    for name, wanted in shape.items():
        held = name.removesuffix("?")
        if held not in value:
            if held == name:
                return False
        elif isinstance(wanted, Mapping):
            if not has_shape(value[held], wanted):
                return False
        elif not isinstance(value[held], wanted) or (
            isinstance(value[held], bool) and wanted in (int, NUMBER)
        ):
            return False
    return True


NUMBER = (int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The names that one owner reserves. A name that ends with `*` is a prefix."""

    owner: str
    reason: str
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """By kind, the attrs that the owner requires; the owner skips memories without them."""
    records: Mapping[str, Shape] = field(default_factory=dict)
    """By kind, the shape of attrs that makes an archived memory a record."""

    own_records: tuple[str, ...] = ()
    """Internal kinds of the owner; the command line finds them only by their kind."""

    artifacts: tuple[str, ...] = ()
    """Paths of artifacts; a path that ends with `*` is a prefix."""

    def reserved_tags(self, tags: Collection[str]) -> list[str]:
        """Return the reserved tags among these tags."""
        return [tag for tag in tags if _matches_pattern(tag, self.tags)]

    def is_record(self, kind: str, state: str, attrs: Mapping[str, Any]) -> bool:
        """Return whether a memory of that kind and state, with these attrs, is a record."""
        shape = self.records.get(kind)
        return shape is not None and state == RECORD_STATE and has_shape(attrs, shape)

    def is_readable(self, kind: str, attrs: Mapping[str, Any]) -> bool:
        """Return whether a memory has the attrs that its kind requires."""
        shape = self.shapes.get(kind)
        return shape is None or has_shape(attrs, shape)

    def is_unreadable(self, kind: str, state: str, attrs: Mapping[str, Any]) -> bool:
        """Return whether a memory belongs to the owner, but lacks attrs that the owner requires.

        An archived memory without any attr of a record belongs to another dialect.
        """
        if kind in self.records and state == RECORD_STATE and attrs.keys() & self.records[kind]:
            return not self.is_record(kind, state, attrs)
        return not self.is_readable(kind, attrs)

    def refuse_tags(self, tags: Collection[str]) -> None:
        """Raise InvalidInput if one of the tags is reserved."""
        if found := self.reserved_tags(tags):
            raise self._refusal(f"the tag {found[0][:80]!r}", "tags")

    def _refusal(self, what: str, named: str) -> InvalidInput:
        return InvalidInput(
            f"{what[0].upper()}{what[1:]} is reserved for {self.owner}: {self.reason}.",
            hint=f"Use another name, or write it through {self.owner}.",
            field=named,
        )

    def _check_change(self, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
        changed = {name for name in after if before is None or before[name] != after[name]}
        if changed <= _RANKING_FIELDS:
            return
        for row in (after, *((before,) if before is not None else ())):
            if _matches_pattern(row["kind"], self.kinds):
                raise self._refusal(f"the kind {row['kind']!r}", "kind")
            if row["kind"] in self.records and self.is_record(
                row["kind"], row["state"], json.loads(row["attrs"])
            ):
                raise self._refusal(f"a record of the kind {row['kind']!r}", "kind")
            # Every caller may archive a memory with a reserved tag, but not change its content.
            if row["tags"] != "[]" and changed - _RANKING_FIELDS != {"state"}:
                self.refuse_tags(json.loads(row["tags"]))


def _matches_pattern(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns
    )


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """The rules for writes in one block and thread."""

    reservations: tuple[Reservation, ...] = ()
    """The reserved names that writes must not use."""
    embed_first: bool = False
    """Embed memories before they are stored, even if the library embeds later."""
    lane: int = outbox.FIRST
    """The lane (queue) of the outbox for memories that are to be embedded."""
    masked: list[str] | None = None
    """A list to which the kinds of masked secrets are added, or None."""


_NO_RULES = WritePolicy()
_policy: ContextVar[WritePolicy] = ContextVar("write policy", default=_NO_RULES)


def current_policy() -> WritePolicy:
    """Return the write policy of this block and thread."""
    return _policy.get()


def masked_secret_kinds() -> list[str]:
    """Return the kinds of the secrets that were masked since the policy was applied."""
    return list(_policy.get().masked or ())


@contextmanager
def apply_policy(
    *,
    reservations: tuple[Reservation, ...] | None = None,
    embed_first: bool | None = None,
    lane: int | None = None,
    masked: list[str] | None = None,
) -> Iterator[None]:
    """Apply these rules to the writes of this block and thread.

    An argument that is left out keeps its current value.
    """
    outer = _policy.get()
    policy = WritePolicy(
        outer.reservations if reservations is None else reservations,
        outer.embed_first if embed_first is None else embed_first,
        outer.lane if lane is None else lane,
        outer.masked if masked is None else masked,
    )
    token = _policy.set(policy)
    try:
        yield
    finally:
        _policy.reset(token)


def check_reserved(after: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Raise InvalidInput if a new or changed row is reserved; the values are in stored form."""
    for each in _policy.get().reservations:
        each._check_change(before, after)


def check_artifact(path: str | None) -> None:
    """Raise InvalidInput if an artifact at this path is reserved."""
    for each in _policy.get().reservations:
        if path is not None and _matches_pattern(path, each.artifacts):
            raise each._refusal(f"the path {path[:80]!r}", "path")


def _note_masked(kinds: list[str]) -> None:
    noticed = _policy.get().masked
    if kinds and noticed is not None:
        noticed.extend(kinds)


def mask_text(space: OpenSpace, text: str) -> str:
    """Return a text with its secrets masked, unless secrets are allowed."""
    if space.allow_secrets:
        return text
    from commonplace.text import secrets  # imported on first use

    masked, kinds = secrets.mask(text)
    _note_masked(kinds)
    return masked


def mask_row(space: OpenSpace, values: dict[str, Any]) -> None:
    """Mask the secrets in the values of a row, which are in their stored form.

    A ref names a memory and cannot be masked; a ref with a secret is refused.
    """
    if space.allow_secrets:
        return
    for name in _MASKED_FIELDS:
        value = values.get(name)
        if value and isinstance(value, str):
            values[name] = mask_text(space, value)
    _mask_labels(values)
    given = values.get("attrs")
    if isinstance(given, str) and given != "{}":
        from commonplace.text import secrets

        masked, kinds = secrets.mask_values(json.loads(given))
        if kinds:
            values["attrs"] = json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
            _note_masked(kinds)


def _mask_labels(values: dict[str, Any]) -> None:
    """Mask the secrets in tags, and refuse a ref that contains a secret."""
    tags, ref = values.get("tags"), values.get("ref")
    if not ref and (not tags or tags == "[]"):
        return
    from commonplace.text import secrets

    if ref and (found := secrets.find_certain_secrets(ref)):
        raise InvalidInput(
            f"ref contains a secret ({found[0].kind}).",
            hint="A ref cannot be masked: choose another ref, or allow secrets.",
            field="ref",
        )
    masked = [secrets.mask_label(tag) for tag in json.loads(tags or "[]")]
    if kinds := [kind for _, kinds in masked for kind in kinds]:
        labels = list(dict.fromkeys(tag for tag, _ in masked))
        values["tags"] = json.dumps(labels, ensure_ascii=False, separators=(",", ":"))
        _note_masked(kinds)


def mask_content(space: OpenSpace, content: bytes) -> bytes:
    """Return the content of a document with its secrets masked; only text content is searched."""
    if space.allow_secrets or b"\0" in content[:8_000]:
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return mask_text(space, text).encode()
