"""The table of dialects: where each one lives, and the paths it is served at."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from commonplace.dialects.contract import Dialect, Rest
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


@dataclass(frozen=True, slots=True)
class RestPath:
    """A path, or with `/…` at the end all paths below it."""

    path: str
    public: bool = False
    """Whether it answers without a credential; it then decides by itself what it tells."""
    uploads: int = 0
    """Bytes of a multipart body that it accepts; 0 for JSON only."""
    body: int = 0
    """Bytes of a JSON body that it accepts, where that is more than the settings say."""
    websocket: bool = False
    """Whether a WebSocket may be opened below it."""

    def matches(self, path: str) -> bool:
        """Whether a request's path is meant."""
        if self.path.endswith("/…"):
            return path.startswith(self.path[:-1])
        return path == self.path


@dataclass(frozen=True, slots=True)
class Served:
    """A dialect's module, loaded when it is asked for, and its paths."""

    module: str
    paths: tuple[str, ...]
    rest: tuple[RestPath, ...] = ()
    """The paths of its routes; `routes(rest)` of its module `routes` makes them."""


DIALECTS: dict[str, Served] = {
    "commonplace": Served("commonplace.dialects.commonplace", ("/mcp/commonplace",)),
    "mama": Served(
        "commonplace.dialects.mama",
        ("/mcp/mama",),
        (
            RestPath("/api/health", public=True),
            RestPath("/api/checkpoint/save"),
            RestPath("/api/checkpoint/load"),
            RestPath("/checkpoints"),
            RestPath("/api/checkpoints"),
            RestPath("/api/mama/search"),
            RestPath("/api/search"),
            RestPath("/api/mama/save"),
            RestPath("/api/save"),
            RestPath("/api/mama/recall"),
            RestPath("/api/memory/export"),
            RestPath("/graph"),
            RestPath("/api/graph"),
            RestPath("/graph/similar"),
            RestPath("/graph/update"),
            RestPath("/api/update"),
        ),
    ),
    "clawbrain": Served(
        "commonplace.dialects.clawbrain",
        ("/mcp/clawbrain",),
        (RestPath("/v1/clawbrain/outcomes"),),
    ),
    "penfield": Served(
        "commonplace.dialects.penfield",
        ("/mcp/penfield",),
        (
            RestPath("/api/v2/openapi.json", public=True),
            RestPath("/api/v2/auth/refresh", public=True),
            RestPath("/api/v2/artifacts", body=16 * 1024 * 1024),
            RestPath("/api/v2/documents/upload", uploads=21 * 1024 * 1024),
            RestPath("/api/v2/…"),
        ),
    ),
    "orchestrator": Served(
        "commonplace.dialects.orchestrator",
        ("/mcp/v1",),
        (RestPath("/v1/workspaces"), RestPath("/v1/workspaces/…")),
    ),
    "being": Served(
        "commonplace.dialects.being",
        (),  # at /mcp and /mcp/{being_id}, for who comes as a Being; see paths.py
        (
            RestPath("/v1/beings"),
            RestPath("/v1/beings/…", websocket=True),
            RestPath("/v1/llm-key"),
        ),
    ),
}


def routes(name: str, rest: Rest) -> list[BaseRoute]:
    """The REST routes of a dialect."""
    served = DIALECTS[name]
    if not served.rest:
        return []
    made: list[BaseRoute] = import_module(f"{served.module}.routes").routes(rest)
    return made


def load(name: str) -> Dialect:
    """The dialect of that name."""
    served = DIALECTS.get(name)
    if served is None:
        raise InvalidInput(
            f"There is no dialect {name!r}.", hint=f"There are: {', '.join(DIALECTS)}.",
            field="dialect",
        )  # fmt: skip
    dialect: Dialect = import_module(served.module).DIALECT
    return dialect
