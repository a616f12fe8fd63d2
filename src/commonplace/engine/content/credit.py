"""Credit: a score of each memory that changes with the outcomes that callers report.

A turn is the set of memories that one call returned. An outcome is reported for the newest turn
that has none yet. Turns, outcomes and changes of credit are recorded as events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from commonplace.engine.model import LIVE_STATES, Event, Memory, iso
from commonplace.errors import InvalidInput, NotFound
from commonplace.storage.database import now

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.engine.commonplace import Commonplace

SIGNALS: Mapping[str, float] = {
    "task_completed": 0.5,
    "positive_feedback": 0.3,
    "tool_success": 0.1,
    "user_correction": -0.4,
    "session_abandoned": -0.2,
}
AVERAGED_KINDS = ("entity", "episode")
"""Kinds whose credit is a moving average of rewards, and decays; others move towards 1 or 0."""
# The share of the distance to 1 or to 0 by which an outcome moves the credit of other kinds.
GAIN, LOSS = 0.1, 0.2
TURN, OUTCOME, CHANGE, RULE = "turn", "outcome", "credit", "credit-rule"
SEARCHED_TURNS = 1_000  # How many of the newest turns are searched for a turn without an outcome.
DAY = 86_400_000_000
LATEST = 2**62


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a space: how strongly an outcome counts, and how fast a credit decays."""

    alpha: float = 0.1
    decay_rate: float = 0.01
    additive: bool = False


@dataclass(frozen=True, slots=True)
class CreditChange:
    """A credit before and after an outcome."""

    memory: Memory
    before: float
    after: float


def read_rule(memory: Commonplace) -> Rule:
    """Return the credit rule of this space."""
    found = memory.events.all(kind=RULE, newest=True, limit=1)
    return Rule(**found[0].payload) if found and found[0].payload else Rule()


def set_rule(memory: Commonplace, new: Rule) -> None:
    """Set the credit rule of this space."""
    if read_rule(memory) != new:
        memory.events.record(RULE, "", asdict(new))


def credited_at(attrs: Mapping[str, Any]) -> int:
    """Return the time at which a credit was set, in microseconds; 0 if the time is unknown."""
    since = attrs.get("credited")
    return since if type(since) is int and 0 < since < LATEST else 0


def decayed_credit(credit: float, attrs: Mapping[str, Any], decay_rate: float, at: int) -> float:
    """Return a credit decayed by the whole days since it was set.

    The decay is computed on reading, so that rows need no daily update.
    """
    since = credited_at(attrs)
    if not since or at - since < DAY:
        return credit
    return credit * math.exp(-decay_rate * ((at - since) // DAY))


def decayed_credits(
    credits: NDArray[np.float64], since: NDArray[np.int64], decay_rate: float, at: int
) -> NDArray[np.float64]:
    """Return many decayed credits at once, each exactly as `decayed_credit` computes it."""
    import numpy as np

    days = np.where(since > 0, np.maximum((at - since) // DAY, 0), 0)
    passed = np.flatnonzero(np.bincount(days))
    fading = np.ones(int(passed[-1]) + 1 if len(passed) else 1)
    # math.exp is used because the last digit of numpy's exp may differ.
    fading[passed] = [math.exp(-decay_rate * day) for day in passed.tolist()]
    return credits * fading[days]


def credit_of(memory: Memory, by: Rule) -> float:
    """Return the current, decayed credit of a memory."""
    return decayed_credit(memory.credit, memory.attrs, by.decay_rate, now())


def record_turn(memory: Commonplace, session: str, ids: Iterable[str]) -> None:
    """Record the memories that a call returned, unless there are none."""
    returned = list(dict.fromkeys(ids))
    if returned:
        memory.events.record(TURN, session, {"ids": returned})


def apply_outcome_to_turn(
    memory: Commonplace, signal: str, session: str | None = None
) -> list[CreditChange]:
    """Report the outcome of the newest turn without an outcome, of one session or of all.

    If there is no such turn, do nothing.
    """
    _reward_of(signal)
    ended = memory.events.all(kind=OUTCOME, subject=session, newest=True, limit=SEARCHED_TURNS)
    turns = memory.events.all(kind=TURN, subject=session, newest=True, limit=SEARCHED_TURNS)
    closed = _turns_with_outcome(turns, ended)
    for turn in turns:
        if turn.num in closed or turn.payload is None:
            continue
        outcome = {"turn": turn.num, "turn_at": iso(turn.at), "signal": signal}
        memory.events.record(OUTCOME, turn.subject, outcome)
        return apply_outcome(memory, turn.payload["ids"], signal, turn.subject)
    return []


def _turns_with_outcome(turns: Sequence[Event], outcomes: Iterable[Event]) -> set[int]:
    """Return the numbers of the turns that have an outcome.

    An import gives events other numbers. The time of the turn then tells which one it was.
    """
    time_of = {turn.num: iso(turn.at) for turn in turns}
    number_at = {(turn.subject, iso(turn.at)): turn.num for turn in turns}
    closed = set()
    for outcome in outcomes:
        payload = outcome.payload or {}
        number, at = payload.get("turn", 0), payload.get("turn_at")
        if at is not None and time_of.get(number) != at:
            number = number_at.get((outcome.subject, at), 0)
        closed.add(number)
    return closed


def apply_outcome(
    memory: Commonplace, ids: Sequence[str], signal: str, session: str = ""
) -> list[CreditChange]:
    """Apply an outcome to memories: change each credit, count a read, and record an event."""
    from commonplace.engine.finding.ranking import credit_after

    reward, by, at = _reward_of(signal), read_rule(memory), now()
    shared = list(dict.fromkeys(ids))
    judged = []
    for identity in shared:
        one = _live_memory(memory, identity)
        if one is None:
            continue  # The memory was archived after the turn.
        before = credit_of(one, by)
        if one.kind in AVERAGED_KINDS:
            after = credit_after(before, reward, len(shared), alpha=by.alpha, additive=by.additive)
            one = memory.revise(one.id, credit=after, attrs={**one.attrs, "credited": at})
        else:
            after = before + (1 - before) * GAIN if reward > 0 else before * (1 - LOSS)
            one = memory.revise(one.id, credit=after)
        payload = {
            "signal": signal, "reward": reward, "old": before, "new": after, "session": session,
        }  # fmt: skip
        memory.events.record(CHANGE, one.id, payload)
        memory.get(one.id, count=True)
        judged.append(CreditChange(one, before, after))
    return judged


def _live_memory(memory: Commonplace, identity: str) -> Memory | None:
    try:
        found = memory.get(identity, count=False)
    except NotFound:
        return None
    return found if found.state in LIVE_STATES else None


def _reward_of(signal: str) -> float:
    if signal not in SIGNALS:
        raise InvalidInput(
            f"There is no signal {signal[:40]!r}.", hint=f"Allowed: {', '.join(SIGNALS)}.",
            field="signal",
        )  # fmt: skip
    return SIGNALS[signal]
