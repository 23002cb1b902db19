"""Word pieces as BERT reads them (Devlin et al., NAACL 2019): lower case, no accents, words cut into known pieces.

The library ``tokenizers`` cuts the words. A text is only text here: ``[SEP]`` in a caption is two brackets and a word,
and no special token.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from capbench.core.errors import DataError, UsageError
from capbench.core.files import read_lines

__all__ = [
    "BEGIN",
    "END",
    "MASK",
    "PAD",
    "UNKNOWN",
    "WordPieces",
    "learn_word_pieces",
    "read_word_pieces",
    "tokenizer_version",
]

PAD, UNKNOWN, BEGIN, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
_NEEDED = (PAD, UNKNOWN, BEGIN, END)
_CONTINUED = "##"
_LONGEST_WORD = 100  # letters; a longer word is unknown


@dataclass(frozen=True)
class WordPieces:
    """The pieces that a model knows; a piece's number is its place.

    Attributes:
        pieces: all different, with ``[PAD]``, ``[UNK]``, ``[CLS]`` and ``[SEP]`` among them; ``##`` begins one that
            goes on with a word.

    Raises:
        UsageError: one of these is missing, or a piece stands twice.
    """

    pieces: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.places) != len(self.pieces):
            twice = next(piece for place, piece in enumerate(self.pieces) if self.places[piece] != place)
            raise UsageError(f"the word piece '{twice[:40]}' stands twice")
        for piece in _NEEDED:
            if piece not in self.places:
                raise UsageError(f"among the word pieces there is no {piece}")

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def places(self) -> dict[str, int]:
        """Each piece's number."""
        return {piece: place for place, piece in enumerate(self.pieces)}

    @cached_property
    def sha256(self) -> str:
        """Of the pieces, one a line: 64 hex digits."""
        return hashlib.sha256("\n".join(self.pieces).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer, models

        tokenizer = Tokenizer(models.WordPiece(self.places, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST_WORD))
        tokenizer.normalizer, tokenizer.pre_tokenizer = _normalizer(), _pre_tokenizer()
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Numbers of a text's pieces, without ``[CLS]`` and ``[SEP]``; none for an empty text."""
        numbers: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return numbers

    def sequence(self, text: str, most: int) -> list[int]:
        """Numbers of ``[CLS]``, a text's pieces, and ``[SEP]``.

        What is longer than ``most`` is cut off, ``[SEP]`` included, as ViLBERT's released code does.
        """
        numbers = [self.places[BEGIN], *self.encode(text), self.places[END]]
        return numbers[:most]


def tokenizer_version() -> str:
    """What can change a piece, for signatures: ``tokenizers-0.22.1``."""
    from importlib.metadata import version

    return f"tokenizers-{version('tokenizers')}"


def _normalizer() -> Any:
    from tokenizers import normalizers

    return normalizers.BertNormalizer(lowercase=True)


def _pre_tokenizer() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.BertPreTokenizer()


def read_word_pieces(path: str | os.PathLike[str]) -> WordPieces:
    """Read a vocabulary, one piece a line, as BERT's ``vocab.txt`` is.

    Raises:
        MissingFileError: there is no such file.
        DataError: it is not UTF-8, a piece stands twice, or a special token is missing.
    """
    try:
        return WordPieces(tuple(read_lines(path)))
    except UsageError as error:
        hint = "Give the vocab.txt that the weights were trained with (bert-base-uncased's for ViLBERT)"
        raise DataError(error.message, path=Path(path), hint=hint) from error


def learn_word_pieces(texts: Iterable[str], size: int) -> WordPieces:
    """Word pieces for a model of one's own: characters, then the pairs of pieces that stand together most often.

    That is byte-pair encoding (Sennrich et al., ACL 2016) on words. Of equally frequent pairs the first in the order of
    their letters comes first, so that the same texts give the same pieces; the trainer of ``tokenizers`` does not.

    Args:
        texts: what to learn from.
        size: how many pieces there shall be at most, special tokens included.

    Raises:
        UsageError: the texts hold no words, or ``size`` is too small for more than the special tokens.
    """
    special = [*_NEEDED, MASK]
    if size <= len(special):
        raise UsageError(f"{size} word pieces are too few", hint="Ask for some thousands")
    normalizer, pre_tokenizer = _normalizer(), _pre_tokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    if not counts:
        raise UsageError("the texts hold no words to learn pieces from")
    words = [[word[0], *(_CONTINUED + letter for letter in word[1:])] for word in counts]
    numbers = list(counts.values())
    letters: Counter[str] = Counter()
    for word, number in zip(words, numbers, strict=True):
        for piece in word:
            letters[piece] += number
    pieces = dict.fromkeys([*special, *sorted(letters, key=lambda piece: (-letters[piece], piece))])
    for piece in _merged(words, numbers):
        if len(pieces) >= size:
            break
        pieces[piece] = None
    return WordPieces(tuple(pieces)[:size])


def _merged(words: list[list[str]], numbers: Sequence[int]) -> Iterator[str]:
    """New pieces, the pair that stands together most often first; ``words`` are changed on the way.

    Args:
        words: each distinct word's pieces.
        numbers: how often each word stands.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], set[int]] = {}
    for place, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += numbers[place]
            places.setdefault(pair, set()).add(place)
    queue = [(-number, pair) for pair, number in pairs.items()]
    heapq.heapify(queue)
    while queue:
        number, best = heapq.heappop(queue)
        if -number != pairs[best]:
            continue  # it stood there before the pair lost some places to another one
        if number >= -1:
            return  # what stands once teaches nothing
        joined = best[0] + best[1].removeprefix(_CONTINUED)
        changed = {best}
        for place in places.pop(best):
            word = words[place]
            for pair in itertools.pairwise(word):
                pairs[pair] -= numbers[place]
                changed.add(pair)
            words[place] = word = _joined(word, best, joined)
            for pair in itertools.pairwise(word):
                pairs[pair] += numbers[place]
                places.setdefault(pair, set()).add(place)
                changed.add(pair)
        for pair in changed:
            if pairs[pair] > 0:
                heapq.heappush(queue, (-pairs[pair], pair))
        yield joined


def _joined(word: Sequence[str], pair: tuple[str, str], joined: str) -> list[str]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] = joined
        else:
            result.append(piece)
    return result
