from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from commonplace import Commonplace, Line
from commonplace.errors import Conflict, InvalidInput, NotFound
from conftest import texts


def say(
    memory: Commonplace, *said: str, session: str = "", conversation: str = "talk"
) -> list[str]:
    lines = [Line(speaker=who, text=what, session=session) for who, what in
             (each.split(": ", 1) for each in said)]  # fmt: skip
    return [line.memory.id for line in memory.conversations.add(conversation, *lines)]


def test_lines_keep_their_order_speaker_session_and_time(memory: Commonplace) -> None:
    added = memory.conversations.add(
        "talk",
        Line(speaker="Ann", text="hello", at="2024-05-01T10:00:00", session="s1", ref="l1",
             tags=["greeting"], trust="inferred"),
        Line(speaker="Bob", text="hi", session="s1"),
    )  # fmt: skip
    assert [line.position for line in added] == [0, 1]
    first = memory.conversations.of("l1")
    assert first == added[0]
    assert (first.speaker, first.session, first.conversation) == ("Ann", "s1", "talk")
    assert (first.memory.kind, first.memory.tags) == ("message", ("greeting",))
    assert first.memory.trust == "inferred"
    assert first.memory.occurred_at is not None
    assert memory.conversations.history("talk") == added


def test_history_is_the_newest_lines_oldest_of_them_first(memory: Commonplace) -> None:
    say(memory, *(f"Ann: line {i}" for i in range(5)), session="s1")
    say(memory, *(f"Bob: line {i}" for i in range(5, 8)), session="s2")
    history = memory.conversations.history
    assert texts(history("talk", limit=2)) == ["line 6", "line 7"]
    assert texts(history("talk", session="s1", limit=2)) == ["line 3", "line 4"]
    assert texts(history("talk", before=2)) == ["line 0", "line 1"]
    assert texts(history("talk", before=6, limit=1)) == ["line 5"]
    assert history("no such talk") == []
    assert [line.position for line in history("talk")] == list(range(8))


def test_a_window_shows_a_line_with_those_around_it(memory: Commonplace) -> None:
    ids = say(memory, *(f"Ann: {i}" for i in range(6)))
    say(memory, "Bob: elsewhere", conversation="other")
    assert texts(memory.conversations.window(ids[3], before=1, after=2)) == ["2", "3", "4", "5"]
    assert texts(memory.conversations.window(ids[0])) == ["0", "1", "2"]
    assert texts(memory.conversations.window(ids[5], before=0, after=9)) == ["5"]
    note = memory.remember("no line")
    with pytest.raises(NotFound):
        memory.conversations.window(note.id)


def test_conversations_are_listed_with_their_lengths(memory: Commonplace) -> None:
    say(memory, "a: 1", "a: 2")
    say(memory, "a: 1", conversation="b")
    assert memory.conversations.names() == [("b", 1), ("talk", 2)]


def test_forgotten_lines_are_out_of_sight_and_keep_their_place(memory: Commonplace) -> None:
    ids = say(memory, "a: one", "b: two", "a: three")
    memory.forget(ids[1])
    assert texts(memory.conversations.history("talk")) == ["one", "three"]
    assert texts(memory.conversations.history("talk", limit=2)) == ["one", "three"]
    assert texts(memory.conversations.window(ids[0])) == ["one", "three"]
    assert memory.conversations.names() == [("talk", 2)]
    memory.restore(ids[1])
    assert texts(memory.conversations.history("talk")) == ["one", "two", "three"]


def test_lines_are_added_all_or_none(memory: Commonplace) -> None:
    memory.remember("taken", ref="r")
    for bad, error in (
        (Line(speaker="", text="x"), InvalidInput),
        (Line(speaker="a", text=""), InvalidInput),
        (Line(speaker="a", text="x", session="\ud800"), InvalidInput),
        (Line(speaker="a", text="x", ref="r"), Conflict),
    ):
        with pytest.raises(error):
            memory.conversations.add("talk", Line(speaker="a", text="good"), bad)
    with pytest.raises(InvalidInput):
        memory.conversations.add("", Line(speaker="a", text="good"))
    assert memory.conversations.names() == []
    assert memory.conversations.add("talk") == []
    assert len(memory.history.operations()) == 1


def test_threads_that_speak_at_once_get_places_of_their_own(memory: Commonplace) -> None:
    def speak(who: int) -> None:
        for i in range(5):
            say(memory, f"{who}: {i}a", f"{who}: {i}b")

    speakers = [threading.Thread(target=speak, args=(i,)) for i in range(8)]
    for each in speakers:
        each.start()
    for each in speakers:
        each.join()
    lines = memory.conversations.history("talk", limit=1_000)
    assert [line.position for line in lines] == list(range(80))
    for who in range(8):
        own = [line.memory.text for line in lines if line.speaker == str(who)]
        assert own == [f"{i}{part}" for i in range(5) for part in "ab"]
    for one, two in zip(lines[::2], lines[1::2], strict=True):
        assert one.speaker == two.speaker, "what was added together stays together"


