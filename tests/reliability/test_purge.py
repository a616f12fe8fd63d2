"""What is purged is in no file any more; what remains is untouched (T36)."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace import Commonplace
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content.conversations import Line
from commonplace.engine.history import audit
from commonplace.engine.maintenance import purge, upkeep
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, Conflict, NotFound, StorageUnavailable
from commonplace.storage import database, sqlite
from commonplace.storage.sqlite import store as store_module
from conftest import WordVectors

PLACES = (
    "text", "title", "tag", "attr", "former text", "former title", "former tag", "former attr",
    "link reason", "link attr", "former reason", "fact subject", "fact object", "fact attr",
    "line", "event payload", "ref", "former ref", "undone text",
)  # fmt: skip


def _canary(place: str) -> str:
    """A word of its own that occurs nowhere else."""
    return f"canary-{place.replace(' ', '-')}-b2c81f96e0d7"


@pytest.mark.parametrize("written", [False, True])
def test_a_purge_in_a_unit_of_work_is_refused_and_deletes_nothing(
    quick_disk: Path, written: bool
) -> None:
    with Commonplace(quick_disk / "data", embedding="none") as memory:
        old = memory.remember("The boiler code is 4711")
        with memory.unit("tidying"):
            if written:
                memory.remember("The boiler is new")
            with pytest.raises(Conflict, match="cannot be part of a unit"):
                memory.purge(old.id)
        assert memory.get(old.id).text == old.text
        assert memory.purge(old.id).traces == 0


@pytest.fixture
def marked(quick_disk: Path) -> Iterator[Commonplace]:
    """Memories with a canary in every place, among others that stay."""
    with Commonplace(quick_disk / "data", embedding=WordVectors()) as memory:
        for i in range(60):
            memory.remember(f"An ordinary memory, number {i}.", ref=f"stay{i}", tags=[f"t{i % 3}"])
        secret = memory.remember(
            f"This is {_canary('former text')} in a text.",
            title=_canary("former title"),
            tags=[_canary("former tag")],
            attrs={"a": {"b": [_canary("former attr")]}},
            ref=_canary("former ref"),
        )
        memory.revise(
            secret.id,
            text=f"Now it is {_canary('text')} in a text.",
            title=_canary("title"),
            tags=[_canary("tag")],
            attrs={"a": {"b": [_canary("attr")]}},
            ref=_canary("ref"),
        )
        memory.revise(secret.id, text=f"Then {_canary('undone text')} for a moment.")
        memory.undo()
        link = memory.links.add(secret.id, "stay1", "leads_to", reason=_canary("former reason"))
        memory.links.revise(
            link.id, reason=_canary("link reason"), attrs={"why": _canary("link attr")}
        )
        memory.facts.add(
            _canary("fact subject"), "is", _canary("fact object"), memory=secret.id,
            attrs={"x": _canary("fact attr")},
        )  # fmt: skip
        line = memory.conversations.add(
            "talk", Line(speaker="Ann", text=f"I say {_canary('line')} aloud.")
        )[0]
        memory.events.record(
            "audit", "", {"quoted": f"Now it is {_canary('text')} in a text.",
                          "also": _canary("event payload")},
        )  # fmt: skip
        memory.events.record("audit", "", {"kept": "This event stays."})
        engine_call(memory, upkeep.embed_all)
        memory.secret, memory.line = secret, line.memory  # type: ignore[attr-defined]
        yield memory


def _hits(place: Path) -> dict[str, list[str]]:
    """Canary → files that still hold it, in whatever form texts are stored."""
    found: dict[str, list[str]] = {}
    for path in sorted(place.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            for name in PLACES:
                if _canary(name).encode() in data:
                    found.setdefault(name, []).append(path.name)
    return found


def _purge(memory: Commonplace) -> purge.Proof:
    return memory.purge(memory.secret.id, memory.line.id)  # type: ignore[attr-defined]


def test_every_canary_is_there_before(marked: Commonplace) -> None:
    """Else the test below would prove nothing."""
    with lease(marked) as space:
        space.store.checkpoint()
    assert set(_hits(marked.library.path)) == set(PLACES)


def test_no_file_holds_what_was_purged(marked: Commonplace) -> None:
    proof = _purge(marked)
    assert proof.memories == 2 and proof.traces == 0 and proof.bytes_scanned > 0
    assert _hits(marked.library.path) == {}
    secret = marked.secret.id  # type: ignore[attr-defined]
    for call in (marked.get, marked.history.versions, marked.usage, marked.purge):
        with pytest.raises(NotFound):
            call(secret)
    assert marked.find_text("canary")[1] == 0
    assert not [hit for hit in marked.recall("canary text") if "canary" in hit.memory.text]
    path = marked.library.path
    marked.close()
    assert _hits(path) == {}
    with Commonplace(path, embedding=WordVectors()) as again:
        assert again.browse()[1] == 60
        assert again.library.maintenance.check("default").findings == []
    assert _hits(path) == {}


def test_what_remains_is_untouched(marked: Commonplace) -> None:
    before = {one.id: one for one in marked.browse(limit=200)[0] if one.ref and "stay" in one.ref}
    similar = [(h.memory.id, h.why.similarity) for h in marked.recall("ordinary number 7", limit=5)]
    _purge(marked)
    after = {one.id: one for one in marked.browse(limit=200)[0]}
    assert after == before and len(after) == 60
    assert [
        (h.memory.id, h.why.similarity) for h in marked.recall("ordinary number 7", limit=5)
    ] == similar
    events = marked.events.all()
    assert [event.payload for event in events] == [None, {"kept": "This event stays."}]
    assert marked.links.of() == [] and marked.facts.query() == []
    assert marked.conversations.history("talk") == []
    assert "purge" in [operation.name for operation in marked.history.operations()]


def test_a_text_that_another_memory_holds_is_no_trace(marked: Commonplace) -> None:
    shared = marked.secret.text  # type: ignore[attr-defined]
    copy = marked.remember(f"Somebody else wrote: {shared}", ref="copy")
    proof = _purge(marked)
    assert proof.traces == 0
    assert marked.get("copy").text == copy.text
    assert set(_hits(marked.library.path)) == {"former text"}


def test_a_purge_cannot_be_undone(marked: Commonplace) -> None:
    _purge(marked)
    operation = marked.history.operations(limit=1)[0]
    assert operation.name == "purge"
    with pytest.raises(CommonplaceError):
        marked.undo(operation.id)
    assert marked.browse()[1] == 60


def test_a_memory_that_only_the_past_knows_can_be_purged(marked: Commonplace) -> None:
    made = marked.remember(f"Undone: {_canary('undone text')} at once.")
    marked.undo()
    with pytest.raises(NotFound):
        marked.get(made.id)
    assert marked.purge(made.id).traces == 0
    _purge(marked)
    assert _hits(marked.library.path) == {}


def test_a_ref_that_a_memory_has_lost_does_not_purge_it(memory: Commonplace) -> None:
    first = memory.remember("What stands in the plan of April", ref="plan")
    second = memory.supersede(first.id, "What stands in the plan of May", ref="plan")
    moved = memory.remember("What stands in the notes of April", ref="notes")
    memory.revise(moved.id, ref="old notes")
    with pytest.raises(NotFound):
        memory.purge("notes")
    assert memory.purge("plan").memories == 1
    with pytest.raises(NotFound):
        memory.get(second.id)
    with pytest.raises(NotFound):
        memory.purge("plan")
    assert memory.get(first.id).text == "What stands in the plan of April"
    assert memory.get(moved.id).ref == "old notes"


def test_an_unknown_memory_purges_nothing(marked: Commonplace) -> None:
    with pytest.raises(NotFound):
        marked.purge(marked.secret.id, "nobody")  # type: ignore[attr-defined]
    assert marked.get(marked.secret.id).title == _canary("title")  # type: ignore[attr-defined]


def test_while_another_reads_an_old_snapshot_the_proof_says_so(
    marked: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the log cannot be emptied: better refused than claimed."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.3)
    reader = apsw.Connection(str(marked.library.file("default")))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memories").fetchall()
    try:
        with pytest.raises(StorageUnavailable):
            _purge(marked)
    finally:
        reader.execute("ROLLBACK")
        reader.close()
    with pytest.raises(NotFound):
        marked.get(marked.secret.id)  # type: ignore[attr-defined]


def test_without_secure_deletion_the_traces_are_seen(
    quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: rows are deleted as SQLite does by default, and the file is not rewritten."""
    connect = database.connect

    def careless(path: Path, *, create: bool = False) -> Any:
        connection = connect(path, create=create)
        connection.pragma("secure_delete", False)
        return connection

    monkeypatch.setattr(store_module, "connect", careless)
    monkeypatch.setattr(sqlite.Store, "rewrite", lambda self: None)
    with Commonplace(quick_disk / "mutant", embedding="none") as memory:
        for i in range(20):
            memory.remember(f"Ordinary {i}.")
        made = memory.remember(f"This is {_canary('text')} in a text that is long enough to see.")
        with pytest.raises(StorageUnavailable, match="pieces of the purged text"):
            memory.purge(made.id)
        assert "text" in _hits(memory.library.path)


