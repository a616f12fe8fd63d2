"""The thin clients and the server in the background: `commonplace mcp`, hooks, the command line."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import speed
from bench.report import Row, Section, milliseconds, say
from bench.server import (
    ECHO,
    OURS,
    background_variables,
    connected_stdio,
    cpu_seconds,
    cpu_seconds_of_pid,
    environment,
    scratch_directory,
    server_pid,
)
from commonplace import Commonplace
from commonplace.client import connection

HOOK = [str(Path(sys.executable).with_name("commonplace-hook"))]
CLIENTS = 10
CALLS = 200
MEGABYTE = 1_048_576


def private_bytes(pid: int) -> int:
    """Bytes that a process alone holds in memory, without files that it shares."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def _cpu_to_end(command: Sequence[str], given: str, **variables: str) -> float:
    """Return the CPU seconds of a process that runs to its end."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment(**variables),
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(given)
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


# A process that was started by a large one begins with the other's peak; a small one starts it.
_STARTER = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
)


def _peak_megabytes(command: Sequence[str], **variables: str) -> float:
    """Return the peak memory of a process that runs to its end, in megabytes."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _STARTER, *command], capture_output=True, text=True,
        check=True, env=environment(**variables),
    )  # fmt: skip
    return int(done.stdout) / 1024


def _listing_messages() -> str:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {},
             "clientInfo": {"name": "bench", "version": "1"}}  # fmt: skip
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    return "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages)


def _medians_in_turn(
    rounds: int, mine: Callable[[], float], floor: Callable[[], float]
) -> tuple[float, float, float]:
    """Return the medians of ours, of the floor and of their ratio, measured in turn."""
    pairs = [(mine(), floor()) for _ in range(rounds + 1)][1:]
    ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
    return ours, theirs, statistics.median(one / other for one, other in pairs)


def measure(plan: speed.Plan) -> Section:
    """Measure the cost of each client beside the SDK's echo server."""
    rounds = 7 if plan.rounds > 2 else 3
    with scratch_directory() as scratch:
        data = scratch / "data"
        with Commonplace(data, embedding="none") as memory:
            for text in plan.corpus.texts[:1_000]:
                memory.remember(text)
        with background_variables(data) as variables:
            rows = [
                _measure_start(data, variables, rounds),
                _measure_pipe(data, variables, rounds),
                _measure_first_recall(data, variables, rounds),
                _measure_more_clients(data, variables),
                *_measure_hooks(data, variables, rounds),
                *_measure_command(data, variables, rounds),
            ]
    notes = [f"medians of {rounds} in turn; 1,000 memories; the server has the built-in model"]
    return Section("Clients of the server in the background", rows, notes)


def _measure_start(data: Path, variables: dict[str, str], rounds: int) -> Row:
    say("start of the server in the background")
    command = [*OURS, "mcp", "--data", str(data), "--embedding", "none"]

    def started() -> float:
        with connected_stdio(command, **variables) as client:
            client.call("recall", {"query": "heron"})
            used = cpu_seconds_of_pid(server_pid(data))
        place = connection.place_of(str(data))
        connection.ask(place, {"kind": "stop"})
        while connection.connect(place) is not None:
            time.sleep(0.01)
        return used

    def alone() -> float:
        with connected_stdio([*command, "--in-process"], **variables) as client:
            client.call("recall", {"query": "heron"})
            return cpu_seconds(client.process)

    mine, floor, ratio = _medians_in_turn(rounds, started, alone)
    return Row(
        name="server in the background, to the first answered recall, CPU",
        measured=milliseconds(mine), against=f"--in-process {milliseconds(floor)}", ratio=ratio,
        target="≤ 1.0×", ok=ratio <= 1.0, values={"commonplace": mine, "in process": floor},
    )  # fmt: skip


def _measure_pipe(data: Path, variables: dict[str, str], rounds: int) -> Row:
    say("the pipe's own process")
    command, given = [*OURS, "mcp", "--data", str(data)], _listing_messages()
    mine, floor, ratio = _medians_in_turn(
        rounds,
        lambda: _cpu_to_end(command, given, **variables),
        lambda: _cpu_to_end([*ECHO, "stdio"], given),
    )
    return Row(
        name="commonplace mcp, initialize and tools/list to its end, CPU",
        measured=milliseconds(mine), against=f"SDK echo {milliseconds(floor)}", ratio=ratio,
        target="≤ .08×", ok=ratio <= 0.08, values={"commonplace": mine, "echo": floor},
    )  # fmt: skip


