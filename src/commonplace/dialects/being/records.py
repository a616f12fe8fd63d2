"""Structured memory: what update_memory reads and writes, one target at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.being import beings, notes, sight
from commonplace.dialects.being.beings import lower
from commonplace.dialects.being.sight import (
    DIARY,
    KNOWLEDGE,
    MAP,
    PARTY,
    PREFERENCE,
    RELATION,
    RELATIONSHIP,
    RULE,
    SHARED,
    THOUGHT,
    TOOL,
    being_of,
)
from commonplace.dialects.contract import Call
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Memory, iso
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

ACTIONS = ("get", "append", "update", "delete")
DIARIES = 7
RULE_ORDER = 100
_RULE = re.compile(
    r"\s*\[(?P<category>[^\]\n]{1,100})\]\s*(?P<title>[^:：\n]{1,200})[:：](?P<text>.+)", re.DOTALL
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")

Result = dict[str, Any]


def done(message: str) -> Result:
    """What went well."""
    return {"success": True, "message": message}


def refused(message: str) -> Result:
    """What was not done, and why."""
    return {"success": False, "message": message}


@dataclass(frozen=True, slots=True)
class Request:
    """One update_memory as it came."""

    memory: Commonplace
    being: str
    target: str
    content: str
    key: str
    location: str | None
    to: str
    trust: str


def update_memory(
    call: Call,
    *,
    target: str,
    action: str,
    content: str | None = None,
    key: str | None = None,
    location: str | None = None,
    to: str | None = None,
) -> Result:
    """Read or write one target."""
    request = Request(
        call.memory, being_of(call), target, content or "", (key or "").strip(), location,
        (to or "").strip(), "inferred",
    )  # fmt: skip
    return perform(request, action)


def perform(request: Request, action: str) -> Result:
    """The action on the target; what cannot be stored is refused and changes nothing."""
    if action in ("append", "update") and not request.content.strip():
        return refused(f"content is required to {action} {request.target}.")
    if action in ("update", "delete") and not request.key and request.target not in _KEYLESS:
        return refused(f"key is required to {action} {request.target}.")
    looks_only = action == "get" and request.target != "party_message"
    try:
        if looks_only:
            return TARGETS[request.target][action](request)
        with exclusive(request.memory, "update memory"):
            return TARGETS[request.target][action](request)
    except (InvalidInput, NotFound) as error:
        return refused(str(error))


# --- entries with a key --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Keyed:
    """A target whose entries are known by a key of theirs."""

    kind: str
    default: int = 0
    """How much of the content is the key where none is given; 0 if one must be."""
    joins: bool = False
    """Whether appending adds to what is there."""

    def actions(self) -> dict[str, Callable[[Request], Result]]:
        """What can be done with it."""
        return {
            "get": self.get, "append": self.append, "update": self.update, "delete": self.delete,
        }  # fmt: skip

    def get(self, request: Request) -> Result:
        """One entry's text, or all as a list."""
        if request.key:
            found = self.find(request.memory, request.being, request.key)
            return done(found.text) if found else refused(f"{request.key!r} was not found.")
        listed = [self.shown(each) for each in self.all(request.memory, request.being)]
        return done(json.dumps(listed, ensure_ascii=False))

    def append(self, request: Request) -> Result:
        """A new entry, or more of the one there is."""
        key = request.key or " ".join(request.content.split())[: self.default].strip()
        if not key:
            return refused(f"key is required to append to {request.target}.")
        there = self.find(request.memory, request.being, key)
        text = request.content
        if there is not None and self.joins:
            text = f"{there.text}\n\n{text}"
        self.put(request.memory, request.being, key, text, request.trust, self.beside(request))
        return done(f"{request.target} {key!r} {'updated' if there else 'added'}.")

    def update(self, request: Request) -> Result:
        """Another text for an entry; one that is missing is added."""
        there = self.find(request.memory, request.being, request.key)
        extra = self.beside(request)
        self.put(request.memory, request.being, request.key, request.content, request.trust, extra)
        if there is None:
            return done(f"{request.target} {request.key!r} added.")
        return done(f"updated {request.key!r}. before: {there.text} after: {request.content}")

    def delete(self, request: Request) -> Result:
        """Out of sight."""
        there = self.find(request.memory, request.being, request.key)
        if there is None:
            return refused(f"{request.key!r} was not found.")
        request.memory.forget(there.id)
        return done(f"deleted {request.key!r}.")

    def beside(self, request: Request) -> dict[str, Any]:
        """What is stored beside the text."""
        return {} if request.location is None else {"location": request.location}

    def ref(self, being: str, key: str) -> str:
        """By which an entry is found, whatever its key."""
        whose = "shared" if self.kind in SHARED else being
        return f"{self.kind}:{whose}:{hashlib.sha256(key.encode()).hexdigest()[:40]}"

    def find(self, memory: Commonplace, being: str, key: str) -> Memory | None:
        """The entry of that key."""
        return lookup.find_live(memory, self.ref(being, key))

    def all(self, memory: Commonplace, being: str) -> list[Memory]:
        """Every entry, by its key."""
        found = sight.every(memory, sight.own(being, self.kind))
        return sorted(found, key=lambda each: each.title)

    def put(
        self,
        memory: Commonplace,
        being: str,
        key: str,
        text: str,
        trust: str,
        extra: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Store an entry over the one of its key, if there is one."""
        checks.text(key, "key", max_chars=checks.TITLE_CHARS)
        there = lookup.find(memory, self.ref(being, key))
        if there is None:
            tags = [] if self.kind in SHARED else [sight.tag(being)]
            return memory.remember(
                text, kind=self.kind, title=key, ref=self.ref(being, key), tags=tags,
                trust=trust, attrs=dict(extra or {}),
            )  # fmt: skip
        return memory.revise(
            there.id, text=text, state="active", trust=lower(there, trust),
            attrs={**there.attrs, **(extra or {})},
        )  # fmt: skip

    def shown(self, entry: Memory) -> dict[str, Any]:
        """An entry in a list."""
        listed: dict[str, Any] = {"key": entry.title, "content": entry.text}
        if self.kind == MAP:
            listed["location"] = entry.attrs.get("location")
        return {**listed, "updated_at": iso(entry.updated_at)}


PREFERENCES = Keyed(PREFERENCE, default=50)
KNOWLEDGES = Keyed(KNOWLEDGE, default=80, joins=True)
RELATIONSHIPS = Keyed(RELATIONSHIP, joins=True)
TOOLS = Keyed(TOOL, default=80)
MAPS = Keyed(MAP, default=80)
DIARY_DAYS = Keyed(DIARY, joins=True)
RELATIONS = Keyed(RELATION)
THOUGHTS = Keyed(THOUGHT)
THINK = "think_md"


def thoughts(memory: Commonplace, being: str) -> str:
    """What the being carries on from its last reflection."""
    found = THOUGHTS.find(memory, being, THINK)
    return found.text if found else ""


# --- the diary -----------------------------------------------------------------------------------


def today() -> str:
    """The day it is, in UTC."""
    return datetime.now(UTC).date().isoformat()


def diary_entries(memory: Commonplace, being: str, count: int = DIARIES) -> list[Memory]:
    """The newest days."""
    return DIARY_DAYS.all(memory, being)[::-1][:count]


def _diary(request: Request) -> Request | None:
    key = request.key or today()
    try:
        datetime.strptime(key, "%Y-%m-%d")
    except ValueError:
        return None
    return replace(request, key=key) if _DAY.fullmatch(key) else None


def _on_a_day(act: Callable[[Request], Result]) -> Callable[[Request], Result]:
    def acted(request: Request) -> Result:
        dated = _diary(request)
        return act(dated) if dated else refused("key must be a date as YYYY-MM-DD.")

    return acted


def _get_diary(request: Request) -> Result:
    if request.key:
        return _on_a_day(DIARY_DAYS.get)(request)
    days = diary_entries(request.memory, request.being)
    return done("\n\n".join(f"## {day.title}\n{day.text}" for day in days))


def _unsupported(request: Request) -> Result:
    return refused(f"This action is not supported for {request.target}.")


# --- rules ---------------------------------------------------------------------------------------


def rules(memory: Commonplace, being: str) -> list[Memory]:
    """The being's rules in their order."""
    found = sight.every(memory, sight.own(being, RULE), "oldest")
    return sorted(found, key=lambda rule: rule.attrs.get("sort_order", RULE_ORDER))


def rule_shown(rule: Memory) -> dict[str, Any]:
    """A rule as it is listed."""
    return {
        "id": rule.id,
        "category": rule.attrs.get("category", ""),
        "title": rule.title,
        "content": rule.text,
        "sort_order": rule.attrs.get("sort_order", RULE_ORDER),
        "enabled": rule.attrs.get("enabled", True),
    }


def add_rule(
    memory: Commonplace, being: str, category: str, title: str, text: str, trust: str, **attrs: Any
) -> Memory:
    """A new rule."""
    kept = {"category": category, "sort_order": RULE_ORDER, "enabled": True, **attrs}
    return memory.remember(
        text, kind=RULE, title=title, tags=[sight.tag(being)], trust=trust, attrs=kept
    )


def _rule(request: Request) -> Memory | None:
    return notes.find(request.memory, request.being, request.key, RULE)


def _get_rules(request: Request) -> Result:
    if request.key:
        found = _rule(request)
        return done(found.text) if found else refused("The rule was not found.")
    listed = [rule_shown(rule) for rule in rules(request.memory, request.being)]
    return done(json.dumps(listed, ensure_ascii=False))


def _append_rule(request: Request) -> Result:
    parts = _RULE.fullmatch(request.content)
    if parts is None or not parts["text"].strip() or not parts["title"].strip():
        return refused("content must be '[category] title: text'.")
    added = add_rule(
        request.memory, request.being, parts["category"].strip(), parts["title"].strip(),
        parts["text"].strip(), request.trust,
    )  # fmt: skip
    return done(f"rule {added.id} added.")


def _update_rule(request: Request) -> Result:
    there = _rule(request)
    if there is None:
        return refused("The rule was not found.")
    request.memory.revise(there.id, text=request.content, trust=lower(there, request.trust))
    return done(f"rule updated. before: {there.text} after: {request.content}")


def _delete_rule(request: Request) -> Result:
    there = _rule(request)
    if there is None:
        return refused("The rule was not found.")
    request.memory.forget(there.id)
    return done("rule deleted.")


# --- the soul ------------------------------------------------------------------------------------


def _get_soul(request: Request) -> Result:
    there = beings.soul(request.memory, request.being)
    held = {} if there is None else {k: v for k, v in there.attrs.items() if v}
    if not request.key:
        return done(json.dumps(held, ensure_ascii=False))
    if request.key not in beings.SOUL_ALL:
        return refused(f"A soul has no {request.key!r}.")
    return done(str(held.get(request.key, "")))


def _update_soul(request: Request) -> Result:
    if request.key not in beings.SOUL_FIELDS:
        return refused(f"key must be one of {', '.join(beings.SOUL_FIELDS)}.")
    there = beings.soul(request.memory, request.being)
    before = str(there.attrs.get(request.key, "")) if there else ""
    changes = {request.key: request.content}
    beings.change_soul(request.memory, request.being, changes, trust=request.trust)
    return done(f"soul {request.key} updated. before: {before} after: {request.content}")


# --- messages between the beings of one owner ----------------------------------------------------


def unread(memory: Commonplace, being: str) -> list[Memory]:
    """Messages to a being that it has not read, oldest first."""
    found = sight.every(memory, sight.own(being, PARTY), "oldest")
    return [each for each in found if not each.attrs.get("read")]


def party_shown(message: Memory) -> dict[str, Any]:
    """A message as it is listed."""
    return {
        "from": message.attrs.get("from", ""),
        "content": message.text,
        "created_at": iso(message.created_at),
    }


def _get_party(request: Request) -> Result:
    waiting = unread(request.memory, request.being)
    for message in waiting:
        request.memory.revise(message.id, attrs={**message.attrs, "read": True})
    listed = [party_shown(each) for each in waiting]
    return done(json.dumps(listed, ensure_ascii=False))


def _send(request: Request) -> Result:
    if not request.to:
        return refused("to is required: the name of another being of this owner.")
    named = [
        each for each in sight.beings(request.memory)
        if _name(request.memory, each).casefold() == request.to.casefold()
    ]  # fmt: skip
    if len(named) != 1:
        why = "There is no being" if not named else "There are several beings"
        return refused(f"{why} named {request.to!r} here.")
    sender = sight.find(request.memory, request.being)
    request.memory.remember(
        request.content, kind=PARTY, tags=[sight.tag(named[0].id)], trust=request.trust,
        attrs={"from": _name(request.memory, sender), "from_being": sender.id,
               "to": request.to, "read": False},
    )  # fmt: skip
    return done(f"message sent to {request.to}.")


def _name(memory: Commonplace, being: Memory) -> str:
    soul = beings.soul(memory, being.id)
    return str(soul.attrs.get("name") or being.title) if soul else being.title


# --- all of them ---------------------------------------------------------------------------------

_KEYLESS = ("diary", "party_message")
"""Targets that know by themselves which entry is meant, or that this cannot be done."""

TARGETS: dict[str, dict[str, Callable[[Request], Result]]] = {
    "preferences": PREFERENCES.actions(),
    "knowledge": KNOWLEDGES.actions(),
    "relationship": RELATIONSHIPS.actions(),
    "partner_tools": TOOLS.actions(),
    "partner_map": MAPS.actions(),
    "diary": {
        "get": _get_diary,
        "append": _on_a_day(DIARY_DAYS.append),
        "update": _on_a_day(DIARY_DAYS.update),
        "delete": _unsupported,
    },
    "notes": {
        "get": lambda r: notes.get_notes(r.memory, r.being, r.key),
        "append": lambda r: notes.append_note(r.memory, r.being, r.content, r.trust),
        "update": lambda r: notes.update_note(r.memory, r.being, r.key, r.content, r.trust),
        "delete": lambda r: notes.delete_note(r.memory, r.being, r.key),
    },
    "party_message": {
        "get": _get_party, "append": _send, "update": _unsupported, "delete": _unsupported,
    },
    "partner_rules": {
        "get": _get_rules, "append": _append_rule, "update": _update_rule, "delete": _delete_rule,
    },
    "souls": {
        "get": _get_soul, "append": _unsupported, "update": _update_soul, "delete": _unsupported,
    },
}  # fmt: skip


def update_relation(
    call: Call, *, entity_name: str, relation_type: str, action: str, content: str | None = None
) -> Result:
    """What a being is to somebody or something."""
    being = being_of(call)
    return relate(call.memory, being, entity_name, relation_type, action, content or "", "inferred")


def relate(
    memory: Commonplace, being: str, name: str, sort: str, action: str, content: str, trust: str
) -> Result:
    """Put a relation down, or take it away."""
    name, sort = name.strip(), sort.strip()
    if not name or not sort:
        return refused("entity_name and relation_type must say something.")
    if len(name) > 400 or len(sort) > 100:
        return refused("entity_name has at most 400 characters, relation_type 100.")
    key = f"{sort}: {name}"
    if action != "delete" and not content.strip():
        return refused("content is required to upsert a relation.")
    with exclusive(memory, "update relation"):
        if action == "delete":
            there = RELATIONS.find(memory, being, key)
            if there is None:
                return refused(f"There is no relation to {name!r}.")
            memory.forget(there.id)
            return done(f"relation to {name!r} deleted.")
        try:
            extra = {"entity_name": name, "relation_type": sort}
            RELATIONS.put(memory, being, key, content, trust, extra)
        except InvalidInput as error:
            return refused(str(error))
        return done(f"relation to {name!r} stored.")
