"""The parts of a space: its links, facts, clusters, and whatever else is more than a memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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
)
from commonplace.engine.arguments import by, draft_of, moment_or_none, sound_drafts
from commonplace.engine.conversations import Line
from commonplace.engine.files import Behind, File
from commonplace.engine.model import (
    LIVE_STATES,
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
    Version,
)
from commonplace.errors import InvalidInput
from commonplace.storage.fields import STATES

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace


class Part:
    """One concern of a space; shares its lease and its origin."""

    def __init__(self, whole: Commonplace) -> None:
        self._whole = whole
        self._lease = whole.lease


class History(Part):
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


class Links(Part):
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
                space, source, target, kind, by(origin, self._whole.origin),
                weight=weight, reason=reason, attrs=attrs,
            )  # fmt: skip

    def get(self, identity: str, *, as_of: datetime | str | None = None) -> Link:
        """One link by its id; or as it was at a moment."""
        with self._lease() as space:
            return graph.get_link(space, identity, as_of=moment_or_none(as_of))

    def revise(self, identity: str, *, origin: Origin | None = None, **changes: Any) -> Link:
        """Change a link's weight, reason or attrs."""
        with self._lease() as space:
            return graph.revise_link(space, identity, changes, by(origin, self._whole.origin))

    def remove(self, identity: str, *, origin: Origin | None = None) -> None:
        """Remove a link; the past still shows it."""
        with self._lease() as space:
            graph.unlink(space, identity, by(origin, self._whole.origin))

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
                space, identity, direction=direction, kinds=kinds, as_of=moment_or_none(as_of)
            )

    def around(
        self,
        *identities: str,
        direction: graph.Direction = "any",
        kinds: Collection[str] | None = None,
        as_of: datetime | str | None = None,
    ) -> list[Link]:
        """Links of several memories by their ids, each once, the oldest first."""
        with self._lease() as space:
            return graph.links_around(
                space, checks.texts(identities, "identities"), direction=direction, kinds=kinds,
                as_of=moment_or_none(as_of),
            )  # fmt: skip

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
                weight=checks.share(weight, "weight"), as_of=moment_or_none(as_of),
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
                max_paths=max_paths, as_of=moment_or_none(as_of),
            )  # fmt: skip

    def components(
        self, *, kinds: Collection[str] | None = None, as_of: datetime | str | None = None
    ) -> list[list[str]]:
        """Groups of linked memories, largest first."""
        with self._lease() as space:
            return graph.components(space, kinds=kinds, as_of=moment_or_none(as_of))


class Chains(Part):
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
            (draft,) = sound_drafts([draft_of(text=text, **details)])
            return chains.extend(space, draft, tag, by(origin, self._whole.origin), reason)

    def number(
        self, prefix: str, text: str, *, origin: Origin | None = None, **details: Any
    ) -> Memory:
        """Store a memory whose ref is the prefix and the next number."""
        with self._lease() as space:
            (draft,) = sound_drafts([draft_of(text=text, **details)])
            return chains.number(space, draft, prefix, by(origin, self._whole.origin))


