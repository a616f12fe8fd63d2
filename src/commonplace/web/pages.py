"""Serves the browser application: one HTML page, its ES modules, styles and icons.

The files hold no data. What a page shows it asks of the REST routes under `/api`, as the person who
has signed in, so these paths need no credential.
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
BELOW = f"{HOME}/"
ASSETS = f"{BELOW}assets/"
WORKER = "/sw.js"
MANIFEST = "/manifest.json"
ICON = "/favicon.ico"
PAGES = (HOME, BELOW, "/setup")
"""The paths of the page itself; so is every path below `BELOW` that is no file."""
FILES = {
    WORKER: "sw.js", f"{HOME}{WORKER}": "sw.js",
    MANIFEST: "manifest.json", f"{HOME}{MANIFEST}": "manifest.json",
    ICON: "icons/favicon.ico",
}  # fmt: skip
"""Files that are not served below `ASSETS`, and their paths."""
VISITED = ("/", *PAGES, f"{BELOW}{{room:path}}")
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
    "cache-control": "no-cache",  # cached, but revalidated with its ETag
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
    """A static file, as it is sent."""

    body: bytes
    compressed: bytes | None
    etag: str
    media_type: str


@functools.cache
def assets() -> dict[str, Asset]:
    """Every static file by its name below `static/`. It reads and compresses them all."""
    folder = resources.files(__package__) / "static"
    found: dict[str, bytes] = {}
    waiting = [("", folder)]
    while waiting:
        prefix, parent = waiting.pop()
        for entry in parent.iterdir():
            if entry.is_dir():
                waiting.append((f"{prefix}{entry.name}/", entry))
            else:
                found[prefix + entry.name] = entry.read_bytes()
    found["sw.js"] = _worker(found)
    return {name: _asset(name, body) for name, body in found.items()}


def _worker(found: dict[str, bytes]) -> bytes:
    """The service worker, with the files that it keeps and a version that changes with them."""
    kept = [HOME, MANIFEST, *(ASSETS + name for name in sorted(found) if name != "sw.js")]
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name])
    settings = {"version": digest.hexdigest()[:16], "files": kept}
    return f"const SHELL = {json.dumps(settings)};\n".encode() + found["sw.js"]


def _asset(name: str, body: bytes) -> Asset:
    suffix = name.rpartition(".")[2]
    compressed = gzip.compress(body, 9, mtime=0) if suffix in _COMPRESSED else None
    return Asset(body, compressed, f'"{hashlib.sha256(body).hexdigest()[:32]}"', _TYPES[suffix])


def routes() -> list[Route]:
    """The routes of the application; nobody needs to have signed in for them."""
    page = _serving(lambda _: _PAGE)
    return [
        Route("/", _home),
        *(Route(path, page) for path in PAGES),
        *(Route(path, _serving(lambda _, name=name: name)) for path, name in FILES.items()),
        Route(f"{ASSETS}{{name:path}}", _serving(lambda request: request.path_params["name"])),
        Route(VISITED[-1], page),
    ]


async def _home(_: Request) -> Response:
    return RedirectResponse(HOME, 302)


def _serving(name_of: Callable[..., str]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that sends the file which `name_of` names for a request."""

    async def endpoint(request: Request) -> Response:
        asset = (await asyncio.to_thread(assets)).get(name_of(request))
        if asset is None:
            missing = {"error": {"code": "NOT_FOUND", "message": "There is no such file."}}
            return Response(json.dumps(missing), 404, media_type="application/json")
        return _sent(request, asset)

    return endpoint


def _sent(request: Request, asset: Asset) -> Response:
    packed = asset.compressed is not None and _accepts_gzip(request)
    # The compressed form is another representation, so it has an ETag of its own.
    etag = f'{asset.etag[:-1]}-gz"' if packed else asset.etag
    headers = {**_HEADERS, "etag": etag}
    known = (each.strip() for each in request.headers.get("if-none-match", "").split(","))
    if any(each.removeprefix("W/") == etag for each in known):
        return Response(None, 304, headers)
    if not packed or asset.compressed is None:
        return Response(asset.body, 200, headers, asset.media_type)
    headers["content-encoding"] = "gzip"
    return Response(asset.compressed, 200, headers, asset.media_type)


def _accepts_gzip(request: Request) -> bool:
    """Whether the request accepts gzip: it names the coding, without a weight of zero."""
    for each in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
