"""Quality on LoCoMo: the share of a question's evidence that is found, by the public API alone."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.embedders import CachedEmbedder
from bench.report import CACHE, RESULTS, Row, Section, say, share
from commonplace import Commonplace, Library, Line, Weighting
from commonplace.embedding.provider import open_embedder
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.recall import DEFAULT, MEANING_ONLY, WORDS_ONLY
from commonplace.engine.maintenance import upkeep

TOP = 10
DEEP = 200
"""How many turns are looked at where a weighting has no ranking of sessions of its own."""
ADVERSARIAL = 5
TURNS_TARGET, SESSIONS_TARGET, HALVES_TARGET = 0.69, 0.94, 0.02

WEIGHTINGS: dict[str, Weighting] = {
    "BM25 alone": WORDS_ONLY,
    "dense alone": MEANING_ONLY,
    "fused, without conversation": replace(
        DEFAULT, neighbours=0.0, session_words=0.0, speaker=0.0, spread=1.0
    ),
    "default": DEFAULT,
}


@dataclass(frozen=True)
class Question:
    """A question, with the turns that hold its answer."""

    text: str
    category: int
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Conversation:
    """One conversation of the data."""

    name: str
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]
    left_out: tuple[str, ...]
    """Evidence ids that name no turn."""

    @property
    def session_of(self) -> dict[str, str]:
        """The session of each turn."""
        return {line.ref or "": line.session for line in self.lines}


@dataclass(frozen=True)
class Answer:
    """The results of one question with one weighting."""

    conversation: int
    question: Question
    way: str
    turns: tuple[str, ...]
    sessions: tuple[str, ...]
    wanted_sessions: tuple[str, ...]

    @property
    def turn_share(self) -> float:
        """The share of the evidence turns among those found."""
        return len(set(self.question.evidence) & set(self.turns)) / len(self.question.evidence)

    @property
    def session_share(self) -> float:
        """The share of the evidence's sessions among those found."""
        return len(set(self.wanted_sessions) & set(self.sessions)) / len(self.wanted_sessions)


