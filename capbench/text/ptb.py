r"""PTB tokenisation of captions, as the field's reference scores were computed with.

The text goes through Stanford CoreNLP 3.4.1's ``PTBTokenizer`` (lower-cased), then eighteen punctuation
tokens are dropped and the rest is joined by single spaces. This is what pycocoevalcap's
``PTBTokenizer`` does, with two of its accidents fixed:

- It feeds all captions as lines of one text, so a character that ends a line for Java (``\r``, ``\x0b``,
  ``\x0c``, U+2028, U+2029) shifts every caption after it by one. Here such characters become spaces, as ``\n``
  does there.
- The tokeniser looks past the end of a caption: ``no.`` before a caption that begins with a digit is an
  abbreviation, elsewhere it is a word and a full stop. Here every caption is followed by the same neutral
  line, so its tokens are its own and do not change with the order of the captions.

By default no Java runs. The same automaton is followed in Python over the tables that :mod:`capbench.text.ptb_tables`
reads from the installed jar, so that every boundary falls where the reference puts it; the treatment of each token
(brackets to ``-lrb-``, dashes, quotes, ellipses, currency, entities, soft hyphens) is written out below, by rule
number.

Two things make it quick. A piece of text between two spaces is tokenised once: its tokens are remembered unless the
automaton looked beyond the space after it, which abbreviations, numbers with fractions and the like can do. And only a
caption that holds such a piece is read as a whole. Since remembered pieces can be numbers of words as well, a batch of
captions becomes one array of numbers in a few passes, without a string for any of its tokens.

A caption goes to the Java program only where it holds a capital sigma, whose lower case Java finds by other rules than
Python, and where it is not valid Unicode. None of the 452,090 distinct texts in the published data is such a caption.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import Cache
from capbench.core.errors import DataError, ToolError, UsageError
from capbench.core.records import IntArray
from capbench.text.java import run_batch, tokenizer_jar
from capbench.text.ptb_tables import Automaton, load_automaton

__all__ = [
    "LINE_ENDS",
    "PUNCTUATION",
    "UNSETTLED",
    "VERSION",
    "CaptionEncoder",
    "Encoded",
    "Engine",
    "NativeTokenizer",
    "WordNumbers",
    "caption_encoder",
    "native_tokenizer",
    "tokenize",
    "tokenize_jar",
    "tokenize_native_all",
]


PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
"""Tokens that pycocoevalcap drops. It compares after lower-casing, so that ``-lrb-`` and its kin stay."""

_START = 2  # the lexer's state for Treebank text with sentence-final full stops kept on abbreviations
_NEWLINE_RULE, _UNTOKENIZABLE_RULE = 5, 1
_SKIP = frozenset([_UNTOKENIZABLE_RULE, 7, 23])  # rules that consume text and give no token
_REMEMBERED = 400_000  # pieces; beyond that the memory is emptied, so that it stays under some 100 MB

_FIXED = {
    2: "<",
    10: ">",
    11: "--",
    13: "...",
    16: "-RCB-",
    17: "-LRB-",
    18: "-RRB-",
    20: "-LCB-",
    21: "-RSB-",
    22: "-LSB-",
}
# How much of the match is look-ahead and is read again: a number of characters, or the pair of automaton
# states (forwards, backwards) that find where a look-ahead of any length begins.
_GIVEN_BACK = {25: 1, 26: 1, 32: 1, 34: 1, 36: 1, 46: 1, 51: 1, 42: 2, 48: 2, 50: 3, 53: 4}
_LOOK_AHEAD = {24: (13, 14), 30: (3, 4), 40: (5, 6), 41: (16, 17), 43: (15, 14), 44: (9, 10), 47: (7, 8), 49: (11, 12)}
_SOFT_HYPHENS = frozenset([6, 12, 29, 30, 32, 40, 46])
_OPENING, _CLOSING = frozenset([26, 35]), frozenset([8, 36])
_AMPERSAND, _PARENTHESES, _HARD_SPACES = frozenset([37, 51]), frozenset([28, 34, 54]), frozenset([27, 38, 39, 54])
# These keep the abbreviation's full stop in the token and read it once more as a token of its own.
_STOP_TWICE = frozenset([33, 47, 49])
LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\u2028\u2029", " "))
_OTHER_LINE_ENDS = "\r\x0b\x0c\u2028\u2029"
UNSETTLED: Final = "\ud800"
"""Stands in the tokens of a piece that depend on its neighbours. No token holds it: it is half of a pair."""
_TRAILING_SPACE = frozenset(" \t\n\x0b\x0c\r\x85")

_FRACTIONS = str.maketrans({"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"})
_CURRENCY = str.maketrans({"¢": "cents", "£": "#", "\x80": "$", "¤": "$", "₠": "$", "€": "$"})
_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\x91‘‛‹", "`"),
        **dict.fromkeys("\x92’›", "'"),
        **dict.fromkeys("\x93“«", "``"),
        **dict.fromkeys("\x94”»", "''"),
    }
)
_AMP = re.compile("&amp;", re.IGNORECASE | re.ASCII)


def _quotes(text: str, mark: str) -> str:
    text = text.replace("&apos;", mark).replace("'", mark)
    return text.replace('"', 2 * mark).replace("&quot;", 2 * mark).translate(_TYPOGRAPHIC)


def _normalise(rule: int, text: str) -> str:
    """The token that the reference makes of a match."""
    if rule in _FIXED:
        return _FIXED[rule]
    if rule == 4:
        return "--" if 3 <= len(text) <= 4 else text
    if rule == 14:
        return text.translate(_FRACTIONS)
    if rule == 15:
        return text.translate(_CURRENCY)
    if rule in _SOFT_HYPHENS:
        return text.replace("\xad", "") or "-" if "\xad" in text else text
    if rule in _OPENING:
        return _quotes(text, "`")
    if rule in _CLOSING:
        return _quotes(text, "'")
    if rule in _AMPERSAND:
        return _AMP.sub("&", text)
    if rule in _HARD_SPACES:
        text = text.replace(" ", "\xa0")
    if rule in _PARENTHESES:
        text = text.replace("(", "-LRB-").replace(")", "-RRB-")
    return text


class _NoAnswerError(Exception):
    """The reference has no answer for this text alone."""


def _code_units(text: str) -> str:
    """The text as Java sees it: a character beyond the basic plane becomes a pair of surrogates."""
    if text.isascii():
        return text
    try:
        encoded = text.encode("utf-16-le")
    except UnicodeEncodeError as error:
        raise _NoAnswerError from error
    return text if len(encoded) == 2 * len(text) else "".join(map(chr, memoryview(encoded).cast("H")))


def _lower(units: str) -> str:
    """Lower case as Java has it."""
    if units.isascii():
        return units.lower()
    if "Σ" in units:  # whether a sigma is a word's last is decided otherwise in Java
        raise _NoAnswerError
    try:
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le").lower()
    except UnicodeDecodeError as error:  # half a pair of surrogates
        raise _NoAnswerError from error


def _in_place(pieces: Sequence[str], i: int) -> str:
    """A piece, the space behind it and the first character of the next; "" if that is another space.

    One more character settles most cases: "a " could begin "a. m.", "a d" could not.
    """
    if i + 1 == len(pieces):
        return ""
    following = pieces[i + 1][:1]
    if following:
        return f"{pieces[i]} {following}"
    return f"{pieces[i]} \n" if i + 2 == len(pieces) else ""


class _Memory(dict[str, str]):
    """Text → its tokens, each behind a space; with :data:`UNSETTLED` where they depend on more than this text."""

    def __init__(self, tokenize: Callable[[str], str]) -> None:
        super().__init__()
        self._tokenize = tokenize

    def __missing__(self, text: str) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        tokens = self[text] = self._tokenize(text)
        return tokens


class NativeTokenizer:
    """Follows the reference's automaton over one caption at a time.

    Args:
        automaton: its tables; by default those of the installed jar.

    Raises:
        ToolError: the jar is missing or of another version.
    """

    def __init__(self, automaton: Automaton | None = None) -> None:
        automaton = automaton or load_automaton()
        self._classes: list[int] = automaton.classes.tolist()
        self._table = automaton.next_state
        # Rows are turned into lists when first used: a list answers faster than an array, and few states occur.
        self._rows: list[list[int] | None] = [None] * len(automaton.rule)
        self._rule: list[int] = automaton.rule.tolist()
        self._accepts: list[bool] = automaton.accepts.tolist()
        self.pieces: Mapping[str, str] = _Memory(self._remember_piece)
        self._before = _Memory(self._remember_before)
        self._open_ends: set[str] = set()  # keys of both whose tokens the next line could change

    def tokenize(self, caption: str) -> str | None:
        """The reference's tokens of one caption, joined by spaces; None where it holds what is not matched."""
        return self._tokenize(caption)[0]

    def tokenize_all(self, captions: Sequence[str]) -> list[str | None]:
        """What :meth:`tokenize` gives for each caption, for many captions in a fraction of the time.

        They are cut into pieces and put together again all at once. Only captions with a piece that needs its
        neighbours are taken one by one.
        """
        if not captions:
            return []
        pieces = self.pieces_of(captions)
        tokens: list[str | None] = [line[1:] for line in "".join(map(self.pieces.__getitem__, pieces)).split("\n")]
        del tokens[-1]
        for i, of_caption in enumerate(tokens):
            if UNSETTLED in of_caption:  # type: ignore[operator]
                tokens[i] = self.tokenize(captions[i])
        return tokens

    def pieces_of(self, captions: Sequence[str]) -> list[str]:
        """The pieces of one or more captions, one caption after the other; a caption's last one ends in a line feed."""
        text = "\n".join(captions)
        if text.count("\n") >= len(captions) or any(end in text for end in _OTHER_LINE_ENDS):
            text = "\n".join([caption.translate(LINE_ENDS) for caption in captions])
        pieces = f"{text}\n".replace("\n", "\n ").split(" ")
        del pieces[-1]
        return pieces

    def tokenize_batch(self, captions: Sequence[str]) -> list[str | None]:
        """The reference's tokens of captions that it is given together, in this order.

        It reads them as one text, a line each, and some look-ahead crosses the end of a line: *"… the letter S."*
        ends in ``s`` if the next caption begins with *"A"*, and in ``s.`` if it is the only one. About 3 captions in
        1,000 look ahead that far; for all others this is :meth:`tokenize`.
        """
        tokens_of_captions: list[str | None] = []
        for i, caption in enumerate(captions):
            tokens, settled = self._tokenize(caption)
            if not settled and tokens is not None and i + 1 < len(captions):
                tokens = self._whole(caption, "\n".join([c.translate(LINE_ENDS) for c in captions[i + 1 : i + 4]]))
            tokens_of_captions.append(tokens)
        return tokens_of_captions

    def _tokenize(self, caption: str) -> tuple[str | None, bool]:
        """Tokens, and whether they are surely the same whatever caption comes next."""
        if not caption.isprintable():
            caption = caption.translate(LINE_ENDS)
        pieces = caption.split(" ")
        pieces[-1] += "\n"
        tokens = "".join(map(self.pieces.__getitem__, pieces))
        settled = pieces[-1] not in self._open_ends
        if UNSETTLED in tokens:
            tokens_of_pieces = [self.pieces[piece] for piece in pieces]
            pieces[-1] = pieces[-1][:-1]
            for i, tokens_of_piece in enumerate(tokens_of_pieces):
                if UNSETTLED in tokens_of_piece:
                    key = _in_place(pieces, i)
                    tokens_of_pieces[i] = self._before[key] if key else f" {UNSETTLED}"
                    if UNSETTLED in tokens_of_pieces[i]:
                        return self._whole(caption), False
                    settled = settled and key not in self._open_ends
            tokens = "".join(tokens_of_pieces)
        return tokens[1:-1], settled

    def _remember_piece(self, piece: str) -> str:
        """Tokens of a piece; if it ends in a line feed, it is a caption's last, and so do they."""
        if piece.endswith("\n"):
            return self._remember(piece[:-1], "\n", piece) + "\n"
        return self._remember(piece, " ", " ")

    def _remember_before(self, key: str) -> str:
        piece, _, following = key.rpartition(" ")
        return self._remember(piece, f" {following}", key)

    def _remember(self, piece: str, after: str, key: str) -> str:
        """Tokens of a piece with ``after`` behind it, or :data:`UNSETTLED` if that is too little to tell."""
        try:
            units = _code_units(piece)
            tokens, looked_beyond = self._scan(units + _code_units(after), len(units))
        except _NoAnswerError:
            return f" {UNSETTLED}"
        if looked_beyond:
            if not after.endswith("\n"):
                return f" {UNSETTLED}"
            self._open_ends.add(key)
        # The reference strips white space from a caption's end, and hard spaces can be part of a token.
        if any(token.split() != [token] for token in tokens):
            return f" {UNSETTLED}"
        return "".join([f" {token}" for token in tokens if token not in PUNCTUATION])

    def _whole(self, caption: str, following: str = "") -> str | None:
        """Tokens of a caption read from end to end, with the lines that follow it."""
        try:
            units = _code_units(caption.translate(LINE_ENDS))
            tokens, _ = self._scan(f"{units}\n{_code_units(following)}", len(units))
        except _NoAnswerError:
            return None
        words = " ".join(tokens).rstrip().split(" ")
        return " ".join([word for word in words if word not in PUNCTUATION])

    def _scan(self, text: str, end: int) -> tuple[list[str], bool]:
        """Tokens in lower case, up to ``end``, and whether any match wanted to read on behind the text.

        Raises _NoAnswerError where a match crosses ``end``.
        """
        classes = self._classes
        symbols = [classes[ord(c)] for c in text]
        position = 0
        tokens: list[str] = []
        looked_beyond = False
        while position < end:
            rule, stop, beyond = self._match(symbols, position)
            if rule == _NEWLINE_RULE or rule == 0:
                raise _NoAnswerError
            if rule in _SKIP:
                position = stop
                continue
            looked_beyond |= beyond
            token, position = self._token(rule, text, symbols, position, stop)
            if position > end:
                raise _NoAnswerError
            tokens.append(_lower(token))
        return tokens, looked_beyond

    def _match(self, symbols: Sequence[int], start: int) -> tuple[int, int, bool]:
        """The longest match from ``start``: its rule, its end, and whether the automaton wanted to read on."""
        rows, rules, state = self._rows, self._rule, _START
        rule, stop = 0, start
        for position in range(start, len(symbols)):
            row = rows[state]
            if row is None:
                row = rows[state] = self._table[state].tolist()
            state = row[symbols[position]]
            if state < 0:
                return rule, stop, False
            if self._accepts[state]:
                rule, stop = rules[state], position + 1
        return rule, stop, True

    def _token(self, rule: int, text: str, symbols: Sequence[int], start: int, stop: int) -> tuple[str, int]:
        """The token of a match and where the next one begins."""
        if rule in _LOOK_AHEAD:
            stop = self._before_look_ahead(symbols, start, stop, *_LOOK_AHEAD[rule])
            if rule in (44, 47):
                while stop > start and text[stop - 1] in _TRAILING_SPACE:
                    stop -= 1
        stop -= _GIVEN_BACK.get(rule, 0)
        if rule == 35:
            stop = start + 1
        if rule in _STOP_TWICE:
            stop -= 1
            alone = rule == 47 and stop - start == 1  # a single letter before a full stop is no abbreviation
            return text[start : stop if alone else stop + 1], stop
        return _normalise(rule, text[start:stop]), stop

    def _before_look_ahead(self, symbols: Sequence[int], start: int, stop: int, forwards: int, backwards: int) -> int:
        """Where a match of the form *token / look-ahead* is cut: the last place where both parts fit."""
        fits = [False] * (stop - start + 1)
        state = forwards
        for position in range(start, stop + 1):
            fits[position - start] = self._accepts[state]
            if position == stop:
                break
            state = int(self._table[state, symbols[position]])
            if state < 0:
                break
        state, position = backwards, stop
        while not (fits[position - start] and self._accepts[state]):
            position -= 1
            state = int(self._table[state, symbols[position]])
        return position


