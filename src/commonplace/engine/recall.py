"""Finding: words and meaning, each over every memory, joined by one weighting.

The words' score is scaled by how much of the query a memory holds, so that where words say
little, meaning decides. Lines of a conversation also hear their neighbours and their session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.calibration import calibrated, knows_script
from commonplace.engine import checks, history, ranking
from commonplace.engine.filters import Filters
from commonplace.engine.memories import analysed, speaker_of, usable_vectors
from commonplace.engine.model import Memory
from commonplace.engine.opened import OpenSpace
from commonplace.engine.ranking import Flags, Floats
from commonplace.errors import EmbeddingUnavailable, StorageCorrupt
from commonplace.storage import derived
from commonplace.storage.index import NEVER, POSTING, STATES, Snapshot
from commonplace.storage.sqlite import now
from commonplace.storage.tables import LINKS, MEMORIES, MESSAGES, Row
from commonplace.text.analysis import analyse, analyse_query
from commonplace.text.passages import split
from commonplace.text.scripts import dominant_script

if TYPE_CHECKING:
    import apsw

QUERY_CHARS = 10_000
DAY = 86_400_000_000
_LINKED = (
    "SELECT a.num, b.num, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.source = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.target"
    " WHERE a.space = ?1 AND a.num = ?2"
    " UNION ALL SELECT a.num, b.num, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.target = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.source"
    " WHERE a.space = ?1 AND a.num = ?2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """How much each reason counts. The defaults are what the benchmarks report."""

    lexical: float = 0.45
    dense: float = 0.55
    coverage: float = 1.5
    """The words' score is multiplied by the share of the query that is matched, to this power."""
    k1: float = 0.9
    b: float = 0.4
    neighbours: float = 0.25
    """What the line before and the line after add to a line of a conversation."""
    session: float = 0.5
    """What the best line of its session adds."""
    speaker: float = 0.15
    """What being said by somebody the query names adds."""
    graph: float = 0.2
    """What a link from one of the best results adds."""
    graph_seeds: int = 10
    recency: float = 0.0
    recency_days: float = 30.0
    importance: float = 0.0
    credit: float = 0.0
    fusion: Literal["scores", "ranks"] = "scores"
    """Join the two legs by their scaled scores, or by reciprocal ranks."""
    rank_k: int = 60


