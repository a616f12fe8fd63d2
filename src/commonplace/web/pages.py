"""Serve the browser application: one HTML page, its ES modules, styles and icons.

The files contain no data. The page loads its data from the REST routes under `/api` as the
signed-in user, so the files themselves need no credential.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

HOME = "/viewer"
BELOW_HOME = f"{HOME}/"
ASSETS = f"{BELOW_HOME}assets/"
SERVICE_WORKER = "/sw.js"
MANIFEST = "/manifest.json"
ICON = "/favicon.ico"
PAGES = (HOME, BELOW_HOME, "/setup")
"""The paths that return the HTML page; every unknown path below `BELOW_HOME` does so, too."""
FILES = {
    SERVICE_WORKER: "sw.js", f"{HOME}{SERVICE_WORKER}": "sw.js",
    MANIFEST: "manifest.json", f"{HOME}{MANIFEST}": "manifest.json",
    ICON: "icons/favicon.ico",
}  # fmt: skip
"""The names of the files that have a path outside `ASSETS`, by path."""
LINKABLE_PATHS = ("/", *PAGES, f"{BELOW_HOME}{{room:path}}")
"""Paths that may be opened by a link on another site."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; manifest-src 'self'; worker-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # browsers cache the file and revalidate it with its ETag
    "vary": "accept-encoding",
}
_TYPES = {
    "css": "text/css; charset=utf-8", "html": "text/html; charset=utf-8", "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8", "json": "application/manifest+json",
    "png": "image/png", "svg": "image/svg+xml",
}  # fmt: skip
_COMPRESSED = ("css", "html", "js", "json", "svg")
_PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file with its response headers and its compressed form."""

    body: bytes
    compressed: bytes | None
    etag: str
    media_type: str


@functools.cache
def assets() -> dict[str, Asset]:
    """Read and compress all static files; return them by their name below `static/`."""
    folder = resources.files(__package__) / "static"
    bodies: dict[str, bytes] = {}
    folders = [("", folder)]
    while folders:
        prefix, parent = folders.pop()
        for entry in parent.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            else:
                bodies[prefix + entry.name] = entry.read_bytes()
    bodies["sw.js"] = _service_worker(bodies)
    return {name: _asset(name, body) for name, body in bodies.items()}


def _service_worker(bodies: dict[str, bytes]) -> bytes:
    """Return the service worker's script with the files to cache and their version."""
    cached = [HOME, MANIFEST, *(ASSETS + name for name in sorted(bodies) if name != "sw.js")]
    digest = hashlib.sha256()
    for name in sorted(bodies):
        digest.update(name.encode() + b"\0" + bodies[name])
    settings = {"version": digest.hexdigest()[:16], "files": cached}
    return f"const SHELL = {json.dumps(settings)};\n".encode() + bodies["sw.js"]


def _asset(name: str, body: bytes) -> Asset:
    suffix = name.rpartition(".")[2]
    compressed = gzip.compress(body, 9, mtime=0) if suffix in _COMPRESSED else None
    return Asset(body, compressed, f'"{hashlib.sha256(body).hexdigest()[:32]}"', _TYPES[suffix])


def routes() -> list[Route]:
    """Return the routes of the application; they need no credential."""
    page = _file_endpoint(lambda _: _PAGE)
    return [
        Route("/", _home),
        *(Route(path, page) for path in PAGES),
        *(Route(path, _file_endpoint(lambda _, name=name: name)) for path, name in FILES.items()),
        Route(
            f"{ASSETS}{{name:path}}", _file_endpoint(lambda request: request.path_params["name"])
        ),
        Route(LINKABLE_PATHS[-1], page),
    ]


async def _home(_: Request) -> Response:
    return RedirectResponse(HOME, 302)


def _file_endpoint(name_of: Callable[..., str]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that sends a file; `name_of` returns its name for a request."""

    async def endpoint(request: Request) -> Response:
        asset = (await asyncio.to_thread(assets)).get(name_of(request))
        if asset is None:
            missing = {
                "error": {"code": "NOT_FOUND", "message": "There is no file with this name."}
            }
            return Response(json.dumps(missing), 404, media_type="application/json")
        return _file_response(request, asset)

    return endpoint


def _file_response(request: Request, asset: Asset) -> Response:
    gzipped = asset.compressed is not None and _accepts_gzip(request)
    # The compressed form is another representation, so it has its own ETag.
    etag = f'{asset.etag[:-1]}-gz"' if gzipped else asset.etag
    headers = {**_HEADERS, "etag": etag}
    client_etags = (each.strip() for each in request.headers.get("if-none-match", "").split(","))
    if any(each.removeprefix("W/") == etag for each in client_etags):
        return Response(None, 304, headers)
    if not gzipped or asset.compressed is None:
        return Response(asset.body, 200, headers, asset.media_type)
    headers["content-encoding"] = "gzip"
    return Response(asset.compressed, 200, headers, asset.media_type)


def _accepts_gzip(request: Request) -> bool:
    """Return whether Accept-Encoding lists gzip with a weight other than zero."""
    for each in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
