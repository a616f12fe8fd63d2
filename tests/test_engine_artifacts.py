from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from commonplace import Commonplace, Origin
from commonplace.errors import Conflict, InvalidInput, NotFound


def test_an_artifact_is_kept_under_its_path_and_id(memory: Commonplace) -> None:
    made = memory.artifacts.create(
        "# Plan", path="/docs/plan.md", title="Plan", attrs={"a": 1}, origin=Origin(user="ann")
    )
    for name in (made.id, "/docs/plan.md"):
        artifact, version = memory.artifacts.read(name)
        assert artifact == made == memory.artifacts.get(name)
        assert (version.version, version.content) == (1, b"# Plan")
        assert version.origin == Origin(user="ann")
    assert (made.status, made.media_type, made.version) == ("draft", "text/markdown", 1)


def test_content_comes_back_byte_for_byte(memory: Commonplace) -> None:
    data = bytes(range(256)) * 40
    made = memory.artifacts.create(data, media_type="application/octet-stream")
    assert memory.artifacts.read(made.id)[1].content == data
    assert memory.artifacts.create("").version == 1
    big = memory.artifacts.create(b"x" * 20 * 1024 * 1024)
    assert len(memory.artifacts.read(big.id)[1].content) == 20 * 1024 * 1024
    with pytest.raises(InvalidInput):
        memory.artifacts.create(b"x" * (20 * 1024 * 1024 + 1))
    with pytest.raises(InvalidInput):
        memory.artifacts.create("ö" * (10 * 1024 * 1024 + 1))


def test_every_version_stays(memory: Commonplace) -> None:
    memory.artifacts.create("v1", path="/p")
    second = memory.artifacts.update("/p", "v2", summary="better", expected_version=1)
    assert second.version == 2
    memory.artifacts.update("/p", "v3")
    assert memory.artifacts.read("/p")[1].content == b"v3"
    assert memory.artifacts.read("/p", version=1)[1].content == b"v1"
    assert [(v.version, v.summary) for v in memory.artifacts.versions("/p")] == [
        (1, "Initial version"), (2, "better"), (3, "Version 3"),
    ]  # fmt: skip
    for missing in (0, 4):
        with pytest.raises(NotFound):
            memory.artifacts.read("/p", version=missing)


def test_of_fifty_editors_with_the_same_version_exactly_one_wins(memory: Commonplace) -> None:
    made = memory.artifacts.create("v1", path="/p")
    start = threading.Barrier(50)
    outcomes: list[str] = []

    def edit(i: int) -> None:
        start.wait()
        try:
            memory.artifacts.update(made.id, f"by {i}", expected_version=1)
            outcomes.append(f"by {i}")
        except Conflict as conflict:
            assert "expected 1" in conflict.message
            outcomes.append("conflict")

    editors = [threading.Thread(target=edit, args=(i,)) for i in range(50)]
    for editor in editors:
        editor.start()
    for editor in editors:
        editor.join()
    winners = [each for each in outcomes if each != "conflict"]
    assert len(outcomes) == 50
    assert len(winners) == 1
    assert memory.artifacts.read("/p")[1].content.decode() == winners[0]
    assert len(memory.artifacts.versions("/p")) == 2


def test_paths_are_exact_and_taken_only_while_in_use(memory: Commonplace) -> None:
    first = memory.artifacts.create("x", path="/A.txt")
    memory.artifacts.create("y", path="/a.txt")
    memory.artifacts.create("z", path="/CON")
    with pytest.raises(Conflict) as caught:
        memory.artifacts.create("w", path="/A.txt")
    assert caught.value.field == "path"
    memory.artifacts.delete("/A.txt")
    for call in (memory.artifacts.get, memory.artifacts.read, memory.artifacts.delete):
        for name in ("/A.txt", first.id):
            with pytest.raises(NotFound):
                call(name)
    again = memory.artifacts.create("new", path="/A.txt")
    assert memory.artifacts.read("/A.txt")[0].id == again.id


def test_a_path_is_not_the_id_of_another_artifact(memory: Commonplace) -> None:
    """Else it would lead to that one, also when that one comes back."""
    first = memory.artifacts.create("x")
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            memory.artifacts.create("y", path=first.id)
        assert caught.value.field == "path"
        if len(memory.artifacts.all()) == 1:
            memory.artifacts.delete(first.id)
    memory.undo()
    assert memory.artifacts.read(first.id)[1].content == b"x"


