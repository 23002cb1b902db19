"""The contract of detectors, and how one is opened by name.

A detector turns pictures into regions. It says how a picture is prepared (in worker processes, without the network),
takes some prepared pictures through the network, and names in a fingerprint everything that can change its numbers.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import DataError, FeatureError, MissingFileError, UsageError, suggest
from capbench.features.records import Fingerprint, RegionFeatures

if TYPE_CHECKING:
    import torch

__all__ = [
    "Detector",
    "Network",
    "forward_pass",
    "load_detector",
    "names",
    "numpy32",
    "random_seed",
    "read_names",
    "region_features",
    "settings",
    "weights_file",
]

_LOADERS = {
    "bottom-up-caffe": "capbench.features.detectors.bottom_up:load_caffe",
    "bottom-up-hf": "capbench.features.detectors.bottom_up:load_hf",
    "x152-fpn": "capbench.features.detectors.x152_fpn:load",
    "torchvision-frcnn": "capbench.features.detectors.torchvision_frcnn:load",
    "grid": "capbench.features.detectors.grid:load",
    "sample": "capbench.features.detectors.sample:load",
}
_PRECISIONS = ("float32", "amp-bfloat16", "amp-float16")

T = TypeVar("T")


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
    """

    name: str
    feature_size: int
    class_names: tuple[str, ...] | None = None
    attribute_names: tuple[str, ...] | None = None
    batchable: bool = False
    preprocessor: Callable[[NDArray[np.uint8]], Any]
    device: str = "cpu"

    @abc.abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Everything that can change a feature."""

    def preprocess(self, image: NDArray[np.uint8]) -> Any:
        """Prepare one picture, uint8 (h, w, 3) RGB. Raises DataError if it is no such array."""
        return self.preprocessor(image)

    @abc.abstractmethod
    def detect(self, prepared: Sequence[Any]) -> list[RegionFeatures]:
        """The regions of some prepared pictures, in their order; ``image`` is empty and is the caller's to fill in.

        Raises:
            UsageError: more pictures than the detector may take at once.
        """


class Network(Detector):
    """What detectors with a PyTorch network share: device, precision, batch size, fingerprint."""

    def __init__(
        self,
        *,
        name: str,
        weights_sha256: str,
        device: str,
        batch: int = 1,
        precision: str = "float32",
    ) -> None:
        if batch < 1:
            raise UsageError(f"{name}: option batch={batch} is no number of pictures", hint="Give 1 or more")
        if precision not in _PRECISIONS:
            raise UsageError(f"{name}: unknown precision '{precision}'", hint=suggest(precision, list(_PRECISIONS)))
        self.name = name
        self.weights_sha256 = weights_sha256
        self.device = device
        self.batch = batch
        self.batchable = batch > 1
        self.precision = precision

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
    from capbench.models.registry import find_weights

    return find_weights(name)


def names() -> tuple[str, ...]:
    """Names that :func:`load_detector` takes; ``grid`` stands for ``grid:BACKBONE``."""
    return tuple(_LOADERS)


def load_detector(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
) -> Detector:
    """Open a detector.

    Args:
        name: one of :func:`names`, or ``grid:BACKBONE``.
        weights: a file; None: the one that ``capbench models`` knows under this name; ``"random"`` or
            ``"random:SEED"``: an untrained network, for measuring speed (the fingerprint says so).
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` for a GPU where there is one.
        options: what may be set about the detector; all take ``batch`` (more than 1 leaves reference mode) and
            ``precision`` (``float32``, ``amp-bfloat16``, ``amp-float16``).

    Raises:
        UsageError: unknown name, option or device.
        ModelError: the weights are not here, or are not the right ones.
    """
    base, colon, variant = name.partition(":")
    if base not in _LOADERS or (colon and base != "grid"):
        raise UsageError(f"unknown detector '{name}'", hint=suggest(name, list(_LOADERS)))
    module, _, function = _LOADERS[base].partition(":")
    load = getattr(importlib.import_module(module), function)
    if base == "grid" and not variant:
        raise UsageError("detector 'grid' needs a backbone", hint="Example: grid:resnet50")
    arguments = {"weights": weights, "device": _device(device), "options": dict(options or {})}
    found: Detector = load(variant, **arguments) if base == "grid" else load(**arguments)
    return found


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


def settings(kind: type[T], detector: str, options: Mapping[str, Any]) -> T:
    """Fill a dataclass of settings from options, each of the type of its default.

    A tuple is given as a list or as numbers with commas; a string that looks like a number is taken as one.

    Raises:
        UsageError: an unknown option, or a value of the wrong type.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for option, value in options.items():
        if option not in defaults:
            raise UsageError(f"{detector}: unknown option '{option}'", hint=suggest(option, list(defaults)))
        try:
            values[option] = _convert(value, defaults[option])
        except (TypeError, ValueError):
            raise UsageError(
                f"{detector}: option {option}={value!r} does not fit", hint=f"The default is {defaults[option]!r}"
            ) from None
    return kind(**values)


def _convert(value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[str(value).lower()] if str(value).lower() in ("true", "false") else _bad()
    if isinstance(default, tuple):
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(part, default[0]) for part in parts) if parts else _bad()
    if isinstance(default, int):
        return int(str(value)) if not isinstance(value, bool) else _bad()
    if isinstance(default, float):
        number = float(value) if not isinstance(value, bool) else _bad()
        return number if np.isfinite(number) else _bad()
    if isinstance(default, str):
        return value if isinstance(value, str) else _bad()
    return _bad()


def _bad() -> Any:
    raise ValueError


def read_names(path: str, count: int, what: str) -> tuple[str, ...] | None:
    """A vocabulary file: one name a line, in order; of several names with commas on a line the first is taken.

    Args:
        path: the file; empty: none, and None is returned.
        count: how many names the network needs.
        what: ``classes`` or ``attributes``, for the message.

    Raises:
        DataError: it holds another number of names.
    """
    if not path:
        return None
    from capbench.files import read_lines

    found = tuple(line.split(",")[0].strip() for line in read_lines(Path(path).expanduser()))
    if len(found) == count + 1 and found[0] in ("__background__", "__no_attribute__", "background"):
        found = found[1:]
    if len(found) != count:
        raise DataError(f"holds {len(found)} names, the network has {count} {what}", path=path)
    return found


def region_features(
    prepared_height: int, prepared_width: int, boxes: NDArray[np.float32], features: NDArray[np.float32], **flat: Any
) -> RegionFeatures:
    """Build the record of one image; boxes are cut to it, and numbers that are none are refused.

    Raises:
        FeatureError: the network gave NaN or infinity.
    """
    if not np.isfinite(features).all() or not np.isfinite(boxes).all():
        raise FeatureError("the network gave NaN or infinity", hint="Check the weights; on a GPU try float32")
    kept = {key: value for key, value in flat.items() if value is not None}
    return RegionFeatures("", prepared_width, prepared_height, boxes.astype(np.float32), features, **kept)
