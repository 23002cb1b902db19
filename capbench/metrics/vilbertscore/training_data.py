"""How a ViLBERT is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

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
masked regions, alignment, with equal weights. ``contrast``, ``fit`` and ``matching`` are no part of it; they are off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import DataError, FeatureError
from capbench.core.options import Choice, Count, Number, Options, Positive, Text, option
from capbench.datasets.root import DataRoot
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.vilbertscore.network import VilbertOptions
from capbench.metrics.vilbertscore.source import image_rows
from capbench.text.word_pieces import MASK, PAD, WordPieces, learn_word_pieces, read_word_pieces
from capbench.training.captions import CaptionTraining, EvaluationOptions, Pairs, locate
from capbench.training.prepare import caption_source, names_of, say_features, signature_of_features, training_pairs
from capbench.training.regions import Regions, open_probabilities, open_regions
from capbench.training.settings import Fraction, Names, OptimiserOptions, Section

__all__ = [
    "IGNORED",
    "Batch",
    "ClassProbabilities",
    "ImageData",
    "MaskingOptions",
    "PieceOptions",
    "PiecedSplit",
    "RegionClasses",
    "Specials",
    "VilbertData",
    "VilbertEvaluation",
    "VilbertLoss",
    "VilbertTraining",
    "WordStart",
    "batches",
    "mask_words",
    "padded",
    "prepare",
]


@dataclass(frozen=True, kw_only=True)
class PieceOptions(Options):
    """Which word pieces the network knows."""

    size: int = option(30_522, Count(6), "how many are learned at most, special tokens included")
    splits: tuple[str, ...] = option(("train",), Names(("train", "dev")), "whose captions they are learned from")
    file: str | None = option(None, Text("vocab.txt"), "word pieces to take instead, one a line")
    longest: int = option(37, Count(3, 512), "tokens of a caption that are read, [CLS] and [SEP] included")


@dataclass(frozen=True, kw_only=True)
class WordStart(Options):
    """Embeddings of word pieces to begin with: skip-gram vectors of the training captions."""

    epochs: int = option(0, Count(), "passes of skip-gram over the captions; 0: embeddings begin at random")
    window: int = option(5, Count(1), "pieces on each side that are predicted")


@dataclass(frozen=True, kw_only=True)
class MaskingOptions(Options):
    """What is masked, each a probability."""

    words: float = option(0.15, Fraction(), "word pieces; of them 80 % become [MASK], 10 % another piece")
    regions: float = option(0.15, Fraction(), "regions; of them 90 % become zeros")


@dataclass(frozen=True, kw_only=True)
class VilbertLoss(Options):
    """What is learned: a weighted sum of losses (:mod:`capbench.metrics.vilbertscore.training`)."""

    words: float = option(1.0, Number(0), "weight of masked words")
    regions: float = option(1.0, Number(0), "weight of masked regions")
    region_target: Literal["classes", "features"] = option(
        "features",
        Choice("classes", "features"),
        "what is told of a masked region: the detector's class, by Kullback-Leibler divergence from its probabilities "
        "of background and classes where the store holds them, else from a distribution that has the class's "
        "confidence there and shares the rest among all other classes; or the feature itself, by squared error as a "
        "share of the features' variance",
    )
    alignment: float = option(1.0, Number(0), "weight of whether caption and image belong together")
    negatives: Literal["random", "hard"] = option(
        "random",
        Choice("random", "hard"),
        "captions of other images of the batch: any, or more often the more similar ones by 'contrast'",
    )
    contrast: float = option(
        0.0, Number(0), "weight of InfoNCE between a batch's captions and images, as the first connection attends"
    )
    temperature: float = option(0.1, Positive(), "of 'contrast', and of the draw of hard negatives")
    fit: float = option(
        0.0,
        Number(0),
        "weight of alignment told from the word states themselves after the last connection: the mean of their cosines "
        "with one learned direction, so that a word that fits the image and one that does not become less alike",
    )
    fit_level: float = option(
        0.5,
        Number(-1, 1),
        "the mean cosine that parts fitting from unfitting; well above 0, as the metric multiplies a candidate's by a "
        "reference's",
    )
    fit_temperature: float = option(0.2, Positive(), "that the distance from this level is divided by")
    matching: float = option(
        0.0, Number(0), "weight of matching: another caption of an image must match one better than a foreign one does"
    )
    matching_temperature: float = option(0.05, Positive(), "of the differences of F-scores in 'matching'")


@dataclass(frozen=True, kw_only=True)
class VilbertEvaluation(EvaluationOptions):
    """When and on what a network is measured during training; the score is the accuracy of alignment."""

    captions: int | None = option(2, Count(2), "how many captions of each image, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class VilbertTraining(CaptionTraining):
    """A training of ViLBERT as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`VilbertOptions` but the sizes that the data decides.
    """

    network: VilbertOptions = option(
        VilbertOptions(),
        Section(decided=("vocabulary_size", "feature_dim", "region_outputs")),
        "sizes of the network",
    )
    pieces: PieceOptions = option(PieceOptions(), Section(), "which word pieces it knows")
    word_start: WordStart = option(WordStart(), Section(), "embeddings to begin with")
    initial: float = option(0.02, Positive(), "standard deviation of the first weights")
    masking: MaskingOptions = option(MaskingOptions(), Section(), "what is masked")
    loss: VilbertLoss = option(VilbertLoss(), Section(), "what is learned")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=1e-4, warmup=1000), Section(), "how weights are changed")
    evaluation: VilbertEvaluation = option(VilbertEvaluation(), Section(), "when and on what it is measured")
    order: Literal["captions", "rounds"] = option(
        "rounds", Choice("captions", "rounds"), "shuffle all captions, or in rounds over the images"
    )
    precision: Literal["float32", "amp-bfloat16"] = option(
        "float32",
        Choice("float32", "amp-bfloat16"),
        "amp-bfloat16: the large products in bfloat16, on a GPU and on processors that have it; weights stay float32",
    )

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand, or do not fit."""
        loss, pieces, problems = self.loss, self.pieces, []
        if self.features == "ims":
            problems.append("'features: ims' has no boxes; name a feature store that has them")
        if loss.negatives == "hard" and not loss.contrast:
            problems.append("'loss.negatives: hard' needs 'loss.contrast' above 0, which says what is similar")
        if not loss.contrast and loss.temperature != VilbertLoss().temperature:
            problems.append("'loss.temperature' does nothing without 'loss.contrast'")
        if not loss.matching and loss.matching_temperature != VilbertLoss().matching_temperature:
            problems.append("'loss.matching_temperature' does nothing without 'loss.matching'")
        for key in ("fit_level", "fit_temperature"):
            if not loss.fit and getattr(loss, key) != getattr(VilbertLoss(), key):
                problems.append(f"'loss.{key}' does nothing without 'loss.fit'")
        if not any((loss.words, loss.regions, loss.alignment, loss.contrast, loss.fit, loss.matching)):
            problems.append("all weights of 'loss' are 0, so that nothing is learned")
        if pieces.file and pieces.size != PieceOptions().size:
            problems.append("'pieces.size' does nothing where 'pieces.file' is given")
        if pieces.longest > self.network.positions:
            problems.append(
                f"'pieces.longest' is {pieces.longest}, and the network has {self.network.positions} 'positions'"
            )
        return problems


