"""Each page as a person walks it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

import postgres_engine
from commonplace import Commonplace
from commonplace.access.caller import READ_ONLY_SCOPES
from commonplace.engine.model import Origin
from server.harness import Running
from web.conftest import PHONE, Opened, opened

BIRDS = (
    ("Gulls nest on the roof of the old mill.", "fact", ["birds", "mill"]),
    ("Count the waders at dawn.", "procedure", ["birds"]),
    ("We chose SQLite for the phones.", "decision", ["architecture"]),
)


@pytest.fixture
def birds(memory: Commonplace) -> list[str]:
    """Three memories, newly stored."""
    kept = memory.browse(states=("active", "archived"), limit=200)[0]
    if kept:
        memory.purge(*(one.id for one in kept))
    codex = Origin(client="codex", user="ada")
    return [
        memory.remember(text, kind=kind, tags=tags, origin=codex).id for text, kind, tags in BIRDS
    ]


def rows(page: Page) -> list[str]:
    return [one.inner_text() for one in page.locator(".results .memory .open").all()]


def test_home_tells_what_is_there_and_searches(window: Opened, birds: list[str]) -> None:
    page = window.open()
    expect(page.locator(".figure").first).to_contain_text("3")
    expect(page.locator(".weeks figcaption span").first).to_have_text(
        re.compile(r"^\d+ \w+ \d{4}$")
    )
    expect(page.get_by_role("link", name="decision", exact=True)).to_be_visible()
    page.get_by_label("Search memories").fill("gulls")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Memories")
    expect(page.locator(".results mark")).to_have_text("Gulls")
    assert page.url.endswith("/viewer/memories?q=gulls")


def test_an_empty_memory_says_how_to_fill_it(window: Opened, server: Running) -> None:
    token = server.token("empty")
    origin = window.address
    answer = window.context.request.post(
        f"{origin}/sign-in", data={"token": token}, headers={"origin": origin}
    )
    assert answer.ok
    page = window.open()
    expect(page.locator("h1")).to_have_text("Welcome")
    for command in ("commonplace connect", "commonplace import", "commonplace demo"):
        expect(page.locator(".commands")).to_contain_text(command)
    page.goto(f"{origin}/viewer/memories")
    expect(page.locator(".empty")).to_contain_text("Nothing is remembered yet")
    page.goto(f"{origin}/viewer/time")
    expect(page.locator(".empty")).to_contain_text("Nothing has happened yet")


def test_typing_searches_and_shows_why(window: Opened, birds: list[str]) -> None:
    page = window.open("/viewer/memories")
    assert len(rows(page)) == 3
    page.keyboard.press("/")
    expect(page.get_by_label("Search memories")).to_be_focused()
    page.keyboard.type("waders")
    expect(page.locator(".results .memory")).to_have_count(1)
    why = page.locator(".why").first
    expect(why.locator(".told")).to_contain_text("words: wader")
    expect(why.locator(".bars")).to_have_attribute("aria-hidden", "true")
    expect(page).to_have_url(re.compile(r"\?q=waders$"))
    page.reload()
    expect(page.locator(".results .memory")).to_have_count(1)
    page.get_by_label("Search memories").fill("")
    expect(page.locator(".results .memory")).to_have_count(3)


def test_filters_are_part_of_the_address(window: Opened, birds: list[str]) -> None:
    page = window.open("/viewer/memories")
    page.get_by_text("Filters").click()
    page.get_by_label("Kind").select_option("decision")
    expect(page.locator(".results .memory")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?kind=decision$"))
    page.get_by_label("Kind").select_option("")
    page.get_by_label("Tag").select_option("birds")
    expect(page.locator(".results .memory")).to_have_count(2)
    page.goto(f"{window.address}/viewer/memories?kind=nothing")
    expect(page.locator(".empty")).to_contain_text("Nothing found")
    page.get_by_role("main").get_by_role("button", name="Clear filters").first.click()
    expect(page.locator(".results .memory")).to_have_count(3)


def test_a_long_list_is_paged(window: Opened, birds: list[str], memory: Commonplace) -> None:
    with memory.unit("many"):
        for number in range(60):
            memory.remember(f"note {number}")
    page = window.open("/viewer/memories")
    expect(page.locator(".results .memory")).to_have_count(50)
    page.get_by_role("button", name="Later").click()
    expect(page.locator(".results .memory")).to_have_count(13)
    expect(page.locator(".pager")).to_contain_text("51–63 of 63")
    page.reload()
    expect(page.locator(".results .memory")).to_have_count(13)


def test_several_are_changed_at_once_and_undone(
    window: Opened, birds: list[str], memory: Commonplace
) -> None:
    page = window.open("/viewer/memories")
    boxes = page.locator(".results input[type=checkbox]")
    for number in range(2):
        boxes.nth(number).check()
    bar = page.get_by_role("region", name="Selected memories")
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Hide").click()
    expect(page.locator(".results .memory")).to_have_count(1)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".results .memory")).to_have_count(3)
    boxes.first.check()
    bar.get_by_role("button", name="Tag").click()
    page.get_by_label("Add").fill("seen, twice")
    page.get_by_role("dialog").get_by_role("button", name="Tag").click()
    expect(page.locator(".toast").last).to_contain_text("tagged")
    assert memory.get(birds[2]).tags == ("architecture", "seen", "twice")


def test_a_purge_asks_for_a_word(window: Opened, birds: list[str], memory: Commonplace) -> None:
    page = window.open(f"/viewer/memories/{birds[0]}")
    page.get_by_role("button", name="Delete for good").click()
    dialog = page.get_by_role("dialog")
    sure = dialog.get_by_role("button", name="Delete for good")
    expect(sure).to_be_disabled()
    dialog.get_by_label("Type “purge” to confirm").fill("purg")
    expect(sure).to_be_disabled()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert memory.get(birds[0])
    page.get_by_role("button", name="Delete for good").click()
    dialog.get_by_label("Type “purge” to confirm").fill("purge")
    sure.click()
    expect(page.locator("h1")).to_have_text("Memories")
    told = "deleted." if postgres_engine.ON_POSTGRES else "No trace is left"
    expect(page.locator(".toast")).to_contain_text(told)
    assert len(memory.browse()[0]) == 2


def test_one_memory_is_edited_compared_and_seen_as_it_was(
    window: Opened, birds: list[str], memory: Commonplace
) -> None:
    page = window.open(f"/viewer/memories/{birds[0]}")
    stored = page.locator("dd time").first
    expect(stored).to_have_attribute(
        "title", re.compile(r"\d, \d\d:\d\d:\d\d \S+$")
    )  # with its zone
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Text").fill("Gulls **nest** on the roof of our new mill.")
    page.get_by_label("Title").fill("Gulls")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("Gulls")
    expect(page.locator(".prose strong")).to_have_text("nest")
    assert memory.get(birds[0]).title == "Gulls"
    diff = page.locator(".diff")
    expect(diff.locator("ins").last).to_have_text("our new")  # one change, not two words apart
    expect(diff.locator("del").last).to_have_text("the old")
    page.get_by_role("link", name="As it was").last.click()
    expect(page.locator(".notice")).to_contain_text("as it was")
    expect(page.locator(".prose")).to_contain_text("the old mill")
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(".prose")).to_contain_text("our new mill")


def test_the_trust_of_a_memory_is_promoted_by_keyboard_and_undone(
    window: Opened, birds: list[str], memory: Commonplace
) -> None:
    one = memory.remember("Kites circle over the quarry.", trust="external").id
    page = window.open(f"/viewer/memories/{one}")
    page.get_by_role("button", name="Promote", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Trust")).to_have_value("stated")
    dialog.get_by_role("button", name="Promote").press("Enter")
    expect(page.locator(".toast")).to_contain_text("Promoted.")
    expect(page.get_by_role("button", name="Promote", exact=True)).to_have_count(0)
    assert memory.get(one).trust == "stated"
    page.locator(".toast").get_by_role("button", name="Undo").press("Enter")
    expect(page.get_by_role("button", name="Promote", exact=True)).to_be_visible()
    assert memory.get(one).trust == "external"


def test_leaving_what_is_typed_is_asked_for(window: Opened, birds: list[str]) -> None:
    page = window.open(f"/viewer/memories/{birds[0]}")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Title").fill("half typed")
    page.get_by_role("link", name="Time", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_label("Title")).to_have_value("half typed")
    page.get_by_role("link", name="Time", exact=True).click()
    page.get_by_role("button", name="Leave").click()
    expect(page.locator("h1")).to_have_text("Time")


def test_the_second_of_two_tabs_is_told(
    window: Opened, birds: list[str], memory: Commonplace
) -> None:
    first, second = (window.open(f"/viewer/memories/{birds[0]}") for _ in range(2))
    for page, text in ((first, "written in the first tab"), (second, "written in the second")):
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Text").fill(text)
    first.get_by_role("button", name="Save").click()
    expect(first.locator(".prose")).to_have_text("written in the first tab")
    second.get_by_role("button", name="Save").click()
    alert = second.get_by_role("alert").filter(has_text="Somebody has changed")
    expect(alert.locator("del")).to_contain_text("first tab")
    assert memory.get(birds[0]).text == "written in the first tab"
    alert.get_by_role("button", name="Save mine over it").click()
    expect(second.locator(".prose")).to_have_text("written in the second")
    assert memory.get(birds[0]).text == "written in the second"
    window.problems.clear()  # the browser reports the refused change


def test_memories_are_connected(window: Opened, birds: list[str], memory: Commonplace) -> None:
    page = window.open(f"/viewer/memories/{birds[0]}")
    page.get_by_role("button", name="Connect").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).fill("waders")
    dialog.get_by_text("Count the waders at dawn.").click()
    dialog.get_by_label("Why").fill("same place")
    dialog.get_by_role("button", name="Connect").click()
    expect(page.locator(".link")).to_contain_text("same place")
    (link,) = memory.links.of(birds[0])
    assert (link.target, link.kind) == (birds[1], "supports")
    page.get_by_role("button", name="Remove this link").click()
    expect(page.locator(".link")).to_have_count(0)
    page.locator(".toast").last.get_by_role("button", name="Undo").click()
    expect(page.locator(".link")).to_have_count(1)


def test_a_new_memory_is_written(window: Opened, birds: list[str], memory: Commonplace) -> None:
    page = window.open()
    page.get_by_role("button", name="New memory").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Text")).to_be_focused()
    page.keyboard.type("Ravens remember faces.")
    dialog.get_by_label("Tags").fill("birds, faces")
    dialog.get_by_role("button", name="Remember").click()
    expect(page.locator("h1")).to_have_text("Ravens remember faces.")
    (stored, *_), _ = memory.browse(limit=1)
    assert (stored.text, stored.tags, stored.trust) == (
        "Ravens remember faces.", ("birds", "faces"), "stated",
    )  # fmt: skip


def test_time_goes_back_compares_and_undoes(
    window: Opened, birds: list[str], memory: Commonplace
) -> None:
    memory.revise(birds[0], "Gulls moved away.")
    memory.forget(birds[1])
    page = window.open("/viewer/time")
    first = page.locator(".operations > li").first
    expect(first).to_contain_text("Hidden")
    first.get_by_role("button", name="What changed").click()
    expect(first.locator(".changes")).to_contain_text("active → archived")
    page.get_by_role("button", name="Compare from here").click()
    page.locator(".operations > li").nth(2).get_by_role("button", name="To here").click()
    expect(page.locator("section.card").filter(has_text="What changed").first).to_contain_text(
        "2 operations, 2 changes"
    )
    page.get_by_role("link", name="Memories as of then").click()
    expect(page.locator(".results .memory")).to_have_count(3)
    expect(page.locator(".results")).to_contain_text("the old mill")
    page.goto(f"{window.address}/viewer/time")
    page.get_by_role("button", name="Undo…").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("archived → active")
    assert memory.get(birds[1]).state == "archived"  # nothing is done yet
    dialog.get_by_role("button", name="Undo 1 change").click()
    expect(page.locator(".operations > li").first).to_contain_text("Undone")
    assert memory.get(birds[1]).state == "active"


def test_who_may_only_read_is_offered_nothing_else(
    window: Opened, server: Running, birds: list[str]
) -> None:
    token = server.token("default", READ_ONLY_SCOPES)
    origin = window.address
    window.context.request.post(
        f"{origin}/sign-in", data={"token": token}, headers={"origin": origin}
    )
    page = window.open("/viewer/memories", size=PHONE)
    expect(page.locator(".results .memory")).to_have_count(3)
    assert page.locator(".results input[type=checkbox]").count() == 0
    expect(page.get_by_role("button", name="New memory")).to_have_count(0)
    page.locator(".memory .open").first.click()
    page.wait_for_selector(".prose")
    for name in ("Edit", "Hide", "Delete for good", "Connect"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_the_first_load_is_small(browser: Browser, server: Running, birds: list[str]) -> None:
    """At most 150 KB as sent: the page, its modules, styles and icons, and the data of Home."""
    with opened(browser, server.port) as window:
        page = window.context.new_page()
        session = window.context.new_cdp_session(page)
        sizes: list[int] = []
        session.send("Network.enable")
        session.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
        page.goto(f"{window.address}/viewer")
        page.wait_for_selector(".figure")
        page.wait_for_timeout(500)  # what comes after the page, such as icons
        assert 10_000 < sum(sizes) <= 150_000
