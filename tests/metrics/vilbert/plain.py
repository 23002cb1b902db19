"""ViLBERT once more, in plain NumPy and float64, written from its papers alone, over the released files' names.

One caption and one image at a time, every head by itself, padding given as a number of real tokens and regions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

TINY: dict[str, Any] = {
    "vocab_size": 60,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "hidden_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "v_feature_size": 20,
    "v_target_size": 13,
    "v_hidden_size": 32,
    "v_num_hidden_layers": 3,
    "v_num_attention_heads": 4,
    "v_intermediate_size": 28,
    "bi_hidden_size": 16,
    "bi_num_attention_heads": 2,
    "t_biattention_id": [2, 3, 4],
    "v_biattention_id": [0, 1, 2],
}
"""A configuration as the released code writes it."""


def random_state(config: Mapping[str, Any], tasks: int = 20, seed: int = 0) -> dict[str, torch.Tensor]:
    """A state dict with the names and shapes of a released file of these sizes, heads included."""
    c = config
    text, image, common = c["hidden_size"], c["v_hidden_size"], c["bi_hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name: str, size: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (size,)

    def layer(name: str, size: int, inner: int) -> None:
        for part in ("query", "key", "value"):
            linear(f"{name}.attention.self.{part}", size, size)
        linear(f"{name}.attention.output.dense", size, size)
        norm(f"{name}.attention.output.LayerNorm", size)
        linear(f"{name}.intermediate.dense", size, inner)
        linear(f"{name}.output.dense", inner, size)
        norm(f"{name}.output.LayerNorm", size)

    shapes["bert.embeddings.word_embeddings.weight"] = (c["vocab_size"], text)
    shapes["bert.embeddings.position_embeddings.weight"] = (c["max_position_embeddings"], text)
    shapes["bert.embeddings.token_type_embeddings.weight"] = (c["type_vocab_size"], text)
    norm("bert.embeddings.LayerNorm", text)
    if tasks:
        shapes["bert.embeddings.task_embeddings.weight"] = (tasks, text)
    linear("bert.v_embeddings.image_embeddings", c["v_feature_size"], image)
    linear("bert.v_embeddings.image_location_embeddings", 5, image)
    norm("bert.v_embeddings.LayerNorm", image)
    for i in range(c["num_hidden_layers"]):
        layer(f"bert.encoder.layer.{i}", text, c["intermediate_size"])
    for i in range(c["v_num_hidden_layers"]):
        layer(f"bert.encoder.v_layer.{i}", image, c["v_intermediate_size"])
    for i in range(len(c["t_biattention_id"])):
        name = f"bert.encoder.c_layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{name}.biattention.{part}1", image, common)
            linear(f"{name}.biattention.{part}2", text, common)
        for side, size in (("1", image), ("2", text)):
            linear(f"{name}.biOutput.dense{side}", common, size)
            norm(f"{name}.biOutput.LayerNorm{side}", size)
            linear(f"{name}.biOutput.q_dense{side}", common, size)
        for side, size, inner in (("v", image, c["v_intermediate_size"]), ("t", text, c["intermediate_size"])):
            linear(f"{name}.{side}_intermediate.dense", size, inner)
            linear(f"{name}.{side}_output.dense", inner, size)
            norm(f"{name}.{side}_output.LayerNorm", size)
    linear("bert.t_pooler.dense", text, common)
    linear("bert.v_pooler.dense", image, common)
    shapes["cls.predictions.bias"] = (c["vocab_size"],)
    linear("cls.predictions.transform.dense", text, text)
    norm("cls.predictions.transform.LayerNorm", text)
    shapes["cls.predictions.decoder.weight"] = (c["vocab_size"], text)
    linear("cls.bi_seq_relationship", common, 2)
    linear("cls.imagePredictions.transform.dense", image, image)
    norm("cls.imagePredictions.transform.LayerNorm", image)
    linear("cls.imagePredictions.decoder", image, c["v_target_size"])
    if tasks:
        linear("vil_logit", common, 1)
        linear("vil_prediction.logit_fc.0", common, 8)
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 0.1)
        state[name] = 1 + values if "LayerNorm.weight" in name else values
    return state


def arrays(state: Mapping[str, Any]) -> dict[str, Array]:
    """A state dict's tensors as float64."""
    return {name: np.asarray(values, dtype=np.float64) for name, values in state.items()}


def _norm(x: Array, sd: Mapping[str, Array], name: str) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    return np.asarray(centred / deviation * sd[f"{name}.weight"] + sd[f"{name}.bias"])


def _linear(x: Array, sd: Mapping[str, Array], name: str) -> Array:
    return x @ sd[f"{name}.weight"].T + sd[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1.0 + torch.erf(torch.from_numpy(x / math.sqrt(2.0))).numpy()))


