"""The interface of detectors, and opening a detector by name.

Its preprocessor prepares an image (in worker processes, without the network), :meth:`Detector.detect` passes prepared
images through the network, and :meth:`Detector.fingerprint` identifies everything that can change a feature. Detectors
are registered under the entry points ``capbench.detectors``.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from capbench.core import plugins
from capbench.core.errors import (
    CapbenchError,
    DataError,
    ModelError,
    UsageError,
    check_choice,
    count,
)
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, Kind, Number, Options, option
from capbench.features.records import Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import torch

    from capbench.features.detectors.images import Prepared
    from capbench.weights.checkpoints import Checkpoint


class Numbers(Kind):
    """One or more finite numbers from 0 to ``maximum``, as a list or separated by commas."""

    def __init__(self, maximum: float) -> None:
        super().__init__(f"numbers from 0 to {maximum:g} with commas between them, such as 0.5,0.7")
        self._number = Number(0, maximum)

    def read(self, value: object) -> tuple[float, ...]:
        entries = [float(text) for text in value.split(",")] if isinstance(value, str) else value
        numbers = tuple(map(self._number.read, entries if isinstance(entries, list | tuple) else [entries]))
        if not numbers:
            raise ValueError
        return numbers

    def sign(self, value: tuple[float, ...]) -> str:
        return ",".join(f"{number:g}" for number in value)


@dataclass(frozen=True)
class NetworkOptions(Options):
    """Options of every detector with a PyTorch network."""

    batch: int = option(1, Count(1), "images per forward pass; more than 1 leaves reference mode")
    precision: str = option("float32", Choice("float32", "amp-bfloat16", "amp-float16"), "of the forward pass")


@dataclass(frozen=True)
class HFSelection(NetworkOptions):
    """Options of the selection of regions in HF mode, with the values of the published configuration."""

    min_boxes: int = option(36, Count(1), "minimum number of regions per image")
    max_boxes: int = option(36, Count(1), "maximum number of regions per image")
    nms: tuple[float, ...] = option((0.5, 0.6, 0.7), Numbers(1), "maximum IoU of regions, tried in turn")

    def mode(self) -> str:
        """A description for a fingerprint."""
        return f"hf nms {','.join(f'{t:g}' for t in self.nms)} {self.min_boxes}-{self.max_boxes}"


@dataclass(frozen=True)
class HFOptions(HFSelection):
    """Options of HF mode, with the sizes of the published configuration."""

    shorter: int = option(800, Count(1), "pixels of an image's shorter side")
    longer: int = option(1333, Count(1), "maximum pixels of its longer side")


class Detector(abc.ABC):
    """Base class of detectors."""

    options_class: ClassVar[type[Options]] = Options  # declares the options
    # the suffix after the name and a colon, with an example (``("backbone", "resnet50")``), or None
    variants: ClassVar[tuple[str, str] | None] = None

    name: str  # the registered name; for ``grid`` with the backbone (``grid:resnet50``)
    feature_size: int  # d, the length of a region's feature
    class_names: tuple[str, ...] | None = None  # names by class id, or None if they are unknown
    attribute_names: tuple[str, ...] | None = None  # names by attribute id, or None
    batchable: bool = False  # False in reference mode: an image's features must not depend on other images
    # implementation of :meth:`preprocess`: small, picklable, without the network; other processes may run it
    preprocessor: Callable[[NDArray[np.uint8]], Any]
    device: str = "cpu"  # device of the network (``cpu``, ``cuda``, ``cuda:1``)

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Create the detector; by default one without weights. ``variant``: the text after the name and a colon."""
        if weights is not None:
            message = f"the detector '{cls.name}' has no weights"
            raise UsageError(message, code="conflict", value=cls.name, hint="Omit --weights")
        return cls(options)

    @abc.abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Everything that can change a feature."""

    def preprocess(self, image: NDArray[np.uint8]) -> Any:
        """Prepare one image, uint8 (h, w, 3) RGB."""
        return self.preprocessor(image)

    @abc.abstractmethod
    def detect(self, prepared: Sequence[Any]) -> list[RegionFeatures]:
        """The regions of prepared images, in their order; the caller sets ``image``, which is empty."""


class Network(Detector):
    """Base class of detectors with a PyTorch network: weights, device, precision, batch size, fingerprint."""

    options: NetworkOptions
    # for the fingerprint of untrained weights; ``random-2`` where version 0.2 drew others of the same seed
    random: ClassVar[str] = "random"
    preprocessing: str  # description of the preprocessing, for the fingerprint
    mode: str  # description of the post-processing, for the fingerprint

    def __init__(self, name: str, network: Any, weights_sha256: str, device: str, options: Any) -> None:
        super().__init__(options)
        self.name, self.weights_sha256, self.device = name, weights_sha256, device
        self.network = network.to(device).eval()
        self.batch = options.batch
        self.batchable = options.batch > 1

    @classmethod
    @abc.abstractmethod
    def build(cls, options: Any, variant: str, checkpoint: Checkpoint | None) -> Any:
        """The network with the weights of a checkpoint, or with those that PyTorch draws."""

    @classmethod
    def weights_file(cls, name: str) -> Path:
        """The file of the weights if none is passed: by default the one that the registry finds and verifies."""
        from capbench.weights.registry import find_weights

        return find_weights(name)

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        import torch

        from capbench.weights.checkpoints import read_checkpoint

        name = f"{cls.name}:{variant}" if variant else cls.name
        seed = random_seed(weights)
        checkpoint = None
        if seed is None:
            checkpoint = read_checkpoint(cls.weights_file(name) if weights is None else Path(weights).expanduser())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed or 0)
            network = cls.build(options, variant, checkpoint)
        weights_sha256 = f"{cls.random}:{seed}" if checkpoint is None else checkpoint.sha256
        return cls(name, network, weights_sha256, device, options)

    def fingerprint(self) -> Fingerprint:
        import torch
        import torchvision

        return Fingerprint(
            detector=self.name,
            weights_sha256=self.weights_sha256,
            preprocessing=self.preprocessing,
            mode=self.mode,
            batch="single" if self.batch == 1 else f"batched:{self.batch}",
            precision=self.options.precision,
            # The build (+cpu, +cu130) depends on the machine.
            versions=tuple((of.__name__, of.__version__.split("+")[0]) for of in (torch, torchvision)),
        )

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        if len(prepared) > self.batch:
            message = f"{self.name} accepts {count(self.batch, 'image')} per pass, not {len(prepared)}"
            hint = "Open it with the option batch=N"
            raise UsageError(message, code="too-many", value=len(prepared), hint=hint)
        with forward_pass(self.device, self.options.precision):
            return self.regions(prepared) if prepared else []

    @abc.abstractmethod
    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of one or more prepared images, at most as many as the batch size, without gradients."""


