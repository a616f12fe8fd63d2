"""Graph, Agents and Audit, walked as a person would."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

from commonplace import Commonplace
from commonplace.dialects.commonplace.console.graph import nearest, spiral, springs
from server.harness import Running
from web.conftest import PHONE, Opened, opened

FORGED = "<img src=x onerror=alert(1)> javascript:alert(1)"


def test_the_graph_shows_groups_then_the_memories_of_one(
    window: Opened, memory: Commonplace
) -> None:
    one = memory.remember(f"The hub {FORGED}", title=f"Hub {FORGED}").id
    spokes = [memory.remember(f"Spoke number {n}", title=f"Spoke {n}").id for n in range(3)]
    for spoke in spokes:
        memory.links.add(spoke, one, "supports", reason="because")
    memory.facts.add("Alice", "works on", FORGED, valid_from="2026-01-01")
    page = window.open("/viewer/graph")
    expect(page.locator(".lede")).to_contain_text("4 linked memories in 1 group")
    page.wait_for_selector("canvas[data-drawn='1']")
    expect(page.locator("main")).to_contain_text("from 2026-01-01")
    page.locator("main ul a").first.click()
    expect(page.locator(".lede")).to_contain_text("4 memories and 3 links")
    page.wait_for_selector("canvas[data-drawn='4']")
    expect(page.get_by_role("link", name=re.compile("^Hub")).first).to_be_visible()
    page.locator("canvas").focus()
    for key in ("+", "ArrowLeft", "-", "0"):
        page.keyboard.press(key)
    page.locator("select").select_option("supports")
    expect(page).to_have_url(re.compile("kind=supports"))
    page.locator("main .rows a").first.click()
    expect(page).to_have_url(re.compile("/viewer/memories/"))


def test_agents_shows_credentials_and_revokes_one(window: Opened, server: Running) -> None:
    token = server.token("default", name=f"laptop {FORGED}"[:90])
    page = window.open("/viewer/agents")
    row = page.locator(".rows > li", has_text="laptop")
    expect(row).to_contain_text("never used")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.locator(".toasts")).to_contain_text("Revoked.")
    expect(row).to_have_count(0)
    client = server.client(token)
    assert client.request("GET", "/api/console/me").status == 401
    client.close()


def test_agents_shows_a_being_and_what_it_is(window: Opened, server: Running) -> None:
    client = server.client(server.token("default"))
    made = client.request("POST", "/v1/beings", {"name": "Aria"})
    assert made.status in (200, 201)
    client.close()
    page = window.open("/viewer/agents")
    page.locator("summary", has_text="Aria").click()
    expect(page.get_by_role("heading", name="Soul")).to_be_visible()


def test_the_audit_lists_filters_and_verifies(window: Opened, server: Running) -> None:
    client = server.client(server.token("default"))
    client.call("remember", {"text": f"noted {FORGED}"})
    client.call("remember", {"text": ""})
    client.close()
    page = window.open("/viewer/audit")
    page.get_by_label("Tool or route").fill("remember")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".audit > li")).to_have_count(2)
    page.get_by_label("Outcome").select_option("false")
    expect(page.locator(".audit > li")).to_have_count(1)
    page.get_by_label("Outcome").select_option("true")
    expect(page.locator(".audit > li")).to_have_count(1)
    page.locator(".audit summary").click()
    expect(page.locator(".audit pre").first).to_contain_text("<img src=x")
    page.get_by_role("button", name="Verify the log").click()
    expect(page.locator("[role=status].good")).to_contain_text("as they were written")


def test_a_person_without_the_right_is_not_offered_the_audit(
    browser: Browser, server: Running
) -> None:
    token = server.token("default", scopes=frozenset({"read", "write", "delete"}))
    with opened(browser, server.port, viewport=PHONE) as window:
        answer = window.context.request.get(
            f"{window.address}/api/console/audit", headers={"authorization": f"Bearer {token}"}
        )
        assert answer.status == 403


def test_discs_do_not_overlap_and_places_are_always_the_same() -> None:
    placed = spiral([400, 90, 30, *([5] * 60), *([1] * 100)])
    for number, (x, y, r) in enumerate(placed):
        for a, b, c in placed[:number]:
            assert ((x - a) ** 2 + (y - b) ** 2) ** 0.5 > (r + c) * 0.98
    assert spiral([]) == [] and spiral([3]) == [(0.0, 0.0, spiral([3])[0][2])]
    edges = [(0, each) for each in range(1, 20)]
    assert springs(20, edges) == springs(20, edges)
    assert nearest("a", {"a": {"b", "c"}, "b": {"a"}, "c": {"a", "d"}, "d": {"c"}}) == list("acbd")
