"""Two-way sync of Markdown files and rows. Rows are authoritative; people may edit the files.

The database records the state of each file at the time when file and row were last equal. A file or
row that differs from the record has changed; if both have changed, both versions are stored. A row
that is newer than its record must be written, so a crash only causes the same steps to be repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.clawbrain import documents, locations, records
from commonplace.dialects.clawbrain.directory import Directory, Scan, Stat
from commonplace.dialects.clawbrain.documents import Document
from commonplace.dialects.clawbrain.locations import ARCHIVE, KINDS, InvalidLocation, Location
from commonplace.dialects.reserved import reservations_of_others
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import memories, write_policy
from commonplace.engine.maintenance import file_copies
from commonplace.engine.maintenance.file_copies import FileState
from commonplace.engine.model import LIVE_STATES, TRUSTS, Memory, Origin
from commonplace.errors import CommonplaceError, Conflict, NotFound

EDITOR_ORIGIN = Origin(client="editor", tool="file")
MAX_PASSES = 4
ABSENT_STAT = Stat(-1, 0, 0)

IMPORT_ATTEMPTS = 5
"""How often a file is imported if another server changes its row in between."""

log = logging.getLogger(__name__)


def digest(data: bytes) -> bytes:
    """Return the hash with which contents are compared."""
    return hashlib.sha256(data).digest()


def recorded_stat(file: FileState) -> Stat:
    """Return the recorded metadata of a file."""
    return Stat(file.size, file.mtime, file.inode)


def path_of(memory: Memory | None) -> str:
    """Return the path of a memory's file, or an empty string if the memory has no file."""
    location = None if memory is None else locations.of_memory(memory)
    if memory is None or location is None:
        return ""
    if memory.state in LIVE_STATES:
        return location.path
    path = memory.attrs.get("archived_as")
    if isinstance(path, str) and path.startswith(ARCHIVE):
        with contextlib.suppress(InvalidLocation):
            locations.of_path(path)
            return path
    return ARCHIVE + location.path


@dataclass(frozen=True, slots=True)
class _EditedFile:
    """A file that is being imported."""

    path: str
    location: Location
    stat: Stat
    digest: bytes
    document: Document


