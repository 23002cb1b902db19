"""The sentence with which a paper describes its numbers, and the BibTeX entries of data sets, metrics and capbench.

The entries are in ``bibliography.bib``, next to this module. A metric or data set without an entry, such as the user's
own, is listed in a comment with its publication in words.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence

from capbench import __version__
from capbench.core.errors import CapbenchError, count
from capbench.datasets.protocol import base_name, statistic_title
from capbench.metrics.registry import metric_columns
from capbench.reports.tables import data_points
from capbench.stats.pairs import Tests
from capbench.studies.results import StudyResult

_FIELDS = {"metrics": "capbench-metrics", "datasets": "capbench-datasets"}
_TESTS = {
    "permutation": "the permutation test PERM-BOTH",
    "bootstrap": "a paired bootstrap test",
    "williams": "Williams' test",
    "steiger": "Steiger's test",
    "mcnemar": "McNemar's test",
}
_CORRECTIONS = {
    "holm": "with Holm's correction",
    "bh": "with Benjamini and Hochberg's correction",
    "none": "without correction",
}


def cite_study(result: StudyResult) -> str:
    """One sentence for each protocol of a study, and the BibTeX entries."""
    sentences = []
    for info in result.protocols:
        cells = [
            cell for cell in result.cells if cell.protocol == info.id and not cell.group and cell.value is not None
        ]
        if not cells:
            continue
        made = info.bootstrap
        intervals = (
            ""
            if made is None
            else _intervals(made.level, made.method, made.resamples, made.units, made.unit, made.seed)
        )
        sentences.append(
            _sentence(
                info.dataset_title,
                info.statistic,
                f"{max(cell.n for cell in cells):,} {data_points(info)} of {info.n_items:,} captions",
                info.versioned_id,
                intervals,
                _test(result.comparison(info.id)),
            )
        )
    metrics = {cell.title: cell.metric for cell in result.cells}
    return _cited(sentences, {info.dataset_title: info.dataset for info in result.protocols}, metrics, result.sample)


def _sentence(title: str, statistic: str, size: str, protocol: str, intervals: str, test: str) -> str:
    more = "".join(f"; {part}" for part in (intervals, test) if part)
    return (
        f"Agreement with human judgements is measured with {statistic_title(statistic)} on {title} ({size}; protocol "
        f"{protocol}){more}."
    )


def _intervals(level: float, method: str, resamples: int | None, units: int, unit: str | None, seed: int | None) -> str:
    name = {"percentile": "percentile bootstrap", "bca": "BCa bootstrap"}.get(method, method)
    drawn = "" if resamples is None else f" ({resamples:,} resamples of {count(units, str(unit))}, seed {seed})"
    return f"{100 * level:g} % intervals are {name} intervals{drawn}"


def _test(tests: Tests | None) -> str:
    if tests is None or not tests.pairs:
        return ""
    drawn = ""
    if tests.resamples is not None:
        noun = "permutations" if tests.test == "permutation" else "resamples"
        drawn = f" ({tests.resamples:,} {noun} over {count(tests.units, str(tests.unit))}, seed {tests.seed})"
    correction = _CORRECTIONS[tests.correction] if len(tests.pairs) > 1 else ""
    corrected = f" {correction} over {count(len(tests.pairs), 'pair')}" if correction else ""
    return f"differences between metrics are tested with {_TESTS[tests.test]}{drawn}{corrected}, α = {tests.alpha:g}"


def _cited(sentences: Sequence[str], datasets: Mapping[str, str], metrics: Mapping[str, str], sample: bool) -> str:
    from capbench.reports.markup import SAMPLE

    lines = [SAMPLE] if sample else []
    lines += [*sentences, f"Computed with capbench {__version__}."]
    return "\n".join(lines) + "\n\n" + bibtex(datasets, metrics)


def bibtex(datasets: Mapping[str, str], metrics: Mapping[str, str]) -> str:
    """BibTeX entries of data sets, metrics and capbench, each once.

    Args:
        datasets: names of data sets, with group and version, by title.
        metrics: names of metrics by title.
    """
    columns = metric_columns()
    found: dict[str, str] = {}
    without = []
    for title, name in datasets.items():
        own = entries("datasets", base_name(name))
        found |= own
        without += [] if own else [f"% {title}: {_publication(name)}"]
    for title, name in metrics.items():
        own = entries("metrics", columns.get(name, (name, ""))[0])
        found |= own
        without += [] if own else [f"% {title}: a metric without a publication in capbench"]
    software = (
        f"@misc{{capbench,\n  author = {{{{The capbench authors}}}},\n  title = {{capbench}},\n"
        f"  note = {{Version {__version__}}},\n}}"
    )
    return "\n\n".join([*found.values(), software, *dict.fromkeys(without)]) + "\n"


def _publication(name: str) -> str:
    """The publication of a data set without an entry, in words."""
    from capbench.datasets.base import load_dataset

    try:
        return load_dataset(name).citation
    except CapbenchError:
        return "a data set without a publication in capbench"


def entries(kind: str, name: str) -> dict[str, str]:
    """The BibTeX entries of a metric or data set by key; empty if there are none.

    Args:
        kind: ``metrics`` or ``datasets``.
        name: its name, without group and version.
    """
    field = _FIELDS[kind]
    return {
        key: "\n".join(line for line in text.splitlines() if not line.startswith("  capbench-"))
        for key, text in _bibliography().items()
        if name in _names(text, field)
    }


def _names(entry: str, field: str) -> Iterable[str]:
    match = re.search(rf"^  {field} = {{(.*)}},$", entry, flags=re.MULTILINE)
    return () if match is None else match[1].split(", ")


@functools.cache
def _bibliography() -> dict[str, str]:
    """All entries by key, as in the file."""
    text = importlib.resources.files("capbench.reports").joinpath("bibliography.bib").read_text(encoding="utf-8")
    found = re.finditer(r"^@\w+{(.+?),\n(?:  .*\n)+}", text, flags=re.MULTILINE)
    return {match[1]: match[0] for match in found}
