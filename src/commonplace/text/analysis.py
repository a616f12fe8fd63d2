"""Analysis: split a text into tokens, in the same way for stored texts and for queries.

A token has no white space, no ASCII punctuation and no ASCII capital, so that a full-text engine
that keeps letters, digits and all non-ASCII characters stores it whole.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, pairwise
from typing import Literal, TypeVar
from unicodedata import category, combining, decimal, is_normalized, normalize

import Stemmer

from commonplace.text.scripts import script_of
from commonplace.text.stopwords import ENGLISH_TOO, QUESTION_PAIRS, QUESTION_WORDS, STOP_WORDS

ANALYSIS_VERSION: int = 1
"""Incremented when the same text yields other tokens, which makes older index entries stale."""

PREFIX_MARK = "ˑ"
"""The first character of a token that is the prefix of a long Cyrillic word.

It also joins the parts of a number such as 3.11 or 2026-05-31.
"""

_LONGEST_WHOLE = 64
_MOST_PARTS = 6
DETECTION_WORDS = 200
_MEMO_SIZE = 32_768

# --- finding words -----------------------------------------------------------------------------
# A chunk is what `_ASCII_WORDS` or `_word_pattern()` matches: words with the signs that join them,
# such as `don't`, `foo_bar` or `3.11`; a run of letters of a script without spaces; a flag; or an
# emoji.

_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HAN += "\U00020000-\U000323af"
_KANA = "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uffa1-\uffdc"
_UNSPACED = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
_UNSPACED += "\u1000-\u103f\u104c-\u108f\u109a-\u109f\uaa60-\uaa7f"  # Myanmar
_UNSPACED += "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
_FLAG = "\U0001f1e6-\U0001f1ff"
_EMOJI = "\u231a\u231b\u23e9-\u23f3\u2600-\u27bf\u2b1b\u2b1c\u2b50\u2b55"
_EMOJI += "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"


def _combining_marks() -> str:
    r"""Return the combining marks of alphabets, which Python's \w leaves out, as a regex class."""
    blocks = [range(0x300, 0xE00), range(0xF00, 0x1000), range(0x1700, 0x1780)]
    blocks += [range(0x1800, 0x1E00), range(0xA660, 0xA980), range(0xA9E0, 0xAA60)]
    points = {p for block in blocks for p in block if category(chr(p)) in ("Mn", "Mc")}
    starts = sorted(p for p in points if p - 1 not in points)
    ends = sorted(p for p in points if p + 1 not in points)
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


# All repetitions are bounded, so that matching takes linear time.
_LETTER = f"[^\\W_{_HAN}{_KANA}{_HANGUL}{_UNSPACED}]"
_SHAPE = r"{word}(?:(?:_{{1,4}}|[{joints}]|(?<=\d),(?=\d{{3}})){word}){{0,8}}(?:\+\+|\#(?!\w))?"
_LONGEST_WORD = 64
_ASCII_WORDS = re.compile(_SHAPE.format(word="[A-Za-z0-9]{1,64}", joints=".'@-"), re.ASCII)
# Without such a joint, the chunks of an ASCII text are its sequences of letters and digits.
_JOINT = re.compile(r"[_.'@,+#-](?:(?=[\w+])|(?<=#))", re.ASCII).search
_GAPS = str.maketrans({chr(c): " " for c in range(128) if not chr(c).isalnum()})
# Separators inside a normalised chunk are ASCII.
_PIECES = re.compile(r"[^\x00-/:-@\[-`{-\x7f\s⁄]+").findall
_FIRST_UNSPACED = "\u0e00"
# Korean particles that may follow a one-syllable noun.
_PARTICLES = frozenset((*"은는이가을를에", "에서", "에게", "으로", "까지", "부터"))


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern for words of any text; see `_ASCII_WORDS`.

    It is compiled on first use, because that takes 12 ms.
    """
    mark = f"[{_combining_marks()}\u00ad\u200c\u200d]"
    word = f"{_LETTER}{{1,64}}(?:{mark}{{1,8}}{_LETTER}{{0,64}}){{0,24}}"
    return re.compile(
        _SHAPE.format(word=word, joints=".'’ʼ＇@-")
        + f"|[{_HAN}{_KANA}]+|[{_HANGUL}]+|[{_UNSPACED}]+|[{_FLAG}]{{2}}|[{_EMOJI}]"
    )


@cache
def _unspaced_pattern() -> re.Pattern[str]:
    """Return a pattern for a letter of a script that has no spaces between words."""
    return re.compile(f"[{_HAN}{_KANA}{_HANGUL}{_UNSPACED}]")


# --- one word ----------------------------------------------------------------------------------

_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+").findall
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+").fullmatch
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}s").fullmatch
_CLITIC = re.compile(r"'(?:s|m|re|ve|ll|d)$").sub
_ELISION = re.compile(
    r"^(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|un|gl|all|dall|dell|nell|sull|quell|quest)'(?=\w)"
).sub
_DOTTED_NUMBER = re.compile(r"v?([0-9]+(?:[.-][0-9]+)+)").fullmatch
_SIGNS = {"+": "plusplus", "#": "sharp"}
_UNSEEN = str.maketrans("’ʼ", "''", "\u00ad\u200c\u200d\u0640")
_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)
# й, ї and ў are separate letters and stay; ё is commonly written as е.
_CYRILLIC = str.maketrans({"ё": "е", "ѐ": "е", "ѝ": "и"})
_PREFIX_FROM = 7
_PREFIX = 5

_SCRIPT_STEMMERS = {
    "cyrillic": "russian",
    "greek": "greek",
    "arabic": "arabic",
    "devanagari": "hindi",
}
_stemmers = threading.local()


def _stemmer(language: str) -> Stemmer.Stemmer:
    """Return the stemmer of this thread; PyStemmer's objects are not thread-safe."""
    stemmer = getattr(_stemmers, language, None)
    if stemmer is None:
        stemmer = Stemmer.Stemmer(language, 0)
        setattr(_stemmers, language, stemmer)
    return stemmer


