"""Bridges: devices and programs through which a being senses and acts.

A bridge connects by WebSocket; while it is connected, each of its act capabilities is a tool.
Registered capabilities are stored: an act that is requested while its bridge is disconnected waits
for the owner's decision. Names and descriptions come from outside and are read by a model, so they
are truncated and neutralised.
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
from commonplace.dialects.being import fitting, sight
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.tool_schemas import TEXT, input_schema
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Event, Memory, iso
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.text.prose import neutralise

SENSE_EVENT, ACT_EVENT = "being.sense", "being.act"
MAX_SHOWN_SENSES = 50
PAGE = 1_000
MAX_CAPABILITIES = 100
NAME_CHARS, DESCRIPTION_CHARS = 64, 300
TIMEOUT_MS, MAX_TIMEOUT_MS = 5_000, 60_000
MAX_BRIDGES = 20
MAX_WAITING_ACTS = 100
_CONFIG_FIELDS = ("actions", "data_type", "target_device")
_NOT_NAME = re.compile(r"[^a-z0-9]")
_NAMESPACE = uuid.UUID("5b1f0d0e-7c0a-5d6e-9f43-1c2b7a4e8d10")


@dataclass(frozen=True, slots=True)
class Capability:
    """An act that a bridge can carry out, or a sense that it reports."""

    id: str
    type: str
    name: str
    description: str
    config: Mapping[str, Any]

    @property
    def tool(self) -> str:
        """The name of the tool that carries out this act."""
        return "act_" + _NOT_NAME.sub("_", self.name.lower())[:NAME_CHARS]

    def as_dict(self) -> dict[str, Any]:
        """Return the capability as a dict, for lists and for storage."""
        return asdict(self)


def parse_capability(description: Any) -> Capability:
    """Parse a capability that a bridge describes; some other fields go into `config`."""
    if not isinstance(description, Mapping):
        raise InvalidInput("A capability must be an object.")
    kind, name = description.get("type"), description.get("name")
    if kind not in ("sense", "act") or not isinstance(name, str) or not name.strip():
        raise InvalidInput("A capability needs a type (sense or act) and a name.")
    own_config = description.get("config")
    config: dict[str, Any] = dict(own_config) if isinstance(own_config, Mapping) else {}
    config |= {
        each: description[each] for each in _CONFIG_FIELDS if description.get(each) is not None
    }
    if len(str(config)) > 10_000:
        raise InvalidInput("The configuration of a capability is too long.")
    # Without an id, the same name gets the same id when the bridge registers again.
    identity = str(description.get("id") or uuid.uuid5(_NAMESPACE, f"{kind}:{name.strip()}"))
    return Capability(
        identity[:200], kind, neutralise(name.strip())[:NAME_CHARS],
        neutralise(str(description.get("description") or ""))[:DESCRIPTION_CHARS], config,
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
        future = self.pending.pop(act_id, None)
        if future is None or future.done():
            return False
        future.set_result({"status": status, "result": result})
        return True

    def time_out_acts(self) -> None:
        """Set the outcome of all pending acts to `timeout`, because the bridge has disconnected."""
        for act_id in list(self.pending):
            self.answer(act_id, "timeout", None)


_bridges_by_being: dict[tuple[str, str], dict[str, Bridge]] = {}
_lock = threading.Lock()


def connect(space: str, being: str, bridge: Bridge) -> None:
    """Add a bridge; it replaces a connected bridge with the same id."""
    with _lock:
        bridges = _bridges_by_being.setdefault((space, being), {})
        if len(bridges) >= MAX_BRIDGES and bridge.id not in bridges:
            raise InvalidInput(
                f"This being already has {MAX_BRIDGES} connected bridges. Disconnect one first."
            )
        replaced = bridges.get(bridge.id)
        bridges[bridge.id] = bridge
    if replaced is not None and replaced is not bridge:
        replaced.time_out_acts()


def disconnect(space: str, being: str, bridge: Bridge) -> None:
    """Remove a bridge, unless another one with its id has replaced it."""
    with _lock:
        bridges = _bridges_by_being.get((space, being), {})
        if bridges.get(bridge.id) is bridge:
            del bridges[bridge.id]
    bridge.time_out_acts()


def connected_bridges(space: str, being: str) -> list[Bridge]:
    """Return the connected bridges of a being."""
    with _lock:
        return list(_bridges_by_being.get((space, being), {}).values())


def capabilities(space: str, being: str, *kinds: str) -> list[tuple[Bridge, Capability]]:
    """Return the capabilities of connected bridges.

    If several acts have the same tool name, only the first of them is included.
    """
    found: dict[tuple[str, str], tuple[Bridge, Capability]] = {}
    for bridge in connected_bridges(space, being):
        for each in bridge.capabilities:
            if each.type in (kinds or ("sense", "act")):
                name = each.tool if each.type == "act" else each.id
                found.setdefault((each.type, name), (bridge, each))
    return list(found.values())


def capability_tools(space: str, being: str) -> list[dict[str, str]]:
    """Return the names and descriptions of the acts, which get_context lists."""
    acts = capabilities(space, being, "act")
    return [{"name": each.tool, "description": _tool_description(each)} for _, each in acts]


def _tool_description(each: Capability) -> str:
    description = f": {each.description}" if each.description else ""
    return f"Act through {each.name} (described by its bridge, not verified){description}"


def dynamic_tools(memory: Commonplace, caller: Caller) -> tuple[Tool, ...]:
    """Return the acts of a caller's being as tools; tools of disconnected bridges are unlisted."""
    if not caller.subject:
        return ()
    connected_acts = capabilities(caller.space, caller.subject, "act")
    names = {each.tool for _, each in connected_acts}
    registered_acts = [
        each for each in _registered_capabilities(memory, caller.subject) if each.type == "act"
    ]
    return (
        *(_act_tool(each, _act_handler(bridge, each)) for bridge, each in connected_acts),
        *(
            _act_tool(each, _queue_handler(each), hidden=True)
            for each in registered_acts
            if each.tool not in names
        ),
    )


