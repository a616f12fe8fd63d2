"""Commands for the orchestrator's workspaces: users, agents, conversations, workflows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, Data, Embedding, argument, option, path_argument
from commonplace.cli.terminal import emit_json, note, one_line, progress, say, tell
from commonplace.errors import Conflict, NotFound

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

workspace = typer.Typer(
    help="Manage the orchestrator's workspaces.",
    rich_markup_mode=None,
)
GROUPS = {"workspace": workspace}

Workspace = Annotated[str, argument("WORKSPACE", "Its id.")]
Name = Annotated[str, option("--name TEXT", "Its name.")]


def _show_rows(rows: list[dict[str, Any]], as_json: bool, *columns: str) -> None:
    for row in rows:
        tell(as_json, row, "  ".join(one_line(str(row.get(column, "")), 60) for column in columns))
    if not rows:
        note("Nothing was found.")
        raise typer.Exit(1)


def _open_workspace(data: Path | None, identity: str) -> AbstractContextManager[Commonplace]:
    hint = f"Create it first: commonplace workspace create {identity}."
    return options.open_memory(data, identity, hint=hint)


def _conversation_id(memory: Commonplace, workspace: str, identity: str) -> str:
    """Return the id of an existing conversation."""
    from commonplace.dialects.orchestrator import workspaces

    try:
        return workspaces.get_conversation(memory, identity).id
    except NotFound:
        raise NotFound(
            f"There is no conversation {identity!r}.",
            hint=f"See 'commonplace workspace conversations {workspace}'.",
        ) from None


@workspace.command("create")
def create_workspace(
    identity: Workspace,
    name: Name = "",
    user: Annotated[str, option("--user ID", "The first user of the workspace.")] = "local",
    email: Annotated[str, option("--email ADDRESS", "The user's e-mail address.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a workspace with its first user and agents.

    \b
      commonplace workspace create acme --user anna --email anna@example.org
      commonplace token create --dialect orchestrator --space acme --user anna
    """
    from commonplace.dialects.orchestrator import workspaces

    with options.open_memory(data, identity, create=True) as memory:
        if workspaces.records.find(memory, workspaces.WORKSPACE_REF) is not None:
            raise Conflict(
                f"The workspace {identity} already exists.",
                hint=f"See 'commonplace workspace agents {identity}'.",
            )
        with memory.unit("create workspace"):
            record = workspaces.ensure_workspace(memory, identity=identity, name=name)
            workspaces.add_person(memory, user, {"email": email})
        shown = workspaces.workspace_to_dict(record)
    if as_json:
        emit_json(shown)
    else:
        say(f"created workspace {identity} with the user {user} and three agents")
        note(
            f"Next: commonplace token create --dialect orchestrator --space {identity}"
            f" --user {user}"
        )


@workspace.command("list")
def list_workspaces(data: Data = None, as_json: AsJson = False) -> None:
    """List the workspaces."""
    from commonplace.dialects.orchestrator.workspaces import all_workspaces
    from commonplace.engine.commonplace import Commonplace

    with options.open_library(options.existing_directory(data)) as library:
        found = all_workspaces(Commonplace(library=library))
    _show_rows(found, as_json, "id", "name", "created_at")


