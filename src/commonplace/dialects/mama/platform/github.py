"""Read public GitHub repositories. Only the operator can set the address of the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from commonplace.dialects.mama.platform.failures import PlatformError, malformed

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service

API_URL, RAW_URL = "https://api.github.com", "https://raw.githubusercontent.com"
SECONDS = 20.0
ANSWER_BYTES = 8 * 1024 * 1024
MAX_FILES, FILE_BYTES, ALL_BYTES = 200, 512 * 1024, 5 * 1024 * 1024
LINK_MODE = "120000"
_URL = re.compile(
    r"https://github\.com/([A-Za-z0-9_.-]{1,100})/([A-Za-z0-9_.-]{1,100}?)(?:\.git)?"
    r"(?:/tree/([A-Za-z0-9_./-]{1,200}?))?/?"
)
_PART = re.compile(r"[^\x00-\x1f\\:*?\"<>|/]{1,200}")


def _gateway_error(message: str) -> PlatformError:
    return PlatformError(502, "GATEWAY_ERROR", message)


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of a repository."""

    repository: str
    branch: str
    folder: str = ""

    @property
    def name(self) -> str:
        """The last part of the path, used as the skill's name."""
        return (self.folder or self.repository).rpartition("/")[2]


def parse_url(url: str) -> Place:
    """Return the directory that a GitHub URL names."""
    found = _URL.fullmatch(url.strip())
    if found is None or {found[1], found[2]} & {".", ".."} or ".." in (found[3] or ""):
        raise malformed("url must be https://github.com/<owner>/<repo>[/tree/<branch>[/<dir>]].")
    branch, _, folder = (found[3] or "HEAD").partition("/")
    return Place(f"{found[1]}/{found[2]}", branch, folder)


class Repositories:
    """A client of GitHub's API, for one request."""

    def __init__(self, running: Service) -> None:
        self._api = running.environ.get("COMMONPLACE_GITHUB_API_URL") or API_URL
        self._raw = running.environ.get("COMMONPLACE_GITHUB_RAW_URL") or RAW_URL
        self._client = httpx.Client(
            timeout=SECONDS, follow_redirects=False, trust_env=False,
            headers={"accept-encoding": "identity", "user-agent": "commonplace"},
        )  # fmt: skip

    def __enter__(self) -> Repositories:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _get(self, url: str, most: int) -> bytes:
        try:
            with self._client.stream("GET", url) as response:
                if response.status_code == 404:
                    raise PlatformError(
                        404, "NOT_FOUND", "GitHub has no such repository, branch or directory."
                    )
                if response.status_code != 200:
                    raise _gateway_error(f"GitHub answered {response.status_code}.")
                data = b""
                for part in response.iter_raw():
                    data += part
                    if len(data) > most:
                        raise _gateway_error("GitHub's answer is too large.")
                return data
        except httpx.HTTPError:
            raise _gateway_error("GitHub cannot be reached.") from None

    def _json(self, path: str) -> Any:
        import json

        try:
            return json.loads(self._get(self._api.rstrip("/") + path, ANSWER_BYTES))
        except ValueError:
            raise _gateway_error("GitHub's response is not valid.") from None

    def folder_names(self, repository: str) -> list[str]:
        """Return the names of the directories at the top of a repository."""
        found = self._json(f"/repos/{repository}/contents")
        if not isinstance(found, list):
            raise _gateway_error("GitHub's response is not valid.")
        names = (each.get("name") for each in found if isinstance(each, dict)
                 and each.get("type") == "dir")  # fmt: skip
        return [name for name in names if isinstance(name, str) and not name.startswith(".")]

    def files(self, place: Place) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) of every file in a directory, without links."""
        tree = self._json(
            f"/repos/{place.repository}/git/trees/{quote(place.branch, safe='')}?recursive=1"
        )
        entries = tree.get("tree") if isinstance(tree, dict) else None
        if not isinstance(entries, list):
            raise _gateway_error("GitHub's response is not valid.")
        if tree.get("truncated"):  # some files of the directory may be missing in the list
            raise PlatformError(413, "TOO_LARGE", "The repository has too many files.")
        prefix = f"{place.folder}/" if place.folder else ""
        blobs = [path for each in entries if (path := _file_path(each, prefix))]
        if not blobs:
            raise PlatformError(
                404, "NOT_FOUND", "This directory of the repository contains no files."
            )
        if len(blobs) > MAX_FILES:
            raise PlatformError(413, "TOO_LARGE", f"A skill may have at most {MAX_FILES} files.")
        size = 0
        for path in blobs:
            address = f"{self._raw.rstrip('/')}/{place.repository}/{place.branch}/{quote(path)}"
            data = self._get(address, FILE_BYTES)
            size += len(data)
            if size > ALL_BYTES:
                raise PlatformError(
                    413, "TOO_LARGE", f"A skill may have at most {ALL_BYTES:,} bytes."
                )
            yield path.removeprefix(prefix), data


def _file_path(entry: Any, prefix: str) -> str:
    """Return the path of a tree entry below a prefix, or "" if it is not a file there."""
    if not isinstance(entry, dict) or entry.get("type") != "blob" or entry.get("mode") == LINK_MODE:
        return ""
    path = entry.get("path")
    if not isinstance(path, str) or not path.startswith(prefix):
        return ""
    if isinstance(entry.get("size"), int) and entry["size"] > FILE_BYTES:
        raise PlatformError(
            413, "TOO_LARGE", f"A file of a skill may have at most {FILE_BYTES:,} bytes."
        )
    parts = path.removeprefix(prefix).split("/")
    if any(part in (".", "..") or not _PART.fullmatch(part) for part in parts):
        raise _gateway_error("The repository has a file with a name that is not allowed.")
    return path
