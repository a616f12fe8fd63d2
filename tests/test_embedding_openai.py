from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx  # noqa: F401  not within a measured time
import numpy as np
import pytest

import fake_embeddings_server as fake
from commonplace.embedding.breaker import CircuitBreaker
from commonplace.embedding.openai import OpenAICompatible, read_vectors
from commonplace.errors import EmbeddingUnavailable, InvalidInput
from fake_embeddings_server import FakeEmbeddings, vector_of

KEY = "sk-very-secret-0123456789"
PATIENT = 20.0


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """An endpoint, a provider that asks it, and the clock of its breaker."""

    def __init__(
        self, server: FakeEmbeddings, *, query_seconds: float, document_seconds: float
    ) -> None:
        self.server = server
        self.clock = Clock()
        self.provider = OpenAICompatible(
            server.base_url,
            api_key=KEY,
            model="fake",
            dimensions=8,
            query_seconds=query_seconds,
            document_seconds=document_seconds,
            first_pause_seconds=0.002,
            breaker=CircuitBreaker(clock=self.clock),
        )

    def close(self) -> None:
        self.server.closing.set()
        self.provider.close()

    def failure(self, texts: list[str] | None = None, *, query: bool = False) -> str:
        with pytest.raises(EmbeddingUnavailable) as caught:
            self.provider.embed(texts or ["one", "two"], query=query)
        assert KEY not in str(caught.value)
        assert KEY not in repr(caught.value.as_dict())
        return str(caught.value)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Patient, so that a busy machine changes no outcome."""
    with FakeEmbeddings() as server:
        bench = Bench(server, query_seconds=PATIENT, document_seconds=PATIENT)
        yield bench
        bench.close()


@pytest.fixture
def hasty() -> Iterator[Bench]:
    """Quick to give up."""
    with FakeEmbeddings() as server:
        hasty = Bench(server, query_seconds=0.25, document_seconds=0.3)
        yield hasty
        hasty.close()


def unit(text: str, dimensions: int = 8) -> np.ndarray:
    vector = np.array(vector_of(text, dimensions))
    return vector / np.linalg.norm(vector)


def test_vectors_come_back_normalised_and_in_order(bench: Bench) -> None:
    vectors = bench.provider.embed(["one", "two", "three"])
    assert vectors.dtype == np.float32
    expected = np.stack([unit("one"), unit("two"), unit("three")])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    (asked,) = bench.server.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "fake", "input": ["one", "two", "three"]}


@pytest.mark.parametrize("behaviour", [fake.shuffled, fake.without_index])
def test_order_follows_the_index_or_else_the_list(bench: Bench, behaviour: fake.Behaviour) -> None:
    bench.server.then(behaviour)
    vectors = bench.provider.embed(["one", "two"])
    np.testing.assert_allclose(vectors, np.stack([unit("one"), unit("two")]), atol=1e-6)


def test_many_texts_go_in_batches_of_at_most_96(bench: Bench) -> None:
    texts = [f"text {at}" for at in range(200)]
    vectors = bench.provider.embed(texts)
    assert [len(asked.body["input"]) for asked in bench.server.asked] == [96, 96, 8]
    np.testing.assert_allclose(vectors[150], unit("text 150"), atol=1e-6)


def test_nothing_to_embed_asks_nobody(bench: Bench) -> None:
    assert bench.provider.embed([]).shape == (0, 8)
    assert bench.server.asked == []


def test_empty_text_is_sent_as_a_space(bench: Bench) -> None:
    bench.provider.embed([""])
    assert bench.server.asked[0].body["input"] == [" "]


def test_a_repeated_query_is_not_asked_again_and_is_read_only(bench: Bench) -> None:
    first = bench.provider.embed(["who"], query=True)
    again = bench.provider.embed(["who"], query=True)
    assert first is again
    assert len(bench.server.asked) == 1
    with pytest.raises(ValueError, match="read-only"):
        again[0, 0] = 1.0


def test_connections_are_kept_between_calls(bench: Bench) -> None:
    for at in range(5):
        bench.provider.embed([f"text {at}"])
    assert len({asked.client_port for asked in bench.server.asked}) == 1


@pytest.mark.parametrize("behaviour", [fake.hung, fake.trickling_headers, fake.trickling_body])
@pytest.mark.parametrize(("query", "limit"), [(True, 0.25), (False, 0.3)])
def test_time_is_bounded_however_slowly_the_answer_comes(
    hasty: Bench, behaviour: fake.Behaviour, query: bool, limit: float
) -> None:
    hasty.server.always = behaviour
    started = time.perf_counter()
    assert f"did not answer within {limit:g} s" in hasty.failure(query=query)
    # Each of these behaviours would take four seconds or more.
    assert limit * 0.9 < time.perf_counter() - started < limit + 2


def test_a_slow_answer_within_the_time_is_taken(bench: Bench) -> None:
    bench.server.then(fake.slow(0.05))
    assert bench.provider.embed(["one"]).shape == (1, 8)


@pytest.mark.parametrize(
    "behaviour",
    [
        fake.status(500),
        fake.status(503),
        fake.status(429),
        fake.status(429, Retry_After="0.01"),
        fake.reset,
    ],
)
def test_passing_trouble_is_retried_twice(bench: Bench, behaviour: fake.Behaviour) -> None:
    bench.server.then(behaviour, behaviour)
    assert bench.provider.embed(["one"]).shape == (1, 8)
    assert len(bench.server.asked) == 3


def test_a_third_failure_is_the_last(bench: Bench) -> None:
    bench.server.always = fake.status(500)
    assert "failed" in bench.failure()
    assert len(bench.server.asked) == 3


@pytest.mark.parametrize(
    ("code", "told"),
    [(400, "model"), (401, "API key"), (403, "API key"), (404, "base URL"), (422, "model")],
)
def test_refusals_are_not_retried_and_say_what_to_check(bench: Bench, code: int, told: str) -> None:
    bench.server.always = fake.status(code)
    assert told in bench.failure()
    assert len(bench.server.asked) == 1


def test_a_redirect_is_not_followed_with_the_key(bench: Bench) -> None:
    bench.server.always = fake.status(302, Location="http://127.0.0.1:9/elsewhere")
    assert "redirects" in bench.failure()
    assert len(bench.server.asked) == 1


def test_retry_after_is_waited_for_within_the_time(bench: Bench) -> None:
    bench.server.then(fake.status(429, Retry_After="0.1"))
    started = time.perf_counter()
    bench.provider.embed(["one"])
    assert time.perf_counter() - started >= 0.1


@pytest.mark.parametrize("after", ["600", "Fri, 31 Dec 2199 23:59:59 GMT", "inf"])
def test_retry_after_beyond_the_time_fails_at_once(bench: Bench, after: str) -> None:
    bench.server.always = fake.status(429, Retry_After=after)
    started = time.perf_counter()
    assert "rate limiting" in bench.failure()
    assert time.perf_counter() - started < PATIENT / 2
    assert len(bench.server.asked) == 1


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        (fake.body(b"<html>hello</html>"), "not a JSON list"),
        (fake.body(b"\xff\xfe\x00"), "not a JSON list"),
        (fake.body(b"[]"), "not a JSON list"),
        (fake.body(b'{"data": [1, 2]}'), "not a JSON list"),
        (fake.body(b'{"data": {"embedding": 1}}'), "not a JSON list"),
        (fake.body(b"[" * 50_000), "not a JSON list"),
        (fake.too_few, "1 vectors for 2 texts"),
        (fake.same_index, "indexes"),
        (fake.wrong_dimensions, "7 dimensions where 8 are expected"),
        (fake.ragged, "differ in length"),
        (fake.one_number_is(float("nan")), "undefined"),
        (fake.one_number_is(float("inf")), "infinite"),
        (fake.one_number_is("0.5"), "not lists of numbers"),
        (fake.one_number_is(None), "not lists of numbers"),
        (fake.one_number_is(10**400), "not lists of numbers"),
        (fake.filled_with(0.0), "zero"),
        (fake.enormous, "a response of over"),
    ],
)
def test_an_unusable_answer_is_refused_and_not_asked_again(
    bench: Bench, behaviour: fake.Behaviour, told: str
) -> None:
    bench.server.always = behaviour
    assert told in bench.failure()
    assert len(bench.server.asked) == 1


def test_nobody_listening_is_an_error_that_says_so() -> None:
    with FakeEmbeddings() as server:
        url = server.base_url
    provider = OpenAICompatible(url, dimensions=8, first_pause_seconds=0.001)
    with pytest.raises(EmbeddingUnavailable, match="could not be reached"):
        provider.embed(["one"])
    provider.close()


def test_after_five_failures_nothing_is_asked_for_thirty_seconds(bench: Bench) -> None:
    bench.server.always = fake.status(401)
    for _ in range(5):
        bench.failure()
    bench.server.always = fake.good
    assert "failed repeatedly" in bench.failure()
    bench.clock.now += 29.9
    bench.failure()
    assert len(bench.server.asked) == 5
    bench.clock.now += 0.2
    assert bench.provider.embed(["one"]).shape == (1, 8)
    assert not bench.provider.breaker.is_open
    assert bench.provider.embed(["two"]).shape == (1, 8)


def test_a_failed_probe_closes_the_way_again(bench: Bench) -> None:
    bench.server.always = fake.status(401)
    for _ in range(5):
        bench.failure()
    bench.clock.now += 31
    bench.failure()
    assert "failed repeatedly" in bench.failure()
    assert len(bench.server.asked) == 6


def test_success_between_failures_keeps_the_way_open(bench: Bench) -> None:
    for _ in range(3):
        bench.server.then(*[fake.status(401)] * 4)
        for _ in range(4):
            bench.failure()
        bench.provider.embed(["one"])
    assert not bench.provider.breaker.is_open


def test_a_refused_text_says_nothing_about_the_endpoint(bench: Bench) -> None:
    bench.server.always = fake.status(400)
    for _ in range(8):
        bench.failure()
    assert not bench.provider.breaker.is_open


def test_only_one_call_probes_at_a_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failures_to_open=1, clock=clock)
    breaker.record_failure()
    clock.now += 31
    assert breaker.seconds_until_probe() is None
    assert breaker.seconds_until_probe() == 0.0
    breaker.record_neither()
    assert breaker.seconds_until_probe() is None
    breaker.record_success()
    assert breaker.seconds_until_probe() is None


def test_calls_from_several_threads_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.server.always = fake.together(6)
    results: list[tuple[int, ...]] = []
    threads = [
        threading.Thread(target=lambda at=at: results.append(bench.provider.embed([at]).shape))
        for at in "abcdef"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(1, 8)] * 6


def test_a_closed_provider_opens_again(bench: Bench) -> None:
    bench.provider.embed(["one"])
    bench.provider.close()
    assert bench.provider.embed(["two"]).shape == (1, 8)


def test_closing_ends_a_call_that_is_waiting(bench: Bench) -> None:
    bench.server.always = fake.hung

    def close_once_asked() -> None:
        while not bench.server.asked:
            time.sleep(0.005)
        bench.provider.close()

    closer = threading.Thread(target=close_once_asked)
    closer.start()
    assert "were closed here" in bench.failure()
    closer.join()


def test_the_key_is_nowhere_to_be_read(bench: Bench) -> None:
    assert KEY not in repr(bench.provider)
    with pytest.raises(InvalidInput) as caught:
        OpenAICompatible("http://127.0.0.1:9", api_key=f"{KEY}\n{KEY}")
    assert KEY not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        OpenAICompatible(f"http://user:{KEY}@127.0.0.1:9")
    assert KEY not in str(caught.value)
    assert KEY not in repr(OpenAICompatible(f"http://127.0.0.1:9/v1?key={KEY}"))


def test_an_unknown_model_tells_its_dimensions_once(bench: Bench) -> None:
    provider = OpenAICompatible(bench.server.base_url, model="mystery")
    assert provider.dimensions == 8
    assert provider.weights == "remote:mystery:8"
    assert "dimensions" not in bench.server.asked[0].body
    assert len(bench.server.asked) == 1
    provider.close()


def test_shorter_vectors_are_asked_for_only_where_they_are_not_the_models_own() -> None:
    with FakeEmbeddings(dimensions=256) as server:
        provider = OpenAICompatible(server.base_url, dimensions=256)
        assert provider.embed(["one"]).shape == (1, 256)
        assert server.asked[0].body["dimensions"] == 256
        assert provider.weights == "remote:text-embedding-3-small:256"
        assert not provider.local
        provider.close()
    own = OpenAICompatible("http://127.0.0.1:9")
    assert (own.id, own.dimensions) == ("text-embedding-3-small", 1536)
    assert own.weights == "remote:text-embedding-3-small:1536"


def test_reading_accepts_whole_numbers_and_huge_ones() -> None:
    answer = b'{"data": [{"index": 0, "embedding": [3, 4]}]}'
    np.testing.assert_allclose(read_vectors(answer, 1, 2), [[0.6, 0.8]])
    answer = b'{"data": [{"index": 0, "embedding": [3e150, 4e150]}]}'
    np.testing.assert_allclose(read_vectors(answer, 1, None), [[0.6, 0.8]], rtol=1e-6)
