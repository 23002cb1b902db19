"""Training functions of ``import capbench``: networks, word vectors, REO's covariance, and evaluation of networks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from capbench.api.arguments import (
    CovarianceSettings,
    EvaluationSettings,
    MeasureSettings,
    RunSettings,
    WordVectorSettings,
)
from capbench.api.caller import ProgressGiven, python_caller
from capbench.api.checking import check_store, checked
from capbench.core import files
from capbench.core.arguments import PathGiven, PathsGiven
from capbench.core.errors import DataError, MissingFileError, UsageError, check_choice, count
from capbench.metrics.registry import trainable

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.metrics.reo import Covariance
    from capbench.training.settings import Training
    from capbench.training.trainer import Task, Trained, Watcher
    from capbench.training.word_vectors import TrainedVectors


@dataclass(frozen=True)
class Plan:
    """A resolved training."""

    task: type[Task[Any, Any]]  # the network
    config: Training  # the settings with all changes
    root: DataRoot
    run: Path  # the run folder

    def train(self, watcher: Watcher, *, restart: bool = False) -> Trained:
        """Train the network, or resume its training."""
        from capbench.training.trainer import train

        return train(self.task, self.config, self.run, self.root, restart=restart, watcher=watcher)

    def measure(self, split: str, watcher: Watcher, settings: MeasureSettings) -> dict[str, Any]:
        """Evaluate the run's model, or another one: the split, the numbers, the model's file and its SHA-256."""
        import torch

        from capbench.training.data import ROLES
        from capbench.training.trainer import Measurement
        from capbench.weights.registry import locate

        check_choice("split", split, ROLES)
        torch.set_num_threads(self.config.threads or torch.get_num_threads())
        model, vocabulary = settings.get("model"), settings.get("vocabulary")
        file = self.run / "model.safetensors" if model is None else locate(os.fspath(model), self.task.metric)
        if model is None and not file.is_file():
            hint = "Train it first, or name another model"
            raise MissingFileError("the trained model does not exist", path=file, hint=hint)
        given: dict[str, Any] = {name: settings[name] for name in ("images", "folds") if settings.get(name) is not None}
        given |= {} if vocabulary is None else {"vocabulary": Path(vocabulary)}
        numbers = self.task.measure(self.config, file, Measurement(split, self.root, watcher=watcher, **given))
        sha256 = numbers.pop("sha256")
        return {"split": split, **numbers, "model": str(file), "sha256": sha256}


def plan_training(
    network: str,
    config: PathGiven,
    run: RunSettings,
    *,
    settings: Mapping[str, Any] | None = None,  # settings that override the file's
    changes: Sequence[str] = (),  # settings that override the file's, ``key=value``
) -> Plan:
    """Resolve a training."""
    from pydantic import ValidationError

    from capbench.core.yaml import find_config
    from capbench.datasets.root import find_root
    from capbench.studies.study import Problems

    task, seed, out = trainable(network), run.get("seed"), run.get("out")
    given = {**(settings or {}), **{name: run.get(name) for name in ("features", "captions", "vectors", "seed")}}
    named = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in given.items()}
    changed = [f"{name}={json.dumps(value)}" for name, value in named.items() if value is not None]  # JSON is YAML
    file = find_config(os.fspath(config), "train", "training")
    try:
        loaded = task.settings.load(file, [*changes, *changed])
    except ValidationError as error:
        problems = Problems(file)
        problems.add_invalid(error, task.settings)
        problems.raise_if_any()
        raise
    name = loaded.name if seed is None else f"{loaded.name}-seed{seed}"
    return Plan(task, loaded, find_root(run.get("data")), Path("results/train") / name if out is None else Path(out))


@checked
def train(
    network: str,
    config: PathGiven,
    *,
    settings: Mapping[str, Any] | None = None,
    restart: bool = False,
    progress: ProgressGiven = False,
    **run: Unpack[RunSettings],
) -> Trained:
    """Train a network, or resume an interrupted training, as ``capbench train`` does.

    ``network`` is ``scan``, ``faier``, ``vilbert``, ``nneval``, ``leic`` or the name of a plug-in's trainer; ``config``
    a training file (YAML), or the name of a shipped one. ``settings`` override the file's, by dotted key
    (``{"optimiser.lr": 0.001}``); ``restart`` discards the content of the run folder. See
    :class:`capbench.api.arguments.RunSettings`.
    """
    from capbench.training.trainer import Watcher

    plan = plan_training(network, config, run, settings=settings)
    return plan.train(Watcher(python_caller(progress).progress), restart=restart)


@checked
def evaluate_model(
    network: str,
    config: PathGiven,
    split: str = "test",
    *,
    settings: Mapping[str, Any] | None = None,
    progress: ProgressGiven = False,
    **how: Unpack[EvaluationSettings],
) -> dict[str, Any]:
    """Evaluate a trained network on a split, as ``capbench train NETWORK CONFIG --evaluate SPLIT`` does.

    The result has the keys of the command's JSON. ``out`` and ``seed`` select the run folder as for
    :func:`train`; other inputs: :class:`capbench.api.arguments.EvaluationSettings`.
    """
    from capbench.training.trainer import Watcher

    plan = plan_training(network, config, how, settings=settings)
    return plan.measure(split, Watcher(python_caller(progress).progress), how)


@checked
def train_word_vectors(
    captions: PathsGiven,
    out: PathGiven,
    *,
    progress: ProgressGiven = False,
    **settings: Unpack[WordVectorSettings],
) -> TrainedVectors:
    """Train word vectors for WMD on captions (word2vec, skip-gram), as ``capbench train word-vectors`` does.

    The same captions, options and seed give the same file. Requires gensim. ``OUT.training.json`` records digests of
    the captions and their photographs, from which studies compute the overlap with judged captions.
    Captions are known corpora (``flickr8k``, ``coco-val``, …) or files; the file has word2vec's binary format.
    """
    from capbench.datasets.root import find_root
    from capbench.training.word_vectors import train_caption_vectors

    caller, root = python_caller(progress), find_root(settings.pop("data", None))
    names = [captions] if isinstance(captions, str | os.PathLike) else captions
    corpora = [os.fspath(name) for name in names]
    caller.on_data(root, True)
    return train_caption_vectors(corpora, Path(out), root, caller, **settings)


@checked
def fit_reo_covariance(
    model: PathGiven,
    features: PathGiven,
    captions: PathGiven,
    out: PathGiven | None = None,
    *,
    progress: ProgressGiven = False,
    **settings: Unpack[CovarianceSettings],
) -> Covariance:
    """Fit the covariance for REO's Mahalanobis distance, as ``capbench train reo-covariance`` does.

    Do not fit it on the captions that will be scored: it would adapt the metric to them.
    By default the file is next to the model (SCAN), where REO reads it. Captions are a known corpus or a file.
    """
    from capbench.datasets.root import find_root
    from capbench.features.store import open_store
    from capbench.metrics.reo import default_path, fit_covariance, read_covariance, write_covariance
    from capbench.metrics.scan.encode import GroundingOptions, open_source

    caller, names = python_caller(progress), ("lambda_softmax", "norm", "clip", "count_ends")
    given = {name: value for name, value in settings.items() if name in names}
    chosen = GroundingOptions.read("reo-covariance", {"clip": "leaky", **given})
    if out is None and os.fspath(model) == "sample":
        hint = f"Name the file to write with {caller.spelled('out')}"
        raise UsageError("the model 'sample' already has a covariance", code="exists", value="sample", hint=hint)
    check_store(os.fspath(features))
    vocabulary, any_features = settings.get("vocabulary"), settings.get("any_features", False)
    words = None if vocabulary is None else os.fspath(vocabulary)
    store = open_store(os.fspath(features))
    source = open_source(store, os.fspath(model), vocabulary=words, any_features=any_features)
    target = default_path(source.model.path) if out is None else Path(out)
    files.check_writable(target)
    corpus, name = _captions_of(os.fspath(captions), settings.get("images"), find_root(settings.get("data")))
    shrinkage = settings.get("shrinkage")
    with caller.progress("fitting", sum(image in source.store for image in corpus)) as step:
        covariance = fit_covariance(source, corpus, chosen, corpus=name, shrinkage=shrinkage, progress=step)
    write_covariance(target, covariance)
    if absent := len(corpus) - covariance.facts["images"]:
        caller.note(f"omitted {count(absent, 'image')} of {name} without features")
    return read_covariance(target)


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
