"""Embeddings from an OpenAI-compatible endpoint, with time limits and validated responses."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from commonplace.embedding.breaker import CircuitBreaker
from commonplace.embedding.provider import QueryCache
from commonplace.errors import EmbeddingUnavailable, InvalidInput

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

Result = TypeVar("Result")

QUERY_SECONDS = 2.0
DOCUMENT_SECONDS = 10.0
CLOSING_SECONDS = 5.0
BATCH_TEXTS = 96
RETRIES = 2
FIRST_PAUSE_SECONDS = 0.1
MOST_DIMENSIONS = 8_192
# A number in JSON takes at most about 25 bytes; the rest of a response is small.
BYTES_PER_NUMBER, BYTES_PER_VECTOR, BYTES_PER_ANSWER = 32, 256, 65_536

# Published vector lengths. For other models, the first response shows the length.
PUBLISHED_DIMENSIONS = {
    "text-embedding-3-small": 1_536,
    "text-embedding-3-large": 3_072,
    "text-embedding-ada-002": 1_536,
    "nomic-embed-text": 768,
    "mxbai-embed-large": 1_024,
    "all-minilm": 384,
    "bge-m3": 1_024,
}

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class FailureMeaning:
    """The meaning of a failed request.

    `sentence_end` is the end of a sentence whose subject is the endpoint.
    """

    sentence_end: str
    hint: str = ""
    may_retry: bool = False
    """Whether the request is sent again."""
    is_outage: bool = True
    """Whether the circuit breaker counts the failure."""


MEANINGS_OF_STATUS = {
    400: FailureMeaning(
        "rejected the request", "Check the model's name and limits.", is_outage=False
    ),
    401: FailureMeaning("rejected the API key", "Check the API key."),
    403: FailureMeaning("rejected the API key", "Check the permissions of the API key."),
    404: FailureMeaning(
        "does not know this path or model", "Check the base URL (often ending in /v1) and model."
    ),
    413: FailureMeaning(
        "reported that the texts are too long", "Send fewer or shorter texts.", is_outage=False
    ),
    422: FailureMeaning(
        "rejected the request", "Check the model's name and limits.", is_outage=False
    ),
    429: FailureMeaning("is rate limiting", "The request will be retried later.", may_retry=True),
}


CLOSED_HERE = FailureMeaning(
    "did not answer before its connections were closed here", is_outage=False
)


def failure_of_status(status: int) -> FailureMeaning:
    """Return the meaning of an HTTP status other than 200: its own entry, or that of its class."""
    if status in MEANINGS_OF_STATUS:
        return MEANINGS_OF_STATUS[status]
    if status >= 500:
        return FailureMeaning("failed", "The request will be retried later.", may_retry=True)
    if 300 <= status < 400:
        return FailureMeaning(
            "redirects to another address", "Use the address of the redirect as the base URL."
        )
    return FailureMeaning("sent an unexpected status", "Check the base URL.")


class _Failure(Exception):
    """The reason of a failed attempt. Its text is not from the server, so it cannot contain the
    key.
    """

    def __init__(self, meaning: FailureMeaning, *, wait: float | None = None) -> None:
        super().__init__(meaning.sentence_end)
        self.meaning = meaning
        self.wait = wait


class OpenAICompatible:
    """Posts texts to `{base_url}/embeddings`.

    By default, a query waits at most two seconds, and a batch of up to 96 documents at most ten,
    including retries, however slowly the server responds. After five consecutive failures, all
    calls fail immediately for thirty seconds. Every failure is an `EmbeddingUnavailable`.
    """

    local = False

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        model: str = "text-embedding-3-small",
        dimensions: int | None = None,
        query_seconds: float = QUERY_SECONDS,
        document_seconds: float = DOCUMENT_SECONDS,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        breaker: CircuitBreaker | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._url, self._shown = _endpoint_urls(base_url)
        self._key = _checked_key(api_key)
        self.id = model
        own = PUBLISHED_DIMENSIONS.get(model.split(":")[0])
        self._dimensions = dimensions or own
        # `dimensions` is sent only to shorten vectors, because many servers refuse it.
        self._shorten = bool(dimensions and own and dimensions != own)
        self._query_seconds = query_seconds
        self._document_seconds = document_seconds
        self._first_pause_seconds = first_pause_seconds
        self.breaker = breaker or CircuitBreaker()
        self._jitter = jitter
        self._queries = QueryCache()
        self._lock = threading.Lock()
        self._open_client: _ClientThread | None = None

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._shown!r}, model={self.id!r})"

    @property
    def dimensions(self) -> int:
        """The length of every vector; if unknown, it is requested from the endpoint once."""
        if self._dimensions is None:
            self.embed(["dimensions"], query=True)
        assert self._dimensions is not None
        return self._dimensions

    @property
    def weights(self) -> str:
        """The model and its vector length, which identify the weights of a remote model."""
        return f"remote:{self.id}:{self.dimensions}"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one L2-normalised row for each text, in order.

        Rows of queries are shared and read-only.
        """
        import numpy as np

        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        if query:
            return self._queries.embed(texts, lambda asked: self._fetch(asked, query=True))
        return self._fetch(texts, query=False)

    def close(self) -> None:
        """Close the connections; the next text opens new ones."""
        with self._lock:
            client_thread, self._open_client = self._open_client, None
        if client_thread is not None:
            client_thread.close()

    def _fetch(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        import numpy as np

        seconds = self._query_seconds if query else self._document_seconds
        starts = range(0, len(texts), BATCH_TEXTS)
        batches = [self._fetch_batch(texts[at : at + BATCH_TEXTS], seconds) for at in starts]
        return np.concatenate(batches)

    def _fetch_batch(self, texts: Sequence[str], seconds: float) -> NDArray[np.float32]:
        wait = self.breaker.seconds_until_probe()
        if wait is not None:
            raise self._unavailable_error(
                FailureMeaning("has failed repeatedly", f"The next attempt is in {wait:.0f} s.")
            )
        try:
            thread = self._client_thread()
            vectors = thread.run(self._ask_with_retries(thread.client, texts, seconds), seconds)
        except _Failure as failure:
            if failure.meaning.is_outage:
                self.breaker.record_failure()
            else:
                self.breaker.record_neither()
            raise self._unavailable_error(failure.meaning) from None
        except BaseException:
            self.breaker.record_neither()
            raise
        self.breaker.record_success()
        return vectors

    def _unavailable_error(self, meaning: FailureMeaning) -> EmbeddingUnavailable:
        return EmbeddingUnavailable(
            f"The embedding endpoint {self._shown} {meaning.sentence_end}.", hint=meaning.hint
        )

    async def _ask_with_retries(
        self, client: httpx.AsyncClient, texts: Sequence[str], seconds: float
    ) -> NDArray[np.float32]:
        """Send the request, with retries, within `seconds`."""
        deadline = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                for attempt in range(RETRIES + 1):
                    try:
                        return await self._ask(client, texts)
                    except _Failure as failure:
                        pause = self._first_pause_seconds * 2**attempt * (0.5 + self._jitter())
                        pause = max(pause, failure.wait or 0.0)
                        late = time.monotonic() + pause >= deadline
                        if attempt == RETRIES or late or not failure.meaning.may_retry:
                            raise
                        await asyncio.sleep(pause)
        except TimeoutError:
            raise _Failure(FailureMeaning(f"did not answer within {seconds:g} s")) from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _ask(self, client: httpx.AsyncClient, texts: Sequence[str]) -> NDArray[np.float32]:
        import httpx

        # Some servers refuse the empty string; a space is equivalent.
        body: dict[str, Any] = {"model": self.id, "input": [text or " " for text in texts]}
        if self._shorten:
            body["dimensions"] = self._dimensions
        most = BYTES_PER_ANSWER + len(texts) * (
            BYTES_PER_VECTOR + BYTES_PER_NUMBER * (self._dimensions or MOST_DIMENSIONS)
        )
        content = json.dumps(body).encode()
        try:
            async with client.stream("POST", self._url, content=content) as response:
                if response.status_code != 200:
                    meaning = failure_of_status(response.status_code)
                    raise _Failure(meaning, wait=_retry_after(response.headers.get("retry-after")))
                answer = bytearray()
                async for chunk in response.aiter_raw():
                    answer += chunk
                    if len(answer) > most:
                        raise _Failure(FailureMeaning(f"sent a response of over {most} bytes"))
        except httpx.TransportError as error:
            says = f"could not be reached ({type(error).__name__})"
            raise _Failure(
                FailureMeaning(says, "Check that the endpoint runs.", may_retry=True)
            ) from None
        try:
            vectors = read_vectors(bytes(answer), len(texts), self._dimensions)
        except ValueError as error:
            raise _Failure(FailureMeaning(f"sent an invalid response: {error}")) from None
        self._dimensions = vectors.shape[1]
        return vectors

    def _client_thread(self) -> _ClientThread:
        with self._lock:
            if self._open_client is None:
                self._open_client = _ClientThread(self._new_client)
            return self._open_client

    def _new_client(self) -> httpx.AsyncClient:
        import httpx

        # Without compression, the limit on bytes also limits memory.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return httpx.AsyncClient(
            headers=headers,
            timeout=None,  # noqa: S113  one deadline over everything, in _ask_until
            follow_redirects=False,
            trust_env=urlsplit(self._url).hostname not in LOOPBACK_HOSTS,
        )


