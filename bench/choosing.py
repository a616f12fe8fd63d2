"""`python -m bench.choosing --locomo FILE --longmemeval FILE`: the quality of recall on all sets.

Every figure comes from the public library. With `--ablate` each term of the formula is left out in
turn. With `--choose` the weights are chosen on the first half of all sets together, one step after
another, and shown on both halves. Embeddings and filled stores are kept between runs in the
directory that COMMONPLACE_BENCH_CACHE names, so that a run takes seconds or minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import locomo, longmemeval, sets
from bench.report import RESULTS, say
from commonplace import Commonplace, Hits, Library, Weighting
from commonplace.engine.binding import engine_call
from commonplace.engine.content.conversations import of_memory
from commonplace.engine.finding.recall import DEFAULT

TOP = 10
STEPS: dict[str, tuple[float, ...]] = {
    "dense": (0.55, 0.6, 0.65, 0.7),
    "coverage": (0.5, 1.0, 1.5, 2.0),
    "k1": (0.6, 1.0, 1.4),
    "b": (0.4, 0.5, 0.75),
    "session_words": (0.0, 0.15, 0.3, 0.5),
    "neighbours": (0.0, 0.15, 0.25),
    "speaker": (0.0, 0.1, 0.2),
    "answers": (0.0, 0.05, 0.1),
    "spread": (0.6, 0.7, 0.8, 1.0),
    "period": (0.0, 0.5, 1.0, 1.5, 2.0),
}
ABLATED: dict[str, dict[str, float | bool]] = {
    "without the neighbours": {"neighbours": 0.0},
    "without the session's words": {"session_words": 0.0},
    "without the speaker": {"speaker": 0.0},
    "without the prior against answers": {"answers": 0.0},
    "without coverage": {"coverage": 0.0},
    "without the spread over sessions": {"spread": 1.0},
    "without the time that is named": {"period": 0.0},
    "without the newer first": {"newer_first": False},
    "words alone": {"dense": 0.0},
    "meaning alone": {"lexical": 0.0},
}
LEAST_GAIN = 0.0005  # a smaller gain is no reason to move
CHOSEN_BY = (
    "LoCoMo turns",
    "LoCoMo adversarial",
    "meaning @1",
    "chats @3",
    "dated @1",
    "instructions @10",
    "updates: new first",
    "not updates: old first",
    "LongMemEval all in 10 turns",
)


@dataclass
class Figures:
    """Values of each figure, by half; LongMemEval is not split and counts in both."""

    values: dict[str, tuple[list[float], list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: ([], []))
    )

    def add(self, name: str, half: int | None, value: float) -> None:
        """Add one question's value."""
        for each in (0, 1) if half is None else (half,):
            self.values[name][each].append(float(value))

    def mean(self, name: str, half: int) -> float:
        """The mean over one half; NaN if nothing was asked."""
        known = self.values[name][half] if name in self.values else []
        return sum(known) / len(known) if known else math.nan

    def table(self) -> dict[str, list[float]]:
        """Every figure on both halves."""
        return {
            name: [
                round(self.mean(name, 0), 4),
                round(self.mean(name, 1), 4),
                len(a) if name.startswith("LongMemEval") else len(a) + len(b),
            ]
            for name, (a, b) in self.values.items()
        }


