"""A call that another writer overtakes: what the call read first is no longer so when it writes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.platform.exclusive import exclusive


@contextlib.contextmanager
def overtaken(memory: Commonplace, call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Start the call, and run the block when the call waits for the lock that the block holds.

    A call that reads before it has the lock has read what is there before the block. The call goes
    on when the block is left; its result is in the future then.
    """
    with ThreadPoolExecutor(1) as threads:
        with exclusive(memory, "another writer"), lease(memory) as space:
            waiting = threads.submit(call)
            until = time.monotonic() + 20
            while not space.store._writer._waiting:  # type: ignore[attr-defined]
                assert not waiting.done(), waiting.result()
                assert time.monotonic() < until, "the call did not come to its write"
                time.sleep(0.001)
            yield waiting
        waiting.exception(20)
