"""Vaults of Markdown notes: Obsidian, and basic-memory with its observations and relations."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from commonplace.engine.model import Link, Memory, iso
from commonplace.errors import InvalidInput
from commonplace.importers import markdown
from commonplace.importers.items import Item, Remark, Skipped, storable_tags, storable_title
from commonplace.storage.fields import DEFAULTS
from commonplace.transcripts.record import mapping_of, parse_time, text_of

_CREATED_NAMES = ("created", "date created", "created_at", "date")
_OCCURRED_NAMES = ("occurred", "occurred_at", "date")
_ID_PROPERTY = "commonplace"
_ATTRS_PROPERTY = "commonplace_attrs"
_EXPORTED_PROPERTIES = (
    _ID_PROPERTY, "title", "kind", "tags", "created", "occurred", "links", "link_kinds", "ref",
    "source", "pinned", "importance", _ATTRS_PROPERTY,
)  # fmt: skip
"""The properties that an export adds to those of the original note."""
_OBSERVATION = re.compile(r"^[ \t]*[-*] \[([^\]\n]{1,60})\] (.+)$", re.MULTILINE)
_RELATION = re.compile(
    r"^[ \t]*[-*] ([\w -]{1,60}?) \[\[([^\]\n|#]+)(?:[|#][^\]\n]*)?\]\]", re.MULTILINE
)
_UNSAFE_IN_FILE_NAME = re.compile(r'[\\/:*?"<>|#^\[\]\x00-\x1f]+')


class Vault:
    """A directory of notes; a note is one memory."""

    def __init__(self, name: str, title: str) -> None:
        self.NAME = name
        self.TITLE = title

    def recognises(self, path: Path) -> bool:
        """Return whether a directory is a vault: it contains Obsidian's settings."""
        return path.is_dir() and (path / ".obsidian").is_dir()

    def items(self, path: Path) -> Iterator[Item | Skipped | Remark]:
        """Yield every note with its tags, dates and links, and a `Skipped` for each unreadable
        note."""
        root = path if path.is_dir() else path.parent
        notes: dict[str, Path] = {}
        for file in markdown.files(path):
            name = file.relative_to(root)
            key = name.with_suffix("").as_posix()
            if other := notes.get(key):  # a note of the same name with another suffix
                notes[other.relative_to(root).as_posix()] = other
            notes[key] = file
        targets = _link_targets(notes)
        for key, file in notes.items():
            try:
                properties, body = markdown.split_frontmatter(markdown.read(file))
            except InvalidInput as error:
                if path.is_file():
                    raise
                yield Skipped(error.message)
                continue
            if item := self._item(key, file, properties, body, targets):
                yield item if item.id else replace(item, key_scope=root.resolve().name)
                if _ID_PROPERTY not in properties:
                    yield from (
                        Remark(f"{file}: {why}") for why in _invalid_properties(properties).values()
                    )

    def _item(
        self, key: str, file: Path, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        if _ID_PROPERTY in properties:
            return self._exported_item(key, properties, body, targets)
        text = body.replace("\r\n", "\n").strip()
        if not text:
            return None
        unread = _invalid_properties(properties)
        listed = {} if unread.keys() & {"tags", "tag"} else properties
        tags = markdown.property_items(listed.get("tags", listed.get("tag")))
        tags = [*tags, *markdown.INLINE_TAG.findall(_without_code(text))]
        known = {"tags", "tag", "title", *_CREATED_NAMES, *_OCCURRED_NAMES} - unread.keys()
        more = {name: value for name, value in properties.items() if name not in known and value}
        suffix = "" if PurePosixPath(key).name == file.name else file.suffix
        attrs = {"file": f"{key}{suffix}", "properties": more}
        return Item(
            key=key, text=text, tags=storable_tags(tags),
            title=storable_title(properties.get("title") or file.stem),
            created_at=_first_time(properties, _CREATED_NAMES),
            occurred_at=_first_time(properties, _OCCURRED_NAMES),
            links=self._links(properties, text, targets, key),
            attrs={name: value for name, value in attrs.items() if value},
        )  # fmt: skip

    def _exported_item(
        self, key: str, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        """Return the item of a note that an export of ours wrote."""
        text = body.removesuffix("\n")
        names = [markdown.WIKI_LINK.findall(str(each)) for each in properties.get("links") or []]
        pairs = zip(properties.get("link_kinds") or [], names, strict=False)
        links = [(kind, targets[_folded_name(name[0])]) for kind, name in pairs
                 if name and _folded_name(name[0]) in targets]  # fmt: skip
        if not text.strip():
            return None
        attrs = _parse_attrs(properties.get(_ATTRS_PROPERTY))
        more = {
            name: value for name, value in properties.items() if name not in _EXPORTED_PROPERTIES
        }
        if more:
            attrs["properties"] = {**more, **mapping_of(attrs.get("properties"))}
        return Item(
            key=key, text=text, id=text_of(properties.get(_ID_PROPERTY)) or None,
            attrs=attrs, source=text_of(properties.get("source")),
            ref=text_of(properties.get("ref")), pinned=properties.get("pinned") == "true",
            importance=_parse_importance(properties.get("importance")),
            tags=list(map(str, markdown.property_items(properties.get("tags")))),
            title=text_of(properties.get("title")),
            kind=text_of(properties.get("kind")) or "note",
            created_at=parse_time(properties.get("created")),
            occurred_at=parse_time(properties.get("occurred")), links=links,
        )  # fmt: skip

    def _links(
        self, properties: dict[str, Any], text: str, targets: dict[str, str], key: str
    ) -> list[tuple[str, str]]:
        """Return (kind, key of the target) for each link to an existing note, in the text and in
        properties."""
        pairs = self._named_links(text)
        for value in properties.values():
            for each in value if isinstance(value, list) else [value]:
                pairs += [("links", name) for name in markdown.WIKI_LINK.findall(str(each))]
        found = [
            (kind, targets[_folded_name(name)])
            for kind, name in pairs
            if _folded_name(name) in targets
        ]
        return list(dict.fromkeys(each for each in found if each[1] != key))

    def _named_links(self, text: str) -> list[tuple[str, str]]:
        """Return (kind of link, name of the target note) for each link in the text."""
        return [("links", name) for name in markdown.WIKI_LINK.findall(_without_code(text))]


class BasicMemory(Vault):
    """basic-memory: notes with a permalink, and lists of observations and relations."""

    def recognises(self, path: Path) -> bool:
        """Return whether a note, or one of the first notes of a directory, has a permalink."""
        if path.is_dir() and (path / ".obsidian").is_dir():
            return False
        for index, file in enumerate(markdown.files(path) if _may_be_notes(path) else ()):
            try:
                properties, _ = markdown.split_frontmatter(markdown.read(file))
            except InvalidInput:  # this note has another format
                continue
            if "permalink" in properties:
                return True
            if index >= 20:
                break
        return False

    def _named_links(self, text: str) -> list[tuple[str, str]]:
        """Return (kind of link, name of the target note); the kind of a relation is its name."""
        named = [(kind.strip().replace(" ", "_").lower(), name.strip())
                 for kind, name in _RELATION.findall(_without_code(text))]  # fmt: skip
        told = {name for _, name in named}
        return named + [pair for pair in super()._named_links(text) if pair[1].strip() not in told]

    def _item(
        self, key: str, file: Path, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        item = super()._item(key, file, properties, body, targets)
        if item is None or _ID_PROPERTY in properties:
            return item
        observed = [{"category": category, "text": text.strip()}
                    for category, text in _OBSERVATION.findall(_without_code(body))
                    if category.strip() and category.strip() not in "xX"]  # fmt: skip
        categories = [each["category"] for each in observed]
        attrs = {**item.attrs, **({"observations": observed} if observed else {})}
        tags = storable_tags([*item.tags, *categories])
        return replace(item, attrs=attrs, tags=tags)


def _may_be_notes(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in markdown.SUFFIXES


def _without_code(text: str) -> str:
    return re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", "", text, flags=re.DOTALL)


def _folded_name(name: str) -> str:
    """Return the name of a note in the form in which links are compared.

    In a table, a backslash stands before a link's alias. macOS may store the accents in a file's
    name apart from their letters.
    """
    plain = unicodedata.normalize("NFC", name.strip().removesuffix("\\").rstrip())
    return plain.removesuffix(".md").casefold()


def _link_targets(notes: Mapping[str, Path]) -> dict[str, str]:
    """Return the key of each note by every name that a link may use: path, name, title, alias and
    permalink."""
    found: dict[str, str] = {}
    for key in notes:
        found.setdefault(_folded_name(PurePosixPath(key).name), key)
    for key, file in notes.items():
        try:
            properties, _ = markdown.split_frontmatter(markdown.read(file))
        except InvalidInput:  # the note is reported as skipped
            continue
        others = [properties.get("title"), properties.get("permalink")]
        others += markdown.property_items(properties.get("aliases"))
        for name in filter(None, others):
            found.setdefault(_folded_name(str(name)), key)
    return found | {_folded_name(key): key for key in notes}


def _invalid_properties(properties: dict[str, Any]) -> dict[str, str]:
    """Return a message for each property with an invalid value.

    Such properties are stored as text.
    """
    found = {}
    for name, value in properties.items():
        if name in (*_CREATED_NAMES, *_OCCURRED_NAMES) and value and parse_time(value) is None:
            found[name] = f"its property {name} is not a date and is kept as text: {value}"
        elif name in ("tags", "tag") and isinstance(value, str) and value.startswith("["):
            found[name] = f"its property {name} is not a list and is kept as text: {value}"
    return found


def _parse_attrs(value: Any) -> dict[str, Any]:
    try:
        return dict(mapping_of(json.loads(text_of(value) or "{}")))
    except (ValueError, RecursionError):  # the value was edited by hand
        return {}


def _parse_importance(value: Any) -> float:
    try:
        return min(1.0, max(0.0, float(value)))
    except (TypeError, ValueError):
        return 0.5


def _first_time(properties: dict[str, Any], names: Sequence[str]) -> Any:
    """Return the first of these properties that is a date or time; None if none is."""
    return next((at for name in names if (at := parse_time(properties.get(name)))), None)


def export_notes(
    memories: Sequence[Memory], links: Mapping[str, Iterable[Link]]
) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of a note for each memory, for an Obsidian vault."""
    names = _note_names(memories)
    for memory in memories:
        related = [link for link in links.get(memory.id, ()) if link.target in names]
        attrs = dict(memory.attrs)
        own = mapping_of(attrs.pop("properties", None))
        if taken := {name: value for name, value in own.items() if name in _EXPORTED_PROPERTIES}:
            attrs["properties"] = taken
        properties: dict[str, Any] = {
            _ID_PROPERTY: memory.id, "title": memory.title, "kind": memory.kind,
            "tags": list(memory.tags), "created": iso(memory.created_at),
            "occurred": iso(memory.occurred_at),
            "links": [f"[[{names[link.target]}]]" for link in related],
            "link_kinds": [link.kind for link in related],
            "ref": memory.ref, "source": memory.source, "pinned": memory.pinned,
            "importance": "" if memory.importance == DEFAULTS["importance"] else memory.importance,
            **{name: value for name, value in own.items() if name not in _EXPORTED_PROPERTIES},
            _ATTRS_PROPERTY: json.dumps(attrs, ensure_ascii=False) if attrs else "",
        }  # fmt: skip
        head = "".join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in properties.items()
            if value or isinstance(value, float)  # an importance of zero
        )
        yield f"{names[memory.id]}.md", f"---\n{head}---\n{memory.text}\n"
    yield ".obsidian/app.json", "{}\n"


def _note_names(memories: Sequence[Memory]) -> dict[str, str]:
    """Return a unique file name for each memory, also on case-insensitive file systems."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for memory in memories:
        first = memory.title or memory.text.strip().split("\n", 1)[0]
        name = (
            _original_path(memory)
            or _UNSAFE_IN_FILE_NAME.sub(" ", first)[:60].strip(" .")
            or "note"
        )
        if _folded_name(name) in taken:
            name = f"{name} {memory.id}"
        taken.add(_folded_name(name))
        names[memory.id] = name
    return names


def _original_path(memory: Memory) -> str:
    """Return the path of the note in its original vault; empty if there is none, or it is
    unsafe."""
    file = text_of(memory.attrs.get("file"))
    path = PurePosixPath(file).with_suffix("") if file.endswith(markdown.SUFFIXES) else None
    if path is None or path.is_absolute() or len(file) > 200:
        return ""
    odd = any(part != _UNSAFE_IN_FILE_NAME.sub(" ", part).strip(" .") for part in path.parts)
    return "" if odd else path.as_posix()


OBSIDIAN = Vault("obsidian", "an Obsidian vault")
BASIC_MEMORY = BasicMemory("basic-memory", "basic-memory")
