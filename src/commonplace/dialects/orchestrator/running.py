"""Run the palace's decay, agents, workflows and push notifications with the server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import lifecycle, pushing, runtimes, workflows
from commonplace.platform import durable


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Run all background work of the dialect during the block."""
    library = setting.library
    manual = setting.environ.get(workflows.SETTING) == "manual"
    executions = workflows.Executions(library, manual=manual)
    if runtimes.of(library) is None:
        runtimes.put(library, runtimes.configured(setting))
    if pushing.of(library) is None:
        pushing.put(library, pushing.configured(setting.environ))
    try:
        with (
            lifecycle.running(setting),
            durable.running_workflows(library, durable.WORKFLOWS, executions),
        ):
            yield
    finally:
        runtimes.put(library, None)
        pushing.put(library, None)
