"""Training functions of ``import capbench``: networks, word vectors, REO's covariance, and evaluation of networks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.caller import Caller, python_caller
from capbench.api.checking import check_arguments
from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError, check_choice, count
from capbench.metrics.registry import trainable

if TYPE_CHECKING:
    from capbench.api.resolve import PathGiven
    from capbench.datasets.root import DataRoot
    from capbench.studies.judged import ProgressFactory
    from capbench.training.settings import Training
    from capbench.training.trainer import Task, Trained, Watcher
    from capbench.training.word_vectors import TrainedVectors

__all__ = [
    "FittedCovariance",
    "Measured",
    "Plan",
    "evaluate_model",
    "fit_reo_covariance",
    "plan_training",
    "train",
    "train_word_vectors",
]


def _caller(progress: bool | ProgressFactory | Caller, **arguments: Any) -> Caller:
    """Python with progress, after a check of arguments; the command line passes itself."""
    if isinstance(progress, Caller):
        return progress
    check_arguments({**arguments, "progress": progress})
    return python_caller(progress)


@dataclass(frozen=True)
class Measured:
    """Evaluation of a trained network on a split.

    Attributes:
        split: ``train``, ``dev`` or ``test``.
        numbers: results as JSON values.
        model: the weight file.
        sha256: SHA-256 of the file.
    """

    split: str
    numbers: Mapping[str, Any]
    model: Path
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"split": self.split, **self.numbers, "model": str(self.model), "sha256": self.sha256}


@dataclass(frozen=True)
class Plan:
    """A resolved training.

    Attributes:
        task: the network.
        config: the settings with all changes.
        root: the data folder.
        run: the run folder.
    """

    task: type[Task[Any, Any]]
    config: Training
    root: DataRoot
    run: Path

    def train(self, watcher: Watcher, *, restart: bool = False) -> Trained:
        """Train the network, or resume its training."""
        from capbench.training.trainer import train

        return train(self.task, self.config, self.run, self.root, restart=restart, watcher=watcher)

    def measure(self, split: str, watcher: Watcher, *, model: Path | None = None, **options: Any) -> Measured:
        """Evaluate the run's model, or another one; ``options`` are those of the network."""
        import torch

        from capbench.training.data import ROLES
        from capbench.weights.registry import locate

        check_choice("split", split, ROLES)
        torch.set_num_threads(self.config.threads or torch.get_num_threads())
        file = self.run / "model.safetensors" if model is None else locate(model, self.task.metric)
        if model is None and not file.is_file():
            hint = "Train it first, or name another model"
            raise MissingFileError("the trained model does not exist", path=file, hint=hint)
        given = {key: value for key, value in options.items() if value is not None}
        numbers = self.task.measure(self.config, file, split, self.root, watcher=watcher, **given)
        return Measured(split, numbers, file, numbers.pop("sha256"))


def plan_training(
    network: str,
    config: PathGiven,
    *,
    out: PathGiven | None = None,
    data: PathGiven | None = None,
    seed: int | None = None,
    variant: str | None = None,
    changes: Sequence[str] = (),
    **settings: Any,
) -> Plan:
    """Resolve a training.

    Args:
        network: name of the network.
        config: the training file, or the name of a shipped one.
        out: the run folder; None for the default.
        data: the data folder; None for the default.
        seed: seed, instead of the file's.
        variant: a published variant.
        changes: settings that override the file's, ``key=value``.
        settings: further settings that override the file's if they are not None.

    Raises:
        UsageError: an unknown network or variant.
        CapbenchError: the file does not exist, or a setting is invalid.
    """
    from capbench.datasets.root import find_root
    from capbench.training.settings import find_training, load_training

    task = trainable(network)
    if variant is not None:
        check_choice("variant", variant, task.variants)
    given = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in (settings | {"seed": seed}).items()}
    changed = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]  # JSON is valid YAML
    loaded = load_training(
        task.settings, find_training(os.fspath(config)), [*task.variants.get(variant or "", ()), *changes, *changed]
    )
    name = "-".join([loaded.name, *([] if seed is None else [f"seed{seed}"]), *([] if variant is None else [variant])])
    run = Path("results/train") / name if out is None else Path(out)
    return Plan(task, loaded, find_root(data), run)


