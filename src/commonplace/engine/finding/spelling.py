"""Misspelt words of a query: the nearest words that the memories hold.

The index has numbers of terms and no list of words. So the words that a slip of the fingers away
would give are made from the query's word, and their numbers are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commonplace.storage import derived
from commonplace.storage.index import Snapshot
from commonplace.text.analysis import bare, english_stems, seems_english

if TYPE_CHECKING:
    from commonplace.engine.finding.ranking import Question

SHORTEST, LONG = 4, 8  # shorter words are near too many others; long ones may have two slips
LONGEST = 24
MOST_WORDS = 3  # so many words of a query are looked at
VOWELS = "aeiou"


def respelt(
    snapshot: Snapshot, asked: Question, holding: Sequence[NDArray[np.int32]]
) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the query in the spelling of the memories, and the (word, term) that replace terms.

    A word is taken for misspelt if no memory holds one of its terms, and if the model's English
    vocabulary does not have it as a whole. Queries in other languages have many such words, so
    they are left as they are.
    """
    if not seems_english(asked.query):
        return asked.query, {}
    held = {term for term, at in zip(asked.terms, holding, strict=True) if len(at)}
    count = getattr(asked.embedder, "count_tokens", None)
    query, found = asked.query, dict[str, tuple[str, str]]()
    unknown = (word for word, terms in asked.words.items() if terms and held.isdisjoint(terms))
    for word in islice(unknown, MOST_WORDS):
        if count is not None and count(word) == 3:  # the word, and the marks of start and end
            continue
        if near := nearest(snapshot, word):
            found.update(dict.fromkeys(asked.words[word], near))
            query = re.sub(rf"\b{re.escape(word)}\b", near[0], query)
    return query, found


def nearest(snapshot: Snapshot, word: str) -> tuple[str, str] | None:
    """Return the (word, term) nearest to a word that no memory holds, or None.

    It is one slip away, or two of the usual ones for a long word: a letter left out, added, changed
    or exchanged with the next, but never the first one. Of several the most frequent is taken.
    """
    own = bare(word.casefold())
    if not SHORTEST <= len(own) <= LONGEST or not (own.isascii() and own.isalpha()):
        return None
    found = _most_frequent(snapshot, _one_slip(own))
    if found is None and len(own) >= LONG:
        twice = chain.from_iterable(map(_usual_slips, _usual_slips(own)))
        found = _most_frequent(snapshot, twice)
    return found


def _one_slip(word: str) -> Iterator[str]:
    yield from _usual_slips(word)
    for at in range(1, len(word) + 1):
        start, rest, after = word[:at], word[at:], word[at + 1 :]
        yield start + after
        for letter in ascii_lowercase:
            yield start + letter + rest
            yield start + letter + after


def _usual_slips(word: str) -> Iterator[str]:
    """Two letters exchanged, one doubled or not, another vowel."""
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


def _most_frequent(snapshot: Snapshot, words: Iterable[str]) -> tuple[str, str] | None:
    """Return the (word, term) that most live memories hold; of equals the first."""
    made = list(dict.fromkeys(words))
    of_term = dict(zip(reversed(terms := english_stems(made)), reversed(made), strict=True))
    known = list(dict.fromkeys(terms))
    numbers = np.frombuffer(derived.term_codes(known), np.uint64)
    held = np.zeros(len(numbers), np.bool_)
    for terms_held in (snapshot.newest_terms, () if snapshot.base is None else snapshot.base.terms):
        if len(terms_held):
            place = np.minimum(np.searchsorted(terms_held, numbers), len(terms_held) - 1)
            held |= terms_held[place] == numbers
    best, most = None, 0
    for at in np.flatnonzero(held).tolist():
        positions = snapshot.postings(int(numbers[at]))[0]
        if (count := int(np.count_nonzero(snapshot.live[positions]))) > most:
            best, most = known[at], count
    return None if best is None else (of_term[best], best)
