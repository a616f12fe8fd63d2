"""Parses JSON, JSON with comments and JSON5; inserts, replaces or removes one key in the text.

An edit changes only its own key; comments, order and layout of the rest stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from commonplace.cli.clients import Format

_TOKEN = re.compile(
    r"(?P<comment>//[^\n\r\u2028\u2029]*|/\*.*?\*/)"
    r'|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|' + r"'[^'\\]*(?:\\.[^'\\]*)*')"
    r"""|[{}\[\]:,]|(?P<word>[^\s{}\[\]:,"'/]+)|\S""",
    re.DOTALL,
)
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n\r\u2028\u2029]*|/\*[^\n]*?\*/[ \t]*)?(?=\r?\n)")
_NAME5 = re.compile(r"[^\W\d][\w$\u200c\u200d]*|\$[\w$]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NUMBER5 = re.compile(
    r"[+-]?(?:Infinity|NaN|0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII
)
_ESCAPE5 = re.compile(r'\\(\r\n|.)|"', re.DOTALL)
_ESCAPES = dict.fromkeys(["\r\n", "\n", "\r", "\u2028", "\u2029"], "")
_ESCAPES |= {each: f"\\{each}" for each in '"\\/bfnrtu'} | {"v": "\\u000b", "0": "\\u0000"}
_ESCAPES["x"] = "\\u00"  # followed by two hexadecimal digits


class NotReadable(ValueError):
    """The text is not valid, or an entry cannot be inserted."""


