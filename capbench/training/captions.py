"""Captions with images and splits as training data, and the settings of trainers that use them.

Three sources are supported and recognised by their files:

- captions with named splits: Karpathy's JSON (``train``, ``restval``, ``val``, ``test``), Multi30k's folder;
- Flickr8k's folder: ``Flickr8k.token.txt`` with ``Flickr_8k.{train,dev,test}Images.txt``;
- the folder format of the original SCAN: ``{split}_caps.txt`` (one caption per line), ``{split}_ids.txt`` and
  ``{split}_ims.npy`` (images, regions, columns): one row for each caption, or one row for every five captions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError, check_choice
from capbench.core.options import Choice, Count, Flag, Number, Options, Positive, Text, option
from capbench.core.records import image_id
from capbench.core.training_record import DEV, TrainingRecord, captions_of, photographs_of
from capbench.datasets.captions import read_captions_file
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import Captions, read_token
from capbench.training.settings import Fraction, Names, Section, Training, ValidationOptions
from capbench.weights.training_files import read_training_record

ROLES = ("train", "dev", "test")
"""Roles of splits."""
ARRAYS = "ims"
"""Value of ``features`` for the arrays ``{split}_ims.npy`` in the captions' folder instead of a feature store."""

# Default names of a role's splits; of the first matching tuple, all existing splits are used.
_NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "train": (("train", "restval"),),
    "dev": (("dev",), ("val",), ("valid",), ("validation",)),
    "test": (("test",), ("test_2016",)),
}
_CAPTIONS_AN_IMAGE = 5


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """The splits for each role; None: the default names of the format.

    Smaller samples of ``images`` are contained in larger ones, for learning curves.
    """

    train: tuple[str, ...] | None = option(None, Names(), "splits for training")
    dev: tuple[str, ...] | None = option(None, Names(), "splits for validation during training")
    test: tuple[str, ...] | None = option(None, Names(), "splits for testing the trained model")
    images: int | None = option(
        None,
        Count(1),
        "number of training images, a sample that is the same for all seeds of a training; null: all",
        quiet=True,
    )


@dataclass(frozen=True)
class Pairs:
    """Captions of one or several splits with their images.

    Attributes:
        images: distinct ids.
        captions: texts; the captions of an image are adjacent.
        image_of: (captions,) index in ``images`` of each caption's image.
        arrays: SCAN's feature arrays, each with the rows of its images; empty for other features.
        source: the captions' file or folder, for messages.
        named: False if ``images`` are not names of image files, but rows of an array.
    """

    images: tuple[str, ...]
    captions: tuple[str, ...]
    image_of: NDArray[np.int64]
    source: Path
    arrays: tuple[tuple[Path, NDArray[np.int64]], ...] = ()
    named: bool = True

    def sample(self, images: int | None, captions: int | None, seed: int) -> Pairs:
        """A random sample of images in their original order, with the first ``captions`` captions of each.

        None, or a number that exceeds the available ones, selects all.
        """
        n = len(self.images)
        selected = np.arange(n)
        if images is not None and images < n:
            selected = np.sort(np.random.default_rng(seed).permutation(n)[:images])
        place = np.full(n, -1, dtype=np.int64)
        place[selected] = np.arange(len(selected))
        seen = np.zeros(n, dtype=np.int64)
        chosen = []
        for i, image in enumerate(self.image_of.tolist()):
            if place[image] >= 0 and (captions is None or seen[image] < captions):
                chosen.append(i)
            seen[image] += 1
        arrays, first = [], 0
        for path, rows in self.arrays:
            inside = selected[(selected >= first) & (selected < first + len(rows))] - first
            arrays.append((path, rows[inside]))
            first += len(rows)
        return Pairs(
            tuple(self.images[i] for i in selected.tolist()),
            tuple(self.captions[i] for i in chosen),
            place[self.image_of[chosen]],
            self.source,
            tuple(arrays),
            self.named,
        )

    def fingerprint(self) -> str:
        """Sixteen hex digits that identify images and captions in their order."""
        import hashlib

        digest = hashlib.blake2b(digest_size=8)
        for image, text in zip(self.image_of.tolist(), self.captions, strict=True):
            digest.update(f"{self.images[image]}\x1f{text}\n".encode())
        return digest.hexdigest()


