"""Background work of the dialect: the import at the start, and the embedding port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform.running import background_work as platform

DEFAULT_SPACE = "default"
EMBEDDING_PORT = "3849"


@contextlib.contextmanager
def background_work(setting: Setting) -> Iterator[None]:
    """Apply MAMA_DB_PATH and MAMA_EMBEDDING_PORT, and serve the platform."""
    _import(setting)
    with platform(setting):  # in an HTTP server, this also writes the log to a file
        usual = EMBEDDING_PORT if setting.space is None else ""  # a stdio server opens no port
        with _embedding_port(setting, usual):
            yield


@contextlib.contextmanager
def stdio_connection(setting: Setting) -> Iterator[None]:
    """Apply MAMA_DB_PATH and MAMA_EMBEDDING_PORT of a stdio client."""
    _import(setting)
    with _embedding_port(setting, ""):
        yield


def _import(setting: Setting) -> None:
    path = setting.environ.get("MAMA_DB_PATH", "").strip()
    if path:
        from commonplace.dialects.mama.importing import ORIGIN, import_at_start
        from commonplace.engine.commonplace import Commonplace

        space = setting.space or DEFAULT_SPACE
        import_at_start(Commonplace(space=space, origin=ORIGIN, library=setting.library), path)


def _embedding_port(setting: Setting, usual: str) -> contextlib.AbstractContextManager[object]:
    port = setting.environ.get("MAMA_EMBEDDING_PORT", usual).strip()
    if not port:
        return contextlib.nullcontext()
    from commonplace.dialects.mama.embedding_port import serving

    return serving(port, setting.library.embedder)