@contextlib.contextmanager
def forward_pass(device: str, precision: str) -> Iterator[None]:
    """The context in which a network runs: no gradients, float32 (not TensorFloat-32) or mixed precision.

    Kernels that are selected by timing, or that add in varying order, are disabled: features would change between runs.
    """
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if torch.device(device).type == "cuda":
            exact = {"benchmark": False, "deterministic": True, "allow_tf32": False}
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, **exact))
        if precision != "float32":
            kind = torch.bfloat16 if precision == "amp-bfloat16" else torch.float16
            stack.enter_context(torch.autocast(torch.device(device).type, dtype=kind))
        yield


def numpy32(tensor: torch.Tensor) -> NDArray[np.float32]:
    """A tensor as a float32 NumPy array."""
    return tensor.detach().float().cpu().numpy()


def random_seed(weights: str | os.PathLike[str] | None) -> int | None:
    """The seed in ``"random"`` (0) or ``"random:SEED"``; None for any other value."""
    if not isinstance(weights, str) or weights.partition(":")[0] != "random":
        return None
    seed = weights.partition(":")[2] or "0"
    if not seed.isdigit():
        message = f"weights '{weights}': the seed is not a number"
        raise UsageError(message, code="wrong-value", value=weights, hint="Example: random:0")
    return int(seed)


def names() -> tuple[str, ...]:
    """Registered names, including those of plug-ins; ``grid`` represents ``grid:BACKBONE``."""
    return tuple(plugins.names("capbench.detectors"))


_DOWNLOADED = "torchvision-frcnn"
_OF_PHOTOGRAPHS = ("bottom-up-caffe", "bottom-up-hf", _DOWNLOADED)  # defaults if they are installed, the best first


