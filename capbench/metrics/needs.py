"""What a metric needs beside captions, typed: what is lacking, and how to give it, follow from the declaration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capbench.metrics.resources import Resources
    from capbench.options import Options

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
    "Scores",
    "Weights",
    "WordVectors",
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
        if resources.data is not None and any(Path(resources.data).glob("*/images")):
            return None
        return "the pictures (--image-root FOLDER, or */images in the data folder)"


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

    def name(self) -> str:
        """One word."""
        return "parser"

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """The parser's files."""
        from capbench.java.spice.files import spice_state

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
        from capbench import plugins

        loaded = (plugins.load("capbench.metrics", metric) for metric in self.metrics)
        return tuple(single for metric in loaded for need in metric.needs for single in need.each())


@dataclass(frozen=True)
class Scores(Need):
    """Scores of a file, which are there or not: they cannot be computed for other captions or references."""

    def name(self) -> str:
        """One word."""
        return "scores"
