"""Arguments that functions of ``import capbench`` and their commands share: by a ``TypedDict`` both take all of them.

They are declared in the order of the command's help; see :mod:`capbench.core.arguments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt
from typing_extensions import TypedDict

from capbench.core.arguments import (
    Bootstrap,
    BootstrapMethod,
    Correction,
    DataFolder,
    Help,
    KeepFirst,
    OpenShare,
    PathGiven,
    Permutations,
    Resamples,
    Restrict,
    Seed,
    Split,
    SystemTest,
    Test,
    Unit,
    strict,
)

Count = Annotated[int, Ge(1)]


@strict
class DetectorSettings(TypedDict, total=False):
    """Images of a data set, and the detector that reads them."""

    dataset: Annotated[str | None, Help("Images of this data set.", ("--dataset", "-d"), "NAME")]
    image_root: Annotated[PathGiven | None, Help("Folder of the images of a list or a data set.", metavar="DIR")]
    data: DataFolder | None
    detector: Annotated[
        str | None,
        Help(
            "Detector from 'capbench models list', or module:Class. Default: 'sample' on the embedded sample, else "
            "installed bottom-up weights, else torchvision-frcnn.",
            ("--detector", "-D"),
            "NAME",
        ),
    ]
    weights: Annotated[
        PathGiven | None,
        Help(
            "Weights of the detector, or random:SEED (untrained, only to measure speed). "
            "Default: see 'capbench models list'.",
            metavar="FILE",
        ),
    ]
    device: Annotated[str, Help("Device: auto (default), cpu, cuda or cuda:N.", metavar="NAME")]
    threads: Annotated[
        Count | None,
        Help("CPU threads of the network, part of the signature. Default: all cores; with --on 1."),
    ]
    batch: Annotated[Count, Help("Images per batch; more than 1 (default) changes features slightly.")]
    precision: Annotated[str, Help("float32 (default), or amp-bfloat16 or amp-float16 (faster on a GPU).")]


@strict
class StoreSettings(TypedDict, total=False):
    """The store of an extraction."""

    dtype: Annotated[str, Help("Type in the store: float32 (default) or float16.")]
    out: Annotated[
        PathGiven | None,
        Help(
            "Output store. Default: features/IMAGES.h5; with --detector features/IMAGES.DETECTOR.h5.",
            ("--out", "-o"),
            "FILE",
        ),
    ]
    shard: Annotated[str | None, Help("Only part I of N; join parts with 'capbench features merge'.", metavar="I/N")]
    compression: Annotated[str | None, Help("Compression: none (default for a new file), gzip or lzf.")]
    restart: Annotated[bool, Help("Discard an existing store instead of adding to it.")]


@strict
class ExtractionSettings(DetectorSettings, StoreSettings, total=False):
    """Settings of an extraction."""


@strict
class ImportSettings(TypedDict, total=False):
    """Settings of an import of features."""

    format: Annotated[
        str | None,
        Help("butd-tsv, lxmert-tsv, milvlg, scan, vilbert, lmdb, npz. Default: detect.", metavar="NAME"),
    ]
    ids: Annotated[PathGiven | None, Help("For scan: file with one image id per line.", metavar="FILE")]
    detector: Annotated[str | None, Help("Name of the detector; required to merge stores.", metavar="NAME")]
    weights_sha256: Annotated[str | None, Help("SHA-256 of the detector's weights.", metavar="HEX")]
    dtype: Annotated[str, Help("Type in the store: float32 (default) or float16.")]
    compression: Annotated[str, Help("Compression: none (default), gzip or lzf.")]
    class_probabilities: Annotated[
        bool, Help("For vilbert and lmdb: store all class probabilities, which training ViLBERT requires.")
    ]
    keep_first: KeepFirst
    replace: Annotated[bool, Help("Replace an existing store.")]


@strict
class WordVectorSettings(TypedDict, total=False):
    """Settings of the training of word vectors; defaults: :func:`capbench.text.word_vectors.train_word2vec`."""

    data: DataFolder | None
    dimension: Annotated[Count, Help("Dimension of the vectors. Default: 300.")]
    window: Annotated[Count, Help("Number of context words on each side. Default: 5.")]
    min_count: Annotated[Count, Help("Minimum count of a word. Default: 2.")]
    epochs: Annotated[Count, Help("Passes over the captions. Default: 20.")]
    seed: Annotated[int, Ge(0), Lt(2**32), Help("Random seed. Default: 1.")]
    include_judged: Annotated[
        bool, Help("Read the captions of judged images, too. Metrics with these vectors are then marked in tables.")
    ]


@strict
class CovarianceSettings(TypedDict, total=False):
    """Settings of a fit of REO's covariance."""

    images: Annotated[
        PathGiven | None, Help("File with the image ids to use, one per line. Default: all.", metavar="FILE")
    ]
    data: DataFolder | None
    shrinkage: Annotated[float | None, Help("Shrinkage, from 0 to 1. Default: estimated (Chen et al. 2010).")]
    lambda_softmax: Annotated[float | None, Help("λ of the attention. Default: the model's.")]
    norm: Annotated[str | None, Help("Norm of the attention. Default: the model's.")]
    clip: Annotated[str, Help("Clipping: leaky (default) or relu.")]
    count_ends: Annotated[
        bool | None, Help("Count <start> and <end> as words (default).", ("--count-ends/--no-count-ends",))
    ]
    vocabulary: Annotated[PathGiven | None, Help("Vocabulary JSON of a released checkpoint.", metavar="FILE")]
    any_features: Annotated[bool, Help("Accept features of another kind than in training.")]


