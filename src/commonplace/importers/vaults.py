"""Vaults of Markdown notes: Obsidian, and basic-memory with its observations and relations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from commonplace.engine.model import Link, Memory, iso
from commonplace.errors import InvalidInput
from commonplace.importers import markdown
from commonplace.importers.items import Item, Remark, Skipped, tags_of, title_of
from commonplace.storage.fields import DEFAULTS
from commonplace.transcripts.record import mapping_of, moment, text_of

_CREATED = ("created", "date created", "created_at", "date")
_OCCURRED = ("occurred", "occurred_at", "date")
_OURS = "commonplace"
_ATTRS = "commonplace_attrs"
_WRITTEN = (
    _OURS, "title", "kind", "tags", "created", "occurred", "links", "link_kinds", "ref", "source",
    "pinned", "importance", _ATTRS,
)  # fmt: skip
"""The properties that an export adds to those of the original note."""
_OBSERVATION = re.compile(r"^[ \t]*[-*] \[([^\]\n]{1,60})\] (.+)$", re.MULTILINE)
_RELATION = re.compile(
    r"^[ \t]*[-*] ([\w -]{1,60}?) \[\[([^\]\n|#]+)(?:[|#][^\]\n]*)?\]\]", re.MULTILINE
)
_UNSAFE = re.compile(r'[\\/:*?"<>|#^\[\]\x00-\x1f]+')


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
        notes = {
            file.relative_to(root).with_suffix("").as_posix(): file for file in markdown.files(path)
        }
        targets = _targets(notes)
        for key, file in notes.items():
            try:
                properties, body = markdown.split_frontmatter(markdown.read(file))
            except InvalidInput as error:
                if path.is_file():
                    raise
                yield Skipped(error.message)
                continue
            if item := self._item(key, file, properties, body, targets):
                yield item if item.id else replace(item, within=root.resolve().name)
                if _OURS not in properties:
                    yield from (
                        Remark(f"{file}: {why}") for why in _invalid_properties(properties).values()
                    )

    def _item(
        self, key: str, file: Path, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        if _OURS in properties:
            return self._exported(key, properties, body, targets)
        text = body.replace("\r\n", "\n").strip()
        if not text:
            return None
        unread = _invalid_properties(properties)
        listed = {} if unread.keys() & {"tags", "tag"} else properties
        tags = markdown.listed(listed.get("tags", listed.get("tag")))
        tags = [*tags, *markdown.INLINE_TAG.findall(_without_code(text))]
        known = {"tags", "tag", "title", *_CREATED, *_OCCURRED} - unread.keys()
        more = {name: value for name, value in properties.items() if name not in known and value}
        attrs = {"file": f"{key}{file.suffix}", "properties": more}
        return Item(
            key=key, text=text, tags=tags_of(tags),
            title=title_of(properties.get("title") or file.stem),
            created_at=_time(properties, _CREATED), occurred_at=_time(properties, _OCCURRED),
            links=self._links(properties, text, targets, key),
            attrs={name: value for name, value in attrs.items() if value},
        )  # fmt: skip

    def _exported(
        self, key: str, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        """Return the item of a note that an export of ours wrote."""
        text = body.removesuffix("\n")
        names = [markdown.WIKI_LINK.findall(str(each)) for each in properties.get("links") or []]
        pairs = zip(properties.get("link_kinds") or [], names, strict=False)
        links = [(kind, targets[_case_folded(name[0])]) for kind, name in pairs
                 if name and _case_folded(name[0]) in targets]  # fmt: skip
        if not text.strip():
            return None
        attrs = _parsed(properties.get(_ATTRS))
        more = {name: value for name, value in properties.items() if name not in _WRITTEN}
        if more:
            attrs["properties"] = {**more, **mapping_of(attrs.get("properties"))}
        return Item(
            key=key, text=text, id=text_of(properties.get(_OURS)) or None,
            attrs=attrs, source=text_of(properties.get("source")),
            ref=text_of(properties.get("ref")), pinned=properties.get("pinned") == "true",
            importance=_fraction(properties.get("importance")),
            tags=properties.get("tags") or (), title=text_of(properties.get("title")),
            kind=text_of(properties.get("kind")) or "note",
            created_at=moment(properties.get("created")),
            occurred_at=moment(properties.get("occurred")), links=links,
        )  # fmt: skip

    def _links(
        self, properties: dict[str, Any], text: str, targets: dict[str, str], key: str
    ) -> list[tuple[str, str]]:
        """Return the links to existing notes, in the text and in properties."""
        pairs = self._pairs(text)
        for value in properties.values():
            for each in value if isinstance(value, list) else [value]:
                pairs += [("links", name) for name in markdown.WIKI_LINK.findall(str(each))]
        found = [
            (kind, targets[_case_folded(name)])
            for kind, name in pairs
            if _case_folded(name) in targets
        ]
        return list(dict.fromkeys(each for each in found if each[1] != key))

    def _pairs(self, text: str) -> list[tuple[str, str]]:
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

    def _pairs(self, text: str) -> list[tuple[str, str]]:
        """Return relations with their names, and other links."""
        named = [(kind.strip().replace(" ", "_").lower(), name.strip())
                 for kind, name in _RELATION.findall(_without_code(text))]  # fmt: skip
        told = {name for _, name in named}
        return named + [pair for pair in super()._pairs(text) if pair[1].strip() not in told]

    def _item(
        self, key: str, file: Path, properties: dict[str, Any], body: str, targets: dict[str, str]
    ) -> Item | None:
        item = super()._item(key, file, properties, body, targets)
        if item is None or _OURS in properties:
            return item
        observed = [{"category": category, "text": text.strip()}
                    for category, text in _OBSERVATION.findall(_without_code(body))
                    if category.strip() and category.strip() not in "xX"]  # fmt: skip
        categories = [each["category"] for each in observed]
        attrs = {**item.attrs, **({"observations": observed} if observed else {})}
        tags = tags_of([*item.tags, *categories])
        return replace(item, attrs=attrs, tags=tags)


def _may_be_notes(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in markdown.SUFFIXES


def _without_code(text: str) -> str:
    return re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", "", text, flags=re.DOTALL)


def _case_folded(name: str) -> str:
    return name.strip().removesuffix(".md").casefold()


def _targets(notes: Mapping[str, Path]) -> dict[str, str]:
    """Return the notes by their possible link targets: path, name, title, alias and permalink."""
    found: dict[str, str] = {}
    for key in notes:
        found.setdefault(_case_folded(PurePosixPath(key).name), key)
    for key, file in notes.items():
        try:
            properties, _ = markdown.split_frontmatter(markdown.read(file))
        except InvalidInput:  # the note is reported as skipped
            continue
        others = [properties.get("title"), properties.get("permalink")]
        others += markdown.listed(properties.get("aliases"))
        for name in filter(None, others):
            found.setdefault(_case_folded(str(name)), key)
    return found | {_case_folded(key): key for key in notes}


def _invalid_properties(properties: dict[str, Any]) -> dict[str, str]:
    """Return a message for each property with an invalid value.

    Such properties are stored as text.
    """
    found = {}
    for name, value in properties.items():
        if name in (*_CREATED, *_OCCURRED) and value and moment(value) is None:
            found[name] = f"its property {name} is not a date and is kept as text: {value}"
        elif name in ("tags", "tag") and isinstance(value, str) and value.startswith("["):
            found[name] = f"its property {name} is not a list and is kept as text: {value}"
    return found


def _parsed(value: Any) -> dict[str, Any]:
    try:
        return dict(mapping_of(json.loads(text_of(value) or "{}")))
    except ValueError:  # the value was edited by hand
        return {}


def _fraction(value: Any) -> float:
    try:
        return min(1.0, max(0.0, float(value)))
    except (TypeError, ValueError):
        return 0.5


def _time(properties: dict[str, Any], names: Sequence[str]) -> Any:
    return next((at for name in names if (at := moment(properties.get(name)))), None)


def written(
    memories: Sequence[Memory], links: Mapping[str, Iterable[Link]]
) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of a note for each memory, for an Obsidian vault."""
    names = _names(memories)
    for memory in memories:
        related = [link for link in links.get(memory.id, ()) if link.target in names]
        attrs = dict(memory.attrs)
        own = mapping_of(attrs.pop("properties", None))
        if taken := {name: value for name, value in own.items() if name in _WRITTEN}:
            attrs["properties"] = taken
        properties: dict[str, Any] = {
            _OURS: memory.id, "title": memory.title, "kind": memory.kind,
            "tags": list(memory.tags), "created": iso(memory.created_at),
            "occurred": iso(memory.occurred_at),
            "links": [f"[[{names[link.target]}]]" for link in related],
            "link_kinds": [link.kind for link in related],
            "ref": memory.ref, "source": memory.source, "pinned": memory.pinned,
            "importance": "" if memory.importance == DEFAULTS["importance"] else memory.importance,
            **{name: value for name, value in own.items() if name not in _WRITTEN},
            _ATTRS: json.dumps(attrs, ensure_ascii=False) if attrs else "",
        }  # fmt: skip
        head = "".join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in properties.items()
            if value
        )
        yield f"{names[memory.id]}.md", f"---\n{head}---\n{memory.text}\n"
    yield ".obsidian/app.json", "{}\n"


def _names(memories: Sequence[Memory]) -> dict[str, str]:
    """Return a unique file name for each memory, also on case-insensitive file systems."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for memory in memories:
        first = memory.title or memory.text.strip().split("\n", 1)[0]
        name = _original_path(memory) or _UNSAFE.sub(" ", first)[:60].strip(" .") or "note"
        if name.casefold() in taken:
            name = f"{name} {memory.id}"
        taken.add(name.casefold())
        names[memory.id] = name
    return names


def _original_path(memory: Memory) -> str:
    """Return the path of the note in its original vault; empty if there is none, or it is
    unsafe."""
    file = text_of(memory.attrs.get("file"))
    path = PurePosixPath(file).with_suffix("") if file.endswith(markdown.SUFFIXES) else None
    if path is None or path.is_absolute() or len(file) > 200:
        return ""
    odd = any(part != _UNSAFE.sub(" ", part).strip(" .") for part in path.parts)
    return "" if odd else path.as_posix()


OBSIDIAN = Vault("obsidian", "an Obsidian vault")
BASIC_MEMORY = BasicMemory("basic-memory", "basic-memory")
