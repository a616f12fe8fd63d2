from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

import fake_embeddings_server as fake
from commonplace import Commonplace, Draft
from commonplace.embedding.breaker import CircuitBreaker
from commonplace.embedding.openai import OpenAICompatible
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import write_policy
from commonplace.engine.finding.recall import MEANING_ONLY
from commonplace.engine.library import MOST_AWAITED
from commonplace.engine.maintenance import upkeep
from commonplace.errors import EmbeddingUnavailable, InvalidInput
from commonplace.storage import outbox
from commonplace.storage.derived import quantise
from commonplace.text.passages import split_passages
from conftest import WordVectors, texts, wait_until


def vectors_by_model(memory: Commonplace) -> dict[int | None, int]:
    with lease(memory) as space, space.store.read() as connection:
        rows = connection.execute("SELECT model, count(*) FROM passages GROUP BY model")
        return dict(rows.fetchall())


def test_without_a_provider_words_answer_and_say_so(memory: Commonplace) -> None:
    memory.remember("the walrus")
    hits = memory.recall("walrus")
    assert texts(hits) == ["the walrus"]
    assert "no embedding provider" in hits.degraded
    assert memory.backlog() == (0, 0)
    assert engine_call(memory, upkeep.embed_all) == 0


def test_a_failing_endpoint_leaves_words_and_a_backlog_that_drains_when_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "RETRY_SECONDS", (0,))
    with fake.FakeEmbeddings(dimensions=1_536, always=fake.status(500)) as server:
        with Commonplace(tmp_path, embedding=server.base_url) as memory:
            memory.library.embedder.breaker = CircuitBreaker(failures_to_open=1_000)
            stored = memory.remember("the walrus")
            memory.remember("the seal")
            assert memory.get(stored.id).text == "the walrus"
            hits = memory.recall("walrus")
            assert texts(hits) == ["the walrus"]
            assert "failed" in hits.degraded
            assert hits[0].why.dense_rank is None
            with pytest.raises(EmbeddingUnavailable):
                engine_call(memory, upkeep.embed_all)
            assert memory.backlog()[0] == 2
            waiting = engine_call(memory, upkeep.waiting_for_vectors, [stored.id])
            assert "failed" in waiting[stored.id]
            server.always = fake.good
            wait_until(lambda: memory.backlog() == (0, 0))
            hits = memory.recall("walrus")
            assert hits.degraded == ""
            assert hits[0].why.dense_rank is not None
            assert len(vectors_by_model(memory)) == 1
        with Commonplace(tmp_path, embedding=server.base_url) as memory:
            assert memory.backlog() == (0, 0), "vectors are kept"


def test_a_text_that_the_endpoint_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    def picky(exchange: fake.Exchange) -> None:
        behave = fake.status(413) if any("poison" in t for t in exchange.texts) else fake.good
        behave(exchange)

    with (
        fake.FakeEmbeddings(dimensions=8, always=picky) as server,
        Commonplace(
            tmp_path, embedding=OpenAICompatible(server.base_url, model="m", dimensions=8)
        ) as memory,
    ):
        with memory.unit("together"):
            for i in range(6):
                memory.remember("poison" if i == 2 else f"good {i}")
        wait_until(lambda: memory.backlog()[0] == 1)
        assert sum(count for model, count in vectors_by_model(memory).items() if model) == 5
        assert texts(memory.recall("poison", limit=1)) == ["poison"], "words still find it"


def test_a_store_opens_and_works_while_an_endpoint_of_unknown_length_is_away(
    tmp_path: Path,
) -> None:
    with fake.FakeEmbeddings(dimensions=8, always=fake.status(500)) as server:
        away = OpenAICompatible(
            server.base_url, model="unheard-of", first_pause_seconds=0.001,
            breaker=CircuitBreaker(failures_to_open=1_000),
        )  # fmt: skip
        with Commonplace(tmp_path, embedding=away) as memory:
            stored = memory.remember("the walrus")
            memory.revise(stored.id, text="the old walrus")
            memory.undo()
            hits = memory.recall("walrus")
            assert texts(hits) == ["the walrus"]
            assert hits.degraded
            server.always = fake.good
            wait_until(lambda: memory.backlog() == (0, 0))
            hits = memory.recall("walrus")
            assert hits.degraded == ""
            assert hits[0].why.dense_rank == 1
        server.always = fake.status(500)
        again = OpenAICompatible(server.base_url, model="unheard-of", first_pause_seconds=0.001)
        with Commonplace(tmp_path, embedding=again) as memory:
            assert texts(memory.browse()) == ["the walrus"]
            assert memory.backlog() == (0, 0), "what has vectors is not embedded anew"


