"""The frame around all rooms: who is here, navigation, themes, offline, a server that goes away."""

from __future__ import annotations

import contextlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser, expect

from commonplace import Commonplace
from commonplace.access.caller import ALL_SCOPES
from commonplace.access.credentials import Grant
from server.harness import Running, running
from web.conftest import PHONE, Opened, opened


def test_on_this_machine_it_opens_without_signing_in(window: Opened) -> None:
    page = window.open("/")
    assert page.url == f"{window.address}/viewer"
    expect(page.locator("h1")).to_have_text("Welcome")
    expect(page.locator(".person")).to_contain_text("You, at this machine")
    assert window.context.cookies() == []


def test_rooms_have_addresses_that_can_be_linked_and_reloaded(window: Opened) -> None:
    page = window.open()
    page.get_by_role("link", name="Memories", exact=True).click()
    expect(page.locator("h1")).to_have_text("Memories")
    assert page.url.endswith("/viewer/memories")
    expect(page.locator("h1")).to_be_focused()
    page.reload()
    expect(page.locator("h1")).to_have_text("Memories")
    expect(page.locator("[aria-current=page]")).to_have_text("Memories")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Welcome")
    assert page.title() == "Welcome · Commonplace"


def test_an_address_without_a_room_says_so(window: Opened) -> None:
    page = window.open("/viewer/no-such-room")
    expect(page.locator(".failed")).to_contain_text("There is no such page.")


def test_a_phone_has_a_menu(browser: Browser, server: Running) -> None:
    with opened(browser, server.port, viewport=PHONE, has_touch=True) as window:
        page = window.open()
        link = page.get_by_role("link", name="Time", exact=True)
        expect(link).to_be_hidden()
        chat = page.get_by_role("button", name="Chat", exact=True)
        expect(chat).to_be_visible()
        page.get_by_role("button", name="Menu").click()
        expect(chat).to_be_hidden()  # it would cover the last rooms
        link.click()
        expect(page.locator("h1")).to_have_text("Time")
        expect(link).to_be_hidden()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


def test_the_theme_follows_the_system_until_one_is_chosen(
    browser: Browser, server: Running
) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, server.port, color_scheme="dark") as window:
        page = window.open()
        dark = page.evaluate(background)
        page.get_by_role("button", name="Use the light theme").click()
        light = page.evaluate(background)
        assert light != dark
        page.reload()
        page.wait_for_selector("h1")
        assert page.evaluate(background) == light


def test_it_opens_again_without_the_server(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path) as server, opened(browser, server.port) as window:
        page = window.open("/viewer/memories")
        page.evaluate("navigator.serviceWorker.ready")
        page.reload()
        page.wait_for_selector("h1")
        window.context.set_offline(True)
        page.reload()
        expect(page.locator(".failed")).to_contain_text("The server cannot be reached")
        window.context.set_offline(False)
        expect(page.locator("h1")).to_have_text("Memories")
        window.problems.clear()  # the browser reports each request that failed


def test_a_server_that_comes_back_is_found(browser: Browser, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(tmp_path))
        with opened(browser, server.port) as window:
            page = window.open()
            stack.close()
            page.get_by_role("link", name="Memories", exact=True).click()
            expect(page.locator(".failed")).to_contain_text("The server cannot be reached")
            expect(page.locator(".banner")).to_contain_text("does not answer")
            with running(tmp_path, port=server.port):
                expect(page.locator(".banner")).to_have_count(0)
                expect(page.locator("h1")).to_have_text("Memories")
                expect(page.locator(".failed")).to_have_count(0)
                window.problems.clear()  # the browser reports each request that failed


def test_elsewhere_one_signs_in_with_a_token_once(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, require_token=True) as server:
        token = server.token(scopes=ALL_SCOPES, user="ada")
        with opened(browser, server.port) as window:
            page = window.open("/viewer/memories")
            expect(page.locator("h1")).to_have_text("Sign in")
            page.get_by_text("Use a token instead").click()
            page.get_by_label("Token").fill("cpt_wrong")
            page.get_by_role("button", name="Sign in with the token").click()
            expect(page.locator("details .problem")).to_contain_text("is not right")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in with the token").click()
            expect(page.locator("h1")).to_have_text("Memories")
            expect(page.locator(".person")).to_contain_text("ada")
            (cookie,) = window.context.cookies()
            assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
            kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
            assert token not in kept and cookie["value"] not in kept
            page.reload()
            expect(page.locator(".person")).to_contain_text("ada")
            page.get_by_role("button", name="Sign out").click()
            expect(page.locator("h1")).to_have_text("Sign in")
            window.leave()  # the browser reports each request that was refused, also later
            window.problems.clear()


def test_the_whole_can_be_used_by_keyboard(window: Opened) -> None:
    page = window.open()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{window.address}/viewer#main")


def test_a_one_time_code_signs_in_and_leaves_the_address(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, require_token=True) as server:
        credentials = server.parts.tokens.credentials
        code = credentials.create_code(Grant(space="birds", scopes=ALL_SCOPES))
        with opened(browser, server.port) as window:
            page = window.open(f"/viewer/memories#code={code}")
            expect(page.locator("h1")).to_have_text("Memories")
            expect(page.locator(".person")).to_contain_text("birds")
            assert page.url == f"{window.address}/viewer/memories"
            assert code not in page.evaluate("JSON.stringify([history.state, localStorage])")
            page.get_by_role("button", name="Sign out").click()
            expect(page.locator("h1")).to_have_text("Sign in")
            page = window.open(f"/viewer#code={code}")
            expect(page.locator("h1")).to_have_text("Sign in")
            expect(page.locator(".toast")).to_contain_text("has expired or was used")
            window.problems.clear()  # the browser reports each request that was refused


class OtherSite(BaseHTTPRequestHandler):
    """A page on another port of this machine, to which a browser sends our cookie."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Other</title><h1>Other</h1>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_page_of_another_site_can_neither_frame_nor_change_anything(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), OtherSite) as other,
        running(tmp_path, require_token=True) as server,
    ):
        Thread(target=other.serve_forever, daemon=True).start()
        code = server.parts.tokens.credentials.create_code(Grant(scopes=ALL_SCOPES))
        with opened(browser, server.port) as window:
            page = window.open(f"/viewer#code={code}")
            expect(page.locator(".person")).to_contain_text("local")
            page.goto(f"http://127.0.0.1:{other.server_port}/")
            framed = page.evaluate(
                """async (target) => {
                  await fetch(target + '/api/console/memories', {
                    method: 'POST', credentials: 'include', mode: 'no-cors', body: '{"text": "x"}',
                  }).catch(() => null);
                  const form = document.createElement('form');
                  form.method = 'post';
                  form.action = target + '/sign-out';
                  form.target = 'sink';
                  const frame = document.createElement('iframe');
                  frame.name = 'sink';
                  document.body.append(frame, form);
                  form.submit();
                  const shown = document.createElement('iframe');
                  shown.src = target + '/viewer';
                  const loaded = new Promise((done) => { shown.onload = done; });
                  document.body.append(shown);
                  await loaded;
                  try { return shown.contentDocument !== null; } catch { return false; }
                }""",
                window.address,
            )
            assert not framed
            shown = {frame.url for frame in page.frames[1:]}
            assert shown <= {"about:blank", "chrome-error://chromewebdata/"}
            again = window.open()
            expect(again.locator(".person")).to_contain_text("local")  # it is still signed in
            window.problems.clear()  # the browser reports what was refused
        other.shutdown()
        assert Commonplace(library=server.parts.library).browse()[1] == 0
