"""What networks of images and captions are trained on: captions with their images, split by split.

Three sources are known, told apart by what is there:

- captions that name their splits: Karpathy's JSON (``train``, ``restval``, ``val``, ``test``), Multi30k's folder;
- Flickr8k's folder: ``Flickr8k.token.txt`` with ``Flickr_8k.{train,dev,test}Images.txt``;
- the folder that the original SCAN reads: ``{split}_caps.txt`` (a caption a line), ``{split}_ids.txt`` and
  ``{split}_ims.npy`` (images, regions, columns): one row a caption, or one row for every five captions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError, suggest
from capbench.core.options import Choice, Count, Flag, Number, Options, Positive, Text, option
from capbench.core.records import image_id
from capbench.datasets.captions import read_any
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import Captions, read_token
from capbench.training.settings import Fraction, Names, Section, Training, ValidationOptions

__all__ = [
    "ARRAYS",
    "ROLES",
    "CaptionSource",
    "CaptionTraining",
    "DropoutOptions",
    "EvaluationOptions",
    "LossOptions",
    "MatchingTraining",
    "Pairs",
    "SplitOptions",
    "VocabularyOptions",
    "epoch_order",
    "locate",
    "open_captions",
]


ROLES = ("train", "dev", "test")
"""What splits are for."""
ARRAYS = "ims"
"""In place of a feature store: the arrays ``{split}_ims.npy`` beside the captions."""

# The names that a role's splits have where the training file does not say; all of a tuple that are there are taken.
_NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "train": (("train", "restval"),),
    "dev": (("dev",), ("val",), ("valid",), ("validation",)),
    "test": (("test",), ("test_2016",)),
}
_CAPTIONS_AN_IMAGE = 5


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """Which images are for what; None: the names that the format has."""

    train: tuple[str, ...] | None = option(None, Names(), "what is learned from")
    dev: tuple[str, ...] | None = option(None, Names(), "what is measured during training")
    test: tuple[str, ...] | None = option(None, Names(), "what a finished model is measured on")


@dataclass(frozen=True)
class Pairs:
    """The captions of one or several splits and the images that they belong to.

    Attributes:
        images: ids, each once.
        captions: texts, an image's captions beside each other.
        image_of: (captions,) place of each caption's image in ``images``.
        arrays: SCAN's feature arrays with, for each, the row of every image in it that it holds; else empty.
        source: where the captions came from, for messages.
    """

    images: tuple[str, ...]
    captions: tuple[str, ...]
    image_of: NDArray[np.int64]
    source: Path
    arrays: tuple[tuple[Path, NDArray[np.int64]], ...] = ()

    def sample(self, images: int | None, captions: int | None, seed: int) -> Pairs:
        """Some images, drawn at random and left in their order, with the first so many captions of each.

        None takes all; so does a number that is larger than what there is.
        """
        n = len(self.images)
        kept = np.arange(n)
        if images is not None and images < n:
            kept = np.sort(np.random.default_rng(seed).permutation(n)[:images])
        place = np.full(n, -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        seen = np.zeros(n, dtype=np.int64)
        chosen = []
        for i, image in enumerate(self.image_of.tolist()):
            if place[image] >= 0 and (captions is None or seen[image] < captions):
                chosen.append(i)
            seen[image] += 1
        arrays, first = [], 0
        for path, rows in self.arrays:
            inside = kept[(kept >= first) & (kept < first + len(rows))] - first
            arrays.append((path, rows[inside]))
            first += len(rows)
        return Pairs(
            tuple(self.images[i] for i in kept.tolist()),
            tuple(self.captions[i] for i in chosen),
            place[self.image_of[chosen]],
            self.source,
            tuple(arrays),
        )

    def fingerprint(self) -> str:
        """Sixteen hex digits that name images and captions in their order."""
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
        self._captions = captions  # None: SCAN's own folder

    def names(self) -> list[str]:
        """The splits that there are."""
        if self._captions is not None:
            return sorted(set(self._captions.groups.values()))
        return sorted(p.name.removesuffix("_caps.txt") for p in self.path.glob("*_caps.txt"))

    def splits(self, role: str) -> tuple[str, ...]:
        """The splits of a role (``train``, ``dev``, ``test``), as asked for or by their usual names.

        Raises:
            DataError: there is none.
        """
        names = self.names()
        asked: tuple[str, ...] | None = getattr(self._splits, role)
        if asked is not None:
            for name in asked:
                if name not in names:
                    raise DataError(f"has no split '{name}'", path=self.path, hint=suggest(name, names))
            return asked
        for usual in _NAMES[role]:
            splits = tuple(name for name in usual if name in names)
            if splits:
                return splits
        raise DataError(
            f"has no split that is known to be for {role} (there are: {', '.join(names)})",
            path=self.path,
            hint=f"Name it in the training file, as 'splits: {{{role}: NAME}}'",
        )

    def pairs(self, role: str) -> Pairs:
        """All captions of a role. Raises DataError or MissingFileError, naming file and row."""
        if self._captions is None:
            return _joined([_scan_split(self.path, name, self._features) for name in self.splits(role)])
        chosen = self._captions.of_groups(*self.splits(role))
        if self._features == ARRAYS:
            raise UsageError(
                "'features: ims' takes the arrays of SCAN's folder, and the captions are not from one",
                path=self.path,
                hint="Name a feature store",
            )
        counts = [len(texts) for texts in chosen.values()]
        return Pairs(
            tuple(chosen),
            tuple(text for texts in chosen.values() for text in texts),
            np.repeat(np.arange(len(counts)), counts),
            self.path,
        )


def epoch_order(pairs: Pairs, batch: int, order: str, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The captions of each batch of an epoch, each caption once; the same for the same seed and epoch.

    Args:
        pairs: what is trained on.
        batch: largest number of captions of a batch.
        order: ``captions`` shuffles all; ``rounds`` gives every image one caption before any has its second, and a
            batch is of one round.
        seed: of the training.
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
    """A path as it stands, else below the data folder. Raises MissingFileError naming both."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    below = None if root is None or path.is_absolute() else root.path / path
    if below is not None and below.exists():
        return below
    nor = f", nor {below}" if below is not None else ""
    hint = "Correct the training file, or give the data folder with --data or CAPBENCH_DATA"
    raise MissingFileError(f"there is no such file or folder of {what}{nor}", path=path, hint=hint)


