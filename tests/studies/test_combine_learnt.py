"""A combination measured: what each metric adds, and what the saved one computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import CapbenchError, ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, Item, Judgements
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.metrics.combination import write_combination
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.stats.correlation import correlation
from capbench.studies.combine import CombinationResult, combine_metrics
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import BootstrapSettings, CombineSettings, Study, TestSettings
from tests.errors import raises
from tests.studies.test_combine import Distance, Many, Signal

FEW = CombineSettings(folds=4, inner_folds=3)
TESTS = TestSettings(resamples=200)
LENGTHS = ("bleu-1", "rouge-l")


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path, False, "test")


def requests_of(*names: str) -> tuple[MetricRequest, ...]:
    return resolve_metrics([f"tests.studies.test_combine:{name}" for name in names])


def combined_of(
    dataset: Many, requests: Sequence[MetricRequest] = (), settings: CombineSettings = FEW, **changes: Any
) -> tuple[CombinationResult, list[FloatArray]]:
    """The result, and the out-of-fold scores of each draw."""
    protocol = dataset.protocol(changes.pop("protocol", None))
    requests = requests or requests_of("Signal", "Distance")
    result, tables = combine_metrics(dataset, protocol, requests, settings, compare=TESTS, cache=False, **changes)
    return result, [values for table in tables for values in table.values.values()]


def combined(root: DataRoot, *names: str, settings: CombineSettings = FEW, **changes: Any) -> CombinationResult:
    return combined_of(Many(root), requests_of(*names), settings, **changes)[0]


def value(result: StudyResult, column: str) -> float:
    (protocol,) = result.protocols
    cell = result.cell(protocol.id, column)
    assert cell is not None
    return cell.number


def test_metrics_have_the_numbers_of_compare_and_the_combination_those_of_its_scores(root: DataRoot) -> None:
    dataset = Many(root)
    result, (scores,) = combined_of(dataset)
    names = tuple(f"tests.studies.test_combine:{name}" for name in ("Signal", "Distance"))
    settings = BootstrapSettings(resamples=200)
    study = Study("s", "S", ("tests.studies.test_combine:Many",), names, bootstrap=settings, human_ceiling=False)
    plain = run_plan(plan_study(study, root), no_progress, cache=False)
    for cell in plain.cells:
        assert result.comparison.cell(cell.protocol, cell.column) == cell
    judgements = dataset.load(dataset.protocol().items)[0]
    means = judgements.ratings["rating"].value.reshape(120, 2).mean(axis=1)
    rho = correlation("spearman", scores, means).value
    assert value(result.comparison, "combination") == pytest.approx(rho, abs=1e-12)


def test_a_drop_is_the_difference_to_the_combination_without_the_metric(root: DataRoot) -> None:
    result = combined(root)
    for part, other in zip(result.parts, ("Distance", "Signal"), strict=True):
        alone = value(combined(root, other).comparison, "combination")
        assert part.without == pytest.approx(alone, abs=1e-12)
        assert part.drop == pytest.approx(value(result.comparison, "combination") - alone, abs=1e-12)
        assert part.drop is not None
        assert part.drop_low is not None
        assert part.drop_high is not None
        assert part.drop_low < part.drop < part.drop_high
    assert [part.lower_is_better for part in result.parts] == [False, True]
    # Turned, a distance has a weight above 0.
    assert all(part.weight_low > 0 for part in result.parts)
    (single,) = combined(root, "Signal").parts
    assert single.drop is None


def test_scores_from_the_file_are_those_of_what_was_learnt_from_everything(root: DataRoot, tmp_path: Path) -> None:
    # Words of a text, so that registered metrics have something to say.
    dataset = Worded(root)
    requests = resolve_metrics(LENGTHS)
    result, _ = combined_of(dataset, requests)
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
    result, scores = combined_of(Renamed(root))
    twice, of_twice = combined_of(Twice(root))
    np.testing.assert_array_equal(scores, of_twice)
    assert twice.images == 40
    assert twice.comparison.comparisons[0].units == 40
    assert [part.drop_low for part in twice.parts] == [part.drop_low for part in result.parts]
    assert "50 image ids show 40 photographs; ids of one photograph are resampled together" in " ".join(
        twice.comparison.protocols[0].notes
    )


def _inputs(items: Sequence[Item]) -> FloatArray:
    signal, distance = (metric().statistics(items, lambda _: None)[:, 0] for metric in (Signal, Distance))
    return np.stack([signal, -distance], axis=1)


@pytest.mark.parametrize(
    ("changes", "error", "code", "refused"),
    [
        ({"lower": ["sgnal"]}, UsageError, "unknown-name", "sgnal"),
        ({"settings": CombineSettings(folds=41)}, StatisticError, "too-few", 40),
        ({"settings": CombineSettings(inner_folds=37)}, StatisticError, "too-few", 36),
        ({"settings": CombineSettings("logistic")}, ProtocolError, "conflict", "logistic"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_scored(
    root: DataRoot, changes: dict[str, Any], error: type[CapbenchError], code: str, refused: object
) -> None:
    begun: list[str] = []

    def progress(what: str, steps: int | None) -> AbstractContextManager[Callable[[int], None]]:
        begun.append(what)
        return no_progress(what, steps)

    with raises(error, code, value=refused):
        combined_of(Many(root), progress=progress, **changes)
    assert not begun
