"""Artifacts: files with a path. The path is a column of a row, never a name on the disk."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield.failures import AlreadyExists, BadPath, Missing, TooBig, stamp
from commonplace.engine.model import Artifact
from commonplace.errors import Conflict, NotFound
from commonplace.platform.exclusive import exclusively

MAX_BYTES = 10 * 1024 * 1024
MAX_DEPTH = 10
SEGMENT_CHARS = 128
_PATH = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}){1,10}")
_PREFIX = re.compile(r"/|(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}){1,10}/?")
_TYPES = {
    "md": "text/markdown", "txt": "text/plain", "json": "application/json", "html": "text/html",
    "css": "text/css", "js": "text/javascript", "py": "text/x-python", "svg": "image/svg+xml",
    "xml": "application/xml", "yaml": "application/yaml", "yml": "application/yaml",
    "csv": "text/csv",
}  # fmt: skip
DEFAULT_TYPE = "application/octet-stream"


def check_path(path: str) -> str:
    """Return the path if it is valid for an artifact; raise BadPath otherwise."""
    if _PATH.fullmatch(path) and ".." not in path.split("/"):
        return path
    segments = path[1:].split("/")
    if not path.startswith("/"):
        wrong = "A path must start with '/'."
    elif path.endswith("/"):
        wrong = "A path must name a file, not a directory."
    elif ".." in segments:
        wrong = "A path must not contain '..'."
    elif any(segment.startswith(".") for segment in segments):
        wrong = "A path must not name a hidden file: no part of it may start with '.'."
    elif len(segments) > MAX_DEPTH:
        wrong = f"A path can have at most {MAX_DEPTH} levels."
    elif any(len(segment) > SEGMENT_CHARS for segment in segments):
        wrong = f"A part of a path can have at most {SEGMENT_CHARS} characters."
    else:
        wrong = "A path can have only letters, digits, '-', '_', '.' and '/', and no empty part."
    raise BadPath(wrong, hint="For example /project/notes.md.", field="path")


def content_type(path: str) -> str:
    """Return the media type of a file by its extension."""
    name = path.rpartition("/")[2]
    _, dot, extension = name.rpartition(".")
    return _TYPES.get(extension.lower(), DEFAULT_TYPE) if dot else DEFAULT_TYPE


def _missing_error(path: str) -> Missing:
    return Missing(f"No artifact at {path}", hint="See list_artifacts.", field="path")


@exclusively
def save_artifact(call: Call, *, content: str, path: str) -> dict[str, Any]:
    """`save_artifact`, POST /artifacts: store a new file; existing files are not overwritten."""
    check_path(path)
    size = len(content.encode())
    if size > MAX_BYTES:
        raise TooBig(
            f"The content has {size:,} bytes; the maximum is {MAX_BYTES:,}.",
            field="content",
            details={"field": "content", "max_length": MAX_BYTES, "actual_length": size},
        )
    parts = path.split("/")
    files = call.memory.artifacts
    for parent in ("/".join(parts[:end]) for end in range(2, len(parts))):
        with contextlib.suppress(NotFound):
            files.get(parent)
            raise BadPath(f"{parent} is a file, so it cannot contain other files.", field="path")
    if files.all(prefix=f"{path}/"):
        raise BadPath(
            f"{path} is a directory.",
            hint="Give the path of a file in this directory.",
            field="path",
        )
    try:
        artifact = files.create(
            content, path=path, title=parts[-1], media_type=content_type(path),
            attrs={"size": size},
        )  # fmt: skip
    except Conflict:
        raise AlreadyExists(
            f"An artifact already exists at {path}",
            hint="Delete it first, or choose another path.",
            field="path",
        ) from None
    return {
        "success": True,
        "message": f"Artifact saved to {path}",
        "path": path,
        "artifact_id": artifact.id,
        "content_type": artifact.media_type,
        "size": size,
        "storage_path": f"artifacts/{artifact.id}",
    }


def retrieve_artifact(call: Call, *, path: str) -> dict[str, Any]:
    """`retrieve_artifact`, GET /artifacts."""
    check_path(path)
    try:
        artifact, version = call.memory.artifacts.read(path)
    except NotFound:
        raise _missing_error(path) from None
    return {
        "success": True,
        "content": version.content.decode("utf-8", "replace"),
        "path": path,
        "content_type": artifact.media_type,
        "size": len(version.content),
    }


def list_artifacts(
    call: Call, *, path_prefix: str = "/", name_pattern: str | None = None
) -> dict[str, Any]:
    """`list_artifacts`, GET /artifacts/list: list one level of a directory."""
    if not _PREFIX.fullmatch(path_prefix):
        check_path(path_prefix.rstrip("/") or path_prefix)
        raise BadPath("The prefix is not a directory.", field="path_prefix")
    folder = path_prefix if path_prefix.endswith("/") else f"{path_prefix}/"
    wanted = (name_pattern or "").casefold()
    folders: dict[str, None] = {}
    files = []
    for artifact in call.memory.artifacts.all(prefix=folder):
        if artifact.path is None:
            continue
        name, deeper, _ = artifact.path[len(folder) :].partition("/")
        if deeper:
            folders[name] = None
        elif wanted in name.casefold():
            files.append(
                {
                    "name": name,
                    "size": _size(call, artifact),
                    "content_type": artifact.media_type,
                    "last_modified": stamp(artifact.updated_at),
                }
            )
    return {"success": True, "path": folder, "folders": sorted(folders), "files": files}


def _size(call: Call, artifact: Artifact) -> int:
    """Return the size of an artifact, from its attrs or else from its content."""
    size = artifact.attrs.get("size")
    if isinstance(size, int) and artifact.version == 1:
        return size
    return len(call.memory.artifacts.read(artifact.id)[1].content)


def delete_artifact(call: Call, *, path: str) -> dict[str, Any]:
    """`delete_artifact`, DELETE /artifacts."""
    check_path(path)
    try:
        call.memory.artifacts.delete(path)
    except NotFound:
        raise _missing_error(path) from None
    return {"success": True, "message": f"Artifact {path} deleted"}
