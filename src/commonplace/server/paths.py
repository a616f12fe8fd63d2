"""What is where: the entrance that each path leads to, and the dialects that answer there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from commonplace.dialects.contract import Dialect
from commonplace.server import served

OPEN = ("/mcp", "/mcp/")  # where a Being is spoken to as one, and anybody else in the default
OF_A_BEING = "/mcp/{being_id}"


@dataclass(frozen=True, slots=True)
class Entrance:
    """A path behind the door: the dialect that it speaks, or that anybody may come in."""

    route: str
    dialect: Dialect | None = None
    public: bool = False
    mcp: bool = False
    uploads: int = 0
    body: int = 0
    being: str = ""
    """The Being that the path names."""
    beings: Dialect | None = None
    """What is spoken instead to a caller who comes as a Being, or names one."""
    websocket: bool = False
    forms: bool = False
    """Whether a page of ours may post a form there."""


class Paths:
    """Every path of the server."""

    def __init__(
        self,
        dialects: Mapping[str, Dialect],
        default: str,
        *,
        own: Mapping[str, Dialect],
        public: Collection[str],
        forms: Collection[str] = (),
    ) -> None:
        self._dialects = dialects
        self._default = dialects[default]
        self._beings = dialects.get("being")
        self._own = own
        self._public = public
        self._forms = forms
        self.mcp: dict[str, str] = dict.fromkeys(OPEN, default)
        """The paths of MCP, and the dialect that each speaks to whoever comes as nobody else."""
        for name, where in served.DIALECTS.items():
            for path in where.paths:
                self.mcp[path] = self.mcp[f"{path}/"] = name

    def spoken_at(self, path: str) -> set[str]:
        """The dialects that may have to answer at a path of MCP."""
        also = {self._beings.name} if self._beings is not None and path in OPEN else set()
        return {self.mcp[path], *also}

    def entrance(self, path: str) -> Entrance:
        """Where a path leads."""
        if path in self._forms:
            return Entrance(path, forms=True)
        if path in self.mcp:
            also = self._beings if path in OPEN else None
            return Entrance(path, self._dialects[self.mcp[path]], mcp=True, beings=also)
        if path in self._public:
            return Entrance(path, public=True)
        if path.startswith("/.well-known/"):
            return Entrance("/.well-known", public=True)
        if path.startswith("/mcp/") and path.count("/") == 2:
            being = path.removeprefix("/mcp/")
            return Entrance(OF_A_BEING, self._default, mcp=True, being=being, beings=self._beings)
        if path in self._own:
            return Entrance(path, self._own[path])
        return self._rest(path) or Entrance("unknown")

    def _rest(self, path: str) -> Entrance | None:
        for name, where in served.DIALECTS.items():
            for rest in where.rest:
                if rest.matches(path):
                    return Entrance(
                        rest.path, self._dialects[name], rest.public, uploads=rest.uploads,
                        body=rest.body, websocket=rest.websocket,
                    )  # fmt: skip
        return None

    def told(self) -> str:
        """Where MCP is spoken, for whoever came to another path."""
        named = ", ".join(path for path in self.mcp if not path.endswith("/"))
        return f"MCP is served at {named}, and at {OF_A_BEING} for a Being of yours."
