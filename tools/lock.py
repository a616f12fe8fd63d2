"""Writes constraints.txt: the version of every package that the project is installed with.

`make lock` runs this. pip resolves what pyproject.toml asks for (run-time dependencies, extras,
dependency groups and build requirements) to the newest versions that fit together, and installs
nothing. The file holds names and versions only, so it works with any package index.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSTRAINTS_FILE = ROOT / "constraints.txt"
HEADER = """\
# The tested version of every dependency, also of the tests, the benchmarks and the build.
# The Makefile installs with it. `make lock` writes it.
"""
EDITABLE_BUILDER = "editables"  # hatchling asks for it when it builds an editable installation
# What packages ask for on Windows only. pip evaluates conditions for the machine that it runs on.
WINDOWS_PACKAGES = ("colorama", "pywin32")
# Extras that need other versions of some packages; tests/integrations/frameworks.txt pins theirs.
FRAMEWORK_EXTRAS = ("adk", "anthropic", "langgraph", "openai-agents")


def resolved_versions(*arguments: str) -> dict[str, str]:
    """Return the names and versions that pip would install."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), *arguments]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in found}


def constraints_text() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = ",".join(project["project"]["optional-dependencies"].keys() - set(FRAMEWORK_EXTRAS))
    groups = [word for name in project["dependency-groups"] for word in ("--group", name)]
    here = resolved_versions(
        f".[{extras}]", *groups, *project["build-system"]["requires"], EDITABLE_BUILDER
    )
    del here[project["project"]["name"]]
    with tempfile.TemporaryDirectory() as target:
        wheels = ("--platform", "win_amd64", "--only-binary", ":all:", "--target", target)
        windows = resolved_versions("--no-deps", *wheels, *WINDOWS_PACKAGES)
    pins = [f"{name}=={version}" for name, version in here.items()]
    pins += [f'{name}=={version}; sys_platform == "win32"' for name, version in windows.items()]
    return HEADER + "".join(f"{pin}\n" for pin in sorted(pins))


if __name__ == "__main__":
    CONSTRAINTS_FILE.write_text(constraints_text())
