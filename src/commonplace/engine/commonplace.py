"""The public class of the library: one space of a data directory.

`docs/library.md` is generated from the public classes. Functions that only the engine and the
dialects use are called through `engine/binding.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack

from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine import checks
from commonplace.engine.binding import Part, keyword_fields, method
from commonplace.engine.content import memories
from commonplace.engine.content.memories import Details, Draft
from commonplace.engine.content.projects import Project, checked_project
from commonplace.engine.finding import listing
from commonplace.engine.finding.filters import Conditions, Filters, filters_of
from commonplace.engine.history import timeline
from commonplace.engine.library import Library
from commonplace.engine.maintenance import purge, upkeep
from commonplace.engine.model import Memory, Origin, When
from commonplace.engine.parts import (
    Artifacts,
    Clusters,
    Conversations,
    Events,
    Facts,
    History,
    Links,
)
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.engine.finding.current import Replaceable
    from commonplace.engine.finding.recall import Hits, SessionHit, Weighting


class Commonplace(Part):
    """One space of a data directory. Safe to share between threads.

    `embedding` is "builtin", "none", or the base URL of an OpenAI-compatible endpoint. With a
    `project`, new memories are labelled with it, and searches find only its memories and global
    ones. Secrets are masked before they are stored, unless `allow_secrets` is true; a `library`
    passed by the caller keeps its own setting. With `embed="later"`, a memory is stored first and
    embedded right afterwards.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        space: str = "default",
        embedding: str | Embedder | None = "builtin",
        origin: Origin | None = None,
        library: Library | None = None,
        project: Project | None = None,
        allow_secrets: bool = False,
        embed: Literal["now", "later"] = "now",
    ) -> None:
        super().__init__(self)
        self.name = checks.space(space)
        self.origin = checks.origin(origin)
        self.project = None if project is None else checked_project(project)
        if not isinstance(library, Library | None):
            raise InvalidInput(
                "library must be a Library.",
                hint="Pass a Library, or pass a path instead.",
                field="library",
            )
        self._owned = library is None
        if library is None:
            chosen = open_embedder(embedding) if isinstance(embedding, str | None) else embedding
            library = Library(path, embedder=chosen, allow_secrets=allow_secrets, embed=embed)
        self.library = library
        self.links = Links(self)
        self.facts = Facts(self)
        self.clusters = Clusters(self)
        self.artifacts = Artifacts(self)
        self.conversations = Conversations(self)
        self.events = Events(self)
        self.history = History(self)

    def at(self, space: str, origin: Origin | None = None) -> Commonplace:
        """Return another space of the same data directory."""
        own = self.origin if origin is None else origin
        return Commonplace(space=space, origin=own, library=self.library, project=self.project)

    def within(self, project: Project | None) -> Commonplace:
        """Return a view of the same space for a project; None means all projects."""
        return Commonplace(
            space=self.name, origin=self.origin, library=self.library, project=project
        )

    @contextlib.contextmanager
    def unit(self, name: str, origin: Origin | None = None) -> Iterator[None]:
        """Make all writes in the block one operation: all are stored, or none."""
        checks.text(name, "name", max_chars=checks.NAME_CHARS)
        own = self.origin if origin is None else checks.origin(origin)
        with self.library.lease(self.name) as space, space.store.unit(name, own.as_dict()):
            yield

    @property
    def operation(self) -> str:
        """The id of the operation that this thread has open; empty before its first write."""
        with self.library.lease(self.name) as space:
            opened = space.store.open_unit
            return opened.id if opened is not None else ""

    def close(self) -> None:
        """Write pending read counts and close the files, unless the library is shared."""
        if self._owned:
            self.library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Storing and changing

    @keyword_fields(Details, Draft)
    def remember(
        self, text: str, *, origin: Origin | None = None, **details: Unpack[Details]
    ) -> Memory:
        """Store one memory. It is on disk when the call returns."""
        draft = memories.draft_of(text, details)
        own = self.origin if origin is None else origin
        with self.library.lease(self.name) as space:
            return memories.remember(space, [draft], origin=own, project=self.project)[0]

    remember_many = method(memories.remember)
    get = method(memories.get)
    usage = method(memories.usage)
    revise = method(memories.revise)
    promote = method(memories.promote)
    supersede = method(memories.supersede)
    forget = method(memories.forget)
    restore = method(memories.restore)
    purge = method(purge.purge)
    undo = method(timeline.undo)

    # Finding

    @keyword_fields(Conditions, Filters)
    def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        weighting: Weighting | None = None,
        as_of: When | None = None,
        count: bool = True,
        minimum: float | None = None,
        share: float | None = None,
        asked_at: When | None = None,
        **conditions: Unpack[Conditions],
    ) -> Hits:
        """Return the best matches by word and by meaning, each with the reasons for the match.

        The conditions, or `filters`, are applied before the ranking. If no result has at least the
        probability `minimum`, nothing is returned. The other results must reach `share` of the best
        score and of the minimum. With the defaults, weak matches are not returned; `minimum=0`
        returns all matches up to `limit`. The results count as read, unless `count` is False or
        `as_of` is used. If the query names a time ("two weeks ago", "in April"), memories of that
        time rank higher. Such a time is relative to `asked_at`, or else to `as_of`, or else to now.
        """
        from commonplace.engine.finding import recall  # This imports numpy, which takes a while.

        chosen = self._filters(filters, conditions)
        with self.library.lease(self.name) as space:
            return recall.recall(
                space, query, chosen, weighting, limit=limit, as_of=as_of, count=count,
                minimum=minimum, share=share, asked_at=asked_at,
            )  # fmt: skip

    def may_replace(self, text: str, *, limit: int = 3, check: bool = False) -> list[Replaceable]:
        """Return the memories that a new statement may replace, the most probable first.

        The search compares words. With `check`, it also compares meanings, which takes an
        embedding.
        """
        from commonplace.engine.finding import current  # imports numpy

        with self.library.lease(self.name) as space:
            return current.may_replace(space, text, self.project, limit=limit, check=check)

    @keyword_fields(Conditions, Filters)
    def recall_for_prompt(
        self,
        prompt: str,
        *,
        limit: int = 5,
        minimum: float | None = None,
        filters: Filters | None = None,
        count: bool = True,
        **conditions: Unpack[Conditions],
    ) -> Hits:
        """Return the memories that help with a prompt of any length; usually few, often none.

        The method is for hooks that add memories to every prompt, so the default of `minimum` is
        higher than in `recall`.
        """
        from commonplace.engine.finding import recall

        chosen = self._filters(filters, conditions)
        with self.library.lease(self.name) as space:
            return recall.recall_for_prompt(
                space, prompt, chosen, limit=limit, minimum=minimum, count=count
            )

    @keyword_fields(Conditions, Filters)
    def recall_sessions(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        as_of: When | None = None,
        asked_at: When | None = None,
        **conditions: Unpack[Conditions],
    ) -> list[SessionHit]:
        """Return the sessions of conversations that match best, ranked as in `recall`."""
        from commonplace.engine.finding import recall

        chosen = self._filters(filters, conditions)
        with self.library.lease(self.name) as space:
            return recall.recall_sessions(
                space, query, chosen, limit=limit, as_of=as_of, asked_at=asked_at
            )

    def _filters(self, filters: Filters | None, conditions: Conditions) -> Filters:
        chosen = filters_of(filters, conditions)
        if self.project is None or chosen.project is not None:
            return chosen
        return replace(chosen, project=self.project)

    browse = method(listing.browse)
    find_text = method(listing.find_text)
    tags = method(listing.tags)
    backlog = method(upkeep.backlog)
