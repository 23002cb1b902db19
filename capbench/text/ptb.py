r"""PTB tokenisation of captions, as used for the field's reference scores.

The text is tokenised with Stanford CoreNLP 3.4.1's ``PTBTokenizer`` (lower-cased), eighteen punctuation tokens are
removed and the rest is joined by single spaces. pycocoevalcap's ``PTBTokenizer`` does the same, but with two defects
that are fixed here:

- It passes all captions as lines of one text, so a character that ends a line in Java (``\r``, ``\x0b``, ``\x0c``,
  U+2028, U+2029) shifts all following captions by one. Here such characters become spaces, as ``\n`` does there.
- The tokeniser reads beyond the end of a caption: ``no.`` before a caption that begins with a digit is an abbreviation,
  elsewhere it is a word and a full stop. Here the same neutral line follows every caption, so its tokens do not depend
  on the order of the captions.

By default no Java runs. The same automaton is followed in Python with the tables that :mod:`capbench.text.ptb_tables`
reads from the installed jar, so that all token boundaries equal the reference's; the normalisation of each token
(brackets to ``-lrb-``, dashes, quotes, ellipses, currency, entities, soft hyphens) is implemented below, by rule
number.

Two caches make it fast. A piece of text between two spaces is tokenised once: its tokens are cached unless the
automaton looked beyond the following space, as it does for abbreviations, numbers with fractions and the like. Only a
caption with such a piece is read as a whole. The cached pieces can also be word numbers, so that a batch of captions
becomes one array of numbers in a few passes, without a string for any token.

The Java program is required only for captions that contain a capital sigma, which Java converts to lower case by other
rules than Python, or that are not valid Unicode. None of the 452,090 distinct texts in the published data is such a
caption.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import Cache
from capbench.core.errors import DataError, ToolError, check_choice
from capbench.core.records import IntArray
from capbench.text.java import run_batch, tokenizer_jar
from capbench.text.ptb_tables import Automaton, load_automaton

PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
"""Tokens that pycocoevalcap removes. It compares after lower-casing, so that ``-lrb-`` and other brackets remain."""

_START = 2  # the lexer's state for Treebank text with sentence-final full stops kept on abbreviations
_NEWLINE_RULE, _UNTOKENIZABLE_RULE = 5, 1
_SKIP = frozenset([_UNTOKENIZABLE_RULE, 7, 23])  # rules that consume text without a token
_REMEMBERED = 400_000  # pieces; a full cache is cleared, so that it stays below some 100 MB

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
# Look-ahead of a match, which is read again: a number of characters, or the pair of automaton states (forwards,
# backwards) that determine the beginning of a look-ahead of any length.
_PUSHED_BACK = {25: 1, 26: 1, 32: 1, 34: 1, 36: 1, 46: 1, 51: 1, 42: 2, 48: 2, 50: 3, 53: 4}
_LOOK_AHEAD = {24: (13, 14), 30: (3, 4), 40: (5, 6), 41: (16, 17), 43: (15, 14), 44: (9, 10), 47: (7, 8), 49: (11, 12)}
_SOFT_HYPHENS = frozenset([6, 12, 29, 30, 32, 40, 46])
_OPENING, _CLOSING = frozenset([26, 35]), frozenset([8, 36])
_AMPERSAND, _PARENTHESES, _HARD_SPACES = frozenset([37, 51]), frozenset([28, 34, 54]), frozenset([27, 38, 39, 54])
# These rules keep the abbreviation's full stop in the token and read it again as a separate token.
_STOP_TWICE = frozenset([33, 47, 49])
LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\u2028\u2029", " "))
_OTHER_LINE_ENDS = "\r\x0b\x0c\u2028\u2029"
UNSETTLED: Final = "\ud800"
"""Marks a piece whose tokens depend on its neighbours. No token contains it: it is half of a surrogate pair."""
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
    """The token that the reference produces from a match."""
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
    """The reference has no result for this text alone."""


def _code_units(text: str) -> str:
    """UTF-16 code units as in Java: a character beyond the basic plane becomes a surrogate pair."""
    if text.isascii():
        return text
    try:
        encoded = text.encode("utf-16-le")
    except UnicodeEncodeError as error:
        raise _NoAnswerError from error
    return text if len(encoded) == 2 * len(text) else "".join(map(chr, memoryview(encoded).cast("H")))


def _lower(units: str) -> str:
    """Lower case by Java's rules."""
    if units.isascii():
        return units.lower()
    if "Σ" in units:  # Java has another rule for a sigma at the end of a word
        raise _NoAnswerError
    try:
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le").lower()
    except UnicodeDecodeError as error:  # half a pair of surrogates
        raise _NoAnswerError from error