def test_a_listing_goes_by_path_and_prefix(memory: Commonplace) -> None:
    for path in ("/b", "/a/2", "/a/1", "/a_b"):
        memory.artifacts.create("x", path=path)
    memory.artifacts.create("x", title="without a path")
    assert [each.path for each in memory.artifacts.all()] == ["/a/1", "/a/2", "/a_b", "/b", None]
    assert [each.path for each in memory.artifacts.all(prefix="/a/")] == ["/a/1", "/a/2"]
    assert [each.path for each in memory.artifacts.all(prefix="/a_")] == ["/a_b"]
    assert memory.artifacts.all(prefix="/%") == []


def test_a_review_moves_the_status_of_the_newest_version_only(memory: Commonplace) -> None:
    memory.artifacts.create("v1", path="/p")
    asked = memory.artifacts.review("/p", "changes_requested", reviewer="bob", comments="more")
    assert (asked.version, asked.outcome, asked.comments) == (1, "changes_requested", "more")
    assert memory.artifacts.get("/p").status == "changes_requested"
    memory.artifacts.update("/p", "v2")
    assert memory.artifacts.get("/p").status == "draft"
    memory.artifacts.review("/p", "rejected", version=1)
    assert memory.artifacts.get("/p").status == "draft"
    memory.artifacts.review("/p", "approved")
    memory.artifacts.review("/p", "commented", comments="nice")
    assert memory.artifacts.get("/p").status == "approved"
    outcomes = [(each.version, each.outcome) for each in memory.artifacts.reviews("/p")]
    assert outcomes == [
        (1, "changes_requested"),
        (1, "rejected"),
        (2, "approved"),
        (2, "commented"),
    ]
    assert len(memory.artifacts.reviews("/p", version=1)) == 2
    with pytest.raises(InvalidInput):
        memory.artifacts.review("/p", "great")
    with pytest.raises(NotFound):
        memory.artifacts.review("/p", "approved", version=3)


def test_artifacts_are_not_found_by_search(memory: Commonplace) -> None:
    memory.artifacts.create("walrus", path="/walrus")
    assert memory.recall("walrus") == []
    assert memory.find_text("walrus") == ([], 0)


def test_an_artifact_can_be_read_as_it_was(memory: Commonplace) -> None:
    moments = [datetime.now(UTC)]

    def then(_: object) -> None:
        time.sleep(0.002)
        moments.append(datetime.now(UTC))
        time.sleep(0.002)

    kept = memory.artifacts
    then(kept.create("one", path="/p", title="P"))
    then(kept.review("/p", "approved", reviewer="bob"))
    then(kept.update("/p", "two", summary="better"))
    then(kept.review("/p", "rejected", reviewer="cy", version=1))
    then(kept.delete("/p"))
    made, rewritten, renewed = moments[1], moments[3], kept.create("new", path="/p")

    first, content = kept.read("/p", as_of=made)
    assert (first.version, first.status, content.content) == (1, "draft", b"one")
    assert kept.get(first.id, as_of=moments[2]).status == "approved"
    assert [v.content for v in kept.versions("/p", as_of=moments[2])] == [b"one"]
    assert [v.content for v in kept.versions("/p", as_of=rewritten)] == [b"one", b"two"]
    assert kept.read("/p", as_of=rewritten.isoformat())[1].summary == "better"
    assert kept.read("/p", version=1, as_of=rewritten)[1].content == b"one"
    with pytest.raises(NotFound):
        kept.read("/p", version=2, as_of=moments[2])
    assert [r.outcome for r in kept.reviews("/p", as_of=rewritten)] == ["approved"]
    assert [r.reviewer for r in kept.reviews("/p", version=1, as_of=moments[4])] == ["bob", "cy"]
    assert [each.id for each in kept.all(prefix="/", as_of=made)] == [first.id]
    assert kept.all(as_of=moments[0]) == kept.all(as_of=moments[5]) == []
    for moment in (moments[0], moments[5]):
        with pytest.raises(NotFound):
            kept.get("/p", as_of=moment)
    assert [each.id for each in kept.all()] == [renewed.id]
    with pytest.raises(InvalidInput):
        kept.get("/p", as_of="once upon a time")


def test_an_undone_artifact_is_still_there_in_the_past(memory: Commonplace) -> None:
    memory.artifacts.create("one", path="/p")
    memory.artifacts.update("/p", "two")
    time.sleep(0.002)
    then = datetime.now(UTC)
    time.sleep(0.002)
    memory.undo()
    memory.undo()
    assert memory.artifacts.all() == []
    assert memory.artifacts.read("/p", as_of=then)[1].content == b"two"
    assert len(memory.artifacts.versions("/p", as_of=then)) == 2
