"""The command `demo`: shows the main features with sample memories in a temporary directory."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from commonplace.dialects.commonplace.console import sample
from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Origin
from commonplace.errors import EmbeddingUnavailable

WIDTH = 96


def run(*, keep: bool = False) -> None:
    """Print the tour to stdout; with `keep`, do not delete its directory."""
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="commonplace-demo-"))
    try:
        origin = Origin(user="demo", client="demo")
        with Commonplace(folder, embedding=_open_embedder(), origin=origin) as memory:
            _print_tour(memory, started)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    _print_next_steps(folder if keep else None)


def _open_embedder() -> Embedder | None:
    try:
        return open_embedder("builtin")
    except EmbeddingUnavailable as error:
        _print(f"  (search by words only: {error.message})")
        return None


def _print_tour(memory: Commonplace, started: float) -> None:
    stored = sample.store_sample(memory)
    count = len(sample.NOTES) + len(sample.CONVERSATION)
    _print(f"Stored {count} memories of a small team, a conversation, a link and two facts"
           f" ({time.monotonic() - started:.1f} s).")  # fmt: skip

    _print("Each result has a score and the reasons why it was found.")

    _print_heading("Search by meaning: the result shares no word with the question")
    _search_and_print(memory, "can everyone eat the dessert?")
    _search_and_print(memory, "who wears mittens?")
    _print_heading("Search by word: a code, a name, in any script")
    _search_and_print(memory, "E-4012")
    _search_and_print(memory, "葛西でのテストはいつ？")
    _search_and_print(memory, "список птиц")
    _print_heading("With context: the lines around a match, and the memories linked to it")
    _search_and_print(memory, "what does Alice need photos of litter for?", limit=3)
    _search_and_print(memory, "why did the certificate expire?", limit=2)

    _print_heading("Versions: a correction keeps the earlier text")
    before = datetime.now(UTC)
    time.sleep(0.01)  # so that `before` is earlier than the change
    shipped = stored["ship-day"]
    memory.revise(shipped.id, text="We ship on Tuesdays; Fridays spoilt two weekends.")
    _search_and_print(memory, "when do we ship?", why=False)
    _search_and_print(memory, "when do we ship?", why=False, as_of=before)
    _print("  Its versions, newest first:")
    for version in memory.history.versions(shipped.id):
        _print(f"    {'was' if version.until else 'is':<4}  {version.memory.text}")
    memory.undo()
    _print(f"  After undo:\n    is    {memory.get(shipped.id).text}")

    _print_heading("Facts are valid for a time")
    for day in ("2026-01-15", "2026-03-15"):
        known = memory.facts.query("Alice", predicate="works on", true_at=day)
        _print(f"  On {day} Alice works on {', '.join(fact.object for fact in known)}.")


def _search_and_print(
    memory: Commonplace,
    query: str,
    *,
    limit: int = 1,
    why: bool = True,
    as_of: datetime | None = None,
) -> None:
    _print(f"  ? {query}" + ("" if as_of is None else "   (as of before the change)"))
    for hit in memory.recall(query, limit=limit, as_of=as_of):
        _print(f"    {hit.score:.2f}  {_shorten(hit.memory.text)}")
        if why:
            _print(f"          {hit.why}")


def _shorten(text: str) -> str:
    room = WIDTH - 10
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _print_heading(text: str) -> None:
    _print(f"\n{text}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_next_steps(folder: Path | None) -> None:
    if folder is None:
        _print("\nThe demo data is deleted. Now store your own:")
        _print('  commonplace remember "…" --tag first')
        _print('  commonplace search "…" --why')
    else:
        _print(f"\nThe demo data is in {folder}. Try:")
        _print(f'  commonplace search "gloves" --why --data {folder}')
        _print(f"  commonplace log --data {folder}")
    _print("  commonplace --help")
