"""Statistics within images and over systems, and graded preferences, as statistics of protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats

import capbench as cb
from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, Item, Judgements, Preferences, Ratings, ScoreColumn, ScoreTable
from capbench.datasets.base import Dataset
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import (
    ItemSelection,
    StatisticSpec,
    graded_preferences,
    system_statistics,
    within_source_statistics,
)
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.metric_request import Row
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.stats.system_agreement import Systems
from capbench.studies.data_points import level_points
from capbench.studies.evaluate import evaluate
from capbench.studies.protocol_notes import tie_cautions
from capbench.studies.results import StudyResult
from tests.errors import raises
from tests.studies.toys import run

EXPERT = "flickr8k-expert/no-own-captions"
COMPOSITE = "composite/same-text-out"


def scored(place: str, sample: Path) -> tuple[Judgements, FloatArray]:
    name, items = place.split("/")
    dataset = open_dataset(name, find_root(str(sample)))
    (judgements,) = dataset.load(dataset.selections[items])
    (request,) = resolve_metrics(["bleu.bleu-1"])
    table = score(judgements.items, [request], dataset=name, cache=False)
    return judgements, table.values[ScoreColumn("bleu", "bleu-1")]


def correlated(*protocols: str, metrics: tuple[str, ...] = ("bleu.bleu-1",), **more: Any) -> dict[str, Any]:
    result = cb.correlate(metrics=metrics, protocol=protocols, data="sample", **more)
    return result.model_dump(mode="json")


def test_the_number_of_a_protocol_is_the_mean_over_images(sample: Path) -> None:
    result = correlated(f"{EXPERT}/within-image-tau-b")
    judgements, values = scored(EXPERT, sample)
    ratings = judgements.ratings["expert"]
    human = np.array([ratings.value[ratings.item == i].mean() for i in range(len(judgements.items))])
    image = np.array([item.image for item in judgements.items])
    taus, captions = [], 0
    for name in np.unique(image):
        x, y = values[image == name], human[image == name]
        if len(set(y)) > 1:
            captions += len(x)
            taus.append(float(scipy.stats.kendalltau(x, y).statistic) if len(set(x)) > 1 else 0.0)
    (cell,) = result["cells"]
    assert cell["value"] == pytest.approx(np.mean(taus), abs=1e-12)
    assert (cell["n"], cell["p_value"]) == (captions, None)
    assert result["ceilings"] == []  # the person would be part of the mean
    (info,) = result["protocols"]
    assert info["statistic"] == "within-image τ-b"
    if len(taus) < len(np.unique(image)):
        assert any(f"{len(taus)} of {len(np.unique(image))} images are used" in note for note in info["notes"])


def test_the_number_over_systems_is_that_of_the_means_and_few_systems_are_warned_of(sample: Path) -> None:
    protocol = f"{COMPOSITE}/correctness-system-pearson"
    result = correlated(protocol, bootstrap=100)
    judgements, values = scored(COMPOSITE, sample)
    human = judgements.ratings["correctness"].value
    systems = np.array([item.system for item in judgements.items])
    names = ["human reference", "neural captioner", "scene description"]
    assert sorted(set(systems)) == names
    means = [[side[systems == name].mean() for name in names] for side in (values, human)]
    cell = next(cell for cell in result["cells"] if not cell["group"])
    assert cell["value"] == pytest.approx(scipy.stats.pearsonr(*means).statistic, abs=1e-12)
    assert cell["n"] == 3
    assert cell["low"] <= cell["value"] <= cell["high"]
    assert any("only 3 systems" in note and "fewer than 10" in note for note in result["protocols"][0]["notes"])


def test_the_number_within_sources_is_that_of_each_source_pooled(sample: Path) -> None:
    protocols = [f"composite/{items}/correctness-within-source-tau-c" for items in ("same-text-out", "no-human")]
    result = correlated(*protocols, metrics=("bleu.bleu-1", "rouge-l"), bootstrap=100, compare="permutation")
    for protocol, info in zip(protocols, result["protocols"], strict=True):
        assert (info["statistic"], info["level"]) == ("within-source τ-c", "sources")
        judgements, values = scored(protocol.rpartition("/")[0], sample)
        human = judgements.ratings["correctness"].value
        systems = np.array([item.system for item in judgements.items])
        assert len(set(systems)) == (3 if "same-text-out" in protocol else 2)
        assert any(f"{systems[1]} ({(systems == systems[1]).sum():,} captions)" in note for note in info["notes"])
        groups = np.array([item.group for item in judgements.items])
        for group in ("", "8k"):
            taus = {}
            for name in np.unique(systems):
                at = (systems == name) & ((groups == group) | (group == ""))
                taus[name] = at.sum() ** 2, scipy.stats.kendalltau(values[at], human[at], variant="c").statistic
            want = sum(weight * tau for weight, tau in taus.values()) / sum(weight for weight, _ in taus.values())
            place = (protocol, group, "BLEU-1")
            (cell,) = (one for one in result["cells"] if (one["protocol"], one["group"], one["title"]) == place)
            assert cell["value"] == pytest.approx(want, abs=1e-12)
            assert cell["low"] < want < cell["high"]
            assert cell["n"] == sum((groups == group) | (group == ""))
        assert next(tests["group"] for tests in result["comparisons"] if tests["protocol"] == protocol) == ""


def test_ratings_of_a_caption_are_aggregated_first_and_draws_averaged() -> None:
    items = tuple(Item(f"i{i // 3}", f"c{i}", (), system="xyz"[i % 3]) for i in range(12))
    rng = np.random.default_rng(0)
    ratings = Ratings(
        np.repeat(np.arange(12), 2), rng.integers(1, 5, 24).astype(np.float64), np.tile([0, 1], 12), (1.0, 4.0)
    )
    judgements = Judgements("toy", "all", items, {"r": ratings}, {})
    scores = rng.normal(size=(2, 12))
    human = ratings.value.reshape(12, 2).mean(axis=1)
    data = level_points(system_statistics("r")["system-pearson"], judgements, {"a": scores})
    assert isinstance(data, Systems)
    value = data.statistic("a")(np.ones((1, 4), dtype=np.int32))[0]
    by_system = [side.reshape(4, 3).mean(axis=0) for side in (human, *scores)]
    want = [scipy.stats.pearsonr(by_system[0], draw).statistic for draw in by_system[1:]]
    assert value == pytest.approx(np.mean(want))
    nameless = Judgements("toy", "all", tuple(Item(i.image, i.candidate, ()) for i in items), {"r": ratings}, {})
    with raises(StatisticError, "missing-value"):
        level_points(system_statistics("r")["system-pearson"], nameless, {"a": scores})
    with raises(StatisticError, "missing-value"):
        level_points(within_source_statistics("r")["within-source-tau-b"], nameless, {"a": scores})


PROTOCOL = "composite/same-text-out/correctness-acc-eq"


def by_listing_all_pairs(scores: FloatArray, human: FloatArray) -> float:
    """Every pair under every ε that changes something."""
    i, j = np.triu_indices(len(scores), 1)
    difference, order = scores[i] - scores[j], np.sign(human[i] - human[j])
    return max(
        float(np.mean(np.where(np.abs(difference) <= epsilon, 0, np.sign(difference)) == order))
        for epsilon in [0.0, *np.abs(difference)]
    )


def test_the_number_of_a_protocol_is_that_of_all_pairs_overall_and_by_group(sample: Path) -> None:
    result = correlated(PROTOCOL)
    cells = {cell["group"]: cell for cell in result["cells"]}
    judgements, values = scored(COMPOSITE, sample)
    ratings = judgements.ratings["correctness"]
    scores = values[ratings.item]
    groups = np.array([judgements.items[item].group for item in ratings.item])
    assert set(cells) == {"", "8k", "30k", "coco"}
    for group, cell in cells.items():
        chosen = groups == group if group else np.full(len(groups), True)
        assert cell["value"] == pytest.approx(by_listing_all_pairs(scores[chosen], ratings.value[chosen]), abs=1e-12)
        assert cell["n"] == int(chosen.sum())
        assert cell["p_value"] is None
    # The table has the chance level: that of a constant score, or of coin flips on untied pairs.
    first, second = np.triu_indices(len(scores), 1)
    tied = float(np.mean(ratings.value[first] == ratings.value[second]))
    (info,) = result["protocols"]
    (note,) = [note for note in info["notes"] if "chance level" in note]
    assert f" {max(tied, (1 - tied) / 2):.4f}:" in note


def test_people_have_a_ceiling_and_a_note_says_that_there_are_no_intervals() -> None:
    result = correlated("flickr8k-expert/no-own-captions/unaggregated-acc-eq", bootstrap=100)
    assert [cell["low"] for cell in result["cells"]] == [None]
    (ceiling,) = result["ceilings"]
    assert (ceiling["low"], ceiling["high"], ceiling["method"]) == (None, None, "leave-one-rater-out")
    assert result["cells"][0]["value"] < ceiling["value"] < 1
    (note,) = [note for note in result["protocols"][0]["notes"] if "no intervals" in note]
    assert "acc-eq" in note


ROW = Row(ScoreColumn("m", "m"), "m", "m", "M")


@pytest.mark.parametrize(
    ("protocol", "levels", "says"),
    [
        ("unaggregated-tau-c", 3, True),
        ("unaggregated-tau-c", 10**9, False),
        ("unaggregated-tau-b", 3, False),
        ("mean-tau-c", 3, True),
    ],
)
def test_ties_are_told_under_tau_c(protocol: str, levels: int, says: bool) -> None:
    dataset = open_dataset("flickr8k-expert", find_root("sample"))
    chosen = dataset.protocol(protocol)
    draws = dataset.load(chosen.items)
    items = draws[0].items
    values = np.floor(np.random.default_rng(0).random(len(items)) * levels)
    table = ScoreTable(dataset.name, items, {ROW.key: values}, {ROW.key: 0.0}, {"m": "m"})
    cells, _ = evaluate(chosen, draws, [table], [ROW])
    lines = tie_cautions(chosen, [table], [ROW], cells)
    pairs = np.triu_indices(len(items), 1)
    share = np.mean(values[pairs[0]] == values[pairs[1]])
    assert [f"M has 3 distinct scores and gives {share:.0%} of all pairs of items" in line for line in lines] == (
        [True] if says else []
    )


#: By pair: words of both captions, grade, group. The group "small" has no pair whose shorter caption is preferred.
PAIRS = [
    (6, 2, 2, "large"),
    (1, 4, 1, "large"),
    (3, 5, -2, "large"),
    (5, 4, 0, "large"),
    (2, 3, -1, "large"),
    (4, 4, 1, "large"),
    (5, 1, 1, "small"),
    (7, 3, 2, "small"),
]
STATISTICS = ("pairs-strict", "pairs-length-balanced", "pairs-graded-pearson", "pairs-graded-tau-b")
METRICS = tuple(f"tests.studies.toys:{name}" for name in ("Length", "Zigzag", "Constant"))


class GradedToy(Dataset):
    """Eight graded pairs; in the second draw, the first caption of every third pair is a word longer."""

    name = "graded-toy"
    title = "Graded"
    citation = "nobody"
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "all": ItemSelection("all", "all items"),
        "drawn": ItemSelection("drawn", "two draws", draws=2, seed=0),
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = graded_preferences("pairs")
    default = ("all", "pairs-strict")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        return tuple(self._draw(selection, draw) for draw in range(selection.draws))

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        items = tuple(
            Item(f"i{place}", " ".join(["word"] * words), ("a word",), f"{place}{side}")
            for place, pair in enumerate(PAIRS)
            for side, words in (("a", pair[0] + (place % 3 == 0) * draw), ("b", pair[1]))
        )
        first = np.arange(0, 2 * len(PAIRS), 2)
        grade = np.array([pair[2] for pair in PAIRS])
        groups = tuple(pair[3] for pair in PAIRS)
        pairs = Preferences(
            first, first + 1, np.sign(grade), groups, np.zeros((len(PAIRS), 0), np.int64), grade.astype(float)
        )
        return Judgements(self.name, selection.name, items, preferences={"pairs": pairs}, draw=draw)


class OtherToy(GradedToy):
    """The same pairs without the group that is too small."""

    name = "other-toy"
    title = "Other"

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        whole = super()._draw(selection, draw)
        pairs = whole.preferences["pairs"]
        assert pairs.grade is not None
        few = replace(
            pairs,
            **{name: getattr(pairs, name)[:6] for name in ("first", "second", "preferred", "group", "votes", "grade")},
        )
        return replace(whole, items=whole.items[:12], preferences={"pairs": few})


def words(draw: int) -> tuple[FloatArray, FloatArray]:
    first = np.array([pair[0] + (place % 3 == 0) * draw for place, pair in enumerate(PAIRS)], dtype=float)
    return first, np.array([pair[1] for pair in PAIRS], dtype=float)


def zigzag(values: FloatArray) -> FloatArray:
    return values + 2 * (values % 2)


def study(
    tmp_path: Path, selection: str, *toys: str, metrics: tuple[str, ...] = METRICS, **changes: object
) -> StudyResult:
    names = (f"tests.studies.test_levels:{toy}/{selection}" for toy in toys)
    protocols = tuple(f"{name}/{statistic}" for name in names for statistic in STATISTICS)
    return run(DataRoot(tmp_path, False, "test"), protocols=protocols, metrics=metrics, **changes)


def plain(statistic: str, d: FloatArray, length: FloatArray, grade: FloatArray) -> float:
    """The statistic of one group of pairs, pair by pair; NaN where it is undefined."""
    decided = [(x, n * g) for x, n, g in zip(d * np.sign(grade), length, grade, strict=True) if g]
    if statistic == "pairs-strict":
        return float(np.mean([x > 0 for x, _ in decided]))
    if statistic == "pairs-length-balanced":
        sides = [[(x > 0) + (x == 0) / 2 for x, side in decided if np.sign(side) == sign] for sign in (1, -1)]
        return float(np.mean([np.mean(side) for side in sides])) if all(sides) else np.nan
    both = np.concatenate([d, -d]), np.concatenate([grade, -grade])
    if not d.any():
        return np.nan
    if statistic.endswith("pearson"):
        return float(np.corrcoef(*both)[0, 1])
    order = [np.sign(np.subtract.outer(side, side)) for side in both]
    return float((order[0] * order[1]).sum() / np.sqrt((order[0] ** 2).sum() * (order[1] ** 2).sum()))


@pytest.mark.parametrize("selection", ["all", "drawn"])
@pytest.mark.parametrize("toys", [("GradedToy",), ("GradedToy", "OtherToy")])
def test_every_number_is_that_of_the_pairs_one_by_one(tmp_path: Path, selection: str, toys: tuple[str, ...]) -> None:
    cells = {
        (cell.protocol.partition("/")[0], cell.protocol.rpartition("/")[2], cell.column, cell.group): cell.value
        for cell in study(tmp_path, selection, *toys).cells
    }
    grade = np.array([pair[2] for pair in PAIRS], dtype=float)
    group = np.array([pair[3] for pair in PAIRS])
    metrics: dict[str, Callable[[FloatArray], FloatArray]] = {
        "length": lambda x: x,
        "zigzag": zigzag,
        "constant": lambda x: 0 * x,
    }
    for toy, statistic in (
        (toy, statistic) for toy in ("graded-toy", "other-toy")[: len(toys)] for statistic in STATISTICS
    ):
        for column, metric in metrics.items():
            by_draw = []
            for draw in range(2 if selection == "drawn" else 1):
                first, second = words(draw)
                d = metric(first) - metric(second)
                of = {
                    name: plain(statistic, d[group == name], (first - second)[group == name], grade[group == name])
                    for name in (["large", "small"] if toy == "graded-toy" else ["large"])
                }
                if "graded" in statistic:
                    chosen = np.isin(group, list(of))
                    of[""] = plain(statistic, d[chosen], (first - second)[chosen], grade[chosen])
                else:
                    of[""] = float(np.nanmean(list(of.values())))
                by_draw.append(of)
            for name in by_draw[0]:
                expected = float(np.mean([of[name] for of in by_draw]))
                found = cells[toy, statistic, column, name]
                assert (found is None) == np.isnan(expected), (toy, statistic, column, name)
                assert found is None or found == pytest.approx(expected), (toy, statistic, column, name)
