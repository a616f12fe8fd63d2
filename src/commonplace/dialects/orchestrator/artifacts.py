"""Artifacts: documents that agents share, with versions and reviews."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import workspaces
from commonplace.dialects.orchestrator.answering import LARGE_BYTES, Answer, stamp, tool
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.engine.model import Artifact, Origin
from commonplace.errors import Conflict, InvalidInput, NotFound

CONTENT_BYTES = 512 * 1024
REVIEW_OUTCOMES = ("approved", "changes_requested", "commented")
OWNER_ATTR = "agent_slug"  # the attr that marks artifacts of this dialect

AgentId = Annotated[str, "The id of the agent that does it."]
AgentSlug = Annotated[str, "Its slug; one of the two is required."]
ArtifactId = Annotated[str, "The artifact's id."]


@tool("write", {"artifact_id": "", "version": 0, "info": ""})
def create_artifact(
    call: Call,
    *,
    title: Annotated[str, "The title."],
    content: Annotated[str, "The content; at most 512 KiB."],
    content_type: Annotated[str, "Its MIME type."] = "text/markdown",
    conversation_id: Annotated[str, "The conversation it belongs to."] = "",
    agent_id: AgentId = "",
    agent_slug: AgentSlug = "",
) -> Answer:
    """Create a shared document or code artifact that all agents of the workspace can read."""
    _check_size(content)
    agent = workspaces.get_agent(call.memory, agent_id, agent_slug)
    conversation = workspaces.conversation_id_of(call, conversation_id)
    attrs = {OWNER_ATTR: agent.slug, "conversation_id": conversation}
    artifact = call.memory.artifacts.create(
        content, title=title, media_type=content_type or "text/markdown", attrs=attrs,
        origin=_agent_origin(call, agent.slug),
    )  # fmt: skip
    _announce(call, artifact, agent.slug, f"created “{title}”, version 1")
    return {"artifact_id": artifact.id, "version": 1, "info": "artifact created"}


@tool(
    "read",
    {
        "artifact_id": "", "title": "", "content_type": "", "content": "", "version": 0,
        "status": "", "reviews": [], "versions": [],
    },
    response_bytes=LARGE_BYTES,
)  # fmt: skip
def read_artifact(
    call: Call,
    *,
    artifact_id: ArtifactId,
    version: Annotated[int, "Which version; the newest if not given."] = 0,
) -> Answer:
    """Read an artifact's content, status and reviews, with its version history."""
    artifact = _get_artifact(call, artifact_id)
    wanted = version if version > 0 else artifact.version
    _, content = call.memory.artifacts.read(artifact.id, version=wanted)
    reviews = call.memory.artifacts.reviews(artifact.id, version=wanted)
    return {
        "artifact_id": artifact.id,
        "title": artifact.title,
        "content_type": artifact.media_type,
        "content": content.content.decode(errors="replace"),
        "version": wanted,
        "status": artifact.status,
        "reviews": [
            {
                "reviewer_agent_slug": review.reviewer,
                "outcome": review.outcome,
                "comments": review.comments,
                "created_at": stamp(review.created_at),
            }
            for review in reviews
        ],
        "versions": [
            {
                "version": each.version,
                "change_summary": each.summary,
                "agent_slug": _agent_slug(each.origin),
                "created_at": stamp(each.created_at),
            }
            for each in call.memory.artifacts.versions(artifact.id)
        ],
    }


@tool("write", {"version": 0, "info": ""})
def update_artifact(
    call: Call,
    *,
    artifact_id: ArtifactId,
    content: Annotated[str, "The new content; at most 512 KiB."],
    change_summary: Annotated[str, "What changed."] = "",
    expected_version: Annotated[int, "The update is refused if this is not the newest."] = 0,
    agent_id: AgentId = "",
    agent_slug: AgentSlug = "",
) -> Answer:
    """Store a new version of an artifact, unless expected_version is given and not the newest."""
    _check_size(content)
    agent = workspaces.get_agent(call.memory, agent_id, agent_slug)
    _get_own_artifact(call, artifact_id)
    updated = call.memory.artifacts.update(
        artifact_id, content, summary=change_summary,
        expected_version=expected_version if expected_version > 0 else None,
        origin=_agent_origin(call, agent.slug),
    )  # fmt: skip
    _announce(call, updated, agent.slug, f"updated “{updated.title}”, version {updated.version}")
    return {"version": updated.version, "info": "artifact updated"}


@tool("write", {"reviewed": False, "info": ""})
def review_artifact(
    call: Call,
    *,
    artifact_id: ArtifactId,
    outcome: Annotated[str, "approved, changes_requested or commented."],
    comments: Annotated[str, "Why."],
    version: Annotated[int, "Which version; the newest if not given."] = 0,
    agent_id: AgentId = "",
    agent_slug: AgentSlug = "",
) -> Answer:
    """Review an artifact: approve it, request changes, or comment."""
    if outcome not in REVIEW_OUTCOMES:
        raise InvalidInput("outcome must be approved, changes_requested, or commented")
    agent = workspaces.get_agent(call.memory, agent_id, agent_slug)
    artifact = _get_own_artifact(call, artifact_id)
    call.memory.artifacts.review(
        artifact.id, outcome, reviewer=agent.slug, comments=comments,
        version=version if version > 0 else None, origin=_agent_origin(call, agent.slug),
    )  # fmt: skip
    _announce(call, artifact, agent.slug, f"reviewed “{artifact.title}”: {outcome}")
    return {"reviewed": True, "info": f"review recorded: {outcome}"}


def _agent_origin(call: Call, slug: str) -> Origin:
    return replace(call.origin, client=f"agent:{slug}")


def _agent_slug(origin: Origin) -> str:
    return origin.client.removeprefix("agent:") if origin.client.startswith("agent:") else ""


def _check_size(content: str) -> None:
    if len(content.encode()) > CONTENT_BYTES:
        raise InvalidInput("content exceeds maximum allowed size")


def _get_artifact(call: Call, identity: str) -> Artifact:
    try:
        return call.memory.artifacts.get(identity)
    except NotFound:
        raise NotFound("artifact not found") from None


def _get_own_artifact(call: Call, identity: str) -> Artifact:
    """Return an artifact of this dialect; raise Conflict for another dialect's artifact."""
    artifact = _get_artifact(call, identity)
    if OWNER_ATTR not in artifact.attrs:
        raise Conflict("this artifact belongs to another dialect; change it there")
    return artifact


def _announce(call: Call, artifact: Artifact, slug: str, text: str) -> None:
    """Add a message about the artifact to its conversation, unless that has been removed since."""
    conversation = artifact.attrs.get("conversation_id", "")
    if conversation and records.find(call.memory, conversation, workspaces.CONVERSATION):
        workspaces.append_message(
            call.memory, conversation, slug, f"{slug} {text}", tags=(f"artifact:{artifact.id}",),
            origin=_agent_origin(call, slug),
        )  # fmt: skip
