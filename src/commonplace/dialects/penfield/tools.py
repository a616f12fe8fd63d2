"""The declarations of the tools of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.contract import WHOLE_TEXT_BYTES, Call, Schema, Tool
from commonplace.dialects.penfield import (
    artifacts,
    contexts,
    memories,
    personality,
    reflection,
    relationships,
    searching,
)
from commonplace.dialects.penfield.failures import Deprecated
from commonplace.dialects.penfield.fitting import LARGE
from commonplace.dialects.penfield.schemas import (
    CONTENT,
    DATE,
    DESCRIPTION_CHARS,
    FLAG_OFF,
    NAME_CHARS,
    PATH,
    QUERY,
    RELATION,
    TAGS,
    UUID,
    enum_schema,
    share_schema,
    text_schema,
)
from commonplace.dialects.tool_schemas import (
    FLAG,
    SHARE,
    TEXT,
    array,
    input_schema,
    integer,
    nullable,
    output_schema,
)

_DONE = {"success": FLAG}
_PATH = {**PATH, "description": "Starts with /, e.g. /project/file.txt."}
_LIMIT = integer(1, 100, 10)
_LIST = {"type": "array"}
_ANYTHING = {"type": "object"}


def summarize(call: Call, **given: Any) -> None:
    """`summarize`: refuse the call, because the tool is deprecated; ignore all arguments."""
    del call, given
    raise Deprecated("summarize is deprecated.", hint="Use save_context instead.")


def get_storage_access(call: Call, **given: Any) -> None:
    """`get_storage_access`: refuse the call, because the tool is deprecated."""
    del call, given
    raise Deprecated(
        "get_storage_access is deprecated.",
        hint="Direct storage access has been removed; manage documents with /api/v2/documents.",
    )


def _tool(
    scope: Scope,
    handler: Callable[..., Any],
    description: str,
    input: Schema,
    output: Schema | None = None,
    **more: Any,
) -> Tool:
    """Return a tool with the name of its handler."""
    name = handler.__name__
    title = more.pop("title", name.replace("_", " ").capitalize())
    return Tool(
        name=name, title=title, description=description, scope=scope, handler=handler, input=input,
        output=output, **more,
    )  # fmt: skip


TOOLS = (
    _tool(
        "read", personality.awaken,
        "Load the user's personality briefing. Call it at the start of a conversation.",
        input_schema(), output_schema(**_DONE, briefing=TEXT),
    ),
    _tool(
        "write", memories.store,
        "Store a new memory; its type is detected from the content. Include context,"
        " reasoning and evidence. Afterwards connect it to related memories.",
        input_schema(
            ["content"], content=CONTENT, tags=nullable(TAGS),
            importance={**nullable(SHARE), "description": "Calculated if left out."},
        ),
        output_schema(**_DONE, id=TEXT, memory_type=TEXT, importance=SHARE),
    ),
    _tool(
        "read", searching.recall,
        "Search memories by words, meaning and links (hybrid). Use it when you need"
        " context before responding, resume a topic, or look up prior decisions.",
        input_schema(
            ["query"], query=QUERY, limit=_LIMIT,
            source_type={**nullable(enum_schema(["memory", "document"])),
                         "description": "Only memories, or only documents."},
            tags={**nullable(TAGS), "description": "Any of these."},
            start_date=nullable(DATE), end_date=nullable(DATE),
        ),
        output_schema(**_DONE, items=_LIST, query=TEXT),
    ),
    _tool(
        "read", searching.search,
        "Search memories by meaning, for fuzzy concepts without exact terms. Returns"
        " results to cite: id, title, url, text.",
        input_schema(["query"], query=QUERY, limit=_LIMIT), output_schema(results=_LIST),
    ),
    _tool(
        "read", searching.fetch, "Get one memory by its id, whole, to read or cite.",
        input_schema(["id"], id=UUID), output_schema(id=TEXT, title=TEXT, text=TEXT, url=TEXT),
        response_bytes=WHOLE_TEXT_BYTES,
    ),
    _tool(
        "write", memories.update_memory,
        "Update a memory's content, importance or tags; tags replace the old ones.",
        input_schema(["memory_id"], memory_id=UUID, content=nullable(CONTENT),
                     importance=nullable(SHARE),
                     tags=nullable(TAGS)),
        output_schema(**_DONE, id=TEXT), idempotent=True, response_bytes=WHOLE_TEXT_BYTES,
    ),
    _tool(
        "write", relationships.connect,
        "Create a relationship between two memories, with the most specific type.",
        input_schema(
            ["from_memory", "to_memory", "relationship_type"], from_memory=UUID, to_memory=UUID,
            relationship_type=RELATION, strength=share_schema(0.5),
        ),
        output_schema(**_DONE, id=TEXT),
    ),
    _tool(
        "write", relationships.disconnect,
        "Remove the relationships from one memory to another. Needs the permission to"
        " delete; without it the answer is 403.",
        input_schema(["from_memory", "to_memory"], from_memory=UUID, to_memory=UUID),
        destructive=True,
    ),
    _tool(
        "read", relationships.explore, "Traverse the knowledge graph from a memory.",
        input_schema(["start_memory"], start_memory=UUID, max_depth=integer(1, 10, 3),
                     relationship_types=nullable(array(RELATION, 24))),
        output_schema(**_DONE, paths=_LIST, memories=_LIST),
    ),
    _tool(
        "read", reflection.reflect,
        "Analyze patterns in memories of a time window: topics, clusters, insights."
        " Use it sparingly.",
        input_schema(time_window=enum_schema(reflection.WINDOWS, "recent"),
                     include_documents=FLAG_OFF,
                     start_date=nullable(DATE), end_date=nullable(DATE)),
        output_schema(**_DONE, memories=_LIST, active_topics=_LIST),
    ),
    _tool(
        "write", contexts.save_context,
        "Create a checkpoint for a later session, under a unique name. In the"
        " description refer to memories as 'memory_id: UUID', which always resolves, or"
        " \"memory: 'phrase'\", which may not.",
        input_schema(["name"], name=text_schema(NAME_CHARS, 1),
                     description=nullable(text_schema(DESCRIPTION_CHARS))),
        output_schema(**_DONE, context_id=TEXT, memories_included={"type": "integer"}),
    ),
    _tool(
        "read", contexts.restore_context,
        "Restore a checkpoint by its name or id. The name 'awakening' loads the"
        " personality briefing.",
        input_schema(["name"], name=text_schema(NAME_CHARS, 1), limit=integer(1, 100, 20)),
        output_schema(**_DONE, context_id=TEXT, description=TEXT, memories=_LIST),
    ),
    _tool(
        "read", contexts.list_contexts, "List saved checkpoints, the newest first.",
        input_schema(limit=integer(1, 100, 20), offset=integer(0, 1_000_000, 0),
                     name_pattern=nullable(text_schema(NAME_CHARS)), include_descriptions=FLAG_OFF),
        output_schema(**_DONE, total={"type": "integer"}, contexts=_LIST),
    ),
    _tool(
        "write", artifacts.save_artifact,
        "Save a file under a path that is not taken. Letters, digits, - _ . and /, at"
        " most 10 levels, nothing hidden.",
        input_schema(["content", "path"], content=TEXT, path=_PATH),
        output_schema(**_DONE, path=TEXT, artifact_id=TEXT),
    ),
    _tool(
        "read", artifacts.retrieve_artifact, "Get a stored file by its path.",
        input_schema(["path"], path=_PATH), output_schema(**_DONE, content=TEXT, path=TEXT),
        response_bytes=LARGE,
    ),
    _tool(
        "read", artifacts.list_artifacts, "List the files and folders in a directory.",
        input_schema(path_prefix={**PATH, "default": "/"}),
        output_schema(**_DONE, folders=_LIST, files=_LIST),
    ),
    _tool(
        "write", artifacts.delete_artifact, "Delete a stored file.",
        input_schema(["path"], path=_PATH), output_schema(**_DONE, message=TEXT), destructive=True,
    ),
    _tool(
        "read", summarize, "Deprecated: use save_context instead.", _ANYTHING,
        title="Summarize (deprecated)",
    ),
    _tool(
        "read", get_storage_access, "Deprecated: manage documents over REST instead.", _ANYTHING,
        title="Get storage access (deprecated)",
    ),
)  # fmt: skip
