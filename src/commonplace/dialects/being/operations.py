"""The operations of the REST routes. Each one runs through the gate, which checks its scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.being import (
    beings,
    bridges,
    context,
    fitting,
    history,
    recalling,
    records,
    running,
    sight,
    talking,
    tools,
)
from commonplace.dialects.being import notes as noting
from commonplace.dialects.being.scenes import scene_of
from commonplace.dialects.contract import WHOLE_TEXT_BYTES, Call, Schema, Tool
from commonplace.dialects.tool_schemas import FLAG, OBJECT, TEXT, array, input_schema, integer, text
from commonplace.engine import checks
from commonplace.engine.model import Memory, iso
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

Handler = Callable[..., Any]
_operations: list[Tool] = []


def _operation(
    scope: Scope,
    *required: str,
    operation_name: str = "",
    takes_being: bool = True,
    options: Mapping[str, Any] | None = None,
    **properties: Schema,
) -> Callable[[Handler], Handler]:
    """Return a decorator that registers a function as an operation on the being in the path.

    Over REST the contract allows a read-only token to use GET only, so a search by POST needs the
    scope `write`.
    """

    def decorate(handler: Handler) -> Handler:
        title = operation_name or handler.__name__
        schema = input_schema(required, **properties)
        if takes_being:
            schema = input_schema(("being_id", *required), being_id=TEXT, **properties)
        operation = Tool(
            name=title, title=title, description=handler.__doc__ or title, scope=scope,
            handler=_wrap_for_being(handler) if takes_being else handler, input=schema,
            response_bytes=WHOLE_TEXT_BYTES, **(options or {}),
        )  # fmt: skip
        _operations.append(operation)
        return handler

    return decorate


def _wrap_for_being(handler: Handler) -> Handler:
    """Wrap a handler to run as the being in the path; raise NotFound if it is not the caller's."""

    def run_as_being(call: Call, *, being_id: str, **arguments: Any) -> Any:
        if call.caller.subject not in ("", being_id):
            raise NotFound("There is no such being.")
        being = sight.get_being(call.memory, being_id).id
        call = replace(call, caller=replace(call.caller, subject=being))
        return handler(call, being, **arguments)

    return run_as_being


def _refuse_tokens_of_a_being(call: Call, message: str) -> None:
    """Raise NotFound if the caller's token is bound to one being."""
    if call.caller.subject:
        raise NotFound(message)


_ONLY_READS = {"only_reads": True}
_STEPWISE = {"stepwise": True}
_SOUL_PROPERTIES: dict[str, Any] = dict.fromkeys(beings.ALL_SOUL_FIELDS, TEXT)

# --- beings and their structured memory ----------------------------------------------------------


@_operation("read", takes_being=False)
def list_beings(call: Call) -> Any:
    """Return the owner's beings; for a token of one being, only this being."""
    found = [beings.to_dict(each) for each in sight.beings(call.memory)]
    return [each for each in found if call.caller.subject in ("", each["id"])]


@_operation("write", "name", takes_being=False, name=TEXT)
def create_being(call: Call, *, name: str) -> Any:
    """Create a being."""
    _refuse_tokens_of_a_being(call, "There is no such being.")
    return beings.to_dict(beings.create(call.memory, name))


@_operation("read")
def show_being(call: Call, being: str) -> Any:
    """Return the being in the path."""
    return beings.to_dict(sight.get_being(call.memory, being))


@_operation("delete")
def delete_being(call: Call, being: str) -> Any:
    """Delete a being."""
    beings.delete(call.memory, being)
    return {}


@_operation("read")
def get_soul(call: Call, being: str) -> Any:
    """Return a being's soul."""
    soul = beings.soul(call.memory, being)
    if soul is None:
        raise NotFound("This being has no soul.")
    fields = {name: soul.attrs.get(name) for name in beings.ALL_SOUL_FIELDS}
    thoughts = records.thoughts(call.memory, being) or None
    return {"being_id": being, **fields, "think_md": thoughts, "updated_at": iso(soul.updated_at)}


