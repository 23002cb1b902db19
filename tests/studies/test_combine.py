"""Combinations in studies: learnt from each protocol's judgements, out of fold, in every table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import StudyError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, Judgements, Preferences, Ratings, photograph
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.metrics.combination import image_digest
from capbench.metrics.requests import resolve_metrics
from capbench.stats.correlation import correlation
from capbench.studies.combine import image_codes, inputs_of, learn_out_of_fold
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import CombineEntry, CombineSettings, Study
from tests.errors import raises
from tests.studies.toys import Length, Toy

MANY = "tests.studies.test_combine:Many"
METRICS = ("tests.studies.test_combine:Signal", "tests.studies.test_combine:Distance")
FEW: dict[str, Any] = {"folds": 4, "inner_folds": 3}


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


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path, False, "test")


def run(root: DataRoot, *protocols: str, combine: Sequence[CombineEntry], **changes: Any) -> StudyResult:
    study = Study("s", "S", tuple(f"{MANY}/{protocol}" for protocol in protocols), METRICS, combine=tuple(combine))
    return run_plan(plan_study(replace(study, **changes), root), no_progress, cache=False)


def value(result: StudyResult, protocol: str, column: str) -> float:
    cell = result.cell(f"many/{protocol}", column)
    assert cell is not None
    return cell.number


@pytest.mark.parametrize("learner", ["auto", "monotone"])
def test_it_stands_in_the_table_and_beats_what_it_combines(learner: Any, root: DataRoot) -> None:
    entry = CombineEntry(**FEW, learner=learner, label="both", title="Both")
    result = run(root, "all/mean-spearman", "all/votes-strict", combine=[entry])
    assert result.columns == {"signal": "Signal", "distance": "Distance", "both": "Both"}
    assert value(result, "all/mean-spearman", "both") > value(result, "all/mean-spearman", "signal") > 0.4
    # A distance agrees with people where it is low, and is turned in the combination.
    assert value(result, "all/mean-spearman", "distance") < -0.4
    # Forty pairs tell no more than that both are far from chance.
    assert value(result, "all/votes-strict", "both") > 0.65
    note = next(line for line in result.protocols[0].notes if line.startswith("Both: "))
    assert "over Signal, Distance (turned)" in note
    signature = result.signatures["many/all"]["both"]
    assert "|out-of-fold:4x3-by-photograph|seed:0|learnt:many/all,rating,mean|of:signal[signal," in signature
    assert "+-distance[distance," in signature
    # Pairs are another human side, so it is another metric there.
    assert "learnt:many/all,votes|" in result.signatures["many/all"]["both (votes-strict)"]


def test_several_draws_of_references_are_several_columns_of_one_combination(root: DataRoot) -> None:
    dataset = Many(root)
    requests = resolve_metrics(METRICS)
    protocol = dataset.protocol("drawn/mean-spearman")
    scored = load_scorable(dataset, protocol.items, requests, cache=False).score()
    inputs = inputs_of([row for request in requests for row in request.rows], requests)
    learnt = learn_out_of_fold(protocol, scored.draws, scored.tables, inputs, CombineSettings(**FEW))
    assert learnt.values.shape == (3, 120)
    assert len(learnt.examples) == 360
    # Means of an item's ratings, in the order of the items.
    human = learnt.examples.target
    assert human is not None
    rhos = [correlation("spearman", row, human[:120]).value for row in learnt.values]
    single = [correlation("spearman", table.values[inputs[0].row.key], human[:120]).value for table in scored.tables]
    assert np.mean(rhos) > np.mean(single)
    # An image's captions are in the same fold in all draws.
    assert len(learnt.out_of_fold.fold) == 40


def test_a_combination_names_the_scores_that_it_requires(root: DataRoot) -> None:
    metrics = (*METRICS, "tiger")
    result = run(root, "all/mean-spearman", combine=[CombineEntry(**FEW)], metrics=metrics)
    (missing,) = [entry for entry in result.missing if entry.column == "combination"]
    assert missing.reason.startswith("many/all/mean-spearman: requires the scores of TIGEr")
    assert result.cell("many/all/mean-spearman", "signal") is not None


@pytest.mark.parametrize(
    ("entries", "code", "name"),
    [
        ([CombineEntry(of=("sgnal",))], "unknown-name", "sgnal"),
        ([CombineEntry(of=("signal",), lower=("distance",))], "unknown-name", "distance"),
        ([CombineEntry(label="signal")], "duplicate", "signal"),
        ([CombineEntry(), CombineEntry()], "duplicate", "combination"),
    ],
)
def test_names_that_do_not_fit_are_told_when_it_is_planned(
    entries: list[CombineEntry], code: str, name: str, root: DataRoot
) -> None:
    with raises(StudyError, code, value=name):
        run(root, "all/mean-spearman", combine=entries)


@pytest.mark.real_data
def test_folds_on_the_published_judgements_are_of_photographs(real_data: Path) -> None:
    root = DataRoot(real_data, False, "test")
    (expert,) = open_dataset("flickr8k-expert", root).load(open_dataset("flickr8k-expert", root).protocol().items)
    composite = open_dataset("composite", root)
    (judgements,) = composite.load(composite.protocol().items)
    ids = {item.image for item in judgements.items}
    codes, photographs = image_codes(judgements)
    assert (len(ids), photographs, len(set(codes.tolist()))) == (3995, 3965, 3965)
    learnt = {image_digest(item.image) for item in expert.items}
    shared = {image for image in ids if image_digest(image) in learnt}
    assert (len(shared), len({photograph(image) for image in shared})) == (1027, 997)
