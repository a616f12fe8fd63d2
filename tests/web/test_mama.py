"""MAMA's rooms and the chat in a real browser: each one's main path, and who is offered them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES
from dialects.orchestrator.fake_model import FakeModel
from server.harness import Running, running
from web.conftest import DESKTOP, PHONE, Opened, accessible, directory, opened

WAIT = 60_000
"""Milliseconds for an answer of an agent, whose library is loaded by the first one."""
HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:alert(2)) \u202egnp"


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModel]:
    with FakeModel() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
        patch.setenv("COMMONPLACE_LLM_OPENAI_URL", made.url)
        for name in ("DISCORD_URL", "SLACK_URL", "GITHUB_API_URL", "GITHUB_RAW_URL"):
            patch.setenv(f"COMMONPLACE_{name}", "http://127.0.0.1:9")
        yield made


@pytest.fixture(scope="module")
def server(model: FakeModel) -> Iterator[Running]:
    """A server with something in each of MAMA's rooms, also what a stranger would write."""
    with directory() as data, running(data) as one:
        send = httpx.Client(base_url=f"http://127.0.0.1:{one.port}", timeout=30)
        with send:
            for topic in ("auth_strategy", "caching"):
                body = {"topic": topic, "decision": HOSTILE, "reasoning": HOSTILE}
                assert send.post("/api/mama/save", json=body).status_code == 200
            send.post("/api/checkpoint/save", json={"summary": HOSTILE})
            job = {"name": HOSTILE, "cron_expr": "0 * * * *", "prompt": "Check"}
            send.post("/api/cron", json=job)
            skill = {"name": "hostile", "content": f"# {HOSTILE}\n\n{HOSTILE}"}
            assert send.post("/api/skills", json=skill).status_code == 201
        folder = data / "mama" / "workspace" / "playgrounds"
        folder.mkdir(parents=True)
        page = "<p id=p>Hello</p><script>p.textContent = window.origin</script>"
        (folder / "lab.html").write_text(page)
        yield one


def test_the_chat_is_accessible_in_both_themes_and_widths(window: Opened) -> None:
    looks: tuple[tuple[Literal["light", "dark"], ViewportSize], ...]
    looks = (("light", DESKTOP), ("dark", PHONE))
    for theme, size in looks:
        page = window.open("/viewer/dashboard", theme=theme, size=size)
        page.get_by_role("button", name="Chat", exact=True).click()
        expect(page.get_by_role("complementary", name="Chat")).to_contain_text("Connected.")
        accessible(page, theme)


def test_a_job_is_run_from_the_dashboard(window: Opened, model: FakeModel) -> None:
    page = window.open("/viewer/dashboard")
    jobs = page.locator("section", has=page.get_by_role("heading", name="Jobs"))
    expect(jobs).to_contain_text("<img src=x onerror=alert(1)>")
    jobs.get_by_role("button").first.click()
    expect(page.locator(".toast")).to_contain_text("runs.")


def test_a_decision_is_saved_found_and_given_an_outcome(window: Opened) -> None:
    page = window.open("/viewer/decisions")
    page.get_by_role("button", name="Save a decision").click()
    page.get_by_label("Topic", exact=True).last.fill("tea")
    page.get_by_label("Decision", exact=True).fill("Green tea")
    page.get_by_label("Reasoning").fill("It is calm.")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".cards")).to_contain_text("Green tea")
    page.get_by_label("Topic", exact=True).select_option("tea")
    expect(page).to_have_url(f"{window.address}/viewer/decisions?topic=tea")
    expect(page.locator(".cards > li")).to_have_count(1)
    page.get_by_role("button", name="Open the decision on tea").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It is calm.")
    dialog.get_by_label("Outcome").select_option("partial")
    dialog.get_by_role("button", name="Save the outcome").click()
    expect(page.locator(".cards")).to_contain_text("partial")
    link = page.get_by_role("link", name="Export CSV")
    assert link.get_attribute("download") == "decisions.csv"
    address = f"{window.address}{link.get_attribute('href')}"
    assert "Green tea" in httpx.get(address).text


