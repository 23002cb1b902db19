"""Records of the feature store: the regions of one image, and the fingerprint of their detector."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError

BOX_TOLERANCE_PX = 1.0
"""Detectors clip boxes in the resized image: scaled back, they may exceed the original by a fraction of a pixel."""

UNKNOWN = "unknown"  # value of a fingerprint's field that an imported file does not contain

PROBABILITY_SLACK = 0.01
"""Maximum difference between the sum of a region's probabilities and 1: half precision rounds each of 1,601."""

_LARGEST_SIDE = 2**31 - 1  # stores hold 32 bits

FLAT_FIELDS = ("class_ids", "class_scores", "attribute_ids", "attribute_scores")
"""The optional fields of :class:`RegionFeatures` with one value per region."""


def flat_dtype(name: str) -> np.dtype[Any]:
    """Type of one of these fields."""
    return np.dtype(np.int32 if name.endswith("ids") else np.float32)


@dataclass(frozen=True, eq=False)
class RegionFeatures:
    """The regions of one image, in the detector's order."""

    image: str  # image id (:func:`capbench.core.records.image_id` of the file name)
    # width of the original image in pixels. If only relative boxes are known, width and height are 1 and the
    # boxes are fractions; if nothing is known, both are 0
    width: int
    height: int  # its height
    # (n, 4) float32, x1, y1, x2, y2 in pixels of the original image; None if the source has none
    boxes: NDArray[np.float32] | None
    features: NDArray[np.float32] | NDArray[np.float16]  # (n, d) float32 or float16
    class_ids: NDArray[np.int32] | None = None  # (n,) int32 index of the class in the detector's names, or None
    class_scores: NDArray[np.float32] | None = None  # (n,) float32 its confidence, or None
    attribute_ids: NDArray[np.int32] | None = None  # (n,) int32 index of the attribute in the detector's names, or None
    attribute_scores: NDArray[np.float32] | None = None  # (n,) float32 its confidence, or None
    # (n, 1 + classes) float32 or float16, the detector's probabilities of the background (the first column) and
    # of each class, or None
    class_probabilities: NDArray[np.float32] | NDArray[np.float16] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def flat(self) -> dict[str, NDArray[Any]]:
        """The arrays of :data:`FLAT_FIELDS` that are not None, by name."""
        fields = {name: getattr(self, name) for name in FLAT_FIELDS}
        return {name: values for name, values in fields.items() if values is not None}

    @property
    def probability_columns(self) -> int:
        """Columns of ``class_probabilities``; 0 without them."""
        return 0 if self.class_probabilities is None else int(self.class_probabilities.shape[1])

    def check(self) -> None:
        """Raise FeatureError, naming the image, unless shapes and dtypes agree, all is finite and boxes fit."""
        image = self.image
        if not image or any(c in image for c in "\0\r\n"):
            message = f"the image id {image!r} is empty or contains a line break or NUL"
            raise FeatureError(message, code="wrong-value", value=image)
        try:
            image.encode()  # a file name that is not UTF-8 gives lone surrogates, which NumPy would encode
        except UnicodeError:
            message = f"the image id {image!r} is not valid Unicode"
            raise FeatureError(message, code="unsupported", value=image, hint="Rename the file") from None
        self._check_arrays()
        if self.boxes is not None:
            self._check_boxes(self.boxes)
        for name, values in self.flat().items():
            if values.dtype.kind == "i" and (values < 0).any():
                raise self._invalid("out-of-range", f"{name} contain a negative index")
            if values.dtype.kind == "f" and not ((values >= 0) & (values <= 1.001)).all():
                raise self._invalid("out-of-range", f"{name} contain a confidence that is not between 0 and 1")
        if self.class_probabilities is not None:
            wrong = not_distributions(self.class_probabilities)
            if len(wrong):
                message = f"class_probabilities of region {wrong[0]} are not a distribution"
                raise self._invalid("out-of-range", message)

    def _invalid(self, code: str, problem: str) -> FeatureError:
        return FeatureError(f"image '{self.image}': {problem}", code=code, value=self.image)

    def _check_arrays(self) -> None:
        """Shapes and types of all arrays; features are finite."""
        features, shares = self.features, self.class_probabilities
        if features.ndim != 2:
            raise self._invalid("wrong-shape", f"features have shape {features.shape}, not (n, d)")
        if 0 in features.shape:
            raise self._invalid("missing-value", f"there are no regions or no columns (shape {features.shape})")
        n, columns = len(self), 2 if shares is None or shares.ndim != 2 else max(2, shares.shape[1])
        stored, single = (np.dtype(np.float32), np.dtype(np.float16)), (np.dtype(np.float32),)
        arrays: list[tuple[str, NDArray[Any] | None, tuple[int, ...], tuple[np.dtype[Any], ...]]] = [
            ("features", features, features.shape, stored),
            ("boxes", self.boxes, (n, 4), single),
            *((name, values, (n,), (flat_dtype(name),)) for name, values in self.flat().items()),
            ("class_probabilities", shares, (n, columns), stored),
        ]
        for name, array, shape, dtypes in arrays:
            if array is not None and array.shape != shape:
                raise self._invalid("wrong-shape", f"{name} have shape {array.shape}, not {shape}")
            if array is not None and array.dtype not in dtypes:
                raise self._invalid("wrong-type", f"{name} are {array.dtype}, not {' or '.join(map(str, dtypes))}")
        finite = np.isfinite(features).all(axis=1)
        if not finite.all():
            message = f"region {int(finite.argmin())} has a feature that is NaN or infinite"
            raise self._invalid("not-a-number", message)
        size = (self.width, self.height)
        if min(size) < 0 or (min(size) == 0 and max(size) > 0) or max(size) > _LARGEST_SIDE:
            raise self._invalid("out-of-range", f"the image size {self.width} x {self.height} is not possible")

    def _check_boxes(self, boxes: NDArray[np.float32]) -> None:
        if not np.isfinite(boxes).all():
            raise self._invalid("not-a-number", "a box is NaN or infinite")
        size = (self.width, self.height)
        if max(size) == 0:
            raise self._invalid("missing-value", "there are boxes, but the image size is not known")
        low, high = boxes[:, :2], boxes[:, 2:]
        slack = BOX_TOLERANCE_PX if min(size) > 1 else 1e-3
        limit = np.array(size, dtype=np.float32) + slack
        for bad, code, problem in (
            ((low < -slack) | (high > limit), "out-of-range", f"exceeds the image of {self.width} x {self.height}"),
            (low > high, "wrong-value", "ends before it begins: write x1, y1, x2, y2"),
        ):
            if bad.any():
                row = int(bad.any(axis=1).argmax())
                box = ", ".join(f"{value:.1f}" for value in boxes[row].tolist())
                raise self._invalid(code, f"box {row} ({box}) {problem}")


