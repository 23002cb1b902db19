"""What a metric needs beside captions, typed: what is lacking, and how to give it, follow from the declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.errors import MetricError, MissingFileError

if TYPE_CHECKING:
    from capbench.core.options import Options

__all__ = [
    "Columns",
    "Features",
    "GivenModel",
    "Images",
    "ModelFolder",
    "Need",
    "Parser",
    "PublishedWeights",
    "References",
    "Resources",
    "Scores",
    "Weights",
    "WordVectors",
    "find_pictures",
]


class Need:
    """Something that a metric cannot be computed without."""

    may_be_spared: bool = False
    """True if some items can be scored without it all the same, so that a metric that lacks it is tried."""

    def name(self) -> str:
        """One word for lists (``features``)."""
        raise NotImplementedError

    def each(self) -> tuple[Need, ...]:
        """The single needs that it comes to: itself, unless it stands for others."""
        return (self,)

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """What is lacking and how to give it; None if nothing is.

        Args:
            label: the request's label, which flags name.
            resources: what is given to the request.
            options: its options.
        """
        return None


@dataclass(frozen=True)
class References(Need):
    """Reference captions of each item; :meth:`capbench.metrics.base.Metric.reference_free` names columns without."""

    def name(self) -> str:
        """One word."""
        return "references"


@dataclass(frozen=True)
class Images(Need):
    """The pictures themselves: of a folder, or of the data folder."""

    def name(self) -> str:
        """One word."""
        return "images"

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A folder with pictures."""
        if resources.images is not None:
            there = Path(resources.images).is_dir()
            return None if there else f"the pictures: there is no folder {resources.images}"
        if resources.data is not None:
            data = Path(resources.data)
            if any(data.glob("*/images")) or any(data.glob("imported/*/images")):
                return None
        return "the pictures (--image-root FOLDER, or the data set's folder 'images' in the data folder)"


@dataclass(frozen=True)
class Features(Need):
    """Region features of the items' images.

    Attributes:
        size: columns that they must have; None for any.
    """

    size: int | None = None

    def name(self) -> str:
        """One word."""
        return "features" if self.size is None else f"features of {self.size} columns"

    def reads_store(self, options: Options) -> bool:
        """Whether under these options the store is read; by default it is."""
        return True

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A store of features, or one whose features have the right size."""
        if not resources.features:
            return "region features (--features STORE, made by 'capbench extract-features')"
        if not Path(resources.features).exists():
            return f"region features: there is no {resources.features} (make it with 'capbench extract-features')"
        if self.size is not None:
            from capbench.features.store import open_store

            with open_store(resources.features) as store:
                if store.feature_size != self.size:
                    return (
                        f"region features of {self.size} columns (those of {resources.features} have "
                        f"{store.feature_size})"
                    )
        return None


class GivenModel(Need):
    """What ``--model`` gives: a file or a folder of weights."""

    def name(self) -> str:
        """One word."""
        return "weights"


@dataclass(frozen=True)
class Weights(GivenModel):
    """Weights of a network.

    Attributes:
        what: the model in words (``a grounding model``).
        made_by: the command that makes one.
    """

    what: str
    made_by: str

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A file of weights."""
        return None if resources.model else f"{self.what} (--model {label}=FILE, made by '{self.made_by}')"


@dataclass(frozen=True)
class PublishedWeights(GivenModel):
    """Weights that others published, as a file or a folder.

    Attributes:
        what: the model in words.
        entry: their name in the registry.
    """

    what: str
    entry: str

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A file or a folder."""
        if resources.model:
            return None
        return f"{self.what} (--model {label}=FOLDER|FILE; 'capbench models info {self.entry}' says where to get one)"


@dataclass(frozen=True)
class ModelFolder(GivenModel):
    """The folder of a text model's files, as ``transformers`` reads it.

    Attributes:
        what: the model in words.
    """

    what: str = "a BERT-like model"

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A folder."""
        if resources.model:
            return None
        return f"{self.what} (--model {label}=FOLDER with config.json, weights and the tokeniser's files)"


