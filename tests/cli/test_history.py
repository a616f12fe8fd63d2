"""The log in words, what a search leaves out, and lines that fit a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commonplace import Commonplace, Line
from commonplace.cli.app import run
from commonplace.cli.terminal import width
from commonplace.engine.binding import engine_call
from commonplace.engine.history import audit
from commonplace.platform import review
from commonplace.storage.ports import Store

COLUMNS = 80
REFUSED = audit.Entry(
    request="", dialect="commonplace", tool="remember", caller="anna", client="", success=False,
    error="UNAUTHORIZED: The token is not accepted.", milliseconds=7, arguments="{}", result="{}",
)  # fmt: skip


def _store(memory: Commonplace) -> Store:
    return engine_call(memory, lambda space: space.store)


@pytest.fixture
def do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command that succeeds; return what it printed."""
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")
    monkeypatch.chdir(tmp_path)

    def act(*args: str) -> str:
        code = run(args)
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    return act


def _told(do: Callable[..., str]) -> str:
    return str(json.loads(do("log", "-n", "1", "--json").splitlines()[0])["changed"])


def test_the_log_says_what_was_stored_changed_hidden_and_undone(do: Callable[..., str]) -> None:
    name = do("remember", "We", "ship", "on", "Fridays").split()[-1]
    assert _told(do) == "stored: We ship on Fridays"
    do("revise", name, "We ship on Tuesdays")
    assert _told(do) == "changed: We ship on Fridays → We ship on Tuesdays"
    do("revise", name, "--tag", "release", "--importance", "0.9")
    told = _told(do)
    assert "tags none → release" in told and told.endswith(": We ship on Tuesdays")
    do("forget", name)
    assert _told(do) == "hid: We ship on Tuesdays"
    do("recover", name)
    assert _told(do) == "recovered: We ship on Tuesdays"
    assert "now: hid: We ship on Tuesdays" in do("undo")
    assert _told(do) == "hid: We ship on Tuesdays"


def test_the_log_marks_what_is_undone_but_not_what_was_redone(do: Callable[..., str]) -> None:
    def undone() -> list[bool]:
        return [json.loads(line)["undone"] for line in do("log", "--json").splitlines()]

    name = do("remember", "We", "ship", "on", "Fridays").split()[-1]
    do("revise", name, "We ship on Tuesdays")
    do("undo")
    assert undone() == [False, True, False] and "revise (undone)" in do("log")
    redo = json.loads(do("log", "-n", "1", "--json"))["id"]
    do("undo", redo)
    assert undone() == [False, False, False, False] and "(undone)" not in do("log")
    do("undo")
    assert undone() == [False, False, False, True, False]


def test_json_has_what_undo_and_purge_say_in_words(do: Callable[..., str], tmp_path: Path) -> None:
    name = do("remember", "The gate opens with a whistle").split()[-1]
    do("forget", name)
    assert json.loads(do("undo", "--json"))["changed"] == "recovered: The gate opens with a whistle"
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        fact = memory.facts.add("Ann", "said", "The gate opens with a whistle")
    assert json.loads(do("purge", name, "--yes", "--json"))["also_in"] == [f"fact {fact.id}"]