def read(text: str, format: Format) -> Any:
    """Parse the text; return an empty object for an empty string; raise `NotReadable`."""
    plain = text if format is Format.JSON else _plain_json(text, json5=format is Format.JSON5)
    if not plain.strip(" \t\r\n"):
        return {}

    def refuse(constant: str) -> None:
        places = (token.start() for token in _TOKEN.finditer(plain) if token[0] == constant)
        at = next(places, plain.find(constant))
        raise json.JSONDecodeError(f"{constant} is not a number", plain, at)

    try:
        return json.loads(plain, strict=format is not Format.JSON5, parse_constant=refuse)
    except RecursionError:
        raise NotReadable("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise NotReadable(f"{error.msg.rstrip()} in {where}") from None
    except ValueError as error:
        raise NotReadable(str(error)) from None


def _plain_json(text: str, *, json5: bool) -> str:
    """Convert the text to plain JSON with the same line numbers."""
    tokens = list(_TOKEN.finditer(text))
    significant = [token for token in tokens if not token["comment"]]
    before = {b.start(): a[0] for a, b in pairwise(significant)}
    after = {a.start(): b[0] for a, b in pairwise(significant)}
    parts: list[str] = []
    at = 0
    for token in tokens:
        start, written = token.start(), token[0]
        if token["comment"]:
            written = re.sub(r"[^\r\n]", " ", written)
        elif written == ",":
            trailing = after.get(start) in ("}", "]") and before.get(start) not in ("{", "[", ",")
            written = " " if trailing else ","
        elif json5 and token["string"]:
            written = f'"{_ESCAPE5.sub(_as_json_escape, written[1:-1])}"'
        elif json5 and token["word"]:
            name = after.get(start) == ":" and _NAME5.fullmatch(written)
            number = _NUMBER5.fullmatch(written) and not _NUMBER.fullmatch(written)
            # JSON5 numbers are converted to text, since they are only compared.
            written = json.dumps(written) if name or number else written
        parts += (text[at:start], written)
        at = token.end()
    return "".join((*parts, text[at:]))


def _as_json_escape(match: re.Match[str]) -> str:
    return '\\"' if match[0] == '"' else _ESCAPES.get(match[1], match[1])


# --- editing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A key and its value; positions are offsets in the text, and `value_token` is an
    index of tokens."""

    key: str
    start: int
    value_token: int
    value_start: int
    end: int
    comma: int | None


class _ParsedText:
    """A valid JSON text, parsed into tokens so that it can be edited in place."""

    def __init__(self, text: str, format: Format) -> None:
        read(text, format)
        self.text, self.format = text, format
        self.tokens = [token for token in _TOKEN.finditer(text) if not token["comment"]]
        first = re.match(r"[ \t]*\n([ \t]+)", text[text.find("{") + 1 :])
        self.indent_unit = first[1] if first else "  "

    def members(self, at: int, path: Sequence[str]) -> list[_Member]:
        """Return the members of the object that begins at this token."""
        if self.tokens[at][0] != "{":
            where = ".".join(path) or "the whole file"
            raise NotReadable(f"{where} is not a JSON object")
        found: list[_Member] = []
        at += 1
        while self.tokens[at][0] != "}":
            value = end = at + 2
            depth = 0
            while True:
                depth += (self.tokens[end][0] in "{[") - (self.tokens[end][0] in "}]")
                if not depth:
                    break
                end += 1
            comma = self.tokens[end + 1].start() if self.tokens[end + 1][0] == "," else None
            name = self.tokens[at][0]
            if "\\" in name:
                name = read(f"[{name}]", self.format)[0]
            elif name[0] in "\"'":
                name = name[1:-1]
            value_start, value_end = self.tokens[value].start(), self.tokens[end].end()
            start = self.tokens[at].start()
            found.append(_Member(name, start, value, value_start, value_end, comma))
            at = end + (1 if comma is None else 2)
        return found

    def member(self, at: int, path: Sequence[str]) -> _Member | None:
        """Return the member whose key is the last name of the path."""
        found = [each for each in self.members(at, path[:-1]) if each.key == path[-1]]
        if len(found) > 1:
            raise NotReadable(f"{'.'.join(path)} occurs more than once")
        return found[0] if found else None

    def indentation_at(self, at: int) -> str:
        """Return the indentation of the line at this position."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def render(self, value: Any, indent: str = "") -> str:
        """Return the value as JSON, with its further lines indented."""
        return json.dumps(value, ensure_ascii=False, indent=self.indent_unit).replace(
            "\n", "\n" + indent
        )

    def with_member(self, at: int, path: Sequence[str], value: Any) -> str:
        """Return the text with a new first member in the object that begins at this token."""
        opening, members = self.tokens[at].start(), self.members(at, path[:-1])
        label = f"{json.dumps(path[-1], ensure_ascii=False)}: "
        rest_of_line = _REST_OF_LINE.match(self.text, opening + 1)
        if members and rest_of_line is None:
            start = members[0].start
            added = f"{label}{json.dumps(value, ensure_ascii=False)}, "
            return self.text[:start] + added + self.text[start:]
        outer = self.indentation_at(opening)
        inner = self.indentation_at(members[0].start) if members else outer + self.indent_unit
        added = f"\n{inner}{label}{self.render(value, inner)}"
        if rest_of_line is not None:
            end = rest_of_line.end()
            return self.text[:end] + added + ("," if members else "") + self.text[end:]
        after = self.text[opening + 1 :].lstrip(" \t")
        return f"{self.text[: opening + 1]}{added}\n{outer}{after}"


def write(text: str, format: Format, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at this path of keys; create missing objects."""
    source = _ParsedText(text, format)
    if not source.tokens:
        comments = f"{text.rstrip()}\n" if text.strip() else ""
        return f"{comments}{source.render(_nest_value(path, value))}\n"
    at = 0
    for depth in range(1, len(path) + 1):
        member = source.member(at, path[:depth])
        if member is None:
            return source.with_member(at, path[:depth], _nest_value(path[depth:], value))
        at = member.value_token
    assert member is not None
    if not isinstance(value, Mapping) or source.tokens[at][0] != "{":
        written = source.render(value, source.indentation_at(member.value_start))
        return text[: member.value_start] + written + text[member.end :]
    # Replace one key after the other, to preserve comments inside the object.
    former = read(text[member.value_start : member.end], format)
    for name in former.keys() - value.keys():
        text = remove(text, format, [*path, name])
    for name in reversed(value):
        if name not in former or former[name] != value[name]:
            text = write(text, format, [*path, name], value[name])
    return text


def remove(text: str, format: Format, path: Sequence[str]) -> str:
    """Return the text without the member at this path."""
    source = _ParsedText(text, format)
    at = 0
    for depth in range(1, len(path)):
        above = source.member(at, path[:depth])
        if above is None:
            return text
        at = above.value_token
    member, members = source.member(at, path), source.members(at, path[:-1])
    if member is None:
        return text
    start, end = member.start, member.end if member.comma is None else member.comma + 1
    before, after = text[:start].rstrip(" \t\r\n"), text[end:]
    if "\n" not in text[len(before) : start]:  # another member is before it on the same line
        before, after = text[:start], after.lstrip(" \t")
    previous = members[members.index(member) - 1].comma if member is not members[0] else None
    if previous is not None and member.comma is None:
        before = before[:previous] + before[previous + 1 :]
    if before.rstrip().endswith("{") and after.lstrip().startswith("}"):
        return before.rstrip() + after.lstrip()  # the object becomes empty
    return before + after


def _nest_value(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value
