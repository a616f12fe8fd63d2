"""`commonplace review`: decides on proposals in the inbox."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.cli import options, terminal
from commonplace.cli.options import AsJson, Data, Embedding, Space, argument, option
from commonplace.cli.terminal import bold, dim, emit_json, local_time, note, one_line, say, tell
from commonplace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from commonplace.engine.model import Memory

ACTIONS = ("accept", "reject", "edit")
PROPOSE = "propose"


def review(
    action: Annotated[
        str | None,
        argument("accept|reject|edit|propose", "The action (default: list the proposals)."),
    ] = None,
    ids: Annotated[list[str] | None, argument("ID...", "IDs, or their first characters.")] = None,
    text: Annotated[str | None, option("--text TEXT", "The new text.")] = None,
    accept_all: Annotated[
        bool, option("--auto-accept", "Accept all pending proposals, in one operation.")
    ] = False,
    with_model: Annotated[
        bool, option("--with-model", "With propose: also use the configured language model.")
    ] = False,
    limit: Annotated[int, option("--limit -n N", "Maximum number of results.")] = 20,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Accept, edit or reject proposed memories. With --json, one object per line.

    Statements that you make in sessions of agents are proposed as memories, and stored only when
    you accept them. `commonplace undo` reverts a decision. With `auto_accept = true` in config.toml
    of the data directory, new proposals are accepted at once. `propose` searches all stored
    conversations, also imported ones; with --with-model it sends your lines in them to the
    configured language model.

    \b
      commonplace review
      commonplace review accept 3f2a 77c1
      commonplace review edit 3f2a --text "We ship on Tuesdays"
      commonplace review accept 3f2a --text "We ship on Tuesdays"
      commonplace review propose
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.finding import listing
    from commonplace.platform import review as inbox

    if action == PROPOSE and not (ids or text or accept_all):
        _propose(data, space, embedding, with_model, as_json)
        return
    if with_model:
        raise InvalidInput(
            "--with-model is for propose.", hint="Omit it, or run: review propose --with-model.",
            field="with_model",
        )  # fmt: skip
    _check_arguments(action, ids or [], text, accept_all)
    with options.open_memory(data, space, embedding if action or accept_all else "none") as memory:
        if accept_all:
            count = inbox.accept_all(memory)
            tell(as_json, {"accepted": count}, f"accepted {count}")
            if not as_json:
                note("to accept all new proposals automatically: auto_accept = true in config.toml")
            return
        if action is None:
            found, total = inbox.pending_proposals(memory, limit)
            for each in found:
                emit_json(_proposal_as_dict(each)) if as_json else _show_proposal(each)
            if not as_json:
                none = "there are no pending proposals; 'commonplace review propose' looks for some"
                note(f"{total} waiting" if total else none)
            return
        with lease(memory) as opened:
            try:
                named = list(
                    dict.fromkeys(listing.full_memory_id(opened, each) for each in ids or [])
                )
            except NotFound as error:
                raise NotFound(
                    error.message.replace("There is no memory", "There is no proposal"),
                    hint="List them with 'commonplace review'.",
                    field="id",
                ) from None
        done: list[tuple[dict[str, Any], str]] = []  # told after the commit
        with memory.unit(action):
            for identity in named:
                short = identity[:8]
                if action == "accept":
                    stored = inbox.accept(memory, identity, text)
                    done.append((stored.as_dict(), f"accepted {short}: remembered {stored.id}"))
                elif action == "reject":
                    done.append(
                        (_proposal_as_dict(inbox.reject(memory, identity)), f"rejected {short}")
                    )
                else:
                    edited = inbox.edit(memory, identity, text or "")
                    done.append((_proposal_as_dict(edited), f"edited {short}"))
        for value, line in done:
            tell(as_json, value, line)


def _propose(
    data: Path | None, space: str, embedding: str | None, with_model: bool, as_json: bool
) -> None:
    """Search stored conversations for proposals."""
    from commonplace.platform import review as inbox

    find = None
    if with_model:
        from commonplace.cli.beings import model_access
        from commonplace.platform.proposing import find_statements

        find = partial(find_statements, model_access(data, space, "Proposing by a model"))
    with options.open_memory(data, space, embedding) as memory:
        count = inbox.propose_from_stored(memory, find)
    tell(as_json, {"proposed": count}, f"proposed {count}")


def _check_arguments(
    action: str | None, ids: list[str], text: str | None, accept_all: bool
) -> None:
    if action is not None and action not in ACTIONS:
        raise InvalidInput(
            f"Unknown action {action!r}.",
            hint=f"Use {', '.join((*ACTIONS, PROPOSE))}.",
        )
    if action is not None and accept_all:
        raise InvalidInput(
            "--auto-accept accepts all proposals.", hint=f"Omit it, or omit {action!r} and the IDs."
        )
    if action is not None and not ids:
        raise InvalidInput(
            "The IDs of the proposals are missing.",
            hint="List them with 'commonplace review'.",
            field="id",
        )
    if action == "edit" and not text:
        raise InvalidInput("The new text is missing.", hint="Give --text.", field="text")
    if text is not None and (action not in ("accept", "edit") or len(ids) != 1):
        raise InvalidInput("--text is for one proposal.", hint="accept or edit it.", field="text")


def _proposal_as_dict(proposal: Memory) -> dict[str, Any]:
    known = proposal.attrs
    return {
        "id": proposal.id, "text": proposal.text, "kind": known.get("kind"),
        "source": known.get("source"), "line": known.get("line"), "tags": list(proposal.tags),
        "status": known.get("status", "waiting"),
    }  # fmt: skip


def _show_proposal(proposal: Memory) -> None:
    room = terminal.columns() - 10
    say(f"{bold(proposal.id[:8])}  {one_line(proposal.text, room)}")
    parts = [
        str(proposal.attrs.get("kind", "")),
        local_time(proposal.occurred_at or proposal.created_at),
    ]
    line = str(proposal.attrs.get("line", ""))
    if line and line != proposal.text:
        parts.append(f"said: {line}")
    say(dim("          " + one_line(" · ".join(part for part in parts if part), room)))


COMMANDS = (review,)
