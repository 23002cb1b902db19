"""The interface of detectors, and opening a detector by name.

A detector turns images into regions. Its preprocessor prepares an image (in worker processes, without the network),
:meth:`Detector.detect` passes prepared images through the network, and :meth:`Detector.fingerprint` identifies
everything that can change a feature. Detectors are registered under the entry points ``capbench.detectors``.
"""

from __future__ import annotations

import abc
import contextlib
import math
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
    FeatureError,
    MissingFileError,
    ModelError,
    UsageError,
    suggest,
)
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, Kind, Options, option
from capbench.features.records import Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import torch

    from capbench.features.detectors.images import Prepared

# Options of detectors, in addition to the general kinds of options.


class Numbers(Kind):
    """Finite numbers from 0 to ``maximum``, as a list or separated by commas: ``count`` of them, or one or more."""

    def __init__(self, count: int = 0, maximum: float = math.inf) -> None:
        how_many = f"{count} numbers" if count else "numbers"
        limits = f"from 0 to {maximum:g}" if maximum < math.inf else "from 0"
        super().__init__(f"{how_many} {limits} with commas between them", ",".join(["0.5"] * count) or "0.5,0.7")
        self._count, self._maximum = count, maximum

    def read(self, value: object) -> tuple[float, ...]:
        """The parsed numbers."""
        entries: list[Any] = value.split(",") if isinstance(value, str) else [value]
        if isinstance(value, list | tuple):
            entries = list(value)
        if any(isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in entries):
            raise ValueError
        try:
            numbers = tuple(float(entry) for entry in entries)
        except OverflowError as error:
            raise ValueError from error
        if not numbers or (self._count and len(numbers) != self._count):
            raise ValueError
        if not all(math.isfinite(number) and 0 <= number <= self._maximum for number in numbers):
            raise ValueError
        return numbers

    def sign(self, value: tuple[float, ...]) -> str:
        """The numbers separated by commas."""
        return ",".join(f"{number:g}" for number in value)


@dataclass(frozen=True)
class NetworkOptions(Options):
    """Options of every detector with a PyTorch network."""

    batch: int = option(1, Count(1), "images per forward pass; more than 1 leaves reference mode")
    precision: str = option("float32", Choice("float32", "amp-bfloat16", "amp-float16"), "of the forward pass")


class Detector(abc.ABC):
    """Base class of detectors."""

    options_class: ClassVar[type[Options]] = Options  # declares the options
    # the suffix after the name and a colon, with an example (``("backbone", "resnet50")``), or None
    variants: ClassVar[tuple[str, str] | None] = None

    name: str  # the registered name; for ``grid`` with the backbone (``grid:resnet50``)
    feature_size: int  # d, the length of a region's feature
    class_names: tuple[str, ...] | None = None  # names by class id, or None if they are unknown
    attribute_names: tuple[str, ...] | None = None  # names by attribute id, or None
    # True if :meth:`detect` accepts more than one image. False in reference mode, where an image's features must not
    # depend on other images.
    batchable: bool = False
    # implementation of :meth:`preprocess`: small, picklable, without the network; other processes may run it
    preprocessor: Callable[[NDArray[np.uint8]], Any]
    device: str = "cpu"  # device of the network (``cpu``, ``cuda``, ``cuda:1``)

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Create the detector. This implementation is for detectors without weights.

        ``options``: a valid instance of ``options_class``; ``weights``: as for :func:`load_detector`; ``device``:
        ``cpu``, ``cuda`` or ``cuda:N``; ``variant``: the text after the name and a colon; empty if ``variants`` is
        None.
        """
        if weights is not None:
            raise UsageError(
                f"the detector '{cls.name}' has no weights", code="conflict", value=cls.name, hint="Omit --weights"
            )
        return cls(options)

    @abc.abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Everything that can change a feature."""

    def preprocess(self, image: NDArray[np.uint8]) -> Any:
        """Prepare one image, uint8 (h, w, 3) RGB. Raises DataError for another array."""
        return self.preprocessor(image)

    @abc.abstractmethod
    def detect(self, prepared: Sequence[Any]) -> list[RegionFeatures]:
        """The regions of prepared images, in their order; the caller sets ``image``, which is empty."""


