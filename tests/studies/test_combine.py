"""Combinations in studies: learnt from each protocol's judgements, out of fold, in every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import MetricError, ProtocolError, StatisticError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, Judgements, Preferences, Ratings, photograph
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.metrics.combination import image_digest, write_combination
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.stats.correlation import correlation
from capbench.stats.nested_cross_validation import Settings
from capbench.studies.combine import CombinationResult, combine_metrics, learner_for
from capbench.studies.data_points import photograph_codes
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import BootstrapSettings, Study, TestSettings
from tests.errors import raises
from tests.studies.toys import Length, Toy, known

METRICS = ("tests.studies.test_combine:Signal", "tests.studies.test_combine:Distance")


class Many(Toy):
    """Forty images with three captions, whose quality stands in the text; a pair of each image."""

    name = "many"
    title = "Many"
    default = ("all", "mean-spearman")

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        random = np.random.default_rng(7)
        quality = random.normal(size=120)
        items = tuple(
            Item(f"image{place // 3:02}", f"{value:.6f} {draw}", ("a word",), f"c{place}")
            for place, value in enumerate(quality)
        )
        index = np.repeat(np.arange(120), 2)
        values = np.clip(np.round(2.5 + quality[index] + random.normal(scale=0.7, size=240)), 1, 4)
        first = np.arange(0, 120, 3)
        preferred = np.where(quality[first] + random.normal(scale=0.7, size=40) > quality[first + 1], 1, -1)
        pairs = Preferences(first, first + 1, preferred, ("A",) * 40, np.zeros((40, 0), dtype=np.int64))
        ratings = Ratings(index, values, np.tile(np.arange(2), 120), (1.0, 4.0))
        return Judgements(self.name, selection.name, items, {"rating": ratings}, {"votes": pairs}, draw)


class Noisy(Length):
    """The quality in the text with noise of its own, which draws change."""

    sign: ClassVar[float] = 1.0
    seed: ClassVar[int] = 0

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        rows = []
        for item in items:
            quality, draw = item.candidate.split()
            noise = np.random.default_rng([int(item.candidate_id[1:]), int(draw), self.seed]).normal()
            rows.append([self.sign * (float(quality) + noise)])
        return np.array(rows)


class Signal(Noisy):
    name = "signal"
    columns: ClassVar[tuple[str, ...]] = ("signal",)
    titles: ClassVar[dict[str, str]] = {"signal": "Signal"}


class Distance(Noisy):
    """Lower is better."""

    name = "distance"
    columns: ClassVar[tuple[str, ...]] = ("distance",)
    titles: ClassVar[dict[str, str]] = {"distance": "Distance"}
    lower_is_better: ClassVar[frozenset[str]] = frozenset({"distance"})
    sign: ClassVar[float] = -1.0
    seed: ClassVar[int] = 1


def test_several_draws_of_references_are_several_columns_of_one_combination(root: DataRoot) -> None:
    result, learnt = combined_of(root, protocol="drawn/mean-spearman")
    assert (len(learnt), len(learnt[0])) == (3, 120)
    values = {cell.column: cell.number for cell in result.comparison.cells}
    means = Many(root).load(Many(root).protocol("drawn/mean-spearman").items)[0].ratings["rating"].value
    rhos = [correlation("spearman", row, means.reshape(120, 2).mean(axis=1)).value for row in learnt]
    assert values["combination"] == pytest.approx(np.mean(rhos), abs=1e-12)
    assert values["combination"] > max(values["signal"], abs(values["distance"]))
    signature = result.comparison.signatures["many/drawn"]["combination"]
    assert "|out-of-fold:4x3-by-photograph|seed:0|learnt:many/drawn,rating,mean|of:signal[signal," in signature
    assert "+-distance[distance," in signature


@pytest.mark.real_data
def test_folds_on_the_published_judgements_are_of_photographs(real_data: Path) -> None:
    root = DataRoot(real_data, False, "test")
    (expert,) = open_dataset("flickr8k-expert", root).load(open_dataset("flickr8k-expert", root).protocol().items)
    composite = open_dataset("composite", root)
    (judgements,) = composite.load(composite.protocol().items)
    ids = {item.image for item in judgements.items}
    codes, photographs = photograph_codes(judgements.items)
    assert (len(ids), photographs, len(set(codes.tolist()))) == (3995, 3965, 3965)
    learnt = {image_digest(item.image) for item in expert.items}
    shared = {image for image in ids if image_digest(image) in learnt}
    assert (len(shared), len({photograph(image) for image in shared})) == (1027, 997)


FOUR_FOLDS = Settings(folds=4, inner_folds=3)
LENGTHS = ("bleu-1", "rouge-l")


def combined_of(
    root: DataRoot,
    dataset: str = "Many",
    metrics: Sequence[str] = METRICS,
    settings: Settings = FOUR_FOLDS,
    protocol: str = "all/mean-spearman",
) -> tuple[CombinationResult, list[FloatArray]]:
    """The result, and the out-of-fold scores of each draw."""
    bootstrap, tests = BootstrapSettings(resamples=200), TestSettings(resamples=200)
    names = (f"tests.studies.test_combine:{dataset}/{protocol}",)
    plan = plan_study(Study("s", "S", names, tuple(metrics), bootstrap=bootstrap, compare=tests), root)
    result, tables = combine_metrics(plan, settings, cache=False)
    return result, [values for table in tables for values in table.values.values()]


def combined(root: DataRoot, *names: str) -> CombinationResult:
    metrics = [f"tests.studies.test_combine:{name}" for name in names or ("Signal", "Distance")]
    return combined_of(root, metrics=metrics)[0]


def number_in(result: StudyResult, column: str) -> float:
    (protocol,) = result.protocols
    cell = known(result.cell(protocol.id, column))
    return cell.number


def test_metrics_have_the_numbers_of_compare_and_the_combination_those_of_its_scores(root: DataRoot) -> None:
    dataset = Many(root)
    result, (scores,) = combined_of(root)
    names = tuple(f"tests.studies.test_combine:{name}" for name in ("Signal", "Distance"))
    settings = BootstrapSettings(resamples=200)
    study = Study("s", "S", ("tests.studies.test_combine:Many",), names, bootstrap=settings, human_ceiling=False)
    plain = run_plan(plan_study(study, root), no_progress, cache=False)
    for cell in plain.cells:
        assert result.comparison.cell(cell.protocol, cell.column) == cell
    judgements = dataset.load(dataset.protocol().items)[0]
    means = judgements.ratings["rating"].value.reshape(120, 2).mean(axis=1)
    rho = correlation("spearman", scores, means).value
    assert number_in(result.comparison, "combination") == pytest.approx(rho, abs=1e-12)


class Blind(Signal):
    """Cannot score the data set."""

    @classmethod
    def check_items(cls, items: Sequence[Item], resources: Resources, options: Mapping[str, Any]) -> None:
        raise MetricError("no features", code="missing-features")


def test_a_metric_that_cannot_be_scored_is_not_left_out(root: DataRoot) -> None:
    with raises(MetricError, "missing-features"):
        combined(root, "Distance", "Blind")


def test_a_drop_is_the_difference_to_the_combination_without_the_metric(root: DataRoot) -> None:
    result = combined(root)
    for part, other in zip(result.parts, ("Distance", "Signal"), strict=True):
        alone = number_in(combined(root, other).comparison, "combination")
        assert part.without == pytest.approx(alone, abs=1e-12)
        assert part.drop == pytest.approx(number_in(result.comparison, "combination") - alone, abs=1e-12)
        assert known(part.drop_low) < known(part.drop) < known(part.drop_high)
    assert [part.lower_is_better for part in result.parts] == [False, True]
    # Turned, a distance has a weight above 0.
    assert all(part.weight_low > 0 for part in result.parts)
    (single,) = combined(root, "Signal").parts
    assert single.drop is None


def test_scores_from_the_file_are_those_of_what_was_learnt_from_everything(root: DataRoot, tmp_path: Path) -> None:
    # Words of a text, so that registered metrics have something to say.
    dataset = Worded(root)
    requests = resolve_metrics(LENGTHS)
    result, _ = combined_of(root, "Worded", LENGTHS)
    assert result.combination is not None
    assert len(result.combination.learnt_images) == 40
    write_combination(result.combination, tmp_path / "mine.json")
    judgements = dataset.load(dataset.protocol().items)[0]
    table = score(judgements.items, resolve_metrics([f"combination:{tmp_path / 'mine.json'}"]), dataset="d")
    (scores,) = table.values.values()
    columns = score(judgements.items, requests, dataset="d", cache=False).values.values()
    inputs = np.stack(list(columns), axis=1)
    human = judgements.ratings["rating"].value.reshape(120, 2).mean(axis=1)
    z = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    weights = np.linalg.solve(z.T @ z + 120 * result.penalty * np.eye(2), z.T @ (human - human.mean()))
    np.testing.assert_allclose(scores, human.mean() + z @ weights, atol=1e-9)
    assert [part.weight for part in result.parts] == pytest.approx(weights.tolist(), abs=1e-9)


class Worded(Many):
    """Captions whose words are shared with the reference the more the better they are."""

    name = "worded"

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        judgements = super()._draw(selection, draw)
        reference = [f"w{place}" for place in range(12)]

        def worded(item: Item) -> Item:
            right = int(np.clip(round(6 + 2.5 * float(item.candidate.split()[0])), 1, 11))
            wrong = [f"x{item.candidate_id}{place}" for place in range((int(item.candidate_id[1:]) % 4) + 1)]
            return replace(item, candidate=" ".join(reference[:right] + wrong), references=(" ".join(reference),))

        return replace(judgements, items=tuple(worded(item) for item in judgements.items))


def test_a_metric_that_cannot_be_saved_leaves_no_file(root: DataRoot) -> None:
    assert combined(root).combination is None


class Renamed(Many):
    """The same images; the first ten have the ids of Flickr8k, or where ``twice`` says so ids of Flickr30k, too."""

    name = "renamed"
    title = "Renamed"
    twice: ClassVar[bool] = False

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        judgements = super()._draw(selection, draw)

        def renamed(place: int, item: Item) -> Item:
            number = f"10071298{place // 3:02}"
            id_30k = self.twice and place % 3 == 2
            return item if place >= 30 else replace(item, image=number if id_30k else f"{number}_e794419615")

        return replace(judgements, items=tuple(renamed(*entry) for entry in enumerate(judgements.items)))


class Twice(Renamed):
    name = "twice"
    twice = True


def test_one_photograph_under_two_ids_is_in_one_fold(root: DataRoot) -> None:
    # Folds, scores and intervals do not depend on which of its ids a photograph has.
    result, scores = combined_of(root, "Renamed")
    twice, of_twice = combined_of(root, "Twice")
    np.testing.assert_array_equal(scores, of_twice)
    assert twice.images == 40
    assert twice.comparison.comparisons[0].units == 40
    assert [part.drop_low for part in twice.parts] == [part.drop_low for part in result.parts]
    assert "50 image ids show 40 photographs; ids of one photograph are resampled together" in " ".join(
        twice.comparison.protocols[0].notes
    )


@pytest.mark.parametrize(("settings", "refused"), [(Settings(folds=41), 40), (Settings(folds=10, inner_folds=37), 36)])
def test_too_few_images_are_refused(root: DataRoot, settings: Settings, refused: int) -> None:
    with raises(StatisticError, "too-few", value=refused):
        combined_of(root, settings=settings)


def test_a_learner_must_fit_the_judgements(root: DataRoot) -> None:
    protocol = Many(root).protocol()
    assert learner_for(protocol, "auto") == "ridge"
    with raises(ProtocolError, "conflict", value="logistic"):
        learner_for(protocol, "logistic")
