"""Typed requirements of metrics besides captions. Checks and hints follow from their declaration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from capbench.core.errors import MetricError, MissingFileError, absent_package

if TYPE_CHECKING:
    from capbench.core.options import Options
    from capbench.core.records import Item
    from capbench.features.records import RegionFeatures


class Need:
    """A requirement of a metric."""

    may_be_spared: bool = False
    """True if it is only needed for the metric's slow work: items without such work are scored without it."""
    code: ClassVar[str] = "missing-option"
    """Code of the error if it is missing, one of :data:`capbench.core.errors.ERROR_CODES`."""
    word: str  # Its name in lists (``features``)

    def each(self) -> tuple[Need, ...]:
        """The single needs that this one stands for; by default itself."""
        return (self,)

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        """The missing thing and how to provide it, with the flags of a request's label; None if nothing is missing."""
        return None

    def check_items(self, items: Sequence[Item], resources: Resources, options: Options) -> None:
        """Raise CapbenchError if an item lacks what is needed, such as features of its image."""

    def trained_files(self, metric: str, resources: Resources, options: Options) -> tuple[Path, ...]:
        """Files that were made by training on photographs or captions; by default none."""
        return ()


def unmet_needs(label: str, missing: Sequence[tuple[Need, str]]) -> MetricError | None:
    """The error for a request with unmet needs, each with the description of :meth:`Need.missing`; None if the request
    can do without them."""
    unmet = [(need, reason) for need, reason in missing if not need.may_be_spared]
    if not unmet:
        return None
    reasons = " and ".join(reason for _, reason in unmet)
    return MetricError(f"{label} requires {reasons}", code=unmet[0][0].code, value=label)


class References(Need):
    """Reference captions of each item; columns of :meth:`capbench.metrics.base.Metric.reference_free` need none."""

    word = "references"


class Scores(Need):
    """Scores from a file, which cannot be computed for other captions or references."""

    word = "scores"


class ImageArgument(Need):
    """Items with an image, which a function receives; neither its file nor its features must exist."""

    word = "images"


class Images(Need):
    """The image files, in a folder or in the data folder."""

    code = "missing-image"
    word = "images"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        if resources.images is not None:
            exists = Path(resources.images).is_dir()
            return None if exists else f"image files: the folder {resources.images} does not exist"
        patterns = ("*/images", "imported/*/images")
        if resources.data is not None and any(any(Path(resources.data).glob(pattern)) for pattern in patterns):
            return None
        return "image files (--image-root FOLDER, or the data set's folder 'images' in the data folder)"

    def check_items(self, items: Sequence[Item], resources: Resources, options: Options) -> None:
        find_pictures((item.image for item in items), resources)


class Features(Need):
    """Region features of the items' images."""

    code = "missing-features"
    word = "features"

    def reads_store(self, options: Options) -> bool:
        """True if the store is read under these options, which is the default."""
        return True

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        store = resources.features
        if not store:
            return "region features (--features STORE, from 'capbench extract-features' or 'capbench features import')"
        if not Path(store).exists():
            return f"region features: {store} does not exist (make it with 'capbench extract-features')"
        return None

    def check_items(self, items: Sequence[Item], resources: Resources, options: Options) -> None:
        if resources.features is not None and self.reads_store(options):
            from capbench.features.store import open_store

            with open_store(resources.features) as store:
                store.require([item.image for item in items])


@dataclass(frozen=True)
class Weights(Need):
    """Weights of a network, passed with ``--model``."""

    what: str  # name of the model in messages (``a grounding model``)
    made_by: str = ""  # the command that makes such a model; ``""`` if it is only published
    metric: str = ""  # name of the metric in the registry of weights; ``""`` if the registry has none for it
    form: str = "FILE|NAME"  # what is passed
    code = "missing-weights"
    word = "weights"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        if resources.model:
            return None
        from capbench.weights.registry import way_to

        return f"{self.what} (--model {label}={self.form}: {way_to(self.metric, self.made_by)})"

    def trained_files(self, metric: str, resources: Resources, options: Options) -> tuple[Path, ...]:
        from capbench.weights.ensembles import network_files
        from capbench.weights.registry import locate

        if resources.model is None or not self.made_by:
            return ()
        return network_files(locate(resources.model, metric))


class WordVectors(Need):
    """Word vectors, passed as the option ``vectors``."""

    word = "word vectors"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        path = options.vectors  # type: ignore[attr-defined]
        how = f"--option {label}.vectors=FILE: word2vec .bin, GloVe text or gensim KeyedVectors"
        if path is None:
            return f"word vectors ({how}; or train them with 'capbench train word-vectors')"
        return None if Path(path).exists() else f"word vectors: {path} does not exist ({how})"

    def trained_files(self, metric: str, resources: Resources, options: Options) -> tuple[Path, ...]:
        path = options.vectors  # type: ignore[attr-defined]
        return () if path is None else (Path(path),)


