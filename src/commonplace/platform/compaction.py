"""Stores a checkpoint before a session's context is compacted, and prunes it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonplace.errors import Conflict, NotFound
from commonplace.platform import capture, ignoring
from commonplace.platform.session_context import CHECKPOINT, latest_checkpoint
from commonplace.platform.transcript_lines import conversation_of
from commonplace.text.session_details import SessionDetails, session_details
from commonplace.transcripts.formats import FORMATS, client_of

if TYPE_CHECKING:
    from pathlib import Path

    from commonplace.engine.commonplace import Commonplace

MOST_LINES = 200
REQUEST_CHARS = 400


def store_checkpoint(memory: Commonplace, transcript: str, cwd: str, session: str) -> None:
    """Store the last request of a session with its commands, decisions and paths.

    Replace an earlier checkpoint of the same session.
    """
    from pathlib import Path

    note = capture.read_note(memory, transcript)
    if note is None or ignoring.is_ignored(cwd) or memory.library.read_only:
        return
    conversation = _conversation_in(memory, Path(transcript), session)
    if conversation is None:
        return
    session = session or conversation.partition(":")[2]
    try:
        lines = memory.within(None).conversations.history(conversation, limit=MOST_LINES)
    except NotFound:
        return
    said = [line.memory.text for line in lines]  # secrets are masked in the stored text
    asked = [line.memory.text for line in lines if line.speaker == "user"]
    if not said:
        return
    kept = session_details(said)
    attrs = {
        "session": session, "at": note.offset,
        "request": asked[-1][:REQUEST_CHARS] if asked else "",
        "commands": list(kept.commands), "decisions": list(kept.decisions),
        "paths": list(kept.paths),
    }  # fmt: skip
    former = latest_checkpoint(memory, session)
    if former is not None and former.attrs.get("at") == note.offset:
        return
    text = _checkpoint_text(str(attrs["request"]), kept)
    if former is not None and "at" in former.attrs:
        try:
            memory.supersede(former.id, text, kind=CHECKPOINT, attrs=attrs, trust="inferred")
        except Conflict:  # another process has replaced the checkpoint
            return
    else:
        memory.remember(text, kind=CHECKPOINT, attrs=attrs, trust="inferred")


def prune_checkpoint(memory: Commonplace, session: str, summary: str) -> None:
    """Remove details from the checkpoint of a session that the summary of its context already
    contains.
    """
    found = latest_checkpoint(memory, session) if session and summary else None
    if found is None or "at" not in found.attrs:
        return
    known = [
        tuple(map(str, found.attrs.get(name, ()))) for name in ("commands", "decisions", "paths")
    ]
    left = SessionDetails(*known).without(summary)
    attrs = {**found.attrs, "commands": list(left.commands), "decisions": list(left.decisions),
             "paths": list(left.paths)}  # fmt: skip
    memory.revise(
        found.id, _checkpoint_text(str(found.attrs.get("request", "")), left), attrs=attrs
    )


def _checkpoint_text(request: str, kept: SessionDetails) -> str:
    lines = [f"Before the context was compacted, the user asked: {request}"] if request else []
    return "\n".join([*lines, *kept.lines()]) or "The context was compacted."


def _conversation_in(memory: Commonplace, path: Path, session: str) -> str | None:
    """Return the name of the conversation in a transcript; None if the transcript has none.

    A transcript that a plugin of ours wrote is deleted when it is read, but its path names the
    client.
    """
    try:
        client = client_of(path)
        size = path.stat().st_size
        for start in (max(0, size - 262_144), 0):
            if client and (found := FORMATS[client].read(path, start).records):
                return conversation_of(found[-1])
    except OSError:
        if session and capture.is_copy(memory, path):
            return f"{path.parent.name}:{session}"
    return None
