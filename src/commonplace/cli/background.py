"""Commands for the server of a data directory: status, stop, restart."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from commonplace.cli.options import AsJson, Data, database_of, existing_directory, open_library
from commonplace.cli.terminal import count_with_noun, emit_json, local_time, note, say
from commonplace.errors import NotFound, StorageUnavailable
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.client.connection import Place

NO_SERVER = 1
STOP_SECONDS = 45.0


def status(data: Data = None, as_json: AsJson = False) -> None:
    """Show the server, its connected clients, and the spaces.

    The exit code is 0 if a server is running, and 1 if not.
    """
    from commonplace.client import connection

    answer = (
        connection.ask(_server_place(data), {"kind": "status"}) if _directory_exists(data) else None
    )
    stored = _describe_storage(data)
    if as_json:
        emit_json({"server": answer, **stored})
    else:
        _show_status(answer, stored)
    if answer is None:
        raise typer.Exit(NO_SERVER)


def stop(data: Data = None, as_json: AsJson = False) -> None:
    """Stop the server of the data directory. Running calls are finished first.

    Connected clients start another server with their next call.
    """
    answer = _stop_server(_server_place(data)) if _directory_exists(data) else None
    if as_json:
        emit_json({"stopped": None if answer is None else answer["pid"]})
    else:
        say(
            "No server is running."
            if answer is None
            else f"stopped the server, process {answer['pid']}"
        )
    if answer is None:
        raise typer.Exit(NO_SERVER)


def restart(data: Data = None, as_json: AsJson = False) -> None:
    """Restart the server.

    A 'commonplace serve' process restarts itself at the same address. Otherwise a server is
    started in the background.
    """
    from commonplace.client import connection

    place = _server_place(data)
    running = connection.ask(place, {"kind": "status"})
    if running is not None and running["kind"] == "serve":
        answer = _restart_serving(place, running)
    else:
        answer = _restart_in_background(place, running)
    if as_json:
        emit_json({"server": answer})
    else:
        address = f", at {answer['http']}" if answer["http"] else ""
        say(f"the server is running as process {answer['pid']}{address}")


def _restart_serving(place: Place, running: dict[str, Any]) -> dict[str, Any]:
    """Make `commonplace serve` restart itself, and wait until it answers."""
    from commonplace.client import connection

    pid = running["pid"]
    asked = connection.ask(place, {"kind": "restart"})
    if asked is None or not asked.get("restarts"):
        raise StorageUnavailable(
            f"Process {pid} is 'commonplace serve', which cannot restart itself here.",
            hint="Stop it with 'commonplace stop', and start it again as before.",
        )
    until = time.monotonic() + STOP_SECONDS
    while True:
        answer = connection.ask(place, {"kind": "status"})
        # A client may have started a server in the background meanwhile; that server will stop.
        again = answer is not None and answer["since"] != running["since"]
        if answer is not None and again and answer["kind"] == "serve":
            return answer
        if not _is_alive(pid) or time.monotonic() > until:
            raise StorageUnavailable(
                f"Process {pid} did not restart.",
                hint="See its output for the reason, and start it again as before.",
            )
        time.sleep(connection.RETRY_SECONDS)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _restart_in_background(place: Place, running: dict[str, Any] | None) -> dict[str, Any]:
    from commonplace.client import connection

    port = urlsplit(running["http"]).port if running is not None and running["http"] else None
    _stop_server(place)
    starting = connection.ServerStarter(place, {} if port is None else {"port": str(port)})
    try:
        while (answer := connection.ask(place, {"kind": "status"})) is None:
            starting.start_or_wait()
        return answer
    except connection.Unusable as error:
        raise StorageUnavailable(str(error).removeprefix("error: ")) from error
    finally:
        starting.close()


def _directory_exists(data: Path | None) -> bool:
    """Return whether the data directory exists; do not create it."""
    from commonplace.engine.library import directory

    return directory(data).is_dir()


def _server_place(data: Path | None) -> Place:
    """Return the files by which clients find the server of the data directory."""
    from commonplace.client import connection
    from commonplace.engine.library import directory

    try:
        return connection.place_of(str(directory(data)), database_of(data) or "")
    except connection.Unusable as error:
        raise StorageUnavailable(str(error)) from error


def running_server_address(data: Path | None) -> str | None:
    """Return the HTTP address of the running server; None if there is none."""
    from commonplace.client import connection

    with suppress(StorageUnavailable, OSError):
        answer = connection.ask(_server_place(data), {"kind": "status"})
        return answer["http"] or None if answer is not None else None
    return None


def _stop_server(place: Place) -> dict[str, Any] | None:
    """Stop the server and wait until it no longer listens; return None if none is running."""
    from commonplace.client import connection

    answer = connection.ask(place, {"kind": "stop"})
    until = time.monotonic() + STOP_SECONDS
    while answer is not None and (lock := connection.try_lock(place.lock_file)) is None:
        if time.monotonic() > until:
            raise StorageUnavailable(f"Process {answer['pid']} did not stop.", hint="Kill it.")
        time.sleep(connection.RETRY_SECONDS)
    if answer is not None and lock is not None:
        os.close(lock)
    return answer


def _describe_storage(data: Path | None) -> dict[str, Any]:
    """Return the spaces with their sizes, and the time of the last backup."""
    from commonplace.cli.stores import last_backup
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import directory
    from commonplace.platform import review
    from commonplace.platform.session_context import PROMPT_BYTES, START_BYTES
    from commonplace.storage.opening import server_and_database

    where = directory(data)
    spaces = []
    with suppress(NotFound), open_library(existing_directory(data)) as opened:
        for name in opened.spaces():
            memory = Commonplace(space=name, library=opened)
            _, count = memory.browse(limit=1)
            spaces.append({
                "space": name, "memories": count, "bytes": opened.size(name),
                "proposals": review.pending_proposals(memory, 1)[1],
            })  # fmt: skip
    database = database_of(data)
    rows = {} if database is None else {"database": server_and_database(database)}
    budgets = {"session_start": START_BYTES, "prompt": PROMPT_BYTES}
    return {"data": str(where), **rows, "spaces": spaces, "last_backup": last_backup(where),
            "hook_bytes": budgets}  # fmt: skip


def _show_status(answer: dict[str, Any] | None, stored: dict[str, Any]) -> None:
    if answer is None:
        note("No server is running; the next client over stdio starts one.")
    else:
        kind = "commonplace serve" if answer["kind"] == "serve" else "in the background"
        since = local_time(datetime.fromtimestamp(answer["since"], UTC), seconds=True)
        say(f"server   process {answer['pid']}, {kind}, version {answer['version']}, since {since}")
        if answer["http"]:
            say(f"         {answer['http']}")
        for each in answer["clients"]:
            where = f" in {each['cwd']}" if each["cwd"] else ""
            line = (
                f"client   process {each['pid']}: {each['dialect']}, space {each['space']}{where}"
            )
            say(escape_hidden(line))
        if not answer["clients"]:
            say("client   none")
    say(escape_hidden(f"data     {stored['data']}"))
    if "database" in stored:
        say(escape_hidden(f"rows     {stored['database']}"))
    for each in stored["spaces"]:
        size = f"{each['bytes'] / 1e6:.1f} MB"
        held = count_with_noun(each["memories"], "memory", "memories")
        waiting = count_with_noun(each["proposals"], "proposal waits", "proposals wait")
        review = f"; {waiting}: commonplace review" if each["proposals"] else ""
        say(f"space    {each['space']}: {held}, {size}{review}")
    most = stored["hook_bytes"]
    say(f"hooks    add at most {most['session_start']:,} bytes when a session starts,"
        f" {most['prompt']:,} with a prompt")  # fmt: skip
    at, _, where = (stored["last_backup"] or "").partition(" ")
    with suppress(ValueError):  # the file may hold anything
        at = local_time(datetime.fromisoformat(at))
    say(escape_hidden(f"backup   {f'{at}  {where}'.strip() or 'none yet'}"))


COMMANDS = (status, stop, restart)
