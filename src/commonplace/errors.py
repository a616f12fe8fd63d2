"""Every failure a caller can meet: a code, what was wrong, and what to do about it."""

from __future__ import annotations

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of an OSError that mean a full disk."""


class CommonplaceError(Exception):
    """Base of all typed errors. `code` is stable; `message` is for people."""

    code: str = "ERROR"

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message if not hint else f"{message} {hint}")
        self.message = message
        self.hint = hint
        self.field = field

    def as_dict(self) -> dict[str, str]:
        """The error as a script reads it."""
        parts = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.field is not None:
            parts["field"] = self.field
        return parts


class InvalidInput(CommonplaceError):
    """An argument is not acceptable; nothing was changed."""

    code = "INVALID_INPUT"


class NotFound(CommonplaceError):
    """There is no such thing in this space."""

    code = "NOT_FOUND"


class Conflict(CommonplaceError):
    """The thing changed, or exists already; nothing was changed by this call."""

    code = "CONFLICT"


class StorageFull(CommonplaceError):
    """No room on the disk; nothing of this call was stored."""

    code = "STORAGE_FULL"


class StorageUnavailable(CommonplaceError):
    """The disk or the file refused; nothing of this call was acknowledged."""

    code = "STORAGE_UNAVAILABLE"


class StorageReadOnly(StorageUnavailable):
    """The data can only be read; nothing was stored, and reading goes on."""

    code = "STORAGE_READ_ONLY"


class StorageCorrupt(CommonplaceError):
    """What is on disk is not what was stored; it is not returned."""

    code = "STORAGE_CORRUPT"


class UnsupportedVersion(CommonplaceError):
    """The file was written by a newer release, or by something else."""

    code = "UNSUPPORTED_VERSION"


class EmbeddingUnavailable(CommonplaceError):
    """The embedding provider did not answer usefully; words still work."""

    code = "EMBEDDING_UNAVAILABLE"