class _ClientThread:
    """An HTTP client with its own event loop in a thread.

    A request that exceeds its time limit is cancelled. A timeout of the socket would restart with
    every byte.
    """

    def __init__(self, new_client: Callable[[], httpx.AsyncClient]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="commonplace-embedding", daemon=True
        )
        self._thread.start()
        self.client = new_client()

    def run(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Run a coroutine that has its own deadline; wait one second longer for it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise _Failure(CLOSED_HERE) from None
        try:
            return future.result(seconds + 1.0)
        except FutureTimeout:
            raise _Failure(FailureMeaning(f"did not answer within {seconds:g} s")) from None
        except CancelledError:
            raise _Failure(CLOSED_HERE) from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel pending requests, and close the connections and the thread."""
        future = asyncio.run_coroutine_threadsafe(self._stop_loop(), self._loop)
        try:
            # Connections that do not close in time end with the event loop.
            with suppress(FutureTimeout):
                future.result(CLOSING_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _stop_loop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.client.aclose()


def read_vectors(answer: bytes, count: int, dimensions: int | None) -> NDArray[np.float32]:
    """Return the L2-normalised vectors of a response, ordered by index.

    Raise ValueError if the response is invalid.
    """
    import numpy as np

    try:
        data = json.loads(answer)["data"]
        rows = [item["embedding"] for item in data]
        indexes = [item.get("index", at) for at, item in enumerate(data)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("the response is not a JSON list of embeddings") from None
    if len(rows) != count:
        raise ValueError(f"{len(rows)} vectors for {count} texts")
    if any(type(index) is not int for index in indexes) or sorted(indexes) != list(range(count)):
        raise ValueError("the indexes do not match the texts")
    try:
        values = np.array(rows)
    except ValueError:
        raise ValueError("the vectors differ in length") from None
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError("the vectors are not lists of numbers of one length")
    if dimensions is not None and values.shape[1] != dimensions:
        raise ValueError(f"vectors of {values.shape[1]} dimensions where {dimensions} are expected")
    ordered = np.empty(values.shape, np.float64)
    ordered[indexes] = values
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        lengths = np.linalg.norm(ordered, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (ordered / lengths).astype(np.float32)
    if not np.isfinite(unit).all():
        raise ValueError("a vector is zero or contains an infinite or undefined number")
    return unit


def _endpoint_urls(base_url: str) -> tuple[str, str]:
    """Return the URL to post to, and the URL for messages.

    The latter has no query, which may contain a secret.
    """
    parts = urlsplit(base_url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            "The embedding endpoint is not an http(s) URL.",
            hint="Use its base URL, such as https://api.openai.com/v1.",
            field="embedding",
        )
    if parts.username or parts.password:
        raise InvalidInput(
            "The URL of the embedding endpoint contains a user name or password.",
            hint="Remove it from the URL, and set the API key instead.",
            field="embedding",
        )
    path = parts.path.rstrip("/").removesuffix("/embeddings")
    url = urlunsplit((parts.scheme, parts.netloc, f"{path}/embeddings", parts.query, ""))
    return url, urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _checked_key(api_key: str | None) -> str | None:
    key = (api_key or "").strip()
    # The key is checked here, because the HTTP library would quote it in an error.
    if not key.isascii() or not key.isprintable():
        raise InvalidInput(
            "The embedding endpoint's API key contains invalid characters.",
            hint="Copy the API key again, without spaces or line breaks.",
            field="api_key",
        )
    return key or None


def _retry_after(header: str | None) -> float | None:
    """Return the delay in seconds of a Retry-After header; None if it is missing or invalid."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
