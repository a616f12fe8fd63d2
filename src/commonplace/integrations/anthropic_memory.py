"""Anthropic's memory tool (`memory_20250818`), whose files are stored as memories.

>>> from commonplace import Commonplace
>>> from commonplace.integrations.anthropic_memory import CommonplaceMemoryTool
>>> tool = CommonplaceMemoryTool(Commonplace("~/.commonplace"))
>>> client.beta.messages.run_tools(model=…, messages=…, tools=[tool]).until_done()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    ToolError,
)
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from commonplace import Commonplace, CommonplaceError
from commonplace.platform import memory_files

P = ParamSpec("P")


def _report_errors(function: Callable[Concatenate[Commonplace, P], str]) -> Callable[..., str]:
    """Decorate a command: convert our errors to the SDK's, so that the model reads their
    messages."""

    @wraps(function)
    def run(memory: Commonplace, *args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return function(memory, *args, **kwargs)
        except CommonplaceError as error:
            raise ToolError(error.message) from error

    return run


_view = _report_errors(memory_files.view)
_create = _report_errors(memory_files.create)
_str_replace = _report_errors(memory_files.str_replace)
_insert = _report_errors(memory_files.insert)
_delete = _report_errors(memory_files.delete)
_rename = _report_errors(memory_files.rename)
_clear = _report_errors(memory_files.clear_all)


class CommonplaceMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `Anthropic`."""

    def __init__(self, memory: Commonplace, **options: Any) -> None:
        super().__init__(**options)
        self.memory = memory

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """List a directory, or return the lines of a file."""
        return _view(self.memory, command.path, command.view_range)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Store a new file."""
        return _create(self.memory, command.path, command.file_text)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once."""
        return _str_replace(self.memory, command.path, command.old_str, command.new_str)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        return _insert(self.memory, command.path, command.insert_line, command.insert_text)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Hide a file or a directory."""
        return _delete(self.memory, command.path)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file or a directory."""
        return _rename(self.memory, command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        """Hide every file."""
        return _clear(self.memory)


class AsyncCommonplaceMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for `AsyncAnthropic`; it works in threads."""

    def __init__(self, memory: Commonplace, **options: Any) -> None:
        super().__init__(**options)
        self._tool = CommonplaceMemoryTool(memory)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """List a directory, or return the lines of a file."""
        return await asyncio.to_thread(self._tool.view, command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Store a new file."""
        return await asyncio.to_thread(self._tool.create, command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once."""
        return await asyncio.to_thread(self._tool.str_replace, command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        return await asyncio.to_thread(self._tool.insert, command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Hide a file or a directory."""
        return await asyncio.to_thread(self._tool.delete, command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file or a directory."""
        return await asyncio.to_thread(self._tool.rename, command)

    async def clear_all_memory(self) -> str:
        """Hide every file."""
        return await asyncio.to_thread(self._tool.clear_all_memory)
