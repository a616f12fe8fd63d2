"""Reaching a language model: Anthropic, or any OpenAI-compatible endpoint.

This is the one way to a model, for a question (`ask`) and for agents (`agents.py`) alike: how it is
connected to, how long and how often it is tried, when one that keeps failing is left alone, and
what was spent. A question's answer is checked against the shape that was asked for; what does not
fit is no answer. The libraries that speak to models are imported when the first one is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from commonplace import DISTRIBUTION
from commonplace.embedding.breaker import CircuitBreaker
from commonplace.errors import CommonplaceError, InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

PROVIDERS = ("anthropic", "openai")
MODELS = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5-mini"}
URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
CALL_SECONDS = 60.0
TRIES = 3
MISFITS = 2
"""How often an answer that does not fit is taken for bad luck."""
PAUSE_SECONDS = 0.2
WAIT_SECONDS = 20.0
"""The longest that a service's wish to be left alone is followed within one question."""
ANSWER_TOKENS = 4_096
ANSWER_CHARS = 200_000
ANSWER_BYTES = 4 * 1024 * 1024
"""Of one answer as it comes over the wire; far more than a model writes in one go."""

log = logging.getLogger(__name__)


class ModelUnavailable(CommonplaceError):
    """The language model did not answer usefully; nothing was changed by it."""

    code = "MODEL_UNAVAILABLE"
    spent: Spent | None = None
    """What answers of no use have cost."""


@dataclass(frozen=True, slots=True)
class Access:
    """Whom to ask, and with which key."""

    key: str
    provider: str = "anthropic"
    model: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise InvalidInput(
                f"There is no provider {self.provider!r}.",
                hint=f"There are: {', '.join(PROVIDERS)}.",
                field="provider",
            )

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.model or MODELS[self.provider]})"


def configured(access: Access, environ: Mapping[str, str] | None = None) -> Access:
    """With the addresses and models that the operator has set; nobody else can set an address."""
    environ = os.environ if environ is None else environ
    provider = access.provider
    if environ.get("COMMONPLACE_LLM_PROVIDER") in PROVIDERS and not access.model:
        provider = environ["COMMONPLACE_LLM_PROVIDER"]
    return replace(
        access,
        provider=provider,
        model=access.model or environ.get("COMMONPLACE_LLM_MODEL") or MODELS[provider],
        url=environ.get(f"COMMONPLACE_LLM_{provider.upper()}_URL") or URLS[provider],
    )


def of_operator(environ: Mapping[str, str]) -> Access | None:
    """The model that the operator has set for all agents; None if there is none."""
    access = Access(
        environ.get("COMMONPLACE_LLM_KEY", ""),
        environ.get("COMMONPLACE_LLM_PROVIDER") or "openai",
    )
    if not access.key and not environ.get(f"COMMONPLACE_LLM_{access.provider.upper()}_URL"):
        return None
    return configured(replace(access, key=access.key or "none"), environ)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a question cost; None where that is not known, which is not nothing."""

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    tries: int = 1
    cache_read_tokens: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for an event."""
        return {
            "model": self.model,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cost_usd": None if self.cost is None else str(self.cost),
            "tries": self.tries,
        }


