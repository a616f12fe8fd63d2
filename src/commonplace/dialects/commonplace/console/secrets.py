"""The secrets page of the console: find stored secrets, and delete them permanently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from commonplace.dialects.commonplace.console.memories import (
    PURGE_CONFIRMATION,
    count_remaining_places,
)
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, array, input_schema
from commonplace.engine.binding import lease
from commonplace.engine.maintenance import secret_scan

MAX_SHOWN = 500


def find_secrets(call: Call) -> dict[str, Any]:
    """Return all stored secrets, each in a masked excerpt."""
    with lease(call.memory) as space:
        all_found = secret_scan.scan(space)
    return {
        "secrets": [asdict(one) for one in all_found[:MAX_SHOWN]],
        "total": len(all_found),
        "memories": len({one.id for one in all_found if one.what == "memory"}),
    }


def purge(call: Call, *, ids: Sequence[str], confirm: str) -> dict[str, Any]:
    """Delete memories with all their versions, and store copies with masked secrets."""
    del confirm  # the schema has already checked the value
    with lease(call.memory) as space:
        proof, copies = secret_scan.purge_secrets(space, ids, origin=call.memory.origin)
    return {
        "memories": proof.memories, "rows": proof.rows, "traces": proof.traces,
        "stored": copies, "files": len(proof.copies), "held": count_remaining_places(proof),
    }  # fmt: skip


OPERATIONS = (
    Tool(
        name="console_secrets", title="Secrets found", scope="admin", handler=find_secrets,
        input=input_schema(), description="Find stored keys, tokens and passwords.",
        stepwise=True,  # the scan reads all memories and all earlier versions
    ),
    Tool(
        name="console_secrets_purge", title="Purge secrets", scope="admin", handler=purge,
        description="Delete memories with secrets permanently, and store masked copies.",
        input=input_schema(
            ["ids", "confirm"], ids=array(TEXT, 200, minItems=1),
            confirm={"enum": [PURGE_CONFIRMATION]},
        ),
        stepwise=True, destructive=True,
    ),
)  # fmt: skip
_ROOT = "/api/console/secrets"
ROUTES = (
    Route("GET", _ROOT, "console_secrets", summary="List stored secrets"),
    Route("POST", f"{_ROOT}/purge", "console_secrets_purge", summary="Delete secrets permanently"),
)