def test_decisions_are_drawn_by_topic_with_their_outcomes_and_relations(window: Opened) -> None:
    with httpx.Client(base_url=window.address) as client:
        for decision, outcome in (("Oak", "failed"), ("Larch", "success")):
            body = {"topic": "boats", "decision": decision, "reasoning": "It floats."}
            saved = client.post("/api/mama/save", json=body).json()["id"]
            client.post("/graph/update", json={"id": saved, "outcome": outcome})
    page = window.open("/viewer/decisions?topic=boats")
    canvas = page.locator("canvas")
    expect(canvas).to_have_attribute("data-drawn", "2")
    legend = page.locator(".picture-legend li")
    expect(legend).to_have_text(["boats", "supersedes", "success", "failed"])
    box = canvas.bounding_box()
    assert box is not None  # the first decision is below the middle, by its ring's radius
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 2 + 30})
    expect(page.get_by_role("dialog")).to_contain_text("It floats.")
    page.keyboard.press("Escape")
    page.get_by_label("Outcome").select_option("FAILED")
    expect(page.locator(".cards > li")).to_have_count(1)
    expect(canvas).to_have_count(0)  # one decision needs no picture


def test_a_skill_is_written_turned_off_and_uninstalled(window: Opened) -> None:
    page = window.open("/viewer/skills")
    expect(page.locator(".grid")).to_contain_text("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="New skill").click()
    page.get_by_label("Name").fill("../evil")
    page.get_by_label("Text").fill("# Brewing\n\nHow to brew tea.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("dialog .problem")).to_contain_text("letters")
    page.get_by_label("Name").fill("brewing")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".grid")).to_contain_text("How to brew tea.")
    page.get_by_role("button", name="Turn Brewing off").click()
    expect(page.get_by_role("button", name="Turn Brewing on")).to_be_visible()
    page.get_by_role("button", name="Open Brewing").click()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Text").fill("# Brewing\n\nChanged.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".grid")).to_contain_text("Changed.")
    page.get_by_role("button", name="Uninstall Brewing").click()
    page.get_by_role("dialog").get_by_role("button", name="Uninstall").click()
    expect(page.get_by_role("button", name="Open Brewing")).to_have_count(0)
    page.get_by_role("button", name="From GitHub").click()
    page.get_by_label("Address").fill("https://github.com/someone/skill")
    page.get_by_role("button", name="Install", exact=True).click()
    expect(page.locator("dialog .problem")).to_contain_text("GitHub cannot be reached")
    window.problems.clear()  # the browser reports each request that was refused


def test_a_page_of_an_agent_runs_in_a_frame_without_our_rights(window: Opened) -> None:
    page = window.open("/viewer/playground")
    page.get_by_role("link", name="lab").click()
    expect(page.locator("iframe")).to_have_attribute("sandbox", "allow-scripts")
    expect(page.frame_locator("iframe").locator("p")).to_have_text("null")  # an origin of its own
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".empty")).to_contain_text("No pages yet")


def test_settings_are_saved_and_a_secret_is_never_shown(window: Opened, server: Running) -> None:
    page = window.open("/viewer/settings")
    page.get_by_text("Discord", exact=True).click()
    part = page.locator("details", has=page.get_by_role("heading", name="Discord"))
    part.get_by_label("Send to Discord").check()
    part.get_by_label("Bot token").fill("s3cret-of-discord")
    part.get_by_label("Channel").fill("123")
    part.get_by_role("button", name="Save").click()
    expect(page.locator(".toast").last).to_contain_text("Saved.")
    shown = httpx.get(f"{window.address}/api/config").json()["discord"]
    assert (shown["enabled"], shown["default_channel_id"]) == (True, "123")
    part = page.locator("details", has=page.get_by_role("heading", name="Discord"))
    page.get_by_text("Discord", exact=True).click()
    expect(part).to_contain_text("One is stored.")
    assert "s3cret-of-discord" not in page.content()
    part.get_by_role("button", name="Save").click()  # nothing typed keeps it
    expect(page.locator(".toast").last).to_contain_text("Saved.")
    kept = httpx.get(f"{window.address}/api/config").json()["discord"]["token"]
    assert kept == "***[redacted]***"
    page.get_by_text("Discord", exact=True).click()
    part.get_by_label("Remove the stored one").check()
    part.get_by_role("button", name="Save").click()
    expect(page.locator(".toast").last).to_contain_text("Saved.")
    page.get_by_role("button", name="Add a job").click()
    page.get_by_label("Name").fill("Water the plants")
    page.get_by_label("When").fill("nonsense")
    page.get_by_label("Prompt").fill("Water them")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("dialog .problem")).to_contain_text("five fields")
    page.get_by_label("When").fill("@daily")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Turn Water the plants off").click()
    expect(page.get_by_role("button", name="Turn Water the plants on")).to_be_visible()
    page.get_by_role("button", name="Delete Water the plants").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Delete Water the plants")).to_have_count(0)
    window.problems.clear()  # the browser reports the request that was refused


