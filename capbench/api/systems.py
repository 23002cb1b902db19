"""``capbench.compare_systems``: captioning systems against each other on the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from typing_extensions import Unpack

from capbench.api.arguments import SystemSettings
from capbench.api.caller import ProgressGiven, python_caller
from capbench.api.checking import checked
from capbench.api.resolve import CachedInputs, MetricsGiven, resolve
from capbench.core.arguments import PathGiven
from capbench.core.errors import UsageError, count
from capbench.datasets.user.caption_warnings import note_without_candidate
from capbench.datasets.user.captions import ReadingOptions, read_systems
from capbench.stats.systems import SystemTests
from capbench.studies.systems import SystemComparison
from capbench.studies.systems import compare_systems as _compare

SYSTEM_METRICS = ("bleu-4", "rouge-l", "meteor", "cider")
"""Default metrics of a comparison of systems."""
_OF_TESTS = [field.name for field in fields(SystemTests)]


class SystemInputs(CachedInputs, SystemSettings, total=False):
    """Inputs of the metrics, and settings of the tests."""


@checked
def compare_systems(
    systems: Mapping[str, PathGiven] | Sequence[PathGiven | tuple[str, PathGiven]],
    references: PathGiven,
    metrics: MetricsGiven = SYSTEM_METRICS,
    *,
    progress: ProgressGiven = False,
    **inputs: Unpack[SystemInputs],
) -> SystemComparison:
    """Test whether captioning systems differ in their corpus scores, as ``capbench compare-systems`` does.

    ``systems`` are files of captions by the systems' names, the baseline first, or a list of files, which name them.
    Other inputs: :class:`capbench.api.arguments.SystemSettings`, whose ``resamples`` is also the number of permutations
    unless that is given, and :class:`capbench.api.resolve.CachedInputs`.
    """
    caller, files = python_caller(progress), dict[str, Path]()
    for given in systems.items() if isinstance(systems, Mapping) else systems:
        name, file = given if isinstance(given, tuple) else (Path(given).stem, given)
        if name in files:
            message = f"two systems have the name '{name}': {files[name]} and {file}"
            raise UsageError(message, code="duplicate", value=name, hint=f"Name them: NAME={file}")
        files[name] = Path(file)
    if len(files) < 2:
        hint = "Pass a baseline and one or more systems"
        raise UsageError("a comparison requires two systems", code="too-few", hint=hint)
    plan = resolve(metrics, inputs, caller)
    spelled, restrict, split = caller.spelled, inputs.get("restrict", False), inputs.get("split")
    if restrict and split is None:
        message = f"{spelled('restrict')} requires {spelled('split')}"
        raise UsageError(message, code="missing-option", hint=f"Add {spelled('split')}")
    options = ReadingOptions(split, restrict, inputs.get("keep_first", False), spelled)
    captions = read_systems(files, Path(references), options)
    for request in plan.requests:
        for items in captions.items.values():
            request.metric.check_captions(items)
    first, *_ = captions.files.values()
    if note := note_without_candidate(first.without_candidate, first.items, Path(references).name):
        caller.note(note)
    for name, of_file in captions.files.items():
        if of_file.left_out:
            others = count(of_file.left_out, "candidate")
            caller.note(f"{name}: {others} of other splits left out ({spelled('restrict')})")
        if further := len(of_file.items) - len(captions.items[name]):
            repeats = count(further, "further caption")
            caller.note(f"{name}: {repeats} of the same images left out ({spelled('keep_first')})")
    settings = {name: value for name, value in inputs.items() if name in _OF_TESTS}
    return _compare(
        captions,
        plan.requests,
        SystemTests(**settings),  # type: ignore[arg-type]
        resources=plan.resources,
        cache=inputs.get("cache", True),
        progress=caller.progress,
    )