def tokenize_native_all(captions: Sequence[str]) -> list[str | None]:
    """Tokens of captions as pycocoevalcap gives them, joined by spaces, without Java.

    ``None`` means that a caption holds something that is not matched (a capital sigma, half a pair of surrogates):
    give it to the reference.

    >>> tokenize_native_all(["A man's dog can't jump, it's (too) small."])
    ["a man 's dog ca n't jump it 's -lrb- too -rrb- small"]

    Raises:
        ToolError: the jar that holds the tables is missing or of another version.
    """
    return native_tokenizer().tokenize_all(captions)


@cache
def native_tokenizer() -> NativeTokenizer:
    """The one tokeniser of this process, which remembers pieces."""
    return NativeTokenizer()


_REMEMBERED_WORDS: Final = 400_000  # pieces; beyond that the memory is emptied
_AT_ONCE: Final = 8_192  # captions whose pieces exist as strings at the same time
_END, _UNSETTLED = -1, -2  # in place of a word's number


class WordNumbers(dict[str, int]):
    """Word → number, in order of first occurrence; an unknown word gets the next one."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Encoded(NamedTuple):
    """Captions as numbers.

    Attributes:
        words: (tokens,) numbers of all captions' words, one caption after the other.
        lengths: (captions,) words of each.
        spaced: place of a caption → its words cut at single spaces only, where that differs from cutting at white space
            (no tokens at all, hard spaces).
    """

    words: NDArray[np.int32]
    lengths: IntArray
    spaced: dict[int, list[int]]


class _PieceNumbers(dict[str, bytes]):
    """Piece → numbers of its words as int32; with :data:`_END` behind those of a caption's last piece."""

    def __init__(self, pieces: Mapping[str, str], vocabulary: WordNumbers) -> None:
        super().__init__()
        self._pieces, self._vocabulary = pieces, vocabulary

    def __missing__(self, piece: str) -> bytes:
        if len(self) >= _REMEMBERED_WORDS:
            self.clear()
        tokens = self._pieces[piece]
        numbers = [_UNSETTLED] if UNSETTLED in tokens else list(map(self._vocabulary.__getitem__, tokens.split()))
        if piece.endswith("\n"):
            numbers.append(_END)
        self[piece] = encoded = array("i", numbers).tobytes()
        return encoded


