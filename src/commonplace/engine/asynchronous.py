"""The library for asynchronous programs: the same methods as coroutines, executed in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from commonplace.embedding.provider import Embedder
from commonplace.engine import parts
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.projects import Project
from commonplace.engine.library import Library
from commonplace.engine.model import Origin

P = ParamSpec("P")
R = TypeVar("R")

# The single-thread executor of the unit that the current task has open. A unit of work must stay in
# one thread.
_unit_thread: contextvars.ContextVar[ThreadPoolExecutor | None] = contextvars.ContextVar(
    "commonplace_unit_thread", default=None
)


async def _run(function: Callable[[], R]) -> R:
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    return await loop.run_in_executor(_unit_thread.get(), partial(context.run, function))


async def _enter_in_thread(block: contextlib.AbstractContextManager[None]) -> None:
    """Enter a context manager in a thread.

    If the task is cancelled meanwhile, exit the context manager again, so that no lock stays held.
    """
    entering = asyncio.ensure_future(_run(block.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError as error:
        await asyncio.wait([entering])
        if entering.exception() is None:
            await _run(partial(block.__exit__, type(error), error, error.__traceback__))
        raise


def _as_coroutine(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """Return a coroutine method that runs a method of the library in a thread."""

    @wraps(method)
    async def call(part: AsyncPart, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _run(partial(method, part.blocking, *args, **kwargs))

    return call


class AsyncPart:
    """One part of the library, such as the links, with asynchronous methods."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        """The synchronous object whose methods run in threads."""


class AsyncLinks(AsyncPart):
    """Relations between memories."""

    add = _as_coroutine(parts.Links.add)
    get = _as_coroutine(parts.Links.get)
    revise = _as_coroutine(parts.Links.revise)
    remove = _as_coroutine(parts.Links.remove)
    of = _as_coroutine(parts.Links.of)
    around = _as_coroutine(parts.Links.around)
    neighbours = _as_coroutine(parts.Links.neighbours)
    traverse = _as_coroutine(parts.Links.traverse)
    components = _as_coroutine(parts.Links.components)


class AsyncFacts(AsyncPart):
    """Facts: subject, predicate and object, with the period in which they are true."""

    add = _as_coroutine(parts.Facts.add)
    close = _as_coroutine(parts.Facts.close)
    retract = _as_coroutine(parts.Facts.retract)
    query = _as_coroutine(parts.Facts.query)
    timeline = _as_coroutine(parts.Facts.timeline)
    totals = _as_coroutine(parts.Facts.totals)


class AsyncClusters(AsyncPart):
    """Named groups of memories."""

    create = _as_coroutine(parts.Clusters.create)
    get = _as_coroutine(parts.Clusters.get)
    all = _as_coroutine(parts.Clusters.all)
    revise = _as_coroutine(parts.Clusters.revise)
    delete = _as_coroutine(parts.Clusters.delete)
    add = _as_coroutine(parts.Clusters.add)
    remove = _as_coroutine(parts.Clusters.remove)
    move = _as_coroutine(parts.Clusters.move)
    refresh = _as_coroutine(parts.Clusters.refresh)
    members = _as_coroutine(parts.Clusters.members)
    sizes = _as_coroutine(parts.Clusters.sizes)
    homes = _as_coroutine(parts.Clusters.homes)
    of = _as_coroutine(parts.Clusters.of)


class AsyncArtifacts(AsyncPart):
    """Documents with versions and reviews."""

    create = _as_coroutine(parts.Artifacts.create)
    update = _as_coroutine(parts.Artifacts.update)
    get = _as_coroutine(parts.Artifacts.get)
    read = _as_coroutine(parts.Artifacts.read)
    versions = _as_coroutine(parts.Artifacts.versions)
    all = _as_coroutine(parts.Artifacts.all)
    delete = _as_coroutine(parts.Artifacts.delete)
    review = _as_coroutine(parts.Artifacts.review)
    reviews = _as_coroutine(parts.Artifacts.reviews)


class AsyncConversations(AsyncPart):
    """Messages with a speaker, a session and an order."""

    add = _as_coroutine(parts.Conversations.add)
    history = _as_coroutine(parts.Conversations.history)
    find = _as_coroutine(parts.Conversations.find)
    of = _as_coroutine(parts.Conversations.of)
    window = _as_coroutine(parts.Conversations.window)
    names = _as_coroutine(parts.Conversations.names)


class AsyncEvents(AsyncPart):
    """An append-only log."""

    record = _as_coroutine(parts.Events.record)
    all = _as_coroutine(parts.Events.all)
    count = _as_coroutine(parts.Events.count)


class AsyncHistory(AsyncPart):
    """Operations, and former versions of memories."""

    operations = _as_coroutine(parts.History.operations)
    versions = _as_coroutine(parts.History.versions)


class AsyncCommonplace(AsyncPart):
    """One space of a data directory, for asynchronous programs.

    It has every method of `Commonplace` and of its parts, with the same parameters, as a coroutine.
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
        self._wrap_parts(
            Commonplace(
                path, space=space, embedding=embedding, origin=origin, library=library,
                project=project, allow_secrets=allow_secrets, embed=embed,
            )
        )  # fmt: skip

    def _wrap_parts(self, blocking: Commonplace) -> None:
        super().__init__(blocking)
        self.links = AsyncLinks(blocking.links)
        self.facts = AsyncFacts(blocking.facts)
        self.clusters = AsyncClusters(blocking.clusters)
        self.artifacts = AsyncArtifacts(blocking.artifacts)
        self.conversations = AsyncConversations(blocking.conversations)
        self.events = AsyncEvents(blocking.events)
        self.history = AsyncHistory(blocking.history)

    def _new_wrapper(self, blocking: Commonplace) -> AsyncCommonplace:
        other = AsyncCommonplace.__new__(AsyncCommonplace)
        other._wrap_parts(blocking)
        return other

    def at(self, space: str, origin: Origin | None = None) -> AsyncCommonplace:
        """Return another space of the same data directory."""
        return self._new_wrapper(self.blocking.at(space, origin))

    def within(self, project: Project | None) -> AsyncCommonplace:
        """Return a view of this space for a project.

        The view labels new memories with the project, and finds only its memories and global ones.
        """
        return self._new_wrapper(self.blocking.within(project))

    remember = _as_coroutine(Commonplace.remember)
    remember_many = _as_coroutine(Commonplace.remember_many)
    get = _as_coroutine(Commonplace.get)
    usage = _as_coroutine(Commonplace.usage)
    revise = _as_coroutine(Commonplace.revise)
    promote = _as_coroutine(Commonplace.promote)
    supersede = _as_coroutine(Commonplace.supersede)
    forget = _as_coroutine(Commonplace.forget)
    restore = _as_coroutine(Commonplace.restore)
    purge = _as_coroutine(Commonplace.purge)
    undo = _as_coroutine(Commonplace.undo)
    recall = _as_coroutine(Commonplace.recall)
    recall_sessions = _as_coroutine(Commonplace.recall_sessions)
    recall_for_prompt = _as_coroutine(Commonplace.recall_for_prompt)
    may_replace = _as_coroutine(Commonplace.may_replace)
    browse = _as_coroutine(Commonplace.browse)
    find_text = _as_coroutine(Commonplace.find_text)
    tags = _as_coroutine(Commonplace.tags)
    backlog = _as_coroutine(Commonplace.backlog)

    @contextlib.asynccontextmanager
    async def unit(self, name: str, origin: Origin | None = None) -> AsyncIterator[None]:
        """Make all writes of this task in the block one operation: all are stored, or none."""
        opened = _unit_thread.get()
        thread = opened or ThreadPoolExecutor(1, thread_name_prefix="commonplace-unit")
        marked = _unit_thread.set(thread)
        block = self.blocking.unit(name, origin)
        try:
            await _enter_in_thread(block)
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
