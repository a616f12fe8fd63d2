"""The audit's chain: what is kept of a call, and that nothing in it can be changed unseen."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import time_machine

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.history.audit import PAYLOAD_BYTES, Entry, capped_payload
from commonplace.errors import CommonplaceError
from commonplace.storage.sqlite import Store


def entry(**told: Any) -> Entry:
    return Entry(
        **{
            "request": "r1", "dialect": "commonplace", "tool": "remember", "caller": "ann",
            "credential": "c1", "client": "tests 1", "session": "s1", "address": "127.0.0.1",
            "success": True, "milliseconds": 3, "arguments": '{"text":"x"}', "result": "{}",
            **told,
        }
    )  # fmt: skip


@pytest.fixture
def store(memory: Commonplace) -> Iterator[Store]:
    with lease(memory) as space:
        yield space.store


@pytest.mark.parametrize("size", [0, 2, 4_095, 4_096])
def test_a_payload_within_the_limit_is_kept_as_it_is(size: int) -> None:
    assert capped_payload("x" * size) == "x" * size


@pytest.mark.parametrize("sign", ["x", "é", "€", "𝄞", '"', "\\", "\n", "\x00", "👩‍👩‍👧‍👦"])
@pytest.mark.parametrize("size", [4_097, 4_098, 4_099, 4_100, 5_000, 100_000])
def test_a_longer_payload_is_told_by_size_hash_and_head(sign: str, size: int) -> None:
    for lead in range(4):
        payload = "a" * lead + sign * (size // len(sign.encode()) + 1)
        data = payload.encode()
        kept = capped_payload(payload)
        assert len(kept.encode()) <= PAYLOAD_BYTES
        told = json.loads(kept)
        assert told["_truncated"] is True
        assert told["_original_size"] == len(data) > PAYLOAD_BYTES
        assert told["_limit"] == PAYLOAD_BYTES
        assert told["_sha256"] == hashlib.sha256(data).hexdigest()
        assert told["_head"] and payload.startswith(told["_head"])


@pytest.mark.parametrize(
    ("payload", "whole"),
    [
        ("é" * 2_047 + "x", True),
        ("é" * 2_048, True),
        ("é" * 2_048 + "x", False),
        ("€" * 1_365 + "x", True),
        ("€" * 1_365 + "é", False),
        ("𝄞" * 1_024, True),
        ("𝄞" * 1_024 + "x", False),
    ],
)
def test_the_limit_counts_bytes(payload: str, whole: bool) -> None:
    assert (capped_payload(payload) == payload) == whole


def test_the_head_uses_the_room_there_is() -> None:
    assert len(capped_payload("x" * 5_000).encode()) >= PAYLOAD_BYTES - 8
    assert len(capped_payload("é" * 5_000).encode()) >= PAYLOAD_BYTES - 8


def test_a_row_tells_all_that_it_was_given(store: Store) -> None:
    assert audit.append(store, entry(success=False, error="NOT_FOUND: none")) == 1
    (call,) = audit.listing(store)
    told = (call.request, call.dialect, call.tool, call.caller, call.credential, call.client)
    assert told == ("r1", "commonplace", "remember", "ann", "c1", "tests 1")
    assert (call.session, call.address, call.success) == ("s1", "127.0.0.1", False)
    assert (call.error, call.milliseconds, call.operation) == ("NOT_FOUND: none", 3, 0)
    assert (call.arguments, call.result) == ({"text": "x"}, {})


def test_a_row_names_the_operation_it_was_written_with(memory: Commonplace, store: Store) -> None:
    with memory.unit("test"):
        memory.remember("x")
        audit.append(store, entry())
    (call,) = audit.listing(store)
    assert call.operation > 0


def test_a_row_goes_with_its_unit(memory: Commonplace, store: Store) -> None:
    with pytest.raises(ZeroDivisionError), memory.unit("test"):
        memory.remember("never")
        audit.append(store, entry())
        raise ZeroDivisionError
    assert audit.listing(store) == []
    assert memory.browse()[1] == 0
    assert audit.verify(store).faults == ()


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"limit": 2}, [5, 4]),
        ({"tool": "recall"}, [4, 2]),
        ({"caller": "bob"}, [5, 3]),
        ({"success": True}, [5, 3, 1]),
        ({"success": False}, [4, 2]),
        ({"before": 3}, [2, 1]),
        ({"tool": "recall", "caller": "bob"}, []),
        ({"since": "2020-01-01"}, [5, 4, 3, 2, 1]),
        ({"until": "2020-01-01"}, []),
    ],
)
def test_calls_are_listed_by_what_is_asked(
    store: Store, conditions: dict[str, Any], found: list[int]
) -> None:
    for number in range(1, 6):
        audit.append(
            store,
            entry(
                tool="recall" if number % 2 == 0 else "remember",
                caller="bob" if number in (3, 5) else "ann",
                success=number % 2 == 1,
            ),
        )
    assert [call.num for call in audit.listing(store, **conditions)] == found


def test_an_empty_and_a_growing_chain_are_whole(store: Store) -> None:
    assert audit.verify(store) == audit.Verdict(0, "", ())
    heads = []
    for _ in range(5):
        audit.append(store, entry())
        verdict = audit.verify(store)
        assert verdict.faults == ()
        heads.append(verdict.head)
    assert len(set(heads)) == 5
    for head in heads:
        assert audit.verify(store, head=head).faults == ()
    assert audit.verify(store, head="00" * 32).faults


ROWS = 30
COLUMNS = (
    "space", "at", "request", "dialect", "tool", "caller", "credential", "client", "session",
    "address", "success", "error", "milliseconds", "operation", "arguments", "arguments_hash",
    "result", "result_hash", "previous", "hash", "num",
)  # fmt: skip


def changed(chance: random.Random, value: Any) -> Any:
    """Another value of the same sort, or of another."""
    other: Any
    if isinstance(value, int):
        other = value + chance.choice([1, -1, 1_000_000])
    elif isinstance(value, bytes):
        place = chance.randrange(len(value))
        flipped = value[place] ^ (1 << chance.randrange(8))
        other = chance.choice(
            [value[:place] + bytes([flipped]) + value[place + 1 :], b"", bytes(32), value.hex()]
        )
    else:
        text = value or ""
        other = chance.choice([text + "x", text[1:] or "y", "", "null", '{"rows": [1, 2, 3]}', "{"])
    return other if other != value else "odd"


def tamper(connection: apsw.Connection, chance: random.Random) -> str:
    """Change something that an attacker who has the file could change."""
    sort = chance.choice(["edit"] * 6 + ["delete", "swap", "insert", "tail", "null", "head", "cut"])
    num = chance.randrange(1, ROWS + 1)
    if sort == "edit":
        column = chance.choice(COLUMNS)
        row = connection.execute(f"SELECT {column} FROM audit WHERE num = ?", (num,)).fetchone()
        assert row is not None
        value = changed(chance, row[0]) if column != "num" else ROWS + chance.randrange(2, 99)
        connection.execute(f"UPDATE audit SET {column} = ? WHERE num = ?", (value, num))
        return f"edit {column} of {num} to {value!r}"
    if sort == "delete":
        connection.execute("DELETE FROM audit WHERE num = ?", (num,))
    elif sort == "swap":
        other = num % ROWS + 1
        for old, new in ((num, -1), (other, num), (-1, other)):
            connection.execute("UPDATE audit SET num = ? WHERE num = ?", (new, old))
        num = num * 100 + other
    elif sort == "insert":
        place = chance.choice([0, -5, ROWS + 1, ROWS + 7])
        names = ", ".join(name for name in COLUMNS if name != "num")
        connection.execute(
            f"INSERT INTO audit (num, {names}) SELECT ?, {names} FROM audit WHERE num = ?",
            (place, num),
        )
    elif sort == "tail":  # cleverly, with the head put right; an earlier note of it is what tells
        connection.execute("DELETE FROM audit WHERE num > ?", (num - 1,))
        connection.execute(
            "UPDATE audit_head SET rows = ?1,"
            " hash = coalesce((SELECT hash FROM audit WHERE num = ?1), zeroblob(32))",
            (num - 1,),
        )
    elif sort == "null":
        column = chance.choice(["arguments", "result"])
        connection.execute(
            f"UPDATE audit SET {column} = NULL WHERE num = ? AND {column} IS NOT NULL", (num,)
        )
        if connection.changes() == 0:
            connection.execute("DELETE FROM audit WHERE num = ?", (num,))
    elif sort == "head":
        value = chance.choice([b"", bytes(32), "text"])
        connection.execute("UPDATE audit_head SET hash = ?", (value,))
    else:
        connection.execute("DELETE FROM audit WHERE num >= ?", (num,))
    return f"{sort} {num}"


def test_a_thousand_tamperings_are_all_found(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory, lease(memory) as space:
        store = space.store
        secret = memory.remember("to be purged: the harbour lantern ledger")
        for number in range(ROWS - 1):
            text = "to be purged: the harbour lantern ledger" if number == 4 else f"text {number}"
            audit.append(store, entry(arguments=json.dumps({"text": text}), caller=f"u{number}"))
        memory.purge(secret.id)  # one payload is rightly gone, and a row says so
        before = audit.verify(store)
        assert (before.rows, before.faults) == (ROWS, ())
        missed = []
        with store.read() as connection:
            rows = connection.execute("SELECT * FROM audit").fetchall()
            names = [row[1] for row in connection.execute("PRAGMA table_info(audit)")]
            head = connection.execute("SELECT * FROM audit_head").fetchall()
        for seed in range(1_000):
            chance = random.Random(seed)
            with store.maintain() as connection:
                connection.execute("DELETE FROM audit; DELETE FROM audit_head")
                places = ", ".join("?" * len(names))
                connection.executemany(f"INSERT INTO audit VALUES ({places})", rows)
                connection.executemany("INSERT INTO audit_head VALUES (?, ?, ?)", head)
                done = tamper(connection, chance)
            try:
                if not audit.verify(store, head=before.head).faults:
                    missed.append(f"{seed}: {done}")
            except CommonplaceError:
                pass  # it does not get that far: the file itself is not as it was
        assert missed == []


def grep(directory: Path, needle: bytes) -> list[str]:
    return [
        str(path) for path in directory.rglob("*") if path.is_file() and needle in path.read_bytes()
    ]


@pytest.mark.parametrize(
    "text",
    [
        "PIN 4711zq",
        "the harbour lantern ledger orchard compass zqcanary meadow granite violin",
        "\n".join(f"zqline{number:03d} q" for number in range(400)),
        '"quoted" \\ zq ' * 400,
        "日本語の長い文章です zq 。" * 200,
    ],
    ids=["short", "plain", "lines", "quotes", "japanese"],
)
def test_a_purge_leaves_the_chain_whole_and_no_trace(tmp_path: Path, text: str) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory, lease(memory) as space:
        kept = memory.remember("this one stays")
        stored = memory.remember(text)
        wire = {"content": [{"type": "text", "text": json.dumps({"id": stored.id, "text": text})}]}
        wire["structuredContent"] = {"id": stored.id, "text": text}  # type: ignore[assignment]
        answer = json.dumps({"id": stored.id})
        asked = json.dumps({"text": text}, ensure_ascii=False)
        audit.append(space.store, entry(arguments=asked, result=answer))
        audit.append(
            space.store,
            entry(tool="read", arguments=answer, result=json.dumps(wire, ensure_ascii=False)),
        )
        audit.append(space.store, entry(tool="read", arguments=json.dumps({"id": kept.id})))
        memory.purge(stored.id)
        verdict = audit.verify(space.store)
        assert (verdict.rows, verdict.faults) == (4, ())
        redaction, other, read, remembered = audit.listing(space.store)
        assert redaction.tool == audit.REDACTION
        assert (read.arguments, read.result, remembered.arguments) == (None, None, None)
        assert other.arguments == {"id": kept.id}
    for needle in ("4711zq", "zqcanary", "zqline007", '"quoted', "quoted", "日本語の長い"):
        if needle in text:
            assert grep(tmp_path, needle.encode()) == []


def test_a_purged_word_is_removed_from_calls_that_asked_for_it(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory, lease(memory) as space:
        stored = memory.remember("Call 5550199")
        audit.append(space.store, entry(tool="recall", arguments='{"query": "who has 5550199?"}'))
        memory.events.record("audit", "other", {"arguments": {"text": "5550199"}})
        memory.purge(stored.id, words=["5550199"])
        assert audit.verify(space.store).faults == ()
        assert [each.payload for each in memory.events.all(kind="audit")] == [None]
    assert grep(tmp_path, b"5550199") == []


# Retention


def written_at(store: Store, *moments: str) -> None:
    """An entry at each moment."""
    for at in moments:
        with time_machine.travel(at, tick=False):
            audit.append(store, entry())


def test_a_cut_removes_the_oldest_rows_and_leaves_an_anchor(store: Store) -> None:
    written_at(store, "2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
    before = audit.verify(store)
    third = audit.listing(store, before=4, limit=1)[0]
    assert audit.remove_before(store, "2026-01-03") == 2
    kept = audit.listing(store)
    assert [call.num for call in kept] == [5, 4, 3]
    assert (kept[0].dialect, kept[0].tool) == ("", "anchor")
    verdict = audit.verify(store)
    assert (verdict.rows, verdict.removed, verdict.faults) == (5, 2, ())
    assert kept[0].arguments == {"last": 2, "hash": verdict.anchor}
    assert kept[2] == third
    assert audit.verify(store, head=before.head).faults == ()
    assert audit.verify(store, head=verdict.anchor).faults == ()
    assert audit.remove_before(store, "2026-01-03") == 0, "nothing is left to remove"
    audit.append(store, entry())
    assert audit.verify(store).faults == ()


def test_a_head_whose_row_was_removed_is_missed_and_says_why(store: Store) -> None:
    written_at(store, "2026-01-01")
    head = audit.verify(store).head
    written_at(store, "2026-01-02", "2026-01-03")
    audit.remove_before(store, "2026-01-03")
    (fault,) = audit.verify(store, head=head).faults
    assert "among the 2 oldest" in fault.what


@pytest.mark.parametrize("before", ["2026-01-01", "2025-01-01"])
def test_a_cut_before_all_rows_removes_none(store: Store, before: str) -> None:
    written_at(store, "2026-01-01", "2026-01-02")
    assert audit.remove_before(store, before) == 0
    assert audit.verify(store).rows == 2


def test_all_rows_can_be_cut_and_the_chain_goes_on(store: Store) -> None:
    written_at(store, "2026-01-01", "2026-01-02")
    with time_machine.travel("2026-01-03", tick=False):
        assert audit.remove_before(store, "2026-01-03") == 2
    assert audit.remove_before(store, "2026-02-01") == 0, "an anchor alone stays"
    written_at(store, "2026-01-05")
    assert audit.remove_before(store, "2026-02-01") == 2
    verdict = audit.verify(store)
    assert (verdict.rows, verdict.removed, verdict.faults) == (5, 4, ())


def test_a_clock_that_went_back_removes_nothing_after_a_newer_row(store: Store) -> None:
    written_at(store, "2026-01-01", "2026-03-01", "2026-01-02")
    assert audit.remove_before(store, "2026-02-01") == 1


def test_many_rows_are_cut_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_REMOVED_AT_ONCE", 3)
    written_at(store, *["2026-01-01"] * 8)
    assert audit.remove_before(store, "2026-01-02") == 8
    verdict = audit.verify(store)
    assert (verdict.removed, verdict.faults) == (8, ())


def test_rows_that_are_deleted_without_an_anchor_are_missed(store: Store) -> None:
    written_at(store, "2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
    audit.remove_before(store, "2026-01-02")
    with store.maintain() as connection:
        connection.execute("DELETE FROM audit WHERE num = 2")
    (fault,) = audit.verify(store).faults
    assert "missing before row 3" in fault.what


def test_a_changed_anchor_is_noticed(store: Store) -> None:
    written_at(store, "2026-01-01", "2026-01-02", "2026-01-03")
    audit.remove_before(store, "2026-01-02")
    with store.maintain() as connection:
        connection.execute(
            "UPDATE audit SET arguments = replace(arguments, '1', '2') WHERE num = 4"
        )
    assert audit.verify(store).faults
