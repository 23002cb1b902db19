"""BERTScore against the package of its authors, on tiny networks with random weights."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.errors import raises

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from capbench.core.errors import CapbenchError, MetricError
from capbench.core.files import cache_dir
from capbench.core.records import Item
from capbench.metrics.bertscore import metric as bert
from capbench.metrics.bertscore.metric import BERTScore
from capbench.metrics.needs import Resources
from tests.metrics.bertscore.tiny_bert import make_bert

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


def test_of_several_references_each_score_is_the_maximum_or_the_mean(folders: dict[str, Path]) -> None:
    alone = np.stack(
        [
            scored(folders["bert"], [dataclasses.replace(ITEMS[0], references=(text,))], layer=2)[1][0]
            for text in ITEMS[0].references
        ]
    )
    assert scored(folders["bert"], ITEMS[:1], layer=2)[1][0] == pytest.approx(alone.max(axis=0), abs=1e-6)
    mean = scored(folders["bert"], ITEMS[:1], layer=2, reduce="mean")[1][0]
    assert mean == pytest.approx(alone.mean(axis=0), abs=1e-6)


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


def test_each_text_is_encoded_once_in_a_process(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "_open", type(bert._open)())
    first, _ = scored(folders["bert"], ITEMS, layer=2)
    texts = {tuple(first.bert.ids(text)) for item in ITEMS for text in (item.candidate, *item.references)}
    assert first.bert.encoded_texts == len(texts)
    second, _ = scored(folders["bert"], ITEMS, layer=2, reduce="mean")
    assert second.bert is first.bert
    assert second.bert.encoded_texts == len(texts)


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forget what this process has in memory."""
    return lambda: monkeypatch.setattr(bert, "_open", type(bert._open)())


def test_another_process_encodes_only_what_is_new(folders: dict[str, Path], new_process: Any) -> None:
    new_process()
    scored(folders["bert"], ITEMS, layer=2)
    new_process()
    again, scores = scored(folders["bert"], ITEMS, layer=2, idf="references")
    assert again.bert.encoded_texts == 0
    other = [dataclasses.replace(item, candidate=f"{item.candidate} two") for item in ITEMS]
    new_process()
    fresh, of_other = scored(folders["bert"], other, layer=2)
    assert fresh.bert.encoded_texts == len(other)
    # What comes from disk is what would be computed.
    for items, expected, idf in ((ITEMS, scores, "references"), (other, of_other, "none")):
        new_process()
        computed, values = scored(folders["bert"], items, layer=2, encodings_mb=0, idf=idf)
        assert computed.bert.encoded_texts > len(items)
        assert values.tobytes() == expected.tobytes()


def test_encodings_on_disk_can_be_switched_off(folders: dict[str, Path], new_process: Any) -> None:
    new_process()
    scored(folders["bert"], ITEMS, layer=2, encodings_mb=0)
    file = cache_dir() / "encodings.sqlite"
    assert not file.exists()
    metric = BERTScore(Resources(model=str(folders["bert"]), cache=False), layer=2)
    metric.statistics(ITEMS, lambda _: None)
    assert not file.exists()
    new_process()
    scored(folders["bert"], ITEMS, layer=2)
    assert file.exists()
    on, off = (scored(folders["bert"], ITEMS, layer=2, encodings_mb=size)[0] for size in (2048, 0))
    assert on.signature() == off.signature()


def test_a_worker_keeps_no_encodings(folders: dict[str, Path], new_process: Any) -> None:
    new_process()
    metric = BERTScore(Resources(model=str(folders["bert"])), layer=2)
    handed_on = pickle.loads(pickle.dumps(metric))
    values = handed_on.statistics(ITEMS, lambda _: None)
    assert not (cache_dir() / "encodings.sqlite").exists()
    assert values.tobytes() == metric.statistics(ITEMS, lambda _: None).tobytes()
    assert (cache_dir() / "encodings.sqlite").exists()


@pytest.mark.parametrize("change", ["weights", "layer", "activation", "vocabulary"])
def test_encodings_of_another_network_are_not_taken(
    folders: dict[str, Path], tmp_path: Path, new_process: Any, change: str
) -> None:
    new_process()
    scored(folders["bert"], ITEMS, layer=2)
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    layer = 2
    if change == "weights":
        shutil.copy(make_bert(tmp_path / "other", seed=1) / "model.safetensors", folder)
    elif change == "layer":
        layer = 1
    elif change == "activation":
        _config(folder, hidden_act="relu")
    else:
        lines = json.loads((folder / "tokenizer.json").read_text())
        lines["model"]["vocab"] |= {"dog": lines["model"]["vocab"]["cat"], "cat": lines["model"]["vocab"]["dog"]}
        (folder / "tokenizer.json").write_text(json.dumps(lines))
    new_process()
    metric, values = scored(folder, ITEMS, layer=layer)
    assert metric.bert.encoded_texts > len(ITEMS)
    new_process()
    assert values.tobytes() == scored(folder, ITEMS, layer=layer, encodings_mb=0)[1].tobytes()


