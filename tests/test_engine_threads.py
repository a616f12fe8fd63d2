from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from commonplace import Commonplace, Draft, Line
from commonplace.embedding.quantise import pack
from commonplace.engine.memories import QUICK_CHARS
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, StorageUnavailable
from commonplace.storage.writing import Job, Writer, _Batch
from conftest import WordVectors, texts, wait_until

WRITER = """
import sys
from commonplace import Commonplace
memory = Commonplace(sys.argv[1], embedding="none")
for line in sys.stdin:
    verb, _, rest = line.strip().partition(" ")
    if verb == "remember":
        print(memory.remember(rest, ref=rest).id, flush=True)
    elif verb == "revise":
        old, new = rest.split(">")
        print(memory.revise(old, text=new).id, flush=True)
    elif verb in ("forget", "restore"):
        print(getattr(memory, verb)(rest)[0].id, flush=True)
    elif verb == "undo":
        print(memory.undo().id, flush=True)
    elif verb == "purge":
        print(memory.purge(rest).memories, flush=True)
    elif verb == "recall":
        print("|".join(sorted(h.memory.text for h in memory.recall(rest))), flush=True)
memory.close()
"""


def test_thirty_two_threads_store_and_recall_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with Commonplace(tmp_path, embedding=WordVectors()) as memory:

        def work(who: int) -> None:
            try:
                for i in range(8):
                    word = f"word{who}x{i}"
                    stored = memory.remember(f"thread {who} says {word}", tags=[f"t{who}"])
                    found = memory.recall(word, limit=5)
                    assert found[0].memory.id == stored.id, "a write is seen by its writer at once"
                    assert memory.get(stored.id) == stored
                    if i % 4 == 1:
                        memory.revise(stored.id, text=f"thread {who} revised {word}")
                    if i % 4 == 2:
                        memory.forget(stored.id)
                        assert word not in " ".join(texts(memory.recall(word)))
                    if i % 4 == 3:
                        with memory.unit("pair"):
                            memory.conversations.add("talk", Line(speaker=f"s{who}", text=word))
                            memory.facts.add(f"s{who}", "said", word)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert memory.browse(kinds=["note"])[1] == 32 * 6
        assert memory.browse(kinds=["message"])[1] == 32 * 2
        assert len(memory.facts.query()) == 64
        for who in range(32):
            assert memory.browse(tags_all=[f"t{who}"])[1] == 6
        operations = memory.history.operations(limit=1_000)
        assert [each.seq for each in operations] == list(range(len(operations), 0, -1))


