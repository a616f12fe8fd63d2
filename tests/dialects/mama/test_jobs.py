"""Scheduled jobs, their runs, the heartbeat and what they cost, over real HTTP with a real model
server on loopback."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from commonplace import Commonplace
from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform import agents, cron, heartbeat, runs, schedule
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.dialects.mama.platform.files import records
from commonplace.dialects.mama.platform.service import Service
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel

from .conftest import Web, serving

SEED_JOB = {
    "name": "Hourly market check",
    "cron_expr": "0 * * * *",
    "prompt": "Check crypto prices and report",
    "enabled": True,
}


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as made:
        yield made


@pytest.fixture
def web(tmp_path: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
    monkeypatch.setenv("COMMONPLACE_LLM_OPENAI_URL", model.url)
    monkeypatch.setenv("COMMONPLACE_LLM_MODEL", "gpt-4o-mini")
    with serving(tmp_path / "data", None) as made:
        yield made


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The body of a failure, whose `error` is a text."""
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    assert isinstance(body["error"], str) and body["error"] == body["message"]
    assert body["code"] == code
    return body


def create(web: Web, **changes: Any) -> str:
    made = web.post("/api/cron", {**SEED_JOB, **changes}).json()
    assert made.keys() == {"id", "created"} and made["created"] is True
    identity: str = made["id"]
    return identity


def job(web: Web, identity: str) -> dict[str, Any]:
    found: dict[str, Any] = web.get(f"/api/cron/{identity}").json()["job"]
    return found


def logs(web: Web, identity: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = web.get(f"/api/cron/{identity}/logs", **query).json()["logs"]
    return found


def finished(web: Web, identity: str) -> dict[str, Any]:
    """The newest run of a job, once it is over."""
    wait_until(lambda: logs(web, identity) and logs(web, identity)[0]["status"] != "running", 60)
    return logs(web, identity)[0]


# Jobs


def test_a_job_is_created_listed_changed_and_deleted(web: Web) -> None:
    identity = create(web)

    assert re.fullmatch(r"job_\d{13}_[0-9a-z]{6}", identity)
    found = job(web, identity)
    due = found.pop("next_run")
    assert found == {"id": identity, **SEED_JOB, "last_run": None}
    assert due % 3600 == 0 and 0 < due - time.time() <= 3600
    assert web.get("/api/cron").json()["jobs"][0]["id"] == identity
    second = create(web, name="Later")
    assert [each["id"] for each in web.get("/api/cron").json()["jobs"]] == [identity, second]

    changed = web.client.put(f"{web.url}/api/cron/{identity}", json={"enabled": False, "x": 1})
    assert changed.json() == {"updated": True}
    assert (job(web, identity)["enabled"], job(web, identity)["next_run"]) == (False, None)

    deleted = web.client.delete(f"{web.url}/api/cron/{identity}")
    assert deleted.json() == {"deleted": True}
    for method, path in (("GET", ""), ("GET", "/logs"), ("POST", "/run"), ("DELETE", "")):
        answer = web.client.request(method, f"{web.url}/api/cron/{identity}{path}")
        refused(answer, 404, "NOT_FOUND")
    refused(web.client.put(f"{web.url}/api/cron/{identity}", json={}), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"name": None, "prompt": None}, ["name", "prompt"]),
        ({"cron_expr": ""}, ["cron_expr"]),
        ({"name": " ", "prompt": "\n"}, ["name", "prompt"]),
    ],
)
def test_missing_fields_are_named(web: Web, change: dict[str, Any], missing: list[str]) -> None:
    body = refused(web.post("/api/cron", {**SEED_JOB, **change}), 400, "BAD_REQUEST")
    assert body["details"] == {"missing": missing}
    assert web.get("/api/cron").json() == {"jobs": []}


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5}, {"name": "n" * 201}, {"prompt": "p" * 20_001}, {"enabled": "yes"},
        {"cron_expr": "61 * * * *"}, {"cron_expr": "* * * *"}, {"cron_expr": "0 0 30 2 *"},
        {"cron_expr": "H * * * *"}, {"cron_expr": "@reboot"}, {"cron_expr": "* * * * * * *"},
    ],
)  # fmt: skip
def test_values_that_make_no_sense_change_nothing(web: Web, change: dict[str, Any]) -> None:
    refused(web.post("/api/cron", {**SEED_JOB, **change}), 400, "VALIDATION_ERROR")
    identity = create(web)
    before = job(web, identity)
    answer = web.client.put(f"{web.url}/api/cron/{identity}", json={"prompt": "q", **change})
    refused(answer, 400, "VALIDATION_ERROR")
    assert job(web, identity) == before


