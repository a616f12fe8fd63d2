"""The session of the OpenAI Agents SDK: the SDK's own SQLite session and ours agree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, SQLiteSession, Usage
from agents.memory import Session, SessionSettings
from agents.models.interface import Model, ModelProvider
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from commonplace import Commonplace, InvalidInput
from commonplace.integrations.openai_agents import CommonplaceSession

ITEMS: list[Any] = [
    {"role": "user", "content": "My cat is called Miso"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]},
    {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "漢字"},
    {"role": "user", "content": ""},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path, embedding="none") as opened:
        yield opened


async def history(session: Session) -> list[Any]:
    """What a session says over its life."""
    said: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items(ITEMS)
    await session.add_items([])
    said += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
    said += [await session.pop_item(), await session.pop_item(), await session.get_items()]
    await session.add_items(ITEMS[:1])
    said.append(await session.get_items())
    await session.clear_session()
    said += [await session.get_items(), await session.pop_item()]
    await session.add_items(ITEMS[1:2])
    said.append(await session.get_items())
    return said


def test_a_session_does_what_the_sdks_own_does(memory: Commonplace) -> None:
    theirs = SQLiteSession("s")
    ours = CommonplaceSession("s", memory)
    assert isinstance(ours, Session)
    assert asyncio.run(history(ours)) == asyncio.run(history(theirs))
    theirs.close()


def test_sessions_are_apart_and_their_text_is_recalled(memory: Commonplace) -> None:
    asyncio.run(CommonplaceSession("one", memory).add_items(ITEMS))
    assert asyncio.run(CommonplaceSession("two", memory).get_items()) == []
    best = memory.recall("Miso")[0].memory
    assert (best.text, best.trust) == ("My cat is called Miso", "stated")


def test_the_settings_limit_what_is_returned(memory: Commonplace) -> None:
    session = CommonplaceSession("s", memory, session_settings=SessionSettings(limit=2))
    asyncio.run(session.add_items(ITEMS))
    assert asyncio.run(session.get_items()) == ITEMS[-2:]
    assert asyncio.run(session.get_items(3)) == ITEMS[-3:]
    with pytest.raises(InvalidInput):
        CommonplaceSession("", memory)


def test_more_items_than_one_page(memory: Commonplace) -> None:
    session = CommonplaceSession("s", memory)
    items: list[Any] = [{"role": "user", "content": f"line {n}"} for n in range(1_001)]
    asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items()) == items
    asyncio.run(session.clear_session())
    assert asyncio.run(session.get_items()) == []


class Echo(Model, ModelProvider):
    """A model that answers with how many items it was given."""

    def get_model(self, model_name: str | None) -> Model:
        return self

    async def get_response(self, *, input: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        text = ResponseOutputText(type="output_text", text=f"{len(input)} items", annotations=[])
        message = ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_the_runner_keeps_its_turns_in_the_session(memory: Commonplace) -> None:
    session = CommonplaceSession("s", memory)
    config = RunConfig(model_provider=Echo(), tracing_disabled=True)

    async def two_turns() -> list[str]:
        said = []
        for text in ("hello", "again"):
            done = await Runner.run(Agent(name="a"), text, session=session, run_config=config)
            said.append(done.final_output)
        return said

    assert asyncio.run(two_turns()) == ["1 items", "3 items"]
    assert len(asyncio.run(session.get_items())) == 4