def detector_of_photographs(
    note: Callable[[str], None],  # receives one line before a download
    progress: Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]],  # of the download, in MB
) -> str:
    """The default detector of photographs: bottom-up attention if it is installed, else torchvision's, downloaded."""
    from capbench.weights.download import announcement, download, downloadable
    from capbench.weights.registry import entries

    for name in _OF_PHOTOGRAPHS:
        if any(weights.path.exists() for weights in entries().values() if name in weights.used_by):
            return name
    weights = downloadable(_DOWNLOADED)
    note(f"no detector of photographs is installed; downloading {announcement(weights)}")

    @contextlib.contextmanager
    def megabytes(file: str) -> Iterator[Callable[[int, int | None], None]]:
        with progress(f"downloading {file}, MB", weights.megabytes) as step:
            done = 0

            def report(received: int, _: int | None) -> None:
                nonlocal done
                step(received // 1_000_000 - done)
                done = received // 1_000_000

            yield report

    try:
        download(weights, progress=megabytes)
    except CapbenchError as error:
        message = f"no detector of photographs is installed, and {_DOWNLOADED} cannot be downloaded: {error.message}"
        others = ", ".join(name for name in names() if name != "sample")
        hint = f"Choose another with --detector: {others} ('capbench models list' shows their weights)"
        raise ModelError(message, code="missing-weights", value=_DOWNLOADED, hint=hint) from error
    return _DOWNLOADED


def load_detector(
    name: str,  # one of :func:`names`, ``grid:BACKBONE``, or ``module:Class``
    *,
    # a file; None for the one that ``capbench models`` lists; ``random:SEED`` for an untrained network
    weights: str | os.PathLike[str] | None = None,
    device: str = "cpu",  # ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` for a GPU if there is one
    options: Mapping[str, Any] | None = None,
) -> Detector:
    """Open a detector."""
    base, colon, variant = name.partition(":")
    is_registered = base in names()
    cls = plugins.load("capbench.detectors", base if is_registered else name)
    if not issubclass(cls, Detector):
        message = f"the class {cls.__name__} of '{name}' is not a detector"
        hint = "Derive it from capbench.features.detectors.base.Detector; docs/extend.md has an example"
        raise UsageError(message, code="wrong-type", value=name, hint=hint)
    if is_registered and colon and cls.variants is None:
        check_choice("detector", name, names())
    if is_registered and cls.variants is not None and not variant:
        kind, example = cls.variants
        message, hint = f"the detector '{base}' requires a {kind}", f"Example: {base}:{example}"
        raise UsageError(message, code="missing-option", value=base, hint=hint)
    checked = cls.options_class.read(name, options or {})
    place = choose_device(device)
    try:
        return cls.open(checked, weights=weights, device=place, variant=variant if is_registered else "")
    except Exception as error:
        if isinstance(error, CapbenchError) or cls.__module__.startswith("capbench."):
            raise
        message = f"the detector '{name}' cannot be opened ({type(error).__name__}: {error})"
        hint = f"Fix {cls.__module__}.{cls.__qualname__}"
        raise UsageError(message, code="invalid", value=name, hint=hint) from error


def check_box_limits(detector: str, min_boxes: int, max_boxes: int) -> None:
    """Raise UsageError unless the minimum number of boxes is at most the maximum."""
    if min_boxes > max_boxes:
        message = f"{detector}: min_boxes={min_boxes} is greater than max_boxes={max_boxes}"
        raise UsageError(message, code="conflict", value=min_boxes)


def read_names(path: str | None, number: int, kind: str) -> tuple[str, ...] | None:
    """A vocabulary file of so many classes or attributes: one per line, the first of names separated by commas."""
    if path is None:
        return None
    from capbench.core.files import read_lines

    vocabulary = tuple(line.split(",")[0].strip() for line in read_lines(Path(path).expanduser()))
    if len(vocabulary) == number + 1 and vocabulary[0] in ("__background__", "__no_attribute__", "background"):
        vocabulary = vocabulary[1:]
    if len(vocabulary) != number:
        message = f"has {len(vocabulary)} names, but the network has {number} {kind}"
        raise DataError(message, code="mismatch", value=len(vocabulary), path=path)
    return vocabulary


def region_features(
    image: Prepared, boxes: torch.Tensor, features: torch.Tensor, **flat: torch.Tensor
) -> RegionFeatures:
    """One image's record: boxes (n, 4), features (n, d), and ids and scores (n,) of classes or attributes."""
    fields: dict[str, Any] = {
        name: values.int().cpu().numpy() if "_ids" in name else numpy32(values) for name, values in flat.items()
    }
    return RegionFeatures("", image.width, image.height, numpy32(boxes), numpy32(features), **fields)
