"""The team of agents over real HTTP: their configuration, its limits, and delegations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from commonplace.dialects.mama.platform import team
from commonplace.dialects.mama.platform.configuration import MASK
from commonplace.dialects.mama.platform.files import records
from conftest import wait_until
from dialects.being.model_server import model_server
from dialects.orchestrator.fake_model import FakeModel

from .conftest import Web, serving

FIELDS = {
    "id", "name", "display_name", "tier", "backend", "model", "enabled", "persona_file",
    "trigger_prefix", "bot_token", "slack_bot_token", "slack_app_token", "auto_respond_keywords",
    "cooldown_ms", "can_delegate", "effort", "tool_permissions",
}  # fmt: skip


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(tmp_path / "data", None) as made:
        yield made


def put(web: Web, id: str, body: Any) -> httpx.Response:
    return web.client.put(f"{web.url}/api/multi-agent/agents/{id}", json=body)


def agent(web: Web, id: str) -> dict[str, Any]:
    found = web.get("/api/multi-agent/agents").json()["agents"]
    return next(each for each in found if each["id"] == id)


def test_the_provided_team_is_listed(web: Web) -> None:
    found = web.get("/api/multi-agent/agents").json()["agents"]
    assert [each["id"] for each in found] == [
        "conductor", "developer", "reviewer", "architect", "pm"
    ]  # fmt: skip
    assert all(each.keys() == FIELDS for each in found)
    assert (found[0]["can_delegate"], found[2]["can_delegate"]) == (True, False)
    assert found[0]["bot_token"] is None and found[0]["cooldown_ms"] == 5_000
    assert web.get("/api/multi-agent/status").json() == {
        "enabled": False, "agents": [], "recentDelegations": [], "activeChains": 0
    }  # fmt: skip


def test_the_seeds_change_of_an_agent_is_accepted(web: Web) -> None:
    body = {
        "backend": "claude", "model": "claude-opus-4-5-20251101", "tier": 1, "enabled": True,
        "can_delegate": True,
    }  # fmt: skip
    answer = put(web, "reviewer", body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"success", "message"}
    assert body.items() <= agent(web, "reviewer").items()
    web.client.put(web.url + "/api/config", json={"multi_agent": {"enabled": True}})
    told = web.get("/api/multi-agent/status").json()
    assert told["enabled"] is True
    reviewer = next(each for each in told["agents"] if each["id"] == "reviewer")
    assert reviewer == {
        "id": "reviewer", "name": "reviewer", "tier": 1, "model": body["model"],
        "status": "online", "lastActivity": None,
    }  # fmt: skip


def test_tokens_of_agents_are_masked_and_kept(web: Web) -> None:
    put(web, "developer", {"bot_token": "s3cret-bot"})
    assert agent(web, "developer")["bot_token"] == MASK
    put(web, "developer", {"bot_token": MASK, "display_name": "Dev"})
    assert agent(web, "developer")["bot_token"] == MASK
    put(web, "developer", {"bot_token": ""})
    assert agent(web, "developer")["bot_token"] is None
    for file in web.library.path.rglob("*"):
        assert not file.is_file() or b"s3cret-bot" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("id", "body", "status", "code"),
    [
        ("a.b", {}, 400, "INVALID_AGENT_ID"),
        ("a" * 65, {}, 400, "INVALID_AGENT_ID"),
        ("nobody", {}, 404, "AGENT_NOT_FOUND"),
        ("pm", {"tier": 0}, 400, "VALIDATION_ERROR"),
        ("pm", {"tier": 4}, 400, "VALIDATION_ERROR"),
        ("pm", {"tier": True}, 400, "VALIDATION_ERROR"),
        ("pm", {"name": ""}, 400, "VALIDATION_ERROR"),
        ("pm", {"name": "n" * 101}, 400, "VALIDATION_ERROR"),
        ("pm", {"backend": "other"}, 400, "VALIDATION_ERROR"),
        ("pm", {"model": "gpt-5"}, 400, "VALIDATION_ERROR"),
        ("pm", {"backend": "codex-mcp", "model": "claude-x"}, 400, "VALIDATION_ERROR"),
        ("pm", {"effort": "huge"}, 400, "VALIDATION_ERROR"),
        ("pm", {"effort": "max"}, 400, "VALIDATION_ERROR"),
        ("pm", {"backend": "codex-mcp", "model": "o3", "effort": "low"}, 400, "VALIDATION_ERROR"),
        ("pm", {"cooldown_ms": -1}, 400, "VALIDATION_ERROR"),
        ("pm", {"enabled": "yes"}, 400, "VALIDATION_ERROR"),
        ("pm", {"persona_file": "/etc/passwd"}, 400, "VALIDATION_ERROR"),
        ("pm", {"persona_file": "../../x"}, 400, "VALIDATION_ERROR"),
        ("pm", {"auto_respond_keywords": "x"}, 400, "VALIDATION_ERROR"),
        ("pm", {"tool_permissions": {"allowed": ["discord_send"]}}, 400, "VALIDATION_ERROR"),
        ("pm", {"tool_permissions": {"other": []}}, 400, "VALIDATION_ERROR"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    web: Web, id: str, body: dict[str, Any], status: int, code: str
) -> None:
    before = web.get("/api/multi-agent/agents").json()
    answer = put(web, id, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["error"] is True
    assert web.get("/api/multi-agent/agents").json() == before


@pytest.mark.parametrize(
    "body",
    [
        {"tier": 3}, {"name": "n" * 100}, {"cooldown_ms": 0}, {"persona_file": "personas/pm.md"},
        {"persona_file": "workspace/pm.md"}, {"tool_permissions": {"allowed": ["mama_save"]}},
        {"tool_permissions": {"blocked": ["mama_search"], "allowed": ["*"]}},
        {"model": "claude-opus-4-6", "effort": "max"}, {"backend": "codex-mcp", "model": "codex-1"},
        {"auto_respond_keywords": ["bug"], "trigger_prefix": "!p"}, {"cooldown_ms": 2**31 - 1},
        {"tool_permissions": {"allowed": ["skill_read"]}},
    ],
)  # fmt: skip
def test_values_at_their_limits_are_accepted(web: Web, body: dict[str, Any]) -> None:
    assert put(web, "pm", body).status_code == 200
    assert body.items() <= agent(web, "pm").items()


def test_delegations_are_listed_newest_first(web: Web) -> None:
    for number in range(3):
        attrs = {
            "fromAgentId": "conductor", "toAgentId": "developer", "task": f"task {number}",
            "status": "active" if number == 2 else "completed", "depth": 1,
            "startedAt": 1_000 + number, "completedAt": None, "duration": None, "error": None,
            "chain": "c",
        }  # fmt: skip
        records.add(web.memory, team.DELEGATION, f"del_{number}", f"task {number}", attrs)

    told = web.get("/api/multi-agent/delegations", limit=2).json()
    assert told["count"] == 2
    assert [each["id"] for each in told["delegations"]] == ["del_2", "del_1"]
    assert told["delegations"][0] == {
        "id": "del_2", "description": "task 2", "category": "delegation", "wave": 1,
        "status": "active", "claimedBy": "developer", "claimedAt": 1_002, "completedAt": None,
        "result": None,
    }  # fmt: skip
    status = web.get("/api/multi-agent/status").json()
    assert status["activeChains"] == 1 and len(status["recentDelegations"]) == 3
    assert status["recentDelegations"][0]["fromAgentId"] == "conductor"
    for wrong in (0, 101):
        assert web.get("/api/multi-agent/delegations", limit=wrong).status_code == 400


# Running


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as made:
        yield made


@pytest.fixture
def staffed(tmp_path: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
    monkeypatch.setenv("COMMONPLACE_LLM_OPENAI_URL", model.url)
    with serving(tmp_path / "data", None) as made:
        made.client.put(made.url + "/api/config", json={"multi_agent": {"enabled": True}})
        yield made


def beat(web: Web, prompt: str) -> None:
    """Run a prompt, and wait until it is over."""
    web.post("/api/heartbeat", {"prompt": prompt})
    wait_until(
        lambda: web.get("/api/heartbeat").json()["last_execution"]["status"] != "running", 60
    )


def offered(model: FakeModel, number: int = 0) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[number].get("tools", [])}


def test_a_prefix_chooses_the_agent(staffed: Web, model: FakeModel) -> None:
    beat(staffed, "!reviewer look at this")
    assert "mama_search" in offered(model) and "mama_save" not in offered(model), "tier 3"
    beat(staffed, "!conductor lead")
    assert {"mama_save", "discord_send", "delegate"} <= offered(model, 1)
    spent = staffed.get("/api/tokens/by-agent").json()["agents"]
    assert {each["agent_id"] for each in spent} == {"reviewer", "conductor"}
    put(staffed, "pm", {"tool_permissions": {"allowed": ["skill_read", "Read"]}})
    beat(staffed, "!pm plan")
    assert offered(model, 2) == {"skill_read", "Read"}


def test_the_longest_prefix_chooses_the_agent(staffed: Web) -> None:
    put(staffed, "architect", {"trigger_prefix": "!p"})
    put(staffed, "developer", {"trigger_prefix": "!pmo"})
    for prompt in ("!pmo report", "!pm plan", "!pay"):
        beat(staffed, prompt)
    spent = staffed.get("/api/tokens/by-agent").json()["agents"]
    assert {each["agent_id"]: each["request_count"] for each in spent} == {
        "developer": 1, "pm": 1, "architect": 1,
    }  # fmt: skip


def test_permissions_narrow_what_an_agent_may_call(staffed: Web, model: FakeModel) -> None:
    put(staffed, "conductor", {"tool_permissions": {"allowed": ["mama_search", "Read"],
                                                    "blocked": ["Read"]}})  # fmt: skip
    beat(staffed, "!conductor lead")
    assert offered(model) == {"mama_search", "delegate"}


def test_a_task_is_delegated_and_written_down(staffed: Web, model: FakeModel) -> None:
    def reply(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"They said: {messages[-1]['content']}"
        if "write the code" in str(messages):
            return "Written."
        return [("delegate", {"agent_id": "developer", "task": "write the code"})]

    model.reply = reply
    beat(staffed, "!conductor ship it")

    (told,) = staffed.get("/api/multi-agent/delegations").json()["delegations"]
    assert (told["description"], told["claimedBy"]) == ("write the code", "developer")
    assert (told["status"], told["result"], told["wave"]) == ("completed", "Written.", 1)
    assert told["claimedAt"] <= told["completedAt"]
    (recent,) = staffed.get("/api/multi-agent/status").json()["recentDelegations"]
    assert (recent["fromAgentId"], recent["toAgentId"]) == ("conductor", "developer")
    assert recent["id"].startswith("del_") and recent["duration"] >= 0


def test_a_circle_of_delegations_is_refused(staffed: Web, model: FakeModel) -> None:
    def reply(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        target = "developer" if "start" in str(messages) else "conductor"
        return [("delegate", {"agent_id": target, "task": "go round"})]

    model.reply = reply
    beat(staffed, "!conductor start")
    found = staffed.get("/api/multi-agent/delegations").json()["delegations"]
    assert len(found) == 1 and "earlier in the chain" in found[0]["result"]


def test_a_delegation_that_was_cut_off_with_its_server_is_not_active(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    attrs = {
        "fromAgentId": "conductor", "toAgentId": "developer", "task": "t", "status": "active",
        "depth": 1, "startedAt": 1_000, "completedAt": None, "duration": None, "error": None,
        "chain": "c", "result": None,
    }  # fmt: skip
    records.add(web.memory, team.DELEGATION, "del_1", "t", attrs)
    assert web.get("/api/multi-agent/status").json()["activeChains"] == 1
    monkeypatch.setattr(team, "LONGEST_SECONDS", 0.0)

    told = web.get("/api/multi-agent/status").json()
    assert told["activeChains"] == 0
    assert told["recentDelegations"] == [
        {
            "id": "del_1", "fromAgentId": "conductor", "toAgentId": "developer", "task": "t",
            "status": "failed", "startedAt": 1_000, "completedAt": None, "duration": None,
            "error": "interrupted",
        }
    ]  # fmt: skip
    (listed,) = web.get("/api/multi-agent/delegations").json()["delegations"]
    assert listed["status"] == "failed"


@pytest.mark.parametrize("key", ["environment", "configuration"])
def test_the_effort_of_an_agent_is_sent_to_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    with model_server() as service:
        monkeypatch.setenv("COMMONPLACE_LLM_ANTHROPIC_URL", service.url)
        if key == "environment":
            monkeypatch.setenv("COMMONPLACE_LLM_PROVIDER", "anthropic")
            monkeypatch.setenv("COMMONPLACE_LLM_KEY", "sk-test")
            monkeypatch.setenv("COMMONPLACE_LLM_MODEL", "claude-sonnet-4-6")
        with serving(tmp_path / "data", None) as web:
            config = {
                "agent": {"effort": "low", "api_key": "sk-test"}, "multi_agent": {"enabled": True}
            }  # fmt: skip
            web.client.put(web.url + "/api/config", json=config).raise_for_status()
            assert put(web, "reviewer", {"effort": "high"}).status_code == 200
            assert put(web, "pm", {"model": "claude-opus-4-5"}).status_code == 200
            for prompt in ("Hello", "!reviewer look", "!pm plan"):
                beat(web, prompt)
    sent = [body.get("output_config", {}).get("effort") for body in service.bodies]
    assert sent == ["low", "high", None]
