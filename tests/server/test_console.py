"""The operations behind the console's pages: what they show, what they change, what they refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import time_machine

from commonplace import Commonplace, Line
from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES, SCOPES
from commonplace.access.credentials import CODE_SECONDS, Grant
from commonplace.engine.model import Origin
from server.harness import Client, Running, cli

ROOT = "/api/console"


class Person:
    """Somebody with a space of their own, who calls the console's operations."""

    def __init__(self, server: Running, space: str, **grant: Any) -> None:
        self.memory = Commonplace(library=server.parts.library, space=space)
        self.client: Client = server.client(server.token(space, **grant))

    def get(self, path: str, status: int = 200) -> Any:
        return self.ask("GET", path, None, status)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.ask("POST", path, body or {}, status)

    def ask(self, method: str, path: str, body: Any, status: int = 200) -> Any:
        answer = self.client.request(method, ROOT + path, body)
        assert answer.status == status, answer.body
        return answer.json


@pytest.fixture
def ada(server: Running, request: pytest.FixtureRequest) -> Iterator[Person]:
    yield Person(server, f"s{abs(hash(request.node.name)) % 10**9}")


def test_who_is_here_is_what_the_credential_says(server: Running, ada: Person) -> None:
    told = ada.get("/me")
    assert (told["space"], told["local"]) == (ada.memory.name, False)
    assert told["scopes"] == ["read", "write", "delete", "admin"]
    here = server.client().request("GET", f"{ROOT}/me").json
    assert (here["space"], here["local"]) == ("default", True)


def test_the_list_can_be_filtered_and_paged(ada: Person) -> None:
    codex = Origin(client="codex")
    for number in range(12):
        ada.memory.remember(
            f"note {number}", kind="note" if number % 2 else "decision", tags=[f"t{number % 3}"],
            origin=codex if number < 3 else None, pinned=number == 5,
            trust="external" if number == 7 else "stated",
        )  # fmt: skip
    hidden = ada.memory.remember("out of sight").id
    ada.memory.forget(hidden)

    def found(query: str) -> tuple[list[str], int]:
        told = ada.get(f"/memories?{query}")
        return ["".join(one["excerpt"]) for one in told["memories"]], told["total"]

    assert found("limit=2&offset=2") == (["note 9", "note 8"], 12)
    assert found("kind=decision&order=oldest&limit=1") == (["note 0"], 6)
    assert found("tag=t1&limit=1") == (["note 10"], 4)
    assert found("client=codex&limit=1") == (["note 2"], 3)
    assert found("trust=external") == (["note 7"], 1)
    assert found("pinned=true") == (["note 5"], 1)
    assert found("state=archived") == (["out of sight"], 1)
    assert found("state=any&limit=1") == (["out of sight"], 13)
    ada.get("/memories?limit=201", 400)
    ada.get("/memories?offset=-1", 400)
    ada.get("/memories?state=gone", 400)
    ada.get("/memories?colour=red", 400)
    ada.get("/memories?since=yesterday", 400)


def test_search_tells_why_and_marks_words_in_their_own_form(ada: Person) -> None:
    ada.memory.remember("The volunteers were counting gulls at dawn.")
    ada.memory.remember("Nothing of the kind.")
    (hit, *_) = ada.get("/search?q=count%20gull")["memories"]
    marked = hit["excerpt"][1::2]
    assert marked == ["counting", "gulls"]
    assert "".join(hit["excerpt"]) == "The volunteers were counting gulls at dawn."
    assert hit["why"]["lexical"] > 0 and "words: " in hit["why"]["text"]
    accesses = ada.memory.usage(hit["id"]).accesses
    assert accesses == 0  # a person's look is no read
    ada.get("/search", 400)


def test_search_marks_what_is_only_linked_with_a_result(ada: Person) -> None:
    gulls = ada.memory.remember("The gulls nest on the north cliff.")
    keys = ada.memory.remember("Ask Miriam for the budget sheet.")
    ada.memory.links.add(gulls.id, keys.id, "relates_to", weight=1.0)
    first, second = ada.get("/search?q=where%20do%20gulls%20nest")["memories"]
    assert (first["id"], first["companion"]) == (gulls.id, "")
    assert (second["id"], second["companion"]) == (keys.id, "linked")
    assert second["probability"] < 0.33 < first["probability"]
    assert "linked with a result" in second["why"]["text"]


