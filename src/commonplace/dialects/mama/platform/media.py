"""Uploaded files: check their type by name and content, shrink images, and serve them safely."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import time
import zipfile
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

from starlette.datastructures import UploadFile
from starlette.requests import Request

from commonplace.dialects.contract import Call, TooManyCalls
from commonplace.dialects.mama.platform import files, service
from commonplace.dialects.mama.platform.failures import (
    PlatformError,
    missing_fields,
    not_found,
    not_installed,
)
from commonplace.dialects.mama.platform.service import Service, operation
from commonplace.dialects.rest import Exchange, Reply, Route
from commonplace.dialects.tool_schemas import TEXT
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.write_policy import masked_secret_kinds
from commonplace.errors import Conflict, NotFound
from commonplace.text import images

MOST_BYTES = 20 * 1024 * 1024
LARGE_IMAGE = 500 * 1024
BASE_NAME_CHARS = 100
INBOUND, OUTBOUND = "workspace/media/inbound", "workspace/media/outbound"
_OFFICE = "application/vnd.openxmlformats-officedocument."
TYPES = {
    "jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif",
    "webp": "image/webp", "svg": "image/svg+xml", "pdf": "application/pdf", "txt": "text/plain",
    "csv": "text/csv", "md": "text/markdown", "html": "text/html", "htm": "text/html",
    "json": "application/json", "doc": "application/msword",
    "docx": _OFFICE + "wordprocessingml.document", "xls": "application/vnd.ms-excel",
    "xlsx": _OFFICE + "spreadsheetml.sheet", "ppt": "application/vnd.ms-powerpoint",
    "pptx": _OFFICE + "presentationml.presentation", "zip": "application/zip",
}  # fmt: skip
ALTERNATIVE_TYPES = {
    "md": ("text/x-markdown", "text/plain"), "csv": ("text/plain", "application/vnd.ms-excel"),
    "json": ("text/plain",), "zip": ("application/x-zip-compressed",), "jpg": ("image/jpg",),
    "jpeg": ("image/jpg",), "html": ("text/plain",), "htm": ("text/plain",),
}  # fmt: skip
"""Alternative media types that browsers send, by extension."""
SIGNATURES = {
    "jpg": b"\xff\xd8\xff", "jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n", "gif": b"GIF8",
    "webp": b"RIFF", "pdf": b"%PDF-", "doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "ppt": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "zip": b"PK\x03\x04", "docx": b"PK\x03\x04", "xlsx": b"PK\x03\x04", "pptx": b"PK\x03\x04",
}  # fmt: skip
ZIP_FOLDERS = {"docx": "word/", "xlsx": "xl/", "pptx": "ppt/"}
DOWNLOAD_ONLY = ("svg", "html", "htm", "xml")
"""Types that could run as a script; such files are served as downloads only."""
SHRINKABLE = ("jpg", "jpeg", "png", "webp")
PICTURES = (*SHRINKABLE, "gif")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"[^/\\\0]{1,200}")


def extension_of(name: str) -> str:
    """Return the lowercase extension of a file name."""
    return PurePosixPath(name.replace("\\", "/")).suffix.lower().lstrip(".")


def matches_extension(extension: str, data: bytes) -> bool:
    """Return whether the content matches the file name's extension."""
    begins = SIGNATURES.get(extension)
    if begins is not None:
        if not data.startswith(begins):
            return False
        if extension == "webp":
            return data[8:12] == b"WEBP"
        return extension not in ZIP_FOLDERS or _zip_has_folder(data, ZIP_FOLDERS[extension])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    if "\0" in text:
        return False
    if extension == "svg":
        return "<svg" in text[:10_000]
    if extension == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
    return True


