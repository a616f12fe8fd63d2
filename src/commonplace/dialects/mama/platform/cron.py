"""Scheduled jobs: records of the space, and the scheduler that starts their runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import configuration, runs, schedule, service
from commonplace.dialects.mama.platform.failures import (
    PlatformError,
    invalid_value,
    not_found,
    not_installed,
)
from commonplace.dialects.mama.platform.files import records
from commonplace.dialects.mama.platform.service import operation, read_arguments
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import FLAG, TEXT, integer
from commonplace.errors import CommonplaceError, Conflict
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Memory

KIND = "schedule"
NAME = {"type": "string", "minLength": 1, "maxLength": 200}
PROMPT = {"type": "string", "minLength": 1, "maxLength": 20_000}
EXPRESSION = {"type": "string", "minLength": 1, "maxLength": 200}


def _get_job(memory: Commonplace, id: str) -> Memory:
    found = records.find(memory, id, KIND)
    if found is None:
        raise not_found("Job")
    return found


def _job_to_dict(job: Memory) -> dict[str, Any]:
    attrs = job.attrs
    due = None
    if attrs["enabled"]:
        # An imported expression may be invalid; such a job is never due.
        with contextlib.suppress(PlatformError):
            due = int(schedule.next_due(attrs["cron_expr"], datetime.now(UTC)).timestamp())
    return {
        "id": job.ref,
        **{name: attrs[name] for name in ("name", "cron_expr", "prompt", "enabled", "last_run")},
        "next_run": due,
    }


def list_jobs(call: Call) -> Any:
    """List all scheduled jobs, oldest first."""
    return {"jobs": [_job_to_dict(job) for job in records.listing(call.memory, KIND)]}


def get_job(call: Call, *, id: str) -> Any:
    """Get a scheduled job."""
    return {"job": _job_to_dict(_get_job(call.memory, id))}


def create_job(call: Call, *, name: str, cron_expr: str, prompt: str, enabled: bool) -> Any:
    """Create a scheduled job."""
    schedule.check(cron_expr)
    job = add_job(call.memory, name, cron_expr, prompt, enabled)
    call.memory.library.coordination.expect_work()  # a running server then starts the scheduler
    return {"id": job.ref, "created": True}


def add_job(memory: Commonplace, name: str, cron_expr: str, prompt: str, enabled: bool) -> Memory:
    """Store a job."""
    attrs = {
        "name": name, "cron_expr": cron_expr, "prompt": prompt, "enabled": enabled,
        "last_run": None,
    }  # fmt: skip
    return records.add(memory, KIND, runs.new_id("job"), name, attrs)


def update_job(call: Call, *, id: str, **changes: Any) -> Any:
    """Change a scheduled job."""
    blank = [name for name, value in changes.items() if service.is_blank(value)]
    if blank:
        raise invalid_value(f"{blank[0]} must not be blank.")
    if "cron_expr" in changes:
        schedule.check(changes["cron_expr"])
    records.change(call.memory, _get_job(call.memory, id), **changes)
    return {"updated": True}


def delete_job(call: Call, *, id: str) -> Any:
    """Delete a scheduled job and its logs."""
    with exclusive(call.memory, "delete job"):  # no run must begin during the deletion
        job = _get_job(call.memory, id)
        for run in records.listing(call.memory, runs.KIND, f"job:{id}"):
            records.delete(call.memory, run)
        records.delete(call.memory, job)
    return {"deleted": True}


def run_job(call: Call, *, id: str) -> Any:
    """Run a job now; the result is stored in the job's log."""
    if not durable.is_dbos_installed():
        raise not_installed("DBOS")
    with exclusive(call.memory, "run job"):
        job = _get_job(call.memory, id)
        if runs.is_running(call.memory, id):
            raise PlatformError(
                409, "JOB_RUNNING", "This job is still running. Wait until it has ended."
            )
        identity = begin_run(call.memory, job, runs.new_id("exec"))
    return {"execution_id": identity, "started": True}


def begin_run(memory: Commonplace, job: Memory, identity: str) -> str:
    """Store a run of a job, and request its execution."""
    assert job.ref is not None
    run = runs.add_run(memory, identity, job.ref, job.attrs["prompt"], "cron")
    records.change(memory, job, last_run=run.attrs["started_at"])
    runs.request_execution(memory, identity)
    return identity


def list_runs(call: Call, *, id: str, limit: int, offset: int) -> Any:
    """Return the runs of a job, newest first."""
    _get_job(call.memory, id)
    found = records.page(call.memory, runs.KIND, f"job:{id}", limit=limit, offset=offset)
    return {"logs": [runs.to_dict(run) for run in found]}


