"""The official conformance suite, in both protocol eras; docs/conformance.md tells of it.

Each scenario that a revision of the protocol names is run against our own dialect, and against a
dialect that has the tools which the suite calls by name (`conformance_server.py`). It must pass at
one of the two or stand in a table below, and nothing may stand there that passes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients import programs

HANDSHAKE, NEWEST = "2025-11-25", "2026-07-28"
ERAS = (HANDSHAKE, NEWEST)
OURS, WITH_TOOLS = "commonplace", "conformance"
DOCUMENT = programs.HERE.parents[1] / "docs" / "conformance.md"
ALWAYS = "wire-schema-valid"  # every scenario has it; alone, it says nothing of the scenario
_STAMP = re.compile(r"^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$")

NEED_TOOLS: dict[str, tuple[str, ...]] = {
    "tools-call-simple-text": ERAS,
    "tools-call-image": ERAS,
    "tools-call-audio": ERAS,
    "tools-call-embedded-resource": ERAS,
    "tools-call-mixed-content": ERAS,
    "tools-call-error": ERAS,
}
"""Pass with the suite's own tools, through the same server; ours have other names."""


@dataclass(frozen=True)
class Left:
    """Scenarios, or checks of one (`scenario:check`), that do not apply, and why."""

    why: str
    eras: tuple[str, ...]
    entries: tuple[str, ...]


NO_PROMPTS = "There are no prompts: the capability is not declared, the methods are unknown."
NO_RESOURCES = "There are no resources: the capability is not declared, the methods are unknown."
NO_COMPLETIONS = "Nothing to complete: there are neither prompts nor resource templates."
NO_LOGGING = "No log goes to clients: the capability is not declared."
NO_PROGRESS = "No tool works long enough to tell how far it is; answers are plain JSON."
NOTHING_ASKED = "No tool asks the client for anything: no sampling, no elicitation, no roots."
NO_SESSIONS = "There are no sessions and no streams to resume: every request stands alone."
NO_TASKS = "The tasks extension is not offered; the suite does not score it."
OTHER_SCHEMAS = (
    "No tool's schema uses these keywords, and one that did would be refused at the start, because"
    " nothing a schema says may go unchecked; the suite does not score it."
)