@strict
class RunSettings(TypedDict, total=False):
    """A training, and the inputs that override its file's."""

    out: Annotated[PathGiven | None, Help("Run folder. Default: results/train/NAME.", ("--out", "-o"), "DIR")]
    data: DataFolder | None
    features: Annotated[PathGiven | None, Help("Region features, instead of the file's.", metavar="FILE")]
    captions: Annotated[PathGiven | None, Help("Captions with splits, instead of the file's.", metavar="PATH")]
    vectors: Annotated[PathGiven | None, Help("Word vectors, instead of the file's.", metavar="FILE")]
    seed: Annotated[Seed | None, Help("Seed, instead of the file's; the folder is NAME-seedN.")]


@strict
class MeasureSettings(TypedDict, total=False):
    """An evaluation of a trained network."""

    model: Annotated[PathGiven | None, Help("With --evaluate: another model file than the run's.", metavar="FILE")]
    vocabulary: Annotated[
        PathGiven | None, Help("With --model: JSON of a released checkpoint of SCAN.", metavar="FILE")
    ]
    images: Annotated[Count | None, Help("With --evaluate: number of sampled images.")]
    folds: Annotated[Count | None, Help("With --evaluate: mean over this number of equal parts.")]


@strict
class EvaluationSettings(RunSettings, MeasureSettings, total=False):
    """A training, and the evaluation of its model or of another one."""


@strict
class CurveChoices(TypedDict, total=False):
    """Curves over the number of references, which override a study file's."""

    references_curve: Annotated[bool, Help("Also measure agreement against the number of references.")]
    counts: (
        Annotated[
            str | Sequence[int],
            Help(
                "Numbers of references: 1,2,5 or 1-50. Default: 0 if a metric can, 1, 2, 5, 10, … all.", metavar="LIST"
            ),
        ]
        | None
    )
    draws: (
        Annotated[int, Ge(1), Le(10_000), Help("Random orders of the references, drawn with --seed. Default: 5.")]
        | None
    )


class RetrievalChanges(TypedDict, total=False):
    """Captions and images of a retrieval, in place of the defaults or of a study file's."""

    captions: Annotated[
        PathGiven,
        Help("Captions: a corpus such as flickr8k, or a file. Default: flickr8k.", metavar="NAME|FILE"),
    ]
    split: Annotated[str, Help("Split or domain of the captions: test, dev. Default: all images.", metavar="NAME")]
    sample_size: Annotated[int, Ge(2), Help("Number of sampled images. Default: 1000.", ("--images",), "N")]
    seed: Annotated[Seed, Help("Seed of the sample of images. Default: 0.", metavar="N")]
    references: Annotated[
        int, Ge(1), Help("Number of captions per image that are references. Default: 4.", metavar="N")
    ]


