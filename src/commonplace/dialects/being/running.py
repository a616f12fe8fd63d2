"""Run patrols, one at a time for each being, with the language model of the owner."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.dialects.being import history, notes, sight
from commonplace.dialects.being.sight import being_of
from commonplace.dialects.contract import Call, Setting
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError
from commonplace.storage.locking import Busy

if TYPE_CHECKING:
    from commonplace.dialects.being.patrol import Report

KEY_HEADER = "x-llm-api-key"
CALL_SECONDS = 25.0
"""The seconds for which a patrol may use a model while a caller waits."""
BACKGROUND_SECONDS = 300.0
BUSY_SECONDS = 10.0
STOP_SECONDS = 20.0
MAX_PATROL_THREADS = 4  # maximum number of background patrols at the same time

log = logging.getLogger(__name__)


class Runtime:
    """Runs the patrols of one library."""

    def __init__(self, library: Library, setting: Setting | None = None) -> None:
        self._locks = library.coordination
        self._setting = setting
        self._lock = threading.Lock()
        self._due: dict[tuple[str, str], Call] = {}
        """Patrols that wait or run, by (space, being)."""
        self._queue: deque[tuple[str, str]] = deque()
        self._threads: set[threading.Thread] = set()
        self._stopping = False

    @property
    def environ(self) -> Mapping[str, str]:
        """The operator's settings."""
        return self._setting.environ if self._setting else os.environ

    def keys(self) -> Any:
        """Return the store of the owners' keys, or None if there is no vault to encrypt them."""
        from commonplace.platform.llm_keys import LlmKeys

        if self._setting is None or self._setting.vault is None:
            return None
        return LlmKeys(self._setting.system, self._setting.vault())

    @property
    def setting(self) -> Setting | None:
        """The setting with which the dialect was started; None outside a server."""
        return self._setting

    def thinking(self, call: Call, seconds: float) -> Any:
        """Return a model with the key of the request or of the owner, or None without a key."""
        from commonplace.dialects.being.thinking import Thinking

        access = self._access(call)
        return None if access is None else Thinking(access, seconds)

    def model(self, call: Call) -> Any:
        """Return the model of the request or the owner, or else the operator's model."""
        from commonplace.platform import llm

        return self._access(call) or llm.operator_access(self.environ)

    def _access(self, call: Call) -> Any:
        from commonplace.platform import llm

        key = call.request_info.headers.get(KEY_HEADER, "").strip()
        if key:
            provider = llm.provider_of(key, self.environ)
            access: llm.Access | None = llm.Access(key, provider)
        else:
            keys = self.keys()
            access = keys.get(call.memory.name) if keys is not None else None
        return None if access is None else llm.with_operator_settings(access, self.environ)

    def patrol(
        self,
        call: Call,
        being: str,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        marker_id: str | None = None,
        seconds: float = CALL_SECONDS,
        wait: float = BUSY_SECONDS,
        requested: bool = True,
    ) -> Report:
        """Run a patrol; the report has the status `busy` if another patrol holds the lock.

        Without `requested`, the patrol runs only if enough scenes still wait, because another
        server may have processed them.
        """
        from commonplace.dialects.being import patrol  # imports numpy, which is slow

        memory = call.memory.at(call.memory.name, call.origin)
        try:
            with self._locks.lock(f"patrol-{memory.name}-{being}", wait):
                if not requested and not notes.has_enough_scenes(memory, being):
                    return patrol.Report(self._last_marker(memory, being))
                thinking = self.thinking(call, seconds)
                return patrol.run(
                    memory, being, thinking=thinking, messages=messages, marker_id=marker_id
                )
        except Busy:
            return patrol.Report(self._last_marker(memory, being), status="busy")

    @staticmethod
    def _last_marker(memory: Commonplace, being: str) -> str:
        return str(sight.get_being(memory, being).attrs.get("patrol_marker") or "")

    def patrol_soon(self, call: Call, being: str) -> None:
        """Start a patrol in the background, unless this being's patrol already waits or runs."""
        name = (call.memory.name, being)
        with self._lock:
            if self._stopping or name in self._due:
                return
            self._due[name] = call
            self._queue.append(name)
            if len(self._threads) >= MAX_PATROL_THREADS:
                return
            thread = threading.Thread(
                target=self._run_queue, name="commonplace-patrol", daemon=True
            )
            self._threads.add(thread)
        thread.start()

    def _run_queue(self) -> None:
        """Run queued patrols until the queue is empty."""
        while True:
            with self._lock:
                if self._stopping or not self._queue:
                    self._threads.discard(threading.current_thread())
                    return
                name = self._queue.popleft()
                call = self._due[name]
            report: Report | None = None
            try:
                report = self.patrol(
                    call,
                    name[1],
                    seconds=BACKGROUND_SECONDS,
                    wait=BACKGROUND_SECONDS,
                    requested=False,
                )
            except Exception:
                log.exception("a patrol failed")
            with self._lock:
                if report is not None and self._needs_another_patrol(call, name[1], report):
                    self._queue.append(name)
                else:
                    del self._due[name]

    def _needs_another_patrol(self, call: Call, being: str, report: Report) -> bool:
        """Return whether enough scenes were stored during a patrol to start another one.

        After a failed patrol the scenes wait for the next request.
        """
        try:
            return "gather" not in report.failed and notes.has_enough_scenes(call.memory, being)
        except CommonplaceError:
            log.exception("a patrol failed")
            return False

    def close(self) -> None:
        """Start no more patrols, and wait for running ones."""
        self._stopping = True
        until = time.monotonic() + STOP_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))

    def is_idle(self) -> bool:
        """Return whether no patrol waits or runs in the background."""
        return not self._due


_runtimes: weakref.WeakKeyDictionary[Library, Runtime] = weakref.WeakKeyDictionary()
_runtimes_lock = threading.Lock()


def runtime_of(library: Library) -> Runtime:
    """Return the runtime of a library; create it if no server has done so."""
    with _runtimes_lock:
        found = _runtimes.get(library)
        if found is None:
            found = _runtimes[library] = Runtime(library)
        return found


@contextlib.contextmanager
def background_work(setting: Setting) -> Iterator[None]:
    """Run patrols while the dialect is served."""
    runtime = Runtime(setting.library, setting)
    with _runtimes_lock:
        _runtimes[setting.library] = runtime
    try:
        yield
    finally:
        runtime.close()
        with _runtimes_lock:
            _runtimes.pop(setting.library, None)


def trigger_patrol(
    call: Call, *, messages: Sequence[Mapping[str, Any]], marker_id: str | None = None
) -> dict[str, Any]:
    """Run a patrol and wait for it."""
    being = being_of(call)
    history.check_messages(messages)  # a patrol only logs what it cannot store
    report = runtime_of(call.memory.library).patrol(
        call, being, messages=messages, marker_id=marker_id
    )
    if len(report.failed) > len(_ESSENTIAL_STEPS) and set(_ESSENTIAL_STEPS) <= set(report.failed):
        raise CommonplaceError("Patrol failed", hint="See the server's log for the reason.")
    return report.as_dict()


_ESSENTIAL_STEPS = ("gather", "count", "fade")