DEFAULT = Weighting()
WORDS_ONLY = Weighting(dense=0.0, neighbours=0.0, session=0.0, speaker=0.0, coverage=0.0, graph=0.0)
MEANING_ONLY = Weighting(lexical=0.0, neighbours=0.0, session=0.0, speaker=0.0, graph=0.0)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a memory was found."""

    words: tuple[str, ...]
    """The query's words it holds."""
    lexical: float
    """Its score by words, 1 for the best of this search."""
    lexical_rank: int | None
    similarity: float
    """Its calibrated likeness to the query, 0..1."""
    dense_rank: int | None
    context: float
    """What its conversation added."""
    graph: float
    """What links from other results added."""
    as_it_was: bool = False
    """True for a former version found in a look at the past."""

    def __str__(self) -> str:
        parts = []
        if self.lexical_rank is not None:
            shown = ", ".join(self.words) or "parts of words"
            parts.append(f"words: {shown} (rank {self.lexical_rank})")
        if self.dense_rank is not None:
            parts.append(f"meaning: {self.similarity:.2f} (rank {self.dense_rank})")
        if self.context > 0.005:
            parts.append(f"conversation: +{self.context:.2f}")
        if self.graph > 0.005:
            parts.append(f"links: +{self.graph:.2f}")
        if self.as_it_was:
            parts.append("a former version")
        return "; ".join(parts) or "nothing matched better"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "words": list(self.words),
            "lexical": round(self.lexical, 6),
            "lexical_rank": self.lexical_rank,
            "similarity": round(self.similarity, 6),
            "dense_rank": self.dense_rank,
            "context": round(self.context, 6),
            "graph": round(self.graph, 6),
            "as_it_was": self.as_it_was,
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found, with its score in 0..1 and the reasons."""

    memory: Memory
    score: float
    why: Why

    @property
    def similarity(self) -> float:
        """Calibrated likeness to the query, for contracts that have a threshold."""
        return self.why.similarity


class Hits(list[Hit]):
    """What a recall found, best first."""

    degraded: str = ""
    """Why meaning was left out, if it was; words alone answered then."""


@dataclass(frozen=True, slots=True)
class SessionHit:
    """A session of a conversation, with its score in 0..1 and its best line."""

    conversation: str
    session: str
    score: float
    best: Memory


@dataclass
class _Search:
    """One query over one snapshot: every leg as an array over all positions."""

    snapshot: Snapshot
    mask: Flags
    terms: list[str]
    bm25: Floats
    covered: Floats
    holding: list[NDArray[np.int32]]
    cosine: Floats
    embedded: Flags
    named: set[int]
    named_terms: list[int]
    script: str
    meaning: bool
    degraded: str
    extra: list[tuple[Row, bytes | None]] = field(default_factory=list)
    """Former versions that were current then, for a look at the past."""
    seq: int | None = None
    """The operation as of which the past is looked at."""


def recall(
    space: OpenSpace,
    query: str,
    filters: Filters,
    weighting: Weighting,
    *,
    limit: int,
    as_of: int | None,
    count: bool,
) -> Hits:
    """The best live memories for a query; as of a moment, those that were live then."""
    checks.text(query, "query", max_chars=QUERY_CHARS)
    asked = _Question(space, query)
    with space.view() as (connection, snapshot):
        search = _search(space, connection, snapshot, asked, filters, weighting, as_of)
        score, context, linked = _score(space, connection, search, weighting)
        hits = _hits(space, connection, asked, search, score, context, linked, limit)
    hits.degraded = search.degraded
    if count and hits and as_of is None:
        space.count_reads([hit.memory.num for hit in hits], now())
    return hits


class _Question:
    """A query's terms, and its vectors when there is an embedder that answers."""

    def __init__(self, space: OpenSpace, query: str) -> None:
        self.query = query
        self.terms = list(dict.fromkeys(analyse_query(query)))
        self.script = dominant_script(query)
        self.degraded = ""
        self._embedder = space.embedder
        if self._embedder is None:
            self.degraded = "There is no embedding provider; words alone were searched."
        self.usable = self._embedder is not None and knows_script(self._embedder.id, self.script)

    def vector(self, text: str) -> tuple[NDArray[np.int8], float] | None:
        """The packed vector of a text, or None when meaning cannot be had."""
        if self._embedder is None or not self.usable:
            return None
        from commonplace.embedding.quantise import quantise, unpack_many

        try:
            packed = quantise(self._embedder.embed([text], query=True))[0]
        except EmbeddingUnavailable as error:
            self.degraded, self.usable = error.message, False
            return None
        matrix, scales = unpack_many(packed, self._embedder.dimensions)
        return matrix[0], float(scales[0])


def _search(
    space: OpenSpace,
    connection: apsw.Connection,
    snapshot: Snapshot,
    asked: _Question,
    filters: Filters,
    weighting: Weighting,
    as_of: int | None,
) -> _Search:
    mask = filters.mask(snapshot, connection, space.name)
    extra: list[tuple[Row, bytes | None]] = []
    seq = None
    if as_of is not None:
        seq = history.seq_at(connection, space.name, as_of)
        mask &= snapshot.row_seq <= seq
        extra = [
            (row, vectors)
            for row, vectors in history.replaced_since(connection, space.name, seq)
            if filters.admits(Memory.of(row), speaker_of(connection, space.name, row["num"]))
        ]
    named, spoken = _voice(snapshot, asked.query)
    bm25, covered, holding, rarities, mean = _lexical(snapshot, asked.terms, weighting)
    search = _Search(
        snapshot, mask, asked.terms, bm25, covered, holding,
        np.zeros(snapshot.size, np.float32), snapshot.embedded, named,
        [derived.term_number(term) for name in sorted(_names(snapshot, named))
         for term in analyse_query(name)],
        asked.script, False, "", extra, seq,
    )  # fmt: skip
    vector = asked.vector(asked.query) if weighting.dense > 0 else None
    if vector is not None:
        search.meaning = True
        lines = snapshot.session >= 0 if named else None
        if lines is None or not bool((lines | ~mask).all()):
            search.cosine = snapshot.cosine(*vector)
        if lines is not None:
            said = asked.vector(spoken) or vector
            search.cosine = np.where(lines, snapshot.cosine(*said), search.cosine)
    search.degraded = asked.degraded
    if extra:
        _append_extra(space, connection, search, rarities, mean, weighting, vector)
    return search


