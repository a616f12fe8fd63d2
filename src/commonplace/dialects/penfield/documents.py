"""Documents: uploaded files; each chunk of their text is a memory."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from commonplace.dialects import binary
from commonplace.dialects.contract import Call
from commonplace.dialects.penfield.chunks import split_text
from commonplace.dialects.penfield.failures import (
    Invalid,
    NoDocument,
    NotOffered,
    TooBig,
    stamp,
)
from commonplace.dialects.penfield.kinds import CHUNK_KIND
from commonplace.dialects.penfield.memories import PageRange, memories_to_dicts
from commonplace.dialects.penfield.searching import CHUNK_REF, DOCUMENT_PATH
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Artifact, Memory
from commonplace.errors import NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive, exclusively
from commonplace.text.files import MOST_BYTES, extension_of, text_of

CHUNK_IMPORTANCE = 0.5
NAME_CHARS = 255


def to_dict(artifact: Artifact) -> dict[str, Any]:
    """Return the fields of a document."""
    about = artifact.attrs["document"]
    return {
        "id": id_of_document(artifact),
        "filename": artifact.title,
        "file_type": extension_of(artifact.title),
        "content_type": artifact.media_type,
        "file_size": about["size"],
        "content_hash": about["sha256"],
        "status": "completed",
        "chunk_count": about["chunks"],
        "metadata": about.get("metadata") or {},
        "created_at": stamp(artifact.created_at),
        "updated_at": stamp(artifact.updated_at),
    }


def id_of_document(artifact: Artifact) -> str:
    """Return the id of a document, which is the end of its path."""
    return (artifact.path or "").removeprefix(DOCUMENT_PATH)


def safe_name(name: str) -> str:
    """Return the file name of a path, without unprintable characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(sign for sign in last if sign.isprintable()).strip()
    if not printable or printable in (".", "..") or len(printable) > NAME_CHARS:
        raise Invalid(f"A file needs a name of 1 to {NAME_CHARS} characters.", field="file")
    return printable


def all_documents(call: Call) -> list[Artifact]:
    """Return all documents, newest first."""
    found = call.memory.artifacts.all(prefix=DOCUMENT_PATH)
    return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)


def get_document(call: Call, identity: str) -> Artifact:
    """Return the document with this id; raise NoDocument if there is none."""
    try:
        return call.memory.artifacts.get(DOCUMENT_PATH + identity.lower())
    except NotFound:
        raise NoDocument("Document not found", field="id") from None


def upload_document(
    call: Call, *, filename: str, data: str, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """POST /documents/upload: store the file, and each chunk of its text as a memory."""
    name = safe_name(filename)
    raw = binary.decode(data)
    if len(raw) > MOST_BYTES:
        raise TooBig(
            f"The file has {len(raw):,} bytes; the maximum is {MOST_BYTES:,}.",
            field="file",
            details={"field": "file", "max_length": MOST_BYTES, "actual_length": len(raw)},
        )
    digest = hashlib.sha256(raw).hexdigest()
    if (same := _duplicate_response(call, digest)) is not None:
        return same
    # Extracting the text is slow, so it is done before the lock is taken.
    text, media_type = text_of(name, raw)
    chunks = split_text(text)
    about = {
        "size": len(raw),
        "sha256": digest,
        "chunks": len(chunks),
        "metadata": dict(metadata or {}),
    }
    identity = str(uuid.uuid4())
    drafts = [
        Draft(
            text=chunk.text,
            kind=CHUNK_KIND,
            title=name,
            importance=CHUNK_IMPORTANCE,
            trust="external",
            ref=f"{CHUNK_REF}{identity}:{at}",
            attrs={
                "document": identity,
                "chunk": at,
                "chunks": len(chunks),
                "start": chunk.start,
                "stop": chunk.stop,
                "metadata": {"document_id": identity, "filename": name},
            },
        )
        for at, chunk in enumerate(chunks)
    ]
    with exclusive(call.memory, "upload document"):
        # Another call may have uploaded the same file.
        if (same := _duplicate_response(call, digest)) is not None:
            return same
        call.memory.remember_many(drafts)
        return to_dict(
            call.memory.artifacts.create(
                raw,
                path=DOCUMENT_PATH + identity,
                title=name,
                media_type=media_type,
                attrs={"document": about},
            )
        )


def _duplicate_response(call: Call, digest: str) -> dict[str, Any] | None:
    """Return the response for the upload of an existing file, or None if the file is new."""
    for one in all_documents(call):
        if one.attrs["document"]["sha256"] == digest:
            again = to_dict(one)
            again["metadata"] = {**again["metadata"], "duplicate_upload": True}
            return again
    return None


def chunks_of(call: Call, artifact: Artifact) -> list[Memory]:
    """Return the live memories of a document's chunks, in order."""
    refs = (
        f"{CHUNK_REF}{id_of_document(artifact)}:{at}"
        for at in range(artifact.attrs["document"]["chunks"])
    )
    found = (lookup.find_live_memory(call.memory, ref) for ref in refs)
    return [memory for memory in found if memory is not None]


def list_documents(call: Call, *, page: int, per_page: int) -> dict[str, Any]:
    """GET /documents."""
    return PageRange(page, per_page).select(all_documents(call), to_dict)


def read_document(call: Call, *, id: str, include_chunks: bool) -> dict[str, Any]:
    """GET /documents/{id}."""
    artifact = get_document(call, id)
    chunks = (
        {"chunks": memories_to_dicts(call, chunks_of(call, artifact))} if include_chunks else {}
    )
    return {**to_dict(artifact), **chunks}


def download_document(call: Call, *, id: str) -> dict[str, Any]:
    """GET /documents/{id}/download: return the original file."""
    artifact = get_document(call, id)
    _, version = call.memory.artifacts.read(artifact.id)
    return {
        "filename": artifact.title,
        "content_type": artifact.media_type,
        "data": binary.encode(version.content),
    }


@exclusively
def delete_document(call: Call, *, id: str) -> None:
    """DELETE /documents/{id}: delete the file and its chunks."""
    artifact = get_document(call, id)
    chunks = {memory.id for memory in chunks_of(call, artifact)}
    for link in call.memory.links.of():
        if link.source in chunks or link.target in chunks:
            call.memory.links.remove(link.id)
    call.memory.forget(*chunks)
    call.memory.artifacts.delete(artifact.id)


def reprocess_document(call: Call, *, id: str) -> None:
    """POST /documents/{id}/reprocess: not implemented; the contract itself does not offer it."""
    get_document(call, id)
    raise NotOffered(
        "Reprocessing is not implemented.", hint="Delete the document and upload it again."
    )
