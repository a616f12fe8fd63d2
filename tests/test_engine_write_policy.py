"""Secrets are masked on every way in, and old ones are found and purged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import postgres_engine
from commonplace import Commonplace, Draft, InvalidInput, Library, Line
from commonplace.cli.app import run
from commonplace.engine.binding import engine_call
from commonplace.engine.content import write_policy
from commonplace.engine.maintenance import secret_scan
from commonplace.engine.transfer import importing

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
MARK = "[masked: github token]"


@pytest.fixture
def allowing(tmp_path: Path) -> Commonplace:
    return Commonplace(tmp_path / "open", embedding="none", allow_secrets=True)


def test_every_way_of_storing_masks(memory: Commonplace, tmp_path: Path) -> None:
    noticed: list[str] = []
    with write_policy.apply_policy(masked=noticed):
        first = memory.remember(f"use {TOKEN}", title=f"t {TOKEN}", attrs={"a": [TOKEN]})
        assert (first.text, first.title, first.attrs) == (f"use {MARK}", f"t {MARK}", {"a": [MARK]})
        assert memory.remember_many([Draft(text=TOKEN)])[0].text == MARK
        assert memory.revise(first.id, f"now {TOKEN}").text == f"now {MARK}"
        assert memory.supersede(first.id, TOKEN).text == MARK
        assert memory.conversations.add("c", Line(speaker="a", text=TOKEN))[0].memory.text == MARK
        made = memory.artifacts.create(f"text {TOKEN}", path="a.md")
        assert memory.artifacts.read(made.id)[1].content == f"text {MARK}".encode()
        memory.artifacts.update(made.id, f"again {TOKEN}".encode())
        assert memory.artifacts.read(made.id)[1].content == f"again {MARK}".encode()
        assert memory.facts.add("ann", "uses", TOKEN).object == MARK
        memory.events.record("seen", payload={"token": TOKEN})
        assert memory.events.all()[0].payload == {"token": MARK}
        (tmp_path / "notes.jsonl").write_text(json.dumps({"text": f"imported {TOKEN}"}) + "\n")
        engine_call(memory, importing.import_file, tmp_path / "notes.jsonl", origin=memory.origin,
                    trust_file=True)  # fmt: skip
    assert noticed == ["github token"] * 12
    assert memory.find_text(TOKEN)[1] == 0
    assert memory.find_text(f"imported {MARK}")[1] == 1


def test_secrets_in_fields_beside_the_text_are_masked(memory: Commonplace) -> None:
    noticed: list[str] = []
    with write_policy.apply_policy(masked=noticed):
        made = memory.remember(
            "x", tags=["ops", TOKEN], source=f"https://u:s3cr3t-Pw9@host/{TOKEN}"
        )
        assert made.tags == ("ops", MARK)
        assert made.source == f"https://u:[masked: password in an address]@host/{MARK}"
        assert memory.revise(made.id, tags=[TOKEN, f"{TOKEN}"]).tags == (MARK,)
        other = memory.remember("y")
        link = memory.links.add(made.id, other.id, "near", reason=TOKEN, attrs={"a": TOKEN})
        assert (link.reason, link.attrs) == (MARK, {"a": MARK})
        assert memory.links.revise(link.id, reason=f"now {TOKEN}").reason == f"now {MARK}"
        assert memory.supersede(other.id, "z", reason=TOKEN)
        assert all(TOKEN not in each.reason for each in memory.links.of())
        assert memory.clusters.create(TOKEN, digest=TOKEN).digest == MARK
        document = memory.artifacts.create("text", title=TOKEN)
        assert document.title == MARK
        memory.artifacts.update(document.id, "more", summary=TOKEN)
        assert memory.artifacts.versions(document.id)[-1].summary == MARK
        assert memory.artifacts.review(document.id, "approved", comments=TOKEN).comments == MARK
    assert len(noticed) == 13
    assert engine_call(memory, secret_scan.scan, secret_scan.finder_of_texts(TOKEN)) == []


def test_a_ref_with_a_secret_is_refused_and_one_that_only_looks_so_is_not(
    memory: Commonplace,
) -> None:
    with pytest.raises(InvalidInput, match="ref contains a secret"):
        memory.remember("x", ref=f"gh:{TOKEN}")
    made = memory.remember("x", ref="token:Ab3dEf6hIj9kLm2n", tags=["api_key:Ab3dEf6hIj9kLm2n"])
    assert (made.ref, made.tags) == ("token:Ab3dEf6hIj9kLm2n", ("api_key:Ab3dEf6hIj9kLm2n",))
    with pytest.raises(InvalidInput, match="ref contains a secret"):
        memory.revise(made.id, ref=TOKEN)
    assert engine_call(memory, secret_scan.scan) == []


def test_secrets_in_tags_refs_and_sources_are_found_and_purged(allowing: Commonplace) -> None:
    held = allowing.remember("x", tags=[TOKEN], ref=TOKEN, source=f"https://host/{TOKEN}")
    assert {each.id for each in engine_call(allowing, secret_scan.scan)} == {held.id}
    _, copies = engine_call(allowing, secret_scan.purge_secrets, [held.id])
    copy = allowing.get(copies[held.id])
    assert (copy.tags, copy.ref, copy.source) == ((MARK,), None, f"https://host/{MARK}")
    assert engine_call(allowing, secret_scan.scan) == []


def test_an_attribute_that_is_a_secret_by_its_name_is_masked_and_purged(
    memory: Commonplace, allowing: Commonplace
) -> None:
    attrs = {"login": {"user": "ann", "password": "hunter2pass"}, "port": "8080"}
    masked = {"login": {"user": "ann", "password": "[masked: password]"}, "port": "8080"}
    assert memory.remember("x", attrs=attrs).attrs == masked
    assert engine_call(memory, secret_scan.scan) == []
    held = allowing.remember("x", attrs=attrs)
    assert {each.id for each in engine_call(allowing, secret_scan.scan)} == {held.id}
    _, copies = engine_call(allowing, secret_scan.purge_secrets, [held.id])
    assert allowing.get(copies[held.id]).attrs == masked
    assert engine_call(allowing, secret_scan.scan) == []


def test_what_is_no_text_is_stored_as_it_is(memory: Commonplace) -> None:
    data = b"\x89PNG\0" + TOKEN.encode()
    made = memory.artifacts.create(data, path="p.png", media_type="image/png")
    assert memory.artifacts.read(made.id)[1].content == data


def test_who_must_can_store_secrets(allowing: Commonplace) -> None:
    noticed: list[str] = []
    with write_policy.apply_policy(masked=noticed):
        assert allowing.remember(TOKEN).text == TOKEN
        assert (
            allowing.artifacts.read(allowing.artifacts.create(TOKEN).id)[1].content
            == TOKEN.encode()
        )
    assert noticed == []


def test_the_setting_must_be_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Library(tmp_path, embedder=None, allow_secrets=1)  # type: ignore[arg-type]


def test_old_secrets_are_found_and_purged_with_proof(allowing: Commonplace) -> None:
    held = allowing.remember(f"deploy with {TOKEN} on Fridays", tags=["ops"], ref="deploy")
    former = allowing.remember(f"it was {TOKEN}")
    allowing.revise(former.id, "it is in the vault")
    allowing.remember("nothing here")
    allowing.artifacts.create(f"key: {TOKEN}", path="keys.md")
    found = engine_call(allowing, secret_scan.scan)
    assert [(each.what, each.id, each.kind, each.former) for each in found] == [
        ("memory", held.id, "github token", False),
        ("memory", former.id, "github token", True),
        ("artifact", "keys.md", "github token", False),
    ]
    assert found[0].excerpt == f"deploy with {MARK} on Fridays"
    allowing.close()
    memory = Commonplace(allowing.library.path, embedding="none")
    proof, copies = engine_call(memory, secret_scan.purge_secrets, [held.id, former.id])
    assert proof.memories == 2
    copy = memory.get(copies[held.id])
    assert (copy.text, copy.tags, copy.ref) == (
        f"deploy with {MARK} on Fridays",
        ("ops",),
        "deploy",
    )
    assert copy.created_at == held.created_at
    assert memory.get(copies[former.id]).text == "it is in the vault"
    memory.artifacts.delete("keys.md")
    assert [each.what for each in engine_call(memory, secret_scan.scan)] == ["artifact"]
    memory.close()


def test_the_command_line_says_what_it_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")

    def do(*args: str) -> tuple[int, str, str]:
        code = run(args)
        told = capsys.readouterr()
        return code, told.out, told.err

    code, out, err = do("remember", f"use {TOKEN}", "--json")
    assert code == 0 and "masked: github token; --allow-secrets" in err
    stored = json.loads(out)
    assert stored["text"] == f"use {MARK}" and stored["masked"] == ["github token"]
    assert do("scan") == (0, "no secrets found\n", "")
    code, out, err = do("revise", stored["id"], "--text", f"keep {TOKEN}", "--allow-secrets")
    assert code == 0 and err == ""
    code, out, err = do("scan", "--json")
    assert json.loads(out)["id"] == stored["id"] and TOKEN not in out
    assert do("scan", "--purge")[0] == 2, "nobody can be asked"
    code, out, err = do("scan", "--purge", "--yes")
    assert code == 0 and "purged 1 memory, stored 1 again with masked secrets" in out
    assert ("no traces" in out) != postgres_engine.ON_POSTGRES, "a database is not scanned"
    assert do("scan")[1] == "no secrets found\n"
    assert do("search", "keep", "--text")[1].count(MARK) == 1
