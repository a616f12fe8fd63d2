"""Import, in the background, the events that hooks spooled while no server was running."""

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
def background_work(setting: Setting) -> Iterator[None]:
    """Import spooled events and transcripts of killed sessions in a thread; join it at the end."""
    importer = threading.Thread(target=_import_spooled, args=(setting,), name="commonplace-inbox")
    importer.start()
    try:
        yield
    finally:
        importer.join()


def _has_spooled(data: Path) -> bool:
    """Return whether there are spooled events, or sessions whose transcripts are read."""
    return any((data / files.INBOX_FOLDER).glob("*.json")) or any(
        (data / files.SESSIONS_FOLDER).glob("*")
    )


def _import_spooled(setting: Setting) -> None:
    if not _has_spooled(setting.library.path):
        return
    from commonplace.platform import hooks  # slow to load

    memory = Commonplace(library=setting.library, origin=Origin(client="commonplace-hook"))
    try:
        hooks.handle_spooled_events(setting.library.path, memory.at)
        hooks.capture_known_transcripts(setting.library.path, memory.at)
    except CommonplaceError as error:
        log.warning("spooled hook events are left", extra={"why": error.message})
    except Exception:
        log.exception("spooled hook events are left")
