"""A conversation with a being: each turn is given its context and what it recalls."""

from __future__ import annotations

from commonplace.dialects.being import context, history, patrol, recalling, sight
from commonplace.dialects.being.thinking import Thinking
from commonplace.engine.commonplace import Commonplace
from commonplace.platform import agents, llm
from commonplace.storage.locking import Busy

TURN_SECONDS = 120.0
AFTER_SECONDS = 60.0
BUSY_SECONDS = 10.0
KEPT_TURNS = 40
"""How many messages of the conversation the model is shown again."""
_HOW = (
    "\n\nYou are in a conversation, whose last lines you are given. Answer the last message, as"
    " yourself, with nothing but your words. You have no tools here: what you recall is in"
    " <memory-recall>, and what was said is recorded for you."
)


class Conversation:
    """Messages between a person and a being; they are stored when it ends."""

    def __init__(self, memory: Commonplace, being: str, access: llm.Access) -> None:
        self._memory = memory
        self._being = being
        self._access = access
        self.messages: list[dict[str, str]] = []

    def say(self, text: str) -> str:
        """Say something, and return the being's answer; AgentFailed if the model has none."""
        told = context.system_prompt(self._memory, self._being) + _HOW
        shown = [context.snapshot(self._memory, self._being)]
        shown.append(recalling.related_pieces(self._memory, self._being, text))
        asked = [*self.messages, {"role": "user", "content": text}]
        shown += [f"{each['role']}: {each['content']}" for each in asked[-KEPT_TURNS:]]
        answer = agents.run(
            self._access, told, "\n\n".join(shown), (), seconds=TURN_SECONDS, requests=1
        )
        self.messages = [*asked, {"role": "assistant", "content": answer}]
        return answer

    def end(self) -> patrol.Report | None:
        """Store the messages, and make memories of them; None if nothing was said.

        If another process patrols this being for too long, the messages are only stored.
        """
        if not self.messages:
            return None
        name = f"patrol-{self._memory.name}-{self._being}"
        last = str(sight.find(self._memory, self._being).attrs.get("patrol_marker") or "")
        try:
            with self._memory.library.coordination.lock(name, BUSY_SECONDS):
                return patrol.run(
                    self._memory,
                    self._being,
                    thinking=Thinking(self._access, AFTER_SECONDS),
                    messages=self.messages,
                    marker_id=last or None,  # all messages are new
                )
        except Busy:
            history.keep(self._memory, self._being, self.messages, new=True)
            return patrol.Report(last, status="busy")
