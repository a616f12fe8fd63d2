"""The console's operations for proposals, projects, imports and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace, Line, NotFound
from commonplace.engine.binding import engine_call
from commonplace.engine.history.imports import imports
from commonplace.engine.maintenance import secret_scan
from commonplace.importers import registry, storing
from commonplace.platform import review
from server.harness import Client, Running

ROOT = "/api/console"
KEY = "AKIA" + "Q7RSTUVWXYZ2345A"
UNKNOWN = "00000000-0000-7000-8000-000000000000"


class Person:
    """Somebody with a space of their own."""

    def __init__(self, server: Running, space: str, **grant: Any) -> None:
        self.memory = Commonplace(library=server.parts.library, space=space)
        self.client: Client = server.client(server.token(space, **grant))

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.client.request(method, ROOT + path, body)
        assert answer.status == status, answer.body
        return answer.json

    def say(self, *texts: str, project: str = "shop") -> None:
        lines = [Line(speaker="user", text=text, tags=[f"project:{project}"]) for text in texts]
        review.propose(self.memory, self.memory.conversations.add("talk", *lines))

    def waiting(self) -> dict[str, str]:
        """Proposals by their text."""
        return {one["text"]: one["id"] for one in self.ask("GET", "/proposals")["proposals"]}


@pytest.fixture
def ada(server: Running, request: pytest.FixtureRequest) -> Iterator[Person]:
    yield Person(server, f"c{abs(hash(request.node.name)) % 10**9}")


def test_the_inbox_lists_accepts_edits_and_rejects_and_each_is_undone(ada: Person) -> None:
    ada.say("Well. We decided to use Redis.", "Never push on Fridays.", "My name is Ada.")
    told = ada.ask("GET", "/proposals?limit=2")
    assert (told["total"], len(told["proposals"])) == (3, 2)
    found = {one["text"]: one for one in ada.ask("GET", "/proposals")["proposals"]}
    redis = found["We decided to use Redis."]
    assert redis["line"] == "Well. We decided to use Redis."
    assert (redis["kind"], redis["tags"]) == ("decision", ["project:shop"])

    done = ada.ask("POST", "/proposals/accept", {"ids": [redis["id"]], "text": "We use Redis."})
    (stored,) = [ada.memory.get(one) for one in done["ids"]]
    assert (stored.text, stored.kind, stored.trust) == ("We use Redis.", "decision", "stated")
    assert len(ada.waiting()) == 2
    ada.ask("POST", "/proposals/accept", {"ids": [redis["id"]]}, status=400)
    ada.ask("POST", f"/operations/{done['operation']}/undo")
    assert "We decided to use Redis." in ada.waiting()
    with pytest.raises(NotFound):
        ada.memory.get(stored.id)

    name = found["My name is Ada."]
    path = f"/proposals/{name['id']}"
    changed = {"text": "My name is Ida.", "version": name["version"]}
    ada.ask("PATCH", path, changed)
    assert "My name is Ida." in ada.waiting()
    ada.ask("PATCH", path, changed, status=409)  # somebody else's words are not overwritten
    both = list(ada.waiting().values())
    gone = ada.ask("POST", "/proposals/reject", {"ids": both})
    assert ada.waiting() == {} and ada.ask("GET", "/overview")["proposals"] == 0
    ada.ask("POST", f"/operations/{gone['operation']}/undo")
    assert len(ada.waiting()) == 3


def test_a_decision_that_cannot_be_made_changes_nothing(ada: Person, server: Running) -> None:
    ada.say("We decided to use Redis.", "Never push on Fridays.")
    note = ada.memory.remember("an ordinary note").id
    one, other = ada.waiting().values()
    before = ada.memory.history.operations(limit=1)[0].id
    for action in ("accept", "reject"):
        ada.ask("POST", f"/proposals/{action}", {"ids": [one, note]}, status=400)
        ada.ask("POST", f"/proposals/{action}", {"ids": [one, UNKNOWN]}, status=404)
        ada.ask("POST", f"/proposals/{action}", {"ids": []}, status=400)
        ada.ask("POST", f"/proposals/{action}", {"ids": [one] * 201}, status=400)
    ada.ask("POST", "/proposals/accept", {"ids": [one, other], "text": "both"}, status=400)
    ada.ask("PATCH", f"/proposals/{one}", {"text": "", "version": 1}, status=400)
    assert ada.memory.history.operations(limit=1)[0].id == before and len(ada.waiting()) == 2
    reader = server.client(server.token(ada.memory.name, scopes=frozenset({"read"})))
    assert reader.request("POST", f"{ROOT}/proposals/accept", {"ids": [one]}).status == 403


def test_memories_are_counted_and_filtered_by_project(ada: Person) -> None:
    for name, many in (("github.com/acme/api", 2), ("shop", 1)):
        for number in range(many):
            ada.memory.remember(f"{name} {number}", tags=[f"project:{name}", "branch:main"])
    ada.memory.remember("of no project")
    assert ada.ask("GET", "/overview")["projects"] == [["github.com/acme/api", 2], ["shop", 1]]

    def texts(query: str) -> list[str]:
        found = ada.ask("GET", query)["memories"]
        return sorted("".join(one["excerpt"]) for one in found)

    assert texts("/memories?project=shop") == ["shop 0"]
    assert texts("/memories?project=github.com%2Facme%2Fapi&tag=branch:main") == [
        "github.com/acme/api 0", "github.com/acme/api 1",
    ]  # fmt: skip
    assert texts("/memories?project=-") == ["of no project"]
    assert texts("/search?q=shop&project=shop") == ["shop 0"]
    assert texts("/memories?project=other") == []


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"Note {n}."}) + "\n" for n in range(300)))
    return file


def test_imports_are_listed_undone_as_one_and_brought_back(ada: Person, notes: Path) -> None:
    assert ada.ask("GET", "/imports") == {"imports": []}
    for number in range(2):
        done = registry.run_import(
            ada.memory, notes, "jsonl", origin=storing.import_origin(), trust="stated"
        )
        assert done.added == (0 if number else 300)
    (one,) = ada.ask("GET", "/imports")["imports"]  # the second found nothing new
    assert (one["sources"], one["memories"], one["undone_by"]) == (["jsonl"], 300, None)
    assert len(done.operations) == 0 and one["began"] <= one["ended"]

    ada.ask("POST", f"/operations/{one['operation']}/undo")
    assert ada.ask("GET", "/overview")["total"] == 0
    (undone,) = ada.ask("GET", "/imports")["imports"]
    assert undone["undone_by"] and undone["memories"] == 300
    ada.ask("POST", f"/operations/{undone['undone_by']}/undo")
    assert ada.ask("GET", "/overview")["total"] == 300
    (back,) = ada.ask("GET", "/imports")["imports"]
    assert back["undone_by"] is None
    ada.ask("POST", f"/operations/{back['operation']}/undo")  # a second time
    assert ada.ask("GET", "/imports")["imports"][0]["undone_by"] not in (None, undone["undone_by"])

    found = engine_call(ada.memory, imports, before=one["seq"])
    assert found == [] and ada.ask("GET", f"/imports?before={one['seq']}")["imports"] == []
    ada.ask("GET", "/imports?limit=101", status=400)


def test_secrets_are_found_and_purged_with_the_word_alone(ada: Person, server: Running) -> None:
    library = server.parts.library
    allowed, library.allow_secrets = library.allow_secrets, True
    try:
        held = ada.memory.remember(f"The key is {KEY}.", tags=["project:shop"])
        ada.memory.facts.add("deploy", "uses", f"key {KEY}")
    finally:
        library.allow_secrets = allowed
    clean = ada.memory.remember("nothing to see")
    told = ada.ask("GET", "/secrets")
    assert (told["total"], told["memories"]) == (2, 1)
    assert {one["what"] for one in told["secrets"]} == {"memory", "fact"}
    assert KEY not in json.dumps(told)

    path = "/secrets/purge"
    for body in ({"ids": [held.id]}, {"ids": [held.id], "confirm": "yes"}, {"confirm": "purge"}):
        ada.ask("POST", path, body, status=400)
    ada.ask("POST", path, {"ids": [held.id, UNKNOWN], "confirm": "purge"}, status=404)
    assert ada.memory.browse()[1] == 2, "no copy is stored if nothing can be purged"
    assert ada.memory.get(held.id).text.endswith(f"{KEY}.")
    done = ada.ask("POST", path, {"ids": [held.id, held.id], "confirm": "purge"})
    assert done["memories"] == 1 and done["traces"] in (0, None)
    copy = ada.memory.get(done["stored"][held.id])
    assert KEY not in copy.text and copy.tags == ("project:shop",)
    assert [one["what"] for one in ada.ask("GET", "/secrets")["secrets"]] == ["fact"]
    assert ada.memory.get(clean.id).version == clean.version
    writer = server.client(server.token(ada.memory.name, scopes=frozenset({"read", "write"})))
    assert writer.request("GET", f"{ROOT}/secrets").status == 403


def test_a_purge_of_secrets_refuses_what_is_not_there(ada: Person) -> None:
    one = ada.memory.remember("kept")
    with pytest.raises(NotFound):
        engine_call(ada.memory, secret_scan.purge_secrets, [one.id, UNKNOWN])
    assert ada.memory.browse()[1] == 1
