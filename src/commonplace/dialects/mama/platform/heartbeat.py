"""The heartbeat: a prompt that runs at an interval, or on request."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import configuration, cron, runs, service
from commonplace.dialects.mama.platform.failures import not_installed
from commonplace.dialects.mama.platform.files import StoredFile, records
from commonplace.dialects.mama.platform.schedule import local_zone
from commonplace.dialects.mama.platform.service import operation, read_arguments
from commonplace.dialects.rest import Route
from commonplace.platform import durable

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service
    from commonplace.engine.commonplace import Commonplace

JOB, AGENT = "heartbeat", "heartbeat"
DONE_EVENT = "mama.heartbeat.done"
FIRST_SECONDS = 5.0
PROMPT = (
    "This is the heartbeat. Load the latest checkpoint, look for recent decisions, and report in a"
    " few sentences what was done and what is pending. Save a checkpoint with that summary. Answer"
    " NOTIFY: and the report."
)


NOTHING_TO_DO = "HEARTBEAT_OK"
ANSWER_INSTRUCTIONS = (
    f"Answer {NOTHING_TO_DO} if nothing is to be done, NOTIFY: and a text to tell the person, or"
    " DONE: and what you did."
)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8-sig")  # raises UnicodeDecodeError, which is a ValueError


FILE = StoredFile("HEARTBEAT.md", _decode_text, str.encode, "")


def status(call: Call) -> Any:
    """Return the state of the heartbeat: whether a job is enabled, and the last execution."""
    jobs = records.listing(call.memory, cron.KIND)
    active = sum(job.attrs["enabled"] for job in jobs)
    newest = records.page(call.memory, runs.KIND, f"job:{JOB}", limit=1)
    last = None
    if newest:
        attrs = newest[0].attrs
        last = {
            "id": newest[0].ref, "started_at": attrs["started_at"], "status": attrs["status"]
        }  # fmt: skip
    return {
        "status": "active" if active else "inactive",
        "active_jobs": active,
        "last_execution": last,
    }


def trigger(call: Call, *, prompt: str) -> Any:
    """Run a heartbeat now."""
    if not durable.is_dbos_installed():
        raise not_installed("DBOS")
    call.memory.library.coordination.expect_work()
    return {"execution_id": begin_run(call.memory, prompt), "started": True}


def begin_run(memory: Commonplace, prompt: str) -> str:
    """Store a heartbeat's run, and request its execution."""
    identity = runs.new_id("heartbeat")
    runs.add_run(memory, identity, JOB, prompt, AGENT)
    runs.request_execution(memory, identity)
    return identity


def is_quiet(start: int, end: int, hour: int) -> bool:
    """Return whether an hour is within the quiet hours, which may span midnight."""
    return start <= hour < end if start <= end else hour >= start or hour < end


def act_on_answer(running: Service, memory: Commonplace, answer: str) -> None:
    """Send the text of a NOTIFY answer to a channel, or record a DONE answer as an event."""
    word, _, rest = answer.strip().partition(":")
    if word == "DONE" and rest.strip():
        memory.events.record(DONE_EVENT, JOB, {"text": rest.strip()[:20_000]})
    elif word == "NOTIFY" and rest.strip():
        from commonplace.dialects.mama.platform import channels

        tree = configuration.effective_configuration(memory, running)
        channel = tree["heartbeat"]["notify_channel_id"] or tree["discord"]["default_channel_id"]
        if channel:
            channels.notify(running, tree, channel, rest.strip()[:20_000])


class HeartbeatScheduler:
    """Starts a heartbeat at every interval, in the process that holds the lock."""

    def __init__(self, running: Service) -> None:
        self._running = running
        self._watch = running.setting.library.watch(service.OWNER_SPACE)
        self._version: object = None
        self._settings: dict[str, Any] = {}
        self._first = datetime.now(UTC) + timedelta(seconds=FIRST_SECONDS)
        self._last: datetime | None = None

    def tick(self, memory: Commonplace) -> None:
        """Start a heartbeat if it is due; this is cheap if no row has changed."""
        version = self._watch.version()
        if version != self._version:
            self._version = version
            self._settings = configuration.effective_configuration(memory, self._running)[
                "heartbeat"
            ]
        now = datetime.now(UTC)
        if not self._settings.get("enabled") or now < self._due():
            return
        self._last = now
        hour = now.astimezone(local_zone()).hour
        if is_quiet(self._settings["quiet_start"], self._settings["quiet_end"], hour):
            return
        text = FILE.load(memory, self._running).strip()
        if text and not runs.is_running(memory, JOB):
            at = time.strftime("%Y-%m-%d %H:%M", now.astimezone(local_zone()).timetuple())
            begin_run(memory, f"It is {at}.\n\n{text}\n\n{ANSWER_INSTRUCTIONS}")

    def _due(self) -> datetime:
        if self._last is None:
            return self._first
        return self._last + timedelta(milliseconds=self._settings["interval"])


OPERATIONS = (
    operation("heartbeat_status", "Heartbeat status", "read", status),
    operation(
        "trigger_heartbeat", "Trigger a heartbeat", "operator", trigger, (),
        {"prompt": {**cron.PROMPT, "default": PROMPT}},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/heartbeat", "heartbeat_status"),
    Route("POST", "/api/heartbeat", "trigger_heartbeat", read=read_arguments),
)
