"""``capbench.compare_systems``: captioning systems against each other on the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import Unpack

from capbench.api.arguments import SystemSettings
from capbench.api.checking import checked
from capbench.api.resolve import (
    CachedInputs,
    Caller,
    MetricsGiven,
    PathGiven,
    ProgressGiven,
    given_inputs,
    python_caller,
    resolve,
)
from capbench.core.errors import UsageError, count
from capbench.datasets.user.caption_warnings import note_without_candidate
from capbench.datasets.user.captions import ReadingOptions, read_systems
from capbench.studies.systems import SystemComparison
from capbench.studies.systems import compare_systems as _compare

__all__ = ["SYSTEM_METRICS", "SystemInputs", "compare_systems", "system_comparison"]

SYSTEM_METRICS = ("bleu-4", "rouge-l", "meteor", "cider")
"""Default metrics of a comparison of systems."""
_OF_TESTS = ("test", "correction", "resamples", "permutations", "seed", "all_pairs", "examples")


class SystemInputs(CachedInputs, SystemSettings, total=False):
    """Inputs of the metrics, and settings of the tests."""


@checked
def compare_systems(
    systems: Mapping[str, PathGiven] | Sequence[PathGiven],
    references: PathGiven,
    metrics: MetricsGiven = SYSTEM_METRICS,
    *,
    progress: ProgressGiven = False,
    **inputs: Unpack[SystemInputs],
) -> SystemComparison:
    """Test whether captioning systems differ in their corpus scores, as ``capbench compare-systems`` does.

    Args:
        systems: files of captions by the systems' names, the baseline first; or a list of files, which name them.
        references: the file of references.
        metrics: names, functions or classes, or a dictionary of them by label.
        progress: see :func:`capbench.api.caller.python_caller`.
        inputs: see :class:`capbench.api.arguments.SystemSettings` and :class:`capbench.api.resolve.CachedInputs`.
            ``resamples`` is also the number of permutations, unless that is given.
    """
    entries = systems.items() if isinstance(systems, Mapping) else ((Path(file).stem, file) for file in systems)
    named = [(name, Path(file)) for name, file in entries]
    return system_comparison(named, Path(references), metrics, inputs, python_caller(progress))


def system_comparison(
    systems: Sequence[tuple[str, Path]], references: Path, metrics: MetricsGiven, values: SystemInputs, caller: Caller
) -> SystemComparison:
    """Compare systems for Python or the command line; see :func:`compare_systems`."""
    files: dict[str, Path] = {}
    for name, file in systems:
        if name in files:
            message = f"two systems have the name '{name}': {files[name]} and {file}"
            raise UsageError(message, code="duplicate", value=name, hint=f"Name them: NAME={file}")
        files[name] = file
    if len(files) < 2:
        hint = "Pass a baseline and one or more systems"
        raise UsageError("a comparison requires two systems", code="too-few", hint=hint)
    resolved = resolve(metrics, given_inputs(values), caller)
    spelled, restrict, split = caller.spelled("keep_first"), values.get("restrict", False), values.get("split")
    if restrict and split is None:
        message = f"{caller.spelled('restrict')} requires {caller.spelled('split')}"
        raise UsageError(message, code="missing-option", hint=f"Add {caller.spelled('split')}")
    captions = read_systems(
        files,
        references,
        keep_first=values.get("keep_first", False),
        keep_option=spelled,
        options=ReadingOptions(split, restrict, caller.spelled("split"), caller.spelled("restrict")),
    )
    for request in resolved.requests:
        for items in captions.items.values():
            request.metric.check_captions(items)
    first, *_ = captions.items.values()
    if note := note_without_candidate(captions.without_candidate, first, references.name):
        caller.note(note)
    for name, left_out in captions.left_out.items():
        if left_out:
            caller.note(f"{name}: {count(left_out, 'further caption')} of the same images left out ({spelled})")
    settings = {name: value for name, value in values.items() if name in _OF_TESTS}
    return _compare(
        captions,
        resolved.requests,
        resources=resolved.resources,
        cache=resolved.cache,
        progress=caller.progress,
        **settings,  # type: ignore[arg-type]
    )
