"""`python -m bench.prompts LONGMEMEVAL [LOCOMO]`: what a hook at a prompt takes, and what it adds.

An agent's hook calls the tool `hook` over stdio, with what users wrote in the sessions of
LongMemEval-S: over memories of the benchmark's own corpus for the time, and over conversations of
LoCoMo, which are about other things, for what is added although nothing should be.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from bench import locomo, longmemeval, report, speed
from bench.report import Row, Section, milliseconds
from bench.server import (
    OURS,
    background_variables,
    connected_stdio,
    cpu_seconds,
    cpu_seconds_of_pid,
    scratch_directory,
    server_pid,
)
from commonplace import Library
from commonplace.embedding.provider import open_embedder

PROMPTS, WARMING = 400, 20
MEMORIES = 10_000
CONVERSATIONS = 5
BYTES = 1_536


def read_prompts(path: Path, many: int) -> list[str]:
    """Return the texts that users wrote, each once."""
    said = (
        line for chat in longmemeval.read_chats(path) for lines in chat.sessions for line in lines
    )
    written = dict.fromkeys(line.text for line in said if line.speaker == "user")
    return list(itertools.islice(written, many))


def measure_additions(path: Path, talks: Path) -> Section:
    """Measure how much the hook adds to prompts that no stored conversation is about."""
    sizes: list[int] = []
    prompts = read_prompts(path, PROMPTS)
    with scratch_directory() as scratch:
        for number, conversation in enumerate(locomo.read_conversations(talks)[:CONVERSATIONS]):
            data = scratch / conversation.name
            with closing(Library(data, embedder=open_embedder("builtin"))) as library:
                name = locomo.store_conversation(library, conversation).name
            command = [*OURS, "mcp", "--data", str(data), "--space", name]
            with (
                background_variables(data) as variables,
                connected_stdio(command, **variables) as client,
            ):
                for prompt in prompts[number::CONVERSATIONS]:
                    event = {"event": "UserPromptSubmit", "session": "s", "cwd": str(scratch)}
                    found = client.call("hook", {**event, "prompt": prompt})
                    sizes.append(len(found["content"][0]["text"].encode()))
    share, most = sum(map(bool, sizes)) / len(sizes), max(sizes)
    rows = [
        Row(
            name="prompts about other things that are given something", measured=f"{share:.3f}",
            target="≤ .05", ok=share <= 0.05, values={"share": share},
        ),
        Row(
            name="the most that a prompt is given", measured=f"{most:,} bytes",
            target=f"≤ {BYTES:,}", ok=most <= BYTES, values={"bytes": most},
        ),
    ]  # fmt: skip
    notes = [f"{len(sizes)} prompts over {CONVERSATIONS} conversations"]
    return Section("What hooks add", rows, notes)


def measure(path: Path) -> Section:
    """Time and CPU of a prompt's hook, with recall."""
    prompts = read_prompts(path, PROMPTS + WARMING)
    with scratch_directory() as scratch:
        data = scratch / "data"
        shutil.copytree(speed.store_of(MEMORIES, speed.Plan().corpus.first(MEMORIES)), data)
        command = [*OURS, "mcp", "--data", str(data)]
        with (
            background_variables(data) as variables,
            connected_stdio(command, **variables) as client,
        ):
            client.call("recall", {"query": "warm"})
            pid = server_pid(data)
            taken, given = [], 0
            for number, prompt in enumerate(prompts):
                if number == WARMING:
                    before = cpu_seconds_of_pid(pid) + cpu_seconds(client.process)
                event = {"event": "UserPromptSubmit", "session": "s", "cwd": str(scratch)}
                begun = time.perf_counter()
                found = client.call("hook", {**event, "prompt": prompt})
                taken.append(time.perf_counter() - begun)
                given += bool(found["content"][0]["text"])
            used = (cpu_seconds_of_pid(pid) + cpu_seconds(client.process) - before) / PROMPTS
    taken = taken[WARMING:]
    middle, late = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
    rows = [
        Row(
            name="the tool hook at a prompt, with recall, p50", measured=milliseconds(middle),
            target="≤ 10 ms", ok=middle <= 0.010, values={"seconds": middle},
        ),
        Row(
            name="the same, p95", measured=milliseconds(late), target="≤ 20 ms",
            ok=late <= 0.020, values={"seconds": late},
        ),
        Row(
            name="the same, CPU of the pipe and the server, mean", measured=milliseconds(used),
            values={"seconds": used},
        ),
    ]  # fmt: skip
    notes = [f"{PROMPTS} prompts over {MEMORIES:,} memories, {given} of them given something"]
    return Section("Hooks at prompts", rows, notes)


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    sections = [measure(given[0])]
    if given[1:]:
        sections.append(measure_additions(given[0], given[1]))
    print(report.format_table(sections))
