"""Commands for access: tokens and user accounts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import options
from commonplace.cli.options import (
    DIALECTS,
    AsJson,
    Data,
    Space,
    argument,
    has_system_store,
    open_system,
    option,
)
from commonplace.cli.terminal import (
    bold,
    columns,
    count_with_noun,
    dim,
    emit_json,
    join_into_lines,
    local_time,
    note,
    one_line,
    say,
    tell,
)
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.access.accounts import Accounts
    from commonplace.access.caller import Scope
    from commonplace.access.credentials import Credential
    from commonplace.access.signed import Tokens
    from commonplace.access.vault import Vault
    from commonplace.storage.ports import Store

LOCAL_USER = "local"  # the default user of a token
_DURATION = re.compile(r"(\d{1,6})([smhdwy])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_557_600}

token = typer.Typer(help="Manage access tokens.", rich_markup_mode=None)
user = typer.Typer(
    help="Manage users, who can sign in and allow apps access.", rich_markup_mode=None
)
GROUPS = {"token": token, "user": user}

User = Annotated[str, option("--user NAME", "The user that the token belongs to.")]
PasswordStdin = Annotated[
    bool, option("--password-stdin", "Read the password from standard input.")
]


@dataclass(frozen=True, slots=True)
class _Access:
    """The open system.db with its tokens and accounts."""

    store: Store
    vault: Vault
    tokens: Tokens
    accounts: Accounts

    def sealed_row_owners(self) -> tuple[Any, ...]:
        """Return the owners of all rows that are encrypted, or have a MAC, under the master key."""
        from commonplace.access.oauth import MacRows
        from commonplace.platform import sealed

        rows, settings = MacRows(self.vault), sealed.all_sealed_settings(self.store, self.vault)
        return self.tokens.credentials, self.tokens.keys, self.accounts, rows, *settings

    def write_audit_entry(self, what: str, **details: Any) -> None:
        """Write an audit entry; the details must not contain a secret."""
        from commonplace.engine.history import audit

        audit.append(
            self.store,
            audit.Entry(
                request="", dialect="cli", tool=what, caller="local", client="cli", success=True,
                milliseconds=0, arguments=json.dumps(details, ensure_ascii=False), result="{}",
            ),
        )  # fmt: skip


@contextmanager
def open_access(data: Path | None, *, create: bool = False) -> Iterator[_Access]:
    """Open system.db of a data directory; without `create`, raise NotFound if it does not exist."""
    from commonplace.access.accounts import Accounts
    from commonplace.access.signed import Tokens
    from commonplace.access.vault import open_vault
    from commonplace.dialects import registry
    from commonplace.engine.library import directory

    where = directory(data)
    if not create and not has_system_store(data):
        raise NotFound(
            f"There are no tokens or users in {where} yet.",
            hint="Create one with 'commonplace token create' or 'commonplace user add'.",
            field="data",
        )
    store = open_system(data)
    try:
        vault = open_vault(store)
        tokens = Tokens(store, vault, registry.token_formats())
        try:
            yield _Access(store, vault, tokens, Accounts(store, vault, tokens.credentials))
        finally:
            tokens.close()
    finally:
        store.close()


@token.command("create")
def create_token(
    dialect: Annotated[
        list[str] | None,
        option(
            "--dialect NAME",
            f"The dialect that the token is for; repeatable. {DIALECTS}.",
            show_default="commonplace",
        ),
    ] = None,
    space: Space = "default",
    scope: Annotated[
        str, option("--scope full|read-only|admin", "The scope of the token.")
    ] = "full",
    subject: Annotated[
        str,
        option(
            "--subject --being ID",
            "Limit the token to this subject, such as a being: its id, the id's beginning, or its"
            " name.",
        ),
    ] = "",
    name: Annotated[str, option("--name TEXT", "A name for the token.")] = "",
    expires: Annotated[
        str | None, option("--expires 90d", "The lifetime of the token: 12h, 90d, 1y.")
    ] = None,
    user: User = LOCAL_USER,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a token. It is shown once.

    For the orchestrator the token is signed, as its contract requires. A signed token has no
    expiry and full scope, so with --expires or another --scope the token is opaque.

    \b
      commonplace token create --name "laptop"
      commonplace token create --scope read-only --expires 90d
      commonplace token create --dialect being --being 7c9e…
    """
    from commonplace.access.credentials import Grant, check_grant
    from commonplace.dialects import registry

    dialect = dialect or ["commonplace"]
    for given in dialect:
        if given != "server":  # not a dialect, but the server's own operations, such as /metrics
            registry.checked_name(given)
    scopes = _scopes_of(scope)
    lifetime = None if expires is None else parse_duration(expires, "expires")
    if subject:
        subject = _subject_id(data, space, dialect, subject)
    grant = Grant(
        user=user, space=space, scopes=scopes, dialects=frozenset(dialect), name=name,
        subject=subject, lifetime=lifetime,
    )  # fmt: skip
    check_grant(grant)  # check before a file is created
    _check_user(data, space, user)
    with open_access(data, create=True) as access:
        formats = [access.tokens.credentials.formats.dialects[name] for name in set(dialect)]
        signed = access.tokens.hmac.get(dialect[0]) if len(formats) == 1 else None
        if signed and scope == "full" and lifetime is None and not subject:
            issued = signed.issue(user, space, name=name)
        else:
            issued = access.tokens.credentials.create(grant)
        access.write_audit_entry("token create", **issued.credential.as_dict())
    tell(as_json, {"token": issued.token, **issued.credential.as_dict()}, issued.token)
    note(
        f"Copy it now: it is not shown again. Revoke it with: {_revoke_command(issued.credential)}"
    )
    if not as_json and dialect != ["server"]:
        # Scripts often log standard error, which must not contain the token.
        shown = issued.token if sys.stdout.isatty() else "…"
        note(
            "To use the token with an agent on this machine:",
            *_connect_commands(shown, dialect[0], url=None),
        )