def open_captions(captions: str, splits: SplitOptions, features: str, root: DataRoot | None) -> CaptionSource:
    """Find and read the captions of a training.

    Args:
        captions: a file or folder, in the current or the data folder.
        splits: their names.
        features: of the images; :data:`ARRAYS` reads those of the released SCAN code.
        root: the data folder.

    Raises:
        MissingFileError: they are neither in the current nor in the data folder.
        DataError: they are in no known format, have no splits, or something in them is wrong.
    """
    path = locate(captions, root, "captions")
    if path.is_dir() and any(path.glob("*_caps.txt")):
        return CaptionSource(path, splits, features, None)
    if path.is_dir() and (path / "Flickr8k.token.txt").is_file():
        return CaptionSource(path, splits, features, _flickr8k(path))
    if path.is_dir() and not any(path.rglob("*_images.txt")):
        raise DataError(
            "holds no captions in a known format",
            path=path,
            hint="Known are Flickr8k's and Multi30k's folders, SCAN's {split}_caps.txt, and Karpathy's JSON",
        )
    read = read_any(path)
    ungrouped = next((image for image in read if image not in read.groups), None)
    if ungrouped is not None:
        raise DataError(
            f"does not say which split '{ungrouped}' is in",
            path=path,
            hint="Give Karpathy's JSON, or a folder with lists of splits",
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
                raise DataError(f"the image '{line.strip()}' has no captions", path=listed, row=row)
            if image in groups:
                raise DataError(f"the image '{line.strip()}' is listed already", path=listed, row=row)
            groups[image] = split
    if not groups:
        raise MissingFileError("there is no list of images", path=folder / "Flickr_8k.trainImages.txt")
    # Images that are in no split are of no use here.
    kept = Captions(captions, captions.source, captions.file_names, groups)
    return kept.of_groups(*ROLES)


def _scan_split(folder: Path, split: str, features: str) -> Pairs:
    listed = folder / f"{split}_caps.txt"
    texts = [line.strip() for line in files.read_lines(listed)]
    for row, text in enumerate(texts, 1):
        if not text:
            raise DataError("the caption is empty", path=listed, row=row, hint="Give one caption a line")
    ids_file = folder / f"{split}_ids.txt"
    ids = [image_id(line.strip()) for line in files.read_lines(ids_file)] if ids_file.is_file() else None
    if features == ARRAYS:
        return _array_split(folder / f"{split}_ims.npy", split, texts, ids, listed)
    if ids is None:
        raise MissingFileError(
            "the images' ids are not there", path=ids_file, hint="They say which features belong to which caption"
        )
    return _numbered(ids, _image_rows(len(ids), len(texts), ids_file, "ids"), texts, listed)


def _image_rows(rows: int, captions: int, path: Path, what: str) -> NDArray[np.int64]:
    """The row of each caption."""
    if rows == captions:
        return np.arange(captions)
    if rows * _CAPTIONS_AN_IMAGE == captions:
        return np.arange(captions) // _CAPTIONS_AN_IMAGE
    raise DataError(
        f"holds {rows:,} {what} for {captions:,} captions",
        path=path,
        hint="There should be one for each caption, or one for every five captions",
    )


def _numbered(ids: list[str], row_of: NDArray[np.int64], texts: list[str], source: Path) -> Pairs:
    """Captions beside each other that name the same image become that image's; others are refused."""
    place: dict[str, int] = {}
    image_of = np.array([place.setdefault(ids[row], len(place)) for row in row_of.tolist()], dtype=np.int64)
    order = np.argsort(image_of, kind="stable")
    return Pairs(tuple(place), tuple(texts[i] for i in order.tolist()), image_of[order], source)


def _array_split(path: Path, split: str, texts: list[str], ids: list[str] | None, source: Path) -> Pairs:
    array = open_array(path)
    row_of = _image_rows(len(array), len(texts), path, "images")
    first = np.arange(len(array))
    if len(array) == len(texts) > 1:
        # One row a caption: rows beside each other that are equal are one image.
        begins = np.array([True, *(not _same(array, i) for i in range(1, len(array)))])
        first = np.flatnonzero(begins)
        row_of = np.cumsum(begins) - 1
    known = ids if ids is not None and len(ids) == len(array) else None
    names = [known[i] if known else f"{split}-{i}" for i in first.tolist()]
    if len(set(names)) < len(names):  # ids of captions or of repeated images name no rows
        names = [f"{split}-{i}" for i in first.tolist()]
    return Pairs(tuple(names), tuple(texts), row_of.astype(np.int64), source, ((path, first.astype(np.int64)),))


def _same(array: NDArray[Any], i: int) -> bool:
    # The first region decides nearly always, so that a large file is not read whole.
    return bool(np.array_equal(array[i, 0], array[i - 1, 0]) and np.array_equal(array[i], array[i - 1]))


def open_array(path: Path) -> NDArray[Any]:
    """SCAN's ``{split}_ims.npy``, mapped and not read. Raises DataError or MissingFileError."""
    if not path.is_file():
        raise MissingFileError("there is no such array of features", path=path, hint="Or name a feature store")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"is no array of numbers ({error})", path=path, hint="Get the file again") from error
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape:
        raise DataError(
            f"has shape {array.shape} of {array.dtype}, not (images, regions, columns) of floats", path=path
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
            raise DataError(f"the image '{min(twice)}' is in more than one split", path=split.source)
        image_of.append(split.image_of + len(images))
        images += split.images
        captions += split.captions
    arrays = tuple(array for split in splits for array in split.arrays)
    return Pairs(tuple(images), tuple(captions), np.concatenate(image_of), splits[0].source, arrays)


# Settings that trainers on captions and images share, beside those of any training.
#
# All of them read captions with splits and region features, and draw batches of pairs that belong together. Some train
# networks that match captions with images and are measured by recall: SCAN's
# (:mod:`capbench.metrics.grounding.training`) does.


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(Options):
    """Which words the network knows."""

    min_count: int = option(4, Count(1), "words that are rarer become <unk>")
    splits: tuple[str, ...] = option(("train", "dev"), Names(("train", "dev")), "whose captions are counted")
    file: str | None = option(
        None, Text("vocab.json"), "a vocabulary to take instead, in the JSON format of the original"
    )


@dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """The loss of a batch (:mod:`capbench.training.matching_task`)."""

    kind: Literal["hinge", "info-nce"] = option(
        "hinge",
        Choice("hinge", "info-nce"),
        "triplets with a margin, or a softmax over the batch in both directions",
    )
    margin: float = option(0.2, Positive(), "of the hinge")
    hardest: bool = option(False, Flag(), "whether the hinge counts only the hardest negative of each row and column")
    hardest_after: int = option(
        0,
        Count(),
        "steps during which the hinge counts all negatives before 'hardest' sets in: with hardest negatives from the "
        "start training can collapse",
    )
    reduction: Literal["sum", "mean"] = option("sum", Choice("sum", "mean"), "of the hinge; the sum is as published")
    temperature: float = option(0.1, Positive(), "of the softmax")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ValidationOptions):
    """When and on what recall is measured during training; the score is the sum of recalls."""

    images: int | None = option(None, Count(1), "how many images of the dev split, drawn with 'seed'; null: all")
    seed: int = option(1, Count(), "of the draw")


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(Options):
    """What is dropped at random in training; each a probability."""

    regions: float = option(0.0, Fraction(), "components of the region features")
    words: float = option(0.0, Fraction(), "words, which become <unk>; not <start> and <end>")
    embedding: float = option(0.0, Fraction(), "components of the word vectors that go into the GRU")


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(Training):
    """A training on captions and images that belong together.

    ``captions`` is Karpathy's JSON, another caption file with splits, Flickr8k's folder (``Flickr8k.token.txt`` and
    ``Flickr_8k.*Images.txt``), Multi30k's folder, or the original SCAN's (``{split}_caps.txt``). ``features: ims``
    takes the arrays ``{split}_ims.npy`` beside the latter. ``order: rounds`` gives every image one caption before any
    has its second, so that no batch holds two captions of an image as each other's negatives.
    """

    # Paths are free: what lies there is compared.
    undeciding = (*Training.undeciding, "captions", "features", "memory_mb")

    captions: str = option(MISSING, Text("dataset_coco.json"), "captions with their splits")
    splits: SplitOptions = option(SplitOptions(), Section(), "names of the splits in the captions")
    features: str = option(MISSING, Text("features.h5"), "a store of region features, or 'ims'")
    regions: int | None = option(
        None, Count(1), "the first so many of each image; null: all, which must then be equally many"
    )
    evaluation: EvaluationOptions = option(EvaluationOptions(), Section(), "when and on what recall is measured")
    batch: int = option(128, Count(2), "caption-image pairs a step")
    order: Literal["captions", "rounds"] = option(
        "captions", Choice("captions", "rounds"), "shuffle all captions, as published, or in rounds over the images"
    )
    memory_mb: float = option(
        4096.0, Number(0), "features up to this size are kept in memory; larger ones are read batch by batch"
    )


