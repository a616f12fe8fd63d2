"""The runtime of agents: a language model with this server's tools, or another runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from commonplace.access.caller import FULL_SCOPES, Caller
from commonplace.dialects.agent_calls import AgentCalls
from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import workspaces
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Origin
from commonplace.platform import agents, llm

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.workspaces import Agent
    from commonplace.engine.library import Library

DIALECT_NAME = "orchestrator"
SPENDING_EVENT = "agent.llm"
ORIGIN = Origin(client="commonplace", tool="agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPrompt:
    """A prompt for an agent, and the user on whose behalf it acts."""

    agent: Agent
    prompt: str
    space: str
    user: str
    seconds: float
    conversation_id: str = ""
    key: str = ""
    """The idempotency key of the run, so that a retry repeats no effect."""


class Runtime(Protocol):
    """The interface of a runtime, which runs agents."""

    def converse(self, ask: AgentPrompt) -> str:
        """Run an agent and return its answer, without a lock; raise CommonplaceError on failure."""


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def answer_of(runtime: Runtime, ask: AgentPrompt) -> str:
    """Run an agent and return its answer; U+FFFD replaces what cannot be stored as text."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", runtime.converse(ask))


_runtimes: WeakKeyDictionary[Library, Runtime] = WeakKeyDictionary()


def runtime_of(library: Library) -> Runtime | None:
    """Return the runtime of a library's workspaces, or None if there is none."""
    return _runtimes.get(library)


def set_runtime(library: Library, runtime: Runtime | None) -> None:
    """Set the runtime of a library's workspaces."""
    if runtime is None:
        _runtimes.pop(library, None)
    else:
        _runtimes[library] = runtime


def configured_runtime(setting: Setting) -> Runtime | None:
    """Return a runtime with the operator's language model, or None without a model."""
    access = llm.operator_access(setting.environ)
    if access is None or setting.perform is None:
        return None
    return ModelRuntime(access, setting)


class ModelRuntime:
    """Runs agents with a language model that calls this server's tools."""

    def __init__(self, access: llm.Access, setting: Setting) -> None:
        self._access = access
        self._setting = setting

    def converse(self, ask: AgentPrompt) -> str:
        """Run the model with its tools, and return its answer."""
        from commonplace.dialects.orchestrator.dialect import TOOLS

        abilities = agent_calls(ask, self._setting).abilities(TOOLS)
        return agents.run(
            self._access, ask.agent.system_prompt, ask.prompt, abilities,
            model=ask.agent.model, seconds=ask.seconds,
            report_usage=lambda usage: self._record(ask, usage),
        )  # fmt: skip

    def _record(self, ask: AgentPrompt, usage: llm.ModelUsage) -> None:
        """Record the cost of a run."""
        memory = Commonplace(space=ask.space, origin=ORIGIN, library=self._setting.library)
        memory.events.record(SPENDING_EVENT, ask.agent.id, usage.as_dict())


def agent_calls(ask: AgentPrompt, setting: Setting) -> AgentCalls:
    """Return the caller of tools for an agent, in its workspace and conversation."""
    active, credential = ask.conversation_id, f"agent:{ask.agent.slug}"
    caller = Caller(
        space=ask.space, user=ask.user, scopes=FULL_SCOPES, credential=credential,
        dialects=frozenset({DIALECT_NAME}),
    )  # fmt: skip
    return AgentCalls(
        setting, caller, DIALECT_NAME, ask.key, session=f"{active}:{ask.agent.slug}",
        headers={workspaces.CONVERSATION_HEADER: active} if active else {},
    )  # fmt: skip
