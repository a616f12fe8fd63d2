"""Structured memory: relations, and the targets of update_memory."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.being import beings, fitting, notes, scenes, sight
from commonplace.dialects.being.beings import lower_trust
from commonplace.dialects.being.sight import (
    DIARY,
    KNOWLEDGE,
    MAP,
    NOTE,
    PARTY,
    PREFERENCE,
    RELATION,
    RELATIONSHIP,
    RULE,
    SCENE,
    SHARED_KINDS,
    THOUGHT,
    TOOL,
    being_of,
)
from commonplace.dialects.contract import Call, json_text
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import LIVE_STATES, Memory, iso
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

ACTIONS = ("get", "append", "update", "delete")
DEFAULT_DIARY_DAYS = 7
DEFAULT_RULE_ORDER = 100
_RULE = re.compile(
    r"\s*\[(?P<category>[^\]\n]{1,100})\]\s*(?P<title>[^:：\n]{1,200})[:：](?P<text>.+)", re.DOTALL
)

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of one call of update_memory."""

    memory: Commonplace
    being: str
    target: str
    content: str
    key: str
    location: str | None
    to: str
    trust: str


Action = Callable[[Request], str]
"""Executes a request and returns a message; raises InvalidInput or NotFound to refuse it.
"""


def update_memory(
    call: Call,
    *,
    target: str,
    action: str,
    content: str | None = None,
    key: str | None = None,
    location: str | None = None,
    to: str | None = None,
    trust: str = "inferred",
) -> Result:
    """Read or write one target; a refused request changes nothing."""
    request = Request(
        call.memory, being_of(call), target, content or "", (key or "").strip(), location,
        (to or "").strip(), trust,
    )  # fmt: skip
    return _result_of(_update, request, action)


def _update(request: Request, action: str) -> str:
    act = TARGETS[request.target][action]
    if act is _refuse_action:
        return act(request)
    if action in ("append", "update") and not request.content.strip():
        raise InvalidInput(f"content is required to {action} {request.target}.")
    checks.optional_text(request.content, "content", max_chars=checks.TEXT_CHARS)
    if action in ("update", "delete") and not request.key and request.target not in _KEYLESS:
        raise InvalidInput(f"key is required to {action} {request.target}.")
    if action == "get" and request.target != "party_message":
        return act(request)
    with exclusive(request.memory, "update memory"):
        return act(request)


def _result_of(act: Callable[..., str], *arguments: Any) -> Result:
    try:
        return {"success": True, "message": act(*arguments)}
    except (InvalidInput, NotFound) as error:
        return {"success": False, "message": str(error)}


def _as_json(entries: Iterable[dict[str, Any]]) -> str:
    return json_text(fitting.fit_texts(list(entries), "content"))


def _target_actions(entries: KeyedTarget | IdTarget) -> dict[str, Action]:
    return {name: getattr(entries, name) for name in ACTIONS}