class Other:
    """Another process on the same directory, told what to do line by line."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def do(self, command: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate(timeout=10)


def test_another_process_s_writes_are_seen_at_once(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember("walrus here")
        assert texts(memory.recall("walrus")) == ["walrus here"]
        other = Other(tmp_path)
        for i in range(10):
            identity = other.do(f"remember walrus {i} there")
            assert memory.get(identity).text == f"walrus {i} there"
            assert len(memory.recall("walrus", limit=50)) == i + 2
            memory.remember(f"seal {i}")
            assert len(other.do("recall seal").split("|")) == min(i + 1, 10)
        other.do("revise walrus 3 there>an otter now")
        assert texts(memory.recall("otter")) == ["an otter now"]
        assert len(memory.recall("walrus", limit=50)) == 10
        other.do("forget walrus 4 there")
        assert len(memory.recall("walrus", limit=50)) == 9
        other.do("undo")
        assert len(memory.recall("walrus", limit=50)) == 10
        other.do("purge walrus 5 there")
        assert len(memory.recall("walrus", limit=50)) == 9
        assert memory.find_text("walrus 5")[1] == 0
        with memory.unit("held"):
            memory.remember("otter inside")
            assert other.do("recall otter") == "an otter now", "not before it is committed"
        assert other.do("recall otter") == "an otter now|otter inside"
        memory.undo()
        assert other.do("recall otter") == "an otter now"
        other.end()


def _waiting(writer: Writer, count: int) -> None:
    wait_until(lambda: len(writer._jobs) == count)


def test_a_writer_behind_one_that_was_interrupted_is_not_forgotten(memory: Commonplace) -> None:
    memory.remember("first")
    with memory.lease() as space:
        writer = space.store._writer
        writer._turn.acquire()
        thread = threading.Thread(target=memory.remember, args=("behind",), daemon=True)
        thread.start()
        _waiting(writer, 1)
        # One that nobody waits for any more, first in the queue: it alone is woken.
        gone = Job("gone", {}, lambda pairs: [None for _ in pairs], None)
        writer._jobs.appendleft(gone)
        writer._release()
        thread.join(10)
        assert not thread.is_alive()
    assert texts(memory.browse()) == ["behind", "first"]


@pytest.mark.parametrize("write", ["remember", "forget"])
def test_an_interrupt_during_the_commit_lets_the_next_one_write(
    memory: Commonplace, write: str
) -> None:
    stored = memory.remember("first")
    with memory.lease() as space:
        connection = space.store._writer._connection
        assert connection is not None

        def interrupt() -> bool:
            signal.raise_signal(signal.SIGINT)
            return False

        connection.set_commit_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            memory.remember("second") if write == "remember" else memory.forget(stored.id)
        assert not space.store._writer._turn.locked()
    memory.remember("goes on")
    assert "goes on" in texts(memory.browse())


def test_an_interrupt_reaches_only_the_thread_it_was_sent_to(memory: Commonplace) -> None:
    memory.remember("first")
    told: list[BaseException] = []

    def stop(pairs: object) -> list[None]:
        raise KeyboardInterrupt

    def other() -> None:
        try:
            space.store.together("other", {}, stop, None)
        except BaseException as error:
            told.append(error)

    with memory.lease() as space:
        writer = space.store._writer
        writer._turn.acquire()
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        _waiting(writer, 1)
        mine = Job("mine", {}, stop, None)
        writer._jobs.append(mine)
        try:
            with pytest.raises(KeyboardInterrupt):
                writer._run_jobs(mine)
        finally:
            writer._release()
        thread.join(10)
    assert [type(error) for error in told] == [StorageUnavailable]
    memory.remember("goes on")
    assert texts(memory.browse()) == ["goes on", "first"]


def test_nobody_is_waited_for_who_has_left(memory: Commonplace) -> None:
    def work() -> None:
        for number in range(5):
            memory.remember(f"number {number}")

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with memory.lease() as space:
        writer = space.store._writer
        assert (writer._coming, writer._returning) == (0, 0)
        gone, here = (Job("gone", {}, lambda _: [], None) for _ in range(2))
        writer._leave(gone)  # it was interrupted before the commit
        writer._expect_back([gone, here])
        assert writer._returning == 1
        writer._leave(here)
        assert writer._returning == 0
    assert memory.browse()[1] == 80


def _job(name: str) -> Job:
    return Job(name, {}, lambda pairs: [None for _ in pairs], None)


def _is_woken(job: Job) -> bool:
    return job.bell.acquire(blocking=False)


def test_a_commit_wakes_one_thread_and_who_leaves_the_next(memory: Commonplace) -> None:
    memory.remember("first")
    with memory.lease() as space:
        writer = space.store._writer
        one, gone, two, three = (_job(name) for name in ("one", "gone", "two", "three"))
        batch = _Batch(0.0, jobs=deque([one, gone, two, three]))
        one.batch = gone.batch = two.batch = batch
        writer._leave(gone)  # it was interrupted before the commit
        assert not any(_is_woken(job) for job in (one, two, three))
        batch.settle(None)
        assert [_is_woken(job) for job in (one, gone, two, three)] == [True, False, False, False]
        writer._leave(one)
        assert [_is_woken(job) for job in (two, three)] == [True, False]
        writer._leave(two)
        assert _is_woken(three)


def test_a_writer_does_not_wait_for_ever_for_one_that_does_not_come(memory: Commonplace) -> None:
    memory.remember("first")
    with memory.lease() as space:
        writer = space.store._writer
        writer.expect()
        try:
            thread = threading.Thread(target=memory.remember, args=("second",), daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
        finally:
            writer.expect_less()
        assert writer._patient is None
    assert texts(memory.browse()) == ["second", "first"]


def _behind_another(memory: Commonplace, calls: Sequence[Callable[[], object]]) -> list[object]:
    """What calls of as many threads give when one of them carries out all."""
    told: list[object] = [None] * len(calls)

    def work(at: int) -> None:
        try:
            told[at] = calls[at]()
        except CommonplaceError as error:
            told[at] = error

    with memory.lease() as space:
        writer = space.store._writer
        writer._turn.acquire()
        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(calls))]
        for number, thread in enumerate(threads, start=1):
            thread.start()
            _waiting(writer, number)
        writer._release()
        for thread in threads:
            thread.join(30)
    return told


def test_what_another_thread_finds_wrong_with_a_draft_is_told_to_its_own(
    vectored: Commonplace,
) -> None:
    vectored.remember("taken", ref="r")
    ready = pack(np.ones(64, np.float32))
    short = Draft(text="too many vectors", vectors=[ready, ready])
    told = _behind_another(
        vectored,
        [
            lambda: vectored.remember_many([Draft(text="one", vectors=[ready])]),
            lambda: vectored.remember_many([short]),
            lambda: vectored.remember_many([Draft(text="two", ref="r", vectors=[ready])]),
            lambda: vectored.remember_many([Draft(text="three", vectors=[ready])]),
        ],
    )
    assert [type(each) for each in told] == [list, InvalidInput, Conflict, list]
    assert isinstance(told[1], InvalidInput) and told[1].field == "vectors"
    assert texts(vectored.browse()) == ["three", "one", "taken"]
    names = [each.name for each in vectored.history.operations()]
    assert names == ["remember"] * 3


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_long_text_is_analysed_by_the_thread_that_brings_it(
    memory: Commonplace, more: int
) -> None:
    memory.remember("first")
    text = "walrus ".ljust(QUICK_CHARS + more, "x")
    with memory.lease() as space:
        writer = space.store._writer
        writer._turn.acquire()
        thread = threading.Thread(target=memory.remember, args=(text,), daemon=True)
        thread.start()
        _waiting(writer, 1)
        assert (writer._jobs[0].prepare is None) == (more > 0)
        writer._release()
        thread.join(10)
    assert texts(memory.browse()) == [text, "first"]
    assert texts(memory.recall("walrus")) == [text]


def test_an_interrupt_while_another_s_draft_is_prepared_loses_neither(memory: Commonplace) -> None:
    memory.remember("first")
    with memory.lease() as space:
        writer = space.store._writer
        writer._turn.acquire()
        thread = threading.Thread(target=memory.remember, args=("behind",), daemon=True)
        thread.start()
        _waiting(writer, 1)
        interrupts = iter([KeyboardInterrupt()])
        waiting = writer._jobs[0]
        prepare = waiting.prepare
        assert prepare is not None

        def interrupted(item: object) -> object:
            for error in interrupts:
                raise error
            return prepare(item)

        waiting.prepare = interrupted
        mine = _job("mine")
        writer._jobs.append(mine)
        try:
            with pytest.raises(KeyboardInterrupt):
                writer._run_jobs(mine)
        finally:
            writer._leave(mine)
            assert mine not in writer._jobs
            writer._release()
        thread.join(10)
        assert not thread.is_alive()
    assert texts(memory.browse()) == ["behind", "first"]