def _connect_commands(token: str, dialect: str, url: str | None) -> list[str]:
    """Return the commands that add a token to an agent's configuration."""
    from commonplace.dialects import registry

    lines = [f"  export COMMONPLACE_TOKEN={token}"]
    if url is None:
        options = "" if dialect == "commonplace" else f" --dialect {dialect}"
        lines.append(f"  commonplace connect claude-code --transport http{options} \\")
    else:
        address = url.rstrip("/") + registry.load(dialect).paths[0]
        lines.append(f"  commonplace connect claude-code --url {address} \\")
    return [*lines, "    --token-env COMMONPLACE_TOKEN"]


def invite(
    name: Annotated[str, argument("NAME", "The person's user name.")],
    space: Space = "default",
    scope: Annotated[
        str, option("--scope full|read-only|admin", "The scope of the person's token.")
    ] = "full",
    url: Annotated[str | None, option("--url URL", "The server's address for the person.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create an account and a token for a person.

    The password, the token and the commands to connect are shown once. `commonplace user remove
    NAME` revokes the access.

    \b
      commonplace invite anna --space team --url https://memory.example.org
    """
    import secrets

    from commonplace.access.accounts import check_new_account
    from commonplace.access.credentials import Grant
    from commonplace.cli.connect import valid_url

    scopes, password = _scopes_of(scope), secrets.token_urlsafe(12)
    check_new_account(name, password, [space])  # check before a file is created
    if url is not None:
        valid_url(url)
    with open_access(data, create=True) as access:
        account = access.accounts.add(name, password, [space])
        issued = access.tokens.credentials.create(
            Grant(
                user=account.name,
                space=space,
                scopes=scopes,
                dialects=frozenset({"commonplace"}),
                name=f"invitation of {account.name}"[:100],
            )
        )
        access.write_audit_entry("invite", **account.as_dict(), token=issued.credential.id)
    result = {
        **account.as_dict(), "password": password, "token": issued.token,
        "token_id": issued.credential.id,
    }  # fmt: skip
    if as_json:
        emit_json(result)
        return
    say(
        f"{escape_hidden(account.name)} can use the space {space}."
        " Send this, which is not shown again:"
    )
    say(f"  password  {password}", f"  token     {issued.token}")
    say(
        "To connect an agent, on the person's machine:",
        *_connect_commands(issued.token, "commonplace", url),
    )
    say(f"To revoke the access: commonplace user remove {escape_hidden(account.name)}")
    if url is None:
        note("Without --url the commands connect to a server on this machine.")


def _scopes_of(name: str) -> frozenset[Scope]:
    from commonplace.access.credentials import SCOPE_NAMES

    if name not in SCOPE_NAMES:
        raise InvalidInput(
            f"Unknown scope {name!r}.",
            hint=f"The scopes are: {', '.join(SCOPE_NAMES)}.",
            field="scope",
        )
    return SCOPE_NAMES[name]


def _revoke_command(credential: Credential) -> str:
    return f"commonplace token revoke {credential.id[:8]}"


def _check_user(data: Path | None, space: str, user: str) -> None:
    """Refuse a user who has no account and no profile in the space's workspace."""
    from commonplace.dialects.orchestrator import workspaces

    if user == LOCAL_USER:
        return
    with suppress(NotFound), open_access(data) as access:
        access.accounts.get(user)
        return
    with suppress(NotFound), options.open_memory(data, space) as memory:
        if any(each["id"] == user for each in workspaces.profiles(memory)):
            return
    raise NotFound(
        f"There is no user {user}.",
        hint=f"Add an account first ('commonplace user add {user}'), or omit --user and give"
        " the token a --name.",
        field="user",
    )


def _subject_id(data: Path | None, space: str, dialects: list[str], subject: str) -> str:
    """Return the id of the subject that is named; raise NotFound if the space does not have it."""
    from commonplace.access.caller import Caller
    from commonplace.dialects import registry

    for name in dialects:
        declared = registry.load(name).subject
        if declared is None:
            raise InvalidInput(
                f"The dialect {name} has no subjects.", hint="Omit --subject.", field="subject"
            )
        noun = declared.title.lower()
        try:
            with options.open_memory(data, space) as memory:
                subject = declared.find_named(memory, subject).id
                declared.identify(memory, Caller(space=space), [subject])
        except NotFound as error:
            if error.field == noun:
                raise
            raise NotFound(  # there is no such space
                f"There is no {noun} {subject[:80]!r} in the space {space}.",
                hint=f"See 'commonplace {noun} list --space {space}', or create one:"
                f" 'commonplace {noun} create NAME --space {space}'.",
                field=noun,
            ) from None
    return subject


@token.command("list")
def list_tokens(
    user: Annotated[str | None, option("--user NAME", "Only tokens of this user.")] = None,
    space: Annotated[str | None, option("--space NAME", "Only tokens of this space.")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, the newest first. With --json, one object per line.

    A server updates the times of last use once a minute.
    """
    with open_access(data) as access:
        found = access.tokens.credentials.listing(user=user, space=space)
    if not found:
        note("No tokens were found.")
    for credential in found:
        if as_json:
            emit_json({**credential.as_dict(), "state": _token_state(credential)})
        else:
            _show_token(credential)


def _token_state(credential: Credential) -> str:
    from commonplace.storage.database import now

    if credential.revoked_at is not None:
        return "revoked"
    if credential.expires_at is not None and credential.expires_at <= now():
        return "expired"
    return "live"


def _show_token(credential: Credential) -> None:
    from commonplace.access.credentials import scope_name
    from commonplace.engine.model import moment

    dialects = "any" if credential.dialects is None else ", ".join(sorted(credential.dialects))
    state = _token_state(credential)
    until = ""
    if state == "live" and credential.expires_at is not None:
        until = f" until {local_time(moment(credential.expires_at), seconds=True)}"
    used = "never used"
    if credential.last_used:
        used = f"used {local_time(moment(credential.last_used), seconds=True)}"
    room = columns() - 10
    who = f"{credential.user}, space {credential.space}, {dialects}"
    named = f"{state + until:<9}  {scope_name(credential.scopes):<9}  {credential.name or who}"
    made = f"made {local_time(moment(credential.created_at), seconds=True)}"
    say(f"{bold(credential.id[:8])}  {one_line(named, room)}")
    for line in join_into_lines((who if credential.name else "", made, used), room, ", "):
        say(dim(f"          {line}"))


@token.command("revoke")
def revoke_token(
    identity: Annotated[str, argument("ID", "The ID from the list, or its first characters.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token."""
    with open_access(data) as access:
        credential = access.tokens.credentials.revoke(identity)
        access.write_audit_entry("token revoke", id=credential.id)
    text = f"revoked {credential.id} {one_line(credential.name, 40)}".rstrip()
    tell(as_json, credential.as_dict(), text)


@token.command("rotate-key")
def rotate_key(
    purpose: Annotated[
        str, option("--purpose orchestrator|penfield", "The dialect of the tokens.")
    ] = "orchestrator",
    overlap: Annotated[
        str, option("--overlap 0|7d", "How long tokens of the old key are accepted.")
    ] = "0",
    key_stdin: Annotated[
        bool, option("--key-stdin", "Read a shared key from standard input.")
    ] = False,
    show: Annotated[
        bool, option("--show", "Print the new key, to share it with another issuer.")
    ] = False,
    master: Annotated[
        bool, option("--master", "Replace the master key, and encrypt all secrets again.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Replace a signing key. Tokens of the old key become invalid at once, or after --overlap."""
    from commonplace.access.signed import check_new_key
    from commonplace.dialects import registry

    seconds = 0.0 if overlap == "0" else parse_duration(overlap, "overlap")
    secret = sys.stdin.readline().strip().encode() if key_stdin and not master else None
    # Check before a file is created.
    check_new_key(registry.token_formats(), purpose, secret, seconds)
    with open_access(data, create=True) as access:
        if master:
            _rotate_master_key(access)
            access.write_audit_entry("token rotate-key", master=True)
            text = "keys, tokens and accounts are encrypted with the new master key"
            tell(as_json, {"purpose": "master"}, text)
            note("The old key is kept, since older backups need it.")
            if access.vault.file is not None and options.database_of(data) is not None:
                file = escape_hidden(str(access.vault.file))
                note(f"Copy {file} to the other servers of the database now: without the new key"
                     " they accept no token.")  # fmt: skip
            return
        key = access.tokens.keys.rotate(purpose, secret=secret, overlap=seconds)
        access.write_audit_entry("token rotate-key", purpose=purpose, key=key.id, overlap=seconds)
    shown = {"key": key.secret.decode("utf-8", "replace")} if show else {}
    text = shown.get("key") or f"signing {purpose} tokens with the new key {key.id}"
    tell(as_json, {"id": key.id, "purpose": purpose, **shown}, text)
    if show:
        note("Copy it now: it is not shown again.")


def _rotate_master_key(access: _Access) -> None:
    """Replace the master key: encrypt the keys again, and compute the MACs of all rows again."""
    access.vault.rotate(access.store, [each.reseal_rows for each in access.sealed_row_owners()])


def token_ids_by_state(data: Path) -> tuple[set[str], set[str]]:
    """Return (ids of revoked tokens, ids of the others); both empty if the file cannot be read."""
    from commonplace.storage import credentials

    found: tuple[set[str], set[str]] = set(), set()
    if has_system_store(data):
        with (
            suppress(CommonplaceError),
            closing(open_system(data)) as store,
            store.read() as rows,
        ):
            for row in credentials.select(rows):
                found[row.revoked_at is None].add(row.id)
    return found


def damaged_rows(data: Path) -> list[str]:
    """Return tokens, keys, accounts and OAuth connections with damaged rows."""
    from commonplace.access.vault import has_master_key

    with closing(open_system(data)) as store:
        if not has_master_key(store):  # a check must not create a master key
            return []
    with open_access(data) as access, access.store.read() as connection:
        return [
            each for owner in access.sealed_row_owners() for each in owner.damaged_rows(connection)
        ]


@token.command("not-before")
def end_tokens_before(
    space: Annotated[str, option("--space NAME", "The space.")],
    at: Annotated[str, argument("now|DATE", "The time.")] = "now",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Invalidate a space's tokens created before a time.

    A signed token without a timestamp is invalidated unless its key was created later.
    """
    from commonplace.engine import checks
    from commonplace.engine.model import iso, moment

    when = None
    if at != "now":
        when = checks.time(options.parse_time(at, "DATE"), "DATE")
    with open_access(data) as access:
        if not access.tokens.credentials.listing(space=space):
            with options.open_memory(data, space):  # raises NotFound if there is no such space
                pass
        held = access.tokens.credentials.invalidate_created_before(space, when)
        access.write_audit_entry("token not-before", space=space, at=iso(moment(held)))
    shown = local_time(moment(held), seconds=True)
    text = f"tokens of {space} created before {shown} are no longer valid"
    tell(as_json, {"space": space, "not_before": iso(moment(held))}, text)


@user.command("add")
def add_user(
    name: Annotated[str, argument("NAME", "The user name.")],
    space: Annotated[
        list[str] | None, option("--space NAME", "A space of the user; repeatable.")
    ] = None,
    password_stdin: PasswordStdin = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Add a user. Without --space, the user gets the space `default`."""
    from commonplace.access.accounts import check_new_account

    password = _ask_password(password_stdin)
    check_new_account(name, password, space or ["default"])  # check before a file is created
    with open_access(data, create=True) as access:
        account = access.accounts.add(name, password, space or ["default"])
        access.write_audit_entry("user add", **account.as_dict())
    text = f"{escape_hidden(account.name)} can log in and use {', '.join(account.spaces)}"
    tell(as_json, account.as_dict(), text)


@user.command("list")
def list_users(data: Data = None, as_json: AsJson = False) -> None:
    """List users. With --json, one object per line."""
    with open_access(data) as access:
        found = access.accounts.listing()
    if not found:
        note("There are no users. Add one: commonplace invite NAME.")
    for account in found:
        text = f"{bold(escape_hidden(account.name)):<24}  {', '.join(account.spaces)}"
        tell(as_json, account.as_dict(), text)


@user.command("remove")
def remove_user(
    name: Annotated[str, argument("NAME", "The user name.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Remove a user and revoke their tokens. Memories are not deleted."""
    with open_access(data) as access:
        ended = access.accounts.remove(name)
        access.write_audit_entry("user remove", name=name, ended=ended)
    text = f"{escape_hidden(name)} was removed; revoked {count_with_noun(ended, 'token', 'tokens')}"
    tell(as_json, {"name": name, "ended": ended}, text)


@user.command("password")
def set_password(
    name: Annotated[str, argument("NAME", "The user name.")],
    password_stdin: PasswordStdin = False,
    sign_out: Annotated[bool, option("--sign-out", "Also revoke all tokens of the user.")] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Set a new password."""
    password = _ask_password(password_stdin)
    with open_access(data) as access:
        account = access.accounts.change_password(name, password, sign_out=sign_out)
        access.write_audit_entry("user password", name=account.name, sign_out=sign_out)
    tell(as_json, account.as_dict(), f"{escape_hidden(account.name)} has a new password")


def _ask_password(from_stdin: bool) -> str:
    """Read the password from standard input, or ask for it twice."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise InvalidInput(
            "The password cannot be asked for without a terminal.",
            hint="Send it to standard input with --password-stdin.",
            field="password",
        )
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def parse_duration(value: str, field: str) -> float:
    """Parse a duration such as 30m, 12h, 90d or 1y into seconds."""
    parts = _DURATION.fullmatch(value.strip().lower())
    if parts is None:
        raise InvalidInput(
            f"{field} is not a duration.",
            hint="Write it as 30m, 12h, 90d or 1y.",
            field=field,
        )
    return float(int(parts[1]) * _UNIT_SECONDS[parts[2]])


COMMANDS = (invite,)