# --- entries with a key --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedTarget:
    """A target of update_memory whose entries have a key."""

    kind: str
    default_key_chars: int = 0
    """The length of the default key, taken from the content; 0 if a key is required."""
    joins_text: bool = False
    """Whether append adds to an existing text instead of replacing it."""

    def get(self, request: Request) -> str:
        """Return one entry's text, or all entries."""
        if request.key:
            return self._require_entry(request).text
        return _as_json(self.to_dict(each) for each in self.all(request.memory, request.being))

    def append(self, request: Request) -> str:
        """Add an entry; append to the text of an existing one, or replace it (see `joins_text`)."""
        key = request.key or " ".join(request.content.split())[: self.default_key_chars].strip()
        if not key:
            raise InvalidInput(f"key is required to append to {request.target}.")
        existing = self.find(request.memory, request.being, key)
        text = request.content
        if existing is not None and self.joins_text:
            text = f"{existing.text}\n\n{text}"
        self.put(request.memory, request.being, key, text, request.trust, _location_attrs(request))
        return f"{request.target} {key!r} {'updated' if existing else 'added'}."

    def update(self, request: Request) -> str:
        """Replace the text of an entry; add the entry if it is missing."""
        existing = self.find(request.memory, request.being, request.key)
        self.put(
            request.memory, request.being, request.key, request.content, request.trust,
            _location_attrs(request),
        )  # fmt: skip
        if existing is None:
            return f"{request.target} {request.key!r} added."
        return f"updated {request.key!r}. before: {existing.text} after: {request.content}"

    def delete(self, request: Request) -> str:
        """Archive an entry."""
        request.memory.forget(self._require_entry(request).id)
        return f"deleted {request.key!r}."

    def _require_entry(self, request: Request) -> Memory:
        entry = self.find(request.memory, request.being, request.key)
        if entry is None:
            raise NotFound(f"{request.key!r} was not found.")
        return entry

    def ref(self, being: str, key: str) -> str:
        """Return the ref of an entry; it has a hash of the key, which can have any length."""
        whose = "shared" if self.kind in SHARED_KINDS else being
        return f"{self.kind}:{whose}:{hashlib.sha256(key.encode()).hexdigest()[:40]}"

    def find(self, memory: Commonplace, being: str, key: str) -> Memory | None:
        """Return the live entry with this key, or None."""
        return lookup.find_live_memory(memory, self.ref(being, key))

    def all(self, memory: Commonplace, being: str) -> list[Memory]:
        """Return all entries, sorted by key."""
        found = sight.readable_rows(memory, sight.own_row_filters(being, self.kind))
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
        """Insert or replace the entry with this key."""
        checks.text(key, "key", max_chars=checks.TITLE_CHARS)
        existing = lookup.find_memory(memory, self.ref(being, key))
        if existing is None:
            tags = [] if self.kind in SHARED_KINDS else [sight.being_tag(being)]
            return memory.remember(
                text, kind=self.kind, title=key, ref=self.ref(being, key), tags=tags,
                trust=trust, attrs=dict(extra or {}),
            )  # fmt: skip
        kept = existing.attrs if existing.state in LIVE_STATES else {}
        return memory.revise(
            existing.id, text=text, state="active", trust=lower_trust(existing, trust),
            attrs={**kept, **(extra or {})},
        )  # fmt: skip

    def to_dict(self, entry: Memory) -> dict[str, Any]:
        """Return the fields of an entry for lists."""
        location = {"location": entry.attrs.get("location")} if self.kind == MAP else {}
        return {
            "key": entry.title, "content": entry.text, **location,
            "updated_at": iso(entry.updated_at),
        }  # fmt: skip


def _location_attrs(request: Request) -> dict[str, Any]:
    return {} if request.location is None else {"location": request.location}


PREFERENCES = KeyedTarget(PREFERENCE, default_key_chars=50)
KNOWLEDGES = KeyedTarget(KNOWLEDGE, default_key_chars=80, joins_text=True)
RELATIONSHIPS = KeyedTarget(RELATIONSHIP, joins_text=True)
TOOLS = KeyedTarget(TOOL, default_key_chars=80)
MAPS = KeyedTarget(MAP, default_key_chars=80)
DIARY_DAYS = KeyedTarget(DIARY, joins_text=True)
RELATIONS = KeyedTarget(RELATION)
THOUGHTS = KeyedTarget(THOUGHT)
REFLECTION_KEY = "think_md"


def thoughts(memory: Commonplace, being: str) -> str:
    """Return the thoughts of the being's last reflection, or an empty string."""
    found = THOUGHTS.find(memory, being, REFLECTION_KEY)
    return found.text if found else ""


# --- the diary -----------------------------------------------------------------------------------


def today() -> str:
    """Return the current date in UTC."""
    return datetime.now(UTC).date().isoformat()


def diary_entries(memory: Commonplace, being: str, count: int = DEFAULT_DIARY_DAYS) -> list[Memory]:
    """Return the newest diary entries."""
    return DIARY_DAYS.all(memory, being)[::-1][:count]


def _with_day_key(act: Action) -> Action:
    """Wrap an action to require a date as its key; the default is today."""

    def run_with_day(request: Request) -> str:
        day = request.key or today()
        if not scenes.is_day(day):
            raise InvalidInput("key must be a date in the form YYYY-MM-DD.")
        return act(replace(request, key=day))

    return run_with_day


def _get_diary(request: Request) -> str:
    if request.key:
        return _with_day_key(DIARY_DAYS.get)(request)
    days = [
        {"date": day.title, "text": day.text}
        for day in diary_entries(request.memory, request.being)
    ]
    return "\n\n".join(
        f"## {day['date']}\n{day['text']}" for day in fitting.fit_texts(days, "text")
    )


def _refuse_action(request: Request) -> str:
    raise InvalidInput(f"This action is not supported for {request.target}.")