def _stem(language: str, word: str) -> str:
    stem: str = _stemmer(language).stemWord(word)
    return stem


def english_stems(words: list[str]) -> list[str]:
    """Return the English stems of folded Latin words without accents."""
    stems: list[str] = _stemmer("english").stemWords(words)
    return stems


def without_accents(word: str) -> str:
    """Return the folded word without accents and vowel marks, which people often omit."""
    if word.isascii():
        return word
    script = script_of(word[0])
    if script in ("latin", "greek"):
        letters = "".join(c for c in normalize("NFD", word) if not combining(c))
        return normalize("NFC", letters).translate(_UNDECOMPOSED)
    if script == "cyrillic":
        return "".join(c for c in word.translate(_CYRILLIC) if not combining(c))
    if script in ("arabic", "hebrew"):
        return "".join(c for c in word if not combining(c)) or word
    return word


def _tokens_of_word(language: str, word: str) -> tuple[str, ...]:
    """Return the tokens of one folded word.

    A Latin word always has its English stem. In a text of another language, it also has the stem of
    that language, so that a text whose language was detected differently still matches.
    """
    plain = without_accents(word)
    if plain.isdecimal():
        return (plain,)
    script = script_of(plain[0])
    if script == "latin":
        english = _stem("english", plain)
        if language == "english":
            return (english,)
        own = without_accents(_stem(language, word))
        return (english,) if own in ("", english) else (own, english)
    if script == "cyrillic":
        stem = _stem("russian", plain)
        return (stem, PREFIX_MARK + plain[:_PREFIX]) if len(plain) >= _PREFIX_FROM else (stem,)
    if script in _SCRIPT_STEMMERS:
        return (_stem(_SCRIPT_STEMMERS[script], plain) or plain,)
    return (plain,)


def _normalise_chunk(chunk: str) -> str:
    """Normalise a chunk: composed, ASCII apostrophes and digits, no invisible characters."""
    chunk = normalize("NFKC", chunk).translate(_UNSEEN)
    if any(c.isdecimal() and c > "9" for c in chunk):
        chunk = "".join(str(decimal(c)) if c.isdecimal() else c for c in chunk)
    return chunk


def _split_word(piece: str) -> list[str]:
    """Split a word at camelCase, and between letters and digits; usually into one part."""
    if not piece.isascii() or (piece.isalpha() and (piece[1:].islower() or piece.isupper())):
        return [piece]
    if piece.isdecimal() or _PLURAL_ACRONYM(piece):
        return [piece]
    humps: list[str] = _HUMPS(piece)
    torn = len(humps) > 2 and _HEXADECIMAL(piece)
    return [piece] if torn or len(humps) > _MOST_PARTS else humps


