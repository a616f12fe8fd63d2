"""Answers to `initialize`, `server/discover` and `tools/list` that are generated at build time.

`tools/write_static.py` generates the files from the real server's answers; a test compares them.
Unusual requests are passed to the server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

FOLDER = os.path.join(os.path.dirname(__file__), "static")  # noqa: PTH118, PTH120
VERSION_META = "io.modelcontextprotocol/protocolVersion"
REQUIRED_META_KEYS = frozenset(
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientInfo")
) | {"io.modelcontextprotocol/clientCapabilities"}


CLIENT_INFO_KEYS = frozenset({"name", "version", "title", "description", "websiteUrl"})


class StaticAnswers:
    """The answers of a dialect that do not depend on the caller."""

    def __init__(self, given: Mapping[str, Any], prefix: str, read_only: bool) -> None:
        self._initialize: Mapping[str, Any] = given.get("initialize", {})
        self._discover: Mapping[str, Any] = given.get("discover", {})
        self._tools: Mapping[str, Any] = given.get("tools", {})
        self._prefix = prefix
        self._read_only = read_only
        self._version = ""
        self.answers_initialize = bool(self._initialize)
        """Whether `initialize` is answered from a file."""
        self.repeatable_tools = frozenset(prefix + name for name in given.get("repeatable", ()))
        """Tools whose calls are one transaction; they can be sent again with an idempotency key."""

    @classmethod
    def load(cls, dialect: str, prefix: str, read_only: bool) -> StaticAnswers:
        """Load the answers of a dialect; they are empty for a dialect without a file."""
        if not dialect.isidentifier():
            return cls({}, prefix, read_only)
        try:
            with open(f"{FOLDER}/{dialect}.json", encoding="utf-8") as file:  # noqa: PTH123
                return cls(json.load(file), prefix, read_only)
        except FileNotFoundError:
            return cls({}, prefix, read_only)

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a message; None if the server must answer."""
        identity, method = message.get("id"), message.get("method")
        if message.get("jsonrpc") != "2.0" or message.keys() - _REQUEST_KEYS:
            return None
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            return None
        params = message.get("params", {})
        if not isinstance(params, dict) or not isinstance(method, str):
            return None
        find = {
            "initialize": self._answer_initialize, "server/discover": self._answer_discover,
            "tools/list": self._list_tools,
        }.get(method)  # fmt: skip
        result = find(params) if find is not None else None
        return None if result is None else {"jsonrpc": "2.0", "id": identity, "result": result}

    def _answer_initialize(self, params: Mapping[str, Any]) -> Any:
        usual = (
            params.keys() == {"protocolVersion", "capabilities", "clientInfo"}
            and isinstance(params["capabilities"], dict)
            and is_usual_client_info(params["clientInfo"])
        )
        version = params.get("protocolVersion")
        if not usual or not isinstance(version, str) or self._version:
            return None
        result = self._initialize.get(version)
        if result is not None:
            self._version = result["protocolVersion"]
        return result

    def _answer_discover(self, params: Mapping[str, Any]) -> Any:
        return self._discover.get(_requested_version(params))

    def _list_tools(self, params: Mapping[str, Any]) -> Any:
        meta = params.get("_meta", {})
        if params.keys() - {"_meta"} or not isinstance(meta, dict):
            return None
        # A progress token does not change the answer.
        bare = not meta.keys() - {"progressToken"} and isinstance(
            meta.get("progressToken", 0), int | str
        )
        if self._version and not bare:
            return None
        found = self._tools.get(self._version if bare else _requested_version(params))
        if isinstance(found, str):  # the name of another version with the same list
            found = self._tools[found]
        if found is None:
            return None
        tools = [
            {**tool, "name": self._prefix + tool["name"]}
            for tool in found["tools"]
            if not self._read_only or tool["annotations"]["readOnlyHint"]
        ]
        return {**found, "tools": tools}


_REQUEST_KEYS = frozenset({"jsonrpc", "id", "method", "params"})


def is_usual_client_info(told: Any) -> bool:
    """Return whether a client's description of itself is valid and has no icons."""
    return (
        isinstance(told, dict)
        and told.keys() <= CLIENT_INFO_KEYS
        and {"name", "version"} <= told.keys()
        and all(isinstance(value, str) for value in told.values())
    )


def _requested_version(params: Mapping[str, Any]) -> str:
    """Return the version in a request; empty if the metadata has an unusual form."""
    meta = params.get("_meta")
    if (
        not isinstance(meta, dict)
        or params.keys() != {"_meta"}
        or meta.keys() != REQUIRED_META_KEYS
    ):
        return ""
    client = meta["io.modelcontextprotocol/clientInfo"]
    version = meta[VERSION_META]
    usual = isinstance(meta["io.modelcontextprotocol/clientCapabilities"], dict) and isinstance(
        client, dict
    )
    return version if usual and isinstance(version, str) else ""
