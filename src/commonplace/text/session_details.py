"""Find the details that summaries of a conversation tend to omit: commands, decisions, paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_DETAILS = 12
_COMMAND_CHARS = 160
_DECISION_CHARS = 240

_SHELL_BLOCK = re.compile(r"```(?:sh|bash|shell|zsh|console)\n(.*?)```", re.DOTALL)
_PROMPT_LINE = re.compile(r"^[^\S\n]*\$ (\S.*)$", re.MULTILINE)
_INLINE_COMMAND = re.compile(
    r"`((?:git|npm|pnpm|yarn|npx|uv|uvx|pip|python3?|pytest|cargo|go|make|docker|kubectl|terraform|psql"
    r"|curl|ssh|rg|sed|node|bun|deno|ruff|mypy|tox|gh|brew|apt|systemctl)(?: [^`\n]{1,150})?)`"
)
_PATH = re.compile(
    r"(?<![\w:/.@-])((?:~?/|\.{1,2}/)?(?:[\w@.+-]+/)+[\w@.+-]*\w"
    r"|[\w-]+\.(?:py|tsx?|jsx?|go|rs|md|toml|json|ya?ml|sql|sh|css|html|java|rb|c|h|cpp|lock|cfg"
    r"|ini|env))(?![\w/])"
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n")
_DECISION = re.compile(
    r"\b(?:we(?:'ve| have)? (?:decided|agreed|settled)|decided to"
    r"|let's (?:use|go with|keep|stick)|from now on|going forward|instead of"
    r"|must (?:not |never )?be|don't ever|never|always)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """The newest commands, decisions and paths, each list with the newest last."""

    commands: tuple[str, ...]
    decisions: tuple[str, ...]
    paths: tuple[str, ...]

    def without(self, summary: str) -> SessionDetails:
        """Return the details that a summary does not contain."""

        def missing(texts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(text for text in texts if text not in summary)

        return SessionDetails(missing(self.commands), missing(self.decisions), missing(self.paths))

    def lines(self) -> list[str]:
        """Return one line for each detail."""
        named = (("decided", self.decisions), ("command", self.commands), ("path", self.paths))
        return [f"- {name}: {text}" for name, texts in named for text in texts]


def session_details(texts: Iterable[str]) -> SessionDetails:
    """Return the commands, decisions and paths in the messages of a conversation."""
    commands: dict[str, None] = {}
    decisions: dict[str, None] = {}
    paths: dict[str, None] = {}
    for text in texts:
        blocks = [line for block in _SHELL_BLOCK.findall(text) for line in block.splitlines()]
        rest = _SHELL_BLOCK.sub("", text)
        found = [*blocks, *_PROMPT_LINE.findall(rest), *_INLINE_COMMAND.findall(rest)]
        for command in found:
            _put_last(commands, command.strip().removeprefix("$ "), _COMMAND_CHARS)
        for sentence in _SENTENCE_ENDS.split(text):
            if _DECISION.search(sentence):
                _put_last(decisions, " ".join(sentence.split()), _DECISION_CHARS)
        for path in _PATH.findall(text):
            if not path.startswith("//") and not re.fullmatch(r"[\d/.]+|\w/\w", path):
                _put_last(paths, path, _COMMAND_CHARS)
    return SessionDetails(*(tuple(each)[-MOST_DETAILS:] for each in (commands, decisions, paths)))


def _put_last(found: dict[str, None], text: str, most: int) -> None:
    if text and len(text) <= most and not text.startswith("#"):
        found.pop(text, None)  # The text was said again, so it becomes the newest.
        found[text] = None
