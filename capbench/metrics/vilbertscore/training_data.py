"""Training data of ViLBERT: settings of training files, captions as word pieces, images as rows, and batches.

Schema version 1; all keys except ``schema``, ``name``, ``captions`` and ``features`` are optional::

    schema: 1
    name: vilbert-flickr8k           # the run folder's name
    captions: flickr8k               # file or folder, in the current or the data folder
    features: features/flickr8k.h5   # a store with boxes
    pieces: {size: 4000}             # word pieces, learned from the captions
    network: {text_dim: 192, connections: 2}
    loss: {words: 1.0, regions: 1.0, alignment: 1.0}
    optimiser: {lr: 0.0005, warmup: 100}

Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`. Defaults are
the sizes and the three losses of the published pre-training (Lu et al., NeurIPS 2019, section 2.3): masked words,
masked regions and alignment, with equal weights. ``contrast``, ``fit`` and ``matching`` are additions, by default off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import DataError, FeatureError
from capbench.core.options import Choice, Count, Number, Options, Positive, Text, option
from capbench.core.training_record import TrainingRecord
from capbench.datasets.root import DataRoot
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.vilbertscore.files import BERT_VOCABULARY
from capbench.metrics.vilbertscore.network import VilbertOptions
from capbench.metrics.vilbertscore.source import image_rows
from capbench.text.word_pieces import MASK, PAD, WordPieces, learn_word_pieces, read_word_pieces
from capbench.training.captions import CaptionTraining, EvaluationOptions, Pairs, locate, training_record
from capbench.training.prepare import (
    Regions,
    caption_source,
    names_of,
    open_probabilities,
    open_regions,
    say_features,
    signature_of_features,
    training_pairs,
)
from capbench.training.settings import OptimiserOptions, Section


@dataclass(frozen=True, kw_only=True)
class PieceOptions(Options):
    """Word pieces of the network."""

    size: int = option(30_522, Count(6), "maximum number of learned word pieces, including special tokens")
    longest: int = option(37, Count(3, 512), "maximum number of tokens of a caption, with [CLS] and [SEP]")


@dataclass(frozen=True, kw_only=True)
class WordStart(Options):
    """Initial embeddings of word pieces: skip-gram vectors of the training captions."""

    epochs: int = option(0, Count(), "epochs of skip-gram on the captions; 0: random embeddings")


@dataclass(frozen=True, kw_only=True)
class TextStart(Options):
    """Initial weights of the text stream: those of a BERT, as in the publication."""

    folder: str | None = option(
        None,
        Text("bert-base-uncased"),
        "folder of a BERT with config.json, weights and vocab.txt, from which the text stream takes its first layers, "
        "embeddings, word pieces and head of masked words; null: random weights",
    )


@dataclass(frozen=True, kw_only=True)
class VilbertLoss(Options):
    """Weights and settings of the losses (:mod:`capbench.metrics.vilbertscore.training`)."""

    words: float = option(1.0, Number(0), "weight of masked words")
    regions: float = option(1.0, Number(0), "weight of masked regions")
    region_target: Literal["classes", "features"] = option(
        "features",
        Choice("classes", "features"),
        "predicted property of a masked region. classes: the detector's class, by Kullback-Leibler divergence from its "
        "probabilities of background and classes if the store has them, otherwise from a distribution with the "
        "confidence of the class and equal shares of the rest for all other classes; features: the feature, by squared "
        "error as a fraction of the features' variance",
    )
    alignment: float = option(1.0, Number(0), "weight of the alignment of caption and image")
    negatives: Literal["random", "hard"] = option(
        "random",
        Choice("random", "hard"),
        "captions of other images of the batch: random with equal probabilities, or hard, in proportion to their "
        "similarity by 'contrast'",
    )
    contrast: float = option(
        0.0, Number(0), "weight of InfoNCE between captions and images of a batch, by the first connection's attention"
    )
    fit: float = option(
        0.0,
        Number(0),
        "weight of alignment predicted from the word states after the last connection: their mean cosine with one "
        "learned direction, which separates words that fit the image from others",
    )
    matching: float = option(
        0.0,
        Number(0),
        "weight of matching: two captions of an image must match better than one of them and a caption of another "
        "image",
    )


@dataclass(frozen=True, kw_only=True)
class VilbertEvaluation(EvaluationOptions):
    """Evaluation on the dev split during training; the score is the accuracy of alignment."""

    captions: int | None = option(2, Count(2), "number of captions of each image, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class VilbertTraining(CaptionTraining):
    """Settings of a ViLBERT training, unresolved.

    ``network`` contains all fields of :class:`VilbertOptions` except the sizes that follow from the data.
    """

    network: VilbertOptions = option(
        VilbertOptions(),
        Section(decided=("vocabulary_size", "feature_dim", "region_outputs")),
        "sizes of the network",
    )
    pieces: PieceOptions = option(PieceOptions(), Section(), "word pieces")
    word_start: WordStart = option(WordStart(), Section(), "initial embeddings of word pieces")
    text_start: TextStart = option(TextStart(), Section(), "initial weights of the text stream")
    initial: float = option(0.02, Positive(), "standard deviation of the initial weights")
    loss: VilbertLoss = option(VilbertLoss(), Section(), "losses and their weights")
    optimiser: OptimiserOptions = option(
        OptimiserOptions(lr=1e-4, warmup=1000), Section(), "learning rate and clipping"
    )
    evaluation: VilbertEvaluation = option(VilbertEvaluation(), Section(), "evaluations on the dev split")
    order: Literal["captions", "rounds"] = option(
        "rounds", Choice("captions", "rounds"), "captions: shuffle all captions; rounds: in rounds over the images"
    )
    precision: Literal["float32", "amp-bfloat16"] = option(
        "float32",
        Choice("float32", "amp-bfloat16"),
        "amp-bfloat16: large products in bfloat16, on a GPU and on processors that support it; weights in float32",
    )

    def deciding(self) -> dict[str, Any]:
        """As for all trainings, without the folder of ``text_start``: its weights and word pieces count as data."""
        settings = super().deciding()
        del settings["text_start.folder"]
        return settings

    def problems(self) -> list[str]:
        """Settings without effect, and conflicting settings."""
        loss, pieces, problems = self.loss, self.pieces, []
        if self.features == "ims":
            problems.append("'features: ims' has no boxes; use a feature store with boxes")
        if loss.negatives == "hard" and not loss.contrast:
            problems.append("'loss.negatives: hard' requires 'loss.contrast' above 0, which defines the similarity")
        if not any((loss.words, loss.regions, loss.alignment, loss.contrast, loss.fit, loss.matching)):
            problems.append("all weights of 'loss' are 0; at least one must be above 0")
        if self.text_start.folder is not None:
            if pieces.size != PieceOptions().size:
                problems.append("with 'text_start.folder', word pieces are those of the folder; omit 'pieces.size'")
            if self.word_start.epochs:
                problems.append("with 'text_start.folder', word embeddings are those of the folder; omit 'word_start'")
        if pieces.longest > self.network.positions:
            problems.append(
                f"'pieces.longest' is {pieces.longest}, but the network has {self.network.positions} 'positions'"
            )
        return problems


# Data: captions as word pieces, and images as rows (the mean of the regions, then the regions).


@dataclass(frozen=True, eq=False)
class ClassProbabilities:
    """A detector's probabilities of background and classes.

    Attributes:
        shares: (images, regions, 1 + classes).
    """

    shares: Regions

    @property
    def number(self) -> int:
        """Number of classes, including the background."""
        return self.shares.shape[2]

    def distributions(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions + 1, 1 + classes): sums of 1 for regions, zeros for the mean row."""
        shares = self.shares.take(images)
        shares = shares / shares.sum(dim=2, keepdim=True)  # they are rounded to half precision
        return torch.cat((torch.zeros_like(shares[:, :1]), shares), dim=1)

    def describe(self) -> str:
        """Description that identifies the data of a training; stored, so the wording must not change."""
        return f"probabilities of {self.number} classes, background included"


