"""FAIEr written out plainly from its equations (Wang et al. 2021, section 3): loops over regions, words, triplets and
references, one image and one candidate at a time, float64 unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.metrics.faier.network import FaierOptions

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Text:
    """A caption: word numbers with <start> and <end> in front and behind, and those of each triplet."""

    words: tuple[int, ...]
    triplets: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    objects: float
    relations: float
    total: float


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class PlainFaier:
    """The network with given weights."""

    def __init__(
        self, options: FaierOptions, weights: Mapping[str, Array], dtype: type[np.floating] = np.float64
    ) -> None:
        self.o = options
        self.w = {name: np.asarray(values, dtype=dtype) for name, values in weights.items()}
        self.zeros: Array = np.zeros(options.embed_dim, dtype=dtype)

    def linear(self, name: str, x: Array) -> Array:
        y: Array = self.w[f"{name}.weight"] @ x
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def gru(self, name: str, inputs: Sequence[Array], suffix: str = "") -> list[Array]:
        """States of one direction (Cho et al. 2014), beginning at 0."""
        w_i, w_h = self.w[f"{name}.weight_ih_l0{suffix}"], self.w[f"{name}.weight_hh_l0{suffix}"]
        b_i, b_h = self.w[f"{name}.bias_ih_l0{suffix}"], self.w[f"{name}.bias_hh_l0{suffix}"]
        size = w_h.shape[1]
        h = np.zeros(size, dtype=w_h.dtype)
        states = []
        for x in inputs:
            i, g = w_i @ x + b_i, w_h @ h + b_h
            r = sigmoid(i[:size] + g[:size])
            u = sigmoid(i[size : 2 * size] + g[size : 2 * size])
            n = np.tanh(i[2 * size :] + r * g[2 * size :])
            h = (1 - u) * n + u * h
            states.append(h)
        return states

    def words(self, text: Text) -> list[Array]:
        inputs = [self.w["embed.weight"][i] for i in text.words]
        forward = self.gru("word_gru", inputs)
        backward = self.gru("word_gru", inputs[::-1], "_reverse")[::-1]
        states: list[Array] = [(f + b) / 2 for f, b in zip(forward, backward, strict=True)]
        return states[1:-1]

    def triplets(self, text: Text) -> list[Array]:
        nodes: list[Array] = []
        for ids in text.triplets:
            inputs = [self.w["embed.weight"][i] for i in ids]
            forward, backward = self.gru("triplet_gru", inputs), self.gru("triplet_gru", inputs[::-1], "_reverse")
            nodes.append((forward[-1] + backward[-1]) / 2)
        return nodes

    def regions(self, features: Array, boxes: Array) -> tuple[list[Array], list[Array]]:
        """v^o and v^r (eq. 1)."""
        objects = [
            self.linear("image_out", np.tanh(self.linear("image_hidden", self.o.image_scale * u))) for u in features
        ]
        relations: list[Array] = []
        if self.o.variant.endswith("-object"):
            return objects, relations
        for b_i in boxes:
            raised = [float(np.exp(np.tanh(self.linear("offset", b_i - b_j)[0]))) for b_j in boxes]
            message = self.zeros.copy()
            for weight, v_j in zip(raised, objects, strict=True):
                message += weight / sum(raised) * self.linear("relation", v_j)
            relations.append(message)
        return objects, relations

    def fuse(self, level: int, nodes: list[Array], references: Sequence[list[Array]]) -> list[Array]:
        """z (eq. 2)."""
        w_a = self.w[f"fusion.levels.{level}.attention.weight"][0]
        z = []
        for v in nodes:
            attended = []
            for h_j in references:
                raised = np.array([np.exp(w_a @ (v * h)) for h in h_j])
                alpha = raised / raised.sum()
                attended.append(sum((a * h for a, h in zip(alpha, h_j, strict=True)), self.zeros))
            m = self.gru(f"fusion.grus.{level}", attended)[-1]
            z.append(self.linear(f"fusion.levels.{level}.union", np.concatenate([v, m])))
        return z

    def product(self, z: Array, h: Array) -> float:
        if self.o.similarity == "dot":
            return float(z @ h)
        return float(z / (np.linalg.norm(z) + 1e-8) @ (h / (np.linalg.norm(h) + 1e-8)))

    def match(self, union: list[Array], candidate: list[Array]) -> float:
        """S of a level (eq. 3)."""
        if not candidate or not union:
            return 0.0
        return float(np.mean([max(self.product(z, h) for z in union) for h in candidate]))

    def score(self, features: Array, boxes: Array, references: Sequence[Text], candidate: Text) -> Answer:
        """Scores of one candidate; the references of an image without any are the text "."."""
        levels = 1 if self.o.variant.endswith("-object") else 2
        parts = self.o.variant.removesuffix("-object")
        readers = [self.words, self.triplets][:levels]
        h_c = [read(candidate) for read in readers]
        h_f = [[read(text) for text in references] for read in readers]
        image = self.regions(features, boxes) if parts != "aier" else ([], [])
        of_levels = []
        for level in range(levels):
            if parts == "faier":
                of_levels.append(self.match(self.fuse(level, image[level], h_f[level]), h_c[level]))
                continue
            by_image = self.match(image[level], h_c[level])
            by_references = 0.0
            if parts != "fier":
                by_references = float(np.mean([self.match(h_j, h_c[level]) for h_j in h_f[level]]))
            if parts == "fier+aier":
                w = self.w["merge.weight"][0]
                of_levels.append(float(w[0] * by_image + w[1] * by_references))
            else:
                of_levels.append(by_image if parts == "fier" else by_references)
        bias = float(self.w["merge.bias"][0]) if parts == "fier+aier" else 0.0
        relations = of_levels[1] if levels == 2 else 0.0
        return Answer(of_levels[0], relations, of_levels[0] + relations + bias)