def test_search_by_session_gives_sessions_with_their_best_line(ada: Person) -> None:
    for session, text in (("monday", "We counted gulls."), ("friday", "We painted the boat.")):
        for words in (text, "See you."):
            ada.memory.conversations.add("log", Line(speaker="ann", text=words, session=session))
    (hit, *_) = ada.get("/search?q=gulls&by=session")["memories"]
    assert (hit["conversation"], hit["session"]) == ("log", "monday")
    assert hit["excerpt"][1::2] == ["gulls"] and 0 < hit["score"] <= 1
    assert len(ada.get("/search?q=gulls&by=session&limit=1")["memories"]) == 1
    ada.get("/search?q=gulls&by=day", 400)


def test_one_memory_has_everything_about_it(ada: Person) -> None:
    first = ada.memory.remember("We ship on Fridays.", kind="decision", tags=["release"])
    second = ada.memory.supersede(first.id, "We ship on Tuesdays.")
    ada.client.call("recall", {"query": "ship"})
    told = ada.get(f"/memories/{second.id}")
    assert told["memory"]["text"] == "We ship on Tuesdays."
    (link,) = told["links"]
    assert (link["kind"], link["other"]["id"]) == ("supersedes", first.id)
    assert link["other"]["state"] == "superseded"
    ada.memory.revise(second.id, "We ship on Mondays.")
    versions = ada.get(f"/memories/{second.id}/versions")["versions"]
    assert [one["text"] for one in versions] == ["We ship on Mondays.", "We ship on Tuesdays."]
    assert versions[1]["until"] == versions[0]["since"]
    (called,) = ada.get(f"/memories/{second.id}/calls")["calls"]
    assert (called["tool"], called["client"]) == ("recall", "tests/1")
    ada.get("/memories/nothing", 404)
    ada.get("/memories/nothing/versions", 404)
    ada.get("/memories/nothing/calls", 404)


def test_a_memory_is_shown_as_it_was(ada: Person) -> None:
    one = ada.memory.remember("as it was")
    then = one.updated_at.isoformat().replace("+00:00", "Z")
    ada.memory.revise(one.id, "as it is")
    ada.memory.remember("later")
    assert ada.get(f"/memories/{one.id}?as_of={then}")["memory"]["text"] == "as it was"
    assert ada.get(f"/memories?as_of={then}")["total"] == 1
    assert ada.get(f"/overview?as_of={then}")["total"] == 1
    assert ada.get("/overview")["total"] == 2
    (hit,) = ada.get(f"/search?q=was&as_of={then}")["memories"]
    assert hit["why"]["as_it_was"]


def test_two_people_who_edit_one_memory_do_not_overwrite_each_other(ada: Person) -> None:
    one = ada.memory.remember("draft", occurred_at="2026-01-02")
    path, body = f"/memories/{one.id}", {"version": one.version, "text": "mine"}
    changed = ada.ask("PATCH", path, body)
    assert changed["memory"]["text"] == "mine"
    told = ada.ask("PATCH", path, {**body, "text": "theirs"}, 409)
    assert told["error"]["code"] == "CONFLICT"
    assert ada.memory.get(one.id).text == "mine"
    version = changed["memory"]["version"]
    ada.ask("PATCH", path, {"version": version}, 400)
    ada.ask("PATCH", path, {"text": "without a version"}, 400)
    ada.ask("PATCH", path, {"version": version, "text": ""}, 400)
    cleared = ada.ask("PATCH", path, {"version": version, "occurred_at": None, "tags": ["a"]})
    assert (cleared["memory"]["occurred_at"], cleared["memory"]["tags"]) == (None, ["a"])


def test_several_are_changed_as_one_operation_that_can_be_undone(ada: Person) -> None:
    ids = [ada.memory.remember(f"note {number}", tags=["old"]).id for number in range(3)]
    for path, body, changed in (
        ("/memories/tags", {"add": ["new"], "remove": ["old"]}, lambda one: one.tags == ("new",)),
        ("/memories/pin", {"pinned": True}, lambda one: one.pinned),
        ("/memories/hide", {}, lambda one: one.state == "archived"),
    ):
        told = ada.post(path, {"ids": ids, **body})
        assert all(changed(ada.memory.get(each)) for each in ids)
        ada.post(f"/operations/{told['operation']}/undo")
        assert not any(changed(ada.memory.get(each)) for each in ids)
    ada.post("/memories/hide", {"ids": ids})
    ada.post("/memories/restore", {"ids": ids})
    assert ada.get("/memories")["total"] == 3
    ada.post("/memories/tags", {"ids": ids}, 400)
    ada.post("/memories/hide", {"ids": []}, 400)
    ada.post("/memories/hide", {"ids": [*ids, "nothing"]}, 404)
    assert ada.get("/memories")["total"] == 3
    ada.post("/memories/hide", {"ids": ["x"] * 201}, 400)


