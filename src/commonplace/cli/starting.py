"""`commonplace start`: finds the agents of this machine, imports their histories, connects them."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import agent_files, agent_hooks, clients, options
from commonplace.cli.clients import CLIENTS, Client, Stdio
from commonplace.cli.connect import DEFAULT_DIALECT, ENTRY_NAME, program_words, server_command
from commonplace.cli.options import AsJson, Data, Space, argument, option
from commonplace.cli.terminal import bold, dim, emit_json, note, paragraph, progress, say
from commonplace.cli.transfer import show_imported
from commonplace.errors import CommonplaceError, InvalidInput, StorageUnavailable
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Memory
    from commonplace.importers.storing import Imported

# Programs of agents, to detect an agent that has no files yet.
AGENT_PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "openclaw": "openclaw",
}
QUOTED_CHARS = 300
CANDIDATE_LINES = 500
QUERY_WORDS, LEAST_WORD_CHARS = 4, 4

Yes = Annotated[bool, option("--yes -y", "Do not ask for confirmation.")]


@dataclass
class _Plan:
    """The planned actions of `start`."""

    agents: list[Client] = field(default_factory=list)
    histories: dict[str, Path] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    changes: list[agent_files.Change] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def start(
    yes: Yes = False,
    only: Annotated[
        list[str] | None, option("--only AGENT", "Only this agent; can be repeated.")
    ] = None,
    with_import: Annotated[
        bool, option("--import/--no-import", "Import the agents' histories.")
    ] = True,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Connect this machine's agents, and import their histories.

    This finds the agents, shows the planned imports and changes, asks once, performs them, and
    recalls a line of an old conversation. Running it again adds only new data.

    \b
      commonplace start
      commonplace start --yes --only claude-code
      commonplace stop-using claude-code
    """
    from commonplace.engine.library import directory

    options.settings_of(data)  # an invalid setting raises here, before anything is shown or written
    plan = _make_plan(only, with_import, data, space)
    if plan.agents:
        options.warn_of_unconfigured_database(data)
    if not as_json:
        _show_plan(plan)
    if not plan.agents and not plan.histories:
        if as_json:
            emit_json(_report_as_dict(plan, [], [], None))
        return
    changed = [change for change in plan.changes if change.diff]
    if (changed or plan.histories) and not (yes or _ask_confirmation(as_json)):
        if as_json:
            emit_json(_report_as_dict(plan, [], [], None) | {"done": False})
        else:
            note("nothing was changed; add --yes to apply the changes")
        return
    done = _import_all(plan.histories, data, space, as_json)
    for change in changed:
        change.write(directory(data) / "connect")
    found = _sample_recall(data, space)
    if as_json:
        emit_json(_report_as_dict(plan, done, changed, found) | {"done": True})
        return
    if changed:
        _show_written([str(change.settings.path) for change in changed])
    _show_recalled(found)
    _show_next(plan, done)


