"""Skills: texts that agents can read. Skills are data; no part of a skill is ever executed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonplace.dialects.contract import Call, Schema
from commonplace.dialects.mama.platform import files, github, mcp_servers, service
from commonplace.dialects.mama.platform.failures import PlatformError, malformed, not_found
from commonplace.dialects.mama.platform.files import StoredFile
from commonplace.dialects.mama.platform.service import Service, operation, read_arguments
from commonplace.dialects.rest import Exchange, Route
from commonplace.dialects.tool_schemas import FLAG, TEXT
from commonplace.engine.commonplace import Commonplace
from commonplace.errors import NotFound
from commonplace.platform.exclusive import exclusive
from commonplace.text.analysis import fold

SOURCES = ("mama", "cowork", "external")
CATALOG = "anthropics/knowledge-work-plugins"
CATALOG_SECONDS = 3600.0
CONTENT_CHARS = 200_000
NAME_CHARS, DESCRIPTION_CHARS = 200, 200
TEXT_FILES = ("SKILL.md", "skill.md", "README.md")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_FRONTMATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.S)
_HEADING = re.compile(r"^#[ \t]+(\S.*)\n*([^#\n].*(?:\n.+)*)?", re.M)


def _parsed_state(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _rendered_state(state: dict[str, Any]) -> bytes:
    return (json.dumps(state, ensure_ascii=False, indent=2) + "\n").encode()


STATE = StoredFile("skills/state.json", _parsed_state, _rendered_state, {})


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill by its source and id."""

    source: str
    id: str

    @property
    def key(self) -> str:
        """The key of the skill in the state file."""
        return f"{self.source}/{self.id}"

    @property
    def folder(self) -> str:
        """The folder of the skill's files, below DATA/mama."""
        return f"skills/{self.source}/{self.id}"

    @property
    def artifacts(self) -> str:
        """The path prefix of the skill's other files, which are artifacts."""
        return f"mama/{self.folder}/"

    def text(self, name: str = TEXT_FILES[0]) -> StoredFile:
        """Return the stored file with the skill's text."""
        return StoredFile(f"{self.folder}/{name}", bytes.decode, str.encode, "")


def checked_skill(source: str, name: str) -> Skill:
    """Return the skill with this source and name; refuse invalid ones."""
    if source not in SOURCES:
        raise malformed(f"source must be one of {', '.join(SOURCES)}.")
    if not _NAME.fullmatch(name) or ".." in name:
        raise malformed("name must be 1 to 100 letters, digits, -, _ or dots.")
    return Skill(source, name)


# --- installed skills ----------------------------------------------------------------------------


def skill_text(memory: Commonplace, running: Service, skill: Skill) -> str:
    """Return the text of a skill, or an empty string if there is none."""
    for name in TEXT_FILES:
        if text := skill.text(name).load(memory, running):
            return str(text)
    if skill.source == "mama":  # a skill can also be a single file
        data = files.read_regular(running.folder / "skills" / f"{skill.id}.md")
        if data is not None:
            return data.decode("utf-8", "replace")
    return ""


def installed_skills(memory: Commonplace, running: Service) -> Iterator[tuple[Skill, str]]:
    """Yield every skill with its text, by source and name."""
    found: dict[str, Skill] = {}
    for record in files.records.listing(memory, files.KIND):
        parts = (record.ref or "").removeprefix("mama:").split("/")
        if len(parts) == 4 and parts[0] == "skills" and parts[3] in TEXT_FILES:
            found.setdefault(f"{parts[1]}/{parts[2]}", Skill(parts[1], parts[2]))
    root = running.folder / "skills"
    for source in SOURCES:
        for folder in _folder_entries(root / source):
            if folder.is_dir() and _NAME.fullmatch(folder.name):
                found.setdefault(f"{source}/{folder.name}", Skill(source, folder.name))
    for file in _folder_entries(root):
        if file.suffix == ".md" and _NAME.fullmatch(file.stem):
            found.setdefault(f"mama/{file.stem}", Skill("mama", file.stem))
    for skill in sorted(found.values(), key=lambda each: (SOURCES.index(each.source), each.id)):
        if text := skill_text(memory, running, skill):
            yield skill, text


def _folder_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def name_and_description(skill: Skill, text: str) -> tuple[str, str]:
    """Return name and description, from the frontmatter, the first heading, or the id.

    Each is one line, since agents are told of a skill in a line of their instructions.
    """
    fields, body = _frontmatter(text)
    name, description = fields.get("name"), fields.get("description")
    heading = _HEADING.search(body)
    if not isinstance(name, str) or not name.strip():
        name = heading[1] if heading else skill.id
    if not isinstance(description, str):
        description = (heading[2] or "") if heading else ""
    return " ".join(name.split())[:NAME_CHARS], " ".join(description.split())[:DESCRIPTION_CHARS]


