"""Commands about beings: who there is, and the key to the model that they think with."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from commonplace.cli.options import AsJson, Data, Embedding, Space, argument, memory, option
from commonplace.cli.terminal import bold, note, one_line, tell
from commonplace.errors import NotFound
from commonplace.text.hidden import visible

being = typer.Typer(
    help="Beings: agents with a memory of their own in your space.", rich_markup_mode=None
)
GROUPS = {"being": being}


@being.command("create")
def create_being(
    name: Annotated[str, argument("NAME", "What it is called.")],
    space: Space = "default",
    embedding: Embedding = "builtin",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Make a being with a soul of its own.

    \b
      commonplace being create Aria
      commonplace token create --dialect being --being ID
    """
    from commonplace.dialects.being import beings

    with memory(data, space, embedding, create=True) as opened:
        made = beings.create(opened, name)
    tell(as_json, beings.shown(made), made.id)
    note(f"Let an agent be it: commonplace token create --dialect being --being {made.id}")


@being.command("list")
def list_beings(space: Space = "default", data: Data = None, as_json: AsJson = False) -> None:
    """The beings of a space, oldest first. With --json, one object per line."""
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
    """Put a being and all that is its own out of sight; 'commonplace undo' brings it back."""
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
    tell(as_json, beings.shown(found), f"{visible(found.title)} is gone; what beings share stays")


@being.command("llm-key")
def keep_key(
    provider: Annotated[
        str, option("--provider anthropic|openai", "Whose key it is.")
    ] = "anthropic",
    model: Annotated[str, option("--model NAME", "The model to ask.")] = "",
    forget: Annotated[bool, option("--forget", "Keep none any longer.")] = False,
    space: Space = "default",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Keep the key, read from standard input, that the beings of a space think with.

    It is sealed, used for their patrols alone, and cannot be shown again.
    """
    from commonplace.access.vault import open_vault
    from commonplace.engine.library import directory
    from commonplace.platform.llm import PROVIDERS
    from commonplace.platform.llm_keys import LlmKeys
    from commonplace.storage.system import open_system, system_file

    if forget and not system_file(directory(data)).exists():
        none = {"configured": False, "providers": list(PROVIDERS)}
        tell(as_json, none, "no key is kept")
        return
    store = open_system(directory(data))
    try:
        keys = LlmKeys(store, open_vault(store))
        if forget:
            keys.forget(space)
        else:
            keys.put(space, sys.stdin.readline().strip(), provider=provider, model=model)
        about = keys.about(space)
    finally:
        store.close()
    tell(as_json, about, "a key is kept" if about["configured"] else "no key is kept")
