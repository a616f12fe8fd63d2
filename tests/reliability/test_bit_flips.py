"""A bit that flips on disk: what it changed is never served as if it had been stored (R5)."""

from __future__ import annotations

import itertools
import random
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace import Commonplace
from commonplace.engine.binding import engine_call
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.links import Neighbour, Walk
from commonplace.engine.content.links import Path as Steps
from commonplace.engine.content.memories import Draft
from commonplace.engine.finding.recall import Hit, SessionHit
from commonplace.engine.library import Library
from commonplace.engine.maintenance import upkeep
from commonplace.errors import (
    CommonplaceError,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
)
from commonplace.storage.fields import STATES
from commonplace.storage.sqlite.check import DERIVED
from commonplace.storage.tables import HASHED, Row, Table
from conftest import WordVectors
from fixtures.full_store import TEXTS, answers, moments, plain, questions
from reliability.progress import counted

FLIPS = 300
GOLDEN = Path(__file__).parent.parent / "fixtures" / "v3.tar.gz"


@dataclass
class Whole:
    """The file before anything happened to it, and what it answered."""

    data: bytes
    answers: dict[str, Any]
    pages: dict[int, str]
    true: dict[str, set[str]]
    """Everything that was stored, by the moment of a question: as it is, or as it was then."""


