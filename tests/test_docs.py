"""The pages say what there is: commands, files, settings, and every line of a contract."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from commonplace.cli.app import ALIASES, app
from commonplace.dialects import registry
from commonplace.engine.finding.ranking import Weighting
from commonplace.platform.llm import PROVIDERS
from commonplace.server.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MADE = "bench/results"  # by a run
# Where a file that is named without its whole path may be.
ROOMS = ("", "src/commonplace", "src/commonplace/server", "src/commonplace/access",
         "src/commonplace/access/oauth", "src/commonplace/storage",
         "src/commonplace/dialects/clawbrain", "src/commonplace/dialects/being",
         "tests/reliability", "tests/server", "docs")  # fmt: skip


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = _load()


@cache
def _tests_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found |= {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):  # TestX = Machine.TestCase
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if hasattr(each, "name")}
    return found


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda path: path.name)
def test_a_page_made_from_code_is_as_the_code_says(page: Path) -> None:
    assert page.read_text() == docs.PAGES[page](), "run 'make docs'"


@pytest.mark.parametrize("dialect", docs.contracts())
def test_every_line_of_a_contract_names_a_test_that_there_is(dialect: str) -> None:
    for section, line, test in docs.rows_of(dialect):
        assert section and line, (section, line, test)
        if test.startswith(docs.WITHOUT_TEST):
            continue
        file, _, name = test.partition("::")
        assert re.sub(r"\[.*", "", name) in _tests_in(ROOT / file), test


@pytest.mark.parametrize("dialect", docs.contracts())
def test_every_tool_of_a_contract_has_a_line(dialect: str) -> None:
    told = "\n".join(f"{section} {line}" for section, line, _ in docs.rows_of(dialect))
    missing = [
        tool.name
        for tool in registry.load(dialect).tools
        if not re.search(rf"\b{re.escape(tool.name)}\b", told)
    ]
    assert missing == []


def test_every_dialect_says_how_it_shows_the_others() -> None:
    for name in docs.contracts():
        assert "*" in registry.load(name).shown_types, name


def test_the_formula_on_the_page_is_the_one_that_ranks() -> None:
    usual, page = Weighting(), (ROOT / "docs" / "architecture.md").read_text()
    dense, lexical, coverage, k1, b = (
        f"{value:g}".removeprefix("0")
        for value in (usual.dense, usual.lexical, usual.coverage, usual.k1, usual.b)
    )
    assert f"`{dense} · cosine + {lexical} · BM25 · coverage^{coverage}`" in page
    assert f"BM25 (k1 {k1}, b {b})" in page


def _code(page: Path) -> Iterator[str]:
    """What stands in code on a page: the lines of its blocks, and pieces of its sentences."""
    parts = re.split(r"^```.*$", page.read_text(), flags=re.MULTILINE)
    for block in parts[1::2]:
        yield from block.splitlines()
    for prose in parts[::2]:
        yield from (" ".join(piece.split()) for piece in re.findall(r"`([^`]+)`", prose))


def _snippets(page: Path) -> str:
    """The Python blocks of a page, one after the other, each on the lines where it stands."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if inside or line != "```python":
            inside = inside and line != "```"
            future = line.startswith("from __future__")  # may only stand at the top of a file
            lines.append(line if inside and not future else "")
        else:
            inside = True
            lines.append("")
    return "\n".join(lines)


