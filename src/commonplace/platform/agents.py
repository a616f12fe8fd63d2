"""Runs an agent: a language model that may call tools until it gives an answer.

Requests to the model go through `llm.py`; the agent library is imported at the first run.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commonplace.errors import CommonplaceError
from commonplace.platform import llm

log = logging.getLogger(__name__)

MOST_REQUESTS = 25
"""How many requests one run may send to the model, including those after tool calls."""


class AgentFailed(CommonplaceError):
    """The agent gave no answer."""

    code = "AGENT_FAILED"


@dataclass(frozen=True, slots=True)
class Ability:
    """A tool that the agent may call; `call` returns the text for the model."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], str]


def run(
    access: llm.Access,
    instructions: str,
    prompt: str,
    abilities: Sequence[Ability],
    *,
    model: str = "",
    seconds: float,
    most_requests: int = MOST_REQUESTS,
    images: Sequence[tuple[bytes, str]] = (),
    report_usage: Callable[[llm.ModelUsage], None] = lambda _: None,
) -> str:
    """Run an agent and return its answer; raise AgentFailed. Do not call it while holding a lock.

    `most_requests` limits the requests to the model; `images` are (content, media type) pairs for
    the prompt. `report_usage` is called with the cost of the run, also if the run fails.
    """
    access = replace(access, model=model or access.model)
    try:
        with llm.circuit_breaker(access):
            opened = llm.open_model(access, seconds)
            try:
                return asyncio.run(
                    _run(opened, instructions, prompt, images, abilities, seconds, most_requests)
                )
            finally:
                # The event loop has ended, so `report_usage` may write to a database.
                report_usage(opened.usage())
    except llm.ModelUnavailable as error:
        timed_out = isinstance(error, _TimedOut)
        message = error.message if timed_out else f"the agent failed: {error.message}"
        raise AgentFailed(message) from error


class _TimedOut(llm.ModelUnavailable):
    """The model did not answer within the agent's time."""


async def _run(
    opened: llm.OpenModel,
    instructions: str,
    prompt: str,
    images: Sequence[tuple[bytes, str]],
    abilities: Sequence[Ability],
    seconds: float,
    most_requests: int,
) -> str:
    from pydantic_ai import Agent, BinaryContent, UsageLimits
    from pydantic_ai.exceptions import AgentRunError, UserError

    agent = Agent(
        opened.retrying,
        instructions=instructions or None,
        tools=[_as_tool(ability) for ability in abilities],
        retries=2,
    )
    limits = UsageLimits(request_limit=most_requests)
    try:
        async with asyncio.timeout(seconds):
            parts = [BinaryContent(data, media_type=kind) for data, kind in images]
            result = await agent.run([prompt, *parts] if parts else prompt, usage_limits=limits)
    except TimeoutError:
        why = f"the agent did not answer within {seconds:g} s"
        # A slow tool must not count as a failure of the model.
        raise _TimedOut(why) if opened.is_pending else AgentFailed(why) from None
    except (AgentRunError, UserError) as error:
        # The error's text may quote the provider's response.
        log.warning("an agent failed", exc_info=error)
        raise AgentFailed(f"the agent failed: {type(error).__name__}") from error
    return str(result.output)


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
