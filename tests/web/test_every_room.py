"""Every room of the list in rooms.js: safe, accessible, and usable by keyboard alone.

A new room is covered by being listed there; `hostile.fill` is where its own content goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from commonplace import Commonplace
from server.harness import Running, running
from web import hostile
from web.conftest import DESKTOP, PATIENCE, PHONE, Opened, asking_only_us, directory, harmless

LISTED = (resources.files("commonplace.web") / "static" / "rooms.js").read_text()
ROOMS = dict(re.findall(r'^\s*{path: "([^"]*)", title: "([^"]*)"', LISTED, re.M))
SHOWING = {
    "", "memories", "inbox", "time", "imports", "graph", "agents", "secrets", "audit", "dashboard",
    "decisions", "skills",
}  # fmt: skip
"""Rooms in which a text of the corpus must be seen."""
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that a theme can break; all others look at the elements, which are the same."""
WATCHED = """
  let unanswered = 0;
  const asked = window.fetch;
  window.fetch = async (...given) => {
    unanswered += 1;
    try { return await asked(...given); } finally { setTimeout(() => { unanswered -= 1; }, 20); }
  };
  window.calm = (patience) => new Promise((done, failed) => {
    let times = 0;
    const until = performance.now() + patience;
    const look = () => {
      times = unanswered || document.querySelector("main[aria-busy]") ? 0 : times + 1;
      if (times > 3) done();
      else if (performance.now() > until) failed(new Error(`${unanswered} requests, no answer`));
      else setTimeout(look, 16);
    };
    look();
  });
  window.clickable = new Set();
  const listen = Element.prototype.addEventListener;
  Element.prototype.addEventListener = function (kind, ...given) {
    if (["click", "dblclick", "pointerdown"].includes(kind)) window.clickable.add(this);
    return listen.call(this, kind, ...given);
  };
  window.reached = new Set();
  window.unmarked = new Set();
  addEventListener("focusin", ({target}) => {
    window.reached.add(target);
    if (target.tabIndex < 0) return; // headings, which get the focus by going to a page
    const {outlineStyle, boxShadow} = getComputedStyle(target);
    if (outlineStyle === "none" && boxShadow === "none") window.unmarked.add(target.outerHTML);
  });
"""
OPERABLE = (
    "a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled),"
    " textarea:not(:disabled), summary, [tabindex='0']"
)


def addresses(ids: list[str]) -> dict[str, str]:
    """Every room with its title, and some addresses inside of rooms, without one."""
    found = {
        path if path.startswith("/") else f"/viewer/{path}": title for path, title in ROOMS.items()
    }
    inside = (
        "/viewer/memories?q=window+hit", "/viewer/memories?kind=none", "/viewer/x",
        "/viewer/memories?project=-",
        f"/viewer/memories/{ids[0]}", f"/viewer/memories/{ids[11]}",
        f"/viewer/graph?about={ids[0]}", "/viewer/playground/lab",
    )  # fmt: skip
    return found | dict.fromkeys(inside, "")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch, directory() as data:
        for name in ("DISCORD_URL", "SLACK_URL", "GITHUB_API_URL", "GITHUB_RAW_URL"):
            patch.setenv(f"COMMONPLACE_{name}", "http://127.0.0.1:9")
        with running(data) as one:
            one.parts.library.allow_secrets = True
            yield one


@pytest.fixture(scope="module")
def ids(server: Running) -> list[str]:
    return hostile.fill(server)


def go(page: Page, path: str, title: str) -> None:
    """Go to an address as a link would, and open whatever is closed."""
    page.evaluate(
        "(path) => { window.clickable.clear(); history.pushState(null, '', path);"
        " dispatchEvent(new PopStateEvent('popstate')); }",
        path,
    )
    answered(page)
    if title and path != "/viewer/":
        expect(page.locator("h1")).to_have_text(title)
    page.wait_for_selector("h1, .failed")
    page.evaluate(
        "[...document.querySelectorAll('main details:not([open]) > summary'),"
        " ...document.querySelectorAll('main button[aria-expanded=false]')].slice(0, 12)"
        ".forEach((each) => each.click())"
    )
    answered(page)


def answered(page: Page) -> None:
    """Wait until nothing is asked for any more, also not because of the first answers."""
    page.evaluate("(patience) => calm(patience)", PATIENCE)


def violations(page: Page, *rules: str) -> list[Any]:
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    return list(page.evaluate(
        "async (options) => (await axe.run(document, options)).violations"
        ".map((each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])",
        options,
    ))  # fmt: skip


def begun(window: Opened) -> Page:
    page = window.open(script=WATCHED)
    page.evaluate(AXE_SCRIPT)
    return page


