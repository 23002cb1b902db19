"""What tables say of the published table that stands beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from capbench.studies.published.printed import PrintedColumn, tells_no_reason
from capbench.studies.results import Cell, StudyResult

__all__ = [
    "NOT_EXPLAINED",
    "UNEXPLAINED",
    "basis",
    "by_own_model",
    "footnotes",
    "no_numbers",
    "own_models",
    "remarks",
    "unplaced",
]

#: Stands at a published number that differs from ours for no known reason.
UNEXPLAINED = "?"
#: What is said of such a number.
NOT_EXPLAINED = "not explained, ours differs by more than .01 (a point) and by more than draws of references do"

_BASES = {
    "stated": "stated (by the paper)",
    "reproduced": "reproduced (other numbers of the column come out under it)",
    "inferred": "inferred (it fits best)",
}


def basis(result: StudyResult, columns: Iterable[tuple[str, str, str]]) -> list[str]:
    """How the protocols of compared columns are known: one line, and one for each column that has a remark.

    Args:
        result: the result.
        columns: protocol, group and head of each compared column.
    """
    if result.published_table is None:
        return []
    heads: dict[str, list[str]] = {}
    remarks = []
    for protocol, group, head in columns:
        printed = result.published_table.column(protocol, group)
        if printed is not None and printed.basis is not None:
            heads.setdefault(_BASES[printed.basis], []).append(head)
        if printed is not None and printed.note:
            remarks.append(f"published {head}: {printed.note}")
    known = [how if len(heads) == 1 else f"{how} for {', '.join(of)}" for how, of in heads.items()]
    return [*([f"protocol of the published numbers: {'; '.join(known)}"] if known else []), *remarks]


def remarks(result: StudyResult) -> list[str]:
    """What the published file says of the whole table, and which of its rows the paper copied from elsewhere."""
    if result.published_table is None:
        return []
    cited = list(dict.fromkeys(row.title for row in result.published_table.rows if row.cited))
    return [
        *result.published_table.notes,
        *([f"the paper copied these rows from elsewhere: {', '.join(cited)}"] if cited else []),
    ]


def own_models(result: StudyResult) -> list[str]:
    """Trained metrics with numbers beside published ones, by a model that is not the paper's."""
    titles: dict[str, dict[str, None]] = {}
    labels: dict[str, set[str]] = {}
    for cell in result.cells:
        if cell.published is None:
            continue
        for models in _not_the_authors(result, cell):
            titles.setdefault(models, {})[cell.title] = None
            labels.setdefault(models, set()).add(cell.label or cell.metric)
    return [
        f"{', '.join(names)}: by the model {model} that was given{'' if '+' in model else ' (one network, one seed)'}, "
        "which is not the paper's; the published numbers are of the authors' own"
        # Rows of variants would else look as if each variant had been computed.
        + ("; these rows share it: --model LABEL=FILE gives one a model of its own" if len(labels[model]) > 1 else "")
        for model, names in titles.items()
    ]


def by_own_model(result: StudyResult, cell: Cell) -> bool:
    """Whether a number of a trained metric stands beside a published one, by a model that is not the paper's."""
    return cell.published is not None and bool(_not_the_authors(result, cell))


def _not_the_authors(result: StudyResult, cell: Cell) -> list[str]:
    """The models of a cell's metric that are not those of the published table's authors."""
    authors = () if result.published_table is None else result.published_table.authors_models
    return [models for models in _models(result, cell) if not set(models.split("+")) <= set(authors)]


def _models(result: StudyResult, cell: Cell) -> list[str]:
    label = cell.label or cell.metric
    lines = [signatures[label] for signatures in result.signatures.values() if label in signatures]
    return [fact.removeprefix("model:") for line in lines for fact in line.split("|") if fact.startswith("model:")]


def footnotes(noted: Mapping[str, Sequence[str]], unexplained: Sequence[str]) -> list[str]:
    """One line for each remark on numbers, with all numbers that it is about, and one for those that nothing explains.

    Args:
        noted: names of numbers (row and column) by remark.
        unexplained: names of numbers without a remark.
    """
    lines = [
        f"{UNEXPLAINED if tells_no_reason(note) else '*'} {'; '.join(names)}: {note}" for note, names in noted.items()
    ]
    if unexplained:
        lines.append(f"{UNEXPLAINED} {NOT_EXPLAINED}: {'; '.join(unexplained)}")
    return lines


def no_numbers(result: StudyResult) -> list[str]:
    """One line on a published table whose file holds no numbers."""
    table = result.published_table
    return [] if table is None or table.missing is None else [f"published: {table.source}: no numbers. {table.missing}"]


def unplaced(result: StudyResult) -> dict[str, list[PrintedColumn]]:
    """Published columns that stand beside none of ours, by the reason; without those that have no number."""
    table = result.published_table
    if table is None:
        return {}
    shown = {info.id for info in result.protocols}
    with_numbers = {number.column for row in table.rows for number in row.numbers}
    columns: dict[str, list[PrintedColumn]] = {}
    for column in table.columns:
        if column.protocol not in shown and column.key in with_numbers:
            reason = "no protocol of ours" if column.protocol is None else "data not here"
            columns.setdefault(f"Published, {reason}", []).append(column)
    return columns