def test_a_purge_needs_its_word_and_leaves_nothing(server: Running, ada: Person) -> None:
    one = ada.memory.remember("a secret that must go")
    ada.post("/memories/purge", {"ids": [one.id]}, 400)
    ada.post("/memories/purge", {"ids": [one.id], "confirm": "yes"}, 400)
    member = Person(server, ada.memory.name, scopes=FULL_SCOPES)
    member.post("/memories/purge", {"ids": [one.id], "confirm": "purge"}, 403)
    assert ada.memory.get(one.id)
    told = ada.post("/memories/purge", {"ids": [one.id], "confirm": "purge"})
    assert told["memories"] == 1
    ada.get(f"/memories/{one.id}", 404)
    ada.get(f"/memories/{one.id}/versions", 404)


def test_what_a_person_adds_is_stated_and_trust_is_raised_by_an_operator(
    server: Running, ada: Person
) -> None:
    told = ada.post("/memories", {"text": "I like tea.", "kind": "preference"}, 201)
    assert ada.memory.get(told["ids"][0]).trust == "stated"
    guess = ada.memory.remember("She may like tea.", trust="inferred")
    member = Person(server, ada.memory.name, scopes=FULL_SCOPES)
    member.post(f"/memories/{guess.id}/trust", {"trust": "stated"}, 403)
    ada.post(f"/memories/{guess.id}/trust", {"trust": "stated"})
    assert ada.memory.get(guess.id).trust == "stated"
    other = told["ids"][0]
    link = {"source": guess.id, "target": other, "kind": "supports"}
    made = ada.post("/links", link, 201)
    assert [each.kind for each in ada.memory.links.of(other)] == ["supports"]
    ada.ask("DELETE", f"/links/{made['id']}", None)
    assert ada.memory.links.of(other) == []


def test_an_undo_is_shown_before_it_is_made(ada: Person) -> None:
    one = ada.memory.remember("first")
    ada.memory.revise(one.id, "second")
    newest, oldest = ada.get("/operations")["operations"]
    before = ada.memory.get(one.id)
    shown = ada.get(f"/operations/{newest['id']}/undo")
    (change,) = shown["changes"]
    assert ["".join(change[side]["excerpt"]) for side in ("before", "after")] == ["second", "first"]
    assert "text" in change["fields"]
    assert ada.memory.get(one.id) == before  # nothing was done
    assert len(ada.get("/operations")["operations"]) == 2
    told = ada.get(f"/operations/{oldest['id']}/undo", 409)
    assert "later operation" in told["error"]["message"]
    ada.post(f"/operations/{newest['id']}/undo")
    assert ada.memory.get(one.id).text == "first"
    ada.get("/operations/nothing/undo", 404)
    ada.post("/operations/nothing/undo", status=404)
    ada.get("/operations/nothing", 404)


def test_what_changed_between_two_moments(ada: Person) -> None:
    kept = ada.memory.remember("kept")
    gone = ada.memory.remember("will go")
    told = ada.get("/operations")
    start = told["operations"][0]["at"]
    assert (told["first"], told["last"]) == tuple(
        ada.get("/operations")["operations"][at]["seq"] for at in (-1, 0)
    )
    ada.memory.revise(kept.id, "kept, and changed")
    ada.memory.forget(gone.id)
    ada.memory.links.add(kept.id, gone.id, "follows")
    end = ada.get("/operations")["operations"][0]["at"]
    found = ada.get(f"/changes?since={start}&until={end}")
    assert [(each["table"], each["fields"]) for each in found["changes"]] == [
        ("memories", ["text"]), ("memories", ["state"]), ("links", []),
    ]  # fmt: skip
    assert (found["total"], found["complete"]) == (3, True)
    assert ada.get(f"/changes?since={end}&until={end}")["changes"] == []
    ada.get(f"/changes?since={end}&until={start}", 400)
    page = ada.get(f"/operations?limit=1&before={told['last']}")["operations"]
    assert [each["seq"] for each in page] == [told["first"]]


