"""The command line as people and scripts use it."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import commonplace
import postgres_engine
from commonplace import Commonplace, Draft, __version__
from commonplace.cli import terminal
from commonplace.cli.app import SECTIONS, app, run
from commonplace.dialects import registry
from commonplace.errors import EXIT_CODES, CommonplaceError
from commonplace.text.hidden import escape_hidden

PROGRAM = [sys.executable, "-m", "commonplace.cli"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "data"
    monkeypatch.setenv("COMMONPLACE_DATA", str(where))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")
    return where


class Ended:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def do(data: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def act(*args: str) -> Ended:
        code = run(args)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return act


def program(*args: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *args], capture_output=True, timeout=60, **options)


# As a process


def test_remember_and_search_as_processes_in_any_locale(data: Path) -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    stored = program("remember", "Ångström さくら 🌸", "--tag", "花", env=plain)
    assert (stored.returncode, stored.stderr) == (0, b"")
    piped = program("remember", "-", input="über stdin\n".encode(), env=plain)
    assert piped.returncode == 0
    found = program("search", "さくら", env=plain)
    assert found.returncode == 0
    assert "Ångström さくら 🌸".encode() in found.stdout
    assert oct(data.stat().st_mode & 0o777) == "0o700"


def test_ctrl_c_ends_with_130_and_one_line(data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "endless.jsonl"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*PROGRAM, "import", str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with pipe.open("wb"):  # opens when the program opens it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert err.strip() == b"interrupted; everything stored so far is safe"


def test_the_program_loads_nothing_before_it_handles_an_interrupt() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom commonplace.cli import main\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert done.stdout.split() == ["__future__", "commonplace", "commonplace.cli"], done.stderr


@pytest.mark.parametrize("where", ["", "__del__"], ids=["in an import", "in a destructor there"])
@pytest.mark.parametrize("module", ["typer", "commonplace.cli.app", "commonplace.client.command"])
def test_ctrl_c_ends_with_130_while_the_program_is_loaded(
    tmp_path: Path, module: str, where: str
) -> None:
    """Python prints an exception in a destructor, and goes on."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r} and not {where!r}: signal.raise_signal(signal.SIGINT)\n"
        f"        if name == {module!r} and {where!r}: Interrupted()\n"
        "class Interrupted:\n"
        "    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [*PROGRAM, "mcp" if "client" in module else "version"], capture_output=True, timeout=60,
        env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = b"interrupted; everything stored so far is safe"
    assert (done.returncode, done.stderr.strip(), done.stdout) == (130, said, b"")


def test_ctrl_c_ends_with_130_while_a_class_is_made(tmp_path: Path) -> None:
    """Dataclasses are made with exec(), after whose interrupt Python ends by the signal."""
    (tmp_path / "interrupted.py").write_text(
        "from commonplace.cli import app, main\n"
        "app.run = lambda args: exec('import signal; signal.raise_signal(signal.SIGINT)')\n"
        "main(['list'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, timeout=60
    )
    said = b"interrupted; everything stored so far is safe"
    assert (done.returncode, done.stderr.strip()) == (130, said)


def test_a_reader_that_leaves_early_is_no_error(data: Path) -> None:
    with Commonplace(data, embedding="none") as memory:
        memory.remember_many([Draft(text="x" * 100_000) for _ in range(10)])
    process = subprocess.Popen([*PROGRAM, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    assert b"commonplace-export" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("command", [
    ("remember", "-"), ("import", "-"), ("connect", "cursor"), ("user", "add", "ann"),
    ("user", "add", "ann", "--password-stdin"), ("token", "rotate-key", "--key-stdin"),
    ("being", "llm-key"), ("hook", "recall"), ("mcp",),
], ids=" ".join)  # fmt: skip
def test_a_closed_stdin_is_an_empty_one(command: tuple[str, ...], data: Path) -> None:
    shut = ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, *command]
    home = {**os.environ, "HOME": str(data.parent)}
    done = subprocess.run(shut, capture_output=True, timeout=60, env=home)
    assert done.returncode in (0, 2) and b"Traceback" not in done.stderr, done.stderr


def test_a_closed_output_is_an_error_and_closed_complaints_are_none(data: Path) -> None:
    for closed, code in ((">&-", 5), ("2>&-", 0)):
        shut = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, "remember", "a text"]
        done = subprocess.run(shut, capture_output=True, timeout=60)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
        found = program("search", "text")
        assert (found.returncode == 0) == (code == 0), "refused before it is stored"
    shut = ["sh", "-c", 'exec "$@" 2>&-', "sh", *PROGRAM, "show", "ffff"]
    assert subprocess.run(shut, capture_output=True, timeout=60).returncode == 3


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom commonplace.cli.app import run\nassert run(['--help']) == 0\n"
        "heavy = {'numpy', 'apsw', 'onnxruntime', 'rich', 'httpx'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"commonplace remember" in done.stdout


# Commands


