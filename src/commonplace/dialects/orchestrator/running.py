"""What runs while the dialect is served: the palace's upkeep, agents, workflows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import lifecycle, pushing, runtimes, workflows
from commonplace.platform.durable import Durable


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Everything, until the block is left."""
    library = setting.library
    manual = setting.environ.get(workflows.SETTING) == "manual"
    durable = Durable(library.path, workflows.Executions(library, manual=manual))
    if runtimes.of(library) is None:
        runtimes.put(library, runtimes.configured(setting))
    if pushing.of(library) is None:
        pushing.put(library, pushing.configured(setting.environ))
    try:
        with lifecycle.running(setting), durable.running():
            yield
    finally:
        runtimes.put(library, None)
        pushing.put(library, None)
