"""The distribution has one name everywhere, and the wheel that is built from it works."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from commonplace import DISTRIBUTION, __version__
from installing import Environment, build_wheel, use_as_newcomer

ROOT = Path(__file__).parent.parent
# `commonplace` on PyPI is somebody else's project: these would install or run a stranger's code.
FORBIDDEN = re.compile(
    r"""
    \b(?:uvx|uv\s+tool\s+run|pipx\s+run)\s+["']?commonplace\b
    | "uvx"\s*,\s*(?:"args"\s*:\s*)?\[?\s*"commonplace\b
    | \b(?:install|uv\s+add)\s+(?:-\S+\s+)*["']?commonplace\b(?!-memory|@)
    | \bcommonplace\[
    """,
    re.VERBOSE,
)
INSTALLED_NAME = re.compile(  # but not a file, which begins with a dot, and options
    r"\b(?:pip|pipx|uv\s+tool)\s+install\s+(?!\./)(?:--upgrade\s+)?'?([\w{}.-]+)(?:\[([\w,-]+)\])?"
)


def _files() -> list[Path]:
    """Every text file of the repository, but this one."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    found = [ROOT / name for name in listed if (ROOT / name).is_file()]
    return [path for path in found if path != Path(__file__)]


@pytest.mark.parametrize(
    "line",
    [
        "uvx commonplace serve",
        'uvx "commonplace" mcp',
        "`uvx commonplace`",
        "uvx commonplace-memory",  # the command has another name than the distribution
        "pipx run commonplace",
        "uv tool run commonplace mcp",
        '"command": "uvx", "args": ["commonplace", "mcp"]',
        "pip install commonplace",
        "pip install --upgrade 'commonplace[llm]'",
        "pipx install commonplace==0.1.0",
        "uv add commonplace",
        "commonplace[push]",
    ],
)
def test_the_pattern_finds_what_would_run_another_project(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "uvx --from commonplace-memory commonplace serve",
        '"command": "uvx", "args": ["--from", "commonplace-memory", "commonplace", "mcp"]',
        "pip install commonplace-memory",
        "pip install 'commonplace-memory[llm]'",
        "uv add commonplace-memory",
        "commonplace mcp",
    ],
)
def test_the_pattern_permits_the_right_name(line: str) -> None:
    assert not FORBIDDEN.search(line)


def test_no_file_installs_or_runs_the_other_project() -> None:
    wrong = []
    for path in _files():
        text = path.read_bytes().decode(errors="replace")
        wrong += [f"{path.relative_to(ROOT)}: {found[0]!r}" for found in FORBIDDEN.finditer(text)]
    assert wrong == []


def test_the_project_file_and_every_hint_take_the_name_from_the_constant() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION == "commonplace-memory"
    hints = 0
    for path in _files():
        if path.suffix not in {".py", ".md"} or path.is_relative_to(ROOT / "tests"):
            continue
        for name, extra in INSTALLED_NAME.findall(path.read_text()):
            if path.is_relative_to(ROOT / "src"):
                assert name == "{DISTRIBUTION}", path
            else:
                assert name == DISTRIBUTION, path
            assert not extra or extra in project["optional-dependencies"], (path, extra)
            hints += 1
    assert hints >= 7


def test_the_built_wheel_alone_is_enough_for_a_newcomer(tmp_path: Path) -> None:
    wheel = build_wheel(ROOT, tmp_path / "wheels")
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    static = (ROOT / "src/commonplace/web").rglob("static/**/*.*")
    pages = {file.relative_to(ROOT / "src").as_posix() for file in static if file.is_file()}
    assert len(pages) > 20 and pages <= set(zipfile.ZipFile(wheel).namelist())
    home = tmp_path / "home"
    home.mkdir()
    # Dependencies come from the environment of the tests; a soak test installs them. Its `.pth`
    # files are not read on PYTHONPATH, so that the editable installation stays out of sight.
    made = Environment(tmp_path / "fresh", home, PYTHONPATH=sysconfig.get_path("purelib"))
    made.pip("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    where = made.run("python", "-c", "import commonplace; print(commonplace.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "fresh")
    asked = f"import importlib.metadata as m; print(m.version({DISTRIBUTION!r}))"
    assert made.run("python", "-c", asked).strip() == __version__
    # `uvx` looks for a program with the name of the distribution
    assert __version__ in made.run(DISTRIBUTION, "--version")
    use_as_newcomer(made)
    made.pip("uninstall", "--yes", "--quiet", DISTRIBUTION)
    assert not list(made.bin.glob("commonplace*"))
    assert (home / ".commonplace" / "spaces" / "default.db").exists()
