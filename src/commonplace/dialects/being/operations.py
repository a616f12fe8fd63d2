"""What the REST routes do, each through the gate with its scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.being import (
    beings,
    bridges,
    context,
    history,
    merging,
    recalling,
    records,
    running,
    sight,
    tools,
)
from commonplace.dialects.being import notes as noting
from commonplace.dialects.being.scenes import scene_of
from commonplace.dialects.contract import Call, Schema, Tool
from commonplace.dialects.tool_schemas import FLAG, OBJECT, TEXT, listed, takes, text, whole
from commonplace.engine.model import Memory, iso
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive


def _as(call: Call, being_id: str) -> Call:
    """The call made as the being that the path names; another's is as if it did not exist."""
    bound = call.caller.subject
    if bound and bound != being_id:
        raise NotFound("There is no such being.")
    found = sight.find(call.memory, being_id)
    return replace(call, caller=replace(call.caller, subject=found.id))


def _for_a_being(handler: Callable[..., Any]) -> Callable[..., Any]:
    def acted(call: Call, *, being_id: str, **arguments: Any) -> Any:
        made = _as(call, being_id)
        return handler(made, made.caller.subject, **arguments)

    return acted


def list_beings(call: Call) -> Any:
    """The owner's beings; of a token for one being, that one."""
    found = [beings.shown(each) for each in sight.beings(call.memory)]
    return [each for each in found if call.caller.subject in ("", each["id"])]


def create_being(call: Call, *, name: str) -> Any:
    """A new being."""
    if call.caller.subject:
        raise NotFound("There is no such being.")
    return beings.shown(beings.create(call.memory, name))


def show_being(call: Call, being: str) -> Any:
    """One being."""
    return beings.shown(sight.find(call.memory, being))


def delete_being(call: Call, being: str) -> Any:
    """Let a being go."""
    beings.delete(call.memory, being)
    return {}


def get_soul(call: Call, being: str) -> Any:
    """Who a being is."""
    soul = beings.soul(call.memory, being)
    if soul is None:
        raise NotFound("There is no soul.")
    held = {name: soul.attrs.get(name) for name in beings.SOUL_ALL}
    thoughts = records.thoughts(call.memory, being) or None
    return {"being_id": being, **held, "think_md": thoughts, "updated_at": iso(soul.updated_at)}


def put_soul(call: Call, being: str, **changes: str) -> Any:
    """Say who a being is; fields that are not named stay."""
    if not changes:
        raise InvalidInput(f"Name a field: {', '.join(beings.SOUL_ALL)}.")
    with exclusive(call.memory, "put soul"):
        beings.change_soul(call.memory, being, changes, trust="stated")
    return get_soul(call, being)


def get_preferences(call: Call, being: str) -> Any:
    """What a being likes."""
    return [records.PREFERENCES.shown(each) for each in records.PREFERENCES.all(call.memory, being)]


def put_preference(call: Call, being: str, *, key: str, description: str) -> Any:
    """Put a preference down."""
    with exclusive(call.memory, "put preference"):
        entry = records.PREFERENCES.put(call.memory, being, key, description, "stated")
    return records.PREFERENCES.shown(entry)


def get_relationships(call: Call, being: str) -> Any:
    """Whom a being knows."""
    rows = records.RELATIONSHIPS.all(call.memory, being)
    return [
        {"id": row.id, "person_name": row.title, "description": row.text,
         "updated_at": iso(row.updated_at)}
        for row in rows
    ]  # fmt: skip


def put_relationship(call: Call, being: str, *, id: str, description: str) -> Any:
    """Another description of somebody."""
    row = noting.find(call.memory, being, id, sight.RELATIONSHIP)
    if row is None:
        raise NotFound("There is no such relationship.")
    changed = call.memory.revise(row.id, text=description)
    return {"id": row.id, "person_name": row.title, "description": changed.text}


