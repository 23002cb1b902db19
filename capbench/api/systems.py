"""``capbench.compare_systems``: test captioning systems against each other on the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    VersionGiven,
    python_caller,
    resolve,
)
from capbench.core.errors import UsageError, count, suggest
from capbench.datasets.user.captions import read_systems
from capbench.studies.judged import ProgressFactory
from capbench.studies.systems import SystemComparison
from capbench.studies.systems import compare_systems as _compare

if TYPE_CHECKING:
    from capbench.stats.significance import Correction
    from capbench.stats.systems import SystemTest

__all__ = ["SYSTEM_METRICS", "compare_systems", "system_comparison"]

SYSTEM_METRICS = ("bleu-4", "rouge-l", "meteor", "cider")
"""Default metrics of a comparison of systems."""
_TESTS = ("permutation", "bootstrap")
_CORRECTIONS = ("holm", "bh", "none")


def compare_systems(
    systems: Mapping[str, PathGiven] | Sequence[PathGiven],
    references: PathGiven,
    metrics: MetricsGiven = SYSTEM_METRICS,
    *,
    test: SystemTest = "permutation",
    correction: Correction = "holm",
    resamples: int | None = None,
    permutations: int | None = None,
    seed: int = 0,
    all_pairs: bool = False,
    examples: int = 0,
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    progress: bool | ProgressFactory = False,
) -> SystemComparison:
    """Test whether captioning systems differ in their corpus scores, as ``capbench compare-systems`` does.

    Args:
        systems: files of captions by the systems' names, the baseline first; or a list of files, which name them.
        references: the file of references.
        metrics: names, functions or classes, or a dictionary of them by label.
        test: ``permutation`` or ``bootstrap``; both are paired, by image.
        correction: correction for the number of comparisons, ``holm``, ``bh`` or ``none``.
        resamples: number of bootstrap resamples and permutations; by default 1,000 and 10,000.
        permutations: number of permutations, if it differs from that of the resamples.
        seed: seed of both.
        all_pairs: True to compare all pairs, False to compare each system with the baseline.
        options: see :class:`capbench.api.resolve.MetricInputs`, as for ``features``, ``model``, ``images``, ``data``,
            ``cache`` and ``version``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError: there are fewer than two systems, two have the same name, or an argument is invalid.
        DataError: a file has invalid content, or systems caption different images.
        MetricError: a requirement of a metric is missing, or it failed.
    """
    inputs = MetricInputs.of(locals())
    check_arguments(
        {**vars(inputs), "metrics": metrics, "progress": progress, "permutations": permutations, "seed": seed}
    )
    entries = systems.items() if isinstance(systems, Mapping) else ((Path(file).stem, file) for file in systems)
    return system_comparison(
        [(name, Path(file)) for name, file in entries],
        Path(references),
        metrics,
        inputs,
        python_caller(progress),
        test=test,
        correction=correction,
        resamples=resamples,
        permutations=permutations,
        seed=seed,
        all_pairs=all_pairs,
        examples=examples,
    )


def system_comparison(
    systems: Sequence[tuple[str, Path]],
    references: Path,
    metrics: MetricsGiven,
    inputs: MetricInputs,
    caller: Caller,
    *,
    test: str,
    correction: str,
    resamples: int | None,
    permutations: int | None = None,
    seed: int,
    all_pairs: bool,
    examples: int = 0,
) -> SystemComparison:
    """Compare systems for Python or the command line; see :func:`compare_systems`."""
    for argument, value, choices in (("test", test, _TESTS), ("correction", correction, _CORRECTIONS)):
        if value not in choices:
            raise UsageError(
                f"{caller.spelled(argument)} {value}: unknown",
                code="wrong-value",
                value=value,
                hint=suggest(str(value), list(choices)),
            )
    files: dict[str, Path] = {}
    for name, file in systems:
        if name in files:
            raise UsageError(
                f"two systems have the name '{name}': {files[name]} and {file}",
                code="duplicate",
                value=name,
                hint=f"Name them: NAME={file}",
            )
        files[name] = file
    if len(files) < 2:
        raise UsageError(
            "a comparison requires two systems", code="too-few", hint="Pass a baseline and one or more systems"
        )
    resolved = resolve(metrics, inputs, caller)
    captions = read_systems(files, references)
    if missing := len(captions.without_candidate):
        caller.note(f"no caption for {count(missing, 'image')} of the references")
    return _compare(
        captions,
        resolved.requests,
        test=test,  # type: ignore[arg-type]  # checked above, as is the next one
        correction=correction,  # type: ignore[arg-type]
        resamples=resamples,
        permutations=permutations,
        seed=seed,
        all_pairs=all_pairs,
        examples=examples,
        resources=resolved.resources,
        cache=resolved.cache,
        progress=caller.progress,
    )