def not_distributions(shares: NDArray[Any]) -> NDArray[np.int64]:
    """The rows of (n, columns) probabilities that do not sum to 1 or have a negative value."""
    sums = shares.sum(axis=1, dtype=np.float64)
    # Negated, since comparisons with NaN are false.
    return np.flatnonzero(~((np.abs(sums - 1) <= PROBABILITY_SLACK) & (shares >= 0).all(axis=1)))


def check_names(regions: RegionFeatures, classes: Sequence[str] | None, attributes: Sequence[str] | None) -> None:
    """Raise FeatureError if a class or an attribute has no name, where names are known."""
    for kind, ids, names in (("class", regions.class_ids, classes), ("attribute", regions.attribute_ids, attributes)):
        if ids is not None and names is not None and (largest := int(ids.max())) >= len(names):
            message = f"image '{regions.image}' has the {kind} {largest}, but there are {len(names)} names"
            raise FeatureError(message, code="out-of-range", value=regions.image)


_TEXTS = ("detector", "weights_sha256", "preprocessing", "mode", "batch", "precision")


@dataclass(frozen=True)
class Fingerprint:
    """Everything about a detector and its use that can change a feature."""

    detector: str  # registered name (``bottom-up-caffe``)
    # SHA-256 of the weights' file, 64 hex digits; ``"random:SEED"`` or ``"random-2:SEED"`` for untrained networks,
    # ``"unknown"`` for imported features
    weights_sha256: str
    preprocessing: str  # colour order, means, resizing, in one short phrase
    mode: str  # post-processing (``caffe 0.2 10-100``)
    batch: str = "single"  # ``"single"`` or ``"batched:N"``: padding a batch changes features slightly
    precision: str = "float32"  # of the forward pass (``float32``, ``amp-bfloat16``)
    versions: tuple[tuple[str, str], ...] = ()  # (library, version) pairs that matter

    def __post_init__(self) -> None:
        texts = (getattr(self, name) for name in _TEXTS)
        for text in (*texts, *itertools.chain.from_iterable(self.versions)):
            if not text.isprintable():  # a line break would break the signatures that contain this text
                message = f"the fingerprint's {text[:80]!r} is not a single line of text"
                raise FeatureError(message, code="wrong-value", value=text, hint="Use printable characters")

    def to_dict(self) -> dict[str, Any]:
        """The fingerprint as JSON values; ``versions`` is an object."""
        return {name: getattr(self, name) for name in _TEXTS} | {"versions": dict(self.versions)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Fingerprint:
        """Read the result of :meth:`to_dict`. Raises FeatureError if a field is missing or not a text."""
        versions = facts.get("versions")
        missing = [name for name in _TEXTS if not isinstance(facts.get(name), str)]
        if missing or not isinstance(versions, Mapping) or not all(isinstance(v, str) for v in versions.values()):
            field = [*missing, "versions"][0]
            hint = "The file was not written by capbench"
            raise FeatureError(f"the fingerprint has no '{field}'", code="missing-key", value=field, hint=hint)
        return cls(**{name: facts[name] for name in _TEXTS}, versions=tuple(sorted(versions.items())))

    def json(self) -> str:
        """One line of JSON with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits, a hash of all fields."""
        return hashlib.blake2b(self.json().encode(), digest_size=8).hexdigest()

    @cached_property
    def kind(self) -> str:
        """Sixteen hex digits, a hash of detector, weights, preprocessing and mode: no batch, precision and versions."""
        parts = (self.detector, self.weights_sha256, self.preprocessing, self.mode)
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()

    def line(self) -> str:
        """One short line for signatures.

        >>> Fingerprint("grid:resnet50", "unknown", "unknown", "7x7").line()
        'grid:resnet50+weights:unknown+mode:7x7+single+float32+id:a0fb8e3af3ffb876'
        """
        weights = self.weights_sha256 if ":" in self.weights_sha256 else self.weights_sha256[:12]
        parts = (self.detector, f"weights:{weights}", f"mode:{self.mode}", self.batch, self.precision)
        # "|" and blanks would break the signatures that contain this text.
        return "+".join(fact.replace(" ", "_").replace("|", "/") for fact in (*parts, f"id:{self.digest}"))

    def differences(self, other: Fingerprint) -> str:
        """The fields that differ from another fingerprint's: ``mode 'caffe' against 'hf'``."""
        ours, theirs = ({**facts["versions"], **facts, "versions": None} for facts in (self.to_dict(), other.to_dict()))
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return ", ".join(f"{n} '{_short(ours.get(n))}' against '{_short(theirs.get(n))}'" for n in names)


def _short(text: str | None) -> str:
    return "none" if text is None else text[:12] if len(text) == 64 else text