def test_changing_the_model_embeds_anew_in_the_background_while_search_goes_on(
    tmp_path: Path,
) -> None:
    drafts = [Draft(text=f"walrus number {i}") for i in range(40)]
    with Commonplace(tmp_path, embedding=WordVectors("first")) as memory:
        memory.remember_many(drafts)
        assert vectors_by_model(memory) == {1: 40}
    second = WordVectors("second")
    second.gate.clear()
    with Commonplace(tmp_path, embedding=second) as memory:
        assert len(memory.recall("walrus", limit=50)) == 40, "words find all meanwhile"
        assert vectors_by_model(memory) == {1: 40}, "nothing is wiped"
        assert memory.backlog()[0] == 40
        stored = memory.recall("number 7", limit=1)[0].memory
        second.gate.set()
        wait_until(lambda: vectors_by_model(memory) == {2: 40})
        assert second.texts == 40
        assert memory.backlog() == (0, 0)
        hits = memory.recall("walrus number 7", weighting=MEANING_ONLY)
        assert hits[0].memory == stored, "and the rows are as they were"
        assert len(memory.history.operations()) == 1
        assert len(memory.history.operations(upkeep=True)) == 1, "vectors are no operation"
        memory.undo()
        assert memory.browse() == ([], 0), "upkeep is in no one's way"


