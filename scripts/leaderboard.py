"""Write, check and extend results/leaderboard: every number that capbench can compute, as data.

python scripts/leaderboard.py                 # compute all numbers again and write them (make leaderboard)
python scripts/leaderboard.py --check         # exit code 1 if a committed number differs from the computed one
python scripts/leaderboard.py --costs         # measure processor time and memory of the committed metrics
python scripts/leaderboard.py --add CARD.yaml SCORES.csv...    # store the scores of a metric, then run without options

``leaderboard.json`` is the output of ``capbench leaderboard``, rounded to six digits; ``columns.json`` has the numbers
of all columns of the score files, with seeds and substitute images, without tests; ``costs.json`` has processor time
and peak memory by metric. ``scores/`` has score files with their cards (:mod:`capbench.studies.submissions`), without
captions. Score files of others are read from ``../submissions/`` (``capbench submit check``) and from
``external_scores/`` of the data folder.

The data is read from ``CAPBENCH_DATA``. Without it, ``--check`` checks only schemas and checksums. Metrics whose
requirements are missing, such as SPICE's parses, are not checked, which is reported; they are never dropped from the
committed numbers.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import capbench  # noqa: E402
from capbench.api.agreement import plan_agreement, study_of  # noqa: E402
from capbench.api.arguments import Statistics  # noqa: E402
from capbench.api.caller import python_caller  # noqa: E402
from capbench.api.resolve import MetricInputs  # noqa: E402
from capbench.core.errors import CapbenchError, DataError, UsageError  # noqa: E402
from capbench.core.files import atomic_write, read_json, read_text, sha256_file, write_json, write_text  # noqa: E402
from capbench.core.progress import progress  # noqa: E402
from capbench.core.records import Item  # noqa: E402
from capbench.datasets.opening import open_dataset  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.from_file import ScoresEntry  # noqa: E402
from capbench.metrics.score_files import read_score_file  # noqa: E402
from capbench.metrics.score_joining import item_id, join  # noqa: E402
from capbench.studies.leaderboard import ImageDifference, Leaderboard, load_leaderboard  # noqa: E402
from capbench.studies.results import StudyResult, load_result  # noqa: E402
from capbench.studies.run import run_plan  # noqa: E402
from capbench.studies.submissions import Card, load_card, read_cards, score_entries  # noqa: E402
from capbench.studies.task_file import DEFAULT_TASKS, RankedTask, load_tasks, resolve_tasks  # noqa: E402
from scripts.bench.common import child, processor  # noqa: E402

FOLDER = ROOT / "results" / "leaderboard"
TASKS = "leaderboard"
EXTERNAL = {"fleur": ("FLEUR", "fleur_flickr8k_expert.csv")}
"""Score files of others by label: title, and name in ``external_scores/`` of the data folder."""
_DIGITS = 6
COMMAND = "python scripts/leaderboard.py"
COSTS_ON = "flickr8k-expert"
# Pairs of a column and its twin are few and are not tested: they have intervals only.
_PAIRED: Statistics = {"bootstrap": 1000, "compare": "bootstrap", "permutations": 1000, "correction": "none"}
Progress = Callable[..., Any]


def rounded(value: Any) -> Any:
    """JSON data with every number rounded to six digits after the decimal point."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def external(data: Path) -> list[ScoresEntry]:
    """The score files of others that are in a data folder."""
    given = {"references": "ignored"}
    paths = ((label, title, data / "external_scores" / name) for label, (title, name) in EXTERNAL.items())
    return [ScoresEntry(str(p), label, title, {"columns": label, **given}) for label, title, p in paths if p.exists()]


def compute(
    data: Path, folder: Path = FOLDER, bars: Progress | bool = progress
) -> tuple[Leaderboard, StudyResult | None]:
    """The leaderboard of all metrics and score files, and the numbers of all columns of the score files.

    The columns' bootstrap is paired: their own rows are in it for the differences from substitute images.
    """
    cards = read_cards((folder / "scores").glob("*.yaml"))
    caller = replace(python_caller(bars), note=partial(print, file=sys.stderr))
    submissions = read_cards((folder.parent / "submissions").glob("*/*.yaml"))
    scores = score_entries({**cards, **submissions})
    labels = {entry.label for entry in scores}
    scores = [*(entry for entry in external(data) if entry.label not in labels), *scores]
    inputs = MetricInputs(scores=scores, data=data)
    board = capbench.leaderboard(progress=caller, **inputs)
    if not cards:
        return board, None
    protocols = list(dict.fromkeys(task.spelled for task in _tasks(data, TASKS)))
    inputs = MetricInputs(scores=score_entries(cards, twins=True), data=data)
    plan = plan_agreement(study_of(None, (), protocols, inputs, caller), inputs, caller, _PAIRED)
    columns = run_plan(plan, caller.progress, announce=caller.announce)
    return with_images(board, cards.values(), columns), columns


