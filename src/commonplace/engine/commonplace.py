"""The memory as a library: everything that can be asked of one space."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine import checks, history, memories, purge, upkeep
from commonplace.engine.arguments import (
    by,
    draft_of,
    filters_of,
    moment_of,
    moment_or_none,
    sound_drafts,
)
from commonplace.engine.filters import Filters
from commonplace.engine.library import Library
from commonplace.engine.memories import Draft
from commonplace.engine.model import LIVE_STATES, NOBODY, Memory, Operation, Origin, Usage, moment
from commonplace.engine.parts import (
    Artifacts,
    Chains,
    Clusters,
    Conversations,
    Events,
    Facts,
    Files,
    History,
    Links,
)
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.engine.census import Census
    from commonplace.engine.locating import Doubles, Located, Place
    from commonplace.engine.recall import Hits, SessionHit, Weighting


class Commonplace:
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
        self.chains = Chains(self)
        self.conversations = Conversations(self)
        self.events = Events(self)
        self.files = Files(self)
        self.history = History(self)

    def lease(self) -> contextlib.AbstractContextManager[Any]:
        """The open space, for the engine's own functions."""
        return self.library.lease(self.name)

    def at(self, space: str, origin: Origin | None = None) -> Commonplace:
        """Another space of the same library."""
        return Commonplace(space=space, origin=by(origin, self.origin), library=self.library)

    @contextlib.contextmanager
    def unit(self, name: str, origin: Origin | None = None) -> Iterator[None]:
        """Make everything written in the block one operation: all of it is stored, or none."""
        checks.text(name, "name", max_chars=checks.NAME_CHARS)
        whose = by(origin, self.origin)
        with self.lease() as space, space.store.unit(name, whose.as_dict()):
            yield

    @property
    def operation(self) -> str:
        """The id of the operation that this thread's open unit has begun; empty without one."""
        with self.lease() as space:
            opened = space.store.open_unit
            return opened.id if opened is not None else ""

    def close(self) -> None:
        """Write what is noted and close the files, unless the library is shared."""
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

    # Remembering

    def remember(self, text: str, *, origin: Origin | None = None, **details: Any) -> Memory:
        """Store one memory; it is on disk when this returns. `details` are those of `Draft`."""
        return self.remember_many([draft_of(text=text, **details)], origin=origin)[0]

    def remember_many(
        self, drafts: Sequence[Draft], *, origin: Origin | None = None
    ) -> list[Memory]:
        """Store memories together: all of them, or none."""
        sound = sound_drafts(drafts)
        with self.lease() as space:
            return memories.remember(space, sound, by(origin, self.origin))

    def get(
        self, identity: str, *, as_of: datetime | str | None = None, count: bool = True
    ) -> Memory:
        """One memory by its id or ref, in any state; or as it was at a moment."""
        checks.flag(count, "count")
        with self.lease() as space:
            if as_of is not None:
                return history.memory_as_of(space, identity, moment_of(as_of))
            return memories.get(space, identity, count=count)

    def usage(self, identity: str) -> Usage:
        """How often a memory was read, and when last."""
        with self.lease() as space:
            return memories.usage(space, identity)

    def revise(
        self,
        identity: str,
        *,
        expected_version: int | None = None,
        origin: Origin | None = None,
        **changes: Any,
    ) -> Memory:
        """Change a memory; what it was stays in its history."""
        checks.optional_whole(expected_version, "expected_version")
        with self.lease() as space:
            return memories.revise(
                space, identity, changes, by(origin, self.origin), expected=expected_version
            )

    def promote(self, identity: str, trust: str, *, origin: Origin | None = None) -> Memory:
        """Trust a memory more than its origin gave it; asked for separately, and recorded."""
        with self.lease() as space:
            return memories.revise(
                space,
                identity,
                {"trust": trust},
                by(origin, self.origin),
                name="promote",
                promote=True,
            )

    def supersede(
        self,
        identity: str,
        text: str,
        *,
        reason: str = "",
        origin: Origin | None = None,
        **details: Any,
    ) -> Memory:
        """Store what replaces a memory; the old one stays, superseded and linked."""
        with self.lease() as space:
            (draft,) = sound_drafts([draft_of(text=text, **details)])
            return memories.supersede(space, identity, draft, by(origin, self.origin), reason)

    def forget(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Put memories out of sight; nothing is lost, and `restore` brings them back."""
        with self.lease() as space:
            return memories.set_state(
                space, identities, "archived", by(origin, self.origin), "forget"
            )

    def restore(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Bring forgotten memories back."""
        with self.lease() as space:
            return memories.set_state(
                space, identities, "active", by(origin, self.origin), "restore"
            )

    def purge(self, *identities: str, origin: Origin | None = None) -> purge.Proof:
        """Delete memories for good, with their past, and prove it by a scan of the files."""
        with self.lease() as space:
            return purge.check(purge.purge(space, identities, by(origin, self.origin)))

    # Finding

    def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        weighting: Weighting | None = None,
        as_of: datetime | str | None = None,
        count: bool = True,
        **conditions: Any,
    ) -> Hits:
        """The best matches by word and by meaning, each with the reasons it came.

        `conditions` are those of `Filters`; they decide what is seen before anything is ranked.
        """
        from commonplace.engine import recall  # with it comes numpy: not before it is needed

        if not isinstance(weighting, recall.Weighting | None):
            raise InvalidInput(
                "weighting must be a Weighting.", hint="Or leave it out.", field="weighting"
            )
        checks.flag(count, "count")
        chosen = filters_of(filters, conditions)
        moment = None if as_of is None else moment_of(as_of)
        with self.lease() as space:
            return recall.recall(
                space, query, chosen, weighting or recall.DEFAULT,
                limit=checks.limit(limit), as_of=moment, count=count,
            )  # fmt: skip

    def recall_sessions(
        self,
        query: str,
        *,
        limit: int = 10,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> list[SessionHit]:
        """The sessions of conversations that fit best."""
        from commonplace.engine import recall

        with self.lease() as space:
            return recall.recall_sessions(
                space, query, filters_of(filters, conditions),
                limit=checks.limit(limit), as_of=moment_or_none(as_of),
            )  # fmt: skip

    def browse(
        self,
        *,
        order: str = "newest",
        limit: int = 50,
        offset: int = 0,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> tuple[list[Memory], int]:
        """Memories by `order`, and their count.

        `newest`, `oldest`, `importance`, `credit`, `updated`, or `latest`: by when they happened.
        """
        checks.limit(limit)
        checks.whole(offset, "offset")
        chosen = filters_of(filters, conditions)
        with self.lease() as space:
            if as_of is not None:
                from commonplace.engine import past

                return past.browse(
                    space, chosen, order=order, limit=limit, offset=offset, as_of=moment_of(as_of)
                )
            return memories.browse(space, chosen, order=order, limit=limit, offset=offset)

    def find_text(
        self,
        needle: str,
        *,
        limit: int = 50,
        order: str = "newest",
        in_text: bool = False,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> tuple[list[Memory], int]:
        """Memories that contain a text as it stands, whatever its case, and their count.

        It is looked for in title, text and tags, or in the text alone; the newest come first, or,
        in the order `latest`, those that happened last.
        """
        checks.limit(limit)
        checks.flag(in_text, "in_text")
        chosen = filters_of(filters, conditions)
        with self.lease() as space:
            if as_of is not None:
                from commonplace.engine import past

                return past.find_text(
                    space, needle, chosen, limit=limit, order=order, in_text=in_text,
                    as_of=moment_of(as_of),
                )  # fmt: skip
            return memories.find_text(
                space, needle, chosen, limit=limit, order=order, in_text=in_text
            )

    def locate(
        self,
        needles: Sequence[str],
        score: Callable[[Located], Doubles],
        *,
        limit: int = 50,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> tuple[list[tuple[Memory, tuple[Place, ...]]], int]:
        """Memories that hold every needle in title, tags or text, best score first; their count.

        All of them are scored at once; each comes with the place of each needle.
        """
        from commonplace.engine import locating

        if not callable(score):
            raise InvalidInput("score must be a function.", field="score")
        wanted, chosen = checks.texts(needles, "needles"), filters_of(filters, conditions)
        checks.limit(limit)
        with self.lease() as space:
            return locating.locate(
                space, wanted, chosen, score, limit=limit, as_of=moment_or_none(as_of)
            )

    def tally(
        self,
        *names: str,
        kinds: Sequence[str],
        states: Sequence[str] = LIVE_STATES,
        as_of: datetime | str | None = None,
    ) -> dict[tuple[str, ...], int]:
        """How many memories of these kinds, live unless told, have the same texts in some attrs."""
        with self.lease() as space:
            if as_of is not None:
                from commonplace.engine import past

                return past.tally(space, names, kinds, states, as_of=moment_of(as_of))
            return memories.tally(space, names, kinds, states)

    def similarity(self, text: str, *others: str) -> list[float]:
        """Calibrated likeness of texts, 0..1, for contracts that compare one."""
        from commonplace.engine import recall

        with self.lease() as space:
            return recall.similarity(space, text, others)

    def alike(
        self,
        *identities: str,
        limit: int = 3,
        least: float = 0.7,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> list[tuple[str, str, float]]:
        """(memory, one of those most like it, calibrated likeness), each pair once."""
        from commonplace.engine import likeness

        with self.lease() as space:
            return likeness.alike(
                space, identities, filters_of(filters, conditions),
                limit=checks.limit(limit), least=checks.share(least, "least"),
                as_of=moment_or_none(as_of),
            )  # fmt: skip

    def census(
        self,
        *,
        filters: Filters | None = None,
        as_of: datetime | str | None = None,
        **conditions: Any,
    ) -> Census:
        """The standing of every memory that passes the filters, without reading its text."""
        from commonplace.engine import census

        with self.lease() as space:
            return census.census(
                space, filters_of(filters, conditions), as_of=moment_or_none(as_of)
            )

    def numbered(
        self, numbers: Collection[int], *, as_of: datetime | str | None = None
    ) -> list[Memory]:
        """Memories by the numbers that a census names, in their order."""
        wanted = checks.wholes(numbers, "numbers")
        with self.lease() as space:
            if as_of is not None:
                from commonplace.engine import past

                return past.numbered(space, wanted, as_of=moment_of(as_of))
            return memories.numbered(space, wanted)

    def usages(self, numbers: Collection[int]) -> dict[int, Usage]:
        """How often memories were read, and when last, by their numbers."""
        with self.lease() as space:
            return memories.usages(space, checks.wholes(numbers, "numbers"))

    def used_since(self, moment: datetime | str) -> list[int]:
        """The numbers of the memories that were read at or after a moment."""
        at = checks.when(moment, "moment")
        if at is None:
            raise InvalidInput("moment is missing.", hint="Give a date or a time.", field="moment")
        with self.lease() as space:
            return memories.used_since(space, at)

    def reactivate(self, *identities: str, times: int = 1) -> None:
        """Count memories as read so many times more; on disk when this returns."""
        with self.lease() as space:
            memories.reactivate(space, identities, checks.limit(times, "times"))

    def likeness(
        self,
        numbers: Sequence[int],
        clusters: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
    ) -> NDArray[np.float32]:
        """Calibrated likeness of memories to each other, or to clusters, as a matrix."""
        from commonplace.engine import census

        wanted, then = checks.wholes(numbers, "numbers"), moment_or_none(as_of)
        with self.lease() as space:
            if clusters is None:
                return census.among(space, wanted, as_of=then)
            return census.to_clusters(space, wanted, checks.texts(clusters, "clusters"), as_of=then)

    def settle(
        self,
        progress: Callable[[int, int], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """Embed everything that still waits; how many memories that were."""
        if progress is not None and not callable(progress):
            raise InvalidInput("progress must be a function.", field="progress")
        if timeout is not None:
            checks.number(timeout, "timeout")
        with self.lease() as space:
            return upkeep.settle(space, progress, timeout)

    def backlog(self) -> tuple[int, int]:
        """(memories that wait for vectors, age of the oldest wait in seconds)."""
        with self.lease() as space:
            return upkeep.backlog(space)

    def unembedded(self, *identities: str) -> dict[str, str]:
        """Which of these memories wait for vectors, with what the last attempt said."""
        with self.lease() as space:
            return upkeep.waiting(space, identities)

    def tags(self, *, as_of: datetime | str | None = None) -> list[tuple[str, int, datetime]]:
        """(tag, how many live memories have it, since when), the most used first."""
        with self.lease() as space:
            if as_of is not None:
                from commonplace.engine import past

                found = past.tags(space, as_of=moment_of(as_of))
            else:
                found = memories.tags(space)
            return [(tag, count, moment(at)) for tag, count, at in found]

    def undo(self, operation: str | None = None, *, origin: Origin | None = None) -> Operation:
        """Put back what an operation changed: the newest by default, or the one named."""
        with self.lease() as space:
            return history.undo(space, operation, by(origin, self.origin))
