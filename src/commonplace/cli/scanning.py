"""`commonplace scan`: finds stored secrets."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, Data, Embedding, Space, option
from commonplace.cli.terminal import bold, count_with_noun, emit_json, note, say
from commonplace.errors import InvalidInput
from commonplace.text.hidden import escape_hidden


def scan(
    purge: Annotated[
        bool,
        option("--purge", "Delete memories with secrets, and store masked copies."),
    ] = False,
    yes: Annotated[bool, option("--yes", "Delete without asking.")] = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Find stored keys, tokens and passwords. With --json, one object per line.

    With --purge, each memory that contains a secret is deleted with its history, a scan of the
    files verifies the deletion, and a copy with masked secrets is stored. The copies have new IDs
    and no links. Documents and facts that contain a secret are only listed.
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.maintenance import secret_scan

    with options.open_memory(data, space, embedding) as memory, lease(memory) as opened:
        found = secret_scan.scan(opened)
        for each in found:
            if as_json:
                emit_json(asdict(each))
            else:
                where = each.id[:8] if each.what == "memory" else f"{each.what} {each.id}"
                former = "  (a former version)" if each.former else ""
                say(
                    f"{bold(escape_hidden(where))}  {each.kind}{former}"
                    f"  {escape_hidden(each.excerpt)}"
                )
        held = list(dict.fromkeys(each.id for each in found if each.what == "memory"))
        if not found and not as_json:
            say("no secrets found")
        if not held:
            return
        if not purge and sys.stdin.isatty() and not as_json:
            purge = typer.confirm(
                f"Delete {count_with_noun(len(held), 'memory', 'memories')} permanently,"
                " and keep masked copies?",
                err=True,
            )
            yes = purge
        if not purge:
            note("to delete them permanently and keep masked copies: commonplace scan --purge")
            return
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidInput("A purge cannot be undone.", hint="Add --yes to continue.")
            many = count_with_noun(len(held), "memory", "memories")
            typer.confirm(f"Delete {many} permanently?", abort=True, err=True)
        proof, copies = secret_scan.purge_secrets(opened, held, origin=memory.origin)
    if as_json:
        emit_json({**asdict(proof), "stored": copies})
        return
    traces = "no" if proof.traces == 0 else proof.traces
    told = "" if traces is None else f"; {proof.bytes_scanned:,} bytes scanned: {traces} traces"
    gone = count_with_noun(proof.memories, "memory", "memories")
    say(f"purged {gone}, stored {len(copies)} again with masked secrets{told}")
    if proof.held:
        note(
            "these files still contain secrets or parts of them; delete them:"
            f" {', '.join(map(escape_hidden, proof.held))}"
        )
    if proof.copies:
        note(
            f"delete these copies of the file, which may contain secrets: {', '.join(proof.copies)}"
        )


COMMANDS = (scan,)
