"""Words as the image-text matching models of the SCAN family (Lee et al., ECCV 2018) read them, and their vocabulary.

A caption is lowered and split like NLTK's ``word_tokenize``, punctuation kept. NLTK finds sentences first, because
its Treebank rules split a full stop off only at a sentence's end; the model that it uses for that must be downloaded.
Here the same algorithm (Punkt; Kiss and Strunk 2006) runs with that model's abbreviations alone. On lowered text the
rest of it says next to nothing, since capital letters tell where a sentence begins: 1,844 published captions with a
full stop inside (of 263,173 texts) all got the tokens that the whole model gives.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from capbench.errors import DataError, UsageError
from capbench.files import read_json, write_text

__all__ = [
    "ABBREVIATIONS",
    "END",
    "PAD",
    "SPECIAL",
    "START",
    "UNKNOWN",
    "Vocabulary",
    "read_vocabulary",
    "tokenize_caption",
    "tokenizer_version",
    "write_vocabulary",
]

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
"""The first four words of every vocabulary."""

ABBREVIATIONS = frozenset(
    """
    a.a a.c a.d a.g a.h a.m a.m.e a.s a.t adm ala ariz aug ave b.f b.v bros c c.i.t c.o.m.b c.v calif chg cie co
    col colo conn corp cos ct d d.c d.h d.w dec dr e e.f e.h e.l e.m f f.g f.j feb fla fri ft g g.d g.f g.k ga gen
    h h.c h.f h.m i.m.s ill inc j.b j.c j.j j.k j.p j.r jan jr k kan ky l l.a l.f l.p lt ltd m m.b.a m.d.c m.j maj
    messrs mg mich minn mr mrs ms n n.c n.d n.h n.j n.m n.v n.y nev nov oct ok okla ore p p.a.m p.m pa ph.d prof r
    r.a r.h r.i r.j r.k r.t rep reps s s.a s.a.y s.c s.g s.p.a s.s sen sep sept sr st sw t t.j tenn tues u.k u.n
    u.s u.s.a u.s.s.r v va vs vt w w.c w.r w.va w.w wash wed wis yr
    """.split()  # noqa: SIM905  # a list would fill a page
)
"""Words after whose full stop a sentence goes on: those of NLTK's English Punkt model (nltk_data, ``punkt``), which
were learnt from newspapers; hence the places and months."""

# Only a mark that something follows can end a sentence inside a text; most captions have none.
_INNER_END = re.compile(r"[.?!]\s*\S")


def tokenize_caption(text: str) -> list[str]:
    """The tokens of a caption: lower case, Treebank rules, punctuation kept.

    >>> tokenize_caption('A dog (brown) runs. Mr. Day\\'s cat can\\'t.')
    ['a', 'dog', '(', 'brown', ')', 'runs', '.', 'mr.', 'day', "'s", 'cat', 'ca', "n't", '.']
    """
    split, sentences = _tokenizers()
    text = text.lower()
    if _INNER_END.search(text) is None:
        return split(text)
    return [token for sentence in sentences(text) for token in split(sentence)]


def tokenizer_version() -> str:
    """What can change a token, for signatures: ``nltk-3.9.1+punkt-en``."""
    import nltk

    return f"nltk-{nltk.__version__}+punkt-en"


@functools.cache
def _tokenizers() -> tuple[Callable[[str], list[str]], Callable[[str], list[str]]]:
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types.update(ABBREVIATIONS)
    return NLTKWordTokenizer().tokenize, PunktSentenceTokenizer(parameters).tokenize


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows; a word's number is its place.

    Attributes:
        words: all different; the first four are :data:`SPECIAL`.

    Raises:
        UsageError: the first four are others, or a word stands twice or is empty.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIAL:
            raise UsageError(
                f"a vocabulary begins with {', '.join(SPECIAL)}, not {', '.join(self.words[:4]) or 'void'}"
            )
        if len(self._places) != len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self._places[word] != i)
            raise UsageError(f"the word '{twice}' stands twice in the vocabulary")
        if "" in self._places:
            raise UsageError(f"word {self._places['']} of the vocabulary is empty")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> Vocabulary:
        """The words that occur ``min_count`` times or more, the most frequent first, equals by alphabet.

        Args:
            captions: all that the model may see in training; repeats count as often as they occur.
            min_count: 4 as in the published SCAN models.
        """
        if min_count < 1:
            raise UsageError(f"min_count is {min_count}", hint="Give 1 or more")
        counts = Counter(token for caption in captions for token in tokenize_caption(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls((*SPECIAL, *sorted(kept, key=lambda word: (-counts[word], word))))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._places

    def number(self, word: str) -> int:
        """The word's number, or that of ``<unk>``."""
        return self._places.get(word, UNKNOWN)

    def encode(self, text: str) -> list[int]:
        """The numbers of a caption's tokens, between those of ``<start>`` and ``<end>``."""
        return [START, *(self._places.get(token, UNKNOWN) for token in tokenize_caption(text)), END]

    @cached_property
    def sha256(self) -> str:
        """Of the words in their order, 64 hex digits; the same whatever file they came from."""
        return hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {word: i for i, word in enumerate(self.words)}


def read_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Read the JSON of the published models: ``word2idx``, ``idx2word`` (keys are text), ``idx``.

    Raises:
        DataError: it is no such file, numbers are missing or given twice, the two directions differ, or the first
            four words are others.
    """
    hint = "Give the vocabulary JSON that belongs to the weights"
    record: Any = read_json(path)
    places = record.get("word2idx") if isinstance(record, dict) else None
    if not isinstance(places, dict) or not places:
        raise DataError("is no vocabulary: it has no 'word2idx'", path=path, hint=hint)
    words: list[str | None] = [None] * len(places)
    for word, place in places.items():
        if type(place) is not int or not 0 <= place < len(words):
            raise DataError(
                f"'{word}' has the number {place!r}, not one from 0 to {len(words) - 1}", path=path, hint=hint
            )
        if words[place] is not None:
            raise DataError(f"'{words[place]}' and '{word}' have the same number {place}", path=path, hint=hint)
        words[place] = word
    ordered = tuple(word for word in words if word is not None)  # as many numbers as words: none is left out
    back = record.get("idx2word")
    if back is not None and back != {str(i): word for i, word in enumerate(ordered)}:
        raise DataError("'word2idx' and 'idx2word' are not each other's inverse", path=path, hint=hint)
    if record.get("idx") not in (None, len(ordered)):
        raise DataError(f"'idx' is {record['idx']!r} but there are {len(ordered)} words", path=path, hint=hint)
    try:
        return Vocabulary(ordered)
    except UsageError as error:
        raise DataError(error.message, path=path, hint=hint) from error


def write_vocabulary(path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
    """Write the JSON of the published models, which their code reads too."""
    words = vocabulary.words
    record = {
        "word2idx": {word: i for i, word in enumerate(words)},
        "idx2word": {str(i): word for i, word in enumerate(words)},
        "idx": len(words),
    }
    write_text(path, json.dumps(record, ensure_ascii=False, indent=0) + "\n")