@dataclass(frozen=True, kw_only=True)
class MatchingTraining(CaptionTraining):
    """A training of a network that matches captions of words with images."""

    vocabulary: VocabularyOptions = option(VocabularyOptions(), Section(), "which words the network knows")
    word_vectors: str | None = option(
        None, Text("glove.txt"), "vectors that the words begin with: GloVe, word2vec or KeyedVectors; null: drawn ones"
    )
    loss: LossOptions = option(LossOptions(), Section(), "of a batch")
    dropout: DropoutOptions = option(DropoutOptions(), Section(), "what is dropped at random in training")

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand."""
        loss, vocabulary = self.loss, self.vocabulary
        idle = {"hinge": ("temperature",), "info-nce": ("margin", "hardest", "hardest_after", "reduction")}[loss.kind]
        # A default may stand there: a run's own record of its settings writes all of them out.
        default = next(declared.default for declared in self.declared() if declared.name == "loss")
        problems = [
            f"'loss.{key}' does nothing where 'loss.kind' is {loss.kind}"
            for key in idle
            if getattr(loss, key) != getattr(default, key)
        ]
        if vocabulary.file and vocabulary.min_count != VocabularyOptions().min_count:
            problems.append("'vocabulary.min_count' does nothing where 'vocabulary.file' is given")
        if loss.hardest_after and not loss.hardest:
            problems.append("'loss.hardest_after' does nothing without 'loss.hardest: true'")
        return problems

    def dev_captions(self) -> int | None:
        """How many captions of each dev image are read, the first ones; None: all."""
        return None
