"""Running an agent: a language model that may call tools until it has an answer.

The library that speaks to models is imported when the first agent is run, and only then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.errors import CommonplaceError, InvalidInput

if TYPE_CHECKING:
    from pydantic_ai.models import Model

PROVIDERS = ("openai", "anthropic")
URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
MODELS = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5-mini"}
MOST_REQUESTS = 25
"""How often a model is asked in one run, tool calls and all."""


class AgentFailed(CommonplaceError):
    """The agent gave no answer."""

    code = "AGENT_FAILED"


@dataclass(frozen=True, slots=True)
class Access:
    """Which model, where, with which key."""

    key: str
    provider: str
    model: str
    url: str

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.model})"


def configured(environ: Mapping[str, str]) -> Access | None:
    """What the operator has set; None if agents have no model."""
    provider = environ.get("COMMONPLACE_LLM_PROVIDER") or "openai"
    if provider not in PROVIDERS:
        raise InvalidInput(
            f"There is no provider {provider!r}.", hint=f"There are: {', '.join(PROVIDERS)}."
        )
    key = environ.get("COMMONPLACE_LLM_KEY", "")
    url = environ.get(f"COMMONPLACE_LLM_{provider.upper()}_URL", "")
    if not key and not url:
        return None
    model = environ.get("COMMONPLACE_LLM_MODEL") or MODELS[provider]
    return Access(key or "none", provider, model, url or URLS[provider])


@dataclass(frozen=True, slots=True)
class Ability:
    """A tool that the agent may call; `call` gives what the model is told."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], str]


def run(
    access: Access,
    instructions: str,
    prompt: str,
    abilities: Sequence[Ability],
    *,
    model: str = "",
    seconds: float,
) -> str:
    """The agent's answer, within some seconds, or AgentFailed. Hold no lock meanwhile."""
    try:
        return asyncio.run(_within(access, instructions, prompt, abilities, model, seconds))
    except TimeoutError:
        raise AgentFailed(f"the agent did not answer within {seconds:g} s") from None


async def _within(
    access: Access,
    instructions: str,
    prompt: str,
    abilities: Sequence[Ability],
    model: str,
    seconds: float,
) -> str:
    try:
        from pydantic_ai import Agent, UsageLimits
        from pydantic_ai.exceptions import AgentRunError, UserError
    except ImportError:
        raise AgentFailed(
            "agents need pydantic-ai, which is not installed (pip install 'commonplace[llm]')"
        ) from None
    agent = Agent(
        _model(access, model),
        instructions=instructions or None,
        tools=[_as_tool(ability) for ability in abilities],
        retries=2,
    )
    limits = UsageLimits(request_limit=MOST_REQUESTS)
    try:
        async with asyncio.timeout(seconds):
            result = await agent.run(prompt, usage_limits=limits)
    except (AgentRunError, UserError) as error:
        raise AgentFailed(f"the agent failed: {str(error)[:500]}") from error
    return str(result.output)


def _model(access: Access, model: str) -> Model:
    name = model or access.model
    if access.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(
            name, provider=AnthropicProvider(api_key=access.key, base_url=access.url)
        )
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=access.key, base_url=access.url))


def _as_tool(ability: Ability) -> Any:
    from pydantic_ai import Tool

    def call(**given: Any) -> str:
        return ability.call(json.loads(json.dumps(given)))

    return Tool.from_schema(
        call,
        name=ability.name,
        description=ability.description,
        json_schema=dict(ability.schema),
    )