class Mirror:
    """Syncs one space with one directory, in the process that holds the directory's lock."""

    def __init__(self, memory: Commonplace, directory: Directory) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self.problems: dict[str, tuple[Stat, str]] = {}
        """Files that could not be imported: (metadata, reason) by path."""
        self.failures: dict[int, tuple[int, str]] = {}
        """Files that could not be written: (row version, reason) by memory number."""
        self.folders: tuple[str, ...] = ()
        self._memory = memory
        self._directory_id = ""
        self._written_head = 0
        self._files: dict[int, FileState] = {}
        self._paths: dict[str, int] = {}

    def start(self) -> None:
        """Load the records of the last process, so that unchanged files are not read again."""
        with self.lock:
            self.directory.ensure()
            self._directory_id = self.directory.id()
            left = self.directory.clean_up()
            self._files = {
                file.memory: file
                for file in engine_call(
                    self._memory, file_copies.recorded_files, self._directory_id
                )
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
                self.start()  # the directory was replaced, so missing files do not mean deletions
                return
            self.pull()
            self.push()

    def file_count(self) -> int:
        """Return the number of recorded files."""
        return len(self._paths)

    def used_paths(self) -> set[str]:
        """Return the paths of all recorded files."""
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
            changed = []
            for path, stat in scan.files.items():
                num = self._paths.get(path)
                if num is not None and recorded_stat(self._files[num]) == stat:
                    continue
                if path in self.problems and self.problems[path][0] == stat:
                    continue
                changed.append((path, stat))
            for path, stat in sorted(changed):  # a folder lists its files in any order
                self._import(path, stat, missing)
            for num in missing.values():
                self._import_deletion(num)

    def import_file(self, path: str) -> None:
        """Import one file if it has changed; if it is new or missing, import all files."""
        with self.lock:
            num, stat = self._paths.get(path), self.directory.stat(path)
            if stat is None or num is None:
                if stat is not None or num is not None:
                    self.pull()
            elif recorded_stat(self._files[num]) != stat:
                self._import(path, stat, {})

    def _scan(self) -> Scan:
        """Scan the directory, and again if a file is missing, because a move may be in progress."""
        scan = self.directory.scan()
        if any(path not in scan.files for path in self._paths):
            return self.directory.scan()
        return scan

    def _import(
        self, path: str, stat: Stat, missing: dict[str, int], attempts: int = IMPORT_ATTEMPTS
    ) -> None:
        try:
            location = locations.of_path(path)
            data, stat = self.directory.read(path)
            num = self._paths.get(path)
            if num is not None and self._files[num].digest == digest(data):
                self._save_record(replace(self._files[num], **stat._asdict()))
                self.problems.pop(path, None)
                return
            edited = _EditedFile(path, location, stat, digest(data), documents.parse(data))
            # A file must not use reserved kinds and tags of other dialects, as a client must not.
            with write_policy.apply_policy(reservations=reservations_of_others("clawbrain")):
                if num is not None:
                    self._import_edited(edited, num)
                else:
                    self._import_added(edited, missing)
            self.problems.pop(path, None)
        except FileNotFoundError:
            return  # the file was deleted during the scan; the next scan handles it
        except (CommonplaceError, OSError) as error:
            if isinstance(error, Conflict) and attempts > 1:  # another server changed the row
                self._import(path, stat, missing, attempts - 1)
                return
            why = str(error.strerror) if isinstance(error, OSError) else error.message
            field = "" if isinstance(error, OSError) or not error.field else f"{error.field}: "
            self.problems[path] = (stat, f"{field}{why}")
            log.warning("file not imported", extra={"file": path, "why": why})

    def _row_by_number(self, num: int) -> Memory | None:
        found = engine_call(self._memory, memories.memories_by_number, [num])
        return found[0] if found else None

    def _import_edited(self, edited: _EditedFile, num: int) -> None:
        """Import a recorded file whose content changed."""
        file, memory = self._files[num], self._row_by_number(num)
        own = documents.of_memory(memory) if memory is not None else None
        if memory is None or own is None:  # removed, or of another kind now
            self._delete_record(num)
            self._import_added(edited, {})
        elif digest(own.render()) == file.rendered:
            self._record_synced(self._revise(memory, edited.document), edited)
        elif _same_content(own, edited.document):
            self._record_synced(memory, edited)
        else:
            if not self._is_own_write(memory, edited.digest, after=file.seq):
                self._keep_both(memory, edited.document)
            self._save_record(replace(file, **edited.stat._asdict(), digest=edited.digest))

    def _is_own_write(self, memory: Memory, file_digest: bytes, after: int = 0) -> bool:
        """Return whether a file equals a version of the row that is newer than `after`."""
        return any(
            version.memory.version > after
            and (own := documents.of_memory(version.memory)) is not None
            and digest(own.render()) == file_digest
            for version in self._memory.history.versions(memory.id)
        )

    def _import_added(self, edited: _EditedFile, missing: dict[str, int]) -> None:
        """Import a file without a record: moved, added, or written just before a crash."""
        moved = self._find_moved(edited, missing)
        if moved is not None:
            old, mover = moved
            del missing[old]
            self._import_moved(mover, edited)
            return
        if edited.path.startswith(ARCHIVE):
            return  # files that a person adds to the archive are not imported
        memory = records.find_at(self._memory, edited.location)
        if memory is None:
            former = self._deleted_memory(edited.location)
            if former is not None:
                self._import_moved(former, edited)
            else:
                self._record_synced(self._create(edited.location, edited.document), edited)
            return
        own = documents.of_memory(memory)
        assert own is not None
        if not _same_content(own, edited.document):
            if not self._is_own_write(memory, edited.digest):
                self._keep_both(memory, edited.document)
            self._save_record(
                FileState(memory.num, edited.path, *edited.stat, edited.digest, b"", 0)
            )
            self._written_head = 0
        else:
            self._record_synced(memory, edited)

    def _find_moved(
        self, edited: _EditedFile, missing: dict[str, int]
    ) -> tuple[str, Memory] | None:
        """Return the path and memory of a missing file with the same content or id, or None.

        The inode only breaks ties, because a new file often gets the inode of a deleted one.
        """
        for path, num in sorted(
            missing.items(), key=lambda at: self._files[at[1]].inode != edited.stat.inode
        ):
            same = self._files[num].digest == edited.digest
            if same or _id_of_path(path) == edited.document.id:
                memory = self._row_by_number(num)
                if memory is not None:
                    return path, memory
        return None

    def _import_moved(self, memory: Memory, edited: _EditedFile) -> None:
        """Move the memory to the location of its file, or into the archive."""
        location = edited.location
        if edited.path.startswith(ARCHIVE):
            changes = records.archive_changes(memory, path=edited.path)
        else:
            other = records.find_at(self._memory, location)
            if other is not None and other.num != memory.num:
                self._keep_both(other, edited.document)
                self._written_head = 0
                return
            records.release_id(self._memory, location, EDITOR_ORIGIN)
            attrs = {k: v for k, v in memory.attrs.items() if k not in _ARCHIVE_ATTRS}
            attrs |= {"category": location.category, "name": location.name}
            changes = {
                "state": "active", "ref": location.id, "kind": location.kind,
                "title": location.name, "attrs": attrs,
            }  # fmt: skip
        with self._memory.unit("move file", EDITOR_ORIGIN):
            memory = self._memory.revise(
                memory.id, origin=EDITOR_ORIGIN, expected_version=memory.version, **changes
            )
            memory = self._revise(memory, edited.document)
        self._record_synced(memory, edited)

    def _import_deletion(self, num: int) -> None:
        """Archive the memory whose file was deleted."""
        file, memory = self._files[num], self._row_by_number(num)
        if memory is None:
            self._delete_record(num)
            return
        own = documents.of_memory(memory)
        unwritten = replace(file, path="", **ABSENT_STAT._asdict(), rendered=b"", seq=0)
        changed = own is None or digest(own.render()) != file.rendered
        if changed or path_of(memory) != file.path:
            self._written_head = 0  # the row has changed or moved, so the file is written again
        elif memory.state in LIVE_STATES:
            # Archive before saving the record, by which other processes see the import. The
            # next push writes the file to the archive, as after memory_delete.
            with self._memory.unit("delete file", EDITOR_ORIGIN):
                records.archive(
                    self._memory, memory, self.used_paths(), missing=True, origin=EDITOR_ORIGIN
                )
        else:  # deleted from the archive, so the file is not written again
            unwritten = replace(unwritten, rendered=file.rendered, seq=memory.version)
        self._save_record(unwritten)

    def _deleted_memory(self, location: Location) -> Memory | None:
        """Return the memory that was archived because its file at this location was deleted."""
        stem = f"{ARCHIVE}{location.path}".removesuffix(".md")
        if f"{stem}.md" not in self._paths:
            return None
        for path, num in self._paths.items():
            if path.startswith(stem):
                memory = self._row_by_number(num)
                if (
                    memory is not None
                    and memory.state not in LIVE_STATES
                    and memory.attrs.get("missing")
                    and locations.of_memory(memory) == location
                ):
                    return memory
        return None

    def _create(self, location: Location, document: Document) -> Memory:
        more: dict[str, Any] = {"created": document.created, "updated": document.updated}
        if document.more:
            more["frontmatter"] = list(document.more)
        with self._memory.unit("add file", EDITOR_ORIGIN):
            return records.store(
                self._memory, location, document.content, tags=document.tags, trust=TRUSTS[0],
                more=more, pinned=document.pinned, origin=EDITOR_ORIGIN,
                created_at=documents.parse_time(document.created, "created"),
            )  # fmt: skip

    def _revise(self, memory: Memory, document: Document) -> Memory:
        """Update the memory from its file; ignore differences in surrounding whitespace."""
        attrs = dict(memory.attrs)
        if document.created != documents.created_stamp(memory):
            attrs["created"] = document.created
            attrs.setdefault("updated", documents.updated_stamp(memory))
        if document.updated != documents.updated_stamp(memory):
            attrs["updated"] = document.updated
        elif document.content != memory.text.strip():
            attrs["updated"] = documents.stamp(datetime.now(UTC))
        if list(document.more) != attrs.get("frontmatter", []):
            attrs["frontmatter"] = list(document.more)
        changes: dict[str, Any] = {
            "tags": document.tags, "pinned": document.pinned, "attrs": attrs
        }  # fmt: skip
        if document.content != memory.text.strip():
            changes["text"] = document.content
        return self._memory.revise(
            memory.id, origin=EDITOR_ORIGIN, expected_version=memory.version, **changes
        )

    def _keep_both(self, memory: Memory, document: Document) -> None:
        """Resolve a conflict: the row stays, and the file's version becomes a second memory."""
        location = locations.of_memory(memory)
        assert location is not None
        with self._memory.unit("keep both", EDITOR_ORIGIN):
            for number in range(1, 1_000):
                name = f"{location.name[:180].rstrip('-')}-conflict" + (f"-{number}" * (number > 1))
                second = locations.check(location.kind, location.category, name)
                try:
                    self._memory.get(second.id, count=False)
                except NotFound:
                    break
            else:
                raise Conflict(
                    f"{location.id} has too many conflicting versions.",
                    hint="Delete or merge some of them.",
                )
            tags = tuple(dict.fromkeys((*document.tags, "conflict")))
            self._create(second, replace(document, tags=tags))
            ids = {"kept": location.id, "beside": second.id}
            self._memory.events.record("conflict", memory.id, ids, origin=EDITOR_ORIGIN)
        log.warning("a file and its memory both changed; both versions are stored", extra=ids)

    def _record_synced(self, memory: Memory, edited: _EditedFile) -> None:
        """Record that row and file are equal; rewrite a file with another id or category."""
        own, document = documents.of_memory(memory), edited.document
        assert own is not None
        fits = (own.id, own.type, own.category) == (document.id, document.type, document.category)
        former = self._files.get(memory.num)
        if former is not None and former.path not in ("", edited.path):
            # The memory was restored, so the archived copy is removed.
            self._remove_unchanged(former)
        rendered, seq = (digest(own.render()), memory.version) if fits else (b"", 0)
        if not fits:
            self._written_head = 0
        self._save_record(
            FileState(memory.num, edited.path, *edited.stat, edited.digest, rendered, seq)
        )

    # --- from rows to files ------------------------------------------------------------------

    def push(self) -> None:
        """Write every outdated file, and sync all of them to the disk."""
        with self.lock:
            for _ in range(MAX_PASSES):  # edits found while writing may need another pass
                if not self._push():
                    return

    def _push(self) -> bool:
        after = self._written_head
        behind = engine_call(
            self._memory, file_copies.outdated_copies, self._directory_id, KINDS, after=after
        )
        self._written_head = behind.head
        changed: list[FileState] = []
        for memory in behind.memories:
            try:
                self._write(memory, changed)
                self.failures.pop(memory.num, None)
            except OSError as error:
                # The next push retries the write.
                self._written_head = min(self._written_head, after)
                why = str(error.strerror or error)
                self.failures[memory.num] = (memory.version, f"{path_of(memory)}: {why}")
                log.warning(
                    "a file could not be written", extra={"file": path_of(memory), "why": why}
                )
        gone = [num for num in behind.gone if num in self._files]
        for num in gone:
            self._remove_file_of(num)
        if changed or gone:
            engine_call(
                self._memory, file_copies.record_files, self._directory_id, changed, gone=gone
            )
        return bool(changed or gone) and not self.failures

    def _write(self, memory: Memory, changed: list[FileState]) -> None:
        file = self._files.get(memory.num)
        own, path = documents.of_memory(memory), path_of(memory)
        if own is None:
            if file is not None and file.path:
                self._remove_file_of(memory.num)
            self._set_record(
                FileState(memory.num, "", *ABSENT_STAT, b"", b"", memory.version), changed
            )
            return
        data = own.render()
        rendered = digest(data)
        absent = file is not None and not file.path and memory.state not in LIVE_STATES
        if file is not None and file.rendered == rendered and (file.path == path or absent):
            self._set_record(replace(file, seq=memory.version), changed)
            return
        if file is not None and file.path and self._import_if_changed(file):
            # The file was edited after its record, so the edit is imported first.
            newer = self._row_by_number(memory.num)
            if newer is not None and newer.version != memory.version:
                self._write(newer, changed)
                return
            file = self._files.get(memory.num)
        path = self._writable_path(memory, path, data)
        stat, displaced = self.directory.swap(path, data)
        self._discard(displaced, self._files.get(self._paths.get(path, -1)), data)
        if file is not None and file.path != path and self._paths.get(file.path) == memory.num:
            self._remove_unchanged(file)
        self._set_record(
            FileState(memory.num, path, *stat, rendered, rendered, memory.version), changed
        )

    def _import_if_changed(self, file: FileState) -> bool:
        stat = self.directory.stat(file.path)
        if stat is None or stat == recorded_stat(file):
            return False
        self.problems.pop(file.path, None)
        self._import(file.path, stat, {})
        if file.path in self.problems:  # the file cannot be imported, so it is renamed
            self.directory.set_aside(file.path)
            del self.problems[file.path]
        return True

    def _writable_path(self, memory: Memory, path: str, data: bytes) -> str:
        """Return the path to write to.

        Another file at this path is renamed; in the archive another path is used instead.
        """
        if self._paths.get(path) == memory.num or not self.directory.exists(path):
            return path
        if path in self._paths and path_of(self._row_by_number(self._paths[path])) != path:
            return path  # the memory of this file moves to another path in the same pass
        with contextlib.suppress(OSError):
            if self.directory.read(path)[0] == data:
                return path
        if path.startswith(ARCHIVE):
            location = locations.of_memory(memory)
            assert location is not None
            return records.unused_archive_path(location, {path, ARCHIVE + location.path})
        self.directory.set_aside(path)
        self.problems.pop(path, None)
        return path

    def _remove_file_of(self, num: int) -> None:
        """Remove the file of a removed memory, unless the file was edited later."""
        file = self._files.pop(num)
        if file.path and self._paths.get(file.path) == num:
            del self._paths[file.path]
            self._remove_unchanged(file)

    def _remove_unchanged(self, file: FileState) -> None:
        """Remove a file, unless it was edited after its record."""
        if self.directory.stat(file.path) == recorded_stat(file):
            self._discard(self.directory.move_away(file.path), file, b"")

    def _discard(self, displaced: str, file: FileState | None, data: bytes) -> None:
        """Delete a replaced file; save an edit first that is stored nowhere else."""
        if not displaced:
            return
        found = self.directory.stat(displaced)
        if file is None or found != recorded_stat(file):
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
        """Store an edit that an editor saved while the file was being replaced."""
        try:
            document = documents.parse(content)
            memory = self._memory.get(document.id, count=False)
        except CommonplaceError:
            self.directory.set_aside(displaced, "unknown.md")
            return
        own = documents.of_memory(memory)
        if own is None:  # of another kind now
            self.directory.set_aside(displaced, "unknown.md")
        elif not _same_content(own, document) and not self._is_own_write(memory, digest(content)):
            self._keep_both(memory, document)

    # --- records -----------------------------------------------------------------------------

    def _set_record(self, file: FileState, changed: list[FileState]) -> None:
        former = self._files.get(file.memory)
        if former is not None and former.path and self._paths.get(former.path) == file.memory:
            del self._paths[former.path]
        self._files[file.memory] = file
        if file.path:
            self._paths[file.path] = file.memory
        changed.append(file)

    def _save_record(self, file: FileState) -> None:
        changed: list[FileState] = []
        self._set_record(file, changed)
        engine_call(self._memory, file_copies.record_files, self._directory_id, changed)

    def _delete_record(self, num: int) -> None:
        file = self._files.pop(num)
        if self._paths.get(file.path) == num:
            del self._paths[file.path]
        engine_call(self._memory, file_copies.record_files, self._directory_id, [], gone=[num])


_ARCHIVE_ATTRS = ("archived_as", "missing")


def _id_of_path(path: str) -> str | None:
    """Return the id of the memory at a path, or None for an invalid path."""
    try:
        return locations.of_path(path).id
    except InvalidLocation:
        return None


def _same_content(own: Document, other: Document) -> bool:
    """Return whether row and file are equal, except for `updated`."""
    return (
        own.content.strip() == other.content
        and own.tags == other.tags
        and own.pinned == other.pinned
        and own.created == other.created
        and own.more == other.more
    )
