"""Pseudo-judgements of Flickr8k's dev images: candidates from other images' captions, rated by text metrics.

Settings of a metric must be chosen on images that nobody rated. Recall on held-out images rejects bad models and does
not order good ones: a metric must tell a fair caption from a poor one, not the right one from all others. So candidates
are drawn as Flickr8k's were (Hodosh et al. 2013): captions of *other* dev images, some of images that look alike, some
with similar texts, some from anywhere. CIDEr, METEOR and ROUGE-L, which never see the picture, compare them with the
image's own captions: the mean of their normal scores, cut into equally many items a level, is the rating.

Text metrics are poor judges, so this is a way to choose settings, not a result. A metric that reads the captions by
which candidates are rated agrees with the rating by reading alone; under ``first-three-rate`` and ``last-two-rate`` the
metric reads the other captions.

Files: ``flickr8k/Flickr8k.token.txt``, ``flickr8k/Flickr_8k.devImages.txt``, and the grid features of
``flickr8k/mobilenetv2_grid49_pca256_int8.npz``, by which images look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import FloatArray, IntArray, Item, Judgements, Preferences, Ratings, caption_key
from capbench.datasets.base import Dataset
from capbench.datasets.judgement_files import ByName, paired
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name, correlations
from capbench.datasets.user.caption_readers import read_token, split_list

KINDS = ("looks-alike", "near-text", "mid-text", "anywhere")  # where candidates come from; :attr:`Item.group` holds it
_TOKEN = "flickr8k/Flickr8k.token.txt"
_DEV = "flickr8k/Flickr_8k.devImages.txt"
_FEATURES = "flickr8k/mobilenetv2_grid49_pca256_int8.npz"
_WINDOWS = "pyr30"
_FIRST, _LAST = 3, 2
_RATING_AND_READ = {
    "first-three-rate": (slice(None, _FIRST), slice(_FIRST, None)),
    "last-two-rate": (slice(-_LAST, None), slice(None, -_LAST)),
}  # an image's captions that rate, and those that metrics read; all for other selections


@dataclass(frozen=True)
class DrawOptions:
    """Numbers of candidates per image, and the captions from which they are sampled."""

    each: int = 2  # candidates an image gets of each of :data:`KINDS`
    look: int = 20  # from how many most similar images ``looks-alike`` is drawn
    near: int = 20  # from how many captions with the most similar texts ``near-text`` is drawn
    middle: int = 500  # ``mid-text`` is drawn from those behind ``near`` up to this rank
    seed: int = 0  # of the draw


class Flickr8kPseudo(Dataset):
    """Eight captions of other images for each of Flickr8k's dev images, in four levels by text metrics."""

    name: ClassVar[str] = "flickr8k-pseudo"
    generated: ClassVar[bool] = True
    title: ClassVar[str] = "Flickr8k pseudo-judgements"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "candidates by the first rules, seed 0"}
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "all-captions", "eight captions of other images an image; its five captions rate and are references"
        ),
        ItemSelection("first-three-rate", "the first three captions rate, the others are references"),
        ItemSelection("last-two-rate", "the last two captions rate, the others are references"),
        ItemSelection(
            "own-caption",
            "the image's last caption beside each of the eight of other images; the other four are references",
        ),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {**correlations("pseudo"), **accuracy("own")}
    default: ClassVar[tuple[str, str]] = ("all-captions", "tau-c")
    groups: ClassVar[Sequence[str] | None] = KINDS
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    draw: ClassVar[DrawOptions] = DrawOptions()

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        """The candidates of all selections, image by image."""
        every = read_token(self.root.file(_TOKEN, what="Flickr8k's captions"))
        listed = split_list(self.root.file(_DEV, what="the list of Flickr8k's dev images"), every)
        captions = {image: every[image] for image in listed}
        few = next((image for image, texts in captions.items() if len(texts) <= _FIRST), None)
        if few is not None:
            problem = f"image '{few}' has {len(captions[few])} captions, where {_FIRST + _LAST} are expected"
            raise DataError(problem, code="too-few", value=few, path=every.source, hint="Get the file again")
        features = self.root.file(_FEATURES, what="Flickr8k's grid features")
        return draw_candidates(captions, _mean_features(features, list(captions)), self.draw)

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items image by image; ``ratings["pseudo"]`` from 1 to 4, or ``preferences["own"]`` of the own caption."""
        items = self._items
        images = len({item.image for item in items})
        notes = (f"{len(items):,} candidates of {images:,} images; people judged none of them",)
        if selection.name == "own-caption":
            shown, pairs = _own_and_foreign(items)
            ratings = ByName[Ratings]({}, {"pseudo": MissingFileError("the items 'own-caption' have no ratings")})
            judgements = Judgements(self.name, selection.name, shown, ratings, {"own": pairs}, notes=notes)
            return (judgements,)
        judges, read = _RATING_AND_READ.get(selection.name, (slice(None), slice(None)))
        levels = pseudo_levels(text_scores(_with_references(items, judges)))
        places = np.arange(len(items), dtype=np.int64)
        scale = (1.0, float(levels.max()))
        rated = {"pseudo": Ratings(places, levels.astype(np.float64), np.zeros_like(places), scale)}
        nobody = ByName[Preferences]({}, {"own": MissingFileError("only the items 'own-caption' have pairs")})
        shown = _with_references(items, read)
        return (Judgements(self.name, selection.name, shown, rated, nobody, notes=notes),)


def _with_references(items: Sequence[Item], kept: slice) -> tuple[Item, ...]:
    """The items with some of their references."""
    return tuple(Item(i.image, i.candidate, i.references[kept], i.candidate_id, i.group) for i in items)


def _own_and_foreign(items: Sequence[Item]) -> tuple[tuple[Item, ...], Preferences]:
    """An image's last caption as a candidate for the others, then its other candidates, and the pairs of both."""
    shown: list[Item] = []
    first, second = [], []
    place_of: dict[str, int] = {}
    for item in items:
        references = item.references[:-1]
        if item.image not in place_of:
            place_of[item.image] = len(shown)
            shown.append(Item(item.image, item.references[-1], references, f"{item.image}#own"))
        first.append(place_of[item.image])
        second.append(len(shown))
        shown.append(Item(item.image, item.candidate, references, item.candidate_id))
    return tuple(shown), paired((item.group for item in items), first, second)


