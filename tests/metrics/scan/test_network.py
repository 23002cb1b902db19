from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capbench.metrics.scan.network import AGGREGATIONS, ATTENTIONS, FEATURE_NORMS, Scan, ScanOptions
from capbench.training.matching import hinge_loss

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ScanOptions(11, word_dim=5, embed_dim=6, image_dim=7)


def _batch(seed: int = 0, images: int = 3, regions: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([3, 6, 1, 3, 5])
    captions = torch.randn(5, 6, 6, generator=generator, dtype=torch.float64)
    captions[torch.arange(6)[None] >= lengths[:, None]] = 0
    return torch.randn(images, regions, 6, generator=generator, dtype=torch.float64), captions, lengths


def similarities(options: ScanOptions, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
    return Scan(options).similarities(images, captions, lengths)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_chunks_and_the_order_of_captions_change_nothing(
    attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dataclasses.replace(SMALL, cross_attention=attention)
    images, captions, lengths = _batch()
    wanted = similarities(options, images, captions, lengths)
    wide = torch.cat([captions, torch.zeros(5, 3, 6)], dim=1).double()
    torch.testing.assert_close(similarities(options, images, wide, lengths), wanted, rtol=1e-12, atol=1e-12)
    for i, length in enumerate(lengths):
        alone = similarities(options, images, captions[i : i + 1, :length], lengths[i : i + 1])
        torch.testing.assert_close(alone, wanted[:, i : i + 1], rtol=1e-12, atol=1e-12)
    order = torch.tensor([4, 2, 0, 3, 1])
    monkeypatch.setattr("capbench.metrics.scan.network._CAPTIONS", 2)
    turned = similarities(options, images, captions[order], lengths[order])
    torch.testing.assert_close(turned, wanted[:, order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("attention", "norm"), list(itertools.product(ATTENTIONS, FEATURE_NORMS)))
def test_zero_vectors_give_numbers_and_finite_gradients(attention: Any, norm: Any) -> None:
    options = dataclasses.replace(SMALL, cross_attention=attention, feature_norm=norm)
    images, captions, lengths = (part.float() if part.is_floating_point() else part for part in _batch())
    images[0] = 0
    captions[1] = 0
    images.requires_grad_()
    captions.requires_grad_()
    found = similarities(options, images, captions, lengths)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    assert captions.grad is not None
    assert all(bool(torch.isfinite(x).all()) for x in (found, images.grad, captions.grad))


# Parity with the released code


@pytest.fixture(scope="module")
def released(parity: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(parity / "scan" / "scan_vectors.npz") as vectors:
        return dict(vectors), json.loads((parity / "scan" / "meta.json").read_text())


def _options(meta: dict[str, Any], **changes: Any) -> ScanOptions:
    given = {**meta["base_options"], **changes}
    return ScanOptions(
        given["vocab_size"],
        given["word_dim"],
        given["embed_size"],
        given["img_dim"],
        given["num_layers"],
        given["bi_gru"],
        given["precomp_enc_type"] == "weight_norm",
        not given["no_imgnorm"],
        not given["no_txtnorm"],
        given["cross_attn"],
        given["raw_feature_norm"],
        given["agg_func"],
        given["lambda_softmax"],
        given["lambda_lse"],
    )


def _network(vectors: dict[str, Any], options: ScanOptions, tag: str) -> Scan:
    state = {}
    for key, values in vectors.items():
        for short, side in (("img", "image"), ("txt", "text")):
            if key.startswith(f"{tag}__{short}__"):
                state[f"{side}.{key.split('__')[2]}"] = torch.from_numpy(values)
    network = Scan(options)
    network.load_state_dict({name: value.reshape(network.state_dict()[name].shape) for name, value in state.items()})
    return network


@pytest.mark.parametrize("tag", ["bi", "uni", "wn", "nonorm", "two_layer"])
def test_embeddings_are_those_of_the_released_code(released: tuple[dict[str, Any], dict[str, Any]], tag: str) -> None:
    vectors, meta = released
    if f"{tag}__img_emb" not in vectors:
        pytest.skip(f"the parity numbers lack the variant {tag}")
    network = _network(vectors, _options(meta, **meta["variants"][tag]), tag).eval()
    with torch.no_grad():
        images = network.encode_images(torch.from_numpy(vectors["images"]))
        captions = network.encode_captions(torch.from_numpy(vectors["captions"]), torch.from_numpy(vectors["lengths"]))
    np.testing.assert_allclose(images, vectors[f"{tag}__img_emb"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(captions, vectors[f"{tag}__cap_emb"], rtol=0, atol=1e-6)


def test_scores_are_those_of_the_released_code(released: tuple[dict[str, Any], dict[str, Any]]) -> None:
    vectors, meta = released
    images, captions, lengths = (torch.from_numpy(vectors[name]) for name in ("bi__img_emb", "bi__cap_emb", "lengths"))
    assert meta["score_cases"]
    for name, case in meta["score_cases"].items():
        found = similarities(_options(meta, **case), images, captions, lengths)
        np.testing.assert_allclose(found, vectors[name], rtol=0, atol=1e-5, err_msg=f"{name}: {case}")


@pytest.mark.parametrize("tag", ["train_t2i_maxviol", "train_i2t_sum", "train_t2i_mean_sum"])
def test_training_goes_as_with_the_released_code(released: tuple[dict[str, Any], dict[str, Any]], tag: str) -> None:
    vectors, meta = released
    if f"{tag}__loss0" not in vectors:
        pytest.skip(f"the parity numbers lack the case {tag}")
    given = {**meta["base_options"], **meta["variants"][tag]}
    network = _network(vectors, _options(meta, **meta["variants"][tag]), "bi").train()
    optimiser = torch.optim.Adam(network.parameters(), lr=given["learning_rate"])
    regions, ids, lengths = (torch.from_numpy(vectors[name]) for name in ("images", "captions", "lengths"))
    losses = []
    for step in range(3):
        optimiser.zero_grad()
        scores = network.similarities(network.encode_images(regions), network.encode_captions(ids, lengths), lengths)
        loss = hinge_loss(scores, given["margin"], given["max_violation"])
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), given["grad_clip"])
        if step == 0:
            assert float(norm) == pytest.approx(float(vectors[f"{tag}__grad_norm0"]), rel=1e-5)
            for name, key in (("image.fc.weight", "grad_fc_weight"), ("text.embed.weight", "grad_embed")):
                np.testing.assert_allclose(gradients[name], vectors[f"{tag}__{key}"], rtol=0, atol=1e-5)
        losses.append(loss.item())
        optimiser.step()
    assert losses[0] == pytest.approx(float(vectors[f"{tag}__loss0"]), rel=1e-5)
    np.testing.assert_allclose(losses, vectors[f"{tag}__losses_before_step_1_2_3"], rtol=1e-5)
    state = network.state_dict()
    for name in ("image.fc.weight", "text.embed.weight", "text.rnn.weight_hh_l0"):
        wanted = vectors[f"{tag}__after3__{name.split('.', 1)[1]}"]
        np.testing.assert_allclose(state[name], wanted, rtol=0, atol=1e-5)


def _l2norm(x: Tensor, dim: int = -1) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return x / (norm + 1e-8)


def _direction(words: list[Tensor], w: Mapping[str, Tensor], layer: str) -> list[Tensor]:
    """One direction of a gated recurrent unit, word by word."""
    state = torch.zeros(w[f"weight_hh_{layer}"].shape[1], dtype=torch.float64)
    found = []
    for word in words:
        given = (w[f"weight_ih_{layer}"] @ word + w[f"bias_ih_{layer}"]).chunk(3)
        kept = (w[f"weight_hh_{layer}"] @ state + w[f"bias_hh_{layer}"]).chunk(3)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        state = (1 - update) * torch.tanh(given[2] + reset * kept[2]) + update * state
        found.append(state)
    return found


def _caption(options: ScanOptions, weights: Mapping[str, Tensor], ids: list[int]) -> Tensor:
    w = {name.removeprefix("text.rnn."): tensor for name, tensor in weights.items()}
    words = [weights["text.embed.weight"][number] for number in ids]
    for layer in range(options.layers):
        states = _direction(words, w, f"l{layer}")
        if options.bidirectional:
            back = _direction(words[::-1], w, f"l{layer}_reverse")[::-1]
            states = [torch.cat(pair) for pair in zip(states, back, strict=True)]
        words = states
    found = torch.stack(words)
    if options.bidirectional:
        found = (found[:, : options.embed_dim] + found[:, options.embed_dim :]) / 2
    return _l2norm(found) if options.normalise_captions else found


def _image(options: ScanOptions, weights: Mapping[str, Tensor], regions: Tensor) -> Tensor:
    if options.weight_norm:
        v = weights["image.fc.weight_v"]
        matrix = weights["image.fc.weight_g"] * v / v.square().sum().sqrt()
    else:
        matrix = weights["image.fc.weight"]
    found = regions @ matrix.t() + weights["image.fc.bias"]
    return _l2norm(found) if options.normalise_images else found


def _score(options: ScanOptions, image: Tensor, caption: Tensor) -> Tensor:
    queries, values = (caption, image) if options.cross_attention == "t2i" else (image, caption)
    s = values @ queries.t()
    if options.feature_norm.startswith("clipped"):
        s = torch.where(s > 0, s, 0.1 * s)
    if options.feature_norm.endswith("l2norm"):
        s = _l2norm(s, 1)
    if options.feature_norm == "softmax":
        s = s.softmax(1)
    contexts = (options.lambda_softmax * s).softmax(0).t() @ values
    lengths = torch.linalg.vector_norm(queries, dim=1) * torch.linalg.vector_norm(contexts, dim=1)
    cosines: Tensor = (queries * contexts).sum(1) / lengths.clamp(min=1e-8)
    if options.aggregation == "LogSumExp":
        return torch.log(torch.exp(options.lambda_lse * cosines).sum()) / options.lambda_lse
    if options.aggregation == "Max":
        return cosines.max(dim=0).values
    return cosines.mean() if options.aggregation == "Mean" else cosines.sum()


def _loss(scores: Tensor, margin: float, hardest: bool) -> Tensor:
    total = torch.zeros((), dtype=scores.dtype)
    for matrix in (scores, scores.t()):
        for i, row in enumerate(matrix):
            costs = [(margin + row[j] - row[i]).clamp(min=0) for j in range(len(row)) if j != i]
            total = total + (torch.stack(costs).max(dim=0).values if hardest else torch.stack(costs).sum())
    return total


@pytest.mark.parametrize(("seed", "case"), list(enumerate(itertools.product(ATTENTIONS, FEATURE_NORMS, AGGREGATIONS))))
def test_a_training_step_is_that_of_the_plain_network(seed: int, case: tuple[Any, Any, Any]) -> None:
    choose = random.Random(seed)
    options = ScanOptions(
        vocabulary_size=9,
        word_dim=choose.choice([1, 4]),
        embed_dim=choose.choice([6, 12]),
        image_dim=choose.choice([4, 10]),
        layers=choose.choice([1, 1, 2]),
        bidirectional=choose.random() < 0.7,
        weight_norm=choose.random() < 0.3,
        normalise_images=choose.random() < 0.7,
        normalise_captions=choose.random() < 0.7,
        cross_attention=case[0],
        feature_norm=case[1],
        aggregation=case[2],
        lambda_softmax=choose.choice([0.5, 4.0, 9.0, 20.0]),
        lambda_lse=choose.choice([1.0, 6.0, 20.0]),
    )
    generator = torch.Generator().manual_seed(seed)
    network = Scan(options, generator).double()
    with torch.no_grad():
        for parameter in network.text.parameters():
            parameter.mul_(choose.choice([1, 3]))
    lengths = [choose.choice([1, 2, 3, 5, 9]) for _ in range(choose.choice([2, 3, 4]))]
    regions = torch.randn(len(lengths), choose.choice([1, 2, 7]), options.image_dim, generator=generator).double()
    if choose.random() < 0.3:
        regions[:, 0] = regions[:, -1]
    ids = torch.randint(0, 9, (len(lengths), max(lengths) + choose.choice([0, 2])), generator=generator)
    margin, hardest = choose.choice([0.05, 0.2, 1.0]), choose.random() < 0.5

    sizes = torch.tensor(lengths)
    scores = network.similarities(network.encode_images(regions), network.encode_captions(ids, sizes), sizes)
    loss = hinge_loss(scores, margin, hardest)
    loss.backward()  # type: ignore[no-untyped-call]

    weights = {name: value.detach().clone().requires_grad_() for name, value in network.state_dict().items()}
    captions = [_caption(options, weights, ids[i, :length].tolist()) for i, length in enumerate(lengths)]
    images = [_image(options, weights, one) for one in regions]
    plain = torch.stack([torch.stack([_score(options, image, caption) for caption in captions]) for image in images])
    wanted = _loss(plain, margin, hardest)
    wanted.backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(scores, plain, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(loss, wanted, rtol=1e-11, atol=1e-12)
    largest = max(float(value.grad.abs().max()) for value in weights.values() if value.grad is not None)
    for name, parameter in network.named_parameters():
        given, expected = (torch.zeros(()) if x.grad is None else x.grad for x in (parameter, weights[name]))
        difference = float((given - expected).abs().max())
        assert difference <= 1e-10 * max(1.0, largest), (name, options)
