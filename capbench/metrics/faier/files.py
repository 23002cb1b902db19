"""FAIEr's weights as files, and a loaded model. No weights of the paper's authors were ever published."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import ModelError, UsageError
from capbench.metrics.faier.graphs import CaptionCode, FaierOptions, caption_code
from capbench.metrics.faier.network import Faier
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import Vocabulary
from capbench.weights.ensembles import network_files
from capbench.weights.files import Family, TrainedModel, load_trained, read_metadata, write_trained

__all__ = ["KIND", "FaierModel", "load_faier", "save_faier", "stored_options"]

FloatArray32 = NDArray[np.float32]

KIND = "capbench.faier/1"
"""What a file of weights says that it is."""
_FAMILY = Family(KIND, "FAIEr", "FAIEr model", "capbench train faier")


class FaierModel(TrainedModel[Faier, FaierOptions]):
    """A trained FAIEr with its vocabulary; its options say variant, and how the paper's open points were read."""

    @property
    def alike(self) -> tuple[str, ...]:
        """What networks of an ensemble are."""
        options = self.options
        scores = f"scores by {options.similarity} product" if options.similarity == "dot" else "scores by cosine"
        return "is a FAIEr network", f"is of the variant {options.variant}", scores

    def signature_parts(self) -> dict[str, str]:
        """Everything of the model that can change a score, for a metric's signature; the file holds all options."""
        return {
            "model": f"faier-{self.sha256[:16]}",
            "variant": self.options.variant,
            "vocabulary": self.words_signature,
        }

    def summary(self) -> dict[str, object]:
        """What is told of it in lists."""
        options = self.options
        trained = {"variant": options.variant, "similarity": options.similarity}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **trained}

    def code(self, text: str, triplets: Sequence[Triplet] = ()) -> CaptionCode:
        """A caption as numbers of its words and triplets."""
        return caption_code(text, triplets, self.vocabulary, self.options)

    @torch.inference_mode()
    def encode_image(
        self, features: NDArray[Any], boxes: FloatArray32 | None
    ) -> tuple[FloatArray32, FloatArray32 | None]:
        """Nodes (R, d) of an image, objects and relations; the latter None without a relation level.

        Args:
            features: (R, image_dim).
            boxes: (R, 4) in the unit that the network reads; None without a relation level.

        Raises:
            ModelError: there are no regions, features of another width, or values that are no numbers.
        """
        array = np.asarray(features, dtype=np.float32)
        width = self.options.image_dim
        if array.ndim != 2 or array.shape[1] != width or not len(array):
            raise ModelError(
                f"the features of an image have shape {array.shape}, the model reads (regions, {width})",
                path=self.path,
                hint="Use the kind of features that the model was trained on",
            )
        if not np.isfinite(array).all():
            raise ModelError("the features of an image hold NaN or infinity", hint="Extract them again")
        places = None if boxes is None else torch.from_numpy(np.asarray(boxes, dtype=np.float32)[None]).to(self.device)
        graph = self.network.encode_images(torch.from_numpy(array[None]).to(self.device), places)
        objects, *others = (nodes.vectors[0].cpu().numpy() for nodes in graph.levels)
        return objects, others[0] if others else None


def save_faier(
    path: str | os.PathLike[str],
    network: Faier,
    vocabulary: Vocabulary,
    training: Mapping[str, Any],
    precision: Literal["float32", "float16"] = "float32",
) -> None:
    """Write one self-contained ``.safetensors``; arguments and errors are those of
    :func:`capbench.weights.files.write_trained`."""
    write_trained(path, KIND, network, network.options, vocabulary, training, precision)


def load_faier(path: str | os.PathLike[str], device: str = "cpu") -> FaierModel:
    """Load a model that :func:`save_faier` wrote.

    Args:
        path: the file.
        device: ``cpu`` or ``cuda``.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no FAIEr model but, for example, an ensemble or one of SCAN, is damaged, or its parts do not
            fit one another.
    """
    return load_trained(path, _FAMILY, FaierOptions, Faier, FaierModel, device)


def stored_options(path: str | os.PathLike[str]) -> FaierOptions | None:
    """Options of the network in a file, or of an ensemble's first, without reading weights; None if there are none.

    Raises ModelError if an ensemble is damaged or lacks a part.
    """
    metadata = read_metadata(network_files(path)[0]) or {}
    if metadata.get("kind") != KIND:
        return None
    try:
        return FaierOptions(**json.loads(metadata["options"]))
    except (KeyError, TypeError, ValueError, RecursionError, UsageError):
        return None
