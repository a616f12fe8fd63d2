from __future__ import annotations

import threading
from pathlib import Path

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.storage.writing import read_head
from conftest import wait_until


def stored_accesses(memory: Commonplace) -> int:
    """What is in the file, noted reads left out."""
    with lease(memory) as space, space.store.read() as connection:
        row = connection.execute("SELECT coalesce(sum(accesses), 0) FROM counters").fetchone()
    return int(row[0])


def change_counter(memory: Commonplace) -> int:
    with lease(memory) as space, space.store.read() as connection:
        return read_head(connection, space.name)[0]


def test_a_read_is_counted_at_once_and_written_within_a_second(memory: Commonplace) -> None:
    stored = memory.remember("counted")
    before, head = memory.usage(stored.id), change_counter(memory)
    assert (before.accesses, before.last_access) == (0, None)
    memory.get(stored.id)
    memory.recall("counted")
    assert memory.usage(stored.id).accesses == 2
    assert memory.usage(stored.id).last_access >= stored.created_at
    assert stored_accesses(memory) == 0, "buffered"
    wait_until(lambda: stored_accesses(memory) == 2, 1.5)
    assert memory.usage(stored.id).accesses == 2
    assert change_counter(memory) == head, "counters are no change"
    assert len(memory.history.operations(upkeep=True)) == 1
    assert memory.get(stored.id) == stored, "and outside the row's hash and version"


def test_reads_that_ask_not_to_be_counted_are_not(memory: Commonplace) -> None:
    stored = memory.remember("quiet")
    memory.get(stored.id, count=False)
    memory.recall("quiet", count=False)
    memory.recall("quiet", as_of=stored.created_at)
    memory.browse()
    memory.find_text("quiet")
    assert memory.usage(stored.id).accesses == 0


def test_reads_that_are_being_written_are_still_counted(memory: Commonplace) -> None:
    stored = memory.remember("counted")
    for _ in range(5):
        memory.get(stored.id)
    with lease(memory) as space:
        writer = threading.Thread(target=space.write_reads)
        with memory.unit("others write"):
            memory.events.record("first")  # takes the turn, so that the counters must wait
            writer.start()
            wait_until(lambda: not space.has_reads, 5)
            seen: list[int] = []
            reader = threading.Thread(target=lambda: seen.append(memory.usage(stored.id).accesses))
            reader.start()
            reader.join(5)
        writer.join(5)
    assert seen == [5]
    assert memory.usage(stored.id).accesses == stored_accesses(memory) == 5


def test_a_count_never_falls_and_is_never_ahead_while_it_is_written(memory: Commonplace) -> None:
    stored = memory.remember("counted")
    over = threading.Event()

    def write() -> None:
        with lease(memory) as space:
            while not over.is_set():
                space.write_reads()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for count in range(1, 400):
            memory.get(stored.id)
            assert memory.usage(stored.id).accesses == count
    finally:
        over.set()
        writer.join(5)


def test_noted_reads_are_written_at_close(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        stored = memory.remember("x")
        for _ in range(3):
            memory.get(stored.id)
    with Commonplace(tmp_path, embedding="none") as memory:
        assert memory.usage(stored.id).accesses == 3


def test_reads_in_a_unit_that_fails_count_for_nobody(memory: Commonplace) -> None:
    memory.remember("before")
    try:
        with memory.unit("fails"):
            lost = memory.remember("lost")
            memory.get(lost.id)
            memory.recall("lost")
            raise RuntimeError
    except RuntimeError:
        pass
    later = memory.remember("takes the number of the lost one")
    assert memory.usage(later.id).accesses == 0


def test_reads_in_a_unit_that_succeeds_are_counted(memory: Commonplace) -> None:
    with memory.unit("works"):
        stored = memory.remember("x")
        memory.get(stored.id)
        assert memory.usage(stored.id).accesses == 1
    memory.get(stored.id)
    assert memory.usage(stored.id).accesses == 2


def test_a_purged_memory_leaves_no_counter(memory: Commonplace) -> None:
    stored = memory.remember("a text that is long enough to be looked for")
    memory.get(stored.id)
    with lease(memory) as space:
        space.write_reads()
    assert stored_accesses(memory) == 1
    memory.get(stored.id)
    memory.purge(stored.id)
    assert stored_accesses(memory) == 0
