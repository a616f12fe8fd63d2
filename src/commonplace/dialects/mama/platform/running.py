"""Background work of the platform: jobs, the heartbeat, and their runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform import agents, cron, heartbeat, logs, runs, service
from commonplace.dialects.mama.platform.files import records
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Memory
from commonplace.errors import CommonplaceError
from commonplace.platform import durable
from commonplace.storage.directories import remove_unfinished

log = logging.getLogger(__name__)


@contextlib.contextmanager
def background_work(setting: Setting) -> Iterator[None]:
    """Serve the platform; over stdio, only provide the settings for its tools."""
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(service.serving(setting))
        if setting.space is None:
            stack.enter_context(logs.log_to_file(here))
            remove_unfinished(here.folder)
            _prepare(here)
            clock, beat = cron.JobScheduler(here), heartbeat.HeartbeatScheduler(here)

            def tick(memory: Commonplace) -> None:
                clock.tick(memory)
                beat.tick(memory)

            def act_on_run(memory: Commonplace, run: Memory, answer: str) -> None:
                if run.attrs["job"] == heartbeat.JOB:
                    heartbeat.act_on_answer(here, memory, answer)

            work = runs.Runs(here, tick, act_on_run)
            stack.enter_context(durable.running_workflows(setting.library, runs.KIND, work))
        yield


def _prepare(here: service.Service) -> None:
    """Store the jobs of the configuration; start the scheduler if there are jobs or files."""
    memory = agents.operator_memory(here)
    if not here.setting.library.exists(service.OWNER_SPACE) and not here.folder.exists():
        return
    try:
        cron.store_configured_jobs(memory, here)
        if records.listing(memory, cron.KIND) or here.folder.exists():
            here.setting.library.coordination.expect_work()
    except CommonplaceError as error:
        log.warning("the platform was not prepared", extra={"why": error.code})
