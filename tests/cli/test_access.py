"""Tokens and users from the command line."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from commonplace.access.accounts import Accounts
from commonplace.access.credentials import Unauthenticated
from commonplace.access.oauth.rows import MacRows
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.cli.app import run
from commonplace.dialects.registry import token_formats
from commonplace.engine.history import audit
from commonplace.storage.system import open_system
from postgres_engine import ON_POSTGRES

PASSWORD = "correct horse battery"


class Ended:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return line


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("COMMONPLACE_MASTER_KEY", raising=False)
    return tmp_path / "data"


@pytest.fixture
def do(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    def act(*args: str, typed: str = "") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = run(args)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return act


@contextmanager
def opened(data: Path) -> Iterator[Tokens]:
    with closing(open_system(data)) as store:
        tokens = Tokens(store, open_vault(store), token_formats(), environ={})
        yield tokens
        tokens.close()


def refused(data: Path, token: str) -> str:
    with opened(data) as tokens, pytest.raises(Unauthenticated) as error:
        tokens.recognise(token)
    return error.value.reason


@pytest.mark.parametrize("dialect", token_formats().dialects)
def test_a_token_is_printed_once_and_works(
    do: Callable[..., Ended], data: Path, dialect: str
) -> None:
    ended = do("token", "create", "--dialect", dialect, "--space", "team", "--name", "laptop")
    assert ended.code == 0
    (token,) = ended.out.splitlines()
    assert "not shown again" in ended.err and token not in ended.err
    with opened(data) as tokens:
        caller = tokens.recognise(token)
    assert caller.space == "team" and caller.dialects == {dialect}
    listed = do("token", "list")
    assert "laptop" in listed.out and token not in listed.out
    assert token not in do("token", "list", "--json").out


def test_the_orchestrators_token_is_signed_unless_it_must_say_more(
    do: Callable[..., Ended], data: Path
) -> None:
    create = ("token", "create", "--dialect", "orchestrator", "--json")
    assert do(*create).json["token"].count(".") == 1
    for more in (("--expires", "1h"), ("--scope", "read-only")):
        assert do(*create, *more).json["token"].startswith("cpt_")


def test_what_a_token_says_is_what_was_asked_for(do: Callable[..., Ended], data: Path) -> None:
    being = do("being", "create", "Aria", "--embedding", "none").out.strip()
    do("user", "add", "ana", "--password-stdin", typed=PASSWORD)
    made = do(
        "token", "create", "--dialect", "being", "--being", being, "--scope", "read-only",
        "--user", "ana", "--expires", "90d", "--json",
    ).json  # fmt: skip
    assert made["token"].startswith("brt_")
    assert (made["scope"], made["being"], made["user"]) == ("read-only", being, "ana")
    with opened(data) as tokens:
        found = tokens.credentials.find(made["token"])
    assert found.expires_at is not None
    assert found.expires_at - found.created_at == 90 * 86_400 * 1_000_000
    listed = do("token", "list", "--json").json
    assert listed["state"] == "live" and "token" not in listed
    several = do("token", "create", "--dialect", "being", "--dialect", "mama", "--json").json
    assert several["token"].startswith("cpt_") and several["dialects"] == ["being", "mama"]


@pytest.mark.parametrize(
    "options",
    [
        ("--dialect", "klingon"),
        ("--dialect", "being", "--scope", "root"),
        ("--dialect", "being", "--expires", "soon"),
        ("--dialect", "being", "--expires", "0d"),
        ("--dialect", "being", "--expires", "999999y"),
        ("--dialect", "being", "--space", "../x"),
        ("--dialect", "being", "--name", "x" * 300),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(
    do: Callable[..., Ended], options: tuple[str, ...]
) -> None:
    ended = do("token", "create", *options)
    assert ended.code == 2
    assert ended.err.startswith("error: ") and ended.out == ""


def test_a_token_is_made_only_for_a_being_that_the_space_has(
    do: Callable[..., Ended], data: Path
) -> None:
    def refusal(*options: str) -> str:
        ended = do("token", "create", "--dialect", "being", *options)
        assert (ended.code, ended.out) == (3, "")
        return ended.err

    assert "There is no being 'nosuch' in the space default." in refusal("--being", "nosuch")
    assert not data.exists()  # nothing was made, not even the place for tokens
    being = do("being", "create", "Aria", "--embedding", "none", "--space", "team").out.strip()
    memory = do("remember", "no being", "--embedding", "none", "--space", "team").out.split()[1]
    assert "being create NAME --space team" in refusal("--being", memory, "--space", "team")
    refusal("--being", being)
    assert do("token", "list").code == 3
    assert (
        do("token", "create", "--dialect", "being", "--being", being, "--space", "team").code == 0
    )
    create = ("token", "create", "--dialect", "being", "--space", "team", "--json")
    for name in ("Aria", being[:8]):
        assert do(*create, "--being", name).json["being"] == being
    do("being", "create", "aria", "--embedding", "none", "--space", "team")
    assert "There are several beings 'Aria'" in refusal("--being", "Aria", "--space", "team")
    assert do("being", "delete", being, "--space", "team").code == 0
    refusal("--being", being, "--space", "team")


def test_a_revoked_token_is_refused(do: Callable[..., Ended], data: Path) -> None:
    made = do("token", "create", "--dialect", "commonplace", "--json").json
    assert do("token", "revoke", made["id"][:8]).code == 0
    assert refused(data, made["token"]) == "revoked"
    assert do("token", "list", "--json").json["state"] == "revoked"
    assert do("token", "revoke", "00000000").code == 3
    assert do("token", "revoke", "zz").code == 2


def test_looking_makes_nothing(do: Callable[..., Ended], data: Path) -> None:
    for command in (("token", "list"), ("user", "list"), ("user", "remove", "ana")):
        assert do(*command).code == 3
    assert not data.exists()


def test_keys_are_rotated(do: Callable[..., Ended], data: Path) -> None:
    token = do("token", "create", "--dialect", "orchestrator").out.strip()
    kept = do("token", "rotate-key", "--overlap", "7d")
    assert kept.code == 0
    with opened(data) as tokens:
        assert tokens.recognise(token).user == "local"
    shown = do("token", "rotate-key", "--show", "--json").json
    assert refused(data, token) == "bad signature"
    with opened(data) as tokens:
        assert tokens.keys.newest("orchestrator").secret == shown["key"].encode()
    shared = "a key from a Kubernetes Secret"
    assert do("token", "rotate-key", "--key-stdin", typed=shared + "\n").code == 0
    with opened(data) as tokens:
        assert tokens.keys.newest("orchestrator").secret == shared.encode()
    assert do("token", "rotate-key", "--key-stdin", typed="").code == 2
    assert do("token", "rotate-key", "--purpose", "other").code == 2


def assert_by_newest_key(data: Path) -> None:
    """Every row that carries a code or a secret names the newest key."""
    with closing(open_system(data)) as store:
        newest = open_vault(store).mac("x")[:8]
        with store.read() as connection:
            columns = connection.execute(
                "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c"
                " WHERE t.type = 'table' AND c.name IN ('mac', 'sealed')"
            ).fetchall()
            assert len(columns) >= 3
            for table, column in columns:
                for (value,) in connection.execute(f"SELECT {column} FROM {table}"):
                    assert newest in bytes(value)[:9], table


def test_the_master_key_is_rotated(do: Callable[..., Ended], data: Path) -> None:
    token = do("token", "create", "--dialect", "being").out.strip()
    signed = do("token", "create", "--dialect", "orchestrator").out.strip()
    do("user", "add", "ana", "--password-stdin", typed=PASSWORD)
    assert do("token", "rotate-key", "--master").code == 0
    assert_by_newest_key(data)
    path = data / "master.key"
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.startswith("#")]
    newest = next(line for line in lines if not line.startswith("#"))
    path.write_text("\n".join([*kept, newest]))  # the new one alone
    with opened(data) as tokens:
        tokens.recognise(token)
        tokens.recognise(signed)
    assert [each["name"] for each in do("user", "list", "--json").lines] == ["ana"]


CHANGED = {
    "The token ": "UPDATE credentials SET scopes = '[\"admin\"]'",
    "The account ana": "UPDATE users SET spaces = '[\"*\"]'",
    "The signing key ": "UPDATE signing_keys SET created_at = created_at - 1",
    "The model key of the space default": "UPDATE settings SET value = zeroblob(40)"
    " WHERE name LIKE 'llm key%'",
    "The row an-app of oauth_clients": "UPDATE oauth_clients SET metadata = '{}'",
}


def test_the_doctor_finds_what_nobody_here_has_written(
    do: Callable[..., Ended], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("remember", "something", "--embedding", "none")
    do("token", "create", "--dialect", "being")
    do("token", "rotate-key")
    do("user", "add", "ana", "--password-stdin", typed=PASSWORD)
    do("being", "llm-key", typed="sk-ant-kept-by-owner\n")
    with closing(open_system(data)) as store, store.maintain() as connection:
        row = {"id": "an-app", "secret": None, "metadata": "{}  ", "created_at": 1, "used_at": 1}
        MacRows(open_vault(store)).put(connection, "oauth_clients", row)

    def doctor() -> tuple[int, dict[str, Any]]:
        ended = do("doctor", "--json", "--embedding", "none")
        return ended.code, next(each for each in ended.lines if each.get("file") == "system.db")

    assert doctor()[1]["findings"] == []
    for what, change in CHANGED.items():
        with closing(open_system(data)) as store, store.maintain() as connection:
            connection.execute(change)
            assert connection.changes() == 1
        code, told = doctor()
        assert code == 6
        assert any(each["what"].startswith(what) for each in told["findings"]), told
    assert len(told["findings"]) == len(CHANGED)
    monkeypatch.setenv("COMMONPLACE_MASTER_KEY", "A" * 43 + "=")
    code, told = doctor()
    assert code == 0 and "were not checked" in told["findings"][0]["what"]


def test_a_restore_says_which_revoked_tokens_it_brings_back(
    do: Callable[..., Ended], data: Path, tmp_path: Path
) -> None:
    do("remember", "something", "--embedding", "none")
    for _ in range(3):
        do("token", "create", "--dialect", "mama")
    ended, since, _ = [each["id"] for each in do("token", "list", "--json").lines]
    do("token", "revoke", ended)
    assert do("backup", str(tmp_path / "kept")).code == 0
    do("token", "revoke", since)
    told = do("restore", str(tmp_path / "kept"), "--overwrite", "--no-system", "--json").json
    assert told["valid_again"] == []
    told = do("restore", str(tmp_path / "kept"), "--overwrite")
    assert f"valid again: {since[:8]}. Revoke them" in told.err and ended[:8] not in told.err
    do("token", "revoke", since)
    told = do("restore", str(tmp_path / "kept"), "--overwrite", "--json").json
    assert told["valid_again"] == [since]


def test_not_before_ends_the_tokens_of_a_space(do: Callable[..., Ended], data: Path) -> None:
    token = do("token", "create", "--dialect", "mama").out.strip()
    other = do("token", "create", "--dialect", "mama", "--space", "other").out.strip()
    assert do("token", "not-before", "--space", "default", "2020-01-01").code == 0
    with opened(data) as tokens:
        tokens.recognise(token)
    ended = do("token", "not-before", "--space", "default", "now", "--json")
    assert ended.json["space"] == "default"
    assert refused(data, token) == "not before"
    with opened(data) as tokens:
        tokens.recognise(other)
    assert do("token", "not-before", "--space", "default", "2999-01-01").code == 2
    assert do("token", "not-before", "--space", "default", "whenever").code == 2


def test_users_come_and_go(do: Callable[..., Ended], data: Path) -> None:
    added = do("user", "add", "ana", "--space", "team", "--password-stdin", typed=PASSWORD + "\n")
    assert added.code == 0 and PASSWORD not in added.out + added.err
    assert do("user", "add", "ana", "--password-stdin", typed=PASSWORD).code == 4
    assert do("user", "add", "bob", "--password-stdin", typed="short").code == 2
    assert "ana" in do("user", "list").out
    assert do("user", "list", "--json").json["spaces"] == ["team"]
    token = do("token", "create", "--dialect", "being", "--user", "ana").out.strip()
    changed = do("user", "password", "ana", "--password-stdin", typed="another password")
    assert changed.code == 0
    with closing(open_system(data)) as store:
        vault = open_vault(store)
        tokens = Tokens(store, vault, token_formats(), environ={})
        accounts = Accounts(store, vault, tokens.credentials)
        assert accounts.verify("ana", PASSWORD) is None
        assert accounts.verify("ana", "another password") is not None
        tokens.recognise(token)
        tokens.close()
    assert do("user", "remove", "ana", "--json").json == {"name": "ana", "ended": 1}
    assert refused(data, token) == "revoked"
    assert do("user", "list").out == ""
    assert do("user", "remove", "ana").code == 3
    assert do("token", "create", "--dialect", "being", "--user", "ana").code == 3


def test_a_token_is_made_only_for_a_user_that_there_is(
    do: Callable[..., Ended], data: Path
) -> None:
    refused = do("token", "create", "--user", "ghost")
    assert refused.code == 3 and "There is no user ghost" in refused.err
    assert ON_POSTGRES or not data.exists()
    do("workspace", "create", "acme", "--user", "ghost")
    assert do("token", "create", "--user", "ghost").code == 3
    assert do("token", "create", "--user", "ghost", "--space", "acme").code == 0
    # An account of that name does not come with the token, unless the space is its own.
    adding = ("user", "add", "ghost", "--password-stdin")
    refused = do(*adding, "--space", "other", typed=PASSWORD)
    assert refused.code == 4 and "ghost already has tokens for acme" in refused.err
    assert do(*adding, "--space", "other", "--space", "acme", typed=PASSWORD).code == 0


def test_a_password_is_asked_for_twice_and_not_echoed(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked = list[dict[str, Any]]()

    def prompt(text: str, **options: Any) -> str:
        asked.append(options)
        return PASSWORD

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert run(["user", "add", "ana"]) == 0
    assert PASSWORD not in "".join(capsys.readouterr())
    assert asked == [{"hide_input": True, "confirmation_prompt": True, "err": True}]
    assert do("user", "add", "bob").code == 2  # nobody to ask


def test_every_change_leaves_a_line_in_the_audit_and_no_secret(
    do: Callable[..., Ended], data: Path
) -> None:
    made = do("token", "create", "--dialect", "being", "--json").json
    key = do("token", "rotate-key", "--show").out.strip()
    do("token", "not-before", "--space", "default")
    do("token", "revoke", made["id"])
    do("user", "add", "ana", "--password-stdin", typed=PASSWORD)
    do("user", "password", "ana", "--password-stdin", typed=PASSWORD + "!")
    do("user", "remove", "ana")
    with closing(open_system(data)) as store:
        calls = audit.listing(store)
        assert audit.verify(store).faults == ()
    assert [call.tool for call in reversed(calls)] == [
        "token create", "token rotate-key", "token not-before", "token revoke",
        "user add", "user password", "user remove",
    ]  # fmt: skip
    for path in data.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for secret in (made["token"], key, PASSWORD):
            assert secret.encode() not in path.read_bytes()


def test_a_master_key_that_others_can_read_stops_the_command(
    do: Callable[..., Ended], data: Path
) -> None:
    do("token", "create", "--dialect", "being")
    (data / "master.key").chmod(0o644)
    ended = do("token", "list", "--json")
    assert ended.code == 5
    error = json.loads(ended.err)["error"]
    assert error["code"] == "MASTER_KEY_REFUSED" and "chmod 600" in error["hint"]


def test_a_group_alone_shows_what_it_can_do(do: Callable[..., Ended]) -> None:
    ended = do("token", "--help")
    assert ended.code == 0
    for name in ("create", "list", "revoke", "rotate-key", "not-before"):
        assert name in ended.out
    assert do("token").code == do("user").code == 2


def test_the_command_line_starts_without_loading_what_tokens_need() -> None:
    code = (
        "import sys, commonplace.cli.access\n"
        "print([name for name in ('cryptography', 'jwt', 'commonplace.server') if name in"
        " sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("prefix", ["a b", "m.", "\u00e4_", "x" * 33, "a/b"])
def test_a_prefix_that_no_client_takes_is_refused(
    prefix: str, data: Path, do: Callable[..., Ended]
) -> None:
    ended = do("mcp", "--prefix", prefix)
    assert (ended.code, ended.out) == (2, "") and "prefix" in ended.err
    assert not data.exists()


def test_a_token_is_for_our_own_dialect_unless_another_is_named(do: Callable[..., Ended]) -> None:
    made = do("token", "create")
    assert "export COMMONPLACE_TOKEN=" in made.err and made.out.strip() not in made.err
    assert "commonplace connect claude-code --transport http" in made.err
    assert do("token", "list", "--json").json["dialects"] == ["commonplace"]


def test_an_invitation_is_an_account_and_a_token_and_can_be_taken_back(
    do: Callable[..., Ended], data: Path
) -> None:
    made = do("invite", "anna", "--space", "team", "--url", "https://memory.example.org", "--json")
    told = made.json
    assert told["spaces"] == ["team"] and len(told["password"]) >= 16
    with opened(data) as tokens:
        assert tokens.recognise(told["token"]).user == "anna"
    with closing(open_system(data)) as store:
        vault = open_vault(store)
        tokens = Tokens(store, vault, token_formats(), environ={})
        found = Accounts(store, vault, tokens.credentials).verify("anna", told["password"])
        tokens.close()
    assert found is not None
    again = do("invite", "anna")
    assert again.code == 4
    assert do("invite", "bob", "--scope", "everything").code == 2
    assert [each["name"] for each in do("user", "list", "--json").lines] == ["anna"]
    do("user", "remove", "anna")
    assert refused(data, told["token"])
    shown = do("invite", "carl").out
    assert "commonplace user remove carl" in shown and "password" in shown