@_operation("write", **_SOUL_PROPERTIES)
def put_soul(call: Call, being: str, **changes: str) -> Any:
    """Change fields of a being's soul."""
    if not changes:
        raise InvalidInput(f"Name a field: {', '.join(beings.ALL_SOUL_FIELDS)}.")
    with exclusive(call.memory, "put soul"):
        beings.change_soul(call.memory, being, changes, trust="stated")
    return get_soul(call, being)


@_operation("read")
def get_preferences(call: Call, being: str) -> Any:
    """Return a being's preferences."""
    rows = records.PREFERENCES.all(call.memory, being)
    return fitting.fit_texts([records.PREFERENCES.to_dict(each) for each in rows], "content")


@_operation("write", "key", "description", key=TEXT, description=TEXT)
def put_preference(call: Call, being: str, *, key: str, description: str) -> Any:
    """Insert or replace a preference."""
    checks.text(description, "description")
    with exclusive(call.memory, "put preference"):
        entry = records.PREFERENCES.put(call.memory, being, key.strip(), description, "stated")
    return records.PREFERENCES.to_dict(entry)


@_operation("read")
def get_relationships(call: Call, being: str) -> Any:
    """Return a being's relationships."""
    rows = records.RELATIONSHIPS.all(call.memory, being)
    listed = [{**_relationship_to_dict(row), "updated_at": iso(row.updated_at)} for row in rows]
    return fitting.fit_texts(listed, "description")


@_operation("write", "id", "description", id=TEXT, description=TEXT)
def put_relationship(call: Call, being: str, *, id: str, description: str) -> Any:
    """Replace the description of a relationship."""
    checks.text(description, "description")
    with exclusive(call.memory, "put relationship"):
        row = noting.find(call.memory, being, id, sight.RELATIONSHIP)
        if row is None:
            raise NotFound("There is no such relationship.")
        return _relationship_to_dict(call.memory.revise(row.id, text=description))


def _relationship_to_dict(row: Memory) -> dict[str, Any]:
    return {"id": row.id, "person_name": row.title, "description": row.text}


@_operation("read")
def get_rules(call: Call, being: str) -> Any:
    """Return a being's rules."""
    return fitting.fit_texts(records.rule_dicts(call.memory, being), "content")


@_operation(
    "write", "title", "content", id=TEXT, title=TEXT, content=TEXT, category=TEXT,
    sort_order=integer(0, 1_000_000), enabled=FLAG,
)  # fmt: skip
def put_rule(
    call: Call, being: str, *, content: str, title: str, id: str | None = None, **attrs: Any
) -> Any:
    """Add a rule, or change fields of an existing rule."""
    checks.text(title, "title", max_chars=checks.TITLE_CHARS)
    checks.text(content, "content")
    if id is None:
        category = attrs.pop("category", "")
        rule = records.add_rule(call.memory, being, category, title, content, "stated", **attrs)
        return records.rule_to_dict(rule)
    with exclusive(call.memory, "put rule"):
        there = noting.find(call.memory, being, id, sight.RULE)
        if there is None:
            raise NotFound("There is no such rule.")
        changed = {**there.attrs, **attrs}
        rule = call.memory.revise(there.id, text=content, title=title, attrs=changed)
    return records.rule_to_dict(rule)


@_operation("read")
def get_notes(call: Call, being: str) -> Any:
    """Return a being's notes, the newest first."""
    return fitting.fit_texts(noting.newest_notes(call.memory, being), "content")


@_operation("write", "content", content=TEXT)
def post_note(call: Call, being: str, *, content: str) -> Any:
    """Store a note."""
    checks.text(content, "content")
    return noting.to_dict(noting.add_note(call.memory, being, content, "stated"))


@_operation("read")
def get_clusters(call: Call, being: str) -> Any:
    """Return a being's clusters that have nodes or subclusters, with the number of their nodes."""
    sizes = recalling.cluster_sizes(call.memory)
    listed = []
    for each in recalling.clusters_in_use(call.memory, being):
        name, digest = recalling.describe_cluster(call.memory, each)
        nodes = sizes.get(each.id, 0)
        listed.append({"id": each.id, "name": name, "digest": digest, "parent": each.parent,
                       "nodes": nodes})  # fmt: skip
    return listed


