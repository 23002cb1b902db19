"""The numbers of one protocol: values, intervals, tests, the human ceiling, sentinels, the best metric, and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from capbench import __version__
from capbench.datasets.protocol import Protocol
from capbench.metrics.metric_request import Row
from capbench.studies.answer import answer
from capbench.studies.evaluate import evaluate, unscored_cells
from capbench.studies.protocol_notes import photograph_note, protocol_notes, tie_cautions
from capbench.studies.results import ProtocolInfo, StudyResult
from capbench.studies.scoring import ProgressFactory, Scored
from capbench.studies.study import Study, TestSettings
from capbench.studies.uncertainty import Numbers, add_ceiling, assess_group, common_scores, group_scores


def protocol_numbers(
    study: Study,
    protocol: Protocol,
    scored: Scored,
    rows: Sequence[Row],
    progress: ProgressFactory,
    *,
    # True for the names of two rows of one metric, and if one is computed from the other
    related: Callable[[str, str], bool] = lambda first, second: False,
    notes: Sequence[str] = (),
    test_groups: bool = True,  # False for intervals, tests and ceilings of the overall numbers only, not of groups
) -> Numbers:
    """Every number of one protocol, from its scores. Raises MissingFileError without the file of human judgements."""
    dataset, draws, tables, statistic = scored.dataset, scored.draws, scored.tables, protocol.statistic
    cells, groups = evaluate(protocol, draws, tables, rows)
    for group, alone in scored.groups.items():
        of_group, _ = evaluate(protocol, alone.draws, alone.tables, rows)
        cells += [cell.model_copy(update={"group": group}) for cell in of_group if not cell.group]
        groups = tuple(name for name in dict.fromkeys((*draws[0].groups, *groups)) if name in {*groups, group})
    overall = {cell.column for cell in cells if not cell.group and cell.value is not None}
    defined = [row for row in rows if row.name in overall]
    answered = study.answers and not dataset.under_root
    bootstrap, tests = study.statistics_of(answered=answered)
    common = common_scores(tables, rows)
    scores = {group: {**common, **group_scores(scored, group, rows)} for group in ("", *groups)}
    assessed, ceiling = Numbers(cells=list(cells)), study.human_ceiling and statistic.kind != "mean"
    if statistic.kind == "mean":
        bootstrap = tests = None
    by_image = any(settings is not None and settings.unit == "image" for settings in (bootstrap, tests))
    if common and by_image and (note := photograph_note(draws[0])):
        assessed.notes.append(f"{protocol}: {note}")
    places = list(dict.fromkeys(cell.group for cell in cells if test_groups or not cell.group))
    with progress(f"statistics of {protocol}", len(places)) as step:
        for group in places:
            assess_group(assessed, protocol, draws[0], scores[group], group, bootstrap, tests)
            if ceiling:  # if all judgements are too few, so are those of every group
                ceiling = add_ceiling(assessed, protocol, draws[0], group, bootstrap) or bool(group)
            step(1)
    if answered and tests is not None and (found := answer(protocol, draws[0], scores[""], assessed, tests, related)):
        assessed.answers.append(found)
    if study.sentinels and statistic.kind != "mean":
        from capbench.studies.sentinel_agreement import assess_sentinels

        known = tests or TestSettings()
        made = assess_sentinels(protocol, draws, scores, cells, bootstrap=bootstrap, tests=known, groups=test_groups)
        assessed.sentinels.append(made)
    unscored = unscored_cells(protocol, scored, rows, groups)
    with_cells = {*groups, *(cell.group for cell in unscored)}
    assessed.info = ProtocolInfo(
        id=str(protocol),
        dataset=dataset.name,
        dataset_title=dataset.title,
        statistic=statistic.label,
        kind=statistic.kind,
        description=f"{protocol.items.description}; {statistic.description}",
        groups=(*groups, *(name for name in draws[0].groups if name in with_cells and name not in groups)),
        notes=(
            *dict.fromkeys(note for judgements in draws for note in judgements.notes),
            *notes,
            *protocol_notes(protocol, draws, tables, defined),
            *assessed.notes,
            *scored.cautions,
            *tie_cautions(protocol, tables, rows, cells),
        ),
        n_items=min(len(judgements.items) for judgements in draws),
        n_items_whole=scored.items_before,
        draws=len(draws),
        bootstrap=assessed.bootstrap,
        version=dataset.version,
        level=statistic.level,
        file_columns=dict(dataset.file_columns),
    )
    assessed.cells += unscored
    return assessed


def study_result(
    study: Study, numbers: Sequence[Numbers], columns: dict[str, str], *, sample: bool, **more: Any
) -> StudyResult:
    """The result of a study: the numbers of its protocols, the titles of its rows, and ``more`` fields."""
    lists = ("cells", "ceilings", "comparisons", "answers", "sentinels")
    joined: dict[str, Any] = {name: tuple(entry for part in numbers for entry in getattr(part, name)) for name in lists}
    return StudyResult(
        capbench=__version__,
        name=study.name,
        title=study.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sample=sample,
        protocols=tuple(part.info for part in numbers),
        columns=columns,
        **joined,
        **more,
    )
