"""METEOR 1.5 for English without Java: the jar's counts and scores, computed from the jar's data files.

The stages exact, stem (Snowball English), synonym (WordNet) and paraphrase, the normaliser, the beam search for the
alignment and the choice of the best reference follow the jar that pycocoevalcap runs (``-l en -norm``), also where it
differs from its paper (Denkowski and Lavie 2014, Meteor universal, WMT).
"""

from capbench.text.meteor.aligner import N_COUNTS
from capbench.text.meteor.scores import (
    LONGEST,
    corpus_counts,
    meteor_corpus,
    meteor_scores,
    meteor_statistics,
    meteor_sweep,
    normalised_words,
)

__all__ = [
    "LONGEST",
    "N_COUNTS",
    "VERSION",
    "corpus_counts",
    "meteor_corpus",
    "meteor_scores",
    "meteor_statistics",
    "meteor_sweep",
    "normalised_words",
]

VERSION = "1.5"
"""Version of METEOR; the same for both engines."""
