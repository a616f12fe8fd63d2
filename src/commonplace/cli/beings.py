"""Commands for beings, and for the LLM key that they use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli.options import (
    AsJson,
    Data,
    Embedding,
    Space,
    argument,
    has_system_store,
    open_memory,
    option,
)
from commonplace.cli.terminal import (
    bold,
    count_with_noun,
    dim,
    emit_json,
    note,
    one_line,
    say,
    tell,
)
from commonplace.errors import InvalidInput
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.platform.llm import Access

being = typer.Typer(
    help="Manage beings: agents with memories of their own in a space.", rich_markup_mode=None
)
GROUPS = {"being": being}


@being.command("create")
def create_being(
    name: Annotated[str, argument("NAME", "Its name.")],
    space: Space = "default",
    embedding: Embedding = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a being.

    \b
      commonplace being create Aria
      commonplace being talk Aria
    """
    from commonplace.dialects.being import beings

    with open_memory(data, space, embedding, create=True) as opened:
        made = beings.create(opened, name)
    tell(as_json, beings.to_dict(made), made.id)
    if not as_json:
        note(
            "Next:",
            f"  commonplace being talk {made.id[:8]}",
            "      talk with the being; this needs a key for a language model",
            f"  commonplace mcp --dialect being --being {made.id[:8]}",
            "      for an agent that is this being",
            f"  commonplace token create --dialect being --being {made.id[:8]}",
            "      for an agent over HTTP",
        )


@being.command("list")
def list_beings(space: Space = "default", data: Data = None, as_json: AsJson = False) -> None:
    """List the beings of a space, oldest first. With --json, one object per line."""
    from commonplace.dialects.being import beings, sight

    with open_memory(data, space) as opened:
        found = sight.beings(opened)
    for each in found:
        tell(as_json, beings.to_dict(each), f"{bold(each.id)}  {one_line(each.title, 60)}")
    if not found:
        note("There are no beings yet. Create one: commonplace being create NAME")
        raise typer.Exit(1)


@being.command("delete")
def delete_being(
    identity: Annotated[str, argument("BEING", "Its id, the id's beginning, or its name.")],
    space: Space = "default",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a being and its own memories; `undo` restores them."""
    from commonplace.dialects.being import beings, sight

    with open_memory(data, space) as opened:
        found = sight.find_named(opened, identity)
        beings.delete(opened, found.id)
    text = f"{escape_hidden(found.title)} was deleted; memories shared by beings are kept"
    tell(as_json, beings.to_dict(found), text)


@being.command("talk")
def talk(
    identity: Annotated[str, argument("BEING", "Its id, the id's beginning, or its name.")],
    words: Annotated[
        list[str] | None, argument("TEXT...", "Send one message instead of a conversation.")
    ] = None,
    space: Space = "default",
    embedding: Embedding = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Talk with a being. An empty line ends the conversation, which is then stored as its memories.

    This needs a key for a language model: see 'commonplace being llm-key', or set
    COMMONPLACE_LLM_KEY.

    \b
      commonplace being talk Aria
      commonplace being talk Aria "What did we do yesterday?"
    """
    from commonplace.dialects.being import sight

    with open_memory(data, space, embedding) as opened:
        found = sight.find_named(opened, identity)
        from commonplace.dialects.being.talking import Conversation

        conversation = Conversation(opened, found.id, model_access(data, space))
        try:
            for text in [" ".join(words)] if words else _typed_lines(found.title):
                answer = conversation.say(text)
                if as_json:
                    emit_json({"said": text, "answer": answer})
                else:
                    say(f"{bold(escape_hidden(found.title))}: {escape_hidden(answer)}")
        finally:
            report = conversation.end()
    if report is not None and not as_json:
        made = count_with_noun(report.scenes_created, "scene", "scenes")
        said = count_with_noun(len(conversation.messages), "message", "messages")
        note(dim(f"{said} stored, {made}"))


def _typed_lines(name: str) -> Iterator[str]:
    """Yield the lines of standard input up to an empty line."""
    asking = sys.stdin.isatty()
    if asking:
        note(f"You are talking with {escape_hidden(name)}. An empty line ends the conversation.")
    while True:
        if asking:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


def model_access(data: Path | None, space: str, purpose: str = "Talking") -> Access:
    """Return the model of a space: with its stored key, or the operator's model."""
    from commonplace.cli.access import open_access
    from commonplace.platform import llm
    from commonplace.platform.llm_keys import LlmKeys

    found = None
    if has_system_store(data):
        with open_access(data) as access:
            found = LlmKeys(access.store, access.vault).get(space)
    found = (
        llm.with_operator_settings(found) if found is not None else llm.operator_access(os.environ)
    )
    if found is None:
        raise InvalidInput(
            f"{purpose} needs a key for a language model, but none is stored.",
            hint="Store one: 'commonplace being llm-key < file-with-the-key'. Or set"
            " COMMONPLACE_LLM_KEY, or COMMONPLACE_LLM_OPENAI_URL for your own model.",
            field="key",
        )
    return found


@being.command("llm-key")
def store_key(
    provider: Annotated[
        str, option("--provider anthropic|openai", "The provider of the key.")
    ] = "anthropic",
    model: Annotated[str, option("--model NAME", "The model to use.")] = "",
    forget: Annotated[bool, option("--forget", "Delete the stored key.")] = False,
    space: Space = "default",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Store the LLM key of a space's beings, from standard input.

    The key is stored encrypted, sent only to its provider, and never shown.
    """
    from commonplace.cli.access import open_access
    from commonplace.platform.llm import PROVIDERS
    from commonplace.platform.llm_keys import LlmKeys, check_key

    about: dict[str, Any] = {"configured": False, "providers": list(PROVIDERS)}
    key = "" if forget else sys.stdin.readline().strip()
    if not forget:
        check_key(space, key, provider=provider, model=model)  # check before a file is created
    if not forget or has_system_store(data):
        with open_access(data, create=True) as access:
            keys = LlmKeys(access.store, access.vault)
            if forget:
                keys.forget(space)
            else:
                keys.put(space, key, provider=provider, model=model)
            about = keys.describe(space)
    tell(as_json, about, "key stored" if about["configured"] else "no key is stored")