# What a ViLBERT is trained on: captions as word pieces, and images as their regions behind the regions' mean.


@dataclass(frozen=True, eq=False)
class ClassProbabilities:
    """A detector's probabilities of background and classes, as it gave them.

    Attributes:
        shares: (images, regions, 1 + classes).
    """

    shares: Regions

    @property
    def number(self) -> int:
        """Of classes that there are, the background among them."""
        return self.shares.shape[2]

    def distributions(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions + 1, 1 + classes): they add up to 1 but for zeros for the mean row."""
        shares = self.shares.take(images)
        shares = shares / shares.sum(dim=2, keepdim=True)  # half precision rounds each
        return torch.cat((torch.zeros_like(shares[:, :1]), shares), dim=1)

    def describe(self) -> str:
        """In words, for what a training is recognised by."""
        return f"probabilities of {self.number} classes, background included"


@dataclass(frozen=True, eq=False)
class RegionClasses:
    """A detector's classes of regions, where no more of its probabilities is kept.

    Attributes:
        ids: (images, regions) int64.
        scores: (images, regions) float32, the detector's confidence in them.
        number: of classes that there are.
    """

    ids: torch.Tensor
    scores: torch.Tensor
    number: int

    def distributions(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions + 1, classes): the confidence at the class, the rest shared evenly; zeros for the mean row."""
        ids, scores = self.ids[torch.as_tensor(images)], self.scores[torch.as_tensor(images)]
        rest = (1.0 - scores) / max(1, self.number - 1)
        shares = rest[..., None].repeat(1, 1, self.number).scatter(2, ids[..., None], scores[..., None])
        return torch.cat((torch.zeros_like(shares[:, :1]), shares), dim=1)

    def describe(self) -> str:
        """In words, for what a training is recognised by."""
        return f"most probable of {self.number} classes and its confidence"


