"""A way to the database that a test can cut around a COMMIT."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Literal

Cut = Literal["", "before", "within", "after"]
CUTS: tuple[Cut, ...] = ("before", "within", "after")


class Wire:
    """Carries bytes between clients and a server on this machine, until it is cut."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.cut: Cut = ""
        """Where the next COMMIT is cut: before it reaches the server, within its bytes, or after
        it has reached it, so that its answer does not come back."""
        self.cuts = 0
        self._cutting = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        """From the client to the server."""
        with contextlib.suppress(OSError), client, server:
            while data := client.recv(65536):
                how = self._take_cut(data)
                if not how:
                    server.sendall(data)
                    continue
                if how == "within":
                    server.sendall(data[: data.index(b"COMMIT") + 3])
                elif how == "after":
                    client.shutdown(socket.SHUT_WR)  # the answer does not come through
                    server.sendall(data)
                    time.sleep(0.05)
                for end in (server, client):
                    end.shutdown(socket.SHUT_RDWR)
                return

    def _take_cut(self, data: bytes) -> Cut:
        """How these bytes are to be cut; each cut is made once."""
        with self._cutting:
            if not self.cut or b"COMMIT\x00" not in data:
                return ""
            how, self.cut = self.cut, ""
            self.cuts += 1
            return how

    def _pass(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)  # the server has ended the connection

    def close(self) -> None:
        """Take no more connections; those that are open stay."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for one
        self._listening.close()
