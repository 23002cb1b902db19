from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capbench.core.errors import ModelError
from capbench.features.records import RegionFeatures
from capbench.metrics.vilbert.encode import image_rows, states
from capbench.metrics.vilbert.files import network_name, released_options
from capbench.metrics.vilbert.network import Streams, Vilbert, VilbertOptions, mask_of
from capbench.weights.checkpoints import fit_state, shapes_only
from tests.errors import raises
from tests.metrics.vilbert.plain import TINY, arrays, forward, random_state

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = 1e-5


def _network(state: dict[str, torch.Tensor], tmp_path: Path, config: dict[str, Any] = TINY) -> Vilbert:
    (tmp_path / "config.json").write_text(json.dumps(config))
    network = Vilbert(released_options(state, tmp_path / "file"))
    body = {name: tensor for name, tensor in state.items() if not (network_name(name) or "").startswith("heads.")}
    fit_state(network, body, tmp_path / "file", rename=network_name)
    return network.requires_grad_(False)


def _image(regions: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(regions, 20)).astype(np.float32), rng.random((regions, 5)).astype(np.float32)


def _random_sizes(rng: np.random.Generator) -> dict[str, Any]:
    def even(heads: int) -> int:
        return heads * int(rng.integers(2, 9))

    connections = int(rng.integers(1, 5))
    text_layers, image_layers = (connections + int(rng.integers(0, 4)) for _ in range(2))
    heads = {name: int(rng.integers(1, 5)) for name in ("text", "image", "both")}
    return {
        "vocab_size": int(rng.integers(40, 80)),
        "max_position_embeddings": int(rng.integers(40, 60)),
        "type_vocab_size": int(rng.integers(1, 4)),
        "hidden_size": even(heads["text"]),
        "num_hidden_layers": text_layers,
        "num_attention_heads": heads["text"],
        "intermediate_size": int(rng.integers(4, 40)),
        "v_feature_size": 20,
        "v_target_size": int(rng.integers(2, 14)),
        "v_hidden_size": even(heads["image"]),
        "v_num_hidden_layers": image_layers,
        "v_num_attention_heads": heads["image"],
        "v_intermediate_size": int(rng.integers(4, 40)),
        "bi_hidden_size": even(heads["both"]),
        "bi_num_attention_heads": heads["both"],
        "t_biattention_id": list(range(text_layers - connections, text_layers)),
        "v_biattention_id": list(range(image_layers - connections, image_layers)),
    }


def _whole(
    network: Vilbert, ids: Tensor, features: Tensor, places: Tensor, words: Any = None, regions: Any = None,
    tasks: Any = None, types: Any = None,
) -> tuple[list[Streams], Streams]:  # fmt: skip
    if words is not None and tasks is not None:
        words = torch.cat((words[:, :1], words), dim=1)
    text, image = mask_of(words, features.dtype), mask_of(regions, features.dtype)
    streams = Streams(network.read_text(ids, text, tasks, types), network.read_image(features, places, image))
    return network.connect(streams, text, image)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_task", [True, False])
@pytest.mark.parametrize(("tokens", "regions"), [(37, 1), (37, 101), (2, 1), (11, 6)])
def test_networks_of_any_sizes_give_what_a_plain_implementation_gives_at_every_layer(
    tmp_path: Path, seed: int, with_task: bool, tokens: int, regions: int
) -> None:
    rng = np.random.default_rng((seed, tokens, regions, with_task))
    config = _random_sizes(rng)
    state = random_state(config, 20 if with_task else 0, seed)
    network = _network(state, tmp_path, config)
    task = int(rng.integers(20)) if with_task else None
    ids = rng.integers(0, config["vocab_size"], size=tokens).tolist()
    features, places = _image(regions, seed)
    # Alone, and padded behind: twice as many tokens and regions as there are, as far as there are places.
    more = min(2 * tokens, config["max_position_embeddings"]) - tokens
    shown, where = (np.concatenate([a, rng.normal(size=a.shape).astype(np.float32)]) for a in (features, places))
    for all_ids, rows, boxes in ((ids, features, places), (ids + [0] * more, shown, where)):
        plain = forward(
            arrays(state), config, all_ids, rows.astype(float), boxes.astype(float), task=task,
            real_tokens=tokens, real_regions=regions,
        )  # fmt: skip
        layers, end = _whole(
            network,
            torch.tensor([all_ids]),
            torch.from_numpy(rows)[None],
            torch.from_numpy(boxes)[None],
            words=torch.arange(len(all_ids))[None] < tokens,
            regions=torch.arange(len(rows))[None] < regions,
            tasks=None if task is None else torch.tensor([task]),
        )
        assert len(layers) == len(config["t_biattention_id"])
        texts, images = [*plain["text"], plain["end_text"]], [*plain["image"], plain["end_image"]]
        for place, streams in enumerate((*layers, end)):
            np.testing.assert_allclose(streams.text[0], texts[place], atol=TOLERANCE)
            np.testing.assert_allclose(streams.image[0], images[place], atol=TOLERANCE)
        pooled = network.pool(end)
        np.testing.assert_allclose(pooled[0][0], plain["pooled_text"], atol=TOLERANCE)
        np.testing.assert_allclose(pooled[1][0], plain["pooled_image"], atol=TOLERANCE)


