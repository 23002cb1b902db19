"""How SCAN is trained: a YAML file, checked as a whole.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: scan-flickr8k              # the run folder's name
    captions: flickr8k               # file or folder, in the current or the data folder
    splits: {train: train, dev: dev, test: test}
    features: features/flickr8k.h5   # a store, a folder of stores, or 'ims' for SCAN's own {split}_ims.npy
    regions: 36                      # the first so many of each image; default: all
    network: {embed_dim: 512, cross_attention: t2i}
    loss: {kind: info-nce, temperature: 0.1}
    optimiser: {lr: 0.001, lr_update: 10, clip: 2.0}
    epochs: 2
    ema: 0.995

The classes below name every key, its meaning and its default. Defaults are those of the published training of SCAN
(Lee et al. 2018, "Stacked Cross Attention for Image-Text Matching", and the options of its released code).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "SCHEMA_VERSION",
    "DropoutOptions",
    "EvaluationOptions",
    "LossOptions",
    "OptimiserOptions",
    "ScanTraining",
    "SplitOptions",
    "VocabularyOptions",
    "number",
]

SCHEMA_VERSION = 1

# What may differ between the parts of one run: paths (what lies there is compared), and what decides last digits only.
_FREE = (
    *("name", "captions", "features", "threads", "device", "memory_mb"),
    *("log_every", "checkpoint_every", "checkpoint_seconds"),
)


def number(value: object) -> object:
    """A number that YAML took for a text, or the value as it is."""
    # YAML 1.1 takes 5e-4 for a text; people write it for a number.
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _numbers(value: object) -> object:
    return {key: number(one) for key, one in value.items()} if isinstance(value, dict) else value


def _texts(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


_Float = Annotated[float, BeforeValidator(number)]
_Fraction = Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)]
_Positive = Annotated[float, BeforeValidator(number), Field(gt=0)]
# Numbers that are multiplied with weights, which are float32.
_Factor = Annotated[float, BeforeValidator(number), Field(gt=0, le=1e30)]
_Count = Annotated[int, Field(ge=1)]
_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_texts), Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SplitOptions(_Section):
    """Which images are for what; None: the names that the format has (see :mod:`capbench.training.scan.data`)."""

    train: _Texts | None = None
    dev: _Texts | None = None
    test: _Texts | None = None


class VocabularyOptions(_Section):
    """Which words the network knows.

    Attributes:
        min_count: words that are rarer become ``<unk>``.
        splits: whose captions are counted.
        file: a vocabulary to take instead, in the JSON format of the original.
    """

    min_count: _Count = 4
    splits: Annotated[tuple[Literal["train", "dev"], ...], BeforeValidator(_texts), Field(min_length=1)] = (
        "train",
        "dev",
    )
    file: str | None = None


class LossOptions(_Section):
    """The loss of a batch.

    Attributes:
        kind: ``hinge`` (triplets with a margin) or ``info-nce`` (softmax over the batch, both directions).
        margin: of the hinge.
        hardest: the hinge counts only the hardest negative of each row and column.
        hardest_after: steps during which the hinge counts all negatives before ``hardest`` sets in; with hardest
            negatives from the start training can collapse.
        reduction: the hinge's ``sum`` (as published) or ``mean``.
        temperature: of the softmax.
    """

    kind: Literal["hinge", "info-nce"] = "hinge"
    margin: _Positive = 0.2
    hardest: bool = False
    hardest_after: Annotated[int, Field(ge=0)] = 0
    reduction: Literal["sum", "mean"] = "sum"
    temperature: _Positive = 0.1


class OptimiserOptions(_Section):
    """Adam.

    Attributes:
        lr: learning rate at the start.
        lr_update: epochs after which it is divided by ten, again and again; None: never.
        warmup: steps over which it rises linearly from zero at the start.
        clip: largest norm of all gradients together; None: no limit.
        weight_decay: L2 penalty.
    """

    kind: Literal["adam"] = "adam"
    lr: _Factor = 2e-4
    lr_update: _Count | None = 15
    warmup: Annotated[int, Field(ge=0)] = 0
    clip: _Positive | None = 2.0
    weight_decay: Annotated[_Float, Field(ge=0, le=1e30)] = 0.0


class DropoutOptions(_Section):
    """What is dropped at random in training; each a probability.

    Attributes:
        regions: components of the region features.
        words: words, which become ``<unk>``; not ``<start>`` and ``<end>``.
        embedding: components of the word vectors that go into the GRU.
    """

    regions: _Fraction = 0.0
    words: _Fraction = 0.0
    embedding: _Fraction = 0.0


class EvaluationOptions(_Section):
    """When and on what recall is measured during training.

    Attributes:
        every: steps between two evaluations; None: at the end of each epoch.
        images: how many images of the dev split, drawn with ``seed``; None: all.
        captions: how many captions of each, the first ones; None: all.
        seed: of the draw.
        patience: evaluations without a better recall sum after which training stops; None: never.
    """

    every: _Count | None = None
    images: _Count | None = None
    captions: _Count | None = None
    seed: Annotated[int, Field(ge=0)] = 1
    patience: _Count | None = None


class ScanTraining(_Section):
    """A training as it was asked for; nothing is resolved yet.

    Attributes:
        name: of the run folder.
        captions: Karpathy's JSON, another caption file with splits, Flickr8k's folder (``Flickr8k.token.txt`` and
            ``Flickr_8k.*Images.txt``), Multi30k's folder, or the original SCAN's (``{split}_caps.txt``).
        splits: names of the splits in it.
        features: a region-feature store, or ``ims``: the arrays ``{split}_ims.npy`` beside SCAN's captions.
        regions: the first so many of each image; None: all, which must then be equally many.
        network: options of :class:`capbench.models.scan.network.ScanOptions` but for the two sizes that data decides.
        batch: caption-image pairs a step.
        order: ``captions`` shuffles all captions, as published; ``rounds`` gives every image one caption before any
            has its second, so that no batch holds two captions of an image as each other's negatives.
        epochs: passes over all captions.
        max_steps: stop after so many steps, within an epoch too.
        ema: decay of the running average of the weights, which is then what is evaluated and saved; None: no average.
        ema_warmup: use min(ema, (1 + step) / (10 + step)) at a step, so that the average forgets the first weights;
            ``unbiased``: weigh all steps so far by ema^age, and the weights before the first not at all.
        select: save the ``best`` weights by the sum of recalls on dev, or the ``last``.
        seed: of all randomness.
        threads: of torch on a CPU; None: torch's default.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``.
        precision: ``float32``; ``bfloat16`` for the large products of the attention; ``amp-bfloat16`` for the encoders
            too, on a GPU only. Evaluation is in float32.
        memory_mb: features up to this size are kept in memory; larger ones are read batch by batch.
        log_every: steps between two lines of the log.
        checkpoint_every: steps between two checkpoints, beside those after an evaluation; None: by time only.
        checkpoint_seconds: a checkpoint is due after so long.
    """

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]
    captions: Annotated[str, Field(min_length=1)]
    splits: SplitOptions = SplitOptions()
    features: Annotated[str, Field(min_length=1)]
    regions: _Count | None = None
    network: Annotated[dict[str, Any], BeforeValidator(_numbers)] = Field(default_factory=dict)
    vocabulary: VocabularyOptions = VocabularyOptions()
    loss: LossOptions = LossOptions()
    optimiser: OptimiserOptions = OptimiserOptions()
    dropout: DropoutOptions = DropoutOptions()
    evaluation: EvaluationOptions = EvaluationOptions()
    batch: Annotated[int, Field(ge=2)] = 128
    order: Literal["captions", "rounds"] = "captions"
    epochs: _Count = 30
    max_steps: _Count | None = None
    ema: _Fraction | None = None
    ema_warmup: bool | Literal["unbiased"] = True
    select: Literal["best", "last"] = "best"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    precision: Literal["float32", "bfloat16", "amp-bfloat16"] = "float32"
    memory_mb: Annotated[_Float, Field(ge=0)] = 4096.0
    log_every: _Count = 20
    checkpoint_every: _Count | None = None
    checkpoint_seconds: _Positive = 300.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with every default written out."""
        from capbench.models.scan.network import ScanOptions

        network = asdict(ScanOptions(**{**self.network, "vocabulary_size": 4, "image_dim": 1}))
        del network["vocabulary_size"], network["image_dim"]
        return {**self.model_dump(mode="json", by_alias=True), "network": network}

    def deciding(self) -> dict[str, Any]:
        """The keys that decide what comes out, flat (``loss.kind``), without those that may change within a run."""
        return flat({key: value for key, value in self.to_dict().items() if key not in _FREE})


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
