"""The contract of detectors, and how one is opened by name.

A detector turns pictures into regions. It says how a picture is prepared (in worker processes, without the network),
takes prepared pictures through the network, and names in a fingerprint everything that can change its numbers.
Detectors are registered under the entry points ``capbench.detectors``.
"""

from __future__ import annotations

import abc
import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from capbench.core import plugins
from capbench.core.errors import CapbenchError, DataError, FeatureError, MissingFileError, UsageError, suggest
from capbench.core.options import Choice, Count, Kind, Options, option
from capbench.features.records import Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import torch

__all__ = [
    "Detector",
    "Network",
    "NetworkOptions",
    "Numbers",
    "detector_class",
    "forward_pass",
    "load_detector",
    "names",
    "numpy32",
    "random_seed",
    "read_names",
    "region_features",
    "weights_file",
]


# What may be set about detectors, beside the kinds of options that everything has.


@dataclass(frozen=True)
class Numbers(Kind):
    """Some finite numbers: a list, or numbers with commas between them.

    Attributes:
        count: how many there must be; 0: one or more.
        most: the largest number that fits; the smallest is 0.
    """

    count: int = 0
    most: float = math.inf

    def describe(self) -> str:
        """In words."""
        how_many = f"{self.count} numbers" if self.count else "numbers"
        limits = f"from 0 to {self.most:g}" if self.most < math.inf else "from 0"
        return f"{how_many} {limits} with commas between them"

    def example(self) -> str:
        """Numbers that fit."""
        return ",".join(["0.5"] * self.count) if self.count else "0.5,0.7"

    def read(self, value: object) -> tuple[float, ...]:
        """The numbers."""
        entries: list[Any] = value.split(",") if isinstance(value, str) else [value]
        if isinstance(value, list | tuple):
            entries = list(value)
        if any(isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in entries):
            raise ValueError
        try:
            numbers = tuple(float(entry) for entry in entries)
        except OverflowError as error:
            raise ValueError from error
        if not numbers or (self.count and len(numbers) != self.count):
            raise ValueError
        if not all(math.isfinite(number) and 0 <= number <= self.most for number in numbers):
            raise ValueError
        return numbers

    def sign(self, value: tuple[float, ...]) -> str:
        """The numbers with commas."""
        return ",".join(f"{number:g}" for number in value)


@dataclass(frozen=True)
class NetworkOptions(Options):
    """Options of every detector with a PyTorch network."""

    batch: int = option(1, Count(1), "images at once; more than 1 leaves reference mode")
    precision: str = option("float32", Choice("float32", "amp-bfloat16", "amp-float16"), "of the forward pass")


class Detector(abc.ABC):
    """What gives regions.

    Attributes:
        name: the registered name; for ``grid`` with the backbone (``grid:resnet50``).
        feature_size: d, the length of a region's feature.
        class_names: what ``class_ids`` mean, or None if it is not known.
        attribute_names: what ``attribute_ids`` mean, or None.
        batchable: whether :meth:`detect` may be given more than one picture. False in reference mode, where a picture's
            features must not depend on its neighbours.
        preprocessor: what :meth:`preprocess` calls: small, picklable, without the network; may run in other processes.
        device: where the network is (``cpu``, ``cuda``, ``cuda:1``).
        options_class: declares what may be set about it.
        variants: what follows its name and a colon, with an example (``("backbone", "resnet50")``); None: nothing does.
    """

    options_class: ClassVar[type[Options]] = Options
    variants: ClassVar[tuple[str, str] | None] = None

    name: str
    feature_size: int
    class_names: tuple[str, ...] | None = None
    attribute_names: tuple[str, ...] | None = None
    batchable: bool = False
    preprocessor: Callable[[NDArray[np.uint8]], Any]
    device: str = "cpu"

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def open(cls, options: Any, *, weights: str | os.PathLike[str] | None, device: str, variant: str) -> Self:
        """Make the detector; this one is for those without weights, and gives the class its options.

        Args:
            options: an ``options_class``, checked.
            weights: as for :func:`load_detector`.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            variant: what followed the name and a colon; empty where ``variants`` is None.

        Raises:
            UsageError: options do not fit each other, or weights are given where there are none.
            ModelError: the weights are not here, or are not the right ones.
        """
        if weights is not None:
            raise UsageError(f"the detector '{cls.name}' has no weights", hint="Leave --weights out")
        return cls(options)

    @abc.abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Everything that can change a feature."""

    def preprocess(self, image: NDArray[np.uint8]) -> Any:
        """Prepare one picture, uint8 (h, w, 3) RGB. Raises DataError if it is no such array."""
        return self.preprocessor(image)

    @abc.abstractmethod
    def detect(self, prepared: Sequence[Any]) -> list[RegionFeatures]:
        """The regions of prepared pictures, in their order; ``image`` is empty and is the caller's to fill in.

        Raises:
            UsageError: more pictures than the detector may take at once.
        """


class Network(Detector):
    """What detectors with a PyTorch network share: device, precision, batch size, fingerprint."""

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
        """How a picture is prepared, in words."""

    @abc.abstractmethod
    def mode_line(self) -> str:
        """What is done with the network's outputs, in words."""

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
            # The build (+cpu, +cu130) is the machine's, not the library's.
            versions=(
                ("torch", torch.__version__.split("+")[0]),
                ("torchvision", torchvision.__version__.split("+")[0]),
            ),
        )

    def check_batch(self, count: int) -> None:
        """Raise UsageError if more pictures are given than the fingerprint says."""
        if count > self.batch:
            raise UsageError(
                f"{self.name} takes {self.batch} picture{'s' if self.batch > 1 else ''} at once, {count} were given",
                hint="Open it with the option batch=N",
            )