Shape = TypeVar("Shape", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class Answer(Generic[Shape]):
    """What the model said, in the shape that was asked for."""

    value: Shape
    spent: Spent


@cache
def _breaker(provider: str, url: str) -> CircuitBreaker:
    del provider, url
    return CircuitBreaker()


class Failed(Exception):
    """The other side did not work."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.spent: Spent | None = None

    def unavailable(self) -> ModelUnavailable:
        """The same, for who asked."""
        told = ModelUnavailable(self.why, hint="Nothing was changed.")
        told.spent = self.spent
        return told


class Refused(Failed):
    """The other side works, but not for this question, or not sensibly."""


@contextlib.contextmanager
def guarded(access: Access) -> Iterator[None]:
    """Reach a model, unless it failed so often that it is left alone; how it goes is noted.

    Failed and Refused come out of the block as ModelUnavailable.
    """
    breaker = _breaker(access.provider, access.url)
    if (wait := breaker.seconds_until_probe()) is not None:
        raise ModelUnavailable(
            f"The model failed repeatedly and is left alone for {wait:.0f} s.",
            hint="Nothing was changed.",
        )
    try:
        yield
    except Refused as error:
        breaker.undecided()
        raise error.unavailable() from error
    except Failed as error:
        breaker.failed()
        raise error.unavailable() from error
    except BaseException:
        breaker.undecided()
        raise
    breaker.succeeded()


def ask(
    access: Access,
    instructions: str,
    prompt: str,
    shape: type[Shape],
    *,
    seconds: float = CALL_SECONDS,
) -> Answer[Shape]:
    """The answer to a question, within some seconds, or ModelUnavailable. Hold no lock meanwhile.

    Refusals to serve now (429, 5xx, no connection) are tried again; so is, once, an answer that
    does not fit.
    """
    access = access if access.url else configured(access)
    with guarded(access):
        return asyncio.run(_ask(access, instructions, prompt, shape, seconds))


async def _ask(
    access: Access, instructions: str, prompt: str, shape: type[Shape], seconds: float
) -> Answer[Shape]:
    model = reach(access, seconds)
    try:
        return await _answer(model, instructions, prompt, shape, seconds)
    except Failed as error:
        error.spent = model.spent() if model.responses else None
        raise


async def _answer(
    model: Reached, instructions: str, prompt: str, shape: type[Shape], seconds: float
) -> Answer[Shape]:
    for _ in range(MISFITS):
        model.each = TRIES - model.tries
        try:
            async with asyncio.timeout(max(0.01, model.until - time.monotonic())):
                response = await _request(model.patient, instructions, prompt)
        except TimeoutError:
            raise Failed(f"The model did not answer within {seconds:g} s.") from None
        value = _fitting(response.text or "", shape)
        if value is not None:
            return Answer(value, model.spent())
        if model.tries >= TRIES:
            break
    raise Refused("The model's answer did not have the form that was asked for.")


@dataclass
class Reached:
    """A model that is reached, and what it has cost so far."""

    access: Access
    until: float
    """When to stop trying, on the monotonic clock."""
    each: int = TRIES
    """How often one request is tried."""
    tries: int = 0
    asking: bool = False
    """Whether an answer of the model is waited for."""
    responses: list[ModelResponse] = field(default_factory=list)
    patient: Model = field(init=False)

    async def request(self, once: Callable[[float], Awaitable[ModelResponse]]) -> ModelResponse:
        """The model's answer to one request, tried again where there is sense in it."""
        attempt = 0
        while True:
            attempt += 1
            self.tries += 1
            self.asking = True
            try:
                response = await once(max(0.01, self.until - time.monotonic()))
            except TimeoutError:
                raise
            except Exception as error:
                self.asking = False
                wait = _again(error, attempt)
                if wait is None or attempt >= self.each or time.monotonic() + wait >= self.until:
                    raise _told(error) from error
                await asyncio.sleep(wait)
                continue
            self.asking = False
            self.responses.append(response)
            return response

    def spent(self) -> Spent:
        """What all requests have cost; not known if it is not known of one."""
        each = [_spent(response) for response in self.responses]
        known = bool(each) and all(one is not None for one in each)
        costs = [one[2] for one in each if one is not None and one[2] is not None]
        return Spent(
            self.access.model,
            sum(one[0] for one in each if one is not None) if known else None,
            sum(one[1] for one in each if one is not None) if known else None,
            sum(costs, Decimal(0)) if each and len(costs) == len(each) else None,
            self.tries,
            sum(one[3] for one in each if one is not None) if known else None,
        )


def reach(access: Access, seconds: float) -> Reached:
    """The model of an access, to be used under `guarded` within some seconds.

    Its `patient` is a pydantic-ai model that retries requests and raises Failed or Refused.
    """
    model = _model(access)  # the first time, importing takes seconds, which do not count
    made = Reached(access, time.monotonic() + seconds)
    made.patient = _patient(model, made)
    return made


def _patient(model: Model, reached: Reached) -> Model:
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.settings import ModelSettings, merge_model_settings

    class Patient(WrapperModel):
        """One request of it may be several of the model."""

        async def request(
            self, messages: Any, model_settings: Any, model_request_parameters: Any
        ) -> ModelResponse:
            async def once(left: float) -> ModelResponse:
                # A little later than our own limit, which has the better words.
                timed = merge_model_settings(model_settings, ModelSettings(timeout=left + 1))
                return await super(Patient, self).request(messages, timed, model_request_parameters)

            return await reached.request(once)

    return Patient(model)


@lru_cache(maxsize=32)
def _model(access: Access) -> Model:
    """The model of a provider; making one takes longer than many an answer."""
    try:
        if access.provider == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            theirs = AsyncAnthropic(
                api_key=access.key, base_url=access.url, max_retries=0, http_client=_client()
            )
            return AnthropicModel(access.model, provider=AnthropicProvider(anthropic_client=theirs))
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
    except ImportError as error:
        raise Refused(
            "No library that speaks to language models is installed"
            f" (pip install '{DISTRIBUTION}[llm]')."
        ) from error
    compatible = AsyncOpenAI(
        api_key=access.key, base_url=access.url, max_retries=0, http_client=_client()
    )
    provider = OpenAIProvider(openai_client=compatible)
    return OpenAIChatModel(access.model, provider=provider)


class _TooLong(Exception):
    """The service sends more than any answer has."""


def _client() -> Any:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        """The body of an answer, as far as it may go."""

        def __init__(self, whole: httpx2.AsyncByteStream) -> None:
            self._whole = whole

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._whole:
                size += len(part)
                if size > ANSWER_BYTES:
                    raise _TooLong
                yield part

        async def aclose(self) -> None:
            await self._whole.aclose()

    async def bound(response: httpx2.Response) -> None:
        # Nothing compressed is asked for, so that the limit on bytes is one on memory.
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _TooLong
        response.stream = Bounded(response.stream)  # type: ignore[arg-type]

    # Each question has an event loop of its own, and a connection cannot outlive its loop.
    none_kept = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        verify=_trusted(),
        follow_redirects=False,
        limits=none_kept,
        event_hooks={"response": [bound]},
    )


