"""The console in a real Chromium: a large graph, a long list, many tabs, and the first load."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import server, speed
from bench.report import Row, Section, milliseconds, say
from commonplace import Commonplace
from commonplace.engine.content.memories import Draft

NODES, NODES_QUICK = 20_000, 2_000
ROWS, ROWS_QUICK = 100_000, 2_000
TABS, TABS_QUICK = 50, 5
FRAMES = 90
PAGES = 20
CHROME = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Pans as a person does, and notes how long each frame took from the event until it was painted.
PANNING = """async (frames) => {
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const send = (kind, x) => canvas.dispatchEvent(new PointerEvent(kind, {
    pointerId: 1, clientX: box.left + x, clientY: box.top + 200, bubbles: true}));
  canvas.setPointerCapture = () => {};
  send("pointerdown", 300);
  const taken = [];
  for (let frame = 0; frame < frames; frame += 1) {
    await new Promise(requestAnimationFrame);
    const begun = performance.now();
    send("pointermove", 300 + 4 * (frame % 30));
    await new Promise(requestAnimationFrame);
    canvas.getContext("2d").getImageData(0, 0, 1, 1); // waits until it is drawn
    taken.push(performance.now() - begun);
  }
  send("pointerup", 300);
  return taken;
}"""


def measure(plan: speed.Plan) -> Section:
    """All rows of the console; quick plans are small."""
    quick = plan.rounds <= 2
    rows: list[Row] = []
    with server.scratch_directory() as scratch, browser() as chromium:
        if chromium is None:
            return Section("The console in a browser", (), ["no Chromium is installed"])
        data = scratch / "graph"
        store_linked(data, NODES_QUICK if quick else NODES)
        with serving(data) as (address, _):
            rows += measure_graph(chromium, address, NODES_QUICK if quick else NODES)
            rows.append(measure_first_load(chromium, address))
        many = ROWS_QUICK if quick else ROWS
        data = scratch / "list"
        store_unlinked(data, many)
        with serving(data) as (address, process):
            rows.append(measure_long_list(chromium, address, many))
            rows.append(measure_tabs(chromium, address, process, TABS_QUICK if quick else TABS))
    notes = ["a real Chromium with the software renderer of this machine, 1280 × 800"]
    return Section("The console in a browser", rows, notes)


@contextmanager
def browser() -> Iterator[Any]:
    """Start a Chromium for the block; yield None if none is installed."""
    given = os.environ.get("COMMONPLACE_TEST_CHROME")
    found = given or next(filter(None, map(shutil.which, CHROME)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if not found:
        yield None
        return
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield made
        made.close()


@contextmanager
def serving(data: Path) -> Iterator[tuple[str, Any]]:
    """Run a server without rate limits for the block; yield its address and its process."""
    command = [*server.OURS, "serve", "--data", str(data), "--port", "0", "--embedding", "none"]
    limits = {"COMMONPLACE_RATE": "1000000", "COMMONPLACE_BURST": "1000000"}
    with server.connected_http(command, "/mcp/commonplace", **limits) as one:
        yield f"http://{one.where}", one.process


def store_linked(data: Path, many: int) -> None:
    """Store memories in linked groups: a few large ones, and many with a handful."""
    say(f"linking {many:,} memories")
    with Commonplace(data, embedding="none") as memory:
        ids = store_memories(memory, many)
        sizes, left = [], many
        while left > 0:
            sizes.append(min(left, max(5, left // 8)))
            left -= sizes[-1]
        start = 0
        for size in sizes:
            with memory.unit("links"):
                for number in range(1, size):
                    # Each to one before it, so that a group is a tree with hubs.
                    memory.links.add(ids[start + number], ids[start + number // 4], "supports")
            start += size


def store_unlinked(data: Path, many: int) -> None:
    """Store memories without links."""
    say(f"storing {many:,} memories")
    with Commonplace(data, embedding="none") as memory:
        store_memories(memory, many)


def store_memories(memory: Commonplace, many: int) -> list[str]:
    """Store memories; return their ids."""
    ids: list[str] = []
    for start in range(0, many, 1_000):
        drafts = [
            Draft(text=f"Observation {number} of the marsh.", kind=f"kind{number % 6}")
            for number in range(start, min(start + 1_000, many))
        ]
        ids += [one.id for one in memory.remember_many(drafts)]
    return ids


def open_page(chromium: Any) -> Any:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(120_000)
    return context.new_page()


def measure_graph(chromium: Any, address: str, many: int) -> list[Row]:
    """Measure the time from the click to the painted clusters, and of a frame while panning."""
    page = open_page(chromium)
    page.goto(f"{address}/viewer")
    page.wait_for_selector("h1")
    firsts = []
    for number in range(4):  # the first computes the positions, which are kept
        say(f"the graph of {many:,} nodes, visit {number + 1}")
        page.goto(f"{address}/viewer/graph")
        page.wait_for_selector("canvas[data-drawn]")
        firsts.append(page.evaluate("Number(document.querySelector('canvas').dataset.drawnAt)"))
    drawn = int(page.locator("canvas").get_attribute("data-drawn"))
    outside = sorted(page.evaluate(PANNING, FRAMES))
    page.goto(address + page.locator("main .rows a").first.get_attribute("href"))
    page.wait_for_selector("canvas[data-drawn]")
    inside = int(page.locator("canvas").get_attribute("data-drawn"))
    taken = sorted(page.evaluate(PANNING, FRAMES))
    page.context.close()
    first, later = firsts[0] / 1e3, statistics.median(firsts[1:]) / 1e3
    slow, slow_outside = (each[int(len(each) * 0.95)] / 1e3 for each in (taken, outside))
    return [
        Row(
            name=f"graph of {many:,} nodes, first paint of {drawn} clusters",
            measured=milliseconds(first), against=f"later {milliseconds(later)}",
            target="≤ 1 s", ok=first <= 1, values={"first": first, "later": later},
        ),
        Row(
            name=f"a frame while panning {inside} nodes of the largest cluster, p95 of {FRAMES}",
            measured=milliseconds(slow), against=f"clusters {milliseconds(slow_outside)}",
            target="≤ 50 ms", ok=max(slow, slow_outside) <= 0.05,
            values={"p95": slow, "p50": taken[len(taken) // 2] / 1e3, "clusters": slow_outside},
        ),
    ]  # fmt: skip


def measure_first_load(chromium: Any, address: str) -> Row:
    """Measure how many bytes the first visit transfers."""
    page = open_page(chromium)
    session = page.context.new_cdp_session(page)
    sizes: list[int] = []
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    page.goto(f"{address}/viewer")
    page.wait_for_selector("h1")
    page.wait_for_timeout(2_000)
    page.context.close()
    return Row(
        name="first load, as sent", measured=f"{sum(sizes) / 1e3:.0f} KB", target="≤ 150 KB",
        ok=sum(sizes) <= 150_000, values={"bytes": sum(sizes), "requests": len(sizes)},
    )  # fmt: skip


def measure_long_list(chromium: Any, address: str, many: int) -> Row:
    """Go through pages of a long list: the number of elements must not grow."""
    page = open_page(chromium)
    page.goto(f"{address}/viewer/memories")
    page.wait_for_selector(".results .memory")
    session = page.context.new_cdp_session(page)

    def held() -> tuple[int, int]:
        session.send("HeapProfiler.collectGarbage")
        told = session.send("Memory.getDOMCounters")
        heap = session.send("Runtime.getHeapUsage")
        return told["nodes"], heap["usedSize"]

    counted = []
    for number in range(PAGES):
        say(f"page {number + 1} of {PAGES} of the list")
        page.get_by_role("button", name="Later").click()
        start = (number + 1) * 50 + 1
        page.locator(".pager", has_text=f"{start:,}–").or_(
            page.locator(".pager", has_text=f"{start}–")
        ).first.wait_for()
        counted.append(held())
    page.context.close()
    nodes = counted[-1][0] / counted[2][0]
    return Row(
        name=f"list of {many:,} memories, elements after {PAGES} pages",
        measured=f"{counted[-1][0]:,}", against=f"{counted[2][0]:,} after 3", ratio=nodes,
        target="≤ 1.1×", ok=nodes <= 1.1,
        values={"nodes": [each[0] for each in counted], "heap": [each[1] for each in counted]},
    )  # fmt: skip


def measure_tabs(chromium: Any, address: str, process: Any, many: int) -> Row:
    """Measure the server's own memory before and with many open tabs."""
    page = open_page(chromium)
    for path in ("", "/memories", "/graph", "/time"):  # what is loaded once
        page.goto(f"{address}/viewer{path}")
        page.wait_for_selector("h1")
    before = private_bytes(process.pid)
    for number in range(many):
        say(f"tab {number + 1} of {many}")
        tab = page.context.new_page()
        tab.goto(f"{address}/viewer{('', '/memories', '/graph', '/time')[number % 4]}")
        tab.wait_for_selector("h1")
    grown = private_bytes(process.pid) - before
    page.context.close()
    return Row(
        name=f"the server's memory for {many} open tabs", measured=f"{grown / 1e6:.1f} MB",
        against=f"of {before / 1e6:.0f} MB", target="≤ 10 MB", ok=grown <= 10_000_000,
        values={"before": before, "grown": grown},
    )  # fmt: skip


def private_bytes(pid: int) -> int:
    """Memory that a process shares with no other."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Dirty", "Anonymous")):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell")


PARTS = {"console": measure}
