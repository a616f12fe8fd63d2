"""A memory provider for Hermes.

Hermes finds providers in `$HERMES_HOME/plugins/NAME/__init__.py`. This is the whole of
`plugins/commonplace/__init__.py`:

    from commonplace.integrations.hermes import register_memory_provider as register

Then `memory.provider: commonplace` in Hermes's `config.yaml` enables it. The data directory is
`COMMONPLACE_DATA` or `~/.commonplace`, which other agents share.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from typing import Any

from agent.memory_provider import MemoryProvider

from commonplace import Commonplace, CommonplaceError, Line
from commonplace.text import prose

CONTEXT_TOKENS = 400
HITS = 5
PRIMARY_AGENT = "primary"
TOOLS: list[dict[str, Any]] = [
    {
        "name": "commonplace_recall",
        "description": "Search the long-term memory by meaning and words.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            },
            "required": ["query"],
        },
    },
    {
        "name": "commonplace_remember",
        "description": "Store one self-contained fact, decision or event for later sessions.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["text"],
        },
    },
]


class CommonplaceProvider(MemoryProvider):
    """Recalls memories before each turn, and stores each turn afterwards."""

    def __init__(self, memory: Commonplace | None = None) -> None:
        self._memory = memory
        self._session = ""
        self._may_write = True
        self._turns: queue.SimpleQueue[tuple[str, list[Line]] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The name in Hermes's configuration."""
        return "commonplace"

    def is_available(self) -> bool:
        """Return True: the provider needs no key and no network."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the memory for a session; agents other than the primary one only read."""
        self._session = session_id
        self._may_write = kwargs.get("agent_context", PRIMARY_AGENT) == PRIMARY_AGENT
        if self._memory is None:
            self._memory = Commonplace(os.environ.get("COMMONPLACE_DATA") or None)
        if self._writer is None:
            self._writer = threading.Thread(
                target=self._write_turns, name="commonplace", daemon=True
            )
            self._writer.start()

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return memories of other sessions that are relevant to a prompt; may be empty."""
        if self._memory is None or not query.strip():
            return ""
        try:
            hits = self._memory.recall(query, limit=HITS)
        except CommonplaceError:
            return ""
        own = session_id or self._session
        items = [
            prose.Item(hit.memory.id, hit.memory.trust, hit.memory.text)
            for hit in hits
            if hit.memory.attrs.get("hermes_session") != own
        ]
        fitted = prose.fit_items(items, CONTEXT_TOKENS)
        return prose.envelope(fitted.items, left_out=fitted.left_out) if fitted.items else ""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,  # noqa: ARG002  (its text is in the turn)
    ) -> None:
        """Store a turn in the background."""
        if not self._may_write:
            return
        session = session_id or self._session
        spoken = (("user", "stated", user_content), ("assistant", "inferred", assistant_content))
        lines = [
            Line(speaker=speaker, text=text, session=session, trust=trust,
                 attrs={"hermes_session": session})
            for speaker, trust, text in spoken
            if text.strip()
        ]  # fmt: skip
        if lines:
            self._turns.put((f"hermes:{session}"[:500], lines))

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that the model may call."""
        return TOOLS

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **_: Any) -> str:
        """Run a tool call and return its result as JSON."""
        if self._memory is None:
            return json.dumps({"error": "The memory is not open yet."})
        try:
            return json.dumps(self._call_tool(self._memory, tool_name, args), ensure_ascii=False)
        except CommonplaceError as error:
            return json.dumps({"error": error.message, "hint": error.hint})

    def _call_tool(self, memory: Commonplace, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        if tool == "commonplace_recall":
            hits = memory.recall(args.get("query", ""), limit=args.get("limit", HITS))
            return {
                "memories": [
                    {"id": hit.memory.id, "text": hit.memory.text, "trust": hit.memory.trust}
                    for hit in hits
                ]
            }
        if tool == "commonplace_remember":
            if not self._may_write:
                return {"error": "This agent may only read."}
            stored = memory.remember(
                args.get("text", ""), tags=args.get("tags") or (), trust="inferred"
            )
            return {"id": stored.id}
        return {"error": f"Unknown tool: {tool}"}

    def on_session_switch(self, new_session_id: str, **_: Any) -> None:
        """Store later turns under the new session."""
        self._session = new_session_id

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Store the text that Hermes's own memory tool adds or changes."""
        if action != "remove" and self._may_write and self._memory is not None and content.strip():
            session = str((metadata or {}).get("session_id") or self._session)
            self._memory.remember(
                content,
                tags=[f"hermes:{target}"[:100]],
                trust="inferred",
                attrs={"hermes_session": session},
            )

    def shutdown(self) -> None:
        """Store pending turns, and close the memory."""
        if self._writer is not None:
            self._turns.put(None)
            self._writer.join()
            self._writer = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def backup_paths(self) -> list[str]:
        """Return nothing: `commonplace backup` copies the memory while it is in use."""
        return []

    def _write_turns(self) -> None:
        """Store queued turns until None is taken from the queue."""
        while (turn := self._turns.get()) is not None:
            conversation, lines = turn
            if self._memory is None:
                continue
            try:
                self._memory.conversations.add(conversation, *lines)
            except CommonplaceError as error:  # later turns may be stored all the same
                logging.getLogger("commonplace").warning(
                    "a turn was not stored: %s %s", error.message, error.hint
                )


def register_memory_provider(context: Any) -> None:
    """Register the provider; Hermes calls this as the plugin's `register`."""
    context.register_memory_provider(CommonplaceProvider())
