"""How a being's patrol grows with the being: CPU with many nodes, memory with many patrols."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import RESULTS, Row, Section, milliseconds, resident_bytes, say
from commonplace import Commonplace, Library
from commonplace.dialects.being import beings, notes, patrol, scenes, sight
from commonplace.storage.derived import quantise

THEMES = 20
NEW = 100
MOST = 5.0
MEGABYTE = 1024 * 1024


class _Themes:
    """An embedder whose vectors depend almost only on the first word of a text."""

    id, weights, dimensions, local = "themes", "1", 64, True

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Directions by theme, with a little of each text's own."""
        del query
        rows = []
        for text in texts:
            action = text.partition("] ")[2] or text
            rows.append(_direction(action.split()[0]) + 0.3 * _direction(action))
        made = np.stack(rows)
        return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)

    def close(self) -> None:
        """Nothing is held."""


def _direction(name: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    made = np.random.default_rng(seed).standard_normal(_Themes.dimensions)
    return np.asarray(made / np.linalg.norm(made))


def _scene(number: int) -> scenes.Scene:
    theme = f"theme{number % THEMES}"
    told = f"{theme} happened as number {number} of all"
    return scenes.Scene(told, ("Mika",), ("2026-04-14",), themes=(theme,))


def _create_being(memory: Commonplace, nodes: int) -> str:
    """Create a being with this many nodes, in clusters by theme; return its id."""
    being = beings.create(memory, "Bench").id
    root = memory.clusters.create("Business", attrs={"being": being, "root": True})
    memory.clusters.create("Private", attrs={"being": being, "root": True})
    held: dict[str, list[str]] = {}
    embedder = _Themes()
    for first in range(0, nodes, 1_000):
        told = [_scene(number) for number in range(first, min(first + 1_000, nodes))]
        vectors = quantise(embedder.embed([scene.text for scene in told]))
        drafts = [
            with_vector(scenes.draft(being, scene, kind=sight.NODE, trust="inferred"), vector)
            for scene, vector in zip(told, vectors, strict=True)
        ]
        for scene, stored in zip(told, memory.remember_many(drafts), strict=True):
            held.setdefault(scene.themes[0], []).append(stored.id)
    for theme, ids in held.items():
        made = memory.clusters.create(theme, parent=root.id, attrs={"being": being})
        memory.clusters.add(made.id, *ids)
    return being


def with_vector(draft: Any, vector: bytes) -> Any:
    """Return the draft with a ready-made vector."""
    from dataclasses import replace

    return replace(draft, vectors=[vector])


def _new_scenes(memory: Commonplace, being: str, start: int, count: int) -> None:
    told = [_scene(number).as_dict() for number in range(start, start + count)]
    notes.write_notes(memory, being, "append", told, (), (), ())


def _cpu_of_a_patrol(directory: Path, nodes: int, new: int, rounds: int) -> float:
    with contextlib.closing(Library(directory / str(nodes), embedder=_Themes())) as library:
        memory = Commonplace(library=library)
        being = _create_being(memory, nodes)
        taken = []
        for turn in range(rounds + 1):
            _new_scenes(memory, being, nodes + turn * new, new)
            began = time.process_time()
            report = patrol.run(memory, being)
            taken.append(time.process_time() - began)
            if report.nodes_created != new or report.failed:
                raise RuntimeError(f"The patrol did not do its work: {report}")
        return min(taken[1:])  # the first one loads the index


def _growth_over_patrols(directory: Path, patrols: int) -> tuple[int, int]:
    """Return the process's memory after some patrols, and after as many again."""
    with contextlib.closing(Library(directory / "many", embedder=_Themes())) as library:
        memory = Commonplace(library=library)
        being = _create_being(memory, 200)
        sizes = []
        for _ in range(2):
            for _ in range(patrols):
                patrol.run(memory, being)
            sizes.append(resident_bytes())
        return sizes[0], sizes[1]


def measure(plan: Any) -> Section:
    """A patrol of 100 new scenes, for a small being and for a large one."""
    small, large = (1_000, 10_000) if max(plan.sizes) >= 1_000 else (50, max(plan.sizes))
    new = NEW if large >= 1_000 else 10
    patrols = 200 if large >= 1_000 else 5
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=RESULTS) as scratch:
        say(f"a patrol of {new} new scenes, with {small:,} and with {large:,} nodes")
        few = _cpu_of_a_patrol(Path(scratch), small, new, plan.rounds)
        many = _cpu_of_a_patrol(Path(scratch), large, new, plan.rounds)
        before, after = _growth_over_patrols(Path(scratch), patrols)
    ratio = many / few
    grown = max(0, after - before)
    return Section(
        f"A being's patrol, {new} new scenes",
        [
            Row(
                name=f"patrol with {large:,} nodes, CPU",
                measured=milliseconds(many),
                against=f"with {small:,} {milliseconds(few)}",
                ratio=ratio,
                target=f"≤ {MOST:g} ×",
                ok=ratio <= MOST,
                values={"seconds": many, "floor": few},
            ),
            Row(
                name=f"memory after {2 * patrols} patrols",
                measured=f"{after / MEGABYTE:,.0f} MB",
                against=f"after {patrols} {before / MEGABYTE:,.0f} MB",
                target="≤ 8 MB more",
                ok=grown <= 8 * MEGABYTE,
                values={"bytes": after, "before": before},
            ),
        ],
        ["scenes are embedded when they are noted, not by the patrol; no language model"],
    )