def test_the_overview_adds_up(ada: Person) -> None:
    for number in range(4):
        ada.memory.remember(f"note {number}", kind="note", origin=Origin(client="codex"))
    ada.memory.remember("a decision", kind="decision", pinned=True)
    ada.memory.forget(ada.memory.remember("hidden").id)
    ada.client.call("recall", {"query": "note"})
    browser = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0"}
    assert ada.client.request("GET", "/v1/beings", headers=browser).status == 200  # a page asks
    told = ada.get("/overview")
    assert (told["total"], told["pinned"]) == (5, 1)
    assert told["kinds"] == [["note", 4], ["decision", 1]]
    assert dict(told["states"]) == {"active": 5, "archived": 1}
    assert told["clients"] == [["codex", 4]]
    assert sum(many for _, many in told["days"]) == 5 and len(told["days"]) == 84
    (use,) = told["use"]["today"]
    assert (use["tool"], use["calls"], use["refused"]) == ("recall", 1, 0)
    assert [one["client"] for one in told["use"]["clients"]] == ["tests/1"]
    assert len(told["recent"]) == 5


def test_the_document_describes_every_route(server: Running) -> None:
    told = json.loads(server.client().request("GET", f"{ROOT}/openapi.json").body)
    assert set(told["paths"]) >= {"/me", "/memories/{id}", "/operations/{operation}/undo"}
    assert set(told["paths"]["/operations/{operation}/undo"]) == {"get", "post"}


# The one-time code of `commonplace open`


def _sign_in(server: Running, code: str) -> Any:
    origin = {"origin": f"http://127.0.0.1:{server.port}"}
    return server.client().request("POST", "/sign-in", {"code": code}, origin)


def test_a_code_opens_one_session_of_its_space(server: Running) -> None:
    credentials = server.parts.tokens.credentials
    code = credentials.create_code(Grant(space="other", scopes=ALL_SCOPES))
    first, second = _sign_in(server, code), _sign_in(server, code)
    assert (first.status, second.status) == (200, 401)
    assert (first.json["space"], first.json["scopes"]) == ("other", list(SCOPES))
    # It is accepted for nothing else.
    fresh = credentials.create_code(Grant(space="other", scopes=ALL_SCOPES))
    assert server.client(fresh).request("GET", f"{ROOT}/me").status == 401
    cookie = {"cookie": f"commonplace_session={fresh}"}
    told = server.client().request("GET", f"{ROOT}/me", headers=cookie).json
    assert told["space"] == "default"
    assert _sign_in(server, "cpc_guess").status == 401
    assert _sign_in(server, "").status == 401


def test_a_code_ends_after_a_minute(server: Running) -> None:
    made = server.parts.tokens.credentials.create_code(Grant(space="other"))
    with time_machine.travel(time.time() + CODE_SECONDS + 1):
        assert _sign_in(server, made).status == 401
    kept = server.parts.tokens.credentials.create_code(Grant(space="other"))
    with time_machine.travel(time.time() + CODE_SECONDS - 5):
        assert _sign_in(server, kept).status == 200


def test_a_code_is_used_once_by_many_at_the_same_time(server: Running) -> None:
    code = server.parts.tokens.credentials.create_code(Grant(space="other"))
    with ThreadPoolExecutor(8) as pool:
        statuses = [
            answer.status for answer in pool.map(lambda _: _sign_in(server, code), range(8))
        ]
    assert sorted(statuses) == [200, *[401] * 7]


def test_open_prints_an_address_that_signs_in(server: Running) -> None:
    Commonplace(library=server.parts.library).remember("so that there is a memory")
    data, url = str(server.settings.data), f"http://127.0.0.1:{server.port}"
    ended = cli("open", "--data", data, "--url", url, "--print")
    assert ended.returncode == 0, ended.stderr
    base, _, code = ended.stdout.strip().partition("#code=")
    assert base == f"{url}/viewer"
    assert _sign_in(server, code).json["space"] == "default"
    nobody = cli("open", "--data", data, "--url", "http://127.0.0.1:9", "--print")
    assert (nobody.returncode, nobody.stdout) == (5, "")
    assert "commonplace serve" in nobody.stderr
    calls = [call for call in server.calls("system") if call.tool == "open"]
    assert calls and code not in str(calls)


