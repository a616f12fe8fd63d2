"""How probable it is that a memory answers a query, and which results are worth returning.

The score by which results are ranked compares them with each other only. The probability means the
same in every space: it is a logistic function of how alike the query and the memory are, and of how
much the query's words say that the memory does not hold, nor, for a message, the lines near it. Its
constants were fitted on questions asked in a space that holds the answer and in spaces that do not
(docs/benchmarks.md).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.builtin import word_information
from commonplace.engine import checks

if TYPE_CHECKING:
    from commonplace.engine.finding.ranking import Question, Search

Floats = NDArray[np.float64]

MINIMUM = 0.33  # nothing is returned if no result is as probable as this
SHARE = 0.45  # share of the best score, and of the minimum, that each other result must reach
FIT = {"constant": -1.6, "cosine": 11.6, "missing": -0.08}
# The same for cosines of the multilingual part alone: of an English query that must be quick, and
# of a memory in another language than most, where words say nothing.
QUICK_FIT = {"constant": -1.3, "cosine": 9.9, "missing": -0.084}
ODD_FIT = {"constant": -5.1, "cosine": 9.9, "missing": 0.0}
# For other queries, and where most memories are in other languages, these cosines do not separate
# answers from other statements. What tells whether a result answers is how far it lies above those
# that usually come after the best, and what the query's words say that no memory holds. With few
# memories nothing is left out.
UNSURE_PROBABILITY = 0.35
FOREIGN_FIT = {"constant": 1.5, "lead": 12.6, "unmatched": -0.075}
ENGLISH_QUERY = -2.0  # its words say less, though no memory in another language holds them
COMPARED_RANKS = slice(5, 20)  # the ranks by meaning that the best one is compared with
UNSPACED = {"hangul": 0.4, "kana": 0.5, "han": 0.5}  # long words, which say more than others
BY_WORDS = {"constant": -1.6, "covered": 8.0}
ALL_WORDS = 0.6  # the least probability of a memory that holds all words of the query
EXACT_CODE = 0.9  # the same for a rare name or code that the query and the memory share
MISSING_RESPELT = 0.5  # share of a word's information that is missing if only its nearest is held
LINKED_SHARE = 0.9  # share of a result's probability for what the strongest link leads to
NEARBY = 10  # so many lines before and after a message are near it
RARE_SHARE = 0.01
RARE_COUNT = 3
_CODE = re.compile(r"\w*[A-Z]\w*[A-Z]\w*|\w*[^\W\d]\w*\d\w*|\w*\d\w*[^\W\d]\w*|\d{3,}|\w+[_]\w+")


def checked_bounds(minimum: float | None, share: float | None) -> tuple[float, float]:
    """Return the checked least probability and the share of the best; None means the defaults.

    With a `minimum` of 0 nothing is left out, unless `share` is given too.
    """
    for name, value in (("minimum", minimum), ("share", share)):
        if value is not None:
            checks.share(value, name)
    least = MINIMUM if minimum is None else float(minimum)
    if share is None:
        return least, SHARE if least else 0.0
    return least, float(share)


def probabilities(search: Search, top: NDArray[np.int64], *, links: bool = True) -> Floats:
    """Return the probability of each result that it answers the query.

    A message counts together with the lines near it. With `links`, a memory that a link leads to
    from one of the best results is nearly as probable as that result, if the link is strong.
    """
    found = _own_probabilities(search, top, near=True)
    linked = [i for i, at in enumerate(top.tolist()) if at in search.linked_from]
    if links and linked:
        seeds, weights = zip(*(search.linked_from[int(top[i])] for i in linked), strict=True)
        seed = _own_probabilities(search, np.asarray(seeds, np.int64), near=True)
        found[linked] = np.maximum(found[linked], LINKED_SHARE * np.asarray(weights) * seed)
    return found


def shown_probabilities(
    search: Search,
    top: NDArray[np.int64],
    probability: Floats,
    linked: NDArray[np.float32],
    kept: NDArray[np.bool_],
    replacing: NDArray[np.bool_],
) -> tuple[Floats, list[str]]:
    """Return the probability of each result that is shown, and whether it is a companion.

    A result that owes its probability to a link, or to a more probable result near it in its
    session, is shown with the probability of its own text. If it would not be returned for that, it
    is a companion: "linked" or "beside"; the others have "". Those that are `replacing` others keep
    the probability that they have for it.
    """
    session = search.snapshot.session[top]
    by_link = linked[top] > 0
    names = [""] * len(top)
    if not (kept & (by_link | (session >= 0))).any():
        return probability, names
    own = _own_probabilities(search, top, near=False)
    together = _own_probabilities(search, top, near=True) if by_link.any() else probability
    before, after = (side[top] for side in search.snapshot.neighbours)
    shown = probability.copy()
    for i in np.flatnonzero(kept & ~replacing & (own < probability)).tolist():
        close = np.abs(top - top[i]) <= NEARBY
        close |= (top == before[i]) | (top == after[i])
        better = kept & (own > own[i]) & (probability >= probability[i])
        if by_link[i] and together[i] < probability[i]:
            name = "linked"
        elif session[i] >= 0 and (better & close & (session == session[i])).any():
            name = "beside"
        else:
            continue
        shown[i] = own[i]
        names[i] = name if own[i] < MINIMUM else ""
    return shown, names


def _own_probabilities(search: Search, top: NDArray[np.int64], *, near: bool) -> Floats:
    """Return the probability of each result by its own text, or for a message by those near it."""
    covered = search.covered[top]
    heard = (
        _best_with_neighbours(search, top, search.covered) if near else covered.astype(np.float64)
    )
    found = _logistic(BY_WORDS["constant"] + BY_WORDS["covered"] * heard)
    if search.has_cosines:
        own = search.cosine[top].astype(np.float64)
        cosine = _best_with_neighbours(search, top, search.cosine) if near else own
        lacking = missing_information(search, top, near=near)
        by_meaning = _answer_probability(QUICK_FIT if search.quick else FIT, cosine, lacking)
        alone = compared_by_last_part(search, top)
        if 2 * np.count_nonzero(alone) > len(top) and not (search.quick and search.english):
            by_meaning = np.where(
                alone, np.maximum(by_meaning, _foreign_probabilities(search, top)), by_meaning
            )
        elif alone.any() and not search.quick:
            by_meaning = np.where(
                alone, _answer_probability(ODD_FIT, cosine, 0 * cosine), by_meaning
            )
        found = np.where(search.embedded[top], by_meaning, found)
    found = np.where(covered > 0.999, np.maximum(found, ALL_WORDS), found)
    for positions in search.distinctive_positions:
        found = np.where(np.isin(top, positions), np.maximum(found, EXACT_CODE), found)
    return np.asarray(found, np.float64)


def term_information(search: Search, asked: Question) -> list[float]:
    """Return the information of each term of the query, without words that name a time."""
    found = dict.fromkeys(search.terms, 0.0)
    for word, terms in asked.undated_words.items():
        for term in terms:
            found[term] += word_information(word) / len(terms)
    return list(found.values())


def missing_information(search: Search, top: NDArray[np.int64], *, near: bool) -> Floats:
    """Return the information of the query's words that each result lacks.

    If `near`, what stands near a message in its session counts as said by it.
    """
    session = search.snapshot.session
    own = session[top]
    spoken = own >= 0
    near = near and bool(spoken.any())
    found = np.zeros(len(top))
    for term, says, positions in zip(search.terms, search.information, search.holding, strict=True):
        if not len(positions):
            found += says
            continue
        after = positions.searchsorted(top)
        at = positions.take(after, mode="clip")
        held = at == top
        if near:
            for nearest in (at, positions.take(after - 1, mode="clip")):
                close = np.abs(nearest - top) <= NEARBY
                held |= spoken & close & (session[nearest] == own)
        found += np.where(held, MISSING_RESPELT * says if term in search.respelt else 0, says)
    return found


def unmatched_information(search: Search) -> float:
    """Return the information of the words that no memory holds, not even a replaced one."""
    alive = search.snapshot.alive
    total = 0.0
    for term, says, positions in zip(search.terms, search.information, search.holding, strict=True):
        if not alive[positions].any():
            total += says
        elif term in search.respelt:
            total += MISSING_RESPELT * says
    return total


def _answer_probability(fit: dict[str, float], cosine: Floats, lacking: Floats) -> Floats:
    return _logistic(fit["constant"] + fit["cosine"] * cosine + fit["missing"] * lacking)


def _foreign_probabilities(search: Search, top: NDArray[np.int64]) -> Floats:
    """Return how probably each result answers a query in another language than English."""
    known = search.mask & search.embedded
    if search.uncrowded is None or np.count_nonzero(known) < COMPARED_RANKS.stop:
        return np.full(len(top), UNSURE_PROBABILITY)
    ranked = np.sort(
        np.partition(search.uncrowded[known], -COMPARED_RANKS.stop)[-COMPARED_RANKS.stop :]
    )[::-1]
    lead = search.uncrowded[top] - ranked[COMPARED_RANKS].mean()
    unheld = unmatched_information(search) * UNSPACED.get(search.script, 1.0)
    told = FOREIGN_FIT["lead"] * lead + FOREIGN_FIT["unmatched"] * unheld
    english = search.vector is not None and bool(
        search.vector[: search.snapshot.parts[0].dimensions].any()
    )
    constant = FOREIGN_FIT["constant"] + (ENGLISH_QUERY if english else 0.0)
    return _logistic(np.asarray(constant + told, np.float64))


def compared_by_last_part(search: Search, top: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which results can be compared with the query only by the last part of their vectors.

    The first part of the result's vector, or of the query's, is zero. A result without a vector is
    not among them.
    """
    snapshot = search.snapshot
    if len(snapshot.parts) < 2 or search.vector is None or not len(snapshot.owner):
        return np.zeros(len(top), np.bool_)
    if not search.vector[: snapshot.parts[0].dimensions].any():
        return np.asarray(search.embedded[top], np.bool_)
    at, _ = snapshot.first_vectors(top)
    known = np.any(snapshot.vectors.parts[0][at], axis=1)
    return np.asarray(search.embedded[top] & ~known, np.bool_)


