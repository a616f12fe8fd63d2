"""Requests to a language model: Anthropic, or any OpenAI-compatible endpoint.

Single questions (`ask`) and agents (`agents.py`) share connections, timeouts, retries, the circuit
breaker and accounting. The answer to a question is validated against a schema. The libraries of the
providers are imported at the first request.
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
from typing import TYPE_CHECKING, Any, TypeVar, cast

from commonplace import DISTRIBUTION
from commonplace.embedding.breaker import CircuitBreaker
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.platform.loading import import_modules

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

PROVIDERS = ("anthropic", "openai")
MODELS = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5-mini"}
URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
CALL_SECONDS = 60.0
TRIES = 3
MISFIT_TRIES = 2
"""How often a question is sent if the answers do not match the schema."""
PAUSE_SECONDS = 0.2
MOST_RETRY_AFTER_SECONDS = 20.0
"""The longest `Retry-After` that is obeyed, in seconds."""
ANSWER_TOKENS = 4_096
ANSWER_CHARS = 200_000
ANSWER_BYTES = 4 * 1024 * 1024
"""The most bytes of one HTTP response."""

log = logging.getLogger(__name__)


class ModelUnavailable(CommonplaceError):
    """The language model failed; nothing was changed."""

    code = "MODEL_UNAVAILABLE"
    usage: ModelUsage | None = None
    """The cost of the requests that failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Nothing was changed.")


class ModelRefused(ModelUnavailable):
    """The service refused this question, or its answer was invalid."""


@dataclass(frozen=True, slots=True)
class Access:
    """A model and its API key."""

    key: str
    provider: str = "anthropic"
    model: str = ""
    url: str = ""
    effort: str = ""
    """The effort setting of some Anthropic models."""

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            raise InvalidInput(
                f"Unknown provider {self.provider!r}.",
                hint=f"The providers are: {', '.join(PROVIDERS)}.",
                field="provider",
            )

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.model or MODELS[self.provider]})"


def with_operator_settings(access: Access, environ: Mapping[str, str] | None = None) -> Access:
    """Return the access with the operator's URL and, if it names no model, the operator's model.

    Only the operator can set a URL. The operator's model counts only for its own provider, and a
    key is never sent to another provider than its own.
    """
    environ = os.environ if environ is None else environ
    provider = access.provider
    of_model = environ.get("COMMONPLACE_LLM_PROVIDER")
    if not of_model:  # then the operator's own model is of OpenAI's interface, if there is one
        own = any(environ.get(f"COMMONPLACE_LLM_{name}") for name in ("KEY", "OPENAI_URL"))
        of_model = "openai" if own else provider
    model = environ.get("COMMONPLACE_LLM_MODEL") if of_model == provider else ""
    return replace(
        access,
        model=access.model or model or MODELS[provider],
        url=environ.get(f"COMMONPLACE_LLM_{provider.upper()}_URL") or URLS[provider],
    )


def provider_of(key: str, environ: Mapping[str, str]) -> str:
    """Return the provider of a key by its prefix, or else the operator's provider."""
    if key.startswith("sk-"):
        return "anthropic" if key.startswith("sk-ant-") else "openai"
    usual = environ.get("COMMONPLACE_LLM_PROVIDER", "")
    return usual if usual in PROVIDERS else "anthropic"


def operator_access(environ: Mapping[str, str]) -> Access | None:
    """Return the model that the operator has configured for all agents; None if there is none."""
    access = Access(
        environ.get("COMMONPLACE_LLM_KEY", ""),
        environ.get("COMMONPLACE_LLM_PROVIDER") or "openai",
    )
    if not access.key and not environ.get(f"COMMONPLACE_LLM_{access.provider.upper()}_URL"):
        return None
    return with_operator_settings(replace(access, key=access.key or "none"), environ)


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The cost of a question; None for values that the service did not report."""

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    tries: int = 1
    cache_read_tokens: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the values as JSON, for an event."""
        return {
            "model": self.model,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cost_usd": None if self.cost is None else str(self.cost),
            "tries": self.tries,
        }


Shape = TypeVar("Shape", bound="BaseModel")


@cache
def _breaker(provider: str, url: str) -> CircuitBreaker:
    del provider, url
    return CircuitBreaker()


