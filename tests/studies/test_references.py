"""Agreement against the number of references is what scoring each set of references gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import CapbenchError, MetricError, ProtocolError, UsageError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, Judgements
from capbench.datasets.base import Dataset
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.nocaps import Nocaps
from capbench.datasets.pascal50s import Pascal50S
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Need
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.stats.pairwise_accuracy import pairwise_accuracy
from capbench.studies.references import curve_protocol, reference_curves, reference_sweep
from capbench.studies.results import Point
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import CurveSettings
from tests.errors import raises
from tests.studies.toys import Length, Toy


class Shared(Metric):
    """Share of the candidate's words that are in some reference; knows no sweep, and does without references."""

    name = "shared"
    columns: ClassVar[tuple[str, ...]] = ("shared",)
    titles: ClassVar[dict[str, str]] = {"shared": "Shared"}
    citation = "nobody"
    needs: ClassVar[tuple[Need, ...]] = ()

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        rows = []
        for item in items:
            known = {word for text in item.references for word in text.lower().split()}
            words = item.candidate.lower().split()
            rows.append([sum(w in known for w in words) / len(words) + 0.001 * len(words)])
        return np.array(rows)


def _sample() -> DataRoot:
    return find_root("sample")


def curves_of(
    dataset: Dataset, requests: Sequence[MetricRequest], text: str | None = None, *, cache: bool = False, **task: Any
) -> tuple[list[Point], list[str]]:
    protocol = curve_protocol(dataset, text)
    judged = load_scorable(dataset, protocol.items, requests, cache=cache).require_all()
    return reference_curves(judged, [protocol], reference_sweep(judged, CurveSettings(**task)), no_progress)


SHARED, LENGTH = MetricRequest(Shared, ("shared",), {}), MetricRequest(Length, ("length",), {})
DRAWN = "pascal-50s/random-5-refs/direct-strict"


def test_a_curve_at_five_references_is_the_protocol_with_five_drawn_references() -> None:
    dataset = Pascal50S(_sample())
    points, _ = curves_of(dataset, resolve_metrics(["bleu-4", "rouge-l", "cider"]), counts=(1, 5, 50))
    protocol = dataset.protocol("random-5-refs/direct-strict")
    draws = dataset.load(protocol.items)
    for request in resolve_metrics(["bleu-4", "rouge-l", "cider"]):
        (column,) = request.score_columns
        (point,) = [p for p in points if (p.column, p.at, p.group) == (column.column, 5, "")]
        expected = []
        for judgements in draws:
            values = score(judgements.items, [request], dataset=dataset.name, cache=False).values[column]
            chosen = judgements.preferences["direct"]
            of_groups = [np.array(chosen.group) == group for group in sorted(set(chosen.group))]
            first, second = values[chosen.first], values[chosen.second]
            accuracies = [pairwise_accuracy(first[g], second[g], chosen.preferred[g]).value for g in of_groups]
            expected.append(np.mean(accuracies))
        assert point.values == pytest.approx(expected, abs=1e-12)
        assert point.value == pytest.approx(np.mean(expected))
        assert point.sd == pytest.approx(np.std(expected, ddof=1))
        assert point.n == 160


def test_a_metric_that_cannot_sweep_is_scored_set_by_set_and_may_do_without_references() -> None:
    dataset = Flickr8kExpert(_sample())
    points = {point.at: point for point in curves_of(dataset, [SHARED], counts=(0, 2, 5), draws=3)[0]}
    assert [len(points[count].values) for count in (0, 2, 5)] == [1, 3, 1]
    # By hand, at two references in the second draw: the first two of its order.
    from capbench.datasets.reference_draws import reference_orders
    from capbench.stats.correlation import correlation

    (judgements,) = dataset.load(curve_protocol(dataset, None).items)
    order = list(reference_orders(judgements.items, 0, 3))[1]
    items = [
        replace(item, references=tuple(item.references[i] for i in places[:2]))
        for item, places in zip(judgements.items, order, strict=True)
    ]
    values = Shared().statistics(items, lambda _: None)[:, 0]
    ratings = judgements.ratings["expert"]
    assert points[2].values[1] == correlation("tau-c", values[ratings.item], ratings.value).value


class NoReferences(Toy):
    """Items without references."""

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        return tuple(
            replace(j, items=tuple(replace(item, references=()) for item in j.items)) for j in super().load(selection)
        )


@pytest.mark.parametrize(
    ("dataset", "text", "metrics", "counts", "error", "code", "value"),
    [
        (Pascal50S, None, ["cider"], (51,), UsageError, "out-of-range", 51),
        (Flickr8kExpert, None, ["bleu-1"], (0,), UsageError, "missing-references", 0),
        (Pascal50S, "random-5-refs", ["cider"], None, ProtocolError, "conflict", DRAWN),
        (Nocaps, None, ["cider"], None, ProtocolError, "unsupported", "nocaps/first-vs-rest/mean"),
        (NoReferences, None, [LENGTH], None, MetricError, "missing-references", "length"),
    ],
)
def test_what_gives_no_curve_is_refused(
    dataset: type[Dataset],
    text: str | None,
    metrics: list[MetricRequest | str],
    counts: tuple[int, ...] | None,
    error: type[CapbenchError],
    code: str,
    value: object,
) -> None:
    requests = [one for m in metrics for one in (resolve_metrics([m]) if isinstance(m, str) else [m])]
    with raises(error, code, value=value):
        curves_of(dataset(_sample()), requests, text, counts=counts)


def test_a_sweep_of_another_shape_is_refused() -> None:
    class Damaged(Shared):
        """Has lost the last item."""

        def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
            yield np.ones((len(sweep.counts), len(sweep.items) - 1, 1))

    with raises(MetricError, "wrong-shape", value=(2, 299, 1)):
        curves_of(Flickr8kExpert(_sample()), [MetricRequest(Damaged, ("shared",))], counts=(1, 3))


@pytest.mark.real_data
def test_figure_5_of_tiger_at_five_references(real_data: Path) -> None:
    dataset = Pascal50S(find_root(real_data))
    points, _ = curves_of(dataset, resolve_metrics(["bleu-4", "cider"]), counts=(1, 5, 50), draws=1)
    at_five = {p.column: p for p in points if p.at == 5 and not p.group}
    assert at_five["bleu-4"].value == pytest.approx(0.7288, abs=0.01)
    assert at_five["cider"].value == pytest.approx(0.7675, abs=0.01)
    for column in ("bleu-4", "cider"):
        few, some, all_of_them = [p.number for p in points if p.column == column and not p.group]
        assert few < some < all_of_them


def test_a_count_at_which_a_statistic_is_undefined_has_the_reason_and_the_others_have_values() -> None:
    class Second(Shared):
        """Constant with one reference."""

        def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
            values = super().statistics(items, progress)
            return values if max(len(item.references) for item in items) > 1 else np.ones_like(values)

    requests = [MetricRequest(Second, ("shared",)), *resolve_metrics(["bleu-1"])]
    points, _ = curves_of(Flickr8kExpert(_sample()), requests, counts=(1, 3), draws=2)
    assert [(p.column, p.at) for p in points if p.value is not None] == [("shared", 3), ("bleu-1", 1), ("bleu-1", 3)]
    (reason,) = [point.undefined for point in points if point.value is None]
    assert reason.startswith("the correlation of Shared")