def test_who_did_it_is_kept_but_not_what_it_said(marked: Commonplace) -> None:
    marked.purge(
        marked.secret.id,  # type: ignore[attr-defined]
        marked.line.id,  # type: ignore[attr-defined]
        origin=Origin(user="ann"),
    )
    operation = marked.history.operations(limit=1)[0]
    assert operation.origin.user == "ann"
    assert not re.search("canary", repr(operation))


def test_events_that_share_a_word_with_it_keep_their_payload(memory: Commonplace) -> None:
    made = memory.remember("Only a short text.", title="a", tags=["work"])
    memory.events.record("audit", "", {"note": "An unrelated payload about work and a life."})
    memory.purge(made.id)
    assert memory.events.all()[0].payload == {"note": "An unrelated payload about work and a life."}


@pytest.mark.parametrize("seed", [23, 36, 45])  # with these, a proof of texts alone missed some
def test_pages_that_were_rearranged_keep_no_stale_bytes(quick_disk: Path, seed: int) -> None:
    """Rows of all sizes come and go, so that SQLite moves them about; then the secrets go."""
    chance = random.Random(seed)
    secrets, others = [], []
    with Commonplace(quick_disk / "data", embedding="none") as memory:
        for i in range(chance.randrange(60, 160)):
            if chance.random() < 0.8:
                others.append(memory.remember("Plain. " + "p " * chance.randrange(600)).id)
            else:
                made = memory.remember(f"{_canary('text')} " + "w " * chance.randrange(800))
                secrets.append(made.id)
                reason = _canary("link reason") * chance.randrange(1, 30)
                if others:
                    link = memory.links.add(made.id, chance.choice(others), "near", reason=reason)
                    memory.links.revise(link.id, reason=_canary("former reason"))
                subject, thing = _canary("fact subject"), _canary("fact object")
                memory.facts.add(f"{subject}{i}", "is", f"{thing}{i}", memory=made.id)
            if others and chance.random() < 0.3:
                memory.revise(chance.choice(others), text="q " * chance.randrange(1, 600))
        assert memory.purge(*secrets).traces == 0
        assert _hits(memory.library.path) == {}