def test_a_line_is_found_by_its_speaker_and_filtered_by_it(memory: Commonplace) -> None:
    say(memory, "Caroline: I went to the beach", "Melanie: the beach was fun")
    assert texts(memory.recall("beach", speakers=["Melanie"])) == ["the beach was fun"]
    assert texts(memory.recall("what about Caroline", limit=1)) == ["I went to the beach"]
    assert texts(memory.find_text("beach", speakers=["Caroline"])) == ["I went to the beach"]
    assert texts(memory.browse(speakers=["Melanie"])) == ["the beach was fun"]


def test_a_line_hears_its_neighbours_and_its_session(memory: Commonplace) -> None:
    say(memory, "a: which restaurant did you like in Lisbon?", "b: the small one by the river")
    say(memory, "a: nothing to see", "b: nothing either", session="s2")
    hits = memory.recall("restaurant in Lisbon")
    assert texts(hits)[:2] == [
        "which restaurant did you like in Lisbon?",
        "the small one by the river",
    ]
    assert hits[1].why.context > 0
    assert hits[1].why.words == ()
    assert "context" in str(hits[1].why)


def test_sessions_are_found_as_a_whole(memory: Commonplace) -> None:
    say(memory, "a: my dog is ill", "b: take him to the vet", session="s1")
    say(memory, "a: let us cook pasta", "b: with tomatoes", session="s2")
    say(memory, "a: my dog", conversation="other", session="s1")
    found = memory.recall_sessions("ill dog and the vet")
    assert (found[0].conversation, found[0].session) == ("talk", "s1")
    assert found[0].best.text in ("my dog is ill", "take him to the vet")
    assert all(0 <= hit.score <= 1 for hit in found)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert len(memory.recall_sessions("dog", limit=1)) == 1
    assert memory.at("empty").recall_sessions("dog") == []
    speakers = memory.recall_sessions("dog vet", speakers=["b"])
    assert speakers[0].best.text == "take him to the vet"


def moment() -> datetime:
    time.sleep(0.002)
    at = datetime.now(UTC)
    time.sleep(0.002)
    return at


def test_a_conversation_can_be_read_as_it_was(memory: Commonplace) -> None:
    before = moment()
    ids = say(memory, "Ann: one", "Bob: two", "Ann: three", session="s1")
    first = moment()
    memory.revise(ids[1], text="two, corrected")
    memory.forget(ids[2])
    say(memory, "Bob: four", session="s2")
    say(memory, "Cy: elsewhere", conversation="other")
    last = moment()
    memory.undo()
    memory.undo()

    talk = memory.conversations
    assert talk.history("talk", as_of=before) == []
    assert texts(talk.history("talk", as_of=first)) == ["one", "two", "three"]
    assert texts(talk.history("talk", as_of=first, limit=2)) == ["two", "three"]
    assert texts(talk.history("talk", as_of=first, before=2)) == ["one", "two"]
    assert texts(talk.history("talk", as_of=last)) == ["one", "two, corrected", "four"]
    assert texts(talk.history("talk", session="s2", as_of=last)) == ["four"]
    assert talk.history("talk", session="s2", as_of=first) == []
    assert texts(talk.window(ids[1], as_of=first.isoformat())) == ["one", "two", "three"]
    assert texts(talk.window(ids[1], as_of=last, before=0)) == ["two, corrected", "four"]
    assert talk.of(ids[1], as_of=first).memory.text == "two"
    with pytest.raises(NotFound):
        talk.of(ids[1], as_of=before)
    assert talk.names(as_of=before) == []
    assert talk.names(as_of=first) == [("talk", 3)]
    assert talk.names(as_of=last) == [("other", 1), ("talk", 3)]
    assert talk.names() == [("talk", 2)]


def test_sessions_are_found_as_they_were(memory: Commonplace) -> None:
    ids = say(memory, "Ann: the walrus sings", "Bob: indeed", session="s1")
    say(memory, "Ann: the walrus sleeps", session="s2")
    then = moment()
    memory.undo()
    memory.revise(ids[0], text="the otter sings")
    sessions = memory.recall_sessions
    assert [(hit.session, hit.score) for hit in sessions("walrus")] == [("s1", 0.0)]
    found = sessions("walrus", as_of=then)
    assert {(hit.session, hit.best.text) for hit in found} == {
        ("s1", "the walrus sings"), ("s2", "the walrus sleeps")
    }  # fmt: skip
    assert min(hit.score for hit in found) > 0
    assert [hit.session for hit in sessions("otter")] == ["s1"]
