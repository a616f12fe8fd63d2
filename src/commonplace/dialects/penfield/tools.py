"""The tools, as the contract names them."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.contract import Call, Tool
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
from commonplace.dialects.penfield.schemas import (
    CONTENT,
    DATE,
    DESCRIPTION_CHARS,
    NAME_CHARS,
    PATH_CHARS,
    QUERY,
    RELATION,
    TAGS,
    UUID,
)
from commonplace.dialects.tool_schemas import FLAG, SHARE, TEXT, gives, listed, maybe, takes, whole

_DONE = {"success": FLAG}
_PATH = {"type": "string", "maxLength": PATH_CHARS,
         "description": "Starts with /, e.g. /project/file.txt."}  # fmt: skip
_LIMIT = whole(1, 100, 10)
_LIST = {"type": "array"}
_ANYTHING = {"type": "object"}


def summarize(call: Call, **given: Any) -> None:
    """`summarize`, which is deprecated, whatever an old client gives it."""
    del call, given
    raise Deprecated("summarize is deprecated.", hint="Use save_context instead.")


def get_storage_access(call: Call, **given: Any) -> None:
    """`get_storage_access`, which is deprecated, whatever an old client gives it."""
    del call, given
    raise Deprecated(
        "get_storage_access is deprecated.",
        hint="Direct storage access has been removed; manage documents with /api/v2/documents.",
    )


TOOLS = (
    Tool(
        name="awaken",
        title="Awaken",
        description="Load the user's personality briefing. Call it at the start of a conversation.",
        scope="read",
        handler=personality.awaken,
        input=takes(),
        output=gives(**_DONE, briefing=TEXT),
    ),
    Tool(
        name="store",
        title="Store",
        description="Store a new memory; its type is detected from the content. Include context,"
        " reasoning and evidence. Afterwards connect it to related memories.",
        scope="write",
        handler=memories.store,
        input=takes(
            ["content"], content=CONTENT, tags=maybe(TAGS),
            importance={**maybe(SHARE), "description": "Calculated if left out."},
        ),
        output=gives(**_DONE, id=TEXT, memory_type=TEXT, importance=SHARE),
    ),
    Tool(
        name="recall",
        title="Recall",
        description="Search memories by words, meaning and links (hybrid). Use it when you need"
        " context before responding, resume a topic, or look up prior decisions.",
        scope="read",
        handler=searching.recall,
        input=takes(
            ["query"], query=QUERY, limit=_LIMIT,
            source_type={"type": ["string", "null"], "enum": ["memory", "document", None],
                         "description": "Only memories, or only documents."},
            tags={**maybe(TAGS), "description": "Any of these."},
            start_date=maybe(DATE), end_date=maybe(DATE),
        ),
        output=gives(**_DONE, items=_LIST, query=TEXT),
    ),
    Tool(
        name="search",
        title="Search",
        description="Search memories by meaning, for fuzzy concepts without exact terms. Returns"
        " results to cite: id, title, url, text.",
        scope="read",
        handler=searching.search,
        input=takes(["query"], query=QUERY, limit=_LIMIT),
        output=gives(results=_LIST),
    ),
    Tool(
        name="fetch",
        title="Fetch",
        description="Get one memory by its id, whole, to read or cite.",
        scope="read",
        handler=searching.fetch,
        input=takes(["id"], id=UUID),
        output=gives(id=TEXT, title=TEXT, text=TEXT, url=TEXT),
    ),
    Tool(
        name="update_memory",
        title="Update memory",
        description="Update a memory's content, importance or tags; tags replace the old ones.",
        scope="write",
        handler=memories.update_memory,
        input=takes(
            ["memory_id"], memory_id=UUID, content=maybe(CONTENT), importance=maybe(SHARE),
            tags=maybe(TAGS),
        ),
        output=gives(**_DONE, id=TEXT),
        idempotent=True,
    ),
    Tool(
        name="connect",
        title="Connect",
        description="Create a relationship between two memories, with the most specific type.",
        scope="write",
        handler=relationships.connect,
        input=takes(
            ["from_memory", "to_memory", "relationship_type"], from_memory=UUID, to_memory=UUID,
            relationship_type=RELATION, strength={**SHARE, "default": 0.5},
        ),
        output=gives(**_DONE, id=TEXT),
    ),
    Tool(
        name="disconnect",
        title="Disconnect",
        description="Remove the relationships from one memory to another. Needs the permission to"
        " delete; without it the answer is 403.",
        scope="write",
        handler=relationships.disconnect,
        input=takes(["from_memory", "to_memory"], from_memory=UUID, to_memory=UUID),
        destructive=True,
    ),
    Tool(
        name="explore",
        title="Explore",
        description="Traverse the knowledge graph from a memory.",
        scope="read",
        handler=relationships.explore,
        input=takes(
            ["start_memory"], start_memory=UUID, max_depth=whole(1, 10, 3),
            relationship_types=maybe(listed(RELATION, 24)),
        ),
        output=gives(**_DONE, paths=_LIST, memories=_LIST),
    ),
    Tool(
        name="reflect",
        title="Reflect",
        description="Analyze patterns in memories of a time window: topics, clusters, insights."
        " Use it sparingly.",
        scope="read",
        handler=reflection.reflect,
        input=takes(
            time_window={"type": "string", "enum": list(reflection.WINDOWS), "default": "recent"},
            include_documents={**FLAG, "default": False},
            start_date=maybe(DATE), end_date=maybe(DATE),
        ),
        output=gives(**_DONE, memories=_LIST, active_topics=_LIST),
    ),
    Tool(
        name="save_context",
        title="Save context",
        description="Create a checkpoint for a later session, under a unique name. In the"
        " description refer to memories as 'memory_id: UUID', which always resolves, or"
        " \"memory: 'phrase'\", which may not.",
        scope="write",
        handler=contexts.save_context,
        input=takes(
            ["name"], name={"type": "string", "minLength": 1, "maxLength": NAME_CHARS},
            description=maybe({"type": "string", "maxLength": DESCRIPTION_CHARS}),
        ),
        output=gives(**_DONE, context_id=TEXT, memories_included={"type": "integer"}),
    ),
    Tool(
        name="restore_context",
        title="Restore context",
        description="Restore a checkpoint by its name or id. The name 'awakening' loads the"
        " personality briefing.",
        scope="read",
        handler=contexts.restore_context,
        input=takes(
            ["name"], name={"type": "string", "minLength": 1, "maxLength": NAME_CHARS},
            limit=whole(1, 100, 20),
        ),
        output=gives(**_DONE, context_id=TEXT, description=TEXT, memories=_LIST),
    ),
    Tool(
        name="list_contexts",
        title="List contexts",
        description="List saved checkpoints, the newest first.",
        scope="read",
        handler=contexts.list_contexts,
        input=takes(
            limit=whole(1, 100, 20), offset=whole(0, 1_000_000, 0),
            name_pattern=maybe({"type": "string", "maxLength": NAME_CHARS}),
            include_descriptions={**FLAG, "default": False},
        ),
        output=gives(**_DONE, total={"type": "integer"}, contexts=_LIST),
    ),
    Tool(
        name="save_artifact",
        title="Save artifact",
        description="Save a file under a path that is not taken. Letters, digits, - _ . and /, at"
        " most 10 levels, nothing hidden.",
        scope="write",
        handler=artifacts.save_artifact,
        input=takes(["content", "path"], content=TEXT, path=_PATH),
        output=gives(**_DONE, path=TEXT, artifact_id=TEXT),
    ),
    Tool(
        name="retrieve_artifact",
        title="Retrieve artifact",
        description="Get a stored file by its path.",
        scope="read",
        handler=artifacts.retrieve_artifact,
        input=takes(["path"], path=_PATH),
        output=gives(**_DONE, content=TEXT, path=TEXT),
    ),
    Tool(
        name="list_artifacts",
        title="List artifacts",
        description="List the files and folders in a directory.",
        scope="read",
        handler=artifacts.list_artifacts,
        input=takes(path_prefix={"type": "string", "maxLength": PATH_CHARS, "default": "/"}),
        output=gives(**_DONE, folders=_LIST, files=_LIST),
    ),
    Tool(
        name="delete_artifact",
        title="Delete artifact",
        description="Delete a stored file.",
        scope="write",
        handler=artifacts.delete_artifact,
        input=takes(["path"], path=_PATH),
        output=gives(**_DONE, message=TEXT),
        destructive=True,
    ),
    Tool(
        name="summarize",
        title="Summarize (deprecated)",
        description="Deprecated: use save_context instead.",
        scope="read",
        handler=summarize,
        input=_ANYTHING,
    ),
    Tool(
        name="get_storage_access",
        title="Get storage access (deprecated)",
        description="Deprecated: manage documents over REST instead.",
        scope="read",
        handler=get_storage_access,
        input=_ANYTHING,
    ),
)  # fmt: skip
