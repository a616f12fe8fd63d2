from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from commonplace import Commonplace, Draft, Line
from commonplace.engine.binding import lease
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.storage.derived import pack
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


@pytest.mark.parametrize("write", ["remember", "forget"])
def test_an_interrupt_during_the_commit_lets_the_next_one_write(
    memory: Commonplace, write: str
) -> None:
    stored = memory.remember("first")
    with lease(memory) as space:
        connection = space.store._writer._connection
        assert connection is not None

        def interrupt() -> bool:
            signal.raise_signal(signal.SIGINT)
            return False

        connection.set_commit_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            memory.remember("second") if write == "remember" else memory.forget(stored.id)
        assert not space.store._writer._lock.locked()
    memory.remember("goes on")
    assert "goes on" in texts(memory.browse())


def test_a_draft_that_is_refused_among_waiting_ones_is_refused_alone(
    vectored: Commonplace,
) -> None:
    vectored.remember("taken", ref="r")
    ready = pack(np.ones(64, np.float32))
    drafts = [
        Draft(text="one", vectors=[ready]),
        Draft(text="too many vectors", vectors=[ready, ready]),
        Draft(text="two", ref="r", vectors=[ready]),
        Draft(text="three", vectors=[ready]),
    ]
    told: list[object] = [None] * len(drafts)

    def work(at: int) -> None:
        try:
            told[at] = vectored.remember_many([drafts[at]])
        except CommonplaceError as error:
            told[at] = error

    with lease(vectored) as space:
        writer = space.store._writer
        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(drafts))]
        with space.store.maintain():  # the others wait until it ends
            for thread in threads:
                thread.start()
            wait_until(lambda: writer._waiting == 3 and told[1] is not None)
        for thread in threads:
            thread.join(30)
    assert [type(each) for each in told] == [list, InvalidInput, Conflict, list]
    assert isinstance(told[1], InvalidInput) and told[1].field == "vectors"
    assert sorted(texts(vectored.browse())) == ["one", "taken", "three"]
    assert [each.name for each in vectored.history.operations()] == ["remember"] * 3
