"""Arguments of single features, declared once for Python and the command line (:mod:`capbench.core.arguments`)."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Annotated, Literal

from annotated_types import Ge, Le
from typing_extensions import TypedDict

from capbench.core.arguments import Help, Resamples, Seed

Draws = Annotated[int, Ge(1), Le(10_000), Help("Random orders of the references. Default: 5.")]


class RetrievalChanges(TypedDict, total=False):
    """Captions and images of a retrieval, in place of the defaults or of a study file's."""

    captions: Annotated[
        str | PathLike[str],
        Help("Captions: a corpus such as flickr8k, or a file. Default: flickr8k.", metavar="NAME|FILE"),
    ]
    split: Annotated[str, Help("Split or domain of the captions: test, dev. Default: all images.", metavar="NAME")]
    sample_size: Annotated[int, Ge(2), Help("Number of sampled images. Default: 1000.", ("--images",), "N")]
    seed: Annotated[Seed, Help("Seed of the sample of images. Default: 0.", metavar="N")]
    references: Annotated[
        int, Ge(1), Help("Number of captions per image that are references. Default: 4.", metavar="N")
    ]
    gallery: Annotated[
        Literal["rest", "one"],
        Help("Queries and gallery: all captions that are not references (default), or one per image."),
    ]


class CombinationChoices(TypedDict, total=False):
    """Settings for learning and testing a combination."""

    learner: Annotated[
        Literal["auto", "ridge", "logistic", "monotone", "mean-rank"],
        Help("auto (default): ridge for ratings, logistic for preferences; mean-rank uses no judgements."),
    ]
    test: Annotated[
        Sequence[str], Help("Another data set or protocol to test the combination on; repeatable.", metavar="NAME")
    ]
    lower: Annotated[
        Sequence[str], Help("Metric or column for which lower scores are better; repeatable.", metavar="NAME")
    ]
    folds: Annotated[int, Ge(2), Help("Outer folds of images. Default: 10.")]
    inner_folds: Annotated[int, Ge(2), Help("Inner folds, which select the penalty. Default: 5.")]
    seed: Annotated[Seed, Help("Seed of folds, resamples and permutations. Default: 0.")]
    resamples: Annotated[
        Resamples, Help("Number of resamples and permutations. Default: 1,000 and 10,000.", ("--bootstrap",), "N")
    ]
    correction: Annotated[Literal["holm", "bh", "none"], Help("Correction for the number of pairs. Default: holm.")]
    save: Annotated[
        str | PathLike[str],
        Help("Write the combination as JSON; it is the metric 'combination:FILE'.", metavar="FILE"),
    ]
    out: Annotated[
        str | PathLike[str],
        Help("Write the out-of-fold scores (.csv, .jsonl or .parquet) for --scores.", ("--out", "-o"), "FILE"),
    ]