def test_every_room_is_safe_and_accessible_in_both_themes_and_widths(
    window: Opened, ids: list[str]
) -> None:
    with asking_only_us(window):
        page = begun(window)
        for path, title in addresses(ids).items():
            page.set_viewport_size(DESKTOP)
            go(page, path, title)
            if path.removeprefix("/viewer/") in SHOWING:
                expect(page.locator("main")).to_contain_text("window.hit")
            for size in (DESKTOP, PHONE):
                page.set_viewport_size(size)
                page.emulate_media(color_scheme="light")
                harmless(page, frames=int("playground/" in path))
                assert violations(page) == [], f"{path} light {size}"
                page.emulate_media(color_scheme="dark")
                assert violations(page, *OF_COLOURS) == [], f"{path} dark {size}"


def test_every_room_can_be_used_by_keyboard_alone(window: Opened, ids: list[str]) -> None:
    """Tab reaches whatever acts on a click, and the focus is seen there."""
    page = begun(window)
    for path, title in addresses(ids).items():
        go(page, path, title)
        # Of each list its first entries, and not the navigation again on every page.
        page.evaluate(
            "(first) => { document.querySelectorAll('main li:nth-child(n + 4)')"
            ".forEach((each) => each.remove()); window.reached.clear();"
            " document.querySelector('header.top').hidden = !first;"
            " document.activeElement.blur(); }",
            path == "/viewer/",
        )
        many = page.locator(OPERABLE).count()
        for _ in range(many + 3):
            page.keyboard.down("Tab")  # and held, which goes on and on
        page.keyboard.up("Tab")
        missed = page.evaluate(
            """(operable) => {
              const seen = (each) => each.checkVisibility({visibilityProperty: true});
              const acts = [...document.querySelectorAll(operable)].filter(seen)
                .filter((each) => each.tabIndex >= 0 && each.type !== "radio");
              const lost = [...window.clickable]
                .filter((each) => each.isConnected && !each.disabled)
                .filter((each) => seen(each) && !each.matches(operable));
              return [...acts.filter((each) => !window.reached.has(each)), ...lost]
                .map((each) => each.outerHTML.slice(0, 200));
            }""",
            OPERABLE,
        )
        assert missed == [], path
    assert page.evaluate("[...window.unmarked]") == []


def test_dialogs_and_forms_are_safe_and_accessible(window: Opened, ids: list[str]) -> None:
    page = begun(window)
    go(page, f"/viewer/memories/{ids[11]}", "")
    for name, shown in (("Edit", "form"), ("Delete for good", "dialog[open]")):
        page.get_by_role("button", name=name).click()
        page.wait_for_selector(f"main {shown}, {shown}")
        assert violations(page) == [], name
    page.keyboard.press("Escape")
    go(page, "/viewer/inbox", "Inbox")
    page.locator(".inbox input[type=checkbox]").first.check()
    for button in page.get_by_role("button", name="Edit").all()[:3]:
        button.click()
    harmless(page)
    assert violations(page) == []
    go(page, "/viewer/secrets", "Secrets")
    page.locator(".memories input[type=checkbox]").first.check()
    page.get_by_role("button", name=re.compile("^Delete .* for good$")).first.click()
    page.wait_for_selector("dialog[open]")
    assert violations(page) == []
    page.keyboard.press("Escape")
    go(page, "/viewer/time", "Time")
    for button in page.get_by_role("button", name="What changed").all()[:6]:
        button.click()
    page.wait_for_selector(".changes li")
    page.get_by_role("button", name="Undo…").first.click()
    page.wait_for_selector("dialog .changes, dialog p")
    harmless(page)
    assert violations(page) == []


def test_every_hostile_memory_is_shown_as_text(window: Opened, ids: list[str]) -> None:
    page = begun(window)
    with asking_only_us(window):
        for one, text in zip(ids, hostile.TEXTS, strict=True):
            go(page, f"/viewer/memories/{one}", "")
            page.wait_for_selector(".prose")
            harmless(page)
            if "script" in text:
                expect(page.locator(".text")).to_contain_text("window.hit")
            page.get_by_role("button", name="Edit").click()
            page.get_by_role("button", name="Cancel").click()
    go(page, f"/viewer/memories/{ids[9]}", "")
    expect(page.locator(".prose .unseen").first).to_have_text("U+202E")
    go(page, f"/viewer/memories/{ids[3]}", "")
    page.wait_for_selector(".prose")
    assert page.locator(".prose a").count() == 0


def test_a_megabyte_of_text_is_shown(window: Opened, memory: Commonplace, ids: list[str]) -> None:
    one = memory.remember("A long story. <b>bold</b>\n" + "word " * 199_000)
    page = window.open(f"/viewer/memories/{one.id}")
    expect(page.locator(".text")).to_contain_text("<b>bold</b>")
    harmless(page)
    page.get_by_role("button", name="Show all").click(timeout=120_000)  # it lays all of it out
    expect(page.get_by_role("button", name="Show all")).to_have_count(0)
    assert page.evaluate("document.querySelector('.text pre').textContent.length") > 990_000
    memory.purge(one.id)
