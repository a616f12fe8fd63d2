"""Background embedding: compute vectors that are missing or of an outdated model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonplace.engine.content import memories
from commonplace.errors import CommonplaceError, EmbeddingUnavailable
from commonplace.storage import derived, outbox
from commonplace.storage import memories as stored
from commonplace.storage.database import now
from commonplace.storage.derived import quantise
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES
from commonplace.text.passages import split_passages

if TYPE_CHECKING:
    from commonplace.engine.library import OpenSpace

BATCH = 32
# batch size for a local model: about a second of work before the next check whether to stop
LOCAL_BATCH = 8
SEARCH_SECONDS = 30  # seconds between two searches for memories without a request to embed them
MOST_REQUESTS = 10_000  # how many memories are put into the outbox at once
CLAIM_SECONDS = 120
RECHECK_SECONDS = 0.02
RETRY_SECONDS = (1, 5, 30, 120, 600)


def backlog(space: OpenSpace) -> tuple[int, int]:
    """Return how many memories wait for vectors, and how many seconds the oldest has waited."""
    with space.store.read() as connection:
        count, oldest = outbox.size(connection, space.name)
    return count, 0 if oldest is None else max(0, (now() - oldest) // 1_000_000)


def waiting_for_vectors(space: OpenSpace, identities: Sequence[str]) -> dict[str, str]:
    """Return the memories among these that wait for vectors, each with its last error.

    Without a model, these are all of them.
    """
    found: dict[str, str] = {}
    with space.store.read() as connection:
        for identity in identities:
            num = memories.need_row(connection, space.name, identity)["num"]
            error = outbox.error_of(connection, space.name, num)
            if error is not None or space.embedder is None:
                found[identity] = error or ""
    return found


def write_and_embed(space: OpenSpace, stop: threading.Event) -> bool:
    """Write the read counts of a space and embed its outbox until nothing is due or `stop` is set.

    Return whether rows remain that are due later.
    """
    space.write_reads()
    remain = False
    while space.has_work and not stop.is_set():
        space.has_work = False  # Reset the flag before looking for work: a write may set it again.
        if embed_some(space, stop.is_set):
            space.has_work = True
        elif has_expected_vectors(space):
            space.has_work = True
            stop.wait(RECHECK_SECONDS)
        elif find_work(space):
            space.has_work = remain = True
            break
    space.update_index()
    return remain


def log_fault(space: str) -> None:
    """Log an unexpected error of background work."""
    import logging  # imported here because it is rarely needed

    log = logging.getLogger(__name__)
    log.exception("background work failed and will be retried", extra={"space": space})


def find_work(space: OpenSpace) -> bool:
    """Put memories whose vectors are missing or of another model into the outbox.

    Return whether the outbox has rows.
    """
    if space.embedder is None or space.store.read_only:
        return False
    if time.monotonic() < space.searched_at + SEARCH_SECONDS:
        return has_work(space)
    with space.store.read() as connection:
        if space.model is None:
            return has_work(space)  # The model is unknown until the provider answers.
        due = outbox.memories_without_request(
            connection, space.name, space.current_model(connection), MOST_REQUESTS
        )
    if len(due) < MOST_REQUESTS:
        space.searched_at = time.monotonic()
    if due:
        with space.store.maintain() as connection:
            for num in due:
                outbox.add(connection, space.name, num, outbox.SECOND)
    return has_work(space)


def has_work(space: OpenSpace) -> bool:
    """Return whether the outbox has rows."""
    with space.store.read() as connection:
        return not outbox.is_empty(connection, space.name)


def embed_some(space: OpenSpace, stopping: Callable[[], bool] = lambda: False) -> int:
    """Embed one batch from the outbox; return how many memories were finished.

    When `stopping` returns true, the rest of the batch is released for other processes.
    """
    claimed = _own_recent_requests(space) or _claim(space)
    if not claimed:
        return 0
    try:
        return _embed(space, claimed, stopping)
    except EmbeddingUnavailable as error:
        if len(claimed) == 1:
            _postpone(space, claimed, error)
            raise
    return _embed_singly(space, claimed, stopping)


def has_expected_vectors(space: OpenSpace) -> bool:
    """Return whether vectors are expected for memories whose unit of work may still be open.

    Vectors that another process has written are no longer expected.
    """
    expected = space.expected_vectors()
    if expected:
        with space.store.read() as connection:
            done = [
                num
                for num in expected
                if stored.last_operation(connection, space.name, num) is not None
                and outbox.error_of(connection, space.name, num) is None
            ]
        space.mark_vectors_done(done)
    return bool(space.expected_vectors())


def _embed_singly(space: OpenSpace, nums: list[int], stopping: Callable[[], bool]) -> int:
    """Embed the texts of a failed batch one by one, so that one text does not block the others."""
    finished = failed = 0
    for i, num in enumerate(nums):
        if stopping():
            _release(space, nums[i:])
            break
        try:
            finished += _embed(space, [num], stopping)
        except EmbeddingUnavailable as error:
            failed += 1
            if failed > finished + 1:  # If most texts fail, the provider is the problem.
                _postpone(space, nums[i:], error)
                raise
            _postpone(space, [num], error)
    return finished


def _own_recent_requests(space: OpenSpace) -> list[int]:
    """Return outbox rows of this process's recent calls, for which searches wait.

    These rows are not claimed: a claim is a commit, which would wake other processes. A memory that
    is embedded twice gets the same vectors.
    """
    expected = sorted(space.expected_vectors())[:BATCH]
    if not expected:
        return []
    with space.store.read() as connection:
        return [n for n in expected if outbox.error_of(connection, space.name, n) is not None]


def _claim(space: OpenSpace) -> list[int]:
    """Claim due rows of the outbox for CLAIM_SECONDS."""
    if not (space.expected_vectors() or has_work(space)):
        return []  # Calls need not wait for a transaction that would write nothing.
    # The commit need not be durable: after a power cut, nobody is left who has claimed a row.
    with space.store.maintain(durable=False) as connection:
        at = now()  # Read the time under the lock: a later claim must not have an earlier time.
        return outbox.claim(
            connection, space.name, at,
            until=at + CLAIM_SECONDS * 1_000_000,
            latest_due=at + RETRY_SECONDS[-1] * 1_000_000,
            most=BATCH,
        )  # fmt: skip


def _release(space: OpenSpace, nums: list[int]) -> None:
    with space.store.maintain() as connection:
        outbox.release(connection, space.name, nums)


def _embed(space: OpenSpace, nums: list[int], stopping: Callable[[], bool]) -> int:
    embedder = space.embedder
    assert embedder is not None
    with space.store.read() as connection:
        rows = MEMORIES.by_nums(connection, space.name, nums)
        speakers = {num: memories.speaker_of(connection, space.name, num) for num in rows}
    spans = {num: split_passages(row["text"]) for num, row in rows.items()}
    texts = [
        memories.embedding_prefix(row["title"], speakers[num]) + row["text"][span.start : span.stop]
        for num, row in rows.items()
        for span in spans[num]
    ]
    vectors: list[bytes] = []
    step = LOCAL_BATCH if embedder.local else BATCH
    for first in range(0, len(texts), step):
        if stopping():
            _release(space, nums)
            return 0
        vectors += quantise(embedder.embed(texts[first : first + step]))
    # The commit need not be durable: if it is lost, the rows are still in the outbox.
    with space.store.maintain(durable=False) as connection:
        model = derived.model_number(connection, space.name, embedder)
        change = space.store.next_change()
        for num, parts in spans.items():
            own, vectors = vectors[: len(parts)], vectors[len(parts) :]
            current = MEMORIES.first(connection, space.name, num=num)
            if current is None or current["seq"] != rows[num]["seq"]:
                # The memory was changed meanwhile, and the change has put it into the outbox again.
                continue
            passages = [
                derived.Passage(span, model, vector)
                for span, vector in zip(parts, own, strict=True)
            ]
            derived.replace_passages(connection, space.name, num, passages, change)
        _finish(connection, space.name, nums, {num: rows[num]["seq"] for num in rows})
    space.mark_vectors_done(nums)
    return len(nums)


def _finish(connection: Rows, space: str, nums: list[int], seen: dict[int, int]) -> None:
    """Remove finished memories from the outbox, except those that changed meanwhile."""
    for num in nums:
        version = stored.last_operation(connection, space, num)
        if version is not None and version != seen.get(num):
            outbox.release(connection, space, [num])
        else:
            outbox.remove(connection, space, num)


def _postpone(space: OpenSpace, nums: list[int], error: CommonplaceError) -> None:
    at = now()
    with space.store.maintain() as connection:
        for num in nums:
            attempts = outbox.attempts(connection, space.name, num)
            wait = RETRY_SECONDS[min(attempts, len(RETRY_SECONDS) - 1)]
            due = at + wait * 1_000_000
            outbox.postpone(connection, space.name, num, due, error.message[:500])
    space.mark_vectors_done(nums)


def embed_all(
    space: OpenSpace,
    progress: Callable[[int, int], None] | None = None,
    timeout: float | None = None,
) -> int:
    """Embed until the outbox is empty; return how many memories this call has embedded.

    After `timeout` seconds, do not wait for rows that are postponed or that others have claimed.
    """
    finished, until = 0, None if timeout is None else time.monotonic() + timeout
    space.searched_at = float("-inf")
    find_work(space)
    total = backlog(space)[0]
    while has_work(space):
        done = embed_some(space)
        finished += done
        if progress is not None:
            progress(finished, max(total, finished))
        if not done:
            if until is not None and time.monotonic() >= until:
                break
            time.sleep(0.05)  # The other rows are postponed, or another process has claimed them.
        find_work(space)
    return finished
