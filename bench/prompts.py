"""`python -m bench.prompts FILE`: what a hook at a prompt takes, on real prompts of LongMemEval-S.

An agent's hook calls the tool `hook` over stdio, with what users wrote in those sessions, over
memories of the benchmark's own corpus.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import sys
import time
from pathlib import Path

from bench import longmemeval, report, speed
from bench.report import Row, Section, milliseconds
from bench.server import OURS, background, cpu, cpu_of, scratch_directory, server_pid, talking

PROMPTS, WARMING = 400, 20
MEMORIES = 10_000


def measure(path: Path) -> Section:
    """Time and CPU of a prompt's hook, with recall."""
    said = (line for chat in longmemeval.read(path) for lines in chat.sessions for line in lines)
    written = dict.fromkeys(line.text for line in said if line.speaker == "user")
    prompts = list(itertools.islice(written, PROMPTS + WARMING))
    with scratch_directory() as scratch:
        data = scratch / "data"
        shutil.copytree(speed.store_of(MEMORIES, speed.Plan().corpus.first(MEMORIES)), data)
        command = [*OURS, "mcp", "--data", str(data)]
        with background(data) as variables, talking(command, **variables) as client:
            client.call("recall", {"query": "warm"})
            pid = server_pid(data)
            taken, given = [], 0
            for number, prompt in enumerate(prompts):
                if number == WARMING:
                    before = cpu_of(pid) + cpu(client.process)
                event = {"event": "UserPromptSubmit", "session": "s", "cwd": str(scratch)}
                begun = time.perf_counter()
                found = client.call("hook", {**event, "prompt": prompt})
                taken.append(time.perf_counter() - begun)
                given += bool(found["content"][0]["text"])
            used = (cpu_of(pid) + cpu(client.process) - before) / PROMPTS
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
    print(report.table([measure(Path(sys.argv[1]))]))
