"""A real Chromium, and a server with a memory to look at."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import greenlet
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright._impl import channel_owner
from playwright._impl._sync_base import SyncBase
from playwright._impl.utils.tasks import fire_and_forget
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from commonplace import Commonplace
from server.harness import Running, running

CHROME = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
# Chromium does not write every violation of the policy to the console.
VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`))"""
PATIENCE = 30_000  # milliseconds: the machine may be busy
expect.set_options(timeout=PATIENCE)


def chrome() -> str:
    """The Chromium of this machine; `make test` installs one where it may."""
    given = os.environ.get("COMMONPLACE_TEST_CHROME")
    found = given or next(filter(None, map(shutil.which, CHROME)), None)
    assert found, "no Chromium is installed; set COMMONPLACE_TEST_CHROME to the program"
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser whose event loop runs in a greenlet of its own.

    asyncio knows a running loop by its thread, so the loop is taken away while the test itself
    runs: what it does with a database is not done on an event loop.
    """
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patched:
        fiber, loop, sync = playwright._dispatcher_fiber, playwright._loop, SyncBase._sync

        def switched(event: str, between: tuple[Any, Any]) -> None:
            asyncio._set_running_loop(loop if between[1] is fiber else None)

        def synchronously(self: SyncBase, waited: Any) -> Any:
            try:
                return sync(self, waited)
            finally:  # which has said that the loop runs here
                asyncio._set_running_loop(None)

        def in_the_loop(waited: Awaitable[Any]) -> None:
            """Begin what nobody waits for; without a running loop asyncio would not know where."""
            fire_and_forget(asyncio.ensure_future(waited, loop=loop))

        patched.setattr(SyncBase, "_sync", synchronously)
        patched.setattr(channel_owner, "fire_and_forget", in_the_loop)
        greenlet.settrace(switched)
        asyncio._set_running_loop(None)
        try:
            browser = playwright.chromium.launch(executable_path=chrome(), args=ARGUMENTS)
            yield browser
            browser.close()
        finally:
            greenlet.settrace(None)
            asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@contextmanager
def directory() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="commonplace-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with directory() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server that the tests of a module share."""
    with directory() as data, running(data) as one:
        yield one


def memory_of(server: Running, space: str = "default") -> Commonplace:
    return Commonplace(library=server.parts.library, space=space)


@pytest.fixture
def memory(server: Running) -> Commonplace:
    """The memory of the person at this machine."""
    return memory_of(server)


class Opened:
    """A browser window that remembers everything that went wrong in it."""

    def __init__(self, context: BrowserContext, port: int) -> None:
        self.context = context
        self.address = f"http://127.0.0.1:{port}"
        self.problems: list[str] = []
        context.on("console", self._said)
        context.on("weberror", self._failed)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} ({message.location})")

    def _failed(self, error: Any) -> None:
        self.problems.append(f"{error.error}")

    def leave(self) -> None:
        """Stop remembering, for a context that stays."""
        self.context.remove_listener("console", self._said)
        self.context.remove_listener("weberror", self._failed)

    def open(
        self,
        path: str = "/viewer",
        *,
        size: ViewportSize | None = None,
        theme: Literal["light", "dark"] | None = None,
        script: str = "",
    ) -> Page:
        """A page, when its heading is there; the script runs before those of the page."""
        page = self.context.new_page()
        if size is not None:
            page.set_viewport_size(size)
        if theme is not None:
            page.emulate_media(color_scheme=theme)
        if script:
            page.add_init_script(script)
        page.goto(self.address + path)
        page.wait_for_selector("h1, .failed")
        return page


def _context(browser: Browser, **options: Any) -> BrowserContext:
    context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    context.add_init_script(VIOLATIONS)
    return context


@contextmanager
def opened(browser: Browser, port: int, **options: Any) -> Iterator[Opened]:
    """A window of a person who was never here; it must not have had a problem when it is closed."""
    context = _context(browser, **options)
    try:
        window = Opened(context, port)
        yield window
    finally:
        context.close()
    assert window.problems == []


@pytest.fixture(scope="module")
def visited(browser: Browser, server: Running) -> Iterator[BrowserContext]:
    """A browser that was here before: the files are kept, by it and by the service worker.

    A page of the same site stays open, so that the process which shows them stays too.
    """
    context = _context(browser)
    try:
        context.new_page().goto(f"http://127.0.0.1:{server.port}/viewer/assets/icons/icon.svg")
        yield context
    finally:
        context.close()


@pytest.fixture
def window(visited: BrowserContext, server: Running) -> Iterator[Opened]:
    """A window on a desktop, without cookies and whatever else a page has stored."""
    stays = visited.pages[0]
    window = Opened(visited, server.port)
    try:
        yield window
    finally:
        for page in visited.pages[1:]:
            page.close()
        window.leave()
        visited.clear_cookies()
        stays.evaluate("localStorage.clear()")
    assert window.problems == []
    assert stays.evaluate("indexedDB.databases()") == []


def harmless(page: Page, frames: int = 0) -> None:
    """Nothing of the texts that a page shows has become part of it."""
    assert page.evaluate("window.hit") is None
    made = page.evaluate(
        "[...document.querySelectorAll('script,base,style,object,embed,meta[http-equiv],"
        "[onerror],[onload],[onclick],[style*=url]')].map(e => e.outerHTML)"
    )
    assert made == ['<script type="module" src="/viewer/assets/app.js"></script>']
    assert page.locator("iframe").count() == frames
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map(e => e.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    pictures = page.evaluate("[...document.images].map(e => new URL(e.src).pathname)")
    assert set(pictures) <= {"/viewer/assets/icons/icon.svg"}
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "the page is wider than the window"


def accessible(page: Page, where: str) -> None:
    """axe finds nothing on the page as it is now."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    told = [(each["id"], [node["html"][:160] for node in each["nodes"]][:3]) for each in found]
    assert told == [], where


@contextmanager
def asking_only_us(window: Opened) -> Iterator[None]:
    """Nothing is asked of another server meanwhile."""
    asked: list[str] = []

    def sent(request: Any) -> None:
        asked.append(request.url)

    window.context.on("request", sent)
    yield
    window.context.remove_listener("request", sent)
    assert [url for url in asked if not url.startswith(window.address)] == []
