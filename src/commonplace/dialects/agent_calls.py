"""The tools of a language model that runs here: calls through the gate, as the agent."""

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
    """An agent's calls of a dialect's tools.

    With an idempotency key, each call gets a key of its own, made of its tool, its arguments and
    how often it was made before: if the agent is run again and makes its calls in another order,
    none acts twice.
    """

    setting: Setting
    caller: Caller
    dialect: str
    key: str = ""
    session: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    _made: Counter[str] = field(default_factory=Counter)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    """A model may call several tools at once."""

    def abilities(self, tools: Sequence[Tool], prefix: str = "") -> list[Ability]:
        """The tools for a model, with a prefix before each name."""
        return [
            Ability(prefix + tool.name, tool.description, tool.input, self.of(tool.name))
            for tool in tools
        ]

    def of(self, name: str) -> Any:
        """A function that calls one tool."""

        def call(arguments: Mapping[str, Any]) -> str:
            perform = self.setting.perform
            assert perform is not None
            given = dict(sorted(arguments.items()))
            request_info = RequestInfo(
                client=self.caller.credential, session=self.session, headers=self.headers,
                address=self.address,
                idempotency_key=self._idempotency_key(name, given) if self.key else "",
            )  # fmt: skip
            try:
                outcome = perform(
                    self.caller, request_info, self.dialect, self.setting.prefix + name, given
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

    def _idempotency_key(self, name: str, given: Mapping[str, Any]) -> str:
        same = as_json([name, given])
        with self._counting:
            self._made[same] += 1
            return f"{self.key}:{self._made[same]}"
