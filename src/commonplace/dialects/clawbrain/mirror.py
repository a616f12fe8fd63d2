"""Two-way sync of Markdown files and rows. Rows are authoritative; people may edit the files.

The database records the state of each file when file and row were last equal. A side that differs
from the record has changed; if both have, both versions are stored. A row newer than its record
has to be written, so after a crash the same steps are repeated.
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

from commonplace.dialects.clawbrain import documents, locations
from commonplace.dialects.clawbrain.directory import Directory, Scan, Stat
from commonplace.dialects.clawbrain.documents import Document
from commonplace.dialects.clawbrain.locations import ARCHIVE, KINDS, InvalidLocation, Location
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
MAX_PASSES = 4
ABSENT = Stat(-1, 0, 0)

log = logging.getLogger(__name__)


def digest(data: bytes) -> bytes:
    """The hash by which contents are compared."""
    return hashlib.sha256(data).digest()


def document_of(memory: Memory) -> Document | None:
    """The file content of a memory; None for a memory without a file."""
    location = locations.of_memory(memory)
    return None if location is None else documents.of_memory(memory, location.id)


def path_of(memory: Memory | None) -> str:
    """The path of a memory's file; empty for a memory that is removed or has no file."""
    location = None if memory is None else locations.of_memory(memory)
    if memory is None or location is None:
        return ""
    if memory.state in LIVE_STATES:
        return location.path
    said = memory.attrs.get("archived_as")
    if isinstance(said, str) and said.startswith(ARCHIVE):
        with contextlib.suppress(InvalidLocation):
            locations.of_path(said)
            return said
    return ARCHIVE + location.path


def unused_archive_path(location: Location, used: Collection[str]) -> str:
    """The path of a newly archived file; with a timestamp if the plain path is in use."""
    path = ARCHIVE + location.path
    if path not in used:
        return path
    stem = path.removesuffix(".md")[:200].rstrip("-")
    return f"{stem}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}.md"


def archive_changes(memory: Memory, *, path: str, missing: bool = False) -> dict[str, Any]:
    """The changes that archive a memory; its id can be used again."""
    attrs = {**memory.attrs, "archived_as": path}
    if missing:
        attrs["missing"] = True
    return {"state": "archived", "ref": None, "attrs": attrs}


