"""Explanations have the metrics' own numbers, and what they add is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capbench.core.explanations import Bars, ExplainedCandidate, Matrix, RegionMaps, Table
from capbench.core.records import FloatArray
from capbench.datasets.root import find_root
from capbench.metrics.reo import Reo, scaled
from capbench.studies.explained import find_subject
from tests.metrics.scan.models import Files, slow_grounding
from tests.reports.explain import explained

CANDIDATES = ("a dog runs", "the woman sits under a small house", "a blue cat")
SUBJECT = explained.subject(*CANDIDATES, humans=(2.5, None, 1.0))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return explained.make_explained(tmp_path)


def panel(candidate: ExplainedCandidate, title: str) -> Bars:
    """The bars whose title begins like this."""
    (found,) = [panel for panel in candidate.panels if panel.title.startswith(title)]
    assert isinstance(found, Bars)
    return found


@pytest.mark.parametrize("options", [{}, {"minmax": False, "tau": 0.5}, {"count_ends": False, "d_rel": "half"}])
def test_tigers_numbers_are_the_metrics(files: Files, options: dict[str, object]) -> None:
    metric = explained.tiger(files, **options)
    explanation = metric.explain(SUBJECT)
    scores = metric.scores(metric.statistics(SUBJECT.items, lambda _: None))
    assert (explanation.title, explanation.image) == ("TIGEr", explained.IMAGE)
    assert explanation.signature == metric.signature()
    assert [candidate.human for candidate in explanation.candidates] == [2.5, None, 1.0]
    texts = [*CANDIDATES, *explained.REFERENCES]
    vectors = metric.grounding(explained.IMAGE, texts, metric.encode(texts))
    for i, candidate in enumerate(explanation.candidates):
        of = candidate.scores
        assert {name: of[name] for name in metric.columns} == pytest.approx({n: v[i] for n, v in scores.items()})
        assert of["DCG"] / of["ideal DCG"] == pytest.approx(of["rrs"], abs=1e-12)
        tau = options.get("tau", 1.5)
        assert isinstance(tau, float)
        assert of["wds"] == pytest.approx(1 - 1 / (1 + np.exp(-tau * (of["KL"] + of["D_rel"]))), abs=1e-12)
        maps, table, attention = candidate.panels
        assert isinstance(maps, RegionMaps)
        reference = np.mean([vectors[text] for text in explained.REFERENCES], axis=0)
        np.testing.assert_allclose(maps.values, [reference, vectors[candidate.text]], atol=1e-12)
        assert isinstance(attention, RegionMaps)
        assert ("<start>" in attention.rows) == options.get("count_ends", True)
        np.testing.assert_allclose(attention.values.sum(axis=0), 1, atol=1e-12)
        assert isinstance(table, Table)
        order = [int(str(row[0]).split()[0]) for row in table.rows]
        assert order == sorted(range(7), key=lambda region: -maps.values[1, region])
        assert sum(float(row[3]) for row in table.rows) == pytest.approx(of["DCG"], abs=1e-12)


def test_reos_numbers_are_the_metrics(files: Files) -> None:
    metric = explained.reo(files)
    explanation = metric.explain(SUBJECT)
    scores = metric.scores(metric.statistics(SUBJECT.items, lambda _: None))
    assert (explanation.title, explanation.signature) == ("REO", metric.signature())
    assert [candidate.human for candidate in explanation.candidates] == [2.5, None, 1.0]
    for i, candidate in enumerate(explanation.candidates):
        assert candidate.scores == pytest.approx({name: values[i] for name, values in scores.items()})
    assert len(explanation.comparison) == 2
    assert metric.explain(explained.subject("a dog")).comparison == ()


def test_a_known_extra_and_a_known_missing_word_come_first(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = explained.reo(files)
    axes = dict(zip(("dog", "cat", "ball"), np.eye(3, 16), strict=True))
    set_vectors(monkeypatch, metric, axes, np.stack([axes["dog"], axes["ball"]]))
    (candidate,) = metric.explain(explained.subject("dog cat", references=("dog ball",))).candidates
    extra = panel(candidate, "Extra words: similarity to a⊥ against image + references")
    missing = panel(candidate, "Missing words: similarity to g⊥ against image + references")
    assert (extra.rows[0], missing.rows[0]) == ("cat", "ball")
    # At the dog, what is left of the candidate's context is the cat (less what the reference says of the ball); at the
    # ball, which no word of it fits, its words get equal shares.
    of_extra = dict(zip(extra.rows, extra.values.tolist(), strict=True))
    assert of_extra["cat"] == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert of_extra["dog"] == pytest.approx(np.sqrt(0.5) / 2, abs=0.01)
    assert of_extra["<start>"] == 0
    of_missing = dict(zip(missing.rows, missing.values.tolist(), strict=True))
    assert of_missing["ball"] == pytest.approx((1 + np.sqrt(0.5)) / 2, abs=0.01)
    assert of_missing["dog"] == pytest.approx(0, abs=0.01)


def set_vectors(monkeypatch: pytest.MonkeyPatch, metric: Reo, axes: dict[str, FloatArray], regions: FloatArray) -> None:
    """Replace the vectors of words and regions; ends are zero vectors."""

    def captions(texts: Sequence[str]) -> dict[str, FloatArray]:
        zero = np.zeros(16)
        return {text: np.stack([zero, *(axes[word] for word in text.split()), zero]) for text in texts}

    monkeypatch.setattr(metric.source, "captions", captions)
    monkeypatch.setattr(metric.source, "regions", lambda image: regions)


def test_phrases_are_compared_with_what_reo_found(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = explained.reo(files)
    axes = dict(zip(("dog", "cat", "ball", "man"), np.eye(4, 16), strict=True))
    axes["unsaid"] = axes["man"]
    regions = np.stack([axes["dog"] + 0.1, axes["ball"] + 0.2])
    set_vectors(monkeypatch, metric, axes, regions)
    subject = explained.subject("dog cat", references=("dog ball", "man ball"))
    (candidate,) = metric.explain(
        replace(subject, errors=({"extra": ("cat", "unsaid"), "missing": ("ball",)},))
    ).candidates

    def contexts_of(text: str) -> FloatArray:
        return slow_grounding(regions, metric.source.captions([text])[text])[1]  # type: ignore[arg-type]

    def sim(found: list[FloatArray], text: str) -> float:
        cosines = []
        for vectors in found:
            for one, other in zip(vectors, contexts_of(text), strict=True):
                lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
                cosines.append(float(one @ other) / lengths if lengths > 1e-9 else 0.0)
        return float(np.mean(cosines))

    def left(vectors: FloatArray, onto: FloatArray) -> FloatArray:
        return np.stack([v - (v @ o) / (o @ o) * o for v, o in zip(vectors, onto, strict=True)])

    own, references = contexts_of("dog cat"), [contexts_of("dog ball"), contexts_of("man ball")]
    by_title = {panel.title: panel for panel in candidate.panels}
    for truth, others in (("image", [regions]), ("image + references", references)):
        a, g = [left(own, other) for other in others], [left(other, own) for other in others]
        extra = by_title[f"Extra phrases: sim(x, y) with a⊥ against {truth}"]
        missing = by_title[f"Missing phrases: sim(x, y) with g⊥ against {truth}"]
        assert isinstance(extra, Bars)
        assert isinstance(missing, Bars)
        assert (extra.rows, missing.rows) == (("“cat”", "“unsaid”"), ("“ball”",))
        np.testing.assert_allclose(extra.values, [sim(a, "cat"), sim(a, "unsaid")], atol=1e-5)
        np.testing.assert_allclose(missing.values, [sim(g, "ball")], atol=1e-5)


def test_scores_are_scaled_over_the_candidates() -> None:
    def candidate(relevance: float, human: float | None) -> ExplainedCandidate:
        return ExplainedCandidate(
            "", (), human, {"reo-relevance": relevance, "reo-extraness": 1.0, "reo-omission": -relevance}
        )

    rated = scaled((candidate(2, 1), candidate(4, 5), candidate(3, 2)), "image + references")
    assert isinstance(rated, Matrix)
    assert rated.rows == ("relevance", "extraness", "omission", "people")
    np.testing.assert_allclose(rated.values, [[0, 1, 0.5], [0.5, 0.5, 0.5], [1, 0, 0.5], [0, 1, 0.25]])
    assert "people" not in scaled((candidate(2, 1), candidate(4, None)), "image + references").rows


def test_a_caption_gets_the_rating_of_a_text_key_only_if_it_is_that_of_one_text(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    rated = [("the rapist", 1), ("therapist", 2), ("A dog runs.", 3), ("dog 狗", 4)]
    lines = [f"elsewhere,{text},a reference,{rating}" for text, rating in rated]
    path.write_text("\n".join(["image,candidate,reference_1,rating", *lines]) + "\n", encoding="utf-8")

    def humans(*captions: str) -> tuple[float | None, ...]:
        return find_subject("elsewhere", None, captions, [], str(path), find_root(None)).subject.humans

    assert humans("therapist", "The rapist.", "DOG 狗!", "a dog runs") == (2, None, 4, 3)
    assert humans("dog 猫") == (None,)
