"""Graph and Audit, walked as a person would."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Download, expect

from commonplace import Commonplace
from commonplace.dialects.commonplace.console import graph
from commonplace.dialects.commonplace.console.graph import (
    MAX_GROUPS,
    MAX_NODES,
    LayoutCache,
    linked_by_distance,
    spiral_layout,
    spring_layout,
)
from commonplace.dialects.contract import Call
from commonplace.engine.content.memories import Draft
from conftest import wait_until
from server.harness import Running
from web.conftest import PHONE, Opened, memory_of, opened

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
    drawn = "document.querySelector('canvas').toDataURL()"
    light = page.evaluate(drawn)
    page.get_by_role("button", name="Use the dark theme").click()
    wait_until(lambda: page.evaluate(drawn) != light)  # names in a colour that is seen
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
    expect(page.locator(".audit > li")).not_to_contain_text("done")
    page.get_by_label("Outcome").select_option("true")
    expect(page.locator(".audit > li")).to_contain_text("done")
    page.locator(".audit summary").click()
    expect(page.locator(".audit pre").first).to_contain_text("<img src=x")
    page.get_by_role("button", name="Verify the log").click()
    expect(page.locator("[role=status].good")).to_contain_text("as they were written")
    downloads: list[Download] = []
    page.on("download", lambda one: downloads.append(one))
    page.get_by_role("button", name="Export").click()
    expect(page.locator("[role=status].good")).to_contain_text("1 call exported.")
    while not downloads:
        page.wait_for_timeout(50)
    lines = [json.loads(line) for line in Path(downloads[0].path()).read_text().splitlines()]
    assert {line["tool"] for line in lines} == {"remember"} and len(lines) == 1
    page.get_by_label("Outcome").select_option("")
    expect(page.locator(".audit > li")).to_have_count(2)
    page.get_by_label("From").fill("2020-01-01")
    page.get_by_label("To", exact=True).fill("2020-01-02")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".empty")).to_contain_text("No such call")


def test_a_person_without_the_right_is_not_offered_the_audit(
    browser: Browser, server: Running
) -> None:
    token = server.token("default", scopes=frozenset({"read", "write", "delete"}))
    with opened(browser, server.port, viewport=PHONE) as window:
        answer = window.context.request.get(
            f"{window.address}/api/console/audit", headers={"authorization": f"Bearer {token}"}
        )
        assert answer.status == 403


def test_a_picture_is_made_once_for_callers_that_come_at_the_same_time() -> None:
    pictures, made, begun, go_on = LayoutCache(2), [], threading.Event(), threading.Event()

    def make() -> int:
        made.append(1)
        begun.set()
        assert go_on.wait(60)
        return 7

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(pictures.get, ("a",), make)
        assert begun.wait(60)
        others = [pool.submit(pictures.get, ("a",), make) for _ in range(2)]
        go_on.set()
        assert [each.result(60) for each in (first, *others)] == [7, 7, 7]
    assert len(made) == 1
    with pytest.raises(ZeroDivisionError):
        pictures.get(("b",), lambda: 1 // 0)
    assert pictures.get(("b",), lambda: 8) == 8


def test_the_groups_are_computed_when_the_console_is_opened(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(server)
    memory.links.add(memory.remember("One").id, memory.remember("Two").id, "supports")
    computed, real = threading.Event(), graph._compute_groups

    def groups(call: Call, kind: str) -> dict[str, Any]:
        computed.set()
        return real(call, kind)

    monkeypatch.setattr(graph, "_compute_groups", groups)
    httpx.get(f"http://127.0.0.1:{server.port}/api/console/overview").raise_for_status()
    assert computed.wait(60)


def test_discs_do_not_overlap_and_places_are_always_the_same() -> None:
    placed = spiral_layout([400, 90, 30, *([5] * 60), *([1] * 100)])
    for number, (x, y, r) in enumerate(placed):
        for a, b, c in placed[:number]:
            assert ((x - a) ** 2 + (y - b) ** 2) ** 0.5 > (r + c) * 0.98
    assert spiral_layout([]) == [] and spiral_layout([3]) == [(0.0, 0.0, spiral_layout([3])[0][2])]
    edges = [(0, each) for each in range(1, 20)]
    assert spring_layout(20, edges) == spring_layout(20, edges)
    assert linked_by_distance(
        "a", {"a": {"b", "c"}, "b": {"a"}, "c": {"a", "d"}, "d": {"c"}}
    ) == list("acbd")


def test_a_large_graph_is_a_few_requests_and_a_bounded_picture(
    window: Opened, server: Running
) -> None:
    memory = memory_of(server, "large")
    pairs, star = MAX_GROUPS + 10, MAX_NODES + 20
    drafts = [Draft(text=f"Note {number}") for number in range(2 * pairs + star)]
    with memory.unit("many"):
        ids = [one.id for start in (0, 1_000) for one in memory.remember_many(
            drafts[start:start + 1_000])]  # fmt: skip
        for number in range(pairs):
            memory.links.add(ids[2 * number], ids[2 * number + 1], "supports")
        for leaf in ids[2 * pairs + 1 :]:
            memory.links.add(leaf, ids[2 * pairs], "part_of")
    token, origin = server.token("large"), window.address
    window.context.request.post(
        f"{origin}/sign-in", data={"token": token}, headers={"origin": origin}
    )
    page = window.open()
    asked: list[tuple[str, int]] = []
    page.on("response", lambda told: asked.append((told.url, len(told.body()))))
    page.goto(f"{origin}/viewer/graph")
    page.wait_for_selector(f"canvas[data-drawn='{MAX_GROUPS}']")
    expect(page.locator("main")).to_contain_text("11 smaller groups are not shown.")
    _asked_for_little(asked, 2)
    page.locator("main .rows a").first.click()
    page.wait_for_selector("canvas[data-drawn='150']")
    expect(page.locator(".lede")).to_contain_text("170 more are further away")
    _asked_for_little(asked, 3)


def _asked_for_little(asked: list[tuple[str, int]], most: int) -> None:
    """So many requests for data, together not large; the list is emptied for the next page."""
    data = [(url, size) for url, size in asked if "/api/console/" in url and "/me" not in url]
    assert len(data) <= most, data
    assert sum(size for _, size in data) <= 200_000
    asked.clear()
