"""Talk with a being: a language model answers with the being's context and recalled memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commonplace.access.caller import FULL_SCOPES, Caller, NotPermitted
from commonplace.dialects.agent_calls import AgentCalls
from commonplace.dialects.being import context, history, patrol, recalling, running, sight, tools
from commonplace.dialects.being.thinking import Thinking
from commonplace.dialects.contract import Call, as_json
from commonplace.engine.commonplace import Commonplace
from commonplace.errors import InvalidInput
from commonplace.platform import agents, llm
from commonplace.storage.locking import Busy
from commonplace.text.prose import neutralise

DIALECT_NAME = "being"
SPENDING_EVENT = "being.llm"
TURN_SECONDS = 120.0
PATROL_SECONDS = 60.0
BUSY_SECONDS = 10.0
MESSAGE_CHARS = 20_000
PROMPT_MESSAGES = 40
"""The maximum number of earlier messages in a prompt."""
LINE_CHARS = 2_000
# The prompt already contains the context.
TOOLS = tuple(tool for tool in tools.TOOLS if tool.name not in ("get_context", "trigger_patrol"))
_REPLY_INSTRUCTIONS = (
    "\n\nYou are in a conversation, whose last lines you are given. Answer the last message, as"
    " yourself, with nothing but your words. What you recall of it is in <memory-recall>, and what"
    " is said is recorded for you."
)


def reply(
    memory: Commonplace,
    being: str,
    text: str,
    access: llm.Access,
    abilities: Sequence[agents.Ability] = (),
    unstored: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return the being's answer; raise AgentFailed if the model gives none.

    `unstored` are messages that follow the stored history.
    """
    current = context.context(memory, being, mark_shown=True)
    parts = [current["snapshot"], current.get("recent_nodes", "")]
    if senses := current.get("pending_senses"):
        parts.append(f"<senses>\n{neutralise(as_json(senses))}\n</senses>")
    parts.append(recalling.recall_text(memory, being, text))
    stored = memory.conversations.history(sight.being_tag(being), limit=PROMPT_MESSAGES)
    lines = [f"{line.speaker}: {neutralise(line.memory.text[:LINE_CHARS])}" for line in stored]
    lines += [f"{each['role']}: {each['content']}" for each in unstored]
    parts += [*lines[-PROMPT_MESSAGES:], f"user: {text}"]
    return agents.run(
        access, current["system_prompt"] + _REPLY_INSTRUCTIONS,
        "\n\n".join(filter(None, parts)), abilities,
        seconds=TURN_SECONDS,
        report_usage=lambda usage: memory.events.record(SPENDING_EVENT, being, usage.as_dict()),
    )  # fmt: skip


def talk(call: Call, being: str, *, message: str) -> dict[str, Any]:
    """Send a message to a being and return its reply; store both in the history."""
    if not message.strip():
        raise InvalidInput("message must not be empty.", field="message")
    # The call may use the operator's model, which costs money.
    if "admin" not in call.caller.scopes:
        raise NotPermitted("Talking to a being needs the scope 'admin'.")
    runtime = running.runtime_of(call.memory.library)
    setting = runtime.setting
    access = runtime.model(call)
    if access is None or setting is None or setting.perform is None:
        raise InvalidInput(
            "No language model is configured.",
            hint="Set COMMONPLACE_LLM_KEY, or store a key with PUT /v1/llm-key.",
        )
    caller = Caller(
        space=call.memory.name, user=call.caller.user, scopes=FULL_SCOPES,
        credential=f"being:{being}", dialects=frozenset({DIALECT_NAME}), subject=being,
    )  # fmt: skip
    key = f"talk:{call.retry_key}" if call.retry_key else ""
    abilities = AgentCalls(setting, caller, DIALECT_NAME, key).abilities(TOOLS)
    answer = reply(call.memory, being, message, access, abilities)
    history.store_messages(call.memory, being, _turn_messages(message, answer), new=True)
    return {"being_id": being, "reply": answer}


def _turn_messages(text: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


class Conversation:
    """A conversation between a person and a being; `end` stores its messages."""

    def __init__(self, memory: Commonplace, being: str, access: llm.Access) -> None:
        self._memory = memory
        self._being = being
        self._access = access
        self.messages: list[dict[str, str]] = []

    def say(self, text: str) -> str:
        """Send a text and return the being's answer; raise AgentFailed if the model gives none."""
        answer = reply(self._memory, self._being, text, self._access, unstored=self.messages)
        self.messages += _turn_messages(text, answer)
        return answer

    def end(self) -> patrol.Report | None:
        """Store the messages and run a patrol; return None if there are no messages.

        If another patrol of this being does not end in time, the messages are only stored.
        """
        if not self.messages:
            return None
        name = f"patrol-{self._memory.name}-{self._being}"
        last = str(sight.get_being(self._memory, self._being).attrs.get("patrol_marker") or "")
        try:
            with self._memory.library.coordination.lock(name, BUSY_SECONDS):
                return patrol.run(
                    self._memory,
                    self._being,
                    thinking=Thinking(self._access, PATROL_SECONDS),
                    messages=self.messages,
                    marker_id=last or None,  # all messages are new
                )
        except Busy:
            history.store_messages(self._memory, self._being, self.messages, new=True)
            return patrol.Report(last, status="busy")