@_operation("read", limit=integer(1, 366, records.DEFAULT_DIARY_DAYS))
def get_diary(call: Call, being: str, *, limit: int) -> Any:
    """Return the newest entries of a being's diary."""
    days = records.diary_entries(call.memory, being, limit)
    return fitting.fit_texts([{"date": day.title, "text": day.text} for day in days], "text")


@_operation("read")
def rest_context(call: Call, being: str) -> Any:
    """Return the context, with notes, pinned nodes and tools."""
    return context.rest_context(call, being, [tool.list_entry() for tool in tools.TOOLS])


# --- tools of the contract -----------------------------------------------------------------------


def _register_tool(
    scope: Scope, name: str, schema: Schema, handler: Handler, *required: str, **options: bool
) -> None:
    """Register an operation that runs the handler of a tool."""
    needed = required or schema.get("required", ())
    register = _operation(
        scope, *needed, operation_name=name, options=options, **schema["properties"]
    )
    register(handler)


def _wrap_as_result(handler: Handler) -> Handler:
    return lambda call, _, **arguments: {"result": handler(call, **arguments)}


def _wrap_for_owner(handler: Handler) -> Handler:
    """Wrap a handler to store text with the trust `stated`, because the owner wrote it."""
    return lambda call, _, **arguments: handler(call, **arguments, trust="stated")


_register_tool(
    "write",
    "memory_recall",
    tools.RECALL_MEMORY_INPUT,
    _wrap_as_result(recalling.recall_memory),
    only_reads=True,
)
_register_tool("write", "memory_merge", tools.MERGE_INPUT, _wrap_as_result(recalling.merge_nodes))
_register_tool("write", "memory_update", tools.MEMORY_INPUT, _wrap_for_owner(records.update_memory))
_register_tool(
    "write",
    "memory_search_history",
    tools.HISTORY_INPUT,
    _wrap_as_result(history.search_history),
    "query",
    only_reads=True,
)
_register_tool(
    "write",
    "relationships_update",
    tools.RELATION_INPUT,
    _wrap_for_owner(records.update_relation),
)
_register_tool(
    "write",
    "patrol_trigger",
    tools.PATROL_INPUT,
    lambda call, _, **arguments: running.trigger_patrol(call, **arguments),
    stepwise=True,
)


@_operation(
    "write", summary=text("Stored as a note"),
    **{
        **tools.NOTES_INPUT["properties"],
        "scenes": array({"anyOf": [TEXT, tools.SCENE]}, 200, default=[]),
    },
)  # fmt: skip
def memory_conclude(
    call: Call,
    being: str,
    *,
    summary: str | None = None,
    scenes: Sequence[Any] = (),
    notes: Sequence[Any] = (),
    **arguments: Any,
) -> Any:
    """Store scenes and notes; a scene may be a string, and the summary is stored as a note."""
    del being
    scene_dicts = [
        {"action": each, "when": [records.today()]} if isinstance(each, str) else each
        for each in scenes
    ]
    all_notes = [*notes, summary] if summary is not None else notes
    return {"result": noting.update_notes(call, scenes=scene_dicts, notes=all_notes, **arguments)}


@_operation("write", "query", options=_ONLY_READS, **tools.SEARCH_INPUT["properties"])
def memory_search_nodes(
    call: Call,
    being: str,
    *,
    query: str,
    limit: float = recalling.DEFAULT_RESULTS,
    mode: str = "or",
) -> Any:
    """Return the nodes that contain any keyword, or every keyword if `mode` is `and`."""
    del being
    count = max(1, min(int(limit), recalling.MAX_RESULTS))
    matched = recalling.search_by_words(call, query, count, every_term=mode == "and")
    nodes = [_node_to_dict(node) for node, _ in matched]
    return {"nodes": nodes, "count": len(nodes)}


