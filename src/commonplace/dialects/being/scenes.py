"""Scenes: parse them from JSON, store them, and format them as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from commonplace.dialects.being import RESERVED
from commonplace.dialects.being.sight import NODE, being_tag
from commonplace.engine import checks
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory

PARSE_FAILED = "[PARSE_FAILED]"
DEFAULT_IMPORTANCE = 0.5
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MAX_THEME_TAGS = checks.MAX_TAGS - 1


@dataclass(frozen=True, slots=True)
class Scene:
    """An event that a being has experienced."""

    action: str
    actors: tuple[str, ...] = ()
    when: tuple[Any, ...] = ()
    """Dates, or {date, action} for each scene that was merged into this one."""
    setting: str = ""
    dialogue: tuple[str, ...] = ()
    sensory: tuple[str, ...] = ()
    feeling: str = ""
    themes: tuple[str, ...] = ()
    importance: float = DEFAULT_IMPORTANCE

    def as_dict(self) -> dict[str, Any]:
        """Return the scene as a dict without its empty optional fields."""
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
        """The scene as one line of text."""
        dates = "、".join(_date_with_action(each) for each in self.when)
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


def _date_with_action(when: Any) -> str:
    if isinstance(when, Mapping):
        action = when.get("action")
        return f"{when.get('date', '')}（{action}）" if action else str(when.get("date", ""))
    return str(when)


def parse(text: str) -> Scene | None:
    """Parse a scene from JSON; return None if the JSON is not a scene."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return from_dict(value)


def from_dict(value: Any) -> Scene | None:
    """Parse a scene from a dict; return None without an action, and ignore invalid fields."""
    if not isinstance(value, Mapping):
        return None
    action = value.get("action")
    if not isinstance(action, str) or not action.strip():
        return None
    when = value.get("when")
    when = [when] if isinstance(when, str) else when
    importance = value.get("importance", DEFAULT_IMPORTANCE)
    if isinstance(importance, bool) or not isinstance(importance, int | float):
        importance = DEFAULT_IMPORTANCE
    return Scene(
        action=action.strip(),
        actors=_stripped_texts(value.get("actors")),
        when=tuple(
            each
            for each in (when if isinstance(when, Sequence) else ())
            if isinstance(each, (str, dict, Mapping)) and _date_of(each)
        ),
        setting=_stripped_text(value.get("setting")),
        dialogue=_stripped_texts(value.get("dialogue")),
        sensory=_stripped_texts(value.get("sensory")),
        feeling=_stripped_text(value.get("feeling")),
        themes=tuple(dict.fromkeys(_stripped_texts(value.get("themes")))),
        importance=float(min(1, max(0, importance))) if importance == importance else 0.5,
    )


def _stripped_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _stripped_texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        return ()
    return tuple(each.strip() for each in value if isinstance(each, str) and each.strip())


def memory_fields(being: str, scene: Scene, *, trust: str, **attrs: Any) -> dict[str, Any]:
    """Return the fields of the memory that stores a scene."""
    return {
        "text": scene.text, "tags": tags_of(being, scene), "importance": scene.importance,
        "occurred_at": next(filter(is_day, scene.dates), None), "trust": trust,
        "attrs": {"scene": scene.as_dict(), **attrs},
    }  # fmt: skip


def draft(being: str, scene: Scene, *, kind: str, trust: str, **attrs: Any) -> Draft:
    """Return the draft of a memory that stores a scene."""
    return Draft(kind=kind, **memory_fields(being, scene, trust=trust, **attrs))


def tags_of(being: str, scene: Scene) -> list[str]:
    """Return the being's tag, and the themes that are valid and unreserved tags."""
    themes = [theme for theme in scene.themes if len(theme) <= checks.TAG_CHARS]
    reserved = RESERVED.reserved_tags(themes)
    return [
        being_tag(being),
        *[theme for theme in themes if theme not in reserved][:_MAX_THEME_TAGS],
    ]


def refuse_reserved_themes(scene: Scene) -> None:
    """Raise InvalidInput if a theme is a reserved tag."""
    RESERVED.refuse_tags(scene.themes)


def is_day(text: str) -> bool:
    """Return whether a text is a date in the form YYYY-MM-DD."""
    try:
        return bool(_DAY.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def stored_scene(memory: Memory) -> Scene | None:
    """Return the scene in a memory's attrs, or None if there is none.

    If a person has changed the memory's text since, this text is the action.
    """
    scene = from_dict(memory.attrs.get("scene"))
    if scene is None or memory.text == scene.text:
        return scene
    text = memory.text.removeprefix(f"[{', '.join(scene.dates)}] ").strip()
    action = text.removesuffix(f" / {scene.feeling}") if scene.feeling else text
    feeling = scene.feeling if action != text else ""
    return replace(scene, action=action.strip() or scene.action, feeling=feeling)


def scene_of(memory: Memory) -> Scene:
    """Return the scene of a node, or a scene made from another agent's memory."""
    if memory.kind == NODE and (found := stored_scene(memory)) is not None:
        return replace(found, importance=memory.importance)
    day = (memory.occurred_at or memory.created_at).date().isoformat()
    action = f"{memory.title}: {memory.text}" if memory.title else memory.text
    themes = tuple(each for each in memory.tags if not each.startswith("being:"))
    return Scene(action=action, when=(day,), themes=themes, importance=memory.importance)