def stop_using(
    client: Annotated[str, argument("AGENT", ", ".join(CLIENTS) + ".")],
    yes: Yes = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Remove our entry and hooks from an agent's configuration.

    Files that nobody else has changed get their original contents. Stored memories are kept.

    \b
      commonplace stop-using claude-code
    """
    from commonplace.engine.library import directory

    backups = directory(data) / "connect"
    changes = agent_files.removals(clients.client(client), ENTRY_NAME, backups)
    paths = [str(change.settings.path) for change in changes]
    if not as_json:
        for change in changes:
            say(escape_hidden(f"{change.diff}\n")[:-1])
        if not changes:
            say(f"{client} does not use this memory; there is nothing to remove")
    if changes and not (yes or _ask_confirmation(as_json)):
        note("nothing was written; add --yes to write it")
        changes = []
    for change in changes:
        change.write(backups)
    if as_json:
        emit_json({"client": client, "files": paths, "written": bool(changes)})
    elif changes:
        _show_written(paths)


COMMANDS = (start, stop_using)


# Planning


def _make_plan(only: list[str] | None, with_import: bool, data: Path | None, space: str) -> _Plan:
    from commonplace.importers import histories

    wanted = [clients.client(name) for name in only] if only else list(CLIENTS.values())
    plan = _Plan(agents=[client for client in wanted if only or _is_installed(client)])
    server = Stdio(*server_command(DEFAULT_DIALECT, data, space if space != "default" else None))
    words = program_words(agent_hooks.PROGRAM, agent_hooks.MODULE)
    words += ["--data", str(data.expanduser().absolute())] if data is not None else []
    words += ["--space", space] if space != "default" else []
    for client in plan.agents:
        try:
            plan.changes += agent_files.changes(client, server, words, ENTRY_NAME)
        except CommonplaceError as error:
            plan.problems.append(f"{client.title}: {error.message}")
    names = {client.name for client in wanted}
    for known in histories.ALL:
        place = histories.usual_history_paths()[known.NAME]
        if with_import and known.NAME in names and place.exists() and known.recognises(place):
            plan.histories[known.NAME] = place
            if isinstance(known, histories.SessionFiles):
                plan.sessions[known.NAME] = sum(1 for _ in known.files(place))
    return plan


def _is_installed(client: Client) -> bool:
    """Return whether an agent is installed: its files, their directory or its program exist."""
    home = Path.home()
    for path in clients.configuration_paths(client):
        if path.exists() or (path.parent.is_dir() and path.parent != home):
            return True
    if client.name == "claude-code" and (home / ".claude").is_dir():
        return True
    program = AGENT_PROGRAMS.get(client.name)
    return program is not None and shutil.which(program) is not None


def _show_plan(plan: _Plan) -> None:
    if not plan.agents and not plan.histories:
        say(
            "No supported agent was found on this machine. Supported agents: "
            + ", ".join(CLIENTS)
            + "."
        )
        say("Any other MCP client can run this command: commonplace mcp")
        return
    say(f"{bold('Agents here:')} " + ", ".join(client.title for client in plan.agents))
    for name, place in plan.histories.items():
        count = plan.sessions.get(name, 0)
        many = f"{count:,} {'session' if count == 1 else 'sessions'}" if count else "history"
        say(f"To import from {CLIENTS[name].title}: {many} in {escape_hidden(str(place))}")
    for change in plan.changes:
        if change.diff:
            say()
            say(escape_hidden(f"{change.display_text}\n")[:-1])
    for problem in plan.problems:
        note(f"left out: {escape_hidden(problem)}")
    if not any(change.diff for change in plan.changes):
        say("The configuration of the agents needs no change.")


def _ask_confirmation(as_json: bool) -> bool:
    """Ask for confirmation; return False without a terminal."""
    if as_json or not sys.stdin.isatty():
        return False
    if not typer.confirm("Do this?", default=True, err=True):
        raise typer.Abort
    return True


def _import_all(
    places: dict[str, Path], data: Path | None, space: str, as_json: bool
) -> list[Imported]:
    """Import every readable history, as one operation for undo."""
    from commonplace.importers import registry, storing

    origin, done = storing.import_origin(), []
    if not places:
        return []
    with options.open_memory(data, space, create=True) as memory:
        for name, place in places.items():
            with progress(f"Importing from {CLIENTS[name].title}") as show:
                try:
                    report = registry.run_import(memory, place, name, origin=origin, progress=show)
                except (InvalidInput, StorageUnavailable) as error:
                    report = storing.Imported(name)
                    report.add_problem(error.message)
            done.append(report)
            if not as_json:
                show_imported(report, undo=False)
    return done


# A sample recall


def _sample_recall(data: Path | None, space: str) -> dict[str, Any] | None:
    """Recall an old line by a few of its words; return None if nothing is stored."""
    try:
        with options.open_memory(data, space) as memory:
            return _recall_quotation(memory)
    except CommonplaceError:
        return None


def _recall_quotation(memory: Commonplace) -> dict[str, Any] | None:
    found, _ = memory.browse(order="oldest", limit=CANDIDATE_LINES)
    for line in sorted(found, key=_suitability, reverse=True)[:10]:
        query = " ".join(_longest_words(line.text)[:QUERY_WORDS])
        for hit in memory.recall(query, limit=1, count=False) if query else ():
            text = " ".join(hit.memory.text.split())
            cut = text[:QUOTED_CHARS] + ("…" if len(text) > QUOTED_CHARS else "")
            at = hit.memory.occurred_at or hit.memory.created_at
            return {"query": query, "text": cut, "at": at.date().isoformat(),
                    "client": (hit.memory.ref or "").partition(":")[0]}  # fmt: skip
    return None


def _longest_words(text: str) -> list[str]:
    """Return the longest words of a text, in their order."""
    words = [word.strip(".,;:!?()[]{}\"'`") for word in text.split()]
    long = {word for word in words if word.isalpha() and len(word) >= LEAST_WORD_CHARS}
    longest = sorted(long, key=len, reverse=True)
    chosen = set(longest[:QUERY_WORDS])
    return list(dict.fromkeys(word for word in words if word in chosen))


def _suitability(line: Memory) -> int:
    """Return how suitable a line is as a quotation: best is a medium length."""
    words = len({word.lower() for word in line.text.split() if word.isalpha()})
    return words if len(line.text) <= QUOTED_CHARS else 0


def _show_written(paths: list[str]) -> None:
    say("written:", *(f"  {escape_hidden(path)}" for path in paths))


def _show_recalled(found: dict[str, Any] | None) -> None:
    if found is None:
        say("Nothing is stored yet.")
        return
    client = CLIENTS.get(found["client"])
    where = f" in {client.title}" if client else ""
    say()
    say(f'{bold("Recalled")} by "{escape_hidden(found["query"])}", from {found["at"]}{where}:')
    say(f"  “{escape_hidden(found['text'])}”")


def _show_next(plan: _Plan, done: list[Imported]) -> None:
    say()
    say(bold("Next:"))
    say('  commonplace search "…"                search the memories')
    for client in plan.agents:
        for line in paragraph(f"  {client.title}: {client.next_step}", 4):
            say(dim(line))
        hook_file = agent_hooks.HOOK_FILES.get(client.name)
        if hook_file is not None and hook_file.next_step:
            say(dim(f"  {hook_file.next_step}"))
    if any(report.added for report in done):
        say("  commonplace undo                      undo the import")
    if plan.agents:
        say(f"  commonplace stop-using {plan.agents[0].name:<14} undo the configuration")


def _report_as_dict(
    plan: _Plan,
    done: list[Imported],
    written: list[agent_files.Change],
    found: dict[str, Any] | None,
) -> dict[str, Any]:
    return {
        "agents": [client.name for client in plan.agents],
        "histories": {name: str(place) for name, place in plan.histories.items()},
        "changes": [{"path": str(change.settings.path), "diff": change.diff}
                    for change in plan.changes if change.diff],
        "problems": plan.problems,
        "imported": [report.as_dict() for report in done],
        "written": [str(change.settings.path) for change in written],
        "recalled": found,
    }  # fmt: skip
