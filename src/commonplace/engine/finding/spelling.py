"""Correct misspelt words of a query to similar words in the memories.

The index has numbers of terms and no list of words. So the module generates the possible
corrections of a word, and looks up their numbers in the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from string import ascii_lowercase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commonplace.storage import derived
from commonplace.storage.index import Snapshot
from commonplace.text.analysis import english_stems, seems_english, without_accents

if TYPE_CHECKING:
    from commonplace.engine.finding.ranking import Question

# Shorter words have too many similar words; long words may have two typing errors.
SHORTEST, LONG = 4, 8
LONGEST = 24
MOST_WORDS = (
    3  # At most this many words of a query are examined: the first that no memory contains.
)
VOWELS = "aeiou"


class Candidates(NamedTuple):
    """The terms of the words that are similar to a misspelt word."""

    terms: list[str]
    numbers: NDArray[np.uint64]
    """The numbers of the terms in the index."""
    words: dict[str, str]
    """For each term, the first word that has it."""


def correct_spelling(
    snapshot: Snapshot, asked: Question, holding: Sequence[NDArray[np.int32]]
) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the corrected query, and the (word, term) that replaces each corrected term.

    A word counts as misspelt if no memory contains one of its terms, and if the model's English
    vocabulary does not have it as a whole. Queries in other languages have many such words and are
    not corrected.
    """
    if not seems_english(asked.query):
        return asked.query, {}
    held = {term for term, at in zip(asked.terms, holding, strict=True) if len(at)}
    count = getattr(asked.embedder, "count_tokens", None)
    query, found = asked.query, dict[str, tuple[str, str]]()
    unknown = (word for word, terms in asked.words.items() if terms and held.isdisjoint(terms))
    for word in islice(unknown, MOST_WORDS):
        # The tokens are the word and the marks of start and end.
        if count is not None and count(word) == 3:
            continue
        if near := nearest_word(snapshot, word):
            found.update(dict.fromkeys(asked.words[word], near))
            query = re.sub(rf"\b{re.escape(word)}\b", near[0], query)
    return query, found


def nearest_word(snapshot: Snapshot, word: str) -> tuple[str, str] | None:
    """Return the (word, term) most similar to a word that no memory contains, or None.

    The words differ by one typing error, or by two common ones if the word is long: a letter that
    is missing, added, replaced, or swapped with the next one. The first letter is never missing,
    added or replaced. Among several candidates, the most frequent is chosen.
    """
    own = without_accents(word.casefold())
    if not SHORTEST <= len(own) <= LONGEST or not (own.isascii() and own.isalpha()):
        return None
    found = _most_frequent(snapshot, _with_one_error(own))
    if found is None and len(own) >= LONG:
        found = _most_frequent(snapshot, _with_two_common_errors(own))
    return found


# Generating the candidates takes a millisecond or more; a query is often asked again.
@lru_cache(maxsize=32)
def _with_one_error(word: str) -> Candidates:
    return _candidates(_one_typing_error(word))


@lru_cache(maxsize=32)
def _with_two_common_errors(word: str) -> Candidates:
    once = _common_typing_errors(word)
    return _candidates(chain.from_iterable(map(_common_typing_errors, once)))


def _candidates(words: Iterator[str]) -> Candidates:
    made = list(dict.fromkeys(words))
    of_term = dict(zip(reversed(terms := english_stems(made)), reversed(made), strict=True))
    known = list(dict.fromkeys(terms))
    numbers = np.frombuffer(derived.term_codes(known), np.uint64)
    return Candidates(known, numbers, of_term)


def _one_typing_error(word: str) -> Iterator[str]:
    yield from _common_typing_errors(word)
    for at in range(1, len(word) + 1):
        start, rest, after = word[:at], word[at:], word[at + 1 :]
        yield start + after
        for letter in ascii_lowercase:
            yield start + letter + rest
            yield start + letter + after


def _common_typing_errors(word: str) -> Iterator[str]:
    """Return the words that differ by a common typing error: two letters swapped, a letter doubled
    or not, another vowel.
    """
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(1, len(word)):
        start, letter, rest = word[:at], word[at], word[at + 1 :]
        if letter == word[at - 1]:
            yield start + rest
        else:
            yield start + letter + letter + rest
        if letter in VOWELS:
            yield from (start + vowel + rest for vowel in VOWELS if vowel != letter)


def _most_frequent(snapshot: Snapshot, candidates: Candidates) -> tuple[str, str] | None:
    """Return the (word, term) that occurs in most live memories; among equals, the first."""
    terms, numbers, words = candidates
    held = np.zeros(len(numbers), np.bool_)
    for terms_held in (snapshot.newest_terms, () if snapshot.base is None else snapshot.base.terms):
        if len(terms_held):
            place = np.minimum(np.searchsorted(terms_held, numbers), len(terms_held) - 1)
            held |= terms_held[place] == numbers
    best, most = None, 0
    for at in np.flatnonzero(held).tolist():
        positions = snapshot.postings(int(numbers[at]))[0]
        if (count := int(np.count_nonzero(snapshot.live[positions]))) > most:
            best, most = terms[at], count
    return None if best is None else (words[best], best)
