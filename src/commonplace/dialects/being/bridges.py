"""Bridges: devices and programs that a being can act through, and that tell it what they sense.

They come over a WebSocket and are known while it is open. What they say of themselves is shown
short and broken up: it is text from outside, and stands where a model reads.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field
from typing import Any

from commonplace.dialects.being import sight
from commonplace.dialects.contract import Call, Caller, Tool
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import iso
from commonplace.errors import InvalidInput
from commonplace.text.prose import neutral

SENSE, ACTED = "being.sense", "being.act"
SHOWN_SENSES = 50
CAPABILITIES = 100
NAME_CHARS, DESCRIPTION_CHARS = 64, 300
TIMEOUT_MS, MOST_MS = 5_000, 60_000
BRIDGES = 20
_FOLDED = ("actions", "data_type", "target_device")
_NOT_NAME = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that a bridge can do, or senses."""

    id: str
    type: str
    name: str
    description: str
    config: Mapping[str, Any]

    @property
    def tool(self) -> str:
        """Its name as a tool."""
        return "act_" + _NOT_NAME.sub("_", self.name.lower())[:NAME_CHARS]

    def as_dict(self) -> dict[str, Any]:
        """As REST lists it."""
        return {
            "id": self.id, "type": self.type, "name": self.name,
            "description": self.description, "config": dict(self.config),
        }  # fmt: skip


def capability(given: Any) -> Capability:
    """What a bridge says it can do; what it says beside is folded into the configuration."""
    if not isinstance(given, Mapping):
        raise InvalidInput("A capability must be an object.")
    kind, name = given.get("type"), given.get("name")
    if kind not in ("sense", "act") or not isinstance(name, str) or not name.strip():
        raise InvalidInput("A capability needs a type (sense or act) and a name.")
    held = given.get("config")
    config = dict(held) if isinstance(held, Mapping) else {}
    config |= {each: given[each] for each in _FOLDED if given.get(each) is not None}
    if len(str(config)) > 10_000:
        raise InvalidInput("A capability's configuration is too long.")
    return Capability(
        str(given.get("id") or uuid.uuid4())[:200], kind, neutral(name.strip())[:NAME_CHARS],
        neutral(str(given.get("description") or ""))[:DESCRIPTION_CHARS], config,
    )  # fmt: skip


@dataclass
class Bridge:
    """One that is connected. `send` may be called from any thread."""

    id: str
    name: str
    capabilities: tuple[Capability, ...]
    send: Callable[[dict[str, Any]], None]
    pending: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)

    def answer(self, act_id: str, status: str, result: Any) -> bool:
        """What came of an act; whether anybody asked."""
        waiting = self.pending.pop(act_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result({"status": status, "result": result})
        return True

    def die(self) -> None:
        """Nobody is there any more: what was asked is not answered."""
        for act_id in list(self.pending):
            self.answer(act_id, "timeout", None)


_connected: dict[tuple[str, str], dict[str, Bridge]] = {}
_lock = threading.Lock()


def connect(space: str, being: str, bridge: Bridge) -> None:
    """Know a bridge; one of the same id before it is gone."""
    with _lock:
        held = _connected.setdefault((space, being), {})
        if len(held) >= BRIDGES and bridge.id not in held:
            raise InvalidInput("Too many bridges are connected.")
        before = held.get(bridge.id)
        held[bridge.id] = bridge
    if before is not None and before is not bridge:
        before.die()


def disconnect(space: str, being: str, bridge: Bridge) -> None:
    """Know it no longer."""
    with _lock:
        held = _connected.get((space, being), {})
        if held.get(bridge.id) is bridge:
            del held[bridge.id]
    bridge.die()


def connected(space: str, being: str) -> list[Bridge]:
    """The bridges that are there now."""
    with _lock:
        return list(_connected.get((space, being), {}).values())


def capabilities(space: str, being: str, *kinds: str) -> list[tuple[Bridge, Capability]]:
    """What can be done or sensed now; of several of one name the first."""
    found: dict[tuple[str, str], tuple[Bridge, Capability]] = {}
    for bridge in connected(space, being):
        for each in bridge.capabilities:
            if each.type in (kinds or ("sense", "act")):
                found.setdefault((each.type, each.tool), (bridge, each))
    return list(found.values())


def capability_tools(space: str, being: str) -> list[dict[str, str]]:
    """What get_context tells of acts."""
    acts = capabilities(space, being, "act")
    return [{"name": each.tool, "description": _described(each)} for _, each in acts]


def _described(each: Capability) -> str:
    said = f": {each.description}" if each.description else ""
    return f"Act through {each.name} (described by its bridge, not verified){said}"


def passing(caller: Caller) -> tuple[Tool, ...]:
    """The acts of a caller's being as tools."""
    if not caller.being:
        return ()
    return tuple(
        Tool(
            name=each.tool,
            title=each.tool,
            description=_described(each),
            scope="write",
            handler=_acting(bridge, each),
            input=_ACT,
            open_world=True,
            stepwise=True,
        )
        for bridge, each in capabilities(caller.space, caller.being, "act")
    )


_ACT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string"},
        "parameters": {"type": "object", "default": {}},
        "timeout_ms": {"type": "number", "default": TIMEOUT_MS},
    },
    "required": ["action"],
}


