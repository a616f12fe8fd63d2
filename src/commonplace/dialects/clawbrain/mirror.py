"""Synchronise files and rows in both directions. Rows are authoritative; people edit files.

What each file was when both last agreed is noted in the store. Whichever side differs from that
note has changed; when both have, both are kept. Writing is finished from the note as well, so a
crash between file and row is repaired by doing the same again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.clawbrain import documents, places
from commonplace.dialects.clawbrain.directory import Directory, Scan, Stat
from commonplace.dialects.clawbrain.documents import Document
from commonplace.dialects.clawbrain.places import ARCHIVE, KINDS, OutOfPlace, Place
from commonplace.dialects.reserved import by_others
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import memories, reserved
from commonplace.engine.maintenance import file_copies
from commonplace.engine.maintenance.file_copies import File
from commonplace.engine.model import LIVE_STATES, Memory, Origin
from commonplace.errors import CommonplaceError, Conflict, NotFound
from commonplace.platform import lookup
from commonplace.storage.database import now

EDITOR = Origin(client="editor", tool="file")
PASSES = 4
ABSENT = Stat(-1, 0, 0)

log = logging.getLogger(__name__)


def digest(data: bytes) -> bytes:
    """The hash by which contents are compared."""
    return hashlib.sha256(data).digest()


def document_of(memory: Memory) -> Document | None:
    """A memory as a document; None if it has no file."""
    place = places.of_memory(memory)
    return None if place is None else documents.of_memory(memory, place.id)


def path_of(memory: Memory | None) -> str:
    """The path of a memory's file; empty if it has none or was deleted."""
    place = None if memory is None else places.of_memory(memory)
    if memory is None or place is None:
        return ""
    if memory.state in LIVE_STATES:
        return place.path
    said = memory.attrs.get("archived_as")
    if isinstance(said, str) and said.startswith(ARCHIVE):
        with contextlib.suppress(OutOfPlace):
            places.of_path(said)
            return said
    return ARCHIVE + place.path


def free_archive_path(place: Place, taken: Collection[str]) -> str:
    """The archive path for a file; it contains the time if the plain path is in use."""
    path = ARCHIVE + place.path
    if path not in taken:
        return path
    stem = path.removesuffix(".md")[:200].rstrip("-")
    return f"{stem}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}.md"


def archived(memory: Memory, *, path: str, missing: bool = False) -> dict[str, Any]:
    """The changes that archive a memory and release its id."""
    attrs = {**memory.attrs, "archived_as": path}
    if missing:
        attrs["missing"] = True
    return {"state": "archived", "ref": None, "attrs": attrs}