def train(
    network: str,
    config: PathGiven,
    *,
    out: PathGiven | None = None,
    data: PathGiven | None = None,
    features: PathGiven | None = None,
    captions: PathGiven | None = None,
    vectors: PathGiven | None = None,
    seed: int | None = None,
    variant: str | None = None,
    settings: Mapping[str, Any] | None = None,
    restart: bool = False,
    progress: bool | ProgressFactory = False,
) -> Trained:
    """Train a network, or resume an interrupted training, as ``capbench train`` does.

    Args:
        network: ``scan``, ``faier``, ``vilbert``, ``nneval`` or ``leic``, or the name of a plug-in's trainer.
        config: a training file (YAML), or the name of a shipped one.
        out: the run folder; by default ``results/train/NAME``.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        features: region features, instead of the file's.
        captions: captions with splits, instead of the file's.
        vectors: word vectors, instead of the file's.
        seed: seed, instead of the file's; the run folder is then ``NAME-seedN``.
        variant: a published variant, such as a row of FAIEr's Table 4; the run folder is then ``NAME-VARIANT``.
        settings: settings that override the file's, by dotted key (``{"optimiser.lr": 0.001}``).
        restart: True to discard the content of the run folder.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an unknown network or variant.
        StudyError: the training file is invalid.
        CapbenchError: captions, features or word vectors are missing or invalid.
    """
    bars = _caller(progress, data=data, seed=seed).progress
    given = {**(settings or {}), "features": features, "captions": captions, "vectors": vectors}
    plan = plan_training(network, config, out=out, data=data, variant=variant, seed=seed, **given)
    with contextlib.ExitStack() as stack:
        return plan.train(_watcher(bars, stack), restart=restart)


def _watcher(bars: ProgressFactory, stack: contextlib.ExitStack) -> Watcher:
    from capbench.training.trainer import Watcher

    class Steps(Watcher):
        advance: Any = None
        before = 0

        def bar(self, description: str, total: int | None) -> Any:
            return bars(description, total)

        def step(self, steps: int, done: int) -> None:
            self.advance = self.advance or stack.enter_context(bars("training", steps))
            self.advance(done - self.before)
            self.before = done

    return Steps()


def evaluate_model(
    network: str,
    config: PathGiven,
    split: str = "test",
    *,
    model: PathGiven | None = None,
    vocabulary: PathGiven | None = None,
    number: int | None = None,
    folds: int | None = None,
    out: PathGiven | None = None,
    data: PathGiven | None = None,
    features: PathGiven | None = None,
    captions: PathGiven | None = None,
    seed: int | None = None,
    variant: str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool | ProgressFactory = False,
) -> Measured:
    """Evaluate a trained network on a split, as ``capbench train NETWORK CONFIG --evaluate SPLIT`` does.

    Args:
        network: ``scan``, ``faier``, or the name of a plug-in's trainer that can be evaluated.
        config: the training file (YAML), or the name of a shipped one.
        split: ``train``, ``dev`` or ``test``.
        model: the weights; by default those in the run folder. ``out``, ``seed`` and ``variant`` select that folder as
            for :func:`train`.
        vocabulary: the vocabulary (JSON) of a released checkpoint.
        number: evaluate this number of images, drawn at random; by default all.
        folds: mean over this number of equal parts of the images.
        out, data, features, captions, seed, variant, settings, progress: as for :func:`train`.

    Raises:
        UsageError: an unknown network, variant or split, or a network that cannot be evaluated.
        MissingFileError: the run folder has no trained model.
        ModelError: the model does not exist.
        CapbenchError: captions, features or word vectors are missing or invalid.
    """
    bars = _caller(progress, data=data, seed=seed).progress
    given = {**(settings or {}), "features": features, "captions": captions}
    plan = plan_training(network, config, out=out, data=data, variant=variant, seed=seed, **given)
    options = {"vocabulary": None if vocabulary is None else Path(vocabulary), "images": number, "folds": folds}
    with contextlib.ExitStack() as stack:
        return plan.measure(split, _watcher(bars, stack), model=None if model is None else Path(model), **options)


def train_word_vectors(
    captions: PathGiven | Sequence[PathGiven],
    out: PathGiven,
    *,
    data: PathGiven | None = None,
    dimension: int = 300,
    window: int = 5,
    min_count: int = 2,
    epochs: int = 20,
    seed: int = 1,
    include_judged: bool = False,
    progress: bool | ProgressFactory | Caller = False,
) -> TrainedVectors:
    """Train word vectors for WMD on captions (word2vec, skip-gram), as ``capbench train word-vectors`` does.

    The same captions, options and seed give the same file. Requires gensim. ``OUT.training.json`` records digests of
    the captions and their photographs, from which studies compute the overlap with judged captions.

    Args:
        captions: known corpora (``flickr8k``, ``coco-val``, …) or files, one or several.
        out: the file, in word2vec's binary format.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        dimension: dimension of the vectors.
        window: number of context words on each side.
        min_count: minimum count of a word.
        epochs: passes over the captions.
        seed: random seed.
        include_judged: True to read the captions of images that a data set of judgements in the data folder names;
            metrics with such vectors are marked in tables.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an option is not valid.
        DataError: the captions do not exist, all images are judged, or no word is frequent enough.
        ModelError: gensim is not installed.
    """
    from capbench.datasets.root import find_root
    from capbench.training import word_vectors

    caller = _caller(progress, data=data, seed=seed)
    sizes = {"dimension": dimension, "window": window, "min_count": min_count, "epochs": epochs, "seed": seed}
    options = word_vectors.WordVectorOptions.read("word-vectors", sizes)
    names = [captions] if isinstance(captions, str | os.PathLike) else captions
    corpora, root = [os.fspath(name) for name in names], find_root(data)
    caller.on_data(root, True)
    return word_vectors.train_caption_vectors(corpora, Path(out), root, options, caller, include_judged=include_judged)