OWN_WORDS = [
    "SQLite format 3",
    "CREATE TABLE memories (",
    "sqlite_autoindex_head_1",
    "word-vectors",
    "claude-desktop",
]


@pytest.mark.parametrize("text", OWN_WORDS)
def test_what_the_file_itself_says_is_no_trace(quick_disk: Path, text: str) -> None:
    """A text can be what every file says, the name of a model, or that of a client."""
    with Commonplace(quick_disk / "data", embedding=WordVectors()) as memory:
        with lease(memory) as space:
            audit.append(
                space.store,
                audit.Entry(
                    request="", dialect="", tool="x", client="claude-desktop", success=True,
                    milliseconds=0, arguments="{}", result="{}",
                ),
            )  # fmt: skip
        made = memory.remember(text)
        assert memory.purge(made.id).traces == 0
        assert memory.find_text(text)[1] == 0


def test_a_tag_that_another_memory_has_too_is_no_trace(memory: Commonplace) -> None:
    """As a label it stands there plainly, in the row of the memory as JSON."""
    tag = 'what she called "the harbour \\ lantern"\nof the old town'
    gone, stays = (memory.remember(text, tags=[tag]) for text in ("goes", "stays"))
    assert memory.purge(gone.id).traces == 0
    assert memory.browse(tags_all=[tag])[0] == [stays]