@dataclass(frozen=True)
class WordVectors(Need):
    """Word vectors, given by an option.

    Attributes:
        option: the option's name.
    """

    option: str = "vectors"

    def name(self) -> str:
        """One word."""
        return "word vectors"

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A file of word vectors."""
        path = getattr(options, self.option)
        how = f"--option {label}.{self.option}=FILE: word2vec .bin, GloVe text or gensim KeyedVectors"
        if path is None:
            return f"word vectors ({how}; 'capbench train word-vectors' makes some)"
        return None if Path(path).exists() else f"word vectors: there is no {path} ({how})"


@dataclass(frozen=True)
class Parser(Need):
    """SPICE's parser. Captions that were parsed before need none."""

    may_be_spared = True
    metric = "spice"
    """The metric whose parses these are."""

    def name(self) -> str:
        """One word."""
        return "parser"

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """The parser's files."""
        from capbench.text.spice.parser import spice_state

        return None if spice_state().ready else "SPICE's parser ('capbench setup spice' fetches it once)"


@dataclass(frozen=True)
class Columns(Need):
    """Columns of other metrics, which in turn need something.

    Attributes:
        metrics: names of these metrics.
    """

    metrics: tuple[str, ...]

    def __init__(self, *metrics: str) -> None:
        object.__setattr__(self, "metrics", metrics)

    def name(self) -> str:
        """The metrics."""
        return f"columns of {', '.join(self.metrics)}"

    def each(self) -> tuple[Need, ...]:
        """All that these metrics need."""
        from capbench.core import plugins

        loaded = (plugins.load("capbench.metrics", metric) for metric in self.metrics)
        return tuple(single for metric in loaded for need in metric.needs for single in need.each())


@dataclass(frozen=True)
class Scores(Need):
    """Scores of a file, which are there or not: they cannot be computed for other captions or references."""

    def name(self) -> str:
        """One word."""
        return "scores"


# What metrics are given beside captions and options: features, weights, pictures, corpora.


@dataclass(frozen=True)
class Resources:
    """What metrics are given beside captions and options.

    Attributes:
        features: path of a region-feature store for all metrics (``--features FILE``).
        model: path of weights for all metrics (``--model FILE``), or a name that
            :func:`capbench.weights.registry.locate` knows.
        features_of: stores by label or metric name (``--features LABEL=FILE``), which come first.
        models: weights by label or metric name (``--model LABEL=FILE``), which come first.
        images: a folder with the pictures; None: the data set's image folders.
        data: the data folder, for named corpora such as ``coco-val``.
        allow_missing: whether items that lack a score in a file of scores are left out, for all metrics; else that is
            an error.
        captions: looks up a corpus of captions (``coco-val``, or a file): captions by image. Metrics know no
            data sets, so whoever runs them hands this in.
        pictures: looks up the files of images by their ids, as far as they are there; whoever runs metrics hands it in.
        cache: whether the cache folder may be read and written.
    """

    features: str | None = None
    model: str | None = None
    features_of: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    images: str | None = None
    data: str | None = None
    allow_missing: bool = False
    captions: Callable[[str], Mapping[str, Sequence[str]]] | None = None
    pictures: Callable[[Sequence[str]], Mapping[str, Path]] | None = None
    cache: bool = True

    def of(self, label: str, metric: str) -> Resources:
        """What one request is given: by its label, else by its metric's name, else what is there for all.

        Raises:
            ModelError: the weights are given by a name of ``capbench models``, and are not here.
        """
        model = self.models.get(label, self.models.get(metric, self.model))
        if model is not None and not Path(model).exists():
            from capbench.weights.registry import is_known, locate

            # What is neither a file nor a known name is the metric's own matter: it may be a name elsewhere.
            model = str(locate(model, metric)) if is_known(model) else model
        features = self.features_of.get(label, self.features_of.get(metric, self.features))
        return replace(self, features=features, model=model, features_of={}, models={})


# The files of images, for metrics that look at the pictures themselves.


def find_pictures(images: Iterable[str], resources: Resources) -> dict[str, Path]:
    """The file of each image.

    Args:
        images: ids.
        resources: with a way to look pictures up (:func:`capbench.metrics.scoring.complete` hands it in).

    Raises:
        MetricError: there is no such way.
        MissingFileError: some are not there; they are counted.
    """
    if resources.pictures is None:
        raise MetricError("no way to find pictures was handed in", hint="Score by 'capbench score'")
    wanted = list(dict.fromkeys(images))
    paths = dict(resources.pictures(wanted))
    missing = [image for image in wanted if image not in paths]
    if missing:
        first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise MissingFileError(
            f"there are no pictures of {len(missing):,} of {len(wanted):,} images: {first}",
            path=resources.images or resources.data,
            hint="Say where they are with --image-root; a picture's id is its file's name without the ending",
        )
    return paths