class Mirror:
    """Syncs one space with one directory, in the process that holds the directory's lock."""

    def __init__(self, memory: Commonplace, directory: Directory) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self.problems: dict[str, tuple[Stat, str]] = {}
        """Files that could not be imported: path to (state, reason)."""
        self.failures: dict[int, tuple[int, str]] = {}
        """Files that could not be written: memory number to (row version, reason)."""
        self.folders: tuple[str, ...] = ()
        self._memory = memory
        self._directory_id = ""
        self._written_head = 0
        self._files: dict[int, File] = {}
        self._paths: dict[str, int] = {}

    def start(self) -> None:
        """Load the records of the last process, so that unchanged files are not read again."""
        with self.lock:
            self.directory.ensure()
            self._directory_id = self.directory.id()
            left = self.directory.clean_up()
            self._files = {
                file.memory: file
                for file in engine_call(self._memory, file_copies.known, self._directory_id)
            }
            self._paths = {file.path: num for num, file in self._files.items() if file.path}
            self._written_head = 0
            self.problems.clear()
            for path in left:
                self._discard(path, None, b"")
            self.sync()

    def sync(self) -> None:
        """Import edited files, then write changed rows."""
        with self.lock:
            if self.directory.stored_id() != self._directory_id:
                self.start()  # the directory was replaced: missing files are not deletions
                return
            self.pull()
            self.push()

    def file_count(self) -> int:
        """How many files there are."""
        return len(self._paths)

    def used_paths(self) -> set[str]:
        """The paths of all recorded files."""
        return set(self._paths)

    # --- from files to rows ------------------------------------------------------------------

    def pull(self) -> None:
        """Import every file that differs from its record."""
        with self.lock:
            scan = self._scan()
            self.folders = scan.folders
            missing = {path: num for path, num in self._paths.items() if path not in scan.files}
            for path in [path for path in self.problems if path not in scan.files]:
                del self.problems[path]
            for path, stat in scan.files.items():
                num = self._paths.get(path)
                if num is not None and self._is_recorded(num, stat):
                    continue
                if path in self.problems and self.problems[path][0] == stat:
                    continue
                self._import(path, stat, missing)
            for num in missing.values():
                self._import_deletion(num)

    def import_file(self, path: str) -> None:
        """Import one file if it changed; if it is new or missing, import all."""
        with self.lock:
            num, stat = self._paths.get(path), self.directory.stat(path)
            if stat is None or num is None:
                if stat is not None or num is not None:
                    self.pull()
            elif not self._is_recorded(num, stat):
                self._import(path, stat, {})

    def _scan(self) -> Scan:
        """Scan the directory; twice if a file is missing, since it may be moving."""
        scan = self.directory.scan()
        if any(path not in scan.files for path in self._paths):
            return self.directory.scan()
        return scan

    def _is_recorded(self, num: int, stat: Stat) -> bool:
        file = self._files[num]
        return (file.size, file.mtime, file.inode) == stat

    def _import(self, path: str, stat: Stat, missing: dict[str, int]) -> None:
        try:
            location = locations.of_path(path)
            data, stat = self.directory.read(path)
            num = self._paths.get(path)
            if num is not None and self._files[num].digest == digest(data):
                self._save_record(replace(self._files[num], **stat._asdict()))
                self.problems.pop(path, None)
                return
            document = documents.parse(data)
            with reserved.enforced(by_others("clawbrain")):  # files obey the same rules as clients
                if num is not None:
                    self._import_edited(path, stat, data, document, num)
                else:
                    self._import_added(location, path, stat, data, document, missing)
            self.problems.pop(path, None)
        except FileNotFoundError:
            return  # deleted meanwhile: the next scan handles it
        except (CommonplaceError, OSError) as error:
            why = error.message if isinstance(error, CommonplaceError) else str(error.strerror)
            field = (
                f"{error.field}: " if isinstance(error, CommonplaceError) and error.field else ""
            )
            self.problems[path] = (stat, f"{field}{why}")
            log.warning("file not imported", extra={"file": path, "why": why})

    def _row(self, num: int) -> Memory | None:
        found = engine_call(self._memory, memories.numbered, [num])
        return found[0] if found else None

    def _import_edited(
        self, path: str, stat: Stat, data: bytes, document: Document, num: int
    ) -> None:
        """Import a recorded file whose content changed."""
        file, memory = self._files[num], self._row(num)
        if memory is None:
            self._delete_record(num)
            self._import_added(locations.of_path(path), path, stat, data, document, {})
            return
        own = document_of(memory)
        rendered = digest(own.render()) if own else b""
        updated = replace(file, **stat._asdict(), digest=digest(data))
        if rendered == file.rendered:
            memory = self._revise(memory, document)
            self._record_synced(memory, path, stat, data, document)
        elif own is not None and _same_content(own, document):
            self._record_synced(memory, path, stat, data, document)
        elif not self._is_own_write(memory, file, data):
            self._keep_both(memory, document)
            self._save_record(updated)
        else:
            self._save_record(updated)

    def _is_own_write(self, memory: Memory, file: File, data: bytes) -> bool:
        """Whether the file is a version of the row that was written, but not recorded."""
        return any(
            version.memory.version > file.seq and (own := document_of(version.memory)) is not None
            and own.render() == data
            for version in self._memory.history.versions(memory.id)
        )  # fmt: skip

    def _import_added(
        self,
        location: Location,
        path: str,
        stat: Stat,
        data: bytes,
        document: Document,
        missing: dict[str, int],
    ) -> None:
        """Import a file without a record: moved, added, or written just before a crash."""
        moved = self._moved_from(stat, data, document, missing)
        if moved is not None:
            old, mover = moved
            del missing[old]
            self._import_moved(mover, location, path, stat, data, document)
            return
        if path.startswith(ARCHIVE):
            return  # files that a person adds to the archive are not imported
        memory = self._live_memory(location)
        if memory is None:
            former = self._deleted_memory(location)
            if former is not None:
                self._release_id(location)
                attrs = {k: v for k, v in former.attrs.items() if k not in _ARCHIVE_ATTRS}
                memory = self._memory.revise(
                    former.id, state="active", ref=location.id, attrs=attrs, origin=EDITOR
                )
                memory = self._revise(memory, document)
            else:
                memory = self._create(location, document)
            self._record_synced(memory, path, stat, data, document)
            return
        own = document_of(memory)
        if own is not None and not _same_content(own, document):
            if not self._is_own_write(memory, _NO_RECORD, data):
                self._keep_both(memory, document)
            unwritten = File(memory.num, path, *stat, digest(data), b"", 0)
            self._save_record(unwritten)
            self._written_head = 0
        else:
            self._record_synced(memory, path, stat, data, document)

    def _moved_from(
        self, stat: Stat, data: bytes, document: Document, missing: dict[str, int]
    ) -> tuple[str, Memory] | None:
        """The path and memory of the missing file with the same content or id, if there is one.

        The inode only breaks ties: a new file often gets the inode of a deleted one.
        """
        for path, num in sorted(
            missing.items(), key=lambda at: self._files[at[1]].inode != stat.inode
        ):
            if self._files[num].digest == digest(data) or _id_of_path(path) == document.id:
                memory = self._row(num)
                if memory is not None:
                    return path, memory
        return None

    def _import_moved(
        self,
        memory: Memory,
        location: Location,
        path: str,
        stat: Stat,
        data: bytes,
        document: Document,
    ) -> None:
        attrs = {k: v for k, v in memory.attrs.items() if k not in _ARCHIVE_ATTRS}
        attrs |= {"category": location.category, "name": location.name}
        if path.startswith(ARCHIVE):
            changes = archive_changes(memory, path=path)
        else:
            other = self._live_memory(location)
            if other is not None and other.num != memory.num:
                self._keep_both(other, document)
                self._written_head = 0
                return
            self._release_id(location)
            changes = {
                "state": "active", "ref": location.id, "kind": location.kind,
                "title": location.name, "attrs": attrs,
            }  # fmt: skip
        with self._memory.unit("move file", EDITOR):
            memory = self._memory.revise(memory.id, origin=EDITOR, **changes)
            memory = self._revise(memory, document)
        self._record_synced(memory, path, stat, data, document)

    def _import_deletion(self, num: int) -> None:
        """Archive the memory whose file was deleted."""
        file, memory = self._files[num], self._row(num)
        if memory is None:
            self._delete_record(num)
            return
        own, location = document_of(memory), locations.of_memory(memory)
        unwritten = replace(file, path="", **ABSENT._asdict(), rendered=b"", seq=0)
        if (
            own is None or location is None
            or digest(own.render()) != file.rendered or path_of(memory) != file.path
        ):  # fmt: skip
            self._written_head = 0  # the row changed too, or is moving: write it again
        elif memory.state in LIVE_STATES:
            path = unused_archive_path(location, self.used_paths())
            changes = archive_changes(memory, path=path, missing=True)
            # Before the record, by which other processes see that the deletion is imported. The
            # next push writes the file to the archive, as after memory_delete.
            with self._memory.unit("delete file", EDITOR):
                self._memory.revise(memory.id, origin=EDITOR, **changes)
        else:  # deleted from the archive: it is not written again
            unwritten = replace(unwritten, rendered=file.rendered, seq=memory.version)
        self._save_record(unwritten)

    def _live_memory(self, location: Location) -> Memory | None:
        """The live memory at a location."""
        return lookup.find_live(self._memory, location.id)

    def _deleted_memory(self, location: Location) -> Memory | None:
        """The memory that was archived because its file at this location was deleted."""
        stem = f"{ARCHIVE}{location.path}".removesuffix(".md")
        if f"{stem}.md" not in self._paths:
            return None
        for path, num in self._paths.items():
            if path.startswith(stem):
                memory = self._row(num)
                if (
                    memory is not None
                    and memory.state not in LIVE_STATES
                    and memory.attrs.get("missing")
                    and locations.of_memory(memory) == location
                ):
                    return memory
        return None

    def _release_id(self, location: Location) -> None:
        """Remove the id from a memory that another dialect archived with its id."""
        with contextlib.suppress(NotFound):
            former = self._memory.get(location.id, count=False)
            if former.state not in LIVE_STATES:
                self._memory.revise(former.id, ref=None, origin=EDITOR)

    def _create(self, location: Location, document: Document) -> Memory:
        with self._memory.unit("add file", EDITOR):
            self._release_id(location)
            return self._memory.remember(
                document.content,
                kind=location.kind,
                title=location.name,
                tags=document.tags,
                pinned=document.pinned,
                created_at=documents.moment(document.created, "created"),
                ref=location.id,
                attrs=_attrs(location, document),
                origin=EDITOR,
            )

    def _revise(self, memory: Memory, document: Document) -> Memory:
        """Update the memory from its file; surrounding whitespace is not a change."""
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
        """Resolve a conflict: the row stays, and the file's version becomes a second memory."""
        location = locations.of_memory(memory)
        assert location is not None
        with self._memory.unit("keep both", EDITOR):
            for number in range(1, 1_000):
                name = f"{location.name[:180].rstrip('-')}-conflict" + (f"-{number}" * (number > 1))
                beside = locations.check(location.kind, location.category, name)
                try:
                    self._memory.get(beside.id, count=False)
                except NotFound:
                    break
            else:
                raise Conflict(
                    f"{location.id} has too many conflicts.", hint="Delete or merge some."
                )
            tags = tuple(dict.fromkeys((*document.tags, "conflict")))
            self._create(beside, replace(document, tags=tags))
            said = {"kept": location.id, "beside": beside.id}
            self._memory.events.record("conflict", memory.id, said, origin=EDITOR)
        log.warning("a file and its memory both changed; both versions are stored", extra=said)

    def _record_synced(
        self, memory: Memory, path: str, stat: Stat, data: bytes, document: Document
    ) -> None:
        """Record that row and file are equal; a file with another id or category is rewritten."""
        own = document_of(memory)
        assert own is not None
        fits = (own.id, own.type, own.category) == (document.id, document.type, document.category)
        former = self._files.get(memory.num)
        if former is not None and former.path not in ("", path):
            self._remove_unchanged(former)  # it was restored: remove the archived copy
        rendered, seq = (digest(own.render()), memory.version) if fits else (b"", 0)
        if not fits:
            self._written_head = 0
        self._save_record(File(memory.num, path, *stat, digest(data), rendered, seq))

    # --- from rows to files ------------------------------------------------------------------

    def push(self) -> None:
        """Write every outdated file; all are on disk when this returns."""
        with self.lock:
            for _ in range(MAX_PASSES):  # edits found while writing may need another pass
                if not self._push():
                    return

    def _push(self) -> bool:
        after = self._written_head
        behind = engine_call(
            self._memory, file_copies.behind, self._directory_id, KINDS, after=after
        )
        self._written_head = behind.head
        records: list[File] = []
        for memory in behind.memories:
            try:
                self._write(memory, records)
                self.failures.pop(memory.num, None)
            except OSError as error:
                self._written_head = min(self._written_head, after)  # retry it in the next push
                why = str(error.strerror or error)
                self.failures[memory.num] = (memory.version, f"{path_of(memory)}: {why}")
                log.warning(
                    "a file could not be written", extra={"file": path_of(memory), "why": why}
                )
        gone = [num for num in behind.gone if num in self._files]
        for num in gone:
            self._remove_file_of(num)
        if records or gone:
            engine_call(self._memory, file_copies.note, self._directory_id, records, gone=gone)
        return bool(records or gone) and not self.failures

    def _write(self, memory: Memory, records: list[File]) -> None:
        file = self._files.get(memory.num)
        own, path = document_of(memory), path_of(memory)
        if own is None:
            if file is not None and file.path:
                self._remove_file_of(memory.num)
            self._set_record(File(memory.num, "", *ABSENT, b"", b"", memory.version), records)
            return
        data = own.render()
        rendered = digest(data)
        absent = file is not None and not file.path and memory.state not in LIVE_STATES
        if file is not None and file.rendered == rendered and (file.path == path or absent):
            self._set_record(replace(file, seq=memory.version), records)
            return
        if file is not None and file.path and self._import_if_changed(file):
            # The file was edited meanwhile: import that first.
            newer = self._row(memory.num)
            if newer is not None and newer.version != memory.version:
                self._write(newer, records)
                return
            file = self._files.get(memory.num)
        path = self._writable_path(memory, path, data)
        stat, displaced = self.directory.swap(path, data)
        self._discard(displaced, self._files.get(self._paths.get(path, -1)), data)
        if file is not None and file.path != path and self._paths.get(file.path) == memory.num:
            self._remove_unchanged(file)
        self._set_record(File(memory.num, path, *stat, rendered, rendered, memory.version), records)

    def _import_if_changed(self, file: File) -> bool:
        stat = self.directory.stat(file.path)
        if stat is None or stat == (file.size, file.mtime, file.inode):
            return False
        self.problems.pop(file.path, None)
        self._import(file.path, stat, {})
        if file.path in self.problems:  # cannot be imported: keep it under another name
            self.directory.set_aside(file.path)
            del self.problems[file.path]
        return True

    def _is_unchanged(self, file: File) -> bool:
        return self.directory.stat(file.path) == (file.size, file.mtime, file.inode)

    def _writable_path(self, memory: Memory, path: str, data: bytes) -> str:
        """The path to write to; a foreign file at that path is renamed first."""
        if self._paths.get(path) == memory.num or not self.directory.exists(path):
            return path
        if path in self._paths and path_of(self._row(self._paths[path])) != path:
            return path  # its memory moves to another path in the same pass
        with contextlib.suppress(OSError):
            if self.directory.read(path)[0] == data:
                return path
        if path.startswith(ARCHIVE):
            location = locations.of_memory(memory)
            assert location is not None
            return unused_archive_path(location, {path, ARCHIVE + location.path})
        self.directory.set_aside(path)
        self.problems.pop(path, None)
        return path

    def _remove_file_of(self, num: int) -> None:
        """Remove the file of a removed memory, unless it was edited since."""
        file = self._files.pop(num)
        if file.path and self._paths.get(file.path) == num:
            del self._paths[file.path]
            self._remove_unchanged(file)

    def _remove_unchanged(self, file: File) -> None:
        """Remove a file, unless it was edited since."""
        if self._is_unchanged(file):
            self._discard(self.directory.move_away(file.path), file, b"")

    def _discard(self, displaced: str, file: File | None, data: bytes) -> None:
        """Delete a displaced file; an edit that is stored nowhere else is saved first."""
        if not displaced:
            return
        found = self.directory.stat(displaced)
        if file is None or found != (file.size, file.mtime, file.inode):
            try:
                content, _ = self.directory.read(displaced)
                mark = digest(content)
                known = any(mark == record.digest for record in self._files.values())
                if content != data and not known:
                    self._keep_displaced_edit(displaced, content)
            except OSError:
                self.directory.set_aside(displaced, "unknown.md")
                return
        self.directory.remove(displaced)

    def _keep_displaced_edit(self, displaced: str, content: bytes) -> None:
        """Store an edit that was saved at the moment in which its file was written."""
        try:
            document = documents.parse(content)
            memory = self._memory.get(document.id, count=False)
        except CommonplaceError:
            self.directory.set_aside(displaced, "unknown.md")
            return
        own = document_of(memory)
        known = own is not None and _same_content(own, document)
        if not known and not self._is_own_write(memory, _NO_RECORD, content):
            self._keep_both(memory, document)

    # --- records -----------------------------------------------------------------------------

    def _set_record(self, file: File, records: list[File]) -> None:
        former = self._files.get(file.memory)
        if former is not None and former.path and self._paths.get(former.path) == file.memory:
            del self._paths[former.path]
        self._files[file.memory] = file
        if file.path:
            self._paths[file.path] = file.memory
        records.append(file)

    def _save_record(self, file: File) -> None:
        records: list[File] = []
        self._set_record(file, records)
        engine_call(self._memory, file_copies.note, self._directory_id, records)

    def _delete_record(self, num: int) -> None:
        file = self._files.pop(num)
        if self._paths.get(file.path) == num:
            del self._paths[file.path]
        engine_call(self._memory, file_copies.note, self._directory_id, [], gone=[num])


_ARCHIVE_ATTRS = ("archived_as", "missing")
_NO_RECORD = File(0, "", *ABSENT, b"", b"", 0)


def _id_of_path(path: str) -> str | None:
    """The id of the memory at a path; None for an invalid path."""
    try:
        return locations.of_path(path).id
    except InvalidLocation:
        return None


def _attrs(location: Location, document: Document) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "category": location.category,
        "name": location.name,
        "created": document.created,
        "updated": document.updated,
        "credited": now(),
    }
    if document.more:
        attrs["frontmatter"] = list(document.more)
    return attrs


def _same_content(own: Document, other: Document) -> bool:
    """Whether row and file are equal; `updated` is not compared."""
    return (
        own.content.strip() == other.content
        and own.tags == other.tags
        and own.pinned == other.pinned
        and own.created == other.created
        and own.more == other.more
    )
