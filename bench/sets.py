"""The development sets: what is stored, what is asked, and what should be found.

Each set is split once into two halves, by a seed and a hash of the question's group, so that the
halves stay the same when a set grows. LongMemEval's 60 questions are too few to split.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import locomo, longmemeval, meaning
from bench.embedders import CachedEmbedder
from bench.report import CACHE, say
from commonplace import Commonplace, Draft, Library, Line
from commonplace.embedding.provider import open_embedder
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep
from commonplace.text.analysis import ANALYSIS_VERSION

HERE = Path(__file__).parent
SEED = 20_261_117
PAIRS_IN_A_SPACE = 20
DISTRACTORS = 100
DATED_AT = "2026-06-20T12:00Z"
WITH_UPDATE = ("value", "update", "negation")
WITHOUT_UPDATE = ("addition", "other", "aspect")


@dataclass(frozen=True)
class Pair:
    """Two statements, the older first, what they are to each other, and a question."""

    kind: str
    old: str
    new: str
    question: str

    @property
    def replaces(self) -> bool:
        """Whether the newer statement makes the older one outdated."""
        return self.kind in WITH_UPDATE


@dataclass(frozen=True)
class AskedQuestion:
    """A question that is asked of a space, with the refs or texts that answer it."""

    set: str
    memory: Commonplace
    text: str
    wanted: tuple[str, ...]
    half: int
    at: str | None = None
    """When it is asked; now if None."""


def cache_folder() -> Path:
    """Where embeddings and filled stores are kept between runs."""
    return Path(os.environ.get("COMMONPLACE_BENCH_CACHE") or CACHE)


def half_of(group: str) -> int:
    """0 or 1: the half to which a question belongs, by its group."""
    return hashlib.sha256(f"{SEED} {group}".encode()).digest()[0] % 2


def open_library() -> Library:
    """A library that stays on disk between runs, with the built-in model behind a cache."""
    model = open_embedder("builtin")
    assert model is not None
    directory = cache_folder() / f"stores-2-{model.weights[:12]}-{ANALYSIS_VERSION}"
    return Library(directory, embedder=CachedEmbedder(model, cache_folder()))


def pairs() -> list[Pair]:
    """The labelled pairs of statements."""
    lines = (HERE / "updates.txt").read_text(encoding="utf-8").splitlines()
    return [Pair(*line.split("|")) for line in lines]


def _space(library: Library, name: str) -> tuple[Commonplace, bool]:
    """Return a space, and whether it must still be filled."""
    memory = Commonplace(space=name, library=library)
    return memory, not memory.browse(limit=1)[1]


def _fill(memory: Commonplace, texts: Sequence[str]) -> None:
    say(f"storing {memory.name}")
    memory.remember_many(meaning.drafts_one_after_another(texts))
    engine_call(memory, upkeep.embed_all)


def updates(library: Library) -> Iterator[tuple[Pair, Commonplace, int]]:
    """Each pair with the space that holds it among others, all old statements stored first."""
    chance = random.Random(SEED)
    shuffled = pairs()
    chance.shuffle(shuffled)
    for start in range(0, len(shuffled), PAIRS_IN_A_SPACE):
        some = shuffled[start : start + PAIRS_IN_A_SPACE]
        memory, empty = _space(library, f"updates-{start // PAIRS_IN_A_SPACE}")
        if empty:
            others = meaning.chatter(chance)[:DISTRACTORS]
            _fill(memory, [*(p.old for p in some), *others, *(p.new for p in some)])
        for pair in some:
            yield pair, memory, half_of(pair.old + pair.new)


def beliefs(library: Library) -> Iterator[AskedQuestion]:
    """Short beliefs; each question wants an exact set of them, which may be empty."""
    rows = [line.split("|") for line in (HERE / "beliefs.txt").read_text("utf-8").splitlines()]
    texts = {name: text for kind, name, text in rows if kind == "belief"}
    memory, empty = _space(library, "beliefs")
    if empty:
        _fill(memory, list(texts.values()))
    for kind, question, names in rows:
        if kind == "question":
            wanted = tuple(texts[name] for name in names.split(",") if name)
            yield AskedQuestion("beliefs", memory, question, wanted, half_of(question))


def instructions(library: Library) -> Iterator[AskedQuestion]:
    """Standing instructions among other statements; each question brings up one's topic."""
    lines = (HERE / "instructions.txt").read_text("utf-8").splitlines()
    rows = [line.split("|") for line in lines]
    memory, empty = _space(library, "instructions")
    if empty:
        chance = random.Random(SEED)
        texts = [*(row[0] for row in rows), *(pair.old for pair in pairs()[:150])]
        texts += meaning.chatter(chance)[:DISTRACTORS]
        chance.shuffle(texts)
        _fill(memory, list(dict.fromkeys(texts)))
    for text, question in rows:
        yield AskedQuestion("instructions", memory, question, (text,), half_of(question))


