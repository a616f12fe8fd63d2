"""A person edits, adds, moves and deletes files; nothing leads out; nothing is lost."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from commonplace import Commonplace, Draft
from commonplace.dialects.clawbrain import documents, file_sync
from commonplace.engine.library import OpenSpace
from commonplace.engine.maintenance import file_copies
from commonplace.engine.maintenance.file_copies import FileState
from commonplace.platform import lookup
from conftest import wait_until

from .brain import Brain, Refused, opened

ALICE = "entities/people/alice-chen.md"
ID = "entity-people-alice-chen"


def written(name: str, content: str, *, more: str = "", category: str = "people") -> str:
    return (
        f"---\nid: entity-{category}-{name}\ntype: entity\ncategory: {category}\n"
        f"created: 2026-02-25T10:00:00Z\nupdated: 2026-02-25T10:00:00Z\npinned: false\n{more}"
        f"---\n\n{content}\n"
    )


def content(brain: Brain, identity: str = ID) -> str:
    return str(brain.call("memory_retrieve", id=identity)["content"])


def test_an_edit_in_place_is_seen_by_the_next_call(brain: Brain) -> None:
    brain.store(content="She bakes.")
    path = brain.file(ALICE)
    text = (
        path.read_text()
        .replace("She bakes.", "She reads.")
        .replace("pinned: false", "pinned: true")
    )
    path.write_text(text.replace("tags: []", "tags: [reader, late]"))

    assert brain.call("memory_search", query="reads")["total_matches"] == 1
    found = brain.call("memory_retrieve", id=ID)
    assert (found["content"], found["pinned"], found["tags"]) == (
        "She reads.", True, ["reader", "late"],
    )  # fmt: skip
    assert [v.memory.text for v in brain.memory.history.versions(ID)][-1] == "She bakes."
    assert path.read_text() == text.replace("tags: []", "tags: [reader, late]"), "left as saved"


def test_a_file_with_a_tag_that_another_dialect_reserves_is_left_alone(brain: Brain) -> None:
    brain.store(content="She bakes.")
    path = brain.file(ALICE)
    path.write_text(path.read_text().replace("tags: []", "tags: ['being:x', late]"))
    brain.file("entities/people/bob.md").write_text(
        written("bob", "He sails.", more="tags: ['being-history']\n")
    )
    assert brain.call("memory_search", query="sails")["total_matches"] == 0
    assert brain.call("memory_retrieve", id=ID)["tags"] == []
    told = brain.problems
    assert "'being:x' is reserved" in told[ALICE]
    assert "reserved for the Being dialect" in told["entities/people/bob.md"]
    path.write_text(path.read_text().replace("being:x", "early"))
    assert brain.call("memory_retrieve", id=ID)["tags"] == ["early", "late"]


def test_an_edit_is_taken_over_while_nobody_calls(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.file(ALICE).write_text(brain.file(ALICE).read_text().replace("bakes", "reads"))

    wait_until(lambda: brain.memory.get(ID, count=False).text == "She reads.")


def test_an_edit_is_seen_by_the_next_call_of_a_server_that_does_not_keep_the_files(
    tmp_path: Path,
) -> None:
    with (
        opened(tmp_path / "data", tmp_path / "memory") as keeper,
        opened(tmp_path / "data", tmp_path / "memory") as other,
    ):
        assert not file_sync._running_syncs[other.library].space_files("default").acquire()
        keeper.store(content="She bakes.")
        for number in range(5):
            path = other.file(ALICE)
            path.write_text(written("alice-chen", f"She has {number} cats."))
            assert content(other) == f"She has {number} cats."
        other.file("entities/people/bob.md").write_text(written("bob", "He sails."))
        assert other.call("memory_search", query="sails")["total_matches"] == 1
        other.file(ALICE).unlink()
        with pytest.raises(Refused, match="no memory entity-people-alice-chen\\. Use"):
            content(other)

        other.file("entities/people/bad.md").write_text("no frontmatter")
        assert other.call("credit_report")["total_memories"] == 1, "one wait, and then"
        began = time.monotonic()
        for _ in range(5):
            other.call("credit_report")
        assert time.monotonic() - began < 5 * file_sync.IMPORT_WAIT_SECONDS, (
            "nobody waits for it again"
        )


def test_a_deletion_is_recorded_after_its_memory_is_archived(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the record as a sign that it can read."""
    brain.store(content="She bakes.")
    note, live = file_copies.record_files, []

    def observed(space: OpenSpace, root: str, files: Sequence[FileState], **more: Any) -> None:
        note(space, root, files, **more)
        if any(not file.path for file in files):
            live.append(lookup.find_live_memory(brain.memory, ID))

    monkeypatch.setattr(file_copies, "record_files", observed)
    with brain.paused():
        brain.file(ALICE).unlink()
        brain.sync()

    assert live == [None]