class CaptionEncoder:
    """Gives captions as numbers over one vocabulary, which grows.

    Args:
        tokenizer: cuts captions into tokens.
        tokenize: tokens, joined by spaces, of captions that the tokeniser hands back.
    """

    def __init__(self, tokenizer: NativeTokenizer, tokenize: Callable[[Sequence[str]], list[str]]) -> None:
        self.vocabulary = WordNumbers()
        self._tokenizer, self._tokenize = tokenizer, tokenize
        self._numbers = _PieceNumbers(tokenizer.pieces, self.vocabulary)

    def encode(self, captions: Sequence[str]) -> Encoded:
        """Word numbers of captions. Raises as the ``tokenize`` that was given does."""
        if len(captions) <= _AT_ONCE:
            return self._encode(captions)
        parts = [self._encode(captions[begin : begin + _AT_ONCE]) for begin in range(0, len(captions), _AT_ONCE)]
        spaced = {n * _AT_ONCE + i: row for n, part in enumerate(parts) for i, row in part.spaced.items()}
        lengths = np.concatenate([part.lengths for part in parts])
        return Encoded(np.concatenate([part.words for part in parts]), lengths, spaced)

    def _encode(self, captions: Sequence[str]) -> Encoded:
        if not captions:
            return Encoded(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), {})
        pieces = self._tokenizer.pieces_of(captions)
        numbers = np.frombuffer(b"".join(map(self._numbers.__getitem__, pieces)), np.int32)
        del pieces
        ends = np.flatnonzero(numbers == _END)
        begins = np.concatenate([[0], ends[:-1] + 1])
        unsettled = np.unique(np.searchsorted(ends, np.flatnonzero(numbers == _UNSETTLED))).tolist()
        lengths = ends - begins
        spaced: dict[int, list[int]] = {}
        if unsettled:
            parts = []
            done = 0
            for place, words in zip(unsettled, self._one_by_one(captions, unsettled, spaced), strict=True):
                parts += [numbers[done : begins[place]], words]
                done = ends[place]
                lengths[place] = len(words)
            numbers = np.concatenate([*parts, numbers[done:]])
        for place in np.flatnonzero(lengths == 0).tolist():
            spaced.setdefault(place, [self.vocabulary[""]])
        return Encoded(numbers[numbers >= 0], lengths, spaced)

    def _one_by_one(
        self, captions: Sequence[str], places: Sequence[int], spaced: dict[int, list[int]]
    ) -> list[NDArray[np.int32]]:
        """Words of the captions at some places; ``spaced`` gets those that are cut in two ways."""
        known = [self._tokenizer.tokenize(captions[place]) for place in places]
        missing = iter(
            self._tokenize([captions[place] for place, text in zip(places, known, strict=True) if text is None])
        )
        number = self.vocabulary.__getitem__
        rows = []
        for place, known_text in zip(places, known, strict=True):
            text = next(missing) if known_text is None else known_text
            words = text.split()
            if text and words != text.split(" "):
                spaced[place] = list(map(number, text.split(" ")))
            rows.append(np.fromiter(map(number, words), np.int32, len(words)))
        return rows


