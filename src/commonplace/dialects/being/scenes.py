"""Scenes: how one is read from JSON, stored and shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from commonplace.dialects.being import RESERVED
from commonplace.dialects.being.sight import NODE, tag
from commonplace.engine import checks
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory

FAILED = "[PARSE_FAILED]"
IMPORTANCE = 0.5
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TAGS = checks.TAGS - 1


@dataclass(frozen=True, slots=True)
class Scene:
    """Something that happened."""

    action: str
    actors: tuple[str, ...] = ()
    when: tuple[Any, ...] = ()
    """Dates, or {date, action} of what was merged into it."""
    setting: str = ""
    dialogue: tuple[str, ...] = ()
    sensory: tuple[str, ...] = ()
    feeling: str = ""
    themes: tuple[str, ...] = ()
    importance: float = IMPORTANCE

    def as_dict(self) -> dict[str, Any]:
        """The scene as JSON; empty optional fields are left out."""
        whole: dict[str, Any] = {
            "action": self.action, "actors": list(self.actors), "when": list(self.when),
            "setting": self.setting, "dialogue": list(self.dialogue),
            "sensory": list(self.sensory), "feeling": self.feeling,
            "themes": list(self.themes), "importance": self.importance,
        }  # fmt: skip
        needed = ("action", "actors", "when", "importance")
        return {name: value for name, value in whole.items() if value or name in needed}

    @property
    def text(self) -> str:
        """The text that is searched and embedded."""
        dates = ", ".join(_date_of(each) for each in self.when)
        return (
            (f"[{dates}] " if dates else "")
            + self.action
            + (f" / {self.feeling}" if self.feeling else "")
        )

    @property
    def line(self) -> str:
        """The scene on one line."""
        dates = "、".join(_shown(each) for each in self.when)
        parts = [dates, self.setting, self.action]
        if self.dialogue:
            parts.append(f"「{self.dialogue[0]}」")
        if self.feeling:
            parts.append(f"（{self.feeling}）")
        return " — ".join(part for part in parts if part)

    @property
    def dates(self) -> tuple[str, ...]:
        """The dates of `when`."""
        return tuple(_date_of(each) for each in self.when)


def _date_of(when: Any) -> str:
    if type(when) is str:
        return when
    return str(when.get("date", "")) if isinstance(when, Mapping) else str(when)


def _shown(when: Any) -> str:
    if isinstance(when, Mapping):
        action = when.get("action")
        return f"{when.get('date', '')}（{action}）" if action else str(when.get("date", ""))
    return str(when)


def parse(text: str) -> Scene | None:
    """A scene from its JSON; None if that is not a scene."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return from_dict(value)


def from_dict(value: Any) -> Scene | None:
    """A scene from plain values; None without an action. Other invalid fields are ignored."""
    if not isinstance(value, Mapping):
        return None
    action = value.get("action")
    if not isinstance(action, str) or not action.strip():
        return None
    when = value.get("when")
    when = [when] if isinstance(when, str) else when
    importance = value.get("importance", IMPORTANCE)
    if isinstance(importance, bool) or not isinstance(importance, int | float):
        importance = IMPORTANCE
    return Scene(
        action=action.strip(),
        actors=_texts(value.get("actors")),
        when=tuple(
            each
            for each in (when if isinstance(when, Sequence) else ())
            if isinstance(each, (str, dict, Mapping)) and _date_of(each)
        ),
        setting=_text(value.get("setting")),
        dialogue=_texts(value.get("dialogue")),
        sensory=_texts(value.get("sensory")),
        feeling=_text(value.get("feeling")),
        themes=tuple(dict.fromkeys(_texts(value.get("themes")))),
        importance=min(1.0, max(0.0, float(importance))) if importance == importance else 0.5,
    )


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        return ()
    return tuple(each.strip() for each in value if isinstance(each, str) and each.strip())


def changes(being: str, scene: Scene, *, trust: str, **attrs: Any) -> dict[str, Any]:
    """The fields of a memory that holds a scene."""
    return {
        "text": scene.text, "tags": tags_of(being, scene), "importance": scene.importance,
        "occurred_at": next(filter(is_day, scene.dates), None), "trust": trust,
        "attrs": {"scene": scene.as_dict(), **attrs},
    }  # fmt: skip


def draft(being: str, scene: Scene, *, kind: str, trust: str, **attrs: Any) -> Draft:
    """A new memory that holds a scene."""
    return Draft(kind=kind, **changes(being, scene, trust=trust, **attrs))


def tags_of(being: str, scene: Scene) -> list[str]:
    """The being's tag, and the themes that are valid tags and not reserved."""
    themes = [theme for theme in scene.themes if len(theme) <= checks.TAG_CHARS]
    taken = RESERVED.tags_among(themes)
    return [tag(being), *[theme for theme in themes if theme not in taken][:_TAGS]]


def refuse_reserved_themes(scene: Scene) -> None:
    """InvalidInput if a theme of a caller's scene is a reserved tag."""
    RESERVED.refuse_tags(scene.themes)


def is_day(text: str) -> bool:
    """Whether a text is a date as YYYY-MM-DD."""
    try:
        return bool(_DAY.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def scene_of(memory: Memory) -> Scene:
    """The scene of a node; another agent's memory is shown as a scene."""
    if memory.kind == NODE:
        held = memory.attrs.get("scene")
        if isinstance(held, Mapping):
            found = from_dict({**held, "importance": memory.importance})
            if found is not None:
                return found
    day = (memory.occurred_at or memory.created_at).date().isoformat()
    said = f"{memory.title}: {memory.text}" if memory.title else memory.text
    themes = tuple(each for each in memory.tags if not each.startswith("being:"))
    return Scene(action=said, when=(day,), themes=themes, importance=memory.importance)
