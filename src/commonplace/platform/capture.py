"""Captures sessions of agents: stores the new lines of a transcript as messages, word for word.

Each line is stored once; its ref consists of the client and the line's id. A file in the data
directory (a note) holds the offset up to which a transcript was read. It is written after the lines
are committed: if the process is killed in between, the lines are read again and skipped by their
refs. The note is created when a session starts; if the session ends without an event, the rest of
its transcript is read when the next session or server starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from commonplace.client.files import SESSIONS_FOLDER
from commonplace.engine import checks
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.projects import Project
from commonplace.engine.maintenance import purged_refs
from commonplace.engine.maintenance.outside import TRANSCRIPTS
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.platform import ignoring, review
from commonplace.platform.exclusive import after_commit, exclusive
from commonplace.platform.projects import NO_PROJECT
from commonplace.platform.transcript_lines import conversation_of, line_of
from commonplace.storage.directories import make_private, replace_file
from commonplace.transcripts.formats import FORMATS, client_of
from commonplace.transcripts.record import Record, line_id

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

NOTES_FOLDER = SESSIONS_FOLDER
COPIES_FOLDER = TRANSCRIPTS
"""The folder where plugins write transcripts of agents that store sessions in a database; a
transcript is deleted once it is read."""
BATCH_RECORDS = 200
BYTES_AT_ONCE = 4 * 1024 * 1024
BEGINNING_BYTES = 256
ENDING_BYTES = 1_024
DONE_FOLDER = "done"
DONE_SECONDS = 86_400.0  # a session without a new line for this long counts as ended
TRANSCRIPT_SUFFIXES = (".jsonl", ".json")
REREAD_PAUSES = (1.0, 4.0)  # pauses in seconds before a transcript is read again after a turn
_SURROGATE = re.compile("[\ud800-\udfff]")

log = logging.getLogger(__name__)
_rereading: set[str] = set()  # transcripts that a thread will read again


@dataclass(frozen=True, slots=True)
class Note:
    """A transcript, and the offset up to which it was read."""

    transcript: str
    cwd: str = ""
    session: str = ""
    offset: int = 0
    beginning: str = ""
    """A digest of the file's first bytes, to detect a replaced file."""
    ending: str = ""
    """A digest of the last bytes before the offset, to detect a file that was edited; empty in
    notes of older releases."""
    seen_at: float = 0.0
    project: str = ""
    """The project that a variable of the agent names, if any."""


def create_note(
    memory: Commonplace, transcript: str, cwd: str, session: str, project: str = ""
) -> None:
    """Create the note of a session at its start, so that a killed session is read to its end."""
    if memory.library.read_only or not _is_transcript_name(transcript):
        return
    known = read_note(memory, transcript) or Note(transcript)
    noted = replace(known, cwd=cwd, session=session, seen_at=time.time(), project=project)
    _write_note(memory, noted)


def capture(
    memory: Commonplace, transcript: str, cwd: str = "", session: str = "", project: str = ""
) -> int:
    """Store the new lines of a transcript; return their number.

    With `project`, they belong to it instead of to the project of their directory.
    """
    path = Path(transcript)
    if memory.library.read_only or not _is_transcript_name(transcript) or not path.is_file():
        return 0
    try:
        return _capture(memory, transcript, cwd, session, project)
    except FileNotFoundError:  # another process has read a plugin's copy, and deleted it
        return 0


def _capture(memory: Commonplace, transcript: str, cwd: str, session: str, project: str) -> int:
    path = Path(transcript)
    client = client_of(path)
    if client is None:
        return 0
    beginning = _beginning_digest(path)
    note = read_note(memory, transcript) or Note(transcript, cwd, session)
    project = project or note.project
    # A plugin writes all its lines anew each time, and earlier ones may have become shorter.
    same = beginning != "" and beginning == note.beginning and not is_copy(memory, path)
    same = same and note.ending in ("", _ending_digest(path, note.offset))
    offset = note.offset if same and note.offset <= path.stat().st_size else 0
    stored, before = 0, -1
    while offset != before:
        before = offset
        reading = FORMATS[client].read(path, offset, BYTES_AT_ONCE)
        placed = (each if each.cwd else replace(each, cwd=cwd) for each in reading.records)
        wanted = [each for each in placed if not ignoring.is_ignored(each.cwd)]
        for at in range(0, len(wanted), BATCH_RECORDS):
            stored += _store_records(memory, wanted[at : at + BATCH_RECORDS], project)
        offset = reading.offset
        after = replace(note, offset=offset, beginning=beginning,
                        ending=_ending_digest(path, offset), cwd=note.cwd or cwd,
                        session=note.session or session, seen_at=time.time(),
                        project=project)  # fmt: skip
        if (after.offset, beginning, after.ending) != (note.offset, note.beginning, note.ending):
            _note_after_commit(memory, after)
        if path.suffix == ".json":
            break
    return stored