def _lexical(
    snapshot: Snapshot, terms: Sequence[str], weighting: Weighting
) -> tuple[Floats, Floats, list[NDArray[np.int32]], list[float], float]:
    """BM25 and the covered share of the query for every position."""
    scores = np.zeros(snapshot.size, np.float32)
    covered = np.zeros(snapshot.size, np.float32)
    live = snapshot.live
    documents = int(np.count_nonzero(live))
    mean = float(snapshot.length[live].mean()) if documents else 1.0
    holding: list[NDArray[np.int32]] = []
    rarities: list[float] = []
    for term in terms:
        positions, times = snapshot.postings(derived.term_number(term))
        rare = ranking.rarity(documents, int(np.count_nonzero(live[positions])))
        worth = ranking.bm25_term(
            times.astype(np.float32), snapshot.length[positions], mean,
            k1=weighting.k1, b=weighting.b,
        )  # fmt: skip
        scores[positions] += np.float32(rare) * worth
        covered[positions] += np.float32(rare)
        holding.append(positions)
        rarities.append(rare)
    mass = sum(rarities)
    if mass > 0:
        covered /= np.float32(mass)
    return scores, covered, holding, rarities, mean


def _append_extra(
    space: OpenSpace,
    connection: apsw.Connection,
    search: _Search,
    rarities: Sequence[float],
    mean: float,
    weighting: Weighting,
    vector: tuple[NDArray[np.int8], float] | None,
) -> None:
    """Score former versions like present rows, and put them behind the positions."""
    from commonplace.embedding.quantise import unpack_many

    bm25, covered, cosine, embedded = [], [], [], []
    mass = sum(rarities) or 1.0
    holders: list[list[int]] = [[] for _ in search.terms]
    for at, (row, kept) in enumerate(search.extra, start=search.snapshot.size):
        item = analysed(dict(row), speaker_of(connection, space.name, row["num"]))
        postings = np.frombuffer(item.terms, POSTING)
        times = dict(zip(postings["term"].tolist(), postings["times"].tolist(), strict=True))
        length = np.array([sum(times.values())], np.float32)
        score = held = 0.0
        for i, (term, rare) in enumerate(zip(search.terms, rarities, strict=True)):
            count = times.get(derived.term_number(term), 0)
            if count:
                holders[i].append(at)
                worth = ranking.bm25_term(
                    np.array([count], np.float32), length, mean, k1=weighting.k1, b=weighting.b
                )
                score += rare * float(worth[0])
                held += rare
        bm25.append(score)
        covered.append(held / mass)
        vectors = usable_vectors(space, connection, kept, len(split(row["text"])))
        likeness = 0.0
        if vector is not None and vectors and space.embedder is not None:
            matrix, scales = unpack_many(b"".join(vectors), space.embedder.dimensions)
            products = matrix.astype(np.int32) @ vector[0].astype(np.int32)
            likeness = float((products * scales).max() * vector[1])
        cosine.append(likeness)
        embedded.append(bool(vectors))
    search.holding = [
        np.concatenate([positions, np.array(more, np.int32)])
        for positions, more in zip(search.holding, holders, strict=True)
    ]
    search.bm25 = np.concatenate([search.bm25, np.array(bm25, np.float32)])
    search.covered = np.concatenate([search.covered, np.array(covered, np.float32)])
    search.cosine = np.concatenate([search.cosine, np.array(cosine, np.float32)])
    search.embedded = np.concatenate([search.embedded, np.array(embedded, np.bool_)])
    search.mask = np.concatenate([search.mask, np.ones(len(bm25), np.bool_)])


