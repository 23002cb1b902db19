"""Training functions of ``import capbench``: networks, word vectors, REO's covariance, and evaluation of networks."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments
from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, UsageError, check_choice, count, suggest
from capbench.metrics.registry import trainable

if TYPE_CHECKING:
    from capbench.api.resolve import Caller, PathGiven
    from capbench.datasets.root import DataRoot
    from capbench.studies.judged import ProgressFactory
    from capbench.training.loop import TrainingResult, Watcher
    from capbench.training.settings import Training
    from capbench.training.trainable import Bars, Trainable

__all__ = [
    "FittedCovariance",
    "Measured",
    "PlannedTraining",
    "Trained",
    "TrainedVectors",
    "as_changes",
    "covariance_of",
    "evaluate_model",
    "fit_reo_covariance",
    "plan_training",
    "train",
    "train_word_vectors",
    "vectors_of",
]


@dataclass(frozen=True)
class Trained:
    """Result of a training.

    Attributes:
        network: name of the network.
        run: the run folder, with log and checkpoint.
        model: the weight file, for ``model=``.
        sha256: SHA-256 of the file.
        ended: the limit that ended the training: ``epochs``, ``max_steps`` or ``patience``.
        step: number of steps.
        chosen: the evaluation of the saved weights.
        seconds: training time, including interrupted runs.
    """

    network: str
    run: Path
    model: Path
    sha256: str
    ended: str
    step: int
    chosen: Mapping[str, Any]
    seconds: float


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
    from capbench.api.resolve import python_caller

    check_arguments({"data": data, "seed": seed, "progress": progress})
    bars = python_caller(progress).progress
    plan = plan_training(
        network,
        os.fspath(config),
        out=None if out is None else Path(out),
        data=None if data is None else Path(data),
        variant=variant,
        seed=seed,
        changes=as_changes(settings or {}),
        features=features,
        captions=captions,
        vectors=vectors,
    )
    with contextlib.ExitStack() as stack:
        watcher = _steps_watcher(lambda steps: stack.enter_context(bars("training", steps)))
        result = plan.train(bars, restart=restart, watcher=watcher)
    assert result.model is not None  # only an interrupted training has no model
    assert result.sha256 is not None
    chosen = result.chosen or {}
    return Trained(
        network, plan.run, result.model, result.sha256, result.ended, result.step, chosen, round(result.seconds, 1)
    )


def evaluate_model(
    network: str,
    config: PathGiven,
    split: str = "test",
    *,
    model: PathGiven | None = None,
    vocabulary: PathGiven | None = None,
    number: int | None = None,
    folds: int = 1,
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
        out: the run folder.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        features: region features, instead of the file's.
        captions: captions with splits, instead of the file's.
        seed: as for :func:`train`.
        variant: as for :func:`train`.
        settings: settings that override the file's, by dotted key.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: an unknown network, variant or split, or a network that cannot be evaluated.
        MissingFileError: the run folder has no trained model.
        ModelError: the model does not exist.
        CapbenchError: captions, features or word vectors are missing or invalid.
    """
    from capbench.api.resolve import python_caller

    check_arguments({"data": data, "seed": seed, "progress": progress})
    caller = python_caller(progress)
    plan = plan_training(
        network,
        os.fspath(config),
        out=None if out is None else Path(out),
        data=None if data is None else Path(data),
        variant=variant,
        seed=seed,
        changes=as_changes(settings or {}),
        caller=caller,
        features=features,
        captions=captions,
    )
    return plan.measure(
        split,
        caller.progress,
        caller.tell,
        model=None if model is None else Path(model),
        vocabulary=None if vocabulary is None else Path(vocabulary),
        images=number,
        folds=folds,
    )


@dataclass(frozen=True)
class TrainedVectors:
    """Trained word vectors.

    Attributes:
        path: the file, for WMD's option ``vectors``.
        words: number of words.
        dimension: dimension of the vectors.
        captions: number of training captions.
        sha256: SHA-256 of the file.
        judged: number of images whose captions were left out because they are judged.
    """

    path: Path
    words: int
    dimension: int
    captions: int
    sha256: str
    judged: int = 0


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
    progress: bool | ProgressFactory = False,
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
    from capbench.api.resolve import python_caller

    check_arguments({"data": data, "seed": seed, "progress": progress})
    names = [captions] if isinstance(captions, str | os.PathLike) else captions
    options = {"dimension": dimension, "window": window, "min_count": min_count, "epochs": epochs, "seed": seed}
    paths = [os.fspath(name) for name in names]
    return vectors_of(paths, Path(out), data, options, python_caller(progress), include_judged=include_judged)


