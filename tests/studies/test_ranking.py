"""Rankings over tasks of the sample: values, missing tasks, shared photographs, groups, draws, sentinels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import StatisticError, StudyError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.from_file import ScoresEntry
from capbench.reports.ranking import ranking_table
from capbench.stats.overall import JointTest
from capbench.stats.significance import compare
from capbench.studies import ranking
from capbench.studies.data_points import agreement
from capbench.studies.plan import plan_study
from capbench.studies.ranking import TaskRanking, missing_reason, run_ranking
from capbench.studies.results import Cell, Missing
from capbench.studies.run import run_plan
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import Study, TestSettings
from capbench.studies.task_file import DEFAULT_TASKS, RankedTask, load_tasks, resolve_tasks
from tests.errors import raises
from tests.reports.toy import result
from tests.studies.toys import items_of, write_lengths

EXPERT = "{name: expert, protocol: flickr8k-expert, weight: 3}"
CROWD = "{name: crowd, protocol: flickr8k-crowdflower}"
PASCAL = "{name: mm, protocol: pascal-50s/random-5-refs/direct-strict, group: MM}"
COMPOSITE = [f"{{name: {g}, protocol: composite/same-text-out/correctness-tau-c, group: {g}}}" for g in ("8k", "30k")]
SETTINGS = TestSettings(resamples=200, correction="none", seed=4)

Ranks = Callable[..., TaskRanking]


@pytest.fixture
def ranked(tmp_path: Path) -> Ranks:
    def run(
        *tasks: str,
        metrics: tuple[str, ...] = ("bleu-4", "rouge-l"),
        scores: tuple[ScoresEntry, ...] = (),
        settings: TestSettings = SETTINGS,
        sentinels: bool = False,
    ) -> TaskRanking:
        named = resolved(tmp_path / "tasks.yaml", *tasks)
        ids = tuple({str(task.protocol): task.spelled for task in named}.values())
        plan = plan_study(Study("s", "S", ids, metrics, scores=scores), find_root("sample"))
        return run_ranking(plan, named, settings, no_progress, name="mine", sentinels=sentinels)

    return run


def test_values_are_those_of_the_protocols_and_the_overall_value_their_mean_from_0_to_1(ranked: Ranks) -> None:
    result = ranked(EXPERT, PASCAL)
    study = Study("s", "S", tuple(task.protocol for task in result.tasks), ("bleu-4", "rouge-l"))
    plain = run_plan(plan_study(study, find_root("sample")), no_progress)
    order = []
    for metric in result.ranking.metrics:
        cells = [plain.cell(task.protocol, metric.column, task.group) for task in result.tasks]
        values = [cell.number for cell in cells if cell is not None]
        assert list(metric.values.values()) == values
        assert metric.overall == pytest.approx((3 * (1 + values[0]) / 2 + values[1]) / 4, abs=1e-12)
        assert metric.missing == {}
        order.append(metric.overall)
    assert order == sorted(order, reverse=True)
    ceilings = [plain.ceiling(task.protocol, task.group) for task in result.tasks]
    assert [task.ceiling for task in result.tasks] == [None if c is None else c.value for c in ceilings]
    assert sum(task.weight * task.effect for task in result.tasks) == pytest.approx(0, abs=1e-12)


def test_tests_on_one_task_are_those_of_compare_with_sampled_references(ranked: Ranks) -> None:
    metrics = ("bleu-1", "bleu-4", "rouge-l")
    result = ranked(PASCAL, metrics=metrics)
    root = find_root("sample")
    dataset = open_dataset("pascal-50s", root)
    protocol = dataset.protocol("random-5-refs/direct-strict")
    plan = plan_study(Study("s", "S", (str(protocol),), metrics), root)
    scored = load_scorable(dataset, protocol.items, plan.requests).score()
    assert len(scored.tables) == 5
    scores = {row.name: np.stack([table.values[row.key] for table in scored.tables]) for row in plan.rows}
    data = agreement(protocol, scored.draws[0], scores, "image", "MM")
    table = compare(data, permutations=200, correction="none", seed=4)
    assert {m.column: m.rank for m in result.ranking.metrics} == table.ranks
    assert {frozenset((p.better, p.worse)): p.p_value for p in result.ranking.pairs} == {
        frozenset((p.better, p.worse)): p.p_value for p in table.pairs
    }


def test_photographs_of_two_data_sets_are_one_unit(ranked: Ranks) -> None:
    both, one, other = ranked(EXPERT, CROWD), ranked(EXPERT), ranked(CROWD)
    images = [{item.image for item in items_of(name)} for name in ("flickr8k-expert", "flickr8k-crowdflower")]
    assert images[0] & images[1]
    assert both.photographs == len(images[0] | images[1]) < one.photographs + other.photographs


def test_a_metric_without_some_tasks_is_compared_on_those_that_it_has(ranked: Ranks, tmp_path: Path) -> None:
    entry = ScoresEntry(str(write_lengths(tmp_path / "words.csv", items_of("flickr8k-expert"))))
    result = ranked(EXPERT, PASCAL, scores=(entry,))
    whole = ranked(EXPERT, PASCAL)
    by_column = {metric.column: metric for metric in result.ranking.metrics}
    lacking = by_column["words"]
    assert (set(lacking.values), set(lacking.missing)) == ({"expert"}, {"mm"})
    assert lacking.missing["mm"]
    tasks = {frozenset((pair.better, pair.worse)): pair.tasks for pair in result.ranking.pairs}
    assert tasks == {frozenset(pair): 2 - ("words" in pair) for pair in combinations(by_column, 2)}
    # Its overall value is its mean, minus the effect of its only task.
    effect = next(task.effect for task in result.tasks if task.name == "expert")
    assert lacking.overall == pytest.approx((1 + lacking.values["expert"]) / 2 - effect, abs=1e-12)
    # The other metrics keep their values and the test between them.
    for metric in whole.ranking.metrics:
        assert by_column[metric.column].overall == pytest.approx(metric.overall, abs=1e-12)
    (pair,) = whole.ranking.pairs
    assert pair in result.ranking.pairs
    assert result.is_incomplete
    assert not whole.is_incomplete


def test_scores_of_one_group_give_the_task_of_that_group(ranked: Ranks, tmp_path: Path) -> None:
    of_group = items_of("composite@8k")
    result = ranked(*COMPOSITE, scores=(ScoresEntry(str(write_lengths(tmp_path / "words.csv", of_group))),))
    lacking = next(metric for metric in result.ranking.metrics if metric.column == "words")
    assert (set(lacking.values), set(lacking.missing)) == ({"8k"}, {"30k"})
    dataset = open_dataset("composite@8k", find_root("sample"))
    ratings = dataset.load(dataset.protocol().items)[0].ratings["correctness"]
    words = [len(of_group[item].candidate.split()) for item in ratings.item]
    want = scipy.stats.kendalltau(words, ratings.value, variant="c").statistic
    assert lacking.values["8k"] == pytest.approx(want, abs=1e-12)


def test_a_task_without_data_is_left_out_with_the_reason(ranked: Ranks) -> None:
    toy, lengths = "tests.studies.toys:Toy", ("tests.studies.toys:Length", "tests.studies.toys:Constant")
    gone = f"{{name: gone, protocol: {toy}/gone/mean-tau-b}}"
    group = f"{{name: none, protocol: {toy}/all/mean-tau-b, group: nobody}}"
    there = f"{{name: all, protocol: {toy}/all/mean-tau-b}}"
    result = ranked(gone, group, there, metrics=lengths)
    assert set(result.missing_tasks) == {"gone", "none"}
    assert all(result.missing_tasks.values())
    assert [task.name for task in result.tasks] == ["all"]
    with raises(StatisticError, "undefined"):
        ranked(there, metrics=lengths[1:])


@pytest.mark.parametrize(
    "statistic",
    ["unaggregated-tau-c", "mean-tau-b", "mean-spearman", "mean-pearson", "within-image-tau-b", "within-image-acc-eq"],
)
def test_a_constant_metric_has_the_value_of_no_agreement_with_a_mark(ranked: Ranks, statistic: str) -> None:
    task = f"{{name: expert, protocol: flickr8k-expert/no-own-captions/{statistic}}}"
    result = ranked(task, PASCAL, metrics=("cider", "tests.studies.toys:Constant"))
    metric, constant = result.ranking.metrics
    assert (metric.column, constant.column) == ("cider", "constant")
    assert (metric.rank, constant.rank) == (1, 2)
    assert constant.constant.keys() == {"expert"}  # strict accuracies count ties as errors
    assert not result.is_incomplete
    if statistic != "within-image-acc-eq":
        assert constant.values == {"expert": 0.0, "mm": 0.0}
        assert constant.overall == pytest.approx(0.25)
    else:
        assert 0.3 < constant.values["expert"] < metric.values["expert"]  # the chance level
    (pair,) = result.ranking.pairs
    assert pair.tasks == 2
    assert pair.difference == pytest.approx(metric.overall - constant.overall, abs=1e-12)
    assert pair.significant
    (alone,) = ranked(task, metrics=("cider", "tests.studies.toys:Constant")).ranking.pairs
    assert (alone.better, alone.tasks, alone.significant) == ("cider", 1, True)
    shown = ranking_table(result)
    (cell,) = (row.cells[3] for row in shown.rows if row.title == "Constant")
    assert (cell.marks, cell.below) == ("°", "2")
    assert any(line.startswith("° ") and "Constant on expert" in line for line in shown.notes)


def test_the_reason_of_a_missing_number_is_of_its_protocol() -> None:
    undefined = Cell(protocol="a/b/d", metric="m", column="m", title="M", undefined="constant", n=0)
    whole = Missing(protocol="a/b/c", reason="there is no such file")
    made = result((), [undefined], {"m": "M"}, missing=(whole, Missing(protocol="x/y", column="m", reason="no images")))
    reasons = {place: missing_reason(made, "m", place) for place in ("a/b/c", "a/b/d", "x/y/z", "q/r/s", "")}
    assert reasons == {
        "a/b/c": "there is no such file",
        "a/b/d": "constant",
        "x/y/z": "no images",
        "q/r/s": "it has no scores",
        "": "no images",
    }


def test_sentinels_have_values_and_change_nothing_else(ranked: Ranks) -> None:
    with_them = ranked(EXPERT, PASCAL, sentinels=True)
    without = ranked(EXPERT, PASCAL)
    assert with_them.ranking == without.ranking
    assert without.sentinels == ()
    by_name = {sentinel.name: sentinel for sentinel in with_them.sentinels}
    length = by_name["length"]
    ratings = open_dataset("flickr8k-expert", find_root("sample"))
    judgements = ratings.load(ratings.protocol().items)[0]
    words = [len(judgements.items[item].candidate.split()) for item in judgements.ratings["expert"].item]
    want = scipy.stats.kendalltau(words, judgements.ratings["expert"].value, variant="c").statistic
    # The sentinel's tau-c uses the number of distinct ratings, scipy the smaller number of levels.
    assert np.sign(length.values["expert"]) == np.sign(want)
    assert length.overall == pytest.approx((3 * (1 + length.values["expert"]) / 2 + length.values["mm"]) / 4, abs=1e-12)
    assert set(by_name["image-mean"].missing) == {"mm"}  # pairs have no ratings


def test_more_permutations_are_drawn_if_the_correction_requires_them(ranked: Ranks) -> None:
    metrics = ("bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l")
    few = TestSettings(resamples=150, correction="holm")
    result = ranked(EXPERT, metrics=metrics, settings=few)
    assert (result.requested, result.permutations) == (150, 2 * 199)
    assert min(pair.p_adjusted for pair in result.ranking.pairs) >= 10 / 399 - 1e-12


def resolved(path: Path, *tasks: str) -> tuple[RankedTask, ...]:
    path.write_text("schema: 1\nname: mine\ntasks:\n" + "".join(f"  - {task}\n" for task in tasks), encoding="utf-8")
    return resolve_tasks(load_tasks(path), path, find_root("sample"))


def test_the_shipped_tasks_cover_all_published_judgements_with_equal_weights() -> None:
    tasks = resolve_tasks(load_tasks(DEFAULT_TASKS), DEFAULT_TASKS, find_root("sample"))
    weights: Counter[str] = Counter()
    for task in tasks:
        weights[task.protocol.dataset] += int(task.weight)
    assert len(tasks) >= 12
    names = "flickr8k-expert flickr8k-crowdflower composite pascal-50s thumb nebula polaris foil"
    assert weights == dict.fromkeys(names.split(), 12)
    assert load_tasks("configs/tasks/default.yaml") == load_tasks(DEFAULT_TASKS)


@pytest.mark.parametrize(
    ("task", "code", "value"),
    [
        ("{protocol: flickr8k-expert, weight: 0}", "invalid", "tasks.0.weight"),
        ("{protocol: flickr8k-expert, weight: .nan}", "invalid", "tasks.0.weight"),
        ("{protocol: flickr8k-expert, wieght: 1}", "invalid", "tasks.0.wieght"),
        ("{name: x}", "invalid", "tasks.0.protocol"),
        ("{protocol: flickr9k}", "unknown-name", "flickr9k"),
        ("{protocol: pascal-50s, group: XX}", "unknown-name", "XX"),
        ("{protocol: nocaps}", "unsupported", "nocaps/first-vs-rest/mean"),
        (
            "{protocol: flickr8k-expert/mean-acc-eq}",
            "unsupported",
            "flickr8k-expert/no-own-captions/mean-acc-eq",
        ),
    ],
)
def test_an_invalid_task_is_rejected(tmp_path: Path, task: str, code: str, value: str) -> None:
    with raises(StudyError, code, path=tmp_path / "t.yaml", value=value):
        resolved(tmp_path / "t.yaml", task)


def test_tasks_that_are_repeated_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    with raises(StudyError, "duplicate", path=path, value="b"):
        resolved(
            path, "{name: a, protocol: flickr8k-expert}", "{name: b, protocol: flickr8k-expert/unaggregated-tau-c}"
        )
    with raises(StudyError, "duplicate", path=path, value="a"):
        resolved(path, "{name: a, protocol: flickr8k-expert}", "{name: a, protocol: nebula}")
    with raises(StudyError, "missing-file", value=None):
        load_tasks("defalt")


def test_the_better_of_two_metrics_is_that_on_their_common_tasks(
    ranked: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reversed_tests(tasks: object, pairs: Sequence[tuple[str, str]], **_: object) -> list[JointTest]:
        return [JointTest(-0.1, 0.01, 1) for _ in pairs]

    monkeypatch.setattr(ranking, "joint_tests", reversed_tests)
    found = ranked(EXPERT).ranking
    (pair,) = found.pairs
    assert (pair.worse, pair.better) == tuple(metric.column for metric in found.metrics)
    assert (pair.difference, pair.tasks) == (0.1, 1)