def with_images(board: Leaderboard, cards: Iterable[Card], columns: StudyResult) -> Leaderboard:
    """The leaderboard with the differences of columns from their twins with substitute images, of a study with them."""
    twins = {name: column for card in cards for name, column in card.columns.items() if column.twin_of}
    places = {(column.protocol, column.group): column.name for column in board.columns}
    images: dict[str, dict[str, dict[str, ImageDifference]]] = {}
    for tests in columns.comparisons:
        place = places.get((tests.protocol, tests.group))
        for pair in tests.pairs:
            for own, twin, sign in ((pair.better, pair.worse, 1), (pair.worse, pair.better, -1)):
                if place is None or pair.low is None or pair.high is None:
                    continue
                if twin in twins and twins[twin].twin_of == own:
                    low, high = sorted((sign * pair.low, sign * pair.high))
                    made = ImageDifference(value=sign * pair.difference, low=low, high=high)
                    images.setdefault(own, {}).setdefault(place, {})[twins[twin].image] = made
    rows = tuple(row.model_copy(update={"image": images.get(row.name, {})}) for row in board.rows)
    return board.model_copy(update={"rows": rows})


def _tasks(data: Path, *files: str) -> list[RankedTask]:
    root = find_root(data)
    return [task for name in files for task in resolve_tasks(load_tasks(name), name, root)]


def _stored(board: Leaderboard) -> Any:
    """The leaderboard as stored: without p-values of pairs, which are many, and without reasons, which name files of
    this computer."""
    raw = board.model_copy(update={"command": COMMAND, "left_out": {}}).model_dump(mode="json")
    ranking = raw["ranking"]
    ranking["ranking"]["pairs"] = []
    ranking |= {"missing_tasks": dict.fromkeys(ranking["missing_tasks"], "not installed"), "missing_metrics": {}}
    for metric in ranking["ranking"]["metrics"]:
        metric["missing"] = dict.fromkeys(metric["missing"], "not computed")
    for row in raw["rows"]:
        row["missing"] = {}
    for column in raw["columns"]:
        column["reason"] = column["reason"] and "not installed"
    return rounded(raw)


def _stored_columns(columns: StudyResult) -> Any:
    """The numbers of all columns as stored; undefined ones are left out."""
    cells = tuple(cell for cell in columns.cells if cell.value is not None)
    kept = columns.model_copy(update={"cells": cells, "comparisons": (), "missing": (), "seconds": {}})
    return rounded(kept.model_dump(mode="json"))


def write(data: Path, folder: Path = FOLDER) -> None:
    """Compute and write all numbers; a committed one that could not be computed again is a DataError."""
    board, columns = compute(data, folder)
    path = folder / "leaderboard.json"
    if path.exists() and (missing := _not_computed(load_leaderboard(path), board)):
        message = f"cannot be written again, since numbers would be lost: {'; '.join(missing)}"
        raise DataError(message, code="missing-scores", path=path, hint="Install what these metrics require")
    write_json(path, _stored(board))
    if columns is not None:
        write_json(folder / "columns.json", _stored_columns(columns))
    print(f"wrote {path}: {len(board.rows)} rows, {len(board.columns)} columns")


def _not_computed(old: Leaderboard, new: Leaderboard) -> list[str]:
    """Committed numbers of ours without a computed one, by row."""
    known = {row.name: row.ours for row in new.rows}
    absent = {row.title: [name for name in row.ours if name not in known.get(row.name, {})] for row in old.rows}
    return [f"{title} on {', '.join(names)}" for title, names in absent.items() if names]


