"""The engine against a model of plain dictionaries, through random histories (R15)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from commonplace import Commonplace, Weighting
from commonplace.errors import Conflict, NotFound

ANY_STATE = ["active", "dying", "archived", "superseded", "dead"]
WORDS = ["walrus", "otter", "heron", "lynx", "viper"]
TAGS = ["red", "blue"]
UNLINKED = Weighting(graph=0)
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True)

Row = dict[str, Any]


class Engine(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        # In memory where there is such a place: no disk is waited for two thousand times.
        self.path = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.memory = Commonplace(self.path, embedding="none")
        self.rows: dict[str, Row] = {}
        self.links: dict[tuple[str, str], float] = {}
        # What each operation that can be undone by default had before it, newest last.
        self.past: list[tuple[dict[str, Row], dict[tuple[str, str], float]]] = []
        self.purged = False

    def teardown(self) -> None:
        self.memory.close()
        shutil.rmtree(self.path)

    def snapshot(self) -> None:
        self.past.append(({k: dict(v) for k, v in self.rows.items()}, dict(self.links)))

    def live(self) -> dict[str, Row]:
        return {k: row for k, row in self.rows.items() if row["state"] in ("active", "dying")}

    @rule(target=ids, text=words, tags=tags)
    def remember(self, text: str, tags: list[str]) -> str:
        self.snapshot()
        stored = self.memory.remember(text, tags=tags)
        self.rows[stored.id] = {"text": text, "tags": tuple(tags), "state": "active"}
        return stored.id

    @rule(target=ids, texts=st.lists(words, min_size=1, max_size=3), fails=st.booleans())
    def unit(self, texts: list[str], fails: bool) -> Any:
        before = {k: dict(v) for k, v in self.rows.items()}
        added = []
        try:
            with self.memory.unit("unit"):
                for text in texts:
                    stored = self.memory.remember(text)
                    added.append(stored.id)
                    self.rows[stored.id] = {"text": text, "tags": (), "state": "active"}
                    self.check()
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            self.rows = before
            return multiple()
        self.past.append((before, dict(self.links)))
        return multiple(*added)

    def change(self, identity: str, **changes: Any) -> None:
        row = self.rows.get(identity)
        if row is None:
            with pytest.raises(NotFound):
                self.memory.revise(identity, **changes)
            return
        new = {**row, **changes}
        if new != row:
            self.snapshot()
        self.memory.revise(identity, **changes)
        self.rows[identity] = new

    @rule(identity=ids, text=words)
    def revise_text(self, identity: str, text: str) -> None:
        self.change(identity, text=text)

    @rule(identity=ids, tags=tags)
    def revise_tags(self, identity: str, tags: list[str]) -> None:
        self.change(identity, tags=tuple(tags))

    @rule(identity=ids, state=st.sampled_from(ANY_STATE))
    def revise_state(self, identity: str, state: str) -> None:
        self.change(identity, state=state)

    @rule(identity=ids)
    def forget(self, identity: str) -> None:
        if identity in self.rows:
            if self.rows[identity]["state"] != "archived":
                self.snapshot()
            self.memory.forget(identity)
            self.rows[identity]["state"] = "archived"

    @rule(identity=ids)
    def restore(self, identity: str) -> None:
        if identity in self.rows:
            if self.rows[identity]["state"] != "active":
                self.snapshot()
            self.memory.restore(identity)
            self.rows[identity]["state"] = "active"

    @rule(one=ids, other=ids)
    def link(self, one: str, other: str) -> None:
        if one == other or one not in self.rows or other not in self.rows:
            return
        if (one, other) in self.links:
            with pytest.raises(Conflict):
                self.memory.links.add(one, other, "knows")
            return
        self.snapshot()
        self.memory.links.add(one, other, "knows", weight=0.5)
        self.links[one, other] = 0.5

    @rule()
    def undo(self) -> None:
        if self.past:
            self.memory.undo()
            self.rows, self.links = self.past.pop()
        elif not self.purged:
            with pytest.raises(NotFound):
                self.memory.undo()

    @rule()
    def undo_and_redo(self) -> None:
        if self.past:
            self.memory.undo(self.memory.undo().id)

    @rule(identity=consumes(ids))
    def purge(self, identity: str) -> None:
        if identity not in self.rows:
            return
        self.memory.purge(identity)
        del self.rows[identity]
        self.links = {ends: w for ends, w in self.links.items() if identity not in ends}
        # Operations before it can no longer be undone whole: the past begins anew.
        self.past, self.purged = [], True

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = Commonplace(self.path, embedding="none")

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "memory"):
            return
        everything = self.memory.browse(states=ANY_STATE, limit=1_000)[0]
        shown = {m.id: {"text": m.text, "tags": m.tags, "state": m.state} for m in everything}
        assert shown == self.rows
        live = self.live()
        assert {m.id for m in self.memory.browse(limit=1_000)[0]} == set(live)
        for identity, row in self.rows.items():
            assert self.memory.get(identity, count=False).text == row["text"]
        for word in WORDS:
            expected = {k for k, row in live.items() if word in row["text"]}
            hits = self.memory.recall(word, limit=1_000, weighting=UNLINKED, count=False)
            assert {hit.memory.id for hit in hits} == expected
            assert {m.id for m in self.memory.find_text(word[:4])[0]} == expected
        for tag in TAGS:
            expected = {k for k, row in live.items() if tag in row["tags"]}
            assert {m.id for m in self.memory.browse(tags_any=[tag])[0]} == expected
        ends = {(link.source, link.target): link.weight for link in self.memory.links.of()}
        assert ends == self.links


TestEngine = Engine.TestCase
TestEngine.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