def test_a_memory_through_its_life(do: Callable[..., Ended]) -> None:
    stored = do("remember", "We ship on Fridays", "--kind", "decision", "--tag", "release",
                "--importance", "0.9", "--pinned", "--at", "2026-05-31", "--ref", "ship",
                "--title", "Shipping", "--trust", "inferred", "--json").json  # fmt: skip
    assert (stored["kind"], stored["tags"], stored["pinned"]) == ("decision", ["release"], True)
    assert stored["occurred_at"][:10] == "2026-05-31"
    short = stored["id"][:8]
    assert "We ship on Fridays" in do("show", short).out
    assert "2026-05-31" in do("show", "ship").out

    revised = do("revise", short, "--text", "We ship on Tuesdays", "--tag", "b", "--untag",
                 "release", "--unpinned", "--json").json  # fmt: skip
    assert (revised["text"], revised["tags"]) == ("We ship on Tuesdays", ["b"])
    assert (
        "is unchanged: it already has these values"
        in do("revise", short, "--text", "We ship on Tuesdays").out
    )
    versions = do("show", short, "--versions", "--json").lines
    assert [each["memory"]["text"] for each in versions] == [
        "We ship on Tuesdays", "We ship on Fridays",
    ]  # fmt: skip
    assert do("show", short, "--as-of", versions[1]["since"], "--json").json["text"] == (
        "We ship on Fridays"
    )
    assert "We ship on Fridays" in do("show", short, "--versions").out

    assert do("undo").out.startswith("undone: revise of ")
    assert do("show", short, "--json").json["text"] == "We ship on Fridays"
    assert do("forget", short).out == f"forgotten {stored['id']}\n"
    assert do("search", "ship").code == 1
    assert do("recover", short, "--json").json["state"] == "active"
    assert do("search", "ship").code == 0
    log = do("log", "--json").lines
    assert [each["name"] for each in log] == ["restore", "forget", "undo", "revise", "remember"]
    assert "revise (undone)" in do("log").out
    assert do("undo", log[0]["id"][:8]).code == 0
    assert do("undo", log[0]["id"][:8]).code == 4


def test_search_by_word_by_substring_with_filters_and_reasons(do: Callable[..., Ended]) -> None:
    for text, kind, tag, at in (
        ("Tomatoes need sun", "note", "garden", "2026-01-01"),
        ("Tomatoes need water", "rule", "garden", "2026-02-01"),
        ("RFC-1149 carries packets", "note", "net", "2026-03-01"),
    ):
        do("remember", text, "--kind", kind, "--tag", tag, "--at", at)
    hits = do("search", "tomatoes", "--json").lines
    assert {hit["memory"]["text"] for hit in hits} == {"Tomatoes need sun", "Tomatoes need water"}
    assert all(0 <= hit["score"] <= 1 and "words" in hit["why"] for hit in hits)
    assert "words: tomatoes" in do("search", "tomatoes", "--why").out
    assert len(do("search", "tomatoes", "--limit", "1", "--json").lines) == 1
    assert len(do("search", "tomatoes", "--kind", "rule", "--json").lines) == 1
    assert len(do("search", "tomatoes", "--tag", "net", "--json").lines) == 0
    assert len(do("search", "tomatoes", "--since", "2026-01-15", "--json").lines) == 1
    assert len(do("search", "tomatoes", "--until", "2026-01-01", "--json").lines) == 1
    assert len(do("search", "tomatoes", "--as-of", "2020-01-01", "--json").lines) == 0
    found = do("search", "fc-114", "--text", "--json")
    assert found.json["memory"]["text"] == "RFC-1149 carries packets"
    assert "1 more" in do("search", "tomat", "--text", "-n", "1").err
    nothing = do("search", "walrus")
    assert (nothing.code, nothing.out) == (1, "")
    assert nothing.err == "nothing found; --all shows improbable results\n"
    assert do("search", "walrus", "--all").err == "nothing found\n"
    assert do("search", "fc-114", "--text", "--as-of", "2020-01-01").code == 1
    assert do("search", "fc-114", "--text", "--as-of", "2099-01-01").code == 0


def test_search_marks_what_is_only_linked_with_a_result(
    do: Callable[..., Ended], data: Path
) -> None:
    with Commonplace(data, embedding="none") as memory:
        gulls = memory.remember("gulls nest here")
        memory.links.add(gulls.id, memory.remember("the budget").id, "relates_to", weight=1.0)
    first, second = do("search", "gulls", "--json").lines
    assert "companion" not in first
    assert (second["memory"]["text"], second["companion"]) == ("the budget", "linked")
    assert second["probability"] < 0.33
    assert "17% probable · linked with a result" in do("search", "gulls").out


def test_meaning_is_searched_with_the_built_in_model(do: Callable[..., Ended]) -> None:
    do("remember", "Yuki is allergic to nuts", "--embedding", "builtin")
    do("remember", "The build runs at night", "--embedding", "builtin")
    hits = do("search", "food we must not order", "--all", "--embedding", "builtin", "--json").lines
    assert hits[0]["memory"]["text"] == "Yuki is allergic to nuts"
    assert hits[0]["why"]["dense_rank"] == 1


def test_what_is_stored_cannot_steer_the_terminal(do: Callable[..., Ended]) -> None:
    evil = "red \x1b[31m bell \x07 bidi \u202e c1 \x9b2J <b>tag</b>"
    identity = do("remember", evil, "--tag", "t\x1b]0;x\x07", "--json").json["id"]
    for shown in (do("show", identity), do("search", "red"), do("search", "bell", "--why"),
                  do("show", identity, "--versions"), do("search", "bidi", "--text")):  # fmt: skip
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.out)
        assert r"\u{1b}[31m" in shown.out
        assert "<b>tag</b>" in shown.out
    assert do("show", identity, "--json").json["text"] == evil


def test_json_for_scripts_cannot_steer_the_terminal_and_stays_verbatim(
    do: Callable[..., Ended], tmp_path: Path
) -> None:
    evil = "red \x1b[31m c1 \x9b2J bidi \u202e zero \u200b tag \U000e0041 del \x7f 👩\u200d🔬 é\r\n"
    identity = do("remember", evil, "--json").json["id"]
    no_such = tmp_path / "c1 \x9b2J"
    outputs = [
        do("show", identity, "--json").out,
        do("search", "red", "--json").out,
        do("log", "--json").out,
        do("import", str(no_such), "--json").err,
    ]
    for output in outputs:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u200b\U000e0041]", output)
    assert json.loads(outputs[0])["text"] == evil
    assert "👩\u200d🔬 é" in outputs[0]
    assert "c1 \x9b2J" in json.loads(outputs[3])["error"]["message"]


