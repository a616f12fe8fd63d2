"""The distribution has one name everywhere, and the wheel that is built from it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from commonplace import DISTRIBUTION, __version__

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
INSTALLED_NAME = re.compile(r"\b(?:pip|pipx|uv\s+tool)\s+install\s+'?([\w{}.-]+)(?:\[([\w,-]+)\])?")


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


def test_a_fresh_environment_with_the_built_wheel_stores_and_recalls(tmp_path: Path) -> None:
    wheels, fresh = tmp_path / "wheels", tmp_path / "fresh"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    static = (ROOT / "src/commonplace/web").rglob("static/**/*.*")
    pages = {file.relative_to(ROOT / "src").as_posix() for file in static if file.is_file()}
    assert len(pages) > 20 and pages <= set(zipfile.ZipFile(wheel).namelist())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    bin_dir = fresh / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(bin_dir / "python"), "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)

    # Dependencies come from the environment of the tests. Its `.pth` files are not read on
    # PYTHONPATH, so that the editable installation there stays out of sight.
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "COMMONPLACE_DATA": str(tmp_path / "data"),
    }

    def run(program: str, *arguments: str) -> str:
        command = [str(bin_dir / program), *arguments]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    where = run("python", "-c", "import commonplace; print(commonplace.__file__)")
    assert Path(where.strip()).is_relative_to(fresh)
    asked = f"import importlib.metadata as m; print(m.version({DISTRIBUTION!r}))"
    assert run("python", "-c", asked).strip() == __version__
    assert __version__ in run("commonplace", "--version")
    run("commonplace", "remember", "The staging database is restored every Monday")
    assert "every Monday" in run("commonplace", "search", "when is staging reset?")
