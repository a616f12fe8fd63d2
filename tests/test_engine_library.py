from __future__ import annotations

import stat
from pathlib import Path

import pytest

from commonplace import Commonplace, Library, Line
from commonplace.errors import InvalidInput, NotFound, StorageUnavailable
from conftest import WordVectors, texts


def test_spaces_see_nothing_of_each_other(memory: Commonplace) -> None:
    other = memory.at("other")
    mine = memory.remember("the secret word is xylophone", ref="r")
    theirs = other.remember("their secret word is marimba", ref="r")
    memory.conversations.add("talk", Line(speaker="Ann", text="mine"))
    memory.facts.add("Ann", "is", "mine")
    cluster = memory.clusters.create("mine")
    paper = memory.artifacts.create("mine", path="/p")
    memory.events.record("audit", "mine")
    assert texts(memory.recall("secret word")) == ["the secret word is xylophone"]
    assert texts(other.recall("secret word")) == ["their secret word is marimba"]
    assert other.get("r").id == theirs.id
    with pytest.raises(NotFound):
        other.get(mine.id)
    with pytest.raises(NotFound):
        other.links.add(theirs.id, mine.id, "knows")
    with pytest.raises(NotFound):
        other.clusters.get(cluster.id)
    with pytest.raises(NotFound):
        other.artifacts.read(paper.id)
    with pytest.raises(NotFound):
        other.undo(memory.history.operations()[0].id)
    assert other.facts.query() == other.events.all() == other.conversations.names() == []
    assert other.find_text("xylophone") == ([], 0)
    assert other.artifacts.all() == other.clusters.all() == []
    assert len(other.history.operations()) == 1


def test_each_space_is_a_file_of_its_own_that_only_its_owner_reads(memory: Commonplace) -> None:
    memory.at("one").remember("only in the first: aardvark-4711")
    memory.at("two").remember("only in the second: zebra-4712")
    memory.library.close()
    directory = memory.library.path / "spaces"
    one, two = (directory / "one.db").read_bytes(), (directory / "two.db").read_bytes()
    assert b"aardvark-4711" in one
    assert b"aardvark-4711" not in two
    assert b"zebra-4712" in two
    assert b"zebra-4712" not in one
    assert stat.S_IMODE(memory.library.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "one.db").stat().st_mode) == 0o600
    assert memory.library.spaces() == ["one", "two"]


def test_a_removed_space_leaves_nothing_and_is_empty_when_it_is_made_again(
    memory: Commonplace,
) -> None:
    other = memory.at("other")
    kept = memory.remember("kept")
    other.remember("xylophone-4711", tags=["a"])
    with memory.library.lease("other"), pytest.raises(StorageUnavailable):
        memory.library.remove("other")  # a call uses it
    assert other.browse()[1] == 1
    memory.library.remove("other")
    assert "other" not in memory.library.spaces()
    left = [path.name for path in memory.library.path.rglob("other*")]
    assert left == []
    assert other.browse() == ([], 0) and other.history.operations() == []
    other.remember("new")
    assert memory.get(kept.id).text == "kept"


def test_a_space_ranks_the_same_whatever_others_hold(tmp_path: Path) -> None:
    lines = [f"the {a} {b} of {c}" for a in ("old", "new") for b in ("house", "boat")
             for c in ("Rome", "Oslo", "Lima")]  # fmt: skip
    results = []
    for crowded in (False, True):
        with Commonplace(tmp_path / str(crowded), space="mine", embedding=WordVectors()) as mine:
            if crowded:
                theirs = mine.at("theirs")
                for i in range(50):
                    theirs.remember(f"old house boat Rome Rome {i}")
                theirs.recall("house")
            for line in lines:
                mine.remember(line)
            results.append(
                [
                    [(hit.memory.text, hit.score, hit.why) for hit in mine.recall(query, minimum=0)]
                    for query in ("old house in Rome", "boat", "new Lima house")
                ]
            )
    assert results[0] == results[1]
    assert len(results[0][0]) == 10


def test_a_space_closed_to_make_room_is_opened_again_when_asked(tmp_path: Path) -> None:
    library = Library(tmp_path, embedder=None, open_spaces=2)
    spaces = [Commonplace(space=f"s{i}", library=library) for i in range(6)]
    stored = [space.remember(f"number {i} walrus") for i, space in enumerate(spaces)]
    for _ in range(2):
        for i, space in enumerate(spaces):
            assert texts(space.recall("walrus")) == [f"number {i} walrus"]
    assert len(library._opened) <= 3
    library.close()
    with Commonplace(tmp_path, space="s0", embedding="none") as again:
        assert again.usage(stored[0].id).accesses == 2, "noted reads survive being closed"


@pytest.mark.parametrize(
    "name",
    ["", "A", "a/b", "..", ".", "a.", "-a", "con", "nul.x", "a" * 65, "a b", "é", None, 5, "a\n"],
)
def test_a_space_needs_a_name_that_is_safe_as_a_file(memory: Commonplace, name: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.at(name)  # type: ignore[arg-type]
    assert caught.value.field == "space"


def test_a_closed_library_says_so(tmp_path: Path) -> None:
    memory = Commonplace(tmp_path, embedding="none")
    memory.remember("x")
    memory.close()
    memory.close()
    with pytest.raises(StorageUnavailable):
        memory.remember("y")


def test_a_directory_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageUnavailable) as caught:
        Commonplace(tmp_path / "file" / "data", embedding="none")
    assert "COMMONPLACE_DATA" in caught.value.hint


def test_the_data_directory_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "there"))
    with Commonplace(embedding="none") as memory:
        memory.remember("x")
    assert (tmp_path / "there" / "spaces" / "default.db").exists()
