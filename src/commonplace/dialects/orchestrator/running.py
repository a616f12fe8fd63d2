"""Run the palace's decay, agents, workflows and push notifications with the server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import lifecycle, pushing, runtimes, workflows
from commonplace.platform import durable


@contextlib.contextmanager
def background_work(setting: Setting) -> Iterator[None]:
    """Run all background work of the dialect during the block."""
    library = setting.library
    manual = setting.environ.get(workflows.APPROVAL_VARIABLE) == "manual"
    executions = workflows.Executions(library, manual=manual)
    if runtimes.runtime_of(library) is None:
        runtimes.set_runtime(library, runtimes.configured_runtime(setting))
    if pushing.pusher_of(library) is None:
        pushing.set_pusher(library, pushing.configured_pusher(setting.environ))
    try:
        with (
            lifecycle.background_upkeep(setting),
            durable.running_workflows(library, durable.WORKFLOWS, executions),
        ):
            yield
    finally:
        runtimes.set_runtime(library, None)
        pushing.set_pusher(library, None)