@strict
class CombinationChoices(TypedDict, total=False):
    """Settings for learning a combination."""

    learner: Annotated[
        Literal["auto", "ridge", "logistic", "monotone", "mean-rank"],
        Help("auto (default): ridge for ratings, logistic for preferences; mean-rank uses no judgements."),
    ]
    folds: Annotated[int, Ge(2), Help("Outer folds of images. Default: 10.")]
    inner_folds: Annotated[int, Ge(2), Help("Inner folds, which select the penalty. Default: 5.")]
    seed: Annotated[Seed, Help("Seed of folds, resamples and permutations. Default: 0.")]
    resamples: Annotated[
        Resamples, Help("Number of resamples and permutations. Default: 1,000 and 10,000.", ("--bootstrap",), "N")
    ]
    save: Annotated[
        PathGiven,
        Help("Write the combination as JSON; it is the metric 'combination:FILE'.", metavar="FILE"),
    ]
    out: Annotated[
        PathGiven,
        Help("Write the out-of-fold scores (.csv, .jsonl or .parquet) for --scores.", ("--out", "-o"), "FILE"),
    ]


@strict
class SystemSettings(TypedDict, total=False):
    """A comparison of captioning systems."""

    test: Annotated[
        SystemTest,
        Help("Test of each pair of systems, by image. Default: permutation."),
    ]
    resamples: Annotated[
        Resamples, Help("Resamples of intervals and of --test bootstrap. Default: 1,000.", ("--bootstrap",), "N")
    ]
    permutations: Permutations
    seed: Annotated[Seed, Help("Seed of resamples and permutations. Default: 0.")]
    correction: Annotated[Correction, Help("Correction for the number of comparisons. Default: holm.")]
    all_pairs: Annotated[bool, Help("Compare all pairs of systems, not only each with the baseline.")]
    keep_first: KeepFirst
    split: Split | None
    restrict: Restrict


@strict
class JudgementSettings(TypedDict, total=False):
    """An import of judgements."""

    replace: Annotated[bool, Help("Replace a data set of that name.")]
    scale: Annotated[
        str | tuple[float, float] | None,
        Help("Lowest and highest possible rating, such as 1-5.", metavar="LOW-HIGH"),
    ]
    ignore: Annotated[str | Sequence[str], Help("Ignore this column; repeatable.", metavar="COLUMN")]
    rating: Annotated[str | Sequence[str], Help("Column of ratings, which get its name; repeatable.", metavar="COLUMN")]
    user: Annotated[bool, Help("Store it in your capbench folder (CAPBENCH_HOME), not in the data folder.")]
    data: DataFolder | None


@strict
class TestChoices(TypedDict, total=False):
    """Tests, which override a study file."""

    compare: Annotated[Test, Help("Test all pairs of metrics.", metavar="TEST")] | None
    correction: Annotated[Correction, Help("With --compare. Default: holm.", metavar="NAME")] | None
    alpha: Annotated[OpenShare, Help("Significance level, with --compare. Default: 0.05.", metavar="SHARE")] | None
    permutations: Annotated[Resamples, Help("With --compare. Default: 10,000, or more if needed.", metavar="N")] | None
    unit: Annotated[Unit, Help("Unit of resampling. Default: image.", metavar="NAME")] | None
    seed: Annotated[Seed, Help("Seed of resamples and permutations. Default: 0.", metavar="N")] | None


@strict
class Statistics(TestChoices, total=False):
    """Intervals and tests, which override a study file."""

    bootstrap: Bootstrap | None
    interval: Annotated[BootstrapMethod, Help("With --bootstrap. Default: percentile.", metavar="METHOD")] | None