def test_setup_goes_through_seven_steps_and_tests_the_model(
    window: Opened, model: FakeModel
) -> None:
    model.reply = lambda _: "ready"
    page = window.open("/setup", size=PHONE)
    titles = ["Where the data is", "Access", "Model", "Discord and Slack", "Heartbeat",
              "Connect a client", "Done"]  # fmt: skip
    for number, title in enumerate(titles, 1):
        expect(page.locator("section h2")).to_have_text(f"{number}. {title}")
        if title == "Model":
            page.get_by_label("Requests a run").fill("7")
            page.get_by_role("button", name="Save").click()
            expect(page.locator(".toast").last).to_contain_text("Saved.")
            page.get_by_role("button", name="Test the model").click()
            expect(page.locator(".test")).to_contain_text("answered: ready", timeout=WAIT)
        if number < 7:
            page.get_by_role("button", name="Next").click()
    assert httpx.get(f"{window.address}/api/config").json()["agent"]["max_turns"] == 7
    page.get_by_role("link", name="Open the viewer").click()
    expect(page).to_have_url(f"{window.address}/viewer")


def answers(model: FakeModel, told: str) -> None:
    decision = {"type": "decision", "topic": "t", "decision": "d", "reasoning": HOSTILE}
    model.reply = lambda messages: (
        told if messages[-1]["role"] == "tool" else [("mama_save", decision)]
    )


def test_a_chat_shows_tools_and_the_answer_and_is_there_after_a_reload(
    window: Opened, model: FakeModel
) -> None:
    answers(model, f"Saved. {HOSTILE}")
    page = window.open()
    page.get_by_role("button", name="Chat", exact=True).click()
    chat = page.get_by_role("complementary", name="Chat")
    expect(chat).to_contain_text("Connected.")
    page.get_by_label("Files to attach").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"words"}
    )
    expect(chat.get_by_label("Attached files")).to_contain_text("notes.txt")
    page.get_by_label("Message").fill("Remember this")
    page.keyboard.press("Enter")
    expect(chat.locator(".tool")).to_contain_text("mama_save", timeout=WAIT)
    expect(chat.locator(".tool .chip")).to_have_text("done")
    expect(chat.locator(".agent-line")).to_contain_text("Saved. <img", timeout=WAIT)
    expect(chat.locator(".agent-line .unseen")).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Chat", exact=True).click()
    expect(chat.locator(".person-line")).to_contain_text("Remember this")
    expect(chat.locator(".agent-line")).to_contain_text("Saved.")
    for line, answer in (
        ("/save tea | Green | Calm", "Decision saved successfully"), ("/search tea", "tea: Green"),
        ("/checkpoint Half done.\nThen the tests.", "Checkpoint saved successfully"),
        ("/resume", "Half done."), ("/help", "/save topic | decision | reasoning"),
        ("/save tea", "/save topic | decision | reasoning"), ("/search", "/search words"),
        ("/sav", "There is no command /sav. See /help."),
    ):  # fmt: skip
        page.get_by_label("Message").fill(line)
        page.keyboard.press("Enter")
        expect(chat.locator(".said-by").last.locator("+ .note")).to_contain_text(answer)
    kept = httpx.get(f"{window.address}/api/checkpoint/load").json()["checkpoint"]["summary"]
    assert kept == "Half done.\nThen the tests."
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Chat", exact=True)).to_be_focused()