@dataclass(frozen=True)
class FittedCovariance:
    """Fitted covariance matrix of context vectors for REO.

    Attributes:
        path: the file, for REO's option ``covariance_file``.
        corpus: name of the captions, for the signature of scores.
        counts: number of contexts, captions and images, by ``contexts``, ``captions`` and ``images``.
        without_features: number of images of the corpus without features, which are left out.
        size: number of rows of the matrix.
        shrinkage: shrinkage that was used.
        sha256: SHA-256 of the file.
    """

    path: Path
    corpus: str
    counts: Mapping[str, int]
    without_features: int
    size: int
    shrinkage: float
    sha256: str


def fit_reo_covariance(
    model: PathGiven,
    features: PathGiven,
    captions: PathGiven,
    out: PathGiven | None = None,
    *,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    shrinkage: float | None = None,
    lambda_softmax: float | None = None,
    norm: str | None = None,
    clip: str = "leaky",
    count_ends: bool = True,
    vocabulary: PathGiven | None = None,
    any_features: bool = False,
    progress: bool | ProgressFactory | Caller = False,
) -> FittedCovariance:
    """Fit the covariance for REO's Mahalanobis distance, as ``capbench train reo-covariance`` does.

    Do not fit it on the captions that will be scored: it would adapt the metric to them.

    Args:
        model: the grounding model (SCAN).
        features: region features of the images.
        captions: captions of the images: a known corpus or a file.
        out: the file; by default next to the model, where REO reads it.
        images: a file with the image ids to use, one per line; by default all.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        shrinkage: from 0 to 1; by default estimated (Chen et al. 2010).
        lambda_softmax: λ of the attention; by default the model's.
        norm: norm of the attention; by default the model's.
        clip: ``leaky`` or ``relu``.
        count_ends: True if ``<start>`` and ``<end>`` count as words.
        vocabulary: the vocabulary (JSON) of a released checkpoint.
        any_features: True to accept features of another kind than the model was trained on.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an argument is not valid, or the feature store does not exist.
        DataError: no image of the corpus has features, or a listed image has no captions.
        FeatureError, ModelError: the features or the model are invalid.
    """
    from capbench.datasets.root import find_root
    from capbench.metrics.reo import default_path, fit_covariance, write_covariance
    from capbench.metrics.scan.encode import GroundingOptions, open_source

    caller = _caller(progress, features=features, model=model, data=data)
    attention = {"lambda_softmax": lambda_softmax, "norm": norm, "clip": clip, "count_ends": count_ends}
    chosen = GroundingOptions.read("reo-covariance", attention)
    if out is None and os.fspath(model) == "sample":
        hint = f"Name the file to write with {caller.spelled('out')}"
        raise UsageError("the model 'sample' already has a covariance", code="exists", value="sample", hint=hint)
    if not Path(features).exists():
        hint = "Make one with 'capbench extract-features'"
        raise UsageError("the feature store does not exist", code="missing-file", path=features, hint=hint)
    vocabulary = None if vocabulary is None else os.fspath(vocabulary)
    source = open_source(os.fspath(features), os.fspath(model), vocabulary=vocabulary, any_features=any_features)
    target = default_path(source.model.path) if out is None else Path(out)
    files.check_writable(target)
    corpus, name = _captions_of(os.fspath(captions), images, find_root(data))
    with caller.progress("fitting", sum(image in source.store for image in corpus)) as step:
        covariance = fit_covariance(source, corpus, chosen, corpus=name, shrinkage=shrinkage, progress=step)
    write_covariance(target, covariance)
    facts = covariance.facts
    return FittedCovariance(
        path=target,
        corpus=name,
        counts={noun: facts[noun] for noun in ("contexts", "captions", "images")},
        without_features=len(corpus) - facts["images"],
        size=len(covariance.matrix),
        shrinkage=covariance.shrinkage,
        sha256=files.sha256_file(target),
    )


def _captions_of(captions: str, images: PathGiven | None, root: DataRoot) -> tuple[dict[str, Sequence[str]], str]:
    """Captions by image, of the images in a list if there is one, and their name for signatures."""
    from capbench.core.records import image_id
    from capbench.datasets.captions import load_captions

    corpus: dict[str, Sequence[str]] = dict(load_captions(captions, root))
    name = Path(captions).name
    if images is None:
        return corpus, name
    listed = {image_id(line.strip()) for line in files.read_lines(images) if line.strip()}
    absent = sorted(listed - corpus.keys())
    if absent:
        message = f"lists {count(len(absent), 'image')} without captions in {name}, such as '{absent[0][:60]}'"
        hint = "List images of these captions, one per line"
        raise DataError(message, code="unknown-item", value=absent[0], path=images, hint=hint)
    return {image: texts for image, texts in corpus.items() if image in listed}, f"{name}/{Path(images).name}"
