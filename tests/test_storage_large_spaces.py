"""Large spaces: sign bits choose what is scored, and the newest memories are searched first."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from commonplace import Commonplace, Draft
from commonplace.embedding.provider import Part
from commonplace.engine.binding import lease
from commonplace.engine.library import OpenSpace
from commonplace.errors import StorageCorrupt
from commonplace.storage import index as resident
from commonplace.storage import memories as stored
from commonplace.storage import signs
from commonplace.storage.index import SpaceIndex
from conftest import WordVectors, texts, wait_until

WORDS = ["walrus", "otter", "heron", "lynx", "viper", "tapir"]
PARTS = (Part(384, 6.0), Part(128, 1.0, 1.15))


def clustered(count: int, seed: int) -> NDArray[np.int8]:
    """Vectors of two parts around some centres, as texts about some topics have."""
    chance = np.random.default_rng(seed)
    centres = np.random.default_rng(1).standard_normal((40, 512))
    near = centres[chance.integers(0, 40, count)] + chance.standard_normal((count, 512)) * 0.7
    return np.clip(np.rint(near * 30), -127, 127).astype(np.int8)


def exact(query: NDArray[np.int8], vectors: NDArray[np.int8]) -> NDArray[np.float64]:
    """The joined cosine of each vector; that of the last part where there is no first."""
    found = []
    for here in (slice(0, 384), slice(384, 512)):
        rows, asked = vectors[:, here].astype(float), query[here].astype(float)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
        found.append(rows @ asked / np.where(lengths == 0, 1, lengths))
    both = (6 * found[0] + found[1]) / 7
    return np.where(found[0] == 0, 1.15 * found[1], both)


def test_the_nearest_vectors_are_among_the_chosen() -> None:
    vectors = clustered(6_000, 2)
    bits, nothing = np.packbits(vectors > 0, axis=1), np.empty(0, np.int64)
    everywhere = np.ones(len(vectors), np.bool_)
    kept = 0
    for query in clustered(50, 3):
        chosen = signs.nearest_vectors(query, bits, nothing, PARTS, everywhere, 300)
        assert len(chosen) >= 300 and (np.diff(chosen) > 0).all()
        kept += len({*np.argsort(-exact(query, vectors))[:10].tolist()} & {*chosen.tolist()})
    assert kept >= 0.98 * 500


def test_only_what_is_allowed_is_chosen() -> None:
    vectors = clustered(500, 2)
    bits, nothing = np.packbits(vectors > 0, axis=1), np.empty(0, np.int64)
    allowed = np.zeros(500, np.bool_)
    allowed[100:120] = True
    for count in (19, 20, 21):
        chosen = signs.nearest_vectors(vectors[0], bits, nothing, PARTS, allowed, count)
        assert allowed[chosen].all() and len(chosen) >= min(count, 20)
    assert not len(signs.nearest_vectors(vectors[0], bits, nothing, PARTS, ~everyone(500), 5))


def everyone(count: int) -> NDArray[np.bool_]:
    return np.ones(count, np.bool_)


def test_texts_without_a_first_part_are_chosen_by_their_last() -> None:
    vectors = clustered(2_000, 2)
    foreign = np.arange(0, 2_000, 4)
    vectors[foreign, :384] = 0
    bits = np.packbits(vectors > 0, axis=1)
    query = clustered(1, 5)[0]
    chosen = signs.nearest_vectors(query, bits, foreign, PARTS, everyone(2_000), 100)
    best = foreign[np.argsort(-exact(query, vectors)[foreign])][:5]
    assert set(best.tolist()) <= set(chosen.tolist())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a space of some memories count as a large one."""
    monkeypatch.setattr(resident, "CHOOSE_ABOVE", 40)
    monkeypatch.setattr(signs, "LEAST_CHOSEN", 30)
    monkeypatch.setattr(signs, "_BLOCK", 7)


def _statements(count: int) -> list[Draft]:
    chance = random.Random(7)
    return [
        Draft(text=f"number {number} " + " ".join(chance.choices(WORDS, k=4)))
        for number in range(count)
    ]


def _embedded(memory: Commonplace) -> int:
    """How many memories have a vector; some get theirs after they were stored."""
    with lease(memory) as space, space.view() as (_, snapshot):
        return snapshot.vectored


