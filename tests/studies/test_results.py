"""Result files are read, others are refused in one line; results of every metric under every protocol."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import DataError, ProtocolError, StatisticError, StudyError
from capbench.datasets.root import DataRoot, find_root
from capbench.studies.all_protocols import agreement_of_rankings, ranks
from capbench.studies.item_scores import Collector, ItemScores, load_items, write_items
from capbench.studies.plan import plan_study
from capbench.studies.results import RESULT_SCHEMA_VERSION, Ranked, StudyResult, load_result
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import Study, TestSettings
from tests.errors import raises
from tests.studies.toys import HUMAN, LENGTHS, TOY, known

RESULT = {
    "schema_version": RESULT_SCHEMA_VERSION,
    "capbench": "0.1.0",
    "name": "old",
    "title": "Old study",
    "created": "2026-01-01T00:00:00+00:00",
    "sample": True,
    "protocols": [
        {
            "id": "flickr8k-expert/no-own-captions/unaggregated-tau-c",
            "dataset": "flickr8k-expert",
            "dataset_title": "Flickr8k Expert",
            "statistic": "τ-c",
            "kind": "correlation",
            "description": "rules",
            "n_items": 3,
        }
    ],
    "columns": {"cider": "CIDEr"},
    "signatures": {"flickr8k-expert/no-own-captions": {"cider": "cider|capbench:0.1.0"}},
    "cells": [
        {
            "protocol": "flickr8k-expert/no-own-captions/unaggregated-tau-c",
            "metric": "cider",
            "column": "cider",
            "title": "CIDEr",
            "value": 0.5,
            "n": 9,
        }
    ],
    "seconds": {"total": 0.1},
}


def _write(folder: Path, value: object) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_cell_without_a_value_is_read_with_its_reason_and_its_text(tmp_path: Path) -> None:
    cell: dict[str, object] = RESULT["cells"][0]  # type: ignore[index]
    without = {"value": None, "undefined": "too few scores", "placeholder": "scores for 4 of 9"}
    result = load_result(_write(tmp_path, RESULT | {"cells": [cell | without]}))
    (found,) = result.undefined
    assert (found.value, found.undefined, found.shown_instead) == (None, "too few scores", "scores for 4 of 9")
    with raises(StatisticError, "undefined", value="cider"):
        _ = found.number
    assert "| CIDEr | scores for 4 of 9 |" in result.to_markdown()
    assert "scores for 4 of 9" in result.to_latex()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema_version": RESULT_SCHEMA_VERSION + 1}, "wrong-version"),
        ({"schema_version": RESULT_SCHEMA_VERSION - 1}, "wrong-version"),
        ({"schema_version": "1"}, "wrong-format"),
        ({"surprise": 1}, "wrong-format"),
        ({"seconds": {"total": float("nan")}}, "not-a-number"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], code: str) -> None:
    path = _write(tmp_path, RESULT | change)
    with raises(DataError, code, path=path):
        load_result(path)


def gathered(*protocols: str) -> tuple[StudyResult, tuple[ItemScores, ...]]:
    study = Study("toys", "Toys", protocols, ("tests.studies.toys:Length",))
    collector = Collector()
    result = run_plan(plan_study(study, find_root(None)), no_progress, cache=False, keep=collector)
    return result, collector.tables


def test_ratings_are_kept_one_point_a_caption_and_once_for_all_statistics() -> None:
    result, (table,) = gathered(f"{TOY}/all/unaggregated-tau-c", f"{TOY}/all/mean-tau-b")
    assert table.kind == "ratings"
    assert table.protocols == tuple(info.id for info in result.protocols)
    assert table.ratings == [list(pair) for pair in HUMAN]
    assert table.human == [float(np.mean(pair)) for pair in HUMAN]
    (scores,) = [values for column, values in table.scores.items() if column in result.columns][:1]
    assert scores == [float(length) for length in LENGTHS]
    assert [table.reference_lists[place] for place in table.references] == [["a word"]] * 6
    assert table.groups == ["odd" if n % 2 else "even" for n in LENGTHS]


def test_pairs_are_kept_with_the_preferred_caption_first() -> None:
    _, (table,) = gathered(f"{TOY}/all/votes-strict")
    assert table.kind == "preferences"
    assert [len(text.split()) for text in table.captions] == [2, 3, 6]  # preferred: second, first, second
    assert [len(text.split()) for text in table.others] == [1, 4, 5]
    assert next(iter(table.scores.values())) == [1.0, -1.0, 1.0]
    assert table.groups == ["A", "A", "B"]


def test_what_is_written_is_read_again_and_the_same_bytes_come_of_it(tmp_path: Path) -> None:
    _, tables = gathered(f"{TOY}/all/unaggregated-tau-c", f"{TOY}/all/votes-strict")
    write_items(tables, tmp_path / "a.gz")
    write_items(tables, tmp_path / "b.gz")
    assert load_items(tmp_path / "a.gz") == tables
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[1]", "wrong-format"),
        ('{"schema_version": 9, "tables": []}', "wrong-version"),
        ('{"schema_version": 1, "tables": [{"items": 3}]}', "wrong-format"),
        (None, "wrong-format"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, content: str | None, code: str) -> None:
    path = tmp_path / "items.json.gz"
    path.write_bytes(b"" if content is None else gzip.compress(content.encode()))
    with raises(DataError, code, path=path) as caught:
        load_items(path)
    assert "\n" not in str(caught.value)


METRICS = ("tests.studies.toys:Length", "tests.studies.toys:Zigzag")


ALL = Study("toy", "Toy", (TOY,), METRICS, all_protocols=True)
DEFAULT = "toy/all/unaggregated-tau-c"


@pytest.fixture
def found(tmp_path: Path) -> StudyResult:
    return run_plan(plan_study(ALL, DataRoot(tmp_path, False, "test")), no_progress)


def ranked(found: StudyResult) -> dict[str, dict[str, Ranked]]:
    rows: dict[str, dict[str, Ranked]] = {}
    for row in found.rankings:
        rows.setdefault(row.protocol, {})[row.column] = row
    return rows


def test_all_protocols_at_hand_are_there_and_the_others_are_named(found: StudyResult) -> None:
    assert {row.protocol for row in found.rankings if row.default} == {DEFAULT}
    # Two selections have files, with eight correlations, two tie-calibrated and three plain accuracies each; the votes
    # 'other' have none.
    assert len(ranked(found)) == 2 * (8 + 2 + 3)
    assert {id_.split("/")[1] for id_ in ranked(found)} == {"all", "drawn"}
    missing = {m.protocol for m in found.missing}
    assert "toy/gone/mean-tau-b" in missing
    assert "toy/all/other-strict" in missing
    assert len(missing) == 16 + 2 * 3


def test_ranks_and_moves_follow_from_the_values(found: StudyResult) -> None:
    base = ranked(found)[DEFAULT]
    assert {(row.move, row.tau) for row in base.values()} == {(0, 1.0)}
    for protocol, rows in ranked(found).items():
        order = sorted((row.value for row in rows.values()), reverse=True)
        for name, row in rows.items():
            assert known(found.cell(protocol, name)).value == row.value
            assert row.rank == order.index(row.value) + 1
            assert row.move == base[name].rank - row.rank
    assert any(row.move for row in found.rankings)


def test_rankings_are_compared_by_tau_b(found: StudyResult) -> None:
    columns = list(found.columns)
    for rows in ranked(found).values():
        x, y = ([float(f"{of[c].value:.12g}") for c in columns] for of in (ranked(found)[DEFAULT], rows))
        (tau,) = {row.tau for row in rows.values()}
        assert tau == pytest.approx(scipy.stats.kendalltau(x, y).statistic)


def test_a_test_that_does_not_fit_every_protocol_is_refused(tmp_path: Path) -> None:
    root = DataRoot(tmp_path, False, "test")
    study = Study("toy", "Toy", (f"{TOY}/all/mean-pearson",), METRICS, compare=TestSettings("williams"))
    assert plan_study(study, root)
    with pytest.raises(StudyError, match="williams"):
        plan_study(replace(study, protocols=(TOY,), all_protocols=True), root)


def test_equal_values_share_the_better_rank_and_one_metric_has_no_tau() -> None:
    assert ranks({"a": 0.1, "b": 0.3, "c": 0.3, "d": 0.0}) == {"a": 3, "b": 1, "c": 1, "d": 4}
    assert agreement_of_rankings({"a": 1.0}, {"a": 2.0}) is None
    assert agreement_of_rankings({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 3.0}) is None
    assert agreement_of_rankings({"a": 1.0, "b": 2.0, "z": 0}, {"a": 2.0, "b": 1.0}) == -1.0


def test_a_data_set_without_judgements_is_refused(tmp_path: Path) -> None:
    with raises(ProtocolError, "unsupported", value="nocaps"):
        plan_study(replace(ALL, protocols=("nocaps",)), DataRoot(tmp_path, False, "test"))