def _frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields of the frontmatter, and the text after it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _FRONTMATTER.match(text)
    if found is None:
        return {}, text
    body = text[found.end() :]
    try:
        import yaml
    except ImportError:
        return {}, body
    try:
        fields = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, body
    return fields if isinstance(fields, dict) else {}, body


def is_enabled(state: dict[str, Any], skill: Skill, text: str) -> bool:
    """Return whether a skill is enabled, according to the state file or else the frontmatter."""
    entry = state.get(skill.key)
    if isinstance(entry, dict) and isinstance(entry.get("enabled"), bool):
        return bool(entry["enabled"])
    return _frontmatter(text)[0].get("enabled") is not False


def to_dict(skill: Skill, text: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a skill for lists."""
    name, description = name_and_description(skill, text)
    return {
        "id": skill.id, "name": name, "description": description, "source": skill.source,
        "installed": True, "enabled": is_enabled(state, skill, text),
    }  # fmt: skip


def skill_dicts(memory: Commonplace, running: Service) -> list[dict[str, Any]]:
    """Return the fields of every installed skill for lists."""
    state = STATE.load(memory, running)
    return [to_dict(skill, text, state) for skill, text in installed_skills(memory, running)]


def store_skill(
    memory: Commonplace, running: Service, skill: Skill, text: str, more: dict[str, bytes]
) -> None:
    """Store the text and the other files of a skill; replace earlier ones."""
    for artifact in memory.artifacts.all(prefix=skill.artifacts):
        if artifact.path is not None and artifact.path.removeprefix(skill.artifacts) not in more:
            memory.artifacts.delete(artifact.path)
            files.remove_after_commit(memory, running.folder / artifact.path.removeprefix("mama/"))
    for name, data in more.items():
        path = skill.artifacts + name
        try:
            memory.artifacts.update(path, data)
        except NotFound:
            memory.artifacts.create(data, path=path, media_type="application/octet-stream")
        files.write_after_commit(memory, running.folder / skill.folder / name, data)
    skill.text().save(memory, running, text)


def remove_skill(memory: Commonplace, running: Service, skill: Skill) -> None:
    """Delete a skill, its files, its state, and the MCP servers that came with it."""
    for name in TEXT_FILES:
        skill.text(name).delete(memory, running)
    for artifact in memory.artifacts.all(prefix=skill.artifacts):
        if artifact.path is not None:
            memory.artifacts.delete(artifact.path)
            files.remove_after_commit(memory, running.folder / artifact.path.removeprefix("mama/"))
    if skill.source == "mama":
        files.remove_after_commit(memory, running.folder / "skills" / f"{skill.id}.md")
    state = {key: value for key, value in STATE.load(memory, running).items() if key != skill.key}
    STATE.save(memory, running, state)
    _merge_servers(memory, running, skill, {})


def _merge_servers(
    memory: Commonplace, running: Service, skill: Skill, offered: dict[str, Any]
) -> None:
    """Add a skill's MCP servers to mcp-config.json without starting them; keep existing ones."""
    tree = mcp_servers.FILE.load(memory, running)
    held = tree.get(mcp_servers.SERVERS, {})
    kept = {
        name: server
        for name, server in held.items()
        if not isinstance(server, dict) or server.get("_installedBy") != skill.key
    }
    new = {
        name: {**server, "_installedBy": skill.key}
        for name, server in offered.items()
        if isinstance(server, dict) and name not in kept
    }
    if {**kept, **new} != held:
        servers = {**tree, mcp_servers.SERVERS: {**kept, **new}}
        mcp_servers.FILE.save(memory, running, servers)


def _set_state(
    memory: Commonplace, running: Service, skill: Skill, text: str, **changes: Any
) -> None:
    state = STATE.load(memory, running)
    entry = state.get(skill.key)
    held = entry if isinstance(entry, dict) else {}
    entry = {**held, "enabled": is_enabled(state, skill, text), **changes}
    STATE.save(memory, running, {**state, skill.key: entry})


# --- the catalog ---------------------------------------------------------------------------------

_catalogs: dict[str, tuple[float, list[str]]] = {}
"""Cache of the catalog by GitHub's address: the time of reading, and the names."""


def catalog_names(running: Service) -> tuple[list[str], str]:
    """Return the names of installable skills, and an error message if they may be outdated."""
    address = running.environ.get("COMMONPLACE_GITHUB_API_URL") or github.API_URL
    at, names = _catalogs.get(address, (0.0, []))
    if at and time.monotonic() - at < CATALOG_SECONDS:
        return names, ""
    try:
        with github.Repositories(running) as repositories:
            names = repositories.folder_names(CATALOG)
    except PlatformError as error:
        return names, error.message
    _catalogs[address] = (time.monotonic(), names)
    return names, ""


def _catalog_skills(running: Service, held: set[str]) -> tuple[list[dict[str, Any]], str]:
    names, why = catalog_names(running)
    return [
        {
            "id": name, "name": name.replace("-", " "), "description": "", "source": "cowork",
            "installed": f"cowork/{name}" in held, "enabled": False, "remotePath": name,
        }
        for name in names
    ], why  # fmt: skip


# --- operations ----------------------------------------------------------------------------------


def list_skills(call: Call) -> Any:
    """List all installed skills."""
    return {"skills": skill_dicts(call.memory, service.service_of(call))}


def _checked_source(source: str) -> str:
    if source not in ("all", *SOURCES):
        raise malformed(f"source must be all, {', '.join(SOURCES)}.")
    return source


def show_catalog(call: Call, *, source: str) -> Any:
    """Return the skills that can be installed."""
    if _checked_source(source) not in ("all", "cowork"):
        return {"skills": []}
    running = service.service_of(call)
    held = {f"{each['source']}/{each['id']}" for each in skill_dicts(call.memory, running)}
    offered, why = _catalog_skills(running, held)
    return {"skills": offered, **({"stale": True, "error": why} if why else {})}


def search_skills(call: Call, *, q: str, source: str) -> Any:
    """Search installed skills and the catalog; return each skill once."""
    _checked_source(source)
    running = service.service_of(call)
    found = skill_dicts(call.memory, running)
    held = {f"{each['source']}/{each['id']}" for each in found}
    if source in ("all", "cowork"):
        found += [each for each in _catalog_skills(running, held)[0] if not each["installed"]]
    needle = fold(q)
    return {
        "skills": [
            each
            for each in found
            if source in ("all", each["source"])
            and any(needle in fold(each[name]) for name in ("id", "name", "description"))
        ]
    }


def create_skill(call: Call, *, name: str, content: str, source: str) -> Any:
    """Create a skill, or replace the skill with this name."""
    skill, running = checked_skill(source, name), service.service_of(call)
    with exclusive(call.memory, "create skill"):
        store_skill(call.memory, running, skill, content, _other_files(call.memory, skill))
        _set_state(call.memory, running, skill, content)
    return {"success": True, "id": skill.id, "path": f"{skill.folder}/{TEXT_FILES[0]}"}


def _other_files(memory: Commonplace, skill: Skill) -> dict[str, bytes]:
    return {
        artifact.path.removeprefix(skill.artifacts): memory.artifacts.read(artifact.path)[1].content
        for artifact in memory.artifacts.all(prefix=skill.artifacts)
        if artifact.path is not None
    }


def _existing_text(call: Call, skill: Skill) -> str:
    text = skill_text(call.memory, service.service_of(call), skill)
    if not text:
        raise not_found("Skill")
    return text


def write_skill(call: Call, *, name: str, content: str, source: str) -> Any:
    """Change the text of a skill."""
    with exclusive(call.memory, "write skill"):
        _existing_text(call, checked_skill(source, name))
        return create_skill(call, name=name, content=content, source=source)


def toggle_skill(call: Call, *, name: str, enabled: bool, source: str) -> Any:
    """Enable or disable a skill."""
    skill = checked_skill(source, name)
    with exclusive(call.memory, "toggle skill"):
        text = _existing_text(call, skill)
        _set_state(call.memory, service.service_of(call), skill, text, enabled=enabled)
    return {"updated": True}


def delete_skill(call: Call, *, name: str, source: str) -> Any:
    """Uninstall a skill."""
    skill = checked_skill(source, name)
    with exclusive(call.memory, "delete skill"):
        _existing_text(call, skill)
        remove_skill(call.memory, service.service_of(call), skill)
    return {"deleted": True}


def read_skill(call: Call, *, name: str, source: str) -> Any:
    """Return the text of a skill."""
    return {"content": _existing_text(call, checked_skill(source, name))}


def install_skill(call: Call, *, source: str, name: str) -> Any:
    """Install a skill of the catalog, or reinstall a skill from its URL."""
    skill, running = checked_skill(source, name), service.service_of(call)
    if source == "mama":
        raise malformed("Skills of the source mama cannot be installed. Create the skill instead.")
    if source == "external":
        entry = STATE.load(call.memory, running).get(skill.key)
        url = entry.get("repoUrl") if isinstance(entry, dict) else None
        if not isinstance(url, str):
            raise malformed("The URL of this skill is unknown. Install the skill by its URL.")
        return _install(call, skill, github.parse_url(url), url)
    names, why = catalog_names(running)
    if name not in names:
        raise PlatformError(502, "GATEWAY_ERROR", why) if why else not_found("Skill")
    return _install(call, skill, github.Place(CATALOG, "HEAD", name))


def install_url(call: Call, *, url: str) -> Any:
    """Install a skill from a GitHub address."""
    place = github.parse_url(url)
    skill = checked_skill("external", place.name)
    return {**_install(call, skill, place, url), "name": skill.id}


def _install(call: Call, skill: Skill, place: github.Place, url: str = "") -> dict[str, Any]:
    """Fetch all files of a skill, then store them in one transaction."""
    running = service.service_of(call)
    with github.Repositories(running) as repositories:
        found = dict(repositories.files(place))
    texts = [name for name in TEXT_FILES if name in found]
    if not texts:
        raise PlatformError(502, "GATEWAY_ERROR", "The directory has no SKILL.md or README.md.")
    try:
        text = found[texts[0]].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlatformError(502, "GATEWAY_ERROR", "The text of the skill is not UTF-8.") from None
    more = {name: data for name, data in found.items() if name != texts[0]}
    with exclusive(call.memory, "install skill"):
        store_skill(call.memory, running, skill, text, more)
        _set_state(call.memory, running, skill, text, **({"repoUrl": url} if url else {}))
        _merge_servers(call.memory, running, skill, _parse_servers(found.get(".mcp.json")))
    return {"success": True, "path": skill.folder, "files": len(found)}


def _parse_servers(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}").get(mcp_servers.SERVERS, {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def _skill_arguments(exchange: Exchange) -> dict[str, Any]:
    """Read the arguments of a request; the source may be in the query."""
    given = await read_arguments(exchange)
    source = exchange.request.query_params.get("source")
    return {"source": source, **given} if source else given


_CONTENT = {"type": "string", "minLength": 1, "maxLength": CONTENT_CHARS}
_ANY: Schema = {"type": "string", "default": "all"}
_OWN: Schema = {"type": "string", "default": "mama"}
_NAME_AND_SOURCE: dict[str, Schema] = {"name": TEXT, "source": _OWN}
OPERATIONS = (
    operation("list_skills", "List skills", "read", list_skills),
    operation("skill_catalog", "Skill catalog", "read", show_catalog, (), {"source": _ANY},
              open_world=True),
    operation("search_skills", "Search skills", "read", search_skills, ("q",),
              {"q": TEXT, "source": _ANY}, open_world=True),
    operation("install_skill", "Install a skill", "operator", install_skill, ("source", "name"),
              _NAME_AND_SOURCE, stepwise=True, open_world=True),
    operation("install_skill_url", "Install a skill by URL", "operator", install_url, ("url",),
              {"url": TEXT}, stepwise=True, open_world=True),
    operation("create_skill", "Create a skill", "operator", create_skill, ("name", "content"),
              {**_NAME_AND_SOURCE, "content": _CONTENT}),
    operation("write_skill", "Write a skill", "operator", write_skill, ("name", "content"),
              {**_NAME_AND_SOURCE, "content": _CONTENT}),
    operation("toggle_skill", "Enable or disable a skill", "operator", toggle_skill,
              ("name", "enabled"), {**_NAME_AND_SOURCE, "enabled": FLAG}),
    operation("delete_skill", "Delete a skill", "operator", delete_skill, ("name",),
              _NAME_AND_SOURCE),
    operation("read_skill", "Read a skill", "read", read_skill, ("name",), _NAME_AND_SOURCE),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/skills", "list_skills"),
    Route("POST", "/api/skills", "create_skill", 201, read=_skill_arguments, body_bytes=3_000_000),
    Route("GET", "/api/skills/catalog", "skill_catalog", read=_skill_arguments),
    Route("GET", "/api/skills/search", "search_skills", read=_skill_arguments),
    Route("POST", "/api/skills/install", "install_skill", read=read_arguments),
    Route("POST", "/api/skills/install-url", "install_skill_url", read=read_arguments),
    Route(
        "PUT",
        "/api/skills/{name}/content",
        "write_skill",
        read=_skill_arguments,
        body_bytes=3_000_000,
    ),
    Route("PUT", "/api/skills/{name}", "toggle_skill", read=_skill_arguments),
    Route("DELETE", "/api/skills/{name}", "delete_skill", read=_skill_arguments),
    Route("GET", "/api/skills/{name}/readme", "read_skill", read=_skill_arguments),
)