def test_more_than_one_outbox_full_of_old_vectors_is_embedded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_REQUESTS", 5)
    monkeypatch.setattr("commonplace.engine.library.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("commonplace.engine.library.UPKEEP_SECONDS", 0.01)
    with Commonplace(tmp_path, embedding=WordVectors("first")) as memory:
        memory.remember_many([Draft(text=f"text {i}") for i in range(12)])
    with Commonplace(tmp_path, embedding=WordVectors("second")) as memory:
        memory.browse()
        wait_until(lambda: vectors_by_model(memory) == {2: 12})


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from conftest import WordVectors
from commonplace import Commonplace
class Slow(WordVectors):
    def embed(self, texts, *, query=False):
        if not query and self.texts >= 64:
            print("stuck", flush=True)
            time.sleep(60)
        return super().embed(texts, query=query)
memory = Commonplace(sys.argv[1], embedding=Slow("second"))
memory.browse()
time.sleep(60)
"""


def test_embedding_anew_resumes_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Commonplace(tmp_path, embedding=WordVectors("first")) as memory:
        memory.remember_many([Draft(text=f"walrus number {i}") for i in range(200)])
        engine_call(memory, upkeep.embed_all)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"stuck\n"
        os.kill(child.pid, signal.SIGKILL)
    later = upkeep.now
    monkeypatch.setattr(upkeep, "now", lambda: later() + upkeep.CLAIM_SECONDS * 1_000_000)
    second = WordVectors("second")
    with Commonplace(tmp_path, embedding=second) as memory:
        assert len(memory.recall("walrus", limit=300)) == 200
        engine_call(memory, upkeep.embed_all)
        assert vectors_by_model(memory) == {2: 200}
        assert second.texts == 136, "what the killed process had done is not done again"


def test_a_text_of_a_million_characters_is_stored_at_once_and_embedded_behind(
    vectored: Commonplace, words: WordVectors
) -> None:
    sentence = "The committee met again and discussed the schedule of the coming quarter. "
    text = (sentence * 14_000)[: 1_000_000 - 40] + " finally a walrus came to the meeting   "
    words.gate.clear()
    began = time.monotonic()
    stored = vectored.remember(text)
    assert vectored.get(stored.id).text == text
    assert words.texts == 0
    assert vectored.backlog()[0] == 1
    assert time.monotonic() - began < 10
    assert texts(vectored.recall("walrus", limit=1)) == [text], "words find it at once"
    words.gate.set()
    wait_until(lambda: vectored.backlog() == (0, 0), 20)
    passages = len(split_passages(text))
    assert passages > 700
    assert vectors_by_model(vectored) == {1: passages}
    vectored.remember("the quarter of the committee")
    hits = vectored.recall("a walrus came to the meeting", weighting=MEANING_ONLY)
    assert hits[0].memory.id == stored.id


def test_ready_made_vectors_are_taken_as_they_are(
    vectored: Commonplace, words: WordVectors
) -> None:
    ready = quantise(words.embed(["something else"], query=True))
    vectored.remember_many([Draft(text="walrus", vectors=ready), Draft(text="seal", vectors=ready)])
    assert words.texts == 0
    hits = vectored.recall("something else", weighting=MEANING_ONLY)
    assert hits[0].similarity == pytest.approx(1, abs=0.02)
    for bad in (ready * 2, [], [b"short"], [ready[0] + b"x"]):
        with pytest.raises(InvalidInput) as caught:
            vectored.remember("bad", vectors=bad)
        assert caught.value.field == "vectors"
    assert vectored.browse()[1] == 2


def test_only_a_change_of_title_or_text_is_embedded_again(
    vectored: Commonplace, words: WordVectors
) -> None:
    stored = vectored.remember("the walrus")
    assert words.texts == 1
    vectored.revise(stored.id, tags=["a"], importance=1, occurred_at="2024-01-01", trust="inferred")
    vectored.forget(stored.id)
    vectored.restore(stored.id)
    assert words.texts == 1
    vectored.revise(stored.id, text="the seal")
    vectored.revise(stored.id, title="Animals")
    assert words.texts == 3
    vectored.undo()
    vectored.undo()
    assert words.texts == 3, "former versions keep their vectors"
    hits = vectored.recall("the walrus", weighting=MEANING_ONLY)
    assert hits[0].similarity == pytest.approx(1, abs=0.02)
    assert vectored.backlog() == (0, 0)


def test_a_memory_changed_while_it_waits_gets_the_vectors_of_its_new_text(
    tmp_path: Path, words: WordVectors
) -> None:
    words.local = False
    words.gate.clear()
    with Commonplace(tmp_path, embedding=words) as memory:
        stored = memory.remember("the walrus")
        gone = memory.remember("the seal")
        time.sleep(0.7)  # the upkeep thread holds the old text by now
        memory.revise(stored.id, text="an otter")
        memory.undo(memory.history.operations()[1].id)
        words.gate.set()
        engine_call(memory, upkeep.embed_all)
        assert vectors_by_model(memory) == {1: 1}
        hits = memory.recall("otter", weighting=MEANING_ONLY)
        assert texts(hits) == ["an otter"]
        assert hits[0].similarity > 0.5
        assert gone.id not in [hit.memory.id for hit in hits]


def test_settling_tells_its_progress(tmp_path: Path, words: WordVectors) -> None:
    words.local = False
    with Commonplace(tmp_path, embedding=words) as memory:
        words.gate.clear()
        memory.remember_many([Draft(text=f"text {i}") for i in range(70)])
        words.gate.set()
        seen: list[tuple[int, int]] = []
        engine_call(memory, upkeep.embed_all, lambda done, total: seen.append((done, total)))
        assert all(done <= total for done, total in seen)
        assert vectors_by_model(memory) == {1: 70}
        assert engine_call(memory, upkeep.embed_all) == 0


def test_the_quick_embedder_is_what_the_tests_take_it_for(words: WordVectors) -> None:
    one, two = words.embed(["the walrus", "the walrus"], query=True)
    assert np.array_equal(one, two)
    assert np.linalg.norm(one) == pytest.approx(1)


def test_closing_does_not_wait_for_a_long_memory_to_be_embedded(tmp_path: Path) -> None:
    """A thread that still computes when the interpreter ends makes the process abort."""
    words = " ".join(f"harbour{i % 89} quay{i % 97} crane{i % 83}" for i in range(40_000))
    with Commonplace(tmp_path, embedding="none") as without:
        without.remember(words)
    memory = Commonplace(tmp_path)
    memory.browse()
    file = tmp_path / "spaces" / "default.db"
    wait_until(lambda: claims(file) == [True])
    memory.close()
    assert not [each for each in threading.enumerate() if each.name == "commonplace-upkeep"]
    assert claims(file) == [False], "the next process can go on at once"


def claims(file: Path) -> list[bool]:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [bool(row[0]) for row in connection.execute("SELECT claimed_until FROM outbox")]
    finally:
        connection.close()


def test_what_is_stored_first_and_embedded_later_is_found_by_meaning(tmp_path: Path) -> None:
    near = WordVectors(meanings={"car": "vehicle", "auto": "vehicle"})
    with Commonplace(tmp_path, embedding=near, embed="later") as memory:
        near.gate.clear()
        memory.remember("the car is red")
        assert memory.backlog()[0] == 1, "it is stored before it is embedded"
        waiting = memory.recall("auto")
        assert waiting.degraded == "embedding, 1 waiting"
        assert memory.recall("car").degraded, "words find it meanwhile"
        near.gate.set()
        wait_until(lambda: memory.backlog() == (0, 0))
        hits = memory.recall("auto")
        assert texts(hits) == ["the car is red"]
        assert hits.degraded == ""


def test_embedding_waits_until_calls_pause_or_a_search_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.engine.library.STORE_PAUSE", 60.0)
    monkeypatch.setattr("commonplace.engine.library.STORE_SECONDS", 60.0)
    monkeypatch.setattr("commonplace.engine.finding.recall.WAIT_SECONDS", 30.0)
    near = WordVectors(meanings={"car": "vehicle", "auto": "vehicle"})
    with Commonplace(tmp_path, embedding=near, embed="later") as memory:
        memory.remember("the car is red")
        memory.remember("the car is fast")
        time.sleep(0.2)
        assert near.texts == 0, "no call has paused for so long"
        assert len(memory.recall("auto")) == 2
        monkeypatch.setattr("commonplace.engine.library.STORE_PAUSE", 0.05)
        memory.remember("the car is new")
        wait_until(lambda: memory.backlog() == (0, 0))
        monkeypatch.setattr("commonplace.engine.library.STORE_PAUSE", 60.0)
        monkeypatch.setattr("commonplace.engine.library.STORE_SECONDS", 0.05)
        memory.remember("the car is old")
        wait_until(lambda: memory.backlog() == (0, 0))


def test_a_search_waits_for_what_was_stored_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.engine.finding.recall.WAIT_SECONDS", 30.0)
    near = WordVectors(meanings={"car": "vehicle", "auto": "vehicle"})
    with Commonplace(tmp_path, embedding=near, embed="later") as memory:
        for number in range(5):
            memory.remember(f"the car number {number} is red")
            assert len(memory.recall("auto", limit=10)) == number + 1


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(("more", "waits"), [(0, True), (1, False)])
def test_a_search_does_not_wait_for_more_than_can_be_embedded_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool, more: int, waits: bool
) -> None:
    monkeypatch.setattr("commonplace.engine.finding.recall.WAIT_SECONDS", 30.0)
    here, there = WordVectors(), WordVectors()
    with (
        Commonplace(tmp_path, embedding=here, embed="later") as memory,
        Commonplace(tmp_path, embedding=there, embed="later") as other,
    ):
        here.gate.clear()
        there.gate.clear()
        cars = [f"the car number {number} is red" for number in range(MOST_AWAITED + more)]
        (other if elsewhere else memory).remember_many([Draft(text=text) for text in cars])
        with ThreadPoolExecutor(1) as pool:
            search = pool.submit(memory.recall, "car")
            if waits:
                with pytest.raises(TimeoutError):
                    search.result(0.3)
            else:
                assert search.result(20).degraded == f"embedding, {len(cars)} waiting"
            here.gate.set()
            there.gate.set()
            assert search.result(20).degraded == (
                "" if waits else f"embedding, {len(cars)} waiting"
            )


def test_a_search_waits_for_what_another_process_stored_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two libraries on one directory see of each other what two processes do."""
    near = WordVectors(meanings={"car": "vehicle", "auto": "vehicle"})
    here = WordVectors(meanings=near.meanings)
    with (
        Commonplace(tmp_path, embedding=near, embed="later") as other,
        Commonplace(tmp_path, embedding=here, embed="later") as memory,
    ):
        assert memory.recall("auto").degraded == ""
        near.gate.clear()
        here.gate.clear()
        other.remember("the car is red")
        assert memory.recall("auto").degraded == "embedding, 1 waiting"
        monkeypatch.setattr("commonplace.engine.finding.recall.WAIT_SECONDS", 30.0)
        here.gate.set()
        near.gate.set()  # either of them embeds it
        hits = memory.recall("auto")
        assert (texts(hits), hits.degraded) == (["the car is red"], "")


@pytest.mark.parametrize("embed", ["now", "later"])
def test_history_is_the_same_with_and_without_a_model(tmp_path: Path, embed: str) -> None:
    def history(embedding: WordVectors | str) -> list[tuple[int, str]]:
        path = tmp_path / str(embedding == "none")
        with Commonplace(path, embedding=embedding, embed=embed) as memory:  # type: ignore[arg-type]
            first = memory.remember("the walrus")
            memory.revise(first.id, text="the old walrus")
            engine_call(memory, upkeep.embed_all)
            memory.remember_many([Draft(text=f"seal {i}") for i in range(3)])
            engine_call(memory, upkeep.embed_all)
            memory.undo()
            memory.undo()
            assert texts(memory.browse()) == ["the walrus"]
            operations = memory.history.operations(upkeep=True)
            return [(each.seq, each.name) for each in operations]

    assert history(WordVectors()) == history("none")


def test_another_process_sees_vectors_that_come_without_an_operation(tmp_path: Path) -> None:
    meanings = {"car": "vehicle", "auto": "vehicle"}
    one, other = WordVectors(meanings=meanings), WordVectors(meanings=meanings)
    one.gate.clear()
    other.gate.clear()
    with (
        Commonplace(tmp_path, embedding=one, embed="later") as writing,
        Commonplace(tmp_path, embedding=other, embed="later") as reading,
    ):
        writing.remember("the car is red")
        hits = reading.recall("auto")
        assert not hits or hits[0].why.dense_rank is None
        one.gate.set()
        wait_until(lambda: writing.backlog() == (0, 0))
        hits = reading.recall("auto")
        assert hits[0].why.dense_rank == 1
        assert len(reading.history.operations(upkeep=True)) == 1


def test_what_a_call_stored_is_embedded_before_what_an_import_brought(tmp_path: Path) -> None:
    slow = WordVectors()
    slow.gate.clear()
    with Commonplace(tmp_path, embedding=slow, embed="later") as memory:
        with write_policy.apply_policy(lane=outbox.SECOND):
            imported = memory.remember_many([Draft(text=f"imported {i}") for i in range(40)])
        own = memory.remember("said in a call")
        with lease(memory) as space, space.store.maintain() as connection:
            at = 2**62  # all rows are due, and what the worker has claimed is free again
            found = outbox.claim(connection, space.name, at, until=0, latest_due=0, most=1)
            assert found == [own.num]
            assert space.expected_vectors() == {own.num}, "no search waits for an import"
        assert imported[0].num < own.num
        slow.gate.set()


def test_a_unit_that_is_not_stored_is_not_waited_for(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding=WordVectors(), embed="later") as memory:
        with pytest.raises(ZeroDivisionError), memory.unit("failing"):
            memory.remember("never stored")
            raise ZeroDivisionError
        with lease(memory) as space:
            assert space.expected_vectors() == set()
        assert memory.recall("stored") == []


def test_a_fault_of_an_embedder_does_not_end_the_work_in_the_background(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(WordVectors):
        faults = 2

        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            if not query and self.faults:
                self.faults -= 1
                raise KeyError("a fault of its own")
            return super().embed(texts, query=query)

    with Commonplace(tmp_path, embedding=Faulty(), embed="later") as memory:
        memory.remember("the walrus")
        wait_until(lambda: memory.backlog() == (0, 0))
        assert sum(count for model, count in vectors_by_model(memory).items() if model) == 1
    assert "background work failed" in caplog.text


def test_the_index_in_memory_follows_in_the_background_when_vectors_are_written(
    tmp_path: Path,
) -> None:
    with Commonplace(tmp_path, embedding=WordVectors(), embed="later") as memory:
        memory.recall("walrus")
        memory.remember("the walrus")
        with lease(memory) as space:
            wait_until(lambda: space.memories_in_index == 1)
            wait_until(lambda: bool(space.index._snapshot.embedded.all()))


def test_an_index_that_nobody_has_asked_for_is_not_loaded_in_the_background(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding=WordVectors(), embed="later") as memory:
        memory.remember("the walrus")
        wait_until(lambda: memory.backlog() == (0, 0))
        time.sleep(0.1)
        with lease(memory) as space:
            assert space._index is None