def test_an_edit_that_was_made_before_its_folder_was_watched_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited: list[Path] = []
    watch = watchfiles.watch

    def late(*folders: str, **options: Any) -> Iterator[Any]:
        path = tmp_path / "memory" / ALICE
        if str(path.parent) in folders and not edited:
            path.write_text(path.read_text().replace("bakes", "reads"))
            edited.append(path)
        return watch(*folders, **options)

    monkeypatch.setattr(watchfiles, "watch", late)
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        brain.store(content="She bakes.")
        wait_until(lambda: brain.memory.get(ID, count=False).text == "She reads.")
    assert edited


def test_a_file_that_is_added_is_a_memory(brain: Brain) -> None:
    folder = brain.file("entities/people")
    folder.mkdir(parents=True)
    (folder / "bob.md").write_text(written("bob", "He sails."))

    found = brain.call("memory_retrieve", id="entity-people-bob")

    assert found["created_at"] == "2026-02-25T10:00:00Z"
    assert found["credit_score"] == 0.5
    assert brain.memory.get("entity-people-bob", count=False).trust == "stated"


def test_files_that_are_added_together_are_taken_in_the_order_of_their_names(
    brain: Brain,
) -> None:
    names = [f"n{number}" for number in (7, 2, 9, 4, 1, 8, 3, 6, 5)]
    with brain.paused():
        brain.file("entities/people").mkdir(parents=True)
        for name in names:
            brain.file(f"entities/people/{name}.md").write_text(written(name, "Added."))
    brain.sync()
    found, _ = brain.memory.browse(order="oldest")
    assert [memory.title for memory in found] == sorted(names)


def test_a_file_with_the_marks_of_windows_and_a_list_of_dashes_is_read(brain: Brain) -> None:
    folder = brain.file("entities/people")
    folder.mkdir(parents=True)
    text = written("bob", "He sails.\n\nOften.", more="tags:\n  - sea\n  - 'it''s'\nalias: b\n")
    (folder / "bob.md").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())

    found = brain.call("memory_retrieve", id="entity-people-bob")

    assert (found["content"], found["tags"]) == ("He sails.\n\nOften.", ["sea", "it's"])
    brain.call("memory_update", id="entity-people-bob", content="He rests.")
    kept = (folder / "bob.md").read_text()
    assert "alias: b\n" in kept, "what others keep in the frontmatter stays"
    assert 'tags: ["sea", "it\'s"]' in kept


