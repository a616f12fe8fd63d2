"""`python -m bench.choosing LOCOMO`: choose the weights on one half of the data, look at the other.

The default weights are those chosen here on the last five conversations of LoCoMo and on the set
where words do not help, each counting for half. docs/benchmarks.md tells which other choices were
looked at before that one was taken. No leg may have much more than two thirds, and no word's
absence may weigh more than squared: beyond that lies what these two sets ask for, and others may
not.

With `--partings N` it is done for N ways to part the conversations into halves, drawn with a fixed
seed, and on both halves of each, so that what is lost by choosing on a half does not hang on which
one it was.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from bench import locomo, meaning
from bench.embedders import Remembering
from bench.report import CACHE, RESULTS, say, share
from commonplace import Commonplace, Library, Weighting
from commonplace.embedding.provider import open_embedder
from commonplace.engine.finding.recall import DEFAULT

START = Weighting(
    lexical=0.5, dense=0.5, coverage=0.0, k1=1.2, b=0.75, neighbours=0.0, session=0.0, speaker=0.0
)
"""Where the search begins: equal parts, BM25 as it is in the books, nothing of conversations."""
STEPS: dict[str, tuple[float, ...]] = {
    "dense": (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    "coverage": (0.0, 0.5, 1.0, 1.5, 2.0),
    "session": (0.0, 0.25, 0.5, 0.75),
    "neighbours": (0.0, 0.15, 0.25, 0.35),
    "speaker": (0.0, 0.1, 0.15, 0.2, 0.3),
    "k1": (0.6, 0.9, 1.2, 1.6),
    "b": (0.2, 0.4, 0.6, 0.75),
}
SEED = 20_261_116
WORTH = 0.0005  # a smaller gain is no reason to move

Talk = tuple[Commonplace, locomo.Conversation]
Found = tuple[float, int]
"""The sum of shares, and of how many questions."""


def with_value(weights: Weighting, name: str, value: float) -> Weighting:
    """The weights with one of them changed; the two legs share one whole."""
    if name == "dense":
        return replace(weights, dense=value, lexical=round(1 - value, 2))
    return replace(weights, **{name: value})  # type: ignore[arg-type]


class Trials:
    """What each conversation gives with each choice of weights, looked at once."""

    def __init__(self, talks: Sequence[Talk], spaces: Sequence[Commonplace]) -> None:
        self._talks = talks
        self._spaces = spaces
        self._known: dict[tuple[int, Weighting], tuple[Found, Found]] = {}
        self._meant: dict[Weighting, float] = {}

    def found(self, half: Iterable[int], weights: Weighting, *, answered: bool = False) -> float:
        """The share of evidence turns in the top ten, over all questions of these conversations.

        Those that name the wrong speaker too: without them, a choice trusts names too much.
        `answered` leaves them out, as the reported figure does.
        """
        parts = [self._talk(number, weights)[answered] for number in half]
        return sum(shares for shares, _ in parts) / sum(count for _, count in parts)

    def _talk(self, number: int, weights: Weighting) -> tuple[Found, Found]:
        key = number, weights
        if key not in self._known:
            memory, conversation = self._talks[number]
            every, answered = [], []
            for question in conversation.questions:
                hits = memory.recall(
                    question.text, limit=locomo.TOP, weighting=weights, count=False
                )
                found = {hit.memory.ref for hit in hits}
                every.append(len(found & set(question.evidence)) / len(question.evidence))
                if question.category != locomo.ADVERSARIAL:
                    answered.append(every[-1])
            self._known[key] = (sum(every), len(every)), (sum(answered), len(answered))
        return self._known[key]

    def meant(self, weights: Weighting) -> float:
        """The share of statements that come first for their question."""
        if weights not in self._meant:
            found = [meaning.found(memory, weights)[0] for memory in self._spaces]
            self._meant[weights] = sum(found) / len(found)
        return self._meant[weights]

    def choose(self, half: Sequence[int]) -> Weighting:
        """One weight after the other, until no step of any of them is worth taking."""

        def worth(weights: Weighting) -> float:
            return (self.found(half, weights) + self.meant(weights)) / 2

        best, moved = START, True
        while moved:
            moved = False
            for name, values in STEPS.items():
                best_way = max((with_value(best, name, value) for value in values), key=worth)
                if worth(best_way) > worth(best) + WORTH:
                    best, moved = best_way, True
                say(f"{name} {getattr(best, name)}: {worth(best):.4f}, {len(self._meant)} tried")
        return best


def both_halves(trials: Trials, count: int) -> dict[str, Any]:
    """Choose on the first and on the last half, and print what each choice finds on both."""
    half = (count + 1) // 2
    halves = {"first half": range(half), "last half": range(half, count)}
    choices = {f"chosen on the {name}": trials.choose(part) for name, part in halves.items()}
    report = {}
    for name, weights in {"default": DEFAULT, **choices}.items():
        found = {where: trials.found(part, weights) for where, part in halves.items()}
        found["meaning @1"] = trials.meant(weights)
        report[name] = {**found, "weights": asdict(weights)}
        print(f"{name:25} " + "  ".join(f"{where} {share(n)}" for where, n in found.items()))
        print(f"{'':25} " + ", ".join(f"{each} {getattr(weights, each)}" for each in STEPS))
    return report


def partings(trials: Trials, count: int, ways: int) -> dict[str, Any]:
    """Choose on both halves of several partings; print what is lost on the other, categories 1–4.

    Two halves differ in how hard they are, by far more than by what was chosen on which. So each
    half is looked at with the choice made on it and with the choice made on the other.
    """
    everybody = frozenset(range(count))
    every = [frozenset(one) for one in combinations(range(count), (count + 1) // 2) if 0 in one]
    firsts = random.Random(SEED).sample(every, min(ways, len(every)))
    halves = [half for first in firsts for half in (first, everybody - first)]
    choices = {}
    for number, half in enumerate(halves):
        say(f"half {number + 1} of {len(halves)}")
        choices[half] = trials.choose(sorted(half))
    own, other, lost = [], [], []
    for half, weights in choices.items():
        rest = everybody - half
        own.append(trials.found(half, weights, answered=True))
        other.append(trials.found(rest, weights, answered=True))
        lost.append(trials.found(rest, choices[rest], answered=True) - other[-1])
    figures = {
        "on the half chosen on": own,
        "on the other half": other,
        "lost by not choosing on it": lost,
    }
    for name, values in figures.items():
        print(
            f"{name:28} mean {statistics.mean(values):.4f}  "
            f"least {min(values):.4f}  most {max(values):.4f}"
        )
    below = sum(
        mine - theirs > locomo.HALVES_TARGET for mine, theirs in zip(own, other, strict=True)
    )
    kinds = len(set(choices.values()))
    print(f"{len(halves)} halves, {kinds} different choices; the other half is more than")
    print(f"{locomo.HALVES_TARGET} below the half chosen on {below} times")
    rows = [
        {"half": sorted(half), "own": mine, "other": theirs, "weights": asdict(weights)}
        for (half, weights), mine, theirs in zip(choices.items(), own, other, strict=True)
    ]
    return {"halves": rows, "lost": lost}


def main(given: Sequence[str]) -> int:
    """Read the data, choose, and write down what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.choosing", description=__doc__)
    parser.add_argument("locomo", type=Path, help="locomo10.json; it is never part of this code")
    parser.add_argument("--partings", type=int, default=0, help="choose on both halves of so many")
    told = parser.parse_args(given)
    data = locomo.read(told.locomo)
    model = open_embedder("builtin")
    assert model is not None
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        library = Library(directory, embedder=Remembering(model, CACHE))
        talks = [(locomo.store(library, each), each) for each in data]
        trials = Trials(talks, list(meaning.store(library).values()))
        if told.partings:
            report = partings(trials, len(talks), told.partings)
        else:
            report = both_halves(trials, len(talks))
        library.close()
    name = "choosing-partings.json" if told.partings else "choosing.json"
    (RESULTS / name).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
