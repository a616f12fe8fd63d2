"""The tools that count: the lines of the program, and the files that a call enters."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent.parent / "tools"
# Two of those of `remember` look for what the new memory may replace.
FILES_OF_A_CALL = {"remember": 27, "recall": 30}
"""How many files of the program a call may enter: its path should stay short enough to read."""


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
    assert walks.keys() == FILES_OF_A_CALL.keys()
    for tool, walk in walks.items():
        files = re.findall(r"^  (\S+)$", walk, re.MULTILINE)
        assert re.search(rf"  dialects/commonplace/tools\.py\n(?:    .*\n)*    {tool}\n", walk)
        assert len(files) <= FILES_OF_A_CALL[tool], files
        assert {file.partition("/")[0] for file in files} >= {"server", "engine", "storage"}
        assert not [file for file in files if "clawbrain" in file]  # its thread looks all the time
        assert (
            f"{tool}: {len(files)} files, {len(re.findall('^    ', walk, re.M))} functions" in told
        )


SOAK = """
import pathlib, time
import pytest

pytestmark = pytest.mark.soak
FLAG = pathlib.Path(__file__).with_name("mended")


def test_one(publish):
    FLAG.with_name("ran").open("a").write("one ")
    publish("7 kills, 0 lost, seed 3")


@pytest.mark.parametrize("seed", (4, 5))
def test_two(publish, seed):
    publish(f"9 flips, seed {seed}")
    assert seed == 4 or FLAG.exists()


def test_three():
    time.sleep(0 if FLAG.exists() else 60)
"""


def test_a_soak_resumes_where_it_failed_and_shows_figures_with_seed_and_date(
    tmp_path: Path,
) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text('pytest_plugins = ["reliability.conftest"]\n')
    (tests / "test_small.py").write_text(SOAK)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = soak\n")

    def soak(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(TOOLS / "soak.py"), "--tests", str(tests),
             "--folder", str(tmp_path / "state"), *arguments],
            check=False, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout

    code, told = soak("two", "one")
    assert code == 1 and "2 of 3 parts passed." in told
    assert "[1/3] small: one: passed" in told and "[3/3] small: two[5]: FAILED" in told
    assert re.search(r"\d{4}-\d\d-\d\d  small: one  7 kills, 0 lost, seed 3", told)
    code, told = soak("three", "--limit", "3")
    assert code == 1 and "took over 0.05 minutes" in told
    assert "three: FAILED" in soak("--list")[1]
    (tests / "mended").touch()
    code, told = soak()
    assert code == 0 and "4 of 4 parts passed." in told
    assert "[2/4] small: two[4]: started" not in told and "[3/4] small: two[5]: started" in told
    assert (tests / "ran").read_text() == "one ", "a part that had passed was run again"
    assert "9 flips, seed 4" in told and "7 kills, 0 lost, seed 3" in told
    assert soak("--again", "one")[0] == 0
    assert (tests / "ran").read_text() == "one one "
    assert soak("nothing")[0] == 2
