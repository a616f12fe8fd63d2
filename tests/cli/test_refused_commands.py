"""A command that refuses its input creates and changes no file."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from commonplace.cli.app import app, run
from commonplace.errors import StorageUnavailable
from commonplace.storage.sqlite.swap import delete_file

NO = "no/such space"  # not a valid name
# {home}: the home directory; {data}: the data directory, which does not exist; {bad}: a file that
# is not text; {csv}: CSV without a text column; {list}: JSON lines, the second of which is wrong.
REFUSED: dict[str, list[str]] = {
    "audit cut": ["--before 2026-01-01", "--before never", f"--before 2026-01-01 --space '{NO}'"],
    "audit list": ["", "--since never", f"--space '{NO}'", "--limit 0", "--system"],
    "audit verify": ["", "--head x", f"--space '{NO}'", "--system"],
    "backup": ["{home}/backup", "{home}/backup --space nowhere"],
    "being create": ["''", f"Ann --space '{NO}'", "Ann --embedding word"],
    "being delete": ["Ann", f"Ann --space '{NO}'"],
    "being list": ["", f"--space '{NO}'"],
    "being llm-key": ["", "--provider word", f"--space '{NO}'"],
    "being talk": ["Ann hello"],
    "completion": ["word"],
    "connect": ["word", "codex --dialect word --yes", "codex --transport word --yes",
                "codex --url ftp://x --yes", "codex --name 'a b' --yes", "--undo word"],
    "credit bad": ["", f"--space '{NO}'"],
    "credit good": ["", f"--space '{NO}'"],
    "database check": ["word"],
    "database init": ["word", "postgresql://127.0.0.1:1/x"],
    "demo": ["--keep {bad}"],
    "doctor": ["", "--space nowhere", "--repair"],
    "export": ["", "{home}/out.jsonl", "{home}/out --to word", "--to obsidian"],
    "forget": ["3f2a"],
    "guard bring-back": ["{home}/CLAUDE.md"],
    "guard list": [""],
    "guard look": [f"{{home}} --space '{NO}'", "{home}/nowhere.md"],
    "guard watch": [f"{{home}} --space '{NO}'", "{home}/nowhere.md"],
    "import": ["{home}/nowhere", "{bad}", "{csv}", "{list}", "{csv} --from word",
               "{csv} --from mem0", "{csv} --from mempalace", "claude-code",
               f"{{good}} --space '{NO}'", "{good} --embedding word"],
    "invite": ["''", f"ann --space '{NO}'", "ann --scope word", "ann --url ftp://x", "ann --url x"],
    "list": ["", "--limit 0", "--since never"],
    "log": ["", "--limit 0"],
    "mcp": ["--dialect being --being zz", "--dialect word", f"--space '{NO}'", "--prefix 'a b'"],
    "move": ["{home} other", "{home} postgres:/x", "{data} {home}/other", "{data} postgresql://127.0.0.1:1/x"],
    "open": ["", f"--space '{NO}'", "--url ftp://x"],
    "promote": ["3f2a", "3f2a --trust word"],
    "purge": ["3f2a --yes", "--yes", "--text x --yes"],
    "recover": ["3f2a"],
    "remember": ["''", "x --importance 2", "x --at never", "x --trust word", "x --kind 'a b'",
                 f"x --space '{NO}'", "x --embedding word", "x --tag ''",
                 "x --database word"],
    "restore": ["{home}", "{home}/nowhere", "{bad}", "{home}/nowhere --check"],
    "review": ["word", "accept", "accept 3f2a", "list --limit 0"],
    "revise": ["3f2a text", "3f2a"],
    "scan": ["", f"--space '{NO}'", "--purge --yes"],
    "search": ["x", "x --limit 0", "x --since never"],
    "serve": ["--port 99999", "--public-url x", "--embedding word", "--log word",
              "--database word", "--host 0.0.0.0 --port 0", "--host 999.1.1.1"],
    "show": ["3f2a"],
    "start": ["--yes --only word", f"--yes --space '{NO}'"],
    "stop-using": ["word --yes"],
    "token create": ["--dialect word", f"--space '{NO}'", "--scope word", "--expires never",
                     "--user ''", "--dialect being --being none"],
    "token list": ["", "--user nobody"],
    "token not-before": ["--space nowhere", f"--space '{NO}'", "--space default never"],
    "token revoke": ["none"],
    "token rotate-key": ["--purpose word", "--overlap never", "--key-stdin"],
    "undo": ["", "3f2a"],
    "user add": ["ann --password-stdin", "'' --password-stdin",
                 f"ann --password-stdin --space '{NO}'"],
    "user password": ["ann --password-stdin"],
    "user remove": ["ann"],
    "workspace add-agent": ["acme Ann"],
    "workspace add-conversation": ["acme Title"],
    "workspace add-user": ["acme ann"],
    "workspace agents": ["acme"],
    "workspace approve": ["acme none"],
    "workspace cancel": ["acme none"],
    "workspace conversations": ["acme"],
    "workspace create": ["''", "'a b'", "acme --user ''"],
    "workspace execution": ["acme none"],
    "workspace import": ["acme {home}/nowhere", "acme {csv}", "acme {bad}", f"'{NO}' {{csv}}"],
    "workspace messages": ["acme none"],
    "workspace say": ["acme none text"],
    "workspace users": ["acme"],
}  # fmt: skip
# Commands that refuse nothing: they have no argument, report what is there, or always succeed.
NEVER = {"hook recall", "restart", "service install", "service status", "service uninstall",
         "spaces", "status", "stop", "user list", "version", "workspace list"}  # fmt: skip
CASES = [(name, line) for name, lines in REFUSED.items() for line in lines]


def commands() -> Iterator[str]:
    def below(command: object, words: tuple[str, ...]) -> Iterator[str]:
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*words, name))
        if not hasattr(command, "commands"):
            yield " ".join(words)

    yield from below(typer.main.get_command(app), ())


def test_every_command_is_in_the_table() -> None:
    assert set(commands()) == set(REFUSED) | NEVER


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(each.relative_to(folder)): each.read_bytes() if each.is_file() else None
            for each in folder.rglob("*")}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "bad.md").write_bytes(b"\xff")
    (home / "table.csv").write_text("name,age\nAna,3\n")
    (home / "good.csv").write_text("text\nTea\n")
    (home / "list.jsonl").write_text('{"text": "a"}\n{"text": "b", "importance": 2}\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COMMONPLACE_DATA", str(home / "data"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    return home


@pytest.mark.parametrize(("command", "line"), CASES)
def test_a_refused_command_creates_no_file(
    home: Path, command: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(home)
    given = line.format(home=home, data=home / "data", bad=home / "bad.md", csv=home / "table.csv",
                        list=home / "list.jsonl", good=home / "good.csv")  # fmt: skip
    code = run([*command.split(), *shlex.split(given)])
    said = capsys.readouterr()
    assert code in (1, 2, 3, 4, 5), said
    assert "Traceback" not in said.err
    assert set(tree(home)) - set(before) == set()
    assert tree(home) == before


def test_a_refused_command_keeps_what_was_stored_before(home: Path) -> None:
    assert run(["remember", "Tea is in the tin.", "--embedding", "none"]) == 0
    before = tree(home)
    for line in ("remember x --importance 2", "import {csv}", "remember x --space b --kind 'a b'"):
        assert run(shlex.split(line.format(csv=home / "table.csv"))) == 2
    assert set(tree(home)) == set(before)
    assert run(["search", "tea", "--embedding", "none"]) == 0


def test_a_file_in_which_something_is_stored_is_not_deleted_as_unused(home: Path) -> None:
    assert run(["remember", "Tea is in the tin.", "--embedding", "none"]) == 0
    file = home / "data" / "spaces" / "default.db"
    with pytest.raises(StorageUnavailable):
        delete_file(file, unused="default")
    assert run(["search", "tea", "--embedding", "none"]) == 0


@pytest.mark.parametrize(
    "line", ["guard look", "guard look {bad}", "import /dev/null", "import {empty}"]
)
def test_a_command_that_stores_nothing_creates_no_file(home: Path, line: str) -> None:
    (home / "empty").mkdir()
    before = tree(home)
    assert run(line.format(bad=home / "bad.md", empty=home / "empty").split()) == 0
    assert tree(home) == before


def test_what_is_wrong_with_a_path_or_an_address_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, says in {
        f"move {home} postgresq://db/x": "begins with postgresql://",
        f"restore {home}": "is not a backup: it has no manifest.json",
        "serve --host 999.1.1.1": "999.1.1.1:3847 cannot be used",
        "serve --host 0.0.0.0 --port 0": "no credential is configured",
        f"move {home} other": "write ./other",
        "remember x --database word": "must be an address that begins with postgresql://",
    }.items():
        assert run(line.split()) != 0
        assert says in capsys.readouterr().err
