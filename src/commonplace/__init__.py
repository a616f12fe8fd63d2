"""Commonplace: one memory for every agent.

>>> from commonplace import Commonplace
>>> memory = Commonplace("~/.commonplace")
>>> memory.remember("Alice moved to the vision team", tags=["people"])
>>> memory.recall("who works on images?")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.conversations import Line
    from commonplace.engine.filters import Filters
    from commonplace.engine.library import Library
    from commonplace.engine.memories import Draft
    from commonplace.engine.model import Memory, Origin
    from commonplace.engine.recall import Hit, Weighting

__version__ = "0.1.0"
DISTRIBUTION = "commonplace-memory"  # on PyPI, `commonplace` is another project

_WHERE = {
    "Commonplace": "commonplace.engine.commonplace",
    "Draft": "commonplace.engine.memories",
    "Filters": "commonplace.engine.filters",
    "Hit": "commonplace.engine.recall",
    "Library": "commonplace.engine.library",
    "Line": "commonplace.engine.conversations",
    "Memory": "commonplace.engine.model",
    "Origin": "commonplace.engine.model",
    "Weighting": "commonplace.engine.recall",
}

__all__ = [
    "Commonplace",
    "Draft",
    "Filters",
    "Hit",
    "Library",
    "Line",
    "Memory",
    "Origin",
    "Weighting",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for, so that importing the package costs next to nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'commonplace' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