def _words_of_chunk(chunk: str) -> tuple[list[str], str]:
    """Return the folded words of a chunk, and the whole chunk as one word, or an empty string.

    The whole is `foobar` for `foo_bar`, and `cplusplus` for `C++`.
    """
    if not chunk.isascii():
        chunk = _normalise_chunk(chunk)
    sign = ""
    if chunk[-1:] in _SIGNS:
        letter = chunk.rstrip("+#")
        sign = letter.casefold() + _SIGNS[chunk[-1]] if len(letter) == 1 else ""
        chunk = letter
    if "'" in chunk:
        folded = chunk.casefold()
        start = len(folded) - len(_ELISION("", folded))
        stop = len(_CLITIC("", folded))
        if folded.endswith("n't"):
            chunk = folded.replace("'", "")
        elif len(folded) == len(chunk) and start < stop:
            chunk = chunk[start:stop]
    chunk = chunk.replace(",", "")
    parts = [part.casefold() for piece in _PIECES(chunk) for part in _split_word(piece)]
    if len(parts) < 2:
        return parts, sign
    if number := _DOTTED_NUMBER(chunk):
        return parts, re.sub("[.-]", PREFIX_MARK, number[1])
    whole = "".join(parts)
    if len(whole) > _LONGEST_WHOLE:
        return parts, ""
    return [part for part in parts if len(part) > 1 or part.isdecimal()], whole


def _tokens_of_chunk(language: str, dropped: frozenset[str], chunk: str) -> tuple[str, ...]:
    if chunk.isascii() and chunk.isalpha() and (chunk[1:].islower() or chunk.isupper()):
        word = chunk.lower()  # Most chunks are plain words.
        if word in dropped:
            return ()
        return (
            (_stem(language, word),) if language == "english" else _tokens_of_word(language, word)
        )
    words, whole = _words_of_chunk(chunk)
    tokens = [
        t
        for w in words
        if w and without_accents(w) not in dropped
        for t in _tokens_of_word(language, w)
    ]
    if whole:
        tokens += [whole] if PREFIX_MARK in whole else _tokens_of_word(language, whole)
    return tuple(tokens)


# --- a whole text ------------------------------------------------------------------------------

_ALWAYS_STEMMED = ("russian", "arabic", "greek", "hindi")
_SIGNATURES = {
    "german": "äöüß",
    "french": "âçèêëîôœùû",
    "spanish": "áíñóú¿¡",
    "italian": "àèìòù",
    "portuguese": "áâãçêíóõú",
    "dutch": "",
}
_SIGNED = re.compile(f"[{''.join(sorted(set(''.join(_SIGNATURES.values()))))}]")
# Endings of inflected words that are rare in English.
_ENDINGS = {
    **dict.fromkeys(("ungen", "heiten", "keiten", "schaften", "innen", "ischen"), "german"),
    **dict.fromkeys(("eaux", "aient"), "french"),
    **dict.fromkeys(("ciones", "siones"), "spanish"),
    **dict.fromkeys(("zione", "zioni"), "italian"),
    **dict.fromkeys(("ingen", "heden"), "dutch"),
}
_ANY_ENDING = tuple(_ENDINGS)
_GIVEAWAYS = {name: STOP_WORDS[name] - STOP_WORDS["english"] - ENGLISH_TOO for name in _SIGNATURES}
_ANY_GIVEAWAY = frozenset(chain.from_iterable(_GIVEAWAYS.values()))
_ENOUGH_VOTES = 2
_KOREAN_NOUN_AND_PARTICLE = 3
_JAPANESE = ("han", "kana")

ChunkReader = Callable[[str], tuple[str, ...]]
Value = TypeVar("Value")
# The words to leave out: stop words; stop words and question words; none.
_LeftOut = Literal["stop words", "question words", "nothing"]
_LEFT_OUT_BY_STEPS: tuple[_LeftOut, ...] = ("question words", "stop words", "nothing")


@cache
def _left_out_words(language: str, leaving: _LeftOut) -> frozenset[str]:
    if leaving == "nothing":
        return frozenset()
    languages = (language, *_ALWAYS_STEMMED)
    lists = [STOP_WORDS[name] for name in languages]
    if leaving == "question words":
        lists += [QUESTION_WORDS[name] for name in languages]
    return frozenset(without_accents(word) for words in lists for word in words)


class Memo(dict[str, Value]):
    """A cache of a function that never returns None. Threads may share it.

    A full cache becomes the second generation; entries that are used again move to the first.
    """

    def __init__(self, compute: Callable[[str], Value], size: int) -> None:
        self._compute, self._size = compute, size
        self._former: dict[str, Value] = {}

    def __missing__(self, key: str) -> Value:
        value = self._former.get(key)
        if value is None:
            value = self._compute(key)
        if len(self) >= self._size:
            self._former = dict(self)
            self.clear()
        self[key] = value
        return value


