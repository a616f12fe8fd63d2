"""Finds the server of a data directory, connects to it, and starts one in the background.

The server listens on a Unix socket in a directory that only its owner can open. The socket's name
is a hash of the data directory's device and inode, or of the database's address. On systems without
Unix sockets the server listens on loopback; a file in the directory has its port and a secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

LINE_BYTES = 33_554_432  # the longest message that a server reads
PROTOCOL = 1
MOST_PATH_BYTES = 100  # the longest path of a socket is 104 bytes on macOS, and 108 on Linux
START_SECONDS = 60.0
RETRY_SECONDS = 0.02
HELLO_BYTES = 262_144
RIGHTS_OF_OTHERS = 0o077
# The environment variable with a background server's options, as JSON.
OPTIONS_VARIABLE = "COMMONPLACE_BACKGROUND"
USES_LOOPBACK = sys.platform == "win32" or os.environ.get("COMMONPLACE_SOCKET") == "loopback"
# Environment variables that the client passes to the server for its dialect.
CONTRACT_VARIABLES = (
    "MEMORY_DIR", "SESSION_ID", "MAMA_DB_PATH", "MAMA_EMBEDDING_PORT", "MAMA_SERVER_PORT",
    "COMMONPLACE_PROJECT",
)  # fmt: skip
# Settings of the data directory: the server's values are used, not the client's.
STORE_VARIABLES = (
    "COMMONPLACE_EMBEDDING_MODEL", "COMMONPLACE_LLM_PROVIDER", "COMMONPLACE_LLM_MODEL",
    "COMMONPLACE_LLM_OPENAI_URL", "COMMONPLACE_LLM_ANTHROPIC_URL",
)  # fmt: skip


class Unusable(Exception):
    """No server can be reached or started; `code` is the exit code."""

    def __init__(self, message: str, code: int = 5) -> None:
        super().__init__(message)
        self.code = code


class Place(NamedTuple):
    """The files by which clients find the server of a data directory or database."""

    data: str
    database: str
    base: str
    """The common path of these files, without their suffixes."""

    @property
    def socket_path(self) -> str:
        """The path of the socket, or of the file with port and secret without Unix sockets."""
        return f"{self.base}.port" if USES_LOOPBACK else f"{self.base}.sock"

    @property
    def lock_file(self) -> str:
        """The file that the listening server locks."""
        return f"{self.base}.lock"

    @property
    def ready_file(self) -> str:
        """A file whose modification time is the time when an agent last connected."""
        return f"{self.base}.ready"

    @property
    def log_file(self) -> str:
        """The file with the standard error of a background server."""
        return f"{self.base}.log"


def place_of(data: str, database: str = "") -> Place:
    """Return the place of a data directory's server; raise Unusable if it cannot have one."""
    os.makedirs(data, mode=0o700, exist_ok=True)  # noqa: PTH103
    found = os.stat(data)  # noqa: PTH116
    key = database or f"{found.st_dev}:{found.st_ino}"
    name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return Place(data, database, f"{_runtime_directory()}/{name}")


def _runtime_directory() -> str:
    """Return a directory that only its owner can open; create it if it is missing."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [f"{given}/commonplace"] if given and os.path.isdir(given) else []  # noqa: PTH112
    # Like tempfile.gettempdir(), whose import would double the CPU time of a hook.
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    usual = ("/tmp", "/var/tmp") if os.name == "posix" else (os.path.expanduser("~"),)  # noqa: S108, PTH111
    candidates += [
        f"{os.path.abspath(folder)}/commonplace{user}"  # noqa: PTH100
        for folder in (*named, *usual)
        if folder and os.path.isdir(folder)  # noqa: PTH112
    ]
    return _first_private_directory(candidates)


def _first_private_directory(candidates: Sequence[str]) -> str:
    """Return the first usable directory; raise Unusable if there is none."""
    why = ""
    for folder in candidates:
        if not USES_LOOPBACK and len(os.fsencode(folder)) + 30 > MOST_PATH_BYTES:
            why = f"{folder} is too long for a socket."
            continue
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            why = _why_not_private(folder)
        except OSError as error:
            why = f"{folder}: {error.strerror}."
        if not why:
            return folder
    raise Unusable(f"There is no directory for the server's socket. {why}")


def _why_not_private(folder: str) -> str:
    """Return why a directory is not private; empty if it is."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a directory."
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return f"{folder} belongs to another user."
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & RIGHTS_OF_OTHERS:
        return f"{folder} can be opened by others: chmod 700 it."
    return ""


def connect(place: Place) -> socket.socket | None:
    """Connect to the running server; return None if there is none."""
    try:
        if not USES_LOOPBACK:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.connect(place.socket_path)
            except OSError:
                made.close()
                raise
            return made
        with open(place.socket_path, encoding="utf-8") as file:  # noqa: PTH123
            port, _, secret = file.read().partition(" ")
        made = socket.create_connection(("127.0.0.1", int(port)), 5)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.settimeout(None)
        made.sendall(secret.encode() + b"\n")
    except (OSError, ValueError):
        return None
    return made