NOT_APPLYING = (
    Left(
        NO_PROMPTS, ERAS,
        (
            "prompts-list", "prompts-get-simple", "prompts-get-with-args",
            "prompts-get-embedded-resource", "prompts-get-with-image",
        ),
    ),
    Left(NO_PROMPTS, (NEWEST,), ("caching:sep-2549-prompts-list-caching-hints",)),
    Left(
        NO_RESOURCES, ERAS,
        (
            "resources-list", "resources-read-text", "resources-read-binary",
            "resources-templates-read",
        ),
    ),
    Left(NO_RESOURCES, (HANDSHAKE,), ("resources-subscribe", "resources-unsubscribe")),
    Left(
        NO_RESOURCES, (NEWEST,),
        (
            "caching:sep-2549-resources-list-caching-hints",
            "caching:sep-2549-resources-templates-list-caching-hints",
            "sep-2164-resource-not-found:sep-2164-error-code",
            "sep-2164-resource-not-found:sep-2164-data-uri",
        ),
    ),
    Left(NO_COMPLETIONS, ERAS, ("completion-complete",)),
    Left(NO_LOGGING, (HANDSHAKE,), ("logging-set-level", "tools-call-with-logging")),
    Left(NO_LOGGING, (NEWEST,), ("server-stateless:sep-2575-server-no-log-without-loglevel",)),
    Left(NO_PROGRESS, ERAS, ("tools-call-with-progress",)),
    Left(
        NOTHING_ASKED, (HANDSHAKE,),
        (
            "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
        ),
    ),
    Left(
        NOTHING_ASKED, (NEWEST,),
        (
            "server-stateless:sep-2575-server-rejects-undeclared-capability",
            "server-stateless:sep-2575-missing-capability-http-400",
            "server-stateless:sep-2575-http-server-no-independent-requests-on-stream",
            "input-required-result-basic-elicitation", "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots", "input-required-result-request-state",
            "input-required-result-multiple-input-requests", "input-required-result-multi-round",
            "input-required-result-missing-input-response",
            "input-required-result-non-tool-request", "input-required-result-result-type",
            "input-required-result-tampered-state", "input-required-result-capability-check",
            "input-required-result-ignore-extra-params",
        ),
    ),
    Left(
        NO_SESSIONS, (HANDSHAKE,),
        ("server-session-lifecycle", "server-sse-polling", "server-sse-multiple-streams"),
    ),
    Left(
        NO_TASKS, (NEWEST,),
        (
            "tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields",
            "tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers",
            "tasks-dispatch-and-envelope", "tasks-status-notifications",
            "tasks-required-task-error", "tasks-mrtr-composition",
        ),
    ),
    Left(OTHER_SCHEMAS, ERAS, ("json-schema-2020-12",)),
    Left(OTHER_SCHEMAS, (NEWEST,), ("http-custom-header-server-validation",)),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What came of one scenario."""

    faults: frozenset[str]
    """The checks that failed or were warned of."""
    proved: bool
    """Whether any check of its own succeeded."""

    @property
    def passed(self) -> bool:
        """Whether something was proved and nothing was wrong."""
        return self.proved and not self.faults


Outcomes = Mapping[str, Outcome]


@pytest.fixture(scope="module")
def outcomes(shared_data: Path) -> Iterator[Mapping[tuple[str, str], Outcomes]]:
    """What the suite says, by era and dialect; all four runs at the same time."""
    where = shared_data
    suite = programs.package("@modelcontextprotocol/conformance", "dist/index.js")
    with programs.serving(where / "data", [sys.executable, programs.CONFORMANCE_SERVER]) as address:
        runs = {}
        for era in ERAS:
            for dialect in (OURS, WITH_TOOLS):
                runs[era, dialect] = subprocess.Popen(
                    [
                        programs.node(), suite, "server", "--url", f"{address}/mcp/{dialect}",
                        "--requirements", era, "--output-dir", str(where / era / dialect),
                    ],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    env=programs.environment(),
                )  # fmt: skip
        told = {key: run.communicate(timeout=programs.SECONDS)[0] for key, run in runs.items()}
        found = {(era, dialect): _read(where / era / dialect) for era, dialect in runs}
    for key, said in told.items():
        wanted = re.search(r"\((\d+) scenarios\)", said)
        assert wanted and len(found[key]) == int(wanted[1]), said
    yield found


def _read(directory: Path) -> Outcomes:
    found = {}
    for file in directory.glob("*/checks.json"):
        named = _STAMP.match(file.parent.name)
        assert named, file
        checks = json.loads(file.read_text())
        faults = {c["id"] for c in checks if c["status"] in ("FAILURE", "WARNING")}
        proved = any(c["status"] == "SUCCESS" and c["id"] != ALWAYS for c in checks)
        found[named[1]] = Outcome(frozenset(faults), proved)
    return found


def left_out(era: str) -> dict[str, frozenset[str]]:
    """What does not apply in an era: whole scenarios with no checks, others with theirs."""
    left: dict[str, set[str]] = {}
    for one in NOT_APPLYING:
        for entry in one.entries if era in one.eras else ():
            scenario, _, check = entry.partition(":")
            left.setdefault(scenario, set()).update({check} - {""})
    return {scenario: frozenset(checks) for scenario, checks in left.items()}


@pytest.mark.parametrize("era", ERAS)
def test_every_scenario_passes_or_is_listed(
    outcomes: Mapping[tuple[str, str], Outcomes], era: str
) -> None:
    ours, with_tools, left = outcomes[era, OURS], outcomes[era, WITH_TOOLS], left_out(era)
    assert ours.keys() == with_tools.keys()
    wrong = {
        name: (ours[name], with_tools[name])
        for name in ours
        if not (
            ours[name].passed
            or (era in NEED_TOOLS.get(name, ()) and with_tools[name].passed)
            or (name in left and not left[name])
            or (left.get(name) == ours[name].faults and ours[name].proved)
        )
    }
    assert not wrong


@pytest.mark.parametrize("era", ERAS)
def test_nothing_is_listed_that_passes_or_is_no_scenario(
    outcomes: Mapping[tuple[str, str], Outcomes], era: str
) -> None:
    ours, with_tools, left = outcomes[era, OURS], outcomes[era, WITH_TOOLS], left_out(era)
    needing = {name for name, eras in NEED_TOOLS.items() if era in eras}
    assert not needing & left.keys()
    assert needing | left.keys() <= ours.keys()
    assert [name for name in needing if ours[name].passed] == []
    assert [name for name in left if ours[name].passed or with_tools[name].passed] == []
    stale = {name: checks - ours[name].faults for name, checks in left.items()}
    assert {name: checks for name, checks in stale.items() if checks} == {}


@pytest.mark.parametrize("era", ERAS)
def test_the_suites_tools_take_nothing_away(
    outcomes: Mapping[tuple[str, str], Outcomes], era: str
) -> None:
    passed = {name for name, outcome in outcomes[era, OURS].items() if outcome.passed}
    assert [name for name in passed if not outcomes[era, WITH_TOOLS][name].passed] == []


def test_the_document_lists_what_does_not_apply_and_why() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", DOCUMENT.read_text(), re.M)
    expected = [
        (entry, " and ".join(one.eras), one.why) for one in NOT_APPLYING for entry in one.entries
    ]
    expected += [(name, " and ".join(eras), "with its tools") for name, eras in NEED_TOOLS.items()]
    assert sorted(rows) == sorted(expected)


def test_the_document_lists_what_passes(outcomes: Mapping[tuple[str, str], Outcomes]) -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", DOCUMENT.read_text(), re.M)
    passing: dict[str, list[str]] = {}
    for era in ERAS:
        for name, outcome in outcomes[era, OURS].items():
            if outcome.passed or left_out(era).get(name):
                passing.setdefault(name, []).append(era)
    assert sorted(rows) == sorted((name, " and ".join(eras)) for name, eras in passing.items())
