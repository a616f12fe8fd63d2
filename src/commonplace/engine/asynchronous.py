"""The library for asynchronous programs: the same methods, awaited, carried out in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from commonplace.embedding.provider import Embedder
from commonplace.engine import parts
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.projects import Project
from commonplace.engine.library import Library
from commonplace.engine.model import Origin

P = ParamSpec("P")
R = TypeVar("R")

# The thread of the unit that the current task has opened: a unit belongs to one thread.
_unit_thread: contextvars.ContextVar[ThreadPoolExecutor | None] = contextvars.ContextVar(
    "commonplace_unit_thread", default=None
)


async def _run(function: Callable[[], R]) -> R:
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    return await loop.run_in_executor(_unit_thread.get(), partial(context.run, function))


async def _entered(block: contextlib.AbstractContextManager[None]) -> None:
    """Enter a block; if the task is cancelled meanwhile, leave it again, so that no lock stays
    held.
    """
    entering = asyncio.ensure_future(_run(block.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError as error:
        await asyncio.wait([entering])
        if entering.exception() is None:
            await _run(partial(block.__exit__, type(error), error, error.__traceback__))
        raise


def _awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """Make an asynchronous method of one of the library."""

    @wraps(method)
    async def call(part: AsyncPart, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _run(partial(method, part.blocking, *args, **kwargs))

    return call


class AsyncPart:
    """A part of the library with its methods awaited."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        """The part that does the work, for use in threads."""


class AsyncLinks(AsyncPart):
    """Relations between memories."""

    add = _awaited(parts.Links.add)
    get = _awaited(parts.Links.get)
    revise = _awaited(parts.Links.revise)
    remove = _awaited(parts.Links.remove)
    of = _awaited(parts.Links.of)
    around = _awaited(parts.Links.around)
    neighbours = _awaited(parts.Links.neighbours)
    traverse = _awaited(parts.Links.traverse)
    components = _awaited(parts.Links.components)


class AsyncFacts(AsyncPart):
    """Subject, predicate, object, with the period in which they are true."""

    add = _awaited(parts.Facts.add)
    close = _awaited(parts.Facts.close)
    retract = _awaited(parts.Facts.retract)
    query = _awaited(parts.Facts.query)
    timeline = _awaited(parts.Facts.timeline)
    totals = _awaited(parts.Facts.totals)


class AsyncClusters(AsyncPart):
    """Named groups of memories."""

    create = _awaited(parts.Clusters.create)
    get = _awaited(parts.Clusters.get)
    all = _awaited(parts.Clusters.all)
    revise = _awaited(parts.Clusters.revise)
    delete = _awaited(parts.Clusters.delete)
    add = _awaited(parts.Clusters.add)
    remove = _awaited(parts.Clusters.remove)
    move = _awaited(parts.Clusters.move)
    refresh = _awaited(parts.Clusters.refresh)
    members = _awaited(parts.Clusters.members)
    sizes = _awaited(parts.Clusters.sizes)
    homes = _awaited(parts.Clusters.homes)
    of = _awaited(parts.Clusters.of)


class AsyncArtifacts(AsyncPart):
    """Documents with versions and reviews."""

    create = _awaited(parts.Artifacts.create)
    update = _awaited(parts.Artifacts.update)
    get = _awaited(parts.Artifacts.get)
    read = _awaited(parts.Artifacts.read)
    versions = _awaited(parts.Artifacts.versions)
    all = _awaited(parts.Artifacts.all)
    delete = _awaited(parts.Artifacts.delete)
    review = _awaited(parts.Artifacts.review)
    reviews = _awaited(parts.Artifacts.reviews)


class AsyncConversations(AsyncPart):
    """Messages with a speaker, a session and an order."""

    add = _awaited(parts.Conversations.add)
    history = _awaited(parts.Conversations.history)
    find = _awaited(parts.Conversations.find)
    of = _awaited(parts.Conversations.of)
    window = _awaited(parts.Conversations.window)
    names = _awaited(parts.Conversations.names)


class AsyncEvents(AsyncPart):
    """An append-only log."""

    record = _awaited(parts.Events.record)
    all = _awaited(parts.Events.all)
    count = _awaited(parts.Events.count)


class AsyncHistory(AsyncPart):
    """Operations and former versions."""

    operations = _awaited(parts.History.operations)
    versions = _awaited(parts.History.versions)


class AsyncCommonplace(AsyncPart):
    """One space of a data directory, for asynchronous programs.

    Every method of `Commonplace` and of its parts is here, with the same parameters; await it.
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
        self._use(
            Commonplace(path, space=space, embedding=embedding, origin=origin, library=library)
        )

    def _use(self, blocking: Commonplace) -> None:
        super().__init__(blocking)
        self.links = AsyncLinks(blocking.links)
        self.facts = AsyncFacts(blocking.facts)
        self.clusters = AsyncClusters(blocking.clusters)
        self.artifacts = AsyncArtifacts(blocking.artifacts)
        self.conversations = AsyncConversations(blocking.conversations)
        self.events = AsyncEvents(blocking.events)
        self.history = AsyncHistory(blocking.history)

    def _with(self, blocking: Commonplace) -> AsyncCommonplace:
        other = AsyncCommonplace.__new__(AsyncCommonplace)
        other._use(blocking)
        return other

    def at(self, space: str, origin: Origin | None = None) -> AsyncCommonplace:
        """Return another space of the same data directory."""
        return self._with(self.blocking.at(space, origin))

    def within(self, project: Project | None) -> AsyncCommonplace:
        """Return this memory for a project: what it stores and finds belongs to it."""
        return self._with(self.blocking.within(project))

    remember = _awaited(Commonplace.remember)
    remember_many = _awaited(Commonplace.remember_many)
    get = _awaited(Commonplace.get)
    usage = _awaited(Commonplace.usage)
    revise = _awaited(Commonplace.revise)
    promote = _awaited(Commonplace.promote)
    supersede = _awaited(Commonplace.supersede)
    forget = _awaited(Commonplace.forget)
    restore = _awaited(Commonplace.restore)
    purge = _awaited(Commonplace.purge)
    undo = _awaited(Commonplace.undo)
    recall = _awaited(Commonplace.recall)
    recall_sessions = _awaited(Commonplace.recall_sessions)
    recall_for_prompt = _awaited(Commonplace.recall_for_prompt)
    may_replace = _awaited(Commonplace.may_replace)
    browse = _awaited(Commonplace.browse)
    find_text = _awaited(Commonplace.find_text)
    tags = _awaited(Commonplace.tags)
    backlog = _awaited(Commonplace.backlog)

    @contextlib.asynccontextmanager
    async def unit(self, name: str, origin: Origin | None = None) -> AsyncIterator[None]:
        """Make everything that this task writes in the block one operation."""
        opened = _unit_thread.get()
        thread = opened or ThreadPoolExecutor(1, thread_name_prefix="commonplace-unit")
        marked = _unit_thread.set(thread)
        block = self.blocking.unit(name, origin)
        try:
            await _entered(block)
            try:
                yield
            except BaseException as error:
                left = partial(block.__exit__, type(error), error, error.__traceback__)
                if not await asyncio.shield(_run(left)):
                    raise
            else:
                await asyncio.shield(_run(partial(block.__exit__, None, None, None)))
        finally:
            _unit_thread.reset(marked)
            if opened is None:
                thread.shutdown(wait=False)

    async def close(self) -> None:
        """Write pending read counts and close the files, unless the library is shared."""
        await _run(self.blocking.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