@contextlib.contextmanager
def forward_pass(device: str, precision: str) -> Iterator[None]:
    """The context in which a network runs: no gradients, and float32 or the mixed precision that was asked for.

    On a GPU float32 means float32: TensorFloat-32, which convolutions use by default, keeps only 10 bits, and kernels
    chosen by trial or that add in any order would give other features the next time.
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
    """A tensor as float32 in NumPy."""
    return tensor.detach().float().cpu().numpy()


def random_seed(weights: str | os.PathLike[str] | None) -> int | None:
    """The seed that ``"random"`` (0) or ``"random:SEED"`` asks for; None for anything else."""
    if not isinstance(weights, str) or weights.partition(":")[0] != "random":
        return None
    seed = weights.partition(":")[2] or "0"
    if not seed.isdigit():
        raise UsageError(f"weights '{weights}': the seed is no number", hint="Example: random:0")
    return int(seed)


def weights_file(name: str, weights: str | os.PathLike[str] | None) -> Path:
    """The file of a detector's weights: the one given, else the one that the registry finds and checks.

    Raises:
        MissingFileError: there is no such file.
        ModelError: the registry finds none, or another than it knows.
    """
    if weights is not None:
        path = Path(weights).expanduser()
        if not path.exists():
            raise MissingFileError("there is no such file of weights", path=path, hint="Give the file's path")
        return path
    from capbench.weights.registry import find_weights

    return find_weights(name)


def names() -> tuple[str, ...]:
    """Registered names, those of other packages too; ``grid`` stands for ``grid:BACKBONE``."""
    return tuple(plugins.names("capbench.detectors"))


def detector_class(name: str) -> tuple[type[Detector], str]:
    """The class that a name means, and the variant that it asks for (``""`` if there are none).

    Raises:
        UsageError: unknown name, a variant that is missing or that there is not, or no class of a detector.
    """
    base, colon, variant = name.partition(":")
    is_registered = base in names()
    cls = plugins.load("capbench.detectors", base if is_registered else name)
    if not issubclass(cls, Detector):
        raise UsageError(
            f"the class {cls.__name__} behind '{name}' is no detector",
            hint="Derive it from capbench.features.detectors.base.Detector; docs/extend.md has an example",
        )
    if not is_registered:
        return cls, ""
    if colon and cls.variants is None:
        raise UsageError(f"unknown detector '{name}'", hint=suggest(name, list(names())))
    if cls.variants is not None and not variant:
        what, example = cls.variants
        raise UsageError(f"detector '{base}' needs a {what}", hint=f"Example: {base}:{example}")
    return cls, variant


def load_detector(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
) -> Detector:
    """Open a detector.

    Args:
        name: one of :func:`names`, ``grid:BACKBONE``, or ``module:Class``.
        weights: a file; None: the one that ``capbench models`` knows under this name; ``"random"`` or
            ``"random:SEED"``: an untrained network, for measuring speed (the fingerprint says so).
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` for a GPU where there is one.
        options: what may be set about the detector; those of capbench take ``batch`` (more than 1 leaves reference
            mode) and ``precision`` (``float32``, ``amp-bfloat16``, ``amp-float16``).

    Raises:
        UsageError: unknown name, option or device, or a detector of another package that cannot be opened.
        ModelError: the weights are not here, or are not the right ones.
    """
    cls, variant = detector_class(name)
    checked = cls.options_class.read(name, options or {})
    place = _device(device)
    try:
        return cls.open(checked, weights=weights, device=place, variant=variant)
    except CapbenchError:
        raise
    except Exception as error:
        if cls.__module__.startswith("capbench."):
            raise  # a bug of ours
        raise UsageError(
            f"the detector '{name}' cannot be opened ({type(error).__name__}: {error})",
            hint=f"Mend {cls.__module__}.{cls.__qualname__}",
        ) from error


def _device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise UsageError(f"unknown device '{device}'", hint="Choices: cpu, cuda, cuda:N, auto") from None
    if kind.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device '{device}' is not there", hint="This PyTorch sees no GPU; use --device cpu")
    if kind.type == "cuda" and kind.index is not None and kind.index >= torch.cuda.device_count():
        raise UsageError(f"device '{device}' is not there", hint=f"There are {torch.cuda.device_count()} GPUs")
    return device


def read_names(path: str | None, count: int, what: str) -> tuple[str, ...] | None:
    """A vocabulary file: one name a line, in order; of several names with commas on a line the first is taken.

    Args:
        path: the file; None: there is none, and None is returned.
        count: how many names the network needs.
        what: ``classes`` or ``attributes``, for the message.

    Raises:
        DataError: it holds another number of names.
    """
    if path is None:
        return None
    from capbench.core.files import read_lines

    vocabulary = tuple(line.split(",")[0].strip() for line in read_lines(Path(path).expanduser()))
    if len(vocabulary) == count + 1 and vocabulary[0] in ("__background__", "__no_attribute__", "background"):
        vocabulary = vocabulary[1:]
    if len(vocabulary) != count:
        raise DataError(f"holds {len(vocabulary)} names, the network has {count} {what}", path=path)
    return vocabulary


def region_features(
    prepared_height: int, prepared_width: int, boxes: NDArray[np.float32], features: NDArray[np.float32], **flat: Any
) -> RegionFeatures:
    """Build the record of one image; boxes are cut to it, and numbers that are none are refused.

    Raises:
        FeatureError: the network gave NaN or infinity.
    """
    if not np.isfinite(features).all() or not np.isfinite(boxes).all():
        raise FeatureError("the network gave NaN or infinity", hint="Check the weights; on a GPU try float32")
    fields = {name: values for name, values in flat.items() if values is not None}
    return RegionFeatures("", prepared_width, prepared_height, boxes.astype(np.float32), features, **fields)