def _in_place(pieces: Sequence[str], i: int) -> str:
    """A piece, the following space and the first character of the next piece; "" if that is another space.

    One more character settles most cases: "a " could begin "a. m.", "a d" could not.
    """
    if i + 1 == len(pieces):
        return ""
    following = pieces[i + 1][:1]
    if following:
        return f"{pieces[i]} {following}"
    return f"{pieces[i]} \n" if i + 2 == len(pieces) else ""


class _Memory(dict[str, str]):
    """Text → its tokens, each preceded by a space; :data:`UNSETTLED` if they depend on more than this text."""

    def __init__(self, tokenize: Callable[[str], str]) -> None:
        super().__init__()
        self._tokenize = tokenize

    def __missing__(self, text: str) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        tokens = self[text] = self._tokenize(text)
        return tokens


class NativeTokenizer:
    """Follows the reference's automaton, one caption at a time.

    Args:
        automaton: its tables; by default those of the installed jar.

    Raises:
        ToolError: the jar is missing or has another version.
    """

    def __init__(self, automaton: Automaton | None = None) -> None:
        automaton = automaton or load_automaton()
        self._classes: list[int] = automaton.classes.tolist()
        self._table = automaton.next_state
        # Rows become lists on first use: lists are faster to index than arrays, and few states occur.
        self._rows: list[list[int] | None] = [None] * len(automaton.rule)
        self._rule: list[int] = automaton.rule.tolist()
        self._accepts: list[bool] = automaton.accepts.tolist()
        self.pieces: Mapping[str, str] = _Memory(self._remember_piece)
        self._before = _Memory(self._remember_before)
        self._open_ends: set[str] = set()  # keys of both caches whose tokens depend on the next line

    def tokenize(self, caption: str) -> str | None:
        """The reference's tokens of one caption, joined by spaces; None if the caption requires the jar."""
        return self._tokenize(caption)[0]

    def tokenize_all(self, captions: Sequence[str]) -> list[str | None]:
        """Vectorised :meth:`tokenize`: the tokens of many captions in a fraction of the time.

        The captions are split into pieces and joined together. Only captions with a piece that depends on its
        neighbours are tokenised individually.
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
        """Pieces of one or more captions in sequence; a caption's last piece ends in a line feed."""
        text = "\n".join(captions)
        if text.count("\n") >= len(captions) or any(end in text for end in _OTHER_LINE_ENDS):
            text = "\n".join([caption.translate(LINE_ENDS) for caption in captions])
        pieces = f"{text}\n".replace("\n", "\n ").split(" ")
        del pieces[-1]
        return pieces

    def tokenize_batch(self, captions: Sequence[str]) -> list[str | None]:
        """The reference's tokens of captions that it processes together, in this order.

        It reads them as one text with one line each, and some look-ahead crosses the end of a line: *"… the letter S."*
        ends in ``s`` if the next caption begins with *"A"*, and in ``s.`` if there is no other. About 3 captions in
        1,000 look ahead that far; for all others the result equals :meth:`tokenize`.
        """
        tokens_of_captions: list[str | None] = []
        for i, caption in enumerate(captions):
            tokens, settled = self._tokenize(caption)
            if not settled and tokens is not None and i + 1 < len(captions):
                tokens = self._whole(caption, "\n".join([c.translate(LINE_ENDS) for c in captions[i + 1 : i + 4]]))
            tokens_of_captions.append(tokens)
        return tokens_of_captions

    def _tokenize(self, caption: str) -> tuple[str | None, bool]:
        """Tokens, and True if they do not depend on the next caption."""
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
        """Tokens of a piece; a line feed ends a caption's last piece and its tokens."""
        if piece.endswith("\n"):
            return self._remember(piece[:-1], "\n", piece) + "\n"
        return self._remember(piece, " ", " ")

    def _remember_before(self, key: str) -> str:
        piece, _, following = key.rpartition(" ")
        return self._remember(piece, f" {following}", key)

    def _remember(self, piece: str, after: str, key: str) -> str:
        """Tokens of a piece followed by ``after``; :data:`UNSETTLED` if they depend on more text."""
        try:
            units = _code_units(piece)
            tokens, looked_beyond = self._scan(units + _code_units(after), len(units))
        except _NoAnswerError:
            return f" {UNSETTLED}"
        if looked_beyond:
            if not after.endswith("\n"):
                return f" {UNSETTLED}"
            self._open_ends.add(key)
        # The reference strips white space at the end of a caption, and hard spaces can be part of a token.
        if any(token.split() != [token] for token in tokens):
            return f" {UNSETTLED}"
        return "".join([f" {token}" for token in tokens if token not in PUNCTUATION])

    def _whole(self, caption: str, following: str = "") -> str | None:
        """Tokens of a complete caption, with the lines that follow it."""
        try:
            units = _code_units(caption.translate(LINE_ENDS))
            tokens, _ = self._scan(f"{units}\n{_code_units(following)}", len(units))
        except _NoAnswerError:
            return None
        words = " ".join(tokens).rstrip().split(" ")
        return " ".join([word for word in words if word not in PUNCTUATION])

    def _scan(self, text: str, end: int) -> tuple[list[str], bool]:
        """Tokens in lower case, up to ``end``, and True if a match could continue beyond the text.

        Raises _NoAnswerError if a match crosses ``end``.
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
        """The longest match from ``start``: its rule, its end, and True if the automaton could read on."""
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
        """The token of a match and the beginning of the next one."""
        if rule in _LOOK_AHEAD:
            stop = self._before_look_ahead(symbols, start, stop, *_LOOK_AHEAD[rule])
            if rule in (44, 47):
                while stop > start and text[stop - 1] in _TRAILING_SPACE:
                    stop -= 1
        stop -= _PUSHED_BACK.get(rule, 0)
        if rule == 35:
            stop = start + 1
        if rule in _STOP_TWICE:
            stop -= 1
            alone = rule == 47 and stop - start == 1  # a single letter before a full stop is not an abbreviation
            return text[start : stop if alone else stop + 1], stop
        return _normalise(rule, text[start:stop]), stop

    def _before_look_ahead(self, symbols: Sequence[int], start: int, stop: int, forwards: int, backwards: int) -> int:
        """End of the token in a match of *token / look-ahead*: the last place where both parts match."""
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
    """Tokens of captions as in pycocoevalcap, joined by spaces, without Java.

    ``None`` marks a caption that requires the reference (a capital sigma, half a surrogate pair).

    >>> tokenize_native_all(["A man's dog can't jump, it's (too) small."])
    ["a man 's dog ca n't jump it 's -lrb- too -rrb- small"]

    Raises:
        ToolError: the jar with the tables is missing or has another version.
    """
    return native_tokenizer().tokenize_all(captions)


@cache
def native_tokenizer() -> NativeTokenizer:
    """The shared tokeniser of this process, which caches pieces."""
    return NativeTokenizer()


_REMEMBERED_WORDS: Final = 400_000  # pieces; a full cache is cleared
_AT_ONCE: Final = 8_192  # captions whose pieces exist as strings at the same time
_END, _UNSETTLED = -1, -2  # in place of a word's number


class WordNumbers(dict[str, int]):
    """Word → number, in order of first occurrence; unknown words are added."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Encoded(NamedTuple):
    """Captions as numbers.

    Attributes:
        words: (tokens,) word numbers of all captions in sequence.
        lengths: (captions,) number of words of each caption.
        spaced: index of a caption → its words split at single spaces only, if that differs from splitting at white
            space (no tokens at all, hard spaces).
    """

    words: NDArray[np.int32]
    lengths: IntArray
    spaced: dict[int, list[int]]


