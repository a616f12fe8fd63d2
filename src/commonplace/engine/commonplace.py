"""The memory as a library: everything that can be asked of one space."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine import (
    artifacts,
    chains,
    checks,
    clusters,
    conversations,
    events,
    facts,
    files,
    graph,
    history,
    memories,
    purge,
    upkeep,
)
from commonplace.engine.conversations import Line
from commonplace.engine.files import Behind, File
from commonplace.engine.filters import Filters
from commonplace.engine.library import Library
from commonplace.engine.memories import STATES, Draft
from commonplace.engine.model import (
    LIVE_STATES,
    NOBODY,
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
    moment,
)
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.engine.census import Census
    from commonplace.engine.locating import Doubles, Located, Place
    from commonplace.engine.recall import Hits, SessionHit, Weighting

_ALL = Filters()


class _Part:
    """One concern of a space; shares its lease and its origin."""

    def __init__(self, whole: Commonplace) -> None:
        self._whole = whole
        self._lease = whole.lease


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
        self.origin = _by(origin, NOBODY)
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
        return Commonplace(space=space, origin=_by(origin, self.origin), library=self.library)

    @contextlib.contextmanager
    def unit(self, name: str, origin: Origin | None = None) -> Iterator[None]:
        """Make everything written in the block one operation: all of it is stored, or none."""
        checks.text(name, "name", max_chars=checks.NAME_CHARS)
        whose = _by(origin, self.origin)
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
        return self.remember_many([_draft(text=text, **details)], origin=origin)[0]

    def remember_many(
        self, drafts: Sequence[Draft], *, origin: Origin | None = None
    ) -> list[Memory]:
        """Store memories together: all of them, or none."""
        sound = _sound(drafts)
        with self.lease() as space:
            return memories.remember(space, sound, _by(origin, self.origin))

    def get(
        self, identity: str, *, as_of: datetime | str | None = None, count: bool = True
    ) -> Memory:
        """One memory by its id or ref, in any state; or as it was at a moment."""
        checks.flag(count, "count")
        with self.lease() as space:
            if as_of is not None:
                return history.memory_as_of(space, identity, _moment(as_of))
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
                space, identity, changes, _by(origin, self.origin), expected=expected_version
            )

    def promote(self, identity: str, trust: str, *, origin: Origin | None = None) -> Memory:
        """Trust a memory more than its origin gave it; asked for separately, and recorded."""
        with self.lease() as space:
            return memories.revise(
                space,
                identity,
                {"trust": trust},
                _by(origin, self.origin),
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
            (draft,) = _sound([_draft(text=text, **details)])
            return memories.supersede(space, identity, draft, _by(origin, self.origin), reason)

    def forget(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Put memories out of sight; nothing is lost, and `restore` brings them back."""
        with self.lease() as space:
            return memories.set_state(
                space, identities, "archived", _by(origin, self.origin), "forget"
            )

    def restore(self, *identities: str, origin: Origin | None = None) -> list[Memory]:
        """Bring forgotten memories back."""
        with self.lease() as space:
            return memories.set_state(
                space, identities, "active", _by(origin, self.origin), "restore"
            )

    def purge(self, *identities: str, origin: Origin | None = None) -> purge.Proof:
        """Delete memories for good, with their past, and prove it by a scan of the files."""
        with self.lease() as space:
            return purge.check(purge.purge(space, identities, _by(origin, self.origin)))

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
        chosen = _filters(filters, conditions)
        moment = None if as_of is None else _moment(as_of)
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
                space, query, _filters(filters, conditions),
                limit=checks.limit(limit), as_of=_moment_or_none(as_of),
            )  # fmt: skip

    def browse(
        self,
        *,
        order: str = "newest",
        limit: int = 50,
        offset: int = 0,
        filters: Filters | None = None,
        **conditions: Any,
    ) -> tuple[list[Memory], int]:
        """Memories by `order` (newest, oldest, importance, credit, updated), and their count."""
        checks.limit(limit)
        checks.whole(offset, "offset")
        with self.lease() as space:
            return memories.browse(
                space, _filters(filters, conditions), order=order, limit=limit, offset=offset
            )

    def find_text(
        self,
        needle: str,
        *,
        limit: int = 50,
        filters: Filters | None = None,
        **conditions: Any,
    ) -> tuple[list[Memory], int]:
        """Memories that contain a text as it stands, whatever its case, and their count."""
        with self.lease() as space:
            return memories.find_text(
                space, needle, _filters(filters, conditions), limit=checks.limit(limit)
            )

    def locate(
        self,
        needles: Sequence[str],
        score: Callable[[Located], Doubles],
        *,
        limit: int = 50,
        filters: Filters | None = None,
        **conditions: Any,
    ) -> tuple[list[tuple[Memory, tuple[Place, ...]]], int]:
        """Memories that hold every needle in title, tags or text, best score first; their count.

        All of them are scored at once; each comes with the place of each needle.
        """
        from commonplace.engine import locating

        if not callable(score):
            raise InvalidInput("score must be a function.", field="score")
        with self.lease() as space:
            return locating.locate(
                space,
                checks.texts(needles, "needles"),
                _filters(filters, conditions),
                score,
                limit=checks.limit(limit),
            )

    def tally(
        self, *names: str, kinds: Sequence[str], states: Sequence[str] = LIVE_STATES
    ) -> dict[tuple[str, ...], int]:
        """How many memories of these kinds, live unless told, have the same texts in some attrs."""
        with self.lease() as space:
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
        **conditions: Any,
    ) -> list[tuple[str, str, float]]:
        """(memory, one of those most like it, calibrated likeness), each pair once."""
        from commonplace.engine import likeness

        with self.lease() as space:
            return likeness.alike(
                space, identities, _filters(filters, conditions),
                limit=checks.limit(limit), least=checks.share(least, "least"),
            )  # fmt: skip

    def census(self, *, filters: Filters | None = None, **conditions: Any) -> Census:
        """The standing of every memory that passes the filters, without reading its text."""
        from commonplace.engine import census

        with self.lease() as space:
            return census.census(space, _filters(filters, conditions))

    def numbered(self, numbers: Collection[int]) -> list[Memory]:
        """Memories by the numbers that a census names, in their order."""
        with self.lease() as space:
            return memories.numbered(space, checks.wholes(numbers, "numbers"))

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
        self, numbers: Sequence[int], clusters: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Calibrated likeness of memories to each other, or to clusters, as a matrix."""
        from commonplace.engine import census

        with self.lease() as space:
            if clusters is None:
                return census.among(space, checks.wholes(numbers, "numbers"))
            return census.to_clusters(
                space, checks.wholes(numbers, "numbers"), checks.texts(clusters, "clusters")
            )

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

    def tags(self) -> list[tuple[str, int, datetime]]:
        """(tag, how many live memories have it, since when), the most used first."""
        with self.lease() as space:
            return [(tag, count, moment(at)) for tag, count, at in memories.tags(space)]

    def undo(self, operation: str | None = None, *, origin: Origin | None = None) -> Operation:
        """Put back what an operation changed: the newest by default, or the one named."""
        with self.lease() as space:
            return history.undo(space, operation, _by(origin, self.origin))


class History(_Part):
    """Operations and former versions."""

    def operations(self, *, limit: int = 50, upkeep: bool = False) -> list[Operation]:
        """The newest operations first."""
        checks.flag(upkeep, "upkeep")
        with self._lease() as space:
            return history.operations(space, limit=checks.limit(limit), upkeep=upkeep)

    def versions(self, identity: str) -> list[Version]:
        """Every form a memory has had, newest first."""
        with self._lease() as space:
            return history.versions(space, identity)


class Links(_Part):
    """Relations between memories."""

    def add(
        self,
        source: str,
        target: str,
        kind: str,
        *,
        weight: float = 0.5,
        reason: str = "",
        attrs: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Link:
        """Join two memories; the same link again is a Conflict."""
        with self._lease() as space:
            return graph.link(
                space, source, target, kind, _by(origin, self._whole.origin),
                weight=weight, reason=reason, attrs=attrs,
            )  # fmt: skip

    def get(self, identity: str) -> Link:
        """One link by its id."""
        with self._lease() as space:
            return graph.get_link(space, identity)

    def revise(self, identity: str, *, origin: Origin | None = None, **changes: Any) -> Link:
        """Change a link's weight, reason or attrs."""
        with self._lease() as space:
            return graph.revise_link(space, identity, changes, _by(origin, self._whole.origin))

    def remove(self, identity: str, *, origin: Origin | None = None) -> None:
        """Remove a link; the past still shows it."""
        with self._lease() as space:
            graph.unlink(space, identity, _by(origin, self._whole.origin))

    def of(
        self,
        identity: str | None = None,
        *,
        direction: graph.Direction = "any",
        kinds: Collection[str] | None = None,
        as_of: datetime | str | None = None,
    ) -> list[Link]:
        """Links of one memory, or of all."""
        with self._lease() as space:
            return graph.links(
                space, identity, direction=direction, kinds=kinds, as_of=_moment_or_none(as_of)
            )

    def neighbours(
        self,
        identity: str,
        *,
        direction: graph.Direction = "any",
        kinds: Collection[str] | None = None,
        weight: float = 0.0,
        as_of: datetime | str | None = None,
    ) -> list[graph.Neighbour]:
        """Live memories one link away, strongest first."""
        with self._lease() as space:
            return graph.neighbours(
                space, identity, direction=direction, kinds=kinds,
                weight=checks.share(weight, "weight"), as_of=_moment_or_none(as_of),
            )  # fmt: skip

    def traverse(
        self,
        identity: str,
        *,
        depth: int = 3,
        direction: graph.Direction = "any",
        kinds: Collection[str] | None = None,
        weight: float = 0.0,
        decay: float = 0.5,
        max_paths: int = graph.MAX_PATHS,
        as_of: datetime | str | None = None,
    ) -> graph.Walk:
        """Simple paths from a memory, nearest and strongest first."""
        with self._lease() as space:
            return graph.traverse(
                space, identity, depth=depth, direction=direction, kinds=kinds,
                weight=checks.share(weight, "weight"), decay=checks.share(decay, "decay"),
                max_paths=max_paths, as_of=_moment_or_none(as_of),
            )  # fmt: skip

    def components(
        self, *, kinds: Collection[str] | None = None, as_of: datetime | str | None = None
    ) -> list[list[str]]:
        """Groups of linked memories, largest first."""
        with self._lease() as space:
            return graph.components(space, kinds=kinds, as_of=_moment_or_none(as_of))


