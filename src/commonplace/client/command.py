"""The command line of `commonplace mcp`, read without loading the program.

Other command lines are left to the whole program, which reports errors.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from commonplace import __version__
from commonplace.client import config, connection, files

MAMA_PORT = "3847"
_VALUE_OPTIONS = {
    "--dialect": "dialect", "--data": "data", "--database": "database", "--space": "space",
    "--embedding": "embedding", "--prefix": "prefix", "--subject": "subject",
    "--being": "subject", "--project": "project",
}  # fmt: skip
_FLAG_OPTIONS = {"--read-only": "read_only", "--global": "everywhere", "--in-process": "in_process"}


class McpOptions(NamedTuple):
    """The options of `commonplace mcp`."""

    dialect: str = "commonplace"
    data: str | None = None
    database: str | None = None
    space: str = "default"
    embedding: str | None = None
    prefix: str = ""
    subject: str = ""
    project: str | None = None
    read_only: bool = False
    everywhere: bool = False
    in_process: bool = False

    @classmethod
    def read(cls, arguments: Sequence[str]) -> McpOptions | None:
        """Return the options of a command line; None if the whole program must read it."""
        found: dict[str, Any] = {}
        rest = list(arguments)
        while rest:
            name, separator, value = rest.pop(0).partition("=")
            if name in _FLAG_OPTIONS and not separator:
                found[_FLAG_OPTIONS[name]] = True
            elif name in _VALUE_OPTIONS and (separator or rest):
                found[_VALUE_OPTIONS[name]] = value if separator else rest.pop(0)
            else:
                return None
        made = cls(**found)
        return made if made._is_usual() else None

    def _is_usual(self) -> bool:
        """Return whether the values are valid in form; the whole program reports those that are
        not."""
        names = (self.space, self.prefix or "x", self.dialect)
        plain = all(name.isascii() and name.replace("-", "_").isidentifier() for name in names)
        given = (self.data, self.database, self.project, self.embedding, self.subject or "x")
        known = os.path.isfile(f"{os.path.dirname(__file__)}/static/{self.dialect}.json")  # noqa: PTH113, PTH120
        filled = all(value is None or value.strip() for value in given)
        return plain and known and filled and len(self.prefix) <= 32 and len(self.space) <= 64


def run(options: McpOptions) -> int | None:
    """Serve through the background server; None if it cannot be used or is not wanted."""
    if options.in_process or os.environ.get("COMMONPLACE_IN_PROCESS") == "1":
        return None
    if options.subject and not os.path.isdir(files.data_directory(options.data)):  # noqa: PTH112
        return None  # there is no subject yet, which the whole program reports
    try:
        place = place_of(options.data, options.database)
    except config.Unreadable:
        return None  # the whole program reports it, and serves nothing
    except (OSError, connection.Unusable) as error:
        sys.stderr.write(f"commonplace: serving in this process: {error}\n")
        return None
    from commonplace.client.pipe import Options, Pipe

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    pipe = Pipe(
        Options(place, greeting_fields(options), server_options(options)),
        sys.stdin.buffer,
        sys.stdout.buffer,
    )
    return pipe.run()


def place_of(data: str | None, database: str | None) -> connection.Place:
    """Return the place of the server of a data directory, or of a database."""
    directory = files.data_directory(data)
    given = config.read(directory)
    address = database or os.environ.get("COMMONPLACE_DATABASE") or given.get("database", "")
    return connection.place_of(directory, address)


def greeting_fields(options: McpOptions) -> dict[str, Any]:
    """Return the fields of the greeting by which this client asks the server for a dialect."""
    chosen = {"COMMONPLACE_EMBEDDING": options.embedding or os.environ.get("COMMONPLACE_EMBEDDING")}
    chosen |= {name: os.environ.get(name) for name in connection.STORE_VARIABLES}
    return {
        **describe_process(), "dialect": options.dialect, "space": options.space,
        "prefix": options.prefix, "subject": options.subject, "read_only": options.read_only,
        "everywhere": options.everywhere, "project": options.project,
        "settings": {name: value for name, value in chosen.items() if value},
    }  # fmt: skip


def describe_process() -> dict[str, Any]:
    """Return the fields of every greeting: the version, process, directory, user and variables."""
    try:
        cwd = os.getcwd()  # noqa: PTH109
    except OSError:  # the working directory was deleted
        cwd = ""
    given = {name: os.environ[name] for name in connection.CONTRACT_VARIABLES if name in os.environ}
    if "MEMORY_DIR" in given:
        given["MEMORY_DIR"] = os.path.abspath(os.path.expanduser(given["MEMORY_DIR"]))  # noqa: PTH100, PTH111
    user = os.environ.get("USER") or os.environ.get("USERNAME") or "local"
    return {
        "version": __version__, "pid": os.getpid(), "cwd": cwd, "user": user, "environ": given,
    }  # fmt: skip


def server_options(options: McpOptions) -> Mapping[str, Any]:
    """Return the options of a server that has to be started for this client."""
    found: dict[str, Any] = {}
    if options.embedding:
        found["embedding"] = options.embedding
    if options.dialect == "mama":  # this contract promises HTTP beside stdio
        found["port"] = os.environ.get("MAMA_SERVER_PORT", "").strip() or MAMA_PORT
    return found
