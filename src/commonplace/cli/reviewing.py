"""The command for the inbox of proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from commonplace.cli import options, terminal
from commonplace.cli.options import AsJson, Data, Embedding, Space, argument, option
from commonplace.cli.terminal import bold, dim, emit, local, note, one_line, say, tell
from commonplace.errors import InvalidInput
from commonplace.text.hidden import visible

if TYPE_CHECKING:
    from commonplace.engine.model import Memory

ACTIONS = ("accept", "reject", "edit")


def review(
    action: Annotated[
        str | None, argument("accept|reject|edit", "What to do; without it, list them.")
    ] = None,
    ids: Annotated[list[str] | None, argument("ID...", "IDs, or their first characters.")] = None,
    text: Annotated[str | None, option("--text TEXT", "A better wording.")] = None,
    accept_all: Annotated[
        bool, option("--auto-accept", "Accept everything that waits, in one operation.")
    ] = False,
    limit: Annotated[int, option("--limit -n N", "Maximum number of results.")] = 20,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = "builtin",
) -> None:
    """Decide on what was proposed from conversations. With --json, one object per line.

    What you say in sessions of agents is proposed as memories, and none is stored until you accept
    it. `commonplace undo` takes a decision back. With `auto_accept = true` in config.toml of the
    data directory, all that is proposed from then on is accepted at once.

    \b
      commonplace review
      commonplace review accept 3f2a 77c1
      commonplace review edit 3f2a --text "We ship on Tuesdays"
      commonplace review accept 3f2a --text "We ship on Tuesdays"
    """
    from commonplace.engine.binding import lease
    from commonplace.engine.finding import listing
    from commonplace.platform import review as inbox

    _check(action, ids or [], text, accept_all)
    with options.memory(data, space, embedding if action or accept_all else "none") as memory:
        if accept_all:
            count = inbox.accept_all(memory)
            tell(as_json, {"accepted": count}, f"accepted {count}")
            if not as_json:
                note("to accept everything from now on: auto_accept = true in config.toml")
            return
        if action is None:
            found, total = inbox.waiting(memory, limit)
            for each in found:
                emit(_plain(each)) if as_json else _show(each)
            if not as_json:
                note(f"{total} waiting" if total else "nothing is waiting")
            return
        with lease(memory) as opened:
            named = list(dict.fromkeys(listing.memory_id(opened, each) for each in ids or []))
        with memory.unit(action):
            for identity in named:
                short = identity[:8]
                if action == "accept":
                    stored = inbox.accept(memory, identity, text)
                    tell(as_json, stored.as_dict(), f"accepted {short}: remembered {stored.id}")
                elif action == "reject":
                    tell(as_json, _plain(inbox.reject(memory, identity)), f"rejected {short}")
                else:
                    edited = inbox.edit(memory, identity, text or "")
                    tell(as_json, _plain(edited), f"edited {short}")


def _check(action: str | None, ids: list[str], text: str | None, accept_all: bool) -> None:
    if action is not None and action not in ACTIONS:
        raise InvalidInput(
            f"{action!r} is not something to do with a proposal.", hint=f"Use {', '.join(ACTIONS)}."
        )
    if action is not None and (not ids or accept_all):
        raise InvalidInput("Name the proposals.", hint="commonplace review lists them.", field="id")
    if action == "edit" and not text:
        raise InvalidInput("There is no new wording.", hint="Give --text.", field="text")
    if text is not None and (action not in ("accept", "edit") or len(ids) != 1):
        raise InvalidInput("--text is for one proposal.", hint="accept or edit it.", field="text")


def _plain(proposal: Memory) -> dict[str, object]:
    known = proposal.attrs
    return {
        "id": proposal.id, "text": proposal.text, "kind": known.get("kind"),
        "source": known.get("source"), "line": known.get("line"), "tags": list(proposal.tags),
        "status": known.get("status", "waiting"),
    }  # fmt: skip


def _show(proposal: Memory) -> None:
    room = terminal.columns() - 10
    say(f"{bold(proposal.id[:8])}  {one_line(proposal.text, room)}")
    parts = [
        str(proposal.attrs.get("kind", "")),
        local(proposal.occurred_at or proposal.created_at),
    ]
    line = str(proposal.attrs.get("line", ""))
    if line and line != proposal.text:
        parts.append(f"said: {one_line(line, 80)}")
    say(dim("          " + visible(" · ".join(part for part in parts if part))))


COMMANDS = (review,)