# --- entries with an id: notes and rules ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdTarget:
    """A target of update_memory whose entries are found by their id."""

    noun: str
    kinds: tuple[str, ...]
    list_entries: Callable[[Commonplace, str], Iterable[dict[str, Any]]]
    text: Callable[[Memory], str]
    add: Callable[[Request], Memory]
    rewrite: Callable[[Request, Memory], None]

    def get(self, request: Request) -> str:
        """Return one entry's text, or all entries."""
        if request.key:
            return self.text(self._require_entry(request))
        return _as_json(self.list_entries(request.memory, request.being))

    def append(self, request: Request) -> str:
        """Add an entry."""
        return f"{self.noun} {self.add(request).id} added."

    def update(self, request: Request) -> str:
        """Replace an entry's text."""
        existing = self._require_entry(request)
        self.rewrite(request, existing)
        return f"{self.noun} updated. before: {self.text(existing)} after: {request.content}"

    def delete(self, request: Request) -> str:
        """Archive an entry."""
        request.memory.forget(self._require_entry(request).id)
        return f"{self.noun} deleted."

    def _require_entry(self, request: Request) -> Memory:
        found = notes.find(request.memory, request.being, request.key, *self.kinds)
        if found is None:
            raise NotFound(f"The {self.noun} was not found.")
        return found


def _rewrite_note(request: Request, note: Memory) -> None:
    """Replace the text of a note; replace a scene by the scene in the JSON, or else by the text."""
    memory, content = request.memory, request.content
    trust = lower_trust(note, request.trust)
    if note.kind == NOTE:
        memory.revise(note.id, text=content, trust=trust)
    elif (scene := scenes.parse(content)) is not None:
        scenes.refuse_reserved_themes(scene)
        memory.revise(note.id, **scenes.memory_fields(request.being, scene, trust=trust))
    else:
        memory.revise(note.id, text=content, attrs={}, trust=trust)


def rules(memory: Commonplace, being: str) -> list[Memory]:
    """Return the being's rules, sorted by `sort_order`."""
    found = sight.readable_rows(memory, sight.own_row_filters(being, RULE), "oldest")
    return sorted(found, key=lambda rule: rule.attrs.get("sort_order", DEFAULT_RULE_ORDER))


def rule_to_dict(rule: Memory) -> dict[str, Any]:
    """Return the fields of a rule for lists."""
    return {
        "id": rule.id,
        "category": rule.attrs.get("category", ""),
        "title": rule.title,
        "content": rule.text,
        "sort_order": rule.attrs.get("sort_order", DEFAULT_RULE_ORDER),
        "enabled": rule.attrs.get("enabled", True),
    }


def rule_dicts(memory: Commonplace, being: str) -> list[dict[str, Any]]:
    """Return all rules of a being as dicts."""
    return [rule_to_dict(rule) for rule in rules(memory, being)]


def add_rule(
    memory: Commonplace, being: str, category: str, title: str, text: str, trust: str, **attrs: Any
) -> Memory:
    """Store a rule."""
    stored = {"category": category, "sort_order": DEFAULT_RULE_ORDER, "enabled": True, **attrs}
    return memory.remember(
        text, kind=RULE, title=title, tags=[sight.being_tag(being)], trust=trust, attrs=stored
    )


def _append_rule(request: Request) -> Memory:
    parts = _RULE.fullmatch(request.content)
    if parts is None or not parts["text"].strip() or not parts["title"].strip():
        raise InvalidInput("content must be '[category] title: text'.")
    return add_rule(
        request.memory, request.being, parts["category"].strip(), parts["title"].strip(),
        parts["text"].strip(), request.trust,
    )  # fmt: skip


def _rewrite_rule(request: Request, rule: Memory) -> None:
    request.memory.revise(rule.id, text=request.content, trust=lower_trust(rule, request.trust))


NOTES = IdTarget(
    "note", (NOTE, SCENE), notes.newest_notes, notes.content_of,
    lambda r: notes.add_note(r.memory, r.being, r.content, r.trust), _rewrite_note,
)  # fmt: skip
RULES = IdTarget("rule", (RULE,), rule_dicts, lambda rule: rule.text, _append_rule, _rewrite_rule)


# --- the soul ------------------------------------------------------------------------------------


def _get_soul(request: Request) -> str:
    there = beings.soul(request.memory, request.being)
    held = {} if there is None else {k: v for k, v in there.attrs.items() if v}
    if not request.key:
        return json_text(held)
    if request.key not in beings.ALL_SOUL_FIELDS:
        raise InvalidInput(f"A soul has no {request.key!r}.")
    return str(held.get(request.key, ""))


def _update_soul(request: Request) -> str:
    if request.key not in beings.SOUL_FIELDS:
        raise InvalidInput(f"key must be one of {', '.join(beings.SOUL_FIELDS)}.")
    there = beings.soul(request.memory, request.being)
    before = str(there.attrs.get(request.key, "")) if there else ""
    changes = {request.key: request.content}
    beings.change_soul(request.memory, request.being, changes, trust=request.trust)
    return f"soul {request.key} updated. before: {before} after: {request.content}"


# --- messages between the beings of one owner ----------------------------------------------------


