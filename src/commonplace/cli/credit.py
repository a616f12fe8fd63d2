"""Commands that rate the last turn, which raises or lowers the credit of the memories it used."""

from __future__ import annotations

from typing import Annotated

import typer

from commonplace.cli.options import AsJson, Data, Space, open_memory, option
from commonplace.cli.terminal import note, tell
from commonplace.text.hidden import escape_hidden

credit = typer.Typer(help="Rate an agent's last turn and the memories that it used.")
Session = Annotated[str | None, option("--session", "The session (default: the newest).")]


@credit.command()
def good(
    data: Data = None, space: Space = "default", session: Session = None, as_json: AsJson = False
) -> None:
    """Rate the last answer as good (positive_feedback). Exit code 1 if no turn can be rated."""
    _rate_turn("positive_feedback", data, space, session, as_json)


@credit.command()
def bad(
    data: Data = None, space: Space = "default", session: Session = None, as_json: AsJson = False
) -> None:
    """Rate the last answer as wrong (user_correction). Exit code 1 if no turn can be rated."""
    _rate_turn("user_correction", data, space, session, as_json)


def _rate_turn(signal: str, data: Data, space: Space, session: Session, as_json: bool) -> None:
    from commonplace.engine.content.credit import apply_outcome_to_turn
    from commonplace.platform.exclusive import exclusive

    with open_memory(data, space) as opened, exclusive(opened, "credit"):
        judged = apply_outcome_to_turn(opened, signal, session)
    for one in judged:
        name = one.memory.ref or one.memory.id
        text = escape_hidden(f"{name}  {one.before:.3f} → {one.after:.3f}")
        tell(
            as_json,
            {"id": name, "before": round(one.before, 4), "after": round(one.after, 4)},
            text,
        )
    if not judged:
        if not as_json:
            note("there is no turn to rate")
        raise typer.Exit(1)


GROUPS = {"credit": credit}
