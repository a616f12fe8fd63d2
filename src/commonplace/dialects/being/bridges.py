"""Bridges: devices and programs through which a being senses and acts.

A bridge connects by WebSocket; while it is connected, each of its act capabilities is a tool.
Registered capabilities stay known: an act that is requested while its bridge is away waits for the
owner's decision. Names and descriptions come from outside and are read by a model, so they are cut
and neutralised.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import asdict, dataclass, field
from typing import Any

from commonplace.access.caller import Caller
from commonplace.dialects.being import sight
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.tool_schemas import TEXT, takes
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Event, Memory, iso
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.text.prose import neutral

SENSE, ACTED = "being.sense", "being.act"
SHOWN_SENSES = 50
PAGE = 1_000
CAPABILITIES = 100
NAME_CHARS, DESCRIPTION_CHARS = 64, 300
TIMEOUT_MS, MOST_MS = 5_000, 60_000
BRIDGES = 20
WAITING_ACTS = 100
_FOLDED = ("actions", "data_type", "target_device")
_NOT_NAME = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that a bridge can do or sense."""

    id: str
    type: str
    name: str
    description: str
    config: Mapping[str, Any]

    @property
    def tool(self) -> str:
        """The name of its tool."""
        return "act_" + _NOT_NAME.sub("_", self.name.lower())[:NAME_CHARS]

    def as_dict(self) -> dict[str, Any]:
        """The capability as JSON, as it is listed and stored."""
        return asdict(self)


def capability(given: Any) -> Capability:
    """A capability as a bridge describes it; other fields become a part of its configuration."""
    if not isinstance(given, Mapping):
        raise InvalidInput("A capability must be an object.")
    kind, name = given.get("type"), given.get("name")
    if kind not in ("sense", "act") or not isinstance(name, str) or not name.strip():
        raise InvalidInput("A capability needs a type (sense or act) and a name.")
    held = given.get("config")
    config: dict[str, Any] = dict(held) if isinstance(held, Mapping) else {}
    config |= {each: given[each] for each in _FOLDED if given.get(each) is not None}
    if len(str(config)) > 10_000:
        raise InvalidInput("A capability's configuration is too long.")
    return Capability(
        str(given.get("id") or uuid.uuid4())[:200], kind, neutral(name.strip())[:NAME_CHARS],
        neutral(str(given.get("description") or ""))[:DESCRIPTION_CHARS], config,
    )  # fmt: skip


