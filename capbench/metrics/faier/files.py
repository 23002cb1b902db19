"""Weight files of FAIEr, and loaded models. The paper's authors published no weights."""

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
"""Value of ``kind`` in a weight file's metadata."""
_FAMILY = Family(KIND, "FAIEr", "FAIEr model", "capbench train faier")


class FaierModel(TrainedModel[Faier, FaierOptions]):
    """A trained FAIEr with its vocabulary; its options include the variant and choices that the paper leaves open."""

    @property
    def alike(self) -> tuple[str, ...]:
        """Properties that networks of an ensemble must share."""
        options = self.options
        scores = f"scores by {options.similarity} product" if options.similarity == "dot" else "scores by cosine"
        return "is a FAIEr network", f"is of the variant {options.variant}", scores

    def signature_parts(self) -> dict[str, str]:
        """All properties of the model that can change a score, for a metric's signature."""
        return {
            "model": f"faier-{self.sha256[:16]}",
            "variant": self.options.variant,
            "vocabulary": self.words_signature,
        }

    def summary(self) -> dict[str, object]:
        """The model's properties in listings."""
        options = self.options
        trained = {"variant": options.variant, "similarity": options.similarity}
        return {"words": len(self.vocabulary), "embed_dim": options.embed_dim, "features": self.features, **trained}

    def code(self, text: str, triplets: Sequence[Triplet] = ()) -> CaptionCode:
        """The ids of a caption's words and triplets."""
        return caption_code(text, triplets, self.vocabulary, self.options)

    @torch.inference_mode()
    def encode_image(
        self, features: NDArray[Any], boxes: FloatArray32 | None
    ) -> tuple[FloatArray32, FloatArray32 | None]:
        """Object nodes and relation nodes (R, d) of an image; the latter None without a relation level.

        Args:
            features: (R, image_dim).
            boxes: (R, 4) in the network's unit; None without a relation level.

        Raises:
            ModelError: there are no regions, or features have another size or contain NaN or infinity.
        """
        array = np.asarray(features, dtype=np.float32)
        width = self.options.image_dim
        if array.ndim != 2 or array.shape[1] != width or not len(array):
            raise ModelError(
                f"the features of an image have shape {array.shape}, but the model reads (regions, {width})",
                code="wrong-shape",
                value=array.shape,
                path=self.path,
                hint="Use the kind of features that the model was trained on",
            )
        if not np.isfinite(array).all():
            message = "the features of an image contain NaN or infinity"
            raise ModelError(message, code="not-a-number", hint="Extract them again")
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
        MissingFileError: the file does not exist.
        ModelError: the file is not a FAIEr model (but, for example, an ensemble or a SCAN model), is damaged, or its
            parts are inconsistent.
    """
    return load_trained(path, _FAMILY, FaierOptions, Faier, FaierModel, device)


def stored_options(path: str | os.PathLike[str]) -> FaierOptions | None:
    """Options of a network, or of an ensemble's first one, without loading weights; None if the file has none.

    Raises ModelError if an ensemble is damaged or incomplete.
    """
    metadata = read_metadata(network_files(path)[0]) or {}
    if metadata.get("kind") != KIND:
        return None
    try:
        return FaierOptions(**json.loads(metadata["options"]))
    except (KeyError, TypeError, ValueError, RecursionError, UsageError):
        return None