@cache
def _trusted() -> Any:
    """Whom to believe over TLS; loading that takes longer than many an answer."""
    import ssl

    return ssl.create_default_context()


async def _request(model: Model, instructions: str, prompt: str) -> ModelResponse:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.settings import ModelSettings

    request = ModelRequest(parts=[SystemPromptPart(instructions), UserPromptPart(prompt)])
    settings = ModelSettings(max_tokens=ANSWER_TOKENS)
    return await model_request(model, [request], model_settings=settings, instrument=False)


def _again(error: Exception, attempt: int) -> float | None:
    """How long to wait before another try; None if there is no sense in one."""
    if _is_too_long(error):
        return None
    status = getattr(error, "status_code", None)
    if status is None or status in (408, 409, 429) or status >= 500:
        asked = _retry_after(error)
        return min(asked, WAIT_SECONDS) if asked is not None else PAUSE_SECONDS * 2**attempt
    return None


def _is_too_long(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, _TooLong):
        error = error.__cause__ or error.__context__
    return error is not None


def _retry_after(error: BaseException | None) -> float | None:
    while error is not None:
        headers = getattr(getattr(error, "response", None), "headers", None)
        if headers is not None:
            try:
                return max(0.0, float(headers.get("retry-after", "")))
            except ValueError:
                return None
        error = error.__cause__
    return None


def _told(error: Exception) -> Failed:
    """What went wrong, without a word of what was sent."""
    status = getattr(error, "status_code", None)
    long = _is_too_long(error)
    why = "TooLong" if long else type(error).__name__
    log.warning("the model failed", extra={"why": why, "status": status})
    if long:
        most = f"{ANSWER_BYTES:,} bytes"
        return Failed(f"The model's answer was compressed or longer than {most}, and not read.")
    if status is None:
        return Failed("The model cannot be reached, or answered with nonsense.")
    if status in (408, 429) or status >= 500:
        return Failed(f"The model's service answered {status}.")
    return Refused(f"The model's service refused the question ({status}).")


def _fitting(text: str, shape: type[Shape]) -> Shape | None:
    """The JSON object in an answer, if it has the shape."""
    if len(text) > ANSWER_CHARS:
        return None
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
        return shape.model_validate(value)
    except (ValueError, RecursionError):  # pydantic's own error is a ValueError
        return None


def _spent(response: ModelResponse) -> tuple[int, int, Decimal | None, int] | None:
    """(tokens in, tokens out, price if known, tokens from a cache) of a response, if it says so."""
    usage = response.usage
    if not (usage.input_tokens or usage.output_tokens):
        return None
    try:
        cost = response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        cost = None  # a model with no known price
    return usage.input_tokens, usage.output_tokens, cost, usage.cache_read_tokens
