"""Certificates for names that exist only in a test, and a small https server that shows them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[str], bytes]


@dataclass
class Site:
    """A server that answers by path, and remembers what it was asked."""

    port: int = 0
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    """What a client needs to believe its certificate."""
    hits: list[str] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    answers: dict[str, bytes] = field(default_factory=dict)
    delay: float = 0.0

    def put(self, path: str, body: bytes, *, status: str = "200 OK", **headers: str) -> None:
        """Answer a path."""
        given = {"content-type": "application/json", "content-length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        self.answers[path] = f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.hits.append(path)
            self.requests.append(head)
            await asyncio.sleep(self.delay)
            missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
            writer.write(self.answers.get(path, missing))
            await writer.drain()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            writer.close()
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def site(directory: Path, *names: str) -> AsyncIterator[Site]:
    """An https server on a loopback port, with a certificate for these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    begun = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begun)
        .not_valid_after(begun + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = directory / "certificate.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    found = Site(tls=ssl.create_default_context(cafile=str(file)))
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=serving)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
