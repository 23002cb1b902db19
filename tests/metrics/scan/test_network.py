from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capbench.metrics.scan.files import read_released
from capbench.metrics.scan.network import AGGREGATIONS, ATTENTIONS, FEATURE_NORMS, Scan, ScanOptions
from capbench.training.matching import hinge_loss

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("attention", "norm"), list(itertools.product(ATTENTIONS, FEATURE_NORMS)))
def test_zero_vectors_give_numbers_and_finite_gradients(attention: Any, norm: Any) -> None:
    generator, lengths = torch.Generator().manual_seed(0), torch.tensor([3, 6, 1, 3, 5])
    images, captions = (torch.randn(n, m, 6, generator=generator) for n, m in ((3, 4), (5, 6)))
    captions[torch.arange(6)[None] >= lengths[:, None]] = 0
    images[0], captions[1] = 0, 0
    images.requires_grad_()
    captions.requires_grad_()
    options = ScanOptions(11, embed_dim=6, cross_attention=attention, feature_norm=norm)
    found = Scan(options).similarities(images, captions, lengths)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    assert captions.grad is not None
    assert all(bool(torch.isfinite(x).all()) for x in (found, images.grad, captions.grad))


# Parity with the released code


@pytest.fixture
def released(parity: Path, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any], Callable[..., Scan]]:
    """Arrays and settings of the released code's runs, and its network with other options."""
    with np.load(parity / "scan" / "scan_vectors.npz") as arrays:
        vectors, meta = dict(arrays), json.loads((parity / "scan" / "meta.json").read_text())

    def network(**changes: Any) -> Scan:
        sides = [
            {key.split("__")[2]: torch.from_numpy(vectors[key]) for key in vectors if key.startswith(f"bi__{side}__")}
            for side in ("img", "txt")
        ]
        torch.save({"model": sides, "opt": {**meta["base_options"], **changes}}, tmp_path / "model.pth.tar")
        state, options, _ = read_released(tmp_path / "model.pth.tar")
        made = Scan(options)
        made.load_state_dict(state)
        return made

    return vectors, meta, network


def test_scores_are_those_of_the_released_code(released: Any) -> None:
    vectors, meta, network = released
    images, captions, lengths = (torch.from_numpy(vectors[name]) for name in ("bi__img_emb", "bi__cap_emb", "lengths"))
    assert meta["score_cases"]
    for name, case in meta["score_cases"].items():
        found = network(**case).similarities(images, captions, lengths)
        np.testing.assert_allclose(found.detach(), vectors[name], rtol=0, atol=1e-5, err_msg=f"{name}: {case}")


def test_training_goes_as_with_the_released_code(released: Any) -> None:
    vectors, meta, made = released
    tag, given = "train_t2i_maxviol", meta["base_options"]
    network = made().train()
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
def test_a_training_step_is_that_of_the_plain_network(
    seed: int, case: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)
    monkeypatch.setattr("capbench.metrics.scan.network._CAPTIONS", 1 + seed % 3)  # compared at once
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
    images = [_image(options, weights, of_image) for of_image in regions]
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
