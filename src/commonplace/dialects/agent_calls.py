"""Let a language model of this server call tools through the gate, as an agent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commonplace.access.caller import Caller
from commonplace.dialects.contract import RequestInfo, Setting, Tool, as_json
from commonplace.errors import CommonplaceError
from commonplace.platform.agents import Ability


@dataclass(slots=True)
class AgentCalls:
    """Calls the tools of a dialect on behalf of an agent.

    If the run has an idempotency key, a call is identified by its tool, its arguments and the
    number of earlier equal calls. A retried run may make its calls in another order; no call is
    executed twice.
    """

    setting: Setting
    caller: Caller
    dialect: str
    key: str = ""
    session: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    _call_counts: Counter[str] = field(default_factory=Counter)
    _count_lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards `_call_counts`: a model may call several tools at once."""

    def abilities(self, tools: Sequence[Tool], prefix: str = "") -> list[Ability]:
        """Return the tools as abilities of a model, with a prefix before each name."""
        return [
            Ability(prefix + tool.name, tool.description, tool.input, self.tool_function(tool.name))
            for tool in tools
        ]

    def tool_function(self, name: str) -> Any:
        """Return a function that calls the tool of this name."""

        def call(arguments: Mapping[str, Any]) -> str:
            perform = self.setting.perform
            assert perform is not None
            sorted_arguments = dict(sorted(arguments.items()))
            request_info = RequestInfo(
                client=self.caller.credential, session=self.session, headers=self.headers,
                address=self.address,
                idempotency_key=self._idempotency_key(name, sorted_arguments) if self.key else "",
            )  # fmt: skip
            try:
                outcome = perform(
                    self.caller,
                    request_info,
                    self.dialect,
                    self.setting.prefix + name,
                    sorted_arguments,
                )
            except CommonplaceError as error:
                return f"error: {error}"
            if outcome.error is not None and "content" not in outcome.wire:
                return f"error: {outcome.error}"
            if "value" in outcome.wire:  # a REST operation returns a value, not MCP content
                return as_json(outcome.wire["value"])
            text: str = outcome.wire["content"][0]["text"]
            return f"error: {text}" if outcome.wire.get("isError") else text

        return call

    def _idempotency_key(self, name: str, arguments: Mapping[str, Any]) -> str:
        call = as_json([name, arguments])
        with self._count_lock:
            self._call_counts[call] += 1
            return f"{self.key}:{self._call_counts[call]}"