@contextlib.contextmanager
def circuit_breaker(access: Access) -> Iterator[None]:
    """Run the block under the model's circuit breaker, and record its outcome there."""
    breaker = _breaker(access.provider, access.url)
    if (wait := breaker.seconds_until_probe()) is not None:
        raise ModelUnavailable(f"The model failed repeatedly and is not called for {wait:.0f} s.")
    try:
        yield
    except BaseException as error:
        if isinstance(error, ModelUnavailable) and not isinstance(error, ModelRefused):
            breaker.record_failure()
        else:
            breaker.record_neither()
        raise
    breaker.record_success()


def ask(
    access: Access,
    instructions: str,
    prompt: str,
    shape: type[Shape],
    *,
    seconds: float = CALL_SECONDS,
) -> tuple[Shape, ModelUsage]:
    """Return the answer to a question and its cost; raise ModelUnavailable. Hold no lock meanwhile.

    Temporary failures (429, 5xx, no connection) are retried; an invalid answer is retried once.
    """
    access = access if access.url else with_operator_settings(access)
    with circuit_breaker(access):
        return asyncio.run(_ask(access, instructions, prompt, shape, seconds))


async def _ask(
    access: Access, instructions: str, prompt: str, shape: type[Shape], seconds: float
) -> tuple[Shape, ModelUsage]:
    model = open_model(access, seconds)
    try:
        return await _answer(model, instructions, prompt, shape, seconds)
    except ModelUnavailable as error:
        error.usage = model.usage() if model.responses else None
        raise


async def _answer(
    model: OpenModel, instructions: str, prompt: str, shape: type[Shape], seconds: float
) -> tuple[Shape, ModelUsage]:
    for _ in range(MISFIT_TRIES):
        model.tries_of_request = TRIES - model.tries
        try:
            async with asyncio.timeout(max(0.01, model.deadline - time.monotonic())):
                response = await _request(model.retrying, instructions, prompt)
        except TimeoutError:
            raise ModelUnavailable(f"The model did not answer within {seconds:g} s.") from None
        value = _parse_answer(response.text or "", shape)
        if value is not None:
            return value, model.usage()
        if model.tries >= TRIES:
            break
    raise ModelRefused("The model's answer does not match the requested schema.")


@dataclass
class OpenModel:
    """A model, and the cost of its requests so far."""

    access: Access
    deadline: float
    """The deadline on the monotonic clock."""
    tries_of_request: int = TRIES
    """How many attempts one request has."""
    tries: int = 0
    is_pending: bool = False
    """Whether a request is pending."""
    responses: list[ModelResponse] = field(default_factory=list)
    retrying: Model = field(init=False)

    async def request(self, once: Callable[[float], Awaitable[ModelResponse]]) -> ModelResponse:
        """Send one request, with retries, and return the model's answer."""
        attempt = 0
        while True:
            attempt += 1
            self.tries += 1
            self.is_pending = True
            try:
                response = await once(max(0.01, self.deadline - time.monotonic()))
            except TimeoutError:
                raise
            except Exception as error:
                self.is_pending = False
                wait = _retry_wait(error, attempt)
                if (
                    wait is None
                    or attempt >= self.tries_of_request
                    or time.monotonic() + wait >= self.deadline
                ):
                    raise _unavailable_error(error) from error
                await asyncio.sleep(wait)
                continue
            self.is_pending = False
            self.responses.append(response)
            return response

    def usage(self) -> ModelUsage:
        """Return the cost of all requests; None if it is unknown for one of them."""
        usages = [response.usage for response in self.responses]
        if not usages or not all(usage.input_tokens or usage.output_tokens for usage in usages):
            return ModelUsage(self.access.model, tries=self.tries)
        costs = [_cost(response) for response in self.responses]
        return ModelUsage(
            self.access.model,
            sum(usage.input_tokens for usage in usages),
            sum(usage.output_tokens for usage in usages),
            None if None in costs else sum(filter(None, costs), Decimal(0)),
            self.tries,
            sum(usage.cache_read_tokens for usage in usages),
        )


def open_model(access: Access, seconds: float) -> OpenModel:
    """Open the model of an access, with a deadline; use it inside `circuit_breaker`.

    Its `retrying` is a pydantic-ai model that retries requests and raises ModelUnavailable.
    """
    model = _model(access)  # before the deadline is set: the first import takes seconds
    made = OpenModel(access, time.monotonic() + seconds)
    made.retrying = _with_retries(model, made)
    return made