def _fuse(search: _Search, weighting: Weighting) -> Floats:
    """Both legs as one score in 0..1."""
    mask = search.mask
    weights = {"words": weighting.lexical, "meaning": weighting.dense if search.meaning else 0.0}
    total = sum(weights.values()) or 1.0
    if weighting.fusion == "ranks":
        score = np.zeros_like(search.bm25)
        legs = {"words": search.bm25, "meaning": np.where(search.embedded, search.cosine, 0)}
        for name, leg in legs.items():
            found = np.flatnonzero(mask & (leg > 0))
            order = found[np.argsort(-leg[found], kind="stable")]
            ranks = np.arange(1, len(order) + 1, dtype=np.float32)
            score[order] += np.float32(weights[name] / total) / (weighting.rank_k + ranks)
        return score * np.float32(weighting.rank_k + 1)
    score = np.zeros_like(search.bm25)
    best = float(search.bm25[mask].max(initial=0.0))
    if best > 0 and weights["words"]:
        words = search.bm25 / np.float32(best)
        if weighting.coverage:
            words *= search.covered ** np.float32(weighting.coverage)
        score += np.float32(weights["words"] / total) * words
    if weights["meaning"]:
        likeness = ranking.min_max(search.cosine, mask & search.embedded)
        score += np.float32(weights["meaning"] / total) * likeness
    return score


def _score(
    space: OpenSpace, connection: apsw.Connection, search: _Search, weighting: Weighting
) -> tuple[Floats, Floats, Floats]:
    """(final score, what the conversation added, what links added) for every position."""
    fused = _fuse(search, weighting)
    score = _in_conversation(search, weighting, fused)
    context = score - fused
    score = _with_properties(search, weighting, score)
    linked = _along_links(space, connection, search, weighting, score)
    if linked.any():
        score = (score + linked) / np.float32(1 + weighting.graph)
    return score, context, linked


def _in_conversation(search: _Search, weighting: Weighting, fused: Floats) -> Floats:
    """Lines hear their neighbours, their session, and whether the query names their speaker."""
    snapshot, size = search.snapshot, search.snapshot.size
    score = fused.copy()
    if snapshot.sessions and (weighting.neighbours or weighting.session):
        own, mask = fused[:size], search.mask[:size]
        heard = _with_neighbours(snapshot, mask, own, weighting.neighbours)
        score[:size] = heard
        lines = mask & (snapshot.session >= 0)
        if weighting.session and lines.any():
            best = np.zeros(snapshot.sessions, np.float32)
            np.maximum.at(best, snapshot.session[lines], heard[lines])
            w = np.float32(weighting.session)
            score[:size][lines] = (heard[lines] + w * best[snapshot.session[lines]]) / (1 + w)
    if search.named and weighting.speaker:
        share = np.float32(weighting.speaker / (1 + weighting.session))
        said = np.zeros_like(fused)
        said[:size] = np.isin(snapshot.speaker, list(search.named))
        for term in search.named_terms:  # other memories may be about the one who is named
            positions = snapshot.postings(term)[0]
            said[positions[snapshot.session[positions] < 0]] = 1.0
        score = np.asarray((score + share * said) / (1 + share), np.float32)
    return score


def _with_neighbours(snapshot: Snapshot, mask: Flags, own: Floats, weight: float) -> Floats:
    before, after = snapshot.beside
    here = np.arange(snapshot.size)
    before = np.where(mask[before], before, here)
    after = np.where(mask[after], after, here)
    w = np.float32(weight)
    return np.asarray((own + w * own[before] + w * own[after]) / (1 + 2 * w), np.float32)