@_operation("write", "user_message", options=_ONLY_READS | _STEPWISE, user_message=TEXT)
def memory_auto_recall(call: Call, being: str, *, user_message: str) -> Any:
    """Return the most important nodes of the clusters that a model chooses for a message."""
    thinking = running.runtime_of(call.memory.library).thinking(call, running.CALL_SECONDS)
    if thinking is None:
        raise InvalidInput(
            "auto-recall needs a language model.",
            hint="Send the header X-LLM-API-Key, or use memory/search-nodes.",
        )
    thinking.on_spent = lambda what, cost: call.memory.events.record(
        "being.llm", being, {"purpose": what, **cost}
    )
    clusters = {
        recalling.describe_cluster(call.memory, each)[0]: each
        for each in recalling.clusters_in_use(call.memory, being)
    }
    chosen = thinking.choose(user_message, list(clusters)) if clusters else []
    if chosen is None:
        raise CommonplaceError(
            "The answer of the language model is not valid.",
            hint="Try again, or use memory/search-nodes.",
        )
    found = {
        node.id: node
        for name in chosen
        for node in call.memory.clusters.members(
            clusters[name].id, states=["active"], most=recalling.MAX_RECALLED
        )
    }
    nodes = sorted(found.values(), key=lambda node: -node.importance)[: recalling.MAX_RECALLED]
    recalling.count_recalls(call.memory, nodes)
    return {
        "nodes": [_node_to_dict(node) for node in nodes],
        "keywords": chosen,
        "recall_content": recalling.shuffled_text(nodes),
    }


def _node_to_dict(node: Memory) -> dict[str, Any]:
    scene = scene_of(node).as_dict()
    return {"id": node.id, **scene, "importance": node.importance, "status": node.state}


# --- messages and bridges ------------------------------------------------------------------------

_operation("write", "messages", messages=array(tools.MESSAGE, 1_000, minItems=1))(
    history.add_messages
)
_operation(
    "write", "message", options={"stepwise": True, "open_world": True},
    message={**TEXT, "maxLength": talking.MESSAGE_CHARS},
)(talking.talk)  # fmt: skip
_operation("write", operation_name="bridge_connect")(bridges.check_connection)
_operation(
    "write", "capability_id", "data", operation_name="bridge_sense", capability_id=TEXT, data={},
)(bridges.store_sense)  # fmt: skip
_operation("read", operation_name="list_capabilities")(bridges.list_capabilities)
_operation(
    "write", "capabilities", operation_name="register_capabilities",
    capabilities=array(OBJECT, bridges.MAX_CAPABILITIES), bridge_id=TEXT, bridge_name=TEXT,
)(bridges.register_capabilities)  # fmt: skip
_operation("delete", "id", operation_name="delete_capability", id=TEXT)(bridges.delete_capability)
_operation("read")(bridges.pending_acts)
_operation("write", "action_id", operation_name="approve_act", action_id=TEXT)(bridges.approve_act)
_operation("write", "action_id", operation_name="reject_act", action_id=TEXT)(bridges.reject_act)
_operation("read", limit=integer(1), capability_id=TEXT)(bridges.sense_history)


# --- the owner's key to a language model ---------------------------------------------------------


def _key_store(call: Call) -> Any:
    keys = running.runtime_of(call.memory.library).keys()
    if keys is None:
        raise InvalidInput("Keys cannot be stored, because this server has no vault.")
    return keys


@_operation("read", takes_being=False)
def about_llm_key(call: Call) -> Any:
    """Return whether a key is stored, without the key itself."""
    return _key_store(call).describe(call.memory.name)


@_operation(
    "write", takes_being=False, options={"stepwise": True, "has_secret_arguments": True},
    provider={"enum": ["anthropic", "openai"], "default": "anthropic"}, model=TEXT,
)  # fmt: skip
def put_llm_key(call: Call, *, provider: str = "anthropic", model: str = "") -> Any:
    """Store the key in the header X-LLM-API-Key; the body must not contain it."""
    _refuse_tokens_of_a_being(call, "There is no such path.")
    key = call.request_info.headers.get(running.KEY_HEADER, "")
    if not key:
        raise InvalidInput(
            "The key is missing.", hint="Send the key in the header X-LLM-API-Key, not in the body."
        )
    _key_store(call).put(call.memory.name, key, provider=provider, model=model)
    return _key_store(call).describe(call.memory.name)


@_operation("delete", takes_being=False, options=_STEPWISE)
def delete_llm_key(call: Call) -> Any:
    """Delete the stored key."""
    _refuse_tokens_of_a_being(call, "There is no such path.")
    if not _key_store(call).forget(call.memory.name):
        raise NotFound("No API key of a language model is stored.")
    return {}


OPERATIONS = tuple(_operations)