def _measure_first_recall(data: Path, variables: dict[str, str], rounds: int) -> Row:
    say("the pipe to its first answered recall, with a server there")

    def ours() -> float:
        begun = time.perf_counter()
        with connected_stdio([*OURS, "mcp", "--data", str(data)], **variables) as client:
            client.call("recall", {"query": "heron"})
            return time.perf_counter() - begun

    def echo() -> float:
        begun = time.perf_counter()
        with connected_stdio([*ECHO, "stdio"]) as client:
            client.call("echo", {"text": "heron"})
            return time.perf_counter() - begun

    mine, floor, ratio = _medians_in_turn(rounds, ours, echo)
    return Row(
        name="commonplace mcp to the first answered recall, server there, wall",
        measured=milliseconds(mine), against=f"SDK echo {milliseconds(floor)}", ratio=ratio,
        target="≤ .25×", ok=ratio <= 0.25, values={"commonplace": mine, "echo": floor},
    )  # fmt: skip


def _measure_more_clients(data: Path, variables: dict[str, str]) -> Row:
    say("memory of more clients")
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            client = stack.enter_context(
                connected_stdio([*OURS, "mcp", "--data", str(data)], **variables)
            )
            client.call("recall", {"query": "heron"})
            clients.append(client.process.pid)
            if number == 0:
                first = private_bytes(server_pid(data))
        grown = max(0, private_bytes(server_pid(data)) - first) / (CLIENTS - 1)
        pipe = statistics.median(map(private_bytes, clients))
    each = (pipe + grown) / MEGABYTE
    return Row(
        name=f"memory of each of {CLIENTS - 1} more clients: its pipe, and the server's growth",
        measured=f"{each:.1f} MB", target="≤ 16 MB", ok=each <= 16,
        values={"pipe": pipe, "server": grown},
    )  # fmt: skip


def _measure_hooks(data: Path, variables: dict[str, str], rounds: int) -> list[Row]:
    say("hooks")
    event = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": "x", "cwd": str(data)})
    command = [*HOOK, "--data", str(data)]
    used = [_cpu_to_end(command, event, **variables) for _ in range(rounds + 1)][1:]
    times = []
    with connected_stdio([*OURS, "mcp", "--data", str(data)], **variables) as client:
        for _ in range(CALLS):
            begun = time.perf_counter()
            client.call("hook", {"event": "Nothing"})
            times.append(time.perf_counter() - begun)
    middle, late = statistics.median(used), statistics.quantiles(times, n=20)[-1]
    return [
        Row(
            name="commonplace-hook, server there, CPU", measured=milliseconds(middle),
            target="≤ 60 ms", ok=middle <= 0.06, values={"seconds": middle},
        ),
        Row(
            name="the tool hook with an event that needs no work, p95", measured=milliseconds(late),
            target="≤ 3 ms", ok=late <= 0.003, values={"seconds": late},
        ),
    ]  # fmt: skip


def _measure_command(data: Path, variables: dict[str, str], rounds: int) -> list[Row]:
    say("commonplace search")
    command = [*OURS, "search", "heron", "--data", str(data)]
    mine, floor, ratio = _medians_in_turn(
        rounds,
        lambda: _cpu_to_end(command, "", **variables),
        lambda: _cpu_to_end([*ECHO, "stdio"], _listing_messages()),
    )
    peak = statistics.median(_peak_megabytes(command, **variables) for _ in range(rounds))
    return [
        Row(
            name="commonplace search, server there, CPU", measured=milliseconds(mine),
            against=f"SDK echo {milliseconds(floor)}", ratio=ratio, target="≤ .5×",
            ok=ratio <= 0.5, values={"commonplace": mine, "echo": floor},
        ),
        Row(
            name="commonplace search, server there, peak memory", measured=f"{peak:.0f} MB",
            target="< 60 MB", ok=peak < 60, values={"megabytes": peak},
        ),
    ]  # fmt: skip


PARTS = {"clients": measure}