def test_ids_may_be_short_but_not_ambiguous(do: Callable[..., Ended], data: Path) -> None:
    one = "abcd0000-0000-4000-8000-000000000001"
    two = "abcd0000-0000-4000-8000-000000000002"
    with Commonplace(data, embedding="none") as memory:
        memory.remember("one", id=one)
        memory.remember("two", id=two)
    unclear = do("show", "abcd")
    assert unclear.code == 4
    assert one in unclear.err and two in unclear.err
    assert do("show", one[:35]).code == 4
    assert do("show", one.upper()).code == 0
    assert do("show", "abc").code == 2
    assert do("show", "abce").code == 3
    assert do("show", "ab%_").code == 3
    assert do("undo", "ffffffff").code == 3


def test_every_error_is_one_line_or_one_object(do: Callable[..., Ended], tmp_path: Path) -> None:
    do("remember", "something", "--ref", "r")
    (tmp_path / "file").write_text("x")
    cases: list[tuple[int, list[str]]] = [
        (2, ["remember", ""]),
        (2, ["remember", "x", "--importance", "7"]),
        (2, ["remember", "x", "--importance", "much"]),
        (2, ["remember", "x", "--at", "someday, perhaps"]),
        (2, ["remember", "x", "--space", "../etc"]),
        (2, ["remember", "x", "--embedding", "magic"]),
        (2, ["search", "x", "--limit", "0"]),
        (2, ["revise", "r"]),
        (2, ["purge", "r"]),
        (2, ["nonsense"]),
        (2, ["search", "x", "--nonsense"]),
        (2, ["revise", "r", "--trust", "divine"]),
        (3, ["show", "nothing-like-it"]),
        (3, ["search", "x", "--space", "absent"]),
        (3, ["import", str(tmp_path / "absent.jsonl")]),
        (3, ["doctor", "--space", "absent"]),
        (4, ["remember", "again", "--ref", "r"]),
        (4, ["export", str(tmp_path / "file")]),
        (5, ["remember", "x", "--data", str(tmp_path / "file" / "below")]),
        (5, ["export", str(tmp_path / "absent" / "x.jsonl")]),
    ]
    for code, args in cases:
        plain = do(*args)
        assert (plain.code, plain.out) == (code, ""), (args, plain.err)
        assert re.fullmatch(r"error: [^\n]+\n", plain.err), args
        scripted = do(*args, "--json")
        assert (scripted.code, scripted.out) == (code, "")
        error = json.loads(scripted.err)["error"]
        assert error["code"] and error["message"], args
    assert do("search", "something").code == 0


def test_looking_creates_nothing(do: Callable[..., Ended], data: Path) -> None:
    for command in (["search", "x"], ["show", "abcd"], ["log"], ["spaces"], ["export"], ["doctor"]):
        assert do(*command).code == 3
    assert not data.exists()


def test_every_typed_error_has_an_exit_code() -> None:
    kinds = CommonplaceError.__subclasses__()
    assert {kind for kind in kinds if kind.__module__ == "commonplace.errors"} == set(EXIT_CODES)
    assert set(EXIT_CODES.values()) == {2, 3, 4, 5}


