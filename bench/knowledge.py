"""The knowledge graph's query as a tool, against the bare SQL that such a call needs.

A call reads what is known of an entity and writes one audit row, so both are in its floor: the
SELECT of what is shown, and the INSERT, the head of the chain and the COMMIT, by themselves.
Everything is CPU time of the one thread that does it, measured in turn with warm pages; an empty
call, and the tool's own share without the gate, stand beside.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from bench.report import Row, milliseconds
from commonplace import Commonplace, Library
from commonplace.access.caller import FULL_SCOPES, Caller
from commonplace.dialects import registry
from commonplace.dialects.contract import Call, RequestInfo
from commonplace.dialects.orchestrator.answering import tool
from commonplace.dialects.orchestrator.knowledge import facts_about
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.model import NOBODY
from commonplace.server.gate import Gate
from commonplace.storage.database import connect, new_id
from commonplace.storage.system import open_system
from commonplace.storage.tables import AUDIT, FACTS, FORMAT

SPACE = "acme"
_SELECT = (
    "SELECT subject, predicate, object, valid_from, valid_to FROM facts WHERE space = ?1"
    " AND subject_key = ?2 UNION ALL SELECT subject, predicate, object, valid_from, valid_to"
    " FROM facts WHERE space = ?1 AND object_key = ?2"
)


@tool("read", {"entity": ""})
def do_nothing(call: Call, *, entity: str) -> dict[str, Any]:
    """Do nothing."""
    del call
    return {"entity": entity}


@dataclass
class CpuSeconds:
    """Seconds of CPU, by what was done."""

    called: list[float]
    bare: list[float]
    empty: list[float]
    handled: list[float]
    selected: list[float]


def measure(triples: int, queries: int) -> tuple[list[Row], list[str]]:
    """Return the rows of the table, and the notes below it."""
    with tempfile.TemporaryDirectory() as folder:
        taken = _measured_seconds(Path(folder), triples, queries)
    called, bare, empty, handled, selected = (
        statistics.median(each) for each in vars(taken).values()
    )
    of_all = triples == 50_000
    return [
        Row(
            name=f"{triples:,} triples, memory_kg_query through the gate, CPU p50",
            measured=milliseconds(called),
            against=f"its bare SQL {milliseconds(bare)}",
            ratio=called / bare,
            target="≤ 5×" if of_all else "",
            ok=called / bare <= 5 if of_all else None,
            values={"p50": called, "bare p50": bare, "empty call p50": empty},
        ),
        Row(
            name=f"{triples:,} triples, memory_kg_query without the gate, CPU p50",
            measured=milliseconds(handled),
            against=f"bare SELECT {milliseconds(selected)}",
            ratio=handled / selected,
            target="≤ 5×" if of_all else "",
            ok=handled / selected <= 5 if of_all else None,
            values={"p50": handled, "bare p50": selected},
        ),
    ], [
        "a call's bare SQL: the SELECT of what is shown, and the audit row;"
        f" an empty call through the gate takes {milliseconds(empty)}"
    ]  # fmt: skip


def _measured_seconds(folder: Path, triples: int, queries: int) -> CpuSeconds:
    things = max(1, triples // 20)
    with contextlib.ExitStack() as stack:
        library = stack.enter_context(contextlib.closing(Library(folder, embedder=None)))
        memory = Commonplace(space=SPACE, library=library)
        _fill(memory, triples, things)
        system = stack.enter_context(contextlib.closing(open_system(folder)))
        whole = registry.load("orchestrator")
        whole = replace(whole, tools=(*whole.tools, vars(do_nothing)["tool"]))
        gate = Gate(library, system, [whole])
        caller = Caller(space=SPACE, user="anna", scopes=FULL_SCOPES)

        def call(name: str, entity: str) -> str:
            arguments = {"entity": entity}
            wire = gate.perform(caller, RequestInfo(), whole.name, name, arguments).wire
            return str(wire["content"][0]["text"])

        # A file of the same tables, so that nothing but the statements is in the floor.
        with contextlib.closing(Library(folder / "bare", embedder=None)) as beside:
            Commonplace(space=SPACE, library=beside).remember("The tables are made.")
            file = beside.file(SPACE)
        writing = stack.enter_context(contextlib.closing(connect(file)))
        reading = stack.enter_context(contextlib.closing(connect(library.file(SPACE))))
        taken = CpuSeconds([], [], [], [], [])
        for n in range(queries + 20):
            entity = f"s{n * 7 % things}"
            payload = call("memory_kg_query", entity)  # so that its pages are warm for all
            steps: dict[str, Callable[[], object]] = {
                "called": lambda: call("memory_kg_query", entity),  # noqa: B023
                "bare": lambda: _select_and_audit(reading, writing, entity, payload),  # noqa: B023
                "empty": lambda: call("do_nothing", entity),  # noqa: B023
                "handled": lambda: facts_about(memory, entity),  # noqa: B023
                "selected": lambda: _select(reading, entity),  # noqa: B023
            }  # fmt: skip
            for name, step in steps.items():
                began = time.thread_time()
                step()
                if n >= 20:
                    getattr(taken, name).append(time.thread_time() - began)
        return taken


def _fill(memory: Commonplace, triples: int, things: int) -> None:
    """Store facts, some twenty for each subject."""
    empty = {"valid_from": None, "valid_to": None, "confidence": 1.0, "memory": None,
             "attrs": "{}", "origin": "{}"}  # fmt: skip
    parts = ("subject", "predicate", "object")
    with lease(memory) as space, space.write("fill", NOBODY) as unit:
        for n in range(triples):
            names = (f"s{n % things}", f"p{n % 7}", f"o{n // 25}")
            told = dict(zip(parts, names, strict=True))
            keys = {f"{part}_key": name for part, name in told.items()}
            FACTS.insert(unit, {**empty, **told, **keys, "id": new_id(), "created_at": unit.at})


def _select_and_audit(
    reading: apsw.Connection, writing: apsw.Connection, entity: str, payload: str
) -> None:
    _select(reading, entity)
    _write_audit_row(writing, entity, payload)


def _select(connection: apsw.Connection, entity: str) -> None:
    connection.execute("BEGIN")
    connection.execute(_SELECT, (SPACE, entity)).fetchall()
    connection.execute("COMMIT")


def _write_audit_row(connection: apsw.Connection, entity: str, payload: str) -> None:
    """Write an audit row like that of a call, without computing its hash chain."""
    shown = payload[: audit.PAYLOAD_BYTES]
    connection.execute("BEGIN IMMEDIATE")
    row: Any = connection.execute(
        "SELECT rows, hash FROM audit_head WHERE space = ?", (SPACE,)
    ).fetchone()
    rows, previous = row or (0, b"")
    hashed = os.urandom(32)
    connection.execute(
        AUDIT.insert_sql,
        (
            rows + 1, SPACE, time.time_ns() // 1_000, "", "orchestrator", "memory_kg_query", "anna",
            "", "", "", "", 1, "", 1, 0, hashed, hashed, previous, f'{{"entity":"{entity}"}}',
            shown, FORMAT, hashed,
        ),
    )  # fmt: skip
    connection.execute(
        "INSERT INTO audit_head (space, rows, hash) VALUES (?, ?, ?)"
        " ON CONFLICT (space) DO UPDATE SET rows = excluded.rows, hash = excluded.hash",
        (SPACE, rows + 1, hashed),
    )
    connection.execute("COMMIT")