def differences(old: Leaderboard, new: Leaderboard) -> Iterator[str]:
    """Committed numbers that differ from computed ones, one line each.

    Ranks and marks depend on all metrics, and are compared only if all were computed; columns and rows that were not
    computed are not compared.
    """
    known, places = {row.name: row for row in new.rows}, {column.name: column for column in new.columns}
    together = not _not_computed(old, new) and {row.name for row in old.rows} == set(known)
    dependent = set() if together else {"rank", "top", "no_better"}
    compared = {
        "ours": {"__all__": {"value", "low", "high", "n", "rank", "top", "no_better"} - dependent},
        "printed": True,
    }
    compared |= dict.fromkeys(("overall", "rank", "tasks"), True) if together else {}
    compared |= {"others": True} if {column.name for column in old.columns} <= places.keys() else {}
    for row in old.rows:
        if (again := known.get(row.name)) is not None:
            wanted: Any = {**compared, **({"image": True} if again.image else {})}
            one, other = (each.model_dump(include=wanted) for each in (row, again))
            one["ours"] = {name: number for name, number in one["ours"].items() if name in other["ours"]}
            one["printed"] = {name: number for name, number in one["printed"].items() if name in places}
            other["ours"] = {name: number for name, number in other["ours"].items() if name in one["ours"]}
            yield from _compared(row.title, one, other)
    of_columns = {"protocol", "version", "group", "ceiling", "sentinels"}
    for column in old.columns:
        if column.name in places:
            dumped = (each.model_dump(include=of_columns) for each in (column, places[column.name]))
            yield from _compared(f"column {column.name}", *dumped)