def draw_candidates(
    captions: Mapping[str, Sequence[str]], looks: NDArray[np.floating], options: DrawOptions
) -> tuple[Item, ...]:
    """Candidates from other images' captions, ``4 × each`` an image, with their kind as group.

    ``looks``: (images, d) one vector an image, in the order of ``captions``. No candidate has the text of one of the
    image's own captions, and none stands twice at an image.
    """
    images = list(captions)
    texts = [text for image in images for text in captions[image]]
    owner = np.repeat(np.arange(len(images)), [len(captions[image]) for image in images])
    if len(images) <= options.look or len(texts) <= options.middle + len(texts) // len(images):
        problem = f"{len(images)} images with {len(texts)} captions are too few to draw candidates from"
        hint = f"More than {options.look} images and {options.middle} captions are needed"
        raise DataError(problem, code="too-few", value=len(images), hint=hint)
    rng = np.random.default_rng(options.seed)
    alike = _by_similarity(looks)
    vectors = _text_vectors(texts)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    near = vectors @ _unit(np.add.reduceat(vectors, starts)).T  # (captions, images): against all of an image's captions
    keys = [caption_key(text) for text in texts]
    items = []
    for i, image in enumerate(images):
        taken = {keys[j] for j in np.flatnonzero(owner == i)}
        ranked = np.argsort(-near[:, i], kind="stable")
        ranked = ranked[owner[ranked] != i]
        pools = (
            np.flatnonzero(np.isin(owner, alike[i, : options.look])),
            ranked[: options.near],
            ranked[options.near : options.middle],
            ranked,
        )
        for kind, pool in zip(KINDS, pools, strict=True):
            chosen: list[int] = []
            for j in rng.permutation(pool).tolist():
                if len(chosen) < options.each and keys[j] and keys[j] not in taken:
                    taken.add(keys[j])
                    chosen.append(j)
            if len(chosen) < options.each:
                problem = f"image '{image}': there are not {options.each} other texts of the kind {kind}"
                raise DataError(problem, code="too-few", value=image)
            references = tuple(captions[image])
            items += [Item(image, texts[j], references, f"{images[owner[j]]}#{j}", kind) for j in chosen]
    return tuple(items)


