from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from capbench.core.records import Item
from capbench.metrics.bert_tbr import BertTBR
from capbench.metrics.needs import Resources
from capbench.text.vocabulary import ENGLISH
from tests.metrics.tiny_bert import make_bert

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

THREE = ("The dog sits on grass.", "A red ball, and a blue cat.", "two people run in water")
ITEMS = [
    Item("1", "A dog runs on the grass.", THREE),
    Item("1", "a cat", THREE),
    Item("1", "the . a", THREE),
    Item("2", "people stand in water", ("a photo of a street", "")),
    Item("2", "", ("a photo of a street", "a")),
    Item("3", "ball", ("ball",)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("bert"), hidden_size=8)


def by_hand(folder: Path, items: list[Item], threshold: float, variant: str, stop: set[str]) -> list[float]:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    documents = [text for item in items for text in (*item.references, item.candidate)]
    pieces_of = {text: tokenizer.tokenize(text) for text in documents}

    def idf(piece: str) -> float:
        return math.log((len(documents) + 1) / (sum(piece in pieces_of[text] for text in documents) + 1))

    def states(text: str) -> list[Any]:
        with torch.no_grad():
            out = network(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        return [row / np.linalg.norm(row) for row in out.hidden_states[2][0].numpy().astype(np.float64)]

    def similar(vector: Any, others: list[Any]) -> float:
        return max([0.0, *(float(vector @ other) for other in others)])

    scores = []
    for item in items:
        references = [(states(text), pieces_of[text]) for text in item.references]
        candidate, candidate_pieces = states(item.candidate)[1:-1], pieces_of[item.candidate]
        content = [vector for vector, piece in zip(candidate, candidate_pieces, strict=True) if piece not in stop]
        total = 0.0
        for b, (base, base_pieces) in enumerate(references):
            vectors, pieces = list(base), list(base_pieces)
            for r, (other, other_pieces) in enumerate(references):
                for k, piece in enumerate(other_pieces):
                    seen_by = [s for s in range(len(references)) if s == b or s < r]
                    new = not any(similar(other[k + 1], references[s][0][1:-1]) > threshold for s in seen_by)
                    if r != b and new:
                        vectors.append(other[k] if variant == "released" else other[k + 1])
                        pieces.append(piece)
            if variant == "released":
                vectors = vectors[1:-1]
            else:
                del vectors[len(base) - 1], vectors[0]
            rows = list(zip(vectors, pieces, strict=True))
            full = [(similar(v, candidate), idf(p)) for v, p in rows if similar(v, candidate) > threshold]
            weight = sum(w for _, w in full)
            first = sum(s * w for s, w in full) / weight if weight else 0.0
            best = [similar(v, content) for v, p in rows if p not in stop and similar(v, content) > threshold]
            total += first * (sum(best) / len(best) if best else 0.0)
        scores.append(total / len(references))
    return scores


@pytest.mark.parametrize("variant", ["repaired", "released"])
@pytest.mark.parametrize("threshold", [0.4, 0.7, 0.9])
def test_equals_its_definition(folder: Path, variant: str, threshold: float) -> None:
    metric = BertTBR(Resources(model=str(folder)), layer=2, variant=variant, threshold=threshold)
    metric.prepare(ITEMS)
    scores = metric.scores(metric.statistics(ITEMS, lambda _: None))["bert-tbr"]
    expected = by_hand(folder, ITEMS, threshold, variant, {*ENGLISH, "."})
    assert scores == pytest.approx(expected, abs=1e-5)
    assert len({round(score, 4) for score in expected}) > 2