def _with_properties(search: _Search, weighting: Weighting, score: Floats) -> Floats:
    """Recency, importance and credit, where the weighting asks for them."""
    total = weighting.recency + weighting.importance + weighting.credit
    if not total:
        return score
    snapshot, size = search.snapshot, search.snapshot.size
    added = np.zeros_like(score)
    if weighting.recency:
        happened = np.where(snapshot.occurred == NEVER, snapshot.created, snapshot.occurred)
        days = np.maximum(0, (now() - happened) / DAY)
        added[:size] += weighting.recency * np.exp2(-days / weighting.recency_days)
    added[:size] += weighting.importance * snapshot.importance + weighting.credit * snapshot.credit
    for i, (row, _) in enumerate(search.extra, start=size):
        added[i] = weighting.importance * row["importance"] + weighting.credit * row["credit"]
    mixed: Floats = ((score + added) / np.float32(1 + total)).astype(np.float32)
    return mixed


def _along_links(
    space: OpenSpace,
    connection: apsw.Connection,
    search: _Search,
    weighting: Weighting,
    score: Floats,
) -> Floats:
    """What the best results hand on to the memories they are linked with."""
    linked = np.zeros_like(score)
    if not weighting.graph:
        return linked
    if search.seq is None and not connection.execute("SELECT 1 FROM links LIMIT 1").fetchone():
        return linked
    places = _Places(search)
    best = _best(score, search.mask, weighting.graph_seeds)
    seeds = {places.num(at): float(score[at]) for at in best.tolist()}
    for seed, end, weight in _edges(space, connection, search, list(seeds)):
        at = places.of(end)
        if at is not None and search.mask[at]:
            handed = weighting.graph * ranking.edge_score(seeds[seed], weight, 1)
            linked[at] = max(float(linked[at]), handed)
    return linked


class _Places:
    """Where the memories of a search stand, former versions included."""

    def __init__(self, search: _Search) -> None:
        self._nums = search.snapshot.num
        self._former = {
            row["num"]: at for at, (row, _) in enumerate(search.extra, start=search.snapshot.size)
        }
        self._order: NDArray[np.int64] | None = None

    def num(self, at: int) -> int:
        if at < len(self._nums):
            return int(self._nums[at])
        return int(next(num for num, place in self._former.items() if place == at))

    def of(self, num: int) -> int | None:
        """The newest position of a memory."""
        if num in self._former:
            return self._former[num]
        if self._order is None:
            self._order = np.argsort(self._nums, kind="stable")
        found = int(np.searchsorted(self._nums, num, side="right", sorter=self._order)) - 1
        if found < 0:
            return None
        at = int(self._order[found])
        return at if self._nums[at] == num else None


def _edges(
    space: OpenSpace, connection: apsw.Connection, search: _Search, nums: Sequence[int]
) -> list[tuple[int, int, float]]:
    """(seed, other end, weight) of the links that touch a seed, now or as of then."""
    if search.seq is None:
        rows: list[Any] = []
        for num in nums:
            rows += connection.execute(_LINKED, (space.name, num))
        return rows
    then = history.rows_as_of(connection, space.name, MEMORIES, search.seq)
    number = {row["id"]: row["num"] for row in then}
    wanted = set(nums)
    found = []
    for link in history.rows_as_of(connection, space.name, LINKS, search.seq):
        source, target = number.get(link["source"]), number.get(link["target"])
        if source is None or target is None:
            continue
        if source in wanted:
            found.append((source, target, float(link["weight"])))
        if target in wanted:
            found.append((target, source, float(link["weight"])))
    return found


def _best(score: Floats, mask: Flags, count: int) -> NDArray[np.int64]:
    """Positions of the highest scores among those that may be found, best first."""
    allowed = np.flatnonzero(mask)
    if len(allowed) > count:
        chosen = np.argpartition(-score[allowed], count - 1)[:count]
        cut = score[allowed[chosen]].min()
        allowed = allowed[score[allowed] >= cut]  # ties are settled by age, not by chance
    order = np.lexsort((allowed, -score[allowed]))
    return allowed[order][:count]