class ServerConnection:
    """A connection to a server; `greet` must be called first."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._buffer = bytearray()
        self.answer: dict[str, Any] = {}
        """The server's answer to the greeting."""

    def greet(self, hello: Mapping[str, Any]) -> bool:
        """Send the greeting and read the answer; return False if the server has disconnected."""
        written = json.dumps({"commonplace": PROTOCOL, **hello}).encode() + b"\n"
        try:
            self._socket.sendall(written)
            line = self.read_line()
            self.answer = json.loads(line) if line else {}
        except (OSError, ValueError):
            return False
        return bool(self.answer)

    def send(self, line: bytes) -> None:
        """Send one or several lines."""
        self._socket.sendall(line)

    def read_line(self) -> bytes:
        """Return the next line with its line break; empty when the server has closed the
        connection."""
        while (at := self._buffer.find(b"\n")) < 0:
            try:
                more = self._socket.recv(65_536)
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            self._buffer += more
        line = bytes(self._buffer[: at + 1])
        del self._buffer[: at + 1]
        return line

    def close(self) -> None:
        """Close the connection; a thread that waits in `read_line` gets an empty result."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def ask(place: Place, hello: Mapping[str, Any], seconds: float = 10.0) -> dict[str, Any] | None:
    """Send a greeting to the running server; return its answer, or None if none answers in time."""
    made = connect(place)
    if made is None:
        return None
    made.settimeout(seconds)
    connection = ServerConnection(made)
    try:
        return connection.answer if connection.greet(hello) else None
    finally:
        connection.close()


def time_zone() -> list[Any]:
    """Return the offset from UTC in seconds and the names of the time zone of this process.

    The server uses them for words such as "yesterday" in a query.
    """
    return [time.timezone, *time.tzname]


class ServerStarter:
    """Starts a background server and waits until it answers."""

    def __init__(self, place: Place, options: Mapping[str, Any]) -> None:
        self._place = place
        self._options = options
        self._pid: int | None = None
        self._lock: int | None = None
        self._until = time.monotonic() + START_SECONDS

    def start_or_wait(self) -> None:
        """Start a server unless another process is doing so, and wait briefly; raise Unusable on
        failure."""
        if self._lock is None:
            self._lock = try_lock(f"{self._place.base}.starting")
        if self._lock is None:
            pass  # another process is starting a server
        elif self._pid is None:
            self._pid = spawn(self._place, self._options)
        elif (code := _exit_code(self._pid)) is not None:
            if code > 0:
                raise Unusable(_log_tail(self._place), code)
            self._pid = None  # it was killed, or another server was first and has ended
        if time.monotonic() > self._until:
            raise Unusable(
                f"The server did not start in {START_SECONDS:g} s; see {self._place.log_file}."
            )
        time.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Release the lock, so that other processes may start a server."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def try_lock(path: str) -> int | None:
    """Lock a file; return its descriptor, or None if another process holds the lock."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())  # for people, and to end the process
    return descriptor


def _log_tail(place: Place) -> str:
    try:
        with open(place.log_file, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            said = file.read()[-2_000:].strip()
    except OSError:
        said = ""
    return said or "The server could not be started."


def _exit_code(pid: int) -> int | None:
    """Return the exit code of a spawned process; None while it runs."""
    if os.name != "posix":
        return None
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return None if found == 0 else os.waitstatus_to_exitcode(status)


def spawn(place: Place, options: Mapping[str, Any]) -> int:
    """Start a server as a detached process; it exits at once if another server is running."""
    command = [sys.executable, "-P", "-m", "commonplace.server.background"]
    environment = {
        name: value for name, value in os.environ.items() if name not in CONTRACT_VARIABLES
    }
    environment["COMMONPLACE_DATA"] = place.data
    environment.pop("COMMONPLACE_DATABASE", None)
    if place.database:
        environment["COMMONPLACE_DATABASE"] = place.database
    environment[OPTIONS_VARIABLE] = json.dumps({"base": place.base, **options})
    if os.name != "posix":
        return _spawn_detached(command, environment, place)
    log = os.open(place.log_file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
    except OSError as error:
        raise Unusable(f"No server could be started: {error.strerror}.") from error
    finally:
        os.close(log)


def _spawn_detached(command: list[str], environment: dict[str, str], place: Place) -> int:
    import subprocess

    flags = getattr(subprocess, "DETACHED_PROCESS", 0) | getattr(
        subprocess, "CREATE_NEW_PROCESS_GROUP", 0
    )
    with open(place.log_file, "ab") as log:  # noqa: PTH123
        started = subprocess.Popen(  # noqa: S603
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=log, creationflags=flags, close_fds=True,
        )  # fmt: skip
    return started.pid
