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
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.text import ptb
from capbench.text.java import find_java
from capbench.text.meteor.scores import meteor_corpus, meteor_scores, meteor_statistics
from tests.metrics.captions import invented
from tests.text.meteor.pairs import CAPTIONS, Pairs, common_pairs, odd_pairs

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
    metric = requested.make(Resources())
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


def _equals_meteors_jar(pairs: Pairs, meteor: Any) -> None:
    """Compare counts, scores and the score of the corpus; the jar gets every text as it is."""
    found = meteor_statistics([text for text, _ in pairs], [group for _, group in pairs])

    def answers(words: Sequence[str], number: int = 1) -> list[str]:
        meteor.meteor_p.stdin.write(f"{' ||| '.join(words)}\n".encode())
        meteor.meteor_p.stdin.flush()
        return [meteor.meteor_p.stdout.readline().decode() for _ in range(number)]

    rows = [answers(["SCORE", *group, text])[0].strip() for text, group in pairs]
    for pair, expected, got in zip(pairs, rows, found.tolist(), strict=True):
        assert got == [float(number) for number in expected.split()], ascii(pair)
    *values, corpus = map(float, answers(["EVAL", *rows], len(pairs) + 1))
    np.testing.assert_allclose(meteor_scores(found), values, rtol=0, atol=1e-12)
    assert meteor_corpus(found) == pytest.approx(corpus, abs=1e-12)


@pytest.mark.java
def test_invented_and_random_texts_equal_meteors_jar(meteor: Any) -> None:
    _equals_meteors_jar([*CAPTIONS, *common_pairs(random.Random(0)), *odd_pairs(random.Random(5))], meteor)
    counts = meteor_statistics([text for text, _ in CAPTIONS], [group for _, group in CAPTIONS])
    assert (counts[:, 4:20:4].sum(axis=0) > 0).all()  # every stage took part


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.real_data
@pytest.mark.parametrize("name", ["flickr8k-expert", "composite", "pascal-50s", "flickr8k-crowdflower"])
def test_judged_items_equal_meteors_jar(real_data: Path, name: str, meteor: Any) -> None:
    dataset = open_dataset(name, find_root(real_data))
    items = dataset.load(dataset.protocol().items)[0].items
    if name == "flickr8k-crowdflower":
        items = tuple(random.Random(0).sample(items, 5_000))
    texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
    tokens = dict(zip(texts, ptb.tokenize(texts), strict=True))
    pairs = [(tokens[item.candidate], [tokens[text] for text in item.references]) for item in items]
    _equals_meteors_jar(pairs, meteor)