def test_it_gives_the_numbers_of_the_original(tmp_path: Path, parity: Path) -> None:
    numbers = np.load(parity / "vilbert" / "tiny_forward.npz")
    config = json.loads((parity / "vilbert" / "tiny_config.json").read_text())["config"]
    tags = sorted({name.split("__")[0] for name in numbers.files if "__sd__" in name})
    assert tags
    for tag in tags:
        state = {
            name.split("__sd__")[1]: torch.from_numpy(numbers[name])
            for name in numbers.files
            if name.startswith(f"{tag}__sd__")
        }
        network = _network(state, tmp_path, config)
        given = {name: torch.from_numpy(numbers[name]) for name in numbers.files if "__" not in name}
        with torch.inference_mode():
            layers, end = _whole(
                network,
                given["input_ids"],
                given["features"],
                given["spatials"],
                words=given["attention_mask"],
                regions=given["image_mask"],
                tasks=given["task_ids"][:, 0] if tag == "task" else None,
                types=given["token_type_ids"],
            )
            pooled, pooled_layer = network.pool(end), network.pool(layers[-1])
        expected = {f"layer{place}_t": layer.text for place, layer in enumerate(layers)}
        expected |= {f"layer{place}_v": layer.image for place, layer in enumerate(layers)}
        expected |= {"final_t": end.text, "final_v": end.image, "final_pooled_t": pooled[0]}
        expected |= {"final_pooled_v": pooled[1], "alllayers_pooled_t": pooled_layer[0]}
        expected |= {"alllayers_pooled_v": pooled_layer[1]}
        for name, values in expected.items():
            np.testing.assert_allclose(values, numbers[f"{tag}__{name}"], atol=TOLERANCE, err_msg=f"{tag} {name}")


def test_attention_maps_are_those_of_the_original(tmp_path: Path, parity: Path) -> None:
    numbers = np.load(parity / "vilbert" / "tiny_forward.npz")
    config = json.loads((parity / "vilbert" / "tiny_config.json").read_text())["config"]
    state = {name.split("__sd__")[1]: torch.from_numpy(numbers[name]) for name in numbers.files if "task__sd__" in name}
    network = _network(state, tmp_path, config)
    given = {name: torch.from_numpy(numbers[name]) for name in numbers.files if "__" not in name}
    words = torch.cat((given["attention_mask"][:, :1], given["attention_mask"]), dim=1)
    text_mask, image_mask = mask_of(words), mask_of(given["image_mask"])
    of_text: list[torch.Tensor] = []
    of_both: list[torch.Tensor] = []
    with torch.inference_mode():
        embedded = network.text_embedding(given["input_ids"], given["task_ids"][:, 0], given["token_type_ids"])
        network.text_layers[0](embedded, text_mask, of_text)
        text = network.read_text(given["input_ids"], text_mask, given["task_ids"][:, 0], given["token_type_ids"])
        image = network.read_image(given["features"], given["spatials"], image_mask)
        network.connections[0](Streams(text, image), text_mask, image_mask, of_both)
    np.testing.assert_allclose(of_text[0], numbers["task__attn_t0"], atol=TOLERANCE)
    np.testing.assert_allclose(of_both[0], numbers["task__coattn0_text_to_image"], atol=TOLERANCE)
    np.testing.assert_allclose(of_both[1], numbers["task__coattn0_image_to_text"], atol=TOLERANCE)