def read_conversations(path: Path) -> list[Conversation]:
    """The conversations of a LoCoMo file, in its order."""
    return [_conversation(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(entry: dict[str, Any]) -> Conversation:
    spoken = entry["conversation"]
    lines: list[Line] = []
    numbers = sorted(int(m[1]) for key in spoken if (m := re.fullmatch(r"session_(\d+)", key)))
    for number in numbers:
        at = _parsed_time(spoken[f"session_{number}_date_time"])
        for turn in spoken[f"session_{number}"] or []:
            caption = turn.get("blip_caption")
            text = (turn.get("text") or "") + (f" [image: {caption}]" if caption else "")
            lines.append(
                Line(
                    speaker=turn["speaker"],
                    text=text,
                    at=at,
                    session=f"session {number}",
                    ref=turn["dia_id"],
                )
            )
    turns = {line.ref for line in lines}
    questions, left_out = [], []
    for asked in entry["qa"]:
        ids = [part for whole in asked["evidence"] for part in re.split(r"[;,\s]+", whole) if part]
        kept = tuple(dict.fromkeys(part for part in ids if part in turns))
        left_out += [part for part in ids if part not in turns]
        if kept:
            questions.append(Question(asked["question"], asked["category"], kept))
    return Conversation(entry["sample_id"], tuple(lines), tuple(questions), tuple(left_out))


def _parsed_time(text: str) -> datetime:
    """A moment written like "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def store_conversation(library: Library, conversation: Conversation) -> Commonplace:
    """The conversation in a space of its own, session by session, all of it embedded."""
    memory = Commonplace(space=conversation.name.lower(), library=library)
    for session in dict.fromkeys(line.session for line in conversation.lines):
        said = [line for line in conversation.lines if line.session == session]
        memory.conversations.add(conversation.name, *said)
    engine_call(memory, upkeep.embed_all)
    return memory


def ask_questions(
    memory: Commonplace, number: int, conversation: Conversation, ways: Sequence[str]
) -> list[Answer]:
    """Every question of a conversation, once for each weighting."""
    session_of = conversation.session_of
    answers = []
    for question in conversation.questions:
        wanted = tuple(dict.fromkeys(session_of[turn] for turn in question.evidence))
        for way in ways:
            deep = WEIGHTINGS[way] is not DEFAULT
            hits = memory.recall(
                question.text,
                limit=DEEP if deep else TOP,
                weighting=WEIGHTINGS[way],
                count=False,
                minimum=0,
            )
            turns = [hit.memory.ref or "" for hit in hits]
            if deep:
                sessions = list(dict.fromkeys(session_of[turn] for turn in turns))[:TOP]
            else:
                best = memory.recall_sessions(question.text, limit=TOP)
                sessions = [hit.session for hit in best]
            answers.append(
                Answer(number, question, way, tuple(turns[:TOP]), tuple(sessions), wanted)
            )
    return answers


def measure(path: Path, *, conversations: int | None = None) -> Section:
    """The section of the table; every question's outcome goes to a file of JSON lines."""
    data = read_conversations(path)[:conversations]
    model = open_embedder("builtin")
    assert model is not None
    answers: list[Answer] = []
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as directory:
        embedder = CachedEmbedder(model, CACHE)
        library = Library(directory, embedder=embedder)
        for number, conversation in enumerate(data):
            memory = store_conversation(library, conversation)
            say(
                f"LoCoMo {conversation.name}: {len(conversation.lines)} turns,"
                f" {len(conversation.questions)} questions, {embedder.computed} texts embedded"
            )
            answers += ask_questions(memory, number, conversation, list(WEIGHTINGS))
        library.close()
    lines = RESULTS / "locomo-questions.jsonl"
    _write_lines(lines, data, answers)
    rows = _rows(answers, len(data))
    questions = sum(len(each.questions) for each in data)
    counted = sum(q.category != ADVERSARIAL for each in data for q in each.questions)
    left_out = [f"{each.name} {turn}" for each in data for turn in each.left_out]
    notes = [
        f"{questions} questions count, {counted} of categories 1-4; evidence ids that name no turn,"
        f" left out: {len(left_out)} ({', '.join(left_out)})",
        f"the session level of the first three ranks sessions by their best turn among {DEEP}",
        "which terms the formula has was explored on all ten, and their weights on both halves:"
        " neither is untouched",
        f"each question's outcome: {lines}",
    ]
    return Section(f"LoCoMo, share of evidence in the top {TOP}", rows, notes)


def _mean(answers: Sequence[Answer], value: Callable[[Answer], float]) -> float:
    return sum(map(value, answers)) / len(answers) if answers else float("nan")


def _rows(answers: Sequence[Answer], conversations: int) -> list[Row]:
    half = (conversations + 1) // 2
    rows = []
    turn: Callable[[Answer], float] = lambda answer: answer.turn_share  # noqa: E731
    session: Callable[[Answer], float] = lambda answer: answer.session_share  # noqa: E731
    levels = (
        ("turns, categories 1-4", turn, (1, 2, 3, 4), TURNS_TARGET),
        ("turns, category 5", turn, (5,), None),
        ("sessions, all five", session, (1, 2, 3, 4, 5), SESSIONS_TARGET),
    )
    for level, value, categories, target in levels:
        for way in WEIGHTINGS:
            chosen = [a for a in answers if a.way == way and a.question.category in categories]
            whole = _mean(chosen, value)
            first = _mean([a for a in chosen if a.conversation < half], value)
            last = _mean([a for a in chosen if a.conversation >= half], value)
            judged = way == "default" and target is not None
            rows.append(
                Row(
                    name=f"{level}: {way}",
                    measured=share(whole),
                    against=f"first half {share(first)}, last half {share(last)}",
                    target=f"≥ {target}" if judged else "",
                    ok=whole >= target if judged and target is not None else None,
                    values={"all": whole, "first half": first, "last half": last},
                )
            )
            if judged and value is turn:
                gap = last - first
                rows.append(
                    Row(
                        name="    first half below last half",
                        measured=f"{gap:+.3f}",
                        target=f"≤ {HALVES_TARGET}",
                        ok=gap <= HALVES_TARGET,
                        values={"gap": gap},
                    )
                )
    default = [a for a in answers if a.way == "default"]
    for category in (1, 2, 3, 4):
        chosen = [a for a in default if a.question.category == category]
        found = _mean(chosen, turn)
        rows.append(
            Row(
                name=f"turns, category {category}: default",
                measured=share(found),
                against=f"{len(chosen)} questions",
                values={"all": found, "questions": len(chosen)},
            )
        )
    return rows


def _write_lines(path: Path, data: Sequence[Conversation], answers: Sequence[Answer]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as out:
        for answer in answers:
            question = answer.question
            places = {turn: rank for rank, turn in enumerate(answer.turns, 1)}
            line = {
                "conversation": data[answer.conversation].name,
                "question": question.text,
                "category": question.category,
                "way": answer.way,
                "evidence": question.evidence,
                "found": answer.turns,
                "ranks": {turn: places.get(turn) for turn in question.evidence},
                "turn_share": answer.turn_share,
                "sessions": answer.sessions,
                "session_share": answer.session_share,
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