def _zip_has_folder(data: bytes, folder: str) -> bool:
    """Return whether a ZIP archive has an entry in a folder, without unpacking it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return any(name.startswith(folder) for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def check_upload(filename: str, content_type: str, data: bytes) -> str:
    """Return the extension of an upload; refuse one whose name, type and content disagree."""
    extension = extension_of(filename)
    declared = content_type.partition(";")[0].strip().lower()
    expected = TYPES.get(extension)
    if expected is None:
        raise PlatformError(415, "UNSUPPORTED_TYPE", "Files of this type are not accepted.")
    generic = declared in ("", "application/octet-stream")
    if (
        not generic
        and declared != expected
        and declared not in ALTERNATIVE_TYPES.get(extension, ())
    ):
        raise PlatformError(
            415, "UNSUPPORTED_TYPE", "The content type does not match the file's extension."
        )
    if not matches_extension(extension, data):
        raise PlatformError(
            415, "UNSUPPORTED_TYPE", "The content does not match the file's extension."
        )
    return extension


def shrink_image(extension: str, data: bytes) -> bytes:
    """Shrink a large image; return other files unchanged. Refuse images with too many pixels."""
    if extension not in PICTURES:
        return data
    if find_spec("PIL") is None:
        raise not_installed("Pillow")
    try:
        if extension in SHRINKABLE and len(data) > LARGE_IMAGE:
            return images.shrink(data)
        images.check_pixels(data)  # a small file can decompress to gigabytes
        return data
    except images.TooManyPixels as error:
        raise PlatformError(413, "TOO_LARGE", error.message) from None


# --- storing -------------------------------------------------------------------------------------


def store_file(
    memory: Commonplace, running: Service, folder: str, filename: str, data: bytes
) -> tuple[str, int]:
    """Store a file under a unique name; return the name and the stored size."""
    masked = len(masked_secret_kinds())
    extension = extension_of(filename)
    stem = PurePosixPath(filename.replace("\\", "/")).name[: -len(extension) - 1]
    base = _UNSAFE.sub("_", stem)[:BASE_NAME_CHARS] or "_"
    at = time.time_ns() // 1_000_000
    while True:
        name = f"{at}_{base}.{extension}"
        try:
            memory.artifacts.create(
                data, path=f"mama/{folder}/{name}", title=name,
                media_type=TYPES.get(extension, "application/octet-stream"),
            )  # fmt: skip
        except Conflict:
            at += 1
            continue
        # Secrets must be masked in the copy as in the stored text.
        if len(masked_secret_kinds()) > masked:
            data = memory.artifacts.read(f"mama/{folder}/{name}")[1].content
        files.write_after_commit(memory, running.folder / folder / name, data)
        return name, len(data)


def find_file(
    memory: Commonplace,
    running: Service,
    name: str,
    folders: tuple[str, ...] = (OUTBOUND, INBOUND),
) -> bytes:
    """Find a file by its name; files that agents created come first."""
    if not _PLAIN.fullmatch(name) or name in (".", ".."):
        raise not_found("File")
    for folder in folders:
        try:
            return memory.artifacts.read(f"mama/{folder}/{name}")[1].content
        except NotFound:
            data = files.read_regular(running.folder / folder / name, MOST_BYTES)
            if data is not None:
                return data
    raise not_found("File")


# --- operations ----------------------------------------------------------------------------------


class _Upload:
    """The content of an upload during its request."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Download(dict[str, Any]):
    """The name, size and digest of a file for the audit, with its content for the response."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        self.data = data


_uploads: WeakValueDictionary[str, _Upload] = WeakValueDictionary()
"""Uploads by the digest of their content. An operation gets the digest as its argument, because the
content of up to 20 MB would be copied several times."""


def upload(call: Call, *, filename: str, content_type: str, sha256: str) -> Any:
    """Store an uploaded file."""
    found = _uploads.get(sha256)
    if found is None:
        raise missing_fields("file")
    wait = service.service_of(call).uploads.take(call.request_info.address)
    if wait:
        raise TooManyCalls(
            f"Only {service.UPLOADS_PER_MINUTE} uploads a minute are accepted.", wait=wait
        )
    content = found.data
    if len(content) > MOST_BYTES:
        raise PlatformError(413, "TOO_LARGE", f"A file may have at most {MOST_BYTES:,} bytes.")
    extension = check_upload(filename, content_type, content)
    content = shrink_image(extension, content)
    name, size = store_file(call.memory, service.service_of(call), INBOUND, filename, content)
    return {
        "success": True,
        "filename": name,
        "mediaUrl": f"/api/media/{name}",
        "size": size,
        "contentType": TYPES[extension],
    }


def read_media(call: Call, *, filename: str) -> Any:
    """Return an uploaded file, or a file that an agent created."""
    return _Download(filename, find_file(call.memory, service.service_of(call), filename))


async def _upload_reply(exchange: Exchange) -> Reply:
    request = exchange.request
    assert isinstance(request, Request)
    given, held = {"filename": "", "content_type": "", "sha256": ""}, None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        async with request.form(max_files=1, max_fields=10) as form:
            file = form.get("file")
            if isinstance(file, UploadFile):
                held = _Upload(await file.read())
                digest = (await asyncio.to_thread(hashlib.sha256, held.data)).hexdigest()
                held = _uploads.setdefault(digest, held)
                given = {
                    "filename": file.filename or "", "content_type": file.content_type or "",
                    "sha256": digest,
                }  # fmt: skip
    reply = Reply(await exchange.perform(given))
    del held  # the operation has looked up the upload, so it can be removed now
    return reply


async def _file_reply(exchange: Exchange, *, download: bool) -> Reply:
    file: _Download = await exchange.perform(await exchange.request_arguments())
    name: str = file["name"]
    extension = extension_of(name)
    attached = download or extension in DOWNLOAD_ONLY
    kind = "application/octet-stream" if download else TYPES.get(extension, "text/plain")
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    how = "attachment" if attached else "inline"
    headers = {
        "content-disposition": f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}",
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
    }
    return Reply(file.data, 200, headers, kind)


async def _inline_reply(exchange: Exchange) -> Reply:
    return await _file_reply(exchange, download=False)


async def _download_reply(exchange: Exchange) -> Reply:
    return await _file_reply(exchange, download=True)


_FILE = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}}}
_FILE_BODY = {"required": True, "content": {"multipart/form-data": {"schema": _FILE}}}
OPERATIONS = (
    operation(
        "upload_media", "Upload a file", "write", upload, ("filename", "content_type", "sha256"),
        {"filename": TEXT, "content_type": TEXT, "sha256": TEXT}, has_secret_arguments=True,
    ),
    operation(
        "read_media", "Read a file", "read", read_media, ("filename",), {"filename": TEXT}
    ),
)  # fmt: skip
ROUTES = (
    Route(
        "POST", "/api/upload", "upload_media", answer=_upload_reply,
        upload_bytes=MOST_BYTES + 1024 * 1024, request_body=_FILE_BODY,
    ),
    Route("GET", "/api/media/{filename}", "read_media", answer=_inline_reply, media_type="*/*"),
    Route(
        "GET", "/api/media/download/{filename}", "read_media", answer=_download_reply,
        media_type="*/*",
    ),
)  # fmt: skip