class Facts(Part):
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
        room: facts.Room | None = None,
        origin: Origin | None = None,
    ) -> Fact:
        """Store a fact; the same open fact again is the one already there.

        With `room`, one beyond it is refused, whoever else adds facts at the same time.
        """
        with self._lease() as space:
            return facts.add(
                space, subject, predicate, object, by(origin, self._whole.origin),
                valid_from=checks.when(valid_from, "valid_from"),
                valid_to=checks.when(valid_to, "valid_to"),
                confidence=confidence, memory=memory, attrs=attrs, room=room,
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
                space, subject, predicate, object, by(origin, self._whole.origin), ended=at
            )

    def retract(self, identity: str, *, origin: Origin | None = None) -> None:
        """Take back a fact that was never true."""
        with self._lease() as space:
            facts.retract(space, identity, by(origin, self._whole.origin))

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
        """Facts about an entity: true at a date, as known at a date, newest learned first.

        What was true for a part of a day was true on that day.
        """
        first, last = checks.when(true_at, "true_at"), checks.until(true_at, "true_at")
        with self._lease() as space:
            return facts.query(
                space, entity, role=role, predicate=predicate,
                true_at=None if first is None or last is None else (first, last),
                known_at=moment_or_none(known_at),
                limit=checks.limit(limit),
            )  # fmt: skip

    def totals(self, *, as_of: datetime | str | None = None) -> facts.Totals:
        """How many facts there are, about how many things; or were known at a moment."""
        with self._lease() as space:
            return facts.totals(space, as_of=moment_or_none(as_of))

    def timeline(
        self,
        entity: str | None = None,
        *,
        limit: int = 100,
        as_of: datetime | str | None = None,
    ) -> list[Fact]:
        """Facts by when they began; as they are known, or as they were at a moment."""
        with self._lease() as space:
            return facts.timeline(
                space, entity, limit=checks.limit(limit), as_of=moment_or_none(as_of)
            )


class Clusters(Part):
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
                by(origin, self._whole.origin),
                digest=digest,
                parent=parent,
                attrs=attrs,
            )

    def get(self, identity: str, *, as_of: datetime | str | None = None) -> Cluster:
        """One cluster; or as it was at a moment."""
        with self._lease() as space:
            return clusters.get(space, identity, as_of=moment_or_none(as_of))

    def all(self, *, as_of: datetime | str | None = None) -> list[Cluster]:
        """All clusters, oldest first."""
        with self._lease() as space:
            return clusters.listing(space, as_of=moment_or_none(as_of))

    def revise(self, identity: str, *, origin: Origin | None = None, **changes: Any) -> Cluster:
        """Change a cluster's name, digest, parent or attrs."""
        with self._lease() as space:
            return clusters.revise(space, identity, changes, by(origin, self._whole.origin))

    def delete(self, identity: str, *, origin: Origin | None = None) -> None:
        """Remove a cluster; its memories stay."""
        with self._lease() as space:
            clusters.delete(space, identity, by(origin, self._whole.origin))

    def add(self, identity: str, *members: str, origin: Origin | None = None) -> int:
        """Put memories into a cluster; how many were not in it before."""
        with self._lease() as space:
            return clusters.add(space, identity, members, by(origin, self._whole.origin))

    def remove(self, identity: str, *members: str, origin: Origin | None = None) -> int:
        """Take memories out of a cluster; how many were in it."""
        with self._lease() as space:
            return clusters.remove(space, identity, members, by(origin, self._whole.origin))

    def refresh(self, identity: str, *, origin: Origin | None = None) -> None:
        """Compute a cluster's centroid anew."""
        with self._lease() as space:
            clusters.refresh(space, identity, by(origin, self._whole.origin))

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
                space, identity, as_of=moment_or_none(as_of), states=chosen, most=most
            )

    def sizes(self, *, as_of: datetime | str | None = None) -> dict[str, dict[str, int]]:
        """How many memories of each state each cluster has; none for one that is empty."""
        with self._lease() as space:
            return clusters.sizes(space, as_of=moment_or_none(as_of))

    def homes(self, *identities: str, as_of: datetime | str | None = None) -> dict[str, list[str]]:
        """The ids of the clusters that each memory is in, by the memory's id."""
        with self._lease() as space:
            return clusters.homes(
                space, checks.texts(identities, "identities"), as_of=moment_or_none(as_of)
            )

    def move(self, source: str, target: str, *members: str, origin: Origin | None = None) -> int:
        """Take memories from one cluster into another; all of them if none is named."""
        with self._lease() as space:
            return clusters.move(
                space, checks.text(source, "source"), checks.text(target, "target"),
                checks.texts(members, "members"), by(origin, self._whole.origin),
            )  # fmt: skip

    def of(self, memory: str, *, as_of: datetime | str | None = None) -> list[Cluster]:
        """The clusters a memory is in, or was at a moment."""
        with self._lease() as space:
            return clusters.of_memory(space, memory, as_of=moment_or_none(as_of))