def _mean_features(path: Path, images: Sequence[str]) -> FloatArray:
    """(images, d) mean of the features of each image's windows."""
    from capbench.features.importers.arrays import read_npz
    from capbench.features.pooling import parse_pooling, pool_regions

    wanted, means = set(images), dict[str, FloatArray]()
    for entry in read_npz(path):
        if entry.regions.image in wanted:
            windows = pool_regions(entry.regions, parse_pooling(_WINDOWS))
            means[entry.regions.image] = windows.features.astype(np.float64).mean(axis=0)
    missing = next((image for image in images if image not in means), None)
    if missing is not None:
        problem = f"has no features of the image '{missing}'"
        raise DataError(problem, code="missing-image", value=missing, path=path, hint="Get the file again")
    return np.stack([means[image] for image in images])


def _unit(vectors: NDArray[np.floating]) -> FloatArray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float64)


def _by_similarity(looks: NDArray[np.floating]) -> IntArray:
    """(images, images - 1) other images of each, the most similar first: cosine after the mean is taken away."""
    unit = _unit(looks - looks.mean(axis=0))
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    return np.argsort(-similar, axis=1, kind="stable")[:, :-1]


def _text_vectors(texts: Sequence[str]) -> FloatArray:
    """(texts, words) unit vectors of log(1 + count) times the words' inverse document frequency."""
    split = ["".join(c if c.isalnum() else " " for c in text.lower()).split() for text in texts]
    place = {word: i for i, word in enumerate(sorted({word for words in split for word in words}))}
    counts = np.zeros((len(texts), len(place)), dtype=np.float32)
    for row, words in enumerate(split):
        for word in words:
            counts[row, place[word]] += 1
    rarity = np.log(len(texts) / np.maximum(1, (counts > 0).sum(axis=0)))
    return _unit(np.log1p(counts) * rarity)


def text_scores(items: Sequence[Item]) -> list[FloatArray]:
    """CIDEr (each item's references are one document), METEOR and ROUGE-L of items. (n,) each"""
    from capbench.text import ptb
    from capbench.text.meteor import scores as meteor
    from capbench.text.ngrams import Corpus, cider_d, rouge_l

    tokens = iter(ptb.tokenize([text for item in items for text in (item.candidate, *item.references)]))
    split = [[next(tokens) for _ in range(1 + len(item.references))] for item in items]
    corpus = Corpus([texts[0] for texts in split], [texts[1:] for texts in split])
    counts = meteor.meteor_statistics([texts[0] for texts in split], [texts[1:] for texts in split])
    return [cider_d(corpus)[0], meteor.meteor_scores(counts), rouge_l(corpus)[0]]


def pseudo_levels(scores: Sequence[FloatArray], levels: int = 4) -> IntArray:
    """Ratings: the mean of metrics' normal scores (van der Waerden), cut so that levels have equally many items."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    if not scores or len(scores[0]) < levels:
        raise DataError(f"there are too few scores to cut into {levels} levels", code="too-few", value=levels)
    mixed = np.mean([ndtri(rankdata(values) / (len(values) + 1)) for values in scores], axis=0)
    order = np.argsort(mixed, kind="stable")
    level_of = np.empty(len(mixed), dtype=np.int64)
    level_of[order] = 1 + np.arange(len(mixed)) * levels // len(mixed)
    return level_of
