"""Scores against pycocoevalcap's own pipeline: its tokeniser, its scorers, its METEOR process."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capbench.core.records import FloatArray, Item
from capbench.metrics.base import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.text.java import find_java
from tests.metrics.captions import invented

COLUMNS = {
    "bleu": ["bleu-1", "bleu-2", "bleu-3", "bleu-4"],
    "rouge-l": ["rouge-l"],
    "meteor": ["meteor"],
    "cider": ["cider"],
}


def _reference(name: str, items: Sequence[Item], monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, FloatArray]]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    monkeypatch.setenv("PATH", str(find_java().path.parent), prepend=":")
    # A neutral last caption: the wrapper loses empty ones at the end.
    texts = {i: [{"caption": item.candidate}] for i, item in enumerate(items)} | {-1: [{"caption": "end"}]}
    groups = {i: [{"caption": c} for c in item.references] for i, item in enumerate(items)} | {-1: texts[-1]}
    candidates, references = PTBTokenizer().tokenize(texts), PTBTokenizer().tokenize(groups)
    del candidates[-1], references[-1]
    scorer = {"bleu": lambda: Bleu(4), "rouge-l": Rouge, "meteor": Meteor, "cider": Cider}[name]()
    with contextlib.redirect_stdout(io.StringIO()):
        total, scores = scorer.compute_score(references, candidates)
    if name == "meteor":
        for stream in (scorer.meteor_p.stdin, scorer.meteor_p.stdout, scorer.meteor_p.stderr):
            stream.close()
        scorer.meteor_p.kill()
        scorer.meteor_p.wait()
    if name != "bleu":
        total, scores = [total], [scores]
    return [(float(t), np.array(s)) for t, s in zip(total, scores, strict=True)]


def _check(name: str, items: Sequence[Item], monkeypatch: pytest.MonkeyPatch) -> None:
    (request,) = resolve_metrics([name])
    metric = request.make(Resources(cache=False))
    metric.prepare(items)
    done: list[int] = []
    statistics = metric.statistics(items, done.append)
    assert sum(done) == len(items)
    scores, totals = metric.scores(statistics), metric.corpus_scores(statistics)
    for column, (total, expected) in zip(COLUMNS[name], _reference(name, items, monkeypatch), strict=True):
        np.testing.assert_allclose(scores[column], expected, rtol=0, atol=1e-12)
        assert totals[column] == pytest.approx(total, abs=1e-12)
        assert expected.max() > 0.01, "the comparison must compare something"


@pytest.mark.java
@pytest.mark.parametrize("name", COLUMNS)
def test_invented_captions_score_as_in_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(name, invented(150), monkeypatch)


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.parametrize("name", COLUMNS)
def test_published_captions_score_as_in_the_reference(
    name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions: dict[str, list[str]] = {}
    for line in (real_data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        label, text = line.split("\t")
        captions.setdefault(label.split("#")[0], []).append(text)
    generator = random.Random(5)
    images = generator.sample(sorted(captions), 300)
    items = [
        Item(image, generator.choice(captions[generator.choice(images)]), tuple(captions[image])) for image in images
    ]
    _check(name, items, monkeypatch)
