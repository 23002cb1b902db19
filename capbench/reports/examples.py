"""Captions on which a metric and human ratings differ most and least (TIGEr, Table 3), as text and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from capbench import __version__
from capbench.datasets.protocol import with_version
from capbench.reports.markup import SAMPLE

_KINDS = {
    "metric-higher": "{} higher than human ratings",
    "human-higher": "human ratings higher than {}",
    "equal": "equal",
}
_AGGREGATES = {"mode": "most frequent rating", "mean": "mean", "median": "median"}


def examples_lines(found: Mapping[str, Any], written: Callable[[str], str] = str) -> Iterator[str]:
    """The result of :func:`~capbench.studies.examples.choose_examples` as lists; ``written`` escapes a text."""
    metric, n = written(found["metric"]), found["n"]
    yield written(f"{found['metric']} and human ratings on {found['dataset_title']}")
    for kind, count in found["counts"].items():
        yield f"\n{_KINDS[kind].format(metric)}: {count:,} of {n:,}\n"
        for example in found["examples"]:
            if example["kind"] == kind:
                numbers = f"humans {example['human']:g}, {metric} {example['group']:g} ({example['score']:.3f})"
                yield f"- {written(example['image'])}: {written(example['candidate'])}  ({numbers})"
                yield from (f"  - {written(text)}" for text in example["references"])
    yield ""
    if aggregate := _AGGREGATES.get(found["aggregation"]):
        yield f"several ratings of a caption are aggregated by their {aggregate}"
    yield f"{with_version(found['protocol'], found['version'])}; n = {n:,}; capbench {__version__}"
    yield found["signature"]
    if found["sample"]:
        yield SAMPLE
