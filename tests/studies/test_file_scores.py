"""Scores of files in studies: coverage, what is left out, groups, and numbers equal to a built-in metric's."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import CapbenchError, DataError
from capbench.core.records import Item, caption_key
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.from_file import ScoresEntry, request_of_file
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.score_joining import item_id
from capbench.metrics.scoring import score, write_scores
from capbench.stats.correlation import correlation
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.score_files import items_with_scores
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import BootstrapSettings, Study, TestSettings
from tests.errors import raises
from tests.studies.toys import items_of, known, write_lengths


@pytest.fixture
def root() -> DataRoot:
    return find_root("sample")


def run(root: DataRoot, *protocols: str, metrics: tuple[str, ...] = (), **more: object) -> StudyResult:
    study = Study("s", "S", protocols, metrics, **more)  # type: ignore[arg-type]
    return run_plan(plan_study(study, root), no_progress)


def test_a_built_in_metrics_own_scores_give_its_own_numbers(root: DataRoot, tmp_path: Path) -> None:
    for protocol in ("flickr8k-expert", "composite", "pascal-50s/json-5-refs/direct-strict", "foil"):
        name, rest = split_protocol(protocol)
        dataset = open_dataset(name, root)
        items = dataset.protocol(rest).items
        judged = load_scorable(dataset, items, resolve_metrics(["cider", "bleu-4"]))
        (table,) = judged.score().tables
        for ending in ("csv", "jsonl", "parquet"):
            path = tmp_path / f"{name}.{ending}"
            write_scores(table, path)
            result = run(root, protocol, metrics=("cider", "bleu-4"), scores=(ScoresEntry(str(path)),))
            cells = {(cell.column, cell.group): cell.value for cell in result.cells}
            of_file = {key: value for key, value in cells.items() if key[0].startswith(name)}
            assert of_file == {
                (f"{name}.{column}", group): cells[column, group]
                for _, group in of_file
                for column in ("cider", "bleu-4")
            }
            assert len(of_file) * 2 == len(cells)
            assert "|of:" in result.signatures[f"{name}/{items.name}"][name]


def test_items_without_scores_are_an_error_unless_they_may_be_left_out(root: DataRoot, tmp_path: Path) -> None:
    items = items_of("flickr8k-expert")
    first = items[0]
    path = write_lengths(tmp_path / "f.csv", items, lambda item: item.key != first.key)
    entry = ScoresEntry(str(path))
    with raises(DataError, "missing-scores", path=path, value=first.image) as caught:
        run(root, "flickr8k-expert", scores=(entry,))
    assert "1 of the 300 items" in caught.value.message
    result = run(root, "flickr8k-expert", metrics=("bleu-4", "cider"), scores=(entry,), allow_missing=True)
    assert {cell.column: cell.n for cell in result.cells} == {"bleu-4": 897, "cider": 897, "words": 897}
    assert [(info.n_items, info.n_items_whole) for info in result.protocols] == [(299, 300)]
    note = "299 of 300 items remain, for all metrics: 1 has no score in f.csv (--allow-missing)"
    assert any(line.startswith(note) for line in result.protocols[0].notes)
    # The built-in metrics' numbers are those of the same items among all items.
    dataset = open_dataset("flickr8k-expert", root)
    (whole,) = load_scorable(dataset, dataset.protocol().items, resolve_metrics(["bleu-4", "cider"])).score().tables
    ratings = dataset.load(dataset.protocol().items)[0].ratings["expert"]
    kept = ratings.item != 0
    for key, values in whole.values.items():
        expected = correlation("tau-c", values[ratings.item][kept], ratings.value[kept]).value
        assert next(cell.value for cell in result.cells if cell.column == key.column) == expected


def test_pairs_lose_both_items_where_one_has_no_score(root: DataRoot, tmp_path: Path) -> None:
    items = items_of("pascal-50s")
    keys = [(item.image, caption_key(item.candidate)) for item in items]
    gone = next(item for item, key in zip(items, keys, strict=True) if keys.count(key) == 1)
    path = write_lengths(tmp_path / "f.csv", items, lambda item: item.key != gone.key)
    whole = run(root, "pascal-50s", metrics=("bleu-1",))
    part = run(root, "pascal-50s", metrics=("bleu-1",), scores=(ScoresEntry(str(path)),), allow_missing=True)
    n = {cell.column: cell.n for cell in part.cells if not cell.group}
    assert n["bleu-1"] == n["words"] < next(cell.n for cell in whole.cells if not cell.group)


def test_a_file_of_one_group_fills_that_groups_cells(root: DataRoot, tmp_path: Path) -> None:
    items = items_of("composite")
    path = write_lengths(tmp_path / "f.csv", items, lambda item: item.group == "8k")
    result = run(root, "composite", metrics=("bleu-1",), scores=(ScoresEntry(str(path)),))
    cells = {cell.group: cell for cell in result.cells if cell.column == "words"}
    assert {group: cell.value is None for group, cell in cells.items()} == {
        "": True,
        "8k": False,
        "30k": True,
        "coco": True,
    }
    count = sum(item.group == "8k" for item in items)
    assert cells[""].placeholder == f"scores for {count} of {len(items)}"
    assert cells["coco"].placeholder == f"scores for 0 of {sum(item.group == 'coco' for item in items)}"
    alone = run(root, "composite@8k", scores=(ScoresEntry(str(path)),))
    assert cells["8k"].value == next(cell.value for cell in alone.cells if not cell.group)


def test_a_file_of_one_group_is_tested_there_as_in_a_study_of_the_group(root: DataRoot, tmp_path: Path) -> None:
    items = items_of("composite")
    of_group = write_lengths(tmp_path / "f.csv", items, lambda item: item.group == "8k")
    everything = tmp_path / "g.csv"
    everything.write_text(
        write_lengths(tmp_path / "h.csv", items).read_text("utf-8").replace("words", "number"), "utf-8"
    )
    settings: dict[str, Any] = {
        "metrics": ("bleu-1", "rouge-l"),
        "scores": (ScoresEntry(str(everything)), ScoresEntry(str(of_group))),
        "bootstrap": BootstrapSettings(resamples=200),
        "compare": TestSettings(resamples=500),
    }
    result = run(root, "composite", sentinels=True, **settings)
    alone = run(root, "composite@8k", **settings)
    (protocol,) = (info.id for info in result.protocols)
    (expected,) = alone.comparisons
    found = known(result.comparison(protocol, "8k"))
    assert set(found.ranks) == {"bleu-1", "rouge-l", "number", "words"}
    assert (found.pairs, found.ranks, found.top) == (expected.pairs, expected.ranks, expected.top)
    for name in found.ranks:
        cell, other = result.cell(protocol, name, "8k"), alone.cell(expected.protocol, name)
        assert cell is not None
        assert other is not None
        assert (cell.value, cell.low, cell.high, cell.n) == (other.value, other.low, other.high, other.n)
    for group in ("", "30k", "coco"):
        tests = known(result.comparison(protocol, group))
        assert set(tests.ranks) == {"bleu-1", "rouge-l", "number"}
    sentinels = known(result.sentinels_of(protocol))
    assert {pair.better for tests in sentinels.tests if tests.group == "8k" for pair in tests.pairs} == set(found.ranks)


@pytest.mark.parametrize(("scored", "count"), [(0, 0), (7, 7)])
def test_a_file_that_fits_one_of_two_data_sets_is_used_for_that_one_and_changes_no_other_number(
    root: DataRoot, tmp_path: Path, scored: int, count: int
) -> None:
    expert = items_of("flickr8k-expert")
    some = tuple({item.key: item for item in expert}.values())[:scored]
    path = write_lengths(tmp_path / "f.csv", items_of("foil") + some)
    entry = ScoresEntry(str(path))
    protocols = ("foil", "flickr8k-expert/no-own-captions/unaggregated-tau-c")
    whole = run(root, *protocols, metrics=("bleu-1", "rouge-l"))
    result = run(root, *protocols, metrics=("bleu-1", "rouge-l"), scores=(entry,))
    assert [cell for cell in result.cells if cell.column != "words"] == list(whole.cells)
    (unscored,) = result.undefined
    assert (unscored.protocol, unscored.column) == (protocols[1], "words")
    items = [item.key for item in expert]
    count = sum(key in {item.key for item in some} for key in items)
    assert unscored.placeholder == f"scores for {count} of {len(items)}"
    assert result.missing == ()
    assert [info.n_items_whole for info in result.protocols] == [None, None]
    with pytest.raises(DataError, match=r"f\.csv: "):
        run(root, protocols[1], scores=(entry,))


def test_several_draws_several_metrics_and_a_file_without_scores_of_one_draw(root: DataRoot, tmp_path: Path) -> None:
    protocol = "pascal-50s/random-5-refs/direct-strict"
    scores = (ScoresEntry(str(write_draws(tmp_path / "words.csv", root, 4))),)
    whole = run(root, protocol, metrics=("bleu-1", "rouge-l"))
    result = run(root, protocol, metrics=("bleu-1", "rouge-l"), scores=scores)
    assert [cell for cell in result.cells if cell.column != "words"] == list(whole.cells)
    unscored = {cell.group: cell for cell in result.undefined}
    assert unscored[""].placeholder == f"scores for 0 of {len(items_of('pascal-50s'))}"
    assert "(draw 5 of 5)" in unscored[""].undefined
    assert set(unscored) == {cell.group for cell in whole.cells}


def test_a_file_that_cannot_be_joined_to_one_of_two_data_sets_is_used_for_the_other(
    root: DataRoot, tmp_path: Path
) -> None:
    path = write_lengths(tmp_path / "f.csv", items_of("foil"))
    first = items_of("flickr8k-expert")[0]
    with path.open("a", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([(first.image, first.candidate, 3), (first.image, first.candidate, 4)])
    result = run(root, "foil", "flickr8k-expert", scores=(ScoresEntry(str(path)),))
    (unscored,) = result.undefined
    assert (unscored.protocol.split("/")[0], unscored.placeholder) == ("flickr8k-expert", "no scores")
    with pytest.raises(DataError, match="a second 'words'"):
        run(root, "flickr8k-expert", metrics=("bleu-1",), scores=(ScoresEntry(str(path)),))


def test_scores_made_with_other_references_are_refused(root: DataRoot, tmp_path: Path) -> None:
    dataset = open_dataset("composite", root)
    (table,) = load_scorable(dataset, dataset.selections["all-references"], resolve_metrics(["cider"])).score().tables
    path = tmp_path / "f.csv"
    write_scores(table, path)
    with pytest.raises(DataError, match=r"row \d+: \d+ scores were computed with other references than those of"):
        run(root, "composite", scores=(ScoresEntry(str(path)),))
    ignored = ScoresEntry(str(path), options={"references": "ignored"})
    assert len(run(root, "composite", scores=(ignored,)).cells) > 0


def test_own_captions_may_lack_scores_only_where_it_is_said(tmp_path: Path) -> None:
    items = (Item("a", "one", ("r",)), Item("b", "two", ("s",)))
    path = write_lengths(tmp_path / "f.csv", items[:1])
    requests = [request_of_file(ScoresEntry(str(path)))]
    with raises(CapbenchError, "missing-scores", path=path, value="b"):
        items_with_scores(items, requests, "mine")
    both = (*resolve_metrics(["bleu-1"]), *requests)
    all_items, complete, incomplete, _ = items_with_scores(items, both, "mine")
    assert (all_items, [request.label for request in complete]) == (items, ["bleu"])
    assert [(key.column, less.instead) for key, less in incomplete.items()] == [("words", "scores for 1 of 2")]
    kept, left, _, notes = items_with_scores(items, requests, "mine", allow_missing=True)
    assert list(left) == requests
    assert kept == items[:1]
    assert notes[-1] == "1 of 2 captions remain, for all metrics (--allow-missing)"
    assert score(kept, requests, Resources(), dataset="mine").items == kept


def write_draws(path: Path, root: DataRoot, draws: int) -> Path:
    """Numbers of words of PASCAL-50S under the ids of the first draws of references."""
    dataset = open_dataset("pascal-50s", root)
    judged = dataset.load(dataset.protocol("random-5-refs").items)
    lines = {item_id(item): len(item.candidate.split()) for one in judged[:draws] for item in one.items}
    path.write_text("id,words\n" + "".join(f"{name},{value}\n" for name, value in lines.items()), encoding="utf-8")
    return path


def test_items_without_a_score_in_one_draw_are_left_out_of_all(root: DataRoot, tmp_path: Path) -> None:
    path = write_draws(tmp_path / "words.csv", root, 5)
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[:1] + rows[4:]), encoding="utf-8")  # three captions of the first draw
    dataset = open_dataset("pascal-50s", root)
    items = dataset.protocol("random-5-refs").items
    judged = load_scorable(
        dataset, items, [request_of_file(ScoresEntry(str(path)))], Resources(allow_missing=True)
    ).require_all()
    captions = [[(item.image, item.candidate) for item in judgements.items] for judgements in judged.draws]
    assert all(of_draw == captions[0] for of_draw in captions)
    assert len(captions[0]) < len(dataset.load(items)[0].items)