def get_rules(call: Call, being: str) -> Any:
    """A being's rules."""
    return [records.rule_shown(rule) for rule in records.rules(call.memory, being)]


def put_rule(
    call: Call,
    being: str,
    *,
    content: str,
    title: str,
    id: str | None = None,
    **attrs: Any,
) -> Any:
    """A new rule, or other words for one; of that, what is not named stays."""
    if id is None:
        category = attrs.pop("category", "")
        rule = records.add_rule(call.memory, being, category, title, content, "stated", **attrs)
        return records.rule_shown(rule)
    with exclusive(call.memory, "put rule"):
        there = noting.find(call.memory, being, id, sight.RULE)
        if there is None:
            raise NotFound("There is no such rule.")
        kept = {**there.attrs, **attrs}
        rule = call.memory.revise(there.id, text=content, title=title, attrs=kept)
    return records.rule_shown(rule)


def get_notes(call: Call, being: str) -> Any:
    """A being's notes, the newest first."""
    newest, _ = call.memory.browse(
        filters=sight.own(being, sight.NOTE, sight.SCENE), limit=noting.LISTED
    )
    return [noting.shown(note) for note in newest]


def post_note(call: Call, being: str, *, content: str) -> Any:
    """A new note."""
    return noting.shown(noting.add_note(call.memory, being, content, "stated"))


def get_context(call: Call, being: str) -> Any:
    """The context, with more beside it."""
    return context.rest_context(call, being, [tool.listed() for tool in tools.TOOLS])


def recall(call: Call, being: str, **arguments: Any) -> Any:
    """recall_memory."""
    del being
    return {"result": recalling.recall_memory(call, **arguments)}


def merge(call: Call, being: str, **arguments: Any) -> Any:
    """merge_nodes."""
    del being
    return {"result": merging.merge_nodes(call, **arguments)}


def update(call: Call, being: str, *, target: str, action: str, **rest: Any) -> Any:
    """update_memory, by the owner."""
    request = records.Request(
        call.memory, being, target, rest.get("content") or "", (rest.get("key") or "").strip(),
        rest.get("location"), (rest.get("to") or "").strip(), "stated",
    )  # fmt: skip
    return records.perform(request, action)


def conclude(
    call: Call,
    being: str,
    *,
    summary: str | None = None,
    scenes: Sequence[Any] = (),
    notes: Sequence[Any] = (),
    **arguments: Any,
) -> Any:
    """update_notes; a scene may also be a text, and a summary becomes a note."""
    del being
    told = [
        {"action": each, "when": [records.today()]} if isinstance(each, str) else each
        for each in scenes
    ]
    written = [*notes, summary] if summary is not None else notes
    return {"result": noting.update_notes(call, scenes=told, notes=written, **arguments)}


def search_history(call: Call, being: str, **arguments: Any) -> Any:
    """search_history; a query is needed."""
    del being
    return {"result": history.search_history(call, **arguments)}


def search_nodes(
    call: Call, being: str, *, query: str, limit: float = recalling.FOUND, mode: str = "or"
) -> Any:
    """Nodes in which any keyword, or with the mode `and` every keyword, occurs."""
    del being
    count = max(1, min(int(limit), recalling.MOST_FOUND))
    matched = recalling.by_words(call, query, count, every=mode == "and")
    nodes = [_node_shown(node) for node, _ in matched]
    return {"nodes": nodes, "count": len(nodes)}


