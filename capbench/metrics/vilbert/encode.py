"""Opened ViLBERT networks, image inputs, and word states of captions with their image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import FeatureError
from capbench.core.machine import without_cudnn_attention
from capbench.features.records import UNKNOWN, RegionFeatures
from capbench.features.store import FeatureStore
from capbench.metrics.image_metric import check_features
from capbench.metrics.vilbert.files import VilbertModel
from capbench.metrics.vilbert.network import Streams, Vilbert

RELEASED_DETECTOR = "x152-fpn"  # Detector of the features that the released weights were trained on
WHOLE = (0.0, 0.0, 1.0, 1.0, 1.0)  # Place of the mean of all regions
MOST_REGIONS = 100  # Maximum number of regions of an image, the first ones; the published features have 100
_ROWS = {"cpu": 16 * 101, "cuda": 256 * 101}
"""Rows of the image stream processed at once; on a CPU, as many as fit in its caches."""


def check_store(model: VilbertModel, store: FeatureStore, *, any_features: bool) -> None:
    """Check that a store has features of the model's size and kind, with boxes; for released weights, X-152's."""
    check_features(model, store, model.options.feature_dim, any_features)
    if not store.header.boxes:
        message = "has no boxes, but ViLBERT reads the position of each region"
        hint = "Extract the features again, or import files with boxes"
        raise FeatureError(message, code="wrong-features", path=store.paths[0], hint=hint)
    detector = store.fingerprint.detector
    if model.is_released and detector not in (RELEASED_DETECTOR, UNKNOWN) and not any_features:
        message = f"has features of {detector}, but the released ViLBERT was trained on those of {RELEASED_DETECTOR}"
        hint = f"Extract features with --detector {RELEASED_DETECTOR}, or set any_features=true, which is signed"
        raise FeatureError(message, code="wrong-features", value=detector, path=store.paths[0], hint=hint)


Rows = tuple[NDArray[np.float32], NDArray[np.float32]]  # An image: features (n + 1, d) and places (n + 1, 5)


def image_rows(regions: RegionFeatures, most: int = MOST_REGIONS) -> Rows:
    """The rows of an image as in the released code: the mean of all regions, then the first ``most`` regions."""
    features = regions.features.astype(np.float32)
    rows = np.concatenate((features.mean(axis=0, dtype=np.float64).astype(np.float32)[None], features))
    places = np.concatenate((np.array(WHOLE, np.float32)[None], places_of(regions)))
    return rows[: most + 1], places[: most + 1]


def places_of(regions: RegionFeatures) -> NDArray[np.float32]:
    """(n, 5): x1, y1, x2, y2 and the area of each region as fractions of the image."""
    assert regions.boxes is not None
    boxes, width, height = regions.boxes.astype(np.float32), regions.width, regions.height
    corners = boxes / np.array([width, height, width, height], dtype=np.float32)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / np.float32(width * height)
    return np.column_stack((corners, areas))


Pair = tuple[str, tuple[int, ...]]  # An image's id and the ids of a caption's word pieces, ``[CLS]`` first


@torch.inference_mode()
@without_cudnn_attention()
def states(
    network: Vilbert, task: int | None, layers: Sequence[int], images: Mapping[str, Rows], pairs: Sequence[Pair]
) -> dict[Pair, NDArray[np.float32]]:
    """(layers, m, T) float32 states of the tokens of captions with their image; with a task, its token is the second.

    Before the first connection, each distinct text and image is read once. Captions of one length are read together,
    without padding. ``layers`` are numbers of connections, from 1.
    """
    found: dict[Pair, NDArray[np.float32]] = {}
    first = {image: network.read_image(*_inputs(network, rows)) for image, rows in images.items()}
    groups: dict[tuple[int, int], list[Pair]] = {}
    for pair in sorted(set(pairs)):
        groups.setdefault((len(pair[1]), first[pair[0]].shape[1]), []).append(pair)
    for (_, rows), group in groups.items():
        texts = list(dict.fromkeys(ids for _, ids in group))
        read = dict(zip(texts, network.read_text(*_numbers(network, task, texts)), strict=True))
        number = max(1, _ROWS[network.text_pooler.weight.device.type] // rows)
        for start in range(0, len(group), number):
            batch = group[start : start + number]
            streams = Streams(
                torch.stack([read[ids] for _, ids in batch]), torch.cat([first[image] for image, _ in batch])
            )
            connected, _ = network.connect(streams, last=max(layers))
            kept = torch.stack([connected[layer - 1].text for layer in layers], dim=1)
            found |= zip(batch, kept.cpu().numpy(), strict=True)
    return found


@torch.inference_mode()
def attention(network: Vilbert, task: int | None, rows: Rows, ids: Sequence[int], layer: int) -> NDArray[np.float32]:
    """(m, n) attention of a caption's tokens to the image's rows in one connection, the mean over heads."""
    maps: list[Tensor] = []
    streams = Streams(network.read_text(*_numbers(network, task, [ids])), network.read_image(*_inputs(network, rows)))
    network.connect(streams, last=layer, maps=maps)
    return np.asarray(maps[-2][0].mean(dim=0).cpu().numpy())


def _inputs(network: Vilbert, rows: Rows) -> Iterator[Tensor]:
    """Features (1, n, d) and places (1, n, 5) on the network's device."""
    return (torch.from_numpy(part)[None].to(network.text_pooler.weight) for part in rows)


def _numbers(network: Vilbert, task: int | None, texts: Sequence[Sequence[int]]) -> tuple[Tensor, None, Tensor | None]:
    """Texts of one length (b, m) without a mask, and their tasks (b,), on the network's device."""
    ids = torch.tensor(texts, device=network.text_pooler.weight.device)
    return ids, None, None if task is None else ids.new_full((len(ids),), task)
