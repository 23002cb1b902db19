"""Agreement against the number of references is what scoring each set of references gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from capbench.core.errors import DataError, MetricError, ProtocolError, UsageError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, Judgements
from capbench.datasets.base import Dataset
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.pascal50s import Pascal50S
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Need, References
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.stats.pairwise_accuracy import pairwise_accuracy
from capbench.studies.references import ReferenceCurves, curve_protocol, load_curves, reference_curves
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


class Misshapen(Shared):
    """Gives a sweep with the wrong number of items."""

    name = "misshapen"
    needs: ClassVar[tuple[Need, ...]] = (References(),)

    def sweep(self, sweep: ReferenceSweep, progress: Progress):  # type: ignore[no-untyped-def]
        return iter([np.zeros((len(sweep.counts), 1, 1))])


def _sample() -> DataRoot:
    return find_root("sample")


def _curves(
    names: list[str], counts: tuple[int, ...] | None = (1, 5, 50), draws: int = 5, seed: int = 0
) -> ReferenceCurves:
    dataset = Pascal50S(_sample())
    return reference_curves(
        dataset,
        curve_protocol(dataset, None),
        resolve_metrics(names),
        counts=counts,
        draws=draws,
        seed=seed,
        cache=False,
    )


def test_a_curve_at_five_references_is_the_protocol_with_five_drawn_references() -> None:
    dataset = Pascal50S(_sample())
    found = _curves(["bleu-4", "rouge-l", "cider"])
    protocol = dataset.protocol("random-5-refs/direct-strict")
    draws = dataset.load(protocol.items)
    for request in resolve_metrics(["bleu-4", "rouge-l", "cider"]):
        (column,) = request.score_columns
        (point,) = [p for p in found.curve(column.label, column.column) if p.count == 5]
        expected = []
        for judgements in draws:
            values = score(judgements.items, [request], dataset=dataset.name, cache=False).values[column]
            chosen = judgements.preferences["direct"]
            expected.append(
                pairwise_accuracy(
                    values[chosen.first], values[chosen.second], chosen.preferred, groups=chosen.group
                ).mean
            )
        assert point.values == pytest.approx(expected, abs=1e-12)
        assert point.mean == pytest.approx(np.mean(expected))
        assert point.sd == pytest.approx(np.std(expected, ddof=1))
        assert point.n == 160


def test_with_all_references_there_is_nothing_to_draw() -> None:
    found = _curves(["cider"], counts=None)
    assert found.counts == (1, 2, 5, 10, 20, 50)
    last = found.curve("cider", "cider")[-1]
    assert (last.count, len(last.values), last.sd) == (50, 1, None)
    assert found.groups == ("HC", "HI", "HM", "MM")
    assert found.curve("cider", "cider", "MM")[0].n == 40
    assert len(found.curve("cider", "cider", "MM")[0].values) == 5


def test_seed_and_number_of_draws_decide() -> None:
    first, again, other = _curves(["rouge-l"]), _curves(["rouge-l"]), _curves(["rouge-l"], seed=1)
    assert first.points == again.points
    assert first.points != other.points
    longer = _curves(["rouge-l"], draws=7)
    assert longer.curve("rouge-l", "rouge-l")[0].values[:5] == first.curve("rouge-l", "rouge-l")[0].values


def test_a_metric_that_cannot_sweep_is_scored_set_by_set_and_may_do_without_references() -> None:
    dataset = Flickr8kExpert(_sample())
    protocol = curve_protocol(dataset, None)
    done: list[int] = []
    found = reference_curves(
        dataset, protocol, [MetricRequest(Shared, ("shared",), {})], counts=(0, 2, 5), draws=3, progress=done.append
    )
    points = {point.count: point for point in found.points}
    assert [len(points[count].values) for count in (0, 2, 5)] == [1, 3, 1]
    assert sum(done) == 3 * found.n_items
    # By hand, at two references in the second draw: the first two of its order.
    from capbench.datasets.judgement_files import reference_orders
    from capbench.stats.correlation import correlation

    (judgements,) = dataset.load(protocol.items)
    order = list(reference_orders(judgements.items, 0, 3))[1]
    items = [
        replace(item, references=tuple(item.references[i] for i in places[:2]))
        for item, places in zip(judgements.items, order, strict=True)
    ]
    values = Shared().statistics(items, lambda _: None)[:, 0]
    ratings = judgements.ratings["expert"]
    assert points[2].values[1] == correlation("tau-c", values[ratings.item], ratings.value).value


def test_progress_names_the_metric_and_how_much_it_has_to_do() -> None:
    dataset = Flickr8kExpert(_sample())

    class Told:
        def __init__(self) -> None:
            self.whole = 0
            self.parts: list[tuple[str, int, str]] = []
            self.done: list[int] = []

        def __call__(self, done: int) -> None:
            self.whole += done

        def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
            place = len(self.parts)
            self.parts.append((name, total, unit))
            self.done.append(0)

            def step(done: int) -> None:
                self.done[place] += done

            return step

    told = Told()
    requests = [MetricRequest(Shared, ("shared",), {}), *resolve_metrics(["bleu-1"])]
    found = reference_curves(
        dataset, curve_protocol(dataset, None), requests, counts=(0, 2, 5), draws=3, progress=told, cache=False
    )
    n = found.n_items
    # Without references; two in three draws and all five once; three draws of a sweep.
    assert told.parts == [("shared", n, "items"), ("shared", 4 * n, "items"), ("bleu", 3 * n, "items")]
    assert told.done == [n, 4 * n, 3 * n]
    assert told.whole == 6 * n


def test_zero_is_left_out_for_metrics_that_need_references_and_said() -> None:
    dataset = Flickr8kExpert(_sample())
    requests = [MetricRequest(Shared, ("shared",), {}), *resolve_metrics(["bleu-1"])]
    found = reference_curves(dataset, curve_protocol(dataset, None), requests, draws=2)
    assert found.counts == (0, 1, 2, 3, 4, 5)
    assert [p.count for p in found.curve("bleu", "bleu-1")] == [1, 2, 3, 4, 5]
    assert any("Shared" in note and "without references" in note for note in found.notes)


def test_items_with_fewer_references_are_counted() -> None:
    dataset = open_composite()
    protocol = curve_protocol(dataset, "same-text-out/correctness-tau-c")
    found = reference_curves(dataset, protocol, resolve_metrics(["bleu-1"]), counts=(4, 5))
    assert any(note.startswith("at 5 references") and "have fewer" in note for note in found.notes)
    assert not any(note.startswith("at 4 references") for note in found.notes)


def open_composite() -> Dataset:
    from capbench.datasets.composite import Composite

    return Composite(_sample())


def test_all_references_are_the_pool_unless_items_are_named() -> None:
    dataset = Pascal50S(_sample())
    assert str(curve_protocol(dataset, None)) == "pascal-50s/all-50-refs/direct-strict"
    assert str(curve_protocol(dataset, "consensus")) == "pascal-50s/all-50-refs/consensus-strict"
    assert str(curve_protocol(dataset, "pascal-50s/json-5-refs/direct-ties-half")).startswith("pascal-50s/json-5-refs/")
    assert str(curve_protocol(Flickr8kExpert(_sample()), "mean/tau-b")).endswith("no-own-captions/mean-tau-b")


@pytest.mark.parametrize(
    ("counts", "draws", "code", "value"),
    [
        ((51,), 5, "out-of-range", 51),
        ((-1, 2), 5, "out-of-range", -1),
        ((0, 1), 5, "missing-references", 0),
        ((1,), 0, "out-of-range", 0),
    ],
)
def test_numbers_that_do_not_fit_are_refused(counts: tuple[int, ...], draws: int, code: str, value: int) -> None:
    with raises(UsageError, code, value=value):
        _curves(["cider"], counts=counts, draws=draws)


def test_zero_alone_is_refused_where_a_metric_needs_references() -> None:
    dataset = Flickr8kExpert(_sample())
    requests = [MetricRequest(Shared, ("shared",), {}), *resolve_metrics(["bleu-1"])]
    with raises(UsageError, "missing-references", value="bleu"):
        reference_curves(dataset, curve_protocol(dataset, None), requests, counts=(0,))


def test_protocols_that_draw_themselves_or_have_no_judgements_are_refused() -> None:
    pascal = Pascal50S(_sample())
    with raises(ProtocolError, "conflict", value="pascal-50s/random-5-refs/direct-strict"):
        reference_curves(pascal, pascal.protocol("random-5-refs"), resolve_metrics(["cider"]))
    from capbench.datasets.nocaps import Nocaps

    nocaps = Nocaps(_sample())
    with raises(ProtocolError, "unsupported", value=str(nocaps.protocol(None))):
        reference_curves(nocaps, nocaps.protocol(None), resolve_metrics(["cider"]))


class NoReferences(Toy):
    """Items without references."""

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        return tuple(
            replace(j, items=tuple(replace(item, references=()) for item in j.items)) for j in super().load(selection)
        )


def test_data_without_references_is_refused() -> None:
    dataset = NoReferences(_sample())
    with raises(MetricError, "missing-references", value="length"):
        reference_curves(dataset, dataset.protocol(None), [MetricRequest(Length, ("length",), {})])


def test_a_sweep_of_another_shape_is_the_metrics_fault() -> None:
    dataset = Flickr8kExpert(_sample())
    with raises(MetricError, "wrong-shape"):
        reference_curves(dataset, curve_protocol(dataset, None), [MetricRequest(Misshapen, ("shared",), {})])


def test_curves_are_read_back_and_other_files_are_refused(tmp_path: Path) -> None:
    found = _curves(["rouge-l"])
    path = tmp_path / "curves.json"
    path.write_text(found.model_dump_json(), encoding="utf-8")
    assert load_curves(path) == found
    for text, code in [
        ("[]", "wrong-format"),
        ('{"schema_version": 1, "cells": []}', "wrong-format"),
        (found.model_dump_json().replace('"schema_version":1', '"schema_version":9'), "wrong-version"),
        (found.model_dump_json().replace('"draws":5', '"draws":"many"'), "wrong-format"),
    ]:
        path.write_text(text, encoding="utf-8")
        with raises(DataError, code, path=path):
            load_curves(path)


@pytest.mark.real_data
def test_figure_5_of_tiger_at_five_references(real_data: Path) -> None:
    """TIGEr's Table 2 has METEOR 77.98, CIDEr 76.75 and BLEU-4 72.88 with another draw of five references."""
    dataset = Pascal50S(find_root(real_data))
    found = reference_curves(
        dataset, curve_protocol(dataset, None), resolve_metrics(["bleu-4", "cider"]), counts=(1, 5, 50), cache=False
    )
    at_five = {p.column: p for p in found.points if p.count == 5 and not p.group}
    assert at_five["bleu-4"].mean == pytest.approx(0.7288, abs=0.01)
    assert at_five["cider"].mean == pytest.approx(0.7675, abs=0.01)
    for column in ("bleu-4", "cider"):
        few, some, all_of_them = [p.mean for p in found.points if p.column == column and not p.group]
        assert few < some < all_of_them


def test_a_count_at_which_a_statistic_is_undefined_has_no_point_and_the_others_have_theirs() -> None:
    class Second(Shared):
        """Constant with one reference."""

        def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
            values = super().statistics(items, progress)
            return values if max(len(item.references) for item in items) > 1 else np.ones_like(values)

    dataset = Flickr8kExpert(_sample())
    requests = [MetricRequest(Second, ("shared",)), *resolve_metrics(["bleu-1"])]
    curves = reference_curves(dataset, curve_protocol(dataset, None), requests, counts=(1, 3), draws=2, cache=False)
    assert [point.count for point in curves.curve("shared", "shared")] == [3]
    assert [point.count for point in curves.curve("bleu", "bleu-1")] == [1, 3]
    (note,) = [note for note in curves.notes if "Shared" in note]
    assert note.startswith("Shared with 1 reference: the correlation of Shared")