def vectors_of(
    captions: Sequence[str],
    out: Path,
    data: PathGiven | None,
    options: Mapping[str, Any],
    caller: Caller,
    *,
    include_judged: bool = False,
) -> TrainedVectors:
    """Train word vectors for Python or the command line; see :func:`train_word_vectors`."""
    from capbench.core.files import sha256_file
    from capbench.datasets.root import find_root
    from capbench.training import word_vectors

    chosen = word_vectors.WordVectorOptions.read("word-vectors", options)
    root = find_root(data)
    caller.on_data(root, True)
    made = word_vectors.train_caption_vectors(
        captions, out, root, chosen, caller.progress, include_judged=include_judged, say=caller.tell
    )
    return TrainedVectors(out, made.words, chosen.dimension, made.captions, sha256_file(out), made.judged)


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
    progress: bool | ProgressFactory = False,
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
    from capbench.api.resolve import python_caller

    check_arguments({"features": features, "model": model, "data": data, "progress": progress})
    return covariance_of(
        os.fspath(model),
        Path(features),
        os.fspath(captions),
        None if out is None else Path(out),
        None if images is None else Path(images),
        data,
        python_caller(progress),
        attention={"lambda_softmax": lambda_softmax, "norm": norm, "clip": clip, "count_ends": count_ends},
        shrinkage=shrinkage,
        vocabulary=None if vocabulary is None else os.fspath(vocabulary),
        any_features=any_features,
    )


def covariance_of(
    model: str,
    features: Path,
    captions: str,
    out: Path | None,
    images: Path | None,
    data: PathGiven | None,
    caller: Caller,
    *,
    attention: Mapping[str, Any],
    shrinkage: float | None,
    vocabulary: str | None,
    any_features: bool,
) -> FittedCovariance:
    """Fit a covariance for Python or the command line; see :func:`fit_reo_covariance`."""
    from capbench.datasets.root import find_root
    from capbench.metrics.reo import default_path, fit_covariance, write_covariance
    from capbench.metrics.scan.encode import GroundingOptions, open_source

    chosen = GroundingOptions.read("reo-covariance", attention)
    if out is None and not Path(model).exists() and model == "sample":
        raise UsageError(
            "the model 'sample' already has a covariance",
            code="exists",
            value=model,
            hint=f"Name the file to write with {caller.spelled('out')}",
        )
    if not features.exists():
        hint = "Make one with 'capbench extract-features'"
        raise UsageError("the feature store does not exist", code="missing-file", path=features, hint=hint)
    source = open_source(str(features), model, vocabulary=vocabulary, any_features=any_features)
    target = default_path(source.model.path) if out is None else out
    files.check_writable(target)
    corpus, name = _captions_of(captions, images, find_root(data))
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


def _captions_of(captions: str, images: Path | None, root: DataRoot) -> tuple[dict[str, Sequence[str]], str]:
    """Captions by image, of the images in a list if there is one, and their name for signatures.

    Raises:
        DataError: an image of the list has no captions.
    """
    from capbench.core.records import image_id
    from capbench.datasets.captions import load_captions

    corpus: dict[str, Sequence[str]] = dict(load_captions(captions, root))
    name = Path(captions).name
    if images is None:
        return corpus, name
    listed = {image_id(line.strip()) for line in files.read_lines(images) if line.strip()}
    absent = sorted(listed - corpus.keys())
    if absent:
        raise DataError(
            f"lists {count(len(absent), 'image')} without captions in {name}, such as '{absent[0][:60]}'",
            code="unknown-item",
            value=absent[0],
            path=images,
            hint="List images of these captions, one per line",
        )
    return {image: of_image for image, of_image in corpus.items() if image in listed}, f"{name}/{images.name}"


def as_changes(values: Mapping[str, Any]) -> list[str]:
    """Values as changes of a training file, ``key=value``; None changes nothing."""
    texts = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in values.items()}
    # JSON is valid YAML.
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in texts.items() if value is not None]


