"""What the REST endpoints do, and where: one row an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.contract import Call, Schema, Tool
from commonplace.dialects.penfield import (
    artifacts,
    documents,
    memories,
    personality,
    reflection,
    relationships,
    searching,
)
from commonplace.dialects.penfield.documents import NAME_CHARS
from commonplace.dialects.penfield.failures import stamp
from commonplace.dialects.penfield.personality import TRAIT_CHARS
from commonplace.dialects.penfield.personas import BY_ID
from commonplace.dialects.penfield.schemas import (
    CONTENT,
    DATE,
    PATH_CHARS,
    QUERY,
    RELATION,
    TAGS,
    TYPE,
    UUID,
)
from commonplace.dialects.rest import Method
from commonplace.dialects.tool_schemas import (
    FLAG,
    OBJECT,
    SHARE,
    TEXT,
    gives,
    listed,
    maybe,
    takes,
    whole,
)
from commonplace.engine.model import moment

LARGE = 48 * 1024 * 1024  # an artifact, a document, or a page of long memories, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row: a method and a path, and the operation behind it."""

    method: Method
    path: str
    does: str
    scope: Scope
    handler: Callable[..., Any]
    input: Schema
    data: Schema | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses beside those that every endpoint can answer with."""
    names: tuple[tuple[str, str], ...] = ()
    """(what a parameter is called outside, what it is called inside)."""
    large: bool = False
    inside: Schema | None = None
    """What the gate checks and writes down, where that is not what comes in."""

    @property
    def operation(self) -> str:
        """The name in the gate's table: that of its handler, or one that no tool has."""
        name = self.handler.__name__
        return f"rest_{name}" if name in _TOOLS else name

    def tool(self) -> Tool:
        """The row as the gate has it."""
        return Tool(
            name=self.operation,
            title=self.does,
            description=self.does,
            scope=self.scope,
            handler=self.handler,
            input=self.input if self.inside is None else self.inside,
            response_bytes=LARGE if self.large else None,
        )


_TOOLS = frozenset(
    ("save_artifact", "retrieve_artifact", "list_artifacts", "delete_artifact", "summarize")
)
_PAGE = {
    "page": whole(1, 100_000, 1),
    "per_page": {**whole(1, default=20), "description": "A page has at most 100."},
}
_STRING = {"type": "string"}
_WHOLE = {"type": "integer"}
_NUMBER = {"type": "number"}
_MAYBE = {"type": ["string", "null"]}
_LISTED = {"type": "array"}
_STRINGS = {"type": "array", "items": _STRING}
_META = maybe(OBJECT)
_NOTHING = takes()
_TAG = {"type": "string", "pattern": "^[A-Za-z0-9_: -]{1,100}$"}

RELATIONSHIP = gives(
    id=_STRING, from_id=_STRING, to_id=_STRING, relationship_type=_STRING,
    direction_type=_STRING, inverse_type=_MAYBE, strength=_NUMBER, confidence=_NUMBER,
    evidence=OBJECT, traversal_properties=OBJECT, created_at=_STRING,
)  # fmt: skip
MEMORY = gives(
    id=_STRING, content=_STRING, memory_type=_STRING, importance=_NUMBER, confidence=_NUMBER,
    surprise_score=_NUMBER, source_type=_STRING, user_id=_STRING, tags=_STRINGS,
    access_count=_WHOLE, last_accessed=_MAYBE, created_at=_STRING, updated_at=_STRING,
    metadata=OBJECT, lifecycle_state=_STRING, trust=_STRING,
    embedding_status={"type": "string", "enum": ["pending", "completed", "failed"]},
    relationships={"type": "array", "items": RELATIONSHIP},
)  # fmt: skip
PAGINATION = gives(
    page=_WHOLE, per_page=_WHOLE, total=_WHOLE, pages=_WHOLE, has_next=FLAG, has_prev=FLAG
)
ITEM = gives(
    id=_STRING, content=_STRING, snippet=_STRING, score=_NUMBER, score_breakdown=OBJECT,
    metadata=OBJECT, tags=_STRINGS, source_type=_STRING, trust=_STRING, created_at=_STRING,
)  # fmt: skip
CONTRADICTION = gives(
    id=_STRING, source_memory_id=_STRING, target_memory_id=_STRING, contradiction_type=_STRING,
    confidence=_NUMBER, metadata=OBJECT, status=_STRING, resolution=_MAYBE, created_at=_STRING,
)  # fmt: skip
DOCUMENT = gives(
    id=_STRING, filename=_STRING, file_type=_STRING, content_type=_STRING, file_size=_WHOLE,
    content_hash=_STRING, status=_STRING, chunk_count=_WHOLE, metadata=OBJECT,
    created_at=_STRING, updated_at=_STRING,
)  # fmt: skip
TRAIT = gives(id=_STRING, content=_STRING, category=_STRING, created_at=_STRING, updated_at=_STRING)
TAGGED = gives(memory_id=_STRING, tags=_STRINGS, warnings=_STRINGS)
PERSONALITY = gives(
    persona_id=_STRING, persona=OBJECT, is_default=FLAG, set_as_org_default=FLAG,
    traits={"type": "array", "items": TRAIT},
)  # fmt: skip


