"""The index in memory must be what a fresh look at the rows would give, however it got there."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from commonplace import Commonplace, Draft, Line
from commonplace.engine.binding import lease
from commonplace.errors import StorageCorrupt
from commonplace.storage import index as resident
from commonplace.storage.derived import term_number
from commonplace.storage.growing import sort_by_term
from commonplace.storage.index import Snapshot, SpaceIndex
from commonplace.text.analysis import analyse
from conftest import WordVectors

WORDS = ["walrus", "otter", "heron", "lynx", "viper", "tapir"]


def content(snapshot: Snapshot) -> dict[int, object]:
    """What a snapshot knows of each live memory, whatever its position."""
    names = {code: name for name, code in snapshot.kinds.items()}
    voices = {code: name for name, code in snapshot.speakers.items()}
    query = np.ones(snapshot.vectors[:0].shape[1], np.int8)
    cosine = snapshot.cosine(query, 1.0)
    before, after = snapshot.neighbours
    found: dict[int, object] = {}
    for at in np.flatnonzero(snapshot.alive).tolist():
        held = {}
        for word in WORDS:
            positions, times = snapshot.postings(term_number(analyse(word)[0]))
            where = np.flatnonzero(positions == at)
            held[word] = int(times[where].sum())
            assert np.all(np.diff(positions) >= 0), "positions of a term are in order"
        found[int(snapshot.num[at])] = (
            int(snapshot.row_seq[at]), names[int(snapshot.kind[at])], int(snapshot.state[at]),
            float(snapshot.importance[at]), bool(snapshot.pinned[at]), int(snapshot.occurred[at]),
            float(snapshot.length[at]), int(snapshot.place[at]),
            voices.get(int(snapshot.speaker[at])), bool(snapshot.embedded[at]),
            round(float(cosine[at]), 4), held,
            int(snapshot.num[before[at]]), int(snapshot.num[after[at]]),
        )  # fmt: skip
    return found


def change_something(memory: Commonplace, chance: random.Random, ids: list[str]) -> None:
    text = " ".join(chance.choices(WORDS, k=chance.randint(1, 5)))
    choice = chance.random()
    if choice < 0.35 or not ids:
        ids.append(memory.remember(text, kind=chance.choice(["note", "fact"])).id)
    elif choice < 0.45:
        line = Line(speaker=chance.choice("ab"), text=text, session=chance.choice("xy"))
        ids.append(memory.conversations.add("talk", line)[0].memory.id)
    elif choice < 0.65:
        memory.revise(chance.choice(ids), text=text, importance=chance.random())
    elif choice < 0.75:
        memory.forget(chance.choice(ids))
    elif choice < 0.85:
        memory.restore(chance.choice(ids))
    elif choice < 0.92:
        memory.purge(ids.pop(chance.randrange(len(ids))))
    else:
        memory.revise(chance.choice(ids), tags=[text], occurred_at="2024-01-01")


@pytest.mark.parametrize("sort_at", [1, 40, 100_000])
def test_an_index_that_followed_every_change_equals_one_read_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort_at: int
) -> None:
    monkeypatch.setattr(resident, "SORT_POSTINGS", sort_at)
    monkeypatch.setattr(resident, "READ_ROWS", 7)
    chance, ids = random.Random(sort_at), list[str]()
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:
        for step in range(60):
            change_something(memory, chance, ids)
            with lease(memory) as space, space.view() as (connection, followed):
                if step % 3 == 0:
                    fresh = SpaceIndex(space.name, space.model).snapshot(connection)
                    assert content(followed) == content(fresh)
                    assert followed.seq == fresh.seq


def test_a_snapshot_stays_as_it_was_while_others_write(vectored: Commonplace) -> None:
    ids = [vectored.remember(f"{word} text").id for word in WORDS]
    with lease(vectored) as space:
        with space.view() as (_, snapshot):
            held = content(snapshot)
        for identity in ids[:3]:
            vectored.revise(identity, text="tapir tapir")
        vectored.purge(ids[4])
        for i in range(50):
            vectored.remember(f"walrus {i}")
        vectored.recall("walrus")
        assert content(snapshot) == held


def test_an_index_full_of_dead_positions_is_made_anew(memory: Commonplace) -> None:
    stored = memory.remember_many([Draft(text=f"walrus {i}") for i in range(300)])
    memory.browse()
    sizes = []
    for share in (0.1, 0.2, 0.3, 0.4):
        with memory.unit("all change"):
            for each in stored:
                memory.revise(each.id, importance=share)
        with lease(memory) as space, space.view() as (_, snapshot):
            sizes.append(snapshot.size)
        assert memory.browse(importance=share)[1] == 300
    assert sizes == [600, 900, 1_200, 300]
    assert len(memory.recall("walrus", limit=500)) == 300


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("UPDATE memories SET text = 'x'", lambda m, i: m.get(i)),
        ("UPDATE memories SET importance = 0.9", lambda m, i: m.recall("walrus")),
        ("UPDATE memories SET state = 'dying'", lambda m, i: m.recall("walrus")),
        ("UPDATE memories SET space = 'other'", lambda m, i: m.at("default").find_text("wal")),
        ("UPDATE links SET weight = 1", lambda m, i: m.links.of()),
        ("UPDATE facts SET object = 'x'", lambda m, i: m.facts.query()),
        ("UPDATE versions SET row = replace(row, 'seal', 'fox')",
         lambda m, i: m.history.versions(i)),
        ("UPDATE operations SET name = 'x'", lambda m, i: m.history.operations()),
        ("UPDATE head SET seq = seq + 1", lambda m, i: m.remember("x")),
        ("UPDATE clusters SET name = 'x'", lambda m, i: m.clusters.all()),
        ("UPDATE contents SET content = x'00'", lambda m, i: m.artifacts.read("/p")),
        ("UPDATE messages SET speaker = 'x'", lambda m, i: m.conversations.history("talk")),
        ("UPDATE counters SET accesses = 99", lambda m, i: m.usage(i)),
        ("UPDATE lexemes SET terms = x'0000000000000000ff'", lambda m, i: m.recall("walrus")),
        ("UPDATE lexemes SET sum = 'x'", lambda m, i: m.recall("walrus")),
        ("UPDATE memories SET importance = 'x'", lambda m, i: m.recall("walrus")),
        ("UPDATE memories SET created_at = x'00'", lambda m, i: m.recall("walrus")),
        ("UPDATE messages SET position = 'x'", lambda m, i: m.recall("walrus")),
    ],
)  # fmt: skip
def test_what_was_changed_behind_our_back_is_never_returned(
    tmp_path: Path, statement: str, call: object
) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        stored = memory.remember("the seal")
        memory.revise(stored.id, text="the walrus")
        other = memory.conversations.add("talk", Line(speaker="a", text="walrus"))[0].memory
        memory.links.add(stored.id, other.id, "knows")
        memory.facts.add("a", "b", "c")
        memory.clusters.create("c")
        memory.artifacts.create("c", path="/p")
        memory.get(stored.id)
    with Commonplace(tmp_path, embedding="none") as memory:
        with lease(memory) as space, space.store.maintain() as connection:
            connection.execute(statement)
        if "space" in statement:
            assert call(memory, stored.id) == ([], 0)  # type: ignore[operator]
            return
        with pytest.raises(StorageCorrupt) as caught:
            call(memory, stored.id)  # type: ignore[operator]
        assert "doctor" in caught.value.hint


def test_an_index_whose_reading_failed_is_read_whole_once_the_rows_are_mended(
    tmp_path: Path,
) -> None:
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:
        for number in range(3):
            memory.remember(f"walrus {number}")
        with lease(memory) as space, space.store.maintain() as connection:
            connection.execute("UPDATE passages SET sum = sum + 1 WHERE memory = 3")
        with lease(memory) as space:
            index = SpaceIndex(space.name, space.model)
            with space.store.read() as connection, pytest.raises(StorageCorrupt):
                index.snapshot(connection)
            with space.store.maintain() as connection:
                connection.execute("UPDATE passages SET sum = sum - 1 WHERE memory = 3")
            with space.store.read() as connection:
                fresh = SpaceIndex(space.name, space.model).snapshot(connection)
                again = index.snapshot(connection)
            assert again.size == fresh.size == 3
            assert content(again) == content(fresh)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_read_a_few_at_a_time_give_the_same_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:
        memory.remember("tapir")
        memory.remember("A walrus meets an otter. " * 400)  # several passages
        memory.remember("heron")
        with lease(memory) as space, space.store.read() as connection:
            whole = SpaceIndex(space.name, space.model).snapshot(connection)
            monkeypatch.setattr(resident, "READ_ROWS", rows)
            few = SpaceIndex(space.name, space.model).snapshot(connection)
    assert len(whole.owner) > whole.vectored == few.vectored == 3
    assert content(few) == content(whole)
    assert few.vectors[:].tolist() == whole.vectors[:].tolist()
    assert few.owner.tolist() == whole.owner.tolist()


def test_terms_that_differ_in_their_low_bits_alone_are_told_apart() -> None:
    chance = np.random.default_rng(7)
    near = np.array([2**40, 2**40 + 1, 2**40 + 2, 3, 2**64 - 1], np.uint64)
    for terms in (chance.choice(near, 1_000), near[:1], near[::-1].copy(), np.empty(0, np.uint64)):
        order, ordered = sort_by_term(terms)
        assert order.tolist() == np.argsort(terms, kind="stable").tolist()
        assert ordered.tolist() == sorted(terms.tolist())


@pytest.mark.parametrize("wordless", ["\ufeff", "\u200b", "...", "—", "😀"])
def test_a_memory_without_a_word_comes_after_one_with_a_single_word(
    memory: Commonplace, wordless: str
) -> None:
    """Nothing is added to the one posting there is, which was once taken for damage."""
    memory.remember("plain")
    for count in (1, 2, 3):
        assert memory.browse()[1] == count
        assert len(memory.recall("plain")) == 1
        memory.remember(wordless)