def test_damaged_encodings_are_computed_again(folders: dict[str, Path], new_process: Any) -> None:
    new_process()
    _, before = scored(folders["bert"], ITEMS, layer=2)
    connection = sqlite3.connect(cache_dir() / "encodings.sqlite", isolation_level=None)
    connection.execute("UPDATE entries SET value = zeroblob(length(value))")
    connection.close()
    new_process()
    metric, after = scored(folders["bert"], ITEMS, layer=2)
    assert metric.bert.encoded_texts > 0
    assert after.tobytes() == before.tobytes()


def test_progress_is_told_while_texts_are_encoded(folders: dict[str, Path]) -> None:
    metric = BERTScore(Resources(model=str(folders["bert"])), layer=2)
    told: list[int] = []
    metric.statistics(ITEMS, told.append)
    assert sum(told) == len(ITEMS)
    assert len(told) > 2


def test_the_signature_names_the_folder_by_what_it_holds(folders: dict[str, Path], tmp_path: Path) -> None:
    metric, _ = scored(folders["bert"], ITEMS, layer=2)
    copied = shutil.copytree(folders["bert"], tmp_path / "elsewhere")
    assert scored(copied, ITEMS, layer=2)[0].signature() == metric.signature()
    assert f"|model:{metric.bert.sha256[:16]}|layer:2|" in metric.signature()
    assert scored(copied, ITEMS, layer=1)[0].signature() != metric.signature()
    other = make_bert(tmp_path / "other", seed=1)
    assert scored(other, ITEMS, layer=2)[0].signature() != metric.signature()
    idf = scored(copied, ITEMS, layer=2, idf="references")[0]
    assert idf.corpus_id() != scored(copied, ITEMS[:2], layer=2, idf="references")[0].corpus_id()


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
    assert {key: bert_score.utils.model2layers[name] for key, name in names.items()} == bert.LAYERS
    folder = make_bert(tmp_path / "twelve", layers=12)
    assert BERTScore(Resources(model=str(folder))).bert.layer == 9


def _config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _nan(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"x": print}, folder / "pytorch_model.bin")


def _index(folder: Path) -> None:
    torch.save({"x": torch.ones(1)}, folder / "other.pt")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"x": "other.pt"}}))


@pytest.mark.parametrize(
    ("break_it", "code", "file", "value"),
    [
        (lambda folder: shutil.rmtree(folder), "missing-file", "", None),
        (lambda folder: (folder / "config.json").unlink(), "missing-file", "", "config.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "missing-key", "config.json", "model_type"),
        (lambda folder: _config(folder, model_type="gpt17"), "unreadable", "", None),
        (lambda folder: _config(folder, auto_map={"AutoModel": "evil.Model"}), "unsafe", "config.json", "auto_map"),
        (
            lambda folder: _config(folder, num_hidden_layers=5),
            *("wrong-weights", "", "encoder.layer.3.attention.output.LayerNorm.bias"),
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "unreadable", "", None),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10" * 40), "unreadable", "", None),
        (_nan, "not-a-number", "", "embeddings.word_embeddings.weight"),
        (_index, "missing-file", "model.safetensors.index.json", "other.pt"),
    ],
)
def test_an_invalid_folder(
    folders: dict[str, Path], tmp_path: Path, break_it: Any, code: str, file: str, value: object
) -> None:
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    break_it(folder)
    with raises(CapbenchError, code, path=folder / file, value=value) as caught:
        BERTScore(Resources(model=str(folder)), layer=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json"),
        (lambda folder: _config(folder, hidden_size=18), "model"),
        (_pickle, r"pytorch_model\.bin.*'print'"),
    ],
)
def test_an_invalid_file_of_a_folder_is_named(
    folders: dict[str, Path], tmp_path: Path, break_it: Any, named: str
) -> None:
    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    break_it(folder)
    with pytest.raises(CapbenchError, match=named) as caught:
        BERTScore(Resources(model=str(folder)), layer=2)
    assert "\n" not in str(caught.value)


def test_weights_of_pytorch_give_the_same_states(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = shutil.copytree(folders["bert"], tmp_path / "model")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    one, other = (bert.Bert(path, 2, "cpu")._network.state_dict() for path in (folders["bert"], folder))
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


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


def test_truncated_captions_are_counted(folders: dict[str, Path]) -> None:
    words = "a dog sits on grass "
    exact, long = (words * 8).split()[:38], words * 8  # 40 pieces with the start and end tokens, and 42
    items = [Item("1", " ".join(exact), ("the cat",)), Item("2", long.strip(), ("the cat", "a dog . " * 30))]
    metric, _ = scored(folders["bert"], items, layer=2)
    assert [line.partition(" captions")[0] for line in metric.warnings("mine", items)] == ["2 of 4"]
    assert metric.warnings("mine", items[:1]) == ()
