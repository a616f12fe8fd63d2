"""Commands for beings, and for the LLM key that they use."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from commonplace.cli.options import (
    AsJson,
    Data,
    Embedding,
    Space,
    argument,
    has_system,
    memory,
    option,
)
from commonplace.cli.terminal import bold, note, one_line, tell
from commonplace.errors import NotFound
from commonplace.text.hidden import visible

being = typer.Typer(
    help="Manage beings: agents with memories of their own in a space.", rich_markup_mode=None
)
GROUPS = {"being": being}


@being.command("create")
def create_being(
    name: Annotated[str, argument("NAME", "Its name.")],
    space: Space = "default",
    embedding: Embedding = "builtin",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a being.

    \b
      commonplace being create Aria
      commonplace token create --dialect being --being ID
    """
    from commonplace.dialects.being import beings

    with memory(data, space, embedding, create=True) as opened:
        made = beings.create(opened, name)
    tell(as_json, beings.shown(made), made.id)
    note(f"Next: commonplace token create --dialect being --being {made.id}")


@being.command("list")
def list_beings(space: Space = "default", data: Data = None, as_json: AsJson = False) -> None:
    """List the beings of a space, oldest first. With --json, one object per line."""
    from commonplace.dialects.being import beings, sight

    with memory(data, space) as opened:
        found = sight.beings(opened)
    for each in found:
        tell(as_json, beings.shown(each), f"{bold(each.id)}  {one_line(each.title, 60)}")
    if not found:
        raise typer.Exit(1)


@being.command("delete")
def delete_being(
    identity: Annotated[str, argument("ID", "The being's id.")],
    space: Space = "default",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Delete a being and its own memories; 'commonplace undo' restores them."""
    from commonplace.dialects.being import beings, sight

    with memory(data, space) as opened:
        try:
            found = sight.find(opened, identity)
        except NotFound:
            raise NotFound(
                f"There is no being {identity!r} in the space {space}.",
                hint="See 'commonplace being list'.",
            ) from None
        beings.delete(opened, found.id)
    text = f"{visible(found.title)} was deleted; memories that beings share stay"
    tell(as_json, beings.shown(found), text)


@being.command("llm-key")
def keep_key(
    provider: Annotated[
        str, option("--provider anthropic|openai", "The provider of the key.")
    ] = "anthropic",
    model: Annotated[str, option("--model NAME", "The model to use.")] = "",
    forget: Annotated[bool, option("--forget", "Delete the stored key.")] = False,
    space: Space = "default",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Store the LLM key for the beings of a space; it is read from standard input.

    It is stored encrypted, used only for their patrols, and never shown.
    """
    from commonplace.cli.access import opened_access
    from commonplace.platform.llm import PROVIDERS
    from commonplace.platform.llm_keys import LlmKeys

    about: dict[str, Any] = {"configured": False, "providers": list(PROVIDERS)}
    if not forget or has_system(data):
        with opened_access(data, create=True) as access:
            keys = LlmKeys(access.store, access.vault)
            if forget:
                keys.forget(space)
            else:
                keys.put(space, sys.stdin.readline().strip(), provider=provider, model=model)
            about = keys.about(space)
    tell(as_json, about, "key stored" if about["configured"] else "no key is stored")
