"""The pages that lead a newcomer are run as they stand: each command, and what it prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from commonplace.cli.app import run

DOCS = Path(__file__).parent.parent / "docs"
RUN = ("tutorial", "guide-claude-code", "guide-companion", "guide-moving-in", "guide-moving-out")
ANY, SHORT_ID = "…", re.compile(r"\b[0-9a-f]{8}\b")
REST = "…"
"""A line of its own that stands for any number of lines."""


def _steps(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page's console blocks, each with the lines that it prints."""
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


class Reader:
    """Someone who types what a page says, with the ids that the program printed."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def typed(self, command: str) -> list[str]:
        """The words of a command after the program's name."""
        for shown, real in self.ids.items():
            command = command.replace(shown, real)
        program, *words = shlex.split(command)
        assert program == "commonplace"
        return words

    def compare(self, shown: list[str], printed: list[str]) -> None:
        """Compare what a page shows with what was printed; new ids are taken over."""
        left = list(printed)
        for at, line in enumerate(shown):
            if line == REST:
                following = shown[at + 1 :]
                left = left[len(left) - len(following) :] if following else []
                continue
            assert left, (line, printed)
            self._compare(line, left.pop(0))
        assert left == []

    def _compare(self, shown: str, printed: str) -> None:
        names: list[str] = []
        pattern = ""
        for part in re.split(rf"({SHORT_ID.pattern}|{ANY})", shown):
            if part == ANY:
                pattern += ".*"
            elif SHORT_ID.fullmatch(part) and part not in self.ids:
                names.append(part)
                pattern += "([0-9a-f]{8})"
            else:
                pattern += re.escape(self.ids.get(part, part))
        found = re.fullmatch(pattern, printed)
        assert found, (shown, printed)
        self.ids |= dict(zip(names, found.groups(), strict=True))


@pytest.mark.parametrize("name", RUN)
def test_a_page_does_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("COMMONPLACE_DATA", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "Tomatoes.md").write_text("Tomatoes need sun. See [[Water]].\n")
    (vault / "Water.md").write_text("Water in the evening.\n")
    if name == "guide-moving-out":
        assert run(["import", "vault", "--from", "obsidian"]) == 0
    capsys.readouterr()
    steps = _steps((DOCS / f"{name}.md").read_text())
    assert steps
    reader = Reader()
    try:
        for command, shown in steps:
            code = run(reader.typed(command))
            printed = capsys.readouterr()
            assert code == 0 or shown == printed.err.splitlines(), (command, printed)
            if code == 0:
                # what a terminal shows, without the notes that a pipe does not carry
                also = printed.err.splitlines() if "take it back" in printed.err else []
                reader.compare(shown, [*printed.out.splitlines(), *also])
    finally:
        run(["stop"])  # a check starts a server in the background
        capsys.readouterr()


def test_a_page_that_shows_something_else_is_noticed() -> None:
    reader = Reader()
    with pytest.raises(AssertionError):
        reader.compare(["remembered"], ["forgotten"])
    with pytest.raises(AssertionError):
        reader.compare(["one", "…", "last"], ["one", "two"])
    with pytest.raises(AssertionError):
        reader.compare(["one"], ["one", "two"])
    reader.compare(["1234abcd  …"], ["deadbeef  a text"])
    assert reader.typed("commonplace show 1234abcd") == ["show", "deadbeef"]
