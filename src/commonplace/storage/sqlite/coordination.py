"""Locks and work requests, as files, for the processes that share one data directory."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.storage.directories import make_private, replace_file
from commonplace.storage.locking import file_lock, open_locked
from commonplace.storage.ports import Store, WorkRequest

WORK = "workflows"
"""The name of the lock for durable work, and of its folder."""


class FileLock:
    """`ports.ProcessLock` as a file lock, which is held until its release or the process's end."""

    is_held = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def guard_writes(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the lock cannot be lost while this process runs."""
        return contextlib.nullcontext()

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class FileCoordination:
    """`ports.Coordination` for a data directory.

    A work request is a small file in `workflows/due`, written before its call commits. The folder
    `workflows` is created with the first request.
    """

    def __init__(self, data: Path) -> None:
        self._folder = data / WORK
        self._due = self._folder / "due"
        self._dbos = self._folder / "dbos.sqlite"
        self._turns = data / "turns"

    def _file(self, name: str) -> Path:
        return self._folder / "lock" if name == WORK else self._turns / f"{name}.lock"

    def try_lock(self, name: str) -> FileLock | None:
        """Take a lock; return None if another process or call holds it."""
        file = self._file(name)
        make_private(file.parent)
        descriptor = open_locked(file)
        return None if descriptor is None else FileLock(descriptor)

    def lock(self, name: str, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Hold a lock during the block; raise Busy if it is not free in time."""
        return file_lock(self._file(name), seconds)

    @property
    def work_expected(self) -> bool:
        """Whether any work was ever requested in this directory."""
        return self._folder.exists()

    def expect_work(self) -> None:
        """Create the folder `workflows`, which makes processes look for requests."""
        make_private(self._folder)

    def request(self, store: Store, identity: str, turn: int) -> None:
        """Write the file of a request."""
        make_private(self._due)
        asked = {"space": store.space, "id": identity, "turn": turn}
        with replace_file(self._due / f"{identity}.{turn}.json") as stream:
            stream.write(json.dumps(asked).encode())

    def requests(self) -> list[WorkRequest]:
        """Return all requests, oldest first, and remove files that are not valid requests."""
        return sorted(self._read_requests(), key=lambda request: -request.age)

    def _read_requests(self) -> Iterator[WorkRequest]:
        for file in sorted(self._due.glob("*.json")):
            try:
                asked = json.loads(file.read_text())
                age = time.time() - file.stat().st_mtime
                yield WorkRequest(asked["space"], asked["id"], asked["turn"], age)
            except (OSError, ValueError, KeyError, TypeError):
                file.unlink(missing_ok=True)

    def forget_request(self, request: WorkRequest) -> None:
        """Remove the file of a request."""
        (self._due / f"{request.identity}.{request.turn}.json").unlink(missing_ok=True)

    def dbos_settings(self) -> dict[str, Any]:
        """Return settings that give DBOS its own file."""
        return {"system_database_url": f"sqlite:///{self._dbos}"}

    def replace_damaged_dbos(self) -> bool:
        """Rename the file of DBOS if it is damaged; return whether it was damaged."""
        from commonplace.storage.sqlite import foreign  # imported here because it is rarely used

        if foreign.is_intact_database(self._dbos):
            return False
        for end in ("", "-wal", "-shm"):
            each = self._dbos.with_name(self._dbos.name + end)
            if each.exists():
                each.replace(each.with_name(f"{each.name}.unreadable-{time.time_ns()}"))
        return True