class Trials:
    """All sets, stored and ready to be asked with any weights."""

    def __init__(self, library: Library, talks: Path | None, chats: Path | None) -> None:
        self.library = library
        self.talks = list(sets.talks(library, talks)) if talks else []
        self.long = list(sets.long_chats(library, chats, sets.chosen_questions())) if chats else []
        self.updates = list(sets.updates(library))
        self.asked = [
            *sets.beliefs(library), *sets.instructions(library), *sets.chats(library),
            *sets.meanings(library), *sets.dated(library),
        ]  # fmt: skip
        self.unrelated = list(sets.unrelated(library, [memory for _, memory, _ in self.talks]))

    def measure_figures(self, weights: Weighting, *, silence: bool = False) -> Figures:
        """Ask all questions; with `silence`, also those that are asked at the default minimum."""
        found = Figures()
        self._ask_talks(found, weights)
        self._ask_long(found, weights)
        for pair, memory, half in self.updates:
            texts = _texts(_recall(memory, pair.question, weights, limit=50))
            places = {text: rank for rank, text in reversed(list(enumerate(texts)))}
            first = places.get(pair.new, 99) < places.get(pair.old, 99)
            if pair.replaces:
                found.add("updates: new first", half, first)
                found.add(f"updates, {pair.kind}: new first", half, first)
            elif pair.kind in sets.WITHOUT_UPDATE:
                found.add("not updates: old first", half, not first)
        for asked in self.asked:
            if asked.wanted:
                texts = _texts(_recall(asked.memory, asked.text, weights, at=asked.at))
                for depth in (1, 3, TOP):
                    share = len(set(texts[:depth]) & set(asked.wanted)) / len(asked.wanted)
                    found.add(f"{asked.set} @{depth}", asked.half, min(1.0, share * (
                        len(asked.wanted) if depth == 1 else 1)))  # fmt: skip
        if silence:
            self._ask_silence(found)
        return found

    def _ask_talks(self, found: Figures, weights: Weighting) -> None:
        for talk, memory, half in self.talks:
            session_of = talk.session_of
            for question in talk.questions:
                refs = {hit.memory.ref for hit in _recall(memory, question.text, weights)}
                share = len(refs & set(question.evidence)) / len(question.evidence)
                adversarial = question.category == locomo.ADVERSARIAL
                found.add("LoCoMo adversarial" if adversarial else "LoCoMo turns", half, share)
                if weights is DEFAULT:
                    best = memory.recall_sessions(question.text, limit=TOP)
                    wanted = {session_of[turn] for turn in question.evidence}
                    share = len(wanted & {hit.session for hit in best}) / len(wanted)
                    found.add("LoCoMo sessions", half, share)

    def _ask_long(self, found: Figures, weights: Weighting) -> None:
        for chat, memory in self.long:
            hits = _recall(memory, chat.question, weights, at=chat.asked_at)
            turns = [engine_call(memory, of_memory, hit.memory.id).session for hit in hits]
            best = memory.recall_sessions(chat.question, limit=5, asked_at=chat.asked_at)
            sessions = [hit.session for hit in best]
            one = longmemeval.Outcome(chat, tuple(turns), tuple(sessions))
            found.add("LongMemEval all in 10 turns", None, one.all_in_turns)
            found.add("LongMemEval any@1", None, one.first)
            found.add("LongMemEval all@5", None, one.all_in_five)
            found.add("LongMemEval any@5", None, one.any_of_five)

    def _ask_silence(self, found: Figures) -> None:
        for asked in self.unrelated:
            found.add("unrelated: something returned", asked.half,
                      bool(asked.memory.recall(asked.text, count=False)))  # fmt: skip
        for asked in self.asked:
            hits = asked.memory.recall(asked.text, limit=TOP, count=False, asked_at=asked.at)
            texts = _texts(hits)
            if asked.set == "beliefs":
                right = len(set(texts) & set(asked.wanted))
                found.add("beliefs: exact set", asked.half, set(texts) == set(asked.wanted))
                if texts and asked.wanted:
                    found.add("beliefs: precision", asked.half, right / len(texts))
            if asked.wanted:
                share = len(set(texts) & set(asked.wanted)) / len(asked.wanted)
                found.add(f"{asked.set} @10 at the default minimum", asked.half, share)
        for talk, memory, half in self.talks:
            for question in talk.questions:
                if question.category != locomo.ADVERSARIAL:
                    hits = memory.recall(question.text, limit=TOP, count=False)
                    refs = {hit.memory.ref for hit in hits}
                    share = len(refs & set(question.evidence)) / len(question.evidence)
                    found.add("LoCoMo turns at the default minimum", half, share)

    def mean_figure(self, weights: Weighting) -> float:
        """Return the mean of the figures `CHOSEN_BY` on the first half."""
        found = self.measure_figures(weights)
        known = [value for name in CHOSEN_BY if not math.isnan(value := found.mean(name, 0))]
        return sum(known) / len(known)

    def choose_weights(self) -> Weighting:
        """Change one weight after the other, until no step improves the figures enough."""
        best, moved = DEFAULT, True
        value = self.mean_figure(best)
        while moved:
            moved = False
            for name, steps in STEPS.items():
                for step in steps:
                    other = replace(best, **{name: step})  # type: ignore[arg-type]
                    if other != best and (tried := self.mean_figure(other)) > value + LEAST_GAIN:
                        best, value, moved = other, tried, True
                say(f"{name} {getattr(best, name)}: {value:.4f}")
        return best


def _recall(
    memory: Commonplace,
    query: str,
    weights: Weighting,
    limit: int = TOP,
    at: datetime | str | None = None,
) -> Hits:
    return memory.recall(query, limit=limit, weighting=weights, count=False, minimum=0, asked_at=at)


def _texts(hits: Hits) -> list[str]:
    return [hit.memory.text for hit in hits]


def _show(name: str, figures: Figures) -> None:
    print(f"\n{name}")
    for figure, (first, second, count) in sorted(figures.table().items()):
        print(f"  {figure:42} {first:.3f} / {second:.3f}   {count:.0f} questions")


def main(given: Sequence[str]) -> int:
    """Measure, and write down what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.choosing", description=__doc__)
    parser.add_argument("--locomo", type=Path, help="locomo10.json; it is never part of this code")
    parser.add_argument("--longmemeval", type=Path, help="longmemeval_s_dev.json.xz; likewise")
    parser.add_argument("--ablate", action="store_true", help="leave out each term in turn")
    parser.add_argument(
        "--choose", action="store_true", help="choose the weights on the first half"
    )
    told = parser.parse_args(given)
    library = sets.open_library()
    trials = Trials(library, told.locomo, told.longmemeval)
    report: dict[str, Any] = {}
    ways = {"default": DEFAULT}
    if told.ablate:
        ways |= {name: replace(DEFAULT, **change) for name, change in ABLATED.items()}  # type: ignore[arg-type]
    if told.choose:
        ways["chosen on the first half"] = trials.choose_weights()
    for name, weights in ways.items():
        found = trials.measure_figures(weights, silence=weights is DEFAULT)
        report[name] = found.table()
        _show(name, found)
    library.close()
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "choosing.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    say(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
