"""The REST endpoints under /api/v2, with their operations, arguments and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.contract import Call, Schema, Tool
from commonplace.dialects.penfield import (
    answers,
    artifacts,
    documents,
    memories,
    personality,
    reflection,
    relationships,
    searching,
    tagging,
    versions,
)
from commonplace.dialects.penfield.failures import VERSION, stamp
from commonplace.dialects.penfield.fitting import LARGE, MIB
from commonplace.dialects.penfield.personas import PERSONAS_BY_ID
from commonplace.dialects.penfield.schemas import (
    CONTENT,
    DATE,
    FLAG_OFF,
    FLAG_ON,
    PATH,
    QUERY,
    RELATION,
    TAGS,
    TYPE,
    UUID,
    enum_schema,
    share_schema,
    text_schema,
)
from commonplace.dialects.penfield.tools import TOOLS
from commonplace.dialects.rest import Method, OpenApi, Rest, Route
from commonplace.dialects.tool_schemas import (
    FLAG,
    OBJECT,
    SHARE,
    TEXT,
    array,
    input_schema,
    integer,
    nullable,
    object_of,
    output_schema,
)
from commonplace.engine.model import moment

ROOT = "/api/v2"

_WHOLE = {"type": "integer"}
_NUMBER = {"type": "number"}
_MAYBE = {"type": ["string", "null"]}
_LIST = {"type": "array"}
_TEXTS = array(TEXT)
_META = nullable(OBJECT)
_REASON = nullable(text_schema(2_000))
_TAG_LIST = {**text_schema(2_000), "description": "With commas between; any of them."}
_PAGE = {
    "page": integer(1, 100_000, 1),
    "per_page": {**integer(1, default=20), "description": "A page has at most 100."},
}

RELATIONSHIP = output_schema(
    id=TEXT, from_id=TEXT, to_id=TEXT, relationship_type=TEXT, direction_type=TEXT,
    inverse_type=_MAYBE, strength=_NUMBER, confidence=_NUMBER, evidence=OBJECT,
    traversal_properties=OBJECT, created_at=TEXT,
)  # fmt: skip
MEMORY = output_schema(
    id=TEXT, content=TEXT, memory_type=TEXT, importance=_NUMBER, confidence=_NUMBER,
    surprise_score=_NUMBER, source_type=TEXT, user_id=TEXT, tags=_TEXTS, access_count=_WHOLE,
    last_accessed=_MAYBE, created_at=TEXT, updated_at=TEXT, metadata=OBJECT, lifecycle_state=TEXT,
    trust=TEXT, embedding_status=enum_schema(["pending", "completed", "failed"]),
    relationships=array(RELATIONSHIP),
)  # fmt: skip
PAGINATION = output_schema(
    page=_WHOLE, per_page=_WHOLE, total=_WHOLE, pages=_WHOLE, has_next=FLAG, has_prev=FLAG
)
ITEM = output_schema(
    id=TEXT, content=TEXT, snippet=TEXT, score=_NUMBER, score_breakdown=OBJECT, metadata=OBJECT,
    tags=_TEXTS, source_type=TEXT, trust=TEXT, created_at=TEXT,
)  # fmt: skip
CONTRADICTION = output_schema(
    id=TEXT, source_memory_id=TEXT, target_memory_id=TEXT, contradiction_type=TEXT,
    confidence=_NUMBER, metadata=OBJECT, status=TEXT, resolution=_MAYBE, created_at=TEXT,
)  # fmt: skip
DOCUMENT = output_schema(
    id=TEXT, filename=TEXT, file_type=TEXT, content_type=TEXT, file_size=_WHOLE, content_hash=TEXT,
    status=TEXT, chunk_count=_WHOLE, metadata=OBJECT, created_at=TEXT, updated_at=TEXT,
)  # fmt: skip
TRAIT = output_schema(id=TEXT, content=TEXT, category=TEXT, created_at=TEXT, updated_at=TEXT)
TAGGED = output_schema(memory_id=TEXT, tags=_TEXTS, warnings=_TEXTS)
PERSONALITY = output_schema(
    persona_id=TEXT, persona=OBJECT, is_default=FLAG, set_as_org_default=FLAG, traits=array(TRAIT)
)
SESSION = output_schema(
    access_token=TEXT, token_type=TEXT, expires_in=_WHOLE, tenant_id=TEXT, refresh_token=TEXT
)
_RELATE = input_schema(
    ["from_id", "to_id", "relationship_type"], from_id=UUID, to_id=UUID,
    relationship_type=RELATION, direction_type=enum_schema(relationships.DIRECTIONS, "DIRECTED"),
    inverse_type=nullable(RELATION), strength=share_schema(0.5),
    confidence=share_schema(0.8), evidence=_META, traversal_properties=_META,
)  # fmt: skip
_RELATE_MANY = {**array(_RELATE, relationships.MAX_BULK), "minItems": 1}


def open_session(call: Call) -> dict[str, Any]:
    """POST /auth/token: do nothing but create an audit entry; the server issues the tokens."""
    return {"tenant": call.caller.space}


def renew_session(call: Call) -> dict[str, Any]:
    """POST /auth/refresh: do nothing but create an audit entry; the server issues the tokens."""
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


def _page_schema(item: Schema) -> Schema:
    return output_schema(items=array(item), pagination=PAGINATION)


def _body_description(media_type: str, schema: Schema) -> dict[str, Any]:
    """Return the OpenAPI description of a body."""
    return {"required": True, "content": {media_type: {"schema": schema}}}


_NOTHING = input_schema()
_TOOL_NAMES = {tool.name for tool in TOOLS}


def _endpoint(
    method: Method,
    path: str,
    does: str,
    handler: Callable[..., Any],
    data: Schema | None = None,
    input: Schema = _NOTHING,
    *,
    scope: Scope | None = None,
    status: int | None = None,
    errors: tuple[int, ...] = (),
    large: bool = False,
    **route: Any,
) -> tuple[Tool, Route]:
    """Return an operation and its route.

    `{id}` in a path adds a required UUID and the status 404. By default GET needs the scope `read`,
    other methods `write`, and a DELETE without data answers 204.
    """
    if "{id}" in path:
        required, properties = input.get("required", ()), input["properties"]
        input, errors = input_schema(["id", *required], id=UUID, **properties), (404, *errors)
    name = handler.__name__
    operation = f"rest_{name}" if name in _TOOL_NAMES else name
    return Tool(
        name=operation, title=does, description=does, handler=handler, input=input,
        scope=scope or ("read" if method == "GET" else "write"),
        response_bytes=LARGE if large else None,
    ), Route(
        method, ROOT + path, operation,
        status or (204 if method == "DELETE" and data is None else 200),
        summary=does, data=data, errors=errors, **route,
    )  # fmt: skip


_ENDPOINTS = (
    # Auth
    _endpoint(
        "POST", "/auth/token", "Exchange an API key for an access token", open_session, SESSION,
        scope="read", answer=answers.open_session,
    ),
    _endpoint(
        "POST", "/auth/refresh", "Exchange a refresh token for new tokens", renew_session, SESSION,
        scope="read", public=True, answer=answers.renew_session,
        request_body=_body_description(
            "application/json", object_of(["refresh_token"], refresh_token=text_schema(4096))
        ),
    ),
    _endpoint(
        "GET", "/auth/verify", "Say who is calling", verify_session,
        output_schema(valid=FLAG, tenant_id=TEXT, user_id=TEXT, scopes=_TEXTS, expires_at=_MAYBE),
    ),
    # Memories; the fixed paths come before {id}
    _endpoint(
        "POST", "/memories", "Store a memory", memories.create_memory, MEMORY,
        input_schema(
            ["content"], content=CONTENT, memory_type=nullable(TYPE), importance=nullable(SHARE),
            confidence=nullable(SHARE), tags=nullable(TAGS),
            source_type=nullable(text_schema(64, 1)), metadata=_META,
        ), status=201, errors=(409,),
    ),
    _endpoint(
        "GET", "/memories", "List memories", memories.list_memories, _page_schema(MEMORY),
        input_schema(
            **_PAGE, memory_type=TYPE, user_id=text_schema(200), importance_threshold=SHARE,
            date_from=DATE, date_to=DATE, tags=_TAG_LIST, include_inactive=FLAG_OFF,
            time_range=enum_schema(["today", "yesterday", "week", "month", "quarter", "year"]),
            sort=enum_schema([sign + name for name in ("created_at", "importance", "updated_at")
                              for sign in ("-", "")], "-created_at"),
        ), large=True,
    ),
    _endpoint(
        "POST", "/memories/contradictions", "Record a contradiction",
        relationships.create_contradiction, CONTRADICTION,
        input_schema(
            ["source_memory_id", "target_memory_id"], source_memory_id=UUID, target_memory_id=UUID,
            contradiction_type=enum_schema(["direct", "partial", "contextual"], "direct"),
            confidence=share_schema(0.8), metadata=_META,
        ), status=201, errors=(404, 409),
    ),
    _endpoint(
        "POST", "/memories/contradictions/{id}/resolve", "Resolve a contradiction",
        relationships.resolve_contradiction, CONTRADICTION,
        input_schema(
            ["resolution"], new_content=nullable(CONTENT), reason=_REASON,
            resolution=enum_schema(
                ["create_new", "choose_memory_1", "choose_memory_2", "keep_both"]
            ),
        ), errors=(409,),
    ),
    _endpoint("GET", "/memories/{id}", "Get a memory", memories.read_memory, MEMORY, large=True),
    _endpoint(
        "PUT", "/memories/{id}", "Update a memory", memories.replace_memory, MEMORY,
        input_schema(
            content=nullable(CONTENT), memory_type=nullable(TYPE), importance=nullable(SHARE),
            confidence=nullable(SHARE), metadata=_META, tags=nullable(TAGS),
        ), errors=(409,), large=True,
    ),
    _endpoint(
        "DELETE", "/memories/{id}", "Delete a memory and its relationships", memories.delete_memory
    ),
    _endpoint(
        "GET", "/memories/{id}/history", "List a memory's versions", versions.read_history,
        output_schema(current=MEMORY, history=_LIST, total_versions=_WHOLE), large=True,
    ),
    _endpoint(
        "POST", "/memories/{id}/evolve", "Replace a memory by a new one", versions.evolve_memory,
        output_schema(original_memory_id=TEXT, new_memory_id=TEXT, evolution_id=TEXT,
                      evolution_type=TEXT,
                      version=_WHOLE, created_at=TEXT),
        input_schema(["new_content", "evolution_type"], new_content=CONTENT,
                     evolution_type=enum_schema(versions.LIFECYCLE_BY_EVOLUTION), reason=_REASON),
        status=201, errors=(409,),
    ),
    _endpoint(
        "GET", "/memories/{id}/contradictions", "List a memory's contradictions",
        relationships.list_contradictions, output_schema(items=array(CONTRADICTION), total=_WHOLE),
    ),
    _endpoint("GET", "/memories/{id}/tags", "List a memory's tags", tagging.read_tags, TAGGED),
    _endpoint(
        "POST", "/memories/{id}/tags", "Add tags to a memory", tagging.add_tags, TAGGED,
        input_schema(["tags"], tags=TAGS),
    ),
    _endpoint(
        "DELETE", "/memories/{id}/tags", "Remove tags from a memory", tagging.remove_tags, TAGGED,
        input_schema(["tags"], tags={**text_schema(2_000), "description": "With commas between."}),
    ),
    _endpoint(
        "GET", "/tags", "List tags by usage", tagging.list_tags,
        output_schema(items=array(output_schema(id=TEXT, name=TEXT, usage_count=_WHOLE,
                                                created_at=TEXT)),
                      total=_WHOLE),
    ),
    _endpoint(
        "GET", "/tags/{tag}/memories", "List the memories of a tag", tagging.list_tagged,
        _page_schema(MEMORY),
        input_schema(["tag"], tag=text_schema(100, 1), **_PAGE),
        large=True,
    ),
    # Search
    _endpoint(
        "POST", "/search/hybrid", "Search by words, meaning and links", searching.hybrid_search,
        output_schema(items=array(ITEM), query=TEXT, analyzed_query=OBJECT, search_metadata=OBJECT),
        input_schema(
            ["query"], query=QUERY, limit=integer(1, 100, 20), bm25_weight=share_schema(0.4),
            vector_weight=share_schema(0.4), graph_weight=share_schema(0.2),
            memory_types=nullable(array(TYPE, 20)),
            source_types=nullable(array(text_schema(64), 20)),
            importance_threshold=nullable(SHARE), enable_graph_expansion=FLAG_ON,
            graph_max_depth=integer(1, 5, 2), graph_seed_limit=integer(1, 50, 10),
            rrf_k=integer(1, 100, 60), min_score_threshold=nullable(SHARE),
            include_neighbors=integer(0, 20, 2), tags=nullable(text_schema(2_000)),
            start_date=nullable(DATE), end_date=nullable(DATE),
        ), scope="read", large=True,
    ),
    _endpoint(
        "POST", "/search/vector", "Search by meaning", searching.vector_search,
        output_schema(items=array(ITEM), query=TEXT, search_metadata=OBJECT),
        input_schema(
            ["query"], query=QUERY, limit=integer(1, 100, 20),
            filters=nullable(input_schema(
                memory_types=nullable(array(TYPE, 20)), min_importance=nullable(SHARE),
                user_id=nullable(text_schema(200)),
            )),
            include_neighbors=integer(0, 20, 2), tags=nullable(text_schema(2_000)),
        ), scope="read", large=True,
    ),
    _endpoint(
        "GET", "/search/stats", "Say how much can be searched", searching.search_stats,
        output_schema(total_memories=_WHOLE, total_documents=_WHOLE, total_relationships=_WHOLE,
                      embedding_coverage=_NUMBER, last_indexed=_MAYBE),
    ),
    # Relationships
    _endpoint(
        "POST", "/relationships", "Relate two memories", relationships.create_relationship,
        RELATIONSHIP, _RELATE, status=201, errors=(404, 409),
    ),
    _endpoint(
        "GET", "/relationships", "List relationships", relationships.list_relationships,
        _page_schema(RELATIONSHIP),
        input_schema(**_PAGE, from_id=UUID, to_id=UUID, memory_id=UUID, relationship_type=RELATION),
    ),
    _endpoint(
        "POST", "/relationships/bulk", "Create relationships, all or none",
        relationships.create_relationships,
        output_schema(created=array(RELATIONSHIP), updated=_LIST, deleted=_LIST, errors=_LIST),
        input_schema(["relationships"], relationships=_RELATE_MANY), status=201, errors=(404, 409),
        read=answers.relationship_list_arguments,
        request_body=_body_description("application/json", _RELATE_MANY),
    ),
    _endpoint(
        "POST", "/relationships/traverse", "Follow relationships", relationships.traverse,
        output_schema(paths=_LIST, visited_chunks=_TEXTS, max_depth_reached=_WHOLE,
                      total_paths_found=_WHOLE),
        input_schema(
            ["start_memory_id"], start_memory_id=UUID, max_depth=integer(1, 10, 3),
            direction=enum_schema(relationships.LINK_DIRECTIONS, "ANY"), include_scores=FLAG_ON,
            relationship_types=nullable(array(RELATION, 24)), min_strength=nullable(SHARE),
        ), scope="read", errors=(404,),
    ),
    _endpoint(
        "DELETE", "/relationships/between", "Remove the relationships from one memory to another",
        relationships.delete_between, None,
        input_schema(["from_id", "to_id"], from_id=UUID, to_id=UUID), errors=(404,),
    ),
    _endpoint(
        "GET", "/relationships/{id}", "Get a relationship", relationships.read_relationship,
        RELATIONSHIP,
    ),
    _endpoint(
        "PATCH", "/relationships/{id}", "Change a relationship", relationships.change_relationship,
        RELATIONSHIP,
        input_schema(strength=nullable(SHARE), confidence=nullable(SHARE), evidence=_META),
    ),
    _endpoint(
        "DELETE", "/relationships/{id}", "Remove a relationship", relationships.delete_relationship
    ),
    # Analysis
    _endpoint(
        "POST", "/analysis/reflect", "Analyze recent memories", reflection.analyse,
        output_schema(time_window=TEXT, memories=_LIST, active_topics=_TEXTS, memory_clusters=_LIST,
                      emerging_patterns=_LIST, relationship_insights=_LIST, statistics=OBJECT),
        input_schema(
            time_window=enum_schema(reflection.WINDOWS, "recent"), include_documents=FLAG_OFF,
            include_patterns=FLAG_ON, include_relationships=FLAG_ON, include_clusters=FLAG_ON,
            max_memories=integer(1, 1_000, 50), start_date=nullable(DATE), end_date=nullable(DATE),
            recency_weight=share_schema(0.4), access_weight=share_schema(0.3),
            importance_weight=share_schema(0.2), relationship_weight=share_schema(0.1),
        ), scope="read", large=True,
    ),
    _endpoint(
        "POST", "/analysis/summarize", "Summarize memories", reflection.summarize,
        output_schema(summary=TEXT, memory_count=_WHOLE, topics=_TEXTS, memory_types=OBJECT,
                      relationships=_LIST),
        input_schema(memory_ids=nullable(array(UUID, 1_000)), max_memories=integer(1, 1_000, 50),
                     include_relationships=FLAG_ON),
        scope="read", errors=(404,),
    ),
    _endpoint(
        "GET", "/analysis/insights", "Count memories by type and time", reflection.insights,
        output_schema(distribution=OBJECT, statistics=OBJECT, insights=_LIST),
    ),
    # Personality
    _endpoint(
        "GET", "/personality/personas", "List personas", personality.list_personas,
        output_schema(current_tier=TEXT, can_add_traits=FLAG, can_set_org_default=FLAG,
                      personas=_LIST),
    ),
    _endpoint(
        "GET", "/personality/awakening", "Get the awakening briefing", personality.read_awakening,
        output_schema(briefing=TEXT),
    ),
    _endpoint(
        "GET", "/personality", "Get the chosen persona and traits", personality.read_personality,
        PERSONALITY,
    ),
    _endpoint(
        "POST", "/personality", "Choose a persona", personality.choose_persona, PERSONALITY,
        input_schema(["persona_id"], persona_id=enum_schema(PERSONAS_BY_ID),
                     set_as_org_default=FLAG_OFF),
    ),
    _endpoint(
        "POST", "/personality/traits", "Add a trait", personality.create_trait, TRAIT,
        input_schema(["content"], content=text_schema(personality.TRAIT_CHARS, 1),
                     category={**text_schema(64, 1), "default": "custom_instruction"}),
        status=201, errors=(409,),
    ),
    _endpoint(
        "PUT", "/personality/traits/{id}", "Change a trait", personality.change_trait, TRAIT,
        input_schema(["content"], content=text_schema(personality.TRAIT_CHARS, 1)),
    ),
    _endpoint(
        "DELETE", "/personality/traits/{id}", "Remove a trait", personality.delete_trait,
        output_schema(deleted=FLAG), scope="delete",
    ),
    # Artifacts
    _endpoint(
        "POST", "/artifacts", "Save a file", artifacts.save_artifact,
        output_schema(success=FLAG, message=TEXT, path=TEXT, artifact_id=TEXT, content_type=TEXT,
                      size=_WHOLE, storage_path=TEXT),
        input_schema(["path", "content"], path=PATH, content=TEXT), status=201,
        errors=(400, 409, 413),
        body_bytes=16 * MIB,
    ),
    _endpoint(
        "GET", "/artifacts", "Get a file", artifacts.retrieve_artifact,
        output_schema(success=FLAG, content=TEXT, path=TEXT, content_type=TEXT, size=_WHOLE),
        input_schema(["path"], path=PATH), errors=(400, 404), large=True,
    ),
    _endpoint(
        "GET", "/artifacts/list", "List a directory", artifacts.list_artifacts,
        output_schema(success=FLAG, path=TEXT, folders=_TEXTS, files=_LIST),
        input_schema(path_prefix={**PATH, "default": "/"}, name_pattern=text_schema(200)),
        errors=(400,),
        names=(("prefix", "path_prefix"),),
    ),
    _endpoint(
        "DELETE", "/artifacts", "Delete a file", artifacts.delete_artifact,
        output_schema(message=TEXT),
        input_schema(["path"], path=PATH), errors=(400, 404),
    ),
    # Documents
    _endpoint(
        "POST", "/documents/upload", "Upload a document", documents.upload_document, DOCUMENT,
        input_schema(["filename", "data"], filename=text_schema(4 * documents.NAME_CHARS),
                     data=TEXT,
                     metadata=_META),
        status=201, errors=(413,), answer=answers.upload, upload_bytes=21 * MIB,
        request_body=_body_description("multipart/form-data", object_of(
            ["file"], file={"type": "string", "format": "binary"},
            metadata={"type": "string", "description": "A JSON object."},
        )),
    ),
    _endpoint(
        "GET", "/documents", "List documents", documents.list_documents, _page_schema(DOCUMENT),
        input_schema(**_PAGE),
    ),
    _endpoint(
        "GET", "/documents/{id}", "Get a document", documents.read_document, DOCUMENT,
        input_schema(include_chunks=FLAG_OFF), large=True,
    ),
    _endpoint(
        "GET", "/documents/{id}/download", "Download a document's file",
        documents.download_document, large=True, answer=answers.download, media_type="*/*",
    ),
    _endpoint(
        "DELETE", "/documents/{id}", "Delete a document and its chunks", documents.delete_document
    ),
    _endpoint(
        "POST", "/documents/{id}/reprocess", "Process a document again",
        documents.reprocess_document, errors=(501,),
    ),
)  # fmt: skip

OPERATIONS: tuple[Tool, ...] = tuple(tool for tool, _ in _ENDPOINTS)
_ENVELOPE = output_schema(timestamp=TEXT, version=TEXT, request_id=TEXT)
REST = Rest(
    routes=tuple(route for _, route in _ENDPOINTS),
    roots=(ROOT,),
    format_result=answers.format_result,
    format_error=answers.format_error,
    openapi=OpenApi(
        path=f"{ROOT}/openapi.json",
        title="Penfield API",
        version=VERSION,
        error=output_schema(
            status=enum_schema(["error"]),
            error=output_schema(code=TEXT, message=TEXT, details=OBJECT, field_errors=OBJECT),
            meta=_ENVELOPE,
        ),
        envelope=lambda data: output_schema(status=enum_schema(["success"]), data=data,
                                            meta=_ENVELOPE),
        statuses={
            400: "Malformed", 401: "Not signed in", 403: "Not permitted", 404: "Not found",
            405: "The method is not allowed", 413: "Too large",
            415: "The content type is not supported", 422: "Not valid", 429: "Too many requests",
            503: "Not available",
        },
        other_statuses={409: "Exists already", 501: "Not implemented", 507: "The disk is full"},
    ),
)  # fmt: skip