def chats(library: Library) -> Iterator[AskedQuestion]:
    """Short lines of a user between long answers; each question wants one line of the user."""
    text = (HERE / "chats.txt").read_text("utf-8")
    sessions = [part.splitlines() for part in text.strip().split("\n\n")]
    memory, empty = _space(library, "chats")
    asked = []
    for number, lines in enumerate(sessions):
        said = []
        for row in lines:
            speaker, words, question = row.split("|")
            day = f"2026-0{1 + number // 28}-{1 + number % 28:02}T10:00:00Z"
            said.append(Line(speaker=speaker, text=words, at=day, session=f"chat {number}"))
            if question:
                asked.append(
                    AskedQuestion("chats", memory, question, (words,), half_of(str(number)))
                )
        if empty:
            memory.conversations.add("chats", *said)
    if empty:
        engine_call(memory, upkeep.embed_all)
    yield from asked


def meanings(library: Library) -> Iterator[AskedQuestion]:
    """Questions and statements without a common word, among two kinds of distractors."""
    for number in range(2):
        memory, empty = _space(library, f"meaning-{number}")
        if empty:
            say("storing the pairs without a common word")
            meaning.store_statements(library)
        for question, answer in meaning.pairs():
            yield AskedQuestion("meaning", memory, question, (answer,), half_of(question))


def dated(library: Library) -> Iterator[AskedQuestion]:
    """What happened when; each question names the time of one statement, seen from DATED_AT."""
    rows = [line.split("|") for line in (HERE / "dated.txt").read_text("utf-8").splitlines()]
    memory, empty = _space(library, "dated")
    if empty:
        memory.remember_many(
            [Draft(text=text, occurred_at=f"{day}T12:00Z") for day, text, _ in rows]
        )
        engine_call(memory, upkeep.embed_all)
    for _, text, question in rows:
        if question:
            yield AskedQuestion("dated", memory, question, (text,), half_of(question), DATED_AT)


def talks(library: Library, path: Path) -> Iterator[tuple[locomo.Conversation, Commonplace, int]]:
    """The conversations of LoCoMo."""
    for talk in locomo.read_conversations(path):
        memory, empty = _space(library, talk.name.lower())
        if empty:
            say(f"storing {talk.name}")
            memory = locomo.store_conversation(library, talk)
        yield talk, memory, half_of(talk.name)


def long_chats(
    library: Library, path: Path, only: Sequence[str] | None = None
) -> Iterator[tuple[longmemeval.Chat, Commonplace]]:
    """The questions of LongMemEval-S, each with its sessions."""
    for chat in longmemeval.read_chats(path):
        if only is not None and chat.name not in only:
            continue
        memory, empty = _space(library, longmemeval.space_name(chat))
        if empty:
            say(f"storing {chat.name}")
            memory = longmemeval.store_chat(library, chat)
        yield chat, memory


def unrelated(library: Library, others: Sequence[Commonplace]) -> Iterator[AskedQuestion]:
    """Questions about things that no set holds, asked of some spaces of every set."""
    questions = [line for line in (HERE / "unrelated.txt").read_text("utf-8").splitlines() if line]
    own = [next(iter(some(library))).memory for some in (beliefs, chats, meanings)]
    own += [memory for _, memory, _ in list(updates(library))[:: 3 * PAIRS_IN_A_SPACE]]
    for memory in [*own, *others]:
        for question in questions:
            yield AskedQuestion(
                f"unrelated to {memory.name}", memory, question, (), half_of(question)
            )


def chosen_questions() -> list[str] | None:
    """The questions of LongMemEval-S to ask, if COMMONPLACE_BENCH_ONLY names a file with some."""
    named = os.environ.get("COMMONPLACE_BENCH_ONLY")
    return Path(named).read_text("utf-8").split() if named else None
