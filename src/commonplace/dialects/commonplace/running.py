"""What runs while the dialect is served: taking in what sessions left while no server ran."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from commonplace.client import files
from commonplace.dialects.contract import Setting
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Take in spooled events and killed sessions in the background; wait for that at the end."""
    taking = threading.Thread(target=_take_in, args=(setting,), name="commonplace-inbox")
    taking.start()
    try:
        yield
    finally:
        taking.join()


def _is_left(data: Path) -> bool:
    """Whether there are spooled events, or sessions whose transcripts are read."""
    return any((data / files.INBOX).glob("*.json")) or any((data / files.SESSIONS).glob("*"))


def _take_in(setting: Setting) -> None:
    if not _is_left(setting.library.path):
        return
    from commonplace.platform import hooks  # slow to load

    memory = Commonplace(library=setting.library, origin=Origin(client="commonplace-hook"))
    try:
        hooks.take_in(setting.library.path, memory.at)
        hooks.catch_up(setting.library.path, memory.at)
    except CommonplaceError as error:
        log.warning("spooled hook events are left", extra={"why": error.message})
    except Exception:
        log.exception("spooled hook events are left")
