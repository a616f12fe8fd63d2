"""The types of memories and relationships, and the types of other contracts' memories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from commonplace.engine.model import Memory

STORED_TYPES = (
    "fact", "insight", "conversation", "correction", "reference", "task", "checkpoint",
    "relationship", "strategy",
)  # fmt: skip
PROTECTED_TYPES = ("identity_core", "personality_trait")
TYPES = (*STORED_TYPES, *PROTECTED_TYPES)
CHUNK_KIND = "document_chunk"
OWN_KINDS = frozenset((*TYPES, CHUNK_KIND))

RELATIONS = (
    "supersedes", "updates", "evolution_of",  # knowledge evolution
    "supports", "contradicts", "disputes",  # evidence and support
    "parent_of", "child_of", "sibling_of", "composed_of", "part_of",  # hierarchy and structure
    "causes", "influenced_by", "prerequisite_for",  # causation
    "implements", "documents", "tests", "example_of",  # implementation and testing
    "responds_to", "references", "inspired_by",  # conversation and attribution
    "follows", "precedes",  # sequence and flow
    "depends_on",  # dependencies
)  # fmt: skip

DIRECT_SOURCE, UPLOAD_SOURCE = "direct_input", "document_upload"
# The documented source types. Other source types are accepted, too.
SOURCE_TYPES = (
    DIRECT_SOURCE, UPLOAD_SOURCE, "web_scrape", "api_import", "conversation", "reflection",
    "checkpoint", "checkpoint_recall",
)  # fmt: skip

# The types of other contracts' memories, by kind; the default is fact.
SHOWN_TYPES: Mapping[str, str] = {
    CHUNK_KIND: "reference",
    "note": "fact",
    "entity": "fact",
    "decision": "insight",
    "lesson": "insight",
    "reflection": "insight",
    "learning": "insight",
    "message": "conversation",
    "episode": "conversation",
    "scene": "conversation",
    "diary": "conversation",
    "preference": "relationship",
    "identity": "relationship",
    "procedure": "strategy",
    "workflow": "strategy",
    "rule": "strategy",
    "todo": "task",
    "goal": "task",
    "drawer": "reference",
    "document": "reference",
    "*": "fact",
}


def type_of(kind: str) -> str:
    """Return the contract's type for a kind of memory."""
    return kind if kind in TYPES else SHOWN_TYPES.get(kind, SHOWN_TYPES["*"])


def filters_of_types(types: Collection[str]) -> dict[str, Any]:
    """Return the engine's filters for memories of these types."""
    known = {*TYPES, *SHOWN_TYPES} - {"*"}
    if SHOWN_TYPES["*"] in types:
        return {"without_kinds": sorted(kind for kind in known if type_of(kind) not in types)}
    return {"kinds": sorted(kind for kind in known if type_of(kind) in types)}


def is_context(memory: Memory) -> bool:
    """Return whether a memory is a checkpoint of this contract, not of another one."""
    return memory.kind == "checkpoint" and "checkpoint_name" in memory.attrs


def is_own(memory: Memory) -> bool:
    """Return whether this contract may change a memory."""
    return memory.kind in OWN_KINDS and (memory.kind != "checkpoint" or is_context(memory))


def source_type_of(memory: Memory) -> str:
    """Return the source type of a memory."""
    if memory.kind == CHUNK_KIND:
        return UPLOAD_SOURCE
    stored = memory.attrs.get("source_type") if memory.kind in TYPES else None
    return stored if isinstance(stored, str) else DIRECT_SOURCE
