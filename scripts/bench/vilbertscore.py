"""ViLBERTScore, compared with its released way: six padded passes through the whole network an item.

Weights and features are random. The full size is the published network with 100 regions of 2,048 numbers, the small one
a network that can be trained on a few cores, with 49 regions of 256. The peer scores the items of the first images.

The peer is a plain transcription of the released script: batches of items, in each a pass for the candidates and one
for each of the first five references; texts padded to 37 tokens, images to 101 rows; all layers and both poolers are
computed, attention is a product, a softmax and a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capbench.core.records import FloatArray, Item
from capbench.features.store import open_store
from capbench.metrics.needs import Resources
from capbench.metrics.vilbert.files import load_vilbert, save_vilbert
from capbench.metrics.vilbert.metric import ViLBERTScore
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.text.word_pieces import WordPieces, learn_word_pieces
from scripts.bench.common import Goal, Row, Settings, Work, between
from scripts.bench.inputs import items, write_features

_LENGTH, _ROWS, _BATCH, _REFERENCES = 37, 101, 32, 5


def ours(resources: Resources, chosen: Sequence[Item], part: int) -> Work:
    """P, R and F of all items; returns those of the first ones."""
    torch.set_num_threads(1)
    metric = ViLBERTScore(resources, references="first-5", device="cpu")
    metric.prepare(chosen)

    def work() -> FloatArray:
        scores = metric.scores(metric.statistics(chosen, lambda _: None))
        return np.stack([scores[f"vilbertscore-{letter}"] for letter in "prf"], axis=1)[:part]

    return work


def released(resources: Resources, chosen: Sequence[Item], part: int) -> Work:
    """P, R and F of the first items in the released way."""
    torch.set_num_threads(1)
    task = ViLBERTScore(resources, references="first-5", device="cpu").task
    model = load_vilbert(str(resources.model))
    peer = _Peer(model.network, model.vocabulary, str(resources.features), task)
    return lambda: peer.scores(chosen[:part], _BATCH)


def measure(settings: Settings) -> Iterator[Row]:
    """The items of some images."""
    name, chosen = items(settings.data, settings.pick(20, 10))
    chosen = [item for item in chosen if len(item.references) >= _REFERENCES]
    last = chosen[min(settings.pick(30, 12), len(chosen)) - 1].image
    part = 1 + max(place for place, item in enumerate(chosen) if item.image == last)
    size = "published" if settings.full else "small"
    row = between(
        f"ViLBERTScore, {size} network; {name}, {len(chosen)} items",
        f"the released way, {part} items × {len(chosen) / part:.1f}",
        ours,
        released,
        _files(settings.folder, settings.full, chosen),
        chosen,
        part,
        repeats=settings.repeats,
        tolerance=1e-5,
        times=len(chosen) / part,
    )
    # The goal holds for the references that the items of Flickr8k Expert share.
    goal = settings.pick(10.0, 4.0)
    judged = row.ratio is not None and name == "Flickr8k Expert"
    yield replace(row, goals=(Goal(row.ratio or 0.0, goal, "times as fast", minimum=True),)) if judged else row


def _files(folder: Path, full: bool, chosen: Sequence[Item]) -> Resources:
    """A model with random weights, and random features."""
    texts = sorted({text for item in chosen for text in (item.candidate, *item.references)})
    pieces = learn_word_pieces(texts, 30_522 if full else 4000)
    known = {"vocabulary_size": len(pieces)}
    options = VilbertOptions(**known)
    regions = 100
    if not full:
        regions = 49
        streams = {"text_dim": 256, "text_heads": 4, "text_inner": 1024, "image_dim": 256, "image_heads": 4}
        more = {"image_inner": 256, "common_dim": 256, "common_heads": 4, "feature_dim": 256}
        depth = {"text_layers": 6, "image_layers": 3, "connections": 3}
        options = VilbertOptions(**known, **streams, **more, **depth, tasks=0)
    network = Vilbert(options, torch.Generator().manual_seed(0)).eval()
    save_vilbert(folder / "vilbert.safetensors", network, pieces, {})
    images = sorted({item.image for item in chosen})
    write_features(folder / "features.h5", images, regions, options.feature_dim)
    model, store = str(folder / "vilbert.safetensors"), str(folder / "features.h5")
    return Resources(features=store, model=model)


class _Peer:
    """The released way, transcribed."""

    def __init__(self, network: Vilbert, pieces: WordPieces, features: str, task: int | None) -> None:
        self.weights: Mapping[str, Tensor] = network.state_dict()
        self.options, self.pieces, self.task = network.options, pieces, task
        self.store = open_store(features)

    @torch.inference_mode()
    def scores(self, items: Sequence[Item], batch: int) -> FloatArray:
        """(n, 3): P, R and F of each item."""
        rows = []
        for start in range(0, len(items), batch):
            some = items[start : start + batch]
            images = [self._image(item.image) for item in some]
            given = [torch.stack(column) for column in zip(*images, strict=True)]
            candidates = self._text([item.candidate for item in some], given)
            scores = [
                _matching(*candidates, *self._text([item.references[place] for item in some], given))
                for place in range(_REFERENCES)
            ]
            rows.append(torch.stack(scores).mean(dim=0))
        return np.asarray(torch.cat(rows).double().numpy())

    def _image(self, image: str) -> tuple[Tensor, Tensor, Tensor]:
        regions = self.store[image]
        assert regions.boxes is not None
        features, places, mask = torch.zeros(_ROWS, self.options.feature_dim), torch.zeros(_ROWS, 5), torch.zeros(_ROWS)
        number = len(regions) + 1
        features[1:number] = torch.from_numpy(regions.features)
        features[0] = features[1:number].sum(dim=0) / len(regions)
        places[0] = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0])
        boxes = torch.from_numpy(regions.boxes)
        width, height = regions.width, regions.height
        places[1:number, :4] = boxes / torch.tensor([width, height, width, height])
        places[1:number, 4] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (width * height)
        mask[:number] = 1
        return features, places, mask

    def _text(self, texts: Sequence[str], images: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Word states after the last connection, without the first and the last place; and which of them count."""
        ids, mask = torch.zeros(len(texts), _LENGTH, dtype=torch.int64), torch.zeros(len(texts), _LENGTH)
        for row, text in enumerate(texts):
            numbers = self.pieces.sequence(text, _LENGTH)
            ids[row, : len(numbers)], mask[row, : len(numbers)] = torch.tensor(numbers), 1
        states = self._forward(ids, mask, *images)
        return states[:, 1:-1], mask[:, 1 if self.task is not None else 2 :]

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(
            x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-12
        )

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor) -> Tensor:
        q, k, v = (x.view(*x.shape[:2], heads, -1).permute(0, 2, 1, 3) for x in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores + (1.0 - mask)[:, None, None] * -10_000.0, dim=-1)
        return torch.matmul(weights, v).permute(0, 2, 1, 3).flatten(2)

    def _feed(self, x: Tensor, name: str) -> Tensor:
        inner = self._linear(x, f"{name}.inner")
        inner = inner * 0.5 * (1.0 + torch.erf(inner / math.sqrt(2.0)))
        return self._norm(x + self._linear(inner, f"{name}.outer.linear"), f"{name}.outer.norm")

    def _layer(self, x: Tensor, name: str, heads: int, mask: Tensor) -> Tensor:
        parts = [self._linear(x, f"{name}.{part}") for part in ("query", "key", "value")]
        attended = self._linear(self._attend(parts[0], parts[1], parts[2], heads, mask), f"{name}.attended.linear")
        return self._feed(self._norm(x + attended, f"{name}.attended.norm"), f"{name}.feed")

    def _forward(self, ids: Tensor, mask: Tensor, features: Tensor, places: Tensor, regions: Tensor) -> Tensor:
        w, o = self.weights, self.options
        text = w["text_embedding.words.weight"][ids] + w["text_embedding.positions.weight"][: ids.shape[1]]
        text = text + w["text_embedding.types.weight"][0]
        if self.task is not None:
            token = w["text_embedding.tasks.weight"][self.task].expand(len(ids), 1, -1)
            text = torch.cat((text[:, :1], token, text[:, 1:]), dim=1)
            mask = torch.cat((torch.ones(len(ids), 1), mask), dim=1)
        text = self._norm(text, "text_embedding.norm")
        image = self._linear(features, "image_embedding.features") + self._linear(places, "image_embedding.places")
        image = self._norm(image, "image_embedding.norm")
        first_text, first_image = o.text_layers - o.connections, o.image_layers - o.connections
        for place in range(first_text):
            text = self._layer(text, f"text_layers.{place}", o.text_heads, mask)
        for place in range(first_image):
            image = self._layer(image, f"image_layers.{place}", o.image_heads, regions)
        states = text
        for place in range(o.connections):
            name = f"connections.{place}"
            of_image, of_text = (
                [self._linear(x, f"{name}.{side}_{part}") for part in ("query", "key", "value")]
                for side, x in (("image", image), ("text", text))
            )
            for_image = self._attend(of_image[0], of_text[1], of_text[2], o.common_heads, mask)
            for_text = self._attend(of_text[0], of_image[1], of_image[2], o.common_heads, regions)
            image = self._ended(image, for_image, name, "image")
            text = states = self._ended(text, for_text, name, "text")
            image = self._layer(image, f"image_layers.{first_image + place}", o.image_heads, regions)
            text = self._layer(text, f"text_layers.{first_text + place}", o.text_heads, mask)
        for x, name in ((text, "text_pooler"), (image, "image_pooler")):
            functional.relu(self._linear(x[:, 0], name))
        return states

    def _ended(self, x: Tensor, context: Tensor, name: str, side: str) -> Tensor:
        attended = self._linear(context, f"{name}.{side}_attended.linear")
        return self._feed(self._norm(x + attended, f"{name}.{side}_attended.norm"), f"{name}.{side}_feed")


def _matching(candidate: Tensor, candidate_mask: Tensor, reference: Tensor, reference_mask: Tensor) -> Tensor:
    """(b, 3): P, R and F of texts that were padded to one length."""
    candidate, reference = (x / x.norm(dim=-1, keepdim=True) for x in (candidate, reference))
    similar = torch.bmm(candidate, reference.transpose(1, 2))
    similar = similar * candidate_mask[:, :, None] * reference_mask[:, None]
    precision, recall = (
        (similar.max(dim=axis).values * mask).sum(dim=1) / mask.sum(dim=1)
        for axis, mask in ((2, candidate_mask), (1, reference_mask))
    )
    return torch.stack((precision, recall, 2 * precision * recall / (precision + recall)), dim=1)
