from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capbench.metrics.scan.network import ATTENTIONS, FEATURE_NORMS, Scan, ScanOptions
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
