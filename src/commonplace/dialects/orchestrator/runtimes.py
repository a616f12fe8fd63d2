"""Who runs an agent: a language model with this server's tools, or whatever is put in its place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from commonplace.access.caller import FULL, Caller
from commonplace.dialects.contract import RequestInfo, Setting, as_json
from commonplace.dialects.orchestrator import workspaces
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError
from commonplace.platform import agents, llm

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.workspaces import Agent
    from commonplace.engine.library import Library

NAME = "orchestrator"
SPENT = "agent.llm"
ORIGIN = Origin(client="commonplace", tool="agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an agent is asked, and as whom it acts."""

    agent: Agent
    prompt: str
    space: str
    user: str
    seconds: float
    conversation_id: str = ""
    key: str = ""
    """Under which its effects are known, so that a second run repeats none of them."""


class Runtime(Protocol):
    """Runs agents."""

    def converse(self, ask: Ask) -> str:
        """The agent's answer; a CommonplaceError if there is none. Holds no lock meanwhile."""


_runtimes: WeakKeyDictionary[Library, Runtime] = WeakKeyDictionary()


def of(library: Library) -> Runtime | None:
    """Who runs the agents of a library's workspaces; None if nobody does."""
    return _runtimes.get(library)


def put(library: Library, runtime: Runtime | None) -> None:
    """Let somebody run the agents of a library's workspaces."""
    if runtime is None:
        _runtimes.pop(library, None)
    else:
        _runtimes[library] = runtime


def configured(setting: Setting) -> Runtime | None:
    """A language model, if the operator has set one."""
    access = llm.of_operator(setting.environ)
    if access is None or setting.perform is None:
        return None
    return Modelled(access, setting)


class Modelled:
    """Agents that are a language model, whose tools are this server's own."""

    def __init__(self, access: llm.Access, setting: Setting) -> None:
        self._access = access
        self._setting = setting

    def converse(self, ask: Ask) -> str:
        """The model's answer after as many tool calls as it wanted."""
        from commonplace.dialects.orchestrator.dialect import TOOLS

        calls = Calls(ask, self._setting)
        abilities = [
            agents.Ability(tool.name, tool.description, tool.input, calls.of(tool.name))
            for tool in TOOLS
        ]
        return agents.run(
            self._access, ask.agent.system_prompt, ask.prompt, abilities,
            model=ask.agent.model, seconds=ask.seconds,
            spent=lambda spent: self._note(ask, spent),
        )  # fmt: skip

    def _note(self, ask: Ask, spent: llm.Spent) -> None:
        """What a run has cost, beside the agent's history."""
        memory = Commonplace(space=ask.space, origin=ORIGIN, library=self._setting.library)
        memory.events.record(SPENT, ask.agent.id, spent.as_dict())


class Calls:
    """An agent's calls of tools, each through the gate as its workspace.

    With a key, a call is known by what it asks for, and by how often it was made before: an agent
    that is run again may make its calls in another order, and still none acts twice.
    """

    def __init__(self, ask: Ask, setting: Setting) -> None:
        self._ask = ask
        self._setting = setting
        self._made: Counter[str] = Counter()
        self._counting = threading.Lock()  # a model may call several tools at once
        self._caller = Caller(
            space=ask.space,
            user=ask.user,
            scopes=FULL,
            credential=f"agent:{ask.agent.slug}",
            dialects=frozenset({NAME}),
        )

    def of(self, name: str) -> Any:
        """What calls one tool."""

        def call(arguments: Mapping[str, Any]) -> str:
            perform = self._setting.perform
            assert perform is not None
            given = dict(sorted(arguments.items()))
            active = self._ask.conversation_id
            request_info = RequestInfo(
                client=f"agent:{self._ask.agent.slug}",
                session=f"{active}:{self._ask.agent.slug}",
                idempotency_key=self._key(name, given) if self._ask.key else "",
                headers={workspaces.CONVERSATION_HEADER: active} if active else {},
            )
            try:
                outcome = perform(
                    self._caller, request_info, NAME, self._setting.prefix + name, given
                )
            except CommonplaceError as error:
                return f"error: {error}"
            text: str = outcome.wire["content"][0]["text"]
            return f"error: {text}" if outcome.wire["isError"] else text

        return call

    def _key(self, name: str, given: Mapping[str, Any]) -> str:
        same = as_json([name, given])
        with self._counting:
            self._made[same] += 1
            return f"{self._ask.key}:{self._made[same]}"