class ImageData:
    """Images of a split as the network reads them (:func:`capbench.metrics.vilbertscore.source.image_rows`).

    Args:
        regions: their features.
        places: (images, regions + 1, 5) of :func:`image_rows`.
        classes: of what class each region is, if that is what is told of a masked one.

    Attributes:
        rows: of an image, its mean included.
        feature_dim: columns of a feature.
        target_dim: numbers that are told of a masked region.
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
        """Features (b, n, d), places (b, n, 5) and what is told of regions (b, n, k) of some images."""
        regions = self.regions.take(images)
        features = torch.cat((regions.mean(dim=1, keepdim=True), regions), dim=1)
        targets = features if self.classes is None else self.classes.distributions(images)
        return features, self._places[torch.as_tensor(images)], targets

    def variance(self, images: int = 1000) -> float:
        """Variance of the first images' region features, over all columns, each about its mean."""
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
    """What a training reads.

    Attributes:
        train: what is learned from.
        dev: what is measured.
        pieces: learned, or read.
        features: the features' fingerprint, sixteen hex digits.
        names: what names the data, for resuming and for the model's facts.
    """

    train: PiecedSplit
    dev: PiecedSplit
    pieces: WordPieces
    features: str | None
    names: dict[str, str]


def prepare(
    config: VilbertTraining, root: DataRoot | None = None, say: Callable[[str], None] = lambda _text: None
) -> VilbertData:
    """Read captions and features, and learn word pieces.

    Args:
        config: the settings.
        root: the data folder, for relative paths that are not in the current folder.
        say: called with one line for each thing that takes its time.

    Raises:
        CapbenchError: something is missing or does not fit; file and row are named.
    """
    pairs = training_pairs(caption_source(config, root), config.features, say)
    pieces = _pieces(config, pairs, root)
    say(f"word pieces: {len(pieces):,}")
    _say_what_is_cut(config.pieces.longest, pairs, pieces, say)
    evaluation = config.evaluation
    dev = pairs["dev"].sample(evaluation.images, evaluation.captions, evaluation.seed)
    store_path = locate(config.features, root, "features")
    train, measured = (_split(config, of_split, pieces, store_path) for of_split in (pairs["train"], dev))
    say_features(train.images.regions, say)
    features, named = signature_of_features(config, root)
    names = names_of(pairs["train"], dev, {"pieces": pieces.sha256}, named, train.images.regions)
    classes = train.images.classes
    if classes is not None:
        names["region targets"] = classes.describe()
        say(f"masked regions: {classes.describe()}")
    return VilbertData(train, measured, pieces, features, names)


def _say_what_is_cut(longest: int, pairs: dict[str, Pairs], pieces: WordPieces, say: Callable[[str], None]) -> None:
    """Tell how many captions are longer than what is read of them."""
    for role, of_split in pairs.items():
        number = sum(len(pieces.sequence(text, longest + 1)) > longest for text in of_split.captions)
        if number:
            say(
                f"{role}: {number:,} of {len(of_split.captions):,} captions have more than {longest} word pieces "
                "('pieces.longest'), and are cut there"
            )


def _pieces(config: VilbertTraining, pairs: dict[str, Pairs], root: DataRoot | None) -> WordPieces:
    options = config.pieces
    if options.file is None:
        texts = [text for role in dict.fromkeys(options.splits) for text in pairs[role].captions]
        return learn_word_pieces(texts, options.size)
    path = locate(options.file, root, "word pieces")
    pieces = read_word_pieces(path)
    if MASK not in pieces.places:
        raise DataError(f"has no {MASK}, which training needs", path=path, hint="Add it as a line, or learn pieces")
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
    """(images, regions + 1, 5): where the regions lie. Raises FeatureError where that is not known."""
    if not store.header.boxes:
        raise FeatureError(
            "has no boxes, and the network reads where regions lie",
            path=store.paths[0],
            hint="Extract or import features with boxes",
        )
    return np.stack([image_rows(store[image], regions).places for image in images])


def _classes(store: FeatureStore, images: Sequence[str], regions: int) -> RegionClasses:
    """Classes of the first regions of images. Raises FeatureError where the store does not tell them."""
    names = store.header.class_names
    if names is None or not {"class_ids", "class_scores"} <= set(store.header.fields):
        raise FeatureError(
            "holds neither probabilities of classes nor classes with their names and confidences, one of which "
            "'loss.region_target: classes' tells",
            path=store.paths[0],
            hint="Say 'region_target: features', use a detector's features with classes, or import ViLBERT's files "
            "with --class-probabilities",
        )
    fields = [store[image].flat() for image in images]
    ids = torch.from_numpy(np.stack([of_image["class_ids"][:regions] for of_image in fields]).astype(np.int64))
    scores = np.stack([of_image["class_scores"][:regions] for of_image in fields]).astype(np.float32)
    return RegionClasses(ids, torch.from_numpy(scores).clamp(0, 1), len(names))


