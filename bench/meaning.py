"""Quality where words do not help: questions and statements that share no word.

On LoCoMo words win; this set is the other end, so that a fusion that serves only one is seen.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.embedders import CachedEmbedder
from bench.report import CACHE, Row, Section, say, share
from commonplace import Commonplace, Draft, Library, Weighting
from commonplace.embedding.provider import open_embedder
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.recall import DEFAULT, MEANING_ONLY, WORDS_ONLY
from commonplace.engine.maintenance import upkeep
from commonplace.text.analysis import analyse

PAIRS = Path(__file__).parent / "meaning_pairs.txt"
DISTRACTORS = 500
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
SEED = 7
WEIGHTINGS: dict[str, Weighting] = {
    "words alone": WORDS_ONLY,
    "dense alone": MEANING_ONLY,
    "default": DEFAULT,
}
TRAPS = (
    "I saw the word {a} on a sign yesterday.",
    "They talked about {a} for more than an hour.",
    "My friend mentioned {a} and then changed the subject.",
    "There was a quiz on {a} and {b} in the newspaper.",
    "He wrote a short poem called {a}.",
    "I can't remember what {a} has to do with {b}.",
    "The podcast about {a} and {b} was boring.",
)
PEOPLE = ("Nadia", "Oskar", "Priya", "Leon", "Mei", "Tomas", "Ines", "Yusuf")
DOINGS = ("repaired", "sold", "photographed", "painted", "borrowed", "described", "returned")
THINGS = ("a wooden boat", "the harbour crane", "an old atlas", "two violins", "the town archive")
PLACES = ("in Lisbon", "near the station", "at the fair", "beside the canal", "on the island")
TIMES = ("in March", "last winter", "before noon", "during the strike", "twice this year")


def pairs() -> list[tuple[str, str]]:
    """(question, the statement that answers it)."""
    lines = PAIRS.read_text(encoding="utf-8").splitlines()
    return [(question, answer) for question, _, answer in (line.partition("|") for line in lines)]


def traps(questions: list[str], chance: random.Random) -> list[str]:
    """Statements that say nothing, in the words of the questions."""
    made: list[str] = []
    while len(made) < DISTRACTORS:
        words = [w for w in re.findall("[a-z]+", chance.choice(questions).lower()) if analyse(w)]
        made.append(chance.choice(TRAPS).format(a=chance.choice(words), b=chance.choice(words)))
    return made


def chatter(chance: random.Random) -> list[str]:
    """Statements about other things."""
    parts = (PEOPLE, DOINGS, THINGS, PLACES, TIMES)
    return [" ".join(map(chance.choice, parts)) + "." for _ in range(DISTRACTORS)]


def drafts_one_after_another(texts: Sequence[str]) -> list[Draft]:
    """Statements of which each is a day younger than the one before it, as they come in use.

    Of statements with the same time none is newer, so that none could be put before another.
    """
    day = timedelta(days=1)
    return [Draft(text=text, created_at=FIRST_DAY + day * at) for at, text in enumerate(texts)]


def store_statements(library: Library) -> dict[str, Commonplace]:
    """The statements among each kind of distractor, each in a space of its own."""
    known = pairs()
    chance = random.Random(SEED)
    sets = {
        "other topics": chatter(chance),
        "the questions' own words": traps([question for question, _ in known], chance),
    }
    spaces = {}
    for number, (name, distractors) in enumerate(sets.items()):
        memory = spaces[name] = Commonplace(space=f"meaning-{number}", library=library)
        texts = [*(answer for _, answer in known), *distractors]
        chance.shuffle(texts)
        memory.remember_many(drafts_one_after_another(texts))
        engine_call(memory, upkeep.embed_all)
    return spaces


def recall_shares(memory: Commonplace, weighting: Weighting) -> tuple[float, float]:
    """The share of questions whose statement came first, and among the ten best."""
    known = pairs()
    first = ten = 0
    for question, answer in known:
        hits = memory.recall(question, limit=10, weighting=weighting, count=False, minimum=0)
        texts = [hit.memory.text for hit in hits]
        first += texts[:1] == [answer]
        ten += answer in texts
    return first / len(known), ten / len(known)


def measure() -> Section:
    """Recall at 1 and at 10 of the statements, among each kind of distractor."""
    model = open_embedder("builtin")
    assert model is not None
    rows = []
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        library = Library(directory, embedder=CachedEmbedder(model, CACHE))
        for name, memory in store_statements(library).items():
            say(f"meaning among {name}")
            for way, weighting in WEIGHTINGS.items():
                first, ten = recall_shares(memory, weighting)
                rows.append(
                    Row(
                        name=f"among {name}: {way}",
                        measured=f"@1 {share(first)}",
                        against=f"@10 {share(ten)}",
                        values={"@1": first, "@10": ten},
                    )
                )
        library.close()
    note = (
        f"{len(pairs())} pairs written by hand, without a common word, among {DISTRACTORS} others"
    )
    return Section("Meaning, statement found for its question", rows, [note])