VERSION = "ptb-3.4.1"
"""Goes into metrics' signatures and names the space of cached tokens."""

Engine = Literal["native", "jar"]

_ENGINES: tuple[str, ...] = get_args(Engine)
_FOLLOWER = "x"  # begins with neither a capital nor a digit: no rule of the tokeniser looks at it
_BATCH = 20_000
_known: dict[str, str] = {}
_MOST_WORDS = 2_000_000  # in one vocabulary
_encoders: dict[bool, CaptionEncoder] = {}


def tokenize(captions: Sequence[str], *, engine: Engine = "native", cache: bool = True) -> list[str]:
    """Tokenise captions: for each its lower-case tokens, joined by single spaces, without punctuation.

    A caption of nothing but punctuation, or an empty one, gives ``""``. What the jar tokenises it does once in a
    process and, with ``cache``, once in the life of the cache folder.

    Args:
        captions: texts as published.
        engine: ``native`` gives the jar's tokens without Java, and hands the jar what it does not match (a capital
            sigma); ``jar`` is the reference.
        cache: whether to use the cache on disk.

    Raises:
        UsageError: no such engine.
        DataError: a caption is not valid Unicode (a lone surrogate, which JSON can smuggle in).
        ToolError: Java could not be started or failed.
    """
    if engine not in _ENGINES:
        raise UsageError(f"unknown tokeniser engine '{engine}'", hint=f"Choices: {', '.join(_ENGINES)}")
    if engine == "native":
        tokens = _native(captions)
        if None not in tokens:
            return tokens  # type: ignore[return-value]
    else:
        tokens = [None] * len(captions)
    unmatched = dict.fromkeys(caption for caption, text in zip(captions, tokens, strict=True) if text is None)
    unknown = [caption for caption in unmatched if caption not in _known]
    if unknown:
        _learn(unknown, cache)
    return [_known[caption] if text is None else text for caption, text in zip(captions, tokens, strict=True)]