class _PieceNumbers(dict[str, bytes]):
    """Piece → its word numbers as int32; :data:`_END` follows those of a caption's last piece."""

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
    """Encodes captions as numbers over one growing vocabulary.

    Args:
        tokenizer: splits captions into tokens.
        tokenize: returns the tokens, joined by spaces, of captions for which ``tokenizer`` returns None.
    """

    def __init__(self, tokenizer: NativeTokenizer, tokenize: Callable[[Sequence[str]], list[str]]) -> None:
        self.vocabulary = WordNumbers()
        self._tokenizer, self._tokenize = tokenizer, tokenize
        self._numbers = _PieceNumbers(tokenizer.pieces, self.vocabulary)

    def encode(self, captions: Sequence[str]) -> Encoded:
        """Word numbers of captions. Raises the errors of ``tokenize``."""
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
        """Words of the captions at some places; adds captions with two splittings to ``spaced``."""
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
"""Part of metrics' signatures; name of the space of cached tokens."""

Engine = Literal["native", "jar"]

_ENGINES: tuple[str, ...] = get_args(Engine)
_FOLLOWER = "x"  # neither a capital nor a digit, so no look-ahead rule applies
_BATCH = 20_000
_known: dict[str, str] = {}
_MAX_WORDS = 2_000_000  # in one vocabulary
_encoders: dict[bool, CaptionEncoder] = {}


