"""Replies of a being over REST: a language model with its context, which may use its tools."""

from __future__ import annotations

from typing import Any

from commonplace.access.caller import FULL, Caller, NotPermitted
from commonplace.dialects.agent_calls import AgentCalls
from commonplace.dialects.being import context, history, running, sight, tools
from commonplace.dialects.contract import Call
from commonplace.errors import InvalidInput
from commonplace.platform import agents
from commonplace.text.prose import neutral

NAME = "being"
SECONDS = 120.0
RECENT = 20
SPENT = "being.llm"
MESSAGE_CHARS = 20_000
TOOLS = tuple(
    tool for tool in tools.TOOLS if tool.name not in ("get_context", "trigger_patrol")
)  # the context comes with the prompt
LONGER = "\n\nWhat was said before, the oldest first:\n"


def talk(call: Call, being: str, *, message: str) -> dict[str, Any]:
    """Send a message to a being, and get its reply; both are kept in its history."""
    if not message.strip():
        raise InvalidInput("The message is empty.", field="message")
    if "admin" not in call.caller.scopes:  # it may use the operator's model, which costs money
        raise NotPermitted("Talking to a being needs the scope 'admin'.")
    runtime = running.of(call.memory.library)
    setting = runtime.setting
    access = runtime.model(call)
    if access is None or setting is None or setting.perform is None:
        raise InvalidInput(
            "No language model is configured.",
            hint="Set COMMONPLACE_LLM_KEY, or store a key with PUT /v1/llm-key.",
        )
    known = context.context(call, being, mark=True)
    instructions = f"{known['system_prompt']}\n\n{known['snapshot']}{_recent(call, being)}"
    caller = Caller(
        space=call.memory.name, user=call.caller.user, scopes=FULL, credential=f"being:{being}",
        dialects=frozenset({NAME}), subject=being,
    )  # fmt: skip
    key = f"talk:{call.retry_key}" if call.retry_key else ""
    calls = AgentCalls(setting, caller, NAME, key)
    reply = agents.run(
        access, instructions, message, calls.abilities(TOOLS), seconds=SECONDS,
        spent=lambda spent: _record(call, being, spent.as_dict()),
    )  # fmt: skip
    said = [{"role": "user", "content": message}, {"role": "assistant", "content": reply}]
    history.keep(call.memory, being, said, new=True)
    return {"being_id": being, "reply": reply}


def _record(call: Call, being: str, spent: dict[str, Any]) -> None:
    call.memory.events.record(SPENT, being, spent)


def _recent(call: Call, being: str) -> str:
    lines = call.memory.conversations.history(sight.tag(being), limit=RECENT)
    said = "\n".join(f"- {line.speaker}: {neutral(line.memory.text[:500])}" for line in lines)
    return LONGER + said if said else ""