def _paged(item: Schema) -> Schema:
    return gives(items={"type": "array", "items": item}, pagination=PAGINATION)


_RELATE = takes(
    ["from_id", "to_id", "relationship_type"], from_id=UUID, to_id=UUID,
    relationship_type=RELATION,
    direction_type={"type": "string", "enum": list(relationships.DIRECTIONS),
                    "default": "DIRECTED"},
    inverse_type=maybe(RELATION), strength={**SHARE, "default": 0.5},
    confidence={**SHARE, "default": 0.8}, evidence=_META, traversal_properties=_META,
)  # fmt: skip
_PATH = {"type": "string", "maxLength": PATH_CHARS}


def open_session(call: Call) -> dict[str, Any]:
    """POST /auth/token: the gate's row for it; the server makes the tokens."""
    return {"tenant": call.caller.space}


def renew_session(call: Call) -> dict[str, Any]:
    """POST /auth/refresh: the gate's row for it."""
    return {"tenant": call.caller.space}


def verify_session(call: Call) -> dict[str, Any]:
    """GET /auth/verify."""
    caller = call.caller
    return {
        "valid": True,
        "tenant_id": f"pf_{caller.space}",
        "user_id": caller.user,
        "scopes": sorted(caller.scopes),
        "expires_at": None if caller.expires_at is None else stamp(moment(caller.expires_at)),
    }


SESSION = gives(
    access_token=_STRING, token_type=_STRING, expires_in=_WHOLE, tenant_id=_STRING,
    refresh_token=_STRING,
)  # fmt: skip