def tokenize(captions: Sequence[str], *, engine: Engine = "native", cache: bool = True) -> list[str]:
    """Tokenise captions: lower-case tokens of each, joined by single spaces, without punctuation.

    An empty caption, or one with punctuation only, yields ``""``. The jar tokenises each caption once per process and,
    with ``cache``, once per cache folder.

    Args:
        captions: texts as published.
        engine: ``native`` yields the jar's tokens without Java and passes only captions with a capital sigma to the
            jar; ``jar`` is the reference.
        cache: True to use the cache on disk.

    Raises:
        UsageError: the engine is unknown.
        DataError: a caption is not valid Unicode (a lone surrogate, which JSON can contain).
        ToolError: Java could not be started or failed.
    """
    check_choice("tokeniser engine", engine, _ENGINES)
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
    """The encoder of captions as numbers of the words that :func:`tokenize` finds; usually shared within a process.

    Args:
        cache: True to use the cache on disk, for captions that the jar tokenises.
    """
    encoder = _encoders.get(cache)
    if encoder is None or len(encoder.vocabulary) > _MAX_WORDS:
        encoder = CaptionEncoder(native_tokenizer(), lambda captions: tokenize(captions, cache=cache))
        _encoders[cache] = encoder
    return encoder


def _native(captions: Sequence[str]) -> list[str | None]:
    """Native tokens of captions, many of which may be equal."""
    distinct = list(dict.fromkeys(captions))
    tokens: list[str | None] = []
    for begin in range(0, len(distinct), _AT_ONCE):
        tokens += tokenize_native_all(distinct[begin : begin + _AT_ONCE])
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
            f"the caption {caption!r} contains half of a surrogate pair, which is not a character",
            code="unreadable",
            value=caption,
            hint="Correct the file that contains it",
        ) from error


def tokenize_jar(captions: Sequence[str]) -> list[str]:
    """Tokenise captions with the jar in one run, without a cache (the reference engine).

    Raises:
        ToolError: Java could not be started or failed, or its output does not match the captions.
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
            f"the PTB tokeniser returned {len(lines) // 2} lines for {len(captions)} captions, or in another order",
            code="mismatch",
            hint="Check Java with 'capbench doctor'; if it works, please report the captions",
        )
    return [_without_punctuation(line) for line in lines[:-1:2]]


def _without_punctuation(line: str) -> str:
    return " ".join([token for token in line.rstrip().split(" ") if token not in PUNCTUATION])