@dataclass
class Seen:
    """What a damaged file answered."""

    silent: list[str] = field(default_factory=list)
    """Answers with a value that was never stored so."""
    short: list[str] = field(default_factory=list)
    """Answers with a thing too few or too many: an index rotted, which only doctor can tell."""
    refused: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        return bool(self.silent or self.short or self.refused or self.untyped)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A store in which most rows are of the first format, and some of the present one."""
    path = tmp_path_factory.mktemp("whole")
    file = path / "spaces" / "default.db"
    file.parent.mkdir()
    with tarfile.open(GOLDEN) as packed:
        found = packed.extractfile("backup/default.db")
        assert found is not None
        file.write_bytes(found.read())
    with Commonplace(path, embedding=WordVectors()) as memory:
        _go_on(memory)
        engine_call(memory, upkeep.embed_all)
    with Commonplace(path, embedding=WordVectors()) as memory:
        told = answers(memory)
        true = _true(memory, told)
        assert memory.library.maintenance.check("default").findings == []
    connection = apsw.Connection(str(file))
    for table in HASHED:
        if table.name not in ("answers", "audit", "files", "head"):
            count = f"SELECT DISTINCT format FROM {table.name} ORDER BY 1"
            assert connection.execute(count).fetchall() == [(1,), (2,)], table.name
    pages = dict(connection.execute("SELECT pageno, name FROM dbstat"))
    connection.close()
    return Whole(file.read_bytes(), told, pages, true)


def _moment(question: str) -> str:
    """The operation at whose moment a question asks; empty for one about the present."""
    return question.partition(" at ")[2]


def _true(memory: Commonplace, told: dict[str, Any]) -> dict[str, set[str]]:
    """What an answer may hold when an index leads to other rows than before."""
    true = {
        moment: _values([answer for name, answer in told.items() if _moment(name) == moment])
        for moment in {_moment(name) for name in told}
    }
    at = {"": None} | {str(each.seq): each.at for each in memory.history.operations(limit=200)}
    for moment, known in true.items():
        known |= _values(memory.browse(limit=1_000, states=STATES, as_of=at[moment])[0])
    return true


def _go_on(memory: Commonplace) -> None:
    """Some of everything, beside what an older release wrote."""
    drafts = [Draft(text=f"{TEXTS[i % len(TEXTS)]} (later {i})", ref=f"later-{i}",
                    tags=("größe",), title="Later", source=f"https://example.org/later/{i}")
              for i in range(6)]  # fmt: skip
    memory.remember_many(drafts)
    for i in (0, 3, 5, 12):
        memory.revise(f"ref-{i}", text=f"Revised later: {TEXTS[i % len(TEXTS)]}")
    memory.revise("later-1", title="Later still")
    memory.links.add("later-1", "later-2", "leads_to", reason="later")
    memory.links.revise(memory.links.of("ref-2")[0].id, weight=0.2)
    memory.facts.add("Ann", "rides", "a bicycle", memory="later-1")
    memory.facts.close("Bob", "knows", "Ann", ended="2026-02-01")
    cluster = memory.clusters.create("later")
    memory.clusters.add(cluster.id, "later-1", "ref-3")
    memory.clusters.remove(memory.clusters.of("ref-10")[0].id, "ref-10")
    memory.artifacts.update("/docs/one.md", "# One\n\nand more, later\n")
    memory.artifacts.review("/docs/one.md", "approved", reviewer="ann")
    memory.conversations.add("office", Line(speaker="Ann", text="A later line.", session="day1"))
    memory.events.record("credit.given", "later-1", {"amount": 1, "why": "later"})
    memory.get("later-1")


def _ask(memory: Commonplace, whole: Whole) -> Seen:
    seen, before = Seen(), whole.answers
    asked = list(questions(memory))
    try:
        asked += moments(memory)
    except CommonplaceError:
        seen.refused.append("moments")
    for name, ask in asked:
        try:
            answer = plain(ask())
        except (StorageCorrupt, StorageUnavailable):
            seen.refused.append(name)
        except NotFound:  # the index that leads to it has rotted
            seen.short.append(name)
        except CommonplaceError as error:
            seen.silent.append(f"{name}: {error.code}")
        except Exception as error:
            seen.untyped.append(f"{name}: {type(error).__name__}")
        else:
            if name in before and answer != before[name]:
                known = _values(answer) <= whole.true[_moment(name)]
                (seen.short if known else seen.silent).append(name)
    return seen


def _values(answer: Any) -> set[str]:
    """Every stored thing in an answer, whole; not what was ranked or counted around it."""
    if isinstance(answer, Hit | Neighbour):
        return _values(answer.memory)
    if isinstance(answer, SessionHit):
        return {answer.conversation, answer.session} | _values(answer.best)
    if isinstance(answer, Walk):
        return _values(answer.paths) | _values(answer.visited)
    if isinstance(answer, Steps):  # without a link that an index hides, another way is found
        ends = [{link.source, link.target} for link in answer.links]
        if ends != [{*pair} for pair in itertools.pairwise(answer.nodes)]:
            return {f"no way: {answer}"}
        return _values(answer.nodes) | _values(answer.links)
    if isinstance(answer, dict):
        return {text for pair in answer.items() for item in pair for text in _values(item)}
    if isinstance(answer, list | tuple | set):
        return {text for item in answer for text in _values(item)}
    return set() if isinstance(answer, int | float | None) else {repr(answer)}


def _flipped(whole: Whole, place: Path, at: int, bit: int) -> Library:
    shutil.rmtree(place, ignore_errors=True)
    (place / "spaces").mkdir(parents=True)
    data = bytearray(whole.data)
    data[at] ^= 1 << bit
    (place / "spaces" / "default.db").write_bytes(data)
    return Library(place, embedder=WordVectors())


def _run(whole: Whole, place: Path, flips: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Flip one bit after another, each in a fresh copy; (figures, what was not as promised)."""
    random_place = random.Random(seed)
    figures: Counter[str] = Counter()
    broken = []
    for _ in counted(range(flips), flips, "bit flips"):
        at, bit = random_place.randrange(len(whole.data)), random_place.randrange(8)
        library = _flipped(whole, place, at, bit)
        where = f"byte {at} bit {bit} in {whole.pages.get(at // 4096 + 1, 'no table')}"
        seen = _ask(Commonplace(library=library), whole)
        found = [f for f in library.maintenance.check("default").findings if f.severity == "error"]
        library.close()
        figures["refused"] += bool(seen.refused)
        figures["found by doctor"] += bool(found)
        figures["served wrong"] += bool(seen.silent)
        figures["short by an index"] += bool(seen.short)
        figures["untyped"] += bool(seen.untyped)
        if seen.silent or seen.untyped:
            broken.append(f"{where}: {(seen.silent + seen.untyped)[:3]}")
        if seen.anything and not found:
            figures["missed by doctor"] += 1
            broken.append(f"{where}: doctor found nothing")
    return figures, broken