@pytest.mark.usefixtures("small")
def test_the_bits_follow_the_vectors(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:
        made = memory.remember_many(_statements(60))
        wait_until(lambda: _embedded(memory) == 60, 60)
        for step in range(12):
            with lease(memory) as space, space.view() as (_, snapshot):
                assert snapshot.scores_only_some
                assert (snapshot.signs == np.packbits(snapshot.vectors[:] > 0, axis=1)).all()
            with memory.unit("inside"):
                memory.remember(f"another {step} {WORDS[step % 6]}")
                with lease(memory) as space, space.view() as (_, inside):
                    assert (inside.signs == np.packbits(inside.vectors[:] > 0, axis=1)).all()
            memory.revise(made[step].id, text=f"changed {step} {WORDS[step % 6]}")


def test_a_large_space_is_answered_as_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:
        memory.remember_many(_statements(120))
        wait_until(lambda: _embedded(memory) == 120, 60)
        for query in ("walrus and otter", "heron", "number 17 lynx"):
            chosen = memory.recall(query, limit=5, minimum=0, count=False)
            with monkeypatch.context() as patch:
                patch.setattr(resident, "CHOOSE_ABOVE", 1_000)
                whole = memory.recall(query, limit=5, minimum=0, count=False)
            assert [hit.score for hit in chosen] == [hit.score for hit in whole]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A space of 30 counts as large, and the background waits for this event before it loads."""
    go_on = threading.Event()
    load = OpenSpace._load_index

    def waiting(space: OpenSpace) -> None:
        assert go_on.wait(60)
        load(space)

    monkeypatch.setattr(stored, "LARGE_SPACE", 29)
    monkeypatch.setattr(stored, "LOADED_FIRST", 5)
    monkeypatch.setattr(OpenSpace, "_load_index", waiting)
    yield go_on
    go_on.set()


def test_the_newest_memories_are_searched_while_the_rest_is_loaded(
    tmp_path: Path, held: threading.Event
) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        made = memory.remember_many(Draft(text=f"otter {number}") for number in range(30))
    with Commonplace(tmp_path, embedding="none") as memory:
        hits = memory.recall("otter", limit=30, minimum=0)
        assert hits.degraded == "loading, only the newest 5 memories were searched"
        assert sorted(texts(hits)) == [f"otter {number}" for number in range(25, 30)]
        memory.remember("otter that is new")
        memory.revise(made[0].id, text="otter that was changed")
        memory.forget(made[29].id)
        newest = {"otter that is new", "otter that was changed"}
        newest |= {f"otter {number}" for number in range(25, 29)}
        hits = memory.recall("otter", limit=30, minimum=0)
        assert set(texts(hits)) == newest and hits.degraded.startswith("loading")
        held.set()
        wait_until(lambda: not memory.recall("otter").degraded.startswith("loading"), 60)
        found = set(texts(memory.recall("otter", limit=50, minimum=0)))
        assert found == newest | {f"otter {number}" for number in range(1, 25)}


@pytest.mark.parametrize(("count", "loading"), [(29, False), (30, True)])
def test_only_a_large_space_is_loaded_in_the_background(
    tmp_path: Path, held: threading.Event, count: int, loading: bool
) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember_many(Draft(text=f"otter {number}") for number in range(count))
        memory.facts.add("otter", "lives in", "river")  # takes a number, too
    with Commonplace(tmp_path, embedding="none") as memory:
        hits = memory.recall("otter", limit=50, minimum=0)
        assert len(hits) == (5 if loading else count)
        assert hits.degraded.startswith("loading") is loading
        held.set()


def test_the_past_and_units_wait_for_the_whole_index(tmp_path: Path, held: threading.Event) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        made = memory.remember_many(Draft(text=f"otter {number}") for number in range(30))
    with Commonplace(tmp_path, embedding="none") as memory:
        then = memory.recall("otter", limit=50, minimum=0, as_of=made[-1].created_at)
        assert len(then) == 30
    with Commonplace(tmp_path, embedding="none") as memory, memory.unit("inside"):
        memory.remember("otter inside")
        assert len(memory.recall("otter", limit=50, minimum=0)) == 31


def test_a_space_can_be_closed_while_it_is_loaded(tmp_path: Path, held: threading.Event) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember_many(Draft(text=f"otter {number}") for number in range(30))
    with Commonplace(tmp_path, embedding="none") as memory:
        assert memory.recall("otter", minimum=0).degraded.startswith("loading")
        threading.Timer(0.2, held.set).start()


def test_a_search_meets_the_error_that_ended_the_loading(
    tmp_path: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember_many(Draft(text=f"otter {number}") for number in range(30))
    follow = SpaceIndex._update

    def damaged(index: SpaceIndex, *arguments: object) -> None:
        if not index.since:
            raise StorageCorrupt("The search index is damaged.")
        follow(index, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SpaceIndex, "_update", damaged)
    with Commonplace(tmp_path, embedding="none") as memory:
        assert memory.recall("otter", minimum=0).degraded.startswith("loading")
        held.set()
        with pytest.raises(StorageCorrupt):
            wait_until(lambda: not memory.recall("otter", minimum=0).degraded, 60)