@dataclass(frozen=True)
class PlannedTraining:
    """A resolved training that has not started.

    Attributes:
        network: the network.
        settings: the settings with all changes.
        file: the training file.
        root: the data folder.
        run: the run folder.
        caller: Python or the command line.
    """

    network: Trainable[Any]
    settings: Training
    file: Path
    root: DataRoot
    run: Path
    caller: Caller

    @property
    def reads_root(self) -> bool:
        """True if captions come from the data folder."""
        captions = getattr(self.settings, "captions", "")
        return self.network.more_data or not Path(captions).expanduser().exists()

    @property
    def done(self) -> bool:
        """True if the run folder has a trained model."""
        return self._model.is_file()

    @property
    def _model(self) -> Path:
        return self.run / "model.safetensors"

    def train(
        self,
        bars: Bars,
        *,
        restart: bool = False,
        stop: Callable[[], bool] = lambda: False,
        watcher: Watcher | None = None,
    ) -> TrainingResult:
        """Train the network.

        Args:
            bars: shows progress before the first step.
            restart: True to discard the content of the run folder.
            stop: returns True to stop after the current step.
            watcher: receives steps and evaluations.
        """
        work = {"bars": bars} if self.network.shows_work else {}
        with self._with_feature_commands():
            return self.network.train(
                self.settings, self.run, root=self.root, restart=restart, stop=stop, watcher=watcher, **work
            )

    def measure(
        self,
        split: str,
        bars: Bars,
        say: Callable[[str], None],
        *,
        model: Path | None = None,
        vocabulary: Path | None = None,
        images: int | None = None,
        folds: int = 1,
    ) -> Measured:
        """Evaluate the run's model, or another one, on a split.

        Args:
            split: ``train``, ``dev`` or ``test``.
            bars: shows progress.
            say: receives notes on slow steps.
            model: another model than the run's.
            vocabulary: vocabulary of a released checkpoint.
            images: number of sampled images; None for all.
            folds: mean over this number of equal parts of the images.

        Raises:
            UsageError: an unknown split, or a network that cannot be evaluated.
            MissingFileError: the run folder has no trained model.
            ModelError: the named model does not exist.
        """
        from capbench.training.captions import ROLES
        from capbench.training.trainable import Measuring
        from capbench.weights.registry import locate

        if self.network.measure is None:
            raise UsageError("this network cannot be evaluated", code="unsupported", hint="Evaluate scan or faier")
        with self._with_feature_commands():
            check_choice("split", split, ROLES)
            if self.settings.threads is not None:
                import torch

                torch.set_num_threads(self.settings.threads)
            file = self._model if model is None else locate(model, self.network.metric)
            if model is None and not file.is_file():
                hint = f"Train it first, or name one with {self.caller.spelled('model')}"
                raise MissingFileError("the trained model does not exist", path=file, hint=hint)
            measuring = Measuring(split, bars, say, images, vocabulary, folds)
            numbers = self.network.measure(self.settings, file, self.root, measuring)
        digest = numbers.pop("sha256")
        return Measured(split, numbers, file, digest)

    @contextlib.contextmanager
    def _with_feature_commands(self) -> Iterator[None]:
        """Add the commands for the features, from the head of the training file, to an error about missing features."""
        try:
            yield
        except MissingFileError as error:
            features = getattr(self.settings, "features", None)
            commands = _commands_at_head(self.file)
            if None in (features, error.path) or not commands:
                raise
            if Path(str(error.path)) != Path(str(features)).expanduser():
                raise
            hint = f"Make it first: {' && '.join(commands)}"
            raise MissingFileError(
                error.message, code=error.code, value=error.value, path=error.path, row=error.row, hint=hint
            ) from error


def plan_training(
    network: str,
    config: str,
    *,
    out: Path | None = None,
    data: Path | None = None,
    seed: int | None = None,
    variant: str | None = None,
    changes: Sequence[str] = (),
    caller: Caller | None = None,
    **overrides: Any,
) -> PlannedTraining:
    """Resolve a training.

    Args:
        network: name of the network.
        config: the training file, or the name of a shipped one.
        out: the run folder; None for the default.
        data: the data folder; None for the default.
        seed: seed, instead of the file's.
        variant: a published variant.
        changes: settings that override the variant's, ``key=value``.
        caller: Python (default) or the command line.
        overrides: settings that override the file's if they are not None: features, captions, vectors.

    Raises:
        UsageError: an unknown network or variant.
        CapbenchError: the file does not exist, or a setting is invalid.
    """
    from capbench.api.caller import PYTHON
    from capbench.datasets.root import find_root
    from capbench.training.settings import find_training, load_training

    caller = caller or PYTHON
    found = trainable(network)
    if variant is not None and variant not in found.variants:
        hint = suggest(variant, list(found.variants)) if found.variants else "Omit it"
        raise UsageError(
            f"{caller.spelled('variant')} {variant}: unknown variant",
            code="unknown-name",
            value=variant,
            hint=hint,
        )
    file = find_training(config)
    changed = [*found.variants.get(variant or "", ()), *changes, *as_changes({**overrides, "seed": seed})]
    settings = load_training(found.settings, file, changed)
    named = [settings.name, *([] if seed is None else [f"seed{seed}"]), *([] if variant is None else [variant])]
    run = out or Path("results/train") / "-".join(named)
    return PlannedTraining(found, settings, file, find_root(data), run, caller)


def _commands_at_head(training_file: Path) -> list[str]:
    """The commands for features in the comments at the head of a training file; a backslash continues a line."""
    head = itertools.takewhile(lambda line: line.startswith("#"), files.read_lines(training_file))
    lines = "\n".join(line.lstrip("# ").rstrip() for line in head).replace("\\\n", "").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith(("capbench import-", "capbench feature"))]


def _steps_watcher(start: Callable[[int], Callable[[int], None]]) -> Watcher:
    """A watcher that reports steps to the progress display that ``start`` opens."""
    from capbench.training.loop import Watcher

    class Steps(Watcher):
        advance: Callable[[int], None]

        def start(self, steps: int, done: int) -> None:
            self.advance = start(steps)
            self.advance(done)

        def step(self) -> None:
            self.advance(1)

    return Steps()
