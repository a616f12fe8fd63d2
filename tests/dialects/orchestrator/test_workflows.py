"""Workflows: templates, outputs, failures, approval, cancelling; and kills at every boundary."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import postgres_engine
from commonplace.cli import app
from commonplace.dialects.contract import Call, RequestInfo, Setting
from commonplace.dialects.orchestrator import messaging, runtimes, workflows
from commonplace.dialects.orchestrator.running import background_work
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, StorageUnavailable
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive
from commonplace.storage.system import open_system
from conftest import wait_until

from .conftest import Server, Workspace, opened

WORKER = Path(__file__).with_name("workflow_worker.py")


def step(name: str, template: str = "Do it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "agent_slug": "wally", "prompt_template": template, **more}


class Scripted:
    """Agents that answer as they are told."""

    def __init__(self) -> None:
        self.asked: list[runtimes.AgentPrompt] = []
        self.answer: Callable[[runtimes.AgentPrompt], str] = lambda ask: f"done: {ask.prompt}"

    def converse(self, ask: runtimes.AgentPrompt) -> str:
        self.asked.append(ask)
        return self.answer(ask)


@contextlib.contextmanager
def at_work(path: Path, runtime: Scripted | None, **environ: str) -> Iterator[Workspace]:
    with opened(path, None) as workspace:
        runtimes.set_runtime(workspace.library, runtime)
        with contextlib.closing(open_system(path)) as system:
            setting = Setting(library=workspace.library, system=system, environ=environ)
            with background_work(setting):
                yield workspace


@pytest.fixture
def agents() -> Scripted:
    return Scripted()


@pytest.fixture
def working(tmp_path: Path, agents: Scripted) -> Iterator[Workspace]:
    with at_work(tmp_path / "data", agents) as workspace:
        yield workspace


def create(workspace: Workspace, *steps: dict[str, Any], name: str = "Plan") -> str:
    answer = workspace.value("create_workflow", name=name, steps=json.dumps(steps))
    assert answer["info"] == f'workflow "{name}" created with {len(steps)} steps'
    return str(answer["workflow_id"])


def trigger(workspace: Workspace, workflow: str, **more: Any) -> str:
    answer = workspace.value("trigger_workflow", workflow_id=workflow, **more)
    execution = str(answer["execution_id"])
    assert answer["info"] == f'workflow "Plan" triggered, execution {execution} started'
    return execution


def ended(workspace: Workspace, execution: str) -> dict[str, Any]:
    def over() -> bool:
        return workspace.value("check_workflow_status", execution_id=execution)["status"] in (
            workflows.FINAL_STATUSES
        )

    wait_until(over, seconds=60)
    return workspace.value("check_workflow_status", execution_id=execution)


def test_each_step_gets_what_the_ones_before_gave(working: Workspace, agents: Scripted) -> None:
    workflow = create(
        working,
        step("research", "Find {{topic}} for {{ who }}.", output_key="notes"),
        step("write", "Write: {{notes}} {{unknown}}", agent_slug="eve"),
    )
    context = json.dumps({"topic": "harbours", "who": "Anna"})
    execution = trigger(working, workflow, initial_context=context)
    status = ended(working, execution)
    for one in status["steps"]:
        assert one.pop("duration_ms") >= 0
    assert status == {
        "execution_id": execution, "status": "completed", "current_step": 2, "error": "",
        "info": "",
        "steps": [
            {"step_index": 0, "step_name": "research", "agent_slug": "wally",
             "status": "completed"},
            {"step_index": 1, "step_name": "write", "agent_slug": "eve", "status": "completed"},
        ],
    }  # fmt: skip
    assert [ask.prompt for ask in agents.asked] == [
        "Find harbours for Anna.", "Write: done: Find harbours for Anna. {{unknown}}",
    ]  # fmt: skip
    assert {(ask.space, ask.user, ask.seconds) for ask in agents.asked} == {("acme", "anna", 300.0)}
    kinds = [event.kind for event in working.memory.events.all(subject=execution)]
    assert kinds == [
        "workflow.started", "workflow.step.started", "workflow.step.completed",
        "workflow.step.started", "workflow.step.completed", "workflow.completed",
    ]  # fmt: skip


def failing(text: str) -> Callable[[runtimes.AgentPrompt], str]:
    def answer(ask: runtimes.AgentPrompt) -> str:
        if text in ask.prompt:
            raise CommonplaceError("the agent is tired")
        return "fine"

    return answer


def test_a_failure_stops_or_is_skipped(working: Workspace, agents: Scripted) -> None:
    agents.answer = failing("hard")
    stops = create(working, step("one", "easy"), step("two", "hard"), step("three", "easy"))
    status = ended(working, trigger(working, stops))
    assert (status["status"], status["current_step"]) == ("failed", 1)
    assert status["error"] == "step 1 (two) failed: the agent is tired"
    assert [one["status"] for one in status["steps"]] == ["completed", "failed"]
    skips = create(working, step("one", "hard", on_failure="skip"), step("two", "easy"))
    status = ended(working, trigger(working, skips))
    assert (status["status"], status["current_step"]) == ("completed", 2)
    assert [one["status"] for one in status["steps"]] == ["failed", "completed"]


def test_an_answer_that_cannot_be_stored_as_it_is_fails_nothing(
    working: Workspace, agents: Scripted
) -> None:
    agents.answer = lambda ask: "half \ud83d and \0"
    workflow = create(working, step("one", output_key="notes"), step("two", "Use {{notes}}"))
    assert ended(working, trigger(working, workflow))["status"] == "completed"
    assert agents.asked[1].prompt == "Use half \ufffd and \ufffd"
    answer = working.value("send_message_to_agent", agent_slug="eve", message="Hello")
    assert (answer["success"], answer["response"]) == (True, "half \ufffd and \ufffd")


def test_a_prompt_has_a_length(working: Workspace, agents: Scripted) -> None:
    agents.answer = lambda ask: "x" * 30_000
    workflow = create(working, step("one", output_key="o"), step("two", "{{ o }}" * 34))
    status = ended(working, trigger(working, workflow))
    assert status["error"] == "step 1 (two) failed: the prompt exceeds max length of 1000000"
    assert len(agents.asked) == 1
    fits = create(working, step("one", output_key="o"), step("two", "{{ o }}" * 33))
    assert ended(working, trigger(working, fits))["status"] == "completed"
    assert len(agents.asked[-1].prompt) == 990_000


def test_a_message_that_a_fault_ends_is_not_kept_as_running(
    working: Workspace, agents: Scripted
) -> None:
    def answer(ask: runtimes.AgentPrompt) -> str:
        if len(agents.asked) <= 4:
            raise RuntimeError("a fault of ours")
        return "at last"

    agents.answer = answer
    given = {"agent_slug": "eve", "message": "Hello"}
    for _ in range(4):
        assert "went wrong on our side" in working.value("send_message_to_agent", **given)["error"]
    assert working.value("send_message_to_agent", **given)["response"] == "at last"
    kept = records.listing(working.memory, messaging.KIND)
    assert [one.attrs["status"] for one in kept] == ["failed"] * 4 + ["completed"]


def test_an_output_for_which_the_context_has_no_room_fails_its_step(
    working: Workspace, agents: Scripted
) -> None:
    agents.answer = lambda ask: "x" * 30_000
    context = {"notes": "n" * 980_000}
    workflow = create(working, step("one", output_key="more"))
    status = ended(working, trigger(working, workflow, initial_context=context))
    assert status["status"] == status["steps"][0]["status"] == "failed"
    assert status["error"].startswith("step 0 (one) failed: the context has 1,01")
    assert len(agents.asked) == 1
    skipped = create(working, step("one", output_key="more", on_failure="skip"), step("two"))
    status = ended(working, trigger(working, skipped, initial_context=context))
    assert [one["status"] for one in status["steps"]] == ["failed", "completed"]


def test_a_step_is_retried_as_often_as_it_says(working: Workspace, agents: Scripted) -> None:
    tries: list[str] = []

    def answer(ask: runtimes.AgentPrompt) -> str:
        tries.append(ask.key)
        if len(tries) < 3:
            raise CommonplaceError("not yet")
        return "at last"

    agents.answer = answer
    workflow = create(working, step("one", on_failure="retry", max_retries=2))
    assert ended(working, trigger(working, workflow))["status"] == "completed"
    assert len(tries) == 3
    assert len(set(tries)) == 1  # what a try did before it failed, the next does not do again
    agents.answer = failing("Do it")
    status = ended(working, trigger(working, workflow))
    assert (status["status"], len(agents.asked)) == ("failed", 6)


def test_without_a_runtime_a_step_fails_clearly(tmp_path: Path) -> None:
    with at_work(tmp_path, None) as workspace:
        status = ended(workspace, trigger(workspace, create(workspace, step("one"))))
        assert status["error"] == "step 0 (one) failed: runtime client not configured"


def test_an_unknown_agent_fails_its_step(working: Workspace) -> None:
    workflow = create(working, step("one", agent_slug="nobody"))
    assert ended(working, trigger(working, workflow))["error"].endswith("agent not found")


def test_approval_is_automatic_unless_it_is_manual(
    working: Workspace,
) -> None:
    workflow = create(working, step("one", requires_approval=True))
    execution = trigger(working, workflow)
    assert ended(working, execution)["status"] == "completed"
    events = [event.kind for event in working.memory.events.all(subject=execution)]
    assert "workflow.step.approval_required" in events


def test_a_person_approves_by_rest_or_command(
    tmp_path: Path, agents: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    with at_work(tmp_path, agents, COMMONPLACE_WORKFLOW_APPROVAL="manual") as workspace:
        workflow = create(
            workspace, step("one"), step("two", requires_approval=True),
            step("three", requires_approval=True),
        )  # fmt: skip
        execution = trigger(workspace, workflow)

        def waits(count: int) -> bool:
            steps = workspace.do("show_execution", execution_id=execution)["steps"]
            return [one["status"] for one in steps] == [*["completed"] * count, "waiting_approval"]

        wait_until(lambda: waits(1), seconds=30)
        assert len(agents.asked) == 1
        workspace.do("approve_execution", execution_id=execution)
        wait_until(lambda: waits(2), seconds=30)
        command = ["workspace", "approve", "acme", execution, "--data", str(tmp_path)]
        assert app.run(command) == 0
        assert ended(workspace, execution)["status"] == "completed"
        assert len(agents.asked) == 3
        with pytest.raises(Conflict):
            workspace.do("approve_execution", execution_id=execution)
        assert app.run([*command[:1], "execution", *command[2:], "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["status"] == "completed"


def test_a_cancelled_execution_takes_no_further_step(working: Workspace, agents: Scripted) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer(ask: runtimes.AgentPrompt) -> str:
        asked.set()
        assert go_on.wait(30)
        return "too late"

    agents.answer = answer
    execution = trigger(working, create(working, step("one"), step("two")))
    assert asked.wait(30)
    working.do("cancel_execution", execution_id=execution)
    go_on.set()
    status = ended(working, execution)
    assert (status["status"], status["current_step"], status["error"]) == (
        "cancelled", 0, "cancelled",
    )  # fmt: skip
    assert [one["status"] for one in status["steps"]] == ["failed"]
    with pytest.raises(Conflict):
        working.do("cancel_execution", execution_id=execution)
    assert len(agents.asked) == 1


def test_a_step_is_not_retried_after_a_cancel(working: Workspace, agents: Scripted) -> None:
    def answer(ask: runtimes.AgentPrompt) -> str:
        if len(agents.asked) == 1:
            working.do("cancel_execution", execution_id=ask.key.split(":")[1])
            raise CommonplaceError("the agent is tired")
        return "fine"

    agents.answer = answer
    retried = step("one", on_failure="retry", max_retries=3)
    assert ended(working, trigger(working, create(working, retried)))["status"] == "cancelled"
    # Meanwhile the first one would have asked again.
    assert ended(working, trigger(working, create(working, step("two"))))["status"] == "completed"
    assert len(agents.asked) == 2


def test_a_cancel_in_the_midst_of_a_steps_end_is_not_lost(workspace: Workspace) -> None:
    """Whoever looks before it writes lets nobody write in between."""
    execution = trigger(workspace, create(workspace, step("one")))
    cancelled = threading.Thread(
        target=workspace.do, args=("cancel_execution",), kwargs={"execution_id": execution}
    )
    with exclusive(workspace.memory, "a step's end"):
        there = workflows.get_execution(workspace.memory, execution)
        cancelled.start()
        cancelled.join(timeout=0.3)
        assert cancelled.is_alive()
        records.change(workspace.memory, there, current_step=1)
    cancelled.join(timeout=30)
    status = workspace.value("check_workflow_status", execution_id=execution)
    assert (status["status"], status["current_step"]) == ("cancelled", 1)


def test_waiting_for_a_person_is_not_counted_as_time(
    tmp_path: Path, agents: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "MAX_DURATION", timedelta(seconds=1))
    with at_work(tmp_path, agents, COMMONPLACE_WORKFLOW_APPROVAL="manual") as workspace:
        execution = trigger(workspace, create(workspace, step("one", requires_approval=True)))

        def waits() -> bool:
            steps = workspace.do("show_execution", execution_id=execution)["steps"]
            return [one["status"] for one in steps] == ["waiting_approval"]

        wait_until(waits, seconds=30)
        time.sleep(1.2)
        workspace.do("approve_execution", execution_id=execution)
        assert ended(workspace, execution)["status"] == "completed"
        late = trigger(workspace, create(workspace, step("one"), step("two")))
        agents.answer = lambda _: time.sleep(1.2) or "late"  # type: ignore[func-returns-value]
        assert "took longer than" in ended(workspace, late)["error"]


def test_a_step_has_its_own_time(working: Workspace, agents: Scripted) -> None:
    times = (1, 7, 0, None, 1800)
    workflow = create(working, *(step(f"step {n}", timeout_secs=n) for n in times))
    ended(working, trigger(working, workflow))
    asked = [ask.seconds for ask in agents.asked]
    assert asked[:4] == [1.0, 7.0, 300.0, 300.0]
    assert 1700 < asked[4] <= 1800  # as much as the execution has left


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("[", "invalid steps JSON: "),
        ('{"name": "x"}', "invalid steps JSON: it must be an array of objects"),
        ("[]", "steps array must not be empty"),
        ([], "steps array must not be empty"),
        ('[{"name": "x"}]', "step 0: name, agent_slug, and prompt_template are required"),
        ([step("one"), step("two", on_failure="sulk")], "step 1: on_failure must be"),
        ([step("one", timeout_secs="long")], "step 0: timeout_secs must be a int"),
        ([step("one", timeout_secs=-1)], "step 0: timeout_secs must be 1 to 1800"),
        ([step("one"), step("two", timeout_secs=1801)], "step 1: timeout_secs must be 1 to 1800"),
        ([step("one", timeout_secs=2**62)], "step 0: timeout_secs must be 1 to 1800"),
        ([step("one", timeout_secs=True)], "step 0: timeout_secs must be a int"),
        ([step("one", max_retries=11)], "step 0: max_retries must be 0 to 10"),
        ([step("one")] * 101, "a workflow may have at most 100 steps"),
        ("x" * (128 * 1024 + 1), "steps exceeds maximum allowed size"),
        ([step("x" * 131_072)], "steps exceeds maximum allowed size"),
        (json.dumps([step("one \ud800")]), "'steps' is not valid Unicode"),
        (json.dumps([step("one \0")]), "'steps' contains a NUL character"),
    ],
)
def test_bad_steps_are_told_as_info(workspace: Workspace, steps: object, told: str) -> None:
    answer = workspace.value("create_workflow", name="Plan", steps=steps)
    assert answer["workflow_id"] == ""
    assert answer["info"].startswith(told)


def test_steps_are_measured_as_utf_8(workspace: Workspace) -> None:
    steps = [step("шаг " * 10_000)]
    for given in (steps, json.dumps(steps, ensure_ascii=False)):
        assert workspace.value("create_workflow", name="Plan", steps=given)["workflow_id"]


def test_what_is_wrong_is_told_as_info(workspace: Workspace) -> None:
    def told(tool: str, **given: Any) -> str:
        return str(workspace.value(tool, **given)["info"])

    assert told("create_workflow", name="x") == "name and steps are required"
    assert told("trigger_workflow") == "workflow_id is required"
    assert told("trigger_workflow", workflow_id="nothing") == "workflow not found"
    assert told("check_workflow_status") == "execution_id is required"
    assert told("check_workflow_status", execution_id="nothing") == "workflow execution not found"
    workflow = create(workspace, step("one"))
    for context in ("[", "[1]", '{"a": 1}'):
        answer = told("trigger_workflow", workflow_id=workflow, initial_context=context)
        assert answer.startswith("invalid initial_context JSON")
    answer = told("trigger_workflow", workflow_id=workflow, initial_context='{"a": "\\ud800"}')
    assert answer.startswith("'initial_context' is not valid Unicode")
    execution = trigger(workspace, workflow, initial_context={"a": "b"})
    other = workspace.at("other")
    assert other.value("trigger_workflow", workflow_id=workflow)["info"] == "workflow not found"
    foreign = other.value("check_workflow_status", execution_id=execution)
    assert (foreign["info"], foreign["status"]) == ("workflow execution not found", "")
    workspace.do("change_workflow", workflow_id=workflow, is_active=False)
    assert told("trigger_workflow", workflow_id=workflow) == "workflow is inactive"


def test_workflows_are_listed(workspace: Workspace) -> None:
    assert workspace.value("list_workflows") == {"workflows": [], "info": ""}
    workspace.value(
        "create_workflow", name="Plan", description="For planning", steps=[step("a"), step("b")]
    )
    (listed,) = workspace.value("list_workflows", include_inactive=True)["workflows"]
    assert listed.pop("created_at").endswith("Z")
    assert listed.pop("id")
    assert listed == {
        "name": "Plan", "description": "For planning", "is_active": True, "step_count": 2,
    }  # fmt: skip
    assert workspace.at("other").value("list_workflows")["workflows"] == []


def test_workflows_with_long_descriptions_are_listed(workspace: Workspace) -> None:
    for n in range(4):
        workspace.value(
            "create_workflow", name=f"Plan {n}", description="long " * 40_000, steps=[step("a")]
        )
    assert len(workspace.value("list_workflows")["workflows"]) == 4


def test_a_trigger_that_was_not_stored_starts_nothing(working: Workspace, agents: Scripted) -> None:
    workflow = create(working, step("one"))
    with contextlib.suppress(InvalidInput), working.memory.unit("given up"):
        call = Call(
            memory=working.memory, caller=working.caller, request_info=RequestInfo(),
            origin=working.memory.origin,
        )  # fmt: skip
        workflows.trigger_workflow(call, workflow_id=workflow)
        raise InvalidInput("no")
    ended(working, trigger(working, workflow))
    assert len(agents.asked) == 1


def test_rest_shows_approves_and_cancels(server: Server) -> None:
    token = server.token()
    steps = [step("one")]
    made = server.call(token, "create_workflow", {"name": "Plan", "steps": steps}).value
    begun = server.call(token, "trigger_workflow", {"workflow_id": made["workflow_id"]}).value
    path = f"/v1/workspaces/acme/executions/{begun['execution_id']}"
    with server.client(token) as client:

        def over() -> bool:
            return bool(client.get(path).json()["status"] == "failed")

        wait_until(over, seconds=30)
        assert "runtime client not configured" in client.get(path).json()["error"]
        assert client.post(f"{path}/approve").status_code == 409
        assert client.post(f"{path}/cancel").status_code == 409
        assert client.get("/v1/workspaces/acme/executions/nothing").status_code == 404
        workflow = f"/v1/workspaces/acme/workflows/{made['workflow_id']}"
        assert client.patch(workflow, json={"is_active": False}).json()["is_active"] is False


def called(tool: str, **arguments: Any) -> str:
    return f"CALL {json.dumps([tool, arguments])}"


def killed(path: Path, execution: str, *kills: str) -> list[str]:
    """Carry an execution out in processes that are killed; what the agents' log has."""
    log = path / "log"
    done = subprocess.run(
        [sys.executable, str(WORKER), str(path / "data"), "acme", execution, str(log), *kills],
        capture_output=True, text=True, timeout=300, env={**os.environ, postgres_engine.LEASE: "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def test_killed_at_every_boundary_and_inside_every_step_each_effect_is_there_once(
    tmp_path: Path,
) -> None:
    """R: ten steps of every kind, each with an effect of its own; four kills a step."""
    with opened(tmp_path / "data", None) as workspace:
        document = workspace.value(
            "create_artifact", title="Plan", content="One.", agent_slug="wally"
        )["artifact_id"]
        inner = create(workspace, step("inside", "inner"))
        wally = {"agent_slug": "wally"}
        effects = [
            called("memory_add_drawer", wing="w", room="r", content="The harbour closes at nine."),
            called("create_artifact", title="Notes", content="Draft.", **wally),
            called("update_artifact", artifact_id=document, content="Two.", **wally),
            called("review_artifact", artifact_id=document, outcome="commented", comments="Good.",
                   **wally),
            called("memory_kg_add", subject="Anna", predicate="likes", object="harbours"),
            called("memory_diary_write", agent_name="Wally", entry="A long day at the harbour."),
            called("create_agent_history", title="Planned", **wally),
            called("trigger_workflow", workflow_id=inner),
            called("send_message_to_agent", agent_slug="eve", message="Note it. "
                   + called("create_agent_history", title="Noted", agent_slug="eve")),
            called("create_workflow", name="Made by a step", steps=[step("one")]),
        ]  # fmt: skip
        kinds: list[dict[str, Any]] = [{} for _ in effects]
        kinds[1] = {"requires_approval": True}
        kinds[6] = {"on_failure": "retry", "max_retries": 2}
        kinds[7] = {"on_failure": "skip"}
        kinds[9] = {"on_failure": "retry", "max_retries": 1}
        tired = {6: "FAIL 2", 7: "FAIL 9"}
        steps = [
            step(f"step {n}", f"{'start' if n == 0 else '{{said}}'} {effect} {tired.get(n, '')}",
                 output_key="said", **kinds[n])
            for n, effect in enumerate(effects)
        ]  # fmt: skip
        execution = trigger(workspace, create(workspace, *steps))
    kills = [f"{when}:{n}" for n in range(10) for when in ("before", "asked", "acted", "after")]
    log = killed(tmp_path, execution, *kills, "")
    with opened(tmp_path / "data", None) as workspace:
        status = workspace.value("check_workflow_status", execution_id=execution)
        assert (status["status"], status["current_step"]) == ("completed", 10), status
        assert [one["status"] for one in status["steps"]] == [
            "failed" if n == 7 else "completed" for n in range(10)
        ]
        said = workflows.get_execution(workspace.memory, execution).attrs["context"]["said"]
        assert said == "start" + "".join(f"+{n}" for n in range(10) if n != 7)
        happened = [event.kind for event in workspace.memory.events.all(subject=execution)]
        assert happened.count("workflow.step.completed") == 10
        assert (happened.count("workflow.started"), happened.count("workflow.completed")) == (1, 1)
        assert found(workspace, document) == {
            "drawers": 2, "artifacts": 2, "version": 2, "reviews": 1, "triples": 1,
            "histories": ["Planned", "Noted"], "executions": 2, "messages": ["completed"],
            "workflows": 3,
        }  # fmt: skip
    runs = [log.count(f"asked {n}") for n in range(10)]
    # Once to die asked, once to die having acted, once to end; each try that failed is one more.
    assert runs == [3, 3, 3, 3, 3, 3, 5, 3, 3, 3]


def found(workspace: Workspace, document: str) -> dict[str, Any]:
    """All that the steps left behind."""
    memory = workspace.memory
    read = workspace.value("read_artifact", artifact_id=document)
    history = workspace.do("show_history")["history"]
    return {
        "drawers": workspace.value("memory_status")["total_drawers"],
        "artifacts": len(memory.artifacts.all()),
        "version": read["version"],
        "reviews": len(read["reviews"]),
        "triples": workspace.value("memory_kg_stats")["triples"],
        "histories": [one["title"] for one in reversed(history)],
        "executions": len(records.listing(memory, workflows.EXECUTION)),
        "messages": [row.attrs["status"] for row in records.listing(memory, messaging.KIND)],
        "workflows": len(workspace.value("list_workflows")["workflows"]),
    }


@pytest.mark.parametrize(
    "happens",
    [
        ["files:lose the notes"],
        ["files:lose the folder"],
        ["files:spoil the notes"],
        # The space is then older than what DBOS noted: there, the execution is over.
        ["files:copy the spaces", "", "files:put the spaces back"],
    ],
    ids=["lost", "lost with the folder", "unreadable", "newer"],
)
def test_work_goes_on_where_it_was_when_the_notes_of_dbos_are(
    happens: list[str], tmp_path: Path
) -> None:
    """The truth is in the space's rows: what is over is not done again, what is left is done."""
    drawer = called("memory_add_drawer", wing="w", room="r", content="The harbour closes at nine.")
    with opened(tmp_path / "data", None) as workspace:
        steps = [step(f"step {n}", drawer.replace("nine", str(n))) for n in range(4)]
        execution = trigger(workspace, create(workspace, *steps))
    log = killed(tmp_path, execution, "acted:2", *happens, "")
    with opened(tmp_path / "data", None) as workspace:
        status = workspace.value("check_workflow_status", execution_id=execution)
        assert (status["status"], status["current_step"]) == ("completed", 4), status
        assert workspace.value("memory_status")["total_drawers"] == 4
    assert [log.count(f"asked {n}") for n in range(2)] == [1, 1]


def test_what_cannot_be_begun_keeps_nothing_else_from_it(
    working: Workspace, agents: Scripted
) -> None:
    broken = working.at("broken")
    execution = trigger(broken, create(broken, step("one")))
    assert ended(broken, execution)["status"] == "completed"

    def dropped() -> bool:
        with contextlib.suppress(StorageUnavailable):  # while somebody still looks at it
            working.library.drop("broken")
            return True
        return False

    wait_until(dropped, seconds=30)
    working.library.file("broken").write_bytes(b"This is no database. " * 1_000)
    asked = {"space": "broken", "id": execution, "turn": 7}
    due = working.library.path / "workflows" / "due" / f"{execution}.7.json"
    due.write_text(json.dumps(asked))
    assert ended(working, trigger(working, create(working, step("two"))))["status"] == "completed"
    assert len(agents.asked) == 2


def test_a_step_that_a_fault_prevents_is_tried_again_and_then_told_as_failed(
    working: Workspace, agents: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "STEP_PAUSES", (0.0, 0.0, 0.0))
    faults: list[str] = []

    def answer(ask: runtimes.AgentPrompt) -> str:
        faults.append(ask.prompt)
        if len(faults) < 3 or ask.prompt == "never":
            raise RuntimeError("a fault of ours")
        return "at last"

    agents.answer = answer
    assert ended(working, trigger(working, create(working, step("one"))))["status"] == "completed"
    status = ended(working, trigger(working, create(working, step("one", "never"))))
    assert (status["status"], status["error"]) == (
        "failed", "internal server error; see the log",
    )  # fmt: skip
    assert [one["status"] for one in status["steps"]] == ["failed"]
    assert len(faults) == 6
