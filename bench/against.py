"""`python -m bench --against COMMIT`: is the current commit slower than another one?

Both commits are checked out beside each other, the other one twice. All three are measured in
turns, in processes of their own, through the library's public interface, the command line and HTTP.
What is compared is CPU time, which other work on the machine changes least. How far the other
commit differs from itself is the spread; a difference within it means nothing.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench import corpus, server
from bench.report import Row, Section, milliseconds, say
from commonplace.embedding.builtin import MODEL_DIRECTORY

ROOT = Path(__file__).parent.parent
ROUNDS = 7
SIZE = 1_000  # memories in the store
QUERIES = 40
CALLS = 100  # over HTTP, in a round
WORSE_RATIO = 1.05
BEFORE, AGAIN, NOW = "before", "again", "now"
COMMAND = [sys.executable, "-P", "-c", "from commonplace.cli import main; main()"]
UNLIMITED = {"COMMONPLACE_RATE": "1000000", "COMMONPLACE_BURST": "1000000"}


@dataclass(frozen=True)
class Comparison:
    """One measured thing in both commits."""

    name: str
    before: float
    now: float
    ratio: float
    """The median over the rounds of now / before."""
    spread: float
    """What before / again, or its inverse, stays within in three of four rounds."""

    @property
    def regression(self) -> bool:
        return self.ratio > WORSE_RATIO and self.ratio > self.spread


def compare_times(name: str, took: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare the seconds of all rounds; those of one round were taken within seconds."""
    ratios = [now / old for now, old in zip(took[NOW], took[BEFORE], strict=True)]
    itself = sorted(
        math.exp(abs(math.log(again / old)))
        for again, old in zip(took[AGAIN], took[BEFORE], strict=True)
    )
    return Comparison(
        name,
        before=statistics.median(took[BEFORE]),
        now=statistics.median(took[NOW]),
        ratio=statistics.median(ratios),
        spread=itself[math.ceil(len(itself) * 0.75) - 1],
    )


@dataclass(frozen=True)
class Tree:
    """A source tree, with a store that its own code has written."""

    source: Path
    data: Path
    given: dict[str, list[str]]
    """The texts of the store, their ids, and queries."""

    @classmethod
    def prepare(cls, source: Path, data: Path, texts: list[str], queries: list[str]) -> Tree:
        """Store the texts."""
        tree = cls(source, data, {"texts": texts, "queries": queries})
        tree.given["ids"] = tree._probe("prepare", data)
        return tree

    def measure(self, calls: int) -> dict[str, float]:
        """CPU seconds of every measured thing, once."""
        with tempfile.TemporaryDirectory(dir=self.data.parent) as directory:
            scratch = Path(directory)
            measured = self._probe("measure", self.data, scratch)
            took = {f"library: {name}": seconds for name, seconds in measured.items()}
            data = scratch / "data"  # calls over HTTP change a store
            shutil.copytree(self.data, data)
            given = self.given
            for tool, argument, values, place, embedding in (
                ("recall", "query", given["queries"], data, "builtin"),
                ("read", "id", given["ids"], data, "none"),
                ("remember", "text", given["texts"], scratch / "words", "none"),
            ):
                command = [*COMMAND, "serve", "--port", "0", "--embedding", embedding]
                command += ["--data", str(place)]
                arguments = [{argument: value} for value in values]
                took[f"HTTP: {tool}"] = self._over_http(command, tool, arguments, calls)
            command = [*COMMAND, "mcp", "--data", str(data)]
            took["mcp: start to first answer"] = server.cpu_to_first_answer(
                command, "read", {"id": given["ids"][0]}, **self._variables
            )
        return took

    @property
    def _variables(self) -> dict[str, str]:
        return {**UNLIMITED, "PYTHONPATH": str(self.source / "src")}

    def _probe(self, *arguments: str | Path) -> Any:
        command = [sys.executable, "-P", str(Path(__file__).with_name("probe.py"))]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            input=json.dumps(self.given),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=server.environment(**self._variables),
        )
        return json.loads(done.stdout)

    def _over_http(
        self, command: list[str], tool: str, arguments: list[dict[str, str]], calls: int
    ) -> float:
        """CPU seconds of the server for one call."""
        with server.connected_http(command, "/mcp/commonplace", **self._variables) as serving:
            asked = [partial(serving.call, tool, one, server.HANDSHAKE) for one in arguments]
            server.cpu_per_call(
                serving, asked[:QUERIES]
            )  # fills caches, such as the queries' vectors
            return server.cpu_per_call(serving, list(islice(cycle(asked), calls)))


def check_out(commit: str, target: Path) -> Path:
    """The files of a commit in a directory, with the built model, which is not part of it."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    model = target / "src" / MODEL_DIRECTORY.relative_to(ROOT / "src")
    shutil.copytree(MODEL_DIRECTORY, model)
    # It does nothing unless that commit had another model.
    subprocess.run([sys.executable, "tools/build_model.py"], cwd=target, check=True)
    return target


def commit_of(name: str) -> str:
    """The full hash of a commit."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if found.returncode:
        raise SystemExit(f"bench: {name} is not a commit of this repository.")
    return found.stdout.strip()


def measure(
    commit: str, rounds: int = ROUNDS, size: int = SIZE, calls: int = CALLS
) -> list[Comparison]:
    """Measure the current commit and another one in turns."""
    commits = {BEFORE: commit_of(commit), NOW: commit_of("HEAD"), AGAIN: commit_of(commit)}
    made = corpus.make_corpus(size, QUERIES)
    took: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="commonplace-against-") as directory:
        trees = {}
        for side, name in commits.items():
            say(f"preparing {name[:12]} ({side})")
            source = check_out(name, Path(directory, side))
            data = Path(directory, side, "measured")
            trees[side] = Tree.prepare(source, data, list(made.texts), list(made.queries))
        order = list(trees)
        for number in range(rounds + 1):  # the first compiles bytecode and fills caches
            say(f"round {number} of {rounds}")
            for side in order:
                for name, seconds in trees[side].measure(calls).items():
                    if number:
                        took.setdefault(name, {}).setdefault(side, []).append(seconds)
            order = [*order[1:], order[0]]
    return [compare_times(name, sides) for name, sides in took.items()]


def comparison_section(commit: str, compared: Sequence[Comparison]) -> Section:
    """The comparison as a table."""
    rows = [
        Row(
            name=one.name,
            measured=milliseconds(one.now),
            against=f"{commit[:12]} {milliseconds(one.before)}",
            ratio=one.ratio,
            target=f"≤ {max(WORSE_RATIO, one.spread):.2f}×",
            ok=not one.regression,
            values={"now": one.now, "before": one.before, "spread": one.spread},
        )
        for one in compared
    ]
    notes = [
        "CPU seconds; medians over the rounds; the ratio is the median of the rounds' ratios",
        f"missed: worse than {WORSE_RATIO}× and beyond what {commit[:12]} differs from itself",
    ]
    return Section(f"HEAD against {commit}", rows, notes)
