"""Chains never fork, whoever saves at the same time."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonplace import Commonplace
from commonplace.dialects.mama import decisions

from .conftest import Mama, opened

Plan = list[list[tuple[str, str]]]

steps = st.tuples(st.sampled_from(["save", "save", "save", "update", "forget"]),
                  st.sampled_from(["auth", "Auth", "캐시", "x" * 200]))  # fmt: skip


def follow(
    mama: Mama, plan: list[tuple[str, str]], worker: int, errors: list[BaseException]
) -> None:
    """Do what a plan says; what it forgets or judges is its own newest decision."""
    mine: str | None = None
    try:
        for number, (what, topic) in enumerate(plan):
            if what == "save" or mine is None:
                mine = mama.decide(topic, f"Worker {worker}, step {number}")
            elif what == "update":
                mama.call("update", id=mine, outcome="partial")
            else:
                mama.memory.forget(mine)
                mine = None
    except BaseException as error:
        errors.append(error)


def check_chains(memory: Commonplace) -> int:
    """Each decision has at most one before and one behind it, of its topic; how many links."""
    links = memory.links.of(kinds=["supersedes"])
    assert max(Counter(link.source for link in links).values(), default=0) <= 1
    assert max(Counter(link.target for link in links).values(), default=0) <= 1
    for link in links:
        newer, older = memory.get(link.source), memory.get(link.target)
        assert decisions.topic_of(newer) == decisions.topic_of(older)
        assert older.state in ("superseded", "archived")
    live, _ = memory.browse(kinds=["decision"], limit=1000)
    superseded = {link.target for link in links}
    heads = Counter(decisions.topic_of(each) for each in live if each.id not in superseded)
    assert max(heads.values(), default=0) <= 1
    return len(links)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(steps, min_size=1, max_size=6), min_size=2, max_size=6))
def test_chains_never_fork(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), None) as mama:
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=follow, args=(mama, each, number, errors))
            for number, each in enumerate(plan)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        check_chains(mama.memory)


def test_sixteen_savers_on_one_topic_make_one_chain(wordy: Mama) -> None:
    begin = threading.Barrier(16)
    ids: list[str] = []

    def save(number: int) -> None:
        begin.wait()
        for step in range(4):
            ids.append(wordy.decide("one_topic", f"{number}-{step}"))

    threads = [threading.Thread(target=save, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 64
    assert check_chains(wordy.memory) == 63


def test_checkpoints_saved_at_once_have_numbers_of_their_own(wordy: Mama) -> None:
    begin = threading.Barrier(8)
    ids: list[str] = []

    def save() -> None:
        begin.wait()
        for _ in range(4):
            ids.append(wordy.call("save", type="checkpoint", summary="Half way.")["id"])

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == sorted(f"checkpoint_{number}" for number in range(1, 33))


def test_two_libraries_on_one_directory_do_not_fork_either(tmp_path: Path) -> None:
    """As two processes: each has its own connections, and sees the other's writes in the file."""
    with opened(tmp_path, None) as one, opened(tmp_path, None) as other:
        errors: list[BaseException] = []
        plan = [("save", "shared")] * 8
        threads = [
            threading.Thread(target=follow, args=(each, plan, number, errors))
            for number, each in enumerate((one, other, one, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert check_chains(one.memory) == 31