def caption_encoder(*, cache: bool = True) -> CaptionEncoder:
    """What gives captions as numbers of the words that :func:`tokenize` finds; mostly the same one in a process.

    Args:
        cache: whether to use the cache on disk, for captions that the jar tokenises.
    """
    encoder = _encoders.get(cache)
    if encoder is None or len(encoder.vocabulary) > _MOST_WORDS:
        encoder = CaptionEncoder(native_tokenizer(), lambda captions: tokenize(captions, cache=cache))
        _encoders[cache] = encoder
    return encoder


def _native(captions: Sequence[str]) -> list[str | None]:
    """Native tokens of captions, of which many may be the same."""
    distinct = list(dict.fromkeys(captions))
    tokens = tokenize_native_all(distinct)
    if len(distinct) == len(captions):
        return tokens
    return list(map(dict(zip(distinct, tokens, strict=True)).__getitem__, captions))


def _learn(captions: list[str], cache: bool) -> None:
    keys = {_key(caption): caption for caption in captions}
    with Cache("tokens", enabled=cache) as store:
        for key, value in store.get(VERSION, list(keys)).items():
            _known[keys[key]] = value.decode()
        missing = [caption for caption in captions if caption not in _known]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            tokens = tokenize_jar(batch)
            _known.update(zip(batch, tokens, strict=True))
            store.put(VERSION, ((_key(caption), t.encode()) for caption, t in zip(batch, tokens, strict=True)))