class CaptionSource:
    """Captions with splits; made by :func:`open_captions`."""

    def __init__(self, path: Path, splits: SplitOptions, features: str, captions: Captions | None) -> None:
        self.path = path
        self._splits, self._features = splits, features
        self._captions = captions  # None: SCAN's folder format

    def names(self) -> list[str]:
        """Names of the available splits."""
        if self._captions is not None:
            return sorted(set(self._captions.groups.values()))
        return sorted(p.name.removesuffix("_caps.txt") for p in self.path.glob("*_caps.txt"))

    def splits(self, role: str) -> tuple[str, ...]:
        """The splits of a role (``train``, ``dev``, ``test``): as configured, or by their default names.

        Raises:
            DataError: there is no such split.
        """
        names = self.names()
        requested: tuple[str, ...] | None = getattr(self._splits, role)
        if requested is not None:
            for name in requested:
                check_choice("split", name, names, DataError, path=self.path)
            return requested
        for usual in _NAMES[role]:
            splits = tuple(name for name in usual if name in names)
            if splits:
                return splits
        raise DataError(
            f"has no split with a default name for {role} (splits: {', '.join(names)})",
            code="missing-option",
            value=role,
            path=self.path,
            hint=f"Name it in the training file, as 'splits: {{{role}: NAME}}'",
        )

    def pairs(self, role: str) -> Pairs:
        """The captions of a role, of ``splits.images`` images for ``train``.

        Raises:
            CapbenchError: a file is missing or invalid, with file and row, or there are fewer images than
                ``splits.images``.
        """
        pairs, wanted = self._pairs(role), self._splits.images
        if role != "train" or wanted is None:
            return pairs
        if wanted > len(pairs.images):
            raise DataError(
                f"has {len(pairs.images):,} training images, fewer than 'splits.images'",
                code="too-few",
                value=wanted,
                path=self.path,
                hint="Lower the number, or omit it for all images",
            )
        return pairs.sample(wanted, None, seed=0)

    def _pairs(self, role: str) -> Pairs:
        if self._captions is None:
            return _joined([_scan_split(self.path, name, self._features) for name in self.splits(role)])
        chosen = self._captions.of_groups(*self.splits(role))
        if self._features == ARRAYS:
            raise UsageError(
                "'features: ims' refers to arrays of SCAN's folder format, but the captions have another format",
                code="conflict",
                value=self._features,
                path=self.path,
                hint="Set 'features' to a feature store",
            )
        counts = [len(texts) for texts in chosen.values()]
        return Pairs(
            tuple(chosen),
            tuple(text for texts in chosen.values() for text in texts),
            np.repeat(np.arange(len(counts)), counts),
            self.path,
        )


def training_record(train: Pairs, dev: Pairs | None = None, vectors: Path | None = None) -> TrainingRecord:
    """The record of a training.

    Args:
        train: its captions and images.
        dev: those that select the weights.
        vectors: initial word vectors, whose training captions are part of the record.
    """
    record = TrainingRecord(
        "",
        photographs_of(train.images) if train.named else None,
        captions_of(train.captions),
        photographs_of(dev.images) if dev is not None and dev.named else None,
        DEV,
    )
    return record if vectors is None else record.including(read_training_record(vectors))