@dataclass
class Bridge:
    """A connected bridge. `send` may be called from any thread."""

    id: str
    name: str
    capabilities: tuple[Capability, ...]
    send: Callable[[dict[str, Any]], None]
    pending: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)

    def answer(self, act_id: str, status: str, result: Any) -> bool:
        """Set the outcome of an act; return whether it was pending."""
        waiting = self.pending.pop(act_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result({"status": status, "result": result})
        return True

    def time_out_acts(self) -> None:
        """Let pending acts time out after the bridge has disconnected."""
        for act_id in list(self.pending):
            self.answer(act_id, "timeout", None)


_connected: dict[tuple[str, str], dict[str, Bridge]] = {}
_lock = threading.Lock()


def connect(space: str, being: str, bridge: Bridge) -> None:
    """Add a bridge; it replaces one of the same id."""
    with _lock:
        held = _connected.setdefault((space, being), {})
        if len(held) >= BRIDGES and bridge.id not in held:
            raise InvalidInput("Too many bridges are connected.")
        before = held.get(bridge.id)
        held[bridge.id] = bridge
    if before is not None and before is not bridge:
        before.time_out_acts()


def disconnect(space: str, being: str, bridge: Bridge) -> None:
    """Remove a bridge."""
    with _lock:
        held = _connected.get((space, being), {})
        if held.get(bridge.id) is bridge:
            del held[bridge.id]
    bridge.time_out_acts()


def connected(space: str, being: str) -> list[Bridge]:
    """The connected bridges of a being."""
    with _lock:
        return list(_connected.get((space, being), {}).values())


def capabilities(space: str, being: str, *kinds: str) -> list[tuple[Bridge, Capability]]:
    """Capabilities of connected bridges; of acts with the same tool name, only the first."""
    found: dict[tuple[str, str], tuple[Bridge, Capability]] = {}
    for bridge in connected(space, being):
        for each in bridge.capabilities:
            if each.type in (kinds or ("sense", "act")):
                name = each.tool if each.type == "act" else each.id
                found.setdefault((each.type, name), (bridge, each))
    return list(found.values())


def capability_tools(space: str, being: str) -> list[dict[str, str]]:
    """The acts that get_context lists."""
    acts = capabilities(space, being, "act")
    return [{"name": each.tool, "description": _described(each)} for _, each in acts]


def _described(each: Capability) -> str:
    said = f": {each.description}" if each.description else ""
    return f"Act through {each.name} (described by its bridge, not verified){said}"


def dynamic_tools(memory: Commonplace, caller: Caller) -> tuple[Tool, ...]:
    """The acts of a caller's being as tools; acts of disconnected bridges are hidden."""
    if not caller.subject:
        return ()
    there = capabilities(caller.space, caller.subject, "act")
    names = {each.tool for _, each in there}
    away = [each for each in _registered(memory, caller.subject) if each.type == "act"]
    return (
        *(_tool(each, _acting(bridge, each)) for bridge, each in there),
        *(_tool(each, _waiting(each), hidden=True) for each in away if each.tool not in names),
    )


def _tool(each: Capability, handler: Callable[..., dict[str, Any]], hidden: bool = False) -> Tool:
    return Tool(
        name=each.tool, title=each.tool, description=_described(each), scope="write",
        handler=handler, input=_ACT, open_world=True, stepwise=True, hidden=hidden,
    )  # fmt: skip


_ACT = takes(
    ["action"],
    action=TEXT,
    parameters={"type": "object", "default": {}},
    timeout_ms={"type": "number", "default": TIMEOUT_MS},
)


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
        event = {"act_id": act_id, "capability": what.name, "action": action, **outcome}
        call.memory.events.record(ACTED, call.caller.subject, event)
        return {"act_id": act_id, **outcome}

    return act


# --- registered capabilities, and acts that wait for a decision ----------------------------------


def _ref(being: str, each: Capability) -> str:
    name = hashlib.sha256(f"{each.type}:{each.tool}".encode()).hexdigest()[:40]
    return f"{sight.CAPABILITY}:{being}:{name}"


def _registered(memory: Commonplace, being: str) -> list[Capability]:
    rows = sight.every(memory, sight.own_rows(being, sight.CAPABILITY), "oldest")
    names = ("id", "type", "name", "description", "config")
    return [Capability(*(row.attrs["capability"][name] for name in names)) for row in rows]


def register(
    call: Call,
    being_id: str,
    *,
    capabilities: Sequence[Mapping[str, Any]],
    bridge_id: str = "",
    bridge_name: str = "",
) -> dict[str, Any]:
    """Store a bridge's capabilities."""
    given = {_ref(being_id, each): each for each in map(capability, capabilities)}
    with exclusive(call.memory, "register capabilities"):
        known = sight.own_rows(being_id, sight.CAPABILITY)
        there = {row.ref: row for row in sight.every(call.memory, known)}
        if len(there.keys() | given.keys()) > CAPABILITIES:
            raise InvalidInput(
                f"A being has at most {CAPABILITIES} capabilities.", hint="Delete some first."
            )
        for ref, each in given.items():
            text = f"{each.name}: {each.description}" if each.description else each.name
            attrs = {"capability": each.as_dict(), "bridge_id": bridge_id[:200],
                     "bridge_name": neutral(bridge_name)[:NAME_CHARS]}  # fmt: skip
            row = there.get(ref) or lookup.find(call.memory, ref)
            if row is None:
                call.memory.remember(
                    text, kind=sight.CAPABILITY, title=each.name, ref=ref, trust="external",
                    tags=[sight.tag(being_id)], attrs=attrs,
                )  # fmt: skip
            elif (row.attrs, row.state) != (attrs, "active"):
                call.memory.revise(row.id, text=text, title=each.name, attrs=attrs, state="active")
    return {"ok": True, "registered": len(capabilities)}


def unregister(call: Call, being_id: str, *, id: str) -> dict[str, Any]:
    """Delete a capability."""
    known = sight.every(call.memory, sight.own_rows(being_id, sight.CAPABILITY))
    rows = [row.id for row in known if row.attrs["capability"]["id"] == id]
    if not rows:
        raise NotFound("There is no such capability.")
    call.memory.forget(*rows)
    return {}


def _waiting(what: Capability) -> Callable[..., dict[str, Any]]:
    def wait(
        call: Call, *, action: str, parameters: Mapping[str, Any], timeout_ms: float
    ) -> dict[str, Any]:
        del timeout_ms
        being = call.caller.subject
        with exclusive(call.memory, "queue act"):
            _, there = call.memory.browse(filters=sight.own_rows(being, sight.ACT), limit=1)
            if there >= WAITING_ACTS:
                raise InvalidInput(
                    f"{there} acts are already waiting for a decision.",
                    hint="Let the owner approve or reject some of them.",
                )
            asked = {"capability_id": what.id, "capability": what.name, "action": action,
                     "parameters": dict(parameters), "status": "pending"}  # fmt: skip
            row = call.memory.remember(
                action or "-", kind=sight.ACT, title=what.name, tags=[sight.tag(being)], attrs=asked
            )
        return {
            "queue_id": row.id,
            "status": "pending",
            "message": f"The bridge of {what.name} is not connected. The act waits for the owner,"
            " who approves or rejects it; it is not carried out by itself.",
        }

    return wait


def pending_acts(call: Call, being_id: str) -> dict[str, Any]:
    """Acts that wait for a decision, oldest first."""
    rows = sight.every(call.memory, sight.own_rows(being_id, sight.ACT), "oldest")
    return {"actions": [_act_shown(row) for row in rows]}


def _act_shown(row: Memory) -> dict[str, Any]:
    return {"id": row.id, **row.attrs, "created_at": iso(row.created_at)}


def approve(call: Call, being_id: str, *, action_id: str) -> dict[str, Any]:
    """Approve an act; it is not carried out automatically."""
    return _decide(call, being_id, action_id, "approved")


def reject(call: Call, being_id: str, *, action_id: str) -> dict[str, Any]:
    """Reject an act."""
    return _decide(call, being_id, action_id, "rejected")


def _decide(call: Call, being: str, identity: str, status: str) -> dict[str, Any]:
    with exclusive(call.memory, "decide on act"):
        row = lookup.find_live(call.memory, identity)
        if row is None or not sight.is_own(being, row, sight.ACT):
            raise NotFound("No pending act has this id.")
        attrs = {**row.attrs, "status": status}
        decided = call.memory.revise(row.id, attrs=attrs, state="archived")
    call.memory.events.record(ACTED, being, {"act_id": row.id, **decided.attrs})
    return {"ok": True, "action": _act_shown(decided)}


# --- senses --------------------------------------------------------------------------------------


def take_sense(call: Call, being_id: str, *, capability_id: str, data: Any) -> dict[str, Any]:
    """Store sensed data for the next context."""
    there = [each for _, each in capabilities(call.memory.name, being_id, "sense")]
    known = [*there, *_registered(call.memory, being_id)]
    if all((each.type, each.id) != ("sense", capability_id) for each in known):
        raise InvalidInput("There is no such sense capability of this being.")
    sense = {"sense_id": str(uuid.uuid4()), "capability_id": capability_id, "data": data}
    call.memory.events.record(SENSE, being_id, sense)
    return {**{k: v for k, v in sense.items() if k != "data"}, "processed": False}


def pending_senses(memory: Commonplace, being: str, *, mark: bool) -> list[dict[str, Any]]:
    """The oldest senses that no context has shown; `mark` marks them as shown."""
    waiting = _unseen(memory, sight.find(memory, being))
    if waiting and mark:
        with exclusive(memory, "show senses"):
            row = sight.find(memory, being)
            waiting = _unseen(memory, row)  # another context may have shown them meanwhile
            if waiting:
                memory.revise(row.id, attrs={**row.attrs, "senses_shown": waiting[-1].num})
    return [{**(each.payload or {}), "created_at": iso(each.at)} for each in waiting]


def _unseen(memory: Commonplace, being: Memory) -> list[Event]:
    after = sight.number_of(being, "senses_shown")
    return memory.events.all(kind=SENSE, subject=being.id, after=after, limit=SHOWN_SENSES)


def sense_history(
    call: Call, being_id: str, *, limit: int = 20, capability_id: str | None = None
) -> dict[str, Any]:
    """Sensed data, the newest first."""
    shown = sight.number_of(sight.find(call.memory, being_id), "senses_shown")
    most = max(1, min(limit, 100))
    if capability_id is None:
        total = call.memory.events.count(kind=SENSE, subject=being_id)
        found = call.memory.events.all(kind=SENSE, subject=being_id, limit=most, newest=True)
    else:
        senses = [
            each for each in _senses(call.memory, being_id)
            if (each.payload or {}).get("capability_id") == capability_id
        ]  # fmt: skip
        total, found = len(senses), senses[::-1][:most]
    history = [
        {**(each.payload or {}), "processed": each.num <= shown, "created_at": iso(each.at)}
        for each in found
    ]
    return {"history": history, "total": total}


def _senses(memory: Commonplace, being: str) -> Iterator[Event]:
    """All senses, the oldest first."""
    after = 0
    while page := memory.events.all(kind=SENSE, subject=being, after=after, limit=PAGE):
        yield from page
        after = page[-1].num


def list_capabilities(call: Call, being_id: str) -> dict[str, Any]:
    """The capabilities of connected bridges."""
    found = capabilities(call.memory.name, being_id)
    return {"capabilities": [{**each.as_dict(), "bridge_id": b.id} for b, each in found]}


def may_connect(call: Call, being_id: str) -> dict[str, Any]:
    """Allow a bridge to connect to this being."""
    return {"being": being_id, "space": call.memory.name}
