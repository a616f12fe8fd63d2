"""The inbox: statements of the user that are proposed as memories until a person decides.

If the library is opened with `auto_accept`, each proposal is accepted as soon as it is stored.

A proposal is an archived memory, so that no search finds it. Accepting one stores a memory with the
trust `stated`, since the user said it. Each decision is one operation; undoing it restores the
proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonplace.engine.binding import engine_call
from commonplace.engine.content import memories
from commonplace.engine.content.memories import Draft
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory, Message
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.text.proposals import Proposal

KIND = "proposal"
PENDING_STATE, DECIDED_STATE = "archived", "dead"
DERIVED_FROM = "derived_from"
USER = "user"
MESSAGE = "message"
BATCH_MESSAGES = 200


def propose(memory: Commonplace, messages: Sequence[Message]) -> int:
    """Propose statements of the user in newly stored messages; return their number.

    With `auto_accept`, accept them in the same operation as the messages, if one is open.
    """
    said = [each.memory for each in messages if each.speaker == USER]
    return _store_drafts(memory, [draft for line in said for draft in _drafts_by_patterns(line)])


def propose_from_stored(
    memory: Commonplace,
    find: Callable[[Sequence[Memory]], Sequence[tuple[Memory, Proposal]]] | None = None,
) -> int:
    """Propose statements of the user in all stored conversations; return the number of new ones.

    This includes imported histories. Nothing is proposed twice, even after a decision. With `find`,
    its statements are proposed in addition to those of the patterns.
    """
    from commonplace.transcripts.record import line_id

    everywhere = memory.within(None)
    new = offset = 0
    while lines := everywhere.browse(
        kinds=[MESSAGE], speakers=[USER], order="oldest", limit=BATCH_MESSAGES, offset=offset
    )[0]:
        offset += BATCH_MESSAGES
        drafts = [draft for line in lines for draft in _drafts_by_patterns(line)]
        known = {draft.text for draft in drafts}
        for line, stated in find(lines) if find is not None else ():
            if stated.text not in known:
                drafts.append(_draft(line, stated, line_id(stated.text)))
        with exclusive(everywhere, "propose"):
            there = engine_call(everywhere, known_refs, [draft.ref or "" for draft in drafts])
            new += _store_drafts(everywhere, [draft for draft in drafts if draft.ref not in there])
    return new


def known_refs(space: OpenSpace, refs: Sequence[str]) -> set[str]:
    """Return the refs that exist in the space."""
    with space.store.read() as connection:
        return {ref for ref in refs if memories.find_row(connection, space.name, ref) is not None}


def _drafts_by_patterns(line: Memory) -> list[Draft]:
    from commonplace.text.proposals import find_proposals  # its patterns are slow to compile

    found = enumerate(find_proposals(line.text))
    return [_draft(line, stated, str(number)) for number, stated in found]


def _draft(line: Memory, stated: Proposal, name: str) -> Draft:
    return Draft(
        text=stated.text, kind=KIND, state=PENDING_STATE, trust="inferred", tags=line.tags,
        occurred_at=line.occurred_at, ref=f"{KIND}:{line.id}:{name}",
        attrs={"kind": stated.kind, "source": line.id, "line": line.text},
    )  # fmt: skip


def _store_drafts(memory: Commonplace, drafts: Sequence[Draft]) -> int:
    made = memory.remember_many(drafts) if drafts else []
    if memory.library.auto_accept:
        for each in made:
            accept(memory, each.id)
    return len(made)


def pending_proposals(
    memory: Commonplace, limit: int = 50, offset: int = 0
) -> tuple[list[Memory], int]:
    """Return pending proposals, the newest first, and their total number."""
    return memory.browse(kinds=[KIND], states=[PENDING_STATE], limit=limit, offset=offset)


def accept(memory: Commonplace, identity: str, text: str | None = None) -> Memory:
    """Accept a proposal: store its text, or `text`, as a memory."""
    everywhere = memory.within(None)  # the memory gets the labels of its message
    with exclusive(everywhere, "accept"):
        found = _pending_proposal(everywhere, identity)
        stored = everywhere.remember(
            found.text if text is None else text, kind=str(found.attrs.get("kind") or "note"),
            tags=found.tags, occurred_at=found.occurred_at, trust="stated",
            attrs={"proposal": found.id},
        )  # fmt: skip
        source = found.attrs.get("source")
        if isinstance(source, str) and _memory_exists(everywhere, source):
            everywhere.links.add(stored.id, source, DERIVED_FROM)
        decided = {**found.attrs, "status": "accepted", "memory": stored.id}
        everywhere.revise(found.id, state=DECIDED_STATE, attrs=decided)
    return stored


def reject(memory: Commonplace, identity: str) -> Memory:
    """Reject a proposal."""
    with exclusive(memory, "reject"):
        found = _pending_proposal(memory, identity)
        return memory.revise(
            found.id, state=DECIDED_STATE, attrs={**found.attrs, "status": "rejected"}
        )


def edit(memory: Commonplace, identity: str, text: str, version: int | None = None) -> Memory:
    """Change the text of a proposal, which stays pending.

    With `version`, raise Conflict if the proposal has another version.
    """
    with exclusive(memory, "edit proposal"):
        return memory.revise(_pending_proposal(memory, identity).id, text, expected_version=version)


def accept_all(memory: Commonplace) -> int:
    """Accept all pending proposals as one operation; return their number."""
    with exclusive(memory, "accept all"):
        count = 0
        while found := pending_proposals(memory.within(None), 200)[0]:
            for each in found:
                accept(memory, each.id)
                count += 1
        return count


def _pending_proposal(memory: Commonplace, identity: str) -> Memory:
    found = memory.get(identity, count=False)
    if found.kind != KIND:
        raise InvalidInput(
            "This memory is not a proposal.",
            hint="List the proposals with 'commonplace review'.",
            field="id",
        )
    if found.state != PENDING_STATE:
        raise InvalidInput(
            f"This proposal was already {found.attrs.get('status', 'decided')}.",
            hint="Undo that decision first.",
            field="id",
        )
    return found


def _memory_exists(memory: Commonplace, identity: str) -> bool:
    try:
        memory.get(identity, count=False)
    except NotFound:
        return False
    return True