def capture_again(
    memory: Commonplace, transcript: str, cwd: str = "", session: str = "", project: str = ""
) -> None:
    """Read a transcript again soon, in the background.

    This is needed because Claude Code calls its Stop hook before it writes the lines of the turn.
    """
    if transcript in _rereading or not _is_transcript_name(transcript):
        return

    def read() -> None:
        try:
            for seconds in REREAD_PAUSES:
                time.sleep(seconds)
                with lease(memory):  # fails if the library is closed
                    capture(memory, transcript, cwd, session, project)
        except (CommonplaceError, OSError) as error:
            log.info("a transcript is not read again now", extra={"why": str(error)})
        finally:
            _rereading.discard(transcript)

    _rereading.add(transcript)
    threading.Thread(target=read, name="commonplace-capture", daemon=True).start()


def drop_copy(memory: Commonplace, transcript: str) -> None:
    """Delete a transcript written by a plugin of ours, once all its lines are committed.

    The plugin may have written more since it was read; then it stays for the next capture.
    """
    path = Path(transcript)
    if not is_copy(memory, path):
        return

    def delete() -> None:
        note = read_note(memory, transcript)
        with contextlib.suppress(OSError):
            if note is not None and path.stat().st_size == note.offset:
                path.unlink()

    after_commit(memory, delete)


def is_copy(memory: Commonplace, path: Path) -> bool:
    """Return whether a path is that of a transcript written by a plugin of ours."""
    return (
        path.parent.parent == memory.library.path / COPIES_FOLDER
        and path.suffix in TRANSCRIPT_SUFFIXES
    )


def capture_known_transcripts(memory: Commonplace, besides: str = "") -> int:
    """Read every known transcript to its end, except the transcript `besides`."""
    stored = 0
    for file in sorted(_notes_folder(memory).glob("*.json")):
        note = _read_note_file(file)
        if note is None or note.transcript == besides:
            continue
        try:
            state = Path(note.transcript).stat()
        except OSError:  # the transcript was deleted, or its disk is not mounted
            _archive_note(file, since=note.seen_at)
            continue
        if state.st_size != note.offset:
            try:
                stored += capture(memory, note.transcript, note.cwd, note.session)
            except OSError as error:  # one unreadable file must not hold up the others
                log.warning("a transcript cannot be read now", extra={"why": str(error)})
                continue
            drop_copy(memory, note.transcript)
        _archive_note(file, since=state.st_mtime)
    return stored


def _archive_note(file: Path, since: float) -> None:
    """Move the note of a session that has ended to another folder, so that it is not read again."""
    if time.time() - since > DONE_SECONDS:
        with contextlib.suppress(OSError):
            make_private(file.parent / DONE_FOLDER)
            file.replace(file.parent / DONE_FOLDER / file.name)


def read_note(memory: Commonplace, transcript: str) -> Note | None:
    """Return the note of a transcript; None if there is none."""
    file = _note_file(memory, transcript)
    return _read_note_file(file) or _read_note_file(file.parent / DONE_FOLDER / file.name)


def _read_note_file(file: Path) -> Note | None:
    try:
        found = json.loads(file.read_bytes())
        note = Note(**found)
    # Without a note the transcript is read from its start; lines already stored are skipped.
    except (OSError, ValueError, TypeError):
        return None
    sound = isinstance(note.offset, int) and note.offset >= 0 and isinstance(note.transcript, str)
    return note if sound else None