class JobScheduler:
    """Starts the runs of jobs that are due, in the process that holds the lock.

    Runs that were due while no server was running are skipped.
    """

    def __init__(self, running: Service) -> None:
        self._watch = running.setting.library.watch(service.OWNER_SPACE)
        self._version: object = None
        self._due: dict[str, tuple[str, datetime]] = {}
        """The expression and the next due time of each enabled job."""
        self._next: datetime | None = None

    def tick(self, memory: Commonplace) -> None:
        """Start the runs that are due; this is cheap if no row has changed and no job is due."""
        version, now = self._watch.version(), datetime.now(UTC)
        if version != self._version:
            self._version = version
            self._read(memory, now)
        if self._next is None or now < self._next:
            return
        for job in records.listing(memory, KIND):
            expression, due = self._due.get(job.ref or "", ("", now))
            if not expression or due > now or not job.attrs["enabled"]:
                continue
            self._begin(memory, job, due)
        self._read(memory, now, again=True)

    def _read(self, memory: Commonplace, now: datetime, *, again: bool = False) -> None:
        """Read the enabled jobs; a job with an unchanged expression keeps its due time."""
        due = {}
        for job in records.listing(memory, KIND):
            attrs, former = job.attrs, self._due.get(job.ref or "")
            if not attrs["enabled"] or job.ref is None:
                continue
            expression = attrs["cron_expr"]
            if former is not None and former[0] == expression and (former[1] > now or not again):
                due[job.ref] = former
                continue
            try:
                due[job.ref] = (expression, schedule.next_due(expression, now))
            except CommonplaceError:
                continue  # the expression is invalid; it was imported, or another release stored it
        self._due = due
        self._next = min((at for _, at in due.values()), default=None)

    def _begin(self, memory: Commonplace, job: Memory, due: datetime) -> None:
        """Start a run unless the job is still running; each due time starts one run only."""
        assert job.ref is not None
        identity = f"exec_{int(due.timestamp()) * 1000}_{job.ref[-6:]}"
        try:
            with exclusive(memory, "run job", runs.ORIGIN):
                if not runs.is_running(memory, job.ref):
                    begin_run(memory, job, identity)
        except Conflict:
            return  # another process has started the run


def store_configured_jobs(memory: Commonplace, running: Service) -> None:
    """Store the jobs of the configuration that have a new name.

    A job that was renamed or deleted since is not stored again, since the file is not written.
    """
    tree = configuration.effective_configuration(memory, running)
    jobs = tree.get("scheduling", {}).get("jobs", [])
    held = _all_names(memory) if jobs else set()
    for job in jobs:
        if (found := _job_from_configuration(job)) and found["name"] not in held:
            add_job(memory, **found)


def _all_names(memory: Commonplace) -> set[str]:
    """Return the first and the last names of all jobs, including deleted ones."""
    jobs = [*records.listing(memory, KIND), *records.deleted(memory, KIND)]
    return {name for job in jobs for name in (job.text, str(job.attrs.get("name")))}


def _job_from_configuration(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a job of the configuration file, or None if it is invalid."""
    name, prompt = job.get("name") or job.get("id"), job.get("prompt")
    expression = job.get("cron_expr") or job.get("cron") or job.get("cronExpr")
    if not all(isinstance(each, str) and each.strip() for each in (name, prompt, expression)):
        return None
    try:
        schedule.check(str(expression))
    except CommonplaceError:
        return None
    return {
        "name": str(name)[:200], "cron_expr": str(expression), "prompt": str(prompt)[:20_000],
        "enabled": job.get("enabled") is not False,
    }  # fmt: skip


_FIELDS = {"name": NAME, "cron_expr": EXPRESSION, "prompt": PROMPT, "enabled": FLAG}
_ID = {"id": TEXT}
OPERATIONS = (
    operation("list_jobs", "List jobs", "read", list_jobs),
    operation(
        "create_job", "Create a job", "operator", create_job, ("name", "cron_expr", "prompt"),
        {**_FIELDS, "enabled": {**FLAG, "default": True}},
    ),
    operation("get_job", "Get a job", "read", get_job, ("id",), _ID),
    operation("update_job", "Change a job", "operator", update_job, ("id",), {**_ID, **_FIELDS}),
    operation("delete_job", "Delete a job", "operator", delete_job, ("id",), _ID),
    operation("run_job", "Run a job", "operator", run_job, ("id",), _ID),
    operation(
        "job_logs", "Logs of a job", "read", list_runs, ("id",),
        {**_ID, "limit": integer(1, 100, 20), "offset": integer(0, None, 0)},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/cron", "list_jobs"),
    Route("POST", "/api/cron", "create_job", read=read_arguments),
    Route("GET", "/api/cron/{id}", "get_job"),
    Route("PUT", "/api/cron/{id}", "update_job", read=read_arguments),
    Route("DELETE", "/api/cron/{id}", "delete_job"),
    Route("POST", "/api/cron/{id}/run", "run_job", read=read_arguments),
    Route("GET", "/api/cron/{id}/logs", "job_logs", read=read_arguments),
)