@dataclass(frozen=True, eq=False)
class RegionClasses:
    """A detector's most probable class of each region, without the other probabilities.

    Attributes:
        ids: (images, regions) int64.
        scores: (images, regions) float32, the detector's confidence.
        number: number of classes.
    """

    ids: torch.Tensor
    scores: torch.Tensor
    number: int

    def distributions(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions + 1, classes): the class's confidence, equal shares of the rest; zeros for the mean row."""
        ids, scores = self.ids[torch.as_tensor(images)], self.scores[torch.as_tensor(images)]
        rest = (1.0 - scores) / max(1, self.number - 1)
        shares = rest[..., None].repeat(1, 1, self.number).scatter(2, ids[..., None], scores[..., None])
        return torch.cat((torch.zeros_like(shares[:, :1]), shares), dim=1)

    def describe(self) -> str:
        """Description that identifies the data of a training; stored, so the wording must not change."""
        return f"most probable of {self.number} classes and its confidence"


class ImageData:
    """Network inputs for the images of a split (:func:`capbench.metrics.vilbertscore.source.image_rows`).

    Args:
        regions: region features.
        places: (images, regions + 1, 5) from :func:`image_rows`.
        classes: classes of the regions, if they are the targets of masked regions.

    Attributes:
        rows: number of rows of an image, including the mean.
        feature_dim: number of columns of a feature.
        target_dim: number of outputs for a masked region.
    """

    def __init__(
        self,
        regions: Regions,
        places: NDArray[np.float32],
        classes: ClassProbabilities | RegionClasses | None = None,
    ) -> None:
        self.regions, self.classes, self._places = regions, classes, torch.from_numpy(places)
        self.rows, self.feature_dim = regions.shape[1] + 1, regions.shape[2]
        self.target_dim = self.feature_dim if classes is None else classes.number

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features (b, n, d), places (b, n, 5) and targets (b, n, k) of the regions of some images."""
        regions = self.regions.take(images)
        features = torch.cat((regions.mean(dim=1, keepdim=True), regions), dim=1)
        targets = features if self.classes is None else self.classes.distributions(images)
        return features, self._places[torch.as_tensor(images)], targets

    def variance(self, images: int = 1000) -> float:
        """Variance of the first images' region features: mean over all columns of the variance about its mean."""
        features = self.regions.take(range(min(images, self.regions.shape[0]))).flatten(0, 1)
        return float(features.var(dim=0, correction=0).mean())


