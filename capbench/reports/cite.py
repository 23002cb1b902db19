"""The sentence with which a paper describes its numbers, and the BibTeX entries of ``bibliography.bib``.

A metric or data set without an entry, such as the user's own, is listed in a comment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import re
from collections.abc import Mapping

from capbench import __version__
from capbench.core.errors import CapbenchError, count
from capbench.datasets.protocol import base_name, statistic_title
from capbench.metrics.registry import metric_columns
from capbench.reports.markup import SAMPLE
from capbench.reports.methods import CORRECTIONS, intervals, tested_by
from capbench.reports.tables import data_points
from capbench.studies.results import StudyResult


def cite_study(result: StudyResult) -> str:
    """One sentence for each protocol of a study, and the BibTeX entries."""
    lines = [SAMPLE] if result.sample else []
    for info in result.protocols:
        sizes = [c.n for c in result.cells if c.protocol == info.id and not c.group and c.value is not None]
        if not sizes:
            continue
        size = f"{max(sizes):,} {data_points(info)} of {info.n_items:,} captions"
        more, boot, tests = "", info.bootstrap, result.comparison(info.id)
        if boot is not None:
            more += f"; {intervals(boot.level, boot.method, boot.unit, boot.resamples, boot.seed)}"
        if tests is not None and tests.pairs:
            method = tested_by(tests.test, tests.unit, tests.resamples, tests.seed, "")
            pairs = f"{CORRECTIONS[tests.correction]} over {count(len(tests.pairs), 'pair')}"
            more += f"; differences between metrics: {method}, {pairs}, α = {tests.alpha:g}"
        lines.append(
            f"Agreement with human judgements is measured with {statistic_title(info.statistic)} on "
            f"{info.dataset_title} ({size}; protocol {info.versioned_id}){more}."
        )
    lines.append(f"Computed with capbench {__version__}.")
    datasets = {info.dataset_title: info.dataset for info in result.protocols}
    return "\n".join(lines) + "\n\n" + bibtex(datasets, {cell.title: cell.metric for cell in result.cells})


def bibtex(datasets: Mapping[str, str], metrics: Mapping[str, str]) -> str:
    """BibTeX entries of data sets, metrics and capbench, each once."""
    columns = metric_columns()
    found: dict[str, str] = {}
    without = []
    for title, name in datasets.items():
        known = entries("datasets", base_name(name))
        found |= known
        without += [] if known else [f"% {title}: {_publication(name)}"]
    for title, name in metrics.items():
        known = entries("metrics", columns.get(name, (name, ""))[0])
        found |= known
        without += [] if known else [f"% {title}: a metric without a publication in capbench"]
    software = (
        f"@misc{{capbench,\n  author = {{{{The capbench authors}}}},\n  title = {{capbench}},\n"
        f"  note = {{Version {__version__}}},\n}}"
    )
    return "\n\n".join([*found.values(), software, *dict.fromkeys(without)]) + "\n"


def _publication(name: str) -> str:
    """The publication of a data set without an entry, in words."""
    from capbench.datasets.base import load_dataset

    with contextlib.suppress(CapbenchError):
        if citation := load_dataset(name).citation:
            return citation
    return "a data set without a publication in capbench"


def entries(kind: str, name: str) -> dict[str, str]:
    """The BibTeX entries of a metric or data set by key; empty if there are none."""
    listed = re.compile(rf"^  capbench-{kind} = {{(?:.*, )?{re.escape(name)}(?:, .*)?}},$", re.MULTILINE)
    found = {key: text for key, text in _bibliography().items() if listed.search(text)}
    return {key: re.sub(r"^  capbench-.*\n", "", text, flags=re.MULTILINE) for key, text in found.items()}


@functools.cache
def _bibliography() -> dict[str, str]:
    """All entries by key, as in the file."""
    text = importlib.resources.files("capbench.reports").joinpath("bibliography.bib").read_text(encoding="utf-8")
    found = re.finditer(r"^@\w+{(.+?),\n(?:  .*\n)+}", text, flags=re.MULTILINE)
    return {match[1]: match[0] for match in found}