ENDPOINTS: tuple[Endpoint, ...] = (
    # Auth
    Endpoint(
        method="POST", path="/auth/token", does="Exchange an API key for an access token",
        scope="read", handler=open_session, input=_NOTHING, data=SESSION,
    ),
    Endpoint(
        method="POST", path="/auth/refresh", does="Exchange a refresh token for new tokens",
        scope="read", handler=renew_session, data=SESSION, inside=_NOTHING,
        input=takes(["refresh_token"], refresh_token={"type": "string", "maxLength": 4096}),
    ),
    Endpoint(
        method="GET", path="/auth/verify", does="Say who is calling", scope="read",
        handler=verify_session, input=_NOTHING,
        data=gives(valid=FLAG, tenant_id=_STRING, user_id=_STRING, scopes=_STRINGS,
                   expires_at=_MAYBE),
    ),
    # Memories; the fixed paths come before {id}
    Endpoint(
        method="POST", path="/memories", does="Store a memory", scope="write", status=201,
        handler=memories.create_memory, data=MEMORY, errors=(409,),
        input=takes(
            ["content"], content=CONTENT, memory_type=maybe(TYPE), importance=maybe(SHARE),
            confidence=maybe(SHARE), tags=maybe(TAGS),
            source_type=maybe({"type": "string", "minLength": 1, "maxLength": 64}),
            metadata=_META,
        ),
    ),
    Endpoint(
        method="GET", path="/memories", does="List memories", scope="read",
        handler=memories.list_memories, data=_paged(MEMORY), large=True,
        input=takes(
            **_PAGE, memory_type=TYPE, user_id={"type": "string", "maxLength": 200},
            importance_threshold=SHARE, date_from=DATE, date_to=DATE,
            time_range={"type": "string",
                        "enum": ["today", "yesterday", "week", "month", "quarter", "year"]},
            tags={"type": "string", "maxLength": 2_000,
                  "description": "With commas between; any of them."},
            sort={"type": "string", "default": "-created_at",
                  "enum": [sign + name for name in ("created_at", "importance", "updated_at")
                           for sign in ("-", "")]},
            include_inactive={**FLAG, "default": False},
        ),
    ),
    Endpoint(
        method="POST", path="/memories/contradictions", does="Record a contradiction",
        scope="write", status=201, handler=relationships.create_contradiction,
        data=CONTRADICTION, errors=(404, 409),
        input=takes(
            ["source_memory_id", "target_memory_id"], source_memory_id=UUID,
            target_memory_id=UUID,
            contradiction_type={"type": "string", "enum": ["direct", "partial", "contextual"],
                                "default": "direct"},
            confidence={**SHARE, "default": 0.8}, metadata=_META,
        ),
    ),
    Endpoint(
        method="POST", path="/memories/contradictions/{id}/resolve",
        does="Resolve a contradiction", scope="write",
        handler=relationships.resolve_contradiction, data=CONTRADICTION, errors=(404, 409),
        input=takes(
            ["id", "resolution"], id=UUID,
            resolution={"type": "string", "enum": ["create_new", "choose_memory_1",
                                                   "choose_memory_2", "keep_both"]},
            new_content=maybe(CONTENT), reason=maybe({"type": "string", "maxLength": 2_000}),
        ),
    ),
    Endpoint(
        method="GET", path="/memories/{id}", does="Get a memory", scope="read",
        handler=memories.read_memory, data=MEMORY, errors=(404,), input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="PUT", path="/memories/{id}", does="Update a memory", scope="write",
        handler=memories.replace_memory, data=MEMORY, errors=(404, 409),
        input=takes(
            ["id"], id=UUID, content=maybe(CONTENT), memory_type=maybe(TYPE),
            importance=maybe(SHARE), confidence=maybe(SHARE), metadata=_META, tags=maybe(TAGS),
        ),
    ),
    Endpoint(
        method="DELETE", path="/memories/{id}", does="Delete a memory and its relationships",
        scope="write", status=204, handler=memories.delete_memory, errors=(404,),
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="GET", path="/memories/{id}/history", does="List a memory's versions",
        scope="read", handler=memories.read_history, errors=(404,),
        data=gives(current=MEMORY, history=_LISTED, total_versions=_WHOLE),
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="POST", path="/memories/{id}/evolve", does="Replace a memory by a new one",
        scope="write", status=201, handler=memories.evolve_memory, errors=(404, 409),
        data=gives(original_memory_id=_STRING, new_memory_id=_STRING, evolution_id=_STRING,
                   evolution_type=_STRING, version=_WHOLE, created_at=_STRING),
        input=takes(
            ["id", "new_content", "evolution_type"], id=UUID, new_content=CONTENT,
            evolution_type={"type": "string", "enum": list(memories.LIFECYCLE)},
            reason=maybe({"type": "string", "maxLength": 2_000}),
        ),
    ),
    Endpoint(
        method="GET", path="/memories/{id}/contradictions", does="List a memory's contradictions",
        scope="read", handler=relationships.list_contradictions, errors=(404,),
        data=gives(items={"type": "array", "items": CONTRADICTION}, total=_WHOLE),
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="GET", path="/memories/{id}/tags", does="List a memory's tags", scope="read",
        handler=memories.read_tags, data=TAGGED, errors=(404,), input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="POST", path="/memories/{id}/tags", does="Add tags to a memory", scope="write",
        handler=memories.add_tags, data=TAGGED, errors=(404,),
        input=takes(["id", "tags"], id=UUID, tags=TAGS),
    ),
    Endpoint(
        method="DELETE", path="/memories/{id}/tags", does="Remove tags from a memory",
        scope="write", handler=memories.remove_tags, data=TAGGED, errors=(404,),
        input=takes(["id", "tags"], id=UUID,
                    tags={"type": "string", "maxLength": 2_000,
                          "description": "With commas between."}),
    ),
    Endpoint(
        method="GET", path="/tags", does="List tags by usage", scope="read",
        handler=memories.list_tags, input=_NOTHING,
        data=gives(items={"type": "array", "items": gives(
            id=_STRING, name=_STRING, usage_count=_WHOLE, created_at=_STRING)}, total=_WHOLE),
    ),
    Endpoint(
        method="GET", path="/tags/{tag}/memories", does="List the memories of a tag",
        scope="read", handler=memories.list_tagged, data=_paged(MEMORY), large=True,
        input=takes(["tag"], tag=_TAG, **_PAGE),
    ),
    # Search
    Endpoint(
        method="POST", path="/search/hybrid", does="Search by words, meaning and links",
        scope="read", handler=searching.hybrid_search, large=True,
        data=gives(items={"type": "array", "items": ITEM}, query=_STRING, analyzed_query=OBJECT,
                   search_metadata=OBJECT),
        input=takes(
            ["query"], query=QUERY, limit=whole(1, 100, 20),
            bm25_weight={**SHARE, "default": 0.4}, vector_weight={**SHARE, "default": 0.4},
            graph_weight={**SHARE, "default": 0.2}, memory_types=maybe(listed(TYPE, 20)),
            source_types=maybe(listed({"type": "string", "maxLength": 64}, 20)),
            importance_threshold=maybe(SHARE),
            enable_graph_expansion={**FLAG, "default": True},
            graph_max_depth=whole(1, 5, 2), graph_seed_limit=whole(1, 50, 10),
            rrf_k=whole(1, 100, 60), min_score_threshold=maybe(SHARE),
            include_neighbors=whole(0, 20, 2), tags=maybe({"type": "string", "maxLength": 2_000}),
            start_date=maybe(DATE), end_date=maybe(DATE),
        ),
    ),
    Endpoint(
        method="POST", path="/search/vector", does="Search by meaning", scope="read",
        handler=searching.vector_search, large=True,
        data=gives(items={"type": "array", "items": ITEM}, query=_STRING, search_metadata=OBJECT),
        input=takes(
            ["query"], query=QUERY, limit=whole(1, 100, 20),
            filters=maybe(takes(
                memory_types=maybe(listed(TYPE, 20)), min_importance=maybe(SHARE),
                user_id=maybe({"type": "string", "maxLength": 200}),
            )),
            include_neighbors=whole(0, 20, 2), tags=maybe({"type": "string", "maxLength": 2_000}),
        ),
    ),
    Endpoint(
        method="GET", path="/search/stats", does="Say how much can be searched", scope="read",
        handler=searching.search_stats, input=_NOTHING,
        data=gives(total_memories=_WHOLE, total_documents=_WHOLE, total_relationships=_WHOLE,
                   embedding_coverage=_NUMBER, last_indexed=_MAYBE),
    ),
    # Relationships
    Endpoint(
        method="POST", path="/relationships", does="Relate two memories", scope="write",
        status=201, handler=relationships.create_relationship, data=RELATIONSHIP,
        errors=(404, 409), input=_RELATE,
    ),
    Endpoint(
        method="GET", path="/relationships", does="List relationships", scope="read",
        handler=relationships.list_relationships, data=_paged(RELATIONSHIP),
        input=takes(**_PAGE, from_id=UUID, to_id=UUID, memory_id=UUID,
                    relationship_type=RELATION),
    ),
    Endpoint(
        method="POST", path="/relationships/bulk", does="Create relationships, all or none",
        scope="write", status=201, handler=relationships.create_relationships,
        errors=(404, 409),
        data=gives(created={"type": "array", "items": RELATIONSHIP}, updated=_LISTED,
                   deleted=_LISTED, errors=_LISTED),
        input=takes(["relationships"], relationships={
            **listed(_RELATE, relationships.BULK), "minItems": 1}),
    ),
    Endpoint(
        method="POST", path="/relationships/traverse", does="Follow relationships",
        scope="read", handler=relationships.traverse, errors=(404,),
        data=gives(paths=_LISTED, visited_chunks=_STRINGS, max_depth_reached=_WHOLE,
                   total_paths_found=_WHOLE),
        input=takes(
            ["start_memory_id"], start_memory_id=UUID, max_depth=whole(1, 10, 3),
            direction={"type": "string", "enum": list(relationships.WAYS), "default": "ANY"},
            relationship_types=maybe(listed(RELATION, 24)),
            include_scores={**FLAG, "default": True}, min_strength=maybe(SHARE),
        ),
    ),
    Endpoint(
        method="DELETE", path="/relationships/between",
        does="Remove the relationships from one memory to another", scope="write", status=204,
        handler=relationships.delete_between, errors=(404,),
        input=takes(["from_id", "to_id"], from_id=UUID, to_id=UUID),
    ),
    Endpoint(
        method="GET", path="/relationships/{id}", does="Get a relationship", scope="read",
        handler=relationships.read_relationship, data=RELATIONSHIP, errors=(404,),
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="PATCH", path="/relationships/{id}", does="Change a relationship", scope="write",
        handler=relationships.change_relationship, data=RELATIONSHIP, errors=(404,),
        input=takes(["id"], id=UUID, strength=maybe(SHARE), confidence=maybe(SHARE),
                    evidence=_META),
    ),
    Endpoint(
        method="DELETE", path="/relationships/{id}", does="Remove a relationship",
        scope="write", status=204, handler=relationships.delete_relationship, errors=(404,),
        input=takes(["id"], id=UUID),
    ),
    # Analysis
    Endpoint(
        method="POST", path="/analysis/reflect", does="Analyze recent memories", scope="read",
        handler=reflection.analyse, large=True,
        data=gives(time_window=_STRING, memories=_LISTED, active_topics=_STRINGS,
                   memory_clusters=_LISTED, emerging_patterns=_LISTED,
                   relationship_insights=_LISTED, statistics=OBJECT),
        input=takes(
            time_window={"type": "string", "enum": list(reflection.WINDOWS),
                         "default": "recent"},
            include_documents={**FLAG, "default": False},
            include_patterns={**FLAG, "default": True},
            include_relationships={**FLAG, "default": True},
            include_clusters={**FLAG, "default": True}, max_memories=whole(1, 1_000, 50),
            start_date=maybe(DATE), end_date=maybe(DATE),
            recency_weight={**SHARE, "default": 0.4}, access_weight={**SHARE, "default": 0.3},
            importance_weight={**SHARE, "default": 0.2},
            relationship_weight={**SHARE, "default": 0.1},
        ),
    ),
    Endpoint(
        method="POST", path="/analysis/summarize", does="Summarize memories", scope="read",
        handler=reflection.summarize, errors=(404,),
        data=gives(summary=_STRING, memory_count=_WHOLE, topics=_STRINGS, memory_types=OBJECT,
                   relationships=_LISTED),
        input=takes(
            memory_ids=maybe(listed(UUID, 1_000)), max_memories=whole(1, 1_000, 50),
            include_relationships={**FLAG, "default": True},
        ),
    ),
    Endpoint(
        method="GET", path="/analysis/insights", does="Count memories by type and time",
        scope="read", handler=reflection.insights, input=_NOTHING,
        data=gives(distribution=OBJECT, statistics=OBJECT, insights=_LISTED),
    ),
    # Personality
    Endpoint(
        method="GET", path="/personality/personas", does="List personas", scope="read",
        handler=personality.list_personas, input=_NOTHING,
        data=gives(current_tier=_STRING, can_add_traits=FLAG, can_set_org_default=FLAG,
                   personas=_LISTED),
    ),
    Endpoint(
        method="GET", path="/personality/awakening", does="Get the awakening briefing",
        scope="read", handler=personality.read_awakening, input=_NOTHING,
        data=gives(briefing=_STRING),
    ),
    Endpoint(
        method="GET", path="/personality", does="Get the chosen persona and traits",
        scope="read", handler=personality.read_personality, input=_NOTHING, data=PERSONALITY,
    ),
    Endpoint(
        method="POST", path="/personality", does="Choose a persona", scope="write",
        handler=personality.choose_persona, data=PERSONALITY,
        input=takes(["persona_id"], persona_id={"type": "string", "enum": list(BY_ID)},
                    set_as_org_default={**FLAG, "default": False}),
    ),
    Endpoint(
        method="POST", path="/personality/traits", does="Add a trait", scope="write",
        status=201, handler=personality.create_trait, data=TRAIT, errors=(409,),
        input=takes(
            ["content"], content={"type": "string", "minLength": 1, "maxLength": TRAIT_CHARS},
            category={"type": "string", "minLength": 1, "maxLength": 64,
                      "default": "custom_instruction"},
        ),
    ),
    Endpoint(
        method="PUT", path="/personality/traits/{id}", does="Change a trait", scope="write",
        handler=personality.change_trait, data=TRAIT, errors=(404,),
        input=takes(["id", "content"], id=UUID,
                    content={"type": "string", "minLength": 1, "maxLength": TRAIT_CHARS}),
    ),
    Endpoint(
        method="DELETE", path="/personality/traits/{id}", does="Remove a trait",
        scope="delete", handler=personality.delete_trait, data=gives(deleted=FLAG),
        errors=(404,), input=takes(["id"], id=UUID),
    ),
    # Artifacts
    Endpoint(
        method="POST", path="/artifacts", does="Save a file", scope="write", status=201,
        handler=artifacts.save_artifact, errors=(400, 409, 413),
        data=gives(success=FLAG, message=_STRING, path=_STRING, artifact_id=_STRING,
                   content_type=_STRING, size=_WHOLE, storage_path=_STRING),
        input=takes(["path", "content"], path=_PATH, content=TEXT),
    ),
    Endpoint(
        method="GET", path="/artifacts", does="Get a file", scope="read",
        handler=artifacts.retrieve_artifact, errors=(400, 404), large=True,
        data=gives(success=FLAG, content=_STRING, path=_STRING, content_type=_STRING,
                   size=_WHOLE),
        input=takes(["path"], path=_PATH),
    ),
    Endpoint(
        method="GET", path="/artifacts/list", does="List a directory", scope="read",
        handler=artifacts.list_artifacts, errors=(400,),
        data=gives(success=FLAG, path=_STRING, folders=_STRINGS, files=_LISTED),
        input=takes(path_prefix={**_PATH, "default": "/"},
                    name_pattern={"type": "string", "maxLength": 200}),
        names=(("prefix", "path_prefix"),),
    ),
    Endpoint(
        method="DELETE", path="/artifacts", does="Delete a file", scope="write",
        handler=artifacts.delete_artifact, errors=(400, 404),
        data=gives(message=_STRING), input=takes(["path"], path=_PATH),
    ),
    # Documents
    Endpoint(
        method="POST", path="/documents/upload", does="Upload a document", scope="write",
        status=201, handler=documents.upload_document, data=DOCUMENT, errors=(413,),
        input=takes(["filename", "data"], filename={"type": "string", "maxLength": 4 * NAME_CHARS},
                    data=TEXT, metadata=_META),
    ),
    Endpoint(
        method="GET", path="/documents", does="List documents", scope="read",
        handler=documents.list_documents, data=_paged(DOCUMENT), input=takes(**_PAGE),
    ),
    Endpoint(
        method="GET", path="/documents/{id}", does="Get a document", scope="read",
        handler=documents.read_document, data=DOCUMENT, errors=(404,), large=True,
        input=takes(["id"], id=UUID, include_chunks={**FLAG, "default": False}),
    ),
    Endpoint(
        method="GET", path="/documents/{id}/download", does="Download a document's file",
        scope="read", handler=documents.download_document, errors=(404,), large=True,
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="DELETE", path="/documents/{id}", does="Delete a document and its chunks",
        scope="write", status=204, handler=documents.delete_document, errors=(404,),
        input=takes(["id"], id=UUID),
    ),
    Endpoint(
        method="POST", path="/documents/{id}/reprocess", does="Process a document again",
        scope="write", handler=documents.reprocess_document, errors=(404, 501),
        input=takes(["id"], id=UUID),
    ),
)  # fmt: skip

OPERATIONS: tuple[Tool, ...] = tuple(endpoint.tool() for endpoint in ENDPOINTS)
