"""The durable store once more, on a disk whose syncs take as long as a hard one's.

How much shared commits win depends on how long a sync takes: 8 ms on the disk that the target was
set on, a fifth of a millisecond on some. A preloaded library makes every sync of a process of its
own wait that long, the engine's and the floor's alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench import speed
from bench.report import Row, Section, say
from bench.speed import Plan

SYNC_MICROSECONDS = 7_700
SOURCE = Path(__file__).parent / "slow_sync.c"
TITLE = f"Durable store, each sync made {SYNC_MICROSECONDS / 1000:g} ms longer"


def measure(plan: Plan) -> Section:
    """The rows of `measure_durable_store`, measured in a process whose syncs are slow."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return Section(TITLE, [], ["left out: it needs Linux and a C compiler (cc)"])
    say("a disk with slow syncs")
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        library = str(Path(directory) / "slow_sync.so")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-o", library, str(SOURCE), "-ldl"], check=True
        )
        environment = {
            **os.environ,
            "LD_PRELOAD": library,
            "SLOW_SYNC_MICROSECONDS": str(SYNC_MICROSECONDS),
        }
        told = subprocess.run(
            [sys.executable, "-m", "bench.slow_disk", json.dumps(asdict(plan))],
            env=environment, check=True, stdout=subprocess.PIPE, cwd=SOURCE.parents[1],
        )  # fmt: skip
    found = json.loads(told.stdout)
    return Section(TITLE, [Row(**row) for row in found["rows"]], found["notes"])


def main(given: str) -> int:
    """Measure the plan that is given as JSON, and print what was found as JSON."""
    asked = json.loads(given)
    section = speed.measure_durable_store(Plan(**{**asked, "sizes": tuple(asked["sizes"])}))
    print(json.dumps(asdict(section)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
