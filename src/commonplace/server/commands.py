"""Commands that a running server can answer: JSON in, JSON out.

Without a server the command line calls the same functions on the memory that it opens itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from commonplace.engine.commonplace import Commonplace
from commonplace.errors import InvalidInput
from commonplace.platform import hooks, session_context

if TYPE_CHECKING:
    from commonplace.engine.finding.recall import Hit, SessionHit


def run_command(memory: Commonplace, command: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a command and return its results, which the command line formats."""
    if command not in COMMANDS:
        raise InvalidInput(f"A server does not answer the command {command[:40]!r}.")
    return COMMANDS[command](memory, asked)


def _search(memory: Commonplace, asked: Mapping[str, Any]) -> dict[str, Any]:
    hits = memory.recall(
        asked["query"], limit=asked["limit"], as_of=asked["as_of"], minimum=asked["minimum"],
        **asked["conditions"],
    )  # fmt: skip
    waiting = 0
    if memory.library.embedder is not None and not hits.degraded:
        waiting = memory.backlog()[0]
    return {
        "results": [_hit_as_json(hit, memory) for hit in hits],
        "reasons": [str(hit.why) for hit in hits],
        "degraded": "" if memory.library.embedder is None else hits.degraded,
        "waiting": waiting,
    }


def _search_sessions(memory: Commonplace, asked: Mapping[str, Any]) -> dict[str, Any]:
    found = memory.recall_sessions(
        asked["query"], limit=asked["limit"], as_of=asked["as_of"], **asked["conditions"]
    )
    return {"results": list(map(_session_as_json, found))}


def _search_text(memory: Commonplace, asked: Mapping[str, Any]) -> dict[str, Any]:
    found, total = memory.find_text(
        asked["query"], limit=asked["limit"], as_of=asked["as_of"], **asked["conditions"]
    )
    return {"results": [{"memory": each.as_dict()} for each in found], "total": total}


def _list(memory: Commonplace, asked: Mapping[str, Any]) -> dict[str, Any]:
    found, total = memory.browse(
        order=asked["order"], limit=asked["limit"], offset=asked["offset"], as_of=asked["as_of"],
        **asked["conditions"],
    )  # fmt: skip
    return {"results": [each.as_dict() for each in found], "total": total}


def _recall_for_hook(memory: Commonplace, asked: Mapping[str, Any]) -> dict[str, Any]:
    hooks.handle_spooled_events(memory.library.path, memory.at)
    found = session_context.recall_context(
        memory, asked["prompt"], start=asked["start"], tokens=asked["tokens"]
    )
    return {"text": found}


COMMANDS: Mapping[str, Callable[[Commonplace, Mapping[str, Any]], dict[str, Any]]] = {
    "search": _search,
    "search sessions": _search_sessions,
    "search text": _search_text,
    "list": _list,
    "hook recall": _recall_for_hook,
}


def _hit_as_json(hit: Hit, memory: Commonplace) -> dict[str, Any]:
    measured = {"score": round(hit.score, 6), "probability": round(hit.probability, 6)}
    marks = {name: getattr(hit, name) for name in ("replaced_by", "newer", "replaces", "companion")}
    marks = {name: value for name, value in marks.items() if value}
    shown = {**measured, **marks, "memory": hit.memory.as_dict(), "why": hit.why.as_dict()}
    here = memory.project
    if here is not None and (branch := here.other_branch(hit.memory.tags)):
        shown["other_branch"] = branch
    return shown


def _session_as_json(found: SessionHit) -> dict[str, Any]:
    return {
        "score": round(found.score, 6), "conversation": found.conversation,
        "session": found.session, "memory": found.best.as_dict(),
    }  # fmt: skip