def _act_tool(
    each: Capability, handler: Callable[..., dict[str, Any]], hidden: bool = False
) -> Tool:
    return Tool(
        name=each.tool, title=each.tool, description=_tool_description(each), scope="write",
        handler=handler, input=_ACT_INPUT, open_world=True, stepwise=True, hidden=hidden,
    )  # fmt: skip


_ACT_INPUT = input_schema(
    ["action"],
    action=TEXT,
    parameters={"type": "object", "default": {}},
    timeout_ms={"type": "number", "default": TIMEOUT_MS},
)


def _act_handler(bridge: Bridge, capability: Capability) -> Callable[..., dict[str, Any]]:
    def act(
        call: Call, *, action: str, parameters: Mapping[str, Any], timeout_ms: float
    ) -> dict[str, Any]:
        act_id = str(uuid.uuid4())
        future: Future[dict[str, Any]] = Future()
        bridge.pending[act_id] = future
        seconds = max(1.0, min(float(timeout_ms), MAX_TIMEOUT_MS)) / 1000
        try:
            bridge.send(
                {"type": "act", "act_id": act_id, "capability_id": capability.id, "action": action,
                 "parameters": dict(parameters)}
            )  # fmt: skip
            outcome = future.result(seconds)
        except Late:
            outcome = {"status": "timeout", "result": None}
        finally:
            bridge.pending.pop(act_id, None)
        event = {"act_id": act_id, "capability": capability.name, "action": action}
        try:
            call.memory.events.record(ACT_EVENT, call.caller.subject, {**event, **outcome})
        except InvalidInput as error:
            # The act has been carried out; an error would make the caller repeat it.
            outcome |= {"result": None, "error": f"The result was left out: {error.message}"}
            call.memory.events.record(ACT_EVENT, call.caller.subject, {**event, **outcome})
        return {"act_id": act_id, **outcome}

    return act