def epoch_order(pairs: Pairs, batch: int, order: str, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Captions of each batch of an epoch, each caption once; determined by seed and epoch.

    Args:
        pairs: the training data.
        batch: maximum number of captions in a batch.
        order: ``captions`` shuffles all captions; ``rounds`` uses one caption of every image before the second of any,
            and each batch is within one round.
        seed: seed of the training.
        epoch: from 0.
    """
    rng = np.random.default_rng((seed, 1, epoch))
    n = len(pairs.captions)
    if order == "captions":
        return _cut(rng.permutation(n), batch)
    key = rng.random(n)
    sorted_ = np.lexsort((key, pairs.image_of))
    image = pairs.image_of[sorted_]
    start = np.r_[True, image[1:] != image[:-1]]
    rank = np.arange(n) - np.maximum.accumulate(np.where(start, np.arange(n), 0))
    order_of_batches: list[NDArray[np.int64]] = []
    for number in range(int(rank.max()) + 1):
        order_of_batches += _cut(rng.permutation(sorted_[rank == number]), batch)
    return order_of_batches


def _cut(order: NDArray[np.int64], batch: int) -> list[NDArray[np.int64]]:
    return [order[first : first + batch] for first in range(0, len(order), batch)]


def locate(name: str, root: DataRoot | None, what: str) -> Path:
    """An existing path, or one below the data folder. Raises MissingFileError with both paths."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    below = None if root is None or path.is_absolute() else root.path / path
    if below is not None and below.exists():
        return below
    nor = f", nor {below}" if below is not None else ""
    hint = "Correct the training file, or set the data folder with --data or CAPBENCH_DATA"
    raise MissingFileError(f"there is no such file or folder of {what}{nor}", value=name, path=path, hint=hint)


def open_captions(captions: str, splits: SplitOptions, features: str, root: DataRoot | None) -> CaptionSource:
    """Find and read the captions of a training.

    Args:
        captions: a file or folder, in the current folder or the data folder.
        splits: their names.
        features: features of the images; :data:`ARRAYS` means the arrays of the released SCAN code.
        root: the data folder.

    Raises:
        MissingFileError: the captions exist neither in the current folder nor in the data folder.
        DataError: the format is unknown, there are no splits, or the content is invalid.
    """
    path = locate(captions, root, "captions")
    if path.is_dir() and any(path.glob("*_caps.txt")):
        return CaptionSource(path, splits, features, None)
    if path.is_dir() and (path / "Flickr8k.token.txt").is_file():
        return CaptionSource(path, splits, features, _flickr8k(path))
    if path.is_dir() and not any(path.rglob("*_images.txt")):
        raise DataError(
            "contains no captions in a supported format",
            code="wrong-format",
            path=path,
            hint="Supported are Flickr8k's and Multi30k's folders, SCAN's {split}_caps.txt, and Karpathy's JSON",
        )
    read = read_captions_file(path)
    ungrouped = next((image for image in read if image not in read.groups), None)
    if ungrouped is not None:
        raise DataError(
            f"does not assign the image '{ungrouped}' to a split",
            code="missing-value",
            value=ungrouped,
            path=path,
            hint="Use Karpathy's JSON, or a folder with lists of splits",
        )
    return CaptionSource(path, splits, features, read)


def _flickr8k(folder: Path) -> Captions:
    captions = read_token(folder / "Flickr8k.token.txt")
    groups: dict[str, str] = {}
    for split in ROLES:
        listed = folder / f"Flickr_8k.{split}Images.txt"
        if not listed.is_file():
            continue
        for row, line in enumerate(files.read_lines(listed), 1):
            image = image_id(line.strip())
            if not image and row > 1:
                continue  # an empty last line
            if image not in captions:
                raise DataError(
                    f"the image '{line.strip()}' has no captions",
                    code="unknown-item",
                    value=line.strip(),
                    path=listed,
                    row=row,
                )
            if image in groups:
                raise DataError(
                    f"the image '{line.strip()}' is listed already",
                    code="duplicate",
                    value=line.strip(),
                    path=listed,
                    row=row,
                )
            groups[image] = split
    if not groups:
        raise MissingFileError("no list of images exists", path=folder / "Flickr_8k.trainImages.txt")
    # Images without a split are not used.
    return Captions(captions, captions.source, groups).of_groups(*ROLES)


def _scan_split(folder: Path, split: str, features: str) -> Pairs:
    listed = folder / f"{split}_caps.txt"
    texts = [line.strip() for line in files.read_lines(listed)]
    for row, text in enumerate(texts, 1):
        if not text:
            raise DataError(
                "the caption is empty", code="missing-caption", path=listed, row=row, hint="Write one caption per line"
            )
    ids_file = folder / f"{split}_ids.txt"
    ids = [image_id(line.strip()) for line in files.read_lines(ids_file)] if ids_file.is_file() else None
    if features == ARRAYS:
        return _array_split(folder / f"{split}_ims.npy", split, texts, ids, listed)
    if ids is None:
        raise MissingFileError(
            "the file of image ids does not exist", path=ids_file, hint="Provide it: it assigns features to captions"
        )
    return _numbered(ids, _image_rows(len(ids), len(texts), ids_file, "ids"), texts, listed)


def _image_rows(rows: int, captions: int, path: Path, what: str) -> NDArray[np.int64]:
    """Row of each caption."""
    if rows == captions:
        return np.arange(captions)
    if rows * _CAPTIONS_AN_IMAGE == captions:
        return np.arange(captions) // _CAPTIONS_AN_IMAGE
    raise DataError(
        f"contains {rows:,} {what} for {captions:,} captions",
        code="mismatch",
        value=rows,
        path=path,
        hint="Provide one for each caption, or one for every five captions",
    )


def _numbered(ids: list[str], row_of: NDArray[np.int64], texts: list[str], source: Path) -> Pairs:
    """Group captions by image id; captions of one image become adjacent."""
    place: dict[str, int] = {}
    image_of = np.array([place.setdefault(ids[row], len(place)) for row in row_of.tolist()], dtype=np.int64)
    order = np.argsort(image_of, kind="stable")
    return Pairs(tuple(place), tuple(texts[i] for i in order.tolist()), image_of[order], source)


def _array_split(path: Path, split: str, texts: list[str], ids: list[str] | None, source: Path) -> Pairs:
    array = open_array(path)
    row_of = _image_rows(len(array), len(texts), path, "images")
    first = np.arange(len(array))
    if len(array) == len(texts) > 1:
        # One row for each caption: equal adjacent rows are one image.
        begins = np.array([True, *(not _same(array, i) for i in range(1, len(array)))])
        first = np.flatnonzero(begins)
        row_of = np.cumsum(begins) - 1
    known = ids if ids is not None and len(ids) == len(array) else None
    names = [known[i] for i in first.tolist()] if known else []
    named = known is not None and len(set(names)) == len(names)
    if not named:  # ids of captions or of repeated images do not identify rows
        names = [f"{split}-{i}" for i in first.tolist()]
    arrays = ((path, first.astype(np.int64)),)
    return Pairs(tuple(names), tuple(texts), row_of.astype(np.int64), source, arrays, named)


def _same(array: NDArray[Any], i: int) -> bool:
    # The first regions nearly always differ, so that large files are not read completely.
    return bool(np.array_equal(array[i, 0], array[i - 1, 0]) and np.array_equal(array[i], array[i - 1]))


def open_array(path: Path) -> NDArray[Any]:
    """SCAN's ``{split}_ims.npy`` as a memory map. Raises DataError or MissingFileError."""
    if not path.is_file():
        raise MissingFileError(
            "the array of features does not exist", path=path, hint="Provide it, or set 'features' to a feature store"
        )
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"is not an array of numbers ({error})", code="unreadable", path=path, hint="Get the file again"
        ) from error
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise DataError(
            f"has shape {array.shape} and type {array.dtype}; required are floats of shape (images, regions, columns)",
            code="wrong-shape",
            value=array.shape,
            path=path,
        )
    return array