def auto_recall(call: Call, being: str, *, user_message: str) -> Any:
    """What comes to mind by the themes that a model sees in a message."""
    thinking = running.of(call.memory.library).thinking(call, running.CALL_SECONDS)
    if thinking is None:
        raise InvalidInput(
            "This needs a language model.",
            hint="Send X-LLM-API-Key, or keep a key; recall and memory/search-nodes need none.",
        )
    thinking.spent = lambda what, told: call.memory.events.record(
        "being.llm", being, {"purpose": what, **told}
    )
    clusters = {each.name: each for each in recalling.held(call.memory, being)}
    chosen = thinking.choose(user_message, list(clusters)) if clusters else []
    if chosen is None:
        raise CommonplaceError(
            "The model did not answer usefully.", hint="Ask again, or use memory/search-nodes."
        )
    found = {
        node.id: node
        for name in chosen
        for node in call.memory.clusters.members(
            clusters[name].id, states=["active"], most=recalling.RECALLED
        )
    }
    nodes = sorted(found.values(), key=lambda node: -node.importance)[: recalling.RECALLED]
    recalling.touch(call.memory, nodes)
    return {
        "nodes": [_node_shown(node) for node in nodes],
        "keywords": chosen,
        "recall_content": recalling.in_pieces(nodes),
    }


def _node_shown(node: Memory) -> dict[str, Any]:
    scene = scene_of(node).as_dict()
    return {"id": node.id, **scene, "importance": node.importance, "status": node.state}


def relate(
    call: Call,
    being: str,
    *,
    entity_name: str,
    relation_type: str,
    action: str,
    content: str | None = None,
) -> Any:
    """update_relation, by the owner."""
    return records.relate(
        call.memory, being, entity_name, relation_type, action, content or "", "stated"
    )


def trigger(call: Call, being: str, **arguments: Any) -> Any:
    """trigger_patrol."""
    del being
    return running.trigger_patrol(call, **arguments)


def _keys(call: Call) -> Any:
    keys = running.of(call.memory.library).keys()
    if keys is None:
        raise InvalidInput("There is nothing here to seal a key with.")
    return keys


def about_key(call: Call) -> Any:
    """Whether the owner's key is there; never the key."""
    return _keys(call).about(call.memory.name)


def put_key(call: Call, *, provider: str = "anthropic", model: str = "") -> Any:
    """Keep the key of the header X-LLM-API-Key: what is in a body is an argument like others."""
    _no_being(call)
    key = call.request_info.headers.get(running.HEADER, "")
    if not key:
        raise InvalidInput(
            "The key is missing.", hint="Send it in the header X-LLM-API-Key, not in the body."
        )
    _keys(call).put(call.memory.name, key, provider=provider, model=model)
    return _keys(call).about(call.memory.name)


def delete_key(call: Call) -> Any:
    """Keep it no longer."""
    _no_being(call)
    if not _keys(call).forget(call.memory.name):
        raise NotFound("There is no key.")
    return {}


def _no_being(call: Call) -> None:
    """A token for one being does not reach what is its owner's alone."""
    if call.caller.subject:
        raise NotFound("There is nothing here.")


def _without(schema: Schema, *names: str) -> dict[str, Schema]:
    return {k: v for k, v in schema["properties"].items() if k not in names}


def _operation(
    name: str,
    scope: Scope,
    handler: Callable[..., Any],
    required: tuple[str, ...] = (),
    stepwise: bool = False,
    only_reads: bool = False,
    /,
    **properties: Schema,
) -> Tool:
    """An operation on the being that the path names."""
    taken = takes(("being_id", *required), being_id=TEXT, **properties)
    return Tool(
        name=name, title=name, description=handler.__doc__ or name, scope=scope,
        handler=_for_a_being(handler), input=taken, stepwise=stepwise, only_reads=only_reads,
    )  # fmt: skip


def _plain(
    name: str, scope: Scope, handler: Callable[..., Any], schema: Schema, **more: Any
) -> Tool:
    return Tool(
        name=name, title=name, description=handler.__doc__ or name, scope=scope, handler=handler,
        input=schema, **more,
    )  # fmt: skip


_SOUL: dict[str, Schema] = dict.fromkeys(beings.SOUL_ALL, TEXT)

