"""`python -m bench`: measure, print one table, write it as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    against,
    console,
    languages,
    large,
    locomo,
    meaning,
    peers,
    postgres,
    report,
    server,
    slow_disk,
    speed,
    warm,
)

QUALITY = ("locomo", "postgres-locomo", "meaning", "languages")
PARTS_WITH_DATA = {
    "locomo": locomo.measure, "postgres-locomo": postgres.measure_equality, "peers": peers.measure
}  # fmt: skip
SPEED = {**speed.PARTS, "store-slow-disk": slow_disk.measure, **postgres.PARTS, **large.PARTS}
MEASURED = {**SPEED, **server.PARTS, **warm.PARTS, **console.PARTS}
GROUPS = {"speed": tuple(SPEED), "server": (*server.PARTS, *warm.PARTS), "quality": QUALITY}


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part.replace("_", "")) for part in text.split(",")))


def _rounds(text: str) -> int:
    if int(text) < against.ROUNDS:
        raise argparse.ArgumentTypeError(f"at least {against.ROUNDS}")
    return int(text)


def _parsed_arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=(*GROUPS, *MEASURED, *QUALITY, *PARTS_WITH_DATA)
    )
    parser.add_argument("--locomo", type=Path, help="locomo10.json; it is never part of this code")
    parser.add_argument("--sizes", type=_sizes, help="memories in one space, like 1000,100000")
    parser.add_argument(
        "--spaces", type=int, help="how many spaces of 1,000 to recall from in turn"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--against", metavar="COMMIT", help="compare HEAD with another commit")
    parser.add_argument("--rounds", type=_rounds, default=against.ROUNDS, help="of --against")
    parser.add_argument("--json", type=Path, help="where the JSON goes")
    return parser.parse_args(given)


def _chosen_parts(only: Sequence[str] | None) -> list[str]:
    if not only:
        return [*QUALITY, *MEASURED]
    return [name for choice in only for name in GROUPS.get(choice, (choice,))]


def main(given: Sequence[str]) -> int:
    """Run what is asked for; 1 when a target was missed."""
    asked = _parsed_arguments(given)
    plan = speed.QUICK_PLAN if asked.quick else speed.Plan()
    if asked.sizes:
        plan = replace(plan, sizes=asked.sizes)
    if asked.spaces:
        plan = replace(plan, spaces=asked.spaces)
    sections = []
    if asked.against:
        compared = against.measure(asked.against, asked.rounds)
        sections.append(against.comparison_section(asked.against, compared))
    for name in () if asked.against else _chosen_parts(asked.only):
        if name == "meaning":
            sections.append(meaning.measure())
        elif name == "languages":
            sections.append(languages.measure())
        elif name not in PARTS_WITH_DATA:
            sections.append(MEASURED[name](plan))
        elif asked.locomo:
            sections.append(PARTS_WITH_DATA[name](asked.locomo))
        else:
            report.say("LoCoMo is left out: give its file with --locomo, or make bench LOCOMO=path")
    print(report.format_table(sections))
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = asked.json or report.RESULTS / f"{stamp}.json"
    report.write_json(path, sections)
    report.say(f"written to {path}")
    return int(any(row.ok is False for section in sections for row in section.rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
