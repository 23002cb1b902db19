"""A study runs from names to numbers; what cannot be computed stays as an entry that says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import CapbenchError, MetricError, MissingFileError, StatisticError, StudyError
from capbench.datasets.root import DataRoot
from capbench.studies.plan import plan_study
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.scoring import no_progress
from tests.errors import raises
from tests.studies.toys import HUMAN, LENGTH, LENGTHS, STUDY, TOY, Slow, run


def test_correlations_equal_scipys(root: DataRoot) -> None:
    ids = tuple(f"{TOY}/all/{s}" for s in ("unaggregated-tau-c", "unaggregated-tau-b", "mean-spearman", "mean-pearson"))
    result = run(root, protocols=ids)
    x, y = np.repeat(LENGTHS, 2), np.array(HUMAN).ravel()
    means = np.array(HUMAN).mean(axis=1)
    expected = [
        scipy.stats.kendalltau(x, y, variant="c").statistic,
        scipy.stats.kendalltau(x, y, variant="b").statistic,
        scipy.stats.spearmanr(LENGTHS, means).statistic,
        scipy.stats.pearsonr(LENGTHS, means).statistic,
    ]
    overall = [cell for cell in result.cells if cell.column == "length" and cell.group == ""]
    assert [cell.value for cell in overall] == pytest.approx(expected, abs=1e-12)
    assert [cell.n for cell in overall] == [12, 12, 6, 6]
    assert [info.id for info in result.protocols] == [i.replace(TOY, "toy") for i in ids]


def test_a_metric_that_is_not_here_stays_with_its_reason(root: DataRoot) -> None:
    result = run(root, metrics=(LENGTH, "tiger"))
    waiting = {missing.column: missing for missing in result.missing}
    assert "tiger" in waiting
    assert waiting["tiger"].planned
    assert "region features (--features STORE" in waiting["tiger"].reason
    assert "a grounding model (--model tiger=FILE" in waiting["tiger"].reason
    assert result.cell("toy/all/unaggregated-tau-c", "length")


def test_missing_files_become_an_entry_beside_what_could_be_computed(root: DataRoot) -> None:
    result = run(root, protocols=(f"{TOY}/gone/mean-tau-b", f"{TOY}/all/mean-tau-b"))
    assert [(m.protocol, m.planned) for m in result.missing] == [("toy/gone/mean-tau-b", False)]
    assert "toy/gone.txt" in result.missing[0].reason
    assert result.cell("toy/all/mean-tau-b", "length")


@pytest.mark.parametrize(
    ("changes", "kind", "named"),
    [
        ({"protocols": (f"{TOY}/gone/mean-tau-b",)}, MissingFileError, "toy/gone.txt"),
        ({"metrics": ("tests.studies.toys:Constant",)}, StatisticError, "Constant"),
        ({"metrics": ("tests.studies.toys:NotANumber",)}, MetricError, "image2"),
    ],
)
def test_nothing_computable_is_an_error(
    root: DataRoot, changes: dict[str, Any], kind: type[CapbenchError], named: str
) -> None:
    with pytest.raises(kind) as caught:
        run(root, **changes)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"protocols": ("flikr8k-expert",)}, ["flikr8k-expert", "Did you mean 'flickr8k-expert'"]),
        ({"protocols": (f"{TOY}/most/mean-tau-b",)}, ["unknown items 'most'", "all, drawn, gone"]),
        ({"protocols": (f"{TOY}/all/mean-tau-d",)}, ["unknown statistic 'mean-tau-d'", "Did you mean"]),
        ({"protocols": (TOY, f"{TOY}/all/unaggregated-tau-c")}, ["is listed twice"]),
        ({"metrics": ("cidr", "blue")}, ["2 problems", "Did you mean 'cider'", "'blue'"]),
        ({"options": {LENGTH: {"size": 1}}}, ["has no option 'size'", "scale"]),
        ({"options": {"cider": {"df": "x"}}}, ["option for 'cider', which is not a requested metric"]),
        ({"features": "no/such.h5"}, ["features: there is no such file: no/such.h5"]),
        ({"published": "tiger-table9"}, ["tiger-table9", "tiger-table1"]),
    ],
)
def test_a_study_that_does_not_fit_says_so_before_anything_runs(
    root: DataRoot, changes: dict[str, object], parts: list[str]
) -> None:
    with pytest.raises(CapbenchError) as caught:
        plan_study(replace(STUDY, **changes), root)  # type: ignore[arg-type]
    for part in parts:
        assert part in str(caught.value)


SLOW = "tests.studies.toys:Slow"


@pytest.fixture
def unlearnt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    learnt: list[int] = []
    monkeypatch.setattr(Slow, "learnt", learnt)
    return learnt


def test_slow_work_is_announced_before_anything(root: DataRoot, unlearnt: list[int]) -> None:
    seen: list[str] = []

    def announce(slow: SlowPart) -> None:
        assert unlearnt == []
        (work,) = slow.works
        seen.append(f"{work.subject} {len(work.units)} {work.unit} in {work.seconds:.0f} s for {slow.labels}")

    study = replace(
        STUDY, metrics=(SLOW, LENGTH), protocols=(f"{TOY}/all/unaggregated-tau-c", f"{TOY}/drawn/mean-spearman")
    )
    result = run_plan(plan_study(study, root), no_progress, announce=announce)
    # The draws of the second one share lengths with the first: 7 is new.
    assert seen == ["Slow learns 7 lengths in 420 s for ('slow',)"]
    assert len(unlearnt) == 7
    assert list(result.columns) == ["slow", "length", "negative"]
    assert result.missing == ()


@pytest.mark.parametrize("name", ["slow", "Slow"])
def test_a_metric_that_is_left_out_is_a_row_that_says_so(root: DataRoot, unlearnt: list[int], name: str) -> None:
    result = run(root, metrics=(LENGTH, SLOW), without=(name,))
    assert unlearnt == []
    assert list(result.columns) == ["length", "negative", "slow"]
    assert {cell.column for cell in result.cells} == {"length", "negative"}
    (missing,) = result.missing
    assert (missing.column, missing.title, missing.left_out) == ("slow", "Slow", True)


def test_a_study_of_which_nothing_is_left_is_refused(root: DataRoot) -> None:
    with raises(StudyError, "too-few"):
        run(root, without=("length",))
    with raises(StudyError, "too-few"):
        run(root, metrics=("spider",), without=("spice",))


@pytest.mark.parametrize(
    ("metrics", "without", "left"),
    [
        (("spice", "spider", "nneval", "faier", "cider"), ("spice",), ["cider"]),
        (("a=spice", "spider", "cider"), ("a",), ["cider"]),
        (("a=spice", "b=spice", "spider"), ("a",), ["b", "spider"]),
        (("spice", "spider", "cider"), ("cider",), ["spice", "spider"]),
    ],
)
def test_with_spice_all_that_requires_its_parses_is_left_out(
    root: DataRoot, metrics: tuple[str, ...], without: tuple[str, ...], left: list[str]
) -> None:
    if "faier" in metrics:
        pytest.importorskip("torch")  # its weights are opened
    plan = plan_study(replace(STUDY, metrics=metrics, without=without), root)
    assert [request.label for request in plan.requests] == left
    assert plan.notes == ()
    kept = {row.key.label for row in plan.rows} - {row.key.label for row in plan.left_out}
    assert kept == set(left)