def _key(caption: str) -> bytes:
    try:
        return hashlib.blake2b(caption.encode(), digest_size=16).digest()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the caption {caption!r} holds half of a surrogate pair, which is no character",
            hint="Mend the file that it comes from",
        ) from error


def tokenize_jar(captions: Sequence[str]) -> list[str]:
    """Tokenise captions with the jar in one run, without any memory (the reference engine itself).

    Raises:
        ToolError: Java could not be started or failed, or its answer does not fit the captions.
    """
    if not captions:
        return []
    jar = tokenizer_jar()
    main = "edu.stanford.nlp.process.PTBTokenizer"
    output = run_batch(
        ["-cp", jar.path.name, main, "-preserveLines", "-lowerCase", "-encoding", "UTF-8"],
        "".join(f"{caption.translate(LINE_ENDS)}\n{_FOLLOWER}\n" for caption in captions),
        name="the PTB tokeniser",
        folder=jar.path.parent,
        timeout_s=120.0 + 0.01 * len(captions),
    )
    lines = output.replace("\r\n", "\n").split("\n")
    if len(lines) != 2 * len(captions) + 1 or any(line != _FOLLOWER for line in lines[1::2]):
        raise ToolError(
            f"the PTB tokeniser answered {len(captions)} captions with {len(lines) // 2} lines, or out of step",
            hint="'capbench doctor' checks Java; if it is well, please report the captions",
        )
    return [_without_punctuation(line) for line in lines[:-1:2]]


def _without_punctuation(line: str) -> str:
    return " ".join(_kept(line.rstrip().split(" ")))


def _kept(tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if token not in PUNCTUATION]