def _with_retries(model: Model, opened: OpenModel) -> Model:
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.settings import ModelSettings, merge_model_settings

    class RetryingModel(WrapperModel):
        """Retries each request."""

        async def request(
            self, messages: Any, model_settings: Any, model_request_parameters: Any
        ) -> ModelResponse:
            async def once(left: float) -> ModelResponse:
                # Slightly longer than our own timeout, which has the better message.
                timed = merge_model_settings(model_settings, ModelSettings(timeout=left + 1))
                return await super(RetryingModel, self).request(
                    messages, timed, model_request_parameters
                )

            return await opened.request(once)

    return RetryingModel(model)


@lru_cache(maxsize=32)
def _model(access: Access) -> Model:
    """Return a provider's model; cached, since creating one is slow."""
    try:
        import_modules("pydantic_ai", f"pydantic_ai.models.{access.provider}")
        if access.provider == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
            from pydantic_ai.providers.anthropic import AnthropicProvider

            theirs = AsyncAnthropic(
                api_key=access.key, base_url=access.url, max_retries=0, http_client=_http_client()
            )
            settings = AnthropicModelSettings()
            if access.effort:
                settings["anthropic_effort"] = cast("Any", access.effort)
            provider = AnthropicProvider(anthropic_client=theirs)
            return AnthropicModel(access.model, provider=provider, settings=settings)
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
    except ImportError as error:
        raise ModelRefused(
            f"No library for language models is installed (pip install '{DISTRIBUTION}[llm]')."
        ) from error
    compatible = AsyncOpenAI(
        api_key=access.key, base_url=access.url, max_retries=0, http_client=_http_client()
    )
    return OpenAIChatModel(access.model, provider=OpenAIProvider(openai_client=compatible))


class _TooLong(Exception):
    """The response is compressed or larger than ANSWER_BYTES."""


def _http_client() -> Any:
    import httpx2

    class LimitedBody(httpx2.AsyncByteStream):
        """A response body of limited size."""

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

    async def limit_size(response: httpx2.Response) -> None:
        # Refuse compressed responses, so that the limit also limits the memory.
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _TooLong
        response.stream = LimitedBody(response.stream)  # type: ignore[arg-type]

    # Close connections: each question has its own event loop, and they cannot outlive it.
    no_keepalive = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        verify=_tls_context(),
        follow_redirects=False,
        limits=no_keepalive,
        event_hooks={"response": [limit_size]},
    )


@cache
def _tls_context() -> Any:
    """Return the TLS context; cached, since loading certificates is slow."""
    import ssl

    return ssl.create_default_context()


async def _request(model: Model, instructions: str, prompt: str) -> ModelResponse:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.settings import ModelSettings

    request = ModelRequest(parts=[SystemPromptPart(instructions), UserPromptPart(prompt)])
    settings = ModelSettings(max_tokens=ANSWER_TOKENS)
    return await model_request(model, [request], model_settings=settings, instrument=False)


def _retry_wait(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before a retry; None if a retry is useless."""
    if _is_too_long(error):
        return None
    status = getattr(error, "status_code", None)
    if status is None or status in (408, 409, 429) or status >= 500:
        asked = _retry_after(error)
        return (
            min(asked, MOST_RETRY_AFTER_SECONDS)
            if asked is not None
            else PAUSE_SECONDS * 2**attempt
        )
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


def _unavailable_error(error: Exception) -> ModelUnavailable:
    """Return an error whose message contains no text that was sent or received."""
    status = getattr(error, "status_code", None)
    too_long = _is_too_long(error)
    why = "TooLong" if too_long else type(error).__name__
    log.warning("the model failed", extra={"why": why, "status": status})
    if too_long:
        most = f"{ANSWER_BYTES:,} bytes"
        return ModelUnavailable(f"The model's answer was compressed or longer than {most}.")
    if status is None:
        return ModelUnavailable("The model cannot be reached, or its response is invalid.")
    if status in (408, 429) or status >= 500:
        return ModelUnavailable(f"The model's service answered {status}.")
    return ModelRefused(f"The model's service refused the question ({status}).")


def _parse_answer(text: str, shape: type[Shape]) -> Shape | None:
    """Return the JSON object in an answer; None if it does not match the schema."""
    start = text.find("{")
    if len(text) > ANSWER_CHARS or start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
        return shape.model_validate(value)
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        return None


def _cost(response: ModelResponse) -> Decimal | None:
    """Return the price of a response; None for a model without a known price."""
    try:
        return response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None