@dataclass(frozen=True)
class PiecedSplit:
    """A split with its captions as word pieces.

    Attributes:
        pairs: images and captions.
        captions: word pieces, ``[CLS]`` first, in the order of ``pairs.captions``.
        images: in the order of ``pairs.images``.
    """

    pairs: Pairs
    captions: list[list[int]]
    images: ImageData


@dataclass(frozen=True)
class VilbertData:
    """Data of a training.

    Attributes:
        train: the training split.
        dev: the split for evaluation.
        pieces: the word pieces.
        features: id of the features' fingerprint, sixteen hex digits.
        names: identifiers of the data, for resuming and for the model's facts.
        record: photographs and captions of the training.
        bert: the folder of ``text_start``; None for random weights.
    """

    train: PiecedSplit
    dev: PiecedSplit
    pieces: WordPieces
    features: str | None
    names: dict[str, str]
    record: TrainingRecord
    bert: Path | None = None


def prepare(
    config: VilbertTraining, root: DataRoot | None = None, say: Callable[[str], None] = lambda _text: None
) -> VilbertData:
    """Read captions and features, and learn word pieces.

    Args:
        config: the settings.
        root: the data folder, for relative paths that are not in the current folder.
        say: called with progress messages.

    Raises:
        CapbenchError: something is missing or invalid, with file and row.
    """
    pairs = training_pairs(caption_source(config, root), config.features, say)
    pieces = _pieces(config, pairs, root)
    say(f"word pieces: {len(pieces):,}")
    _report_truncated(config.pieces.longest, pairs, pieces, say)
    evaluation = config.evaluation
    dev = pairs["dev"].sample(evaluation.images, evaluation.captions, evaluation.seed)
    store_path = locate(config.features, root, "features")
    train, dev_split = (_split(config, of_split, pieces, store_path) for of_split in (pairs["train"], dev))
    say_features(train.images.regions, say)
    features, named = signature_of_features(config, root)
    names = names_of(pairs["train"], dev, {"pieces": pieces.sha256}, named, train.images.regions)
    classes = train.images.classes
    if classes is not None:
        names["region targets"] = classes.describe()
        say(f"masked regions: {classes.describe()}")
    start = config.text_start.folder
    bert = None if start is None else locate(start, root, "a BERT")
    record = training_record(pairs["train"], pairs["dev"])
    return VilbertData(train, dev_split, pieces, features, names, record, bert)