class Artifacts(Part):
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
                space, content, by(origin, self._whole.origin),
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
                space, name, content, by(origin, self._whole.origin),
                summary=summary, expected=expected_version,
            )  # fmt: skip

    def get(self, name: str, *, as_of: datetime | str | None = None) -> Artifact:
        """An artifact without its content, by id or path; or as it was at a moment."""
        with self._lease() as space:
            return artifacts.get(space, name, as_of=moment_or_none(as_of))

    def read(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: datetime | str | None = None,
    ) -> tuple[Artifact, ArtifactVersion]:
        """An artifact with the content of one version, the newest (or newest then) by default."""
        with self._lease() as space:
            return artifacts.read(space, name, version=version, as_of=moment_or_none(as_of))

    def versions(self, name: str, *, as_of: datetime | str | None = None) -> list[ArtifactVersion]:
        """Every version, oldest first."""
        with self._lease() as space:
            return artifacts.versions(space, name, as_of=moment_or_none(as_of))

    def all(
        self, *, prefix: str | None = None, as_of: datetime | str | None = None
    ) -> list[Artifact]:
        """Artifacts by path."""
        with self._lease() as space:
            return artifacts.listing(space, prefix=prefix, as_of=moment_or_none(as_of))

    def delete(self, name: str, *, origin: Origin | None = None) -> None:
        """Take an artifact out of sight."""
        with self._lease() as space:
            artifacts.delete(space, name, by(origin, self._whole.origin))

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
                space, name, outcome, by(origin, self._whole.origin),
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
            return artifacts.reviews(space, name, version=version, as_of=moment_or_none(as_of))


class Conversations(Part):
    """Lines with a speaker, a session and an order."""

    def add(self, conversation: str, *lines: Line, origin: Origin | None = None) -> list[Message]:
        """Append lines: all of them, or none."""
        with self._lease() as space:
            return conversations.add(space, conversation, lines, by(origin, self._whole.origin))

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
                as_of=moment_or_none(as_of),
            )  # fmt: skip

    def find(
        self,
        conversation: str,
        needle: str,
        *,
        limit: int = 50,
        as_of: datetime | str | None = None,
    ) -> list[Message]:
        """Lines of a conversation that contain a text as it stands, newest first."""
        with self._lease() as space:
            return conversations.find(
                space, conversation, needle, limit=checks.limit(limit), as_of=moment_or_none(as_of)
            )

    def of(self, identity: str, *, as_of: datetime | str | None = None) -> Message:
        """The line that a memory is."""
        with self._lease() as space:
            return conversations.of_memory(space, identity, as_of=moment_or_none(as_of))

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
                space, identity, before=before, after=after, as_of=moment_or_none(as_of)
            )

    def names(self, *, as_of: datetime | str | None = None) -> list[tuple[str, int]]:
        """(conversation, how many lines)."""
        with self._lease() as space:
            return conversations.names(space, as_of=moment_or_none(as_of))


class Events(Part):
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
            events.record(space, kind, subject, payload, by(origin, self._whole.origin))

    def all(
        self,
        *,
        kind: str | None = None,
        subject: str | None = None,
        limit: int = 100,
        after: int = 0,
        newest: bool = False,
        as_of: datetime | str | None = None,
    ) -> list[Event]:
        """Events in their order, after a given one; or the newest first; or those until then."""
        with self._lease() as space:
            return events.listing(
                space, kind=kind, subject=subject, limit=checks.limit(limit), after=after,
                newest=checks.flag(newest, "newest"), as_of=moment_or_none(as_of),
            )  # fmt: skip

    def count(
        self,
        *,
        kind: str | None = None,
        subject: str | None = None,
        as_of: datetime | str | None = None,
    ) -> int:
        """How many events there are, or were at a moment."""
        with self._lease() as space:
            return events.count(space, kind=kind, subject=subject, as_of=moment_or_none(as_of))


class Files(Part):
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
