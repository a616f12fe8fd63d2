"""Users, workspaces, agents, conversations: by tool, by REST, by command; and their history."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import READ_ONLY_SCOPES, Caller
from commonplace.cli import app
from commonplace.dialects.orchestrator import RESERVED
from commonplace.dialects.orchestrator.workflows import Executions
from commonplace.dialects.orchestrator.workspaces import (
    add_conversation,
    ensure_workspace,
    profiles,
    records,
)
from commonplace.errors import Conflict, InvalidInput, NotFound

from .conftest import Server, Workspace, served_at


def test_a_workspace_has_three_agents_to_begin_with(workspace: Workspace) -> None:
    info = workspace.value("get_workspace_info")
    assert (info["id"], info["name"]) == ("acme", "acme")
    assert info["created_at"].endswith("Z")
    assert "agents" not in info
    agents = workspace.value("get_workspace_info", include_agents=True)["agents"]
    assert [(one["name"], one["role"], one["slug"]) for one in agents] == [
        ("Manager", "manager", "manager"), ("Wally", "sub-agent", "wally"),
        ("Eve", "sub-agent", "eve"),
    ]  # fmt: skip
    assert all(set(one) == {"id", "name", "role", "slug"} for one in agents)


def test_a_workspace_is_created_and_undone_with_its_agents(workspace: Workspace) -> None:
    ensure_workspace(workspace.memory)
    assert len(records.listing(workspace.memory, "agent")) == 3
    assert workspace.memory.undo().undoes
    assert records.find(workspace.memory, "workspace") is None
    assert records.listing(workspace.memory, "agent") == []
    ensure_workspace(workspace.memory)
    assert len(records.listing(workspace.memory, "agent")) == 3


def test_a_profile_is_shown_with_and_without_preferences(workspace: Workspace) -> None:
    assert workspace.call("get_user_profile").error == "user not found"
    about = {
        "email": "a@example.org", "nickname": "an", "name": "Anna", "surname": "Berg",
        "country_code": "DE", "theme": "dark", "language": "de", "currency": "EUR",
    }  # fmt: skip
    workspace.do("create_user", id="anna", **about)
    profile = workspace.value("get_user_profile")
    assert profile.pop("created_at").endswith("Z")
    assert profile == {
        "id": "anna", "email": "a@example.org", "nickname": "an", "name": "Anna",
        "surname": "Berg", "country_code": "DE",
    }  # fmt: skip
    full = workspace.value("get_user_profile", include_preferences=True)
    assert full["preferences"] == {"theme": "dark", "language": "de", "currency": "EUR"}
    workspace.do("create_user", id="anna", theme="light")
    again = workspace.value("get_user_profile", include_preferences=True)
    assert (again["preferences"]["theme"], again["email"]) == ("light", "a@example.org")


def test_the_person_at_this_machine_has_a_profile_from_the_first_call_on(
    workspace: Workspace,
) -> None:
    workspace.caller = Caller(space="acme", user="anna", scopes=READ_ONLY_SCOPES)
    assert workspace.value("get_user_profile")["id"] == "anna"
    assert profiles(workspace.memory) == []  # a read-only caller stores nothing
    workspace.caller = Caller(space="acme", user="anna")
    profile = workspace.value("get_user_profile", include_preferences=True)
    assert profile.pop("created_at").endswith("Z")
    assert profile == {
        "id": "anna", "email": "", "nickname": "", "name": "", "surname": "", "country_code": "",
        "preferences": {"theme": "system", "language": "en", "currency": "USD"},
    }  # fmt: skip
    assert workspace.value("get_user_profile", include_preferences=True)["id"] == "anna"
    assert len(profiles(workspace.memory)) == 1
    workspace.do("create_user", id="anna", name="Anna", language="de")
    again = workspace.value("get_user_profile", include_preferences=True)
    preferences = {"theme": "system", "language": "de", "currency": "USD"}
    assert (again["name"], again["preferences"]) == ("Anna", preferences)


def test_conversations_are_listed_the_last_spoken_in_first(workspace: Workspace) -> None:
    assert workspace.value("list_conversations") == {"conversations": []}
    first = workspace.do("create_conversation", title="First")
    second = workspace.do("create_conversation", title="Second", type="agent", agent_slug="eve")
    workspace.do("add_message", conversation_id=first["id"], text="Hello there")
    listed = workspace.value("list_conversations", include_archived=True)["conversations"]
    assert [one["title"] for one in listed] == ["First", "Second"]
    assert set(listed[0]) == {"id", "title", "type", "agent_id", "created_at", "updated_at"}
    assert (listed[0]["type"], listed[0]["agent_id"]) == ("swarm", "")
    assert (listed[1]["type"], bool(listed[1]["agent_id"])) == ("agent", True)
    assert listed[1]["id"] == second["id"]


def test_many_conversations_are_listed(workspace: Workspace) -> None:
    with workspace.memory.unit("many"):
        for n in range(900):
            add_conversation(workspace.memory, f"{n} ".ljust(500, "t"))
    assert len(workspace.value("list_conversations")["conversations"]) == 900


def test_messages_are_found_by_a_part_of_their_text(workspace: Workspace) -> None:
    talk = workspace.do("create_conversation", title="Talk")["id"]
    other = workspace.do("create_conversation", title="Other")["id"]
    for n in range(60):
        role = {"role": "agent", "agent_slug": "eve"} if n % 2 else {}
        workspace.do("add_message", conversation_id=talk, text=f"The HARBOUR, part {n}", **role)
    workspace.do("add_message", conversation_id=other, text="Another harbour")
    workspace.do("add_message", conversation_id=talk, text="harbour " + "x" * 600)
    answer = workspace.value("search_past_messages", conversation_id=talk, query="arbour")
    assert answer["count"] == 20
    newest, following = answer["messages"][:2]
    assert set(newest) == {"id", "role", "text", "created_at"}
    assert newest["text"] == ("harbour " + "x" * 600)[:500] + "..."
    assert (following["text"], following["role"]) == ("The HARBOUR, part 59", "agent")
    for asked, given in ((1, 1), (0, 20), (50, 50), (51, 50)):
        found = workspace.value(
            "search_past_messages", conversation_id=talk, query="harbour", limit=asked
        )
        assert found["count"] == given
    nothing = workspace.value("search_past_messages", conversation_id=talk, query="zebra")
    assert nothing == {"messages": [], "count": 0}


def test_a_conversation_of_another_workspace_is_not_found(workspace: Workspace) -> None:
    talk = workspace.at("other").do("create_conversation", title="Theirs")["id"]
    for unknown in (talk, "nowhere"):
        error = workspace.call("search_past_messages", conversation_id=unknown, query="x").error
        assert error == "conversation not found in this workspace"
    missing = workspace.call("search_past_messages", query="x").error
    assert missing == "conversation_id and query are required"


def test_an_agents_history_is_kept(workspace: Workspace) -> None:
    talk = workspace.do("create_conversation", title="Talk")["id"]
    given = {"title": "Shipped", "subtitle": "Version 2"}
    answer = workspace.as_agent("eve", talk).value(
        "create_agent_history", agent_slug="wally", **given
    )
    assert answer == {"created": True, "info": "agent history created"}
    workspace.value("create_agent_history", agent_slug="eve", title="Slept")
    (slept, shipped) = workspace.do("show_history")["history"]
    assert shipped.pop("created_at").endswith("Z")
    assert shipped == {"agent_slug": "wally", **given, "conversation_id": talk}
    assert slept["title"] == "Slept"
    assert [
        one["title"] for one in workspace.do("show_history", agent_slug="wally")["history"]
    ] == ["Shipped"]


def test_what_is_wrong_with_a_history_is_told_as_info(workspace: Workspace) -> None:
    def told(**given: str) -> dict[str, Any]:
        return workspace.value("create_agent_history", **given)

    assert told(agent_slug="eve") == {"created": False, "info": "title is required"}
    assert told(title="x")["info"] == "agent_id or agent_slug is required"
    assert told(title="x", agent_slug="nobody")["info"] == "agent not found"
    assert told(title="x", agent_id="nobody")["info"] == "agent not found"
    assert told(title="x" * 500, agent_slug="eve")["created"] is True
    assert told(title="x" * 501, agent_slug="eve")["created"] is False
    theirs = workspace.at("other").do("create_agent", name="Zoe")["id"]
    assert told(title="x", agent_id=theirs)["info"] == "agent not found"
    unknown = told(title="x", agent_slug="eve", conversation_id="nowhere")
    assert unknown["info"] == "conversation not found in this workspace"


def test_the_history_has_the_calls_of_the_audit(workspace: Workspace) -> None:
    workspace.as_agent("wally").value("memory_status")
    workspace.as_agent("eve").call("memory_search")
    calls = workspace.do("show_history", agent_slug="eve")["calls"]
    assert [(one["tool_name"], one["success"]) for one in calls] == [("memory_search", False)]
    assert set(calls[0]) == {
        "id", "tool_name", "input", "output", "user_id", "session_id", "success",
        "error_message", "duration_ms", "remote_addr", "created_at",
    }  # fmt: skip
    everything = workspace.do("show_history")["calls"]
    assert {"memory_status", "memory_search"} <= {one["tool_name"] for one in everything}
    before = workspace.do("show_history", before=calls[0]["id"])["calls"]
    assert [one["tool_name"] for one in before] == ["memory_status"]


def test_agents_are_checked(workspace: Workspace) -> None:
    made = workspace.do("create_agent", name="Data Bot 2", model="m", system_prompt="You are.")
    assert (made["slug"], made["role"], made["model"]) == ("data-bot-2", "sub-agent", "m")
    with pytest.raises(Conflict):
        workspace.do("create_agent", name="Data Bot 2")
    with pytest.raises(InvalidInput):
        workspace.do("create_agent", name="X", slug="No Slug")
    long = workspace.do("create_agent", name="x" * 63 + " and more")
    assert long["slug"] == "x" * 63
    with pytest.raises(InvalidInput):
        workspace.do("create_agent", name="X", role="emperor")
    with pytest.raises(InvalidInput):
        workspace.do("create_conversation", title="X", type="agent")
    with pytest.raises(NotFound):
        workspace.do("create_conversation", title="X", type="agent", agent_slug="nobody")


@pytest.mark.parametrize("slug", ["user", "system"])
def test_no_agent_speaks_as_the_user_or_the_system(workspace: Workspace, slug: str) -> None:
    for given in ({"name": slug.title()}, {"name": "Bot", "slug": slug}):
        with pytest.raises(InvalidInput, match="slug must not be user or system"):
            workspace.do("create_agent", **given)


def test_what_a_workspace_is_made_of_is_not_found_by_searches(workspace: Workspace) -> None:
    workspace.do("create_agent", name="Lighthouse", system_prompt="You are the lighthouse.")
    workspace.do("create_user", id="lighthouse")
    assert workspace.value("memory_search", query="lighthouse")["count"] == 0
    talk = workspace.do("create_conversation", title="Lighthouse")["id"]
    workspace.do("add_message", conversation_id=talk, text="The lighthouse is lit.")
    (found,) = workspace.value("memory_search", query="lighthouse")["results"]
    assert (found["content"], found["room"]) == ("The lighthouse is lit.", "message")


def test_rest_does_all_of_it(server: Server) -> None:
    with server.client(server.token()) as client:

        def post(path: str, **body: Any) -> Any:
            answer = client.post(f"/v1/workspaces/acme{path}", json=body)
            assert answer.status_code == 201, answer.text
            return answer.json()

        def get(path: str) -> Any:
            answer = client.get(f"/v1/workspaces/acme{path}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert client.get("/v1/workspaces").json()["workspaces"][0]["id"] == "acme"
        assert len(get("")["agents"]) == 3
        assert post("/agents", name="Zoe")["slug"] == "zoe"
        assert [one["slug"] for one in get("/agents")["agents"]][-1] == "zoe"
        assert post("/users", id="anna", email="a@b.c")["email"] == "a@b.c"
        assert [one["id"] for one in get("/users")["users"]] == ["anna"]
        talk = post("/conversations", title="Talk")["id"]
        assert get("/conversations")["conversations"][0]["id"] == talk
        said = post(f"/conversations/{talk}/messages", text="Hello there")
        assert (said["role"], said["text"]) == ("user", "Hello there")
        assert get(f"/conversations/{talk}/messages?limit=1")["messages"] == [said]
        assert get("/history?limit=2")["calls"][0]["tool_name"] == "list_messages"
        assert get("/agents/zoe/history")["calls"] == []
        assert get("/wake-up") == {"wake_up": ""}


def test_rest_refuses_what_is_wrong(server: Server) -> None:
    with server.client(server.token()) as client:

        def status(method: str, path: str, **more: Any) -> int:
            return client.request(method, f"/v1/workspaces{path}", **more).status_code

        assert status("GET", "/other") == 404
        assert status("GET", "/other/agents") == 404
        assert status("POST", "/acme/agents", json={}) == 400
        assert status("POST", "/acme/agents", json=[1]) == 400
        assert status("POST", "/acme/agents", content="{", headers={
            "content-type": "application/json"}) == 400  # fmt: skip
        assert status("POST", "/acme/agents", json={"name": "Eve"}) == 409
        assert status("GET", "/acme/conversations/nowhere/messages") == 404
        assert status("GET", "/acme/history?limit=x") == 400
        assert status("DELETE", "/acme") == 405
        assert status("POST", "", json={"id": "new"}) == 403
    with server.client() as nobody:
        answer = nobody.get("/v1/workspaces/acme")
        assert (answer.status_code, answer.text) == (401, "missing authorization")


def test_an_administrator_founds_workspaces_over_rest(server: Server) -> None:
    from commonplace.access.caller import ALL_SCOPES
    from commonplace.access.credentials import Grant

    grant = Grant(user="root", scopes=ALL_SCOPES, dialects=frozenset({"orchestrator"}))
    token = server.made.parts.tokens.credentials.create(grant).token
    with server.client(token) as client:
        made = client.post("/v1/workspaces", json={"id": "new", "name": "Brand new"})
        assert (made.status_code, made.json()["name"]) == (201, "Brand new")
        assert client.post("/v1/workspaces", json={"id": "new"}).status_code == 409
        assert client.post("/v1/workspaces", json={"id": "No Way"}).status_code == 400
        listed = client.get("/v1/workspaces").json()["workspaces"]
        assert "new" in {one["id"] for one in listed}
    info = server.call(server.token("anna", "new"), "get_workspace_info", {}).value
    assert info["name"] == "Brand new"


def run(data: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "commonplace.cli", *command, "--data", str(data)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_two_commands_lead_from_nothing_to_a_working_token(tmp_path: Path) -> None:
    run(tmp_path, "workspace", "create", "acme", "--user", "anna", "--email", "a@b.c")
    token = run(
        tmp_path, "token", "create", "--dialect", "orchestrator", "--space", "acme",
        "--user", "anna",
    ).strip()  # fmt: skip
    with served_at(tmp_path) as server:
        assert server.call(token, "get_user_profile", {}).value["email"] == "a@b.c"
        assert server.call(token, "get_workspace_info", {}).value["id"] == "acme"


def test_the_command_line_does_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(*command: str) -> list[Any]:
        assert app.run([*command, "--json", "--data", str(tmp_path)]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    lines("workspace", "create", "acme", "--user", "anna")
    assert [one["id"] for one in lines("workspace", "list")] == ["acme"]
    lines("workspace", "add-user", "acme", "bert", "--name", "Bert")
    assert [one["id"] for one in lines("workspace", "users", "acme")] == ["anna", "bert"]
    lines("workspace", "add-agent", "acme", "Zoe", "--model", "m")
    assert [one["slug"] for one in lines("workspace", "agents", "acme")] == [
        "manager", "wally", "eve", "zoe",
    ]  # fmt: skip
    (talk,) = lines("workspace", "add-conversation", "acme", "Talk", "--agent", "zoe")
    lines("workspace", "say", "acme", talk["id"], "Hello there")
    lines("workspace", "say", "acme", talk["id"], "Hello yourself", "--agent", "zoe")
    said = lines("workspace", "messages", "acme", talk["id"])
    assert [(one["role"], one["text"]) for one in said] == [
        ("user", "Hello there"), ("agent", "Hello yourself"),
    ]  # fmt: skip
    assert lines("workspace", "conversations", "acme")[0]["type"] == "agent"


def test_fields_of_a_profile_that_are_set_at_once_are_all_set(workspace: Workspace) -> None:
    fields = ("email", "nickname", "name", "surname", "theme", "language", "currency")
    ready = threading.Barrier(len(fields))

    def put(field: str) -> None:
        ready.wait(20)
        workspace.do("create_user", id="max", **{field: f"of {field}"})

    with ThreadPoolExecutor(len(fields)) as threads:
        list(threads.map(put, fields))
    (shown,) = (one for one in workspace.do("list_users")["users"] if one["id"] == "max")
    told = {**shown, **shown["preferences"]}
    assert {field: told[field] for field in fields} == {field: f"of {field}" for field in fields}


def test_an_identity_that_is_set_at_once_is_one_of_those_set(workspace: Workspace) -> None:
    ready = threading.Barrier(6)

    def put(number: int) -> str:
        ready.wait(20)
        return str(workspace.value("memory_set_identity", content=f"We are {number}.")["info"])

    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(put, range(6))) == {"identity set"}


def test_history_gives_the_newest_events_first(workspace: Workspace) -> None:
    for number in range(7):
        workspace.value("create_agent_history", agent_slug="eve", title=f"t{number}")
    workspace.value("create_agent_history", agent_slug="wally", title="other")
    shown = workspace.do("show_history", agent_slug="eve", limit=3)["history"]
    assert [each["title"] for each in shown] == ["t6", "t5", "t4"]


@pytest.mark.parametrize("kind", sorted(RESERVED.records))
def test_a_memory_that_others_called_so_is_no_record(workspace: Workspace, kind: str) -> None:
    """A memory can have any kind, and an archived one is where records are."""

    def told() -> list[Any]:
        return [
            workspace.do("list_agents"), workspace.do("list_users"),
            workspace.do("all_conversations"), workspace.value("list_workflows"),
        ]  # fmt: skip

    step = {"name": "s", "agent_slug": "manager", "prompt_template": "p"}
    workspace.do("create_agent", name="Zoe")  # with it, the workspace is founded
    workspace.value("create_workflow", name="w", steps=[step])
    before = told()
    stray = workspace.memory.remember("a stray", kind=kind, tags=["running"])
    workspace.memory.forget(stray.id)
    assert told() == before
    assert list(Executions(workspace.library).unfinished(lambda: False)) == []
    for tool, name in (
        ("trigger_workflow", "workflow_id"),
        ("check_workflow_status", "execution_id"),
        ("search_past_messages", "conversation_id"),
    ):
        given = {name: stray.id, "query": "x"} if "search" in tool else {name: stray.id}
        assert "not found" in workspace.call(tool, **given).text
