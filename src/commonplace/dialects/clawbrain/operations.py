"""The operation of the dialect's REST route; it passes the gate, as tools do."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.clawbrain import records
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.tool_schemas import TEXT, nullable, takes
from commonplace.engine import checks
from commonplace.engine.content import credit
from commonplace.platform.exclusive import exclusively


@exclusively
def outcome(call: Call, *, signal: str, session: str | None = None) -> dict[str, Any]:
    """Rate the newest unrated turn of a session, or of all sessions."""
    judged = credit.judge_turn(call.memory, signal, session)
    return {
        "signal": signal,
        "judged": [
            {
                "id": records.identity(one.memory),
                "before": round(one.before, 4),
                "after": round(one.after, 4),
            }
            for one in judged
        ],
    }


OPERATIONS = (
    Tool(
        name="record_outcome",
        title="Record an outcome",
        description="Tell how the last turn went, so that its memories gain or lose credit.",
        scope="write",
        handler=outcome,
        input=takes(
            ["signal"],
            signal={"enum": list(credit.SIGNALS)},
            session=nullable({**TEXT, "minLength": 1, "maxLength": checks.NAME_CHARS}),
        ),
    ),
)  # fmt: skip
