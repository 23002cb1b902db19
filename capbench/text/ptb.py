r"""PTB tokenisation of captions, as used for the field's reference scores.

The text is tokenised with Stanford CoreNLP 3.4.1's ``PTBTokenizer`` (lower-cased), eighteen punctuation tokens are
removed and the rest is joined by single spaces. pycocoevalcap's ``PTBTokenizer`` does the same, but with two defects
that are fixed here:

- It passes all captions as lines of one text, so a character that ends a line in Java (``\r``, ``\x0b``, ``\x0c``,
  U+2028, U+2029) shifts all following captions by one. Here such characters become spaces, as ``\n`` does there.
- The tokeniser reads beyond the end of a caption: ``no.`` before a caption that begins with a digit is an abbreviation,
  elsewhere it is a word and a full stop. Here the same neutral line follows every caption, so its tokens do not depend
  on the order of the captions.

No Java runs. The same automaton is followed in Python with the tables that :mod:`capbench.text.ptb_tables` reads from
the installed jar, so that all token boundaries equal the reference's; the normalisation of each token (brackets to
``-lrb-``, dashes, quotes, ellipses, currency, entities, soft hyphens) is implemented below, by rule number. A capital
sigma becomes the final or the other small one by Unicode's rule; Java's rule differs only next to a hyphen, a digit or
an underscore inside a token.

A cache makes it fast. A piece of text between two spaces is tokenised once for each first character of the next piece:
its tokens are cached unless the automaton looked further, as it does for abbreviations, numbers with fractions and the
like. Only a caption with such a piece is read as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Final

from capbench.core.errors import DataError
from capbench.text.ptb_tables import load_automaton

PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)  # Tokens that pycocoevalcap removes. It compares after lower-casing, so that ``-lrb-`` and other brackets remain.

_START = 2  # the lexer's state for Treebank text with sentence-final full stops kept on abbreviations
_NEWLINE_RULE, _UNTOKENIZABLE_RULE = 5, 1
_SKIP = frozenset([_UNTOKENIZABLE_RULE, 7, 23])  # rules that consume text without a token
_REMEMBERED = 400_000  # pieces with a first character; a full cache is cleared, so that it stays below some 100 MB

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
    """The tokens depend on more text."""


def _code_units(text: str) -> str:
    """UTF-16 code units as in Java: a character beyond the basic plane becomes a surrogate pair."""
    encoded = text.encode("utf-16-le")
    return text if len(encoded) == 2 * len(text) else "".join(map(chr, memoryview(encoded).cast("H")))


def _lower(units: str) -> str:
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass").lower()


class NativeTokenizer(dict[str, str]):
    """Follows the reference's automaton. Raises ToolError: the jar with its tables is missing or of another version.

    The keys are pieces with the following space and the first character of the next piece, or a caption's last piece
    with a line feed. One more character settles most cases: "a " could begin "a. m.", "a d" could not. The values are
    their tokens, each after a space, with the line feed; :data:`UNSETTLED` if these depend on more text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._automaton = load_automaton()

    def tokenize_all(self, captions: Sequence[str]) -> list[str]:
        """The reference's tokens of captions, each joined by spaces. Raises UnicodeEncodeError.

        Only captions with a piece that depends on more text are tokenised individually.
        """
        text = "\n".join(captions)
        if text.count("\n") >= len(captions) or any(end in text for end in _OTHER_LINE_ENDS):
            text = "\n".join([caption.translate(LINE_ENDS) for caption in captions])
        pieces = f"{text}\n".replace("\n", "\n ").split(" ")  # a caption's last piece ends in a line feed
        keys = [piece if piece[-1:] == "\n" else f"{piece} {after[:1]}" for piece, after in pairwise(pieces)]
        tokens = [line[1:] for line in "".join(map(self.__getitem__, keys)).split("\n")]
        del tokens[-1]
        for i, of_caption in enumerate(tokens):
            if UNSETTLED in of_caption:
                tokens[i] = self._whole(captions[i])
        return tokens

    def __missing__(self, key: str) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        piece, space, first = key.partition(" ")
        end = "" if space else "\n"
        tokens = self[key] = self._tokens(piece.removesuffix(end), space + first + end) + end
        return tokens

    def _tokens(self, piece: str, after: str) -> str:
        """Tokens of a piece followed by ``after``; :data:`UNSETTLED` if they depend on more text."""
        units = _code_units(piece)
        try:
            tokens, looked_beyond = self._scan(units + _code_units(after), len(units))
        except _NoAnswerError:
            return f" {UNSETTLED}"
        if looked_beyond and not after.endswith("\n"):
            return f" {UNSETTLED}"
        # The reference strips white space at the end of a caption, and hard spaces can be part of a token.
        if any(token.split() != [token] for token in tokens):
            return f" {UNSETTLED}"
        return "".join([f" {token}" for token in tokens if token not in PUNCTUATION])

    def _whole(self, caption: str) -> str:
        """Tokens of a complete caption."""
        units = _code_units(caption.translate(LINE_ENDS))
        tokens, _ = self._scan(f"{units}\n", len(units))
        words = " ".join(tokens).rstrip().split(" ")
        return " ".join([word for word in words if word not in PUNCTUATION])

    def _scan(self, text: str, end: int) -> tuple[list[str], bool]:
        """Tokens in lower case, up to ``end``, and True if a match could continue beyond the text.

        Raises _NoAnswerError if a match crosses ``end``.
        """
        classes = self._automaton.classes
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
        automaton = self._automaton
        table, accepts, state = automaton.next_state, automaton.accepts, _START
        rule, stop = 0, start
        for position in range(start, len(symbols)):
            state = table[state][symbols[position]]
            if state < 0:
                return rule, stop, False
            if accepts[state]:
                rule, stop = automaton.rule[state], position + 1
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
        table, accepts = self._automaton.next_state, self._automaton.accepts
        fits, state = [accepts[forwards]], forwards
        for symbol in symbols[start:stop]:
            state = table[state][symbol] if state >= 0 else -1
            fits.append(state >= 0 and accepts[state])
        state, position = backwards, stop
        while not (fits[position - start] and accepts[state]):
            position -= 1
            state = table[state][symbols[position]]
        return position


_AT_ONCE: Final = 8_192  # captions whose pieces exist as strings at the same time
VERSION = "ptb-3.4.1"  # Part of metrics' signatures


def tokenize(captions: Sequence[str]) -> list[str]:
    """Tokenise captions as pycocoevalcap does: lower-case tokens of each, joined by spaces, without punctuation.

    An empty caption, or one with punctuation only, yields ``""``.

    >>> tokenize(["A man's dog can't jump, it's (too) small."])
    ["a man 's dog ca n't jump it 's -lrb- too -rrb- small"]
    """
    distinct = list(dict.fromkeys(captions))
    tokens: list[str] = []
    try:
        for begin in range(0, len(distinct), _AT_ONCE):
            tokens += native_tokenizer().tokenize_all(distinct[begin : begin + _AT_ONCE])
    except UnicodeEncodeError as error:
        caption = next(text for text in distinct if str(error.object).strip("\n") in text)
        message = f"the caption {caption!r} contains half of a surrogate pair, which is not a character"
        raise DataError(message, code="unreadable", value=caption, hint="Correct the file that contains it") from error
    return list(map(dict(zip(distinct, tokens, strict=True)).__getitem__, captions))


@cache
def native_tokenizer() -> NativeTokenizer:
    """The shared tokeniser of this process, which caches pieces."""
    return NativeTokenizer()