@pytest.mark.parametrize(("name", "keys"), [("VILBertForVLTasks", 560), ("BertForMultiModalPreTraining", 533)])
def test_every_tensor_of_a_released_file_is_accounted_for(parity: Path, name: str, keys: int) -> None:
    shapes = json.loads((parity / "vilbert" / "full_size_state_dict_shapes.json").read_text())[name]
    assert len(shapes) == keys
    with shapes_only():
        network = Vilbert(VilbertOptions(tasks=20 if name == "VILBertForVLTasks" else 0), heads=True)
    expected = {parameter: list(tensor.shape) for parameter, tensor in network.state_dict().items()}
    read = {ours: shape for theirs, shape in shapes.items() if (ours := network_name(theirs)) is not None}
    assert read == expected
    unused = {theirs for theirs in shapes if network_name(theirs) is None}
    assert len(unused) + len(read) == keys
    heads_of_tasks = ("vil_", "vision_logit", "linguisic_logit")
    assert all(
        theirs.startswith(heads_of_tasks) or "q_dense" in theirs or theirs == "cls.predictions.decoder.weight"
        for theirs in unused
    )


@pytest.mark.parametrize("layers", [(1,), (3,), (1, 2, 3), (1, 3)])
@pytest.mark.parametrize("task", [None, 7])
def test_states_are_those_of_the_whole_network(tmp_path: Path, layers: tuple[int, ...], task: int | None) -> None:
    network = _network(random_state(TINY), tmp_path)
    images = {name: _image(count, seed) for name, count, seed in (("a", 7, 1), ("b", 1, 2), ("c", 7, 3))}
    rng = np.random.default_rng(4)
    texts = [tuple(rng.integers(0, 60, size=size).tolist()) for size in (2, 9, 9, 37)]
    read: list[int] = []
    network.text_embedding.register_forward_hook(lambda _network, _given, out: read.append(len(out)))
    found = states(network, task, layers, images, [(image, ids) for image in images for ids in texts] * 2)
    assert len(found) == 12
    assert sum(read) == 2 * len(texts)  # once for each number of regions
    for (image, ids), of_pair in found.items():
        features, places = images[image]
        whole, _ = _whole(
            network,
            torch.tensor([ids]),
            torch.from_numpy(features)[None],
            torch.from_numpy(places)[None],
            tasks=None if task is None else torch.tensor([task]),
        )
        expected = np.stack([whole[layer - 1].text[0].numpy() for layer in layers])
        np.testing.assert_allclose(of_pair, expected, atol=TOLERANCE)
    assert np.abs(found["a", texts[0]] - found["c", texts[0]]).max() > 0.01  # the image changes what words are


def test_an_image_is_its_mean_and_its_first_regions_with_places_as_shares() -> None:
    boxes = np.array([[10, 20, 30, 60], [0, 0, 100, 80]], dtype=np.float32)
    features = np.array([[1, 2, 3], [5, 6, 9]], dtype=np.float16)
    rows, places = image_rows(RegionFeatures("a", 100, 80, boxes, features), most=1)
    np.testing.assert_allclose(rows, [[3, 4, 6], [1, 2, 3]])  # the mean is over all regions
    np.testing.assert_allclose(places, np.array([[0, 0, 1, 1, 1], [0.1, 0.25, 0.3, 0.75, 20 * 40 / 8000]]), rtol=1e-6)
    assert rows.dtype == places.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"t_biattention_id": [0, 1, 2]}, "unsupported", "t_biattention_id"),
        ({"v_hidden_act": "relu"}, "unsupported", "v_hidden_act"),
        ({"hidden_size": "24"}, "wrong-format", None),
    ],
)
def test_other_configurations_are_refused(tmp_path: Path, changes: dict[str, Any], code: str, value: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY | changes))
    with raises(ModelError, code, path=tmp_path / "config.json", value=value):
        released_options({}, tmp_path / "file")