def test_no_flipped_bit_changes_an_answer_unnoticed(
    whole: Whole, quick_disk: Path, publish: Callable[[str], None]
) -> None:
    figures, broken = _run(whole, quick_disk / "flips", FLIPS, seed=5)
    publish(f"{FLIPS} flips, {dict(figures)}")
    assert broken == []
    assert figures["refused"] > FLIPS // 20, "the flips hit nothing: the harness proves nothing"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(55, 59))
def test_no_flipped_bit_changes_an_answer_unnoticed_in_a_long_run(
    whole: Whole, quick_disk: Path, publish: Callable[[str], None], seed: int
) -> None:
    figures, broken = _run(whole, quick_disk / "flips", 5 * FLIPS, seed)
    publish(f"{5 * FLIPS} flips, {dict(figures)}, seed {seed}")
    assert broken == []


def _places_of(whole: Whole, words: bytes, count: int) -> list[int]:
    """Where the file says something, so that a flip there must be noticed."""
    found, at = [], whole.data.find(words)
    while at >= 0 and len(found) < count:
        found.append(at + len(words) // 2)
        at = whole.data.find(words, at + 1)
    assert found
    return found


@pytest.mark.parametrize(
    "words",
    [
        "certificate had expired",
        "Büro in Zürich",
        "Another title",
        "and more",
        "helped",
        "org/later",
    ],
)
def test_a_flip_inside_a_stored_text_is_refused_and_its_row_named(
    whole: Whole, quick_disk: Path, words: str
) -> None:
    for at in _places_of(whole, words.encode(), 4):
        library = _flipped(whole, quick_disk / "text", at, 0)
        seen = _ask(Commonplace(library=library), whole)
        findings = library.maintenance.check("default").findings
        library.close()
        assert not seen.silent and not seen.untyped
        assert any(f.severity == "error" and "num " in f.what for f in findings), findings


@pytest.mark.parametrize("index", ["operations_at", "messages_place", "messages_memory"])
def test_a_flip_in_an_index_makes_nothing_up(whole: Whole, quick_disk: Path, index: str) -> None:
    """Which operation was the newest at a moment, what conversations there are, and which line a
    memory is: all come from indexes, which have no hashes."""
    (page,) = [number for number, name in whole.pages.items() if name == index]
    cells = range((page - 1) * 4096 + 3_750, page * 4096)  # SQLite fills a page from its end
    random_place, noticed = random.Random(7), 0
    for _ in range(40):
        at, bit = random_place.choice(cells), random_place.randrange(8)
        library = _flipped(whole, quick_disk / index, at, bit)
        seen = _ask(Commonplace(library=library), whole)
        library.close()
        assert not seen.silent and not seen.untyped, (at, bit, seen)
        noticed += seen.anything
    assert noticed > 3


@pytest.mark.parametrize("index", ["links_edge", "links_target"])
def test_a_damaged_index_of_links_leads_along_no_link_of_others(
    whole: Whole, quick_disk: Path, index: str
) -> None:
    (page,) = [number for number, name in whole.pages.items() if name == index]
    cells = [at for at in range((page - 1) * 4096, page * 4096) if whole.data[at]]
    random_place, noticed = random.Random(7), 0
    for _ in range(400):
        library = _flipped(
            whole, quick_disk / index, random_place.choice(cells), random_place.randrange(8)
        )
        try:
            walk = Commonplace(library=library).links.traverse("ref-2", depth=5)
        except (StorageCorrupt, StorageUnavailable):
            noticed += 1
            continue
        finally:
            library.close()
        assert _values(walk) <= whole.true[""]
        noticed += walk != whole.answers["traverse"]
    assert noticed > 3


def test_a_links_weight_that_none_can_have_is_noticed(whole: Whole, quick_disk: Path) -> None:
    """What a result hands on along its links is read without their hashes."""
    library = _flipped(whole, quick_disk / "weight", 0, 0)
    library.file("default").write_bytes(whole.data)
    connection = apsw.Connection(str(library.file("default")))
    connection.execute("UPDATE links SET weight = 1e300")
    connection.close()
    seen = _ask(Commonplace(library=library), whole)
    library.close()
    assert not seen.silent and not seen.untyped
    assert any(name.startswith("recall ") for name in seen.refused)


@pytest.mark.parametrize("value", ["1e300", "'much'"])
def test_an_importance_that_none_can_have_is_noticed(
    whole: Whole, quick_disk: Path, value: str
) -> None:
    """The resident index reads columns of many rows at once, without their hashes."""
    library = _flipped(whole, quick_disk / "importance", 0, 0)
    library.file("default").write_bytes(whole.data)
    connection = apsw.Connection(str(library.file("default")))
    connection.execute(f"UPDATE memories SET importance = {value}")
    connection.close()
    seen = _ask(Commonplace(library=library), whole)
    library.close()
    assert not seen.silent and not seen.untyped
    assert any(name.startswith("recall ") for name in seen.refused)


def test_without_the_hashes_the_flips_would_be_served(
    whole: Whole, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: rows are not verified."""

    def trusting(self: Table, space: str, stored: Any) -> Row:
        return dict(zip(self.fields, stored[:-2], strict=True))

    monkeypatch.setattr(Table, "verified", trusting)
    served = 0
    for at in _places_of(whole, b"certificate had expired", 4):
        library = _flipped(whole, quick_disk / "mutant", at, 0)
        served += bool(_ask(Commonplace(library=library), whole).silent)
        library.close()
    assert served > 0


def test_a_flip_in_the_write_ahead_log_loses_no_committed_page_silently(
    quick_disk: Path,
) -> None:
    """SQLite's own checksums end the log there: what came before it stands, and is whole."""
    place = quick_disk / "log"
    with Commonplace(place / "a", embedding="none") as memory:
        for i in range(30):
            memory.remember(f"Line {i} of the log.")
        log = (place / "a/spaces/default.db-wal").read_bytes()
        file = (place / "a/spaces/default.db").read_bytes()
    random_place = random.Random(7)
    for i in range(20):
        spaces = place / f"b{i}" / "spaces"
        spaces.mkdir(parents=True)
        (spaces / "default.db").write_bytes(file)
        data = bytearray(log)
        data[random_place.randrange(len(data))] ^= 1 << random_place.randrange(8)
        (spaces / "default.db-wal").write_bytes(data)
        try:
            with Commonplace(place / f"b{i}", embedding="none") as memory:
                found = [one.text for one in memory.browse(order="oldest", limit=100)[0]]
        except (StorageCorrupt, StorageUnavailable):
            continue
        assert found == [f"Line {n} of the log." for n in range(len(found))]


def test_salvage_saves_all_but_the_damaged_rows(whole: Whole, quick_disk: Path) -> None:
    at = _places_of(whole, b"certificate had expired", 1)[0]
    library = _flipped(whole, quick_disk / "salvage", at, 0)
    before = library.maintenance.check("default")
    saved = library.maintenance.salvage("default", quick_disk / "saved")
    library.close()
    assert 0 < len(saved.lost) <= 2
    total = sum(before.counts[table] for table in saved.saved)
    assert sum(saved.saved.values()) >= total - 2
    (quick_disk / "new" / "spaces").mkdir(parents=True)
    shutil.copy(saved.path, quick_disk / "new" / "spaces" / "default.db")
    with Commonplace(quick_disk / "new", embedding=WordVectors()) as memory:
        assert not memory.library.maintenance.check("default").has_damage_in(
            "file", "grams", *DERIVED
        )
        assert memory.recall("Ann prefers tea")