def _report_truncated(longest: int, pairs: dict[str, Pairs], pieces: WordPieces, say: Callable[[str], None]) -> None:
    """Report the numbers of captions that are truncated."""
    for role, of_split in pairs.items():
        number = sum(len(pieces.sequence(text, longest + 1)) > longest for text in of_split.captions)
        if number:
            say(
                f"{role}: {number:,} of {len(of_split.captions):,} captions have more than {longest} word pieces "
                "('pieces.longest') and are truncated"
            )


def _pieces(config: VilbertTraining, pairs: dict[str, Pairs], root: DataRoot | None) -> WordPieces:
    start = config.text_start.folder
    if start is None:
        return learn_word_pieces(pairs["train"].captions, config.pieces.size)
    path = locate(start, root, "a BERT") / BERT_VOCABULARY
    pieces = read_word_pieces(path)
    if MASK not in pieces.places:
        raise DataError(
            f"has no {MASK}, which training requires",
            code="missing-value",
            value=MASK,
            path=path,
            hint="Use another folder, or omit 'text_start' to learn word pieces",
        )
    return pieces


def _split(config: VilbertTraining, pairs: Pairs, pieces: WordPieces, store_path: Path) -> PiecedSplit:
    regions = open_regions(pairs, store_path, config.regions, config.memory_mb)
    number = regions.shape[1]
    classes: ClassProbabilities | RegionClasses | None = None
    with open_store(store_path) as store:
        places = _places(store, pairs.images, number)
        if config.loss.region_target == "classes":
            shares = open_probabilities(pairs.images, store_path, number, config.memory_mb)
            classes = _classes(store, pairs.images, number) if shares is None else ClassProbabilities(shares)
    captions = [pieces.sequence(text, config.pieces.longest) for text in pairs.captions]
    return PiecedSplit(pairs, captions, ImageData(regions, places, classes))


def _places(store: FeatureStore, images: Sequence[str], regions: int) -> NDArray[np.float32]:
    """(images, regions + 1, 5): positions of the regions. Raises FeatureError if there are no boxes."""
    if not store.header.boxes:
        raise FeatureError(
            "has no boxes, but the network reads the positions of regions",
            code="wrong-features",
            path=store.paths[0],
            hint="Extract or import features with boxes",
        )
    return np.stack([image_rows(store[image], regions).places for image in images])


def _classes(store: FeatureStore, images: Sequence[str], regions: int) -> RegionClasses:
    """Classes of the first regions of images. Raises FeatureError if the store does not contain them."""
    names = store.header.class_names
    if names is None or not {"class_ids", "class_scores"} <= set(store.header.fields):
        raise FeatureError(
            "has neither class probabilities nor classes with names and confidences, one of which "
            "'loss.region_target: classes' requires",
            code="wrong-features",
            path=store.paths[0],
            hint="Set 'region_target: features', use a detector's features with classes, or import ViLBERT's files "
            "with --class-probabilities",
        )
    fields = [store[image].flat() for image in images]
    ids = torch.from_numpy(np.stack([of_image["class_ids"][:regions] for of_image in fields]).astype(np.int64))
    scores = np.stack([of_image["class_scores"][:regions] for of_image in fields]).astype(np.float32)
    return RegionClasses(ids, torch.from_numpy(scores).clamp(0, 1), len(names))


# Batches: masking, and pairs of captions of the same image.

IGNORED = -100
"""Target of word pieces that are not masked."""
_SELECTED = 0.15  # of the word pieces and of the regions
_MASKED, _REPLACED = 0.8, 0.1  # of the selected word pieces; others stay (Devlin et al. 2019, section 3.1)
_ZEROED = 0.9  # of the selected regions (Lu et al. 2019, section 2.3)


@dataclass(frozen=True)
class Specials:
    """Ids of special tokens, and of all other word pieces."""

    pad: int
    mask: int
    ordinary: NDArray[np.int64]

    @classmethod
    def of(cls, pieces: WordPieces) -> Specials:
        """Ids for these word pieces; ``ordinary`` are all pieces except special tokens."""
        special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces.pieces]
        return cls(pieces.places[PAD], pieces.places[MASK], np.flatnonzero(~np.array(special)))