def test_purge_asks_and_proves(do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    identity = do("remember", "a secret that must go away entirely", "--json").json["id"]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    refused = do("purge", identity)
    assert refused.code == 1
    assert "a secret that must" in refused.err
    assert do("show", identity).code == 0
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    done = do("purge", identity)
    assert done.code == 0
    assert "no traces" in done.out
    assert do("show", identity).code == 3
    other = do("remember", "another secret to delete by script", "--json").json["id"]
    assert do("purge", other, "--yes", "--json").json["traces"] == 0


def test_an_import_says_what_it_does_not_keep(do: Callable[..., Ended], tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    identity = do("remember", "carry me", "--json").json["id"]
    do("export", str(file))
    told = do("import", str(file), "--space", "plain").err
    assert "--trust-file" in told and "--as-of" not in told
    do("revise", identity, "carry me on")
    do("export", str(file), "--overwrite")
    told = do("import", str(file), "--space", "history", "--trust-file").err
    assert "--as-of finds nothing earlier" in told and "--trust-file" not in told


def test_export_and_import_between_spaces(do: Callable[..., Ended], tmp_path: Path) -> None:
    do("remember", "carry me")
    file = tmp_path / "out.jsonl"
    report = do("export", str(file), "--json").json
    assert report["counts"] == {"memory": 1}
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert do("export").out.splitlines()[1:-1] == file.read_text().splitlines()[1:-1]
    assert do("export", "--json").code == 2
    assert do("export", str(file), "--overwrite").out.startswith("exported 1 memory to ")
    first = do("import", str(file), "--space", "b")
    assert (first.code, first.out) == (0, "imported 1 memory\n")
    again = do("import", str(file), "--space", "b", "--json").json
    assert (again["added"], again["unchanged"]) == (0, 1)
    assert do("search", "carry", "--space", "b", "--json").json["memory"]["trust"] == "external"
    assert [each["space"] for each in do("spaces", "--json").lines] == ["b", "default"]
    assert "1 memory " in do("spaces").out

    file.write_bytes(file.read_bytes()[:-20])
    assert do("import", str(file), "--space", "c").code == 2
    assert "incomplete" in do("import", str(file), "--space", "c", "--partial").out
    identity = do("search", "carry", "--json").json["memory"]["id"]
    do("remember", "other", "--space", "d", "--ref", "x")
    (tmp_path / "clash.jsonl").write_text(json.dumps({"text": "mine", "ref": "x"}))
    clash = do("import", str(tmp_path / "clash.jsonl"), "--space", "d")
    assert clash.code == 4
    assert "skipped: clash.jsonl, line 1" in clash.err
    assert identity


def test_an_import_from_stdin_is_checked_before_it_is_stored(data: Path) -> None:
    good = b"".join(b'{"text": "note %d"}\n' % i for i in range(1_200))
    bad = program("import", "-", input=good + b'{"text": 5}\n')
    assert bad.returncode == 2
    assert b"stdin, line 1201: " in bad.stderr and b"Nothing was imported" in bad.stderr
    assert program("log").stdout == b""
    taken = program("import", "-", input=good)
    assert (taken.returncode, taken.stdout) == (0, b"imported 1,200 memories\n")
    copied = program("import", "-", "--space", "copy", input=program("export").stdout)
    assert (copied.returncode, copied.stdout) == (0, b"imported 1,200 memories\n")
    through = subprocess.run(
        ["/bin/sh", "-c", f"cat | {' '.join(PROGRAM)} import /dev/stdin --json"],
        input=good, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(through.stdout)["unchanged"] == 1_200


def test_an_import_is_undone_whole_and_the_log_says_so(
    do: Callable[..., Ended], tmp_path: Path
) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(f'{{"text": "note {i}"}}\n' for i in range(1_200)))
    do("import", str(file))
    shown = do("log").out.splitlines()
    assert len(shown) == 6 and not any("import:" in line for line in shown)
    assert do("undo").out.startswith("undone: import of ")
    assert do("spaces", "--json").json["memories"] == 0
    undo, *batches = do("log").out.splitlines()[1::2]  # the second line of each
    assert "undo" in undo
    assert [line.split(" · ")[1] for line in batches] == ["import (undone)"] * 3


def test_imported_notes_are_learned_by_meaning(do: Callable[..., Ended], tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    rows = [{"text": f"Entry {i} about the weather"} for i in range(70)]
    rows.append({"text": "Yuki is allergic to nuts"})
    notes.write_text("\n".join(json.dumps(row) for row in rows))
    assert do("import", str(notes), "--embedding", "builtin").code == 0
    hit = do(
        "search", "food we must not order", "--embedding", "builtin", "-n", "1", "--all", "--json"
    )
    assert hit.json["memory"]["text"] == "Yuki is allergic to nuts"
    assert do("search", "weather", "--embedding", "builtin").err == ""


def test_a_backup_names_the_key_that_is_not_in_it(
    do: Callable[..., Ended], data: Path, tmp_path: Path
) -> None:
    do("remember", "a heron")
    assert "master.key" not in do("backup", str(tmp_path / "one")).err
    do("token", "create")
    assert str(data / "master.key") in do("backup", str(tmp_path / "two")).err
    assert not list((tmp_path / "two").rglob("master.key"))


def test_a_restore_says_that_tokens_need_the_key_of_the_old_machine(
    do: Callable[..., Ended], data: Path, tmp_path: Path
) -> None:
    do("remember", "a heron")
    do("token", "create")
    do("backup", str(tmp_path / "copy"))
    other = ("--data", str(tmp_path / "other"))
    restored = do("restore", str(tmp_path / "copy"), *other)
    assert restored.code == 0 and restored.out.startswith("restored default, system.db from ")
    assert "cannot be used yet" in restored.err and "master.key is missing" in restored.err
    (tmp_path / "other" / "master.key").write_bytes((data / "master.key").read_bytes())
    (tmp_path / "other" / "master.key").chmod(0o600)
    again = do("restore", str(tmp_path / "copy"), "--overwrite", *other)
    assert again.code == 0 and "master.key" not in again.err


def test_what_was_asked_of_a_time_before_the_first_memory_is_told(do: Callable[..., Ended]) -> None:
    do("remember", "a heron", "--kind", "bird")
    for command in (("search", "heron"), ("list",), ("search", "heron", "--text")):
        early = do(*command, "--as-of", "2020-01-01")
        assert early.code == 1 and "nothing was stored yet at that time (2020-01-0" in early.err
        assert "--all" not in early.err
    assert do("list", "--kind", "fish", "--as-of", "2099-01-01").err == "nothing found\n"


def test_a_proposal_that_is_not_there_is_not_called_a_memory(do: Callable[..., Ended]) -> None:
    do("remember", "a heron")
    gone = do("review", "accept", "zzzz")
    assert gone.code == 3 and gone.err.startswith("error: There is no proposal 'zzzz'.")
    assert "commonplace review" in gone.err
    assert "review propose" in do("review").err


def test_backup_restore_and_doctor(do: Callable[..., Ended], tmp_path: Path) -> None:
    identity = do("remember", "keep me safe", "--json").json["id"]
    target = tmp_path / "backup"
    assert do("backup", str(target)).code == 0
    assert do("restore", str(target), "--check").out.startswith("the backup is complete: default")
    do("revise", identity, "--text", "changed since")
    assert do("restore", str(target)).code == 4
    assert do("restore", str(target), "--into", "then", "--space", "default").code == 0
    assert do("show", identity, "--space", "then", "--json").json["text"] == "keep me safe"
    assert do("show", identity, "--json").json["text"] == "changed since"
    assert do("restore", str(target), "--overwrite", "--json").code == 0
    assert do("show", identity, "--json").json["text"] == "keep me safe"
    checked = do("doctor", "--json")
    assert checked.code == 0 and len(checked.lines) >= 2
    assert all(each["healthy"] for each in checked.lines)
    assert "default: healthy" in do("doctor", "--repair", "--space", "default").out


def test_tokens_are_backed_up_restored_and_examined_too(
    do: Callable[..., Ended], tmp_path: Path
) -> None:
    do("remember", "one")
    token = do("token", "create", "--dialect", "commonplace", "--json").json["id"]
    target = str(tmp_path / "backup")
    assert "default, system.db" in do("backup", target).out
    assert "default, system.db" in do("restore", target, "--check").out
    do("token", "revoke", token)
    assert do("restore", target, "--system").code == 4
    restored = do("restore", target, "--system", "--overwrite", "--json").json
    assert (restored["spaces"], restored["files"]) == ({}, ["system.db"])
    if not postgres_engine.ON_POSTGRES:  # a database keeps no former file
        assert list(restored["replaced"]) == ["system.db"]
    assert do("token", "list", "--json").lines[0]["id"] == token
    told = do("doctor", "--json").lines
    assert [each.get("file") or each["space"] for each in told] == ["default", "system.db"]
    assert all(each["healthy"] for each in told)
    assert "system.db: healthy" in do("doctor").out
    do("backup", str(tmp_path / "some"), "--space", "default")
    assert do("restore", str(tmp_path / "some"), "--system").code == 3


def test_a_damaged_row_is_told_by_the_doctor_and_the_exit_code(
    do: Callable[..., Ended], data: Path
) -> None:
    import apsw

    identity = do("remember", "rot will come", "--json").json["id"]
    connection = apsw.Connection(str(data / "spaces" / "default.db"))
    connection.execute("UPDATE memories SET text = 'rot has come'")
    connection.close()
    assert do("show", identity).code == 5
    sick = do("doctor", "--json")
    assert sick.code == 6
    assert sick.json["healthy"] is False


def test_the_version_and_the_help_of_every_command(do: Callable[..., Ended]) -> None:
    assert __version__ in do("version").out
    assert do("version", "--json").json["commonplace"] == __version__
    assert __version__ in do("--version").out
    assert do().out == do("--help").out
    names = [command.name or "" for command in app.registered_commands]
    assert set(names) >= {
        "remember", "search", "show", "revise", "promote", "forget", "recover", "purge", "undo",
        "log", "export", "import", "backup", "restore", "doctor", "demo", "spaces", "version",
    }  # fmt: skip
    for name in names:
        told = do(name, "--help")
        assert told.code == 0
        assert f"commonplace {name}" in told.out
        assert all(len(line) <= 80 for line in told.out.splitlines())


def _options(command: Any) -> set[str]:
    """All options of a command, or of the commands in a group."""
    own = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    return own.union(*(_options(sub) for sub in getattr(command, "commands", {}).values()))


def test_every_command_and_option_that_a_message_names_exists() -> None:
    """Whatever the library advises is shown by the command line, too."""
    program = typer.main.get_command(app)
    commands: dict[str, Any] = program.commands  # type: ignore[attr-defined]
    package = Path(commonplace.__file__).parent
    seen = 0
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for name, rest in re.findall(r"['`]commonplace ([a-z]+)([^'`]*)['`]", node.value):
                seen += 1
                assert name in commands, f"{file.name}: {node.value}"
                command, within = commands[name], re.match(r" ([a-z-]+)", rest)
                if hasattr(command, "commands") and within:
                    assert within[1] in command.commands, f"{file.name}: {node.value}"
                    command = command.commands[within[1]]
                for flag in re.findall(r"--[a-z][a-z-]*", rest):
                    assert flag in _options(command), f"{file.name}: {node.value}"
            if file.parent.name in ("engine", "storage"):
                for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", node.value):
                    assert flag in _options(program), f"{file.name}: {node.value}"
    assert seen > 20


def test_trust_goes_up_by_the_command_that_the_refusal_names(do: Callable[..., Ended]) -> None:
    one = do("remember", "From a stranger", "--trust", "external", "--json").json["id"]
    refused = do("revise", one, "--trust", "stated")
    assert refused.code == 2 and "Use promote" in refused.err
    assert do("promote", one[:8]).out == f"promoted {one}\n"
    assert do("show", one, "--json").json["trust"] == "stated"
    assert do("log", "-n", "1", "--json").json["name"] == "promote"
    assert do("promote", one, "--trust", "divine").code == 2
    assert do("undo").code == 0
    assert do("show", one, "--json").json["trust"] == "external"


def test_advice_is_in_words_of_the_command_line(do: Callable[..., Ended], tmp_path: Path) -> None:
    do("remember", "Something")
    do("backup", str(tmp_path / "backup"))
    taken = do("restore", str(tmp_path / "backup"))
    assert taken.code == 4 and "--into" in taken.err and "--overwrite" in taken.err
    assert "'commonplace search'" in do("show", "ffffffff").err
    assert "'commonplace log'" in do("undo", "ffffffff").err
    assert "--as-of is not a date" in do("search", "x", "--as-of", "soon").err
    assert "--since is not a date" in do("search", "x", "--since", "soon").err


# What a person sees


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand tab", "two\nlines\tand tab"),
        ("a\r\nb", "a\nb"),
        ("\x1b[2J", r"\u{1b}[2J"),
        ("\u202eabc", r"\u{202e}abc"),
        ("\u2028", r"\u{2028}"),
        ("👩\u200d🔬 日本 é", "👩\u200d🔬 日本 é"),
        ("\x85\x9b", r"\u{85}\u{9b}"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert escape_hidden(text) == shown


def test_one_line_counts_columns() -> None:
    assert terminal.one_line("a  b\n c", 10) == "a b c"
    assert terminal.one_line("日本語日本語", 7) == "日本語…"
    assert terminal.width(terminal.one_line("x日" * 50, 20)) <= 20


def test_parts_that_do_not_fit_get_another_line() -> None:
    marks = ["note · 2026-01-01", "external", "49% probable", "perhaps replaced by 09ce13e1"]
    assert terminal.join_into_lines(marks, 40) == [
        "note · 2026-01-01 · external", "49% probable", "perhaps replaced by 09ce13e1"
    ]  # fmt: skip
    assert (
        terminal.join_into_lines(["", "x" * 50], 10) == ["x" * 9 + "…"]
        and terminal.join_into_lines([], 10) == []
    )
    assert terminal.join_into_lines(["a", "b\x1b[31m\nc"], 40) == [
        "a · " + terminal.one_line("b\x1b[31m c", 40)
    ]


def test_a_bar_is_shown_only_on_a_terminal_and_after_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    for screen, seconds, shown in (
        (Terminal(), 2.0, True),
        (Terminal(), 0.5, False),
        (io.StringIO(), 2.0, False),
    ):
        monkeypatch.setattr(sys, "stderr", screen)
        clock[0] = 0.0
        with terminal.progress("Working") as show:
            clock[0] = seconds
            show(1, 2)
        assert ("Working" in screen.getvalue()) is shown


# What people trip over


def test_an_export_replaces_files_and_nothing_else(do: Callable[..., Ended], data: Path) -> None:
    do("remember", "something to export")
    pipe, real, link = data.parent / "pipe", data.parent / "real.jsonl", data.parent / "link.jsonl"
    os.mkfifo(pipe)
    refused = do("export", str(pipe), "--overwrite")
    assert (refused.code, pipe.is_fifo()) == (2, True)
    assert do("export", str(data.parent), "--overwrite").code == 2
    real.write_text("old")
    link.symlink_to(real)
    assert do("export", str(link), "--overwrite").code == 0
    assert link.is_symlink() and "something to export" in real.read_text()


def test_a_directory_that_was_there_keeps_its_mode(do: Callable[..., Ended], data: Path) -> None:
    data.mkdir(mode=0o755)
    assert do("remember", "x").code == 0
    assert data.stat().st_mode & 0o777 == 0o755
    assert (data / "spaces").stat().st_mode & 0o777 == 0o700
    new = data.parent / "new"
    assert do("remember", "x", "--data", str(new)).code == 0
    assert new.stat().st_mode & 0o777 == 0o700


def test_days_on_the_command_line_are_days_here(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    for zone in ("Asia/Tokyo", "America/New_York", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        ref = zone.replace("/", "-")
        do("remember", f"early and late in {zone}", "--at", "2026-05-01 00:30", "--ref", ref)
        do("remember", f"some time in {zone}", "--at", "2026-05-01", "--ref", ref + "-day")
        found = do(
            "search", "time early", "--since", "2026-05-01", "--until", "2026-05-01", "--json"
        )
        assert {each["memory"]["ref"] for each in found.lines} >= {ref, ref + "-day"}, zone
        assert do("search", f"early {zone}", "--until", "2026-04-30", "--json").code == 1
        do("forget", ref, ref + "-day")
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo", "Pacific/Kiritimati"])
def test_a_date_is_that_day_in_every_zone(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """An imported date is midnight in UTC; it is shown and found as that day."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    do("remember", "imported", "--at", "2026-02-28T00:00:00Z")
    do("remember", "said", "--at", "2026-02-28")
    do("remember", "the day after", "--at", "2026-03-01")
    do("remember", "late", "--at", "2026-02-28 23:30")
    for command in (["list"], ["search", "imported said day late"]):
        told = do(*command, "--since", "2026-02-28", "--until", "2026-02-28", "--json").lines
        found = {each.get("memory", each)["text"] for each in told}
        assert found == {"imported", "said", "late"}, command
    shown = do("list").out
    assert "12:00" not in shown and shown.count("2026-02-28") == 3
    assert "2026-02-28 23:30" in shown and "2026-03-01" in shown
    do("remember", "a day by its name", "--at", "yesterday", "--ref", "named")
    assert "12:00" not in do("show", "named").out
    monkeypatch.undo()
    time.tzset()


def test_a_text_is_purged_wherever_it_is_or_was(data: Path, do: Callable[..., Ended]) -> None:
    number = "5550199"
    revised = do("remember", f"Call {number}", "--json").json["id"]
    do("revise", revised, "Write a letter")
    hidden = do("remember", f"At home: {number}." + " Or not" * 20, "--json").json["id"]
    do("forget", hidden)
    live = do("remember", "unrelated, and it stays", "--json").json["id"]
    assert do("search", number, "--text").code == 1  # nothing shows it
    refused = do("purge", "--text", number)
    assert refused.code == 2 and "former version" in refused.err and hidden[:8] in refused.err
    told = next(line for line in refused.err.splitlines() if line.startswith(hidden[:8]))
    assert "  At home: [masked: text]. Or not" in told and told.endswith("…")
    done = do("purge", "--text", number, "--yes", "--json").json
    assert done["memories"] == 2 and done["traces"] == postgres_engine.NO_TRACES
    for file in data.rglob("*"):
        assert file.is_dir() or number.encode() not in file.read_bytes(), file
    assert do("show", live).code == 0 and do("show", revised).code == 3
    assert do("purge", "--text", number, "--yes").code == 3
    assert do("purge", "--text", "555").code == 2  # too short
    assert do("purge", "--text", number, live, "--yes").code == 2
    assert do("purge").code == 2


@pytest.mark.parametrize("option", ["--ref", "--source", "--tag"])
def test_a_text_is_purged_from_every_field(
    data: Path, do: Callable[..., Ended], option: str
) -> None:
    do("remember", "one", option, "note-5550199")
    assert do("purge", "--text", "5550199", "--yes", "--json").json["memories"] == 1
    for file in data.rglob("*"):
        assert file.is_dir() or b"5550199" not in file.read_bytes(), file


def test_a_purge_says_what_still_holds_the_text(data: Path, do: Callable[..., Ended]) -> None:
    do("remember", "Call 5550199")
    one, other = (do("remember", text, "--json").json["id"] for text in ("one", "other"))
    with Commonplace(data, embedding="none") as memory:
        memory.links.add(one, other, "near", reason="both have 5550199")
    (data / "server.log").write_text("5550199")
    told = do("purge", "--text", "5550199", "--yes").err
    assert "holds the text too: link " in told and "server.log" in told
    said = do("remember", "Ann moved to the harbour", "--json").json["id"]
    quoting = do("remember", "Bob says: Ann moved to the harbour!", "--json").json["id"]
    assert f"holds the text too: memory {quoting}" in do("purge", said, "--yes").err


def test_a_purge_cannot_be_undone_and_nothing_else_is_undone_instead(
    do: Callable[..., Ended],
) -> None:
    kept = do("remember", "stays for now", "--json").json["id"]
    gone = do("remember", "goes for good", "--json").json["id"]
    assert do("purge", gone, "--yes").code == 0
    refused = do("undo")
    assert refused.code == 4 and "A purge cannot be undone" in refused.err
    assert do("show", kept).code == 0


def test_an_output_that_cannot_be_written_is_told(data: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [*PROGRAM, "remember", "stored, but not told"]
        buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, timeout=60, env=buffered
        )
    assert done.returncode == 5
    assert b"Traceback" not in done.stderr and b"System error" in done.stderr
    assert b"look before you run it again" in done.stderr


def test_the_sound_rows_of_a_damaged_space_are_salvaged(
    do: Callable[..., Ended], data: Path
) -> None:
    for text in ("Alice is well", "Bob is damaged", "Carol is well"):
        do("remember", text)
    file = data / "spaces" / "default.db"
    file.write_bytes(file.read_bytes().replace(b"Bob is damaged", b"Rob is damaged"))
    assert do("doctor").code == 6
    assert do("show", "Bob").code != 0
    saved = data.parent / "saved"
    told = do("doctor", "--salvage", str(saved))
    assert told.code == 6 and "lost 1" in told.out
    assert do("doctor", "--repair", "--data", str(saved)).code == 0
    assert "Carol is well" in do("search", "Carol", "--data", str(saved)).out
    assert do("search", "damaged", "--data", str(saved)).code == 1


@pytest.mark.parametrize("command", [
    ("workspace", "list"), ("audit", "list"), ("audit", "verify"), ("audit", "list", "--system"),
    ("import", "nowhere.jsonl"), ("restore", "nowhere"), ("being", "llm-key", "--forget"),
    ("spaces",), ("doctor",), ("token", "list"), ("log",),
], ids=" ".join)  # fmt: skip
def test_looking_at_nothing_makes_nothing(
    command: tuple[str, ...], do: Callable[..., Ended], data: Path
) -> None:
    assert do(*command).code == (0 if "--forget" in command else 3)
    assert not data.exists()


def test_a_hook_ends_well_whatever_it_was_given(do: Callable[..., Ended]) -> None:
    for wrong in (("--tokens", "5"), ("--nonsense",), ("--space", "no such name")):
        done = do("hook", "recall", *wrong)
        assert (done.code, done.out) == (0, "") and done.err


def test_what_to_do_about_a_missing_space_names_it(do: Callable[..., Ended]) -> None:
    assert 'commonplace remember "…" --space other.' in do("search", "x", "--space", "other").err
    assert "commonplace workspace create acme." in do("workspace", "agents", "acme").err


def test_what_was_wrong_names_what_there_is(do: Callable[..., Ended]) -> None:
    said = do("token", "not-before", "--space", "default", "someday").err
    assert "DATE is not a date" in said and "--DATE" not in said
    assert "100. See 'commonplace hook recall" in do("hook", "recall", "--tokens", "5").err
    do("remember", "x")
    assert "commonplace being list" in do("being", "delete", "nobody").err
    do("workspace", "create", "acme")
    for command in ("messages", "say"):
        words = ("hello",) if command == "say" else ()
        told = do("workspace", command, "acme", "nothing", *words).err
        assert "commonplace workspace conversations acme" in told


def test_a_data_directory_without_a_name_is_not_the_one_we_are_in(
    do: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = do("remember", "x", "--data", "")
    assert done.code == 2 and "--data is empty" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("remember tea --project shop --global", "--global and --project"),
        ("search tea --project shop --everywhere", "--everywhere and --project"),
        ("search tea --text --by session", "--text and --by session"),
        ("search tea --text --minimum 0", "--text and --minimum"),
        ("search tea --by session --minimum 0.5", "--by session and --minimum"),
        ("search tea --all --minimum 0.9", "--all and --minimum"),
        ("show 3f2a --versions --as-of 2026-01-01", "--versions and --as-of"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    do: Callable[..., Ended], command: str, named: str
) -> None:
    do("remember", "Alice likes tea", "--project", "shop")
    done = do(*command.split())
    assert done.code == 2 and done.err == f"error: {named} exclude each other. Choose one.\n"


@pytest.mark.parametrize(
    "command",
    [
        ("import", ""), ("export", ""), ("export", "--to", "obsidian", ""), ("backup", ""),
        ("restore", ""), ("restore", " ", "--check"), ("doctor", "--salvage", ""),
        ("guard", "look", ""), ("guard", "bring-back", ""), ("workspace", "import", "acme", ""),
        ("connect", "cursor", "--config", "", "--yes"),
    ],
)  # fmt: skip
def test_an_empty_path_is_not_the_directory_we_are_in(
    do: Callable[..., Ended],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    do("remember", "We ship on Fridays")
    place = tmp_path / "here"
    place.mkdir()
    (place / "private.md").write_text("Not meant for import")
    monkeypatch.chdir(place)
    done = do(*command)
    assert done.code == 2 and " is empty. " in done.err
    assert do("search", "private import").code == 1
    assert [file.name for file in place.iterdir()] == ["private.md"]


def test_help_lists_the_dialects_that_there_are() -> None:
    from commonplace.cli.options import DIALECTS

    assert sorted(DIALECTS.split(", ")) == sorted(registry.built_in_names())


@pytest.mark.parametrize("zone", ["America/New_York", "XYZ-25:30"])
def test_a_moment_that_a_zone_cannot_show_is_shown_in_utc(zone: str, data: Path) -> None:
    with Commonplace(data, embedding="none") as memory:
        memory.remember("At the beginning", occurred_at="0001-01-01T00:30:00Z")
    odd = {**os.environ, "TZ": zone}
    shown, logged = program("search", "beginning", env=odd), program("log", env=odd)
    assert (shown.returncode, logged.returncode) == (0, 0), shown.stderr + logged.stderr
    assert b"1-01-01 00:30" in shown.stdout


def test_words_need_no_quotes_and_a_pipe_needs_no_dash(do: Callable[..., Ended]) -> None:
    stored = do("remember", "Alice", "leads", "vision", "--tag", "people", "--json").json
    assert stored["text"] == "Alice leads vision" and stored["tags"] == ["people"]
    piped = program("remember", "--json", input=b"from a pipe\n")
    assert json.loads(piped.stdout)["text"] == "from a pipe"
    empty = program("remember", stdin=subprocess.DEVNULL)
    assert empty.returncode == 2 and empty.stderr.startswith(b"error: ")
    do("revise", stored["id"], "Alice", "left")
    assert do("show", stored["id"], "--json").json["text"] == "Alice left"
    assert do("revise", stored["id"], "one", "--text", "two").code == 2
    assert do("recall", "Alice", "--json").out == do("search", "Alice", "--json").out


def test_help_is_a_command_and_every_command_is_in_one_section(do: Callable[..., Ended]) -> None:
    assert do("help").out == do("--help").out
    assert do("help", "search").out == do("search", "--help").out
    assert do("help", "token", "create").out == do("token", "create", "--help").out
    sections = [name for names in SECTIONS.values() for name in names.split()]
    assert len(sections) == len(set(sections))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(sections) <= set(commands)


def test_every_summary_fits_its_line(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def groups(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
        if found := getattr(command, "commands", None):
            yield names
            for name, each in found.items():
                yield from groups(each, *names, name)

    for names in groups(typer.main.get_command(app)):
        page = do(*names, "--help").out.splitlines()[1:]
        assert [line for line in page if line.endswith("...") or len(line) > 80] == []


def test_a_list_of_nothing_says_so_and_refused_words_create_nothing(
    do: Callable[..., Ended], data: Path
) -> None:
    assert do("remember", "").code == 2 and not data.exists()
    (data / "spaces").mkdir(parents=True)
    assert do("backup", str(data.parent / "copy")).code == 3
    assert not (data.parent / "copy").exists()
    do("token", "create")
    do("remember", "a heron")
    for command in ("user list", "workspace list", "guard list", "token list --user nobody"):
        for more in ((), ("--json",)):
            ended = do(*command.split(), *more)
            assert ended.out == "" and ended.err.count("\n") == 1, command


def test_times_may_be_words(do: Callable[..., Ended]) -> None:
    do("remember", "an old heron", "--at", "two weeks ago")
    do("remember", "a new heron")
    late = do("search", "heron", "--since", "7d", "--json").json
    early = do("search", "heron", "--until", "last week", "--json").json
    assert late["memory"]["text"] == "a new heron"
    assert early["memory"]["text"] == "an old heron"
    # neither was stored then, whatever it is about
    for then in ("1h", "an hour ago", "7d", "a month ago"):
        assert do("search", "heron", "--as-of", then).code == 1
    refused = do("search", "heron", "--since", "soon")
    assert refused.code == 2 and "yesterday" in refused.err


def test_a_repair_computes_vectors_that_are_missing(do: Callable[..., Ended]) -> None:
    do("remember", "tea is at four", "--embedding", "none")
    told = do("doctor", "--repair", "--embedding", "builtin", "--space", "default").out
    assert "computed: the vectors of 1 memory\n" in told
    assert do("doctor", "--embedding", "builtin").out.splitlines()[0] == "default: healthy"


def test_messages_say_what_there_is(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    do("remember", "tea", "--tag", "a long tag", "--tag", "another long tag")
    assert "Forgotten memories have the state archived" in do("list", "--state", "hidden").err
    assert "to name an operation" in do("undo", "ab").err
    monkeypatch.setattr(terminal, "columns", lambda: 42)
    assert "· 2 tags" in do("list").out


def test_the_hook_program_explains_itself() -> None:
    command = [sys.executable, "-m", "commonplace.client.hook", "--help"]
    shown = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert shown.returncode == 0 and shown.stdout.startswith(b"Usage: commonplace-hook")