@cache
def _chunk_reader(language: str, stems: str, leaving: _LeftOut) -> ChunkReader:
    often = stems == "english" and leaving == "stop words"
    read = partial(_tokens_of_chunk, stems, _left_out_words(language, leaving))
    return Memo(read, _MEMO_SIZE if often else _MEMO_SIZE // 8).__getitem__


def _detect_languages(text: str, chunks: list[str]) -> tuple[str, str]:
    """Return the languages for the stop words and for the additional stems of the Latin words.

    The default is English, without clear evidence of another language. For stems, one sign is
    enough if there is no English stop word. For stop words it is not enough, because they may be
    content words.
    """
    chunks = chunks[:DETECTION_WORDS]
    small = list(map(str.lower, chunks))
    ascii_only = text.isascii()
    if ascii_only and _ANY_GIVEAWAY.isdisjoint(small):
        is_english = not STOP_WORDS["english"].isdisjoint(small)
        return "english", "english" if is_english else _language_by_ending(small)
    words = set(small)
    hints = words & _ANY_GIVEAWAY
    signs = set() if ascii_only else set(_SIGNED.findall(text[: 8 * DETECTION_WORDS].lower()))
    if not (hints or signs):
        is_english = not words.isdisjoint(STOP_WORDS["english"])
        return "english", "english" if is_english else _language_by_ending(small)
    best, votes, letters = "english", 0, 0
    for language, own in _GIVEAWAYS.items():
        known = len(signs.intersection(_SIGNATURES[language]))
        count = len(hints & own) + (known > 0)
        if (count, known) > (votes, letters):
            best, votes, letters = language, count, known
    against = len(words & (STOP_WORDS["english"] - STOP_WORDS[best]))
    if votes >= _ENOUGH_VOTES and votes > against:
        return best, best
    return "english", "english" if against else best


def seems_english(text: str) -> bool:
    """Return whether a text is ASCII and its language is detected as English, the default."""
    return text.isascii() and _detect_languages(text, ascii_chunks(text))[1] == "english"


def _language_by_ending(words: Iterable[str]) -> str:
    """Detect the language by word endings, for texts without a stop word."""
    for word in words:
        if word.endswith(_ANY_ENDING):
            return next(_ENDINGS[ending] for ending in _ANY_ENDING if word.endswith(ending))
    return "english"


def _character_pairs(run: str) -> list[str]:
    return [a + b for a, b in pairwise(run)] if len(run) > 1 else [run]


def _lone_ideographs(run: str) -> list[str]:
    """Return the ideographs without a neighbouring one: in 猫が好き, 猫 and 好."""
    han = [False, *(script_of(c) == "han" for c in run), False]
    return [c for at, c in enumerate(run, 1) if han[at] and not (han[at - 1] or han[at + 1])]


def _query_run_tokens(run: str) -> list[str]:
    """Return the tokens of unspaced text in a query: pairs without a question, and lone words."""
    tokens = [pair for pair in _character_pairs(run) if pair not in QUESTION_PAIRS]
    if len(run) > 1:
        if script_of(run[0]) in _JAPANESE:
            tokens += _lone_ideographs(run)
        elif run[1:] in _PARTICLES:
            tokens.append(run[0])
    return tokens


def _stored_run_tokens(run: str, seen: set[str]) -> list[str]:
    """Return the tokens of unspaced text: its pairs of characters, and some single ones.

    Each ideograph is a token too, once in a text, and so is the first syllable of a short Korean
    word. `seen` holds the ideographs of the text so far.
    """
    tokens = _character_pairs(run)
    if len(run) > 1:
        script = script_of(run[0])
        if script in _JAPANESE:
            new = [c for c in dict.fromkeys(run) if c not in seen and script_of(c) == "han"]
            seen.update(new)
            tokens += new
        elif script == "hangul" and len(run) <= _KOREAN_NOUN_AND_PARTICLE:
            tokens.append(run[0])
    return tokens


def _is_unspaced_run(chunk: str) -> bool:
    return chunk[0] >= _FIRST_UNSPACED and _unspaced_pattern().match(chunk) is not None


def _is_emoji(chunk: str) -> bool:
    return chunk[0] >= _FIRST_UNSPACED and not chunk[0].isalnum()


def ascii_chunks(text: str) -> list[str]:
    """Return the chunks of an ASCII text."""
    if _JOINT(text):
        return _ASCII_WORDS.findall(text)
    spaced = text.translate(_GAPS)
    if _has_long_run(spaced):
        return _ASCII_WORDS.findall(text)
    return spaced.split()  # This gives the same result in half the time.


def _has_long_run(spaced: str) -> bool:
    """Return whether a sequence without a space is longer than the longest word."""
    start = 0
    while len(spaced) - start > _LONGEST_WORD:
        gap = spaced.rfind(" ", start, start + _LONGEST_WORD + 1)
        if gap < 0:
            return True
        start = gap + 1
    return False


def chunk_reader(text: str, chunks: list[str]) -> ChunkReader:
    """Return the function that yields the tokens of each chunk of the text."""
    return _chunk_reader(*_detect_languages(text, chunks), "stop words")


def read_english_chunk(chunk: str) -> tuple[tuple[str, ...], bool]:
    """Return the tokens of a chunk of an English text, and whether it shows that it is English.

    An ASCII text of up to 200 chunks is English if one chunk shows it and no chunk is of another
    language. For such a chunk, a KeyError is raised, and the caller must use `chunk_reader`.
    """
    small = chunk.lower()
    if small in _ANY_GIVEAWAY:
        raise KeyError(chunk)
    dropped = _left_out_words("english", "stop words")
    # This is the same as in `_tokens_of_chunk`.
    if chunk.isalpha() and (chunk[1:].islower() or chunk.isupper()):
        tokens: tuple[str, ...] = () if small in dropped else (_stem("english", small),)
    else:
        tokens = _tokens_of_chunk("english", dropped, chunk)
    return tokens, small in STOP_WORDS["english"]


def _tokens(text: str, leaving: _LeftOut) -> list[str]:
    if text.isascii():
        chunks = ascii_chunks(text)
        read = _chunk_reader(*_detect_languages(text, chunks), leaving)
        return list(chain.from_iterable(map(read, chunks)))
    if not is_normalized("NFKC", text):
        text = normalize("NFKC", text)
    chunks = _word_pattern().findall(text)
    read = _chunk_reader(*_detect_languages(text, chunks), leaving)
    asked = leaving == "question words"
    tokens: list[str] = []
    seen: set[str] = set()
    for chunk in chunks:
        if chunk[0] < _FIRST_UNSPACED:
            tokens += read(chunk)
        elif _is_unspaced_run(chunk):
            tokens += _query_run_tokens(chunk) if asked else _stored_run_tokens(chunk, seen)
        elif _is_emoji(chunk):
            tokens.append(chunk)
        else:
            tokens += read(chunk)
    return tokens


def analyse(text: str) -> list[str]:
    """Return the tokens of a text for the index, in order, with repetitions."""
    return _tokens(text, "stop words") or _tokens(text, "nothing")


def analyse_query(text: str) -> list[str]:
    """Return the distinct tokens of a query, in order; a query of only stop words keeps them."""
    for leaving in _LEFT_OUT_BY_STEPS:
        if tokens := _tokens(text, leaving):
            return list(dict.fromkeys(tokens))
    return []


def token_spans(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (start, stop, tokens) of each chunk, or pair of unspaced characters, in a text.

    Stop words are included.
    """
    shape = _ASCII_WORDS if text.isascii() else _word_pattern()
    chunks = [match.span() for match in shape.finditer(text)]
    first = [text[start:stop] for start, stop in chunks[:DETECTION_WORDS]]
    read = _chunk_reader(*_detect_languages(text, first), "nothing")
    for start, stop in chunks:
        chunk = text[start:stop]
        if _is_unspaced_run(chunk):
            yield from _run_spans(start, chunk)
        elif _is_emoji(chunk):
            yield start, stop, (chunk,)
        else:
            yield start, stop, read(chunk)


def _run_spans(start: int, run: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    last = start + len(run)
    composed = normalize("NFKC", run)
    for at, pair in enumerate(_character_pairs(composed)):
        # Normalising may change the length of a run; positions are then approximate.
        begin = min(start + at, last - 1)
        yield begin, min(begin + len(pair), last), (pair, *pair)


def fold(text: str) -> str:
    """Return the text without differences of case, width or composition. The function is
    idempotent.
    """
    if text.isascii():
        return text.lower()
    # Case folding can undo normalisation and vice versa, so both are done twice.
    once = normalize("NFKC", normalize("NFD", text).casefold())
    return normalize("NFKC", once.casefold())


def trigrams(folded: str) -> list[str]:
    """Return all distinct sequences of three characters, in order of first appearance.

    A text that contains another text has all its trigrams. A text of one or two characters has
    none, and must be searched for without trigrams.
    """
    return list(dict.fromkeys(folded[at : at + 3] for at in range(len(folded) - 2)))