class Mirror:
    """One space's memories in one directory, for the process that holds its lock."""

    def __init__(self, memory: Commonplace, directory: Directory) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self.problems: dict[str, tuple[Stat, str]] = {}
        """Files that are left alone, and why."""
        self.failures: dict[int, tuple[int, str]] = {}
        """Files that could not be written: (form of the row, why)."""
        self.folders: tuple[str, ...] = ()
        self._memory = memory
        self._root = ""
        self._seen = 0
        self._files: dict[int, File] = {}
        self._paths: dict[str, int] = {}

    def start(self) -> None:
        """Load the recorded state of all files, so that unchanged ones are not read again."""
        with self.lock:
            self.directory.ensure()
            self._root = self.directory.identity()
            left = self.directory.tidy()
            self._files = {
                file.memory: file
                for file in engine_call(self._memory, file_copies.known, self._root)
            }
            self._paths = {file.path: num for num, file in self._files.items() if file.path}
            self._seen = 0
            self.problems.clear()
            for path in left:
                self._put_away(path, None, b"")
            self.sync()

    def sync(self) -> None:
        """Import edited files, then write the files of changed rows."""
        with self.lock:
            if self.directory.known_identity() != self._root:
                # the directory was replaced, so missing files were not deleted by a person
                self.start()
                return
            self.pull()
            self.push()

    def files(self) -> int:
        """How many files there are."""
        return len(self._paths)

    def taken(self) -> set[str]:
        """Paths that are in use."""
        return set(self._paths)

    # --- from files to rows ------------------------------------------------------------------

    def pull(self) -> None:
        """Import every file that differs from its recorded state."""
        with self.lock:
            scan = self._scan()
            self.folders = scan.folders
            missing = {path: num for path, num in self._paths.items() if path not in scan.files}
            for path in [path for path in self.problems if path not in scan.files]:
                del self.problems[path]
            for path, stat in scan.files.items():
                num = self._paths.get(path)
                if num is not None and self._is_noted(num, stat):
                    continue
                if path in self.problems and self.problems[path][0] == stat:
                    continue
                self._take_over(path, stat, missing)
            for num in missing.values():
                self._gone(num)

    def look(self, path: str) -> None:
        """Import one file if it changed; all changed files if it is missing."""
        with self.lock:
            num, stat = self._paths.get(path), self.directory.stat(path)
            if stat is None or num is None:
                if stat is not None or num is not None:
                    self.pull()
            elif not self._is_noted(num, stat):
                self._take_over(path, stat, {})

    def _scan(self) -> Scan:
        """Scan the directory; twice if a file is missing, which may be moving."""
        scan = self.directory.scan()
        if any(path not in scan.files for path in self._paths):
            return self.directory.scan()
        return scan

    def _is_noted(self, num: int, stat: Stat) -> bool:
        file = self._files[num]
        return (file.size, file.mtime, file.inode) == stat

    def _take_over(self, path: str, stat: Stat, missing: dict[str, int]) -> None:
        try:
            place = places.of_path(path)
            data, stat = self.directory.read(path)
            num = self._paths.get(path)
            if num is not None and self._files[num].digest == digest(data):
                self._note(replace(self._files[num], **stat._asdict()))
                self.problems.pop(path, None)
                return
            document = documents.parse(data)
            # edits of files obey the same rules as calls
            with reserved.enforced(by_others("clawbrain")):
                if num is not None:
                    self._edited(path, stat, data, document, num)
                else:
                    self._added(place, path, stat, data, document, missing)
            self.problems.pop(path, None)
        except FileNotFoundError:
            return  # deleted during the scan; the next scan handles it
        except (CommonplaceError, OSError) as error:
            why = error.message if isinstance(error, CommonplaceError) else str(error.strerror)
            field = (
                f"{error.field}: " if isinstance(error, CommonplaceError) and error.field else ""
            )
            self.problems[path] = (stat, f"{field}{why}")
            log.warning("a file is left alone", extra={"file": path, "why": why})

    def _row(self, num: int) -> Memory | None:
        found = engine_call(self._memory, memories.numbered, [num])
        return found[0] if found else None

    def _edited(self, path: str, stat: Stat, data: bytes, document: Document, num: int) -> None:
        """Handle a known file whose content changed."""
        file, memory = self._files[num], self._row(num)
        if memory is None:
            self._forget(num)
            self._added(places.of_path(path), path, stat, data, document, {})
            return
        own = document_of(memory)
        rendered = digest(own.render()) if own else b""
        now_noted = replace(file, **stat._asdict(), digest=digest(data))
        if rendered == file.rendered:
            memory = self._revise(memory, document)
            self._agree(memory, path, stat, data, document)
        elif own is not None and _same(own, document):
            self._agree(memory, path, stat, data, document)
        elif not self._is_own_write(memory, file, data):
            self._keep_both(memory, document)
            self._note(now_noted)
        else:
            self._note(now_noted)

    def _is_own_write(self, memory: Memory, file: File, data: bytes) -> bool:
        """Whether we wrote this file ourselves, but crashed before recording it."""
        return any(
            version.memory.version > file.seq and (own := document_of(version.memory)) is not None
            and own.render() == data
            for version in self._memory.history.versions(memory.id)
        )  # fmt: skip

    def _added(
        self,
        place: Place,
        path: str,
        stat: Stat,
        data: bytes,
        document: Document,
        missing: dict[str, int],
    ) -> None:
        """Handle an unknown file: moved here, added by a person, or written before a crash."""
        moved = self._moved_from(stat, data, document, missing)
        if moved is not None:
            old, mover = moved
            del missing[old]
            self._moved(mover, place, path, stat, data, document)
            return
        if path.startswith(ARCHIVE):
            return  # a file that a person put into the archive is not imported
        memory = self._at(place)
        if memory is None:
            former = self._returned(place)
            if former is not None:
                self._free(place)
                attrs = {k: v for k, v in former.attrs.items() if k not in _ARCHIVING}
                memory = self._memory.revise(
                    former.id, state="active", ref=place.id, attrs=attrs, origin=EDITOR
                )
                memory = self._revise(memory, document)
            else:
                memory = self._create(place, document)
            self._agree(memory, path, stat, data, document)
            return
        own = document_of(memory)
        if own is not None and not _same(own, document):
            if not self._is_own_write(memory, _NEVER, data):
                self._keep_both(memory, document)
            unwritten = File(memory.num, path, *stat, digest(data), b"", 0)
            self._note(unwritten)
            self._seen = 0
        else:
            self._agree(memory, path, stat, data, document)

    def _moved_from(
        self, stat: Stat, data: bytes, document: Document, missing: dict[str, int]
    ) -> tuple[str, Memory] | None:
        """The missing file that was moved here, recognised by its id or content.

        The inode only decides between several: a new file often gets that of a deleted one.
        """
        for path, num in sorted(
            missing.items(), key=lambda at: self._files[at[1]].inode != stat.inode
        ):
            if self._files[num].digest == digest(data) or _id_at(path) == document.id:
                memory = self._row(num)
                if memory is not None:
                    return path, memory
        return None

    def _moved(
        self, memory: Memory, place: Place, path: str, stat: Stat, data: bytes, document: Document
    ) -> None:
        attrs = {k: v for k, v in memory.attrs.items() if k not in _ARCHIVING}
        attrs |= {"category": place.category, "name": place.name}
        if path.startswith(ARCHIVE):
            changes = archived(memory, path=path)
        else:
            other = self._at(place)
            if other is not None and other.num != memory.num:
                self._keep_both(other, document)
                self._seen = 0
                return
            self._free(place)
            changes = {
                "state": "active", "ref": place.id, "kind": place.kind, "title": place.name,
                "attrs": attrs,
            }  # fmt: skip
        with self._memory.unit("move file", EDITOR):
            memory = self._memory.revise(memory.id, origin=EDITOR, **changes)
            memory = self._revise(memory, document)
        self._agree(memory, path, stat, data, document)

    def _gone(self, num: int) -> None:
        """Handle a known file that is missing."""
        file, memory = self._files[num], self._row(num)
        if memory is None:
            self._forget(num)
            return
        own = document_of(memory)
        changed = own is None or digest(own.render()) != file.rendered
        if changed or path_of(memory) != file.path:
            self._seen = 0  # the row changed too, or its file is being moved: write the file again
            self._note(replace(file, path="", **ABSENT._asdict(), rendered=b"", seq=0))
            return
        self._note(replace(file, path="", **ABSENT._asdict(), seq=memory.version))
        if memory.state in LIVE_STATES:
            place = places.of_memory(memory)
            assert place is not None
            path = free_archive_path(place, self.taken())
            changes = archived(memory, path=path, missing=True)
            with self._memory.unit("delete file", EDITOR):
                self._memory.revise(memory.id, origin=EDITOR, **changes)
            # A file deleted by hand moves to the archive, as after memory_delete.
            self._note(replace(self._files[num], rendered=b"", seq=0))

    def _at(self, place: Place) -> Memory | None:
        """The live memory whose file belongs at a place."""
        return lookup.find_live(self._memory, place.id)

    def _returned(self, place: Place) -> Memory | None:
        """The memory whose file was deleted here by hand and has been restored."""
        stem = f"{ARCHIVE}{place.path}".removesuffix(".md")
        if f"{stem}.md" not in self._paths:
            return None
        for path, num in self._paths.items():
            if path.startswith(stem):
                memory = self._row(num)
                if (
                    memory is not None
                    and memory.state not in LIVE_STATES
                    and memory.attrs.get("missing")
                    and places.of_memory(memory) == place
                ):
                    return memory
        return None

    def _free(self, place: Place) -> None:
        """Release the id of a memory that another dialect archived."""
        with contextlib.suppress(NotFound):
            former = self._memory.get(place.id, count=False)
            if former.state not in LIVE_STATES:
                self._memory.revise(former.id, ref=None, origin=EDITOR)

    def _create(self, place: Place, document: Document) -> Memory:
        with self._memory.unit("add file", EDITOR):
            self._free(place)
            return self._memory.remember(
                document.content,
                kind=place.kind,
                title=place.name,
                tags=document.tags,
                pinned=document.pinned,
                created_at=documents.moment(document.created, "created"),
                ref=place.id,
                attrs=_attrs(place, document),
                origin=EDITOR,
            )

    def _revise(self, memory: Memory, document: Document) -> Memory:
        """Revise the memory with the file's content; outer white space is ignored."""
        attrs = dict(memory.attrs)
        if document.updated != documents.updated(memory):
            attrs["updated"] = document.updated
        elif document.content != memory.text.strip():
            attrs["updated"] = documents.stamp(datetime.now(UTC))
        if document.created != documents.created(memory):
            attrs["created"] = document.created
        if list(document.more) != attrs.get("frontmatter", []):
            attrs["frontmatter"] = list(document.more)
        changes: dict[str, Any] = {
            "tags": document.tags, "pinned": document.pinned, "attrs": attrs
        }  # fmt: skip
        if document.content != memory.text.strip():
            changes["text"] = document.content
        return self._memory.revise(memory.id, origin=EDITOR, **changes)

    def _keep_both(self, memory: Memory, document: Document) -> None:
        """Both changed: keep the row, and store the person's version as a second memory."""
        place = places.of_memory(memory)
        assert place is not None
        with self._memory.unit("keep both", EDITOR):
            for number in range(1, 1_000):
                name = f"{place.name[:180].rstrip('-')}-conflict" + (f"-{number}" * (number > 1))
                beside = places.checked(place.kind, place.category, name)
                try:
                    self._memory.get(beside.id, count=False)
                except NotFound:
                    break
            else:
                raise Conflict("There are too many conflicts.", hint="Resolve some of them.")
            tags = tuple(dict.fromkeys((*document.tags, "conflict")))
            self._create(beside, replace(document, tags=tags))
            said = {"kept": place.id, "beside": beside.id}
            self._memory.events.record("conflict", memory.id, said, origin=EDITOR)
        log.warning("a file and its memory both changed; both are kept", extra=said)

    def _agree(
        self, memory: Memory, path: str, stat: Stat, data: bytes, document: Document
    ) -> None:
        """Record that row and file agree; the file is rewritten only if its place differs."""
        own = document_of(memory)
        assert own is not None
        fits = (own.id, own.type, own.category) == (document.id, document.type, document.category)
        former = self._files.get(memory.num)
        if former is not None and former.path not in ("", path):
            self._take_away(former)  # the memory was restored: delete the copy in the archive
        rendered, seq = (digest(own.render()), memory.version) if fits else (b"", 0)
        if not fits:
            self._seen = 0
        self._note(File(memory.num, path, *stat, digest(data), rendered, seq))

    # --- from rows to files ------------------------------------------------------------------

    def push(self) -> None:
        """Write the file of every row that changed; they are durable on return."""
        with self.lock:
            for _ in range(PASSES):  # edits made meanwhile may need another pass
                if not self._push():
                    return

    def _push(self) -> bool:
        after = self._seen
        behind = engine_call(self._memory, file_copies.behind, self._root, KINDS, after=after)
        self._seen = behind.head
        noted: list[File] = []
        for memory in behind.memories:
            try:
                self._write(memory, noted)
                self.failures.pop(memory.num, None)
            except OSError as error:
                self._seen = min(self._seen, after)  # so that the next push retries it
                why = str(error.strerror or error)
                self.failures[memory.num] = (memory.version, f"{path_of(memory)}: {why}")
                log.warning(
                    "a file could not be written", extra={"file": path_of(memory), "why": why}
                )
        gone = [num for num in behind.gone if num in self._files]
        for num in gone:
            self._remove(num)
        if noted or gone:
            engine_call(self._memory, file_copies.note, self._root, noted, gone=gone)
        return bool(noted or gone) and not self.failures

    def _write(self, memory: Memory, noted: list[File]) -> None:
        file = self._files.get(memory.num)
        own, path = document_of(memory), path_of(memory)
        if own is None:
            if file is not None and file.path:
                self._remove(memory.num)
            self._remember(File(memory.num, "", *ABSENT, b"", b"", memory.version), noted)
            return
        data = own.render()
        rendered = digest(data)
        absent = file is not None and not file.path and memory.state not in LIVE_STATES
        if file is not None and file.rendered == rendered and (file.path == path or absent):
            self._remember(replace(file, seq=memory.version), noted)
            return
        if file is not None and file.path and self._was_changed(file):
            # The file was edited meanwhile: import the edit first.
            newer = self._row(memory.num)
            if newer is not None and newer.version != memory.version:
                self._write(newer, noted)
                return
            file = self._files.get(memory.num)
        path = self._cleared(memory, path, data)
        stat, displaced = self.directory.swap(path, data)
        self._put_away(displaced, self._files.get(self._paths.get(path, -1)), data)
        if file is not None and file.path != path and self._paths.get(file.path) == memory.num:
            self._take_away(file)
        self._remember(File(memory.num, path, *stat, rendered, rendered, memory.version), noted)

    def _was_changed(self, file: File) -> bool:
        stat = self.directory.stat(file.path)
        if stat is None or stat == (file.size, file.mtime, file.inode):
            return False
        self.problems.pop(file.path, None)
        self._take_over(file.path, stat, {})
        if file.path in self.problems:  # it cannot be read: keep it under another name
            self.directory.set_aside(file.path)
            del self.problems[file.path]
        return True

    def _as_noted(self, file: File) -> bool:
        return self.directory.stat(file.path) == (file.size, file.mtime, file.inode)

    def _cleared(self, memory: Memory, path: str, data: bytes) -> str:
        """The path to write to, after a foreign file there was renamed."""
        if self._paths.get(path) == memory.num or not self.directory.exists(path):
            return path
        if path in self._paths and path_of(self._row(self._paths[path])) != path:
            return path  # its memory moves to another path in this pass
        with contextlib.suppress(OSError):
            if self.directory.read(path)[0] == data:
                return path
        if path.startswith(ARCHIVE):
            place = places.of_memory(memory)
            assert place is not None
            return free_archive_path(place, {path, ARCHIVE + place.path})
        self.directory.set_aside(path)
        self.problems.pop(path, None)
        return path

    def _remove(self, num: int) -> None:
        """Remove the file of a deleted memory, unless a person has edited it."""
        file = self._files.pop(num)
        if file.path and self._paths.get(file.path) == num:
            del self._paths[file.path]
            self._take_away(file)

    def _take_away(self, file: File) -> None:
        """Remove a file, unless a person has edited it."""
        if self._as_noted(file):
            self._put_away(self.directory.take_away(file.path), file, b"")

    def _put_away(self, displaced: str, file: File | None, data: bytes) -> None:
        """Delete a displaced file if we wrote it; a person's edit is kept."""
        if not displaced:
            return
        found = self.directory.stat(displaced)
        if file is None or found != (file.size, file.mtime, file.inode):
            try:
                content, _ = self.directory.read(displaced)
                mark = digest(content)
                known = any(mark == noted.digest for noted in self._files.values())
                if content != data and not known:
                    self._rescue(displaced, content)
            except OSError:
                self.directory.set_aside(displaced, "unknown.md")
                return
        self.directory.remove(displaced)

    def _rescue(self, displaced: str, content: bytes) -> None:
        """Keep an edit that a person saved while the file was being written."""
        try:
            document = documents.parse(content)
            memory = self._memory.get(document.id, count=False)
        except CommonplaceError:
            self.directory.set_aside(displaced, "unknown.md")
            return
        own = document_of(memory)
        known = own is not None and _same(own, document)
        if not known and not self._is_own_write(memory, _NEVER, content):
            self._keep_both(memory, document)

    # --- the note of how both were -----------------------------------------------------------

    def _remember(self, file: File, noted: list[File]) -> None:
        former = self._files.get(file.memory)
        if former is not None and former.path and self._paths.get(former.path) == file.memory:
            del self._paths[former.path]
        self._files[file.memory] = file
        if file.path:
            self._paths[file.path] = file.memory
        noted.append(file)

    def _note(self, file: File) -> None:
        noted: list[File] = []
        self._remember(file, noted)
        engine_call(self._memory, file_copies.note, self._root, noted)

    def _forget(self, num: int) -> None:
        file = self._files.pop(num)
        if self._paths.get(file.path) == num:
            del self._paths[file.path]
        engine_call(self._memory, file_copies.note, self._root, [], gone=[num])


_ARCHIVING = ("archived_as", "missing")
_NEVER = File(0, "", *ABSENT, b"", b"", 0)


def _id_at(path: str) -> str | None:
    """The memory id that a file's path stands for; None if it is not a memory's path."""
    try:
        return places.of_path(path).id
    except OutOfPlace:
        return None


def _attrs(place: Place, document: Document) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "category": place.category,
        "name": place.name,
        "created": document.created,
        "updated": document.updated,
        "credited": now(),
    }
    if document.more:
        attrs["frontmatter"] = list(document.more)
    return attrs


def _same(own: Document, other: Document) -> bool:
    """Whether a file has the content of a row; a different `updated` is ignored."""
    return (
        own.content.strip() == other.content
        and own.tags == other.tags
        and own.pinned == other.pinned
        and own.created == other.created
        and own.more == other.more
    )
