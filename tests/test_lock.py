"""constraints.txt pins every package, and the tests run with the versions that it pins."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from commonplace import DISTRIBUTION

ROOT = Path(__file__).parent.parent
FRAMEWORKS = ("adk", "anthropic", "langgraph", "openai-agents")
SYSTEMS = (("linux", "posix", "Linux"), ("darwin", "posix", "Darwin"), ("win32", "nt", "Windows"))


@cache
def _pins(file: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in found}


def _extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(project["project"]["optional-dependencies"])


def _wanted() -> Iterator[Requirement]:
    """What the project file asks for, in all its lists but those of agent frameworks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [project["build-system"]["requires"], project["project"]["dependencies"]]
    lists += [needs for name, needs in _extras().items() if name not in FRAMEWORKS]
    lists += project["dependency-groups"].values()
    wanted = (Requirement(text) for each in lists for text in each)
    return (one for one in wanted if one.name != DISTRIBUTION)  # an extra may name other extras


def _needed_by(name: str) -> Iterator[Requirement]:
    """What an installed package asks for on the platforms and Pythons that we support."""
    for text in metadata.requires(name) or ():
        wanted = Requirement(text)
        for system, version in product(SYSTEMS, ("3.11", "3.12", "3.13", "3.14")):
            where = default_environment() | {
                **dict(zip(("sys_platform", "os_name", "platform_system"), system, strict=True)),
                "python_version": version, "python_full_version": f"{version}.1", "extra": "",
            }  # fmt: skip
            if wanted.marker is None or wanted.marker.evaluate(where):
                yield wanted
                break


def test_the_lock_holds_names_and_versions_and_no_address() -> None:
    line = re.compile(r'[a-z0-9-]+==[\w.]+(; sys_platform == "win32")?')
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [text for text in lines if not text.startswith("#")]
    assert [text for text in pins if not line.fullmatch(text)] == []
    assert pins == sorted(pins) and len(pins) == len(_pins())


def test_everything_that_the_project_asks_for_is_pinned_to_a_version_that_fits() -> None:
    for wanted in _wanted():
        pin = _pins()[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(pin), f"{wanted} is pinned to {pin}: run 'make lock'"


def test_agent_frameworks_are_pinned_for_their_own_tests() -> None:
    pins = _pins("tests/integrations/frameworks.txt")
    for name in FRAMEWORKS:
        for wanted in map(Requirement, _extras()[name]):
            assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), wanted


def test_everything_that_a_package_needs_is_pinned_on_every_platform() -> None:
    for name in _pins().keys() - {"colorama", "editables", "pywin32", "sqlite-vec"}:
        for wanted in _needed_by(name):
            assert canonicalize_name(wanted.name) in _pins(), f"{name} needs {wanted}"


def test_the_tests_run_with_the_versions_of_the_lock() -> None:
    installed = {canonicalize_name(one.name): one.version for one in metadata.distributions()}
    other = {name: version for name, version in installed.items()
             if name in _pins() and version != _pins()[name]}  # fmt: skip
    assert other == {}, "other versions are installed: install with constraints.txt"
    assert len(installed.keys() & _pins().keys()) > 100