WITH_SNIPPETS = [page for page in PAGES if _snippets(page).strip()]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda path: path.name)
def test_every_python_snippet_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    file = tmp_path / f"{page.stem}.py"
    file.write_text(_snippets(page))
    ran = subprocess.run(
        [sys.executable, "-W", "error", file],
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_python_snippet_is_found_wherever_it_stands() -> None:
    blocks = sum(page.read_text().count("```python\n") for page in PAGES)
    assert blocks >= 5
    assert {page.name for page in WITH_SNIPPETS} >= {"README.md", "oauth.md", "new-dialect.md"}
    for page in PAGES:
        assert not re.search(r"^```(py|Python|pycon)\b(?!thon$)", page.read_text(), re.M), page


@cache
def _program() -> Any:
    return typer.main.get_command(app)  # without --database, which commands get when they run


def _wrong(line: str) -> list[str]:
    """What of a command line is no command or no option of ours."""
    words = re.sub(r'"[^"]*"', "TEXT", re.split(r"\s#|\||&&|;", line)[0]).split()
    command, faults = _program(), []
    if words[:1] == ["help"]:
        words = [word for word in words[1:] if word != "COMMAND"]
    for word in words:
        word = word.strip("[]\"'}),")
        if (commands := getattr(command, "commands", None)) and not word.startswith("-"):
            word = word if word in commands else ALIASES.get(word, word)
            if word not in commands:
                return [f"command {word}"]
            command = commands[word]
            continue
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        # a dash alone is standard input
        if word.startswith("-") and word.partition("=")[0] not in {*known, "--help", "-h", "-"}:
            faults.append(f"option {word}")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_on_a_page_is_one_of_ours(page: Path) -> None:
    for line in _code(page):
        if not line.startswith("claude "):  # another program, which is given our name
            for call in re.findall(r"(?:^|[\s\"/])commonplace ((?:-|[a-z]).*?)(?=&& |$)", line):
                assert _wrong(call) == [], line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = r"(?:src|tests|tools|bench|docs)/[\w./*-]*\w[/]?|(?:\w+/)*\w+\.py"
    missing = []
    for piece in _code(page):
        if re.fullmatch(named, piece) and not piece.startswith(MADE):
            name = piece.rstrip("/").replace("NAME", "mama")
            if not any(any((ROOT / room).glob(name)) for room in ROOMS):
                missing.append(piece)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        if not (page.parent / link).exists():
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_setting_and_make_target_on_a_page_is_one_of_ours(page: Path) -> None:
    text = page.read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"[\w-]+", "".join(re.findall(r"^\.PHONY:(.*)$", makefile, re.M))))
    for piece in _code(page):
        for target in re.findall(r"^make ([a-z][a-z-]*)", piece):
            assert target in targets or target.startswith("unit-"), piece
    settings = set(re.findall(r"\b(?:COMMONPLACE|MAMA)_[A-Z_]*[A-Z]\b", text))
    assert {name for name in settings if name.lower() not in _told_in_code()} == set()


SYSTEM = {
    "APPDATA", "LOCALAPPDATA", "ORT_DISABLE_TELEMETRY", "TERM", "TZ", "USER", "USERNAME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
}  # fmt: skip


def test_every_setting_and_variable_of_the_code_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    listed = set(re.findall(r"`([A-Z][A-Z_]+)` \|", page))
    for field in dataclasses.fields(Settings):
        assert field.name == "data" or f"| `{field.name}` |" in page, field.name
    code = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"\b(?:COMMONPLACE|MAMA)_[A-Z][A-Z_]*[A-Z]\b", code))
    used |= set(re.findall(r'environ(?:\.get\(|\[)\s*"([A-Z][A-Z_]+)"', code))
    constants = {"COMMONPLACE_TOKEN", "MAMA_PORT"}  # an example, and a name in code
    missing = used - listed - SYSTEM - constants - set(docs.INTERNAL_VARIABLES)
    assert missing == set()
    settings = {f"COMMONPLACE_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    assert {name for name in listed if name.lower() not in _told_in_code()} - settings == set()


def test_every_command_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()

    def walk(command: Any, path: str) -> Iterator[str]:
        below = getattr(command, "commands", None)
        if below is None:
            yield path
        for name, each in (below or {}).items():
            yield from walk(each, f"{path} {name}".strip())

    assert [path for path in walk(_program(), "") if f"### {path}\n" not in page] == []


def test_every_promise_names_its_tests_and_every_identifier_is_explained() -> None:
    page = (ROOT / "docs" / "promises.md").read_text()
    named = set(re.findall(r"`(tests/[\w/.-]+)`", page))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    explained = re.findall(r"^\| ([RT]\d+) \|", page, re.MULTILINE)
    assert len(explained) == len(set(explained))
    used = {}  # but not the hour of a moment, as in 2026-03-01T12:00
    for folder in ("src", "tests", "bench", "tools"):
        for file in (ROOT / folder).rglob("*.py"):
            if "node_modules" not in file.parts:
                found = re.findall(r"\b[RT][1-9]\d?\b(?!:\d)", file.read_text())
                used |= dict.fromkeys(found, file.relative_to(ROOT))
    assert {each: file for each, file in used.items() if each not in explained} == {}
    for line in re.findall(r"^\| [RT]\d+ \|.*$", page, re.MULTILINE):
        assert "`tests/" in line, line


def test_the_makefile_names_tests_that_there_are() -> None:
    command = [
        "make",
        "--no-print-directory",
        "--dry-run",
        "--assume-old=.venv/.test",
        "unit-quick",
    ]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    named = re.findall(r"tests/\S+\.py", told)
    assert len(named) > 25
    assert [name for name in named if not (ROOT / name).is_file()] == []


@cache
def _told_in_code() -> str:
    code = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    providers = [code.replace("{provider.upper()}", one.upper()) for one in PROVIDERS]
    settings = [f"commonplace_{field.name}" for field in dataclasses.fields(Settings)]
    return "\n".join([*providers, *settings]).lower()
