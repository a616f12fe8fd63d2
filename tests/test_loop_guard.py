"""The guard that every server test relies on finds what it is made for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import loop_guard

STATEMENTS: dict[str, Callable[[apsw.Connection, Path], object]] = {
    "execute": lambda opened, _: opened.execute("SELECT 1").fetchone(),
    "executemany": lambda opened, _: opened.executemany("SELECT ?", [(1,), (2,)]).fetchall(),
    "a cursor": lambda opened, _: opened.cursor().execute("SELECT 1").fetchone(),
    "a pragma": lambda opened, _: opened.pragma("user_version"),
    "opening": lambda _, path: apsw.Connection(str(path)).close(),
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_a_database_in_a_loops_thread_is_found(tmp_path: Path, kind: str) -> None:
    opened = apsw.Connection(str(tmp_path / "one.db"))
    use = STATEMENTS[kind]
    use(opened, tmp_path / "one.db")
    assert loop_guard.found == []

    async def serve() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        await asyncio.to_thread(use, opened, tmp_path / "one.db")
        assert loop_guard.found == []
        loop.call_soon(lambda: (use(opened, tmp_path / "one.db"), done.set()))
        await done.wait()

    asyncio.run(serve())
    stacks, loop_guard.found[:] = list(loop_guard.found), []
    assert stacks and all("call_soon" in stack or "_run_once" in stack for stack in stacks)
    opened.close()


SERVING = """
import asyncio, sys
from commonplace.storage.database import connect
from pathlib import Path
opened = connect(Path(sys.argv[1]), create=True)
if sys.argv[2] == "thread":
    asyncio.run(asyncio.to_thread(opened.execute, "SELECT 1"))
else:
    loop = asyncio.new_event_loop()
    loop.call_soon(opened.execute, "SELECT 1")
    loop.call_soon(loop.stop)
    loop.run_forever()
"""


@pytest.mark.parametrize(("where", "code"), [("thread", 0), ("loop", 70)])
def test_a_process_that_uses_a_database_in_its_loops_thread_ends(
    tmp_path: Path, where: str, code: int
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SERVING, str(tmp_path / "one.db"), where],
        env=dict(os.environ), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == code, run.stderr
    assert ("on the event loop" in run.stderr) == (code == 70)
