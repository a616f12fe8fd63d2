"""What runs while the dialect is served: the import at the start, and the embedding port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform.running import running as platform

DEFAULT_SPACE = "default"


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Honour MAMA_DB_PATH and MAMA_EMBEDDING_PORT, and serve the platform."""
    with contextlib.ExitStack() as stack:
        if path := setting.environ.get("MAMA_DB_PATH", "").strip():
            from commonplace.dialects.mama.importing import ORIGIN, import_at_start
            from commonplace.engine.commonplace import Commonplace

            space = setting.space or DEFAULT_SPACE
            import_at_start(Commonplace(space=space, origin=ORIGIN, library=setting.library), path)
        if port := setting.environ.get("MAMA_EMBEDDING_PORT", "").strip():
            from commonplace.dialects.mama.embedding_port import serving

            stack.enter_context(serving(port, setting.library.embedder))
        stack.enter_context(platform(setting))
        yield
