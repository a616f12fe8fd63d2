"""The tools that count: the lines of the program, and the files that a call enters."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent.parent / "tools"


def _run(tool: str, *arguments: str) -> str:
    command = [sys.executable, str(TOOLS / tool), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_lines_are_counted_as_the_formatter_lays_them_out(tmp_path: Path) -> None:
    room = tmp_path / "src" / "commonplace" / "engine"
    room.mkdir(parents=True)
    (room / "one.py").write_text("a = 1; b = 2\n")  # two lines when formatted
    (room / "two.py").write_text("c = [1,\n 2]\n")  # one
    (room / "data.json").write_text("{}\n\n\n")
    (room.parent / "errors.py").write_text("d = 1\n")
    counted = re.findall(r"(\d+) (\S+)", _run("size.py", str(tmp_path)))
    assert counted == [("3", "engine"), ("1", "errors.py"), ("4", "total")]


def test_the_walk_lists_what_a_call_enters_and_no_background_work() -> None:
    told = _run("walk.py")
    walks = dict(re.findall(r"^(\w+): \d+ files, \d+ functions\n((?: .*\n)+)", told, re.MULTILINE))
    assert walks.keys() == {"remember", "recall"}
    for tool, walk in walks.items():
        files = re.findall(r"^  (\S+)$", walk, re.MULTILINE)
        assert f"  dialects/commonplace/tools.py\n    {tool}\n" in walk.replace(
            "    presented\n", ""
        )
        assert {file.partition("/")[0] for file in files} >= {"server", "engine", "storage"}
        assert not [file for file in files if "clawbrain" in file]  # its thread looks all the time
        assert (
            f"{tool}: {len(files)} files, {len(re.findall('^    ', walk, re.M))} functions" in told
        )
