"""The cost of language models, summed over the events of their runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import agents
from commonplace.dialects.mama.platform.schedule import local_zone
from commonplace.dialects.mama.platform.service import operation, read_arguments
from commonplace.dialects.rest import Exchange, Route
from commonplace.dialects.tool_schemas import integer
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Event
from commonplace.platform import lookup

EVENTS = (agents.SPENDING_EVENT, "agent.llm", "being.llm")
PAGE = 500
DAYS, MOST_DAYS = 30, 90


class TokenTotals:
    """Totals of tokens, cost and runs."""

    def __init__(self) -> None:
        self._numbers = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}
        self._cost = Decimal(0)
        self._runs = 0
        self._unpriced = 0

    def add(self, event: Event) -> None:
        """Add a run; count runs with an unknown price separately."""
        spent = event.payload or {}
        for name in self._numbers:
            value = spent.get(name)
            self._numbers[name] += value if isinstance(value, int) and value > 0 else 0
        self._runs += 1
        try:
            self._cost += Decimal(spent["cost_usd"])
        except (KeyError, TypeError, InvalidOperation):
            self._unpriced += 1

    @property
    def tokens(self) -> int:
        """All tokens."""
        return sum(self._numbers.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the totals with the contract's names."""
        return {
            **self._numbers,
            "cost_usd": float(round(self._cost, 6)),
            "request_count": self._runs,
            "unpriced_requests": self._unpriced,
        }


def spending_since(memory: Commonplace, since: datetime) -> Iterator[Event]:
    """Yield the runs since a time, newest first for each kind of event."""
    for kind in EVENTS:
        before: int | None = None
        while found := memory.events.all(kind=kind, newest=True, before=before, limit=PAGE):
            yield from (event for event in found if event.at >= since)
            if found[-1].at < since:
                break
            before = found[-1].num


def _totals_by(
    memory: Commonplace, since: datetime, by: Callable[[Event], str]
) -> dict[str, TokenTotals]:
    sums: dict[str, TokenTotals] = defaultdict(TokenTotals)
    for event in spending_since(memory, since):
        sums[by(event)].add(event)
    return sums


def summary(call: Call) -> Any:
    """Return token totals of the last 24 hours, 7 and 30 days."""
    now = datetime.now(UTC)
    spans = {"today": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
    sums = {name: TokenTotals() for name in spans}
    for event in spending_since(call.memory, now - spans["month"]):
        for name, span in spans.items():
            if event.at >= now - span:
                sums[name].add(event)
    return {name: each.to_dict() for name, each in sums.items()}


def by_agent(call: Call) -> Any:
    """Return token totals of each agent over 30 days, most tokens first."""
    names: dict[str, str] = {}

    def agent(event: Event) -> str:
        if event.kind == agents.SPENDING_EVENT or not event.subject:
            return event.subject or "unknown"
        if event.subject not in names:
            names[event.subject] = _agent_name(call.memory, event)
        return names[event.subject]

    sums = _totals_by(call.memory, datetime.now(UTC) - timedelta(days=DAYS), agent)
    ordered = sorted(sums.items(), key=lambda each: (-each[1].tokens, each[0]))
    return {"agents": [{"agent_id": name, **each.to_dict()} for name, each in ordered]}


def _agent_name(memory: Commonplace, event: Event) -> str:
    """Return the name of an event's agent: the slug of an agent, or the name of a being."""
    found = lookup.find_memory(memory, event.subject)
    if found is None:
        return "unknown"
    if event.kind == "being.llm":
        return f"being:{found.title or found.attrs.get('name') or found.id}"
    return str(found.attrs.get("slug") or found.id)


def daily(call: Call, *, days: int) -> Any:
    """Return token totals of each day with runs, oldest first; days are local."""
    today = datetime.now(local_zone()).replace(hour=0, minute=0, second=0, microsecond=0)
    since = (today - timedelta(days=days - 1)).astimezone(UTC)
    sums = _totals_by(
        call.memory, since, lambda event: event.at.astimezone(local_zone()).date().isoformat()
    )
    return {
        "daily": [{"date": day, **each.to_dict()} for day, each in sorted(sums.items())],
        "days": days,
    }


async def _day_arguments(exchange: Exchange) -> dict[str, Any]:
    given = await read_arguments(exchange)
    if isinstance(given.get("days"), int):
        given["days"] = min(given["days"], MOST_DAYS)
    return given


OPERATIONS = (
    operation("token_summary", "Token totals", "read", summary),
    operation("tokens_by_agent", "Tokens by agent", "read", by_agent),
    operation(
        "tokens_daily", "Tokens by day", "read", daily, (), {"days": integer(1, MOST_DAYS, DAYS)}
    ),
)
ROUTES = (
    Route("GET", "/api/tokens/summary", "token_summary"),
    Route("GET", "/api/tokens/by-agent", "tokens_by_agent"),
    Route("GET", "/api/tokens/daily", "tokens_daily", read=_day_arguments),
)