def test_a_chat_connects_again_when_the_server_is_back(
    browser: Browser, tmp_path: Path, model: FakeModel
) -> None:
    model.reply = lambda _: "Here."
    with running(tmp_path) as first:
        port = first.port
        one = opened(browser, port, viewport=PHONE)
        window = one.__enter__()
        page = window.open()
        page.get_by_role("button", name="Chat", exact=True).click()
        chat = page.get_by_role("complementary", name="Chat")
        expect(chat).to_contain_text("Connected.")
    expect(chat).to_contain_text("Not connected.")
    with running(tmp_path, port=port):
        expect(chat).to_contain_text("Connected.", timeout=WAIT)
        page.get_by_label("Message").fill("Are you there?")
        page.get_by_role("button", name="Send").click()
        expect(chat.locator(".agent-line")).to_contain_text("Here.", timeout=WAIT)
        window.problems.clear()  # the browser reports each connection that failed
        one.__exit__(None, None, None)


def test_only_the_operator_is_offered_these_rooms_and_the_chat(
    browser: Browser, tmp_path: Path, model: FakeModel
) -> None:
    model.reply = lambda _: "Hello."
    with running(tmp_path, require_token=True) as server:
        callers: list[tuple[str, Any, bool]] = [
            ("default", ALL_SCOPES, True),
            ("default", FULL_SCOPES, False),
            ("other", ALL_SCOPES, False),
        ]  # fmt: skip
        for space, scopes, is_operator in callers:
            token = server.token(space, scopes=scopes)
            with opened(browser, server.port) as window:
                page = window.open()
                page.get_by_text("Use a token instead").click()
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Sign in with the token").click()
                expect(page.get_by_role("link", name="Memories", exact=True)).to_be_visible()
                dashboard = page.get_by_role("link", name="Dashboard")
                expect(dashboard).to_have_count(1 if is_operator else 0)
                opener = page.get_by_role("button", name="Chat", exact=True)
                expect(opener).to_have_count(1 if is_operator else 0)
                if is_operator:
                    opener.click()
                    page.get_by_label("Message").fill("Hi")
                    expect(page.locator(".chat")).to_contain_text("Connected.")
                    page.keyboard.press("Enter")
                    expect(page.locator(".agent-line")).to_contain_text("Hello.", timeout=WAIT)
                    page.get_by_role("button", name="Close the chat").click()
                    page.get_by_role("button", name="Sign out").click()
                    expect(opener).to_have_count(0)
                else:
                    page.goto(f"{window.address}/viewer/settings")
                    expect(page.locator("h1")).to_have_text("Settings")
                    refused = page.get_by_text("Only the operator").or_(page.get_by_text("scope"))
                    expect(refused.first).to_be_visible()
                    page.goto("about:blank")
                window.problems.clear()  # the browser reports each request that was refused


def test_another_site_cannot_chat_with_the_cookie(browser: Browser, tmp_path: Path) -> None:
    from websockets.sync.client import connect

    with running(tmp_path, require_token=True) as server:
        client = server.signed_in(server.client(), token=server.token(scopes=ALL_SCOPES))
        address = f"ws://127.0.0.1:{server.port}/ws"
        cookie = client.headers["cookie"]
        ours = {"Cookie": cookie, "Origin": client.headers["origin"]}
        with connect(address, additional_headers=ours) as socket:
            assert '"connected"' in str(socket.recv(timeout=20))
        for origin in ("https://evil.example", None):
            headers = {"Cookie": cookie, **({"Origin": origin} if origin else {})}
            with pytest.raises(Exception, match=r"403|1008|4001|HTTP"):  # noqa: SIM117
                with connect(address, additional_headers=headers) as socket:
                    while True:
                        assert '"connected"' not in str(socket.recv(timeout=20))