def test_the_list_on_the_command_line(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    for number in range(3):
        kind = "decision" if number else "note"
        cli("remember", f"memory {number}", "--kind", kind, "--embedding", "none", *data)
    listed = cli("list", *data)
    assert [line.split()[2] for line in listed.stdout.splitlines()[::2]] == ["2", "1", "0"]
    assert cli("list", "--limit", "1", *data).stderr == (
        "2 more; see them with --limit, or --offset 1.\n"
    )
    told = cli("list", "--kind", "note", "--json", *data).stdout.splitlines()
    assert [json.loads(line)["text"] for line in told] == ["memory 0"]
    none = cli("list", "--state", "archived", *data)
    assert (none.returncode, none.stderr) == (1, "nothing found\n")
    assert cli("list", "--order", "sideways", *data).returncode == 2
    assert cli("list", "--state", "lost", *data).returncode == 2


def test_a_new_token_is_in_no_stored_answer_and_in_no_audit_entry(
    server: Running, ada: Person
) -> None:
    body = {"name": "laptop", "scope": "read-only", "dialects": ["commonplace"], "days": 30}
    key = {"idempotency-key": "a key"}
    first = ada.client.request("POST", f"{ROOT}/tokens", body, key)
    assert first.status == 201
    token, credential = first.json["token"], first.json["credential"]
    again = ada.client.request("POST", f"{ROOT}/tokens", body, key).json
    assert again == {"token": None, "credential": credential}  # made once, and shown once
    assert [one["name"] for one in ada.get("/tokens")["tokens"] if one["name"]] == ["laptop"]
    told = server.client(token).request("GET", f"{ROOT}/me").json
    assert (told["space"], told["scopes"]) == (ada.memory.name, ["read"])
    with server.parts.library.lease(ada.memory.name) as space, space.store.read() as rows:
        stored = [
            str(rows.execute(f"SELECT * FROM {table}").fetchall()) for table in ("answers", "audit")
        ]
    assert all(credential["id"] in each and token not in each for each in stored)


def test_a_token_allows_no_more_than_its_maker_may(server: Running, ada: Person) -> None:
    narrow = Person(server, ada.memory.name, dialects=frozenset({"server", "commonplace"}))
    made = narrow.post("/tokens", {"scope": "admin"}, 201)["credential"]
    assert (made["scope"], made["dialects"]) == ("admin", ["commonplace", "server"])
    narrow.post("/tokens", {"dialects": ["being"]}, 403)
    Person(server, ada.memory.name, scopes=FULL_SCOPES).post("/tokens", {}, 403)
    before = len(ada.get("/tokens")["tokens"])
    for wrong in ({"days": 0}, {"days": 3_661}, {"name": "n" * 101}, {"scope": "all"},
                  {"dialects": ["klingon"]}, {"space": "other"}):  # fmt: skip
        ada.post("/tokens", wrong, 400)
    assert len(ada.get("/tokens")["tokens"]) == before
    for right in ({"days": 1}, {"days": 3_660}, {"name": "n" * 100}):
        ada.post("/tokens", right, 201)


def test_sample_memories_are_put_aside_and_deleted(server: Running, ada: Person) -> None:
    ada.memory.remember("mine")
    made = ada.post("/demo", status=201)
    assert ada.post("/demo", status=201)["space"] == made["space"]  # they are there already
    browser = server.client()
    signed_in = _sign_in(server, made["code"])
    assert signed_in.json["space"] == made["space"]
    cookie = (signed_in.header("set-cookie") or "").partition(";")[0]
    browser.headers = {
        "cookie": cookie, "x-csrf-token": signed_in.json["csrf_token"],
        "origin": f"http://127.0.0.1:{server.port}",
    }  # fmt: skip
    assert browser.request("GET", f"{ROOT}/me").json["demo"] is True
    assert browser.request("GET", f"{ROOT}/overview").json["total"] == 24
    assert browser.request("POST", f"{ROOT}/demo", {}).status == 409
    assert ada.ask("DELETE", "/demo", None, 400)["error"]["code"] == "INVALID_INPUT"
    assert browser.request("DELETE", f"{ROOT}/demo").status == 200
    assert browser.request("GET", f"{ROOT}/me").json["space"] == "default"  # it is signed out
    assert made["space"] not in server.parts.library.spaces()
    assert ada.memory.browse()[1] == 1
    calls = [call for call in server.calls(ada.memory.name) if call.tool == "console_demo"]
    assert len(calls) == 2 and made["code"] not in str(calls)


def test_memories_that_are_no_samples_are_left_alone(server: Running, ada: Person) -> None:
    space = ada.post("/demo", status=201)["space"]
    own = Person(server, space)
    own.ask("DELETE", "/demo", None, 200)
    mine = Commonplace(library=server.parts.library, space=space).remember("not a sample")
    assert ada.post("/demo", status=409)["error"]["code"] == "CONFLICT"
    assert Commonplace(library=server.parts.library, space=space).get(mine.id).text == mine.text


def test_looking_at_a_memory_hides_no_call_that_returned_it(ada: Person) -> None:
    one = ada.memory.remember("Looked at often.")
    ada.client.call("recall", {"query": "looked at often"})
    for _ in range(51):
        ada.get(f"/memories/{one.id}")
    assert [call["tool"] for call in ada.get(f"/memories/{one.id}/calls")["calls"]] == ["recall"]
