"""What a ViLBERT is trained on: captions as word pieces, and images as their regions behind the regions' mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.datasets.root import DataRoot
from capbench.errors import DataError, FeatureError
from capbench.features.store import FeatureStore, open_store
from capbench.models.vilbert.inputs import image_rows
from capbench.text.word_pieces import MASK, WordPieces, learn_word_pieces, read_word_pieces
from capbench.training.captions import Pairs, locate
from capbench.training.prepare import caption_source, names_of, say_features, signature_of_features, training_pairs
from capbench.training.regions import Regions, open_probabilities, open_regions
from capbench.training.vilbert.config import VilbertTraining

__all__ = ["ClassProbabilities", "ImageData", "PiecedSplit", "RegionClasses", "VilbertData", "prepare"]


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
    """Images of a split as the network reads them (:func:`capbench.models.vilbert.inputs.image_rows`).

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
