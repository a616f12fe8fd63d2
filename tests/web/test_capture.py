"""Inbox, Projects, Imports and Secrets, walked as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from commonplace import Commonplace, Line
from commonplace.importers import registry, storing
from commonplace.platform import review
from server.harness import Running, running
from web.conftest import Opened, directory, opened
from web.hostile import KEY


def emptied(memory: Commonplace) -> None:
    while kept := memory.browse(states=("active", "archived", "dead"), limit=1_000)[0]:
        memory.purge(*(one.id for one in kept))


def say(memory: Commonplace, *texts: str, project: str = "github.com/acme/shop") -> None:
    lines = [Line(speaker="user", text=text, tags=[f"project:{project}"]) for text in texts]
    review.propose(memory, memory.conversations.add("talk", *lines))


def cards(page: Page) -> list[str]:
    return [one.inner_text() for one in page.locator(".inbox > li .text").all()]


def test_proposals_are_accepted_edited_rejected_and_brought_back(
    window: Opened, memory: Commonplace
) -> None:
    emptied(memory)
    say(memory, "Well. We decided to use Redis.", "Never push on Fridays.", "My name is Ada.")
    page = window.open("/viewer")
    page.get_by_role("link", name="in the inbox").click()
    expect(page.locator(".lede")).to_contain_text("3 proposals wait")
    redis = page.locator(".inbox > li", has_text="We decided to use Redis.")
    expect(redis.locator(".said")).to_have_text("Well. We decided to use Redis.")
    redis.get_by_role("button", name="Accept").click()
    expect(page.locator(".toasts")).to_contain_text("1 proposal accepted.")
    expect(page.locator(".inbox > li")).to_have_count(2)
    assert memory.browse(kinds=["decision"])[1] == 1
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".inbox > li")).to_have_count(3)
    assert memory.browse(kinds=["decision"])[1] == 0

    name = page.locator(".inbox > li", has_text="My name is Ada.")
    name.get_by_role("button", name="Edit").click()
    words = page.get_by_label("What to remember")
    expect(words).to_be_focused()
    words.fill("The user is called Ada.")
    page.get_by_role("button", name="Keep for later").click()
    expect(page.locator(".inbox")).to_contain_text("The user is called Ada.")
    page.locator(".inbox > li", has_text="called Ada").get_by_role("button", name="Edit").click()
    page.get_by_label("What to remember").fill("Her name is Ada.")
    page.get_by_role("button", name="Accept these words").click()
    expect(page.locator(".inbox > li")).to_have_count(2)
    (stored,), _ = memory.browse(kinds=["fact"])
    assert (stored.text, stored.trust) == ("Her name is Ada.", "stated")

    for box in page.locator(".inbox input[type=checkbox]").all():
        box.check()
    bar = page.get_by_role("region", name="Selected proposals")
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Reject").click()
    expect(page.locator(".empty")).to_contain_text("Nothing waits for you")


def test_the_inbox_is_worked_off_by_keyboard(window: Opened, memory: Commonplace) -> None:
    emptied(memory)
    say(memory, "We decided to use Redis.", "Never push on Fridays.", "My name is Ada.")
    page = window.open("/viewer/inbox")
    page.locator(".inbox > li .actions button").first.focus()
    for left in (2, 1):
        page.keyboard.press("Enter")
        expect(page.locator(".inbox > li")).to_have_count(left)
        expect(page.locator(".inbox > li .actions button").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()
    assert review.pending_proposals(memory)[1] == 0


def test_a_reader_sees_proposals_and_decides_nothing(window: Opened, server: Running) -> None:
    memory = Commonplace(library=server.parts.library, space="reader")
    say(memory, "We decided to use Redis.")
    token = server.token("reader", scopes=frozenset({"read"}))
    origin = window.address
    answer = window.context.request.post(
        f"{origin}/sign-in", data={"token": token}, headers={"origin": origin}
    )
    assert answer.ok
    page = window.open("/viewer/inbox")
    expect(page.locator(".inbox > li")).to_have_count(1)
    assert page.locator(".inbox button, .inbox input").count() == 0
    assert page.get_by_role("link", name="Secrets").count() == 0


def test_memories_are_counted_and_filtered_by_project(window: Opened, memory: Commonplace) -> None:
    emptied(memory)
    for project in ("github.com/acme/api", "github.com/acme/api", "shop"):
        memory.remember(f"Something about {project}.", tags=[f"project:{project}"])
    memory.remember("Something about nothing.")
    page = window.open()
    shown = page.locator(".card", has=page.get_by_role("heading", name="By project"))
    expect(shown.locator("li").first).to_contain_text("github.com/acme/api")
    expect(shown.locator(".many").first).to_have_text("2")
    shown.get_by_role("link", name="shop").click()
    expect(page.locator(".results .memory")).to_have_count(1)
    project = page.get_by_label("Project")
    expect(project).to_have_value("shop")
    project.select_option("-")
    expect(page.locator(".results .memory")).to_contain_text("about nothing")
    expect(page).to_have_url(re.compile(r"\?project=-$"))
    project.select_option(label="github.com/acme/api (2)")
    expect(page.locator(".results .memory")).to_have_count(2)


def test_an_import_is_undone_and_brought_back(
    window: Opened, memory: Commonplace, tmp_path: Path
) -> None:
    emptied(memory)
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"Note {n}."}) + "\n" for n in range(5)))
    registry.run_import(memory, file, "jsonl", origin=storing.import_origin())
    page = window.open("/viewer/imports")
    row = page.locator(".operations > li").first
    expect(row).to_contain_text("5 memories")
    row.get_by_role("button", name="What changed").click()
    expect(row.locator(".changes > li")).to_have_count(5)
    row.get_by_role("button", name="Undo…").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo 5 changes").click()
    expect(row).to_contain_text("Undone")
    assert memory.browse()[1] == 0
    row.get_by_role("button", name="Bring back").click()
    expect(row.get_by_role("button", name="Undo…")).to_be_visible()
    assert memory.browse()[1] == 5


@pytest.fixture(scope="module")
def leaky() -> Iterator[Running]:
    """A server whose memory allows secrets, so that some can be stored."""
    with directory() as data, running(data) as one:
        one.parts.library.allow_secrets = True
        yield one


def test_secrets_are_purged_by_a_typed_word(browser: Browser, leaky: Running) -> None:
    memory = Commonplace(library=leaky.parts.library)
    held = [memory.remember(f"Key {n} is {KEY}.").id for n in range(2)]
    memory.facts.add("deploy", "uses", f"key {KEY}")
    with opened(browser, leaky.port) as window:
        page = window.open("/viewer/secrets")
        expect(page.locator(".lede")).to_contain_text("3 secrets in what is stored")
        assert KEY not in page.content()
        page.locator(f"[data-id='{held[0]}'] input").check()
        bar = page.get_by_role("region", name="Selected memories")
        bar.get_by_role("button", name="Delete for good").click()
        dialog = page.get_by_role("dialog")
        go = dialog.get_by_role("button", name="Delete for good")
        expect(go).to_be_disabled()
        dialog.get_by_label("Type “purge” to confirm").fill("purge")
        go.click()
        expect(page.locator(".toasts")).to_contain_text("1 memory deleted, masked copies kept.")
        expect(page.locator(f"[data-id='{held[0]}']")).to_have_count(0)
        expect(page.locator(f"[data-id='{held[1]}']")).to_have_count(1)
        page.get_by_role("button", name="Delete all for good").click()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    texts = [one.text for one in memory.browse(order="oldest")[0]]
    assert sorted(KEY in text for text in texts) == [False, True]
