"""BLEU, ROUGE-L and CIDEr-D of tokenised captions, compared with pycocoevalcap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import expert, groups, tokenized

Captions = tuple[list[str], list[list[str]]]
Scores = NDArray[np.float64]
"""(6, captions): BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D."""
_WARM: Captions = (["a b", "c"], [["a b c"], ["c d"]])


def generated(images: int, candidates: int, references: int) -> Captions:
    """Generated captions; every candidate has all references of its image."""
    made = list(groups(images, candidates, references))
    return [text for texts, _ in made for text in texts], [of for texts, of in made for _ in texts]


def ours(captions: Captions) -> Work:
    """All three metrics, from texts to scores."""
    from capbench.text.ngrams import Corpus, bleu, bleu_counts, cider_d, rouge_l

    def work(captions: Captions = captions) -> Scores:
        corpus = Corpus(*captions)
        return np.stack([*bleu(bleu_counts(corpus)[0]).T, rouge_l(corpus)[0], cider_d(corpus)[0]])

    work(_WARM)
    return work


def our_sweep(captions: Captions) -> Work:
    """The metrics with the first 1, 2, … references; returns the scores with all references."""
    from capbench.text.ngrams import Corpus, bleu, bleu_counts, cider_d, rouge_l

    def work(captions: Captions = captions) -> Scores:
        corpus, steps = Corpus(*captions), range(1, max(map(len, captions[1])) + 1)
        counts, rouge, cider = (score(corpus, steps) for score in (bleu_counts, rouge_l, cider_d))
        return np.stack([*bleu(counts[-1]).T, rouge[-1], cider[-1]])

    work(_WARM)
    return work


def theirs(captions: Captions) -> Work:
    """The same metrics by pycocoevalcap."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    result, truth = {i: [text] for i, text in enumerate(captions[0])}, dict(enumerate(captions[1]))

    def work() -> Scores:
        bleu = Bleu(4).compute_score(truth, result, verbose=0)[1]
        rouge, cider = Rouge().compute_score(truth, result)[1], Cider().compute_score(truth, result)[1]
        return np.stack([*map(np.asarray, bleu), rouge, cider]).astype(np.float64)

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """Scoring, and scoring with every number of references."""
    count, images, repeats = settings.pick(2_000, 5_000), settings.pick(50, 1_000), settings.repeats
    what, peer = "BLEU, ROUGE-L, CIDEr-D", "pycocoevalcap"
    captions = generated(count, 1, 5)
    yield between(f"{what}; {count:,} distinct × 5", peer, ours, theirs, captions, repeats=repeats, tolerance=1e-9)
    name, items = expert(settings.data)
    yield between(
        f"{what}; {name}, {len(items):,}", peer, ours, theirs, tokenized(items), repeats=repeats, tolerance=1e-9
    )
    captions, references = generated(images, 8, 50), 50
    # The peer's time grows with the number of references: runs with 1, 2, … n take (1 + 2 + … + n) / n of one with n.
    yield between(
        f"{what} with 1, 2, … 50 references; {8 * images:,}",
        f"{peer}, one run with 50 references × 25.5",
        our_sweep,
        theirs,
        captions,
        repeats=1 if settings.full else repeats,
        tolerance=1e-9,
        times=(references + 1) / 2,
    )
