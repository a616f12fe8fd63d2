"""Commonplace: one memory for every agent.

>>> from commonplace import Commonplace
>>> memory = Commonplace("~/.commonplace")
>>> memory.remember("Alice moved to the vision team", tags=["people"])
>>> memory.recall("which team is Alice on?")
"""

from __future__ import annotations

# Programs import this before their first line, so it must not load `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from commonplace.engine.asynchronous import AsyncCommonplace
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.content.conversations import Line
    from commonplace.engine.content.facts import NoRoom, Room, Totals
    from commonplace.engine.content.links import Neighbour, Path, Walk
    from commonplace.engine.content.memories import Draft
    from commonplace.engine.content.projects import Project
    from commonplace.engine.finding.current import Replaceable
    from commonplace.engine.finding.filters import Filters
    from commonplace.engine.finding.recall import Hit, Hits, SessionHit, Weighting, Why
    from commonplace.engine.library import Library
    from commonplace.engine.maintenance.purge import Proof
    from commonplace.engine.model import (
        Artifact,
        ArtifactVersion,
        Cluster,
        Event,
        Fact,
        Link,
        Memory,
        Message,
        Operation,
        Origin,
        Review,
        Usage,
        Version,
    )
    from commonplace.errors import (
        CommonplaceError,
        Conflict,
        EmbeddingUnavailable,
        InvalidInput,
        NotFound,
        StorageCorrupt,
        StorageFull,
        StorageReadOnly,
        StorageUnavailable,
        UnsupportedVersion,
    )

__version__ = "0.1.0"
DISTRIBUTION = "commonplace-memory"  # on PyPI, `commonplace` is another project

_MODULES = {
    "engine.asynchronous": "AsyncCommonplace",
    "engine.commonplace": "Commonplace",
    "engine.content.conversations": "Line",
    "engine.content.facts": "NoRoom Room Totals",
    "engine.finding.filters": "Filters",
    "engine.content.links": "Neighbour Path Walk",
    "engine.library": "Library",
    "engine.content.memories": "Draft",
    "engine.content.projects": "Project",
    "engine.model": "Artifact ArtifactVersion Cluster Event Fact Link Memory Message Operation"
    " Origin Review Usage Version",
    "engine.maintenance.purge": "Proof",
    "engine.finding.recall": "Hit Hits SessionHit Weighting Why",
    "engine.finding.current": "Replaceable",
    "errors": "CommonplaceError Conflict EmbeddingUnavailable InvalidInput NotFound StorageCorrupt"
    " StorageFull StorageReadOnly StorageUnavailable UnsupportedVersion",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Artifact",
    "ArtifactVersion",
    "AsyncCommonplace",
    "Cluster",
    "Commonplace",
    "CommonplaceError",
    "Conflict",
    "Draft",
    "EmbeddingUnavailable",
    "Event",
    "Fact",
    "Filters",
    "Hit",
    "Hits",
    "InvalidInput",
    "Library",
    "Line",
    "Link",
    "Memory",
    "Message",
    "Neighbour",
    "NoRoom",
    "NotFound",
    "Operation",
    "Origin",
    "Path",
    "Project",
    "Proof",
    "Replaceable",
    "Review",
    "Room",
    "SessionHit",
    "StorageCorrupt",
    "StorageFull",
    "StorageReadOnly",
    "StorageUnavailable",
    "Totals",
    "UnsupportedVersion",
    "Usage",
    "Version",
    "Walk",
    "Weighting",
    "Why",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that importing the package is fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'commonplace' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"commonplace.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