class Chains(_Part):
    """Memories that follow one another."""

    def extend(
        self,
        tag: str,
        text: str,
        *,
        reason: str = "",
        origin: Origin | None = None,
        **details: Any,
    ) -> tuple[Memory, Memory | None]:
        """Store a memory behind the last of its kind and tag; it, and what it supersedes."""
        with self._lease() as space:
            (draft,) = _sound([_draft(text=text, **details)])
            return chains.extend(space, draft, tag, _by(origin, self._whole.origin), reason)

    def number(
        self, prefix: str, text: str, *, origin: Origin | None = None, **details: Any
    ) -> Memory:
        """Store a memory whose ref is the prefix and the next number."""
        with self._lease() as space:
            (draft,) = _sound([_draft(text=text, **details)])
            return chains.number(space, draft, prefix, _by(origin, self._whole.origin))


class Facts(_Part):
    """Subject, predicate, object, with validity."""

    def add(
        self,
        subject: str,
        predicate: str,
        object: str,
        *,
        valid_from: datetime | str | None = None,
        valid_to: datetime | str | None = None,
        confidence: float = 1.0,
        memory: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Fact:
        """Store a fact; the same open fact again is the one already there."""
        with self._lease() as space:
            return facts.add(
                space, subject, predicate, object, _by(origin, self._whole.origin),
                valid_from=checks.when(valid_from, "valid_from"),
                valid_to=checks.when(valid_to, "valid_to"),
                confidence=confidence, memory=memory, attrs=attrs,
            )[0]  # fmt: skip

    def close(
        self,
        subject: str,
        predicate: str,
        object: str,
        *,
        ended: datetime | str | None = None,
        origin: Origin | None = None,
    ) -> list[Fact]:
        """End the open facts that match, now or at a date; which those were."""
        at = checks.when(datetime.now(UTC) if ended is None else ended, "ended")
        assert at is not None
        with self._lease() as space:
            return facts.close(
                space, subject, predicate, object, _by(origin, self._whole.origin), ended=at
            )

    def retract(self, identity: str, *, origin: Origin | None = None) -> None:
        """Take back a fact that was never true."""
        with self._lease() as space:
            facts.retract(space, identity, _by(origin, self._whole.origin))

    def query(
        self,
        entity: str | None = None,
        *,
        role: facts.Role = "any",
        predicate: str | None = None,
        true_at: datetime | str | None = None,
        known_at: datetime | str | None = None,
        limit: int = 500,
    ) -> list[Fact]:
        """Facts about an entity: true at a date, as known at a date, newest learned first."""
        with self._lease() as space:
            return facts.query(
                space, entity, role=role, predicate=predicate,
                true_at=checks.when(true_at, "true_at"), known_at=_moment_or_none(known_at),
                limit=checks.limit(limit),
            )  # fmt: skip

    def totals(self) -> facts.Totals:
        """How many facts there are, about how many things."""
        with self._lease() as space:
            return facts.totals(space)

    def timeline(self, entity: str | None = None, *, limit: int = 100) -> list[Fact]:
        """Facts by when they began."""
        with self._lease() as space:
            return facts.timeline(space, entity, limit=checks.limit(limit))


class Clusters(_Part):
    """Named groups of memories."""

    def create(
        self,
        name: str,
        *,
        digest: str = "",
        parent: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Cluster:
        """A new, empty cluster."""
        with self._lease() as space:
            return clusters.create(
                space,
                name,
                _by(origin, self._whole.origin),
                digest=digest,
                parent=parent,
                attrs=attrs,
            )

    def get(self, identity: str) -> Cluster:
        """One cluster."""
        with self._lease() as space:
            return clusters.get(space, identity)

    def all(self, *, as_of: datetime | str | None = None) -> list[Cluster]:
        """All clusters, oldest first."""
        with self._lease() as space:
            return clusters.listing(space, as_of=_moment_or_none(as_of))

    def revise(self, identity: str, *, origin: Origin | None = None, **changes: Any) -> Cluster:
        """Change a cluster's name, digest, parent or attrs."""
        with self._lease() as space:
            return clusters.revise(space, identity, changes, _by(origin, self._whole.origin))

    def delete(self, identity: str, *, origin: Origin | None = None) -> None:
        """Remove a cluster; its memories stay."""
        with self._lease() as space:
            clusters.delete(space, identity, _by(origin, self._whole.origin))

    def add(self, identity: str, *members: str, origin: Origin | None = None) -> int:
        """Put memories into a cluster; how many were not in it before."""
        with self._lease() as space:
            return clusters.add(space, identity, members, _by(origin, self._whole.origin))

    def remove(self, identity: str, *members: str, origin: Origin | None = None) -> int:
        """Take memories out of a cluster; how many were in it."""
        with self._lease() as space:
            return clusters.remove(space, identity, members, _by(origin, self._whole.origin))

    def refresh(self, identity: str, *, origin: Origin | None = None) -> None:
        """Compute a cluster's centroid anew."""
        with self._lease() as space:
            clusters.refresh(space, identity, _by(origin, self._whole.origin))

    def members(
        self,
        identity: str,
        *,
        as_of: datetime | str | None = None,
        states: Collection[str] = LIVE_STATES,
        most: int | None = None,
    ) -> list[Memory]:
        """A cluster's memories, the live ones or those in other states.

        With `most`, so many of those that are there now: the dying, then the most important.
        """
        chosen = {checks.one_of(each, "states", STATES) for each in checks.listed(states, "states")}
        if most is not None:
            checks.limit(most, "most")
            if as_of is not None:
                raise InvalidInput("most is of now: leave as_of out.", field="most")
        with self._lease() as space:
            return clusters.members(
                space, identity, as_of=_moment_or_none(as_of), states=chosen, most=most
            )

    def sizes(self) -> dict[str, dict[str, int]]:
        """How many memories of each state each cluster has; none for one that is empty."""
        with self._lease() as space:
            return clusters.sizes(space)

    def homes(self, *identities: str) -> dict[str, list[str]]:
        """The ids of the clusters that each memory is in, by the memory's id."""
        with self._lease() as space:
            return clusters.homes(space, checks.texts(identities, "identities"))

    def move(self, source: str, target: str, *members: str, origin: Origin | None = None) -> int:
        """Take memories from one cluster into another; all of them if none is named."""
        with self._lease() as space:
            return clusters.move(
                space, checks.text(source, "source"), checks.text(target, "target"),
                checks.texts(members, "members"), _by(origin, self._whole.origin),
            )  # fmt: skip

    def of(self, memory: str) -> list[Cluster]:
        """The clusters a memory is in."""
        with self._lease() as space:
            return clusters.of_memory(space, memory)


class Artifacts(_Part):
    """Documents with versions and reviews."""

    def create(
        self,
        content: str | bytes,
        *,
        path: str | None = None,
        title: str = "",
        media_type: str = "text/markdown",
        attrs: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Artifact:
        """A new artifact, version 1."""
        with self._lease() as space:
            return artifacts.create(
                space, content, _by(origin, self._whole.origin),
                path=path, title=title, media_type=media_type, attrs=attrs,
            )  # fmt: skip

    def update(
        self,
        name: str,
        content: str | bytes,
        *,
        summary: str = "",
        expected_version: int | None = None,
        origin: Origin | None = None,
    ) -> Artifact:
        """A new version; with `expected_version`, only if that is the newest."""
        checks.optional_whole(expected_version, "expected_version")
        with self._lease() as space:
            return artifacts.update(
                space, name, content, _by(origin, self._whole.origin),
                summary=summary, expected=expected_version,
            )  # fmt: skip

    def get(self, name: str, *, as_of: datetime | str | None = None) -> Artifact:
        """An artifact without its content, by id or path; or as it was at a moment."""
        with self._lease() as space:
            return artifacts.get(space, name, as_of=_moment_or_none(as_of))

    def read(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: datetime | str | None = None,
    ) -> tuple[Artifact, ArtifactVersion]:
        """An artifact with the content of one version, the newest (or newest then) by default."""
        with self._lease() as space:
            return artifacts.read(space, name, version=version, as_of=_moment_or_none(as_of))

    def versions(self, name: str, *, as_of: datetime | str | None = None) -> list[ArtifactVersion]:
        """Every version, oldest first."""
        with self._lease() as space:
            return artifacts.versions(space, name, as_of=_moment_or_none(as_of))

    def all(
        self, *, prefix: str | None = None, as_of: datetime | str | None = None
    ) -> list[Artifact]:
        """Artifacts by path."""
        with self._lease() as space:
            return artifacts.listing(space, prefix=prefix, as_of=_moment_or_none(as_of))

    def delete(self, name: str, *, origin: Origin | None = None) -> None:
        """Take an artifact out of sight."""
        with self._lease() as space:
            artifacts.delete(space, name, _by(origin, self._whole.origin))

    def review(
        self,
        name: str,
        outcome: str,
        *,
        reviewer: str = "",
        comments: str = "",
        version: int | None = None,
        origin: Origin | None = None,
    ) -> Review:
        """Record a review: approved, changes_requested, rejected or commented."""
        with self._lease() as space:
            return artifacts.review(
                space, name, outcome, _by(origin, self._whole.origin),
                reviewer=reviewer, comments=comments, version=version,
            )  # fmt: skip

    def reviews(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: datetime | str | None = None,
    ) -> list[Review]:
        """Reviews of one version, or of all."""
        with self._lease() as space:
            return artifacts.reviews(space, name, version=version, as_of=_moment_or_none(as_of))


class Conversations(_Part):
    """Lines with a speaker, a session and an order."""

    def add(self, conversation: str, *lines: Line, origin: Origin | None = None) -> list[Message]:
        """Append lines: all of them, or none."""
        with self._lease() as space:
            return conversations.add(space, conversation, lines, _by(origin, self._whole.origin))

    def history(
        self,
        conversation: str,
        *,
        session: str | None = None,
        limit: int = 50,
        before: int | None = None,
        as_of: datetime | str | None = None,
    ) -> list[Message]:
        """The newest lines, oldest of them first; or those of a moment, as they were."""
        with self._lease() as space:
            return conversations.history(
                space, conversation, session=session, limit=checks.limit(limit), before=before,
                as_of=_moment_or_none(as_of),
            )  # fmt: skip

    def find(self, conversation: str, needle: str, *, limit: int = 50) -> list[Message]:
        """Lines of a conversation that contain a text as it stands, newest first."""
        with self._lease() as space:
            return conversations.find(space, conversation, needle, limit=checks.limit(limit))

    def of(self, identity: str, *, as_of: datetime | str | None = None) -> Message:
        """The line that a memory is."""
        with self._lease() as space:
            return conversations.of_memory(space, identity, as_of=_moment_or_none(as_of))

    def window(
        self,
        identity: str,
        *,
        before: int = 2,
        after: int = 2,
        as_of: datetime | str | None = None,
    ) -> list[Message]:
        """A line with those around it."""
        with self._lease() as space:
            return conversations.window(
                space, identity, before=before, after=after, as_of=_moment_or_none(as_of)
            )

    def names(self, *, as_of: datetime | str | None = None) -> list[tuple[str, int]]:
        """(conversation, how many lines)."""
        with self._lease() as space:
            return conversations.names(space, as_of=_moment_or_none(as_of))


class Events(_Part):
    """Append-only."""

    def record(
        self,
        kind: str,
        subject: str = "",
        payload: Mapping[str, Any] | None = None,
        *,
        origin: Origin | None = None,
    ) -> None:
        """Append an event."""
        with self._lease() as space:
            events.record(space, kind, subject, payload, _by(origin, self._whole.origin))

    def all(
        self,
        *,
        kind: str | None = None,
        subject: str | None = None,
        limit: int = 100,
        after: int = 0,
        newest: bool = False,
    ) -> list[Event]:
        """Events in their order, after a given one; or the newest first."""
        with self._lease() as space:
            return events.listing(
                space, kind=kind, subject=subject, limit=checks.limit(limit), after=after,
                newest=checks.flag(newest, "newest"),
            )  # fmt: skip


class Files(_Part):
    """Files that are copies of memories; `root` is the id of their directory."""

    def known(self, root: str) -> list[File]:
        """How the files were when they last agreed with their memories."""
        with self._lease() as space:
            return files.known(space, root)

    def note(self, root: str, noted: Sequence[File], *, gone: Collection[int] = ()) -> None:
        """Remember how files are now."""
        with self._lease() as space:
            files.note(space, root, noted, gone)

    def behind(self, root: str, kinds: Collection[str], *, after: int = 0) -> Behind:
        """Memories whose files are not of their newest form, among those changed since."""
        with self._lease() as space:
            return files.behind(space, root, kinds, after)

    def rows(self, nums: Sequence[int]) -> list[Memory]:
        """Memories by the numbers that their files are noted with."""
        with self._lease() as space:
            return files.rows(space, nums)

    def head(self) -> int:
        """The newest operation's place in the order of changes."""
        with self._lease() as space:
            return files.head(space)


def _by(given: Origin | None, usual: Origin) -> Origin:
    """Who does it: whom the call names, or who usually does."""
    return usual if given is None else checks.origin(given)


def _sound(drafts: Iterable[Draft]) -> list[Draft]:
    """Drafts whose origin and vectors are what they must be; the rest is checked with the text."""
    found = list(checks.listed(drafts, "drafts", "drafts"))
    for draft in found:
        if isinstance(draft, Draft):
            if draft.origin is not None:
                checks.origin(draft.origin)
            if draft.vectors is not None:
                checks.vectors(draft.vectors)
    return found


def _draft(**details: Any) -> Draft:
    unknown = details.keys() - set(Draft.__slots__)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"A memory has no {name}.", hint=f"It has {', '.join(Draft.__slots__)}.", field=name
        )
    return Draft(**details)


def _filters(filters: Filters | None, conditions: Mapping[str, Any]) -> Filters:
    if not isinstance(filters, Filters | None):
        raise InvalidInput(
            "filters must be Filters.", hint="Or name them one by one.", field="filters"
        )
    unknown = conditions.keys() - set(Filters.__slots__)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"There is no filter {name}.",
            hint=f"There are {', '.join(Filters.__slots__)}.",
            field=name,
        )
    return replace(filters or _ALL, **conditions)


def _moment(value: datetime | str) -> int:
    at = checks.when(value, "as_of")
    assert at is not None
    return at


def _moment_or_none(value: datetime | str | None) -> int | None:
    return None if value is None else _moment(value)


def drafts_of(items: Iterable[Mapping[str, Any]]) -> list[Draft]:
    """Drafts from plain mappings."""
    made = []
    for item in checks.listed(items, "items", "mappings"):
        if not isinstance(item, Mapping) or not all(isinstance(name, str) for name in item):
            raise InvalidInput("A draft is made of a mapping of names.", field="items")
        if "text" not in item:
            raise InvalidInput("The memory has no text.", field="text")
        made.append(_draft(**item))
    return made