@dataclass(frozen=True)
class Packages(Need):
    """Packages of extras, which an installation of the core does not include."""

    names: tuple[str, ...]
    code = "missing-package"
    word = "packages"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        absent = absent_package(*self.names)
        return None if absent is None else f"{absent[1]}: {absent[2]}"


class Parser(Need):
    """SPICE's parser. Captions with a parse in the cache or in a parse file of the data folder do not need it."""

    may_be_spared = True
    code = "not-set-up"
    word = "parser"
    metric = "spice"  # The metric that owns the parses

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        from capbench.text.spice.parser import missing_files

        return "SPICE's parser (download it: 'capbench doctor --install spice')" if missing_files() else None


class Columns(Need):
    """Columns of other metrics, by their names, with these metrics' needs."""

    def __init__(self, *metrics: str) -> None:
        self.metrics = metrics
        self.word = f"columns of {', '.join(metrics)}"

    def each(self) -> tuple[Need, ...]:
        from capbench.core import plugins

        loaded = (plugins.load("capbench.metrics", metric) for metric in self.metrics)
        return tuple(single for metric in loaded for need in metric.needs for single in need.each())


@dataclass(frozen=True)
class Resources:
    """Inputs of metrics besides captions and options."""

    features: str | None = None  # path of a region-feature store for all metrics (``--features FILE``)
    # path of weights for all metrics, or a name that :func:`capbench.weights.registry.locate` knows
    model: str | None = None
    # stores by label or metric name (``--features LABEL=FILE``), which take precedence
    features_of: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)  # weights by label or metric name, which take precedence
    images: str | None = None  # a folder with the image files; None: the data set's image folders
    data: str | None = None  # the data folder, for named corpora such as ``coco-val``
    allow_missing: bool = False  # True leaves out items without a score in a score file; otherwise they are an error
    # looks up a corpus of captions (``coco-val``, or a file): captions by image. Metrics do not know data sets, so the
    # caller passes this function and the next two.
    captions: Callable[[str], Mapping[str, Sequence[str]]] | None = None
    # looks up the files of images by their ids, if they exist
    pictures: Callable[[Sequence[str]], Mapping[str, Path]] | None = None
    # looks up all images of the data set, each with the groups of its items, for ``image=shuffled``
    image_groups: Callable[[], Mapping[str, Sequence[str]]] | None = None

    def of(self, label: str, metric: str) -> Resources:
        """The resources of one request: by its label, else by its metric's name, else those for all."""
        model = self.models.get(label, self.models.get(metric, self.model))
        if model is not None and not Path(model).exists():
            from capbench.weights.registry import is_known, locate

            # The metric interprets a value that is neither a file nor a registered name.
            model = str(locate(model, metric)) if is_known(model) else model
        features = self.features_of.get(label, self.features_of.get(metric, self.features))
        return replace(self, features=features, model=model, features_of={}, models={})


def find_pictures(images: Iterable[str], resources: Resources) -> dict[str, Path]:
    """The file of each image, which the resources' function ``pictures`` finds."""
    wanted = list(dict.fromkeys(images))
    paths = {} if resources.pictures is None else dict(resources.pictures(wanted))
    missing = [image for image in wanted if image not in paths]
    if missing:
        first = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise MissingFileError(
            f"there are no files of {len(missing):,} of {len(wanted):,} images: {first}",
            code="missing-image",
            value=missing[0],
            path=resources.images or resources.data,
            hint="Give their folder with --image-root; the id of an image is the name of its file without the ending",
        )
    return paths


@dataclass(frozen=True)
class Image:
    """An image, for functions and metrics that read it."""

    id: str  # the file's name without folder and extension
    path: Path | None = None  # the file; None if it is not available
    store: str | None = None  # path of the region features passed for the metric; None without

    def __str__(self) -> str:
        return self.id

    @cached_property
    def features(self) -> RegionFeatures | None:
        """The image's regions; None without a store. Raises FeatureError if the store does not have the image."""
        if self.store is None:
            return None
        from capbench.features.store import open_store

        return open_store(self.store)[self.id]

    def key(self) -> bytes:
        """Digest of everything that the image provides, for keys of a cache."""
        from capbench.core.files import sha256_file
        from capbench.features.store import open_store

        parts = [b"" if self.path is None else bytes.fromhex(sha256_file(self.path))]
        if self.store is not None:
            store = open_store(self.store)
            parts += [store.signature().encode(), str(store.checksum(self.id)).encode()]
        return hashlib.blake2b(b"|".join(parts), digest_size=16).digest()


def images_of(ids: Iterable[str], resources: Resources) -> dict[str, Image]:
    """Images by id, with their files as far as these are available, and the region features if there are any."""
    wanted = list(dict.fromkeys(ids))
    paths = {} if resources.pictures is None else resources.pictures(wanted)
    return {image: Image(image, paths.get(image), resources.features) for image in wanted}
