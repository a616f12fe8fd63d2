"""`python -m bench.choosing LOCOMO`: choose the weights on one half of the data, look at the other.

The default weights are those chosen here on the last five conversations of LoCoMo and on the set
where words do not help, each counting for half. docs/benchmarks.md tells which other choices were
looked at before that one was taken. No leg may have
much more than two thirds, and no word's absence may weigh more than squared: beyond that lies what
these two sets ask for and others may not.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench import locomo, meaning
from bench.embedders import Remembering
from bench.report import CACHE, RESULTS, say, share
from commonplace import Commonplace, Library, Weighting
from commonplace.embedding.provider import open_embedder
from commonplace.engine.recall import DEFAULT

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
WORTH = 0.0005  # a smaller gain is no reason to move

Talk = tuple[Commonplace, locomo.Conversation]


def with_value(weights: Weighting, name: str, value: float) -> Weighting:
    """The weights with one of them changed; the two legs share one whole."""
    if name == "dense":
        return replace(weights, dense=value, lexical=round(1 - value, 2))
    return replace(weights, **{name: value})  # type: ignore[arg-type]


def turns_found(talks: Sequence[Talk], weights: Weighting) -> float:
    """The share of evidence turns in the top ten, over all questions.

    Those that name the wrong speaker too: without them, a choice trusts names too much.
    """
    shares = []
    for memory, conversation in talks:
        for question in conversation.questions:
            hits = memory.recall(question.text, limit=locomo.TOP, weighting=weights, count=False)
            found = {hit.memory.ref for hit in hits}
            shares.append(len(found & set(question.evidence)) / len(question.evidence))
    return sum(shares) / len(shares)


def meaning_found(spaces: Sequence[Commonplace], weights: Weighting) -> float:
    """The share of statements that come first for their question."""
    return sum(meaning.found(memory, weights)[0] for memory in spaces) / len(spaces)


def choose(talks: Sequence[Talk], spaces: Sequence[Commonplace]) -> Weighting:
    """One weight after the other, until no step of any of them is worth taking."""
    known: dict[Weighting, float] = {}

    def worth(weights: Weighting) -> float:
        if weights not in known:
            known[weights] = (turns_found(talks, weights) + meaning_found(spaces, weights)) / 2
        return known[weights]

    best, moved = START, True
    while moved:
        moved = False
        for name, values in STEPS.items():
            ways = [with_value(best, name, value) for value in values]
            found = max(ways, key=worth)
            if worth(found) > worth(best) + WORTH:
                best, moved = found, True
            say(f"{name} {getattr(best, name)}: {worth(best):.4f} after {len(known)} trials")
    return best


def main(given: Sequence[str]) -> int:
    """Choose on each half, and print what each choice finds on both."""
    if len(given) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    data = locomo.read(Path(given[0]))
    model = open_embedder("builtin")
    assert model is not None
    half = (len(data) + 1) // 2
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        library = Library(directory, embedder=Remembering(model, CACHE))
        talks = [(locomo.store(library, each), each) for each in data]
        spaces = list(meaning.store(library).values())
        halves = {"first half": talks[:half], "last half": talks[half:]}
        choices = {f"chosen on the {name}": choose(part, spaces) for name, part in halves.items()}
        report = {}
        for name, weights in {"default": DEFAULT, **choices}.items():
            found = {where: turns_found(part, weights) for where, part in halves.items()}
            found["meaning @1"] = meaning_found(spaces, weights)
            report[name] = {**found, "weights": asdict(weights)}
            print(f"{name:25} " + "  ".join(f"{where} {share(n)}" for where, n in found.items()))
            print(f"{'':25} " + ", ".join(f"{each} {getattr(weights, each)}" for each in STEPS))
        library.close()
    (RESULTS / "choosing.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
