"""Artifacts: versions, optimistic locking that holds under concurrency, reviews."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from .conftest import Server, Workspace


def create(workspace: Workspace, **more: Any) -> str:
    given = {"title": "Plan", "content": "# One", "agent_slug": "wally", **more}
    answer = workspace.value("create_artifact", **given)
    assert answer["info"] == "artifact created"
    assert answer["version"] == 1
    return str(answer["artifact_id"])


def test_an_artifact_is_created_and_read(workspace: Workspace) -> None:
    identity = create(workspace)
    read = workspace.value("read_artifact", artifact_id=identity)
    (version,) = read.pop("versions")
    assert read == {
        "artifact_id": identity, "title": "Plan", "content_type": "text/markdown",
        "content": "# One", "version": 1, "status": "draft", "reviews": [],
    }  # fmt: skip
    assert version.pop("created_at").endswith("Z")
    assert version == {"version": 1, "change_summary": "Initial version", "agent_slug": "wally"}
    code = create(workspace, content_type="text/x-python", content="print()")
    assert workspace.value("read_artifact", artifact_id=code)["content_type"] == "text/x-python"


def test_versions_are_kept_and_can_be_read(workspace: Workspace) -> None:
    identity = create(workspace)
    given = {"artifact_id": identity, "content": "# Two", "agent_slug": "eve"}
    answer = workspace.value("update_artifact", **given, expected_version=1)
    assert answer == {"version": 2, "info": "artifact updated"}
    workspace.value("update_artifact", **{**given, "content": "# Three"}, change_summary="More")
    newest = workspace.value("read_artifact", artifact_id=identity)
    assert (newest["content"], newest["version"]) == ("# Three", 3)
    assert [(one["version"], one["change_summary"], one["agent_slug"])
            for one in newest["versions"]] == [
        (1, "Initial version", "wally"), (2, "Version 2", "eve"), (3, "More", "eve"),
    ]  # fmt: skip
    assert workspace.value("read_artifact", artifact_id=identity, version=1)["content"] == "# One"
    missing = workspace.call("read_artifact", artifact_id=identity, version=9)
    assert missing.error == "version 9 not found"


def test_another_version_than_expected_is_a_conflict_told_as_info(workspace: Workspace) -> None:
    identity = create(workspace)
    given = {"artifact_id": identity, "content": "x", "agent_slug": "eve"}
    workspace.value("update_artifact", **given)
    answer = workspace.value("update_artifact", **given, expected_version=1)
    assert answer == {"version": 0, "info": "version conflict: expected 1 but current is 2"}
    assert workspace.value("read_artifact", artifact_id=identity)["version"] == 2


def test_of_fifty_at_once_one_wins_fifty_times_over(workspace: Workspace) -> None:
    identity = create(workspace)
    with ThreadPoolExecutor(50) as pool:
        for version in range(1, 51):
            start = Barrier(50)

            def update(n: int, version: int = version, start: Barrier = start) -> dict[str, Any]:
                start.wait()
                return workspace.value(
                    "update_artifact", artifact_id=identity, content=f"{version} by {n}",
                    expected_version=version, agent_slug="wally",
                )  # fmt: skip

            answers = list(pool.map(update, range(50)))
            won = [n for n, answer in enumerate(answers) if answer["info"] == "artifact updated"]
            lost = f"version conflict: expected {version} but current is {version + 1}"
            assert len(won) == 1
            assert sum(answer["info"] == lost for answer in answers) == 49
            read = workspace.value("read_artifact", artifact_id=identity)
            assert (read["version"], read["content"]) == (version + 1, f"{version} by {won[0]}")


def test_reviews_move_the_status_of_the_newest_version(workspace: Workspace) -> None:
    identity = create(workspace)

    def review(outcome: str, **more: Any) -> dict[str, Any]:
        return workspace.value(
            "review_artifact", artifact_id=identity, outcome=outcome, comments="Because.",
            agent_slug="eve", **more,
        )  # fmt: skip

    def status() -> str:
        return str(workspace.value("read_artifact", artifact_id=identity)["status"])

    assert review("commented") == {"reviewed": True, "info": "review recorded: commented"}
    assert status() == "draft"
    review("changes_requested")
    assert status() == "changes_requested"
    review("approved")
    assert status() == "approved"
    workspace.value("update_artifact", artifact_id=identity, content="# Two", agent_slug="wally")
    assert status() == "draft"
    review("approved", version=1)
    assert status() == "draft"
    first = workspace.value("read_artifact", artifact_id=identity, version=1)["reviews"]
    assert [one["outcome"] for one in first] == [
        "commented", "changes_requested", "approved", "approved",
    ]  # fmt: skip
    assert set(first[0]) == {"reviewer_agent_slug", "outcome", "comments", "created_at"}
    assert (first[0]["reviewer_agent_slug"], first[0]["comments"]) == ("eve", "Because.")
    assert workspace.value("read_artifact", artifact_id=identity)["reviews"] == []
    rejected = review("rejected")
    assert rejected == {
        "reviewed": False, "info": "outcome must be approved, changes_requested, or commented",
    }  # fmt: skip
    assert review("approved", version=7)["info"] == "version 7 not found"


def test_what_is_missing_is_told_as_info(workspace: Workspace) -> None:
    def told(tool: str, **given: Any) -> str:
        return str(workspace.value(tool, **given)["info"])

    assert told("create_artifact", title="x") == "title and content are required"
    whose = "agent_id or agent_slug is required"
    assert told("create_artifact", title="x", content="y") == whose
    assert told("update_artifact") == "artifact_id and content are required"
    assert told("update_artifact", artifact_id="x", content="y") == whose
    assert told("review_artifact") == "artifact_id, outcome, and comments are required"
    assert told("review_artifact", artifact_id="x", outcome="approved", comments="c") == whose
    assert workspace.call("read_artifact").error == "artifact_id is required"
    assert workspace.call("read_artifact", artifact_id="nothing").error == "artifact not found"
    given = {"artifact_id": "nothing", "agent_slug": "eve"}
    assert told("update_artifact", **given, content="x") == "artifact not found"
    assert told("review_artifact", **given, outcome="approved", comments="c") == (
        "artifact not found"
    )


@pytest.mark.parametrize("tool", ["create_artifact", "update_artifact"])
def test_an_agent_of_another_workspace_is_not_found(workspace: Workspace, tool: str) -> None:
    identity = create(workspace)
    other = workspace.at("other").do("create_agent", name="Zoe")
    given = {"title": "T", "content": "c"} if tool == "create_artifact" else {
        "artifact_id": identity, "content": "c"}  # fmt: skip
    assert workspace.value(tool, **given, agent_id=other["id"])["info"] == "agent not found"
    assert workspace.value(tool, **given, agent_slug="zoe")["info"] == "agent not found"
    agents = workspace.value("get_workspace_info", include_agents=True)["agents"]
    assert workspace.value(tool, **given, agent_id=agents[0]["id"])["info"].startswith("artifact")


def test_an_artifact_of_another_workspace_is_not_found(workspace: Workspace) -> None:
    identity = create(workspace)
    other = workspace.at("other")
    assert other.call("read_artifact", artifact_id=identity).error == "artifact not found"


def test_what_another_dialect_keeps_is_read_but_not_changed(workspace: Workspace) -> None:
    kept = workspace.memory.artifacts.create("theirs", path="/theirs.md")
    assert workspace.value("read_artifact", artifact_id=kept.id)["content"] == "theirs"
    large = workspace.memory.artifacts.create("large " * 1_000_000)
    assert len(workspace.value("read_artifact", artifact_id=large.id)["content"]) == 6_000_000
    given = {"artifact_id": kept.id, "content": "ours", "agent_slug": "eve"}
    assert "another dialect" in workspace.value("update_artifact", **given)["info"]


def test_half_a_mebibyte_is_the_most_and_can_be_read_back(server: Server) -> None:
    token = server.token()
    given = {"title": "Large", "agent_slug": "wally"}
    large = ('"line"\n' * 80_000)[: 512 * 1024]
    made = server.call(token, "create_artifact", {**given, "content": large}).value
    assert made["info"] == "artifact created"
    read = server.call(token, "read_artifact", {"artifact_id": made["artifact_id"]}).value
    assert read["content"] == large
    over = server.call(token, "create_artifact", {**given, "content": large + "x"}).value
    assert over["info"] == "content exceeds maximum allowed size"
    change = {"artifact_id": made["artifact_id"], "content": large + "x", "agent_slug": "eve"}
    assert server.call(token, "update_artifact", change).value["info"] == over["info"]


def test_the_artifacts_conversation_hears_of_it(workspace: Workspace) -> None:
    talk = workspace.do("create_conversation", title="Planning")["id"]
    identity = create(workspace.as_agent("wally", talk))
    change = {"artifact_id": identity, "agent_slug": "eve"}
    workspace.value("update_artifact", **change, content="# Two")
    workspace.value("review_artifact", **change, outcome="approved", comments="Fine.")
    lines = workspace.memory.conversations.history(talk)
    assert [line.speaker for line in lines] == ["wally", "eve", "eve"]
    assert "version 2" in lines[1].memory.text
    assert lines[2].memory.text.endswith("approved")
    assert lines[0].memory.tags == (f"artifact:{identity}",)
    wrong = workspace.value(
        "create_artifact", title="T", content="c", agent_slug="eve", conversation_id="nowhere"
    )
    assert wrong["info"] == "conversation not found in this workspace"


def test_an_artifact_outlives_its_conversation(workspace: Workspace) -> None:
    talk = workspace.do("create_conversation", title="Planning")["id"]
    identity = create(workspace.as_agent("wally", talk))
    workspace.memory.purge(talk)
    change = {"artifact_id": identity, "agent_slug": "eve"}
    assert workspace.value("update_artifact", **change, content="# Two")["version"] == 2
    review = workspace.value("review_artifact", **change, outcome="approved", comments="Fine.")
    assert review["reviewed"] is True