def _acting(bridge: Bridge, what: Capability) -> Callable[..., dict[str, Any]]:
    def act(
        call: Call, *, action: str, parameters: Mapping[str, Any], timeout_ms: float
    ) -> dict[str, Any]:
        act_id = str(uuid.uuid4())
        waiting: Future[dict[str, Any]] = Future()
        bridge.pending[act_id] = waiting
        seconds = max(1.0, min(float(timeout_ms), MOST_MS)) / 1000
        try:
            bridge.send(
                {"type": "act", "act_id": act_id, "capability_id": what.id, "action": action,
                 "parameters": dict(parameters)}
            )  # fmt: skip
            outcome = waiting.result(seconds)
        except Late:
            outcome = {"status": "timeout", "result": None}
        finally:
            bridge.pending.pop(act_id, None)
        told = {"act_id": act_id, "capability": what.name, "action": action, **outcome}
        call.memory.events.record(ACTED, call.caller.being, told)
        return {"act_id": act_id, **outcome}

    return act


# --- senses --------------------------------------------------------------------------------------


def take_sense(call: Call, being_id: str, *, capability_id: str, data: Any) -> dict[str, Any]:
    """What a bridge sensed, kept for the next context."""
    known = capabilities(call.memory.name, being_id, "sense")
    if all(each.id != capability_id for _, each in known):
        raise InvalidInput("There is no such sense capability of this being.")
    sense = {"sense_id": str(uuid.uuid4()), "capability_id": capability_id, "data": data}
    call.memory.events.record(SENSE, being_id, sense)
    return {**{k: v for k, v in sense.items() if k != "data"}, "processed": False}


def pending_senses(memory: Commonplace, being: str, *, mark: bool) -> list[dict[str, Any]]:
    """The oldest senses that no context has shown; they are marked as shown."""
    row = sight.find(memory, being)
    after = int(row.attrs.get("senses_shown", 0))
    waiting = memory.events.all(kind=SENSE, subject=being, after=after, limit=SHOWN_SENSES)
    if waiting and mark:
        memory.revise(row.id, attrs={**row.attrs, "senses_shown": waiting[-1].num})
    return [{**(each.payload or {}), "created_at": iso(each.at)} for each in waiting]


def sense_history(
    call: Call, being_id: str, *, limit: int = 20, capability_id: str | None = None
) -> dict[str, Any]:
    """What was sensed, the newest first."""
    shown = int(sight.find(call.memory, being_id).attrs.get("senses_shown", 0))
    found = [
        {**(each.payload or {}), "processed": each.num <= shown, "created_at": iso(each.at)}
        for each in call.memory.events.all(kind=SENSE, subject=being_id, limit=1_000, newest=True)
        if capability_id is None or (each.payload or {}).get("capability_id") == capability_id
    ]
    return {"history": found[: max(1, min(limit, 100))], "total": len(found)}


def listed(call: Call, being_id: str) -> dict[str, Any]:
    """What the bridges that are there can do."""
    found: Sequence[tuple[Bridge, Capability]] = capabilities(call.memory.name, being_id)
    return {"capabilities": [{**each.as_dict(), "bridge_id": b.id} for b, each in found]}


def may_connect(call: Call, being_id: str) -> dict[str, Any]:
    """Let a bridge be made to this being."""
    return {"being": being_id, "space": call.memory.name}