def test_the_log_counts_where_there_are_many(do: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "three.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    do("import", str(tmp_path / "three.jsonl"))
    assert _told(do) == "stored 3 memories"
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        memory.facts.add("Alice", "works on", "vision")
    assert _told(do) == "stored the fact: Alice works on vision"


def test_the_log_says_how_many_memories_were_purged(do: Callable[..., str]) -> None:
    for text in ("call 0173 5550199", "or 0173 5550199", "keep this"):
        do("remember", text)
    do("purge", "--text", "0173 5550199", "--yes")
    name = do("remember", "one more").split()[-1]
    do("purge", name, "--yes")
    told = [json.loads(line)["changed"] for line in do("log", "--json").splitlines()]
    assert told == [
        "purged 1 memory", "remember: the changed memories were purged later", "purged 2 memories",
        "stored: keep this", *["remember: the changed memories were purged later"] * 2,
    ]  # fmt: skip
    assert "purged 2 memories" in do("log") and "client cli" in do("log")


def test_the_log_shows_only_what_was_done_since(do: Callable[..., str]) -> None:
    do("remember", "today")
    assert len(do("log", "--since", "last tuesday").splitlines()) == 2
    assert do("log", "--since", "2999-01-01") == ""


def test_the_log_says_that_there_is_more_since_then(
    do: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("one", "two", "three"):
        do("remember", text)
    for limit, more in ((2, True), (3, False), (4, False)):
        assert run(["log", "--since", "yesterday", "-n", str(limit)]) == 0
        assert ("more since then" in capsys.readouterr().err) is more


def test_records_of_a_being_are_found_by_their_kind_only(do: Callable[..., str]) -> None:
    do("remember", "Nova is a star that flares up")
    do("being", "create", "Nova")
    for command in (("search", "Nova", "--all"), ("search", "Nova", "--text"), ("list",)):
        shown = do(*command)
        assert "flares up" in shown and "being" not in shown
    assert "being.soul" in do("search", "Nova", "--kind", "being.soul", "--all")
    assert "being.soul" in do("list", "--kind", "being.soul")


def test_one_memory_is_not_one_memories(
    do: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = do("remember", "alone").split()[-1]
    run(["status"])  # exits with 1: no server runs
    assert "1 memory," in capsys.readouterr().out
    assert "1 memory " in do("spaces")
    assert do("purge", name, "--yes").startswith("purged 1 memory,")


def test_a_command_with_a_typing_error_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["rember", "x"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'remember'" in told and "?." not in told


LONG = "A sentence that is much longer than one line of a terminal, and goes on and on. " * 3


def test_the_audit_names_the_tool_and_the_caller_of_a_refused_call(
    do: Callable[..., str], tmp_path: Path
) -> None:
    do("remember", "x")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        audit.append(_store(memory), REFUSED)
        audit.redact(_store(memory), [1])
    redaction, first, second = do("audit", "list").splitlines()
    assert "ok · redact · - · 0 ms" in redaction
    assert "UNAUTHORIZED: The token is not accepted." in first
    assert second.strip() == "commonplace.remember · anna · 7 ms"


@pytest.mark.parametrize(
    "command",
    [
        ("search", "sentence", "--all", "--why"), ("list",), ("log",), ("spaces",),
        ("connect", "--list"), ("token", "list"), ("--help",), ("help", "search"), ("review",),
        ("audit", "list"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_lines_fit_a_terminal_of_80_columns(
    do: Callable[..., str], command: tuple[str, ...], tmp_path: Path
) -> None:
    do("remember", LONG, "--tag", "a-rather-long-tag", "--tag", "b" * 60, "--title", "語" * 60)
    do("token", "create", "--name", "a name of the token that says at length what it is for")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        line = Line(speaker="user", text=f"Never push on Fridays! {LONG}")
        said = memory.conversations.add("talk", line)
        assert review.propose(memory, said)
        audit.append(_store(memory), REFUSED)
    main, end = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "commonplace.cli", *command],
        stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL, close_fds=True,
        env={**os.environ, "NO_COLOR": "1", "HOME": str(tmp_path), "COLUMNS": str(COLUMNS)},
    )  # fmt: skip
    os.close(end)
    shown = b""
    while True:
        try:
            part = os.read(main, 65_536)
        except OSError:  # the program has ended
            break
        if not part:
            break
        shown += part
    os.close(main)
    assert process.wait(timeout=60) == 0
    lines = shown.decode().splitlines()
    assert lines
    # a path cannot be cut without making it useless
    assert [line for line in lines if width(line) > COLUMNS and str(tmp_path) not in line] == []