class Network(Detector):
    """Base class of detectors with a PyTorch network: device, precision, batch size, fingerprint."""

    options: NetworkOptions

    def __init__(self, options: NetworkOptions, *, name: str, weights_sha256: str, device: str) -> None:
        super().__init__(options)
        self.name = name
        self.weights_sha256 = weights_sha256
        self.device = device
        self.batch = options.batch
        self.batchable = options.batch > 1
        self.precision = options.precision

    @abc.abstractmethod
    def preprocessing_line(self) -> str:
        """Description of the preprocessing, for the fingerprint."""

    @abc.abstractmethod
    def mode_line(self) -> str:
        """Description of the post-processing, for the fingerprint."""

    def fingerprint(self) -> Fingerprint:
        """Everything that can change a feature."""
        import torch
        import torchvision

        return Fingerprint(
            detector=self.name,
            weights_sha256=self.weights_sha256,
            preprocessing=self.preprocessing_line(),
            mode=self.mode_line(),
            batch="single" if self.batch == 1 else f"batched:{self.batch}",
            precision=self.precision,
            # The build (+cpu, +cu130) depends on the machine.
            versions=(
                ("torch", torch.__version__.split("+")[0]),
                ("torchvision", torchvision.__version__.split("+")[0]),
            ),
        )

    def detect(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of prepared images; see :meth:`Detector.detect`."""
        if len(prepared) > self.batch:
            raise UsageError(
                f"{self.name} accepts {self.batch} image{'s' if self.batch > 1 else ''} per pass, not {len(prepared)}",
                code="too-many",
                value=len(prepared),
                hint="Open it with the option batch=N",
            )
        with forward_pass(self.device, self.precision):
            return self.regions(prepared) if prepared else []

    @abc.abstractmethod
    def regions(self, prepared: Sequence[Prepared]) -> list[RegionFeatures]:
        """The regions of one or more prepared images, at most as many as the batch size, without gradients."""


@contextlib.contextmanager
def forward_pass(device: str, precision: str) -> Iterator[None]:
    """The context in which a network runs: no gradients, float32 or the requested mixed precision.

    On a GPU, float32 excludes TensorFloat-32, which convolutions use by default and which has only 10 bits. Kernels
    that are selected by timing, or that add in varying order, are disabled: features would change between runs.
    """
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if torch.device(device).type == "cuda":
            stack.enter_context(
                torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            )
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
        raise UsageError(
            f"weights '{weights}': the seed is not a number",
            code="wrong-value",
            value=weights,
            hint="Example: random:0",
        )
    return int(seed)


def weights_file(name: str, weights: str | os.PathLike[str] | None) -> Path:
    """The file of a detector's weights: the passed one, else the one that the registry finds and verifies."""
    if weights is not None:
        path = Path(weights).expanduser()
        if not path.exists():
            raise MissingFileError("there is no such weights file", path=path, hint="Pass the path of the file")
        return path
    from capbench.weights.registry import find_weights

    return find_weights(name)


def names() -> tuple[str, ...]:
    """Registered names, including those of plug-ins; ``grid`` represents ``grid:BACKBONE``."""
    return tuple(plugins.names("capbench.detectors"))


_DOWNLOADED = "torchvision-frcnn"
_OF_PHOTOGRAPHS = ("bottom-up-caffe", "bottom-up-hf", _DOWNLOADED)
"""Detectors that are the default if they are installed, the preferred one first."""


def detector_of_photographs(
    note: Callable[[str], None], progress: Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
) -> str:
    """The default detector of photographs: bottom-up attention if it is installed, else torchvision's.

    The weights of torchvision's are downloaded if they are missing.

    ``note``: receives one line before a download; ``progress``: makes the progress of the download, in MB.
    """
    from capbench.weights.download import announcement, download, find_source
    from capbench.weights.registry import entries

    def requirement(detector: str) -> str:
        fitting = [weights for weights in entries().values() if detector in weights.used_by]
        if any(weights.path.exists() for weights in fitting) or not fitting:
            return "installed"
        first = next((weights for weights in fitting if weights.url is not None), fitting[0])
        return f"capbench models {'download' if first.url is not None else 'list'} {first.name}"

    for name in _OF_PHOTOGRAPHS:
        if requirement(name) == "installed":
            return name
    try:
        source = find_source(_DOWNLOADED)
        note(f"no detector of photographs is installed; downloading {announcement(_DOWNLOADED, source)}")

        @contextlib.contextmanager
        def megabytes(file: str) -> Iterator[Callable[[int, int | None], None]]:
            total = None if source.bytes is None else source.bytes // 1_000_000
            with progress(f"downloading {file}, MB", total) as step:
                done = 0

                def report(received: int, _: int | None) -> None:
                    nonlocal done
                    step(received // 1_000_000 - done)
                    done = received // 1_000_000

                yield report

        download(_DOWNLOADED, source, progress=megabytes)
    except CapbenchError as error:
        others = [f"{name} ({requirement(name)})" for name in names() if name not in ("grid", "sample")]
        others.append("grid:BACKBONE (capbench models download grid:resnet50)")
        raise ModelError(
            f"no detector of photographs is installed, and {_DOWNLOADED} cannot be downloaded: {error.message}",
            code="missing-weights",
            value=_DOWNLOADED,
            hint=f"Choose with --detector: {'; '.join(sorted(others))}",
        ) from error
    return _DOWNLOADED


def detector_class(name: str) -> tuple[type[Detector], str]:
    """The class of a name, and the variant in the name (``""`` without variants)."""
    base, colon, variant = name.partition(":")
    is_registered = base in names()
    cls = plugins.load("capbench.detectors", base if is_registered else name)
    if not issubclass(cls, Detector):
        raise UsageError(
            f"the class {cls.__name__} of '{name}' is not a detector",
            code="wrong-type",
            value=name,
            hint="Derive it from capbench.features.detectors.base.Detector; docs/extend.md has an example",
        )
    if not is_registered:
        return cls, ""
    if colon and cls.variants is None:
        raise UsageError(
            f"unknown detector '{name}'", code="unknown-name", value=name, hint=suggest(name, list(names()))
        )
    if cls.variants is not None and not variant:
        kind, example = cls.variants
        raise UsageError(
            f"the detector '{base}' requires a {kind}",
            code="missing-option",
            value=base,
            hint=f"Example: {base}:{example}",
        )
    return cls, variant


def load_detector(
    name: str,  # one of :func:`names`, ``grid:BACKBONE``, or ``module:Class``
    *,
    # a file; None for the one that ``capbench models`` lists under this name; ``"random"`` or ``"random:SEED"`` for an
    # untrained network, to measure speed (the fingerprint shows it)
    weights: str | os.PathLike[str] | None = None,
    device: str = "cpu",  # ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` for a GPU if there is one
    # the detector's options; those of capbench have ``batch`` (more than 1 leaves reference mode) and ``precision``
    # (``float32``, ``amp-bfloat16``, ``amp-float16``)
    options: Mapping[str, Any] | None = None,
) -> Detector:
    """Open a detector."""
    cls, variant = detector_class(name)
    checked = cls.options_class.read(name, options or {})
    place = choose_device(device)
    try:
        return cls.open(checked, weights=weights, device=place, variant=variant)
    except CapbenchError:
        raise
    except Exception as error:
        if cls.__module__.startswith("capbench."):
            raise  # a bug in capbench
        raise UsageError(
            f"the detector '{name}' cannot be opened ({type(error).__name__}: {error})",
            code="invalid",
            value=name,
            hint=f"Fix {cls.__module__}.{cls.__qualname__}",
        ) from error


def check_box_limits(detector: str, min_boxes: int, max_boxes: int) -> None:
    """Raise UsageError unless the minimum number of boxes is at most the maximum."""
    if min_boxes > max_boxes:
        raise UsageError(
            f"{detector}: min_boxes={min_boxes} is greater than max_boxes={max_boxes}",
            code="conflict",
            value=min_boxes,
        )


def read_names(path: str | None, count: int, kind: str) -> tuple[str, ...] | None:
    """A vocabulary file: one name per line, in order; the first of several names separated by commas.

    ``path``: the file; None to return None; ``count``: number of names that the network requires; ``kind``: ``classes``
    or ``attributes``, for the error message.
    """
    if path is None:
        return None
    from capbench.core.files import read_lines

    vocabulary = tuple(line.split(",")[0].strip() for line in read_lines(Path(path).expanduser()))
    if len(vocabulary) == count + 1 and vocabulary[0] in ("__background__", "__no_attribute__", "background"):
        vocabulary = vocabulary[1:]
    if len(vocabulary) != count:
        raise DataError(
            f"has {len(vocabulary)} names, but the network has {count} {kind}",
            code="mismatch",
            value=len(vocabulary),
            path=path,
        )
    return vocabulary


def region_features(
    image: Prepared, boxes: torch.Tensor, features: torch.Tensor, **flat: torch.Tensor
) -> RegionFeatures:
    """One image's record: boxes (n, 4), features (n, d), and ids and scores (n,) of classes or attributes."""
    if not features.isfinite().all() or not boxes.isfinite().all():
        raise FeatureError(
            "the network returned NaN or infinity",
            code="not-a-number",
            hint="Check the weights; on a GPU try float32",
        )
    fields: dict[str, Any] = {
        name: values.int().cpu().numpy() if "_ids" in name else numpy32(values) for name, values in flat.items()
    }
    return RegionFeatures("", image.width, image.height, numpy32(boxes), numpy32(features), **fields)
