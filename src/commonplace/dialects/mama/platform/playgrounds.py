"""HTML pages that agents create; they are served in a sandbox, without the user's session."""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import paths, service
from commonplace.dialects.mama.platform.failures import PlatformError, malformed, not_found
from commonplace.dialects.mama.platform.files import StoredFile
from commonplace.dialects.mama.platform.service import Service, operation
from commonplace.dialects.rest import Exchange, Reply, Route
from commonplace.dialects.tool_schemas import TEXT
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import iso
from commonplace.platform.exclusive import exclusive
from commonplace.text.analysis import fold

FOLDER = "workspace/playgrounds"
MOST_BYTES = 500_000
CONTENT_SECURITY_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline';"
    " style-src 'unsafe-inline'; img-src data: blob:; frame-ancestors 'self'"
)
_SLUG = re.compile(r"[a-z0-9-]{1,64}")


def _parse_index(data: bytes) -> list[Any]:
    found = json.loads(data)
    if not isinstance(found, list):
        raise ValueError("it is not a list")
    return found


def _render_index(index: list[Any]) -> bytes:
    return (json.dumps(index, ensure_ascii=False, indent=2) + "\n").encode()


INDEX = StoredFile(f"{FOLDER}/index.json", _parse_index, _render_index, [])


def _page_file(slug: str) -> StoredFile:
    return StoredFile(f"{FOLDER}/{slug}.html", bytes.decode, str.encode, "")


def _index_entry(found: Any) -> dict[str, Any] | None:
    """Return the fields of an index entry, or None if the entry is malformed."""
    names = ("name", "slug", "description", "created_at")
    if not isinstance(found, dict) or not _SLUG.fullmatch(str(found.get("slug", ""))):
        return None
    return {name: str(found.get(name) or "") for name in names}


def existing_playgrounds(memory: Commonplace, running: Service) -> list[dict[str, Any]]:
    """Return the playgrounds that have a page file, even if the index omits them."""
    index = [entry for each in INDEX.load(memory, running) if (entry := _index_entry(each))]
    slugs = {entry["slug"] for entry in index}
    folder = running.folder / FOLDER
    if folder.is_dir():
        for file in sorted(folder.glob("*.html")):
            if file.stem not in slugs and _SLUG.fullmatch(file.stem):
                at = datetime.fromtimestamp(file.lstat().st_mtime, UTC)
                index.append(
                    {"name": file.stem, "slug": file.stem, "description": "", "created_at": iso(at)}
                )
    return [entry for entry in index if _page_file(entry["slug"]).load(memory, running)]


def store_playground(
    memory: Commonplace, running: Service, name: str, html: str, description: str = ""
) -> str:
    """Store a page and add it to the index; return its slug.

    A page with the same name is replaced, and keeps its slug.
    """
    if len(html.encode()) > MOST_BYTES:
        raise PlatformError(413, "TOO_LARGE", f"The page is larger than {MOST_BYTES:,} bytes.")
    with exclusive(memory, "create playground"):
        held = existing_playgrounds(memory, running)
        same = (entry["slug"] for entry in held if fold(entry["name"]) == fold(name))
        slug = next(same, None) or _free_slug(name, {entry["slug"] for entry in held})
        others = [entry for entry in held if entry["slug"] != slug]
        made = {
            "name": name, "slug": slug, "description": description,
            "created_at": iso(datetime.now(UTC)),
        }  # fmt: skip
        _page_file(slug).save(memory, running, html)
        INDEX.save(memory, running, [*others, made])
    return slug