def test_a_file_that_is_moved_takes_its_memory_along(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.call("memory_retrieve", id=ID)
    brain.file("entities/projects").mkdir()
    brain.file(ALICE).rename(brain.file("entities/projects/bakery.md"))

    found = brain.call("memory_retrieve", id="entity-projects-bakery")

    assert (found["category"], found["name"], found["access_count"]) == ("projects", "bakery", 2)
    assert "id: entity-projects-bakery\n" in brain.file("entities/projects/bakery.md").read_text()
    with pytest.raises(Refused, match="There is no memory"):
        brain.call("memory_retrieve", id=ID)


def test_a_new_file_with_the_inode_of_a_deleted_one_is_another_memory(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.call("memory_retrieve", id=ID)
    folder = brain.file(ALICE).parent
    inode = brain.file(ALICE).stat().st_ino
    brain.file(ALICE).write_text(written("bob", "He sails."))
    brain.file(ALICE).rename(folder / "bob.md")
    assert (folder / "bob.md").stat().st_ino == inode, "as if the file system had used it again"

    assert brain.call("memory_retrieve", id="entity-people-bob")["content"] == "He sails."

    assert brain.paths() == ["archive/" + ALICE, "entities/people/bob.md"]
    assert "She bakes." in brain.file("archive/" + ALICE).read_text()
    assert brain.call("memory_search", query="bakes")["total_matches"] == 0


def test_a_file_that_is_copied_is_another_memory(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.file("entities/people/copy.md").write_text(brain.file(ALICE).read_text())

    assert brain.call("memory_search", query="bakes")["total_matches"] == 2
    assert "id: entity-people-copy\n" in brain.file("entities/people/copy.md").read_text()


def test_a_file_that_is_deleted_is_archived_and_comes_back(brain: Brain) -> None:
    brain.store(content="She bakes.")
    kept = brain.file(ALICE).read_text()
    first = brain.memory.get(ID, count=False).id
    brain.file(ALICE).unlink()

    assert brain.call("memory_search", query="bakes")["total_matches"] == 0
    assert brain.paths() == ["archive/" + ALICE]
    brain.file(ALICE).write_text(kept.replace("bakes", "bakes again"))
    assert content(brain) == "She bakes again."
    assert brain.memory.get(ID, count=False).id == first, "an editor that saves by deleting"
    assert brain.paths() == [ALICE]


def test_files_moved_into_and_out_of_the_archive(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.file("archive/entities/people").mkdir(parents=True)
    brain.file(ALICE).rename(brain.file("archive/" + ALICE))
    assert brain.call("memory_search", query="bakes")["total_matches"] == 0
    assert brain.memory.browse(states=["archived"])[1] == 1

    brain.file("archive/" + ALICE).rename(brain.file(ALICE))
    assert content(brain) == "She bakes."
    brain.call("memory_delete", id=ID)
    brain.file("archive/" + ALICE).unlink()
    brain.sync()
    assert brain.paths() == [], "what is deleted from the archive is not written again"


def test_when_both_changed_both_are_kept(brain: Brain, tmp_path: Path) -> None:
    brain.store(content="She bakes.", tags=["baker"])
    theirs = brain.file(ALICE).read_text().replace("bakes", "sings")
    with brain.paused():
        brain.memory.revise(ID, text="She paints.")
        brain.file(ALICE).write_text(theirs)
    brain.sync()

    assert content(brain) == "She paints."
    assert content(brain, ID + "-conflict") == "She sings."
    assert "She paints." in brain.file(ALICE).read_text()
    assert "She sings." in brain.file("entities/people/alice-chen-conflict.md").read_text()
    found = brain.call("memory_search", query="conflict")["results"]
    assert [each["relevance_score"] for each in found] == [1.0]


def test_a_file_deleted_while_its_memory_changed_is_written_again(brain: Brain) -> None:
    brain.store(content="She bakes.")
    with brain.paused():
        brain.memory.revise(ID, text="She paints.")
        brain.file(ALICE).unlink()

    assert content(brain) == "She paints."
    assert "She paints." in brain.file(ALICE).read_text()


UNREADABLE = {
    "no-frontmatter": "Just notes.",
    "not-closed": "---\nid: x\n",
    "no-id": written("x", "y").replace("id: entity-people-x\n", ""),
    "no-created": written("x", "y").replace("created: 2026-02-25T10:00:00Z\n", ""),
    "bad-time": written("x", "y").replace("created: 2026", "created: when"),
    "bad-pinned": written("x", "y").replace("pinned: false", "pinned: perhaps"),
    "bad-tags": written("x", "y", more="tags: [1, 2]\n"),
    "empty": written("x", ""),
    "twice": written("x", "y", more="id: other\n"),
    "alias": written("x", "y").replace("id: entity-people-x", "id: &a\n  - b"),
    "endless-tag": written("x", "y", more=f'tags: ["{"t" * 101}"]\n'),
    "nul": written("x", "a\0b"),
}


def test_what_cannot_be_read_is_left_alone_and_told(brain: Brain) -> None:
    folder = brain.file("entities/people")
    folder.mkdir(parents=True)
    for name, text in UNREADABLE.items():
        (folder / f"{name}.md").write_text(text)
    (folder / "bytes.md").write_bytes(b"---\n\xff\n---\n")
    (folder / "Alice Chen.md").write_text(written("x", "y"))
    (brain.file("entities") / "places").mkdir()
    (brain.file("entities/places") / "x.md").write_text(written("x", "y"))
    before = {path: brain.file(path).read_bytes() for path in brain.paths()}

    details = brain.call("memory_compact")["details"]

    told = [line for line in details if line.startswith("Ignored ")]
    assert len(told) == len(UNREADABLE) + 3 == len(before)
    assert {path: brain.file(path).read_bytes() for path in brain.paths()} == before
    assert brain.call("credit_report")["total_memories"] == 0
    with pytest.raises(Refused, match=r"no-id\.md, and it is not read as a memory.*memory_update"):
        brain.store("no-id")
    (folder / "no-id.md").write_text(written("no-id", "Mended."))
    assert content(brain, "entity-people-no-id") == "Mended."


def test_a_broken_edit_is_not_overwritten(brain: Brain) -> None:
    brain.store(content="She bakes.")
    brain.file(ALICE).write_text("half an edi")

    assert content(brain) == "She bakes."
    assert brain.file(ALICE).read_text() == "half an edi"
    brain.call("memory_update", id=ID, content="She paints.")
    assert "She paints." in brain.file(ALICE).read_text()
    aside = [p for p in brain.file("entities/people").iterdir() if ".conflict-" in p.name]
    assert [path.read_text() for path in aside] == ["half an edi"]


def test_links_are_not_followed(brain: Brain, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(written("secret", "A secret canary."))
    brain.store(content="She bakes.")
    brain.file("entities/people/secret.md").symlink_to(outside / "secret.md")
    brain.file("entities/projects").symlink_to(outside)
    brain.file("archive").symlink_to(outside)
    brain.file("STRATEGY.md").symlink_to(outside / "secret.md")

    assert brain.call("memory_search", query="canary")["total_matches"] == 0
    with pytest.raises(Refused, match="could not be written"):
        brain.store("x", category="projects")
    with pytest.raises(Refused, match="could not be written"):
        brain.call("memory_delete", id=ID)
    assert sorted(path.name for path in outside.iterdir()) == ["secret.md"]
    brain.file("archive").unlink()
    brain.sync()
    assert "archive/" + ALICE in brain.paths(), "it is written as soon as that is possible"


def test_a_directory_that_is_gone_is_written_anew(brain: Brain) -> None:
    import shutil

    brain.store(content="She bakes.")
    shutil.rmtree(brain.files)

    assert content(brain) == "She bakes."
    assert brain.paths() == [ALICE]


def test_another_directory_gets_its_own_copy(tmp_path: Path) -> None:
    with opened(tmp_path / "data", tmp_path / "one") as brain:
        brain.store(content="She bakes.")
    with opened(tmp_path / "data", tmp_path / "two") as brain:
        assert brain.paths() == [ALICE]
        assert content(brain) == "She bakes."
    with opened(tmp_path / "data") as brain:
        assert brain.files == tmp_path / "data" / "clawbrain" / "default"
        assert brain.paths() == [ALICE]


def test_a_copy_of_a_directory_is_another_directory(tmp_path: Path) -> None:
    """Else its old files would count as edits of the newer memories."""
    import shutil

    with opened(tmp_path / "data", tmp_path / "one") as brain:
        brain.store(content="She bakes.")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with opened(tmp_path / "data", tmp_path / "one") as brain:
        brain.call("memory_update", id=ID, content="She paints.")
    with opened(tmp_path / "data", tmp_path / "copy") as brain:
        assert content(brain) == "She paints."
        assert "She paints." in brain.file(ALICE).read_text()
        assert brain.paths() == [ALICE], "nothing is in conflict"


def test_a_directory_that_is_moved_stays_the_same(tmp_path: Path) -> None:
    with opened(tmp_path / "data", tmp_path / "one") as brain:
        brain.store(content="She bakes.")
    edited = tmp_path / "two"
    (tmp_path / "one").rename(edited)
    (edited / ALICE).write_text((edited / ALICE).read_text().replace("bakes", "sings"))
    with opened(tmp_path / "data", edited) as brain:
        assert content(brain) == "She sings."
        assert brain.paths() == [ALICE]


def test_the_id_file_of_an_earlier_release_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "data", tmp_path / "one") as brain:
        brain.store(content="She bakes.")
    file = tmp_path / "one" / ".commonplace" / "id"
    identity = file.read_text().splitlines()[0]
    file.write_text(f"{identity}\n")
    with opened(tmp_path / "data", tmp_path / "one") as brain:
        assert content(brain) == "She bakes."
    assert file.read_text().splitlines() == [identity, str(file.stat().st_ino)]


def test_what_others_do_to_the_memory_shows_in_the_files(brain: Brain) -> None:
    brain.store(content="She bakes.")
    memory = brain.memory.get(ID, count=False)

    brain.memory.revise(memory.id, text="She paints.")
    wait_until(lambda: "She paints." in brain.file(ALICE).read_text())
    brain.memory.forget(memory.id)
    wait_until(lambda: brain.paths() == ["archive/" + ALICE])
    brain.store(content="Another Alice.")
    wait_until(lambda: len(brain.paths()) == 2)
    brain.memory.purge(memory.id)
    wait_until(lambda: brain.paths() == [ALICE])


def test_a_memory_that_another_dialect_gives_another_kind_loses_its_file_and_name(
    brain: Brain,
) -> None:
    brain.store(content="She bakes.")
    own = brain.memory.get(ID).id
    brain.memory.revise(own, kind="note")
    brain.call("credit_report")
    assert brain.paths() == []
    assert brain.store(content="Another Alice.") == ID
    assert content(brain) == "Another Alice."
    assert brain.call("memory_retrieve", id=own)["content"] == "She bakes."


@pytest.mark.parametrize("kind", ["note", "episode"])
def test_an_edit_of_a_file_whose_memory_has_another_kind_is_a_new_memory(
    brain: Brain, kind: str
) -> None:
    brain.store(content="She bakes.")
    own = brain.memory.get(ID).id
    with brain.paused():
        brain.memory.revise(own, kind=kind)
        brain.file(ALICE).write_text(written("alice-chen", "She reads."))
        assert content(brain) == "She reads."
    assert brain.paths() == [ALICE]
    assert brain.memory.get(own).text == "She bakes."
    assert brain.call("memory_search", query="bakes")["results"][0]["id"] == own


def test_a_purge_without_a_server_removes_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with opened(data) as brain:
        brain.store(content="She bakes on Quenlaviet street.")
        brain.store("bob", "He reads.")
    with opened(data) as brain:  # writes MEMORY.md
        purged, folder = brain.memory.get(ID, count=False).id, brain.files
    assert "Quenlaviet" in (folder / "MEMORY.md").read_text()
    (folder / ".git").mkdir()
    with Commonplace(data, embedding="none") as memory:
        proof = memory.purge(purged)
        assert set(proof.removed) == {
            f"clawbrain/default/{ALICE}", "clawbrain/default/MEMORY.md",
        }  # fmt: skip
        assert proof.held == ("clawbrain/default/.git",)
    (folder / ".git").rmdir()
    with opened(data) as brain:
        assert brain.paths() == ["entities/people/bob.md"]
        assert "Quenlaviet" not in (folder / "MEMORY.md").read_text()


@pytest.fixture
def reads() -> Iterator[list[str]]:
    """Names of Markdown files that this process opens."""
    seen: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and watching and str(arguments[0]).endswith(".md"):
            seen.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield seen
    watching.clear()


def test_a_start_with_ten_thousand_unchanged_files_reads_none_of_them(
    tmp_path: Path, reads: list[str]
) -> None:
    count = 10_000
    with opened(tmp_path / "data", tmp_path / "memory") as brain, brain.paused():
        rows = [
            Draft(
                text=f"Number {n}.", kind="entity", title=f"n{n}", ref=f"entity-projects-n{n}",
                attrs={"category": "projects", "name": f"n{n}"},
            )
            for n in range(count)
        ]  # fmt: skip
        brain.memory.remember_many(rows)
        real, os.fsync = os.fsync, lambda _: None
        try:
            brain.sync()
        finally:
            os.fsync = real
    reads.clear()
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        assert brain.call("memory_search", query="number 7.")["total_matches"] == 1
        assert [name for name in reads if name not in ("MEMORY.md", "STRATEGY.md")] == []
        brain.file("entities/projects/n7.md").write_text(
            written("n7", "Edited.", category="projects")
        )
        assert content(brain, "entity-projects-n7") == "Edited."
        assert [name for name in reads if name.startswith("n")] == ["n7.md"]


def test_documents_are_read_as_they_are_written() -> None:
    document = documents.Document(
        id="entity-people-x", type="entity", category="people", tags=('a "b", c', "ü"),
        created="2026-02-25T10:00:00Z", updated="2026-02-26T10:00:00Z", pinned=True,
        content="---\nid: y\n---\n\n- a\n---", more=("alias: z", "  - deep"),
    )  # fmt: skip

    assert documents.parse(document.render()) == document


def test_every_directory_of_the_data_is_private(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as brain:
        brain.store(content="She bakes.")

    made = [tmp_path / "data", *(path for path in (tmp_path / "data").rglob("*") if path.is_dir())]

    assert tmp_path / "data" / "clawbrain" in made
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