def _best_with_neighbours(
    search: Search, top: NDArray[np.int64], leg: NDArray[np.float32]
) -> Floats:
    """Return each result's value; a message is scored with its neighbours."""
    own = leg[top]
    if search.snapshot.sessions:
        for side in search.snapshot.neighbours:
            near = side[top]
            own = np.maximum(own, np.where(search.mask[near], leg[near], 0))
    return own.astype(np.float64)


def distinctive_positions(search: Search) -> list[NDArray[np.int32]]:
    """Return where the rare names and codes of the query occur, such as GHA or E4417."""
    if search.query.isupper() and " " in search.query.strip():
        return []  # in a query all in capitals, capitals say nothing
    codes = {word.casefold() for word in re.findall(r"\w+", search.query) if _CODE.fullmatch(word)}
    if not codes:
        return []
    most = max(RARE_COUNT, RARE_SHARE * float(np.count_nonzero(search.snapshot.live)))
    return [
        positions
        for term, positions in zip(search.terms, search.holding, strict=True)
        if term in codes and 0 < len(positions) <= most
    ]


def worth_returning(
    search: Search,
    top: NDArray[np.int64],
    probability: Floats,
    score: NDArray[np.float32],
    linked: NDArray[np.float32],
    least: tuple[float, float],
) -> NDArray[np.bool_]:
    """Return which results are kept: none, unless the most probable one reaches the minimum.

    Every result must have a share of the minimum and of the best score, or be linked with a result.
    Scores by words alone fall too steeply to be compared, also those of memories whose vectors are
    still missing.
    """
    minimum, share = least
    if not len(top) or float(probability.max()) < minimum:
        return np.zeros(len(top), np.bool_)
    kept = probability >= share * minimum
    if search.has_cosines:
        near = score[top] >= np.float32(share) * score[top].max()
        kept &= near | (linked[top] > 0) | ~search.embedded[top]
    return np.asarray(kept, np.bool_)


def _logistic(value: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * value), np.float64)  # it cannot overflow
