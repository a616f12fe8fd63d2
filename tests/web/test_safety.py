"""Texts that would do harm if they were not shown as texts, through every page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from commonplace import Commonplace
from commonplace.engine.model import Origin
from server.harness import Running
from web.conftest import DESKTOP, PHONE, Opened, opened

HOSTILE = [
    "<script>window.hit = 1</script>",
    '<img src=x onerror="window.hit = 1">',
    '<svg onload="window.hit = 1"><a xlink:href="javascript:window.hit=1"><text>x</text></a></svg>',
    "[click](javascript:window.hit=1) [data](data:text/html,<script>window.hit=1</script>)",
    "![](javascript:window.hit=1) ![x](http://example.invalid/track.png)",
    "[vb](vbscript:x) [file](file:///etc/passwd) <a href='javascript:window.hit=1'>go</a>",
    "</textarea></pre></li></main><style>*{display:none}</style><h1>forged</h1>",
    "--><base href='http://example.invalid/'><meta http-equiv=refresh content='0;url=//x.invalid'>",
    "{{constructor.constructor('window.hit=1')()}} ${window.hit=1} <%= window.hit %>",
    "invoice\u202efdp.exe \u2066isolated\u2069 zero\u200bwidth \ufeffmark \U000e0041tag",
    "\x1b[31mred\x1b[0m \x07bell line\u2028separator \x85next \ue000private",
    "## Heading\n\n- [ ] item\n\n> quote\n\n```html\n<script>window.hit=1</script>\n```"
    "\n\n|a|\n|-|\n|<b>|",
    "#" * 3_000 + "*" * 3_000 + "[" * 3_000 + "`" * 3_000 + "_" * 3_000,
    "שלום עולם, مرحبا بالعالم, हिन्दी, 日本語, ไทย, 👩‍👩‍👧‍👦",
    "a" * 5_000,
]
PAGES = ("/viewer", "/viewer/memories", "/viewer/memories?q=window+hit", "/viewer/time")


@pytest.fixture(scope="module")
def hostile(server: Running) -> list[str]:
    """A memory full of such texts, in every field that a page shows."""
    memory = Commonplace(library=server.parts.library)
    ids = []
    for number, text in enumerate(HOSTILE):
        short = text[:90].replace("\x00", "").strip()
        stored = memory.remember(
            text, title=short if number % 2 else "", tags=[short[:80]],
            source=short if short.isprintable() else "", trust="external",
            origin=Origin(client=short, user=short, tool=short),
        )  # fmt: skip
        memory.revise(stored.id, text + "\n" + text[::-1][:1_000])
        ids.append(stored.id)
    for number, one in enumerate(ids[1:]):
        memory.links.add(ids[0], one, "supports", reason=HOSTILE[number][:500])
    return ids


def harmless(page: Page) -> None:
    """Nothing of the texts has become part of the page."""
    assert page.evaluate("window.hit") is None
    made = page.evaluate(
        "[...document.querySelectorAll('script,base,style,iframe,object,embed,meta[http-equiv],"
        "[onerror],[onload],[onclick],[style*=url]')].map(e => e.outerHTML)"
    )
    assert made == ['<script type="module" src="/viewer/assets/app.js"></script>']
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map(e => e.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    pictures = page.evaluate("[...document.images].map(e => new URL(e.src).pathname)")
    assert set(pictures) <= {"/viewer/assets/icons/icon.svg"}
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "the page is wider than the window"


@contextmanager
def asking_only_us(window: Opened) -> Iterator[None]:
    asked: list[str] = []
    window.context.on("request", lambda request: asked.append(request.url))
    yield
    assert [url for url in asked if not url.startswith(window.address)] == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_hostile_texts_are_shown_as_texts_on_every_page(
    browser: Browser, server: Running, hostile: list[str], viewport: dict[str, int]
) -> None:
    with opened(browser, server.port, viewport=viewport) as window, asking_only_us(window):
        for path in PAGES:
            page = window.open(path)
            expect(page.locator("main")).to_contain_text("window.hit")
            harmless(page)
            page.close()
        page = window.open("/viewer/time")
        for button in page.get_by_role("button", name="What changed").all()[:6]:
            button.click()
        page.wait_for_selector(".changes li")
        page.get_by_role("button", name="Undo…").first.click()
        page.wait_for_selector("dialog .changes, dialog p")
        harmless(page)


def test_every_hostile_memory_is_shown_as_text(
    window: Opened, server: Running, hostile: list[str]
) -> None:
    page = window.open()
    with asking_only_us(window):
        for one, text in zip(hostile, HOSTILE, strict=True):
            page.goto(f"{window.address}/viewer/memories/{one}")
            page.wait_for_selector(".prose")
            harmless(page)
            if "script" in text:
                expect(page.locator(".text")).to_contain_text("window.hit")
            page.get_by_role("button", name="Edit").click()
            page.get_by_role("button", name="Cancel").click()
    marks = page.goto(f"{window.address}/viewer/memories/{hostile[9]}")
    assert marks is not None
    expect(page.locator(".prose .unseen").first).to_have_text("U+202E")
    page.goto(f"{window.address}/viewer/memories/{hostile[3]}")
    page.wait_for_selector(".prose")
    assert page.locator(".prose a").count() == 0


def test_a_megabyte_of_text_is_shown(window: Opened, memory: Commonplace) -> None:
    one = memory.remember("A long story. <b>bold</b>\n" + "word " * 199_000)
    page = window.open(f"/viewer/memories/{one.id}")
    expect(page.locator(".text")).to_contain_text("<b>bold</b>")
    harmless(page)
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("button", name="Show all")).to_have_count(0)
    assert page.evaluate("document.querySelector('.text pre').textContent.length") > 990_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing(
    browser: Browser, server: Running, hostile: list[str], viewport: dict[str, int], scheme: str
) -> None:
    paths = [*PAGES, f"/viewer/memories/{hostile[11]}", "/viewer/memories?kind=none", "/viewer/x"]
    with opened(
        browser, server.port, viewport=viewport, color_scheme=scheme, bypass_csp=True
    ) as window:
        page = window.open()
        for path in paths:
            page.goto(window.address + path)
            page.wait_for_selector("h1, .failed")
            _accessible(page, path)
        page.goto(f"{window.address}/viewer/memories/{hostile[11]}")
        page.get_by_role("button", name="Edit").click()
        _accessible(page, "editing")
        page.get_by_role("button", name="Delete for good").click()
        page.wait_for_selector("dialog[open]")
        _accessible(page, "dialog")


def _accessible(page: Page, where: str) -> None:
    found = Axe().run(page)
    told = [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in found.response["violations"]
    ]
    assert told == [], where