def unread_messages(memory: Commonplace, being: str) -> list[Memory]:
    """Return unread messages to a being, oldest first."""
    found = sight.readable_rows(memory, sight.own_row_filters(being, PARTY), "oldest")
    return [each for each in found if not each.attrs.get("read")]


def party_message_to_dict(message: Memory) -> dict[str, Any]:
    """Return the fields of a message for lists."""
    return {
        "from": message.attrs.get("from", ""),
        "content": message.text,
        "created_at": iso(message.created_at),
    }


def _get_party_messages(request: Request) -> str:
    """Return unread messages, and mark them as read; a further call returns those left out."""
    unread = unread_messages(request.memory, request.being)
    messages = fitting.first_entries(unread, party_message_to_dict)
    for message in messages:
        request.memory.revise(message.id, attrs={**message.attrs, "read": True})
    return _as_json(map(party_message_to_dict, messages))


def _send_party_message(request: Request) -> str:
    if not request.to:
        raise InvalidInput("to is required: the name of another being of this owner.")
    names = [(each, _being_name(request.memory, each)) for each in sight.beings(request.memory)]
    shared = Counter(name.casefold() for _, name in names)
    recipients = (
        [each for each, name in names if name == request.to]
        or [each for each, name in names if name.casefold() == request.to.casefold()]
        # only a being whose name another one has is written to by its id
        or [each for each, name in names if each.id == request.to and shared[name.casefold()] > 1]
    )
    if not recipients:
        raise NotFound(f"There is no being named {request.to!r} here.")
    if len(recipients) > 1:
        ids = ", ".join(each.id for each in recipients)
        raise NotFound(f"There are several beings named {request.to!r} here; give an id: {ids}.")
    sender = sight.get_being(request.memory, request.being)
    request.memory.remember(
        request.content, kind=PARTY, tags=[sight.being_tag(recipients[0].id)], trust=request.trust,
        attrs={"from": _being_name(request.memory, sender), "from_being": sender.id,
               "to": request.to, "read": False},
    )  # fmt: skip
    return f"message sent to {request.to}."


def _being_name(memory: Commonplace, being: Memory) -> str:
    soul = beings.soul(memory, being.id)
    return str(soul.attrs.get("name") or being.title) if soul else being.title


# --- all targets ---------------------------------------------------------------------------------

_KEYLESS = ("diary", "party_message")
"""Targets whose update and delete need no key."""

TARGETS: dict[str, dict[str, Action]] = {
    "preferences": _target_actions(PREFERENCES),
    "knowledge": _target_actions(KNOWLEDGES),
    "relationship": _target_actions(RELATIONSHIPS),
    "partner_tools": _target_actions(TOOLS),
    "partner_map": _target_actions(MAPS),
    "diary": {
        "get": _get_diary, "append": _with_day_key(DIARY_DAYS.append),
        "update": _with_day_key(DIARY_DAYS.update), "delete": _refuse_action,
    },
    "notes": _target_actions(NOTES),
    "party_message": {
        "get": _get_party_messages, "append": _send_party_message,
        "update": _refuse_action, "delete": _refuse_action,
    },
    "partner_rules": _target_actions(RULES),
    "souls": {
        "get": _get_soul, "append": _refuse_action,
        "update": _update_soul, "delete": _refuse_action,
    },
}  # fmt: skip


def update_relation(
    call: Call,
    *,
    entity_name: str,
    relation_type: str,
    action: str,
    content: str | None = None,
    trust: str = "inferred",
) -> Result:
    """Store or delete the relation of a being to somebody or something."""
    name, sort = entity_name.strip(), relation_type.strip()
    return _result_of(
        _change_relation, call.memory, being_of(call), name, sort, action, content or "", trust
    )


def _change_relation(
    memory: Commonplace, being: str, name: str, sort: str, action: str, content: str, trust: str
) -> str:
    if not name or not sort:
        raise InvalidInput("entity_name and relation_type must not be empty.")
    if len(name) > 400 or len(sort) > 100:
        raise InvalidInput(
            "entity_name can have at most 400 characters, and relation_type at most 100."
        )
    if action != "delete" and not content.strip():
        raise InvalidInput("content is required to upsert a relation.")
    checks.optional_text(content, "content", max_chars=checks.TEXT_CHARS)
    key = f"{sort}: {name}"
    with exclusive(memory, "update relation"):
        if action != "delete":
            extra = {"entity_name": name, "relation_type": sort}
            RELATIONS.put(memory, being, key, content, trust, extra)
            return f"relation to {name!r} stored."
        existing = RELATIONS.find(memory, being, key)
        if existing is None:
            raise NotFound(f"There is no relation to {name!r}.")
        memory.forget(existing.id)
        return f"relation to {name!r} deleted."