@pytest.mark.parametrize("name", ["name", "prompt", "cron_expr"])
def test_no_field_of_a_job_becomes_blank(web: Web, name: str) -> None:
    identity = create(web)
    before = job(web, identity)
    answer = web.client.put(f"{web.url}/api/cron/{identity}", json={name: " "})
    assert name in refused(answer, 400, "VALIDATION_ERROR")["message"]
    assert job(web, identity) == before


@pytest.mark.parametrize(
    "change", [{"name": "n" * 200}, {"prompt": "p" * 20_000}, {"cron_expr": "@hourly"},
               {"cron_expr": "*/5 * * * * *"}],
)  # fmt: skip
def test_values_at_their_limits_are_accepted(web: Web, change: dict[str, Any]) -> None:
    assert change.items() <= job(web, create(web, **change)).items()


# Runs


def test_a_job_is_run_by_the_agent_and_logged(web: Web, model: FakeModel) -> None:
    model.reply = lambda _: "Prices are up."
    identity = create(web, enabled=False)

    started = web.post(f"/api/cron/{identity}/run", {}).json()

    assert started.keys() == {"execution_id", "started"} and started["started"] is True
    assert re.fullmatch(r"exec_\d{13}_[0-9a-z]{6}", started["execution_id"])
    run = finished(web, identity)
    assert run.keys() == {"id", "started_at", "finished_at", "status", "output", "error"}
    assert (run["id"], run["status"]) == (started["execution_id"], "success")
    assert (run["output"], run["error"]) == ("Prices are up.", None)
    assert run["started_at"] <= run["finished_at"] <= time.time() + 1
    assert job(web, identity)["last_run"] == run["started_at"]
    assert SEED_JOB["prompt"] in str(model.requests[0]["messages"])