def test_copies_in_other_files_are_removed_or_named(quick_disk: Path) -> None:
    """Prepared contexts, spooled events, transcripts and records; a log is not ours to rewrite."""
    said = f"Grüße, this is {_canary('text')} in a text."
    data = quick_disk / "data"
    with Commonplace(data, embedding="none") as memory:
        made = memory.remember(said)
        skill = memory.remember(
            f"skill {said}", kind="mama_file", ref="mama:skills/mama/one/SKILL.md"
        )
        event = {"session_id": "s", "transcript_path": "/t.jsonl", "last_assistant_message": said}
        lines = [{"text": said}, {"text": "this stays"}]
        held = {
            "starts/0.json": json.dumps({"additionalContext": f"- {said[:40]}"}),
            "inbox/1.json": json.dumps({"space": "default", "event": event}),
            "inbox/2.refused": json.dumps({"text": said}),
            "transcripts/opencode/s.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
            "mama/skills/mama/one/SKILL.md": f"skill {said}",
            "mama/logs/daemon.log": f"asked: {said}",
            "mama/skills/mama/two/SKILL.md": "another skill stays",
        }
        for name, content in held.items():
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_text(content)
        proof = memory.purge(made.id, skill.id)
        assert proof.traces == 0
        assert proof.held == ("mama/logs/daemon.log",)
        assert set(proof.removed) == {*held} - {proof.held[0], "mama/skills/mama/two/SKILL.md"}
        assert _hits(data) == {"text": ["daemon.log"]}
        kept = json.loads((data / "inbox/1.json").read_text())["event"]
        assert kept == {**event, "last_assistant_message": ""}
        assert "this stays" in (data / "transcripts/opencode/s.jsonl").read_text()
        assert (data / "mama/skills/mama/two/SKILL.md").exists()


def test_a_short_text_is_in_no_prepared_context(quick_disk: Path) -> None:
    """It is too short to be searched for."""
    data = quick_disk / "data"
    with Commonplace(data, embedding="none") as memory:
        made = memory.remember("PIN 4711")
        (data / "starts").mkdir()
        (data / "starts/0.json").write_text(json.dumps({"additionalContext": "- PIN 4711"}))
        assert memory.purge(made.id).removed == ("starts/0.json",)


def test_a_record_that_leads_elsewhere_deletes_nothing(quick_disk: Path) -> None:
    data = quick_disk / "data"
    with Commonplace(data, embedding="none") as memory:
        for ref in ("mama:../config.toml", "mama:/etc/hostname", "mama:", "mama:link/config.toml"):
            made = memory.remember("a record", kind="mama_file", ref=ref)
            (data / "config.toml").write_text("")
            (data / "mama").mkdir(exist_ok=True)
            if not (data / "mama/link").exists():
                (data / "mama/link").symlink_to(data)
            assert memory.purge(made.id).removed == ()
            assert (data / "config.toml").exists()


def test_who_did_it_is_named_if_it_holds_a_purged_word(memory: Commonplace) -> None:
    word = "Quenlaviet"
    made = memory.remember(f"about {word}", origin=Origin(user="ann", client=f"cli {word}"))
    stays = memory.remember("unrelated", kind=word.lower())
    with lease(memory) as space:
        audit.append(
            space.store,
            audit.Entry(
                request="", dialect="", tool="x", client=f"{word}/1.0", success=True,
                milliseconds=0, arguments="{}", result="{}",
            ),
        )  # fmt: skip
    proof = memory.purge(made.id, words=[word])
    assert set(proof.held) == {"memories.kind (1 row)", "audit.client (1 row)"}
    operations = memory.history.operations()
    assert [each.origin.user for each in operations if each.name == "remember"] == ["", "ann"]
    assert word not in repr(operations)
    assert memory.get(stays.id) == stays
    assert memory.library.maintenance.check("default").findings == []
