"""Workflows: templates, outputs, failures, approval, cancelling; and kills at every boundary."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace.cli import app
from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import runtimes, workflows
from commonplace.dialects.orchestrator.running import running
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.storage.system import open_system
from conftest import wait_until

from .conftest import Server, Workspace, opened

WORKER = Path(__file__).with_name("workflow_worker.py")


def step(name: str, template: str = "Do it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "agent_slug": "wally", "prompt_template": template, **more}


class Scripted:
    """Agents that answer as they are told."""

    def __init__(self) -> None:
        self.asked: list[runtimes.Ask] = []
        self.answer: Callable[[runtimes.Ask], str] = lambda ask: f"done: {ask.prompt}"

    def converse(self, ask: runtimes.Ask) -> str:
        self.asked.append(ask)
        return self.answer(ask)


@contextlib.contextmanager
def at_work(path: Path, runtime: Scripted | None, **environ: str) -> Iterator[Workspace]:
    with opened(path, None) as workspace:
        runtimes.put(workspace.library, runtime)
        with contextlib.closing(open_system(path)) as system:
            setting = Setting(library=workspace.library, system=system, environ=environ)
            with running(setting):
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
            workflows.OVER
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


def failing(text: str) -> Callable[[runtimes.Ask], str]:
    def answer(ask: runtimes.Ask) -> str:
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


def test_a_step_is_retried_as_often_as_it_says(working: Workspace, agents: Scripted) -> None:
    tries: list[str] = []

    def answer(ask: runtimes.Ask) -> str:
        tries.append(ask.key)
        if len(tries) < 3:
            raise CommonplaceError("not yet")
        return "at last"

    agents.answer = answer
    workflow = create(working, step("one", on_failure="retry", max_retries=2))
    assert ended(working, trigger(working, workflow))["status"] == "completed"
    assert len(set(tries)) == 3
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

    def answer(ask: runtimes.Ask) -> str:
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
    with pytest.raises(Conflict):
        working.do("cancel_execution", execution_id=execution)
    assert len(agents.asked) == 1


def test_a_step_has_its_own_time(working: Workspace, agents: Scripted) -> None:
    workflow = create(working, step("one", timeout_secs=7), step("two", timeout_secs=0))
    ended(working, trigger(working, workflow))
    assert [round(ask.seconds) for ask in agents.asked] == [7, 300]


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
        ([step("one", max_retries=11)], "step 0: max_retries must be 0 to 10"),
        ([step("one")] * 101, "a workflow may have 100 steps"),
        ("x" * (128 * 1024 + 1), "steps exceeds maximum allowed size"),
        ([step("x" * 131_072)], "steps exceeds maximum allowed size"),
    ],
)
def test_bad_steps_are_told_as_info(workspace: Workspace, steps: object, told: str) -> None:
    answer = workspace.value("create_workflow", name="Plan", steps=steps)
    assert answer["workflow_id"] == ""
    assert answer["info"].startswith(told)


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


def test_a_trigger_that_was_not_stored_starts_nothing(working: Workspace, agents: Scripted) -> None:
    workflow = create(working, step("one"))
    with contextlib.suppress(InvalidInput), working.memory.unit("given up"):
        workflows.trigger(working.memory, workflow, "anna", "", "")
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


def test_a_workflow_killed_at_every_boundary_and_inside_steps_ends_the_same(
    tmp_path: Path,
) -> None:
    """R: ten steps; killed before, inside and after steps; each step's effect is there once."""
    steps = [step(f"step {n}", "start" if n == 0 else "{{said}}", output_key="said")
             for n in range(10)]  # fmt: skip
    with opened(tmp_path / "data", None) as workspace:
        execution = trigger(workspace, create(workspace, *steps))
    log = tmp_path / "log"
    kills = ["before:0", "inside:0"]
    for n in range(10):
        kills += ["inside:5"] if n == 5 else []
        kills.append(f"after:{n}")
    worker = [sys.executable, str(WORKER), str(tmp_path / "data"), "acme", execution, str(log)]
    for kill in [*kills, ""]:
        done = subprocess.run([*worker, kill], capture_output=True, text=True, timeout=120)
        assert done.returncode == (-signal.SIGKILL if kill else 0), (kill, done.stderr)
    with opened(tmp_path / "data", None) as workspace:
        status = workspace.value("check_workflow_status", execution_id=execution)
        assert (status["status"], status["current_step"]) == ("completed", 10)
        said = workflows.executed(workspace.memory, execution).attrs["context"]["said"]
        assert said == "start" + "".join(f"+{n}" for n in range(10))
        kinds = [event.kind for event in workspace.memory.events.all(subject=execution)]
        assert kinds.count("workflow.step.completed") == 10
        assert (kinds.count("workflow.started"), kinds.count("workflow.completed")) == (1, 1)
    asked = [int(line.split()[1]) for line in log.read_text().splitlines()]
    twice = [0, 5]  # those that were killed inside, before they had any effect
    assert sorted(asked) == sorted([*range(10), *twice])
