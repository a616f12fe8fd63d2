"""JSON as people write it, changed in place: comments, order and layout stay as they are.

Reads JSON, JSON with comments and trailing commas, and JSON5. A change is made to the text, not to
a value that is written anew, so that every byte outside of it survives.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.cli.clients import Format

DEPTH = 200


class NotReadable(ValueError):
    """The text is not what it should be; says where."""


@dataclass
class Node:
    """A value and where it stands."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None  # of an object


@dataclass
class Member:
    """A name with its value in an object, and the comma after it, if there is one."""

    key: str
    start: int
    node: Node
    comma: int | None = None


_SPACE = re.compile(r"[\s\ufeff]+")
_COMMENT = re.compile(r"//[^\n\r\u2028\u2029]*|/\*.*?\*/", re.DOTALL)
_PLAIN_SPACE = re.compile(r"[ \t\n\r]+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+])", re.ASCII)
_NUMBER5 = re.compile(
    r"[+-]?(?:Infinity|NaN|0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.+])",
    re.ASCII,
)
_WORD = re.compile(r"[^\W\d][\w$\u200c\u200d]*|\$[\w$]*")
# Unrolled, and not possessive: some releases of Python 3.11 get that wrong.
_ESCAPED = r'\\(?:["\\/bfnrt]|u[\da-fA-F]{4})'
_STRING = re.compile(rf'"[^"\\\x00-\x1f]*(?:{_ESCAPED}[^"\\\x00-\x1f]*)*"')
_ESCAPED5 = r"\\(?:\r\n|[^1-9xu]|x[\da-fA-F]{2}|u[\da-fA-F]{4})"
_STRING5 = re.compile(
    rf'"[^"\\\n\r]*(?:{_ESCAPED5}[^"\\\n\r]*)*"' rf"|'[^'\\\n\r]*(?:{_ESCAPED5}[^'\\\n\r]*)*'"
)
_ESCAPE5 = re.compile(r"\\(\r\n|x[\da-fA-F]{2}|u[\da-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS = {"true": True, "false": False, "null": None}


class _Reader:
    def __init__(self, text: str, format: Format) -> None:
        self.text, self.at = text, 0
        self.comments = format is not Format.JSON
        self.five = format is Format.JSON5

    def fail(self, what: str) -> NotReadable:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1
        return NotReadable(f"{what} in line {line}, column {column}")

    def skip(self) -> None:
        while True:
            space = (_SPACE if self.five else _PLAIN_SPACE).match(self.text, self.at)
            if space:
                self.at = space.end()
            if self.text[self.at : self.at + 2] not in ("//", "/*"):
                return
            if not self.comments:
                raise self.fail("there is a comment, which this file may not have,")
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                raise self.fail("a comment that does not end begins")
            self.at = comment.end()

    def document(self) -> Node | None:
        self.skip()
        if self.at == len(self.text):
            return None
        node = self.node(0)
        self.skip()
        if self.at < len(self.text):
            raise self.fail("something follows the end")
        return node

    def node(self, depth: int) -> Node:
        if depth > DEPTH:
            raise self.fail("it is nested too deeply")
        sign, start = self.text[self.at : self.at + 1], self.at
        if sign == "{":
            members = self.members(depth)
            value: Any = {member.key: member.node.value for member in members}
            return Node(start, self.at, value, members)
        if sign == "[":
            value = self.items(depth)
        elif sign == '"' or (sign == "'" and self.five):
            value = self.string()
        else:
            value = self.scalar()
        return Node(start, self.at, value)

    def members(self, depth: int) -> list[Member]:
        self.at += 1
        found: list[Member] = []
        while True:
            self.skip()
            if self.text[self.at : self.at + 1] == "}":
                if found and found[-1].comma is not None and not self.comments:
                    raise self.fail("there is a comma too many before the bracket")
                self.at += 1
                return found
            if found and found[-1].comma is None:
                raise self.fail("a comma or a closing bracket is missing")
            start, key = self.at, self.key()
            self.skip()
            if self.text[self.at : self.at + 1] != ":":
                raise self.fail("a colon is missing")
            self.at += 1
            self.skip()
            found.append(Member(key, start, self.node(depth + 1)))
            self.skip()
            if self.text[self.at : self.at + 1] == ",":
                found[-1].comma = self.at
                self.at += 1

    def key(self) -> str:
        if self.text[self.at : self.at + 1] in ('"', "'"):
            return self.string()
        word = _WORD.match(self.text, self.at) if self.five else None
        if word is None:
            raise self.fail("a name in quotation marks is missing")
        self.at = word.end()
        return word[0]

    def items(self, depth: int) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        comma = True
        while True:
            self.skip()
            if self.text[self.at : self.at + 1] == "]":
                if found and comma and not self.comments:
                    raise self.fail("there is a comma too many before the bracket")
                self.at += 1
                return found
            if not comma:
                raise self.fail("a comma or a closing bracket is missing")
            found.append(self.node(depth + 1).value)
            self.skip()
            comma = self.text[self.at : self.at + 1] == ","
            self.at += comma

    def string(self) -> str:
        match = (_STRING5 if self.five else _STRING).match(self.text, self.at)
        if match is None:
            raise self.fail("a text that does not end, or has a forbidden sign, begins")
        self.at = match.end()
        if not self.five:
            return str(json.loads(match[0]))
        text = _ESCAPE5.sub(_unescaped, match[0][1:-1])
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def scalar(self) -> Any:
        match = (_NUMBER5 if self.five else _NUMBER).match(self.text, self.at)
        if match is None:
            match = _WORD.match(self.text, self.at)
            if match is None or match[0] not in _WORDS:
                raise self.fail("a value is missing")
            self.at = match.end()
            return _WORDS[match[0]]
        self.at = match.end()
        plain = _NUMBER.fullmatch(match[0])
        return json.loads(match[0]) if plain else match[0]  # nobody here reckons with the others


def _unescaped(match: re.Match[str]) -> str:
    sign = match[1]
    if sign in ("\r\n", "\n", "\r", "\u2028", "\u2029"):
        return ""
    if len(sign) > 1:
        return chr(int(sign[1:], 16))
    return _ESCAPES.get(sign, sign)


def read(text: str, format: Format) -> Any:
    """The value, or an empty object where there is none; raises `NotReadable`."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=_no_constant)  # plain JSON is also the other two
    node = _Reader(text, format).document()
    return {} if node is None else node.value


def _no_constant(name: str) -> None:
    raise NotReadable(f"{name} is no number")


def write(text: str, format: Format, path: Sequence[str], value: Any) -> str:
    """The text with the value at this path of names; what is not there is made."""
    root = _Reader(text, format).document()
    newline = "\r\n" if "\r\n" in text else "\n"
    layout = _Layout(text, newline, _unit(text, root))
    if root is None:
        comments = text.rstrip() + newline if text.strip() else ""
        return comments + layout.rendered(_nested(path, value)) + newline
    node = parent = root
    for depth, name in enumerate(path):
        member = _member(node, name, path[:depth])
        if member is None:
            return layout.inserted(node, name, _nested(path[depth + 1 :], value))
        node, parent = member.node, node
    if isinstance(value, Mapping) and node.members is not None:
        return _merged(text, format, path, node, value)
    flat = "\n" not in text[parent.start : parent.end]
    written = layout.rendered(value, layout.indent(node.start), flat=flat)
    return text[: node.start] + written + text[node.end :]


def _merged(
    text: str, format: Format, path: Sequence[str], node: Node, value: Mapping[str, Any]
) -> str:
    """One name after the other, so that comments inside of the object stay."""
    for name in [name for name in node.value if name not in value]:
        text = remove(text, format, [*path, name])
    for name in value:
        if name not in node.value or node.value[name] != value[name]:
            text = write(text, format, [*path, name], value[name])
    return text


def remove(text: str, format: Format, path: Sequence[str]) -> str:
    """The text without what is at this path."""
    node = _Reader(text, format).document()
    if node is None:
        return text
    for depth, name in enumerate(path[:-1]):
        above = _member(node, name, path[:depth])
        if above is None:
            return text
        node = above.node
    member = _member(node, path[-1], path[:-1])
    if member is None or node.members is None:
        return text
    end = member.node.end if member.comma is None else member.comma + 1
    before, after = text[: member.start], text[end:]
    line_start = re.search(r"\r?\n[ \t]*\Z", before)
    line_end = re.match(r"[ \t]*(?=\r?\n)", after)
    if line_start and line_end:
        before, after = before[: line_start.start()], after[line_end.end() :]
    elif member.comma is not None:
        after = after.lstrip(" \t")
    else:
        before = before.rstrip(" \t")
    previous = node.members.index(member) - 1
    if previous >= 0 and member.comma is None:
        comma = node.members[previous].comma
        if comma is not None:
            before = before[:comma] + before[comma + 1 :]
    closing = len(before) + len(after) - (len(text) - node.end + 1)
    inside = (before + after)[node.start + 1 : closing]
    if len(node.members) == 1 and not inside.strip():
        return text[: node.start] + "{}" + text[node.end :]
    return before + after


def _member(node: Node, name: str, above: Sequence[str]) -> Member | None:
    if node.members is None:
        where = ".".join(above) or "the whole file"
        raise NotReadable(f"{where} is not an object with names and values")
    found = [member for member in node.members if member.key == name]
    if len(found) > 1:
        raise NotReadable(f"{'.'.join((*above, name))} is there more than once")
    return found[0] if found else None


def _nested(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _unit(text: str, root: Node | None) -> str:
    """What one level is indented by: as the first line that is."""
    if root is not None and root.members:
        first = re.search(r"\n([ \t]+)\Z", text[: root.members[0].start])
        if first:
            return first[1]
    return "  "


@dataclass
class _Layout:
    text: str
    newline: str
    unit: str

    def indent(self, at: int) -> str:
        """The indentation of the line that this position is in."""
        line = self.text.rfind("\n", 0, at) + 1
        found = re.match(r"[ \t]*", self.text[line:at])
        return found[0] if found else ""

    def rendered(self, value: Any, indent: str = "", *, flat: bool = False) -> str:
        """The value as text, its further lines indented."""
        if flat:
            return json.dumps(value, ensure_ascii=False)
        lines = json.dumps(value, ensure_ascii=False, indent=self.unit).split("\n")
        return (self.newline + indent).join(lines)

    def inserted(self, node: Node, name: str, value: Any) -> str:
        """The text with a new last member in this object."""
        if node.members is None:
            raise NotReadable("what should have names and values is something else")
        text, outer = self.text, self.indent(node.start)
        label = json.dumps(name, ensure_ascii=False) + ": "
        if not node.members:
            inside = text[node.start + 1 : node.end - 1].rstrip()
            inner = outer + self.unit
            return (
                text[: node.start + 1] + inside + self.newline + inner + label
                + self.rendered(value, inner) + self.newline + outer + text[node.end - 1 :]
            )  # fmt: skip
        last = node.members[-1]
        after = last.node.end if last.comma is None else last.comma + 1
        comma = "," if last.comma is None else ""
        trailing = "" if last.comma is None else ","
        if "\n" not in text[node.start : node.end]:
            return (
                text[:after] + comma + " " + label + self.rendered(value, flat=True)
                + trailing + text[after:]
            )  # fmt: skip
        inner = self.indent(last.start)
        if text[text.rfind("\n", 0, last.start) + 1 : last.start].strip():
            inner = outer + self.unit  # the last one does not begin its line
        rest = re.match(r"(?:[ \t]*/\*[^\n]*?\*/)*[ \t]*(?://[^\n\r\u2028\u2029]*)?", text[after:])
        kept = rest[0].rstrip() if rest else ""
        return (
            text[:after] + comma + kept + self.newline + inner + label
            + self.rendered(value, inner) + trailing + text[after + len(kept) :]
        )  # fmt: skip