def test_a_job_and_its_run_have_one_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a second passes while they are stored."""
    seconds = itertools.count(1_800_000_000)
    memory = Commonplace(tmp_path / "data")
    job = cron.add_job(memory, "tea", "@hourly", "Make tea", True)
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))

    cron.begin_run(memory, job, "exec_1")

    (run,) = records.listing(memory, runs.KIND)
    (kept,) = records.listing(memory, cron.KIND)
    assert kept.attrs["last_run"] == run.attrs["started_at"]


def test_the_agent_of_a_job_uses_the_memory(web: Web, model: FakeModel) -> None:
    decision = {"type": "decision", "topic": "tea", "decision": "Green", "reasoning": "Calm"}
    model.reply = lambda messages: (
        "Saved." if messages[-1]["role"] == "tool" else [("mama_save", decision)]
    )
    identity = create(web)
    web.post(f"/api/cron/{identity}/run", {})

    assert finished(web, identity)["output"] == "Saved."
    assert web.get("/api/mama/search", q="tea").json()["count"] == 1


def test_a_run_that_is_not_over_keeps_another_from_beginning(web: Web, model: FakeModel) -> None:
    model.delay = 1.0
    identity = create(web)
    web.post(f"/api/cron/{identity}/run", {})

    refused(web.post(f"/api/cron/{identity}/run", {}), 409, "JOB_RUNNING")

    assert finished(web, identity)["status"] == "success"
    assert web.post(f"/api/cron/{identity}/run", {}).status_code == 200


def test_a_model_that_fails_fails_the_run(web: Web, model: FakeModel) -> None:
    model.reply = lambda _: 401
    identity = create(web)
    web.post(f"/api/cron/{identity}/run", {})

    run = finished(web, identity)
    assert (run["status"], run["output"]) == ("failed", None)
    assert "401" in run["error"]


def test_without_a_model_a_run_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COMMONPLACE_LLM_KEY", "COMMONPLACE_LLM_PROVIDER", "COMMONPLACE_LLM_OPENAI_URL"):
        monkeypatch.delenv(name, raising=False)
    with serving(tmp_path / "data", None) as web:
        identity = create(web)
        web.post(f"/api/cron/{identity}/run", {})
        run = finished(web, identity)
    assert run["status"] == "failed"
    assert "COMMONPLACE_LLM_KEY" in run["error"] and "agent.api_key" in run["error"]


def test_logs_are_paged_newest_first(web: Web) -> None:
    identity = create(web)
    for number in range(5):
        run = runs.add_run(web.memory, f"exec_{number}", identity, "p", "cron")
        runs.finish_run(web.memory, str(run.ref), f"answer {number}", None)

    assert [run["id"] for run in logs(web, identity, limit=2)] == ["exec_4", "exec_3"]
    assert [run["id"] for run in logs(web, identity, limit=2, offset=3)] == ["exec_1", "exec_0"]
    for wrong in ({"limit": 0}, {"limit": 101}, {"offset": -1}, {"limit": "x"}):
        answer = web.get(f"/api/cron/{identity}/logs", **wrong)
        refused(answer, 400, "VALIDATION_ERROR")


def test_jobs_and_logs_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as first:
        identity = create(first)
        runs.add_run(first.memory, "exec_1", identity, "p", "cron")
        runs.finish_run(first.memory, "exec_1", "done", None)
    with serving(tmp_path / "data", None) as again:
        assert job(again, identity)["name"] == SEED_JOB["name"]
        assert logs(again, identity)[0]["output"] == "done"


def test_only_the_newest_runs_of_a_job_are_kept(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_STORED_RUNS", 10)
    identity, other = create(web, enabled=False), create(web, enabled=False)
    runs.add_run(web.memory, "exec_of_other", other, "p", "cron")
    for number in range(75):
        runs.add_run(web.memory, f"exec_{number}", identity, "p", "cron")
        runs.finish_run(web.memory, f"exec_{number}", f"the unique answer {number}.", None)

    found = logs(web, identity, limit=100)
    assert [each["id"] for each in found] == [f"exec_{number}" for number in range(74, 49, -1)]
    assert len(logs(web, other)) == 1
    states = ["archived"]
    assert web.memory.browse(kinds=[runs.KIND], states=states, limit=1)[1] == 26
    assert web.memory.browse(kinds=[f"{runs.KIND}.deleted"], states=states, limit=1)[1] == 0
    diagnosis = web.library.maintenance.check("default")
    assert diagnosis.findings == []


def test_a_run_ends_although_far_too_many_are_kept(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_STORED_RUNS", 10)
    identity = create(web, enabled=False)
    with web.memory.unit("many"):
        for number in range(1_080):
            runs.add_run(web.memory, f"exec_{number}", identity, "p", "cron")
    for number, kept in ((1_079, 80), (1_078, 10)):
        runs.finish_run(web.memory, f"exec_{number}", "done", None)
        assert len(logs(web, identity, limit=100)) == kept
    assert [each["status"] for each in logs(web, identity, limit=3)] == [
        "success", "success", "running",
    ]  # fmt: skip


def test_a_job_is_deleted_while_it_runs(web: Web, model: FakeModel) -> None:
    model.delay = 1.0
    identity = create(web)
    web.post(f"/api/cron/{identity}/run", {})
    wait_until(lambda: bool(model.requests), 30)

    assert web.client.delete(f"{web.url}/api/cron/{identity}").json() == {"deleted": True}

    refused(web.get(f"/api/cron/{identity}/logs"), 404, "NOT_FOUND")
    wait_until(lambda: web.get("/api/tokens/summary").json()["today"]["request_count"] == 1, 30)
    assert web.get("/api/cron").json() == {"jobs": []}
    assert records.listing(web.memory, runs.KIND) == []


def test_a_job_with_an_expression_that_cannot_be_read_is_listed(web: Web) -> None:
    cron.add_job(web.memory, "imported", "nonsense", "p", True)
    (found,) = web.get("/api/cron").json()["jobs"]
    assert (found["enabled"], found["next_run"]) == (True, None)


# The clock


def test_a_job_that_is_due_is_run_by_the_clock(web: Web, model: FakeModel) -> None:
    identity = create(web, cron_expr="* * * * * *")

    wait_until(lambda: len(logs(web, identity)) >= 2, 60)
    web.client.put(f"{web.url}/api/cron/{identity}", json={"enabled": False})

    moments = [run["id"] for run in logs(web, identity)]
    assert len(set(moments)) == len(moments)
    assert finished(web, identity)["status"] == "success"


def test_two_clocks_begin_a_run_once(web: Web) -> None:
    identity = create(web, cron_expr="0 0 1 1 *")
    setting = Setting(library=web.library, system=None, environ={})  # type: ignore[arg-type]
    clocks = [cron.JobScheduler(Service(setting)) for _ in range(2)]
    due = datetime(2026, 1, 1, tzinfo=UTC)
    found = records.find(web.memory, identity, cron.KIND)
    assert found is not None

    for clock in clocks:
        clock._begin(web.memory, found, due)
        for run in logs(web, identity):
            runs.finish_run(web.memory, run["id"], "done", None)

    assert len(logs(web, identity)) == 1


def test_jobs_of_the_configuration_are_taken_over_once(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "mama"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "scheduling:\n  jobs:\n"
        "    - {name: Report, cron: '0 9 * * *', prompt: Report}\n"
        "    - {name: Broken, cron: nonsense, prompt: x}\n"
    )
    for _ in range(2):
        with serving(tmp_path / "data", None) as web:
            found = web.get("/api/cron").json()["jobs"]
        assert [(each["name"], each["cron_expr"]) for each in found] == [("Report", "0 9 * * *")]

    with serving(tmp_path / "data", None) as web:
        address = f"{web.url}/api/cron/{found[0]['id']}"
        web.client.put(address, json={"name": "Morning"})
    with serving(tmp_path / "data", None) as web:
        assert [each["name"] for each in web.get("/api/cron").json()["jobs"]] == ["Morning"]
        web.client.delete(f"{web.url}/api/cron/{found[0]['id']}")
    with serving(tmp_path / "data", None) as web:
        assert web.get("/api/cron").json() == {"jobs": []}


# When a job is due

BERLIN = ZoneInfo("Europe/Berlin")


def moments(expression: str, start: datetime, count: int) -> list[str]:
    found = []
    for _ in range(count):
        start = schedule.next_due(expression, start, BERLIN)
        found.append(start.astimezone(BERLIN).isoformat())
    return found


def test_a_job_at_a_fixed_hour_is_due_once_when_the_clock_goes_back() -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert moments("30 2 * * *", start, 2) == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


def test_a_job_of_several_minutes_is_not_repeated_when_the_clock_goes_back() -> None:
    start = datetime(2026, 10, 25, 1, 30, tzinfo=BERLIN)
    first = [f"2026-10-25T02:{minute:02}:00+02:00" for minute in (0, 20, 40)]
    assert moments("*/20 2 * * *", start, 4) == [*first, "2026-10-26T02:00:00+01:00"]


def test_a_job_of_every_day_is_due_once_when_midnight_is_repeated() -> None:
    havana = ZoneInfo("America/Havana")
    first = schedule.next_due("@daily", datetime(2026, 10, 31, 12, tzinfo=havana), havana)
    second = schedule.next_due("@daily", first, havana)
    assert [at.astimezone(havana).isoformat() for at in (first, second)] == [
        "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00",
    ]  # fmt: skip


def test_a_job_of_every_hour_is_due_in_both_when_the_clock_goes_back() -> None:
    start = datetime(2026, 10, 25, 1, 30, tzinfo=BERLIN)
    assert moments("0 * * * *", start, 3) == [
        "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00",
    ]  # fmt: skip


def test_an_hour_that_the_clock_skips_is_made_up_for() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert moments("30 2 * * *", start, 2) == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip


def test_six_fields_have_the_seconds_first() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=BERLIN)
    assert moments("15 30 * * * *", start, 1) == ["2026-01-01T12:30:15+01:00"]


def test_an_expression_that_is_never_due_is_refused() -> None:
    with pytest.raises(PlatformError, match="never due"):
        schedule.check("0 0 31 2 *")


# The heartbeat


def test_the_heartbeat_tells_of_jobs_and_the_last_execution(web: Web, model: FakeModel) -> None:
    assert web.get("/api/heartbeat").json() == {
        "status": "inactive", "active_jobs": 0, "last_execution": None
    }  # fmt: skip
    create(web)
    create(web, enabled=False)

    started = web.post("/api/heartbeat", {"prompt": "Generate status report"}).json()

    assert started["started"] is True
    assert re.fullmatch(r"heartbeat_\d{13}_[0-9a-z]{6}", started["execution_id"])
    wait_until(lambda: web.get("/api/heartbeat").json()["last_execution"]["status"] == "success")
    told = web.get("/api/heartbeat").json()
    assert (told["status"], told["active_jobs"]) == ("active", 1)
    assert told["last_execution"].keys() == {"id", "started_at", "status"}
    assert told["last_execution"]["id"] == started["execution_id"]
    assert "Generate status report" in str(model.requests[0]["messages"])


def test_a_heartbeat_without_a_body_has_a_prompt_of_its_own(web: Web, model: FakeModel) -> None:
    web.client.post(web.url + "/api/heartbeat")
    wait_until(lambda: model.requests)
    assert "checkpoint" in str(model.requests[0]["messages"])


# Tokens


def spend(web: Web, at: str, cost: str | None = "0.5") -> None:
    spent = {
        "model": "m", "input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 5,
        "cost_usd": cost, "tries": 1,
    }  # fmt: skip
    web.memory.events.record(agents.SPENDING_EVENT, at, spent)


def test_tokens_are_summed_up(web: Web) -> None:
    spend(web, "developer")
    spend(web, "developer", None)
    spend(web, "cron")
    own = {
        "input_tokens": 300, "output_tokens": 60, "cache_read_tokens": 15, "cost_usd": 1.0,
        "request_count": 3, "unpriced_requests": 1,
    }  # fmt: skip

    assert web.get("/api/tokens/summary").json() == {"today": own, "week": own, "month": own}
    found = web.get("/api/tokens/by-agent").json()["agents"]
    assert [(each["agent_id"], each["request_count"]) for each in found] == [
        ("developer", 2), ("cron", 1)
    ]  # fmt: skip
    today = datetime.now(schedule.local_zone()).date().isoformat()
    assert web.get("/api/tokens/daily").json() == {"daily": [{"date": today, **own}], "days": 30}
    assert web.get("/api/tokens/daily", days=500).json()["days"] == 90
    refused(web.get("/api/tokens/daily", days=0), 400, "VALIDATION_ERROR")


def test_tokens_of_many_runs_are_summed_up(web: Web) -> None:
    with web.memory.unit("spend"):
        for _ in range(1_100):
            spend(web, "cron")

    assert web.get("/api/tokens/summary").json()["month"]["request_count"] == 1_100
    (told,) = web.get("/api/tokens/by-agent").json()["agents"]
    assert (told["agent_id"], told["input_tokens"]) == ("cron", 110_000)
    assert [each["request_count"] for each in web.get("/api/tokens/daily").json()["daily"]] == [
        1_100
    ]


def test_a_run_is_accounted(web: Web) -> None:
    identity = create(web)
    web.post(f"/api/cron/{identity}/run", {})
    finished(web, identity)

    (told,) = web.get("/api/tokens/by-agent").json()["agents"]
    assert told["agent_id"] == "cron" and told["request_count"] == 1
    assert told["input_tokens"] > 0


def test_the_answer_to_a_heartbeat_is_followed(web: Web, model: FakeModel) -> None:
    def beat(answer: str) -> dict[str, Any]:
        model.reply = lambda _: answer
        started = web.post("/api/heartbeat", {}).json()["execution_id"]

        def over() -> bool:
            last = web.get("/api/heartbeat").json()["last_execution"]
            return bool(last["id"] == started and last["status"] != "running")

        wait_until(over, 60)
        last: dict[str, Any] = web.get("/api/heartbeat").json()["last_execution"]
        return last

    assert beat("HEARTBEAT_OK")["status"] == "success"
    assert beat("DONE: watered the plants")["status"] == "success"
    (event,) = web.memory.events.all(kind=heartbeat.DONE_EVENT)
    assert event.payload == {"text": "watered the plants"}
    settings = {"heartbeat": {"notify_channel_id": "1"}}
    web.client.put(web.url + "/api/config", json=settings)
    assert beat("NOTIFY: the oven is on")["status"] == "failed", "Discord is not set up"


def test_the_longest_page_of_logs_is_sent(web: Web) -> None:
    identity = create(web, enabled=False)
    for number in range(60):
        runs.add_run(web.memory, f"exec_{number}", identity, "p", "cron")
        runs.finish_run(web.memory, f"exec_{number}", "ü" * 20_000, None)
    found = logs(web, identity, limit=100)
    assert [len(each["output"]) for each in found] == [20_000] * 60


def test_blanks_around_a_name_of_a_schedule_are_passed_over(web: Web) -> None:
    assert create(web, cron_expr=" @hourly ")
