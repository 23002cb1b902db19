"""Every metric under every protocol: the rankings, and how far they agree with the default's."""

from __future__ import annotations

from pathlib import Path

import pytest
import scipy.stats

from capbench.core.errors import ProtocolError, UsageError
from capbench.datasets.root import DataRoot
from capbench.studies.all_protocols import (
    SensitivityResult,
    agreement_of_rankings,
    plan_all_protocols,
    rank_protocols,
    ranks,
)
from capbench.studies.plan import plan_study
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import BootstrapSettings, Study, TestSettings
from tests.errors import raises
from tests.studies.toys import TOY, known

METRICS = ("tests.studies.toys:Length", "tests.studies.toys:Zigzag")


@pytest.fixture
def found(tmp_path: Path) -> SensitivityResult:
    root = DataRoot(tmp_path, False, "test")
    study = Study("toy", "Toy", (TOY,), METRICS, bootstrap=BootstrapSettings(100))
    plan = plan_all_protocols(study, root)
    return rank_protocols(plan, run_plan(plan, no_progress, test_groups=False))


def test_all_protocols_at_hand_are_there_and_the_others_are_named(found: SensitivityResult) -> None:
    (toy,) = found.datasets
    assert toy.default == "toy/all/unaggregated-tau-c"
    # Two selections have files, with eight correlations, two tie-calibrated and three plain accuracies each; the votes
    # 'other' have none.
    assert len(toy.protocols) == 2 * (8 + 2 + 3)
    assert {p.items for p in toy.protocols} == {"all", "drawn"}
    missing = {m.protocol for m in found.result.missing}
    assert "toy/gone/mean-tau-b" in missing
    assert "toy/all/other-strict" in missing
    assert len(missing) == 16 + 2 * 3


def test_ranks_and_moves_follow_from_the_values(found: SensitivityResult) -> None:
    (toy,) = found.datasets
    base = next(p for p in toy.protocols if p.id == toy.default)
    assert set(base.moves.values()) == {0}
    assert base.tau == 1.0
    for protocol in toy.protocols:
        order = sorted(protocol.values.values(), reverse=True)
        for name, value in protocol.values.items():
            cell = known(found.result.cell(protocol.id, name))
            assert cell.value == value
            assert protocol.ranks[name] == order.index(value) + 1
            assert protocol.moves[name] == base.ranks[name] - protocol.ranks[name]
    assert any(any(p.moves.values()) for p in toy.protocols)


def test_rankings_are_compared_by_tau_b(found: SensitivityResult) -> None:
    (toy,) = found.datasets
    columns = list(toy.protocols[0].values)
    (default,) = (p for p in toy.protocols if p.id == toy.default)
    for other in toy.protocols:
        x, y = ([float(f"{p.values[c]:.12g}") for c in columns] for p in (default, other))
        assert other.tau == pytest.approx(scipy.stats.kendalltau(x, y).statistic)


def test_a_test_that_does_not_fit_every_protocol_is_refused(tmp_path: Path) -> None:
    root = DataRoot(tmp_path, False, "test")
    protocol = f"{TOY}/all/mean-pearson"
    study = Study("toy", "Toy", (protocol,), METRICS, compare=TestSettings("williams"))
    assert plan_study(study, root)
    with raises(UsageError, "conflict", value="williams"):
        plan_all_protocols(study, root)


def test_equal_values_share_the_better_rank_and_one_metric_has_no_tau() -> None:
    assert ranks({"a": 0.1, "b": 0.3, "c": 0.3, "d": 0.0}) == {"a": 3, "b": 1, "c": 1, "d": 4}
    assert agreement_of_rankings({"a": 1.0}, {"a": 2.0}) is None
    assert agreement_of_rankings({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 3.0}) is None
    assert agreement_of_rankings({"a": 1.0, "b": 2.0, "z": 0}, {"a": 2.0, "b": 1.0}) == -1.0


def test_a_data_set_without_judgements_is_refused(tmp_path: Path) -> None:
    with raises(ProtocolError, "unsupported", value="nocaps"):
        plan_all_protocols(Study("n", "n", ("nocaps",), METRICS), DataRoot(tmp_path, False, "test"))
