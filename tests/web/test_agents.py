"""Agents, walked as a person would: credentials, what waits, beings and the workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES
from commonplace.access.credentials import Grant
from commonplace.engine.binding import lease
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel
from server.harness import Running, running
from web.conftest import Opened, directory, memory_of, opened
from web.hostile import SHORT, send

WAIT = 60_000
"""Milliseconds for an answer of an agent, whose library is loaded by the first one."""


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModel]:
    with FakeModel() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
        patch.setenv("COMMONPLACE_LLM_OPENAI_URL", made.url)
        patch.setenv("COMMONPLACE_WORKFLOW_APPROVAL", "manual")
        yield made


@pytest.fixture(scope="module")
def server(model: FakeModel) -> Iterator[Running]:
    with directory() as data, running(data) as one:
        yield one


def test_a_token_is_made_shown_once_and_revoked(window: Opened, server: Running) -> None:
    page = window.open("/viewer/agents")
    page.get_by_role("button", name="Create a token").click()
    page.get_by_label("Name").fill(f"laptop {SHORT}")
    page.get_by_label("Allows").select_option("read-only")
    page.get_by_label("Lasts").select_option("30")
    page.get_by_role("button", name="Create", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be shown again")
    token = dialog.locator("code").first.inner_text()
    expect(dialog).to_contain_text("commonplace connect claude-code --transport http --url")
    dialog.get_by_role("button", name="Done").click()
    assert token not in page.content()
    client = server.client(token)
    told = client.request("GET", "/api/console/me").json
    assert (told["space"], told["scopes"], told["dialects"]) == (
        "default", ["read"], ["commonplace"],
    )  # fmt: skip
    with lease(memory_of(server)) as space, space.store.read() as rows:
        kept = rows.execute("SELECT result FROM answers").fetchall()
        audited = rows.execute("SELECT arguments, result FROM audit").fetchall()
    assert token not in str(kept) and token not in str(audited)
    assert any("laptop" in str(each) for each in kept)  # without the token it is there
    row = page.locator(".rows > li", has_text="laptop")
    expect(row).to_contain_text("read-only · commonplace")
    row.get_by_role("button", name=re.compile("Revoke")).click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.locator(".toasts")).to_contain_text("Revoked.")
    expect(row).to_have_count(0)
    assert client.request("GET", "/api/console/me").status == 401


def test_an_allowed_app_is_shown_with_its_last_use_and_revoked(
    window: Opened, server: Running
) -> None:
    grant = Grant(
        scopes=FULL_SCOPES, dialects=frozenset({"commonplace"}), client="a tidy app", family="f-1",
        oauth=True, lifetime=3_600,
    )  # fmt: skip
    tokens = [server.parts.tokens.credentials.create(grant).token for _ in range(2)]
    client = server.client(tokens[0])
    client.call("recall", {"query": "anything"})
    server.parts.tokens.credentials.store_last_use()
    page = window.open("/viewer/agents")
    apps = page.locator("section", has=page.get_by_role("heading", name="Allowed apps"))
    expect(apps.locator(".rows > li")).to_have_count(1)
    expect(apps).to_contain_text("a tidy app")
    expect(apps).to_contain_text("last used")
    apps.get_by_role("button", name="Revoke a tidy app").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(apps).to_contain_text("No app was allowed yet.")
    for token in tokens:
        assert server.client(token).request("GET", "/api/console/me").status == 401


def test_the_connect_line_is_copied(browser: Browser, server: Running) -> None:
    with opened(browser, server.port) as window:
        window.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = window.open("/viewer/agents")
        page.get_by_label("Client").select_option("codex")
        page.get_by_role("button", name="Copy commonplace connect codex").click()
        expect(page.locator(".toast")).to_contain_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == "commonplace connect codex"


def test_a_being_is_shown_and_talked_to(window: Opened, server: Running, model: FakeModel) -> None:
    client = server.client()
    being = send(client, "POST", "/v1/beings", {"name": "Aria"})["id"]
    root = f"/v1/beings/{being}"
    send(client, "PUT", f"{root}/soul", {"name": "Aria", "personality": f"calm {SHORT}"})
    send(client, "PUT", f"{root}/rules", {"title": "Tea first", "content": "Always."})
    send(client, "POST", f"{root}/notes", {"content": "Buy leaves"})
    day = {"target": "diary", "action": "append", "content": "A quiet day."}
    send(client, "POST", f"{root}/memory/update", day)
    noted = {"target": "notes", "action": "append", "content": "He likes green tea."}
    model.reply = lambda said: (
        f"Noted. {SHORT}" if said[-1]["role"] == "tool" else [("update_memory", noted)]
    )
    narrow = server.client(server.token("default", scopes=FULL_SCOPES))
    assert narrow.request("POST", f"{root}/talk", {"message": "Hello"}).status == 403
    page = window.open("/viewer/agents")
    page.locator("summary", has_text="Aria").click()
    card = page.locator("section.card", has=page.get_by_role("heading", name="Beings"))
    for text in ("calm <img", "Tea first", "Buy leaves", "A quiet day.", "not grouped yet"):
        expect(card).to_contain_text(text)
    card.get_by_label("Message to Aria").fill("I like green tea")
    card.get_by_role("button", name="Send").click()
    expect(card.get_by_role("log")).to_contain_text("Noted. <img", timeout=WAIT)
    asked = model.requests[-1]["messages"]
    assert any("Your name is Aria." in str(each["content"]) for each in asked)
    kept = client.request("GET", f"{root}/notes").json
    assert any("green tea" in note["content"] for note in kept)
    found = send(client, "POST", f"{root}/memory/search-history", {"query": "I like green tea"})
    assert "I like green tea" in found["result"]


def test_a_step_that_waits_is_approved_and_another_refused(
    window: Opened, server: Running, model: FakeModel
) -> None:
    model.reply = lambda _: "Done."
    client = server.client(path="/mcp/v1")
    root = "/v1/workspaces/current"
    send(client, "POST", f"{root}/agents", {"name": "Ivy", "slug": "ivy"})
    step = {
        "name": f"Publish {SHORT}", "agent_slug": "ivy", "prompt_template": "Send it out.",
        "requires_approval": True,
    }  # fmt: skip
    names = ("newsletter", "rumour")
    for name in names:
        made = client.call("create_workflow", {"name": name, "steps": json.dumps([step])})
        workflow = made.result["workflow_id"]
        client.call("trigger_workflow", {"workflow_id": workflow})
    listed = f"{root}/executions?waiting=true"
    wait_until(lambda: len(client.request("GET", listed).json["executions"]) == 2, seconds=60)
    page = window.open("/viewer/agents")
    waiting = page.locator("section", has=page.get_by_role("heading", name="Waiting for you"))
    expect(waiting).to_contain_text("Send it out.")
    for name, button, told in (
        ("newsletter", "Approve", "Approved."), ("rumour", "Refuse", "Refused"),
    ):  # fmt: skip
        row = waiting.locator("li", has_text=f"of {name}")
        row.get_by_role("button", name=re.compile(button)).click()
        expect(page.locator(".toast").last).to_contain_text(told)
        expect(row).to_have_count(0)

    def ended() -> dict[str, tuple[str, str]]:
        found = client.request("GET", f"{root}/executions").json["executions"]
        over = ("completed", "failed", "cancelled")
        return {
            one["name"]: (one["status"], one["error"]) for one in found if one["status"] in over
        }

    wait_until(lambda: len(ended()) == 2, seconds=120)
    assert ended() == {"newsletter": ("completed", ""), "rumour": ("cancelled", "cancelled")}
    page.locator("summary", has_text="Workflows").click()
    expect(page.locator("main")).to_contain_text("completed")


def test_an_agent_is_talked_to(window: Opened, server: Running, model: FakeModel) -> None:
    model.reply = lambda _: f"Hello. {SHORT}"
    client = server.client()
    agent = {"name": "Bo", "slug": "bo", "system_prompt": "You are Bo."}
    send(client, "POST", "/v1/workspaces/current/agents", agent)
    page = window.open("/viewer/agents")
    page.locator("summary", has_text="Bo").click()
    card = page.locator("section.card", has=page.get_by_role("heading", name="Workspace"))
    card.get_by_label("Message to Bo").fill("Are you there?")
    card.get_by_role("button", name="Send").click()
    expect(card.get_by_role("log")).to_contain_text("Hello. <img", timeout=WAIT)
    assert "You are Bo." in str(model.requests[-1]["messages"])


def test_sample_memories_are_shown_in_a_space_of_their_own_and_removed(
    window: Opened, server: Running
) -> None:
    mine = memory_of(server)
    before = mine.browse()[1]
    page = window.open()
    page.get_by_role("button", name="Look at sample memories").click()
    expect(page.locator(".demo")).to_contain_text("sample memories", timeout=WAIT)
    space = page.locator(".person .space bdi").inner_text()
    assert space.startswith("demo-") and memory_of(server, space).browse()[1] > 20
    page.get_by_role("link", name="Memories", exact=True).click()
    expect(page.locator(".results")).to_contain_text("Kontor")
    page.get_by_role("link", name="Graph", exact=True).click()
    expect(page.locator("main")).to_contain_text("works on")
    page.get_by_role("button", name="Remove them and go back").click()
    expect(page.locator(".toast").last).to_contain_text("are deleted", timeout=WAIT)
    expect(page.locator(".person")).to_contain_text("You, at this machine")
    assert space not in server.parts.library.spaces()
    assert mine.browse()[1] == before


def test_the_demo_needs_the_right_to_manage(browser: Browser, server: Running) -> None:
    for scopes, offered in ((ALL_SCOPES, 1), (FULL_SCOPES, 0)):
        token = server.token("tidy", scopes=scopes)
        with opened(browser, server.port) as window:
            window.context.request.post(
                f"{window.address}/sign-in", data={"token": token},
                headers={"origin": window.address},
            )  # fmt: skip
            page = window.open()
            button = page.get_by_role("button", name="Look at sample memories")
            expect(button).to_have_count(offered)
