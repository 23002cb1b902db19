"""How NNEval is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; ``schema``, ``name``, ``captions``, ``machine`` and ``vectors`` must be there::

    schema: 1
    name: nneval-coco
    captions: coco-test              # people's captions: a known corpus or a file
    machine:                         # systems' captions, see capbench.datasets.machine_captions
      - machine_captions/where_image2/imgs_mscoco.txt
    exclude: [composite, thumb]      # data sets of judgements whose images are left out
    vectors: vectors.bin             # for WMD
    stopping: {protocol: flickr8k-expert/all-pairs/mode-tau-b}
    optimiser: {lr: 0.0005}

Keys that all trainers share are in :mod:`capbench.training.settings`. The paper's settings (Sharif et al., ECCV 2018,
section 4) are ``batch: 75``, ``epochs: 500``, ``optimiser: {lr: 0.25}``, ``network: {weights: glorot-uniform}`` and
stopping on Flickr8k Expert; its released code has ``batch: 6650``, ``epochs: 700``, ``network: {weights: he-normal}``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Literal

from capbench.options import Choice, Count, Flag, Options, Share, Text, option
from capbench.training.settings import Names, OptimiserOptions, OrNull, Section, Training

__all__ = ["DrawOptions", "NNEvalTraining", "NetworkOptions", "StoppingOptions"]


@dataclass(frozen=True, kw_only=True)
class DrawOptions(Options):
    """Which captions are taken of an image. What is drawn of one hangs on its name and the seed alone."""

    images: int | None = option(None, Count(2), "so many images, of which a smaller draw is a part; null: all")
    human: int = option(3, Count(1), "people's captions of an image")
    machine: int = option(3, Count(1), "systems' captions of an image, each of another system")
    foreign: int = option(0, Count(0), "people's captions of other images, which count as systems'; the paper has none")
    references: int = option(4, Count(1), "references of a caption; a person's are the others of the image")
    seed: int = option(1, Count(0, 2**32 - 1), "of the draw; that of the training changes no caption")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """How the network begins (biases are zero), and what it may learn."""

    weights: Literal["he-normal", "glorot-uniform"] = option(
        "he-normal",
        Choice("he-normal", "glorot-uniform"),
        "normal with variance 2 / inputs, as released, or uniform in ±sqrt(6 / (inputs + outputs)), as the paper says",
    )
    monotone: bool = option(False, Flag(), "no input may lower the score; the paper has no such limit")


@dataclass(frozen=True, kw_only=True)
class StoppingOptions(Options):
    """What says how good weights are after each epoch; the best are kept."""

    protocol: str | None = option(
        None,
        OrNull(Text("flickr8k-expert/all-pairs/mode-tau-b")),
        "agreement with these judgements, which are then no test set; null: captions of held-out training images",
    )
    held_out: float = option(0.1, Share(), "share of the images that is held out where no protocol is named")


@dataclass(frozen=True, kw_only=True)
class NNEvalTraining(Training):
    """A training of NNEval as it was asked for; nothing is resolved yet."""

    # Paths are free: what lies there is compared.
    undeciding = (*Training.undeciding, "captions", "machine", "vectors")

    captions: str = option(MISSING, Text("coco-test"), "people's captions: a known corpus or a file")
    machine: tuple[str, ...] = option(MISSING, Names(), "files of systems' captions, in the current or the data folder")
    vectors: str = option(MISSING, Text("vectors.bin"), "word vectors for WMD")
    domain: str | None = option(None, Text("COCO"), "where the images come from, which tables then tell")
    exclude: tuple[str, ...] | None = option(
        None, OrNull(Names()), "data sets of judgements whose images are left out; null: none but that of 'stopping'"
    )
    df: str = option("coco-val", Text("coco-val"), "where CIDEr's document frequencies come from")
    draw: DrawOptions = option(DrawOptions(), Section(), "which captions of an image")
    network: NetworkOptions = option(NetworkOptions(), Section(), "how the network begins, and what it may learn")
    stopping: StoppingOptions = option(StoppingOptions(), Section(), "what says how good weights are")
    optimiser: OptimiserOptions = option(
        OptimiserOptions(lr=5e-4, clip=None, weight_decay=1e-4),
        Section(),
        "Adam; the penalty is on weights alone",
    )
    batch: int = option(75, Count(2), "captions a step")
    epochs: int = option(500, Count(1), "passes over the captions")
    log_every: int = option(200, Count(1), "steps between two lines of the log")
