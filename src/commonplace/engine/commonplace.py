"""The memory as a library: what can be asked of one space.

`docs/library.md` is generated from the public classes. What only the engine and the dialects use
is reached through `engine/binding.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine import checks
from commonplace.engine.arguments import (
    Changes,
    Conditions,
    Details,
    by,
    draft_of,
    filters_of,
    sound_drafts,
)
from commonplace.engine.binding import Part, lease, method, named
from commonplace.engine.content import memories
from commonplace.engine.content.memories import Draft
from commonplace.engine.finding.filters import Filters
from commonplace.engine.history import timeline
from commonplace.engine.library import Library
from commonplace.engine.maintenance import purge, upkeep
from commonplace.engine.maintenance.purge import Proof
from commonplace.engine.model import NOBODY, Memory, Origin, When, moment
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
    from commonplace.engine.finding.recall import Hits, SessionHit, Weighting


class Commonplace(Part):
    """One space of a data directory. Safe to share between threads.

    `embedding` is "builtin", "none", or the base URL of an OpenAI-compatible endpoint.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        space: str = "default",
        embedding: str | Embedder | None = "builtin",
        origin: Origin | None = None,
        library: Library | None = None,
    ) -> None:
        super().__init__(self)
        self.name = checks.space(space)
        self.origin = by(origin, NOBODY)
        if not isinstance(library, Library | None):
            raise InvalidInput(
                "library must be a Library.", hint="Or name a path.", field="library"
            )
        self._owned = library is None
        if library is None:
            chosen = open_embedder(embedding) if isinstance(embedding, str | None) else embedding
            library = Library(path, embedder=chosen)
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
        return Commonplace(space=space, origin=by(origin, self.origin), library=self.library)

    @contextlib.contextmanager
    def unit(self, name: str, origin: Origin | None = None) -> Iterator[None]:
        """Make everything written in the block one operation: all of it is stored, or none."""
        checks.text(name, "name", max_chars=checks.NAME_CHARS)
        whose = by(origin, self.origin)
        with lease(self) as space, space.store.unit(name, whose.as_dict()):
            yield

    @property
    def operation(self) -> str:
        """The id of the operation that this thread's open unit has begun; empty without one."""
        with lease(self) as space:
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

    @named(Details, Draft)
    def remember(
        self, text: str, *, origin: Origin | None = None, **details: Unpack[Details]
    ) -> Memory:
        """Store one memory; it is on disk when this returns."""
        draft = draft_of(text, details)
        with lease(self) as space:
            return memories.remember(space, [draft], by(origin, self.origin))[0]

    def remember_many(
        self, drafts: Sequence[Draft], *, origin: Origin | None = None
    ) -> list[Memory]:
        """Store memories together: all of them, or none."""
        sound = sound_drafts(drafts)
        with lease(self) as space:
            return memories.remember(space, sound, by(origin, self.origin))

    def get(self, identity: str, *, as_of: When | None = None, count: bool = True) -> Memory:
        """Return one memory by its id or ref, in any state; or as it was at a moment.

        It counts as read, unless `count` is False or the past is asked for.
        """
        checks.flag(count, "count")
        with lease(self) as space:
            if as_of is not None:
                return timeline.memory_as_of(space, identity, as_of)
            return memories.get(space, identity, count=count)

    usage = method(memories.usage)

    @named(Changes)
    def revise(
        self,
        identity: str,
        text: str | None = None,
        *,
        expected_version: int | None = None,
        origin: Origin | None = None,
        **changes: Unpack[Changes],
    ) -> Memory:
        """Change a memory; what it was stays in its history.

        With `expected_version`, it is a Conflict if the memory has been changed since.
        """
        checks.optional_whole(expected_version, "expected_version")
        wanted = {**changes} if text is None else {"text": text, **changes}
        with lease(self) as space:
            return memories.revise(
                space, identity, wanted, by(origin, self.origin), expected=expected_version
            )

    def promote(self, identity: str, trust: str, *, origin: Origin | None = None) -> Memory:
        """Trust a memory more than its origin gave it; recorded as an operation of its own."""
        with lease(self) as space:
            return memories.revise(
                space,
                identity,
                {"trust": trust},
                by(origin, self.origin),
                name="promote",
                promote=True,
            )

    @named(Details, Draft)
    def supersede(
        self,
        identity: str,
        text: str,
        *,
        reason: str = "",
        origin: Origin | None = None,
        **details: Unpack[Details],
    ) -> Memory:
        """Store what replaces a memory; the old one stays, superseded and linked."""
        draft = draft_of(text, details)
        with lease(self) as space:
            return memories.supersede(space, identity, draft, by(origin, self.origin), reason)

    def forget(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Hide memories; nothing is lost, and `restore` brings them back."""
        with lease(self) as space:
            return memories.set_state(
                space, identities, "archived", by(origin, self.origin), "forget"
            )

    def restore(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Bring forgotten memories back."""
        with lease(self) as space:
            return memories.set_state(
                space, identities, "active", by(origin, self.origin), "restore"
            )

    def purge(self, *identities: str, origin: Origin | None = None) -> Proof:
        """Delete memories for good, with their past, and prove it by a scan of the files."""
        with lease(self) as space:
            return purge.check(purge.purge(space, identities, by(origin, self.origin)))

    undo = method(timeline.undo)

    # Finding

    @named(Conditions, Filters)
    def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        weighting: Weighting | None = None,
        as_of: When | None = None,
        count: bool = True,
        **conditions: Unpack[Conditions],
    ) -> Hits:
        """Return the best matches by word and by meaning, each with the reasons it came.

        The conditions, or `filters`, decide what is seen before anything is ranked. What is
        returned counts as read, unless `count` is False or the past is asked for.
        """
        from commonplace.engine.finding import (
            recall,  # numpy is imported with it, when it is needed
        )

        if not isinstance(weighting, recall.Weighting | None):
            raise InvalidInput(
                "weighting must be a Weighting.", hint="Or leave it out.", field="weighting"
            )
        checks.flag(count, "count")
        chosen = filters_of(filters, conditions)
        with lease(self) as space:
            return recall.recall(
                space, query, chosen, weighting or recall.DEFAULT,
                limit=checks.limit(limit), as_of=as_of, count=count,
            )  # fmt: skip

    @named(Conditions, Filters)
    def recall_sessions(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        as_of: When | None = None,
        **conditions: Unpack[Conditions],
    ) -> list[SessionHit]:
        """Return the sessions of conversations that fit best."""
        from commonplace.engine.finding import recall

        chosen = filters_of(filters, conditions)
        with lease(self) as space:
            return recall.recall_sessions(
                space, query, chosen, limit=checks.limit(limit), as_of=as_of
            )

    @named(Conditions, Filters)
    def browse(
        self,
        *,
        order: str = "newest",
        limit: int = 50,
        offset: int = 0,
        filters: Filters | None = None,
        as_of: When | None = None,
        **conditions: Unpack[Conditions],
    ) -> tuple[list[Memory], int]:
        """Return memories by `order`, and the count of all that pass.

        `newest`, `oldest`, `importance`, `credit`, `updated`, or `latest`: by when they happened.
        """
        checks.limit(limit)
        checks.whole(offset, "offset")
        chosen = filters_of(filters, conditions)
        with lease(self) as space:
            if as_of is not None:
                from commonplace.engine.history import past

                return past.browse(
                    space, chosen, order=order, limit=limit, offset=offset, as_of=as_of
                )
            return memories.browse(space, chosen, order=order, limit=limit, offset=offset)

    @named(Conditions, Filters)
    def find_text(
        self,
        needle: str,
        *,
        limit: int = 50,
        order: str = "newest",
        in_text: bool = False,
        filters: Filters | None = None,
        as_of: When | None = None,
        **conditions: Unpack[Conditions],
    ) -> tuple[list[Memory], int]:
        """Return memories that contain a text as it stands, in any case, and their count.

        It is searched for in title, text and tags, or in the text alone; the newest come first,
        or, in the order `latest`, those that happened last.
        """
        checks.limit(limit)
        checks.flag(in_text, "in_text")
        chosen = filters_of(filters, conditions)
        with lease(self) as space:
            if as_of is not None:
                from commonplace.engine.history import past

                return past.find_text(
                    space, needle, chosen, limit=limit, order=order, in_text=in_text, as_of=as_of
                )
            return memories.find_text(
                space, needle, chosen, limit=limit, order=order, in_text=in_text
            )

    def tags(self, *, as_of: When | None = None) -> list[tuple[str, int, datetime]]:
        """Return (tag, how many live memories have it, since when), the most used first."""
        with lease(self) as space:
            if as_of is not None:
                from commonplace.engine.history import past

                found = past.tags(space, as_of=as_of)
            else:
                found = memories.tags(space)
            return [(tag, count, moment(at)) for tag, count, at in found]

    backlog = method(upkeep.backlog)