# From captions and regions to batches: what is masked, and which captions go together.

IGNORED = -100
"""In place of a word piece that is not masked, among those that are to be told."""
_MASKED, _REPLACED = 0.8, 0.1  # of the chosen word pieces; the rest stays (Devlin et al. 2019, section 3.1)
_ZEROED = 0.9  # of the chosen regions (Lu et al. 2019, section 2.3)


@dataclass(frozen=True)
class Specials:
    """Numbers of the tokens that are no words."""

    pad: int
    mask: int
    ordinary: NDArray[np.int64]

    @classmethod
    def of(cls, pieces: WordPieces) -> Specials:
        """Those of some word pieces; ``ordinary`` are all pieces but special tokens."""
        special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces.pieces]
        return cls(pieces.places[PAD], pieces.places[MASK], np.flatnonzero(~np.array(special)))


@dataclass(frozen=True)
class Batch:
    """What one step sees, of b images: two captions of each.

    Attributes:
        features: (b, n, d) float32, the mean of the regions first; zeros where a region is masked.
        places: (b, n, 5) float32.
        hidden: (b, n) bool, which regions are to be told.
        targets: (b, n, k) float32 what is to be told of a region.
        ids: (2b, m) int64 word pieces: the images' captions, masked, then another caption of each.
        present: (2b, m) bool, what of them is no padding.
        words: (b, m) int64 the pieces that are masked, elsewhere :data:`IGNORED`.
        image_of: (b,) int64 place of the images among those of the split.
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
    masking: MaskingOptions,
    *,
    seed: int,
    first_step: int,
) -> Iterator[Batch]:
    """Batches in order; what is drawn follows from the seed and the step, so that nothing hangs on what came before.

    Args:
        orders: captions of each batch.
        pairs: what they are captions of.
        captions: word pieces of all captions, ``[CLS]`` first.
        images: of the same split.
        specials: of the word pieces.
        masking: how much is masked.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
    """
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    firsts = np.cumsum(counts) - counts
    for step, chosen in enumerate(orders, first_step):
        rng = np.random.default_rng((seed, 2, step))
        image_of = pairs.image_of[chosen]
        # Another caption of the image: one of the captions behind it, around the end of the image's own.
        others = np.maximum(counts[image_of] - 1, 1)
        ahead = (counts[image_of] > 1) * (1 + rng.integers(others))
        second = firsts[image_of] + (chosen - firsts[image_of] + ahead) % counts[image_of]
        ids, present = padded([captions[i] for i in [*chosen.tolist(), *second.tolist()]], specials.pad)
        first_ids, words = mask_words(ids[: len(chosen)], present[: len(chosen)], masking.words, specials, rng)
        ids[: len(chosen)] = first_ids
        features, places, targets = images.take(image_of)
        hidden = rng.random(features.shape[:2]) < masking.regions
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
    """Captions as (b, longest) numbers, padded at the end, and which of them are no padding."""
    lengths = np.array([len(caption) for caption in captions])
    ids = np.full((len(captions), int(lengths.max())), pad, dtype=np.int64)
    for row, caption in enumerate(captions):
        ids[row, : len(caption)] = caption
    return ids, np.arange(ids.shape[1])[None, :] < lengths[:, None]


def mask_words(
    ids: NDArray[np.int64], present: NDArray[np.bool_], rate: float, specials: Specials, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask word pieces as BERT does.

    Args:
        ids: (b, m).
        present: (b, m) what is no padding.
        rate: how many are chosen; of them 80 % become ``[MASK]`` and 10 % any other piece.
        specials: what is never chosen, and what pieces are drawn from.
        rng: draws.

    Returns:
        The masked ids, and what the chosen ones were, :data:`IGNORED` elsewhere.
    """
    chosen = present & np.isin(ids, specials.ordinary) & (rng.random(ids.shape) < rate)
    words = np.where(chosen, ids, IGNORED)
    way = rng.random(ids.shape)
    masked = np.where(chosen & (way < _MASKED), specials.mask, ids)
    replaced = chosen & (way >= _MASKED) & (way < _MASKED + _REPLACED)
    return np.where(replaced, rng.choice(specials.ordinary, ids.shape), masked), words
