"""Sessions of an agent with hooks, one after the other; the process dies at moments of chance.

Arguments: the data directory, the folder of transcripts, the first session, how many, a seed, and
optionally the name of a mutant.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commonplace import Commonplace
from commonplace.platform import capture, hooks


def main(data: str, work: str, first: str, count: str, seed: str, mutant: str = "") -> None:
    chance = random.Random(f"{seed}-{first}")
    store, write_note = capture._store_records, capture._write_note

    def perhaps_die(one_in: int) -> None:
        if chance.randrange(min(one_in, 12) if mutant else one_in) == 0:
            os.kill(os.getpid(), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT]))

    def stored(memory: Commonplace, records: Any, project: Any) -> int:
        perhaps_die(90)
        if mutant == "note first":  # how far it has read is written before the lines are stored
            file = Path(work, f"{records[0].session}.jsonl")
            ahead = (file.stat().st_size, capture._beginning_digest(file))
            write_note(memory, capture.Note(str(file), "", records[0].session, *ahead))
            perhaps_die(3)
        added = store(memory, records, project)
        perhaps_die(90)
        return added

    def written(memory: Commonplace, note: Any) -> None:
        write_note(memory, note)
        perhaps_die(120)

    capture._store_records, capture._write_note = stored, written
    if mutant == "no note":  # a session is not noted at its start
        capture.create_note = lambda *_: None
    with Commonplace(data, embedding="none") as memory:
        for number in range(int(first), int(first) + int(count)):
            Path(work, "at").write_text(str(number))
            _session(
                memory, Path(work), f"s{number}", random.Random(f"{seed}-{number}"), perhaps_die
            )


def _session(
    memory: Commonplace,
    work: Path,
    name: str,
    dice: random.Random,
    perhaps_die: Callable[[int], None],
) -> None:
    file, cwd = work / f"{name}.jsonl", str(work / f"project{dice.randrange(3)}")

    def event(kind: str, **more: Any) -> None:
        hooks.handle_event(memory, {"hook_event_name": kind, "session_id": name, "cwd": cwd,
                              "transcript_path": str(file), **more})  # fmt: skip

    def write(text: str) -> None:
        with file.open("ab", buffering=0) as stream:
            stream.write(text.encode())

    event("SessionStart", source="startup")
    for turn in range(dice.randint(1, 3)):
        for role in ("user", "assistant"):
            line = json.dumps({
                "type": role, "sessionId": name, "cwd": cwd, "gitBranch": "main",
                "uuid": f"{name}-{turn}-{role}", "timestamp": "2026-03-01T10:00:00Z",
                "message": {"role": role, "content": f"{name} turn {turn}, the {role} speaks"},
            }) + "\n"  # fmt: skip
            half = dice.randrange(len(line))
            write(line[:half])
            perhaps_die(200)  # which leaves a torn line
            write(line[half:])
        end = dice.choice(["stop", "stop", "stop", "time-out"])
        perhaps_die(100)
        if end == "stop":
            event("Stop")
    if dice.random() < 0.4:
        event("PreCompact", trigger="auto")
    if dice.random() < 0.5:
        event("SessionEnd", reason="other")


if __name__ == "__main__":
    main(*sys.argv[1:])