def _joined(splits: list[Pairs]) -> Pairs:
    if len(splits) == 1:
        return splits[0]
    images: list[str] = []
    captions: list[str] = []
    image_of: list[NDArray[np.int64]] = []
    for split in splits:
        twice = set(images) & set(split.images)
        if twice:
            raise DataError(
                f"the image '{min(twice)}' is in more than one split",
                code="duplicate",
                value=min(twice),
                path=split.source,
            )
        image_of.append(split.image_of + len(images))
        images += split.images
        captions += split.captions
    arrays = tuple(array for split in splits for array in split.arrays)
    named = all(split.named for split in splits)
    return Pairs(tuple(images), tuple(captions), np.concatenate(image_of), splits[0].source, arrays, named)


# Settings of trainers that use captions with splits and region features. MatchingTraining is for networks that match
# captions with images and are evaluated by recall, such as SCAN.


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(Options):
    """The words that the network knows."""

    min_count: int = option(4, Count(1), "minimum frequency; rarer words become <unk>")
    splits: tuple[str, ...] = option(("train", "dev"), Names(("train", "dev")), "splits whose captions are counted")
    file: str | None = option(
        None, Text("vocab.json"), "an existing vocabulary in the JSON format of the original SCAN"
    )


@dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """The loss of a batch (:mod:`capbench.training.matching_task`)."""

    kind: Literal["hinge", "info-nce"] = option(
        "hinge",
        Choice("hinge", "info-nce"),
        "triplets with a margin, or softmax over the batch in both directions",
    )
    margin: float = option(0.2, Positive(), "margin of the hinge loss")
    hardest: bool = option(False, Flag(), "true: use only the hardest negative of each row and column")
    hardest_after: int = option(
        0,
        Count(),
        "number of first steps that use all negatives although 'hardest' is set: with hardest negatives from the start "
        "training can collapse",
    )
    reduction: Literal["sum", "mean"] = option(
        "sum", Choice("sum", "mean"), "reduction of the hinge loss; 'sum' as published"
    )
    temperature: float = option(0.1, Positive(), "temperature of the softmax")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ValidationOptions):
    """Frequency and sample of recall evaluations during training; the score is the sum of recalls."""

    images: int | None = option(None, Count(1), "number of images of the dev split, sampled with 'seed'; null: all")
    seed: int = option(1, Count(), "seed of the sample")


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(Options):
    """Dropout probabilities in training."""

    regions: float = option(0.0, Fraction(), "components of the region features")
    words: float = option(0.0, Fraction(), "words, which become <unk>; not <start> and <end>")
    embedding: float = option(0.0, Fraction(), "components of the word vectors that go into the GRU")


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(Training):
    """Settings of a training on pairs of captions and images.

    ``captions`` is Karpathy's JSON, another caption file with splits, Flickr8k's folder (``Flickr8k.token.txt`` and
    ``Flickr_8k.*Images.txt``), Multi30k's folder, or the original SCAN's (``{split}_caps.txt``). ``features: ims``
    selects the arrays ``{split}_ims.npy`` of the latter. ``order: rounds`` uses one caption of every image before the
    second of any, so that no batch contains two captions of an image as each other's negatives.
    """

    # Paths may change within a run, since their contents are compared.
    undeciding = (*Training.undeciding, "captions", "features", "memory_mb")

    captions: str = option(MISSING, Text("dataset_coco.json"), "captions with their splits")
    splits: SplitOptions = option(SplitOptions(), Section(), "names of the splits in the captions")
    features: str = option(MISSING, Text("features.h5"), "a store of region features, or 'ims'")
    regions: int | None = option(
        None, Count(1), "number of regions of each image, the first ones; null: all, if all images have equally many"
    )
    evaluation: EvaluationOptions = option(EvaluationOptions(), Section(), "evaluations of recall")
    batch: int = option(128, Count(2), "caption-image pairs per step")
    order: Literal["captions", "rounds"] = option(
        "captions", Choice("captions", "rounds"), "shuffle all captions, as published, or rounds over the images"
    )
    memory_mb: float = option(
        4096.0, Number(0), "maximum size of features in memory; larger ones are read batch by batch"
    )