@workspace.command("add-user")
def add_user(
    identity: Workspace,
    user: Annotated[str, argument("USER", "The user's id, as in the token.")],
    email: Annotated[str, option("--email", "The user's e-mail address.")] = "",
    nickname: Annotated[str, option("--nickname", "The user's nickname.")] = "",
    name: Name = "",
    surname: Annotated[str, option("--surname", "The user's family name.")] = "",
    country_code: Annotated[str, option("--country-code", "The country, such as DE.")] = "",
    language: Annotated[str, option("--language", "The language, such as en.")] = "",
    currency: Annotated[str, option("--currency", "The currency, such as EUR.")] = "",
    theme: Annotated[str, option("--theme", "light or dark.")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Add a user to a workspace, or change one."""
    from commonplace.dialects.orchestrator import workspaces

    about = {
        "email": email, "nickname": nickname, "name": name, "surname": surname,
        "country_code": country_code, "language": language, "currency": currency, "theme": theme,
    }  # fmt: skip
    with _open_workspace(data, identity) as memory:
        record = workspaces.add_person(memory, user, about)
        shown = workspaces.profile_to_dict(record.attrs, record.created_at)
    _show_rows([shown], as_json, "id", "name", "email")


@workspace.command("users")
def list_users(identity: Workspace, data: Data = None, as_json: AsJson = False) -> None:
    """List the users of a workspace."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        found = workspaces.profiles(memory)
    _show_rows(found, as_json, "id", "name", "email")


@workspace.command("add-agent")
def add_agent(
    identity: Workspace,
    name: Annotated[str, argument("NAME", "Its name.")],
    slug: Annotated[str, option("--slug", "Short name (default: derived from the name).")] = "",
    role: Annotated[str, option("--role manager|sub-agent", "The agent's role.")] = "sub-agent",
    system_prompt: Annotated[str, option("--system-prompt", "The agent's system prompt.")] = "",
    model: Annotated[
        str, option("--model", "The agent's model (default: the configured model).")
    ] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Add an agent to a workspace."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory, memory.unit("add agent"):
        agent = workspaces.add_agent(
            memory, name, slug=slug, role=role, system_prompt=system_prompt, model=model
        )
    _show_rows([agent.as_dict()], as_json, "slug", "role", "name", "id")


@workspace.command("agents")
def list_agents(identity: Workspace, data: Data = None, as_json: AsJson = False) -> None:
    """List the agents of a workspace."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        found = [agent.as_dict() for agent in workspaces.agents(memory)]
    _show_rows(found, as_json, "slug", "role", "name", "id")


@workspace.command("add-conversation")
def add_conversation(
    identity: Workspace,
    title: Annotated[str, argument("TITLE", "Its title.")],
    agent: Annotated[
        str, option("--agent SLUG", "The agent in the conversation (default: all agents).")
    ] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Start a conversation in a workspace."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        sort = "agent" if agent else "swarm"
        shown = workspaces.add_conversation(memory, title, type=sort, agent_slug=agent)
    _show_rows([shown], as_json, "id", "title")


@workspace.command("conversations")
def list_conversations(identity: Workspace, data: Data = None, as_json: AsJson = False) -> None:
    """List the conversations of a workspace."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        found = workspaces.conversations(memory)
    _show_rows(list(found), as_json, "id", "updated_at", "title")


@workspace.command("say")
def say_something(
    identity: Workspace,
    conversation: Annotated[str, argument("CONVERSATION", "Its id.")],
    text: Annotated[str, argument("TEXT", "The message.")],
    agent: Annotated[
        str, option("--agent SLUG", "The agent that sends the message (default: the user).")
    ] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Add a message to a conversation."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        speaker = workspaces.get_agent(memory, slug=agent).slug if agent else workspaces.USER
        known = _conversation_id(memory, identity, conversation)
        shown = workspaces.append_message(memory, known, speaker, text)
    _show_rows([shown], as_json, "id", "role", "text")


@workspace.command("messages")
def list_messages(
    identity: Workspace,
    conversation: Annotated[str, argument("CONVERSATION", "Its id.")],
    limit: Annotated[int, option("--limit -n N", "Maximum number of messages.")] = 50,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the newest messages of a conversation, in order."""
    from commonplace.dialects.orchestrator import workspaces

    with _open_workspace(data, identity) as memory:
        known = _conversation_id(memory, identity, conversation)
        lines = memory.conversations.history(known, limit=limit)
        found = [workspaces.message_to_dict(line) for line in lines]
    _show_rows(list(found), as_json, "created_at", "role", "text")


@workspace.command("import")
def import_palace(
    identity: Workspace,
    source: Annotated[
        Path,
        path_argument("PATH", "A MemPalace's directory, Chroma file, or export."),
    ],
    embedding: Embedding = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Import a MemPalace with its diaries and knowledge graph.

    The source is not changed. Importing again adds only what is new.

    \b
      commonplace workspace import acme ~/.mempalace/palace
    """
    from commonplace.dialects.orchestrator import importing

    with options.open_memory(data, identity, embedding, create=True) as memory:
        with progress("importing") as tell:
            report = importing.import_palace(memory, source.expanduser(), tell)
        options.compute_embeddings(memory)
    if as_json:
        emit_json(asdict(report))
        return
    for name, counts in (("drawers", report.drawers), ("triples", report.triples)):
        say(
            f"{name}: {counts.found} found, {counts.added} added, {counts.unchanged} unchanged,"
            f" {len(counts.left_out)} skipped"
        )
        for problem in counts.left_out[:20]:
            note(f"  skipped: {problem}")
    if report.identity:
        say("identity: added")


Execution = Annotated[str, argument("EXECUTION", "Its id.")]


@workspace.command("execution")
def show_execution(
    identity: Workspace, execution: Execution, data: Data = None, as_json: AsJson = False
) -> None:
    """Show the status of a workflow execution."""
    _act_on_execution(identity, execution, data, as_json)


@workspace.command("approve")
def approve(
    identity: Workspace, execution: Execution, data: Data = None, as_json: AsJson = False
) -> None:
    """Approve a workflow execution that waits for approval."""
    from commonplace.dialects.orchestrator import workflows

    _act_on_execution(identity, execution, data, as_json, workflows.approve)


@workspace.command("cancel")
def cancel(
    identity: Workspace, execution: Execution, data: Data = None, as_json: AsJson = False
) -> None:
    """Cancel a workflow execution."""
    from commonplace.dialects.orchestrator import workflows

    _act_on_execution(identity, execution, data, as_json, workflows.cancel)


def _act_on_execution(
    identity: str,
    execution: str,
    data: Path | None,
    as_json: bool,
    act: Callable[[Commonplace, str], None] | None = None,
) -> None:
    from commonplace.dialects.orchestrator import workflows

    with _open_workspace(data, identity) as memory:
        if act is not None:
            with memory.unit(f"{act.__name__} workflow"):
                act(memory, execution)
        shown = workflows.execution_progress(memory, execution)
    if as_json:
        emit_json(shown)
        return
    say(f"{shown['status']}  {shown['current_step']} steps done  {shown['error']}".rstrip())
    for step in shown["steps"]:
        say(f"  {step['step_index']}  {step['status']}  {step['agent_slug']}  {step['step_name']}")
