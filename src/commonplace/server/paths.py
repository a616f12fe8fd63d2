"""Where each path leads, and the dialect that answers there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starlette.routing import compile_path

from commonplace.dialects.contract import Dialect
from commonplace.dialects.rest import Rest

OPEN = "/mcp"  # where the default dialect is served, and a dialect with subjects to those


@dataclass(frozen=True, slots=True)
class Entrance:
    """What the door has to know of a path before it reads the request."""

    route: str
    """The path as it is declared, for the metrics and the audit."""
    dialect: Dialect | None = None
    public: bool = False
    mcp: bool = False
    uploads: int = 0
    body: int = 0
    named: str = ""
    """The subject that the path names."""
    of_subjects: Dialect | None = None
    """The dialect that answers instead to a caller who comes as one of its subjects."""
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
        public: Collection[str],
        forms: Collection[str] = (),
    ) -> None:
        self._default = dialects[default]
        self.mcp: dict[str, str] = {}
        """The fixed paths of MCP, and the dialect that each speaks by default."""
        self.of_subject = ""
        """The path of MCP that names a subject."""
        self._of_subjects: Dialect | None = None
        self._exact: dict[str, Entrance] = {path: Entrance(path, public=True) for path in public}
        self._exact |= {path: Entrance(path, forms=True) for path in forms}
        self._patterns: list[tuple[re.Pattern[str], Entrance]] = []
        self._below: list[tuple[str, Entrance]] = [
            ("/.well-known/", Entrance("/.well-known", public=True))
        ]
        for dialect in dialects.values():
            if OPEN in dialect.paths:
                self._of_subjects = dialect
        for path in (OPEN, f"{OPEN}/"):
            self._mcp(path, self._default, self._of_subjects)
        for dialect in dialects.values():
            for path in dialect.paths:
                if "{" in path:
                    self.of_subject = path
                elif path != OPEN:
                    self._mcp(path, dialect)
                    self._mcp(f"{path}/", dialect)
            if dialect.rest is not None:
                self._rest(dialect, dialect.rest)
        # Of two roots, one inside the other, the inner one decides.
        self._below.sort(key=lambda each: len(each[0]), reverse=True)

    def _mcp(self, path: str, dialect: Dialect, of_subjects: Dialect | None = None) -> None:
        self.mcp[path] = dialect.name
        self._add(Entrance(path, dialect, mcp=True, of_subjects=of_subjects))

    def _add(self, entrance: Entrance) -> None:
        if self._exact.setdefault(entrance.route, entrance) is not entrance:
            raise ValueError(f"two dialects are served at {entrance.route}")

    def _rest(self, dialect: Dialect, rest: Rest) -> None:
        by_path: dict[str, list[int]] = {}
        for number, route in enumerate(rest.routes):
            for path in route.paths:
                by_path.setdefault(path, []).append(number)
        for path, numbers in by_path.items():
            routes = [rest.routes[number] for number in numbers]
            entrance = Entrance(
                path, dialect, all(route.public for route in routes),
                uploads=max(route.uploads for route in routes),
                body=max(route.body_bytes for route in routes),
                websocket=any(route.method == "WEBSOCKET" for route in routes),
            )  # fmt: skip
            if "{" in path:
                self._patterns.append((compile_path(path)[0], entrance))
                self._below.append((path.partition("{")[0], Entrance(path, dialect)))
            else:
                self._add(entrance)
        if rest.openapi is not None:
            self._add(Entrance(rest.openapi.path, dialect, public=True))
        for root in rest.roots:
            nothing = Entrance(f"{root}/…", dialect)
            self._below.append((f"{root}/", nothing))
            self._exact.setdefault(root, nothing)

    def spoken_at(self, path: str) -> set[str]:
        """The dialects that may have to answer at a path of MCP."""
        also = self._exact[path].of_subjects
        return {self.mcp[path]} | ({also.name} if also is not None else set())

    def entrance(self, path: str) -> Entrance:
        """Where a path leads."""
        found = self._exact.get(path)
        if found is not None:
            return found
        above, _, named = path.rpartition("/")
        if self.of_subject and above == OPEN:
            return Entrance(
                self.of_subject, self._default, mcp=True, named=named,
                of_subjects=self._of_subjects,
            )  # fmt: skip
        for pattern, entrance in self._patterns:
            if pattern.match(path):
                return entrance
        for above, entrance in self._below:
            if path.startswith(above):
                return entrance
        return Entrance("unknown")

    def told(self) -> str:
        """Where MCP is served, for whoever came to another path."""
        named = ", ".join(path for path in self.mcp if not path.endswith("/"))
        if self._of_subjects is not None and self._of_subjects.subject is not None:
            title = self._of_subjects.subject.title
            named += f", and at {self.of_subject} for a {title} of yours"
        return f"MCP is served at {named}."
