"""Tokens and vocabularies of the image-text matching models of the SCAN family (Lee et al., ECCV 2018); stop words.

A caption is converted to lower case and split like NLTK's ``word_tokenize``, with punctuation. NLTK first splits
sentences, because its Treebank rules separate a full stop only at the end of a sentence; the sentence model must be
downloaded. Here the same algorithm (Punkt; Kiss and Strunk 2006) runs with that model's abbreviations only. On
lower-case text the rest of the model has almost no effect, since it relies on capital letters: 1,844 published captions
with an inner full stop (of 263,173 texts) all have the same tokens as with the complete model.

:data:`ENGLISH` is the stop word list of metrics based on word vectors: NLTK's English list in its long-standing version
(179 words; NLTK distributes it as a separate data package). It has three kinds of entries: whole words, contractions
with their apostrophe, and the pieces of contractions split at the apostrophe (``couldn``, ``ll``, ``t``).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from capbench.core.errors import DataError, UsageError
from capbench.core.files import read_json

if TYPE_CHECKING:
    from torch import Tensor

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")  # The first four words of every vocabulary

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
"""Abbreviations whose full stop does not end a sentence, from NLTK's English Punkt model (nltk_data, ``punkt``), which
was trained on newspapers; hence the places and months."""

# A mark ends a sentence inside a text only if text follows; most captions have no such mark.
_INNER_END = re.compile(r"[.?!]\s*\S")


def tokenize_caption(text: str) -> list[str]:
    """The tokens of a caption: lower case, Treebank rules, punctuation kept.

    >>> tokenize_caption('A dog (brown) runs. Mr. Day\\'s cat can\\'t.')
    ['a', 'dog', '(', 'brown', ')', 'runs', '.', 'mr.', 'day', "'s", 'cat', 'ca', "n't", '.']
    """
    return list(_tokens(text.lower()))


@functools.lru_cache(20_000)  # references come with each of their candidates and columns
def _tokens(text: str) -> tuple[str, ...]:
    split, sentences = _tokenizers()
    if _INNER_END.search(text) is None:
        return tuple(split(text))
    return tuple(token for sentence in sentences(text) for token in split(sentence))


def tokenizer_version() -> str:
    """Version string for signatures, of everything that can change a token: ``nltk-3.9.1+punkt-en``."""
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
    """The words that a model knows; a word's number is its index."""

    words: tuple[str, ...]  # distinct words, beginning with :data:`SPECIAL`

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIAL:
            raise UsageError(
                f"a vocabulary begins with {', '.join(SPECIAL)}, not with {', '.join(self.words[:4]) or 'nothing'}",
                code="wrong-format",
            )
        if len(self._places) != len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self._places[word] != i)
            raise UsageError(f"the word '{twice}' occurs twice in the vocabulary", code="duplicate", value=twice)

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> Vocabulary:
        """The words that occur at least ``min_count`` times, by descending frequency, then alphabetically.

        ``captions``: all captions of the training split; repeats count as often as they occur; ``min_count``: 4 as in
        the published SCAN models.
        """
        counts = Counter(token for caption in captions for token in tokenize_caption(caption))
        frequent = [word for word, count in counts.items() if count >= min_count]
        return cls((*SPECIAL, *sorted(frequent, key=lambda word: (-counts[word], word))))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._places

    def number(self, word: str) -> int:
        """Number of a word; that of ``<unk>`` if the word is unknown."""
        return self._places.get(word, UNKNOWN)

    def encode(self, text: str) -> list[int]:
        """Numbers of a caption's tokens, between those of ``<start>`` and ``<end>``."""
        return [START, *(self._places.get(token, UNKNOWN) for token in tokenize_caption(text)), END]

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the words in their order, 64 hex digits; independent of the file format."""
        return hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {word: i for i, word in enumerate(self.words)}


def pad_rows(rows: Sequence[Sequence[int]], filling: int = PAD) -> tuple[Tensor, Tensor]:
    """Numbers as (rows, longest) int64, one column at least, filled at the end, and their (rows,) lengths."""
    import torch

    padded = np.full((len(rows), max([1, *map(len, rows)])), filling, dtype=np.int64)
    for out, row in zip(padded, rows, strict=True):
        out[: len(row)] = row
    return torch.from_numpy(padded), torch.tensor([len(row) for row in rows], dtype=torch.int64)


def read_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Read the JSON of the published models: ``word2idx`` is word → number; the other keys repeat its content."""
    record: Any = read_json(path)
    places = record.get("word2idx") if isinstance(record, dict) else None
    try:
        if not isinstance(places, dict) or sorted(map(int, places.values())) != list(range(len(places))):
            raise UsageError("is not a vocabulary: 'word2idx' must give each word a number from 0, without gaps")
        return Vocabulary(tuple(sorted(places, key=places.__getitem__)))
    except (UsageError, TypeError, ValueError) as error:
        hint = "Pass the vocabulary JSON that belongs to the weights"
        message = error.message if isinstance(error, UsageError) else f"is not a vocabulary ({error})"
        raise DataError(message, code="wrong-format", path=path, hint=hint) from error


_WORDS = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those
    am is are was were be been being have has had having do does did doing can will should
    a an the and but if or because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further then once here there when where why how
    all any both each few more most other some such no nor not only own same so than too very just now
    you're you've you'll you'd she's it's that'll should've s t d ll m o re ve y ain ma
"""
_NEGATED = "aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren won wouldn"

ENGLISH: Final = frozenset([*_WORDS.split(), *_NEGATED.split(), *(f"{stem}'t" for stem in _NEGATED.split())])
"""NLTK's English stop words: 179 lower-case words."""

_GLASGOW = """
    a about above across after afterwards again against all almost alone along already also although always am among
    amongst amoungst amount an and another any anyhow anyone anything anyway anywhere are around as at
    back be became because become becomes becoming been before beforehand behind being below beside besides between
    beyond bill both bottom but by
    call can cannot cant co con could couldnt cry de describe detail do done down due during
    each eg eight either eleven else elsewhere empty enough etc even ever every everyone everything everywhere except
    few fifteen fifty fill find fire first five for former formerly forty found four from front full further
    get give go had has hasnt have he hence her here hereafter hereby herein hereupon hers herself him himself his how
    however hundred i ie if in inc indeed interest into is it its itself keep last latter latterly least less ltd
    made many may me meanwhile might mill mine more moreover most mostly move much must my myself
    name namely neither never nevertheless next nine no nobody none noone nor not nothing now nowhere
    of off often on once one only onto or other others otherwise our ours ourselves out over own
    part per perhaps please put rather re same see seem seemed seeming seems serious several she should show side since
    sincere six sixty so some somehow someone something sometime sometimes somewhere still such system
    take ten than that the their them themselves then thence there thereafter thereby therefore therein thereupon these
    they thick thin third this those though three through throughout thru thus to together too top toward towards
    twelve twenty two un under until up upon us very via was we well were what whatever when whence whenever where
    whereafter whereas whereby wherein whereupon wherever whether which while whither who whoever whole whom whose why
    will with within without would yet you your yours yourself yourselves
"""

GLASGOW: Final[frozenset[str]] = frozenset(_GLASGOW.split())
"""The 318 stop words of the Glasgow Information Retrieval Group, in scikit-learn's version with its misspellings."""