OPERATIONS = (
    # Over REST the contract lets a read-only token GET and nothing else: a search by POST is more.
    _plain("list_beings", "read", list_beings, takes()),
    _plain("create_being", "write", create_being, takes(("name",), name=TEXT)),
    _operation("show_being", "read", show_being),
    _operation("delete_being", "delete", delete_being),
    _operation("get_soul", "read", get_soul),
    _operation("put_soul", "write", put_soul, **_SOUL),
    _operation("get_preferences", "read", get_preferences),
    _operation(
        "put_preference", "write", put_preference, ("key", "description"), key=TEXT,
        description=TEXT,
    ),
    _operation("get_relationships", "read", get_relationships),
    _operation(
        "put_relationship", "write", put_relationship, ("id", "description"), id=TEXT,
        description=TEXT,
    ),
    _operation("get_rules", "read", get_rules),
    _operation(
        "put_rule", "write", put_rule, ("title", "content"), id=TEXT, title=TEXT, content=TEXT,
        category=TEXT, sort_order=whole(0, 1_000_000), enabled=FLAG,
    ),
    _operation("get_notes", "read", get_notes),
    _operation("post_note", "write", post_note, ("content",), content=TEXT),
    _operation("rest_context", "read", get_context),
    _operation(
        "memory_recall", "write", recall, (), False, True, **_without(tools.RECALL_MEMORY_INPUT)
    ),
    _operation(
        "memory_merge", "write", merge, ("node_ids", "summary"), **_without(tools.MERGE_INPUT)
    ),
    _operation(
        "memory_update", "write", update, ("target", "action"), **_without(tools.MEMORY_INPUT)
    ),
    _operation(
        "memory_conclude", "write", conclude, summary=text("Stored as a note"),
        scenes=listed({"anyOf": [TEXT, tools.SCENE]}, 200, default=[]),
        **_without(tools.NOTES_INPUT, "scenes"),
    ),
    _operation(
        "memory_search_history", "write", search_history, ("query",), False, True,
        **_without(tools.HISTORY_INPUT),
    ),
    _operation(
        "memory_search_nodes", "write", search_nodes, ("query",), False, True,
        **_without(tools.SEARCH_INPUT),
    ),
    _operation(
        "relationships_update", "write", relate, ("entity_name", "relation_type", "action"),
        **_without(tools.RELATION_INPUT),
    ),
    _operation(
        "memory_auto_recall", "write", auto_recall, ("user_message",), True, True,
        user_message=TEXT,
    ),
    _operation(
        "patrol_trigger", "write", trigger, ("messages",), True,
        **_without(tools.PATROL_INPUT),
    ),
    _operation(
        "add_messages", "write", history.add_messages, ("messages",),
        messages=listed(tools.MESSAGE, 1_000, minItems=1),
    ),
    _operation("bridge_connect", "write", bridges.may_connect),
    _operation(
        "bridge_sense", "write", bridges.take_sense, ("capability_id", "data"),
        capability_id=TEXT, data={},
    ),
    _operation("list_capabilities", "read", bridges.listed),
    _operation(
        "register_capabilities", "write", bridges.register, ("capabilities",),
        capabilities=listed(OBJECT, bridges.CAPABILITIES),
        bridge_id=TEXT, bridge_name=TEXT,
    ),
    _operation("delete_capability", "delete", bridges.unregister, ("id",), id=TEXT),
    _operation("pending_acts", "read", bridges.pending_acts),
    _operation("approve_act", "write", bridges.approve, ("action_id",), action_id=TEXT),
    _operation("reject_act", "write", bridges.reject, ("action_id",), action_id=TEXT),
    _operation(
        "sense_history", "read", bridges.sense_history,
        limit=whole(1), capability_id=TEXT,
    ),
    _plain("about_llm_key", "read", about_key, takes()),
    _plain("put_llm_key", "write", put_key, takes(
        provider={"enum": ["anthropic", "openai"], "default": "anthropic"}, model=TEXT,
    ), stepwise=True, withheld=True),
    _plain("delete_llm_key", "delete", delete_key, takes(), stepwise=True),
)  # fmt: skip