def _compared(place: str, old: Any, new: Any) -> Iterator[str]:
    """Lines on values that differ, after rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _compared(f"{place}, {key}", old.get(key), new.get(key))
    elif isinstance(old, float) and isinstance(new, float):
        if abs(old - new) > 0.6 * 10**-_DIGITS:
            yield f"{place}: committed {old:.{_DIGITS}f}, computed {new:.{_DIGITS}f}"
    elif old != new:
        yield f"{place}: committed {old!r}, computed {new!r}"


def stored_problems(folder: Path = FOLDER) -> list[str]:
    """Problems of the committed files that are found without data: schemas, checksums, missing columns."""
    problems = []
    try:
        cards = read_cards((folder / "scores").glob("*.yaml"))
        rows = {row.name for row in load_leaderboard(folder / "leaderboard.json").rows}
        known = load_result(folder / "columns.json").columns if cards else {}
        for path, card in cards.items():
            shown = {name for name, about in card.columns.items() if not about.twin_of}
            problems += [f"{card.name}: the column '{c}' is not in leaderboard.json" for c in sorted(shown - rows)]
            problems += [f"the column '{c}' is not in columns.json" for c in card.columns.keys() - known]
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                columns = next(csv.reader(stream))[1:]
            if set(columns) != card.columns.keys():
                problems.append(f"{path.name} has the columns {', '.join(columns)}, its card {', '.join(card.columns)}")
    except CapbenchError as error:
        problems.append(str(error))
    return problems


def check(data: Path | None, folder: Path = FOLDER) -> list[str]:
    """Problems of the committed numbers; notes on what was not checked are printed."""
    if problems := stored_problems(folder):
        return problems
    if data is None:
        print("CAPBENCH_DATA is not set: only schemas and checksums were checked")
        return []
    old = load_leaderboard(folder / "leaderboard.json")
    board, columns = compute(data, folder)
    for line in _not_computed(old, board):
        print(f"not checked: {line}")
    problems += differences(old, Leaderboard.model_validate(_stored(board)))
    if columns is not None:
        both = (read_json(folder / "columns.json"), _stored_columns(columns))
        cells = [{(c["protocol"], c["group"], c["column"]): c for c in raw["cells"]} for raw in both]
        for place in cells[0].keys() & cells[1].keys():
            problems += _compared(" ".join(place), cells[0][place], cells[1][place])
    return problems


# Score files.


def add(card_path: Path, files: Sequence[Path], data: Path, folder: Path = FOLDER) -> Path:
    """Store the scores of a metric as ids and scores with six significant digits, with its card.

    ``files`` may have any form that ``--scores`` reads; together they have all columns of the card. Raises DataError if
    the card is not valid, a column is missing or has the name of another one, no row matches an item, or two files
    contradict each other.
    """
    card = load_card(card_path)
    scores: dict[str, dict[str, str]] = {}
    tasks_items = list(_all_items(data))
    for path in files:
        file = read_score_file(path)
        columns = [name for name in card.columns if name in file.columns]
        joined = 0
        for items in tasks_items:
            made = join(file, items, columns, check_references=card.reads_references)
            for place, item in enumerate(items):
                for name in columns:
                    value = float(made.values[name][place])
                    if np.isnan(value):
                        continue
                    joined += 1
                    text = f"{value:.6g}"
                    if scores.setdefault(item_id(item), {}).setdefault(name, text) != text:
                        message = f"has another score of {item_id(item)} in '{name}' than the files before"
                        raise DataError(message, code="mismatch", path=path, hint="Pass each score once")
        if not joined:
            wanted = ", ".join(card.columns)
            message = f"none of its rows and columns is used: the card has the columns {wanted}"
            raise DataError(message, code="unknown-item", path=path, hint="Check names of columns and ids")
    absent = [name for name in card.columns if not any(name in of_item for of_item in scores.values())]
    if absent:
        message = f"no file has scores of {', '.join(absent)}"
        raise DataError(message, code="missing-column", path=card_path, hint="Pass all score files")
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["id", *card.columns])
    for name in sorted(scores):
        writer.writerow([name, *(scores[name].get(column, "") for column in card.columns)])
    target = folder / "scores" / f"{card.name}.csv.gz"
    with atomic_write(target, "wb") as stream:
        stream.write(gzip.compress(table.getvalue().encode(), compresslevel=9, mtime=0))
    text = re.sub(r"(?m)^files:.*\n", "", read_text(card_path))
    checked = f"files: {{{target.name}: {sha256_file(target)}}}\n"
    write_text(folder / "scores" / f"{card.name}.yaml", text + checked)
    print(f"wrote {target}: {len(scores):,} items, {len(card.columns)} columns")
    return target


def _all_items(data: Path) -> Iterator[Sequence[Item]]:
    """The items of all tasks and default protocols whose files are installed, draw by draw."""
    root = find_root(data)
    protocols = {task.spelled.rpartition("/")[0]: task.protocol for task in _tasks(data, TASKS, DEFAULT_TASKS)}
    for name in dict.fromkeys(items.partition("/")[0] for items in [*protocols]):
        protocol = open_dataset(name, root).protocol()
        protocols.setdefault(f"{name}/{protocol.items.name}", protocol)
    # Combinations learned on PASCAL-50S read scores with these references, too.
    protocols["pascal-50s/json-5-refs"] = open_dataset("pascal-50s", root).protocol("json-5-refs")
    for name, protocol in protocols.items():
        dataset = open_dataset(name.partition("/")[0], root)
        try:
            draws = dataset.load(protocol.items)
        except CapbenchError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            continue
        yield from (judgements.items for judgements in draws)


# Costs.


def costs(board: Leaderboard, data: Path, folder: Path = FOLDER) -> None:
    """Measure the computed metrics of a leaderboard and write costs.json; score files have the costs of their cards."""
    captions = len(capbench.load(COSTS_ON, data=data).items)
    measured = {}
    for row in board.rows:
        if row.origin == "computed" and row.ours:
            measured[row.name] = cost([row.name], data)
            print(f"{row.name}: {measured[row.name]}", file=sys.stderr)
    for card in read_cards((folder / "scores").glob("*.yaml")).values():
        if card.cost is not None:
            measured[card.name] = card.cost.model_dump()
    about = {"captions": captions, "data_set": COSTS_ON, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    write_json(folder / "costs.json", {**about, "machine": processor(), "costs": measured})


def cost(metrics: Sequence[str], data: Path, **given: Any) -> dict[str, Any]:
    """Processor time for a caption and peak memory of some metrics, with arguments of ``capbench.score``.

    They score the captions of one data set in a new process, without the score cache. Peak memory is that of the
    process with the captions.
    """
    spent = child(_scoring, list(metrics), str(data), given)
    return {"seconds_per_caption": float(f"{spent.seconds / spent.result:.3g}"), "peak_mb": round(spent.megabytes)}


def _scoring(metrics: list[str], data: str, given: Mapping[str, Any]) -> Callable[[], int]:
    judgements = capbench.load(COSTS_ON, data=data)
    return lambda: len(capbench.score(judgements, metrics=metrics, data=data, cache=False, **given).items)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed numbers, write nothing")
    parser.add_argument("--costs", action="store_true", help="measure the costs of capbench's metrics")
    parser.add_argument("--add", nargs="+", metavar="FILE", type=Path, help="a card, then score files to store")
    chosen = parser.parse_args(arguments)
    data = Path(os.environ["CAPBENCH_DATA"]) if os.environ.get("CAPBENCH_DATA") else None
    try:
        if chosen.check:
            problems = check(data)
            for line in problems:
                print(f"results/leaderboard: {line}", file=sys.stderr)
            raise SystemExit(1 if problems else 0)
        if data is None:
            message = "the numbers are computed from the published judgements, and CAPBENCH_DATA is not set"
            raise UsageError(message, code="missing-option", hint="See docs/data.md")
        if chosen.add:
            add(chosen.add[0], chosen.add[1:], data)
        elif chosen.costs:
            costs(load_leaderboard(FOLDER / "leaderboard.json"), data)
        else:
            write(data)
    except CapbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted: the same command continues with what is finished", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