def _free_slug(name: str, taken: set[str]) -> str:
    """Return a slug for a name; names with the same letters and digits of ASCII get numbers."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].strip("-") or "playground"
    numbered = (f"{slug[:58].strip('-')}-{number}" for number in itertools.count(2))
    return slug if slug not in taken else next(one for one in numbered if one not in taken)


def create_playground(call: Call, *, name: str, html: str, description: str) -> Any:
    """Create a page that the user can open; replace a page with the same name."""
    slug = store_playground(call.memory, service.service_of(call), name, html, description)
    return {"success": True, "slug": slug, "url": f"/playgrounds/{slug}.html"}


def list_playgrounds(call: Call) -> Any:
    """List playgrounds."""
    return existing_playgrounds(call.memory, service.service_of(call))


def delete_playground(call: Call, *, slug: str) -> Any:
    """Delete a playground; succeed even if it is missing."""
    if not _SLUG.fullmatch(slug):
        raise malformed("slug must be 1 to 64 small letters, digits or -.")
    running = service.service_of(call)
    with exclusive(call.memory, "delete playground"):
        held = existing_playgrounds(call.memory, running)
        if any(entry["slug"] == slug for entry in held):
            _page_file(slug).delete(call.memory, running)
            kept = [entry for entry in held if entry["slug"] != slug]
            INDEX.save(call.memory, running, kept)
    return {"success": True}


def read_playground(call: Call, *, file: str) -> Any:
    """Return the page of a playground."""
    slug, _, ending = file.rpartition(".")
    if ending != "html" or not _SLUG.fullmatch(slug):
        raise not_found("Playground")
    html = _page_file(slug).load(call.memory, service.service_of(call))
    if not html:
        raise not_found("Playground")
    return html


def _html_reply(exchange: Exchange, value: Any) -> Any:
    del exchange
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "x-frame-options": "SAMEORIGIN"}
    return Reply(value, 200, headers, "text/html; charset=utf-8")


# --- skills in the workspace ---------------------------------------------------------------------

_SKILL = re.compile(r"[A-Za-z0-9_-]+")
SKILL_BYTES = 200_000


def list_workspace_skills(call: Call) -> Any:
    """List the skills in the workspace."""
    running = service.service_of(call)
    folder = paths.workspace(running) / "skills"
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    return {"skills": [{"id": name} for name in names if _skill_text(running, name)]}


def _skill_text(running: Service, name: str) -> str:
    """Return the text of a skill in the workspace, or "" if it cannot be read."""
    if not _SKILL.fullmatch(name):
        return ""
    try:
        return paths.read_file(running, f"skills/{name}/SKILL.md", most=SKILL_BYTES).data.decode()
    except (PlatformError, UnicodeDecodeError):
        return ""


def read_workspace_skill(call: Call, *, name: str) -> Any:
    """Return the text of a skill in the workspace."""
    if not _SKILL.fullmatch(name):
        raise malformed("name must be letters, digits, - or _.")
    text = _skill_text(service.service_of(call), name)
    if not text:
        raise not_found("Skill")
    return {"content": text}


OPERATIONS = (
    operation(
        "playground_create", "Create a playground", "operator", create_playground,
        ("name", "html"),
        {
            "name": {"type": "string", "minLength": 1, "maxLength": 200}, "html": TEXT,
            "description": {"type": "string", "maxLength": 2_000, "default": ""},
        },
    ),
    operation("list_playgrounds", "List playgrounds", "read", list_playgrounds),
    operation(
        "delete_playground", "Delete a playground", "operator", delete_playground, ("slug",),
        {"slug": TEXT},
    ),
    operation(
        "read_playground", "Read a playground", "read", read_playground, ("file",), {"file": TEXT}
    ),
    operation("list_workspace_skills", "List workspace skills", "read", list_workspace_skills),
    operation(
        "read_workspace_skill", "Read a workspace skill", "read", read_workspace_skill, ("name",),
        {"name": TEXT},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/playgrounds", "list_playgrounds"),
    Route("DELETE", "/api/playgrounds/{slug}", "delete_playground"),
    Route(
        "GET", "/playgrounds/{file}", "read_playground", show=_html_reply, media_type="text/html"
    ),
    Route("GET", "/api/workspace/skills", "list_workspace_skills"),
    Route("GET", "/api/workspace/skills/{name}/content", "read_workspace_skill"),
)
