"""BERT's word pieces (Devlin et al., NAACL 2019): lower case, no accents, words split into known pieces.

The library ``tokenizers`` splits the words. Special tokens are not recognised in texts: ``[SEP]`` in a caption is two
brackets and a word.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from capbench.core.errors import DataError, UsageError
from capbench.core.files import read_lines

PAD, UNKNOWN, BEGIN, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
_NEEDED = (PAD, UNKNOWN, BEGIN, END)
_LONGEST_WORD = 100  # letters; a longer word is unknown


@dataclass(frozen=True)
class WordPieces:
    """The pieces that a model knows; a piece's number is its index."""

    # distinct pieces, including ``[PAD]``, ``[UNK]``, ``[CLS]`` and ``[SEP]``; ``##`` marks a piece that continues a
    # word
    pieces: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.places) != len(self.pieces):
            twice = next(piece for place, piece in enumerate(self.pieces) if self.places[piece] != place)
            raise UsageError(f"the word piece '{twice[:40]}' occurs twice", code="duplicate", value=twice)
        for piece in _NEEDED:
            if piece not in self.places:
                raise UsageError(f"the word pieces do not contain {piece}", code="missing-value", value=piece)

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def places(self) -> dict[str, int]:
        """Number of each piece."""
        return {piece: place for place, piece in enumerate(self.pieces)}

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the pieces, one per line: 64 hex digits."""
        return hashlib.sha256("\n".join(self.pieces).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer, models

        tokenizer = Tokenizer(models.WordPiece(self.places, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST_WORD))
        tokenizer.normalizer, tokenizer.pre_tokenizer = _words_of_bert()
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Numbers of a text's pieces, without ``[CLS]`` and ``[SEP]``; empty for an empty text."""
        numbers: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return numbers

    def sequence(self, text: str, maximum: int) -> list[int]:
        """Numbers of ``[CLS]``, a text's pieces, and ``[SEP]``.

        A sequence longer than ``maximum`` is truncated, ``[SEP]`` included, as in ViLBERT's released code.
        """
        numbers = [self.places[BEGIN], *self.encode(text), self.places[END]]
        return numbers[:maximum]


def tokenizer_version() -> str:
    """Version string for signatures, of everything that can change a piece: ``tokenizers-0.22.1``."""
    from importlib.metadata import version

    return f"tokenizers-{version('tokenizers')}"


def _words_of_bert() -> tuple[Any, Any]:
    """BERT's normaliser and its splitting into words."""
    from tokenizers import normalizers, pre_tokenizers

    return normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()


def read_word_pieces(path: str | os.PathLike[str]) -> WordPieces:
    """Read a vocabulary with one piece per line, the format of BERT's ``vocab.txt``."""
    try:
        return WordPieces(tuple(read_lines(path)))
    except UsageError as error:
        hint = "Pass the vocab.txt that the weights were trained with (that of bert-base-uncased for ViLBERT)"
        raise error.placed(DataError, path, hint=hint) from error


def learn_word_pieces(texts: Iterable[str], size: int) -> WordPieces:
    """Learn word pieces for a custom model: characters, then the most frequent pairs of adjacent pieces.

    This is byte-pair encoding (Sennrich et al., ACL 2016) on words. Equally frequent pairs are merged in alphabetical
    order, so that the same texts yield the same pieces; the trainer of ``tokenizers`` is not deterministic.

    ``texts``: the training texts; ``size``: maximum number of pieces, including special tokens.
    """
    special = [*_NEEDED, MASK]
    if size <= len(special):
        raise UsageError(f"{size} word pieces are too few", code="too-few", value=size, hint="Request several thousand")
    normalizer, splitter = _words_of_bert()
    known = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    if not known:
        raise UsageError("the texts contain no words from which pieces could be learned", code="missing-value")
    words = [[word[0], *(f"##{letter}" for letter in word[1:])] for word in known]
    numbers = list(known.values())
    letters: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # words with a pair

    def count(place: int, sign: int) -> set[tuple[str, str]]:
        for pair in itertools.pairwise(words[place]):
            pairs[pair] += sign * numbers[place]
            places[pair].add(place)
        return set(itertools.pairwise(words[place]))

    for place, word in enumerate(words):
        count(place, 1)
        for piece in word:
            letters[piece] += numbers[place]
    pieces = dict.fromkeys([*special, *sorted(letters, key=lambda piece: (-letters[piece], piece))])
    queue = [(-number, pair) for pair, number in pairs.items()]
    heapq.heapify(queue)
    while queue and len(pieces) < size:
        number, best = heapq.heappop(queue)
        if -number != pairs[best]:
            continue  # an outdated entry: another merge took occurrences of this pair
        if number >= -1:
            break  # pairs that occur once are not merged
        joined = best[0] + best[1].removeprefix("##")
        changed = set[tuple[str, str]]()
        for place in places.pop(best):
            changed |= count(place, -1)
            words[place] = _joined(words[place], best, joined)
            changed |= count(place, 1)
        for pair in changed:
            heapq.heappush(queue, (-pairs[pair], pair))
        pieces[joined] = None
    return WordPieces(tuple(pieces)[:size])


def _joined(word: Sequence[str], pair: tuple[str, str], joined: str) -> list[str]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] = joined
        else:
            result.append(piece)
    return result
