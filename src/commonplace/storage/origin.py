"""Who stored something: a value that rows and operations carry as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

ORIGIN_PARTS = ("user", "client", "tool", "session", "url", "label")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who stored something, with which client and tool, in which session. Never changes."""

    user: str = ""
    client: str = ""
    tool: str = ""
    session: str = ""
    url: str = ""
    label: str = ""
    """What the operations of one import or patrol have in common; older ones have it as `url`."""

    def as_dict(self) -> dict[str, str]:
        """Only what is known."""
        return {name: value for name in ORIGIN_PARTS if (value := getattr(self, name))}

    def dump(self) -> str:
        """The stored form."""
        if self is NOBODY or self == NOBODY:
            return "{}"
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def load(text: str) -> Origin:
        """From the stored form; unknown keys of newer releases are left out."""
        return NOBODY if text == "{}" else _origin(text)


NOBODY = Origin()


@lru_cache(maxsize=1024)  # few origins are on very many memories
def _origin(text: str) -> Origin:
    known = json.loads(text)
    return Origin(**{name: known[name] for name in ORIGIN_PARTS if name in known})
