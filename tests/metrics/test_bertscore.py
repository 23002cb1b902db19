from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.errors import raises

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from capbench.core.errors import CapbenchError, MetricError
from capbench.core.records import Item
from capbench.metrics import bertscore
from capbench.metrics.bertscore import BERTScore
from capbench.metrics.needs import Resources
from tests.metrics.tiny_bert import make_bert

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

KINDS = ("bert", "distilbert", "roberta")
ITEMS = [
    Item("1", "A dog runs on the grass.", ("The dog sits on grass!", "A red ball, and a cat.", "dog")),
    Item("1", "a cat", ("The dog sits on grass!", "A red ball, and a cat.", "dog")),
    Item("2", "Two people stand in the street, with water; it is unknown", ("On the grass: a dog runs",)),
    Item("2", "  the blue man  ", ("a woman", "the blue man")),
    Item("3", "dog", ("dog", "cats and dogs")),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_bert(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def scored(folder: Path, items: list[Item], **options: Any) -> tuple[BERTScore, np.ndarray]:
    metric = BERTScore(Resources(model=str(folder)), **options)
    metric.prepare(items)
    scores = metric.scores(metric.statistics(items, lambda _: None))
    return metric, np.stack([scores[f"bertscore-{which}"] for which in "prf"], axis=1)


def package(folder: Path, items: list[Item], layer: int, idf: bool) -> np.ndarray:
    import bert_score

    references = [list(item.references) for item in items]
    documents = [text for texts in references for text in texts]
    scorer = bert_score.BERTScorer(
        str(folder), num_layers=layer, idf=idf, idf_sents=documents, batch_size=1, nthreads=0, device="cpu"
    )
    scores = scorer.score([item.candidate for item in items], references, batch_size=1)
    return np.stack([values.numpy() for values in scores], axis=1)


@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize(("kind", "layer"), [("bert", 3), ("bert", 1), ("distilbert", 2), ("roberta", 3)])
def test_equals_the_package(folders: dict[str, Path], kind: str, layer: int, idf: bool) -> None:
    _, scores = scored(folders[kind], ITEMS, layer=layer, idf="references" if idf else "none")
    assert scores == pytest.approx(package(folders[kind], ITEMS, layer, idf), abs=1e-5)
    assert len({round(value, 4) for value in scores[:, 2]}) > 3


def test_scores_of_several_references_may_be_means(folders: dict[str, Path]) -> None:
    each = [dataclasses.replace(ITEMS[0], references=(text,)) for text in ITEMS[0].references]
    mean = scored(folders["bert"], ITEMS[:1], layer=2, reduce="mean")[1][0]
    assert mean == pytest.approx(scored(folders["bert"], each, layer=2)[1].mean(axis=0), abs=1e-6)


def test_a_text_without_pieces_scores_nought(folders: dict[str, Path]) -> None:
    items = [Item("1", " ", ("a dog",)), Item("1", "a dog", ("",)), Item("1", "", ("", "a dog"))]
    _, scores = scored(folders["bert"], items, layer=2)
    assert (scores == 0).all()  # what the package says, too, where its version of transformers reads empty texts


def test_a_text_longer_than_the_network_reads_is_cut_as_in_the_package(folders: dict[str, Path]) -> None:
    items = [Item("1", "dog cat " * 40, ("a dog",)), Item("1", "dog cat " * 40 + "ball", ("a dog",))]
    metric, scores = scored(folders["bert"], items, layer=2)
    assert len(metric.bert.ids(items[0].candidate)) == 40
    assert metric.bert.names(items[0].candidate)[-1] == "[SEP]"
    assert scores == pytest.approx(package(folders["bert"], items, 2, False), abs=1e-5)


def test_the_layer_of_a_known_kind_is_the_authors(tmp_path: Path) -> None:
    import bert_score.utils

    names = {
        ("bert", 12): "bert-base-uncased",
        ("bert", 24): "bert-large-uncased",
        ("roberta", 12): "roberta-base",
        ("roberta", 24): "roberta-large",
        ("xlm-roberta", 12): "xlm-roberta-base",
        ("xlm-roberta", 24): "xlm-roberta-large",
        ("distilbert", 6): "distilbert-base-uncased",
    }
    assert {key: bert_score.utils.model2layers[name] for key, name in names.items()} == bertscore.LAYERS
    folder = make_bert(tmp_path / "twelve", layers=12)
    assert BERTScore(Resources(model=str(folder))).bert.layer == 9


def _config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _nan(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][:] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"x": print}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("break_it", "code", "value"),
    [
        (lambda folder: shutil.rmtree(folder), "missing-file", "config.json"),
        (
            lambda folder: _config(folder, num_hidden_layers=5),
            *("wrong-weights", "encoder.layer.3.attention.output.LayerNorm.bias"),
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10" * 40), "unreadable", None),
        (_nan, "not-a-number", None),
        (_pickle, "unreadable", None),
    ],
)
def test_an_invalid_folder(folders: dict[str, Path], tmp_path: Path, break_it: Any, code: str, value: object) -> None:
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    break_it(folder)
    with raises(CapbenchError, code, path=folder, value=value) as caught:
        scored(folder, ITEMS, layer=2)
    assert "\n" not in str(caught.value)


def test_an_invalid_layer_item_or_resource(folders: dict[str, Path]) -> None:
    with raises(CapbenchError, "missing-option", path=folders["bert"], value="bert"):
        BERTScore(Resources(model=str(folders["bert"])))
    with raises(CapbenchError, "out-of-range", path=folders["bert"], value=4):
        BERTScore(Resources(model=str(folders["bert"])), layer=4)
    with raises(MetricError, "missing-references", value="1"):
        BERTScore(Resources(model=str(folders["bert"])), layer=1).statistics(
            [Item("1", "dog", (), candidate_id="c7")], lambda _: None
        )
    with raises(MetricError, "missing-weights", value="bertscore"):
        BERTScore()