@dataclass(frozen=True, kw_only=True)
class MatchingTraining(CaptionTraining):
    """Settings of a training of a network that matches captions with images."""

    vocabulary: VocabularyOptions = option(VocabularyOptions(), Section(), "the words that the network knows")
    word_vectors: str | None = option(
        None, Text("glove.txt"), "initial word vectors: GloVe, word2vec or KeyedVectors; null: random"
    )
    loss: LossOptions = option(LossOptions(), Section(), "loss of a batch")
    dropout: DropoutOptions = option(DropoutOptions(), Section(), "dropout probabilities")

    def problems(self) -> list[str]:
        """Settings without effect in combination with others."""
        loss, vocabulary = self.loss, self.vocabulary
        idle = {"hinge": ("temperature",), "info-nce": ("margin", "hardest", "hardest_after", "reduction")}[loss.kind]
        # Defaults are allowed, since a run's record contains all settings.
        default = next(declared.default for declared in self.declared() if declared.name == "loss")
        problems = [
            f"'loss.{key}' does nothing if 'loss.kind' is {loss.kind}"
            for key in idle
            if getattr(loss, key) != getattr(default, key)
        ]
        if vocabulary.file and vocabulary.min_count != VocabularyOptions().min_count:
            problems.append("'vocabulary.min_count' does nothing if 'vocabulary.file' is set")
        if loss.hardest_after and not loss.hardest:
            problems.append("'loss.hardest_after' does nothing without 'loss.hardest: true'")
        return problems

    def dev_captions(self) -> int | None:
        """Number of captions of each dev image, the first ones; None: all."""
        return None