# --- registered capabilities, and acts that wait for a decision ----------------------------------


def _capability_ref(being: str, each: Capability) -> str:
    """Return the ref of a capability: acts of one name are one tool, senses differ by their ids."""
    own = each.tool if each.type == "act" else each.id
    name = hashlib.sha256(f"{each.type}:{own}".encode()).hexdigest()[:40]
    return f"{sight.CAPABILITY}:{being}:{name}"


def _registered_capabilities(memory: Commonplace, being: str) -> list[Capability]:
    rows = sight.readable_rows(memory, sight.own_row_filters(being, sight.CAPABILITY), "oldest")
    return [_capability_of(row) for row in rows]


def _capability_of(row: Memory) -> Capability:
    names = ("id", "type", "name", "description", "config")
    return Capability(*(row.attrs["capability"][name] for name in names))


def register_capabilities(
    call: Call,
    being_id: str,
    *,
    capabilities: Sequence[Mapping[str, Any]],
    bridge_id: str = "",
    bridge_name: str = "",
) -> dict[str, Any]:
    """Store the capabilities that a bridge registers."""
    by_ref = {_capability_ref(being_id, each): each for each in map(parse_capability, capabilities)}
    with exclusive(call.memory, "register capabilities"):
        filters = sight.own_row_filters(being_id, sight.CAPABILITY)
        every = sight.readable_rows(call.memory, filters)
        existing = {_capability_ref(being_id, _capability_of(row)): row for row in every}
        renamed = _renamed_capabilities(existing, by_ref, bridge_id[:200])
        for ref in renamed:
            call.memory.forget(existing.pop(ref).id)
        if len(existing.keys() | by_ref.keys()) > MAX_CAPABILITIES:
            ids = [_capability_of(row).id for ref, row in existing.items() if ref not in by_ref]
            raise InvalidInput(
                f"A being has at most {MAX_CAPABILITIES} capabilities.",
                hint=f"Delete some capabilities first. Others have the ids {', '.join(ids[-5:])}.",
            )
        for ref, each in by_ref.items():
            text = f"{each.name}: {each.description}" if each.description else each.name
            attrs = {"capability": each.as_dict(), "bridge_id": bridge_id[:200],
                     "bridge_name": neutralise(bridge_name)[:NAME_CHARS]}  # fmt: skip
            row = existing.get(ref) or lookup.find_memory(call.memory, ref)
            if row is None:
                call.memory.remember(
                    text, kind=sight.CAPABILITY, title=each.name, ref=ref, trust="external",
                    tags=[sight.being_tag(being_id)], attrs=attrs,
                )  # fmt: skip
            elif (row.attrs, row.state) != (attrs, "active"):
                call.memory.revise(row.id, text=text, title=each.name, attrs=attrs, state="active")
    return {"ok": True, "registered": len(capabilities)}


def _renamed_capabilities(
    existing: Mapping[str, Memory], by_ref: Mapping[str, Capability], bridge_id: str
) -> list[str]:
    """Return the refs of a bridge's capabilities to which it now gives another name."""
    ids = {(each.type, each.id) for each in by_ref.values()}
    return [
        ref for ref, row in existing.items()
        if bridge_id and row.attrs.get("bridge_id") == bridge_id and ref not in by_ref
        and (_capability_of(row).type, _capability_of(row).id) in ids
    ]  # fmt: skip


def delete_capability(call: Call, being_id: str, *, id: str) -> dict[str, Any]:
    """Delete a capability; a connected bridge loses it until the bridge registers again."""
    registered = sight.readable_rows(call.memory, sight.own_row_filters(being_id, sight.CAPABILITY))
    rows = [row.id for row in registered if row.attrs["capability"]["id"] == id]
    if not rows:
        raise NotFound("There is no such capability.")
    call.memory.forget(*rows)
    call.afterwards.append(lambda: _withdraw(call.memory.name, being_id, id))
    return {}


