"""Notes and scenes that a being records between patrols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from commonplace.dialects.being import fitting, scenes, sight
from commonplace.dialects.being.sight import NOTE, SCENE, being_of
from commonplace.dialects.contract import Call, json_text
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import LIVE_STATES, Memory, iso
from commonplace.platform.exclusive import exclusive
from commonplace.text.prose import neutralise

PATROL_SCENES = 10
"""The number of waiting scenes that starts a patrol."""
MAX_LISTED = 50
NOTE_TYPES = ("note", "someday")


def find(memory: Commonplace, being: str, identity: str, *kinds: str) -> Memory | None:
    """Return the being's live row with this id, or None."""
    found = sight.find_memory(memory, identity)
    if found is None or found.state not in LIVE_STATES:
        return None
    return found if sight.is_own(being, found, *(kinds or (NOTE, SCENE))) else None


def content_of(note: Memory) -> str:
    """Return the text of a note, or the JSON of a scene."""
    scene = scenes.stored_scene(note) if note.kind == SCENE else None
    return note.text if scene is None else json_text(scene.as_dict())


def to_dict(note: Memory) -> dict[str, Any]:
    """Return the fields of a note for lists."""
    sort = "scene" if note.kind == SCENE else note.attrs.get("type", "note")
    listed = {
        "id": note.id, "type": sort, "content": content_of(note),
        "created_at": iso(note.created_at), "updated_at": iso(note.updated_at),
    }  # fmt: skip
    if note.text.startswith(scenes.PARSE_FAILED):
        listed["repair_required"] = True
        listed["repair_instruction"] = (
            "This scene could not be read. Record it again with update_notes: action=update, its"
            " id in scene_ids, and the scene in scenes."
        )
    return listed


def open_notes(memory: Commonplace, being: str, *sorts: str) -> list[Memory]:
    """Return the newest notes that are not scenes."""
    every = sight.readable_rows(memory, sight.own_row_filters(being, NOTE))
    wanted = (note for note in every if note.attrs.get("type", "note") in (sorts or NOTE_TYPES))
    return list(islice(wanted, MAX_LISTED))


def newest_notes(memory: Commonplace, being: str) -> list[dict[str, Any]]:
    """Return the newest notes and scenes as dicts."""
    newest, _ = memory.browse(filters=sight.own_row_filters(being, NOTE, SCENE), limit=MAX_LISTED)
    return [to_dict(note) for note in newest]


def add_note(
    memory: Commonplace, being: str, content: str, trust: str, sort: str = "note"
) -> Memory:
    """Store a note."""
    return memory.remember(
        content, kind=NOTE, tags=[sight.being_tag(being)], trust=trust, attrs={"type": sort}
    )


def waiting_scenes(memory: Commonplace, being: str) -> list[Memory]:
    """Return the scenes that no patrol has turned into nodes yet, oldest first."""
    return list(sight.readable_rows(memory, sight.own_row_filters(being, SCENE), "oldest"))


def has_enough_scenes(memory: Commonplace, being: str) -> bool:
    """Return whether enough scenes wait to start a patrol; unreadable ones do not count."""
    readable = (
        scene
        for scene in sight.readable_rows(memory, sight.own_row_filters(being, SCENE))
        if not scene.text.startswith(scenes.PARSE_FAILED)
    )
    return len(list(islice(readable, PATROL_SCENES))) == PATROL_SCENES


def update_notes(
    call: Call,
    *,
    action: str = "append",
    scenes: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[Any] = (),
    scene_ids: Sequence[str] = (),
    note_type_updates: Sequence[Mapping[str, str]] = (),
) -> str:
    """Store scenes and notes; start a patrol if enough scenes wait."""
    from commonplace.dialects.being import running

    being = being_of(call)
    message = write_notes(call.memory, being, action, scenes, notes, scene_ids, note_type_updates)
    if has_enough_scenes(call.memory, being):
        call.afterwards.append(
            lambda: running.runtime_of(call.memory.library).patrol_soon(call, being)
        )
    return message


def write_notes(
    memory: Commonplace,
    being: str,
    action: str,
    scene_dicts: Sequence[Mapping[str, Any]],
    notes: Sequence[Any],
    scene_ids: Sequence[str],
    types: Sequence[Mapping[str, str]],
    trust: str = "inferred",
) -> str:
    """Store scenes and notes; return a message that lists the open notes."""
    if not scene_dicts and not notes and not types:
        return "error: at least one of scenes, notes or note_type_updates is required."
    parsed = [scenes.from_dict(each) for each in scene_dicts]
    if any(scene is None for scene in parsed):
        return "error: every scene needs an action that is not empty; nothing was stored."
    texts = [_text_and_type(each) for each in notes]
    if not all(text for text, _ in texts):
        return "error: a note is empty; nothing was stored."
    valid = [scene for scene in parsed if scene is not None]
    for number, (text, _) in enumerate(texts):
        checks.text(text, f"notes[{number}]")
    for number, scene in enumerate(valid):
        checks.text(scene.action, f"scenes[{number}].action")
        scenes.refuse_reserved_themes(scene)
    memory.remember_many([scenes.draft(being, scene, kind=SCENE, trust=trust) for scene in valid])
    for text, sort in texts:
        add_note(memory, being, text, trust, sort)
    replaced = scene_ids if action == "update" else ()
    with exclusive(memory, "update notes"):  # a patrol may be converting the same scenes
        retyped = {change["id"]: find(memory, being, change["id"], NOTE) for change in types}
        replaced_rows = {each: find(memory, being, each) for each in replaced}
        missing = [each for each, found in {**replaced_rows, **retyped}.items() if found is None]
        if missing and not scene_dicts and not notes and not any(retyped.values()):
            return f"error: {_not_found_message(missing)} Nothing was changed."
        memory.forget(*{found.id for found in replaced_rows.values() if found is not None})
        for change in types:
            if (target := retyped[change["id"]]) is not None:
                memory.revise(target.id, attrs={**target.attrs, "type": change["type"]})
    listed = [{"id": note.id, "text": note.text} for note in open_notes(memory, being, "note")]
    note_lines = [
        f"- [{note['id']}] {neutralise(note['text'])}" for note in fitting.fit_texts(listed, "text")
    ]
    warnings = [_not_found_message(missing)] if missing else []
    return "\n".join(["ok: notes updated.", *warnings, *note_lines])


def _not_found_message(identities: Sequence[str]) -> str:
    """Return the message for ids without a note; a patrol may have made nodes of the scenes."""
    ids = ", ".join(neutralise(each[:80]) for each in identities)
    return f"no notes have these ids: {ids} (a patrol may have turned them into nodes)."


def _text_and_type(note: Any) -> tuple[str, str]:
    if isinstance(note, Mapping):
        return str(note.get("content", "")).strip(), str(note.get("type", "note"))
    return str(note).strip(), "note"