def _notes_folder(memory: Commonplace) -> Path:
    return memory.library.path / NOTES_FOLDER / memory.name


def _note_file(memory: Commonplace, transcript: str) -> Path:
    name = hashlib.sha256(transcript.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return _notes_folder(memory) / f"{name}.json"


def _note_after_commit(memory: Commonplace, note: Note) -> None:
    after_commit(memory, lambda: _write_note(memory, note))


def _write_note(memory: Commonplace, note: Note) -> None:
    file = _note_file(memory, note.transcript)
    with contextlib.suppress(OSError):  # without the note, lines are read again and skipped
        make_private(file.parent)
        with replace_file(file) as stream:
            stream.write(json.dumps(asdict(note)).encode())
        (file.parent / DONE_FOLDER / file.name).unlink(missing_ok=True)


def _is_transcript_name(transcript: str) -> bool:
    """Return whether a path is absolute and has the suffix of a transcript; other files are never
    opened."""
    path = Path(transcript)
    return "\0" not in transcript and path.is_absolute() and path.suffix in TRANSCRIPT_SUFFIXES


def _beginning_digest(path: Path) -> str:
    """Return a digest of the start of the first line, which stays the same when the file grows."""
    with path.open("rb") as stream:
        first = stream.readline(BEGINNING_BYTES)
    return (
        hashlib.sha256(first).hexdigest() if len(first) == BEGINNING_BYTES or b"\n" in first else ""
    )


def _ending_digest(path: Path, offset: int) -> str:
    """Return a digest of the last bytes before an offset."""
    with path.open("rb") as stream:
        stream.seek(max(0, offset - ENDING_BYTES))
        last = stream.read(min(offset, ENDING_BYTES))
    return hashlib.sha256(last).hexdigest()


def _store_records(memory: Commonplace, records: Sequence[Record], project: str = "") -> int:
    """Store the new records in their order, in one transaction; if one is refused, each in its
    own."""
    try:
        return _store_batch(memory, records, project)
    except (InvalidInput, Conflict) as error:
        if len(records) == 1:
            log.warning("a line of a transcript is not stored", extra={"why": error.message})
            return 0
        return sum(_store_records(memory, [each], project) for each in records)


def _store_batch(memory: Commonplace, records: Sequence[Record], project: str) -> int:
    everywhere = memory.within(None)  # each line gets the labels of its own working directory
    origin = Origin(user=memory.origin.user, client=records[0].client if records else "",
                    tool="capture", session=records[0].session if records else "")  # fmt: skip
    added = 0
    with exclusive(everywhere, "capture", origin):
        lines = [(each, line) for each in records for line in _messages_of_record(each, project)]
        refs = [line.ref or "" for _, line in lines]
        known = engine_call(everywhere, review.known_refs, refs)
        known |= engine_call(everywhere, purged_refs.purged_among, set(refs) - known)
        new = [(each, line) for each, line in lines if line.ref not in known]
        for name, group in groupby(new, key=lambda pair: conversation_of(pair[0])):
            fresh: dict[str, Line] = {}
            for _, line in group:  # a transcript may contain a line twice
                fresh.setdefault(line.ref or "", line)
            said = everywhere.conversations.add(
                name[: checks.NAME_CHARS], *fresh.values(), origin=origin
            )
            review.propose(everywhere, said)
            added += len(fresh)
    return added


def _messages_of_record(record: Record, project: str) -> Iterator[Line]:
    """Yield the record as messages; a record that exceeds the length limit is split."""
    whole = line_of(record)
    if project:
        named = Project("" if project == NO_PROJECT else project, record.branch)
        whole = replace(whole, tags=named.labels)
    text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", whole.text.replace("\0", ""))
    ref = whole.ref or ""
    if len(ref) > checks.REF_CHARS - 10:
        ref = f"{record.client}:{line_id(ref)}"
    for number, start in enumerate(range(0, len(text), checks.TEXT_CHARS)):
        part = text[start : start + checks.TEXT_CHARS]
        if part.strip():
            session = whole.session[: checks.NAME_CHARS]
            numbered = ref if number == 0 else f"{ref}#{number + 1}"
            yield replace(whole, text=part, ref=numbered, session=session)