def _hits(
    space: OpenSpace,
    connection: apsw.Connection,
    asked: _Question,
    search: _Search,
    score: Floats,
    context: Floats,
    linked: Floats,
    limit: int,
) -> Hits:
    matched = search.mask & (score > 0)
    if not search.meaning:
        matched &= (search.bm25 > 0) | (linked > 0) | (context > 0.01)
    top = _best(score, matched, limit)
    size = search.snapshot.size
    nums = search.snapshot.num[top[top < size]].tolist()
    rows = MEMORIES.by_nums(connection, space.name, nums)
    words = _words_held(asked, search, top)
    likeness = _similarities(space, search, top)
    best = float(search.bm25[search.mask].max(initial=0.0)) or 1.0
    hits = Hits()
    for i, at in enumerate(top.tolist()):
        row = _agreeing(search.snapshot, at, rows) if at < size else search.extra[at - size][0]
        embedded = search.meaning and bool(search.embedded[at])
        why = Why(
            words=words[i],
            lexical=float(search.bm25[at]) / best,
            lexical_rank=_rank(search.bm25, search.mask, at) if search.bm25[at] > 0 else None,
            similarity=float(likeness[i]),
            dense_rank=_rank(search.cosine, search.mask, at) if embedded else None,
            context=max(0.0, float(context[at])),
            graph=float(linked[at]),
            as_it_was=at >= size,
        )
        hits.append(Hit(Memory.of(row), min(1.0, max(0.0, float(score[at]))), why))
    return hits