def _attention(q: Array, k: Array, v: Array, heads: int, real: int) -> Array:
    size = q.shape[1] // heads
    out = np.zeros_like(q[:, : size * heads])
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        scores = q[:, columns] @ k[:, columns].T / math.sqrt(size)
        scores[:, real:] -= 10_000.0
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, columns] = weights / weights.sum(axis=1, keepdims=True) @ v[:, columns]
    return out


def _layer(x: Array, sd: Mapping[str, Array], name: str, heads: int, real: int) -> Array:
    q, k, v = (_linear(x, sd, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
    attended = _linear(_attention(q, k, v, heads, real), sd, f"{name}.attention.output.dense")
    x = _norm(x + attended, sd, f"{name}.attention.output.LayerNorm")
    inner = _gelu(_linear(x, sd, f"{name}.intermediate.dense"))
    return _norm(x + _linear(inner, sd, f"{name}.output.dense"), sd, f"{name}.output.LayerNorm")


def forward(
    sd: Mapping[str, Array],
    config: Mapping[str, Any],
    ids: list[int],
    features: Array,
    places: Array,
    *,
    task: int | None = None,
    real_tokens: int | None = None,
    real_regions: int | None = None,
) -> dict[str, Any]:
    """All of the network for (m,) tokens, (n, d) features and (n, 5) places, the first ones of which are real.

    ``text`` and ``image`` are lists of the streams after each connection.
    """
    m = len(ids)
    words = sd["bert.embeddings.word_embeddings.weight"][ids]
    words = words + sd["bert.embeddings.position_embeddings.weight"][:m]
    words = words + sd["bert.embeddings.token_type_embeddings.weight"][0]
    tokens = m if real_tokens is None else real_tokens
    if task is not None:
        words = np.concatenate([words[:1], sd["bert.embeddings.task_embeddings.weight"][task][None], words[1:]])
        tokens += 1
    regions = len(features) if real_regions is None else real_regions
    t = _norm(words, sd, "bert.embeddings.LayerNorm")
    looks = _linear(features, sd, "bert.v_embeddings.image_embeddings")
    v = _norm(
        looks + _linear(places, sd, "bert.v_embeddings.image_location_embeddings"), sd, "bert.v_embeddings.LayerNorm"
    )
    t_heads, v_heads, c_heads = (
        config[name] for name in ("num_attention_heads", "v_num_attention_heads", "bi_num_attention_heads")
    )
    streams: dict[str, list[Array]] = {"text": [], "image": []}
    t_next = v_next = 0
    for c, (t_at, v_at) in enumerate(zip(config["t_biattention_id"], config["v_biattention_id"], strict=True)):
        while v_next < v_at:
            v = _layer(v, sd, f"bert.encoder.v_layer.{v_next}", v_heads, regions)
            v_next += 1
        while t_next < t_at:
            t = _layer(t, sd, f"bert.encoder.layer.{t_next}", t_heads, tokens)
            t_next += 1
        name = f"bert.encoder.c_layer.{c}"
        q1, k1, v1 = (_linear(v, sd, f"{name}.biattention.{part}1") for part in ("query", "key", "value"))
        q2, k2, v2 = (_linear(t, sd, f"{name}.biattention.{part}2") for part in ("query", "key", "value"))
        for_image = _attention(q1, k2, v2, c_heads, tokens)
        for_text = _attention(q2, k1, v1, c_heads, regions)
        v = _norm(v + _linear(for_image, sd, f"{name}.biOutput.dense1"), sd, f"{name}.biOutput.LayerNorm1")
        t = _norm(t + _linear(for_text, sd, f"{name}.biOutput.dense2"), sd, f"{name}.biOutput.LayerNorm2")
        v_inner = _gelu(_linear(v, sd, f"{name}.v_intermediate.dense"))
        v = _norm(v + _linear(v_inner, sd, f"{name}.v_output.dense"), sd, f"{name}.v_output.LayerNorm")
        t_inner = _gelu(_linear(t, sd, f"{name}.t_intermediate.dense"))
        t = _norm(t + _linear(t_inner, sd, f"{name}.t_output.dense"), sd, f"{name}.t_output.LayerNorm")
        streams["text"].append(t)
        streams["image"].append(v)
    for i in range(v_next, config["v_num_hidden_layers"]):
        v = _layer(v, sd, f"bert.encoder.v_layer.{i}", v_heads, regions)
    for i in range(t_next, config["num_hidden_layers"]):
        t = _layer(t, sd, f"bert.encoder.layer.{i}", t_heads, tokens)
    pooled = {
        "pooled_text": np.maximum(_linear(t[0], sd, "bert.t_pooler.dense"), 0.0),
        "pooled_image": np.maximum(_linear(v[0], sd, "bert.v_pooler.dense"), 0.0),
    }
    return {**streams, "end_text": t, "end_image": v, **pooled}