def _withdraw(space: str, being: str, capability_id: str) -> None:
    """Remove a capability from the connected bridges of a being."""
    with _lock:
        for bridge in _bridges_by_being.get((space, being), {}).values():
            kept = (each for each in bridge.capabilities if each.id != capability_id)
            bridge.capabilities = tuple(kept)


def _queue_handler(capability: Capability) -> Callable[..., dict[str, Any]]:
    def queue(
        call: Call, *, action: str, parameters: Mapping[str, Any], timeout_ms: float
    ) -> dict[str, Any]:
        del timeout_ms
        being = call.caller.subject
        with exclusive(call.memory, "queue act"):
            _, count = call.memory.browse(filters=sight.own_row_filters(being, sight.ACT), limit=1)
            if count >= MAX_WAITING_ACTS:
                raise InvalidInput(
                    f"{count} acts already wait for a decision.",
                    hint="Let the owner approve or reject some of them.",
                )
            attrs = {
                "capability_id": capability.id,
                "capability": capability.name,
                "action": action,
                "parameters": dict(parameters),
                "status": "pending",
            }
            row = call.memory.remember(
                action or "-",
                kind=sight.ACT,
                title=capability.name,
                tags=[sight.being_tag(being)],
                attrs=attrs,
            )
        return {
            "queue_id": row.id,
            "status": "pending",
            "message": f"The bridge of {capability.name} is not connected. The act waits until the"
            " owner approves or rejects it. It is not carried out automatically.",
        }

    return queue


def pending_acts(call: Call, being_id: str) -> dict[str, Any]:
    """Return the acts that wait for the owner's decision, oldest first.

    Acts that do not fit into the response are listed once others are decided.
    """
    rows = sight.readable_rows(call.memory, sight.own_row_filters(being_id, sight.ACT), "oldest")
    actions = [_act_to_dict(row) for row in rows]
    return {"actions": fitting.first_entries(actions, lambda action: action)}


def _act_to_dict(row: Memory) -> dict[str, Any]:
    return {"id": row.id, **row.attrs, "created_at": iso(row.created_at)}


def approve_act(call: Call, being_id: str, *, action_id: str) -> dict[str, Any]:
    """Mark an act as approved; this does not carry out the act."""
    return _set_act_status(call, being_id, action_id, "approved")


def reject_act(call: Call, being_id: str, *, action_id: str) -> dict[str, Any]:
    """Mark an act as rejected."""
    return _set_act_status(call, being_id, action_id, "rejected")


def _set_act_status(call: Call, being: str, identity: str, status: str) -> dict[str, Any]:
    with exclusive(call.memory, "decide on act"):
        row = lookup.find_live_memory(call.memory, identity)
        if row is None or not sight.is_own(being, row, sight.ACT):
            raise NotFound("No pending act has this id.")
        attrs = {**row.attrs, "status": status}
        decided = call.memory.revise(row.id, attrs=attrs, state="archived")
    call.memory.events.record(ACT_EVENT, being, {"act_id": row.id, **decided.attrs})
    return {"ok": True, "action": _act_to_dict(decided)}


# --- senses --------------------------------------------------------------------------------------


def store_sense(call: Call, being_id: str, *, capability_id: str, data: Any) -> dict[str, Any]:
    """Store data that a bridge has sensed; the next context contains it."""
    connected_senses = [each for _, each in capabilities(call.memory.name, being_id, "sense")]
    known = [*connected_senses, *_registered_capabilities(call.memory, being_id)]
    if all((each.type, each.id) != ("sense", capability_id) for each in known):
        raise InvalidInput("This being has no sense capability with this id.")
    sense = {"sense_id": str(uuid.uuid4()), "capability_id": capability_id, "data": data}
    call.memory.events.record(SENSE_EVENT, being_id, sense)
    return {**{k: v for k, v in sense.items() if k != "data"}, "processed": False}


