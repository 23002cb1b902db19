from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.records import FloatArray, Item
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.text.java import find_java
from tests.metrics.captions import invented

COLUMNS = {
    "bleu": ["bleu-1", "bleu-2", "bleu-3", "bleu-4"],
    "rouge-l": ["rouge-l"],
    "meteor": ["meteor"],
    "cider": ["cider"],
}


@pytest.fixture(scope="module")
def java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(find_java().path.parent), prepend=":")
        yield


@pytest.fixture(scope="module")
def meteor(java: None) -> Iterator[Any]:
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    yield scorer
    for stream in (scorer.meteor_p.stdin, scorer.meteor_p.stdout, scorer.meteor_p.stderr):
        stream.close()
    scorer.meteor_p.kill()
    scorer.meteor_p.wait()


@cache
def _tokenised(items: tuple[Item, ...]) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    # A neutral last caption: the wrapper loses empty ones at the end.
    texts = {i: [{"caption": item.candidate}] for i, item in enumerate(items)} | {-1: [{"caption": "end"}]}
    groups = {i: [{"caption": c} for c in item.references] for i, item in enumerate(items)} | {-1: texts[-1]}
    candidates, references = PTBTokenizer().tokenize(texts), PTBTokenizer().tokenize(groups)
    del candidates[-1], references[-1]
    return candidates, references


def _reference(name: str, items: Sequence[Item], request: pytest.FixtureRequest) -> list[tuple[float, FloatArray]]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    candidates, references = _tokenised(tuple(items))
    scorers = {"bleu": lambda: Bleu(4), "rouge-l": Rouge, "cider": Cider}
    scorer = request.getfixturevalue("meteor") if name == "meteor" else scorers[name]()
    with contextlib.redirect_stdout(io.StringIO()):
        total, scores = scorer.compute_score(references, candidates)
    if name != "bleu":
        total, scores = [total], [scores]
    return [(float(t), np.array(s)) for t, s in zip(total, scores, strict=True)]


def _check(name: str, items: Sequence[Item], request: pytest.FixtureRequest) -> None:
    (requested,) = resolve_metrics([name])
    metric = requested.make(Resources(cache=False))
    metric.prepare(items)
    done: list[int] = []
    statistics = metric.statistics(items, done.append)
    assert sum(done) == len(items)
    scores, totals = metric.scores(statistics), metric.corpus_scores(statistics)
    for column, (total, expected) in zip(COLUMNS[name], _reference(name, items, request), strict=True):
        np.testing.assert_allclose(scores[column], expected, rtol=0, atol=1e-12)
        assert totals[column] == pytest.approx(total, abs=1e-12)
        assert expected.max() > 0.01, "the comparison must compare something"


@pytest.mark.java
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("name", COLUMNS)
def test_invented_captions_score_as_in_the_reference(name: str, request: pytest.FixtureRequest) -> None:
    _check(name, invented(150), request)


@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("name", COLUMNS)
def test_published_captions_score_as_in_the_reference(
    name: str, real_data: Path, request: pytest.FixtureRequest
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
    _check(name, items, request)
