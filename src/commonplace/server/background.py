"""A server that a client has started in the background; it ends when it is idle.

It is run as `python -m commonplace.server.background`, with its options in the environment. It
imports little before it holds the lock, so that it ends quickly if another server is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from commonplace.client import connection

if TYPE_CHECKING:
    from commonplace.server.local import LocalServer
    from commonplace.server.settings import Settings

WAIT_SECONDS = 40.0


def main() -> None:
    """Serve until idle; return at once if another server is running."""
    options = json.loads(os.environ.pop(connection.OPTIONS_VARIABLE))
    place = connection.Place(
        os.environ["COMMONPLACE_DATA"], os.environ.get("COMMONPLACE_DATABASE", ""), options["base"]
    )
    lock = _lock_server(place)
    if lock is None:
        return
    from commonplace.errors import CommonplaceError, exit_code

    try:
        os.chdir(place.data)
        _serve(place, lock, options)
    except CommonplaceError as error:
        sys.stderr.write(f"error: {error.message} {error.hint}".rstrip() + "\n")
        sys.exit(exit_code(error))


def _lock_server(place: connection.Place) -> int | None:
    """Take the lock of the listening server; return None if another server answers."""
    until = time.monotonic() + WAIT_SECONDS
    while (lock := connection.try_lock(place.lock_file)) is None:
        if (made := connection.connect(place)) is not None:
            made.close()
            return None
        if time.monotonic() > until:
            sys.stderr.write("error: Another server holds the lock and does not answer.\n")
            sys.exit(5)
        time.sleep(connection.RETRY_SECONDS)
    return lock


def _serve(place: connection.Place, lock: int, options: dict[str, str]) -> None:
    from commonplace.platform.loading import without_garbage_collection

    with without_garbage_collection():
        from commonplace.server.observing import set_up_logging
        from commonplace.server.settings import Settings

    port = options.get("port")
    settings = Settings.load(
        data=place.data, database=place.database or None, embedding=options.get("embedding"),
        host="127.0.0.1", port=port,
    )  # fmt: skip
    set_up_logging(settings.log)
    if port is not None:
        from commonplace.server import serving

        if serving.serve_in_background(settings, place, lock):
            return
    _serve_socket(settings, place, lock)


def _serve_socket(settings: Settings, place: connection.Place, lock: int) -> None:
    """Serve the local socket alone, until idle or asked to stop."""
    from commonplace.platform.loading import prepare_for_calls, without_garbage_collection

    with without_garbage_collection():
        from commonplace.access.vault import open_vault
        from commonplace.embedding.provider import configured_embedder
        from commonplace.engine.library import Library
        from commonplace.server.local import HostedParts, LocalServer, store_settings, warm_up

    embedder = configured_embedder(settings.embedding)
    library = Library(
        settings.data, embedder=embedder, database=settings.database or None,
        allow_secrets=settings.allow_secrets, auto_accept=settings.auto_accept, embed="later",
    )  # fmt: skip
    with contextlib.closing(library), contextlib.closing(library.open_system()) as system:
        hosted = HostedParts(
            library=library, system=system, vault=functools.cache(lambda: open_vault(system)),
            store_settings=store_settings(settings),
        )  # fmt: skip
        prepare_for_calls()
        threading.Thread(target=warm_up, args=(library,), daemon=True).start()
        asyncio.run(_serve_until_idle(LocalServer(place, lock, hosted), settings.idle_seconds))


async def _serve_until_idle(local: LocalServer, idle_seconds: float) -> None:
    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, local.asked_to_stop.set)
    await local.start()
    await local.wait_until_idle(idle_seconds)
    await local.close()


if __name__ == "__main__":
    main()