def pending_senses(memory: Commonplace, being: str, *, mark_shown: bool) -> list[dict[str, Any]]:
    """Return the oldest sensed data that no context has contained.

    With `mark_shown` the data is marked as shown, so that the next context does not contain it.
    """
    unseen = _unseen_sense_events(memory, sight.get_being(memory, being))
    if unseen and mark_shown:
        with exclusive(memory, "show senses"):
            row = sight.get_being(memory, being)
            # Another context may have contained them since.
            unseen = _unseen_sense_events(memory, row)
            if unseen:
                last = unseen[-1]
                shown = {"senses_shown": last.num, "sense_shown": _sense_id(last)}
                memory.revise(row.id, attrs={**row.attrs, **shown})
    return [{**(each.payload or {}), "created_at": iso(each.at)} for each in unseen]


def _unseen_sense_events(memory: Commonplace, being: Memory) -> Sequence[Event]:
    after = _last_shown_number(memory, being)
    oldest = memory.events.all(
        kind=SENSE_EVENT, subject=being.id, after=after, limit=MAX_SHOWN_SENSES
    )
    return fitting.first_entries(oldest, lambda event: event.payload)


def _last_shown_number(memory: Commonplace, being: Memory) -> int:
    """Return the number of the newest sensed data that a context has contained, or 0.

    An import gives events other numbers. The id of the sensed data then tells which one it was.
    """
    number, identity = sight.integer_attr(being, "senses_shown"), being.attrs.get("sense_shown")
    if number < 1 or not identity:
        return number
    there = memory.events.all(kind=SENSE_EVENT, subject=being.id, after=number - 1, limit=1)
    if there and there[0].num == number and _sense_id(there[0]) in ("", identity):
        return number
    found = (each.num for each in _sense_events(memory, being.id) if _sense_id(each) == identity)
    return max(found, default=number)


def _sense_id(event: Event) -> str:
    """Return the id of sensed data; empty if its payload was purged."""
    return str((event.payload or {}).get("sense_id", ""))


def sense_history(
    call: Call, being_id: str, *, limit: int = 20, capability_id: str | None = None
) -> dict[str, Any]:
    """Return sensed data, newest first."""
    shown = _last_shown_number(call.memory, sight.get_being(call.memory, being_id))
    most = max(1, min(limit, 100))
    if capability_id is None:
        total = call.memory.events.count(kind=SENSE_EVENT, subject=being_id)
        found = call.memory.events.all(kind=SENSE_EVENT, subject=being_id, limit=most, newest=True)
    else:
        senses = [
            each for each in _sense_events(call.memory, being_id)
            if (each.payload or {}).get("capability_id") == capability_id
        ]  # fmt: skip
        total, found = len(senses), senses[::-1][:most]
    history = [
        {**(each.payload or {}), "processed": each.num <= shown, "created_at": iso(each.at)}
        for each in found
    ]
    return {"history": history, "total": total}


def _sense_events(memory: Commonplace, being: str) -> Iterator[Event]:
    """Yield all events that record data from the being's bridges, oldest first."""
    after = 0
    while page := memory.events.all(kind=SENSE_EVENT, subject=being, after=after, limit=PAGE):
        yield from page
        after = page[-1].num


def list_capabilities(call: Call, being_id: str) -> dict[str, Any]:
    """Return the capabilities of connected bridges."""
    found = capabilities(call.memory.name, being_id)
    return {"capabilities": [{**each.as_dict(), "bridge_id": b.id} for b, each in found]}


def check_connection(call: Call, being_id: str) -> dict[str, Any]:
    """Check that a bridge may connect to this being; the gate has authorised the call."""
    return {"being": being_id, "space": call.memory.name}
