"""Quality in other languages: questions and statements that share no word, in nine languages.

A statement lies among 41 others and 460 distractors of its language. It is looked for with the
question in its own language, with the English question, and the English statement is looked for
with the question in each language.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from bench.embedders import CachedEmbedder
from bench.report import CACHE, Row, Section, say, share
from commonplace import Commonplace, Draft, Library
from commonplace.embedding.provider import open_embedder
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep

PAIRS = Path(__file__).parent / "language_pairs.txt"
CHATTER = Path(__file__).parent / "language_chatter.txt"
UNRELATED = Path(__file__).parent / "language_unrelated.txt"
SEED = 7
ENGLISH = "en"


def pairs() -> dict[str, list[tuple[str, str]]]:
    """(question, the statement that answers it) by language, in the same order for each."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        if line:
            language, question, statement = line.split("|")
            found.setdefault(language, []).append((question, statement))
    return found


def chatter() -> dict[str, list[str]]:
    """Statements about other things, by language."""
    chance = random.Random(SEED)
    found = {}
    for block in CHATTER.read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lists = block.split("\n")
        language, pattern = head.split("|")
        parts = {name: rest.split("|") for name, _, rest in (line.partition("|") for line in lists)}
        found[language] = [
            pattern.format(who=who, what=what, when=chance.choice(parts["when"]))
            for who in parts["who"]
            for what in parts["what"]
        ]
    return found


def store_statements(library: Library) -> dict[str, Commonplace]:
    """The statements and distractors of each language, each in a space of its own."""
    spaces = {}
    distractors = chatter()
    for language, known in pairs().items():
        memory = spaces[language] = Commonplace(space=f"language-{language}", library=library)
        texts = [*(statement for _, statement in known), *distractors[language]]
        random.Random(SEED).shuffle(texts)
        memory.remember_many([Draft(text=text) for text in texts])
        engine_call(memory, upkeep.embed_all)
    return spaces


def recall_shares(memory: Commonplace, asked: list[str], wanted: list[str]) -> tuple[float, float]:
    """The share of questions whose statement came first, and among the ten best."""
    first = ten = 0
    for question, statement in zip(asked, wanted, strict=True):
        texts = [
            hit.memory.text
            for hit in memory.recall(question, limit=10, minimum=0, share=0, count=False)
        ]
        first += texts[:1] == [statement]
        ten += statement in texts
    return first / len(asked), ten / len(asked)


def unrelated() -> dict[str, list[str]]:
    """Questions about things that no statement is about, by language."""
    lines = UNRELATED.read_text(encoding="utf-8").splitlines()
    return {language: asked.split("|") for language, _, asked in (x.partition("|") for x in lines)}


def silence_rows(
    spaces: dict[str, Commonplace], questions: dict[str, list[str]], answers: dict[str, list[str]]
) -> list[Row]:
    """At the default minimum: what gets something though nothing is stored, and what is kept."""
    others = [language for language in spaces if language != ENGLISH]
    rows = []
    for way, asked_in in (
        ("in the language of the space", dict(zip(others, others, strict=True))),
        ("in English", dict.fromkeys(others, ENGLISH)),
    ):
        through: list[bool] = []
        kept: list[bool] = []
        for language, asked in asked_in.items():
            memory = spaces[language]
            through += [bool(memory.recall(q, count=False)) for q in unrelated()[asked]]
            for question, answer in zip(questions[asked], answers[language], strict=True):
                everything, usual = (
                    [hit.memory.text for hit in memory.recall(question, count=False, minimum=least)]
                    for least in (0, None)
                )
                if answer in everything:
                    kept.append(answer in usual)
        passed, stays = (sum(each) / len(each) for each in (through, kept))
        rows.append(
            Row(
                name=f"silence, asked {way}", measured=f"let through {share(passed)}",
                against=f"kept {share(stays)}", target="≤ .05",
                values={"let through": passed, "kept": stays},
            )
        )  # fmt: skip
    return rows


def measure() -> Section:
    """Recall at 1 and at 10 in each language, and between it and English."""
    model = open_embedder("builtin")
    assert model is not None
    known = pairs()
    questions = {language: [question for question, _ in own] for language, own in known.items()}
    answers = {language: [answer for _, answer in own] for language, own in known.items()}
    rows = []
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        library = Library(directory, embedder=CachedEmbedder(model, CACHE))
        spaces = store_statements(library)
        for language, memory in spaces.items():
            say(f"language {language}")
            ways = {
                "own": recall_shares(memory, questions[language], answers[language]),
                "asked in English": recall_shares(memory, questions[ENGLISH], answers[language]),
                "stored in English": recall_shares(
                    spaces[ENGLISH], questions[language], answers[ENGLISH]
                ),
            }
            for way, (first, ten) in ways.items():
                rows.append(
                    Row(
                        name=f"{language}: {way}",
                        measured=f"@1 {share(first)}",
                        against=f"@10 {share(ten)}",
                        values={"@1": first, "@10": ten},
                    )
                )
        rows += silence_rows(spaces, questions, answers)
        library.close()
    note = f"{len(answers[ENGLISH])} pairs a language without a common word, among 460 others"
    return Section("Other languages, statement found for its question", rows, [note])