def _words_held(asked: _Question, search: _Search, top: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """The query's words, as it wrote them, that each result holds."""
    written: dict[str, str] = {}
    for word in re.findall(r"[\w'’.@/-]+", asked.query):
        for term in analyse_query(word):
            written.setdefault(term, word.strip("'’.-"))
    held: list[dict[str, None]] = [{} for _ in top]
    for term, positions in zip(search.terms, search.holding, strict=True):
        if len(positions):
            place = np.minimum(positions.searchsorted(top), len(positions) - 1)
            for i in np.flatnonzero(positions[place] == top).tolist():
                held[i][written.get(term, term)] = None
    return [tuple(words) for words in held]


def _agreeing(snapshot: Snapshot, at: int, rows: dict[int, Row]) -> Row:
    """The row of a position; it must say what the index said when it was ranked."""
    row = rows.get(int(snapshot.num[at]))
    if (
        row is None
        or row["seq"] != snapshot.row_seq[at]
        or row["state"] != STATES[snapshot.state[at]]
        or snapshot.kinds.get(row["kind"]) != snapshot.kind[at]
        or np.float32(row["importance"]) != snapshot.importance[at]
        or row["created_at"] != snapshot.created[at]
    ):
        raise StorageCorrupt(
            f"The index and row {int(snapshot.num[at])} of memories disagree.",
            hint="Run 'commonplace doctor --repair' to rebuild the index from the rows.",
        )
    return row


def _similarities(space: OpenSpace, search: _Search, top: NDArray[np.int64]) -> NDArray[Any]:
    """Calibrated likeness; where meaning is not to be had, the share of the query's words."""
    shared: NDArray[Any] = search.covered[top]
    if not search.meaning or space.embedder is None:
        return shared
    likeness = calibrated(search.cosine[top], space.embedder.id, search.script)
    return np.where(search.embedded[top], likeness, shared)


def _rank(leg: Floats, mask: Flags, at: int) -> int:
    return int(np.count_nonzero((leg > leg[at]) & mask)) + 1


def _names(snapshot: Snapshot, codes: set[int]) -> list[str]:
    return [name for name, code in snapshot.speakers.items() if code in codes] if codes else []


def _voice(snapshot: Snapshot, query: str) -> tuple[set[int], str]:
    """(codes of the speakers a query names, the query as one of them would say it).

    What people say of themselves is in the first person, and a vector model takes a name for
    the topic; so against spoken lines "When did Ann move?" is asked as "When did I move?".
    """
    if not snapshot.sessions:
        return set(), query
    folded = query.casefold()
    named: dict[str, int] = {}
    for word in set(re.findall(r"\w+", folded)):
        for full, code in snapshot.called.get(word, ()):
            if " " in full and re.search(rf"\b{re.escape(full)}\b", folded):
                named[full] = code
            elif len(word) > 2:
                named[word] = code
    spoken = query
    for name in sorted(named, key=len, reverse=True):
        pattern = rf"\b{re.escape(name)}\b('s|’s)?"
        spoken = re.sub(pattern, lambda m: "my" if m.group(1) else "I", spoken, flags=re.IGNORECASE)
    return set(named.values()), spoken


def recall_sessions(
    space: OpenSpace, query: str, filters: Filters, *, limit: int
) -> list[SessionHit]:
    """Sessions by their two best lines and by how much of the query they hold as a whole."""
    checks.text(query, "query", max_chars=QUERY_CHARS)
    asked = _Question(space, query)
    with space.view() as (connection, snapshot):
        if not snapshot.sessions:
            return []
        search = _search(space, connection, snapshot, asked, filters, DEFAULT, None)
        lines = np.flatnonzero(search.mask & (snapshot.session >= 0))
        if not len(lines):
            return []
        fused = _fuse(search, DEFAULT)
        heard = _with_neighbours(snapshot, search.mask, fused, DEFAULT.neighbours)
        codes, values = snapshot.session[lines], heard[lines]
        order = np.lexsort((-values, codes))
        first = np.flatnonzero(np.diff(codes[order], prepend=-1))
        sessions, best = codes[order][first], values[order][first]
        following = np.minimum(first + 1, len(order) - 1)
        second = np.where(codes[order][following] == sessions, values[order][following], best)
        covered = _session_coverage(snapshot, search, sessions)
        score = ((best + second) / 2 + np.float32(0.3) * covered) / np.float32(1.3)
        ranked = np.lexsort((sessions, -score))[:limit]
        leaders = lines[order][first]
        found = []
        for i in ranked.tolist():
            at = int(leaders[i])
            num = int(snapshot.num[at])
            row = _agreeing(snapshot, at, MEMORIES.by_nums(connection, space.name, [num]))
            line = MESSAGES.fetch_one(connection, space.name, "AND memory = ?", num)
            assert line is not None
            found.append(
                SessionHit(line["conversation"], line["session"], float(score[i]), Memory.of(row))
            )
        return found


def _session_coverage(snapshot: Snapshot, search: _Search, sessions: NDArray[np.int32]) -> Floats:
    """The share of the query's rarity that each session holds as a whole."""
    covered = np.zeros(snapshot.sessions, np.float32)
    mass = 0.0
    for positions in search.holding:
        lines = positions[search.mask[positions] & (snapshot.session[positions] >= 0)]
        holders = np.unique(snapshot.session[lines])
        rare = ranking.rarity(len(sessions), len(holders))
        mass += rare
        covered[holders] += np.float32(rare)
    share: Floats = covered[sessions] / np.float32(mass or 1.0)
    return share


def similarity(space: OpenSpace, text: str, others: Sequence[str]) -> list[float]:
    """Calibrated likeness of texts; by words where the model does not know the script."""
    checks.text(text, "text")
    for other in others:
        checks.text(other, "text")
    script = dominant_script(text)
    if space.embedder is not None and knows_script(space.embedder.id, script) and others:
        vectors = space.embedder.embed([text, *others])
        raw = vectors[1:] @ vectors[0]
        return [calibrated(float(value), space.embedder.id, script) for value in raw]
    mine = set(analyse(text))
    return [_overlap(mine, set(analyse(other))) for other in others]


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0
