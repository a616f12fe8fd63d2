"""The inbox: what was said and may be worth a memory of its own, until a person decides.

Where the library is opened with `auto_accept`, each proposal is accepted as soon as it is made.

A proposal is an archived memory, so that no search finds it. Accepting one stores a memory with the
trust `stated`, since the user said it; each decision is one operation, and undoing it brings the
proposal back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory, Message
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive
from commonplace.text.proposals import proposals

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

KIND = "proposal"
WAITING, DECIDED = "archived", "dead"
FROM = "derived_from"
USER = "user"


def propose(memory: Commonplace, messages: Sequence[Message]) -> int:
    """Propose what the user stated in messages that were stored now; return how many there are.

    With `auto_accept` they are accepted, in the same operation as the messages if one is open.
    """
    drafts = [
        Draft(
            text=stated.text, kind=KIND, state=WAITING, trust="inferred",
            tags=said.memory.tags, occurred_at=said.memory.occurred_at,
            ref=f"{KIND}:{said.memory.id}:{number}",
            attrs={"kind": stated.kind, "source": said.memory.id, "line": said.memory.text},
        )
        for said in messages
        if said.speaker == USER
        for number, stated in enumerate(proposals(said.memory.text))
    ]  # fmt: skip
    made = memory.remember_many(drafts) if drafts else []
    if memory.library.auto_accept:
        for each in made:
            accept(memory, each.id)
    return len(made)


def waiting(memory: Commonplace, limit: int = 50, offset: int = 0) -> tuple[list[Memory], int]:
    """The proposals that nobody has decided on, the newest first, and how many there are."""
    return memory.browse(kinds=[KIND], states=[WAITING], limit=limit, offset=offset)


def accept(memory: Commonplace, identity: str, text: str | None = None) -> Memory:
    """Store what is proposed, or a better wording of it, as a memory."""
    everywhere = memory.within(None)  # the memory keeps the labels of its message
    with exclusive(everywhere, "accept"):
        found = _need(everywhere, identity)
        stored = everywhere.remember(
            found.text if text is None else text, kind=str(found.attrs.get("kind") or "note"),
            tags=found.tags, occurred_at=found.occurred_at, trust="stated",
            attrs={"proposal": found.id},
        )  # fmt: skip
        source = found.attrs.get("source")
        if isinstance(source, str) and _is_there(everywhere, source):
            everywhere.links.add(stored.id, source, FROM)
        decided = {**found.attrs, "status": "accepted", "memory": stored.id}
        everywhere.revise(found.id, state=DECIDED, attrs=decided)
    return stored


def reject(memory: Commonplace, identity: str) -> Memory:
    """Decide against a proposal."""
    with exclusive(memory, "reject"):
        found = _need(memory, identity)
        return memory.revise(found.id, state=DECIDED, attrs={**found.attrs, "status": "rejected"})


def edit(memory: Commonplace, identity: str, text: str, version: int | None = None) -> Memory:
    """Change the wording of a proposal, which goes on waiting.

    With `version`, it is a Conflict if the proposal has changed since.
    """
    with exclusive(memory, "edit proposal"):
        return memory.revise(_need(memory, identity).id, text, expected_version=version)


def accept_all(memory: Commonplace) -> int:
    """Accept everything that waits, as one operation; return how many there were."""
    with exclusive(memory, "accept all"):
        count = 0
        while found := waiting(memory.within(None), 200)[0]:
            for each in found:
                accept(memory, each.id)
                count += 1
        return count


def _need(memory: Commonplace, identity: str) -> Memory:
    found = memory.get(identity, count=False)
    if found.kind != KIND:
        raise InvalidInput(
            "This memory is not a proposal.",
            hint="List them with 'commonplace review'.",
            field="id",
        )
    if found.state != WAITING:
        raise InvalidInput(
            f"This proposal was {found.attrs.get('status', 'decided')} already.",
            hint="Undo that first.",
            field="id",
        )
    return found


def _is_there(memory: Commonplace, identity: str) -> bool:
    try:
        memory.get(identity, count=False)
    except NotFound:
        return False
    return True