@dataclass(frozen=True)
class Batch:
    """Data of one training step: b images with two captions each.

    Attributes:
        features: (b, n, d) float32, the mean of the regions first; zeros for masked regions.
        places: (b, n, 5) float32.
        hidden: (b, n) bool, True for regions to be predicted.
        targets: (b, n, k) float32 targets of the regions.
        ids: (2b, m) int64 word pieces: the images' captions, masked, then another caption of each.
        present: as ``ids``, bool, False for padding.
        words: (b, m) int64 the masked word pieces, elsewhere :data:`IGNORED`.
        image_of: (b,) int64 index of each image in the split.
    """

    features: torch.Tensor
    places: torch.Tensor
    hidden: torch.Tensor
    targets: torch.Tensor
    ids: torch.Tensor
    present: torch.Tensor
    words: torch.Tensor
    image_of: torch.Tensor


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    images: ImageData,
    specials: Specials,
    *,
    seed: int,
    first_step: int,
) -> Iterator[Batch]:
    """Batches in order. Random numbers depend only on seed and step, so that training can resume anywhere.

    Args:
        orders: captions of each batch.
        pairs: images and captions.
        captions: word pieces of all captions, ``[CLS]`` first.
        images: images of the same split.
        specials: ids of special tokens.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
    """
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    firsts = np.cumsum(counts) - counts
    for step, chosen in enumerate(orders, first_step):
        rng = np.random.default_rng((seed, 2, step))
        image_of = pairs.image_of[chosen]
        # Another caption of the image: one of those after it, cyclically.
        others = np.maximum(counts[image_of] - 1, 1)
        ahead = (counts[image_of] > 1) * (1 + rng.integers(others))
        second = firsts[image_of] + (chosen - firsts[image_of] + ahead) % counts[image_of]
        ids, present = padded([captions[i] for i in [*chosen.tolist(), *second.tolist()]], specials.pad)
        first_ids, words = mask_words(ids[: len(chosen)], present[: len(chosen)], _SELECTED, specials, rng)
        ids[: len(chosen)] = first_ids
        features, places, targets = images.take(image_of)
        hidden = rng.random(features.shape[:2]) < _SELECTED
        hidden[:, 0] = False  # the mean of all regions
        zeroed = torch.from_numpy(hidden & (rng.random(hidden.shape) < _ZEROED))
        yield Batch(
            features.masked_fill(zeroed[..., None], 0.0),
            places,
            torch.from_numpy(hidden),
            targets,
            torch.from_numpy(ids),
            torch.from_numpy(present),
            torch.from_numpy(words),
            torch.from_numpy(image_of),
        )


def padded(captions: Sequence[Sequence[int]], pad: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Captions as (b, longest) ids, padded at the end, and a mask that is False for padding."""
    lengths = np.array([len(caption) for caption in captions])
    ids = np.full((len(captions), int(lengths.max())), pad, dtype=np.int64)
    for row, caption in enumerate(captions):
        ids[row, : len(caption)] = caption
    return ids, np.arange(ids.shape[1])[None, :] < lengths[:, None]


def mask_words(
    ids: NDArray[np.int64], present: NDArray[np.bool_], rate: float, specials: Specials, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask word pieces as in BERT.

    Args:
        ids: (b, m).
        present: (b, m) False for padding.
        rate: probability of selection; 80 % of the selected pieces become ``[MASK]`` and 10 % a random piece.
        specials: ids of special tokens, which are never selected, and of all other pieces.
        rng: random numbers.

    Returns:
        The masked ids, and the original ids of selected pieces, :data:`IGNORED` elsewhere.
    """
    chosen = present & np.isin(ids, specials.ordinary) & (rng.random(ids.shape) < rate)
    words = np.where(chosen, ids, IGNORED)
    way = rng.random(ids.shape)
    masked = np.where(chosen & (way < _MASKED), specials.mask, ids)
    replaced = chosen & (way >= _MASKED) & (way < _MASKED + _REPLACED)
    return np.where(replaced, rng.choice(specials.ordinary, ids.shape), masked), words
